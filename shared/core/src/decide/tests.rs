//! Properties of `decide` over random walks: whatever is seen in whatever order, a step is sound, repeatable and settled.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::json;

use super::{Command, Decision, EffectOutcome, Rules, apply_command, decide, record};
use crate::check::check;
use crate::classify::{Exit, WorkerEvidence};
use crate::effect::Effect;
use crate::ids::{InstallationId, JobId, WorkerKey};
use crate::job::{Counters, Desired, Generation, Job, Phase, Spent, Usage};
use crate::limits::InUse;
use crate::names;
use crate::observation::{
    CreateError, CreateErrorKind, ExitReport, GenerationLook, Health, Liveness, Look, Notice, NoticeKind, Observation,
    OperationView, Permit, SliceState, SliceView, WorkerReport, WorkerState,
};
use crate::reason::Reason;
use crate::settings::{CapacityEntry, Deployment, Settings};
use crate::shared::Shared;
use crate::spec::{self, CapacityKind};

fn start() -> Timestamp {
    "2026-11-20T10:00:00Z".parse().unwrap()
}

fn deployment() -> Deployment {
    Deployment {
        capacity: vec![CapacityEntry {
            accelerator: "*".into(),
            zone: "*".into(),
            kind: CapacityKind::Spot,
            max_chips: None,
            usd_per_chip_hour: 0.3,
        }],
        max_chips: None,
        max_usd_per_day: None,
        owners: BTreeMap::new(),
        access: crate::access::Access::open(),
        bucket: "gs://b".into(),
        bucket_regions: Vec::new(),
        api_url: "https://api".into(),
        worker_service_account: None,
        worker_network: None,
        startup_script: None,
        worker_metadata: BTreeMap::new(),
    }
}

fn installation() -> InstallationId {
    InstallationId::parse("abcdef").unwrap()
}

fn new_job() -> Job {
    let value = json!({"run": ["x"], "tpu": {"accelerator": "v5litepod-8"}});
    let deployment = deployment();
    let ctx = spec::ParseContext { deployment: &deployment, caller: "ann@example.com", caller_is_admin: false };
    let spec = spec::parse(&value, &ctx).unwrap().spec;
    let spec_hash = spec::hash(&spec);
    Job {
        id: JobId::parse("train").unwrap(),
        spec: spec.into(),
        spec_hash,
        run_id: "r".into(),
        created_at: start(),
        submitted_by: "ann@example.com".into(),
        desired: Desired::Run,
        restart: None,
        phase: Phase::Pending,
        phase_since: start(),
        outcome: None,
        reason: Reason::Submitted,
        message: String::new(),
        last_generation: 0,
        last_attempt: 0,
        line: 0,
        generations: Vec::new(),
        attempts: Vec::new(),
        next: None,
        settling: None,
        last_end: None,
        counters: Counters::default(),
        spent: Spent::default(),
        highest_step: None,
        line_step: None,
        saved: None,
        savers: 0,
        last_loss: None,
        first_started_at: None,
        queued_since: start(),
        barred: Vec::new(),
        unqueueable: Vec::new(),
        execs: Vec::new(),
        last_exec: 0,
        vacated: None,
        wake_at: None,
        outbox: Vec::new(),
        sequence: 0,
        revision: 1,
        changed_at: start(),
        observed_through_us: 0,
        usage: Usage::default(),
    }
}

/// What the world shows and does in one step; numbers choose among the possible.
#[derive(Debug, Clone)]
struct Step {
    after_secs: u32,
    slices: (u8, u8),
    operations: (u8, u8),
    worker: u8,
    reached: Option<u64>,
    permit: u8,
    command: u8,
    acts: u8,
    notice: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (
        prop_oneof![0..3_u32, 0..120_u32, 0..4000_u32],
        (any::<u8>(), any::<u8>()),
        (any::<u8>(), any::<u8>()),
        any::<u8>(),
        proptest::option::of(0..1000_u64),
        any::<u8>(),
        any::<u8>(),
        any::<u8>(),
        proptest::bool::weighted(0.05),
    )
        .prop_map(|(after_secs, slices, operations, worker, reached, permit, command, acts, notice)| Step {
            after_secs,
            slices,
            operations,
            worker,
            reached,
            permit,
            command,
            acts,
            notice,
        })
}

fn view(job: &Job, generation: u32, state: SliceState) -> SliceView {
    let ready = state == SliceState::Ready;
    SliceView {
        ended: matches!(state, SliceState::Preempted | SliceState::Terminated | SliceState::Stopped),
        state,
        health: Health::Healthy,
        addresses: if ready { vec![vec!["10.0.0.1".into()]].into() } else { Vec::new().into() },
        labels: names::labels(&installation(), &job.id, generation, &job.spec_hash),
        created_at: None,
        error: None,
        note: None,
        made: Vec::new(),
    }
}

fn look(job: &Job, g: &Generation, choice: u8, operation: u8, now: Timestamp) -> GenerationLook {
    let generation = g.number;
    let slice = match choice % 16 {
        0 | 1 => Look::Unknown,
        2 | 3 => Look::Absent,
        4 => Look::Seen(view(job, generation, SliceState::Creating)),
        5 => Look::Seen(view(job, generation, SliceState::Preempted)),
        6 => Look::Seen(view(job, generation, SliceState::Deleting)),
        7 => Look::Seen(view(job, generation, SliceState::Terminated)),
        8 => Look::Seen(view(job, generation, SliceState::InTransition("REPAIRING".into()))),
        9 => Look::Seen(view(job, generation, SliceState::Unspecified)),
        _ => Look::Seen(view(job, generation, SliceState::Ready)),
    };
    let stockout = CreateError { kind: CreateErrorKind::Stockout, message: "no more capacity".into() };
    let operation = match operation % 8 {
        0 | 1 => Look::Unknown,
        2 => Look::Absent,
        3 => Look::Seen(OperationView { done: true, error: Some(stockout) }),
        4 | 5 => Look::Seen(OperationView { done: false, error: None }),
        _ => Look::Seen(OperationView { done: true, error: None }),
    };
    GenerationLook {
        number: generation,
        placement: g.placement.clone(),
        intended_at: g.intended_at,
        slice,
        looked_at: now,
        operation,
    }
}

fn reports(job: &Job, step: &Step, now: Timestamp) -> Option<Vec<Shared<WorkerReport>>> {
    if step.worker.is_multiple_of(16) {
        return None;
    }
    let mut all = Vec::new();
    for a in &job.attempts {
        // Agents run only what was released, and report an end when they are told to stop.
        let state = match (a.released_at, &a.stop, step.worker % 8) {
            (_, _, 1) => continue,
            (None, None, 2) => WorkerState::Preparing,
            (None, None, _) => WorkerState::Ready,
            (_, Some(_), 3) | (Some(_), None, 4..=7) => WorkerState::Running,
            (_, Some(_), _) | (Some(_), None, _) => WorkerState::Exited,
        };
        let codes = [0, 1, 137, 143];
        let evidence = WorkerEvidence {
            exit: Exit::Code(codes[usize::from(step.worker / 8) % 4]),
            tail: "ValueError: x".into(),
            ..WorkerEvidence::default()
        };
        let exit =
            (state == WorkerState::Exited).then_some(ExitReport { at: now, ordered: a.stop.is_some(), evidence });
        let deadline = now + Duration::from_secs(30);
        all.push(Shared::from(WorkerReport {
            attempt: a.number,
            generation: a.generation,
            key: WorkerKey { slice: 0, worker: 0 },
            instance: "vm".into(),
            boot_id: "b".into(),
            address: "10.0.0.1".into(),
            state,
            heard_at: now,
            started_at: None,
            step: step.reached,
            step_at: Some(now),
            output_at: None,
            loss: None,
            checkpoint: None,
            resumed_from: None,
            disk_free_bytes: None,
            memory_free_bytes: None,
            notice: step.notice.then_some(Notice { kind: NoticeKind::Preemption, seen_at: now, deadline }),
            exit,
            is_collecting: state == WorkerState::Exited && step.acts > 200,
            has_unsent: state == WorkerState::Exited && step.acts > 230,
            has_rebooted: step.acts % 16 == 7,
            less_since: None,
        }));
    }
    Some(all)
}

fn observe(job: &Job, step: &Step, now: Timestamp) -> Observation {
    let choices = [(step.slices.0, step.operations.0), (step.slices.1, step.operations.1)];
    let looks = job.generations.iter().zip(choices).map(|(g, (s, o))| look(job, g, s, o, now)).collect();
    Observation {
        generations: looks,
        workers: reports(job, step, now),
        read_through_us: now.as_microsecond(),
        zones: Vec::new(),
        permit: match step.permit % 8 {
            0 => Permit::Wait,
            1 => Permit::Frozen,
            _ => Permit::Free,
        },
        used: InUse::default(),
        liveness: Liveness { since: Some(start()), through: Some(now) },
    }
}

/// Everything unknown: the worst a pass can see.
fn blind(job: &Job, now: Timestamp) -> Observation {
    let looks = job.generations.iter().map(|g| GenerationLook {
        number: g.number,
        placement: g.placement.clone(),
        intended_at: g.intended_at,
        slice: Look::Unknown,
        looked_at: now,
        operation: Look::Unknown,
    });
    Observation {
        generations: looks.collect(),
        workers: None,
        read_through_us: 0,
        zones: Vec::new(),
        permit: Permit::Wait,
        used: InUse::default(),
        liveness: Liveness::default(),
    }
}

fn outcomes(decision: &Decision, acts: u8) -> Vec<EffectOutcome> {
    let mut all = Vec::new();
    for effect in &decision.effects {
        all.push(match (effect, acts % 4) {
            (_, 0) => continue,
            (Effect::CreateGeneration { generation }, 1) => EffectOutcome::CreateRefused {
                generation: *generation,
                error: CreateError { kind: CreateErrorKind::Quota, message: "quota".into() },
            },
            (Effect::CreateGeneration { generation }, _) => {
                EffectOutcome::CreateSent { generation: *generation, operation: "op".into() }
            }
            (Effect::DeleteGeneration { generation }, 1) => {
                EffectOutcome::DeleteFailed { generation: *generation, why: "503".into() }
            }
            (Effect::DeleteGeneration { generation }, _) => EffectOutcome::DeleteSent { generation: *generation },
            (Effect::PublishEvents, _) => EffectOutcome::Published { through: decision.job.sequence },
        });
    }
    all
}

fn command_of(choice: u8) -> Option<Command> {
    match choice % 64 {
        0 => Some(Command::Cancel),
        1 => Some(Command::Pause),
        2 => Some(Command::Restart { new_slice: false, from_scratch: false }),
        3 => Some(Command::Restart { new_slice: true, from_scratch: true }),
        4..=6 => Some(Command::Unpause),
        7 => Some(Command::Wake),
        _ => None,
    }
}

fn walk(steps: &[Step]) -> Result<(), TestCaseError> {
    let (settings, deployment, installation) = (Settings::default(), deployment(), installation());
    let rules = Rules { settings: &settings, deployment: &deployment, installation: &installation };
    let mut job = new_job();
    let mut now = start();
    for step in steps {
        now += Duration::from_secs(u64::from(step.after_secs));
        if let Some(command) = command_of(step.command)
            && let Ok(Some(after)) = apply_command(&job, command, now)
        {
            job = after;
        }
        let seen = observe(&job, step, now);
        let decision = decide(&job, &seen, now, &rules);
        prop_assert_eq!(&decision, &decide(&job, &seen, now, &rules), "deterministic");
        let faults = check(&job, &decision.job, &decision.effects, &decision.fenced);
        prop_assert!(faults.is_empty(), "{:?}\nbefore {:#?}\nafter {:#?}", faults, job, decision.job);
        if job.phase.is_terminal() {
            prop_assert!(!decision.changed, "terminal absorbs");
        }
        settled(&decision, &seen, now, &rules)?;
        blind_changes_nothing(&decision.job, now, &rules)?;
        let (after, _) = record(&decision.job, &outcomes(&decision, step.acts), now);
        job = after;
    }
    Ok(())
}

/// Deciding again on the answer, with the same eyes at the same time, changes nothing.
fn settled(decision: &Decision, seen: &Observation, now: Timestamp, rules: &Rules<'_>) -> Result<(), TestCaseError> {
    let mut seen = seen.clone();
    // What was just asked for was not looked at, and what is gone is not looked at again.
    seen.generations.retain(|l| decision.job.generation(l.number).is_some());
    let again = decide(&decision.job, &seen, now, rules);
    prop_assert!(
        !again.changed,
        "not settled:\nfirst {:#?}\nagain {:#?}\nnotes {:?} then {:?}",
        decision.job,
        again.job,
        decision.notes,
        again.notes
    );
    prop_assert_eq!(&again.effects, &decision.effects);
    Ok(())
}

/// A pass that could read nothing ends, charges, deletes and asks for nothing, at the moment of the last one.
fn blind_changes_nothing(job: &Job, now: Timestamp, rules: &Rules<'_>) -> Result<(), TestCaseError> {
    let decision = decide(job, &blind(job, now), now, rules);
    prop_assert_eq!(&decision.job.counters, &job.counters, "{:?}\n{:#?}", decision.notes, job);
    prop_assert_eq!(decision.job.outcome, job.outcome);
    prop_assert_eq!(decision.job.last_attempt, job.last_attempt);
    prop_assert_eq!(decision.job.generations.len(), job.generations.len());
    for (a, b) in decision.job.generations.iter().zip(&job.generations) {
        prop_assert_eq!(a.delete.is_some(), b.delete.is_some());
        prop_assert_eq!(&a.lost, &b.lost);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_step_of_any_walk_is_sound_repeatable_and_settled(steps in proptest::collection::vec(step(), 1..40)) {
        walk(&steps)?;
    }
}
