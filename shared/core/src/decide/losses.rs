//! Single steps of `decide` on what the cloud says of a slice, and on what may be believed of an end before it has said anything.

use super::cases::{decided, report, running, seen, view};
use super::{EffectOutcome, record};
use crate::classify::{Exit, WorkerEvidence};
use crate::failure::FailureKind;
use crate::fixture::{at, deployment, entry, spec_in, with};
use crate::job::{Desired, Job, OutEvent, Outcome, Phase};
use crate::observation::{ExitReport, Look, SliceState, WorkerReport, WorkerState};
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
    let kind = serde_json::json!([capacity.as_str()]);
    let spec = spec_in(&deployment(vec![entry("*", "*", capacity)]), &with(&["tpu", "capacity"], kind));
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
