//! Logs: one JSON object a line for Cloud Logging, readable lines for a person's terminal.
//!
//! Fields of spans are on every line written inside them. Names that get a place of their own in Cloud Logging are in
//! [`cloud`].

pub mod cloud;

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

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

/// Makes the subscriber of this process. `filter` is in the form of `RUST_LOG`, such as `info,rekindle=debug`.
///
/// Errors: it was made before. A filter that cannot be read counts as `info`.
pub fn init(format: Format, filter: &str) -> Result<(), TryInitError> {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    match format {
        Format::Cloud { project, service } => {
            registry.with(CloudLayer::new(project, service, io::stdout as fn() -> io::Stdout)).try_init()
        }
        Format::Pretty => {
            let layer = tracing_subscriber::fmt::layer()
                .compact()
                .with_target(false)
                .with_ansi(io::stderr().is_terminal())
                .with_writer(io::stderr);
            registry.with(layer).try_init()
        }
    }
}

/// Where lines go.
pub trait Sink: for<'a> MakeWriter<'a> + Send + Sync + 'static {}
impl<W> Sink for W where W: for<'a> MakeWriter<'a> + Send + Sync + 'static {}
