//! Logs: one JSON object a line for Cloud Logging, readable lines for a person's terminal; and traces.
//!
//! Fields of spans are on every line written inside them. Names that get a place of their own in Cloud Logging are in
//! [`cloud`]. The context of a trace travels by [`trace`]; spans are sent by [`export`], where there is an endpoint.

pub mod cloud;
pub mod export;
pub mod trace;

use std::io::{self, IsTerminal};

use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{EnvFilter, filter_fn};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use cloud::CloudLayer;

/// How lines look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// For Cloud Logging, on stdout.
    Cloud {
        /// Project id, for the names of traces.
        project: String,
        /// Service name and version, for Error Reporting.
        service: Service,
    },
    /// For people, on stderr.
    Pretty,
}

/// Which program writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Such as `rekindle-reconcile`.
    pub name: String,
    /// Such as `0.1.0`.
    pub version: String,
}

/// Why logs or traces cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// It was done before.
    #[error("there is a log already")]
    Twice,
    /// Spans cannot be exported.
    #[error(transparent)]
    Export(#[from] export::ExportError),
}

/// Makes the subscriber of this process. `filter` is in the form of `RUST_LOG`, such as `info,rekindle=debug`; one that
/// cannot be read counts as `info`. `otlp`: where spans are sent, see [`export`].
pub fn init(format: Format, filter: &str, otlp: Option<(&str, &Service)>) -> Result<(), InitError> {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let tracer = otlp.map(|(endpoint, service)| export::start(endpoint, service)).transpose()?;
    // Events are lines, with their span's trace; sent twice they would only cost twice.
    let spans = tracer.map(|tracer| {
        let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false).with_threads(false);
        layer.with_filter(filter_fn(is_span))
    });
    let registry = tracing_subscriber::registry().with(filter).with(spans);
    let done = match format {
        Format::Cloud { project, service } => {
            registry.with(CloudLayer::new(project, service, io::stdout as fn() -> io::Stdout)).try_init()
        }
        Format::Pretty => {
            let layer = tracing_subscriber::fmt::layer()
                .compact()
                .with_target(false)
                .with_ansi(io::stderr().is_terminal())
                // A line that cannot be written is told on stderr otherwise, and where that takes nothing, by a panic.
                .log_internal_errors(false)
                .with_writer(io::stderr);
            registry.with(layer).try_init()
        }
    };
    done.map_err(|_| InitError::Twice)
}

fn is_span(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.is_span()
}

/// Where lines go.
pub trait Sink: for<'a> MakeWriter<'a> + Send + Sync + 'static {}
impl<W> Sink for W where W: for<'a> MakeWriter<'a> + Send + Sync + 'static {}
