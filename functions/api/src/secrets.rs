//! `GET /v1/webhook-secret`: what a receiver of webhooks checks their signatures with.

use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;

use rekindle_core::access::spelled;
use rekindle_web::{Caller, Problem, Query, problem};
use rekindle_wire::v1::WebhookSecretView;
use rekindle_wire::webhook;

use crate::Api;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretQuery {
    owner: Option<String>,
}

/// The caller's own secret; an admin may ask for another owner's.
pub(crate) async fn webhooks(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<SecretQuery>,
) -> Result<axum::Json<WebhookSecretView>, Problem> {
    let owner = query.owner.filter(|owner| !owner.is_empty());
    let owner = owner.map_or_else(|| caller.identity.clone(), |owner| spelled(&owner, &caller.identity));
    if owner != caller.identity && !caller.is_admin {
        let why = "only an admin may have the webhook secret of another owner";
        return Err(problem(StatusCode::FORBIDDEN, "forbidden", why));
    }
    let secret = webhook::Secret::of(&api.engine.installation.secret, &owner).to_text();
    Ok(axum::Json(WebhookSecretView { owner, secret }))
}
