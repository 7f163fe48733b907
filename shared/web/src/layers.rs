//! What is around every router: the trace for the logs, panics as 500, the deadline below the platform's, and problems
//! for unknown paths.

use std::any::Any;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use rekindle_telemetry::export;
use rekindle_telemetry::trace::{self, TraceContext};
use rekindle_wire::v1::VERSION_HEADER;
use tokio::sync::Semaphore;
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;

use crate::about;
use crate::problem::{Problem, problem};
use crate::room::Rooms;

/// Most requests that a process works on at once; more get 503 at once and come again.
// Above the concurrency that any service is deployed with. What large bodies may have in all is in `room`.
pub const AT_ONCE_MAX: usize = 256;

/// Longest that an upload may take: a folder of the largest size over a slow disk.
pub const UPLOAD_MAX: Duration = Duration::from_hours(1);

/// Tells our answers from a proxy's.
const OURS: HeaderName = HeaderName::from_static(VERSION_HEADER);
const VERSION: HeaderValue = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));

/// The router with all common layers. `deadline`: no handler works longer; what it has not answered by then gets 503.
///
/// A body that is streamed after the head of the answer is not bound by it.
pub fn common(router: Router, deadline: Duration) -> Router {
    layered(router, deadline, None)
}

/// The same on a person's own machine, where paths that begin so take the folders of jobs: each for as long as its sender takes, up to
/// [`UPLOAD_MAX`], and several at once.
pub fn common_with_uploads(router: Router, deadline: Duration, uploads: &'static str) -> Router {
    layered(router, deadline, Some(uploads))
}

fn layered(router: Router, deadline: Duration, uploads: Option<&'static str>) -> Router {
    let bounds = Bounds { deadline, uploads, places: Semaphore::new(AT_ONCE_MAX), rooms: Rooms::new() };
    router
        .fallback(unknown)
        .method_not_allowed_fallback(async || {
            problem(StatusCode::METHOD_NOT_ALLOWED, "method", "this path does not know that method")
        })
        .layer(
            ServiceBuilder::new()
                .layer(middleware::from_fn_with_state(Arc::new(bounds), around))
                .layer(CatchPanicLayer::custom(panicked)),
        )
}

/// A person who came with a browser is led back to the page.
async fn unknown(uri: Uri, headers: HeaderMap) -> Response {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accepted.contains("text/html") {
        return Problem::not_found("such path").into_response();
    }
    // What was asked for is a text, never markup.
    let path: String =
        uri.path().chars().filter(|c| c.is_ascii_alphanumeric() || "/-_.".contains(*c)).take(100).collect();
    let text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>Rekindle: no such page</title></head>\n\
         <body><main><p>{path} is no page here. <a href=\"/\">Go to Rekindle</a></p></main></body>\n</html>\n"
    );
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/html; charset=utf-8")], text).into_response()
}

/// What a process allows its handlers.
struct Bounds {
    deadline: Duration,
    /// Where the folders of jobs come, on a person's own machine.
    uploads: Option<&'static str>,
    places: Semaphore,
    rooms: Rooms,
}

impl Bounds {
    fn is_upload(&self, request: &Request) -> bool {
        self.uploads.is_some_and(|uploads| request.uri().path().starts_with(uploads))
    }
}

// One layer of the router for all of it: each costs some allocations with every request.
async fn around(State(bounds): State<Arc<Bounds>>, request: Request, next: Next) -> Response {
    let parent = TraceContext::of(request.headers());
    let span = || tracing::info_span!("request", otel.kind = "server");
    let mut response = trace::within(span, parent, about::scope(observed(&bounds, request, next))).await;
    response.headers_mut().insert(OURS, VERSION);
    // The span has ended, and afterwards Cloud Run takes the processor away.
    export::flush().await;
    response
}

async fn observed(bounds: &Bounds, request: Request, next: Next) -> Response {
    let began = tracing::enabled!(tracing::Level::DEBUG)
        .then(|| (request.method().clone(), request.uri().path().to_owned(), Instant::now()));
    let response = admitted(bounds, request, next).await;
    if let Some((method, path, began)) = began {
        let latency_ms = began.elapsed().as_secs_f64() * 1e3;
        let status = response.status().as_u16();
        tracing::debug!(
            http.method = %method,
            http.path = path,
            http.status = status,
            http.latency_ms = latency_ms,
            "answered"
        );
    }
    response
}

/// Sheds what is too much: a late answer helps nobody, and memory must not grow with the load.
async fn admitted(bounds: &Bounds, mut request: Request, next: Next) -> Response {
    let Ok(_place) = bounds.places.try_acquire() else {
        tracing::warn!(at_once_max = AT_ONCE_MAX, "too many requests at once");
        return problem(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "too many requests at once; try again")
            .into_response();
    };
    if bounds.is_upload(&request) {
        return bounded(UPLOAD_MAX, next.run(request)).await;
    }
    let _held = bounds.rooms.offer(&mut request);
    bounded(bounds.deadline, next.run(request)).await
}

async fn bounded(deadline: Duration, work: impl Future<Output = Response>) -> Response {
    let mut work = std::pin::pin!(work);
    // What needs nothing from elsewhere is answered at once: then no timer has to be set and taken back.
    if let Poll::Ready(response) = futures::poll!(work.as_mut()) {
        return response;
    }
    if let Ok(response) = tokio::time::timeout(deadline, work).await {
        return response;
    }
    let deadline_ms = deadline.as_millis() as u64;
    tracing::warn!(job = about::known(), deadline_ms, "a handler's deadline passed; its caller is told to come again");
    problem(StatusCode::SERVICE_UNAVAILABLE, "deadline", "it took too long; try again").into_response()
}

#[expect(clippy::needless_pass_by_value, reason = "the layer hands it over")]
fn panicked(what: Box<dyn Any + Send + 'static>) -> Response {
    let text = what.downcast_ref::<&str>().copied();
    let text = text.or_else(|| what.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)");
    tracing::error!(job = about::known(), panic = %text, "a handler panicked: {text}");
    problem(StatusCode::INTERNAL_SERVER_ERROR, "panic", "an error inside; it was recorded").into_response()
}
