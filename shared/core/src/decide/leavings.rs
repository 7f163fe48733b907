//! What a program left on its machines: the slice is kept while it is sent, and what went with them is told.

use serde_json::json;

use super::cases::{decided, report, running, seen, view};
use super::{Command, Decision, OUTPUTS_MISSING, apply_command};
use crate::classify::{Exit, WorkerEvidence};
use crate::effect::Effect;
use crate::failure::FailureKind;
use crate::fixture::{at, open_deployment, spec_in};
use crate::job::{Job, Lost, Outcome, Phase, StopCause};
use crate::observation::{ExitReport, Look, SliceState, SliceView, WorkerReport, WorkerState};

/// A worker that ended with 0 and sends its outputs, or does not any more.
fn ended_well(worker: u32, is_collecting: bool) -> WorkerReport {
    let evidence = WorkerEvidence { index: worker, exit: Exit::Code(0), ..WorkerEvidence::default() };
    let exit = ExitReport { at: at(100), ordered: false, evidence };
    WorkerReport { is_collecting, ..report(worker, WorkerState::Exited, Some(exit)) }
}

#[test]
fn a_success_is_one_at_once_and_its_slice_is_kept_while_outputs_are_collected() {
    let deletes = |decision: &Decision| decision.effects.contains(&Effect::DeleteGeneration { generation: 1 });
    let mut job = running();
    job.spec.outputs = vec!["results".into()];
    let ready = Look::Seen(view(&job, SliceState::Ready, true));
    let all = |is_collecting: bool| Some((0..4).map(|n| ended_well(n, is_collecting && n == 2)).collect::<Vec<_>>());
    let decision = decided(&job, &seen(&job, &ready, all(true), 100), 100);
    assert_eq!((decision.job.outcome, decision.job.phase), (Some(Outcome::Succeeded), Phase::Stopping));
    assert!(!deletes(&decision), "{:?}", decision.notes);
    assert!(decision.job.wake_at.is_some_and(|wake| wake <= at(400)));
    let job = Job::clone(&decision.job);

    let blind = decided(&job, &seen(&job, &ready, None, 101), 101);
    assert!(!deletes(&blind), "a failed read says nothing");
    // A preemption in these minutes takes nothing back.
    let lost = Look::Seen(SliceView { ended: true, ..view(&job, SliceState::Preempted, true) });
    let taken = decided(&job, &seen(&job, &lost, all(true), 101), 101);
    assert_eq!((taken.job.outcome, taken.job.counters.preemptions), (Some(Outcome::Succeeded), 0));
    assert!(deletes(&taken) && taken.job.generations[0].lost.as_ref().is_some_and(|lost: &Lost| lost.at == at(101)));

    let gone = |workers| decided(&taken.job, &seen(&taken.job, &Look::Absent, workers, 300), 300).job.message.clone();
    assert_eq!(gone(all(true)), format!("all workers ended well; outputs of w2 {OUTPUTS_MISSING}"));
    assert_eq!(gone(all(false)), "all workers ended well");

    assert!(deletes(&decided(&job, &seen(&job, &ready, all(false), 102), 102)), "all is there");
    assert!(deletes(&decided(&job, &seen(&job, &ready, all(true), 400), 400)), "not for ever");
    let nothing_to_collect = running();
    let decision = decided(&nothing_to_collect, &seen(&nothing_to_collect, &ready, all(true), 100), 100);
    assert!(deletes(&decision), "{:?}", decision.notes);
}

#[test]
fn a_slice_whose_program_ended_by_itself_is_kept_while_its_output_is_sent() {
    let deletes = |decision: &Decision| decision.effects.contains(&Effect::DeleteGeneration { generation: 1 });
    let ended = |goes_on: bool, has_unsent: bool| {
        let of = |worker| {
            let exit = Exit::Code(i32::from(goes_on));
            let evidence = WorkerEvidence { index: worker, exit, ..WorkerEvidence::default() };
            let exit = ExitReport { at: at(100), ordered: false, evidence };
            WorkerReport { has_unsent: has_unsent && worker == 2, ..report(worker, WorkerState::Exited, Some(exit)) }
        };
        Some((0..4).map(of).collect::<Vec<_>>())
    };
    let recreate = json!({"overrides": {"unknown": "recreate"}});
    for (recovery, goes_on) in [(json!({}), false), (recreate, true)] {
        let spec = crate::fixture::with(&["recovery"], recovery);
        let job = Job { spec: spec_in(&open_deployment(), &spec).into(), ..running() };
        let ready = Look::Seen(view(&job, SliceState::Ready, true));
        let told = |has_unsent| ended(goes_on, has_unsent);
        let decision = decided(&job, &seen(&job, &ready, told(true), 100), 100);
        assert_eq!(decision.job.outcome.is_none(), goes_on, "{:?}", decision.notes);
        assert!(
            !deletes(&decision) && decision.job.wake_at.is_some_and(|wake| wake <= at(400)),
            "{:?}",
            decision.notes
        );
        let told_why =
            decision.job.message == "waits until the earlier slice has sent the rest of its output and is gone";
        assert_eq!(told_why, goes_on, "{}", decision.job.message);
        let after = Job::clone(&decision.job);
        let then = |workers, secs| deletes(&decided(&after, &seen(&after, &ready, workers, secs), secs));
        assert!(!then(told(true), 399) && !then(None, 101), "a failed read says nothing");
        assert!(then(told(false), 101), "all is there");
        assert!(then(told(true), 400), "not for ever");
        assert!(deletes(&decided(&job, &seen(&job, &ready, told(false), 100), 100)), "nothing waits");
        // A person who ends it waits for nothing.
        let restart = Command::Restart { new_slice: true, from_scratch: false };
        for command in [Command::Cancel, Command::Pause, restart] {
            let after = apply_command(&job, command, at(100)).unwrap().unwrap();
            let after = Job::clone(&decided(&after, &seen(&after, &ready, None, 100), 100).job);
            assert!(deletes(&decided(&after, &seen(&after, &ready, told(true), 101), 101)), "{command:?}");
        }
    }
}

#[test]
fn who_still_runs_long_after_an_exit_0_has_the_time_to_save() {
    let job = running();
    let ready = Look::Seen(view(&job, SliceState::Ready, true));
    let told = |secs, exits: &[ExitReport]| {
        let of = |worker: u32| match exits.get(worker as usize) {
            Some(exit) => report(worker, WorkerState::Exited, Some(exit.clone())),
            None => report(worker, WorkerState::Running, None),
        };
        let heard = |report: WorkerReport| WorkerReport { heard_at: at(secs), ..report };
        Some((0..4).map(of).map(heard).collect::<Vec<_>>())
    };
    let exit = |worker, ordered| {
        let evidence = WorkerEvidence { index: worker, exit: Exit::Code(0), ..WorkerEvidence::default() };
        ExitReport { at: at(100), ordered, evidence }
    };
    let well = [exit(0, false)];
    let job = Job::clone(&decided(&job, &seen(&job, &ready, told(100, &well), 100), 100).job);
    assert!(job.attempts[0].stop.is_none(), "they get ten minutes");
    let job = Job::clone(&decided(&job, &seen(&job, &ready, told(700, &well), 700), 700).job);
    let stop = job.attempts[0].stop.clone().unwrap();
    let grace = job.spec.limits.stop_grace;
    assert_eq!((stop.cause, stop.at, stop.deadline), (StopCause::Limit, at(700), at(700) + grace));
    assert!(grace > std::time::Duration::ZERO && job.attempts[0].ended.is_none());
    // Whoever saves and leaves then has not ended by itself.
    let all = [0, 1, 2, 3].map(|worker| exit(worker, worker > 0));
    let job = decided(&job, &seen(&job, &ready, told(710, &all), 710), 710).job;
    assert_eq!(job.last_end.as_ref().and_then(|last| last.ended.kind), Some(FailureKind::Stalled));
}
