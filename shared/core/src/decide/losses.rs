//! Single steps of `decide` on what the cloud says of a slice, and on what may be believed of an end before it has said anything.

use std::time::Duration;

use serde_json::json;

use super::cases::{decided, report, running, seen, view};
use super::{EffectOutcome, record};
use crate::classify::{Exit, WorkerEvidence};
use crate::effect::Effect;
use crate::explain::explain;
use crate::failure::FailureKind;
use crate::fixture::{at, deployment, entry, generation, noon, spec_in, with};
use crate::job::{Create, Desired, Generation, Job, Next, OutEvent, Outcome, Phase, Via};
use crate::observation::{
    CreateError, CreateErrorKind, ExitReport, Look, Made, Notice, NoticeKind, Observation, OperationView, Permit,
    SliceState, SliceView, WorkerReport, WorkerState,
};
use crate::reason::Reason;
use crate::spec::CapacityKind;

/// All four workers ended like this, without a word.
fn ends(exit: Exit) -> Vec<WorkerReport> {
    let of = |worker| {
        let evidence = WorkerEvidence { index: worker, exit, ..WorkerEvidence::default() };
        let exit = ExitReport { at: at(100), ordered: false, evidence };
        report(worker, WorkerState::Exited, Some(exit))
    };
    (0..4).map(of).collect()
}

/// A job that runs on capacity which is not taken back: the preset `resume` gives up what was preempted.
fn running_on(capacity: CapacityKind) -> Job {
    let mut spec = with(&["tpu", "capacity"], json!([capacity.as_str()]));
    if capacity == CapacityKind::Reserved {
        spec["tpu"]["reservation"] = json!("ours");
    }
    let spec = spec_in(&deployment(vec![entry("*", "*", capacity)]), &spec);
    let mut job = Job { spec: spec.into(), ..running() };
    job.generations[0].placement.capacity = capacity;
    job
}

#[test]
fn a_kill_from_outside_is_no_preemption_because_one_look_failed() {
    for exit in [Exit::Signal(15), Exit::Signal(9), Exit::Code(255)] {
        let job = running_on(CapacityKind::OnDemand);
        let unseen = decided(&job, &seen(&job, &Look::Unknown, Some(ends(exit)), 100), 100).job;
        assert_eq!((unseen.outcome, unseen.counters.preemptions), (None, 0), "{exit:?}: {}", unseen.message);
        assert!(unseen.wake_at.is_some_and(|wake| wake <= at(110)), "{exit:?}: the next look is soon");
        let ready = Look::Seen(view(&job, SliceState::Ready, true));
        let after = decided(&unseen, &seen(&unseen, &ready, Some(ends(exit)), 105), 105).job;
        let kind = after.last_end.as_ref().and_then(|end| end.ended.kind);
        assert_ne!(kind, Some(FailureKind::Preempted), "{exit:?}");
        assert_ne!(after.outcome, Some(Outcome::Failed), "{exit:?}: {}", after.message);
    }
    // What the program itself says needs no look.
    let job = running_on(CapacityKind::OnDemand);
    let mut told = ends(Exit::Code(1));
    for report in &mut told {
        if let Some(exit) = report.exit.as_mut() {
            exit.evidence.tail = "ValueError: x".into();
        }
    }
    let after = decided(&job, &seen(&job, &Look::Unknown, Some(told), 100), 100).job;
    assert_eq!(after.last_end.as_ref().and_then(|end| end.ended.kind), Some(FailureKind::UserError));
}

#[test]
fn a_command_that_was_accepted_while_the_pause_was_told_stays_due() {
    let event = OutEvent {
        sequence: 1,
        at: at(10),
        phase: Phase::Paused,
        reason: Reason::Submitted,
        message: String::new(),
        attempt: 1,
        generation: 1,
    };
    let paused = Job {
        phase: Phase::Paused,
        desired: Desired::Pause,
        generations: Vec::new(),
        outbox: vec![event],
        wake_at: Some(at(11)),
        ..running()
    };
    let published = [EffectOutcome::Published { through: 1 }];
    assert_eq!(record(&paused, &published, at(11)).0.wake_at, None, "nothing is left to do");
    for desired in [Desired::Cancel, Desired::Run] {
        let commanded = Job { desired, ..paused.clone() };
        assert_eq!(record(&commanded, &published, at(11)).0.wake_at, Some(at(11)), "{desired:?}");
    }
}

#[test]
fn what_cannot_be_preempted_is_taken_for_maintenance_whichever_is_seen_first() {
    for capacity in [CapacityKind::OnDemand, CapacityKind::Reserved] {
        let job = running_on(capacity);
        let states = [
            (SliceState::Preempted, FailureKind::Maintenance),
            (SliceState::Terminated, FailureKind::Maintenance),
            (SliceState::Stopped, FailureKind::Lost),
        ];
        for (state, kind) in states {
            for workers in [Vec::new(), ends(Exit::Signal(9)), ends(Exit::Signal(15))] {
                let taken = Look::Seen(view(&job, state.clone(), true));
                let after = decided(&job, &seen(&job, &taken, Some(workers.clone()), 100), 100).job;
                let ended = after.last_end.as_ref().and_then(|end| end.ended.kind);
                assert_eq!((after.outcome, ended), (None, Some(kind)), "{state:?} {workers:?}: {}", after.message);
            }
        }
    }
    // A notice says that it is one all the same.
    let mut job = running_on(CapacityKind::OnDemand);
    job.generations[0].notice = Some(Notice { kind: NoticeKind::Preemption, seen_at: at(99), deadline: at(129) });
    let taken = Look::Seen(view(&job, SliceState::Preempted, true));
    let after = decided(&job, &seen(&job, &taken, Some(Vec::new()), 100), 100).job;
    assert_eq!(after.last_end.as_ref().and_then(|end| end.ended.kind), Some(FailureKind::Preempted));
}

/// A job whose queued resource is on its way.
fn queued() -> Job {
    let create = Create::Sent { operation: String::new() };
    let seen_at = Some(at(1));
    super::cases::with(Generation {
        via: Via::QueuedResource,
        create,
        asked_at: Some(noon()),
        seen_at,
        ..generation(1)
    })
}

#[test]
fn a_queue_that_brings_nothing_is_a_stockout_and_counted_once() {
    let failed = |job: &Job| SliceView {
        error: Some(CreateError { kind: CreateErrorKind::Stockout, message: "no more capacity".into() }),
        ..view(job, SliceState::Failed, true)
    };
    for capacity in [CapacityKind::Spot, CapacityKind::OnDemand] {
        let mut job = queued();
        job.generations[0].placement.capacity = capacity;
        for state in [SliceState::Preempted, SliceState::Stopped, SliceState::Failed] {
            let shown = if state == SliceState::Failed { failed(&job) } else { view(&job, state.clone(), true) };
            let first = decided(&job, &seen(&job, &Look::Seen(shown.clone()), Some(Vec::new()), 60), 60).job;
            let again = decided(&first, &seen(&first, &Look::Seen(shown), Some(Vec::new()), 61), 61).job;
            for after in [first, again] {
                let counters = (after.counters.preemptions, after.counters.infra_failures, after.counters.stockouts);
                assert_eq!((counters, after.outcome), ((0, 0, 1), None), "{capacity:?} {state:?}");
                assert_eq!(after.barred.iter().map(|b| b.times).collect::<Vec<_>>(), [1], "{state:?}");
                assert!(after.generations[0].delete.is_some(), "what is left of it is deleted");
            }
        }
    }
    // One whose machines have spoken was there.
    let job = queued();
    let hello = vec![report(0, WorkerState::Preparing, None)];
    let taken = Look::Seen(view(&job, SliceState::Preempted, true));
    let after = decided(&job, &seen(&job, &taken, Some(hello), 60), 60).job;
    assert_eq!((after.counters.preemptions, after.counters.stockouts), (1, 0));
}

#[test]
fn a_queued_resource_that_failed_after_it_was_ready_was_taken() {
    let after = |capacity, told: bool| {
        let mut job = running_on(capacity);
        job.generations[0].via = Via::QueuedResource;
        let error = CreateError { kind: CreateErrorKind::HiddenStockout, message: "an internal error".into() };
        let failed = SliceView { error: Some(error).filter(|_| told), ..view(&job, SliceState::Failed, true) };
        let after = decided(&job, &seen(&job, &Look::Seen(failed), Some(Vec::new()), 100), 100).job;
        let kind = after.last_end.as_ref().and_then(|end| end.ended.kind);
        (kind, after.counters.preemptions, after.counters.infra_failures)
    };
    assert_eq!(after(CapacityKind::Spot, true), (Some(FailureKind::Preempted), 1, 0));
    // Without a word why, nobody took it.
    assert_eq!(after(CapacityKind::Spot, false), (Some(FailureKind::Lost), 0, 1));
    assert_eq!(after(CapacityKind::Reserved, true), (Some(FailureKind::Lost), 0, 1));
}

#[test]
fn a_queued_resource_of_ours_that_met_a_taken_name_is_deleted() {
    let job = queued();
    let error = Some(CreateError { kind: CreateErrorKind::NameTaken, message: "already exists".into() });
    let failed = |ours| SliceView { error: error.clone(), ..view(&job, SliceState::Failed, ours) };
    let decision = decided(&job, &seen(&job, &Look::Seen(failed(true)), Some(Vec::new()), 60), 60);
    assert!(decision.effects.contains(&Effect::DeleteGeneration { generation: 1 }), "{:?}", decision.notes);
    let decision = decided(&job, &seen(&job, &Look::Seen(failed(false)), Some(Vec::new()), 60), 60);
    assert!(!decision.effects.contains(&Effect::DeleteGeneration { generation: 1 }), "{:?}", decision.notes);
}

#[test]
fn what_our_own_earlier_slice_holds_is_waited_for_without_a_cool_down() {
    use CapacityKind::{OnDemand, Reserved};
    use CreateErrorKind::{AddressQuota, Quota, Reservation, Stockout};
    let barred = |kind, capacity, zone: &str| {
        let mut job = running_on(capacity);
        let notice = Notice { kind: NoticeKind::Maintenance, seen_at: at(99), deadline: at(129) };
        job.generations[0].notice = Some(notice);
        let mut placement = job.generations[0].placement.clone();
        placement.zone = zone.into();
        let create = Create::Failed { error: CreateError { kind, message: "no".into() }, counted: false };
        let asked_at = Some(at(100));
        job.generations.push(Generation { create, placement, intended_at: at(100), asked_at, ..generation(2) });
        job.last_generation = 2;
        let mut seen = seen(&job, &Look::Seen(view(&job, SliceState::Ready, true)), Some(Vec::new()), 105);
        seen.generations[1].slice = Look::Absent;
        let after = decided(&job, &seen, 105).job;
        let waits = after.generations.len() == 1 && after.generations[0].blocks_quota;
        assert_eq!(waits, after.barred.is_empty(), "{kind:?}: {:?}", after.generations);
        after.barred.len()
    };
    let here = running_on(Reserved).generations[0].placement.zone.clone();
    assert_eq!([Quota, Reservation, AddressQuota].map(|kind| barred(kind, Reserved, &here)), [0, 0, 0]);
    assert_eq!(barred(AddressQuota, OnDemand, &here), 0);
    // What it cannot be the cause of is met as ever.
    assert_eq!(barred(Stockout, Reserved, &here), 1);
    assert_eq!([Reservation, AddressQuota].map(|kind| barred(kind, Reserved, "us-west4-a")), [1, 1]);
    assert_eq!(barred(Reservation, OnDemand, &here), 1);
}

#[test]
fn what_is_wrong_for_one_job_alone_is_not_told_to_the_others() {
    let told = |kind| {
        let error = CreateError { kind, message: "no".into() };
        let create = Create::Failed { error, counted: false };
        let job = super::cases::with(Generation { create, asked_at: Some(noon()), ..generation(1) });
        let decision = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 5), 5);
        assert_eq!(decision.job.barred.len(), 1, "{kind:?}");
        decision.zone_reports.len()
    };
    for own in [CreateErrorKind::Forbidden, CreateErrorKind::Reservation, CreateErrorKind::Other] {
        assert_eq!(told(own), 0, "{own:?}");
    }
    assert_eq!((told(CreateErrorKind::Stockout), told(CreateErrorKind::Quota)), (1, 1));
}

#[test]
fn what_is_wrong_with_the_request_ends_a_job_that_never_ran() {
    let after = |kind, capacity, ran| {
        let error = CreateError { kind, message: "the field \"network\" is wrong".into() };
        let create = Create::Failed { error, counted: false };
        let mut job = running_on(capacity);
        job.attempts[0].released_at = None;
        job.attempts[0].started_at = None;
        job.first_started_at = Some(at(2)).filter(|_| ran);
        let placement = job.generations[0].placement.clone();
        job.generations = vec![Generation { create, placement, asked_at: Some(noon()), ..generation(1) }];
        let after = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 5), 5).job;
        assert!(after.message.contains("\"network\" is wrong"), "{}", after.message);
        after.outcome
    };
    assert_eq!(after(CreateErrorKind::NotOffered, CapacityKind::OnDemand, false), Some(Outcome::Failed));
    assert_eq!(after(CreateErrorKind::Reservation, CapacityKind::OnDemand, false), Some(Outcome::Failed));
    assert_eq!(after(CreateErrorKind::Reservation, CapacityKind::Reserved, false), None, "it may be made or grow");
    assert_eq!(after(CreateErrorKind::NotOffered, CapacityKind::OnDemand, true), None, "its request was right once");
    assert_eq!(after(CreateErrorKind::Other, CapacityKind::OnDemand, false), None);
}

#[test]
fn a_type_that_the_provider_does_not_queue_is_asked_for_as_a_node() {
    let refused = |queued: &str, slices: u32| {
        let mut spec = with(&["tpu", "queued"], json!(queued));
        spec["tpu"]["slices"] = json!(slices);
        let spec = spec_in(&deployment(vec![entry("*", "*", CapacityKind::Spot)]), &spec);
        let mut job = Job { spec: spec.into(), ..self::queued() };
        let message = "Queueing is not supported for accelerator type v5litepod-16".into();
        let error = CreateError { kind: CreateErrorKind::NotQueueable, message };
        (job.generations[0].create, job.generations[0].seen_at) = (Create::Failed { error, counted: false }, None);
        (job.first_started_at, job.counters.stockouts) = (None, 2);
        let after = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 5), 5).job;
        assert_eq!(after.unqueueable, ["v5litepod-16"]);
        Job::clone(&after)
    };
    let job = refused("auto", 1);
    assert_eq!((job.outcome, job.barred.len(), job.counters.stockouts), (None, 0, 2), "{}", job.message);
    let [asked] = job.generations.as_slice() else { panic!("{:?}", job.generations) };
    assert_eq!((asked.via, asked.create.clone()), (Via::Node, Create::Intended));
    // Who insists on the queue, or needs it, is told.
    for (queued, slices) in [("always", 1), ("auto", 2)] {
        let job = refused(queued, slices);
        assert_eq!((job.outcome, job.reason), (Some(Outcome::Failed), Reason::NoCandidate), "{queued} {slices}");
    }
}

#[test]
fn the_limit_of_a_create_begins_when_it_is_granted_and_asked_for() {
    let gives_up = |job: &Job, state, secs| {
        let decision = decided(job, &seen(job, &Look::Seen(view(job, state, true)), Some(Vec::new()), secs), secs);
        (decision.job.generations[0].delete.is_some(), Job::clone(&decision.job))
    };
    // Granted some time after the last look at the queue: ten minutes from when that is seen.
    let (_, waits) = gives_up(&queued(), SliceState::Queued, 3600);
    let (gone, granted) = gives_up(&waits, SliceState::Creating, 3950);
    assert!(!gone);
    let (gone, making) = gives_up(&granted, SliceState::Creating, 4549);
    assert!(!gone, "{}", making.message);
    assert!(gives_up(&making, SliceState::Creating, 4550).0, "not for ever");
    // After an hour without a look, one that shows no state is no end of a wait in the queue.
    let (gone, unclear) = gives_up(&waits, SliceState::Unspecified, 7200);
    let (still, again) = gives_up(&unclear, SliceState::Queued, 7260);
    assert_eq!((gone, still, again.generations[0].left_queue_at), (false, false, None));
    // Asked for late, since the API was away.
    let mut late = queued();
    (late.generations[0].via, late.generations[0].asked_at) = (Via::Node, Some(at(540)));
    assert_eq!([660, 1139, 1140].map(|secs| gives_up(&late, SliceState::Creating, secs).0), [false, false, true]);
    // Never accepted: it is sent again and again, and that is no grant.
    late.generations[0].create = Create::Intended;
    late.generations[0].seen_at = None;
    let decision = decided(&late, &seen(&late, &Look::Absent, Some(Vec::new()), 600), 600);
    assert!(decision.notes.iter().any(|note| note.contains("given up")), "{:?}", decision.notes);
}

#[test]
fn a_slice_that_goes_without_a_notice_is_counted_until_it_was_heard_of_last() {
    let job = running();
    let gone = SliceView { ended: true, ..view(&job, SliceState::Preempted, true) };
    let heard = |secs| {
        Some((0..4).map(|n| WorkerReport { heard_at: at(secs), ..report(n, WorkerState::Running, None) }).collect())
    };
    let counted = |job: &Job, look: &Look<SliceView>, heard: Option<Vec<WorkerReport>>, secs| {
        let after = decided(job, &seen(job, look, heard, secs), secs).job;
        (after.usage.paid_chip_secs / 16, Job::clone(&after))
    };
    // READY since the first second.
    let (paid, lost) = counted(&job, &Look::Seen(gone.clone()), heard(130), 190);
    assert_eq!(paid, 130);
    assert_eq!(counted(&lost, &Look::Seen(gone.clone()), heard(130), 400).0, 130, "and no more");
    assert_eq!(counted(&job, &Look::Absent, heard(130), 190).0, 130);
    assert_eq!(counted(&job, &Look::Seen(gone), None, 190).0, 190, "nobody was heard of");
    let there = Look::Seen(view(&job, SliceState::Ready, true));
    assert_eq!(counted(&job, &there, heard(130), 190).0, 190, "it is there");
}

#[test]
fn a_request_that_names_a_reservation_stands_in_the_queue_only_so_long_as_nothing_else_would_do() {
    let waits = |capacity: &[&str]| {
        let mut spec = with(&["tpu", "capacity"], json!(capacity));
        spec["tpu"]["reservation"] = json!("ours");
        let kinds = [CapacityKind::Reserved, CapacityKind::Spot].map(|kind| entry("*", "us-central1-a", kind));
        let spec = spec_in(&deployment(kinds.to_vec()), &spec);
        let mut job = Job { spec: spec.into(), ..queued() };
        job.generations[0].placement.capacity = CapacityKind::Reserved;
        job
    };
    let look = |job: &Job| Look::Seen(view(job, SliceState::Queued, true));
    let after = |job: &Job, secs| Job::clone(&decided(job, &seen(job, &look(job), Some(Vec::new()), secs), secs).job);
    let given_up = |job: &Job| job.generations[0].delete.is_some();
    let (both, alone) = (waits(&["reserved", "spot"]), waits(&["reserved"]));
    assert_eq!([599, 600].map(|secs| given_up(&after(&both, secs))), [false, true]);
    assert!(!given_up(&after(&after(&alone, 600), 7200)), "nothing else is asked for");
    // Then the next in order, and not the same again.
    let next = after(&both, 600);
    let gone = decided(&next, &seen(&next, &Look::Absent, Some(Vec::new()), 700), 700).job;
    let last = gone.generations.last().map(|g| (g.placement.capacity, g.via));
    assert_eq!(last, Some((CapacityKind::Spot, Via::Node)), "{}", gone.message);
}

#[test]
fn that_it_was_there_a_moment_ago_does_not_make_a_404_a_proof() {
    // 25 s for a handler and 10 s for its request.
    let sent = |desired, operation: Look<OperationView>| {
        let create = Create::Sent { operation: "op".into() };
        let seen_at = Some(at(5));
        let job = super::cases::with(Generation { create, asked_at: Some(noon()), seen_at, ..generation(1) });
        let job = Job { desired, ..job };
        move |secs| {
            let look = |job: &Job, secs| {
                let mut seen = seen(job, &Look::Absent, Some(Vec::new()), secs);
                seen.generations[0].operation = operation.clone();
                Job::clone(&decided(job, &seen, secs).job)
            };
            let kept = |job: &Job| job.generations.iter().any(|g| g.intended_at == noon());
            let once = look(&job, secs);
            assert!(secs > 34 || once.wake_at.is_some_and(|wake| wake <= at(35)), "{secs}: {:?}", once.wake_at);
            (kept(&once), kept(&once) && kept(&look(&once, secs + 10)))
        }
    };
    let going_on = || Look::Seen(OperationView { done: false, error: None });
    let done = || Look::Seen(OperationView { done: true, error: None });
    for desired in [Desired::Run, Desired::Cancel] {
        let vanished = sent(desired, Look::Absent);
        assert_eq!([10, 34, 35].map(|secs| vanished(secs).0), [true, true, false], "{desired:?}");
        // What was made is gone when it is told twice.
        assert_eq!(sent(desired, done())(10), (true, false), "{desired:?}");
    }
    let cancelled = sent(Desired::Cancel, going_on());
    assert_eq!([10, 34, 35].map(|secs| cancelled(secs).0), [true, true, false]);
    assert!(sent(Desired::Run, going_on())(35).0, "only its operation can tell why");
}

#[test]
fn a_look_that_shows_no_state_is_nothing_known() {
    let job = running();
    let silent = || (0..4).map(|n| report(n, WorkerState::Running, None)).collect::<Vec<_>>();
    let ended = |job: &Job, state, workers, secs| {
        let after = decided(job, &seen(job, &Look::Seen(view(job, state, true)), Some(workers), secs), secs).job;
        (after.last_end.as_ref().and_then(|end| end.ended.kind), Job::clone(&after))
    };
    // Heard at 100 for the last time: no second witness, and past the hard limit none is needed.
    assert_eq!(ended(&job, SliceState::InTransition("UNKNOWN".into()), silent(), 300).0, Some(FailureKind::Lost));
    let (kind, waits) = ended(&job, SliceState::Unspecified, silent(), 300);
    let heard = format!(
        "worker 0 was last heard of at {:.0}; if it stays silent, its slice is given up by {:.0}",
        at(100),
        at(1000)
    );
    assert_eq!((kind, waits.message), (None, format!("attempt 1 runs on generation 1; {heard}")));
    let waits = ended(&job, SliceState::Ready, silent(), 400).1;
    assert!(explain(&waits, at(400)).paragraph.contains(&format!(" Next: {heard}.")), "the same at each look");
    // An outage of ours ended at 600: it counts for nothing, and the worker was heard of before it.
    let mut seen_late = seen(&job, &Look::Seen(view(&job, SliceState::Ready, true)), Some(silent()), 800);
    seen_late.liveness.since = Some(at(600));
    let told = decided(&job, &seen_late, 800).job.message.clone();
    let until = at(1500);
    assert!(
        told.contains(&format!("heard of at {:.0}; if it stays silent, its slice is given up by {until:.0}", at(100)))
    );
    let (kind, after) = ended(&job, SliceState::Unspecified, silent(), 1000);
    assert_eq!((kind, after.next.map(|next| next.why)), (Some(FailureKind::Lost), Some(Reason::SilentTooLong)));
    // A program that somebody has killed waits for a look that tells; not for ever.
    let killed = running_on(CapacityKind::OnDemand);
    let told = || ends(Exit::Signal(9));
    let (kind, waits) = ended(&killed, SliceState::Unspecified, told(), 101);
    assert_eq!((kind, waits.wake_at.is_some_and(|wake| wake <= at(111))), (None, true));
    assert!(ended(&waits, SliceState::Ready, told(), 105).0.is_some());
    assert_eq!(ended(&waits, SliceState::Unspecified, told(), 1000).0, None);
    assert!(ended(&waits, SliceState::Unspecified, told(), 1001).0.is_some());
    // Machines that were off stay off.
    let gone = SliceView { ended: true, ..view(&job, SliceState::Preempted, true) };
    let lost = decided(&job, &seen(&job, &Look::Seen(gone), Some(silent()), 110), 110).job;
    let (_, after) = ended(&lost, SliceState::Unspecified, silent(), 115);
    assert_eq!(after.generations[0].ended_since, Some(at(110)));
}

#[test]
fn a_slice_that_is_unknown_is_given_up_after_a_grace_or_with_its_workers() {
    let unknown = |job: &Job, secs: i64, heard: i64| {
        let workers = (0..4).map(|n| WorkerReport { heard_at: at(heard), ..report(n, WorkerState::Running, None) });
        let slice = Look::Seen(view(job, SliceState::InTransition("UNKNOWN".into()), true));
        Job::clone(&decided(job, &seen(job, &slice, Some(workers.collect()), secs), secs).job)
    };
    let first = unknown(&running(), 100, 99);
    assert!(first.last_end.is_none(), "its workers are heard: {}", first.message);
    assert!(unknown(&first, 999, 998).last_end.is_none());
    assert!(unknown(&first, 1000, 999).last_end.is_some(), "not for ever");
    assert!(unknown(&first, 200, 100).last_end.is_some(), "and they are not");
}

#[test]
fn a_back_off_tells_what_it_follows() {
    let next =
        Next { not_before: at(230), resume: true, from_scratch: false, new_generation: true, why: Reason::Preempted };
    let mut job = Job { generations: Vec::new(), attempts: Vec::new(), next: Some(next), ..running() };
    for (barren, told) in [(3, ": 3 slices in a row ended without a step above the highest"), (1, "")] {
        job.spent.generations_without_progress = barren;
        let after = decided(&job, &seen(&job, &Look::Absent, None, 200), 200).job;
        let want = format!("waits until 2026-03-01T12:03:50Z before the next slice is asked for{told}");
        assert_eq!((after.reason, after.message.as_str()), (Reason::BackOff, want.as_str()));
    }
}

#[test]
fn what_is_not_what_was_asked_for_is_deleted_and_nothing_runs_on_it() {
    let kind = |accelerator: &str| Made { accelerator: Some(accelerator.into()), ..Made::default() };
    let sides = |topology: &str| Made { topology: Some(topology.into()), ..Made::default() };
    let tier = |preemptible| Made { preemptible: Some(preemptible), ..Made::default() };
    let rows = [
        (CapacityKind::Spot, vec![Made::default(), kind("v5litepod-16"), sides("4x4"), tier(true)], None),
        (CapacityKind::Spot, vec![kind("V9 1x1"), sides("2x8")], None),
        (CapacityKind::Reserved, vec![tier(false)], None),
        (CapacityKind::Spot, vec![kind("v5litepod-16"), kind("v5litepod-8")], Some("v5litepod-8 was made")),
        (CapacityKind::Spot, vec![tier(false)], Some("made as on-demand, and spot was asked for")),
        (CapacityKind::OnDemand, vec![tier(true)], Some("made as spot, and on_demand was asked for")),
    ];
    for (capacity, made, told) in rows {
        let create = Create::Sent { operation: "op".into() };
        let mut job = Job { spec: running_on(capacity).spec, ..super::cases::with(generation(1)) };
        (job.generations[0].create, job.generations[0].asked_at) = (create, Some(noon()));
        job.generations[0].placement.capacity = capacity;
        let slice = Look::Seen(SliceView { made: made.clone(), ..view(&job, SliceState::Ready, true) });
        let ready = (0..4).map(|n| report(n, WorkerState::Ready, None)).collect();
        let decision = decided(&job, &seen(&job, &slice, Some(ready), 60), 60);
        let is_deleted = decision.effects.contains(&Effect::DeleteGeneration { generation: 1 });
        let is_released = decision.job.attempts.iter().any(|a| a.released_at.is_some());
        assert_eq!((is_deleted, is_released), (told.is_some(), told.is_none()), "{made:?}: {:?}", decision.notes);
        assert!(told.is_none_or(|told| decision.notes.concat().contains(told)), "{:?}", decision.notes);
        let counters = &decision.job.counters;
        assert_eq!((counters.preemptions, counters.infra_failures, counters.user_failures), (0, 0, 0));
        // Nor is it one that its workers fall silent as they go down.
        let going = Look::Seen(view(&job, SliceState::Deleting, true));
        let heard = |n| WorkerReport { heard_at: at(60), ..report(n, WorkerState::Ready, None) };
        let later = decided(&decision.job, &seen(&decision.job, &going, Some((0..4).map(heard).collect()), 260), 260);
        assert!(told.is_none() || later.job.last_end.is_none(), "{made:?}: {:?}", later.notes);
        // That a read finds it no more is no proof while it is young.
        let job = Job::clone(&decided(&job, &seen(&job, &slice, Some(Vec::new()), 10), 10).job);
        let kept = |secs| decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), secs), secs).job;
        let kept = |secs| kept(secs).generations.iter().any(|g| g.intended_at == noon());
        assert!(told.is_none() || (kept(34) && !kept(35)), "{made:?}");
    }
    // A special topology was asked for.
    let view = SliceView { made: vec![sides("4x4")], ..view(&running(), SliceState::Creating, true) };
    let place = generation(1).placement;
    assert_eq!([view.difference(&place, Some("4x4")), view.difference(&place, Some("04x4"))], [None, None]);
    assert!(view.difference(&place, Some("2x8")).is_some_and(|told| told.contains("2x8 was asked for")));
    // Once its program runs, it is too late to find fault with it.
    let job = running();
    let other = Look::Seen(SliceView { made: vec![kind("v5litepod-8")], ..self::view(&job, SliceState::Ready, true) });
    let runs = (0..4).map(|n| report(n, WorkerState::Running, None)).collect();
    assert!(decided(&job, &seen(&job, &other, Some(runs), 101), 101).job.generations[0].delete.is_none());
}

#[test]
fn the_limit_queue_begins_again_when_a_slice_is_lost() {
    let mut job = running();
    job.spec.limits.queue = Some(Duration::from_mins(5));
    let mut first = job.clone();
    (first.phase, first.generations, first.first_started_at) = (Phase::Pending, Vec::new(), None);
    let after = |job: &Job, secs| {
        let seen = Observation { permit: Permit::Wait, ..seen(job, &Look::Absent, Some(Vec::new()), secs) };
        Job::clone(&decided(job, &seen, secs).job)
    };
    assert_eq!([299, 300].map(|secs| after(&first, secs).outcome), [None, Some(Outcome::Failed)]);
    // An hour of running is no waiting.
    let lost = after(&job, 3600);
    assert_eq!((lost.outcome, lost.queued_since), (None, at(3600)), "{}", lost.message);
    let waits = after(&lost, 3899);
    assert_eq!((waits.outcome, waits.queued_since), (None, at(3600)), "{}", waits.message);
    let over = after(&waits, 3900);
    assert_eq!((over.outcome, over.reason), (Some(Outcome::Failed), Reason::QueueTimeout), "{}", over.message);
}

#[test]
fn a_place_where_creates_hang_is_left_and_asked_less_and_less_often() {
    let mut spec = with(&["tpu", "capacity"], json!(["spot", "on_demand"]));
    spec["tpu"]["queued"] = json!("never");
    let kinds = [CapacityKind::Spot, CapacityKind::OnDemand].map(|kind| entry("*", "*", kind));
    let spec = spec_in(&deployment(kinds.to_vec()), &spec);
    let hanging = |secs: i64, before: &Job| {
        let (create, asked_at) = (Create::Sent { operation: "op".into() }, Some(at(secs)));
        let g = Generation { create, asked_at, intended_at: at(secs), seen_at: Some(at(secs)), ..generation(1) };
        Job { spec: spec.clone().into(), barred: before.barred.clone(), ..super::cases::with(g) }
    };
    let then = |job: &Job, look: &Look<SliceView>, secs| decided(job, &seen(job, look, Some(Vec::new()), secs), secs);
    let job = hanging(0, &running());
    let making = Look::Seen(view(&job, SliceState::Creating, true));
    let given_up = then(&job, &making, 600);
    assert_eq!(given_up.zone_reports.len(), 1, "the others are told");
    let gone = then(&given_up.job, &Look::Absent, 640).job;
    let asked = gone.generations.last().map(|g| g.placement.capacity);
    assert_eq!(asked, Some(CapacityKind::OnDemand), "{}", gone.message);
    let again = then(&hanging(2000, &gone), &making, 2600).job;
    let [bar] = again.barred.as_slice() else { panic!("{:?}", again.barred) };
    assert_eq!((bar.times, bar.until, bar.error.kind), (2, Some(at(3200)), CreateErrorKind::HiddenStockout));
}

#[test]
fn an_operation_that_failed_ends_nothing_while_its_slice_cannot_be_seen() {
    let job = super::cases::with(Generation {
        create: Create::Sent { operation: "op".into() },
        asked_at: Some(noon()),
        ..generation(1)
    });
    let after = |job: &Job, slice: &Look<SliceView>, kind, secs| {
        let mut seen = seen(job, slice, Some(Vec::new()), secs);
        let error = Some(CreateError { kind, message: "no".into() });
        seen.generations[0].operation = Look::Seen(OperationView { done: true, error });
        Job::clone(&decided(job, &seen, secs).job)
    };
    for kind in [CreateErrorKind::HiddenStockout, CreateErrorKind::PreemptedWhileCreating] {
        let unseen = after(&job, &Look::Unknown, kind, 30);
        assert_eq!((&unseen.generations, unseen.barred.len()), (&job.generations, 0), "{kind:?}");
        assert!(unseen.wake_at.is_some_and(|wake| wake <= at(60)), "{kind:?}");
        let ready = after(&unseen, &Look::Seen(view(&job, SliceState::Ready, true)), kind, 40);
        let g = ready.generation(1).unwrap();
        assert!(g.ready_at.is_some() && g.delete.is_none() && g.lost.is_none(), "{kind:?}: {}", ready.message);
    }
    let absent = after(
        &after(&job, &Look::Unknown, CreateErrorKind::Stockout, 30),
        &Look::Absent,
        CreateErrorKind::Stockout,
        40,
    );
    assert_eq!((absent.barred.len(), absent.counters.stockouts), (1, 1), "{}", absent.message);
    // Where nothing may be looked at, nothing is waited for.
    let forbidden = after(&job, &Look::Unknown, CreateErrorKind::Forbidden, 30);
    assert_eq!(forbidden.barred.len(), 1, "{}", forbidden.message);
}
