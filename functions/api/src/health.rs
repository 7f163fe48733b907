//! Whether the process lives, whether it can serve, and what it is.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};

use rekindle_ports::docs::DocsError;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::Installation;
use rekindle_web::{Problem, etag, problem};
use rekindle_wire::v1::VersionView;

use crate::Api;

/// The process answers.
pub(crate) async fn live() -> &'static str {
    "ok\n"
}

/// The store answers and takes commits, and it is the one this process was started on.
pub(crate) async fn ready(State(api): State<Api>) -> Response {
    let writes = api.engine.ports.store.docs().writes();
    if let Err(DocsError::Full(why)) = writes {
        return problem(StatusCode::SERVICE_UNAVAILABLE, "disk-full", why).into_response();
    }
    if let Err(error) = writes {
        // The reason is for whoever keeps it running: nothing mends it but a restart.
        tracing::error!(%error, "not ready");
        return problem(StatusCode::SERVICE_UNAVAILABLE, "store-writer", error.to_string()).into_response();
    }
    match api.engine.ports.store.read::<Installation>(&Kind::Installation).await {
        Ok(Some(at)) if at.value.id == api.engine.installation.id => (StatusCode::OK, "ok\n").into_response(),
        Ok(_) => Problem::unavailable("the store", &"it holds no installation document of this id").into_response(),
        Err(error) => Problem::unavailable("the store", &error).into_response(),
    }
}

/// Version and installation.
pub(crate) async fn version(State(api): State<Api>, headers: HeaderMap) -> Response {
    let version = VersionView {
        version: env!("CARGO_PKG_VERSION").into(),
        installation: api.engine.installation.id.to_string(),
        is_local: api.engine.deployment.is_local(),
    };
    etag::json(&headers, &version)
}
