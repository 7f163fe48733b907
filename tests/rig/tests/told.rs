//! What a person must be told of, and how often: the lines that alerts wait for.

#![expect(clippy::unwrap_used, reason = "tests")]

use rekindle_core::ids::{InstallationId, JobId};
use rekindle_core::job::Via;
use rekindle_core::names;
use rekindle_core::observation::{Health, Made, SliceState, SliceView};
use rekindle_core::spec::{ParseContext, parse};
use rekindle_fakes::Script;
use rekindle_ports::tpu::{Listed, SliceRef, TpuError};
use rekindle_ports::world::Clock;
use rekindle_rig::{CALLER, Log, Rig, spec};

/// A world with the job `train`, whose slice is being made.
async fn rig() -> Rig {
    let rig = Rig::new().await;
    rig.fakes.tpu.set_instant(false);
    let context = ParseContext { deployment: &rig.engine.deployment, caller: CALLER, caller_is_admin: true };
    let submit = parse(&spec("train"), &context).unwrap();
    rig.engine.submit(submit, CALLER, "key").await.unwrap();
    rig.pass("train").await;
    rig
}

fn slice(rig: &Rig) -> String {
    rig.fakes.tpu.slices()[0].slice.name.clone()
}

/// How many of the lines so far say so.
fn said(log: &Log, what: &str) -> usize {
    log.take().lines().filter(|line| line.contains("ERROR") && line.contains(what)).count()
}

async fn tick(rig: &Rig) {
    Box::pin(rig.engine.tick(rig.fakes.clock.now())).await.unwrap();
}

#[tokio::test]
async fn a_delete_that_is_not_allowed_is_told_once() {
    let rig = rig().await;
    rig.fakes.tpu.finish(&slice(&rig));
    let id = JobId::parse("train").unwrap();
    let cancel = rekindle_core::decide::Command::Cancel;
    rig.engine.command(&id, cancel, CALLER, "cancel", None).await.unwrap();
    let log = Log::default();
    let _guard = log.listen();
    for _ in 0..3 {
        rig.fakes.tpu.script_delete(Script::Before(TpuError::Denied("401".into())));
    }
    rig.pass("train").await;
    let told = log.take();
    let name = slice(&rig);
    assert!(told.contains("a delete is not allowed, and its TPU is paid for") && told.contains(&name), "{told}");
    for _ in 0..2 {
        rig.advance(120);
        rig.pass("train").await;
    }
    assert_eq!(said(&log, "a delete is not allowed"), 0);
    rig.fakes.tpu.set_instant(true);
    // It is taken, and its 404 is told twice.
    for _ in 0..3 {
        rig.advance(120);
        rig.pass("train").await;
    }
    assert!(rig.job("train").await.unwrap().phase.is_terminal());
}

#[tokio::test]
async fn what_was_made_otherwise_is_told_and_deleted() {
    let rig = rig().await;
    let name = slice(&rig);
    let log = Log::default();
    let _guard = log.listen();
    let on_demand = Made { preemptible: Some(false), ..Made::default() };
    rig.fakes.tpu.finish(&name);
    rig.fakes.tpu.change(&name, |view| view.made = vec![on_demand]);
    rig.advance(5);
    rig.pass("train").await;
    assert_eq!(said(&log, &format!("the provider made something else, which is deleted: {name}")), 1);
    for _ in 0..3 {
        rig.advance(60);
        rig.pass("train").await;
    }
    assert_eq!(said(&log, "the provider made something else"), 0);
}

#[tokio::test]
async fn what_a_sweep_leaves_alone_is_told_once_an_hour() {
    let rig = Rig::new().await;
    let id = InstallationId::parse("abcdef").unwrap();
    for n in 0..5 {
        let job = JobId::parse(&format!("lost{n}")).unwrap();
        let made = rig.fakes.clock.now();
        let view = SliceView {
            state: SliceState::Ready,
            ended: false,
            health: Health::Healthy,
            addresses: vec![vec!["10.9.9.9".into()]].into(),
            labels: names::labels(&id, &job, 1, "0123"),
            created_at: None,
            error: None,
            note: None,
            made: Vec::new(),
        };
        let name = names::generation_name(&id, &job, 1);
        rig.fakes.tpu.insert(Listed {
            slice: SliceRef { zone: "us-central1-a".into(), name, via: Via::Node },
            accelerator: "v5litepod-4".into(),
            preemptible: true,
            reserved: false,
            view,
            owned_by: None,
            created_at: Some(made),
        });
    }
    let log = Log::default();
    let _guard = log.listen();
    // Within the grace period nothing is judged.
    for _ in 0..20 {
        tick(&rig).await;
        rig.advance(60);
    }
    assert_eq!(said(&log, "too many orphans at once; none is deleted"), 1);
    for _ in 0..30 {
        tick(&rig).await;
        rig.advance(60);
    }
    assert_eq!(said(&log, "too many orphans"), 0);
    for _ in 0..60 {
        tick(&rig).await;
        rig.advance(60);
    }
    assert_eq!(said(&log, "too many orphans"), 1);
}
