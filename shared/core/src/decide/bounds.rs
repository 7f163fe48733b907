//! Nothing grows or repeats without bound: unpublished events, looks at what takes long, history of a wait, creates at one place.

use std::time::Duration;

use super::cases::{decided, report, running, seen, view, with};
use crate::fixture::{at, attempt, generation, noon};
use crate::job::{Create, Delete, Generation, Job, Next, OutEvent, Outcome, Phase};
use crate::observation::{CreateErrorKind, Look, OperationView, SliceState, WorkerState};
use crate::reason::Reason;

fn event(sequence: u64, message: &str) -> OutEvent {
    OutEvent {
        sequence,
        at: noon(),
        phase: Phase::Running,
        reason: Reason::Running,
        message: message.into(),
        attempt: 1,
        generation: 1,
    }
}

#[test]
fn a_job_whose_events_cannot_be_published_keeps_the_newest_and_ends_all_the_same() {
    // Many small ones, and a few that are large.
    for (count, message, kept) in [(900, "as always", 200), (60, &*"x".repeat(10_001), 20)] {
        let mut job = Job { outcome: Some(Outcome::Cancelled), ..with(generation(1)) };
        (job.phase, job.generations) = (Phase::Stopping, Vec::new());
        job.outbox = (1..=count).map(|sequence| event(sequence, message)).collect();
        job.sequence = count;
        let decision = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 5), 5);
        let outbox = &decision.job.outbox;
        assert_eq!(decision.job.phase, Phase::Cancelled);
        assert_eq!(outbox.len(), kept, "of {count}");
        assert_eq!(outbox.last().map(|event| (event.sequence, event.phase)), Some((count + 1, Phase::Cancelled)));
        assert!(outbox.windows(2).all(|two| two[0].sequence + 1 == two[1].sequence), "none is missing in between");
        let told = decision.notes.iter().filter(|note| note.contains("dropped unpublished")).count();
        assert_eq!(told, usize::try_from(count).unwrap() + 1 - kept, "{:?}", decision.notes);
    }
}

#[test]
fn an_event_larger_than_all_may_be_is_kept_as_long_as_it_is_the_newest() {
    let mut job = with(generation(1));
    (job.outcome, job.message) = (Some(Outcome::Cancelled), "x".repeat(300_000));
    (job.phase, job.generations) = (Phase::Stopping, Vec::new());
    let decision = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 5), 5);
    assert_eq!(decision.job.outbox.len(), 1);
}

/// When the job is looked at again after a look at `secs`, in milliseconds from then; `None`: with a tick.
fn next_look(job: &Job, slice: &Look<SliceState>, operation: &Look<OperationView>, secs: i64) -> Option<i128> {
    let slice = match slice {
        Look::Seen(state) => Look::Seen(view(job, state.clone(), true)),
        Look::Absent => Look::Absent,
        Look::Unknown => Look::Unknown,
    };
    let mut seen = seen(job, &slice, Some(Vec::new()), secs);
    for look in &mut seen.generations {
        look.operation = operation.clone();
    }
    let decision = decided(job, &seen, secs);
    Some(decision.wake_precise?.duration_since(at(secs)).as_millis())
}

/// So many looks are made in an hour.
fn looks_in_an_hour(job: &Job, slice: &Look<SliceState>, operation: &Look<OperationView>, from: i64) -> u32 {
    let (mut millis, mut looks) = (i128::from(from) * 1000, 0);
    while millis < i128::from(from + 3600) * 1000 {
        let secs = i64::try_from(millis / 1000).unwrap();
        // A tick comes each minute.
        millis += next_look(job, slice, operation, secs).unwrap_or(60_000).clamp(1, 60_000);
        looks += 1;
    }
    looks
}

fn deleted(g: Generation, error: Option<&str>) -> Generation {
    let last_error = error.map(str::to_owned);
    Generation { delete: Some(Delete { intended_at: noon(), sent_at: Some(at(3000)), tries: 9, last_error }), ..g }
}

#[test]
fn a_delete_that_is_refused_for_hours_is_looked_at_less_and_less_often() {
    let husk = Generation {
        create: Create::Done,
        seen_at: Some(noon()),
        ready_at: Some(noon()),
        blocks_quota: true,
        ..deleted(generation(1), Some("no"))
    };
    let mut job = with(husk);
    job.attempts[0].ended = Some(super::cases::ended_by(crate::failure::FailureKind::Lost));
    job.attempts[0].fenced_at = Some(noon());
    job.next =
        Some(Next { not_before: noon(), resume: true, from_scratch: false, new_generation: true, why: Reason::Lost });
    let (ready, no) = (Look::Seen(SliceState::Deleting), Look::Unknown);
    assert_eq!(next_look(&job, &ready, &no, 10), Some(500), "at first the create follows the 404 within one second");
    assert!(next_look(&job, &ready, &no, 180).is_some_and(|millis| (2000..=4000).contains(&millis)));
    let late = next_look(&job, &ready, &no, 1500);
    assert!(late.is_none_or(|millis| millis > 60_000), "the tick's list shows the change");
    let looks = looks_in_an_hour(&job, &ready, &no, 0);
    assert!(looks < 500, "{looks} looks in an hour");
}

#[test]
fn a_create_whose_operation_goes_on_after_its_delete_is_looked_at_less_and_less_often() {
    let sent = Create::Sent { operation: "op".into() };
    let job = with(deleted(Generation { create: sent, asked_at: Some(noon()), ..generation(1) }, None));
    let pending = Look::Seen(OperationView { done: false, error: None });
    let looks = looks_in_an_hour(&job, &Look::Absent, &pending, 40);
    assert!(looks < 500, "{looks} looks in an hour");
    assert!(next_look(&job, &Look::Absent, &pending, 40).is_some_and(|millis| millis <= 1000));
}

#[test]
fn a_wait_for_the_earlier_slice_is_no_news_at_each_look() {
    let mut job = running();
    // The earlier attempt is not proved over, and all workers of the next one are ready.
    let mut earlier = generation(1);
    earlier.clone_from(&job.generations[0]);
    let mut next = earlier.clone();
    (next.number, next.name) = (2, "rk-abc123-train-g2".into());
    job.generations = vec![deleted(earlier, Some("no")), next];
    job.attempts.truncate(1);
    job.attempts[0].ended = Some(super::cases::ended_by(crate::failure::FailureKind::Lost));
    job.attempts.push(attempt(2, 2));
    (job.last_attempt, job.last_generation, job.phase) = (2, 2, Phase::Starting);
    let ready = |secs| {
        let of = (0..4).map(|n| report(n, WorkerState::Ready, None));
        let of = of.map(|r| crate::observation::WorkerReport { attempt: 2, generation: 2, heard_at: at(secs), ..r });
        Some(of.collect())
    };
    let look = |job: &Job, secs| {
        let slice = Look::Seen(view(job, SliceState::Ready, true));
        decided(job, &seen(job, &slice, ready(secs), secs), secs)
    };
    let first = look(&job, 200);
    assert_eq!(
        (first.job.reason, first.job.attempts[1].held_until),
        (Reason::Fencing, Some(at(200))),
        "{:?}",
        first.notes
    );
    let second = look(&first.job, 230);
    assert_eq!(second.job.attempts[1].held_until, Some(at(230)));
    assert!(!second.changed, "{:?}", second.notes);
    assert_eq!(
        second.job.message,
        "waits until no worker of the earlier slice can be running: attempt 1 may still run on workers 0, 1, 2, 3"
    );
}

#[test]
fn a_wait_for_the_earlier_attempt_names_who_has_not_ended_it() {
    let mut job = running();
    job.attempts[0].ended = Some(super::cases::ended_by(crate::failure::FailureKind::InfraGrpc));
    let (not_before, why) = (at(90), Reason::BackOff);
    job.next = Some(Next { not_before, resume: true, from_scratch: false, new_generation: false, why });
    let look = |ended: u32| {
        let exit = crate::classify::Exit::Code(1);
        let of = (0..4).map(|n| {
            if n < ended { super::outages::left(n, exit, true, 100) } else { report(n, WorkerState::Running, None) }
        });
        let slice = Look::Seen(view(&job, SliceState::Ready, true));
        decided(&job, &seen(&job, &slice, Some(of.collect()), 100), 100).job
    };
    let waits = "waits until every worker has ended the earlier attempt: attempt 1 may still run on";
    for (ended, left) in [(3, "worker 3"), (1, "workers 1, 2, 3")] {
        let told = look(ended);
        assert_eq!((told.reason, told.message.clone()), (Reason::Fencing, format!("{waits} {left}")));
    }
    assert_eq!(look(4).last_attempt, 2);
}

#[test]
fn a_place_where_a_create_hangs_is_not_asked_again_at_once() {
    let of = |create: Create| {
        let seen_at = matches!(create, Create::Sent { .. }).then(|| at(5));
        with(Generation { create, asked_at: Some(noon()), seen_at, ..generation(1) })
    };
    let making = |job: &Job, secs| {
        let slice = Look::Seen(view(job, SliceState::Creating, true));
        decided(job, &seen(job, &slice, Some(Vec::new()), secs), secs)
    };
    let job = of(Create::Sent { operation: "op".into() });
    let given_up = making(&job, 900);
    let barred = &given_up.job.barred[0];
    assert_eq!(
        (&barred.placement, barred.error.kind),
        (&job.generations[0].placement, CreateErrorKind::HiddenStockout)
    );
    assert!(barred.until.is_some_and(|until| until >= at(900 + 300)) && barred.error.message.contains("READY within"));
    assert_eq!(given_up.zone_reports.len(), 1, "other jobs try other places first");
    // And longer when it hangs there again.
    let mut again = job;
    again.barred.clone_from(&given_up.job.barred);
    let until = making(&again, 900).job.barred[0].until.unwrap();
    assert_eq!(Duration::try_from(until.duration_since(at(900))).unwrap(), Duration::from_mins(10));

    // A request that nobody has answered says nothing of capacity.
    let job = of(Create::Intended);
    let given_up = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 900), 900);
    assert_eq!(given_up.job.barred[0].error.kind, CreateErrorKind::Other);
    assert_eq!((given_up.job.counters.stockouts, given_up.zone_reports.len()), (0, 0));
}
