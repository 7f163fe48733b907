//! `POST /v1/freeze` and `/v1/thaw`: no creates; deletes go on.

use axum::extract::State;

use rekindle_core::access::Right;
use rekindle_core::reason::Reason;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{FreezeDoc, StoreError};
use rekindle_web::{Caller, Json, NoQuery, Problem, Query};
use rekindle_wire::v1::FreezeView;
use serde::Deserialize;

use crate::Api;
use crate::access::check_all;
use crate::jobs::{hint, store};

/// Jobs that a thaw wakes at once; further ones wait for their own wake-up.
const WAKE_MAX: usize = 200;

/// A body that says nothing: any field is refused by name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoFields {}

/// Holds all creates back. 403 for who may not stop everyone's jobs.
pub(crate) async fn freeze(
    State(api): State<Api>,
    caller: Caller,
    _: Query<NoQuery>,
    _: Json<NoFields>,
) -> Result<axum::Json<FreezeView>, Problem> {
    check_all(&api, &caller, Right::Stop)?;
    set(&api, &caller, true).await
}

/// Lets creates go on.
pub(crate) async fn thaw(
    State(api): State<Api>,
    caller: Caller,
    _: Query<NoQuery>,
    _: Json<NoFields>,
) -> Result<axum::Json<FreezeView>, Problem> {
    check_all(&api, &caller, Right::Stop)?;
    let view = set(&api, &caller, false).await?;
    if let Err(error) = wake_frozen(&api).await {
        tracing::warn!(%error, "frozen jobs could not be woken; they wake by themselves");
    }
    Ok(view)
}

async fn set(api: &Api, caller: &Caller, frozen: bool) -> Result<axum::Json<FreezeView>, Problem> {
    let docs = &api.engine.ports.store;
    let known = docs.read::<FreezeDoc>(&Kind::Freeze).await.map_err(|e| store(&e))?;
    let doc = match known {
        // Who froze it first stays on record.
        Some(at) if at.value.frozen == frozen => at.value,
        None if !frozen => FreezeDoc::default(),
        Some(_) | None => {
            let doc = FreezeDoc { frozen, by: caller.identity.clone(), at: Some(api.engine.ports.clock.now()) };
            // The last word holds: no precondition.
            docs.write(&Kind::Freeze, &doc, Precondition::None).await.map_err(|e| store(&e))?;
            tracing::warn!(frozen, by = caller.identity, "creates were frozen or thawed");
            doc
        }
    };
    Ok(axum::Json(FreezeView { frozen: doc.frozen, by: doc.by, at: doc.at }))
}

async fn wake_frozen(api: &Api) -> Result<(), StoreError> {
    let (jobs, _) = api.engine.ports.store.live_jobs(None, WAKE_MAX).await?;
    for at in jobs.iter().filter(|at| at.value.reason == Reason::Frozen) {
        hint(api, &at.value.id, "thaw").await;
    }
    Ok(())
}
