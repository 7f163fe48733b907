//! What is around every router: the trace for the logs, panics as 500, the deadline below the platform's, and problems
//! for unknown paths.

use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use rekindle_telemetry::export;
use rekindle_telemetry::trace::{self, TraceContext};
use rekindle_wire::v1::VERSION_HEADER;
use tokio::sync::Semaphore;
use tower::{Layer as _, Service, ServiceExt as _};
use tower_http::catch_panic::CatchPanicLayer;

use crate::about;
use crate::problem::{Problem, problem};
use crate::room::Rooms;

/// Most requests that a process works on at once; more get 503 at once and come again.
// Above the concurrency that any service is deployed with. What large bodies may have in all is in `room`.
pub const AT_ONCE_MAX: usize = 256;

/// Whether the process lives: asked also, and above all, where it has more to do than it can.
const LIVE: &str = "/live";

/// Longest that an upload may take: a folder of the largest size over a slow disk.
pub const UPLOAD_MAX: Duration = Duration::from_hours(1);

/// Tells our answers from a proxy's.
pub(crate) const OURS: HeaderName = HeaderName::from_static(VERSION_HEADER);
pub(crate) const VERSION: HeaderValue = HeaderValue::from_static(env!("CARGO_PKG_VERSION"));

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
    let bounds = Arc::new(bounds);
    let router = router.fallback(unknown).method_not_allowed_fallback(async || {
        problem(StatusCode::METHOD_NOT_ALLOWED, "method", "this path does not know that method")
    });
    let router = CatchPanicLayer::custom(panicked).layer(router);
    // Around the whole and no layer of each route: a route is copied for each call of each of its layers, with all that is in it, and a
    // router is shared.
    let all = move |request| around(Arc::clone(&bounds), router.clone(), request);
    Router::new().fallback_service(tower::service_fn(all))
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

async fn around<S>(bounds: Arc<Bounds>, router: S, mut request: Request) -> Result<Response, Infallible>
where
    S: Service<Request, Error = Infallible>,
    S::Response: IntoResponse,
{
    let parent = TraceContext::of(request.headers());
    let began = Began::new(&request);
    let span = || tracing::info_span!("request", otel.kind = "server");
    let is_upload = bounds.is_upload(&request);
    let places = (request.uri().path() != LIVE).then_some(&bounds.places);
    let _held = if is_upload { None } else { Some(bounds.rooms.offer(&mut request)) };
    let deadline = if is_upload { UPLOAD_MAX } else { bounds.deadline };
    // In a box, since what is around it is moved about.
    let work = Box::pin(router.oneshot(request));
    let observed = observed(places, deadline, began, work);
    let mut response = trace::within(span, parent, about::scope(observed)).await;
    response.headers_mut().insert(OURS, VERSION);
    // The span has ended, and afterwards Cloud Run takes the processor away.
    export::flush().await;
    Ok(response)
}

/// What a line about the answer says of the request, where such lines are wanted.
struct Began(Option<(Method, String, Instant)>);

impl Began {
    fn new(request: &Request) -> Self {
        let is_wanted = tracing::enabled!(tracing::Level::DEBUG);
        Self(is_wanted.then(|| (request.method().clone(), request.uri().path().to_owned(), Instant::now())))
    }

    fn tell(self, status: StatusCode) {
        let Some((method, path, began)) = self.0 else { return };
        let latency_ms = began.elapsed().as_secs_f64() * 1e3;
        let status = status.as_u16();
        tracing::debug!(
            http.method = %method,
            http.path = path,
            http.status = status,
            http.latency_ms = latency_ms,
            "answered"
        );
    }
}

async fn observed<R: IntoResponse>(
    places: Option<&Semaphore>,
    deadline: Duration,
    began: Began,
    work: impl Future<Output = Result<R, Infallible>> + Unpin,
) -> Response {
    let response = admitted(places, deadline, work).await;
    began.tell(response.status());
    response
}

/// Sheds what is too much: a late answer helps nobody, and memory must not grow with the load.
async fn admitted<R: IntoResponse>(
    places: Option<&Semaphore>,
    deadline: Duration,
    mut work: impl Future<Output = Result<R, Infallible>> + Unpin,
) -> Response {
    let Ok(_place) = places.map(Semaphore::try_acquire).transpose() else {
        tracing::warn!(at_once_max = AT_ONCE_MAX, "too many requests at once");
        return problem(StatusCode::SERVICE_UNAVAILABLE, "overloaded", "too many requests at once; try again")
            .into_response();
    };
    // What needs nothing from elsewhere is answered at once: then no timer has to be set and taken back.
    if let Poll::Ready(Ok(response)) = futures::poll!(&mut work) {
        return response.into_response();
    }
    if let Ok(Ok(response)) = tokio::time::timeout(deadline, work).await {
        return response.into_response();
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
