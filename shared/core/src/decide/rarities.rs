//! Two rare things at once: a window that is moved after the job has left for it, an agent whose clock is ahead, a wish in the moment of a loss.

use super::cases::{decided, report, running, seen, view, with};
use super::{Command, EffectOutcome, apply_command, record};
use crate::classify::{Exit, SignalSender, WorkerEvidence};
use crate::effect::Effect;
use crate::failure::FailureKind;
use crate::fixture::{at, generation, noon};
use crate::job::{Barred, Create, Delete, Desired, Generation, Job, Outcome, StopCause};
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

/// The newest attempt after the slice was taken at that time.
fn after_taken(job: &Job, workers: Vec<WorkerReport>, secs: i64) -> Option<(u32, bool, u32)> {
    let taken = Look::Seen(view(job, SliceState::Preempted, true));
    let lost = decided(job, &seen(job, &taken, Some(workers), secs), secs).job;
    lost.attempts.last().map(|a| (a.number, a.resume, a.line))
}

#[test]
fn a_program_that_was_told_to_run_is_resumed_also_where_not_all_of_its_workers_were_heard_to_run_it() {
    let mut job = running();
    (job.first_started_at, job.attempts[0].started_at) = (None, None);
    // Of those that are heard each tells of a checkpoint; the others began as well, and their agents cannot tell.
    for heard in 0..4 {
        let of = |n| {
            if n >= heard {
                return report(n, WorkerState::Ready, None);
            }
            WorkerReport { step: Some(1000), checkpoint: Some(1000), ..report(n, WorkerState::Running, None) }
        };
        let workers = || (0..4).map(of).collect();
        let ran = after(&job, workers(), 100);
        assert_eq!(ran.first_started_at, None);
        assert_eq!(after_taken(&ran, workers(), 110), Some((2, true, 0)), "{heard} of 4 were heard");
    }
    job.attempts[0].released_at = None;
    assert_eq!(after_taken(&job, Vec::new(), 110), Some((2, false, 0)), "nobody was told to run it");
}

#[test]
fn a_line_that_nobody_was_told_to_run_on_is_not_resumed() {
    let scratch = Command::Restart { new_slice: false, from_scratch: true };
    let ended = |secs| {
        (0..4).map(move |n| {
            let evidence = WorkerEvidence { index: n, exit: Exit::Signal(15), ..WorkerEvidence::default() };
            let exit = Some(ExitReport { at: at(101), ordered: true, evidence });
            WorkerReport { heard_at: at(secs), ..report(n, WorkerState::Exited, exit) }
        })
    };
    let mut job = Job { saved: Some(1000), ..running() };
    job = after(&apply_command(&job, scratch, at(100)).unwrap().unwrap(), Vec::new(), 100);
    for secs in [102, 110] {
        job = after(&job, ended(secs).collect(), secs);
    }
    let begun = job.attempts.last().map(|a| (a.number, a.resume, a.line));
    assert_eq!(begun, Some((2, false, 1)), "{}", job.message);
    assert_eq!(after_taken(&job, Vec::new(), 120), Some((3, false, 1)), "its slice is taken before it begins");
    let again = after(&apply_command(&job, RESTART, at(120)).unwrap().unwrap(), Vec::new(), 120);
    let begun = again.attempts.last().map(|a| (a.number, a.resume, a.line));
    assert_eq!(begun, Some((3, false, 1)), "restarted before it begins");
}

#[test]
fn a_notice_that_uses_up_a_budget_by_an_end_before_it_asks_for_no_new_slice() {
    let mut job = running();
    job.spec.budgets.preemptions = Some(0);
    let killed = |n| {
        let evidence = WorkerEvidence { index: n, exit: Exit::Code(143), ..WorkerEvidence::default() };
        report(n, WorkerState::Exited, Some(ExitReport { at: at(100), ordered: false, evidence }))
    };
    let mut job = after(&job, (0..4).map(killed).collect(), 101);
    for secs in [102, 110] {
        job = after(&job, (0..4).map(killed).collect(), secs);
    }
    assert_eq!(job.attempts.last().map(|a| a.number), Some(2), "it resumes on the same slice: {}", job.message);
    let notice = Notice { kind: NoticeKind::Preemption, seen_at: at(120), deadline: at(150) };
    let of = |n| WorkerReport { attempt: 2, notice: Some(notice.clone()), ..report(n, WorkerState::Preparing, None) };
    let told = decided(&job, &looks(&job, (0..4).map(of).collect(), 120), 120);
    assert_eq!(told.job.outcome, Some(Outcome::Failed), "{}", told.job.message);
    assert_eq!(told.job.last_end.as_ref().map(|end| (end.attempt, end.ended.action)), Some((1, Some(Action::Fail))));
    let asks = told.notes.iter().filter(|note| note.contains("a new slice is asked for")).collect::<Vec<_>>();
    assert_eq!(asks, Vec::<&String>::new());
    assert!(told.job.attempts.iter().all(|a| a.stop.is_some()), "{:?}", told.job.attempts);
}

#[test]
fn a_migration_of_one_host_hides_no_maintenance_of_another() {
    let goes = Notice { kind: NoticeKind::Maintenance, seen_at: at(50), deadline: at(150) };
    let moves = Notice { kind: NoticeKind::Migration, seen_at: at(60), deadline: at(400) };
    let of = |n| WorkerReport {
        notice: Some(if n < 2 { goes.clone() } else { moves.clone() }),
        heard_at: at(99),
        ..report(n, WorkerState::Running, None)
    };
    let job = after(&running(), (0..4).map(of).collect(), 70);
    let job = after(&job, (0..4).map(of).collect(), 100);
    let stop = job.attempts[0].stop.as_ref().map(|stop| stop.cause);
    assert_eq!(stop, Some(StopCause::Notice), "{}", job.message);
}

/// A delete that is still on its way meets whatever has its name when it arrives.
#[test]
fn the_name_of_what_was_deleted_is_not_used_again_there_while_a_delete_may_arrive() {
    for (was_deleted, secs, wanted) in [(false, 31, 1), (true, 31, 2), (true, 700, 1)] {
        let sent = Delete { intended_at: at(2), sent_at: Some(at(2)), tries: 1, last_error: None };
        let error = CreateError { kind: CreateErrorKind::Quota, message: "no".into() };
        let placement = generation(1).placement;
        let create = Create::Failed { error: error.clone(), counted: true };
        let delete = was_deleted.then_some(sent);
        let mut job = with(Generation { create, delete, asked_at: Some(noon()), ..generation(1) });
        // At 31 s the place may be tried again when the last of it is gone.
        job.barred = vec![Barred { placement, until: Some(at(secs - 11)), error, times: 1, deletes_until: None }];
        let refused = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 30), 30).job;
        let later = if refused.generations.is_empty() {
            assert!(refused.next.is_none(), "{}", refused.message);
            decided(&refused, &seen(&refused, &Look::Absent, Some(Vec::new()), secs), secs).job
        } else {
            refused
        };
        let asked = later.generations.last().map(|g| (g.number, g.name.ends_with(&format!("-g{wanted}"))));
        let waits = later.attempts.last().map(|a| (a.number, a.generation));
        assert_eq!((asked, waits), (Some((wanted, true)), Some((1, wanted))), "{}", later.message);
        assert_eq!(later.last_generation, wanted);
    }
}
