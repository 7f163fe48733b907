//! What the server with a few jobs says when it does not do what it is asked: by the id of the job.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use rekindle_wire::v1::VERSION_HEADER;
use serde_json::json;

use super::{Log, job, problem};

/// `answers-418` is answered so; others break off, or come from something that is no server of ours.
pub(super) fn answer(id: &str) -> Option<Response> {
    if let Some(status) = id.strip_prefix("answers-").and_then(|status| status.parse().ok()) {
        return Some(problem(status, &format!("It is answered {status}."), &[]));
    }
    match id {
        "broken" => Some(broken()),
        "elsewhere" => Some(not_there()),
        "proxied" => Some((StatusCode::FOUND, [(header::LOCATION, "https://login.example/")], "").into_response()),
        "website" => Some(axum::response::Html("<html>hello</html>").into_response()),
        "garbled" => Some("{\"id\"".into_response()),
        "strange" => Some(axum::Json(json!({"id": 1})).into_response()),
        "torn" => {
            let text = job("torn", &[]).to_string();
            Some(broken_off(&text[..100]))
        }
        _ => None,
    }
}

/// What a gateway says that lost the answer of its server.
pub(super) fn broken() -> Response {
    (StatusCode::BAD_GATEWAY, "<html>bad gateway</html>").into_response()
}

/// Marks an answer as ours, as every server does; pages of others are not.
pub(super) async fn ours(mut response: Response) -> Response {
    let kind = response.headers().get(header::CONTENT_TYPE).map(|kind| kind.as_bytes().to_vec());
    if !kind.is_some_and(|kind| kind.starts_with(b"text/html")) {
        response.headers_mut().insert(VERSION_HEADER, HeaderValue::from_static("0.1.0"));
    }
    response
}

/// Takes that mark away.
pub(super) async fn unmarked(mut response: Response) -> Response {
    response.headers_mut().remove(VERSION_HEADER);
    response
}

/// What a proxy says of an address that it does not know.
fn not_there() -> Response {
    (StatusCode::NOT_FOUND, "<html>404 page not found</html>").into_response()
}

/// A proxy that once does not know the address of a job, has nobody free, or asks for a login, among looks that work; and a server that
/// goes away when the output of a job has ended.
pub(super) fn stray(id: &str, look: u32) -> Option<Response> {
    match (id, look) {
        ("strayed", 2) => Some(not_there()),
        ("crowded", 2) => Some((StatusCode::TOO_MANY_REQUESTS, "Rate exceeded.").into_response()),
        ("locked", 2) => Some((StatusCode::FORBIDDEN, "<html>log in</html>").into_response()),
        ("ending", 1 | 2) => Some(problem(503, "the server is starting", &[])),
        _ => None,
    }
}

/// A server that is restarted before a program says anything: the stream breaks off, and then it is away for a while, or what
/// stands before it does not know it for one.
pub(super) fn restarted(log: &Log, id: &str) -> Option<Response> {
    if id != "young" && id != "gated" {
        return None;
    }
    let mut log = log.lock().unwrap();
    log.follows += 1;
    match log.follows {
        1 => Some(([(header::CONTENT_TYPE, "text/event-stream")], broken_off(": hello\n\n")).into_response()),
        2 if id == "gated" => Some(not_there()),
        2 => Some(problem(503, "the server is starting", &[])),
        _ => None,
    }
}

/// An answer whose connection breaks after these words.
pub(super) fn broken_off(begin: &str) -> Response {
    let first = futures::stream::iter([Ok(bytes::Bytes::copy_from_slice(begin.as_bytes()))]);
    let then = futures::stream::once(async {
        // Between two polls of the body the first part goes out.
        tokio::task::yield_now().await;
        Err(std::io::Error::other("the connection breaks"))
    });
    Body::from_stream(first.chain(then)).into_response()
}
