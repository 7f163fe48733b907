//! Failures are charged to the right budget: each end by itself, by what really befell its attempt and its generation.

use std::collections::BTreeMap;

use jiff::Timestamp;

use rekindle_core::failure::FailureKind;
use rekindle_core::ids::JobId;
use rekindle_core::job::{Attempt, Desired, Ended, Job, LastEnd, Phase, StopCause};
use rekindle_core::policy::Charge;
use rekindle_core::settings::Settings;

use super::Broken;
use crate::exec::lock;
use crate::fault::Fault;
use crate::machine::Step;
use crate::roll::{HOUR, MIN, SEC};
use crate::truth::{Facts, Whose};
use crate::world::{World, micros};

/// An outage so long ago may have kept workers from telling what happened.
const OUTAGE_TELLS: i64 = HOUR;

/// What the API says is read within so long.
const HEARD: i64 = 90 * SEC;

/// Losses that can be nothing but preemptions, and whether they were charged so.
#[derive(Default)]
pub(super) struct Sure {
    /// By job and generation.
    lost: BTreeMap<(JobId, u32), Loss>,
}

/// A loss of a slice.
struct Loss {
    /// The attempt that ran.
    attempt: u32,
    /// A preemption was charged.
    charged: bool,
    /// Nothing but the API's word, which comes after other signs, can tell what it is.
    is_late: bool,
    /// When that came.
    said_at: Option<i64>,
}

impl Sure {
    /// The API says that a slice is taken away.
    pub(super) fn said(&mut self, job: &JobId, generation: u32, now: i64) {
        if let Some(loss) = self.lost.get_mut(&(job.clone(), generation)) {
            loss.said_at.get_or_insert(now);
        }
    }
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
    let known = matches!(
        fault,
        Fault::PreemptNotice
            | Fault::PreemptSilent
            | Fault::PreemptLag
            | Fault::PreemptExitFirst
            | Fault::NoticePartial
            | Fault::NoticeShort
            | Fault::Storm
    );
    let now = world.now();
    let first = !lock(&world.truth).of(&job.id).befell.contains_key(&generation);
    let runs =
        matches!(job.phase, Phase::Starting | Phase::Running) && job.desired == Desired::Run && job.restart.is_none();
    let Some(a) = job.attempts.last().filter(|a| a.generation == generation && a.ended.is_none()) else { return };
    // A read that shows no state may be all that is seen of it.
    let is_clear = !world.has(Fault::ClockSkew) && !world.has(Fault::StateUnclear);
    let quiet = is_clear && !hidden(world, now - HOUR, now + HOUR);
    if !known || !first || !runs || !quiet || a.stop.is_some() || job.settling.is_some() {
        return;
    }
    let fleet = lock(&world.fleet);
    let prepares = job.phase == Phase::Starting;
    let lives = |vm: &crate::machine::Vm| {
        vm.attempt.as_ref().map_or(prepares, |o| {
            // Its own end is not near.
            let ends = o.death.as_ref().map_or(i64::MAX, |d| d.at);
            let goes_on = o.step == Step::Running || (prepares && o.step != Step::Exited);
            o.number == a.number && goes_on && !o.stopping && ends > now + 10 * MIN
        })
    };
    if fleet.of_job(job.id.as_str()).filter(|vm| vm.generation == generation).all(lives) {
        let is_late = matches!(fault, Fault::PreemptLag | Fault::PreemptExitFirst);
        let loss = Loss { attempt: a.number, charged: false, is_late, said_at: None };
        sure.lost.insert((job.id.clone(), generation), loss);
    }
}

/// From one commit of a job to the next.
pub(super) fn step(world: &World, before: &Job, after: &Job, sure: &mut Sure) -> Broken {
    if let Some(end) = after.last_end.as_ref().filter(|_| before.last_end != after.last_end) {
        if end.ended.charge == Some(Charge::Preemptions)
            && let Some(loss) = sure.lost.get_mut(&(after.id.clone(), end.generation))
        {
            loss.charged = true;
        }
        let is_preemption = |end: &&LastEnd| end.ended.charge == Some(Charge::Preemptions);
        let earlier = before.last_end.as_ref().filter(is_preemption).filter(|one| one.generation == end.generation);
        if earlier.is_some() && is_preemption(&end) {
            let text = format!("{}: two preemptions are charged for generation {}", after.id, end.generation);
            return Some(("charge", text));
        }
        let facts = lock(&world.truth).jobs.get(&after.id).cloned().unwrap_or_default();
        if let Some(wrong) = wrong(world, before, after, end, &facts) {
            return Some(("charge", wrong));
        }
    }
    for g in before.generations.iter().filter(|g| after.generation(g.number).is_none()) {
        let Some(loss) = sure.lost.remove(&(after.id.clone(), g.number)) else { continue };
        let Loss { attempt, charged, is_late, said_at } = loss;
        // Its slice was let go of for other signs before the API said anything: nobody could know.
        let deleted = g.delete.as_ref().map(|delete| micros(delete.intended_at));
        let unknown = is_late && said_at.is_none_or(|said| deleted.is_some_and(|at| at < said + HEARD));
        let touched = lock(&world.truth).of(&after.id).befell.get(&g.number).map_or(0, Vec::len);
        let by_people = |a: &Attempt| a.number == attempt && a.stop.as_ref().is_some_and(|s| is_wish(s.cause));
        let excused = unknown || touched > 1 || after.outcome.is_some() || before.attempts.iter().any(by_people);
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
        Charge::User => matches!(whose, Some(Whose::User | Whose::Both)),
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
        // The minutes are those of two instances.
        Charge::Infra if world.has(Fault::ClockSkew) && facts.doubted.contains(&end.generation) => true,
        Charge::Infra => {
            let now = world.now();
            matches!(whose, Some(Whose::Other | Whose::Elsewhere | Whose::Both))
                || befell.iter().any(|f| takes_a_program(world, *f))
                || hidden(world, now - OUTAGE_TELLS, now + 1)
                || limit_passed(world, before, after, end)
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

/// Whether a fault may end a program, or keep a slice from being used: each but those that are over without a trace, or that end it by a notice,
/// which is what it is charged to.
fn takes_a_program(world: &World, fault: Fault) -> bool {
    let is_over = matches!(fault, Fault::AgentRestart | Fault::Migration | Fault::NoticeFalse);
    // A machine ends its program a minute before; an instance whose clock is slow does not take that notice for urgent yet.
    let is_far = fault == Fault::MaintenanceFar && !world.has(Fault::ClockSkew);
    !is_over && !is_far
}

fn is_silent(world: &World, job: &Job) -> bool {
    world.job_plan(&job.id).is_some_and(|plan| !plan.writes_progress && !crate::pulse::writes_output(plan))
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
            // It was not found, twice.
            | Fault::ReadMisses
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
        // Who gives no word at all is given up when silence would be.
        None if end.ended.summary.contains("gave no word") => {
            over(a.created_at, after.spec.limits.start.min(Settings::default().silence_hard))
        }
        None => over(a.created_at, after.spec.limits.start),
    }
}
