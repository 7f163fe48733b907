//! Deployments, specs and jobs for the tests of this crate, each as plain as it can be.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::ids::{JobId, WorkerKey};
use crate::job::{Attempt, Counters, Create, Desired, Generation, Job, Phase, Placement, Spent, Usage, Via};
use crate::observation::{WorkerReport, WorkerState};
use crate::reason::Reason;
use crate::settings::{CapacityEntry, Deployment};
use crate::spec::{self, CapacityKind, JobSpec, ParseContext};

/// Noon of a day.
pub(crate) fn noon() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

/// So many seconds after noon.
pub(crate) fn at(seconds: i64) -> Timestamp {
    noon() + jiff::SignedDuration::from_secs(seconds)
}

/// An entry of the capacity list at half a dollar for a chip-hour.
pub(crate) fn entry(accelerator: &str, zone: &str, kind: CapacityKind) -> CapacityEntry {
    CapacityEntry { accelerator: accelerator.into(), zone: zone.into(), kind, max_chips: None, usd_per_chip_hour: 0.5 }
}

/// A deployment with that capacity list, and a bucket of unknown regions.
pub(crate) fn deployment(capacity: Vec<CapacityEntry>) -> Deployment {
    Deployment {
        capacity,
        max_chips: None,
        max_usd_per_day: None,
        owners: BTreeMap::new(),
        access: crate::access::Access::open(),
        bucket: "gs://rekindle-demo".into(),
        bucket_regions: Vec::new(),
        api_url: "https://api.example.com".into(),
        worker_service_account: None,
        worker_network: None,
        startup_script: None,
        worker_metadata: BTreeMap::new(),
    }
}

/// Everything on every kind of capacity.
pub(crate) fn open_deployment() -> Deployment {
    let kinds = [CapacityKind::Spot, CapacityKind::Preemptible, CapacityKind::OnDemand, CapacityKind::Reserved];
    deployment(kinds.into_iter().map(|kind| entry("*", "*", kind)).collect())
}

/// The smallest good spec, as JSON.
pub(crate) fn small() -> Value {
    json!({"run": ["python3", "train.py"], "tpu": {"accelerator": "v5litepod-16"}})
}

/// The small spec with one value replaced, at a path of fields.
pub(crate) fn with(path: &[&str], value: Value) -> Value {
    let mut spec = small();
    let mut place = &mut spec;
    for field in path {
        place = &mut place[*field];
    }
    *place = value;
    spec
}

/// A spec, checked in a deployment.
pub(crate) fn spec_in(deployment: &Deployment, value: &Value) -> JobSpec {
    let context = ParseContext { deployment, caller: "ann@example.com", caller_is_admin: true };
    spec::parse(value, &context).unwrap().spec
}

/// A job that was accepted at noon.
pub(crate) fn job(spec: JobSpec) -> Job {
    Job {
        id: JobId::parse("train").unwrap(),
        spec_hash: spec::hash(&spec),
        spec: spec.into(),
        run_id: "train-1".into(),
        created_at: noon(),
        submitted_by: "ann@example.com".into(),
        desired: Desired::Run,
        restart: None,
        phase: Phase::Pending,
        phase_since: noon(),
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
        queued_since: noon(),
        barred: Vec::new(),
        unqueueable: Vec::new(),
        execs: Vec::new(),
        last_exec: 0,
        vacated: None,
        wake_at: None,
        outbox: Vec::new(),
        sequence: 0,
        revision: 0,
        changed_at: noon(),
        observed_through_us: 0,
        usage: Usage::default(),
    }
}

/// Spot `v5litepod-16` in a zone.
pub(crate) fn place(zone: &str) -> Placement {
    Placement { accelerator: "v5litepod-16".into(), zone: zone.into(), capacity: CapacityKind::Spot }
}

/// A generation that was asked for at noon in `us-central1-a`.
pub(crate) fn generation(number: u32) -> Generation {
    Generation {
        number,
        name: format!("rk-abc123-train-g{number}"),
        placement: place("us-central1-a"),
        entry: String::new(),
        via: Via::Node,
        slices: 1,
        workers: 4,
        chips: 16,
        usd_micros_per_hour: 8_000_000,
        intended_at: noon(),
        asked_at: None,
        create: Create::Intended,
        create_tries: 0,
        queued_until: None,
        left_queue_at: None,
        blocks_quota: false,
        seen_at: None,
        ready_at: None,
        addresses: crate::shared::Shared::default(),
        unhealthy_since: None,
        ended_since: None,
        absent_since: None,
        leaves: false,
        notice: None,
        progressed: false,
        ran: std::time::Duration::ZERO,
        lost: None,
        delete: None,
    }
}

/// An attempt that was made at noon.
pub(crate) fn attempt(number: u32, generation: u32) -> Attempt {
    Attempt {
        number,
        generation,
        resume: number > 1,
        stage: number.saturating_sub(1),
        line: 0,
        is_clean: false,
        created_at: noon(),
        held_until: None,
        released_at: None,
        started_at: None,
        stop: None,
        first_exit_at: None,
        ended: None,
        fenced_at: None,
        gone_since: None,
        progressed: false,
        step: None,
        step_at: None,
        saved_before: None,
        resumed_from: None,
        idle: std::time::Duration::ZERO,
    }
}

/// A report of one worker of attempt 1, on generation 1.
pub(crate) fn report(worker: u32, state: WorkerState) -> WorkerReport {
    WorkerReport {
        attempt: 1,
        generation: 1,
        key: WorkerKey { slice: 0, worker },
        instance: format!("vm-{worker}"),
        boot_id: "b".into(),
        address: String::new(),
        state,
        heard_at: at(100),
        started_at: None,
        step: None,
        step_at: None,
        output_at: None,
        loss: None,
        checkpoint: None,
        resumed_from: None,
        disk_free_bytes: None,
        memory_free_bytes: None,
        notice: None,
        exit: None,
        is_collecting: false,
        has_unsent: false,
        has_rebooted: false,
        less_since: None,
    }
}
