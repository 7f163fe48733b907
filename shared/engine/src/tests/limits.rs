//! `max_chips` and `max_usd_per_day`, of the deployment, of an owner and of an entry of the capacity list, over all jobs.

use std::sync::Arc;

use serde_json::json;

use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, Phase};
use rekindle_core::observation::{CreateError, CreateErrorKind, SliceState};
use rekindle_core::reason::Reason;
use rekindle_core::settings::{Deployment, Limits};
use rekindle_core::spec::{self, ParseContext};
use rekindle_fakes::{Call, Script};
use rekindle_ports::tpu::TpuError;

use super::rig::Rig;

async fn rig(change: impl FnOnce(&mut Deployment)) -> Rig {
    let mut rig = Rig::new().await;
    let mut deployment = Deployment::clone(&rig.engine.deployment);
    change(&mut deployment);
    rig.engine.deployment = Arc::new(deployment);
    rig
}

/// A job of 16 chips of that owner, with one pass.
async fn another(rig: &Rig, id: &str, owner: &str, accelerator: &str) -> Arc<Job> {
    let value = json!({"id": id, "owner": owner, "run": ["x"], "tpu": {"accelerator": accelerator}});
    let context = ParseContext { deployment: &rig.engine.deployment, caller: owner, caller_is_admin: true };
    let submit = spec::parse(&value, &context).unwrap();
    rig.engine.submit(submit, owner, id).await.unwrap();
    pass(rig, id).await
}

async fn pass(rig: &Rig, id: &str) -> Arc<Job> {
    let id = JobId::parse(id).unwrap();
    rig.engine.pass(&id, "test", None).await.unwrap();
    rig.fakes.store().job(&id).await.unwrap().unwrap().value
}

fn places(rig: &Rig) -> Vec<String> {
    let calls = rig.fakes.tpu.calls();
    let creates = calls.iter().filter_map(|call| match call {
        Call::Create(request) => Some(rekindle_core::placement::describe(&request.placement)),
        Call::Delete(_) | Call::Get(_) | Call::Operation(_) | Call::List => None,
    });
    creates.collect()
}

#[tokio::test]
async fn the_chips_of_all_jobs_stay_below_the_deployments() {
    let mut rig = rig(|d| d.max_chips = Some(40)).await;
    another(&rig, "a", "ann@example.com", "v5litepod-16").await;
    another(&rig, "b", "bob@example.com", "v5litepod-16").await;
    rig.submit(json!({})).await;
    let job = pass(&rig, "train").await;
    assert_eq!((job.phase, job.reason, rig.creates()), (Phase::Pending, Reason::MaxChips, 2));
    assert!(rig.explain().await.contains("`max_chips` of the deployment"), "{}", rig.explain().await);
    assert!(rig.explain().await.contains("16 of the 40 chips"), "{}", rig.explain().await);
    assert!(job.wake_at.is_some_and(|at| at <= rig.now() + jiff::SignedDuration::from_secs(60)));
    // What fits goes.
    let small = another(&rig, "c", "ann@example.com", "v5litepod-8").await;
    assert_eq!((small.phase, rig.creates()), (Phase::Provisioning, 3));
    // Room comes when one is cancelled.
    for id in ["a", "c"] {
        let id = JobId::parse(id).unwrap();
        rig.engine.command(&id, rekindle_core::decide::Command::Cancel, "ann", "k", None).await.unwrap();
    }
    let job = rig.until_phase(Phase::Running, 300).await;
    assert_eq!(job.last_generation, 1);
}

#[tokio::test]
async fn an_owner_has_limits_of_their_own() {
    let limits = |max_chips| Limits { max_chips, max_usd_per_day: None };
    let rig = rig(|d| {
        d.owners.insert("bob@example.com".into(), limits(Some(16)));
        d.owners.insert("eve@example.com".into(), Limits { max_chips: None, max_usd_per_day: Some(1.0) });
    })
    .await;
    assert_eq!(another(&rig, "b1", "bob@example.com", "v5litepod-16").await.phase, Phase::Provisioning);
    let second = another(&rig, "b2", "bob@example.com", "v5litepod-16").await;
    assert_eq!(second.reason, Reason::MaxChips);
    assert!(second.message.contains("owner bob@example.com"), "{}", second.message);
    assert_eq!(another(&rig, "a1", "ann@example.com", "v5litepod-16").await.phase, Phase::Provisioning);
    let poor = another(&rig, "e1", "eve@example.com", "v5litepod-16").await;
    assert_eq!(poor.reason, Reason::MaxUsd);
    assert!(poor.message.contains("`max_usd_per_day` of owner eve@example.com"), "{}", poor.message);
}

#[tokio::test]
async fn money_is_counted_for_the_candidate_that_is_asked_for() {
    // 16 chips cost 115.20 dollars a day here, and 11.52 at the second place.
    let rig = rig(|d| {
        d.max_usd_per_day = Some(120.0);
        let dear = d.capacity.remove(0);
        d.capacity = vec![
            rekindle_core::settings::CapacityEntry { zone: "us-west4-a".into(), ..dear.clone() },
            rekindle_core::settings::CapacityEntry { zone: "us-central1-a".into(), usd_per_chip_hour: 0.03, ..dear },
        ];
    })
    .await;
    another(&rig, "a", "ann@example.com", "v5litepod-16").await;
    another(&rig, "b", "ann@example.com", "v5litepod-8").await;
    assert_eq!(places(&rig), ["spot v5litepod-16 in us-west4-a"], "the second would pass the limit at either place");
    let rig = self::rig(|d| {
        d.clone_from(&rig.engine.deployment);
        d.max_usd_per_day = Some(127.0);
    })
    .await;
    another(&rig, "a", "ann@example.com", "v5litepod-16").await;
    let cheap = another(&rig, "b", "ann@example.com", "v5litepod-16").await;
    assert_eq!(places(&rig), ["spot v5litepod-16 in us-west4-a", "spot v5litepod-16 in us-central1-a"]);
    assert_eq!(cheap.generations[0].usd_micros_per_hour, 480_000);
    assert_eq!(another(&rig, "c", "ann@example.com", "v5litepod-16").await.reason, Reason::MaxUsd);
}

#[tokio::test]
async fn the_chips_of_an_entry_are_those_of_all_jobs_and_the_next_entry_takes_over() {
    let rig = rig(|d| {
        let any = d.capacity.remove(0);
        let granted = rekindle_core::settings::CapacityEntry {
            zone: "us-west4-a".into(),
            max_chips: Some(32),
            usd_per_chip_hour: 0.0,
            ..any.clone()
        };
        let paid = rekindle_core::settings::CapacityEntry { zone: "us-west4-a".into(), max_chips: Some(16), ..any };
        d.capacity = vec![granted, paid];
    })
    .await;
    let mut prices = Vec::new();
    for id in ["a", "b", "c"] {
        prices.push(another(&rig, id, "ann@example.com", "v5litepod-16").await.generations[0].usd_micros_per_hour);
    }
    assert_eq!(prices, [0, 0, 4_800_000]);
    let last = another(&rig, "d", "ann@example.com", "v5litepod-16").await;
    assert_eq!((last.phase, last.reason), (Phase::Pending, Reason::MaxChips));
    assert!(last.message.contains("the capacity entry"), "{}", last.message);
    // A tick's count says the same as the creates did.
    rig.engine.tick(rig.now()).await.unwrap();
    assert_eq!(pass(&rig, "d").await.reason, Reason::MaxChips);
}

#[tokio::test]
async fn a_lost_slice_makes_room_for_the_one_in_its_place_before_any_tick_counts() {
    let mut rig = rig(|d| d.max_chips = Some(16)).await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.ticks = false;
    rig.power_off(1);
    rig.fakes.tpu.set_state(&Rig::name(1), SliceState::Preempted);
    pass(&rig, "train").await;
    assert_eq!(rig.creates(), 2, "{}", rig.job().await.message);
    // The count is right afterwards: nobody else fits, and a tick agrees.
    assert_eq!(another(&rig, "b", "ann@example.com", "v5litepod-8").await.reason, Reason::MaxChips);
    rig.engine.tick(rig.now()).await.unwrap();
    assert_eq!(pass(&rig, "b").await.reason, Reason::MaxChips);
}

#[tokio::test]
async fn with_room_for_one_the_next_create_follows_the_404_at_once() {
    let mut rig = rig(|d| d.max_chips = Some(16)).await;
    rig.submit(json!({})).await;
    rig.until_phase(Phase::Running, 70).await;
    rig.ticks = false;
    rig.notice(1, 30);
    rig.second().await;
    assert_eq!((rig.creates(), rig.job().await.reason), (1, Reason::MaxChips), "the saving slice still counts");
    let mut gone_at = None;
    while rig.creates() == 1 {
        rig.second().await;
        let is_there = rig.fakes.tpu.slices().iter().any(|l| l.slice.name == Rig::name(1));
        gone_at = gone_at.or((!is_there).then(|| rig.now()));
        assert!(gone_at.is_none_or(|at| rig.now().duration_since(at).as_secs() <= 1), "{}", rig.job().await.message);
    }
    assert!(gone_at.is_some(), "never more than the limit at once");
}

#[tokio::test]
async fn a_refused_create_uses_nothing_of_the_limits() {
    let mut rig = rig(|d| d.max_chips = Some(16)).await;
    for _ in 0..2 {
        let error = CreateError { kind: CreateErrorKind::Quota, message: "no".into() };
        rig.fakes.tpu.script_create(Script::Before(TpuError::Refused(error)));
    }
    rig.submit(json!({})).await;
    pass(&rig, "train").await;
    assert_eq!(rig.creates(), 3, "the third place is asked in the same pass: {}", rig.job().await.message);
    rig.until_phase(Phase::Running, 70).await;
    assert_eq!(another(&rig, "b", "ann@example.com", "v5litepod-8").await.reason, Reason::MaxChips);
}

#[tokio::test]
async fn many_at_once_never_pass_the_limit() {
    let rig = rig(|d| d.max_chips = Some(64)).await;
    let ids: Vec<String> = (0..12).map(|n| format!("j{n}")).collect();
    for id in &ids {
        let value = json!({"id": id, "run": ["x"], "tpu": {"accelerator": "v5litepod-16"}});
        let context = ParseContext { deployment: &rig.engine.deployment, caller: "ann", caller_is_admin: true };
        rig.engine.submit(spec::parse(&value, &context).unwrap(), "ann", id).await.unwrap();
    }
    let ids: Vec<JobId> = ids.iter().map(|id| JobId::parse(id).unwrap()).collect();
    futures::future::join_all(ids.iter().map(|id| rig.engine.pass(id, "test", None))).await;
    assert_eq!(rig.fakes.tpu.slices().len(), 4);
}

#[tokio::test]
async fn what_can_never_fit_says_so() {
    let rig = rig(|d| d.max_chips = Some(8)).await;
    let job = another(&rig, "a", "ann@example.com", "v5litepod-16").await;
    assert_eq!(job.reason, Reason::MaxChips);
    assert!(job.message.contains("until that is raised"), "{}", job.message);
}
