//! The HTTP side: the Cloud TPU API under `/v2/` and `/v2alpha1/` (and a little of `/v1/`), the emulator's own paths
//! under `/emulator/v1/`.

use std::sync::Arc;

use axum::Router;
use axum::routing::{any, get, post};

use crate::shared::Shared;

mod admin;
mod api;
mod compute;
mod lists;
pub(crate) mod log;
mod origin;
mod route;

/// Everything the emulator answers.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/emulator/v1/state", get(admin::state))
        .route("/emulator/v1/requests", get(admin::requests))
        .route("/emulator/v1/audit", get(admin::audit))
        .route("/emulator/v1/jwks", get(admin::jwks))
        .route("/emulator/v1/faults", get(admin::faults).post(admin::add_fault).delete(admin::clear_faults))
        .route("/emulator/v1/zones/{zone}", get(admin::zone).put(admin::set_zone))
        .route("/emulator/v1/nodes/{node}/{action}", post(admin::act))
        .route("/compute/v1/projects/{project}", get(compute::project))
        .route("/emulator/{*path}", any(admin::unknown))
        .method_not_allowed_fallback(admin::wrong_method)
        .fallback(api::handle)
        .layer(axum::middleware::from_fn(origin::check))
        .with_state(shared)
}
