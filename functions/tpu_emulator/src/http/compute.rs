//! The one call of the Compute Engine API that `gcloud compute tpus tpu-vm ssh` and `scp` make: they look for SSH keys in
//! the project's metadata.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, Uri};
use serde_json::{Value, json};

use super::api;
use super::log::Arrival;
use crate::shared::Shared;
use crate::world::project_number;

/// `GET /compute/v1/projects/{project}`: a project without metadata, so that the key of who logs in goes to the node.
pub(super) async fn project(
    State(shared): State<Arc<Shared>>,
    Path(project): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Json<Value> {
    let entry = api::entry("GetProject", &Method::GET, &uri, &headers);
    shared.log.write(&Arrival::now(), entry);
    let metadata = json!({"kind": "compute#metadata", "fingerprint": "AAAAAAAAAAA=", "items": []});
    Json(json!({
        "kind": "compute#project",
        "id": project_number(&project).to_string(),
        "name": project,
        "commonInstanceMetadata": metadata,
    }))
}
