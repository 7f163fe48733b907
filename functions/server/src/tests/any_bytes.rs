//! Any bytes at any path: 2xx or 4xx, and nothing changes unless they are valid.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestRunner};

use rekindle_core::spec::ParseContext;
use rekindle_fn_jobs::Name;
use rekindle_fn_notify::Sender;
use rekindle_ports::docs::Doc;
use rekindle_ports::world::Objects as _;
use rekindle_rig::{Rig, raw, send};
use rekindle_web::caller::Loopback;

use super::*;

/// The tick takes no body for a word: it does what is due, whatever it is sent.
const TICK: &str = "/functions/tick";
/// They take no body either: whoever may say so has said it.
const FREEZES: [&str; 2] = ["/v1/freeze", "/v1/thaw"];

/// Methods and paths of every route that takes a body, each with names in its open parts that may be there.
fn bodies() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for function in ["api", "jobs", "notify", "reconcile", "tick", "tpu_events"] {
        let file = format!("{}/../{function}/src/lib.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(file).unwrap();
        for route in source.split(".route(\"").skip(1) {
            let (path, rest) = route.split_once('"').unwrap();
            let handlers = rest.lines().next().unwrap();
            for method in ["post", "put", "patch", "delete"] {
                // Objects are served here only where no bucket is.
                if handlers.contains(&format!("{method}(")) && !path.starts_with("/objects/") {
                    found.push((method.to_uppercase(), named(path)));
                }
            }
        }
    }
    found
}

/// A path with its open parts filled.
fn named(path: &str) -> String {
    let digest = "0123456789abcdef".repeat(4);
    let mut path = path.to_owned();
    for (part, name) in [
        ("{id}", "x"),
        ("{job}", "x"),
        ("{command}", "cancel"),
        ("{sha256}", digest.as_str()),
        ("{attempt}", "1"),
        ("{order}", "1"),
        ("{worker}", "0-0"),
        ("{stream}", "stdout"),
        ("{number}", "0"),
    ] {
        path = path.replace(part, name);
    }
    assert!(!path.contains('{'), "what is in {path}?");
    let is_chunk = path.starts_with("/agent/") && path.contains("/0-0/");
    if is_chunk { path + "?generation=1&instance=i" } else { path }
}

#[test]
fn every_route_with_a_body_is_asked() {
    let all = bodies();
    let has = |method: &str, path: &str| all.iter().any(|(m, p)| m == method && p.starts_with(path));
    for (method, path) in [
        ("POST", "/functions/jobs"),
        ("POST", TICK),
        ("PATCH", "/v1/jobs/x"),
        ("POST", FREEZES[0]),
        ("POST", "/agent/v1/ping"),
        ("PUT", "/agent/v1/exec/x/1/0-0/stdout/0?generation=1"),
    ] {
        assert!(has(method, path), "{method} {path}: {all:?}");
    }
    assert!(all.len() >= 18, "{all:?}");
}

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

/// What there is, by what may change it.
#[derive(Debug, PartialEq)]
struct World {
    /// Documents, but for the next two.
    docs: Vec<Doc>,
    /// Records of unusable messages, each beside its letter in the dead-letter topic.
    dead: (Vec<Doc>, usize),
    /// Accounts of calls and ticks, and what a tick found.
    meta: Vec<Doc>,
    hints: usize,
    objects: Vec<String>,
}

async fn world(rig: &Rig) -> World {
    let (dead, rest): (Vec<_>, Vec<_>) =
        rig.fakes.docs.dump().into_iter().partition(|doc| doc.path.starts_with("dead/"));
    let (meta, docs) = rest.into_iter().partition(|doc| doc.path.starts_with("meta/"));
    let dead = (dead, rig.dead_reasons().len());
    let objects = rig.fakes.objects.list("", None, usize::MAX).await.unwrap();
    World { docs, dead, meta, hints: rig.fakes.hints.all().len(), objects }
}

/// Whether an answer may have brought the world from `before` to `after`.
fn may_change(path: &str, status: u16, is_job: bool, before: &World, after: &World) -> bool {
    // A spoiled job may still be one, and is then made.
    let jobs =
        |world: &World| world.docs.iter().filter(|doc| doc.path.starts_with("jobs/")).cloned().collect::<Vec<_>>();
    let same_jobs = match path {
        // It grants permits and publishes what is due.
        TICK => jobs(before) == jobs(after),
        // It wakes those that waited for it.
        path if FREEZES.contains(&path) => jobs(before) == jobs(after),
        _ => (&before.docs, before.hints) == (&after.docs, after.hints),
    };
    let same_meta = before.meta == after.meta || path == TICK || path.starts_with("/agent/") || FREEZES.contains(&path);
    // What is acknowledged and unusable is recorded, once over all redeliveries, and forwarded; what is refused is neither.
    let is_recorded = status == 204 && path.starts_with("/functions/") && path != TICK;
    let records = after.dead.0.len() - before.dead.0.len();
    let same_dead = before.dead == after.dead || (is_recorded && records <= 1 && after.dead.1 == before.dead.1 + 1);
    (is_job || same_jobs) && same_meta && same_dead && before.objects == after.objects
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
    let all = (prop::sample::select(bodies()), prop::sample::select(&TYPES), bytes);
    let mut answers = std::collections::BTreeMap::<u16, u32>::new();
    let tally = std::cell::RefCell::new(&mut answers);
    let mut runner = TestRunner::new(Cases { cases: 2000, failure_persistence: None, ..Cases::default() });
    let done = runner.run(&all, |((method, path), content_type, body)| {
        let before = runtime.block_on(world(&rig));
        let path = path.as_str();
        let mut request = raw(path, content_type, body.clone());
        *request.method_mut() = method.parse().unwrap();
        let answer = runtime.block_on(send(&router, request));
        let status = answer.status.as_u16();
        *tally.borrow_mut().entry(status).or_default() += 1;
        prop_assert!((200..300).contains(&status) || (400..500).contains(&status), "{path}: {status}");
        let after = runtime.block_on(world(&rig));
        let is_job = status < 300 && matches!(path, "/functions/jobs" | "/v1/jobs") && is_job(&body);
        prop_assert!(may_change(path, status, is_job, &before, &after), "{path}: {status} changed something");
        Ok(())
    });
    done.unwrap();
    assert!(answers.len() >= 3 && answers[&204] > 10 && answers[&400] > 100, "{answers:?}");
}
