//! The trace of the work at hand: read from what comes in, handed on to what goes out.
//!
//! Without an exporter ([`crate::export`]) a context passes through unchanged, so that our lines and our calls belong to
//! the trace of whoever began it. With one, each piece of work is a span of its own, and what goes out names that span.

use std::future::Future;

use http::{HeaderMap, HeaderValue};
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
use tracing::{Instrument as _, Span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::export;

/// Name of the header and of the message attribute (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";

tokio::task_local! {
    static CURRENT: TraceContext;
}

/// Trace id, span id and the sampled flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// 32 hex digits.
    pub trace_id: String,
    /// 16 hex digits.
    pub span_id: String,
    /// Whether the sender records it.
    pub sampled: bool,
}

impl TraceContext {
    /// From `traceparent` (W3C), else from `x-cloud-trace-context`.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        text(TRACEPARENT).and_then(Self::parse).or_else(|| text("x-cloud-trace-context").and_then(Self::legacy))
    }

    /// Reads a W3C `traceparent`.
    pub fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let [version, trace, span, flags, ..] = parts.as_slice() else { return None };
        let hex = |s: &str, len: usize| s.len() == len && s.bytes().all(|b| b.is_ascii_hexdigit());
        let known = hex(version, 2) && *version != "ff" && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
        if !known || trace.bytes().all(|b| b == b'0') || span.bytes().all(|b| b == b'0') {
            return None;
        }
        let sampled = u8::from_str_radix(flags, 16).is_ok_and(|f| f & 1 == 1);
        Some(Self { trace_id: trace.to_ascii_lowercase(), span_id: span.to_ascii_lowercase(), sampled })
    }

    /// `TRACE_ID/SPAN_ID;o=1`, the span id in decimal.
    fn legacy(text: &str) -> Option<Self> {
        let (trace, rest) = text.split_once('/')?;
        let (span, options) = rest.split_once(';').unwrap_or((rest, ""));
        if trace.len() != 32 || !trace.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        let span: u64 = span.parse().ok()?;
        Some(Self {
            trace_id: trace.to_ascii_lowercase(),
            span_id: format!("{span:016x}"),
            sampled: options.trim() == "o=1",
        })
    }

    /// As a W3C `traceparent`.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }

    fn remote(&self) -> Option<SpanContext> {
        let trace = TraceId::from_hex(&self.trace_id).ok()?;
        let span = SpanId::from_hex(&self.span_id).ok()?;
        let flags = if self.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let context = SpanContext::new(trace, span, flags, true, TraceState::default());
        context.is_valid().then_some(context)
    }

    /// What the exporter knows of a span; `None` without an exporter.
    fn exported(span: &Span) -> Option<Self> {
        let context = span.context();
        let context = context.span().span_context().clone();
        context.is_valid().then(|| Self {
            trace_id: context.trace_id().to_string(),
            span_id: context.span_id().to_string(),
            sampled: context.is_sampled(),
        })
    }
}

/// The trace that this task works for.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(Clone::clone).ok()
}

/// The header of a call that this task makes, where it works for a trace.
pub fn header() -> Option<HeaderValue> {
    HeaderValue::from_str(&current()?.traceparent()).ok()
}

/// A span with the fields that lines take their trace from; `None` of them are set until work begins inside it.
#[macro_export]
macro_rules! trace_span {
    ($name:literal $(, $($field:tt)*)?) => {
        ::tracing::info_span!(
            $name,
            trace_id = ::tracing::field::Empty,
            span_id = ::tracing::field::Empty,
            sampled = ::tracing::field::Empty,
            $($($field)*)?
        )
    };
}

/// Works inside `span` (made by [`trace_span!`]), as a part of `parent`: the context that came with a request or a
/// message. Where the request's own trace is another one, the exported span is linked to it.
pub async fn within<T>(span: Span, parent: Option<TraceContext>, work: impl Future<Output = T>) -> T {
    let mut own = parent;
    if export::is_on() {
        if let Some(remote) = own.as_ref().and_then(TraceContext::remote) {
            if let Some(outer) = current().and_then(|outer| outer.remote()) {
                span.add_link(outer);
            }
            // Refused only once a span has begun, and this one is new.
            let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote));
        }
        own = TraceContext::exported(&span).or(own);
    }
    let Some(own) = own else { return work.instrument(span).await };
    span.record("trace_id", own.trace_id.as_str());
    span.record("span_id", own.span_id.as_str());
    span.record("sampled", own.sampled);
    CURRENT.scope(own, work.instrument(span)).await
}

/// One call to another service, with a span of its own where spans are exported.
pub async fn call<T>(name: &'static str, work: impl Future<Output = T>) -> T {
    if !export::is_on() {
        return work.await;
    }
    within(trace_span!("call", otel.name = name, otel.kind = "client"), None, work).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn both_headers_are_read_and_nonsense_is_not() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let w3c = format!("00-{trace}-00f067aa0ba902b7-01");
        let context = TraceContext::of(&headers("traceparent", &w3c)).unwrap();
        assert_eq!(context.traceparent(), w3c);
        let legacy =
            TraceContext::of(&headers("x-cloud-trace-context", &format!("{trace}/3884770098780217813;o=1"))).unwrap();
        assert_eq!((legacy.trace_id.as_str(), legacy.sampled), (trace, true));
        assert_eq!(legacy.remote().unwrap().span_id().to_string(), legacy.span_id);
        for bad in ["", "00", "zz-00-00-00", &format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32))] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn without_an_exporter_a_context_passes_through() {
        let came = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let inner = async { call("CreateNode", async { (current(), header()) }).await };
        let (seen, header) = within(trace_span!("request"), came.clone(), inner).await;
        assert_eq!(seen, came);
        assert_eq!(header.unwrap().to_str().unwrap(), came.unwrap().traceparent());
        assert_eq!(within(trace_span!("request"), None, async { current() }).await, None);
    }
}
