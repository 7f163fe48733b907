//! What ends are charged to and answered with when their slice is lost shortly after, and what counts as a generation without progress.

use serde_json::{Value, json};

use super::cases::{decided, report, running, seen, view};
use crate::classify::{Exit, WorkerEvidence};
use crate::failure::FailureKind;
use crate::fixture::{at, deployment, entry, spec_in, with};
use crate::job::{Desired, Job, Outcome};
use crate::observation::{ExitReport, Health, Look, SliceState, SliceView, WorkerReport, WorkerState};
use crate::reason::Reason;
use crate::spec::{CapacityKind, JobSpec};

/// A job that has saved step 500, with that recovery.
fn running_by(recovery: &Value) -> Job {
    let spec = spec_in(&deployment(vec![entry("*", "*", CapacityKind::Spot)]), &with(&["recovery"], recovery.clone()));
    Job { spec: spec.into(), highest_step: Some(500), line_step: Some(500), saved: Some(500), ..running() }
}

/// So many of the four workers left for a broken transport at second 100; of the others nothing is heard.
fn broken(count: u32) -> Vec<WorkerReport> {
    let tail = "all-reduce failed: gRPC status UNAVAILABLE: reset by peer\n";
    let exit = |index| {
        let evidence = WorkerEvidence { index, exit: Exit::Code(1), tail: tail.into(), ..WorkerEvidence::default() };
        Some(ExitReport { at: at(100), ordered: false, evidence })
    };
    let of =
        |n| if n < count { report(n, WorkerState::Exited, exit(n)) } else { report(n, WorkerState::Running, None) };
    (0..4).map(of).collect()
}

fn look(job: &Job, slice: &Look<SliceView>, workers: Vec<WorkerReport>, secs: i64) -> Job {
    Job::clone(&decided(job, &seen(job, slice, Some(workers), secs), secs).job)
}

fn in_state(job: &Job, state: SliceState) -> Look<SliceView> {
    Look::Seen(view(job, state, true))
}

/// The job whose workers' ends were judged, with the first step of its answer.
fn judged(recovery: &Value) -> Job {
    let job = running_by(recovery);
    let ready = in_state(&job, SliceState::Ready);
    let told = look(&job, &ready, broken(3), 100);
    let judged = look(&told, &ready, broken(3), 180);
    assert_eq!(kind(&judged), Some(FailureKind::InfraGrpc), "{}", judged.message);
    judged
}

fn kind(job: &Job) -> Option<FailureKind> {
    job.last_end.as_ref().and_then(|end| end.ended.kind)
}

#[test]
fn a_silence_that_was_a_preemption_ends_no_job_whose_infra_budget_is_used_up() {
    for fails_by_rule in [false, true] {
        let recovery = if fails_by_rule { json!({"overrides": {"lost": "fail"}}) } else { json!({"preset": "pre"}) };
        let mut job = running_by(&recovery);
        job.spent.infra_failures = if fails_by_rule { 0 } else { 10 };
        let spent = job.spent.infra_failures;
        let unwell = SliceView { health: Health::Unhealthy("TIMEOUT".into()), ..view(&job, SliceState::Ready, true) };
        let unwell = Look::Seen(unwell);
        let silent = || (0..4).map(|n| report(n, WorkerState::Running, None)).collect();
        let given_up = look(&job, &unwell, silent(), 200);
        assert_eq!((kind(&given_up), given_up.outcome), (Some(FailureKind::Lost), None), "{}", given_up.message);
        assert_eq!(given_up.reason, Reason::Settling);
        let lost = look(&given_up, &in_state(&job, SliceState::Preempted), silent(), 245);
        let counters = (lost.outcome, lost.counters.preemptions, lost.spent.infra_failures);
        assert_eq!(counters, (None, 1, spent), "{}", lost.message);
        assert_eq!(lost.attempts.last().map(|a| (a.number, a.resume)), Some((2, true)));
        // Unexplained, it is final.
        let failed = look(&given_up, &unwell, silent(), 260);
        assert_eq!(failed.outcome, Some(Outcome::Failed), "{}", failed.message);
    }
}

#[test]
fn a_preemption_whose_first_sign_is_a_broken_transport_throws_no_checkpoint_away() {
    let judged = judged(&json!({"preset": "rerun"}));
    let next = judged.next.clone().unwrap();
    assert_eq!((next.new_generation, next.resume, next.from_scratch, judged.line), (true, false, true, 0));
    let lost = look(&judged, &in_state(&judged, SliceState::Preempted), broken(3), 200);
    assert_eq!((kind(&lost), lost.counters.preemptions), (Some(FailureKind::Preempted), 1), "{}", lost.message);
    let second = lost.attempts.last().unwrap();
    assert_eq!((second.number, second.line, second.resume, lost.saved), (2, 0, true, Some(500)));
    assert_eq!(lost.spent.generations_without_progress, 1, "one generation is counted once");

    // The transport it was: a new line begins with the new attempt, when the slice has been kept for as long as that may show.
    let kept = look(&judged, &in_state(&judged, SliceState::Ready), broken(3), 239);
    assert_eq!(kept.generations[0].delete, None, "{}", kept.message);
    let given_back = look(&kept, &in_state(&judged, SliceState::Ready), broken(3), 240);
    assert!(given_back.generations[0].delete.is_some(), "{}", given_back.message);
    let gone = look(&look(&given_back, &Look::Absent, broken(3), 250), &Look::Absent, broken(3), 260);
    let second = gone.attempts.last().unwrap();
    assert_eq!((second.number, second.line, second.resume), (2, 1, false));
    assert_eq!((gone.saved, gone.counters.steps_repeated), (None, 0), "none is done again yet");
}

#[test]
fn a_restart_in_place_from_scratch_waits_for_what_may_explain_its_end() {
    let job = running_by(&json!({"preset": "rerun"}));
    let ready = in_state(&job, SliceState::Ready);
    let told = look(&job, &ready, broken(4), 100);
    let waits = (told.line, told.last_attempt, told.reason);
    assert_eq!(waits, (0, 1, Reason::BackOff), "{}", told.message);
    assert!(told.message.contains("before it begins from scratch in place, after infra_grpc"), "{}", told.message);
    let lost = look(&told, &in_state(&job, SliceState::Preempted), broken(4), 130);
    assert_eq!(lost.attempts.last().map(|a| (a.generation, a.line, a.resume)), Some((2, 0, true)), "{}", lost.message);
    let alone = look(&told, &ready, broken(4), 160);
    assert_eq!(alone.attempts.last().map(|a| (a.generation, a.line, a.resume)), Some((1, 1, false)));
}

#[test]
fn a_line_that_was_to_begin_begins_once_whoever_asks_for_the_next_attempt() {
    use super::{Command, apply_command};
    let judged = judged(&json!({"preset": "rerun"}));
    for (command, line) in [
        (Command::Restart { new_slice: true, from_scratch: false }, 1),
        (Command::Restart { new_slice: true, from_scratch: true }, 1),
        (Command::Pause, 0),
    ] {
        let job = apply_command(&judged, command, at(190)).unwrap().unwrap();
        // Nobody waits any more for what may explain the end.
        let job = look(&job, &in_state(&job, SliceState::Ready), broken(3), 191);
        assert!(job.generations[0].delete.is_some(), "{command:?}: {}", job.message);
        let gone = look(&look(&job, &Look::Absent, broken(3), 230), &Look::Absent, broken(3), 240);
        assert_eq!(gone.line, line, "{command:?}: {}", gone.message);
        if gone.desired == Desired::Pause {
            for (command, line) in
                [(Command::Unpause, 1), (Command::Restart { new_slice: true, from_scratch: true }, 1)]
            {
                let on = apply_command(&gone, command, at(300)).unwrap().unwrap();
                let on = look(&on, &Look::Absent, broken(3), 300);
                assert_eq!(on.attempts.last().map(|a| (a.line, a.resume)), Some((line, false)), "{command:?}");
            }
        }
    }
}

#[test]
fn what_the_policy_says_of_a_preemption_holds_for_one_that_is_explained_later() {
    let judged = judged(&json!({"preset": "resume"}));
    assert_eq!(judged.outcome, None);
    let lost = look(&judged, &in_state(&judged, SliceState::Preempted), broken(3), 200);
    assert_eq!((lost.outcome, kind(&lost)), (Some(Outcome::Failed), Some(FailureKind::Preempted)), "{}", lost.message);
}

#[test]
fn a_generation_is_without_progress_only_if_none_of_its_attempts_made_any() {
    let runs = |attempt: u32, secs, step| {
        let of = |n| WorkerReport { attempt, step, heard_at: at(secs), ..report(n, WorkerState::Running, None) };
        (0..4).map(of).collect::<Vec<_>>()
    };
    // Forty minutes, in place, ten minutes; or a step, in place, and none.
    for (step, ended, barren) in [(None, 2402, 0), (None, 602, 1), (Some(7), 602, 0)] {
        let job = running();
        let ready = in_state(&job, SliceState::Ready);
        let job = look(&job, &ready, runs(1, ended - 10, step), ended - 10);
        let mut second = look(&job, &ready, broken(4), ended);
        let a = second.attempts.last_mut().unwrap();
        assert_eq!((a.number, a.generation), (2, 1));
        (a.released_at, a.started_at) = (Some(at(ended + 5)), Some(at(ended + 5)));
        let late = ended + 605;
        let second = look(&second, &ready, runs(2, late, step), late);
        let lost = look(&second, &in_state(&job, SliceState::Preempted), runs(2, late, step), late + 1);
        assert_eq!(kind(&lost), Some(FailureKind::Preempted));
        assert_eq!(lost.spent.generations_without_progress, barren, "step {step:?}, {ended} s");
    }
}

#[test]
fn a_slice_that_stays_unhealthy_is_charged_once_with_the_end_that_was_answered_in_place_on_it() {
    let job = running_by(&json!({"overrides": {"user_error": {"action": "resume_in_place", "max": 1}}}));
    let unwell = SliceView { health: Health::Unhealthy("TIMEOUT".into()), ..view(&job, SliceState::Ready, true) };
    let unwell = Look::Seen(unwell);
    let ends = |secs: i64, rebooted| {
        let (exit, tail) = if rebooted { (Exit::Silent, "") } else { (Exit::Code(1), "ValueError: x") };
        let of = |index| {
            let evidence = WorkerEvidence { index, exit, rebooted, tail: tail.into(), ..WorkerEvidence::default() };
            let exit = Some(ExitReport { at: at(secs), ordered: false, evidence });
            WorkerReport { heard_at: at(secs), ..report(index, WorkerState::Exited, exit) }
        };
        (0..4).map(of).collect::<Vec<_>>()
    };
    let runs = (0..4).map(|n| report(n, WorkerState::Running, None)).collect();
    let first = look(&job, &unwell, runs, 100);
    assert_eq!(first.generations[0].unhealthy_since, Some(at(100)), "{}", first.message);
    // In the pass that gives it up, within the settle window before, and long before.
    for (rebooted, secs, charged) in [(true, 400, 1), (true, 340, 1), (true, 339, 2), (false, 400, 1), (false, 340, 1)]
    {
        let told = look(&first, &unwell, ends(secs, rebooted), secs);
        let lost = look(&told, &unwell, ends(secs, rebooted), 400);
        let end = lost.last_end.as_ref().map(|end| (end.attempt, end.generation));
        assert_eq!((end, kind(&lost)), (Some((2, 1)), Some(FailureKind::Lost)), "{rebooted} {secs}: {}", lost.message);
        let counters = (lost.outcome, lost.counters.infra_failures, lost.spent.infra_failures);
        assert_eq!(counters, (None, charged, charged), "{rebooted} {secs}: {}", lost.message);
        assert_eq!(lost.counters.user_failures, 0, "{rebooted} {secs}");
        assert!(lost.generations[0].delete.is_some(), "{rebooted} {secs}: another slice is asked for");
    }
    // One that is beyond its budget fails, though its last slice was the last without a step, too.
    let barren = |mut job: Job| {
        let mut spec = JobSpec::clone(&job.spec);
        (spec.budgets.no_progress, spec.budgets.infra_failures) = (Some(1), Some(0));
        job.spec = spec.into();
        job
    };
    let told = look(&barren(first.clone()), &unwell, ends(340, false), 340);
    let lost = look(&told, &unwell, ends(340, false), 400);
    assert_eq!((kind(&lost), lost.desired), (Some(FailureKind::Lost), Desired::Run), "{}", lost.message);
    let failed = look(&lost, &Look::Absent, Vec::new(), 461);
    assert_eq!(failed.outcome, Some(Outcome::Failed), "{}", failed.message);
    assert!(
        failed.message.contains("; it is not tried again: the job's budgets.infra_failures is 0"),
        "{}",
        failed.message
    );
}

#[test]
fn what_a_person_says_before_a_failure_is_final_is_obeyed_however_late_it_is_looked_at() {
    use super::{Command, apply_command};
    let job = running_by(&json!({"overrides": {"infra_grpc": "fail"}}));
    let ready = in_state(&job, SliceState::Ready);
    let settling = look(&job, &ready, broken(4), 100);
    assert_eq!((settling.reason, settling.outcome), (Reason::Settling, None), "{}", settling.message);
    // No tick came for an hour.
    let late = |command| {
        let told = apply_command(&settling, command, at(3600)).unwrap().unwrap();
        look(&told, &ready, broken(4), 3601)
    };
    let cancelled = late(Command::Cancel);
    assert_eq!((cancelled.outcome, cancelled.reason), (Some(Outcome::Cancelled), Reason::CancelRequested));
    let paused = late(Command::Pause);
    assert_eq!((paused.outcome, paused.desired, &paused.settling), (None, Desired::Pause, &None));
    let restarted = late(Command::Restart { new_slice: false, from_scratch: false });
    assert_eq!((restarted.outcome, restarted.last_attempt), (None, 2), "{}", restarted.message);
    // Nobody said anything.
    assert_eq!(look(&settling, &ready, broken(4), 3601).outcome, Some(Outcome::Failed));
}
