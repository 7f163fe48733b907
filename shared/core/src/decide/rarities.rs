//! Two rare things at once: a window that is moved after the job has left for it, an agent whose clock is ahead, a wish in the moment of a loss.

use super::cases::{decided, report, running, seen, view};
use super::{Command, EffectOutcome, apply_command, record};
use crate::classify::{Exit, SignalSender, WorkerEvidence};
use crate::effect::Effect;
use crate::failure::FailureKind;
use crate::fixture::at;
use crate::job::{Desired, Job};
use crate::observation::{
    CreateError, CreateErrorKind, ExitReport, Health, Look, Notice, NoticeKind, Observation, SliceState, SliceView,
    WorkerReport, WorkerState,
};
use crate::policy::{Action, Rule};
use crate::spec::CapacityKind;

const RESTART: Command = Command::Restart { new_slice: false, from_scratch: false };

/// Generation 1 is shown READY, any other one absent.
fn looks(job: &Job, workers: Vec<WorkerReport>, secs: i64) -> Observation {
    let ready = Look::Seen(view(job, SliceState::Ready, true));
    let mut seen = seen(job, &ready, Some(workers), secs);
    for look in seen.generations.iter_mut().filter(|look| look.number != 1) {
        look.slice = Look::<SliceView>::Absent;
    }
    seen
}

fn after(job: &Job, workers: Vec<WorkerReport>, secs: i64) -> Job {
    Job::clone(&decided(job, &looks(job, workers, secs), secs).job)
}

/// All four workers tell of this notice, as they run or after they have ended for it.
fn told(notice: &Notice, has_ended: bool, secs: i64) -> Vec<WorkerReport> {
    let of = |n| {
        let evidence = WorkerEvidence { index: n, exit: Exit::Code(0), ..WorkerEvidence::default() };
        let exit = has_ended.then(|| ExitReport { at: at(120), ordered: true, evidence });
        let state = if has_ended { WorkerState::Exited } else { WorkerState::Running };
        WorkerReport { notice: Some(notice.clone()), heard_at: at(secs), ..report(n, state, exit) }
    };
    (0..4).map(of).collect()
}

#[test]
fn a_window_that_is_moved_after_the_job_has_left_for_it_strands_nothing() {
    for (kind, refusal) in [
        (NoticeKind::Maintenance, CreateErrorKind::Quota),
        (NoticeKind::Maintenance, CreateErrorKind::Stockout),
        (NoticeKind::Migration, CreateErrorKind::Quota),
    ] {
        // The window begins in 50 s: the program is told to save, and the next slice is asked for.
        let soon = Notice { kind: NoticeKind::Maintenance, seen_at: at(99), deadline: at(150) };
        let job = running();
        let asked = decided(&job, &looks(&job, told(&soon, false, 100), 100), 100);
        assert!(asked.effects.contains(&Effect::CreateGeneration { generation: 2 }), "{:?}", asked.notes);
        // Which is refused: there is no room while the first one is there.
        let error = CreateError { kind: refusal, message: "no".into() };
        let refused = [EffectOutcome::CreateRefused { generation: 2, error }];
        let job = after(&record(&asked.job, &refused, at(101)).0, told(&soon, false, 101), 101);
        assert_eq!(job.generations.len(), 1, "{}", job.message);
        // The window is moved, while the program still saves.
        let moved = Notice { kind, seen_at: at(110), deadline: at(110 + 7 * 24 * 3600) };
        let mut job = after(&job, told(&moved, false, 111), 111);
        let mut goes_on = false;
        for secs in [121, 125, 151, 200, 700, 3600, 24 * 3600] {
            let decision = decided(&job, &looks(&job, told(&moved, true, secs), secs), secs);
            goes_on |= !decision.effects.iter().all(|e| *e == Effect::PublishEvents);
            job = Job::clone(&decision.job);
        }
        assert!(goes_on, "{kind:?} {refusal:?}: a day later: {:?} {:?} {}", job.phase, job.reason, job.message);
    }
}

#[test]
fn what_an_agent_ended_for_its_own_notice_is_charged_to_it_also_when_its_peers_end_a_moment_later() {
    // The clock of one machine is four minutes ahead: there the window is urgent while it is not here, and its agent ends the program.
    let notice = Notice { kind: NoticeKind::Maintenance, seen_at: at(50), deadline: at(400) };
    let of = |n: u32, has_ended: bool, secs: i64| {
        let signal_sender = Some(SignalSender::Ourselves);
        let evidence = WorkerEvidence { index: n, exit: Exit::Signal(15), signal_sender, ..WorkerEvidence::default() };
        let exit = has_ended.then(|| ExitReport { at: at(100), ordered: true, evidence });
        let state = if has_ended { WorkerState::Exited } else { WorkerState::Running };
        WorkerReport { notice: Some(notice.clone()), heard_at: at(secs), ..report(n, state, exit) }
    };
    // Told at once or one after the other: it is the same end.
    for apart in [false, true] {
        let mut job = running();
        job.spec.recovery.rules.insert(FailureKind::Unknown, Rule::always(Action::Fail));
        if apart {
            job = after(&job, (0..4).map(|n| of(n, n == 0, 101)).collect(), 101);
        }
        for secs in [103, 170, 341] {
            job = after(&job, (0..4).map(|n| of(n, true, secs)).collect(), secs);
        }
        let kind = job.last_end.as_ref().and_then(|end| end.ended.kind);
        let found = (kind, job.outcome, job.counters.infra_failures);
        assert_eq!(found, (Some(FailureKind::Maintenance), None, 0), "told apart: {apart}: {}", job.message);
    }
}

#[test]
fn a_silence_that_was_maintenance_is_charged_to_it_like_one_that_was_a_preemption() {
    for (capacity, state, want) in [
        (CapacityKind::Spot, SliceState::Preempted, FailureKind::Preempted),
        (CapacityKind::OnDemand, SliceState::Preempted, FailureKind::Maintenance),
        (CapacityKind::OnDemand, SliceState::Terminated, FailureKind::Maintenance),
        (CapacityKind::Reserved, SliceState::Terminated, FailureKind::Maintenance),
    ] {
        let mut job = running();
        job.generations[0].placement.capacity = capacity;
        // Its workers fell silent, and it was given up for that; then the API says what it was.
        let silent = || (0..4).map(|n| report(n, WorkerState::Running, None)).collect::<Vec<_>>();
        let mut seen = looks(&job, silent(), 200);
        let ill = SliceView { health: Health::Maintenance, ..view(&job, SliceState::Ready, true) };
        seen.generations[0].slice = Look::Seen(ill);
        let given_up = decided(&job, &seen, 200).job;
        assert!(given_up.generations[0].delete.is_some(), "{}", given_up.message);
        let mut seen = looks(&given_up, silent(), 215);
        seen.generations[0].slice = Look::Seen(view(&job, state.clone(), true));
        let told = decided(&given_up, &seen, 215).job;
        let kind = told.last_end.as_ref().and_then(|end| end.ended.kind);
        let found = (kind, told.counters.infra_failures);
        assert_eq!(found, (Some(want), 0), "{capacity:?} {state:?}: {}", told.message);
    }
}

#[test]
fn a_restart_that_was_accepted_is_carried_out_also_when_the_last_slice_without_progress_is_lost_then() {
    let mut job = running();
    job.spec.budgets.no_progress = Some(1);
    let told = apply_command(&job, RESTART, at(100)).unwrap().unwrap();
    let taken = Look::Seen(view(&told, SliceState::Preempted, true));
    let lost = decided(&told, &seen(&told, &taken, Some(Vec::new()), 100), 100).job;
    assert_eq!((lost.desired, lost.outcome), (Desired::Run, None), "{:?} {}", lost.reason, lost.message);
}

#[test]
fn a_workspace_that_somebody_restarts_is_not_paused_for_want_of_use_in_the_same_moment() {
    let mut job = running();
    job.spec.workspace = true;
    job.spec.limits.idle = Some(std::time::Duration::from_hours(8));
    let secs = 8 * 3600 + 60;
    let of = |n| WorkerReport { heard_at: at(secs), ..report(n, WorkerState::Running, None) };
    let workers = || (0..4).map(of).collect();
    assert_eq!(after(&job, workers(), secs).desired, Desired::Pause, "nobody has used it");
    let restarted = after(&apply_command(&job, RESTART, at(secs)).unwrap().unwrap(), workers(), secs);
    assert_eq!(restarted.desired, Desired::Run, "{}", restarted.message);
}
