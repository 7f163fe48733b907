//! Which job was meant by an id that no job has.

use rekindle_wire::v1::JobView;
use serde_json::Value;

use super::{Context, workspace};
use crate::api::typed;
use crate::fault::Fault;
use crate::project;

/// Ids less similar than this were not meant: short ones are all alike.
const LEAST: f64 = 0.85;

/// The fault, with the nearest id among the caller's newest jobs if one is near.
pub(super) async fn told(context: &Context, fault: Fault) -> Fault {
    let Some(wanted) = fault.lacks().map(str::to_owned) else { return fault };
    match near(context, &wanted, fault.lacks_workspace()).await {
        Some(near) => {
            let otherwise = fault.next_step().to_owned();
            fault.next(format!("did you mean {near}? Otherwise {otherwise}"))
        }
        None => fault,
    }
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
