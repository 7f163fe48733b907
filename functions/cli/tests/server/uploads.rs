//! Bundles: what the server has, and uploads that break off once.

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use sha2::Digest as _;

use super::Log;

/// Knows what was uploaded; says where to put what is not.
pub(super) async fn bundle(
    State(log): State<Log>,
    Path(sha256): Path<String>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    let mut log = log.lock().unwrap();
    let is_there = log.bundles.contains_key(&sha256);
    log.addresses += 1;
    let code = format!("gs://bucket/bundles/{sha256}.tar.zst");
    let host = headers[header::HOST].to_str().unwrap();
    let upload =
        (method == Method::POST && !is_there).then(|| format!("http://{host}/objects/{sha256}/{}", log.addresses));
    let status = if upload.is_some() { StatusCode::CREATED } else { StatusCode::OK };
    let view = json!({"code": code, "upload": upload, "present": is_there});
    let _: rekindle_wire::v1::BundleView = serde_json::from_value(view.clone()).unwrap();
    (status, Json(view)).into_response()
}

/// Breaks the first try of each upload off, and takes the second from where it was.
pub(super) async fn upload(
    State(log): State<Log>,
    Path((sha256, address)): Path<(String, u32)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    assert!(headers.get(header::AUTHORIZATION).is_none(), "the address is the right");
    let stall = {
        let mut log = log.lock().unwrap();
        let key = format!("part of {sha256} at {address}");
        let part = log.bundles.get(&key).cloned();
        let range = headers.get(header::CONTENT_RANGE).map(|range| range.to_str().unwrap().to_owned());
        match (part, range) {
            (None, None) => {
                log.uploads.push(format!("{address}: all"));
                if log.loses_answers {
                    log.bundles.insert(sha256, body);
                    return StatusCode::BAD_GATEWAY.into_response();
                }
                log.bundles.insert(key, body.slice(..body.len() / 2));
                let Some(stall) = log.stall.clone() else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
                stall
            }
            (Some(part), Some(range)) if range.starts_with("bytes */") => {
                log.uploads.push(format!("{address}: how far?"));
                let range = format!("bytes=0-{}", part.len() - 1);
                return (StatusCode::PERMANENT_REDIRECT, [(header::RANGE, range)]).into_response();
            }
            (Some(part), Some(range)) => {
                log.uploads.push(format!("{address}: the rest"));
                let total = part.len() + body.len();
                assert_eq!(range, format!("bytes {}-{}/{total}", part.len(), total - 1));
                let whole = [&part[..], &body[..]].concat();
                assert_eq!(hex::encode(sha2::Sha256::digest(&whole)), sha256);
                log.bundles.insert(sha256, whole.into());
                return StatusCode::OK.into_response();
            }
            other => panic!("{other:?}"),
        }
    };
    stall.notify_one();
    std::future::pending().await
}
