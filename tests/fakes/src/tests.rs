//! The fakes do what their names say.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rekindle_core::ids::JobId;
use rekindle_core::job::{Placement, Via};
use rekindle_core::observation::{CreateError, CreateErrorKind, SliceLabels, SliceState};
use rekindle_core::spec::CapacityKind;
use rekindle_ports::docs::{Content, Docs, DocsError, Precondition, Revision, Write};
use rekindle_ports::tpu::{CreateRequest, SliceRef, TpuApi, TpuError};
use rekindle_ports::world::{Clock, Hint, Ids};

use super::*;

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn put(path: &str, n: i64, when: Precondition) -> Write {
    Write::Put {
        path: path.into(),
        content: Content { body: serde_json::json!(n).into(), index: BTreeMap::new().into() },
        when,
    }
}

#[tokio::test]
async fn each_fault_of_a_commit_writes_what_it_says() {
    let docs = MemoryDocs::new();
    for (fault, written) in [
        (CommitFault::Unavailable, false),
        (CommitFault::Full, false),
        (CommitFault::UnclearBefore, false),
        (CommitFault::Conflict, false),
        (CommitFault::UnclearAfter, true),
    ] {
        docs.fail_commit(fault);
        let said = docs.commit(vec![put("jobs/a", 1, Precondition::Absent)]).await.unwrap_err();
        let expected = match said {
            DocsError::Unavailable(_) => vec![CommitFault::Unavailable],
            DocsError::Conflict { .. } => vec![CommitFault::Conflict],
            DocsError::Unclear(_) => vec![CommitFault::UnclearBefore, CommitFault::UnclearAfter],
            DocsError::Full(_) => vec![CommitFault::Full],
            DocsError::Refused(_) => vec![],
        };
        assert!(expected.contains(&fault), "{fault:?}");
        assert_eq!(docs.get("jobs/a").await.unwrap().is_some(), written, "{fault:?}");
    }
    // The fault is used up.
    docs.commit(vec![put("jobs/b", 1, Precondition::Absent)]).await.unwrap();
}

#[tokio::test]
async fn a_race_is_written_just_before_the_next_commit() {
    let docs = MemoryDocs::new();
    let at = docs.commit(vec![put("jobs/a", 1, Precondition::Absent)]).await.unwrap();
    docs.race(vec![put("jobs/a", 2, Precondition::None)]);
    let said = docs.commit(vec![put("jobs/a", 3, Precondition::At(at))]).await;
    assert!(matches!(said, Err(DocsError::Conflict { path }) if path == "jobs/a"));
    assert_eq!(docs.get("jobs/a").await.unwrap().unwrap().content.body.as_u64(), Some(2));
    assert_eq!(docs.commits(), 2);
}

#[tokio::test]
async fn reads_fail_while_told_and_revisions_follow_the_clock() {
    let fakes = Fakes::new(start(), 1);
    fakes.docs.fail_reads(1);
    assert!(matches!(fakes.docs.get("jobs/a").await, Err(DocsError::Unavailable(_))));
    assert!(fakes.docs.get("jobs/a").await.unwrap().is_none());
    let first = fakes.docs.commit(vec![put("jobs/a", 1, Precondition::None)]).await.unwrap();
    assert_eq!(first, Revision(start().as_microsecond()));
    // The clock stands, or steps back: revisions grow all the same.
    fakes.clock.advance(SignedDuration::from_secs(-5));
    let second = fakes.docs.commit(vec![put("jobs/a", 1, Precondition::None)]).await.unwrap();
    assert_eq!(second, Revision(first.0 + 1));
    fakes.docs.set_down(true);
    assert!(fakes.docs.commit(vec![put("jobs/a", 1, Precondition::None)]).await.is_err());
    assert_eq!(fakes.docs.dump().len(), 1);
}

fn request(name: &str) -> CreateRequest {
    CreateRequest {
        name: name.into(),
        placement: Placement {
            accelerator: "v5litepod-16".into(),
            zone: "us-west4-a".into(),
            capacity: CapacityKind::Spot,
        },
        via: Via::Node,
        slices: 1,
        runtime_version: "v2-alpha-tpuv5-lite".into(),
        topology: None,
        reservation: None,
        network: "default".into(),
        subnetwork: None,
        external_ips: false,
        service_account: None,
        tags: Vec::new(),
        labels: SliceLabels { job: "a".into(), ..SliceLabels::default() },
        extra_labels: BTreeMap::new(),
        metadata: BTreeMap::new(),
        request_id: "r".into(),
    }
}

fn slice(name: &str) -> SliceRef {
    SliceRef { zone: "us-west4-a".into(), name: name.into(), via: Via::Node }
}

#[tokio::test]
async fn a_slice_lives_as_the_test_says() {
    let tpu = FakeTpu::new(Arc::new(FakeClock::new(start())));
    let operation = tpu.create(&request("a")).await.unwrap();
    assert!(!tpu.operation(&operation).await.unwrap().unwrap().done);
    assert_eq!(tpu.create(&request("a")).await, Err(TpuError::Exists));
    assert!(tpu.finish("a") && !tpu.finish("b"));
    let seen = tpu.get(&slice("a")).await.unwrap().unwrap();
    assert_eq!((seen.state, seen.addresses[0].len()), (SliceState::Ready, 4));
    assert!(tpu.operation(&operation).await.unwrap().unwrap().done);
    assert!(tpu.set_state("a", SliceState::Preempted));
    assert_eq!(tpu.list().await.unwrap().resources[0].view.state, SliceState::Preempted);
    let operation = tpu.delete(&slice("a")).await.unwrap();
    assert_eq!(tpu.get(&slice("a")).await.unwrap().unwrap().state, SliceState::Deleting);
    assert!(tpu.vanish("a"));
    assert_eq!(tpu.get(&slice("a")).await.unwrap(), None);
    assert!(tpu.operation(&operation).await.unwrap().unwrap().done);
    assert_eq!(tpu.delete(&slice("a")).await, Err(TpuError::NotFound));
    tpu.forget_operation(&operation);
    assert_eq!(tpu.operation(&operation).await.unwrap(), None);
    assert_eq!(tpu.calls().iter().filter(|c| matches!(c, Call::Create(_))).count(), 2);
}

#[tokio::test]
async fn scripts_fail_before_or_after_the_effect_or_in_the_operation() {
    let tpu = FakeTpu::new(Arc::new(FakeClock::new(start())));
    let unclear = TpuError::Unclear("503".into());
    let stockout = CreateError { kind: CreateErrorKind::Stockout, message: "no capacity".into() };
    tpu.script_create(Script::Before(unclear.clone()));
    tpu.script_create(Script::After(unclear.clone()));
    tpu.script_create(Script::Operation(stockout.clone()));
    assert_eq!(tpu.create(&request("a")).await, Err(unclear.clone()));
    assert!(tpu.slices().is_empty());
    assert_eq!(tpu.create(&request("a")).await, Err(unclear.clone()));
    assert_eq!(tpu.slices().len(), 1);
    let operation = tpu.create(&request("b")).await.unwrap();
    let seen = tpu.operation(&operation).await.unwrap().unwrap();
    assert_eq!((seen.done, seen.error), (true, Some(stockout)));
    assert_eq!(tpu.slices().len(), 1);
    tpu.script_delete(Script::After(unclear.clone()));
    assert_eq!(tpu.delete(&slice("a")).await, Err(unclear.clone()));
    assert_eq!(tpu.get(&slice("a")).await.unwrap().unwrap().state, SliceState::Deleting);
    tpu.script_get(Script::Before(unclear.clone()));
    assert_eq!(tpu.get(&slice("a")).await, Err(unclear.clone()));
    tpu.set_unreachable(vec!["us-west4-a".into()]);
    let listed = tpu.list().await.unwrap();
    assert!(listed.resources.is_empty() && listed.unreachable == ["us-west4-a"]);
}

#[tokio::test]
async fn small_parts_keep_what_they_are_given() {
    let fakes = Fakes::new(start(), 7);
    let ports = fakes.ports();
    let hint = Hint { job: JobId::parse("a").unwrap(), after: None, news: None, cause: "c".into(), traceparent: None };
    fakes.hints.fail_before(1);
    assert!(ports.hints.publish(&hint).await.is_err());
    fakes.hints.fail_after(1);
    assert!(ports.hints.publish(&hint).await.is_err());
    assert_eq!(fakes.hints.take(), std::slice::from_ref(&hint));
    for (seconds, key) in [(9, "late"), (1, "soon"), (5, "soon")] {
        let at = start() + SignedDuration::from_secs(seconds);
        ports.wakeups.schedule(&hint.job, at, key).await.unwrap();
    }
    let due = fakes.wakeups.due(start() + SignedDuration::from_secs(2));
    assert_eq!(due.iter().map(|w| w.key.as_str()).collect::<Vec<_>>(), ["soon"]);
    assert_eq!(fakes.wakeups.all().len(), 1);
    // The same seed gives the same numbers, another one others.
    assert_eq!(ports.ids.random(), FakeIds::new(7).random());
    assert_ne!(FakeIds::new(7).random(), FakeIds::new(8).random());
    assert_eq!(fakes.clock.now(), start());
}
