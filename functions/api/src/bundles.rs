//! `POST /v1/bundles/{sha256}`: where a code bundle goes, or that it is there.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;

use rekindle_web::{NoQuery, Path, Problem, Query, problem};
use rekindle_wire::v1::BundleView;

use crate::Api;

/// Name of a bundle's object.
pub(crate) fn object_name(sha256: &str) -> String {
    format!("bundles/{sha256}.tar.zst")
}

/// True for 64 hex digits in lower case.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The object of a digest and its address for `code`; 400 for what is no digest.
fn place(api: &Api, sha256: &str) -> Result<(String, String), Problem> {
    if !is_sha256(sha256) {
        let why = "a bundle is named by the sha256 of its bytes: 64 hex digits in lower case";
        return Err(problem(StatusCode::BAD_REQUEST, "sha256", why));
    }
    let name = object_name(sha256);
    let code = format!("{}/{name}", api.engine.deployment.bucket.trim_end_matches('/'));
    Ok((name, code))
}

/// `GET`: where a bundle is or would be. Changes nothing.
pub(crate) async fn look(
    State(api): State<Api>,
    Path(sha256): Path<String>,
    _: Query<NoQuery>,
) -> Result<axum::Json<BundleView>, Problem> {
    let (name, code) = place(&api, &sha256)?;
    let size = api.engine.ports.objects.size(&name).await.map_err(|e| Problem::unavailable("the object store", &e))?;
    Ok(axum::Json(BundleView { code, upload: None, present: size.is_some() }))
}

/// 200 present; 201 with an upload address.
pub(crate) async fn bundle(State(api): State<Api>, Path(sha256): Path<String>) -> Result<Response, Problem> {
    let (name, code) = place(&api, &sha256)?;
    let objects = &api.engine.ports.objects;
    let unavailable = |e| Problem::unavailable("the object store", &e);
    if objects.size(&name).await.map_err(unavailable)?.is_some() {
        return Ok((StatusCode::OK, axum::Json(BundleView { code, upload: None, present: true })).into_response());
    }
    let upload = objects.upload_address(&name).await.map_err(unavailable)?;
    Ok((StatusCode::CREATED, axum::Json(BundleView { code, upload: Some(upload), present: false })).into_response())
}
