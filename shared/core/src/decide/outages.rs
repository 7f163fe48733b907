//! What may be held against workers that could not be heard: limits and waits for a word over outages of ours. And the time that those have
//! whose peer has ended.

use std::time::Duration;

use jiff::Timestamp;

use super::cases::{decided, ended_by, report, running, seen, view};
use super::{Command, Decision, apply_command};
use crate::classify::{Exit, WorkerEvidence};
use crate::effect::Effect;
use crate::failure::FailureKind;
use crate::fixture::at;
use crate::job::{Job, Next, Outcome, Phase};
use crate::observation::{ExitReport, Liveness, Look, Observation, Permit, SliceState, WorkerReport, WorkerState};
use crate::reason::Reason;

/// What a pass decides that sees the slice READY, these reports, and `api` heard over that stretch.
fn hears(job: &Job, workers: Vec<WorkerReport>, stretch: (i64, i64), secs: i64) -> Decision {
    let ready = Look::Seen(view(job, SliceState::Ready, true));
    let liveness = Liveness { since: Some(at(stretch.0)), through: Some(at(stretch.1)) };
    decided(job, &Observation { liveness, ..seen(job, &ready, Some(workers), secs) }, secs)
}

/// A job whose slice is READY since second 1, and whose workers prepare.
fn starting() -> Job {
    let mut job = Job { phase: Phase::Starting, ..running() };
    (job.attempts[0].released_at, job.attempts[0].started_at) = (None, None);
    job
}

fn all(state: WorkerState) -> Vec<WorkerReport> {
    (0..4).map(|n| report(n, state, None)).collect()
}

/// A worker that has ended.
pub(super) fn left(worker: u32, exit: Exit, ordered: bool, secs: i64) -> WorkerReport {
    let tail = if exit == Exit::Code(0) { "" } else { "all-reduce failed: gRPC status UNAVAILABLE: reset by peer\n" };
    let evidence = WorkerEvidence { index: worker, exit, tail: tail.into(), ..WorkerEvidence::default() };
    report(worker, WorkerState::Exited, Some(ExitReport { at: at(secs), ordered, evidence }))
}

fn kind(decision: &Decision) -> Option<FailureKind> {
    decision.job.last_end.as_ref().and_then(|end| end.ended.kind)
}

#[test]
fn workers_that_could_not_say_hello_are_not_given_up_and_those_that_never_come_are() {
    let job = starting();
    // `api` was away from second 10 to 7200.
    for (through, secs) in [(10, 901), (10, 1801), (10, 7199)] {
        assert_eq!(kind(&hears(&job, Vec::new(), (0, through), secs)), None, "second {secs}");
    }
    for (secs, ended) in [(7200, None), (8099, None), (8100, Some(FailureKind::Lost))] {
        let decision = hears(&job, Vec::new(), (7200, secs), secs);
        assert_eq!(kind(&decision), ended, "second {secs}: {:?}", decision.notes);
    }
    // Without an outage: a tick later at most.
    for (through, secs, ended) in [(890, 901, None), (901, 950, Some(FailureKind::Lost))] {
        assert_eq!(kind(&hears(&job, Vec::new(), (0, through), secs)), ended, "second {secs}");
    }
}

#[test]
fn who_falls_silent_or_never_gives_word_is_lost_long_before_a_long_setup_is_over() {
    let mut job = starting();
    job.spec.limits.start = Duration::from_hours(2);
    let ended = |count: u32, silent: Option<u32>, secs| {
        let heard = |n| if silent == Some(n) { at(60) } else { at(secs) };
        let workers = (0..count)
            .map(|n| WorkerReport { heard_at: heard(n), ..report(n, WorkerState::Preparing, None) })
            .collect();
        let ready = Look::Seen(view(&job, SliceState::Ready, true));
        let decision = decided(&job, &seen(&job, &ready, Some(workers), secs), secs);
        let attempt = decision.job.attempts.iter().find(|a| a.number == 1).unwrap();
        let end = attempt.ended.clone().map(|end| (end.kind.unwrap(), end.summary));
        end.map(|(kind, text)| (kind, text, decision.job.next.as_ref().map(|next| next.new_generation)))
    };
    assert_eq!(ended(4, None, 7000), None, "a long `setup`");
    assert_eq!(ended(4, Some(2), 800), None);
    let (kind, text, next) = ended(4, Some(2), 1000).unwrap();
    assert_eq!((kind, next), (FailureKind::Lost, Some(true)));
    assert_eq!(text, "worker 2 has been silent for 940 s");
    assert_eq!(ended(3, None, 840), None);
    let (kind, text, next) = ended(3, None, 1000).unwrap();
    assert_eq!((kind, next), (FailureKind::Lost, Some(true)));
    assert_eq!(text, "1 of 4 workers gave no word within 15 min of READY");
    // Until then people are told of whom nothing is heard.
    let told = |count: u32, heard: i64, secs| {
        let preparing = |n| WorkerReport { heard_at: at(heard), ..report(n, WorkerState::Preparing, None) };
        let ready = Look::Seen(view(&job, SliceState::Ready, true));
        decided(&job, &seen(&job, &ready, Some((0..count).map(preparing).collect()), secs), secs).job.message.clone()
    };
    let (few, since) = ("0 of 4 workers are ready", "its slice is given up by 2026-03-01T12");
    assert_eq!((told(4, 60, 100), told(3, 60, 60)), (few.to_owned(), few.to_owned()));
    let want = format!("{few}; worker 0 was last heard of at 2026-03-01T12:01:00Z; if it stays silent, {since}:16:00Z");
    assert_eq!(told(4, 60, 800), want);
    assert_eq!(told(3, 800, 800), format!("{few}; worker 3 gave no word yet; if none comes, {since}:15:01Z"));
}

#[test]
fn what_was_ready_when_all_was_away_for_longer_than_the_limit_is_released() {
    let job = starting();
    let ready = |secs| {
        let heard = |r: WorkerReport| WorkerReport { heard_at: at(secs), ..r };
        all(WorkerState::Ready).into_iter().map(heard).collect::<Vec<_>>()
    };
    // Everything was away, or passes alone.
    for (since, heard) in [(7200, 100), (0, 7190)] {
        let decision = hears(&job, ready(heard), (since, 7200), 7200);
        assert_eq!(kind(&decision), None, "{:?}", decision.notes);
        assert_eq!(decision.job.attempts[0].released_at, Some(at(7200)), "{:?}", decision.notes);
    }
    // It has the time to say that it runs, and not for ever.
    let released = hears(&job, ready(7200), (0, 7200), 7200).job;
    let then = |secs| hears(&released, ready(secs), (0, secs), secs);
    assert_eq!((kind(&then(7271)), kind(&then(7272))), (None, Some(FailureKind::Lost)));
    assert_eq!(then(7272).job.next.as_ref().map(|next| next.why), Some(Reason::StartTimeout));
}

#[test]
fn exits_that_could_not_be_told_are_waited_for() {
    let exits = |count| {
        let mut workers = all(WorkerState::Running);
        (0..count).for_each(|n| workers[n as usize] = left(n, Exit::Code(1), false, 100));
        workers
    };
    let told = hears(&running(), exits(3), (0, 100), 100).job;
    assert_eq!(told.attempts[0].stop.as_ref().map(|stop| stop.deadline), Some(at(160)));
    let slice = |decision: &Decision| decision.job.next.as_ref().map(|next| next.new_generation);
    let away = hears(&told, exits(3), (0, 90), 400);
    assert_eq!((kind(&away), slice(&away)), (None, None), "{:?}", away.notes);
    let back = hears(&told, exits(4), (1000, 1001), 1001);
    assert_eq!((kind(&back), back.job.attempts.last().map(|a| a.number)), (Some(FailureKind::InfraGrpc), Some(2)));
    assert_eq!(back.job.attempts.last().map(|a| a.generation), Some(1), "in place: {:?}", back.notes);
    // Who could be heard and says nothing is not waited for.
    let silent = hears(&told, exits(3), (0, 180), 181);
    assert_eq!((kind(&silent), slice(&silent)), (Some(FailureKind::InfraGrpc), Some(true)));
}

#[test]
fn a_slice_is_not_given_up_because_the_end_of_a_program_on_it_could_not_be_told() {
    let mut workers = all(WorkerState::Running);
    workers[0].has_rebooted = true;
    let told = hears(&running(), workers.clone(), (0, 100), 100).job;
    assert_eq!(told.next.as_ref().map(|next| next.new_generation), Some(false));
    let in_place = |stretch, secs| {
        let after = hears(&told, workers.clone(), stretch, secs).job;
        after.next.as_ref().is_some_and(|next| !next.new_generation)
    };
    assert!(in_place((0, 90), 600), "nobody could be heard");
    assert!(in_place((600, 660), 660), "it is heard again since a minute");
    assert!(!in_place((0, 252), 252) && !in_place((600, 692), 692));
}

fn deletes(decision: &Decision) -> bool {
    decision.effects.contains(&Effect::DeleteGeneration { generation: 1 })
}

/// When agents kill the program of attempt 1, and whether that was put off.
fn kill_at(job: &Job) -> Option<(Timestamp, bool)> {
    job.attempts[0].stop.as_ref().map(|stop| (stop.deadline, stop.put_off))
}

#[test]
fn a_program_that_could_not_be_told_to_end_keeps_its_slice_until_it_was_and_not_for_ever() {
    for (command, grace) in [(Command::Pause, 300), (Command::Cancel, 30)] {
        let job = apply_command(&running(), command, at(100)).unwrap().unwrap();
        let told = hears(&job, all(WorkerState::Running), (0, 90), 100).job;
        // `api` is away from second 95 on, which is an outage by second 240.
        let over = 100 + grace + 20;
        let away = hears(&told, all(WorkerState::Running), (0, 90), over.max(240));
        assert!(!deletes(&away), "{command:?}: {:?}", away.notes);
        assert_eq!(kill_at(&away.job), Some((at(over + 900), true)), "it is killed by no agent that hears of it then");
        let last = |secs| deletes(&hears(&away.job, all(WorkerState::Running), (0, 90), secs));
        assert_eq!((last(over + 899), last(over + 900)), (false, true), "{command:?}");
        // It is told at second 600 that it must end, and has its time.
        let back = |secs| hears(&away.job, all(WorkerState::Running), (600, secs), secs);
        assert_eq!(kill_at(&back(601).job), Some((at(600 + grace), false)), "as long as its slice lives");
        assert_eq!((deletes(&back(600 + grace + 19)), deletes(&back(600 + grace + 20))), (false, true), "{command:?}");
        // In an outage after that it waits again, and has its time after the second one.
        let again = hears(&back(601).job, all(WorkerState::Running), (600, 610), (620 + grace).max(760));
        assert_eq!(kill_at(&again.job), Some((at(over + 900), true)), "{command:?}: {:?}", again.notes);
        assert!(!deletes(&again) && again.notes.len() == 1, "{:?}", again.notes);
        let back = hears(&again.job, all(WorkerState::Running), (980, 981), 981);
        assert_eq!((kill_at(&back.job), deletes(&back)), (Some((at(980 + grace), false)), false), "{command:?}");
        // Outages that come again and again keep no slice.
        let later = |secs| hears(&told, all(WorkerState::Running), (secs, secs + 1), secs + 1);
        assert_eq!((deletes(&later(over + 899)), deletes(&later(over + 901))), (false, true), "{command:?}");
        let ended = (0..4).map(|n| left(n, Exit::Signal(15), true, 620)).collect();
        assert!(deletes(&hears(&away.job, ended, (600, 621), 621)), "{command:?}");
        // It hears late, but before anybody waits for its end: it has all of its time.
        let late = |secs| hears(&told, all(WorkerState::Running), (120, secs), secs);
        assert_eq!(kill_at(&late(121).job), Some((at(120 + grace), false)), "{command:?}");
        assert_eq!((deletes(&late(120 + grace + 19)), deletes(&late(120 + grace + 20))), (false, true), "{command:?}");
    }
}

#[test]
fn without_an_outage_an_end_is_awaited_for_a_tick_more_and_put_off_by_nothing() {
    for (command, grace) in [(Command::Pause, 300), (Command::Cancel, 30)] {
        let job = apply_command(&running(), command, at(100)).unwrap().unwrap();
        let told = hears(&job, all(WorkerState::Running), (0, 90), 100).job;
        let over = 100 + grace + 20;
        // The last marks are a little older than the moment at which all have had their time.
        let early = hears(&told, all(WorkerState::Running), (0, over - 1), over + 30);
        assert_eq!((deletes(&early), kill_at(&early.job)), (false, Some((at(100 + grace), false))), "{command:?}");
        assert_eq!((early.notes.len(), early.changed), (0, false), "{command:?}: {:?}", early.notes);
        // The next tick looks, and if none comes it is looked when the marks say that there is an outage.
        assert!(early.job.wake_at.is_some_and(|wake| wake <= at(over + 32)), "{:?}", early.job.wake_at);
        assert_eq!(early.wake_precise, Some(at(over - 1 + 150)), "{command:?}");
        assert!(deletes(&hears(&told, all(WorkerState::Running), (0, over), over + 60)), "{command:?}");
        let away = hears(&told, all(WorkerState::Running), (0, over - 1), over - 1 + 150);
        assert_eq!((deletes(&away), kill_at(&away.job)), (false, Some((at(over + 900), true))), "{command:?}");
    }
    // A cancel in the long grace of a pause ends the program sooner, also where nobody hears of either for long.
    let job = apply_command(&running(), Command::Pause, at(100)).unwrap().unwrap();
    let told = hears(&job, all(WorkerState::Running), (0, 90), 100).job;
    let job = apply_command(&told, Command::Cancel, at(110)).unwrap().unwrap();
    let told = hears(&job, all(WorkerState::Running), (0, 90), 110).job;
    assert_eq!(kill_at(&told), Some((at(140), false)));
    let away = hears(&told, all(WorkerState::Running), (0, 90), 500).job;
    assert!(kill_at(&away).is_some_and(|(_, put_off)| put_off));
    assert_eq!(kill_at(&hears(&away, all(WorkerState::Running), (600, 601), 601).job), Some((at(630), false)));
}

#[test]
fn workers_that_ended_well_while_nobody_heard_them_have_succeeded() {
    let mut workers = all(WorkerState::Running);
    workers[0] = left(0, Exit::Code(0), false, 100);
    let first = hears(&running(), workers.clone(), (0, 100), 100).job;
    let over = hears(&first, workers.clone(), (0, 100), 701).job;
    assert!(over.attempts[0].stop.is_some(), "{}", over.message);
    let late = hears(&over, workers, (0, 100), 1200);
    assert_eq!(kind(&late), None, "they may have ended: {:?}", late.notes);
    for (ordered, want) in [(false, (Some(Outcome::Succeeded), None)), (true, (None, Some(FailureKind::Stalled)))] {
        let ends = (0..4).map(|n| left(n, Exit::Code(0), ordered && n > 0, 300)).collect();
        let decision = hears(&over, ends, (1200, 1201), 1201);
        assert_eq!((decision.job.outcome, kind(&decision)), want, "{:?}", decision.notes);
    }
}

#[test]
fn a_failure_long_after_a_good_end_leaves_the_others_their_time() {
    let mut workers = all(WorkerState::Running);
    workers[0] = left(0, Exit::Code(0), false, 100);
    let first = hears(&running(), workers.clone(), (0, 100), 100).job;
    assert_eq!(first.attempts[0].first_exit_at, Some(at(100)));
    workers[1] = left(1, Exit::Code(1), false, 400);
    workers[2..].iter_mut().for_each(|r| r.heard_at = at(399));
    let failed = hears(&first, workers, (0, 400), 400).job;
    assert_eq!(failed.attempts[0].stop.as_ref().map(|stop| stop.deadline), Some(at(460)));
}

#[test]
fn a_job_that_keeps_its_slice_waits_for_none_however_long_that_takes() {
    let mut job = running();
    job.spec.limits.queue = Some(Duration::from_hours(1));
    let stands = |job: &Job| (job.outcome, job.queued_since);
    // One worker never tells its end, and `api` is away for two hours.
    let mut workers = all(WorkerState::Running);
    (0..3).for_each(|n| workers[n as usize] = left(n, Exit::Code(1), false, 100));
    let told = hears(&job, workers.clone(), (0, 100), 100).job;
    assert_eq!(told.phase, Phase::Recovering, "{}", told.message);
    let given_up = hears(&told, workers, (7200, 7300), 7300);
    assert_eq!(stands(&given_up.job), (None, at(7300)), "{:?}", given_up.notes);
    // It waits in place for an object store, and its slice is taken meanwhile.
    (job.phase, job.queued_since) = (Phase::Recovering, at(100));
    job.attempts[0].ended = Some(ended_by(FailureKind::StorageNetwork));
    job.attempts[0].fenced_at = Some(at(100));
    let (not_before, why) = (at(9000), Reason::BackOff);
    job.next = Some(Next { not_before, resume: true, from_scratch: false, new_generation: false, why });
    let after = |job: &Job, state: Look<SliceState>, secs| {
        let slice = match state {
            Look::Seen(state) => Look::Seen(view(job, state, true)),
            Look::Absent => Look::Absent,
            Look::Unknown => Look::Unknown,
        };
        let seen = Observation { permit: Permit::Wait, ..seen(job, &slice, Some(Vec::new()), secs) };
        Job::clone(&decided(job, &seen, secs).job)
    };
    let taken = after(&job, Look::Seen(SliceState::Preempted), 7200);
    assert_eq!(stands(&taken), (None, at(7200)), "{}", taken.message);
    // From then on it waits for the next one.
    let waits = after(&taken, Look::Absent, 7200 + 3599);
    assert_eq!(stands(&waits), (None, at(7200)), "{}", waits.message);
    let over = after(&waits, Look::Absent, 7200 + 3600);
    assert_eq!((over.outcome, over.reason), (Some(Outcome::Failed), Reason::QueueTimeout), "{}", over.message);
}
