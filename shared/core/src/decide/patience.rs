//! What is waited for, and that nobody waits for it for ever or gives up for it what is well.

use std::time::Duration;

use super::cases::{decided, ended_by, report, running, seen, view, with};
use super::{Command, apply_command};
use crate::effect::Effect;
use crate::failure::FailureKind;
use crate::fixture::{at, attempt, generation, noon};
use crate::job::{Barred, Create, Delete, Desired, Generation, Job, Next, Phase, Stop, StopCause};
use crate::observation::{
    CreateError, CreateErrorKind, Look, Notice, NoticeKind, SliceState, SliceView, WorkerReport, WorkerState,
};
use crate::reason::Reason;

/// Second 0 of a job in minutes.
const MIN: i64 = 60;

fn error(kind: CreateErrorKind) -> CreateError {
    CreateError { kind, message: "no".into() }
}

fn runs() -> Vec<WorkerReport> {
    (0..4).map(|n| report(n, WorkerState::Running, None)).collect()
}

/// The slice is READY, and this is what was read of its workers.
fn looks(job: &Job, workers: Option<Vec<WorkerReport>>, secs: i64) -> (Job, Vec<Effect>) {
    let ready = Look::Seen(view(job, SliceState::Ready, true));
    let decision = decided(job, &seen(job, &ready, workers, secs), secs);
    (Job::clone(&decision.job), decision.effects)
}

/// The place is closed for good, so that no read of it is answered either.
#[test]
fn a_place_that_is_closed_for_good_is_not_waited_for_for_ever() {
    // Refused at once, or after a request without an answer, which may have made something.
    for (kind, tries, let_go) in [
        (CreateErrorKind::Forbidden, 0, 10),
        (CreateErrorKind::NotOffered, 0, 10),
        (CreateErrorKind::Forbidden, 1, 91 * MIN),
        (CreateErrorKind::NotOffered, 1, 91 * MIN),
    ] {
        for desired in [Desired::Run, Desired::Cancel] {
            let create = Create::Failed { error: error(kind), counted: false };
            let asked_at = if tries == 0 { noon() } else { at(3) };
            let asked = Generation { create, create_tries: tries, asked_at: Some(asked_at), ..generation(1) };
            let mut job = Job { desired, ..with(asked) };
            for secs in [10, 60 * MIN, 89 * MIN, 91 * MIN] {
                let decision = decided(&job, &seen(&job, &Look::<SliceView>::Unknown, Some(Vec::new()), secs), secs);
                job = Job::clone(&decision.job);
                let is_there = job.generations.iter().any(|g| g.intended_at == generation(1).intended_at);
                assert_eq!(is_there, secs < let_go, "{kind:?} {desired:?}, second {secs}: {}", job.message);
            }
            // There is no other place here.
            let is_over = desired == Desired::Cancel || kind == CreateErrorKind::NotOffered;
            assert_eq!(job.phase.is_terminal(), is_over, "{}", job.message);
            // Its name is not used again where it may be there after all.
            let is_renamed = tries > 0 && desired == Desired::Run;
            assert_eq!(job.last_generation, if is_renamed { 2 } else { 1 }, "{kind:?} {desired:?}");
        }
    }
}

/// Its workers call, so that it is there, whatever cannot be read.
#[test]
fn a_place_that_cannot_be_read_is_not_let_go_of_while_its_workers_speak() {
    let create = Create::Failed { error: error(CreateErrorKind::Forbidden), counted: false };
    let job = with(Generation { create, create_tries: 1, asked_at: Some(at(3)), ..generation(1) });
    let workers = vec![report(0, WorkerState::Preparing, None)];
    let secs = 24 * 60 * MIN;
    let decision = decided(&job, &seen(&job, &Look::<SliceView>::Unknown, Some(workers), secs), secs);
    assert!(decision.job.generation(1).is_some(), "{}", decision.job.message);
}

/// An attempt on the slice that is taken away never tells its end; the one on the next slice has told that its `setup` failed.
#[test]
fn in_a_hand_over_the_next_slice_is_kept_for_an_answer_in_place() {
    let mut job = running();
    let notice = Notice { kind: NoticeKind::Preemption, seen_at: at(100), deadline: at(130) };
    let sent = Delete { intended_at: at(131), sent_at: Some(at(131)), tries: 1, last_error: None };
    let made = (Create::Done, Some(noon()), Some(at(140)), Some(at(140)));
    (job.generations[0].notice, job.generations[0].delete) = (Some(notice), Some(sent));
    job.attempts[0].stop = Some(Stop { cause: StopCause::Notice, at: at(100), deadline: at(130), put_off: false });
    job.attempts[0].ended = Some(ended_by(FailureKind::Preempted));
    let mut next = generation(2);
    (next.create, next.asked_at, next.seen_at, next.ready_at) = made;
    let mut second = attempt(2, 2);
    (second.ended, second.fenced_at) = (Some(ended_by(FailureKind::StorageNetwork)), Some(at(200)));
    job.generations.push(next);
    job.attempts.push(second);
    (job.last_generation, job.last_attempt, job.phase) = (2, 2, Phase::Recovering);
    let (not_before, why) = (at(200), Reason::ResumeInPlace);
    job.next = Some(Next { not_before, resume: true, from_scratch: false, new_generation: false, why });
    for secs in [210, 300, 900] {
        let ready = Look::Seen(view(&job, SliceState::Ready, true));
        let mut seen = seen(&job, &ready, Some(runs()), secs);
        seen.generations[0].slice = Look::Seen(view(&job, SliceState::Deleting, true));
        job = Job::clone(&decided(&job, &seen, secs).job);
        let g = job.generation(2).cloned();
        assert!(g.is_some_and(|g| g.delete.is_none()), "second {secs}: {}", job.message);
    }
}

#[test]
fn while_its_program_saves_before_a_new_slice_a_job_waits_for_no_capacity() {
    let mut job = running();
    (job.spec.limits.queue, job.spec.limits.stop_grace) = (Some(Duration::from_mins(10)), Duration::from_mins(30));
    let restart = Command::Restart { new_slice: true, from_scratch: false };
    job = apply_command(&job, restart, at(100)).unwrap().unwrap();
    for secs in [101, 10 * MIN, 12 * MIN, 31 * MIN] {
        job = looks(&job, Some(runs()), secs).0;
        assert_eq!(job.outcome, None, "second {secs}: {}", job.message);
    }
}

/// A document that another version has written.
#[test]
fn reports_that_cannot_be_read_keep_no_slice_for_ever() {
    let mut job = apply_command(&running(), Command::Cancel, at(100)).unwrap().unwrap();
    job = looks(&job, Some(runs()), 101).0;
    let deletes = |effects: &[Effect]| effects.contains(&Effect::DeleteGeneration { generation: 1 });
    for (secs, is_deleted) in [(110, false), (300, false), (30 * MIN, true)] {
        let (after, effects) = looks(&job, None, secs);
        assert_eq!(deletes(&effects), is_deleted, "second {secs}: {}", after.message);
        job = after;
    }
}

#[test]
fn a_wake_forgets_no_name_that_a_delete_may_still_meet() {
    let placement = generation(1).placement;
    let barred = |deletes_until| Barred {
        placement: placement.clone(),
        until: Some(at(600)),
        error: error(CreateErrorKind::Stockout),
        times: 1,
        deletes_until,
    };
    for (deletes_until, kept) in [(None, vec![]), (Some(at(100)), vec![Some(at(50))]), (Some(at(40)), vec![])] {
        let mut job = with(generation(1));
        job.barred = vec![barred(deletes_until)];
        let woken = apply_command(&job, Command::Wake, at(50)).unwrap().unwrap();
        let until: Vec<_> = woken.barred.iter().map(|b| b.until).collect();
        assert_eq!(until, kept, "{deletes_until:?}");
    }
}

/// A read would tell whether the slice was taken away; where none is answered for long, silence is enough.
#[test]
fn silence_alone_ends_a_slice_only_after_a_read_that_was_answered_or_for_twice_as_long() {
    let ended = |slice: &Look<SliceView>, secs| {
        let job = running();
        let decision = decided(&job, &seen(&job, slice, Some(runs()), secs), secs);
        (decision.job.last_end.as_ref().and_then(|end| end.ended.kind), decision.job.wake_at)
    };
    let ready = Look::Seen(view(&running(), SliceState::Ready, true));
    // They were heard of at 100.
    assert_eq!(ended(&ready, 1000).0, Some(FailureKind::Lost));
    let (kind, wake_at) = ended(&Look::Unknown, 1000);
    assert!(kind.is_none() && wake_at.is_some_and(|wake| wake <= at(1030)), "{kind:?} {wake_at:?}");
    assert_eq!(ended(&Look::Unknown, 1900).0, Some(FailureKind::Lost));
}
