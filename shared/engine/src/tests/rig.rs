//! The rig: passes run when hints or wake-ups are due, agents follow their orders at once, slices come up two seconds after the create.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use rekindle_core::classify::{Exit, WorkerEvidence};
use rekindle_core::decide::Command;
use rekindle_core::ids::{InstallationId, JobId, WorkerKey};
use rekindle_core::job::{Job, Phase};
use rekindle_core::observation::{ExitReport, Notice, NoticeKind, SliceState, WorkerReport, WorkerState};
use rekindle_core::orders::{Context, Want, order_for};
use rekindle_core::settings::{CapacityEntry, Deployment, Settings};
use rekindle_core::spec::{self, CapacityKind};
use rekindle_core::{names, orders};
use rekindle_fakes::{Call, Fakes};
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::Installation;

use crate::{Commanded, Engine, Submitted};

pub(super) struct Rig {
    pub(super) fakes: Fakes,
    pub(super) engine: Engine,
    /// Slices come up so long after their create.
    pub(super) create_secs: i64,
    /// Creates there never come to an end.
    pub(super) hangs_in: Option<String>,
    /// Deletes take so long.
    pub(super) delete_secs: i64,
    /// Agents of these generations do not call.
    pub(super) cut_off: BTreeSet<u32>,
    /// The VMs of these slices of generations are off.
    pub(super) dead_slices: BTreeSet<(u32, u32)>,
    /// Programs end like this, once, in the given attempt: worker to exit and last words.
    pub(super) exits: BTreeMap<u32, BTreeMap<u32, (Exit, String)>>,
    /// Notices by generation.
    pub(super) notices: BTreeMap<u32, Notice>,
    /// Steps reported each second while running.
    pub(super) steps_per_sec: u64,
    /// Ticks are lost when false.
    pub(super) ticks: bool,
    /// Hints and wake-ups are lost when false.
    pub(super) events: bool,
    deleting_since: BTreeMap<String, Timestamp>,
    last_tick: Timestamp,
    running: BTreeMap<(u32, WorkerKey), u64>,
    /// Every (attempt, generation) pair that ran, in order.
    pub(super) runs: Vec<(u32, u32)>,
}

pub(super) fn start() -> Timestamp {
    "2026-11-20T10:00:00Z".parse().unwrap()
}

pub(super) fn deployment() -> Deployment {
    let kinds = [CapacityKind::Spot, CapacityKind::OnDemand];
    Deployment {
        capacity: kinds
            .into_iter()
            .map(|kind| CapacityEntry {
                accelerator: "*".into(),
                zone: "*".into(),
                kind,
                max_chips: None,
                usd_per_chip_hour: 0.3,
            })
            .collect(),
        max_chips: None,
        max_usd_per_day: None,
        owners: BTreeMap::new(),
        access: rekindle_core::access::Access::open(),
        bucket: "file:///state".into(),
        bucket_regions: Vec::new(),
        api_url: "http://127.0.0.1:1".into(),
        worker_service_account: None,
        worker_network: None,
        startup_script: None,
        worker_metadata: BTreeMap::new(),
    }
}

impl Rig {
    pub(super) async fn new() -> Self {
        Self::with(Fakes::new(start(), 7), "abcdef").await
    }

    /// Another installation, with a store of its own, in the same project.
    pub(super) async fn beside(&self, id: &str) -> Self {
        let clock = self.fakes.clock.clone();
        let docs = Arc::new(rekindle_fakes::MemoryDocs::with_clock(clock.clone()));
        Self::with(Fakes { docs, clock, tpu: self.fakes.tpu.clone(), ..Fakes::new(start(), 8) }, id).await
    }

    async fn with(fakes: Fakes, id: &str) -> Self {
        let installation = Installation {
            id: InstallationId::parse(id).unwrap(),
            secret: "secret".into(),
            born_at: start() - SignedDuration::from_hours(1),
        };
        fakes.store().write(&Kind::Installation, &installation, Precondition::Absent).await.unwrap();
        let engine = Engine {
            ports: fakes.ports(),
            settings: Arc::new(Settings::default()),
            deployment: Arc::new(deployment()),
            installation: Arc::new(installation),
        };
        Self {
            fakes,
            engine,
            create_secs: 2,
            hangs_in: None,
            delete_secs: 3,
            cut_off: BTreeSet::new(),
            dead_slices: BTreeSet::new(),
            exits: BTreeMap::new(),
            notices: BTreeMap::new(),
            steps_per_sec: 10,
            ticks: true,
            events: true,
            deleting_since: BTreeMap::new(),
            last_tick: start() - SignedDuration::from_secs(60),
            running: BTreeMap::new(),
            runs: Vec::new(),
        }
    }

    pub(super) async fn submit(&self, more: serde_json::Value) -> JobId {
        let mut value = json!({"id": "train", "run": ["python3", "train.py"], "tpu": {"accelerator": "v5litepod-16"}});
        for (key, field) in more.as_object().unwrap() {
            value[key] = field.clone();
        }
        let ctx = spec::ParseContext {
            deployment: &self.engine.deployment,
            caller: "ann@example.com",
            caller_is_admin: false,
        };
        let submit = spec::parse(&value, &ctx).unwrap();
        match self.engine.submit(submit, "ann@example.com", "message-1").await.unwrap() {
            Submitted::Created(job) | Submitted::Same(job) => job.id,
            Submitted::Conflict { .. } => panic!("conflict"),
        }
    }

    pub(super) async fn job(&self) -> Arc<Job> {
        self.fakes.store().job(&JobId::parse("train").unwrap()).await.unwrap().unwrap().value
    }

    /// What `rekindle explain` says.
    pub(super) async fn explain(&self) -> String {
        rekindle_core::explain::explain(&*self.job().await, self.now()).paragraph
    }

    pub(super) async fn command(&self, command: Command, key: &str) -> Commanded {
        let id = JobId::parse("train").unwrap();
        self.engine.command(&id, command, "ann@example.com", key, None).await.unwrap()
    }

    pub(super) fn name(generation: u32) -> String {
        let id = JobId::parse("train").unwrap();
        names::generation_name(&InstallationId::parse("abcdef").unwrap(), &id, generation)
    }

    pub(super) fn notice(&mut self, generation: u32, secs: i64) {
        let now = self.now();
        let notice =
            Notice { kind: NoticeKind::Preemption, seen_at: now, deadline: now + SignedDuration::from_secs(secs) };
        self.notices.insert(generation, notice);
    }

    pub(super) fn exit(&mut self, attempt: u32, worker: u32, exit: Exit, tail: &str) {
        self.exits.entry(attempt).or_default().insert(worker, (exit, tail.into()));
    }

    pub(super) fn now(&self) -> Timestamp {
        use rekindle_ports::world::Clock;
        self.fakes.clock.now()
    }

    pub(super) fn creates(&self) -> usize {
        self.fakes.tpu.calls().iter().filter(|c| matches!(c, Call::Create(_))).count()
    }

    pub(super) fn deletes(&self) -> usize {
        self.fakes.tpu.calls().iter().filter(|c| matches!(c, Call::Delete(_))).count()
    }

    /// Goes on until the job is in this phase.
    pub(super) async fn until_phase(&mut self, phase: Phase, secs: u64) -> Job {
        self.until(secs, &format!("phase {}", phase.as_str()), |job| job.phase == phase).await
    }

    /// Goes on until the job is as wanted.
    pub(super) async fn until(&mut self, secs: u64, what: &str, wanted: impl Fn(&Job) -> bool) -> Job {
        for _ in 0..secs {
            let job = self.job().await;
            if wanted(&job) {
                return Job::clone(&job);
            }
            self.second().await;
        }
        let job = self.job().await;
        panic!(
            "not {what} after {secs} s: {:?} {:?} {}\n{:#?}\nattempts {:#?}\nnext {:?}",
            job.phase, job.reason, job.message, job.generations, job.attempts, job.next
        );
    }

    /// One second of the world.
    pub(super) async fn second(&mut self) {
        self.seconds(1).await;
    }

    /// So many seconds of the world in one step.
    pub(super) async fn seconds(&mut self, secs: i64) {
        self.fakes.clock.advance(SignedDuration::from_secs(secs));
        self.step().await;
    }

    /// What happens in a stretch that has passed.
    pub(super) async fn step(&mut self) {
        self.cloud();
        self.agents().await;
        self.deliver().await;
        if self.ticks && self.now() >= self.last_tick + SignedDuration::from_secs(60) {
            self.last_tick = self.now();
            self.engine.tick(self.now()).await.unwrap();
            self.pass_hints(true).await;
        }
    }

    fn cloud(&mut self) {
        let now = self.now();
        for listed in self.fakes.tpu.slices() {
            let name = &listed.slice.name;
            match listed.view.state {
                SliceState::Creating => {
                    let since = listed.created_at.unwrap();
                    let hangs = self.hangs_in.as_ref() == Some(&listed.slice.zone);
                    if !hangs && now >= since + SignedDuration::from_secs(self.create_secs) {
                        self.fakes.tpu.finish(name);
                    }
                }
                SliceState::Deleting => {
                    let since = *self.deleting_since.entry(name.clone()).or_insert(now);
                    if now >= since + SignedDuration::from_secs(self.delete_secs) {
                        self.fakes.tpu.vanish(name);
                    }
                }
                SliceState::Queued
                | SliceState::Ready
                | SliceState::InTransition(_)
                | SliceState::Unspecified
                | SliceState::Preempted
                | SliceState::Terminated
                | SliceState::Stopped
                | SliceState::Failed
                | SliceState::Unrecognized(_) => {}
            }
        }
    }

    async fn deliver(&mut self) {
        self.pass_hints(self.events).await;
        let due = self.fakes.wakeups.due(self.now());
        for wakeup in due {
            if self.events {
                self.engine.pass(&wakeup.job, "wake-up", None).await.unwrap();
            }
        }
    }

    async fn pass_hints(&mut self, deliver: bool) {
        for hint in self.fakes.hints.take() {
            if deliver {
                self.engine.pass(&hint.job, &hint.cause, hint.after).await.unwrap();
            }
        }
    }

    /// Every agent that can call does what its order says, and reports; a change is hinted.
    async fn agents(&mut self) {
        let Some(at) = self.fakes.store().job(&JobId::parse("train").unwrap()).await.unwrap() else { return };
        let job = at.value;
        let mut changed = false;
        for g in job.generations.clone() {
            let alive =
                self.fakes.tpu.slices().into_iter().any(|l| {
                    l.slice.name == g.name && matches!(l.view.state, SliceState::Ready | SliceState::Deleting)
                });
            if !alive || self.cut_off.contains(&g.number) || g.ready_at.is_none() {
                continue;
            }
            for slice in
                (0..g.slices).filter(|slice| !self.dead_slices.contains(&(g.number, *slice))).collect::<Vec<_>>()
            {
                for worker in 0..g.workers {
                    changed |= self.agent(&job, g.number, WorkerKey { slice, worker }).await;
                }
            }
        }
        if changed {
            use rekindle_ports::world::Hints;
            let hint = rekindle_ports::world::Hint {
                job: job.id.clone(),
                after: None,
                news: None,
                cause: "worker".into(),
                traceparent: None,
            };
            self.fakes.hints.publish(&hint).await.unwrap();
        }
    }

    async fn agent(&mut self, job: &Job, generation: u32, key: WorkerKey) -> bool {
        let engine = self.engine.clone();
        let now = engine.ports.clock.now();
        let ctx = Context { settings: &engine.settings, deployment: &engine.deployment, now };
        let order = order_for(job, generation, key, None, &ctx);
        if orders::attempt_of(job, generation).is_none() {
            return false;
        }
        let attempt = order.attempt;
        let kind = Kind::Worker(job.id.clone(), attempt, key);
        let known = self.fakes.store().read::<WorkerReport>(&kind).await.unwrap().map(|at| at.value);
        let now = self.now();
        let mut report = known.clone().unwrap_or_else(|| fresh(attempt, generation, key, now));
        report.heard_at = now;
        // A preemption stays; maintenance is a level.
        report.notice =
            self.notices.get(&generation).cloned().or(report.notice.filter(|n| n.kind == NoticeKind::Preemption));
        match order.want {
            Want::Prepare => report.state = WorkerState::Ready,
            Want::Run if report.exit.is_none() => self.run(&mut report, now),
            Want::Run => {}
            Want::Stop | Want::Retire => {
                if report.exit.is_none() {
                    self.running.remove(&(attempt, key));
                    report.exit = Some(exit_report(key.worker, Exit::Signal(15), "", true, now));
                    report.state = WorkerState::Exited;
                }
            }
        }
        let changed = known.as_ref().is_none_or(|k| {
            k.state != report.state || k.exit.is_some() != report.exit.is_some() || k.notice != report.notice
        });
        self.fakes.store().write(&kind, &report, Precondition::None).await.unwrap();
        changed
    }

    fn run(&mut self, report: &mut WorkerReport, now: Timestamp) {
        let id = (report.attempt, report.key);
        if !self.running.contains_key(&id) {
            // Safety: nobody else runs an older attempt at this moment.
            assert!(self.running.keys().all(|(a, _)| *a == report.attempt), "two attempts run: {:?}", self.running);
            if self.runs.last() != Some(&(report.attempt, report.generation)) {
                self.runs.push((report.attempt, report.generation));
            }
            self.running.insert(id, 0);
            report.started_at = Some(now);
        }
        report.state = WorkerState::Running;
        if self.steps_per_sec > 0 {
            let step = report.step.unwrap_or(u64::from(report.attempt) * 100) + self.steps_per_sec;
            report.step = Some(step);
            report.step_at = Some(now);
        }
        let ends = self.exits.get_mut(&report.attempt).and_then(|m| m.remove(&report.key.worker));
        if let Some((exit, tail)) = ends {
            self.running.remove(&id);
            report.exit = Some(exit_report(report.key.worker, exit, &tail, false, now));
            report.state = WorkerState::Exited;
        }
    }

    /// The VMs of one slice of several are powered off.
    pub(super) fn power_off_slice(&mut self, generation: u32, slice: u32) {
        self.dead_slices.insert((generation, slice));
        let attempts: BTreeSet<u32> = self.runs.iter().filter(|(_, g)| *g == generation).map(|(a, _)| *a).collect();
        self.running.retain(|(a, key), _| !attempts.contains(a) || key.slice != slice);
    }

    /// Workers whose program runs, of any attempt.
    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// The slice's VMs are powered off: what runs there is dead.
    pub(super) fn power_off(&mut self, generation: u32) {
        self.cut_off.insert(generation);
        let attempts: BTreeSet<u32> = self.runs.iter().filter(|(_, g)| *g == generation).map(|(a, _)| *a).collect();
        self.running.retain(|(a, _), _| !attempts.contains(a));
    }
}

fn fresh(attempt: u32, generation: u32, key: WorkerKey, now: Timestamp) -> WorkerReport {
    WorkerReport {
        attempt,
        generation,
        key,
        instance: format!("t1v-n-{generation}-w-{}", key.worker),
        boot_id: "boot".into(),
        address: format!("10.0.0.{}", key.worker + 1),
        state: WorkerState::Preparing,
        heard_at: now,
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

fn exit_report(worker: u32, exit: Exit, tail: &str, ordered: bool, now: Timestamp) -> ExitReport {
    let evidence = WorkerEvidence {
        index: worker,
        exit,
        tail: tail.into(),
        exited_at_ms: Some(u64::try_from(now.as_millisecond()).unwrap()),
        memory_free_bytes: Some(64 << 30),
        signal_sender: ordered.then_some(rekindle_core::classify::SignalSender::Ourselves),
        // Agents know of no other end without an exit.
        rebooted: exit == Exit::Silent,
        ..WorkerEvidence::default()
    };
    ExitReport { at: now, ordered, evidence }
}
