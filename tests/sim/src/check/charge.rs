//! Failures are charged to the right budget: each end by itself, by what really befell its attempt and its generation.

use std::collections::BTreeMap;

use jiff::Timestamp;

use rekindle_core::failure::FailureKind;
use rekindle_core::ids::JobId;
use rekindle_core::job::{Attempt, Desired, Ended, Job, LastEnd, Phase, StopCause};
use rekindle_core::policy::Charge;

use super::Broken;
use crate::exec::lock;
use crate::fault::Fault;
use crate::machine::Step;
use crate::roll::{HOUR, MIN};
use crate::truth::{Facts, Whose};
use crate::world::{World, micros};

/// An outage so long ago may have kept workers from telling what happened.
const OUTAGE_TELLS: i64 = HOUR;

/// Losses that can be nothing but preemptions, and whether they were charged so.
#[derive(Default)]
pub(super) struct Sure {
    /// By job and generation: the attempt that ran, and whether a preemption was charged.
    lost: BTreeMap<(JobId, u32), (u32, bool)>,
}

/// Outages of ours that can hide what happened.
const HIDE: [Fault; 8] = [
    Fault::ApiOutage,
    Fault::StoreOutage,
    Fault::TickOutage,
    Fault::TpuOutage,
    Fault::TpuDenied,
    Fault::ZoneUnreachable,
    Fault::ZoneForbidden,
    Fault::Freeze,
];

/// Whether an outage of ours went on in this time.
fn hidden(world: &World, from: i64, to: i64) -> bool {
    let over = |w: &crate::plan::Window| HIDE.contains(&w.fault) && w.from < to && from < w.to;
    world.plan.windows.iter().any(over)
}

/// A slice is about to be lost: if nothing else can end its attempt, the end is a preemption.
pub(super) fn lost(world: &World, job: &Job, generation: u32, fault: Fault, sure: &mut Sure) {
    let known = matches!(fault, Fault::PreemptNotice | Fault::PreemptSilent | Fault::Storm | Fault::NoticeShort);
    let now = world.now();
    let first = !lock(&world.truth).of(&job.id).befell.contains_key(&generation);
    let runs = job.phase == Phase::Running && job.desired == Desired::Run && job.restart.is_none();
    let Some(a) = job.attempts.last().filter(|a| a.generation == generation && a.ended.is_none()) else { return };
    // A read that shows no state may be all that is seen of it.
    let is_clear = !world.has(Fault::ClockSkew) && !world.has(Fault::StateUnclear);
    let quiet = is_clear && !hidden(world, now - HOUR, now + HOUR);
    if !known || !first || !runs || !quiet || a.stop.is_some() || job.settling.is_some() {
        return;
    }
    let fleet = lock(&world.fleet);
    let lives = |vm: &crate::machine::Vm| {
        vm.attempt.as_ref().is_some_and(|o| {
            // Its own end is not near.
            let ends = o.death.as_ref().map_or(i64::MAX, |d| d.at);
            o.number == a.number && o.step == Step::Running && !o.stopping && ends > now + 10 * MIN
        })
    };
    if fleet.of_job(job.id.as_str()).filter(|vm| vm.generation == generation).all(lives) {
        sure.lost.insert((job.id.clone(), generation), (a.number, false));
    }
}

/// From one commit of a job to the next.
pub(super) fn step(world: &World, before: &Job, after: &Job, sure: &mut Sure) -> Broken {
    if let Some(end) = after.last_end.as_ref().filter(|_| before.last_end != after.last_end) {
        if end.ended.charge == Some(Charge::Preemptions)
            && let Some((_, charged)) = sure.lost.get_mut(&(after.id.clone(), end.generation))
        {
            *charged = true;
        }
        let facts = lock(&world.truth).jobs.get(&after.id).cloned().unwrap_or_default();
        if let Some(wrong) = wrong(world, before, after, end, &facts) {
            return Some(("charge", wrong));
        }
    }
    for g in before.generations.iter().filter(|g| after.generation(g.number).is_none()) {
        let Some((attempt, charged)) = sure.lost.remove(&(after.id.clone(), g.number)) else { continue };
        let touched = lock(&world.truth).of(&after.id).befell.get(&g.number).map_or(0, Vec::len);
        let by_people = |a: &Attempt| a.number == attempt && a.stop.as_ref().is_some_and(|s| is_wish(s.cause));
        let excused = touched > 1 || after.outcome.is_some() || before.attempts.iter().any(by_people);
        if !charged && !excused && after.desired == Desired::Run {
            let text = format!("{}: generation {} was preempted, and no preemption is charged", after.id, g.number);
            return Some(("charge", text));
        }
    }
    None
}

/// Whether an attempt was ended by what somebody wanted, not by what happened to it.
fn is_wish(cause: StopCause) -> bool {
    match cause {
        StopCause::Cancel | StopCause::Pause | StopCause::Restart | StopCause::Limit => true,
        StopCause::Notice | StopCause::Lost | StopCause::PeerExit => false,
    }
}

/// What is wrong with the charge of an end.
fn wrong(world: &World, before: &Job, after: &Job, end: &LastEnd, facts: &Facts) -> Option<String> {
    let Ended { kind: Some(kind), charge: Some(charge), summary, .. } = &end.ended else { return None };
    let befell = facts.befell.get(&end.generation).map(Vec::as_slice).unwrap_or_default();
    let whose = facts.ends.get(&end.attempt);
    let fits = match charge {
        Charge::User => whose == Some(&Whose::User),
        Charge::Preemptions => befell.iter().any(|f| takes_away(*f)),
        Charge::Infra if *kind == FailureKind::Timeout => limit_passed(world, before, after, end),
        // A program that says nothing, with a limit for saying nothing.
        Charge::Infra
            if *kind == FailureKind::Stalled && after.spec.limits.stall_by_hand && is_silent(world, after) =>
        {
            true
        }
        // Judged by two looks, with minutes between them.
        Charge::Infra if world.has(Fault::StateUnclear) && summary.contains("unhealthy") => true,
        Charge::Infra => {
            let now = world.now();
            whose == Some(&Whose::Other)
                || !befell.is_empty()
                || world.has(Fault::ClockSkew)
                || hidden(world, now - OUTAGE_TELLS, now + 1)
                || limit_passed(world, before, after, end)
                || waits_unheard(world, before, after, end)
        }
    };
    (!fits).then(|| {
        format!(
            "the end of attempt {} of {} is charged to {charge:?} as {kind} ({summary}); its generation {} met {:?}, its program's end is {whose:?}",
            end.attempt,
            after.id,
            end.generation,
            befell.iter().map(|f| f.name()).collect::<Vec<_>>(),
        )
    })
}

/// Whether the attempt had not started: workers that wait send no heartbeats here, except in the seeds that send each one.
fn waits_unheard(world: &World, before: &Job, after: &Job, end: &LastEnd) -> bool {
    let find = |job: &Job| job.attempts.iter().find(|a| a.number == end.attempt).cloned();
    !world.has(Fault::Heartbeats) && find(after).or_else(|| find(before)).is_some_and(|a| a.started_at.is_none())
}

fn is_silent(world: &World, job: &Job) -> bool {
    world.job_plan(&job.id).is_some_and(|plan| !plan.writes_progress)
}

/// Whether a fault of a slice may look like a preemption or maintenance.
fn takes_away(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::PreemptNotice
            | Fault::PreemptSilent
            | Fault::PreemptLag
            | Fault::PreemptedCreating
            | Fault::NoticePartial
            | Fault::NoticeShort
            | Fault::PreemptExitFirst
            | Fault::NoticeFalse
            | Fault::SliceOfManyLost
            | Fault::Storm
            | Fault::Vanish
            | Fault::Terminated
            // A VM that was taken away shows STOPPED or TERMINATED, whoever did it.
            | Fault::StoppedByHand
            | Fault::MaintenanceFar
            | Fault::MaintenanceNow
            | Fault::MaintenanceMoved
            | Fault::TakenOnDemand
            | Fault::NodeDeletedByHand
            | Fault::ActiveWithoutNode
            | Fault::SuspendedCreating
    )
}

/// Whether `attempt` or `start`, the limits of the job's own, have really passed.
fn limit_passed(world: &World, before: &Job, after: &Job, end: &LastEnd) -> bool {
    let find = |job: &Job| job.attempts.iter().find(|a| a.number == end.attempt).cloned();
    let Some(a) = find(after).or_else(|| find(before)) else { return false };
    let skew = if world.has(Fault::ClockSkew) { world.plan.skew_us * 2 } else { 0 };
    let over = |since: Timestamp, limit: std::time::Duration| {
        world.now() + skew - micros(since) >= i64::try_from(limit.as_micros()).unwrap_or(i64::MAX)
    };
    match a.started_at {
        Some(started) => after.spec.limits.attempt.is_some_and(|limit| over(started, limit)),
        None => over(a.created_at, after.spec.limits.start),
    }
}
