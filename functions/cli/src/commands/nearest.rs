//! Which job was meant by an id that no job has.

use rekindle_wire::v1::{Fleet, JobView, Owner};
use serde_json::Value;

use super::{Context, workspace};
use crate::api::typed;
use crate::fault::Fault;
use crate::project;

/// Ids less similar than this were not meant: short ones are all alike.
const LEAST: f64 = 0.85;

/// How the names of our TPUs begin.
const TPU: &str = "rk-";

/// The fault, with the nearest id among the caller's newest jobs if one is near.
pub(super) async fn told(context: &Context, fault: Fault) -> Fault {
    let Some(wanted) = fault.lacks().map(str::to_owned) else { return fault };
    if let Some(next) = of_tpu(context, &wanted).await {
        return fault.next(next);
    }
    match near(context, &wanted, fault.lacks_workspace()).await {
        Some(near) => {
            let otherwise = fault.next_step().to_owned();
            fault.next(format!("did you mean {near}? Otherwise {otherwise}"))
        }
        None => fault,
    }
}

/// What to do where the name is that of a TPU, as it stands in the console and in `rekindle fleet`.
async fn of_tpu(context: &Context, wanted: &str) -> Option<String> {
    // Each look at the fleet asks the provider about every zone.
    if !wanted.starts_with(TPU) {
        return None;
    }
    let fleet: Fleet = typed(context.api.get("/v1/fleet", &[]).await.ok()?).ok()?;
    let entry = fleet.resources.into_iter().find(|entry| entry.name == wanted)?;
    Some(match entry.owner {
        Some(Owner::Job(job)) => format!("that is a TPU of job {job}: give the command again with {job}"),
        Some(Owner::Orphan) => {
            "that TPU is of no job (ORPHAN), and is deleted by itself; see `rekindle fleet`".to_owned()
        }
        Some(Owner::Foreign) | None => "that TPU is no job of yours; see `rekindle fleet`".to_owned(),
    })
}

/// `None` also where the job is there, and something of it is not.
async fn near(context: &Context, wanted: &str, of_workspaces: bool) -> Option<String> {
    let query = [("view", Some("list".to_owned())), ("page_size", Some("500".to_owned()))];
    let mut page = context.api.get("/v1/jobs", &query).await.ok()?;
    let jobs: Vec<Value> = typed(page["jobs"].take()).ok()?;
    let views = jobs.into_iter().filter_map(|job| typed::<JobView>(job).ok());
    // Of a workspace that was deleted nothing is left to be meant.
    let views = views.filter(|view| view.id.as_str() == wanted || !workspace::is_over(view));
    let views = views.filter(|view| view.id.as_str() == wanted || !of_workspaces || workspace::is_workspace(view));
    let ids: Vec<String> = views.map(|view| view.id.to_string()).collect();
    if ids.iter().any(|id| id == wanted) {
        return None;
    }
    project::nearest(wanted, ids.iter().map(String::as_str), LEAST).map(str::to_owned)
}
