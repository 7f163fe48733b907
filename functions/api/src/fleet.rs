//! `GET /v1/fleet`: every TPU and queued resource in every zone, and whose it is.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use jiff::Timestamp;

use rekindle_core::access::Right;
use rekindle_core::ids::JobId;
use rekindle_core::job::Via;
use rekindle_core::observation::SliceState;
use rekindle_core::placement;
use rekindle_engine::PassError;
use rekindle_ports::tpu::Listed;
use rekindle_web::{Caller, NoQuery, Problem, Query, etag};
use rekindle_wire::v1::{Fleet, FleetEntry, IdleView, Owner};

use crate::Api;
use crate::access::{may, may_all};
use crate::jobs::store;

/// As the last tick saw it; where this process may touch TPUs itself, as the TPU API lists it now.
pub(crate) async fn fleet(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let (entries, mut fleet) = if api.is_surveyed {
        let seen = api.engine.fleet_seen().await.map_err(|e| store(&e))?;
        let seen = seen.ok_or_else(|| Problem::unavailable("the fleet", &"no tick has read the list yet"))?;
        let told = Fleet { listed_at: Some(seen.listed_at), omitted: seen.omitted, ..Fleet::default() };
        (seen.entries, Fleet { unreachable: seen.unreachable, ..told })
    } else {
        let (entries, unreachable) = Box::pin(api.engine.fleet()).await.map_err(|error| match error {
            PassError::Transient(why) | PassError::Invariant(why) => Problem::unavailable("the TPU API", &why),
        })?;
        (entries, Fleet { unreachable, ..Fleet::default() })
    };
    let now = api.engine.ports.clock.now();
    let mut all: Vec<FleetEntry> = entries.into_iter().map(|of| entry(&api, of, now)).collect();
    if !may_all(&api, &caller, Right::See) {
        let jobs = all.iter().filter_map(|told| told.job.clone()).collect();
        let jobs = api.engine.ports.store.jobs_named(&jobs).await.map_err(|e| store(&e))?;
        let seen = jobs.into_iter().filter(|job| may(&api, &caller, Right::See, &job.spec.owner));
        let seen: BTreeSet<JobId> = seen.map(|job| job.id.clone()).collect();
        for told in &mut all {
            if told.job.as_ref().is_some_and(|job| !seen.contains(job)) {
                hide(told);
            }
        }
    }
    fleet.resources = all;
    Ok(etag::json(&headers, &fleet))
}

/// That there is something, where, and what it costs is everybody's; whose it is is not.
fn hide(told: &mut FleetEntry) {
    (told.name, told.job, told.generation, told.owned_by) = ("(of another owner)".into(), None, None, None);
    told.job_owner = None;
    told.owner = told.owner.take().filter(|owner| *owner == Owner::Orphan);
}

fn entry(api: &Api, of: rekindle_engine::FleetEntry, now: Timestamp) -> FleetEntry {
    use rekindle_engine::Owner as Whose;
    let (owner, job, generation) = match of.owner {
        Whose::Job { job, generation } => (Owner::Job(job.clone()), Some(job), Some(generation)),
        Whose::Orphan { job, generation } => (Owner::Orphan, Some(job), Some(generation)),
        Whose::Foreign => (Owner::Foreign, None, None),
    };
    let listed = of.resource.into_inner();
    FleetEntry {
        kind: match listed.slice.via {
            Via::Node => "node".into(),
            Via::QueuedResource => "queued_resource".into(),
        },
        state: state(&listed.view.state),
        age_secs: listed.created_at.map(|at| now.duration_since(at).as_secs().max(0)),
        usd_per_hour: usd_per_hour(api, &listed),
        capacity: Some(listed.capacity()),
        name: listed.slice.name,
        zone: listed.slice.zone,
        accelerator: listed.accelerator,
        preemptible: listed.preemptible,
        created_at: listed.created_at,
        owner: Some(owner),
        job,
        generation,
        job_owner: of.job_owner,
        owned_by: listed.owned_by,
        idle: of.idle.map(|idle| IdleView::of(idle, now)),
    }
}

fn state(of: &SliceState) -> String {
    match of {
        SliceState::Queued => "queued".into(),
        SliceState::Creating => "creating".into(),
        SliceState::Ready => "ready".into(),
        SliceState::InTransition(what) | SliceState::Unrecognized(what) => what.to_ascii_lowercase(),
        SliceState::Unspecified => "state_unspecified".into(),
        SliceState::Preempted => "preempted".into(),
        SliceState::Terminated => "terminated".into(),
        SliceState::Stopped => "stopped".into(),
        SliceState::Failed => "failed".into(),
        SliceState::Deleting => "deleting".into(),
    }
}

/// A queued resource costs nothing beside its nodes, and a node nothing before it is READY and once it is off.
fn usd_per_hour(api: &Api, listed: &Listed) -> Option<f64> {
    if listed.slice.via == Via::QueuedResource || !listed.view.is_charged() {
        return Some(0.0);
    }
    placement::usd_per_hour(&api.engine.deployment, &listed.accelerator, &listed.slice.zone, listed.capacity())
}
