//! Documents as versions wrote them: those of this shape and of the one before are read by this version, and what a later one adds is passed over, so that an
//! upgrade can be taken back.

use std::sync::Arc;

use serde_json::{Value, json};

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Phase;
use rekindle_core::observation::{Notice, NoticeKind, WorkerState};
use rekindle_ports::docs::{Content, Docs as _, Index, Precondition, Write};
use rekindle_ports::kinds::{Kind, SCHEMA};
use rekindle_ports::store::{DeadDoc, InstanceDoc};
use rekindle_ports::world::Clock as _;
use rekindle_rig::Rig;

use super::Served;
use super::agents::running;

/// What the first version with that shape left in the store in the middle of a preemption. Written once, never changed.
fn sample(schema: u32) -> String {
    format!("{}/../../tests/samples/documents/v{schema}.json", env!("CARGO_MANIFEST_DIR"))
}

/// The documents of a job whose four workers run and have just been told that their slice goes.
async fn middle_of_a_preemption() -> Vec<Value> {
    let served = Served::with_job().await;
    let mut agents = running(&served).await;
    let seen_at = served.rig.fakes.clock.now();
    for agent in &mut agents {
        let mut report = agent.report(WorkerState::Running);
        report.progress.step = Some(120);
        report.progress.checkpoint = Some(100);
        let deadline = seen_at + jiff::SignedDuration::from_secs(30);
        report.notice = Some(Notice { kind: NoticeKind::Preemption, seen_at, deadline });
        agent.send(&report).await;
    }
    served.rig.pass("train").await;
    served.post("/v1/freeze", &json!({})).await;
    let now = served.rig.fakes.clock.now();
    Box::pin(served.rig.engine.tick(now)).await.unwrap();
    let dead = DeadDoc {
        job: None,
        key: "1".into(),
        source: "jobs/pubsub".into(),
        reason: "no job".into(),
        at: now,
        excerpt: "x".into(),
        tried_until: None,
    };
    served.rig.fakes.store().write(&Kind::Dead("1".into()), &dead, Precondition::Absent).await.unwrap();
    let docs = served.rig.fakes.docs.dump();
    docs.into_iter().map(|doc| json!({"path": doc.path, "body": &*doc.content.body})).collect()
}

/// A system over these documents.
async fn over(docs: &[Value]) -> Served {
    let rig = Rig::new().await;
    for doc in docs {
        let content = Content { body: doc["body"].clone().into(), index: Arc::new(Index::new()) };
        let path = doc["path"].as_str().unwrap().to_owned();
        rig.fakes.docs.commit(vec![Write::Put { path, content, when: Precondition::None }]).await.unwrap();
    }
    Served::over(rig, crate::SILENCE_MAX)
}

/// Reads and works with all of them.
async fn is_understood(docs: &[Value]) {
    let served = over(docs).await;
    for path in ["/v1/jobs/train", "/v1/jobs/train/history", "/v1/jobs/train/explain", "/ready"] {
        let answer = served.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    }
    let store = served.rig.fakes.store();
    let train = JobId::parse("train").unwrap();
    let keys: Vec<(u32, WorkerKey)> = (0..4).map(|worker| (1, WorkerKey { slice: 0, worker })).collect();
    let (workers, _) = store.workers(&train, &keys).await.unwrap();
    assert!(workers.len() == 4 && workers.iter().all(|at| at.value.notice.is_some()), "{workers:?}");
    let instance: Option<_> = store.read::<InstanceDoc>(&Kind::Instance("t1v-n-1-w-2".into())).await.unwrap();
    assert_eq!(instance.unwrap().value.job, train);
    assert_eq!(store.read::<DeadDoc>(&Kind::Dead("1".into())).await.unwrap().unwrap().value.reason, "no job");

    let before = served.rig.job("train").await.unwrap();
    assert_eq!((before.last_generation, before.counters.preemptions), (2, 1));
    served.rig.pass("train").await;
    let now = served.rig.fakes.clock.now();
    Box::pin(served.rig.engine.tick(now)).await.unwrap();
    served.post("/v1/jobs/train/cancel", &json!({})).await;
    for _ in 0..40 {
        served.rig.pass("train").await;
        served.rig.advance(60);
    }
    assert_eq!(served.rig.job("train").await.unwrap().phase, Phase::Cancelled, "and it goes on to its end");
}

#[tokio::test]
async fn documents_of_this_shape_and_of_the_one_before_are_read() {
    if std::env::var_os("REKINDLE_WRITE_SAMPLES").is_some() {
        let lines: Vec<String> = middle_of_a_preemption().await.iter().map(Value::to_string).collect();
        std::fs::write(sample(SCHEMA), format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
    }
    for schema in (1..=SCHEMA).rev().take(2) {
        let text =
            std::fs::read_to_string(sample(schema)).unwrap_or_else(|error| panic!("{}: {error}", sample(schema)));
        let docs: Vec<Value> = serde_json::from_str(&text).unwrap();
        assert!(docs.iter().all(|doc| doc["body"]["schema"] == schema), "each document of {} says so", sample(schema));
        let kinds = ["meta/installation", "meta/freeze", "meta/fleet", "jobs/train", "instances/", "limits/", "dead/"];
        for kind in kinds {
            assert!(docs.iter().any(|doc| doc["path"].as_str().unwrap().starts_with(kind)), "none of {kind}");
        }
        is_understood(&docs).await;
    }
    // What is said of upgrades: no shape was ever before the first.
    let page = include_str!("../../../../infra/runbooks/upgrade.md");
    assert_eq!(page.contains("There has been one shape so far"), SCHEMA == 1, "infra/runbooks/upgrade.md");
}

#[tokio::test]
async fn what_a_later_version_added_is_passed_over() {
    let mut docs = middle_of_a_preemption().await;
    for doc in &mut docs {
        let data = doc["body"]["data"].as_object_mut().unwrap();
        data.insert("of_a_later_version".into(), json!({"deep": [1]}));
        for name in ["spec", "counters", "progress", "key"] {
            if let Some(part) = data.get_mut(name).and_then(Value::as_object_mut) {
                part.insert("of_a_later_version".into(), json!(true));
            }
        }
    }
    is_understood(&docs).await;
}
