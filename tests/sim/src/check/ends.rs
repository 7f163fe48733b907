//! Every job reaches its right end: asked when faults are over and there is capacity for all.

use rekindle_core::job::{Job, Phase};
use rekindle_core::reason::Reason;

use crate::exec::lock;
use crate::fault::Fault;
use crate::plan::{Fate, Told};
use crate::truth::Facts;
use crate::world::World;

/// Whether every job that was accepted has ended.
pub(crate) fn all_over(world: &World) -> bool {
    let checks = lock(&world.checks);
    checks.jobs.len() >= world.plan.jobs.len() && checks.jobs.values().all(|j| j.phase.is_terminal())
}

/// Whether nothing of ours is left in the cloud.
pub(crate) fn fleet_is_empty(world: &World) -> bool {
    lock(&world.cloud).resources.values().all(|r| r.foreign)
}

/// Jobs that have not ended, for a report.
pub(crate) fn unfinished(world: &World) -> Vec<String> {
    let checks = lock(&world.checks);
    let open = checks.jobs.values().filter(|j| !j.phase.is_terminal());
    let mut all: Vec<String> =
        open.map(|j| format!("{} is {} ({}): {}", j.id, j.phase.as_str(), j.reason.name(), j.message)).collect();
    let known = |id: &str| checks.jobs.keys().any(|k| k.as_str() == id);
    all.extend(world.plan.jobs.iter().filter(|j| !known(&j.id)).map(|j| format!("{} was never accepted", j.id)));
    all
}

/// The first job that ended as it should not have.
pub(crate) fn wrong_end(world: &World) -> Option<String> {
    let checks = lock(&world.checks);
    checks.jobs.values().find_map(|job| {
        let facts = lock(&world.truth).jobs.get(&job.id).cloned().unwrap_or_default();
        wrong(world, job, &facts)
    })
}

fn wrong(world: &World, job: &Job, facts: &Facts) -> Option<String> {
    let plan = world.job_plan(&job.id)?;
    let finished = lock(&world.fleet).groups.iter().any(|((id, _), g)| *id == job.id && g.finished);
    let cancelled = facts.told.contains(&Told::Cancel);
    match job.phase {
        Phase::Succeeded if !finished => Some(format!("{} succeeded, and its program did not", job.id)),
        Phase::Cancelled if !cancelled => Some(format!("{} is cancelled, and nobody cancelled it", job.id)),
        Phase::Failed => {
            let own = matches!(plan.fate, Fate::Fails { .. }) || facts.user_ends > 0;
            // More than ten failures of the infrastructure in a row without progress use up that budget.
            let tired = job.spent.infra_failures > 10 || facts.other_ends > 1 && !plan.writes_progress;
            let unknown =
                job.last_end.as_ref().and_then(|e| e.ended.verdict.as_ref()).is_some() && facts.other_ends > 2;
            // Limits, budgets and a policy of the job's own end it sooner.
            let limited = plan.more.as_object().is_some_and(|more| !more.is_empty());
            let refused = world.has(Fault::NotOffered) && job.reason == Reason::NoCandidate;
            (!own && !tired && !unknown && !limited && !refused)
                .then(|| format!("{} failed ({}): {}", job.id, job.reason.name(), job.message))
        }
        _ => None,
    }
}
