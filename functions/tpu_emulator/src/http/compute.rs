//! The one call of the Compute Engine API that `gcloud compute tpus tpu-vm ssh` and `scp` make: they look for SSH keys in
//! the project's metadata.

use axum::Json;
use axum::extract::Path;
use serde_json::{Value, json};

use crate::world::project_number;

/// `GET /compute/v1/projects/{project}`: a project without metadata.
pub(super) async fn project(Path(project): Path<String>) -> Json<Value> {
    let metadata = json!({"kind": "compute#metadata", "fingerprint": "AAAAAAAAAAA=", "items": []});
    Json(json!({
        "kind": "compute#project",
        "id": project_number(&project).to_string(),
        "name": project,
        "commonInstanceMetadata": metadata,
    }))
}
