//! GET answers with an ETag: unchanged ones cost a header only.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde::Serialize;

/// `value` as JSON with its ETag, or 304 when `If-None-Match` names it.
// A weak tag: the same content may be written differently by another version.
pub fn json<T: Serialize>(headers: &HeaderMap, value: &T) -> Response {
    let body = match serde_json::to_vec(value) {
        Ok(body) => body,
        Err(error) => {
            tracing::error!(error = %error, "an answer cannot be written");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let tag = of(&body);
    let unchanged = is_known(headers, &tag);
    let etag = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"\""));
    if unchanged {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
    }
    let json = HeaderValue::from_static("application/json");
    (StatusCode::OK, [(header::ETAG, etag), (header::CONTENT_TYPE, json)], body).into_response()
}

/// For every GET that has none yet: its answer with an ETag, or 304. Streams have none, since nobody knows what will come.
pub async fn tagged(request: Request, next: Next) -> Response {
    let headers = (*request.method() == Method::GET).then(|| request.headers().clone());
    let answer = next.run(request).await;
    let is_whole = answer.body().size_hint().exact().is_some_and(|len| len <= TAGGED_MAX);
    let Some(headers) = headers.filter(|_| is_whole && answer.status() == StatusCode::OK) else { return answer };
    if answer.headers().contains_key(header::ETAG) {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let tag = of(&body);
    let is_known = is_known(&headers, &tag);
    parts.headers.extend(HeaderValue::from_str(&tag).ok().map(|tag| (header::ETAG, tag)));
    if is_known {
        parts.status = StatusCode::NOT_MODIFIED;
        parts.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(parts, Body::empty());
    }
    Response::from_parts(parts, body.into())
}

/// The largest body that gets a tag, in bytes: all that is no file is below it.
const TAGGED_MAX: u64 = 8 << 20;

/// The weak tag of a body.
pub fn of(body: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    format!("W/\"{:016x}-{:x}\"", hasher.finish(), body.len())
}

/// Whether `If-None-Match` names the tag.
pub fn is_known(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|v| v.to_str().ok());
    known.flat_map(|v| v.split(',')).any(|t| t.trim() == tag || t.trim() == "*")
}
