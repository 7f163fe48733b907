//! Spans to an OTLP endpoint, sent before the answer: Cloud Run takes the processor away afterwards, so that nothing may
//! be left to a thread in the background.
//!
//! Sampling is the SDK's: as the caller decided, else by `OTEL_TRACES_SAMPLER`. Headers come from
//! `OTEL_EXPORTER_OTLP_HEADERS`.

use std::mem;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor};

use crate::Service;

/// Longest wait of an answer for its spans.
// A collector stands beside the service or in its region: two seconds are an outage.
const SEND_MAX: Duration = Duration::from_secs(2);
/// After a failure nothing is sent for so long, so that an outage of the collector does not slow every answer.
const PAUSE: Duration = Duration::from_secs(15);
/// Spans kept at once; further ones are dropped. Some kilobytes each at most.
const KEPT_MAX: usize = 2048;

static EXPORT: OnceLock<Export> = OnceLock::new();

/// Why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[error("spans cannot be sent to {endpoint}: {why}")]
pub struct ExportError {
    endpoint: String,
    why: String,
}

/// Spans that have ended and are not sent yet.
#[derive(Debug, Clone, Default)]
struct Ended(Arc<Mutex<Vec<SpanData>>>);

impl Ended {
    fn take(&self) -> Vec<SpanData> {
        mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl SpanProcessor for Ended {
    fn on_start(&self, _: &mut Span, _: &opentelemetry::Context) {}

    fn on_end(&self, span: SpanData) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if span.span_context.is_sampled() && kept.len() < KEPT_MAX {
            kept.push(span);
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

struct Export {
    ended: Ended,
    /// Held while spans are on their way: who comes next answers only after them, for its own may be among them.
    sender: tokio::sync::Mutex<Sender>,
}

struct Sender {
    exporter: SpanExporter,
    resting: Option<Instant>,
}

/// Begins to export this process's spans to `endpoint`, such as `http://127.0.0.1:4318`; gives the tracer for the layer.
pub(crate) fn start(endpoint: &str, service: &Service) -> Result<SdkTracer, ExportError> {
    let refused = |why: String| ExportError { endpoint: endpoint.to_owned(), why };
    let client = reqwest::Client::builder().no_proxy().timeout(SEND_MAX).build();
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpJson)
        .with_http_client(client.map_err(|error| refused(error.to_string()))?)
        .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
        .with_timeout(SEND_MAX)
        .build()
        .map_err(|error| refused(error.to_string()))?;
    let version = opentelemetry::KeyValue::new("service.version", service.version.clone());
    let resource = Resource::builder().with_service_name(service.name.clone()).with_attribute(version).build();
    exporter.set_resource(&resource);
    let ended = Ended::default();
    let provider = SdkTracerProvider::builder().with_resource(resource).with_span_processor(ended.clone()).build();
    let tracer = provider.tracer("rekindle");
    let sender = tokio::sync::Mutex::new(Sender { exporter, resting: None });
    EXPORT.set(Export { ended, sender }).map_err(|_| refused("they are exported already".into()))?;
    Ok(tracer)
}

/// Whether spans are exported.
pub(crate) fn is_on() -> bool {
    EXPORT.get().is_some()
}

/// Sends the spans that have ended. Call it before each answer. Nothing to do without an endpoint; a failure costs the
/// spans and is logged, never the answer.
pub async fn flush() {
    let Some(export) = EXPORT.get() else { return };
    // In a box: every request has this future in its own, and hardly one sends.
    Box::pin(export.send()).await;
}

impl Export {
    async fn send(&self) {
        let mut sender = self.sender.lock().await;
        let spans = self.ended.take();
        if spans.is_empty() || sender.resting.is_some_and(|since| since.elapsed() < PAUSE) {
            return;
        }
        let count = spans.len();
        let sent = tokio::time::timeout(SEND_MAX, sender.exporter.export(spans)).await;
        let why = match sent {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {SEND_MAX:?}")),
        };
        sender.resting = why.is_some().then(Instant::now);
        if let Some(why) = why {
            tracing::warn!(count, why, pause_secs = PAUSE.as_secs(), "spans could not be sent");
        }
    }
}
