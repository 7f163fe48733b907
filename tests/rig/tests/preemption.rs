//! What a preemption of a large slice costs: the reports of its 64 workers, through `api` and `reconcile` as they are, and the calls of the
//! TPU API that they cause. One or two passes, not one for each worker.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use axum::Router;
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use rekindle_core::classify::{Exit, WorkerEvidence};
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Phase;
use rekindle_core::observation::{ExitReport, Notice, NoticeKind, WorkerState};
use rekindle_core::spec::{ParseContext, parse};
use rekindle_engine::tokens;
use rekindle_fakes::Call;
use rekindle_fn_api::Api;
use rekindle_ports::world::Clock;
use rekindle_rig::{CALLER, Rig, push, raw, send};
use rekindle_web::caller::Loopback;
use rekindle_web::{Door, layers};
use rekindle_wire::agent::{Hello, Progress, Report};

mod costs;

const WORKERS: u32 = 64;

struct World {
    rig: Rig,
    api: Router,
    reconcile: Router,
}

/// When the hints that reports cause are delivered.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    /// After all reports, all at once.
    Together,
    /// Each before the next report: the worst that a queue can do.
    OneByOne,
}

fn train() -> JobId {
    JobId::parse("train").unwrap()
}

impl World {
    /// A job whose program runs on a slice of 64 workers.
    async fn running() -> Self {
        let rig = Rig::new().await;
        let verifier = Arc::new(Loopback { identity: CALLER.into() });
        let api = rekindle_fn_api::agents(Api::new(rig.engine.clone(), verifier, None));
        let api = layers::common(api, rig.engine.settings.handler_deadline);
        let reconcile = rig.mount(rekindle_fn_reconcile::router(rig.engine.clone()), Door::Reconcile);
        let world = Self { rig, api, reconcile };
        let spec = json!({"id": "train", "run": ["x"], "tpu": {"accelerator": "v5litepod-256"}});
        let context = ParseContext { deployment: &world.rig.engine.deployment, caller: CALLER, caller_is_admin: true };
        world.rig.engine.submit(parse(&spec, &context).unwrap(), CALLER, "k").await.unwrap();
        for _ in 0..3 {
            world.rig.pass("train").await;
            world.rig.advance(1);
        }
        for worker in 0..WORKERS {
            world.hello(worker).await;
        }
        for state in [WorkerState::Ready, WorkerState::Running] {
            world.report_all(Order::Together, |_, report| report.state = state).await;
        }
        assert_eq!(world.rig.job("train").await.unwrap().phase, Phase::Running);
        world.rig.fakes.tpu.take_calls();
        world
    }

    fn now(&self) -> Timestamp {
        self.rig.fakes.clock.now()
    }

    async fn hello(&self, worker: u32) {
        let hello = Hello {
            job: train(),
            generation: 1,
            key: WorkerKey { slice: 0, worker },
            nonce: tokens::nonce(&self.rig.engine.installation.secret, &train(), 1),
            instance: format!("t1v-n-1-w-{worker}"),
            boot_id: format!("boot-{worker}"),
            address: format!("10.0.0.{worker}"),
            version: "0.1.0".into(),
        };
        let request = raw("/agent/v1/hello", "application/json", serde_json::to_vec(&hello).unwrap());
        assert_eq!(send(&self.api, request).await.status, 200);
    }

    /// Every worker reports what `change` makes of a running program's report; every hint is delivered.
    async fn report_all(&self, order: Order, change: impl Fn(u32, &mut Report)) {
        let reports: Vec<Report> = (0..WORKERS).map(|worker| Self::report(worker, &change)).collect();
        match order {
            Order::Together => {
                join_all(reports.iter().map(|report| self.send(report))).await;
                self.deliver().await;
            }
            Order::OneByOne => {
                for report in &reports {
                    self.send(report).await;
                    self.deliver().await;
                }
            }
        }
    }

    fn report(worker: u32, change: &impl Fn(u32, &mut Report)) -> Report {
        let mut report = Report {
            job: train(),
            generation: 1,
            key: WorkerKey { slice: 0, worker },
            instance: format!("t1v-n-1-w-{worker}"),
            boot_id: format!("boot-{worker}"),
            attempt: 1,
            store: true,
            state: WorkerState::Running,
            started_at: None,
            progress: Progress::default(),
            output_at: None,
            disk_free_bytes: None,
            memory_free_bytes: None,
            notice: None,
            exit: None,
            has_work: true,
            has_bell: false,
            is_collecting: false,
            has_unsent: false,
        };
        change(worker, &mut report);
        report
    }

    async fn send(&self, report: &Report) {
        let secret = &self.rig.engine.installation.secret;
        let token = tokens::token(secret, &train(), 1, report.key, &report.instance);
        let request = http::Request::post("/agent/v1/report")
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {token}"))
            .body(serde_json::to_vec(report).unwrap().into())
            .unwrap();
        let answer = send(&self.api, request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// Delivers all hints at once, as a push subscription does.
    async fn deliver(&self) {
        let hints = self.rig.fakes.hints.take();
        let deliveries = hints.iter().enumerate().map(|(n, hint)| async move {
            let data = serde_json::to_vec(hint).unwrap();
            let request = push("/functions/reconcile", &format!("hint-{n}"), &[], &data);
            assert_eq!(send(&self.reconcile, request).await.status, 204);
        });
        join_all(deliveries).await;
    }

    fn gets(&self) -> usize {
        self.rig.fakes.tpu.calls().iter().filter(|call| matches!(call, Call::Get(_))).count()
    }
}

/// Notices, then exits of 64 workers; the reads of slices and of everything that this caused.
async fn preempt(order: Order) -> (usize, usize) {
    let world = World::running().await;
    let seen_at = world.now();
    let told = |worker: u32| {
        // Their clocks differ: the later ones say an earlier deadline, which is the worst order.
        let seen_at = seen_at - SignedDuration::from_millis(10 * i64::from(worker));
        Notice { kind: NoticeKind::Preemption, seen_at, deadline: seen_at + SignedDuration::from_secs(30) }
    };
    world.report_all(order, |worker, report| report.notice = Some(told(worker))).await;
    let job = world.rig.job("train").await.unwrap();
    assert_eq!((job.last_generation, job.counters.preemptions), (2, 1), "the next slice is asked for at the notice");
    world.rig.advance(2);
    let at = world.now();
    world
        .report_all(order, |worker, report| {
            let evidence = WorkerEvidence { index: worker, exit: Exit::Signal(15), ..WorkerEvidence::default() };
            report.notice = Some(told(worker));
            report.exit = Some(ExitReport { at, ordered: true, evidence });
        })
        .await;
    let job = world.rig.job("train").await.unwrap();
    assert!(job.generation(1).is_none_or(|g| g.delete.is_some()), "the delete goes out at the last exit");
    (world.gets(), world.rig.fakes.tpu.calls().len())
}

#[tokio::test]
async fn a_lost_slice_of_64_workers_costs_a_few_reads_when_their_reports_come_together() {
    let (gets, calls) = preempt(Order::Together).await;
    assert!(gets <= 4 && calls <= 8, "{gets} reads of slices, {calls} calls");
}

#[tokio::test]
async fn a_lost_slice_of_64_workers_costs_a_few_reads_even_when_each_hint_is_delivered_at_once() {
    let (gets, calls) = preempt(Order::OneByOne).await;
    assert!(gets <= 6 && calls <= 10, "{gets} reads of slices, {calls} calls");
}
