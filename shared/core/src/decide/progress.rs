//! What workers tell of their steps and checkpoints: the checkpoint of a job with several workers, which resume has lost
//! work, and what no clock of a machine may decide.

use std::time::Duration;

use super::cases::{decided, report, running, seen, view, with};
use crate::classify::{Exit, WorkerEvidence};
use crate::failure::FailureKind;
use crate::fixture::{at, generation, noon};
use crate::job::{Create, Generation, Job};
use crate::observation::{ExitReport, Look, SliceState, WorkerReport, WorkerState};
use crate::reason::Reason;

/// What a worker has said of its checkpoints: where it resumed, and what it saved last.
type Word = (Option<u64>, Option<u64>);

/// The job after a pass that hears its workers say this.
fn hears(job: &Job, words: [Word; 4]) -> (Job, Vec<String>) {
    let workers = words.iter().zip(0..).map(|((resumed_from, checkpoint), worker)| WorkerReport {
        resumed_from: *resumed_from,
        checkpoint: *checkpoint,
        ..report(worker, WorkerState::Running, None)
    });
    let ready = Look::Seen(view(job, SliceState::Ready, true));
    let decision = decided(job, &seen(job, &ready, Some(workers.collect()), 100), 100);
    (Job::clone(&decision.job), decision.notes)
}

/// The same job in its next attempt, which its workers have not yet spoken of.
fn resumed(job: Job) -> Job {
    let mut next = Job { highest_step: Some(200), ..job };
    let a = &mut next.attempts[0];
    (a.saved_before, a.resumed_from, a.released_at) = (next.saved, None, Some(at(50)));
    next
}

const SILENT: Word = (None, None);

fn from(step: u64) -> Word {
    (Some(step), None)
}

fn saves(step: u64) -> Word {
    (None, Some(step))
}

#[test]
fn one_worker_saves_for_all() {
    let (job, _) = hears(&running(), [saves(100), SILENT, SILENT, SILENT]);
    assert_eq!((job.saved, job.savers), (Some(100), 1));
    let all_from = |word: Word| [word, from(100), from(100), from(100)];
    let (job, notes) = hears(&resumed(job), all_from(from(100)));
    assert!(!notes.concat().contains("WorkLost"), "{notes:?}");
    let (job, _) = hears(&job, all_from((Some(100), Some(150))));
    assert_eq!(job.saved, Some(150), "those that save nothing are not waited for");
}

#[test]
fn where_each_saves_its_own_the_smallest_counts_and_an_undisturbed_resume_loses_nothing() {
    let (job, _) = hears(&running(), [saves(100), SILENT, SILENT, SILENT]);
    let (job, _) = hears(&job, [saves(103), saves(101), saves(102), saves(104)]);
    assert_eq!((job.saved, job.savers), (Some(101), 4));
    let (job, notes) = hears(&resumed(job), [from(103), from(101), from(102), from(104)]);
    assert!(!notes.concat().contains("WorkLost"), "{notes:?}");
    assert_eq!((job.attempts[0].resumed_from, job.counters.steps_repeated), (Some(101), 0));
    assert!(notes.contains(&"attempt 1 resumed from step 101; 99 steps are repeated".to_owned()), "{notes:?}");

    // Taken away after the first of them has saved again.
    let (job, _) = hears(&job, [(Some(103), Some(150)), from(101), from(102), from(104)]);
    assert_eq!(job.saved, Some(101), "the others would go on from there");
    let (_, notes) = hears(&resumed(job), [from(150), from(101), from(102), from(104)]);
    assert!(!notes.concat().contains("WorkLost"), "{notes:?}");
}

#[test]
fn a_worker_that_begins_below_its_checkpoint_has_lost_work_also_when_it_tells_last() {
    let (job, _) = hears(&running(), [saves(103), saves(101), saves(102), saves(104)]);
    let (job, notes) = hears(&resumed(job), [from(103), SILENT, SILENT, SILENT]);
    assert!(!notes.concat().contains("WorkLost"), "{notes:?}");
    let (job, notes) = hears(&job, [(Some(103), Some(150)), from(50), from(102), from(104)]);
    assert!(notes.contains(&"WorkLost: attempt 1 resumed from 50, below the checkpoint 101".to_owned()), "{notes:?}");
    let more = "attempt 1 resumed from step 50 on another worker, and not 103: 53 more steps are repeated";
    assert!(notes.contains(&more.to_owned()), "{notes:?}");
    let (job, notes) = hears(&job, [(Some(103), Some(150)), from(50), from(102), from(104)]);
    assert!(!notes.concat().contains("WorkLost"), "told once: {notes:?}");
    let told = |step| (Some(step), Some(60));
    assert_eq!(
        hears(&job, [told(103), told(50), told(102), told(104)]).0.saved,
        Some(60),
        "the newest, not the highest"
    );
}

/// The job after a pass that hears that its attempt began there and came to this step, and its repeated steps before and after
/// that pass.
fn comes_to(job: &Job, began: Option<u64>, step: u64) -> (Job, u64, u64) {
    let told = |n| WorkerReport { resumed_from: began, step: Some(step), ..report(n, WorkerState::Running, None) };
    let told: Vec<WorkerReport> = (0..4).map(told).collect();
    let shown = job.steps_repeated(&told);
    let ready = Look::Seen(view(job, SliceState::Ready, true));
    let job = Job::clone(&decided(job, &seen(job, &ready, Some(told), 100), 100).job);
    let counted = job.counters.steps_repeated;
    (job, shown, counted)
}

#[test]
fn only_steps_that_were_done_again_are_repeated_and_a_person_is_shown_them_at_once() {
    let (job, _) = hears(&running(), [saves(100), SILENT, SILENT, SILENT]);
    let mut job = resumed(job);
    for (began, step, want) in [
        (Some(103), 104, 1),
        (Some(103), 110, 7),
        // A worker that is slower to tell began further back.
        (Some(50), 110, 60),
        (Some(50), 150, 100),
        (Some(50), 260, 150),
        (Some(50), 400, 150),
    ] {
        let (next, shown, counted) = comes_to(&job, began, step);
        assert_eq!((shown, counted), (want, want), "{began:?} {step}");
        job = next;
    }
    // One that died soon has repeated little.
    let mut next = resumed(job);
    next.highest_step = Some(400);
    (next.attempts[0].step, next.attempts[0].progressed) = (None, false);
    assert_eq!(comes_to(&next, Some(390), 392).2, 152);
    // Where nobody knows its begin, it is the first step that it tells.
    (next.attempts[0].resume, next.attempts[0].saved_before) = (true, None);
    let (next, _, counted) = comes_to(&next, None, 390);
    assert_eq!((counted, comes_to(&next, None, 395).2), (150, 155));
}

#[test]
fn a_pass_that_sees_only_more_repeated_steps_decides_nothing() {
    let (job, _) = hears(&running(), [saves(100), SILENT, SILENT, SILENT]);
    let mut job = resumed(job);
    job = comes_to(&job, Some(103), 104).0;
    let told = |n| WorkerReport { resumed_from: Some(103), step: Some(150), ..report(n, WorkerState::Running, None) };
    let ready = Look::Seen(view(&job, SliceState::Ready, true));
    let decision = decided(&job, &seen(&job, &ready, Some((0..4).map(told).collect()), 100), 100);
    assert!(decision.job.counters.steps_repeated > job.counters.steps_repeated);
    assert!(!decision.changed, "{:?}", decision.notes);
}

#[test]
fn what_was_saved_on_an_earlier_line_does_not_count() {
    let (job, _) = hears(&running(), [saves(100), SILENT, SILENT, SILENT]);
    let job = Job { line: 1, saved: None, savers: 0, ..job };
    assert_eq!(hears(&job, [saves(110), SILENT, SILENT, SILENT]).0.saved, None);
}

#[test]
fn a_machine_whose_clock_is_behind_has_not_stalled_when_its_step_is_new() {
    let mut job = running();
    job.spec.limits.stall = Some(Duration::from_mins(2));
    let looks = |job: &Job, step: u64, secs: i64| {
        let of = |n| WorkerReport {
            step: Some(step),
            step_at: Some(at(secs - 300)),
            heard_at: at(secs),
            ..report(n, WorkerState::Running, None)
        };
        let ready = Look::Seen(view(job, SliceState::Ready, true));
        let decision = decided(job, &seen(job, &ready, Some((0..4).map(of).collect()), secs), secs);
        Job::clone(&decision.job)
    };
    let kind = |job: &Job| job.last_end.as_ref().and_then(|end| end.ended.kind);
    // Nobody looked for longer than that, and steps went on.
    let rarely = looks(&looks(&job, 1, 60), 20, 240);
    assert_eq!((kind(&rarely), rarely.attempts[0].step_at), (None, Some(at(240))));
    for minute in 1_i64..6 {
        job = looks(&job, minute.unsigned_abs(), 60 * minute);
        assert_eq!(kind(&job), None, "minute {minute}");
    }
    assert_eq!(kind(&looks(&job, 5, 60 * 7)), Some(FailureKind::Stalled), "no step for two minutes");
}

#[test]
fn a_program_whose_reports_cannot_be_read_has_neither_stalled_nor_failed_to_start() {
    let ready = |job: &Job| Look::Seen(view(job, SliceState::Ready, true));
    let end = |job: &Job, workers, secs| {
        let decision = decided(job, &seen(job, &ready(job), workers, secs), secs);
        Job::clone(&decision.job).last_end.and_then(|end| end.ended.kind)
    };
    let reports = |state, heard: i64| {
        Some((0..4).map(|n| WorkerReport { heard_at: at(heard), ..report(n, state, None) }).collect())
    };
    let mut runs = running();
    runs.spec.limits.stall = Some(Duration::from_mins(2));
    let last = runs.attempts.len() - 1;
    (runs.attempts[last].step, runs.attempts[last].step_at) = (Some(7), Some(at(60)));
    assert_eq!(end(&runs, None, 600), None, "a read that failed says nothing of steps");
    assert_eq!(end(&runs, reports(WorkerState::Running, 600), 600), Some(FailureKind::Stalled));
    // The limit passed at 180 s, the last word is older: the next one is awaited, and no longer.
    let young = decided(&runs, &seen(&runs, &ready(&runs), reports(WorkerState::Running, 170), 185), 185);
    assert!(young.job.last_end.is_none(), "a report that is only late");
    let wake = young.job.wake_at.unwrap();
    assert!(wake > at(185) && wake <= at(185 + 30), "{wake}");

    let mut starts = running();
    starts.spec.limits.start = Duration::from_mins(2);
    starts.attempts[last].started_at = None;
    assert_eq!(end(&starts, None, 600), None, "nor of words that were given");
    assert_eq!(end(&starts, reports(WorkerState::Preparing, 600), 600), Some(FailureKind::Timeout));
}

#[test]
fn agents_that_left_a_create_that_took_too_long_are_charged_to_nobody() {
    let sent = Generation {
        create: Create::Sent { operation: "op".into() },
        asked_at: Some(noon()),
        seen_at: Some(at(5)),
        ..generation(1)
    };
    let job = with(sent);
    let making = |job: &Job, workers, secs| {
        let making = Look::Seen(view(job, SliceState::Creating, true));
        decided(job, &seen(job, &making, Some(workers), secs), secs)
    };
    let early = (0..4).map(|n| report(n, WorkerState::Preparing, None)).collect();
    let given_up = making(&job, early, 900);
    assert_eq!(given_up.job.next.as_ref().map(|next| next.why), Some(Reason::CreateTimeout), "{:?}", given_up.notes);
    let exit = |ordered| ExitReport {
        at: at(902),
        ordered,
        evidence: WorkerEvidence { exit: Exit::Signal(9), ..WorkerEvidence::default() },
    };
    let left = (0..4).map(|n| report(n, WorkerState::Exited, Some(exit(true)))).collect();
    let after = making(&given_up.job, left, 903).job;
    assert_eq!((after.last_end.as_ref(), after.spent.infra_failures), (None, 0), "{}", after.message);
}
