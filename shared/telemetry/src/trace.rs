//! The trace of the work at hand: read from what comes in, handed on to what goes out.
//!
//! Without an exporter ([`crate::export`]) a context passes through unchanged, so that our lines and our calls belong to
//! the trace of whoever began it. With one, each piece of work is a span of its own, and what goes out names that span.

use std::future::Future;

use futures::future::Either;
use http::{HeaderMap, HeaderName, HeaderValue};
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
// Numbers, not texts: every request brings one, and few of them are ever written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// 32 hex digits, as it is shown.
    pub trace_id: TraceId,
    /// 16 hex digits, as it is shown.
    pub span_id: SpanId,
    /// Whether the sender records it.
    pub sampled: bool,
}

impl TraceContext {
    /// From `traceparent` (W3C), else from `x-cloud-trace-context`.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        const W3C: HeaderName = HeaderName::from_static(TRACEPARENT);
        const GOOGLE: HeaderName = HeaderName::from_static("x-cloud-trace-context");
        let text = |name: HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
        text(W3C).and_then(Self::parse).or_else(|| text(GOOGLE).and_then(Self::legacy))
    }

    /// Reads a W3C `traceparent`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if number(version, 2)? == 0xff {
            return None;
        }
        Self::of_numbers(number(trace, 32)?, number(span, 16)? as u64, number(flags, 2)? & 1 == 1)
    }

    /// `TRACE_ID/SPAN_ID;o=1`, the span id in decimal.
    fn legacy(text: &str) -> Option<Self> {
        let (trace, rest) = text.split_once('/')?;
        let (span, options) = rest.split_once(';').unwrap_or((rest, ""));
        Self::of_numbers(number(trace, 32)?, span.parse().ok()?, options.trim() == "o=1")
    }

    /// Ids of nothing but zeros name nothing.
    fn of_numbers(trace: u128, span: u64, sampled: bool) -> Option<Self> {
        let ids = (TraceId::from_bytes(trace.to_be_bytes()), SpanId::from_bytes(span.to_be_bytes()));
        (trace != 0 && span != 0).then_some(Self { trace_id: ids.0, span_id: ids.1, sampled })
    }

    /// As a W3C `traceparent`.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }

    fn remote(self) -> SpanContext {
        let flags = if self.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        SpanContext::new(self.trace_id, self.span_id, flags, true, TraceState::default())
    }

    /// What the exporter knows of a span; `None` without an exporter.
    fn exported(span: &Span) -> Option<Self> {
        let context = span.context();
        let context = context.span().span_context().clone();
        context.is_valid().then(|| Self {
            trace_id: context.trace_id(),
            span_id: context.span_id(),
            sampled: context.is_sampled(),
        })
    }
}

/// So many hex digits, and nothing else.
fn number(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// The trace that this task works for.
pub fn current() -> Option<TraceContext> {
    CURRENT.try_with(|own| *own).ok()
}

/// The header of a call that this task makes, where it works for a trace.
pub fn header() -> Option<HeaderValue> {
    HeaderValue::from_str(&current()?.traceparent()).ok()
}

/// Works inside the span that `span` makes, as a part of `parent`: the context that came with a request or a message.
/// Where the request's own trace is another one, the exported span is linked to it.
///
/// Without an exporter nobody would see the span, so none is made: lines take their trace from [`current`].
// No `async fn`: it would hold the work twice, once as it came and once where it runs, and so would each that is around it. A request's
// work had 20 KiB in that way, which are moved several times.
pub fn within<W: Future>(
    span: impl FnOnce() -> Span,
    parent: Option<TraceContext>,
    work: W,
) -> impl Future<Output = W::Output> {
    if !export::is_on() {
        return Either::Left(scoped(parent, work));
    }
    let span = span();
    if let Some(remote) = parent.map(TraceContext::remote) {
        if let Some(outer) = current().map(TraceContext::remote) {
            span.add_link(outer);
        }
        // Refused only once a span has begun, and this one is new.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(remote));
    }
    Either::Right(scoped(TraceContext::exported(&span).or(parent), work.instrument(span)))
}

fn scoped<W: Future>(own: Option<TraceContext>, work: W) -> impl Future<Output = W::Output> {
    match own {
        Some(own) => Either::Left(CURRENT.scope(own, work)),
        None => Either::Right(work),
    }
}

/// One call to another service, with a span of its own where spans are exported.
pub fn call<W: Future>(name: &'static str, work: W) -> impl Future<Output = W::Output> {
    within(move || tracing::info_span!("call", otel.name = name, otel.kind = "client"), None, work)
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
        assert_eq!((legacy.trace_id.to_string().as_str(), legacy.sampled), (trace, true));
        assert_eq!(legacy.span_id, SpanId::from_bytes(3_884_770_098_780_217_813_u64.to_be_bytes()));
        let later = TraceContext::parse(&format!("01-{}-00f067aa0ba902b7-00-more", trace.to_uppercase())).unwrap();
        assert_eq!(later.traceparent(), format!("00-{trace}-00f067aa0ba902b7-00"));
        let nothing = "0".repeat(32);
        for bad in [
            "",
            "00",
            "zz-00-00-00",
            &format!("ff-{trace}-00f067aa0ba902b7-01"),
            &format!("+0-{trace}-00f067aa0ba902b7-01"),
            &format!("00-+{}-00f067aa0ba902b7-01", &trace[1..]),
            &format!("00-{trace}-{}-01", &nothing[16..]),
            &format!("00-{nothing}-00f067aa0ba902b7-01"),
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
        for bad in ["", trace, &format!("{nothing}/1;o=1"), &format!("{trace}/0;o=1"), &format!("{trace}/x;o=1")] {
            assert_eq!(TraceContext::of(&headers("x-cloud-trace-context", bad)), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn without_an_exporter_a_context_passes_through() {
        let came = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        let span = || panic!("a span that nobody sees");
        let inner = async { call("CreateNode", async { (current(), header()) }).await };
        let (seen, header) = within(span, came, inner).await;
        assert_eq!(seen, came);
        assert_eq!(header.unwrap().to_str().unwrap(), came.unwrap().traceparent());
        assert_eq!(within(span, None, async { current() }).await, None);
    }

    #[test]
    fn what_is_around_some_work_holds_it_once() {
        let work = || async {
            let room = [1_u8; 4096];
            tokio::task::yield_now().await;
            room.len()
        };
        let alone = size_of_val(&work());
        let span = || panic!("a span that nobody sees");
        for around in [size_of_val(&within(span, None, work())), size_of_val(&call("CreateNode", work()))] {
            assert!(around < alone + 1024, "{around} bytes around {alone}");
        }
    }
}
