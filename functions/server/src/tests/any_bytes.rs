//! Any bytes at any path: 2xx or 4xx, and nothing changes unless they are valid.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use rekindle_core::spec::ParseContext;
use rekindle_fn_jobs::Name;
use rekindle_fn_notify::Sender;
use rekindle_ports::docs::Doc;
use rekindle_rig::{Rig, raw, send};
use rekindle_web::caller::Loopback;

use super::*;

/// Paths that take a body, but the tick's, which takes none for a word.
const BODIES: [&str; 8] = [
    "/functions/jobs",
    "/functions/tpu-events",
    "/functions/notify",
    "/functions/reconcile",
    "/v1/jobs",
    "/v1/jobs/x/cancel",
    "/agent/v1/hello",
    "/agent/v1/report",
];
const TYPES: [&str; 7] = [
    "application/json",
    "application/cloudevents+json",
    "application/cloudevents-batch+json",
    "application/octet-stream",
    "application/x-www-form-urlencoded",
    "text/plain",
    "",
];

/// A valid push, of which some bytes are replaced, some are cut off.
fn spoiled() -> impl Strategy<Value = Vec<u8>> {
    let event = include_str!("../../../../tests/samples/tpu/logsink-pubsub-push-preempted.json");
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    let job = rekindle_rig::spec("any");
    let bodies = [event["body"].to_string(), job.to_string(), r#"{"message": {"data": "e30="}}"#.to_owned()];
    let spoil = (0..bodies.len(), vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), any::<prop::sample::Index>());
    spoil.prop_map(move |(body, bytes, end)| {
        let mut body = bodies[body].clone().into_bytes();
        for (at, byte) in bytes {
            let at = at.index(body.len());
            body[at] = byte;
        }
        let rest = end.index(4 * body.len());
        body.truncate(rest.max(1));
        body
    })
}

/// What is stored, but records of unusable messages and of the call itself.
fn kept(rig: &Rig) -> Vec<Doc> {
    let passing = |doc: &Doc| doc.path.starts_with("dead/") || doc.path.starts_with("meta/");
    rig.fakes.docs.dump().into_iter().filter(|doc| !passing(doc)).collect()
}

/// Whether these bytes are a job.
fn is_job(body: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else { return false };
    let deployment = rekindle_rig::deployment();
    let context = ParseContext { deployment: &deployment, caller: rekindle_rig::CALLER, caller_is_admin: true };
    rekindle_core::spec::parse(&value, &context).is_ok()
}

#[test]
fn any_bytes_at_any_path_get_a_2xx_or_4xx_and_change_nothing_unless_they_are_valid() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rig = runtime.block_on(Rig::new());
    let parts = Parts {
        engine: rig.engine.clone(),
        verifier: Arc::new(Loopback { identity: rekindle_rig::CALLER.into() }),
        sender: Arc::new(Sender::new(false)),
        messages_may: Name::ALL.into_iter().collect(),
        uploads: None,
    };
    let router = routers(Role::All, parts);
    let bytes =
        prop_oneof![vec(any::<u8>(), 0..300), "[{\\[\"a-z:,0-9}\\]]{0,60}".prop_map(String::into_bytes), spoiled()];
    let all = (prop::sample::select(&BODIES), prop::sample::select(&TYPES), bytes);
    let mut answers = std::collections::BTreeMap::<u16, u32>::new();
    let tally = std::cell::RefCell::new(&mut answers);
    let mut runner = TestRunner::new(Cases { cases: 2000, failure_persistence: None, ..Cases::default() });
    let done = runner.run(&all, |(path, content_type, body)| {
        let before = kept(&rig);
        let answer = runtime.block_on(send(&router, raw(path, content_type, body.clone())));
        let status = answer.status.as_u16();
        *tally.borrow_mut().entry(status).or_default() += 1;
        prop_assert!((200..300).contains(&status) || (400..500).contains(&status), "{path}: {status}");
        // A spoiled job may still be one, and is then made.
        let after = kept(&rig);
        let is_job = status < 300 && matches!(path, "/functions/jobs" | "/v1/jobs") && is_job(&body);
        prop_assert!(is_job || after == before, "{path}: {status} changed something");
        Ok(())
    });
    done.unwrap();
    assert!(answers.len() >= 3 && answers[&204] > 10 && answers[&400] > 100, "{answers:?}");
}
