//! `GET /v1/fleet`: every TPU and queued resource in every zone, and whose it is.

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use jiff::Timestamp;

use rekindle_core::job::Via;
use rekindle_core::observation::SliceState;
use rekindle_core::placement;
use rekindle_engine::PassError;
use rekindle_ports::tpu::Listed;
use rekindle_web::{NoQuery, Problem, Query, etag};
use rekindle_wire::v1::{Fleet, FleetEntry, Owner};

use crate::Api;

/// Reads the TPU API's lists: the one read of it that `api` may do.
pub(crate) async fn fleet(State(api): State<Api>, headers: HeaderMap, _: Query<NoQuery>) -> Result<Response, Problem> {
    let (entries, unreachable) = Box::pin(api.engine.fleet()).await.map_err(|error| match error {
        PassError::Transient(why) | PassError::Invariant(why) => Problem::unavailable("the TPU API", &why),
    })?;
    let now = api.engine.ports.clock.now();
    let resources = entries.into_iter().map(|e| entry(&api, e, now)).collect();
    Ok(etag::json(&headers, &Fleet { resources, unreachable }))
}

fn entry(api: &Api, of: rekindle_engine::FleetEntry, now: Timestamp) -> FleetEntry {
    use rekindle_engine::Owner as Whose;
    let (owner, job, generation) = match of.owner {
        Whose::Job { job, generation } => (Owner::Job, Some(job), Some(generation)),
        Whose::Orphan { job, generation } => (Owner::Orphan, Some(job), Some(generation)),
        Whose::Foreign => (Owner::Foreign, None, None),
    };
    let listed = of.resource;
    FleetEntry {
        kind: match listed.slice.via {
            Via::Node => "node".into(),
            Via::QueuedResource => "queued_resource".into(),
        },
        state: state(&listed.view.state),
        age_secs: listed.created_at.map(|at| now.duration_since(at).as_secs().max(0)),
        usd_per_hour: usd_per_hour(api, &listed),
        name: listed.slice.name,
        zone: listed.slice.zone,
        accelerator: listed.accelerator,
        preemptible: listed.preemptible,
        created_at: listed.created_at,
        owner,
        job,
        generation,
        owned_by: listed.owned_by,
    }
}

fn state(of: &SliceState) -> String {
    match of {
        SliceState::Queued => "queued".into(),
        SliceState::Creating => "creating".into(),
        SliceState::Ready => "ready".into(),
        SliceState::InTransition(what) | SliceState::Unrecognized(what) => what.to_ascii_lowercase(),
        SliceState::Preempted => "preempted".into(),
        SliceState::Terminated => "terminated".into(),
        SliceState::Stopped => "stopped".into(),
        SliceState::Failed => "failed".into(),
        SliceState::Deleting => "deleting".into(),
    }
}

/// A queued resource costs nothing beside its nodes.
fn usd_per_hour(api: &Api, listed: &Listed) -> Option<f64> {
    if listed.slice.via == Via::QueuedResource {
        return Some(0.0);
    }
    placement::usd_per_hour(&api.engine.deployment, &listed.accelerator, &listed.slice.zone, listed.preemptible)
}
