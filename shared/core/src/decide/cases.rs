//! Single steps of `decide` on which money, a checkpoint or somebody else's machine hangs.

use std::time::Duration;

use super::{Command, Decision, Rules, apply_command, decide};
use crate::check::check;
use crate::classify::{Exit, WorkerEvidence};
use crate::effect::Effect;
use crate::failure::FailureKind;
use crate::fixture::{at, attempt, deployment, entry, generation, job, noon, small, spec_in};
use crate::ids::InstallationId;
use crate::job::{Attempt, Create, Delete, Desired, Ended, Generation, Job, Next, Outcome, Phase};
use crate::limits::InUse;
use crate::names;
use crate::observation::{
    CreateError, CreateErrorKind, ExitReport, GenerationLook, Health, Liveness, Look, Observation, OperationView,
    Permit, SliceLabels, SliceState, SliceView, WorkerReport, WorkerState,
};
use crate::orders::checkpoint_dir;
use crate::reason::Reason;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::spec::CapacityKind;

fn installation() -> InstallationId {
    InstallationId::parse("abc123").unwrap()
}

pub(super) fn decided(job: &Job, seen: &Observation, secs: i64) -> Decision {
    let (settings, installation) = (Settings::default(), installation());
    let kinds = [CapacityKind::Spot, CapacityKind::OnDemand, CapacityKind::Reserved];
    let deployment = deployment(kinds.map(|kind| entry("*", "us-central1-a", kind)).to_vec());
    let rules = Rules { settings: &settings, deployment: &deployment, installation: &installation };
    let decision = decide(job, seen, at(secs), &rules);
    assert_eq!(check(job, &decision.job, &decision.effects, &decision.fenced), Vec::<String>::new());
    decision
}

/// A job with that generation, and the attempt that waits for it.
pub(super) fn with(g: Generation) -> Job {
    let deployment = deployment(vec![entry("*", "us-central1-a", CapacityKind::Spot)]);
    Job {
        phase: Phase::Provisioning,
        last_generation: g.number,
        last_attempt: 1,
        attempts: vec![attempt(1, g.number)],
        generations: vec![g],
        ..job(spec_in(&deployment, &small()))
    }
}

pub(super) fn view(job: &Job, state: SliceState, ours: bool) -> SliceView {
    let labels = names::labels(&installation(), &job.id, 1, &job.spec_hash);
    SliceView {
        ended: false,
        addresses: vec![(0..4).map(|n| format!("10.0.0.{n}")).collect()].into(),
        state,
        health: Health::Healthy,
        labels: if ours { labels } else { SliceLabels::default() },
        created_at: None,
        error: None,
        note: None,
        made: Vec::new(),
    }
}

pub(super) fn seen(job: &Job, slice: &Look<SliceView>, workers: Option<Vec<WorkerReport>>, secs: i64) -> Observation {
    let generations = job.generations.iter().map(|g| GenerationLook {
        number: g.number,
        placement: g.placement.clone(),
        intended_at: g.intended_at,
        slice: slice.clone(),
        looked_at: at(secs),
        operation: Look::Unknown,
    });
    Observation {
        generations: generations.collect(),
        workers: workers.map(|all| all.into_iter().map(Shared::from).collect()),
        read_through_us: at(secs).as_microsecond(),
        zones: Vec::new(),
        permit: Permit::Free,
        used: InUse::default(),
        liveness: Liveness { since: Some(noon()), through: Some(at(secs)) },
    }
}

fn refused(kind: CreateErrorKind) -> Create {
    Create::Failed { error: CreateError { kind, message: "no".into() }, counted: false }
}

#[test]
fn a_name_that_somebody_else_has_is_not_asked_for_again() {
    let create = refused(CreateErrorKind::NameTaken);
    let job = with(Generation { create, asked_at: Some(noon()), ..generation(1) });
    let foreign = Look::Seen(view(&job, SliceState::Ready, false));
    let refused = decided(&job, &seen(&job, &foreign, Some(Vec::new()), 1), 1).job;
    assert!(refused.generations.is_empty() && refused.barred.len() == 1, "{}", refused.message);
    let later = decided(&refused, &seen(&refused, &Look::Absent, Some(Vec::new()), 600), 600).job;
    let asked = later.generations.last().map(|g| (g.number, g.name.ends_with("-g2")));
    let waits = later.attempts.last().map(|a| (a.number, a.generation));
    assert_eq!((asked, waits, later.last_generation), (Some((2, true)), Some((1, 2)), 2), "{}", later.message);
}

#[test]
fn what_has_our_name_and_is_not_ours_is_never_deleted() {
    let intended = generation(1);
    let was_refused = |kind| Generation { create: refused(kind), asked_at: Some(noon()), ..generation(1) };
    for g in [intended, was_refused(CreateErrorKind::NameTaken), was_refused(CreateErrorKind::Quota)] {
        for desired in [Desired::Run, Desired::Cancel, Desired::Pause] {
            // Without the workers' reports the generation cannot be let go of; it stays, and nothing is sent.
            for workers in [None, Some(Vec::new())] {
                let mut job = Job { desired, ..with(g.clone()) };
                for secs in [1, 60, 600] {
                    let foreign = Look::Seen(view(&job, SliceState::Ready, false));
                    let decision = decided(&job, &seen(&job, &foreign, workers.clone(), secs), secs);
                    let deletes = |e: &Effect| matches!(e, Effect::DeleteGeneration { .. });
                    assert!(!decision.effects.iter().any(deletes), "{:?} {desired:?} {workers:?}", g.create);
                    job = Job::clone(&decision.job);
                    job.generations.retain(|known| known.intended_at == g.intended_at);
                }
            }
        }
    }
}

#[test]
fn our_own_husk_of_a_refused_create_is_deleted() {
    let g = Generation { create: refused(CreateErrorKind::Quota), asked_at: Some(noon()), ..generation(1) };
    let job = with(g);
    let husk = Look::Seen(view(&job, SliceState::Creating, true));
    let decision = decided(&job, &seen(&job, &husk, Some(Vec::new()), 5), 5);
    assert!(decision.effects.contains(&Effect::DeleteGeneration { generation: 1 }), "{:?}", decision.notes);
}

#[test]
fn a_refusal_after_an_unanswered_request_is_no_proof_before_that_cannot_arrive_any_more() {
    let asked_again =
        Generation { create: refused(CreateErrorKind::Quota), create_tries: 1, asked_at: Some(at(3)), ..generation(1) };
    let job = with(asked_again.clone());
    let decision = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 10), 10);
    assert!(decision.job.generation(1).is_some(), "the first request may still arrive: {:?}", decision.notes);
    assert!(decision.job.wake_at.is_some_and(|wake| wake <= at(38)));
    let job = Job::clone(&decision.job);
    let decision = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 39), 39);
    assert!(decision.job.generation(1).is_none(), "{:?}", decision.notes);

    let once = Generation { create_tries: 0, asked_at: Some(noon()), ..asked_again };
    let job = with(once);
    let decision = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 1), 1);
    assert!(decision.job.generation(1).is_none(), "asked once and refused clearly: {:?}", decision.notes);
}

#[test]
fn a_create_that_is_not_answered_is_sent_less_and_less_often_and_within_the_budget() {
    let asked = |tries, permit: Permit| {
        let g = Generation { asked_at: Some(noon()), create_tries: tries, ..generation(1) };
        let job = with(g);
        move |secs| {
            let seen = Observation { permit: permit.clone(), ..seen(&job, &Look::Absent, Some(Vec::new()), secs) };
            let decision = decided(&job, &seen, secs);
            let creates = decision.effects.contains(&Effect::CreateGeneration { generation: 1 });
            assert_eq!(creates, decision.takes_permit);
            (creates, decision.job.reason)
        }
    };
    for (tries, wait) in [(0, 3), (1, 6), (2, 12), (4, 48), (9, 60)] {
        let asked = asked(tries, Permit::Free);
        assert_eq!((asked(wait - 1).0, asked(wait).0), (false, true), "after {tries} tries");
    }
    assert_eq!(asked(0, Permit::Wait)(10), (false, Reason::CreateBudget));
    assert_eq!(asked(0, Permit::Frozen)(10), (false, Reason::Frozen));
    assert!(asked(0, Permit::Granted)(10).0);
}

pub(super) fn report(worker: u32, state: WorkerState, exit: Option<ExitReport>) -> WorkerReport {
    WorkerReport { exit, ..crate::fixture::report(worker, state) }
}

/// A job whose program runs on generation 1.
pub(super) fn running() -> Job {
    let mut job = Job { phase: Phase::Running, first_started_at: Some(at(2)), ..with(made(1)) };
    job.attempts[0].released_at = Some(at(2));
    job.attempts[0].started_at = Some(at(2));
    job
}

/// A generation that was asked for, made and seen.
fn made(number: u32) -> Generation {
    Generation {
        create: Create::Done,
        asked_at: Some(noon()),
        seen_at: Some(at(1)),
        ready_at: Some(at(1)),
        ..generation(number)
    }
}

/// The end of an attempt that was judged.
pub(super) fn ended_by(kind: FailureKind) -> Ended {
    Ended { at: at(3), kind: Some(kind), action: None, charge: None, summary: "over".into(), verdict: None }
}

#[test]
fn the_clock_of_one_machine_neither_kills_the_others_at_once_nor_lets_them_hang() {
    for skew in [-86_400, 0, 86_400] {
        let job = running();
        let evidence =
            WorkerEvidence { exit: Exit::Code(1), tail: "ValueError: x".into(), ..WorkerEvidence::default() };
        let exit = ExitReport { at: at(100 + skew), ordered: false, evidence };
        let mut workers = vec![report(0, WorkerState::Exited, Some(exit))];
        workers.extend((1..4).map(|n| report(n, WorkerState::Running, None)));
        let ready = Look::Seen(view(&job, SliceState::Ready, true));
        let decision = decided(&job, &seen(&job, &ready, Some(workers), 100), 100);
        let stop = decision.job.attempts[0].stop.clone().unwrap();
        assert_eq!(stop.deadline, at(160), "a clock that is {skew} s off");
    }
}

#[test]
fn while_a_program_runs_its_sentence_is_true_also_between_two_looks() {
    let job = running();
    let ready = Look::Seen(view(&job, SliceState::Ready, true));
    let made = |n| WorkerReport { step: Some(75), ..report(n, WorkerState::Running, None) };
    let decision = decided(&job, &seen(&job, &ready, Some((0..4).map(made).collect()), 100), 100);
    // The step is beside it, and newer.
    assert_eq!((decision.job.highest_step, &*decision.job.message), (Some(75), "attempt 1 runs on generation 1"));
}

#[test]
fn a_new_checkpoint_line_has_no_checkpoint() {
    let mut job = running();
    (job.saved, job.highest_step, job.line_step, job.last_loss) =
        (Some(1000), Some(1010), Some(1010), Some("2".into()));
    let ready = Look::Seen(view(&job, SliceState::Ready, true));
    let workers: Vec<_> = (0..4).map(|n| report(n, WorkerState::Running, None)).collect();
    let restart = Command::Restart { new_slice: false, from_scratch: true };
    let job = apply_command(&job, restart, at(100)).unwrap().unwrap();
    let decision = decided(&job, &seen(&job, &ready, Some(workers), 100), 100);
    assert_eq!((decision.job.line, decision.job.saved), (1, None));
    // Its steps are to be done again, and nothing of them is shown of the new line.
    assert_eq!((decision.job.step(), decision.job.highest_step), (None, Some(1010)));
    assert_eq!((decision.job.counters.steps_repeated, &decision.job.last_loss), (0, &None));
    let mut next = Job::clone(&decision.job);
    let attempt = Attempt { line: 1, resume: false, released_at: Some(at(110)), ..attempt(2, 1) };
    (next.attempts, next.next, next.last_attempt) = (vec![attempt], None, 2);
    let made = |n| WorkerReport { attempt: 2, step: Some(7), ..report(n, WorkerState::Running, None) };
    let next = decided(&next, &seen(&next, &ready, Some((0..4).map(made).collect()), 120), 120).job;
    assert_eq!((next.step(), next.highest_step, next.attempts[0].progressed), (Some(7), Some(1010), false));
    assert_eq!(next.counters.steps_repeated, 7);
    let paused = Job { phase: Phase::Paused, desired: Desired::Pause, ..running() };
    let paused = Job { saved: Some(1000), generations: Vec::new(), attempts: Vec::new(), ..paused };
    let again = apply_command(&paused, restart, at(100)).unwrap().unwrap();
    assert_eq!((again.line, again.saved), (1, None));
}

#[test]
fn a_cancelled_job_waits_for_a_create_that_may_be_on_its_way() {
    let mut job = Job { desired: Desired::Cancel, ..with(Generation { asked_at: Some(noon()), ..generation(1) }) };
    for secs in [1, 20, 34] {
        let decision = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), secs), secs);
        assert_eq!((decision.job.phase, decision.job.generations.len()), (Phase::Stopping, 1), "{secs}");
        assert!(decision.effects.iter().all(|e| *e == Effect::PublishEvents), "{:?}", decision.effects);
        job = Job::clone(&decision.job);
    }
    // It came late: it is deleted, and the job ends only at its 404.
    let late = Look::Seen(view(&job, SliceState::Creating, true));
    let decision = decided(&job, &seen(&job, &late, Some(Vec::new()), 35), 35);
    assert!(decision.effects.contains(&Effect::DeleteGeneration { generation: 1 }));
    assert_eq!(decision.job.phase, Phase::Stopping);
    let job = Job::clone(&decision.job);
    let decision = decided(&job, &seen(&job, &Look::Absent, Some(Vec::new()), 60), 60);
    assert_eq!((decision.job.phase, decision.job.generations.len()), (Phase::Cancelled, 0), "{:?}", decision.notes);
}

#[test]
fn a_slice_that_never_came_and_an_operation_that_expired_are_no_loss() {
    let job = with(Generation {
        create: Create::Sent { operation: "op".into() },
        seen_at: Some(at(5)),
        asked_at: Some(noon()),
        ..generation(1)
    });
    let mut seen = seen(&job, &Look::Absent, Some(Vec::new()), 900);
    seen.generations[0].operation = Look::Absent;
    let after = decided(&job, &seen, 900).job;
    assert_eq!((after.counters.preemptions, after.counters.stockouts), (0, 1), "{}", after.message);
}

#[test]
fn an_operation_that_fails_beside_a_ready_slice_deletes_nothing() {
    let g = Generation { create: Create::Sent { operation: "op".into() }, asked_at: Some(noon()), ..generation(1) };
    let job = with(g);
    let mut seen = seen(&job, &Look::Seen(view(&job, SliceState::Ready, true)), Some(Vec::new()), 30);
    let error = CreateError { kind: CreateErrorKind::HiddenStockout, message: "an internal error".into() };
    seen.generations[0].operation = Look::Seen(OperationView { done: true, error: Some(error) });
    let decision = decided(&job, &seen, 30);
    let g = decision.job.generation(1).unwrap();
    assert!(g.ready_at.is_some() && g.delete.is_none() && decision.job.barred.is_empty(), "{:?}", decision.notes);
}

#[test]
fn a_worker_that_may_run_holds_back_the_next_attempt_whatever_the_api_shows_of_the_other_slices() {
    // Attempt 1 on two slices: all workers of slice 0 have reported their end, slice 1 is silent, and the worst state is PREEMPTED.
    let mut job = running();
    job.generations[0].slices = 2;
    job.spec.tpu.slices = 2;
    let exit = |n| {
        let evidence = WorkerEvidence { index: n, exit: Exit::Signal(15), ..WorkerEvidence::default() };
        report(n, WorkerState::Exited, Some(ExitReport { at: at(100), ordered: true, evidence }))
    };
    let workers: Vec<_> = (0..4).map(exit).collect();
    let worst = SliceView { ended: false, ..view(&job, SliceState::Preempted, true) };
    let mut now = 100;
    for _ in 0..5 {
        let decision = decided(&job, &seen(&job, &Look::Seen(worst.clone()), Some(workers.clone()), now), now);
        let first = decision.job.attempts.iter().find(|a| a.number == 1).unwrap();
        assert!(first.fenced_at.is_none(), "{:?}", decision.notes);
        job = Job::clone(&decision.job);
        job.generations.truncate(1);
        now += 600;
    }
}

#[test]
fn a_setup_that_takes_too_long_is_a_limit_and_a_worker_without_a_word_a_loss() {
    let mut job = running();
    job.phase = Phase::Starting;
    job.spec.limits.start = Duration::from_mins(1);
    (job.attempts[0].released_at, job.attempts[0].started_at) = (None, None);
    let workers =
        |count: u32, state| (0..count).map(move |n| report(n, if n == 2 { state } else { WorkerState::Ready }, None));
    let ended = |count, state, secs| {
        let ready = Look::Seen(view(&job, SliceState::Ready, true));
        let decision = decided(&job, &seen(&job, &ready, Some(workers(count, state).collect()), secs), secs);
        let attempt = decision.job.attempts.iter().find(|a| a.number == 1).unwrap();
        attempt
            .ended
            .clone()
            .map(|end| (end.kind.unwrap(), end.summary, decision.job.next.as_ref().map(|next| next.new_generation)))
    };
    assert_eq!(ended(4, WorkerState::Preparing, 59), None);
    let (kind, text, next) = ended(4, WorkerState::Preparing, 100).unwrap();
    assert_eq!((kind, next), (FailureKind::Timeout, Some(true)));
    assert!(text.ends_with("`start`: 1 of 4 workers (the first is 2) still unpacked or ran `setup`"), "{text}");
    let (kind, text, next) = ended(3, WorkerState::Preparing, 100).unwrap();
    assert_eq!((kind, next), (FailureKind::Lost, Some(true)));
    assert!(text.ends_with("`start`: 1 of 4 workers gave no word"), "{text}");
}

#[test]
fn of_one_worker_no_number_is_told() {
    let mut job = running();
    (job.phase, job.generations[0].workers) = (Phase::Starting, 1);
    (job.attempts[0].released_at, job.attempts[0].started_at) = (None, None);
    let told = |job: &Job, state, secs| {
        let addresses = vec![vec!["10.0.0.0".to_owned()]].into();
        let slice = Look::Seen(SliceView { addresses, ..view(job, SliceState::Ready, true) });
        decided(job, &seen(job, &slice, Some(vec![report(0, state, None)]), secs), secs)
    };
    let waits = told(&job, WorkerState::Preparing, 10);
    assert_eq!(&*waits.job.message, "its worker is not ready yet");
    let released = told(&waits.job, WorkerState::Ready, 20);
    assert!(released.notes.concat().contains("attempt 1 may start on its worker"), "{:?}", released.notes);
    let runs = told(&released.job, WorkerState::Running, 30);
    assert!(runs.notes.concat().contains("attempt 1 runs on its worker"), "{:?}", runs.notes);
}

#[test]
fn the_limit_start_is_not_held_against_workers_that_wait_for_an_earlier_slice() {
    let mut job = running();
    job.phase = Phase::Starting;
    job.spec.limits.start = Duration::from_mins(3);
    // The delete of the first slice has no effect, and its program may still run.
    let mut first = job.generations[0].clone();
    first.delete = Some(Delete { intended_at: at(3), sent_at: Some(at(3)), tries: 1, last_error: None });
    job.attempts[0].ended = Some(ended_by(FailureKind::Lost));
    job.generations = vec![first, Generation { ready_at: Some(at(10)), ..made(2) }];
    job.attempts.push(Attempt { created_at: at(10), ..attempt(2, 2) });
    (job.last_generation, job.last_attempt) = (2, 2);
    let ready = |job: &Job, secs| {
        let workers = (0..4).map(|n| WorkerReport { attempt: 2, generation: 2, ..report(n, WorkerState::Ready, None) });
        let mut seen = seen(job, &Look::Seen(view(job, SliceState::Ready, true)), Some(workers.collect()), secs);
        for look in &mut seen.generations {
            let labels = names::labels(&installation(), &job.id, look.number, &job.spec_hash);
            look.slice = Look::Seen(SliceView { labels, ..view(job, SliceState::Ready, true) });
        }
        decided(job, &seen, secs)
    };
    let second = |job: &Job| job.attempts.iter().find(|a| a.number == 2).unwrap().clone();
    for secs in [50, 100, 150, 200] {
        let decision = ready(&job, secs);
        job = Job::clone(&decision.job);
        let a = second(&job);
        assert_eq!((a.ended, a.held_until, a.released_at), (None, Some(at(secs)), None), "{:?}", decision.notes);
    }
    // Now it is gone.
    (job.attempts, job.generations) = (vec![second(&job)], job.generations.split_off(1));
    job = Job::clone(&ready(&job, 250).job);
    assert_eq!(second(&job).released_at, Some(at(250)));
    let has_ended = |secs| second(&ready(&job, secs).job).ended.is_some();
    assert_eq!((has_ended(379), has_ended(381)), (false, true), "from the last moment of the wait on");
}

#[test]
fn a_failed_read_of_the_reports_deletes_no_slice_when_the_time_to_end_is_over() {
    let job = apply_command(&running(), Command::Pause, at(100)).unwrap().unwrap();
    let ready = Look::Seen(view(&job, SliceState::Ready, true));
    let workers = || Some((0..4).map(|n| report(n, WorkerState::Running, None)).collect::<Vec<_>>());
    let told = Job::clone(&decided(&job, &seen(&job, &ready, workers(), 100), 100).job);
    let deadline = told.attempts[0].stop.as_ref().unwrap().deadline.as_second() - at(0).as_second();
    let deletes = |decision: &Decision| decision.effects.contains(&Effect::DeleteGeneration { generation: 1 });
    let then = |workers, secs| decided(&told, &seen(&told, &ready, workers, secs), secs);
    let over = deadline + 20;
    let unread = then(None, over);
    assert!(!deletes(&unread) && unread.job.wake_at.is_some_and(|wake| wake <= at(over + 10)), "{:?}", unread.job);
    assert!(!deletes(&then(workers(), over - 1)), "what used all of its time is killed now, and tells how it ended");
    assert!(deletes(&then(workers(), over)), "they had their time");
}

#[test]
fn the_idle_time_of_a_workspace_counts_on_over_attempts_until_somebody_uses_it() {
    let hour = 3600;
    let mut first = running();
    first.spec.workspace = true;
    first.spec.limits.idle = Some(Duration::from_hours(8));
    let ready = Look::Seen(view(&first, SliceState::Ready, true));
    let workers = |attempt: u32, used: Option<i64>, secs: i64| {
        let of = |n| WorkerReport {
            attempt,
            generation: attempt,
            heard_at: at(secs),
            output_at: used.filter(|_| n == 1).map(at),
            ..report(n, WorkerState::Running, None)
        };
        Some((0..4).map(of).collect::<Vec<_>>())
    };
    // Used after one hour, taken away after four: three hours are idle.
    for (used, idle) in [(Some(hour), 3 * hour), (None, 4 * hour - 2)] {
        let lost = Look::Seen(view(&first, SliceState::Preempted, true));
        let decision = decided(&first, &seen(&first, &lost, workers(1, used, 4 * hour), 4 * hour), 4 * hour);
        let next = decision.job.attempts.last().unwrap();
        assert_eq!((next.number, next.idle.as_secs()), (2, idle.unsigned_abs()), "{:?}", decision.notes);
    }
    // The second attempt began with three idle hours, ten hours later: five more are left.
    let mut second = running();
    (second.spec.workspace, second.spec.limits) = (true, first.spec.limits.clone());
    second.attempts[0].idle = Duration::from_secs(3 * hour.unsigned_abs());
    second.attempts[0].started_at = Some(at(14 * hour));
    let pauses = |used, secs| {
        let decision = decided(&second, &seen(&second, &ready, workers(1, used, secs), secs), secs);
        decision.job.desired == Desired::Pause
    };
    assert_eq!((pauses(None, 19 * hour - 1), pauses(None, 19 * hour)), (false, true));
    assert!(!pauses(Some(14 * hour + 60), 19 * hour), "somebody uses it");
    // What its workers did since they were heard of last is not known: a command may run.
    second.spec.limits.idle = Some(Duration::from_secs(10));
    second.attempts[0].idle = Duration::ZERO;
    let pauses = |secs| {
        let heard = workers(1, Some(15 * hour), 15 * hour);
        decided(&second, &seen(&second, &ready, heard, secs), secs).job.desired == Desired::Pause
    };
    assert_eq!((pauses(15 * hour + 12), pauses(15 * hour + 25)), (false, false));
    // Bringing it back is a use.
    let mut paused = Job { phase: Phase::Paused, desired: Desired::Pause, ..second.clone() };
    paused.generations.clear();
    let up = apply_command(&paused, Command::Unpause, at(20 * hour)).unwrap().unwrap();
    assert!(up.attempts.iter().all(|a| a.idle.is_zero()));
}

#[test]
fn a_cancel_that_was_accepted_stays_whatever_is_asked_before_the_next_pass() {
    let restart = Command::Restart { new_slice: false, from_scratch: false };
    let paused = Job { phase: Phase::Paused, desired: Desired::Pause, ..running() };
    for job in [running(), Job { generations: Vec::new(), attempts: Vec::new(), ..paused }] {
        let cancelled = apply_command(&job, Command::Cancel, at(100)).unwrap().unwrap();
        for command in [Command::Pause, Command::Unpause, restart] {
            let told = apply_command(&cancelled, command, at(100)).unwrap_err().to_string();
            assert!(told.contains("this one was cancelled, and is stopping: to run it again, submit it"), "{told}");
        }
        assert_eq!(apply_command(&cancelled, Command::Cancel, at(100)).unwrap(), None);
    }
    let ended =
        Job { phase: Phase::Succeeded, desired: Desired::Cancel, outcome: Some(Outcome::Succeeded), ..running() };
    assert!(apply_command(&ended, Command::Cancel, at(100)).is_err(), "it is no cancelled job");
    // Only one that stops for a pause is worth waiting for.
    for (outcome, want) in [
        (None, "this one is being paused: give the command again once it is"),
        (Some(Outcome::Failed), "this one has its end already (failed), and is stopping: to run it again, submit it"),
    ] {
        let stopping = Job { phase: Phase::Stopping, outcome, ..running() };
        let told = apply_command(&stopping, restart, at(100)).unwrap_err().to_string();
        assert!(told.contains(want), "{told}");
    }
    let reason = Reason::CostLimit;
    let failing = Job { outcome: Some(Outcome::Failed), reason, message: "too dear".into(), ..running() };
    let told = apply_command(&failing, Command::Cancel, at(100)).unwrap().unwrap();
    assert_eq!((told.reason, told.message.as_str()), (reason, "too dear"), "what ended it is told");
}

#[test]
fn a_cancel_that_was_accepted_ends_the_job_also_when_its_last_slice_without_progress_is_lost_then() {
    let mut job = running();
    job.spec.budgets.no_progress = Some(1);
    for (command, want) in [
        (None, (None, Desired::Pause, Reason::NoNetProgress)),
        (Some(Command::Pause), (None, Desired::Pause, Reason::PauseRequested)),
        (Some(Command::Cancel), (Some(Outcome::Cancelled), Desired::Cancel, Reason::CancelRequested)),
    ] {
        let told = command.and_then(|command| apply_command(&job, command, at(100)).unwrap());
        let told = told.unwrap_or_else(|| job.clone());
        let taken = Look::Seen(view(&told, SliceState::Preempted, true));
        let after = decided(&told, &seen(&told, &taken, Some(Vec::new()), 100), 100).job;
        assert_eq!((after.outcome, after.desired, after.reason), want, "{command:?}: {}", after.message);
    }
}

#[test]
fn a_plain_restart_leaves_the_slice_that_is_being_made() {
    let mut job = running();
    (job.phase, job.generations[0].ready_at) = (Phase::Recovering, None);
    (job.attempts[0].released_at, job.attempts[0].started_at) = (None, None);
    let after = |new_slice, from_scratch| {
        let job = apply_command(&job, Command::Restart { new_slice, from_scratch }, at(100)).unwrap().unwrap();
        let making = Look::Seen(view(&job, SliceState::Creating, true));
        let decision = decided(&job, &seen(&job, &making, None, 100), 100);
        let g = decision.job.generation(1).map(|g| g.delete.is_some());
        (g, decision.job.attempts[0].stop.is_some(), decision.job.restart, decision.job.next.is_some())
    };
    assert_eq!(after(false, false), (Some(false), false, None, false));
    assert_eq!(after(true, false), (Some(true), true, None, true));
    assert_eq!(after(false, true), (Some(true), true, None, true), "what was ordered of it has the old line");
}

#[test]
fn a_restart_from_scratch_outlives_a_pause_and_a_restart_ends_one() {
    let ready = |job: &Job| Look::Seen(view(job, SliceState::Ready, true));
    let workers = || Some((0..4).map(|n| report(n, WorkerState::Running, None)).collect());
    let job = Job { saved: Some(1000), ..running() };
    let restart = Command::Restart { new_slice: false, from_scratch: true };
    let job = apply_command(&job, restart, at(100)).unwrap().unwrap();
    let job = apply_command(&job, Command::Pause, at(100)).unwrap().unwrap();
    let job = Job::clone(&decided(&job, &seen(&job, &ready(&job), workers(), 100), 100).job);
    assert_eq!((job.line, job.saved, job.next.as_ref().map(|n| n.resume)), (1, None, Some(false)));
    let paused = Job { phase: Phase::Paused, generations: Vec::new(), attempts: Vec::new(), ..job };
    let on = apply_command(&paused, Command::Unpause, at(200)).unwrap().unwrap();
    assert_eq!(on.next.map(|n| n.resume), Some(false), "nothing was saved in the new line");

    let pausing = apply_command(&running(), Command::Pause, at(100)).unwrap().unwrap();
    let again = Command::Restart { new_slice: false, from_scratch: false };
    let job = apply_command(&pausing, again, at(100)).unwrap().unwrap();
    let decision = decided(&job, &seen(&job, &ready(&job), workers(), 100), 100);
    assert_eq!(decision.job.desired, Desired::Run);
    assert_eq!(decision.job.next.as_ref().map(|n| (n.why, n.resume)), Some((Reason::RestartRequested, true)));
}

#[test]
fn a_job_that_goes_on_from_anothers_checkpoint_resumes_until_it_is_begun_from_scratch() {
    let mut spec = small();
    (spec["checkpoint"], spec["resume"]) = (serde_json::json!("gs://b/old"), serde_json::json!(true));
    let deployment = deployment(vec![entry("*", "us-central1-a", CapacityKind::Spot)]);
    let new = |job: &Job| {
        let job = Job::clone(&decided(job, &seen(job, &Look::Absent, Some(Vec::new()), 100), 100).job);
        let a = job.attempts.last().unwrap();
        ((a.resume, a.stage, a.line), job.counters.resumes)
    };
    let job = job(spec_in(&deployment, &spec));
    assert_eq!(new(&job), ((true, 0, 0), 0), "of its own it has resumed nothing");
    let lost = |line| Job { first_started_at: Some(at(2)), line, last_attempt: 1, last_generation: 1, ..job.clone() };
    let next =
        |resume| Next { not_before: noon(), resume, from_scratch: false, new_generation: true, why: Reason::Preempted };
    assert_eq!(new(&Job { next: Some(next(true)), ..lost(0) }), ((true, 1, 0), 1));
    assert_eq!(new(&Job { next: Some(next(false)), ..lost(1) }), ((false, 0, 1), 0), "a line of its own is empty");
    let unborn = Job { next: Some(next(true)), first_started_at: None, ..lost(0) };
    assert_eq!(new(&unborn), ((true, 0, 0), 0), "whose program never ran resumes nothing");
    // Several jobs may go on from one folder: none begins anew in the line of another.
    let place = |line| checkpoint_dir(&job, line, "us-central1", "gs://ours");
    assert_eq!((place(0), place(1)), ("gs://b/old".into(), format!("gs://b/old/{}/r1", job.id)));
    let plain = Job { spec: spec_in(&deployment, &small()).into(), ..job.clone() };
    assert_eq!(new(&plain), ((false, 0, 0), 0));
}
