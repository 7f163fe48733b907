//! The layers around every router: a span for the logs, panics as 500, the deadline below the platform's, and problems
//! for unknown paths.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use rekindle_telemetry::trace::{self, TraceContext};
use rekindle_telemetry::{export, trace_span};
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;

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

async fn observed(request: Request, next: Next) -> Response {
    let parent = TraceContext::of(request.headers());
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let span = trace_span!("request", otel.kind = "server");
    let response = trace::within(span, parent, async move {
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
    })
    .await;
    // The span has ended, and afterwards Cloud Run takes the processor away.
    export::flush().await;
    response
}
