//! `/objects/…` of the local mode: the agent and code bundles, by digest, over loopback.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use rekindle_web::{Path, Problem, Query, body, problem};

use crate::Api;
use crate::bundles::is_sha256;

/// The largest upload, in bytes; it is held in memory once.
// The command line refuses larger bundles before it sends them.
const UPLOAD_MAX: usize = 512 * 1024 * 1024;

/// Bytes read at once when an object is served.
const CHUNK: u64 = 1024 * 1024;

/// Checks the addresses that the object store's `upload_address` gave out.
pub trait Uploads: Send + Sync {
    /// Whether the address for `name` with that expiry (seconds since 1970) and signature was given out, and still
    /// holds.
    fn accept(&self, name: &str, expires: i64, signature: &str) -> Result<(), String>;
}

/// Only what workers fetch before they have a token.
fn is_served(name: &str) -> bool {
    ["agent/", "bundles/"].iter().any(|prefix| name.starts_with(prefix))
}

/// Where a reader goes on: `Range: bytes=N-`. Other ranges are answered with the whole, as the standard allows.
fn resumed_at(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

/// `GET /objects/{name}`. A reader that was cut off may go on where it was: a large agent comes through also where
/// connections are short.
pub(crate) async fn read(
    State(api): State<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    if !is_served(&name) {
        return Err(Problem::not_found(&format!("object {name:?}")));
    }
    let objects = Arc::clone(&api.engine.ports.objects);
    let size = objects.size(&name).await.map_err(|e| Problem::unavailable("the object store", &e))?;
    let Some(size) = size else { return Err(Problem::not_found(&format!("object {name:?}"))) };
    let resumed = resumed_at(&headers);
    let begin = resumed.unwrap_or(0);
    if resumed.is_some() && begin >= size {
        let range = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
        return Ok((StatusCode::RANGE_NOT_SATISFIABLE, range).into_response());
    }
    let chunks = stream::try_unfold((objects, name, begin), move |(objects, name, from)| async move {
        if from >= size {
            return Ok::<_, std::io::Error>(None);
        }
        let chunk = objects.get(&name, from, CHUNK).await.map_err(std::io::Error::other)?;
        let chunk = chunk.filter(|c| !c.is_empty()).ok_or_else(|| std::io::Error::other("the object went away"))?;
        let next = from + chunk.len() as u64;
        Ok(Some((chunk, (objects, name, next))))
    });
    let headers = [
        (header::CONTENT_LENGTH, (size - begin).to_string()),
        (header::CONTENT_TYPE, "application/octet-stream".into()),
        (header::ACCEPT_RANGES, "bytes".into()),
    ];
    let body = Body::from_stream(chunks);
    if resumed.is_none() {
        return Ok((headers, body).into_response());
    }
    let range = [(header::CONTENT_RANGE, format!("bytes {begin}-{}/{size}", size - 1))];
    Ok((StatusCode::PARTIAL_CONTENT, headers, range, body).into_response())
}

#[derive(Debug, Deserialize)]
pub(crate) struct UploadQuery {
    expires: i64,
    signature: String,
}

/// `PUT /objects/{name}` at an address that was given out.
pub(crate) async fn write(
    State(api): State<Api>,
    Path(name): Path<String>,
    Query(query): Query<UploadQuery>,
    request: Request,
) -> Result<StatusCode, Problem> {
    let Some(uploads) = &api.uploads else { return Err(Problem::not_found("such path")) };
    uploads
        .accept(&name, query.expires, &query.signature)
        .map_err(|why| problem(StatusCode::FORBIDDEN, "upload-address", why))?;
    let bytes = body::read(request, UPLOAD_MAX).await?;
    let digest = name.strip_prefix("bundles/").and_then(|n| n.strip_suffix(".tar.zst")).filter(|d| is_sha256(d));
    if let Some(digest) = digest
        && hex::encode(Sha256::digest(&bytes)) != digest
    {
        return Err(problem(StatusCode::BAD_REQUEST, "sha256", "the bytes do not have the digest in the name"));
    }
    api.engine.ports.objects.put(&name, bytes).await.map_err(|e| Problem::unavailable("the object store", &e))?;
    Ok(StatusCode::NO_CONTENT)
}
