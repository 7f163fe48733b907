//! What the tick keeps of the fleet: whether a TPU is idle. And how the workers of a workspace hear of orders.

use jiff::SignedDuration;
use serde_json::json;

use rekindle_core::decide::Command;
use rekindle_core::exec::ExecAction;
use rekindle_core::idle::IdleCause;
use rekindle_core::job::Phase;
use rekindle_core::spec::CommandLine;
use rekindle_ports::world::Hint;

use super::rig::Rig;
use crate::Commanded;

/// Why the only TPU is idle, and for how many seconds: by the tick's list, and by one that is asked for now.
async fn idle(rig: &Rig) -> Option<(IdleCause, i64)> {
    Box::pin(rig.engine.tick(rig.now())).await.unwrap();
    let kept = rig.engine.fleet_seen().await.unwrap().unwrap().entries;
    let (asked, _) = rig.engine.fleet().await.unwrap();
    assert_eq!((kept.len(), &kept), (1, &asked), "both tell the same");
    kept[0].idle.map(|idle| (idle.cause, rig.now().duration_since(idle.since).as_secs()))
}

#[tokio::test]
async fn a_tpu_is_idle_before_and_after_the_program_and_not_while_it_runs() {
    let mut rig = Rig::new().await;
    rig.dead_slices.insert((1, 0));
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Starting, 70).await;
    rig.seconds(30).await;
    let (cause, secs) = idle(&rig).await.unwrap();
    assert!(cause == IdleCause::Starting && (28..=32).contains(&secs), "{cause:?} for {secs} s");
    rig.dead_slices.clear();
    rig.until_phase(Phase::Running, 30).await;
    assert_eq!(idle(&rig).await, None);

    rig.delete_secs = 60;
    rig.command(Command::Cancel, "stop").await;
    rig.until(60, "that it is given back", |job| job.generations.iter().any(|g| g.delete.is_some())).await;
    rig.seconds(20).await;
    let (cause, secs) = idle(&rig).await.unwrap();
    assert!(cause == IdleCause::HandedBack && (18..=24).contains(&secs), "{cause:?} for {secs} s");
}

#[tokio::test]
async fn a_workspace_is_idle_when_nobody_has_used_it_for_ten_minutes() {
    let mut rig = Rig::new().await;
    rig.submit(json!({"run": null, "workspace": true})).await;
    rig.until_phase(Phase::Running, 90).await;
    rig.seconds(500).await;
    assert_eq!(idle(&rig).await, None);
    rig.seconds(140).await;
    let (cause, secs) = idle(&rig).await.unwrap();
    assert!(cause == IdleCause::Unused && (600..660).contains(&secs), "{cause:?} for {secs} s");
}

#[tokio::test]
async fn an_order_to_a_workspace_rings_its_workers_for_a_while() {
    let mut rig = Rig::new().await;
    let id = rig.submit(json!({"run": null, "workspace": true})).await;
    rig.until_phase(Phase::Running, 90).await;
    rig.seconds(500).await;
    let pass = Hint { job: id.clone(), after: None, news: None, cause: "exec".into(), traceparent: None };
    rig.engine.pass_for(&pass).await.unwrap();
    rig.fakes.bells.take();
    rig.engine.pass_for(&pass).await.unwrap();
    assert!(rig.fakes.bells.take().is_empty(), "nobody has ordered anything");
    let action = ExecAction::Run(CommandLine::Shell("nproc".into()));
    let given = rig.engine.exec(&id, None, &action, "user:test", "k").await.unwrap();
    assert!(matches!(given, Commanded::Accepted(_)), "{given:?}");
    rig.engine.pass_for(&pass).await.unwrap();
    let rung = rig.fakes.bells.take();
    let workers: Vec<String> = rig.job().await.generations[0].addresses.iter().flatten().cloned().collect();
    assert!(!workers.is_empty() && rung == workers, "{rung:?} of {workers:?}");
    rig.fakes.clock.advance(SignedDuration::from_secs(60));
    rig.engine.pass_for(&pass).await.unwrap();
    assert_eq!(rig.fakes.bells.take(), workers, "the first pass may be that of the next tick");
    rig.fakes.clock.advance(SignedDuration::from_secs(30));
    rig.engine.pass_for(&pass).await.unwrap();
    assert!(rig.fakes.bells.take().is_empty(), "it is known by then");
}
