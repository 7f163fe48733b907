//! Every job reaches its right end: asked when faults are over and there is capacity for all.

use std::collections::BTreeSet;
use std::time::Duration;

use rekindle_core::catalog;
use rekindle_core::job::{Job, Phase};
use rekindle_core::policy::{Action, Charge};
use rekindle_core::reason::Reason;

use crate::exec::lock;
use crate::fault::Fault;
use crate::plan::{JobPlan, Told};
use crate::roll::{HOUR, MIN};
use crate::truth::Facts;
use crate::world::{World, micros};

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

/// Without faults a job is over after its work, once more from its beginning, and so long.
///
/// Before that: what is dead and does not say so is silent for minutes; a pause ends within half an hour; a slice that is not wanted is deleted,
/// and refused or forgotten deletes are sent again; back-offs of up to 10 minutes; a create, `setup` and a compile.
const SLACK: i64 = 2 * HOUR;

/// A job that should be over by now, after the end of all faults.
pub(crate) fn overdue(world: &World) -> Option<String> {
    let work = |plan: &JobPlan| i64::try_from(plan.steps).unwrap_or(0) * plan.step_us;
    // Under a limit of the deployment's own jobs wait for each other.
    let is_limited = world.plan.max_chips.is_some() || world.plan.max_usd.is_some();
    let all: i64 = world.plan.jobs.iter().map(|plan| work(plan) + SLACK).sum();
    let checks = lock(&world.checks);
    let late = checks.jobs.values().filter(|job| !job.phase.is_terminal()).find(|job| {
        let own = world.job_plan(&job.id).map_or(0, |plan| work(plan) + SLACK);
        let begun = checks.messages.restarted_at(&job.id).max(Some(micros(job.created_at)));
        let from = world.plan.calm_from().max(begun.unwrap_or(0));
        world.now() > from + if is_limited { all } else { own }
    })?;
    let after = (world.now() - world.plan.calm_from()) / MIN;
    let (phase, reason) = (late.phase.as_str(), late.reason.name());
    Some(format!("{} is {phase} ({reason}) {after} minutes after the last fault: {}", late.id, late.message))
}

/// The first job that ended as it should not have.
pub(crate) fn wrong_end(world: &World) -> Option<String> {
    let checks = lock(&world.checks);
    checks.jobs.values().find_map(|job| {
        let facts = lock(&world.truth).jobs.get(&job.id).cloned().unwrap_or_default();
        if checks.messages.must_be_cancelled(&job.id) && job.phase != Phase::Cancelled {
            let phase = job.phase.as_str();
            return Some(format!("{} is {phase}, and its cancel was acknowledged before its end", job.id));
        }
        wrong(world, job, &facts)
    })
}

fn wrong(world: &World, job: &Job, facts: &Facts) -> Option<String> {
    let plan = world.job_plan(&job.id)?;
    match job.phase {
        Phase::Succeeded => no_success(world, job, plan, facts),
        Phase::Cancelled if !facts.told.contains(&Told::Cancel) => {
            Some(format!("{} is cancelled, and nobody cancelled it", job.id))
        }
        Phase::Failed if !is_explained(world, job) => {
            Some(format!("{} failed ({}), and nothing explains it: {}", job.id, job.reason.name(), job.message))
        }
        _ => None,
    }
}

/// A job succeeds when its program has done all its steps, and has exited 0 on every worker.
fn no_success(world: &World, job: &Job, plan: &JobPlan, facts: &Facts) -> Option<String> {
    let attempt = job.last_end.as_ref().map_or(0, |end| end.attempt);
    let finished = lock(&world.fleet).groups.get(&(job.id.clone(), attempt)).is_some_and(|g| g.finished);
    if !finished {
        return Some(format!("{} succeeded by attempt {attempt}, and its program did not", job.id));
    }
    let well = facts.well.get(&attempt).map_or(0, BTreeSet::len);
    let workers = catalog::accelerator(plan.accelerator).map_or(0, |a| a.workers) * plan.slices;
    (well != workers as usize)
        .then(|| format!("{} succeeded, and {well} of {workers} workers of attempt {attempt} exited 0", job.id))
}

/// Whether the reason of a failure is one that the job's own spec or the world brought about. That each end behind it was charged
/// rightly is the promise of `charge`.
fn is_explained(world: &World, job: &Job) -> bool {
    let limits = &job.spec.limits;
    let skew = if world.has(Fault::ClockSkew) { world.plan.skew_us * 2 } else { 0 };
    let ended = micros(job.phase_since) + skew;
    let over = |since: i64, limit: Option<Duration>| {
        limit.is_some_and(|limit| ended - since >= i64::try_from(limit.as_micros()).unwrap_or(i64::MAX))
    };
    match job.reason {
        Reason::NoCandidate => world.has(Fault::NotOffered),
        // Since when it waited is the promise of `waits`.
        Reason::QueueTimeout => limits.queue.is_some(),
        Reason::TotalTimeout => job.first_started_at.is_some_and(|first| over(micros(first), limits.total)),
        Reason::CostLimit => limits.cost_usd.is_some_and(|usd| job.usage.cost_usd_micros as f64 / 1e6 >= usd),
        Reason::ProgramFailed => is_used_up(job),
        _ => false,
    }
}

/// Whether the budgets and the rules of the job leave no other answer to its last end than to fail.
fn is_used_up(job: &Job) -> bool {
    let Some((kind, charge)) = job.last_end.as_ref().and_then(|e| e.ended.kind.zip(e.ended.charge)) else {
        return false;
    };
    let (rule, budgets) = (job.spec.recovery.rule(kind), &job.spec.budgets);
    let repeats = job.spent.kinds.get(&kind).map_or(0, |r| r.count);
    let by_rule = rule.first == Action::Fail || rule.again == Action::Fail || rule.max.is_some_and(|max| repeats > max);
    let used_up = |used: u32, max: Option<u32>| max.is_some_and(|max| used > max);
    let by_budget = match charge {
        Charge::Preemptions => used_up(job.counters.preemptions, budgets.preemptions),
        Charge::Infra => used_up(job.spent.infra_failures, budgets.infra_failures),
        Charge::User => used_up(job.spent.user_failures, budgets.user_failures),
    };
    by_rule || by_budget
}
