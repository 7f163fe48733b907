//! The layers around every router: a span for the logs, panics as 500, the deadline below the platform's, and problems
//! for unknown paths.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;
use tracing::Instrument;

use crate::problem::{Problem, problem};

/// Most requests that a process works on at once; more get 503 at once and come again.
// Above the concurrency that any service is deployed with, and low enough that as many bodies of the largest size fit
// into its memory.
pub const AT_ONCE_MAX: usize = 256;

/// The router with all common layers. `deadline`: no handler works longer; what it has not answered by then gets 503.
///
/// A body that is streamed after the head of the answer is not bound by it.
pub fn common(router: Router, deadline: Duration) -> Router {
    router
        .fallback(async || Problem::not_found("such path"))
        .method_not_allowed_fallback(async || {
            problem(StatusCode::METHOD_NOT_ALLOWED, "method", "this path does not know that method")
        })
        .layer(middleware::from_fn_with_state(deadline, bounded))
        .layer(middleware::from_fn_with_state(Arc::new(Semaphore::new(AT_ONCE_MAX)), admitted))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn(observed))
}

async fn bounded(State(deadline): State<Duration>, request: Request, next: Next) -> Response {
    if let Ok(response) = tokio::time::timeout(deadline, next.run(request)).await {
        return response;
    }
    tracing::warn!(deadline_ms = deadline.as_millis() as u64, "the handler's deadline passed");
    problem(StatusCode::SERVICE_UNAVAILABLE, "deadline", "it took too long; try again").into_response()
}

/// Sheds what is too much: a late answer helps nobody, and memory must not grow with the load.
async fn admitted(State(places): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let Ok(_place) = places.try_acquire() else {
        tracing::warn!(at_once_max = AT_ONCE_MAX, "too many requests at once");
        return problem(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "too many requests at once; try again")
            .into_response();
    };
    next.run(request).await
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands it over")]
fn panicked(what: Box<dyn Any + Send + 'static>) -> Response {
    let text = what.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| what.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no text)".into());
    tracing::error!(panic = %text, "a handler panicked");
    problem(StatusCode::INTERNAL_SERVER_ERROR, "panic", "an error inside; it was recorded").into_response()
}

/// Trace id, span id and the sampled flag of a request.
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
        text("traceparent").and_then(Self::parse).or_else(|| text("x-cloud-trace-context").and_then(Self::legacy))
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
}

async fn observed(request: Request, next: Next) -> Response {
    let trace = TraceContext::of(request.headers());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let span = tracing::info_span!(
        "request",
        trace_id = trace.as_ref().map(|t| t.trace_id.as_str()),
        span_id = trace.as_ref().map(|t| t.span_id.as_str()),
        sampled = trace.as_ref().map(|t| t.sampled)
    );
    async move {
        let began = Instant::now();
        let response = next.run(request).await;
        let latency_ms = began.elapsed().as_secs_f64() * 1e3;
        let status = response.status().as_u16();
        tracing::debug!(
            http.method = %method,
            http.path = path,
            http.status = status,
            http.latency_ms = latency_ms,
            "answered"
        );
        response
    }
    .instrument(span)
    .await
}
