//! Any bytes at any path: 2xx or 4xx, and nothing changes unless they are valid.
//!
//! One answer is another: 503 to a command that came before its job, which is to come again ([`AWAITED`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use base64::Engine as _;
use http::HeaderMap;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::test_runner::{Config as Cases, TestCaseError, TestRunner};
use serde_json::json;
use tokio::runtime::Runtime;

use rekindle_core::spec::ParseContext;
use rekindle_fn_jobs::Name;
use rekindle_fn_notify::Sender;
use rekindle_ports::docs::Doc;
use rekindle_ports::world::Objects as _;
use rekindle_rig::{Rig, raw, send};
use rekindle_web::caller::Loopback;
use rekindle_wire::delivery::decode;

use super::*;

/// Where job messages go.
const JOBS: &str = "/functions/jobs";
/// The tick takes no body for a word: it does what is due, whatever it is sent.
const TICK: &str = "/functions/tick";
/// Pub/Sub keeps no order: a command for a job that is not there may have overtaken its submit, and comes again for ten minutes. A
/// sender of commands for jobs that never come gets 503 so long, and changes nothing.
const AWAITED: u16 = 503;
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

/// What a message may hold beside a job, and what names one that is not there.
const DATA: [&str; 5] = [r#"{"id": "any"}"#, r#"{"id": "any", "new_slice": true}"#, r#"{"id": 1}"#, "{}", ""];

/// A push of a message with attributes: known ones and others, with known values and others.
fn pushed() -> impl Strategy<Value = String> {
    let names = prop_oneof![
        4 => Just("command".to_owned()),
        2 => prop::sample::select(&["ce-type", "ce-id", "ce-specversion", "ce-source", "traceparent", ""]).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
    ];
    let commands = Name::ALL.map(Name::as_str).to_vec();
    let command = prop::option::of(prop::sample::select(commands.clone()));
    let values = prop_oneof![
        4 => prop::sample::select(commands).prop_map(str::to_owned),
        1 => prop::sample::select(&["", "CANCEL", "1.0", "job"]).prop_map(str::to_owned),
        1 => "\\PC{0,12}",
    ];
    let data = prop_oneof![
        1 => Just(rekindle_rig::spec("any").to_string()),
        2 => prop::sample::select(&DATA).prop_map(str::to_owned),
        2 => Just(r#"{"id": "nobody"}"#.to_owned()),
        1 => "\\PC{0,40}",
    ];
    let at = prop_oneof![Just("2026-11-20T10:00:00Z"), prop::sample::select(&["2026-11-20T09:00:00Z", "no time", ""])];
    (btree_map(names, values, 0..4), command, data, 0..40_u8, at).prop_map(|(mut attributes, command, data, id, at)| {
        attributes.extend(command.map(|name| ("command".to_owned(), name.to_owned())));
        let data = base64::engine::general_purpose::STANDARD.encode(data);
        json!({"message": {"data": data, "attributes": attributes, "messageId": id.to_string(), "publishTime": at}})
            .to_string()
    })
}

/// A valid push, of which some bytes are replaced, some are cut off.
fn spoiled() -> impl Strategy<Value = Vec<u8>> {
    let event = include_str!("../../../../tests/samples/tpu/logsink-pubsub-push-preempted.json");
    let event: serde_json::Value = serde_json::from_str(event).unwrap();
    let job = rekindle_rig::spec("any");
    let bodies = [event["body"].to_string(), job.to_string(), r#"{"message": {"data": "e30="}}"#.to_owned()];
    let bodies = prop_oneof![prop::sample::select(bodies.to_vec()), pushed()];
    let spoil = (bodies, vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), any::<prop::sample::Index>());
    spoil.prop_map(move |(body, bytes, end)| {
        let mut body = body.into_bytes();
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
fn may_change(path: &str, status: u16, is_valid: bool, before: &World, after: &World) -> bool {
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
    (is_valid || same_jobs) && same_meta && same_dead && before.objects == after.objects
}

/// Whether these bytes are a job.
fn is_job(body: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else { return false };
    let deployment = rekindle_rig::deployment();
    let context = ParseContext { deployment: &deployment, caller: rekindle_rig::CALLER, caller_is_admin: true };
    rekindle_core::spec::parse(&value, &context).is_ok()
}

/// What a body says to function `jobs`: whether it has a job that may be made, and the jobs that its commands name.
fn said(content_type: &str, body: &[u8]) -> (bool, Vec<String>) {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", content_type.parse().unwrap());
    let (mut has_job, mut named) = (false, Vec::new());
    for delivery in decode(&headers, body).unwrap_or_default() {
        let Ok(data) = &delivery.data else { continue };
        match delivery.attributes.get("command").map_or(Some(Name::Submit), |text| Name::parse(text)) {
            Some(Name::Submit) => has_job |= is_job(data),
            Some(_) => {
                let value: serde_json::Value = serde_json::from_slice(data).unwrap_or_default();
                named.extend(value["id"].as_str().map(str::to_owned));
            }
            None => {}
        }
    }
    (has_job, named)
}

/// All routes over one world, in which time stands still.
struct Asked {
    runtime: Runtime,
    rig: Rig,
    router: Router,
}

impl Asked {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let rig = runtime.block_on(Rig::new());
        let parts = Parts {
            engine: rig.engine.clone(),
            verifier: Arc::new(Loopback { identity: rekindle_rig::CALLER.into() }),
            sender: Arc::new(Sender::new(false)),
            messages_may: Name::ALL.into_iter().collect(),
            uploads: None,
        };
        Self { runtime, rig, router: routers(Role::All, parts) }
    }

    /// Sends a body and looks at what has become of it. The answer, and whether it may change jobs.
    fn ask(&self, method: &str, path: &str, content_type: &str, body: &[u8]) -> Result<(u16, bool), TestCaseError> {
        let before = self.runtime.block_on(world(&self.rig));
        let mut request = raw(path, content_type, body.to_vec());
        *request.method_mut() = method.parse().unwrap();
        let status = self.runtime.block_on(send(&self.router, request)).status.as_u16();
        let (has_job, named) = if path == JOBS { said(content_type, body) } else { (is_job(body), Vec::new()) };
        let is_there = |id: &String| before.docs.iter().any(|doc| doc.path == format!("jobs/{id}"));
        let is_awaited = status == AWAITED && named.iter().any(|id| !is_there(id));
        let is_right = (200..300).contains(&status) || (400..500).contains(&status);
        prop_assert!(is_right || is_awaited, "{path}: {status}");
        let after = self.runtime.block_on(world(&self.rig));
        let is_valid = match path {
            JOBS => status < 300 && (has_job || named.iter().any(is_there)),
            _ => status < 300 && has_job && path == "/v1/jobs",
        };
        prop_assert!(may_change(path, status, is_valid, &before, &after), "{path}: {status} changed something");
        Ok((status, is_valid))
    }
}

#[test]
fn any_bytes_at_any_path_get_a_2xx_or_4xx_and_change_nothing_unless_they_are_valid() {
    let asked = Asked::new();
    let bytes =
        prop_oneof![vec(any::<u8>(), 0..300), "[{\\[\"a-z:,0-9}\\]]{0,60}".prop_map(String::into_bytes), spoiled()];
    let all = (prop::sample::select(bodies()), prop::sample::select(&TYPES), bytes);
    let mut answers = BTreeMap::<u16, u32>::new();
    let tally = std::cell::RefCell::new(&mut answers);
    let mut runner = TestRunner::new(Cases { cases: 2000, failure_persistence: None, ..Cases::default() });
    let done = runner.run(&all, |((method, path), content_type, body)| {
        let (status, _) = asked.ask(&method, &path, content_type, &body)?;
        *tally.borrow_mut().entry(status).or_default() += 1;
        Ok(())
    });
    done.unwrap();
    assert!(answers.len() >= 3 && answers[&204] > 10 && answers[&400] > 100, "{answers:?}");
}

#[test]
fn a_message_with_any_attributes_changes_nothing_unless_it_is_valid_and_only_one_that_overtook_its_job_comes_again() {
    let asked = Asked::new();
    let functions: Vec<String> = bodies()
        .into_iter()
        .map(|(_, path)| path)
        .filter(|path| path.starts_with("/functions/") && path != TICK)
        .collect();
    let paths = prop_oneof![Just(JOBS.to_owned()), prop::sample::select(functions)];
    let bytes = prop_oneof![3 => pushed().prop_map(String::into_bytes), 1 => spoiled()];
    let mut answers = BTreeMap::<(u16, bool), u32>::new();
    let tally = std::cell::RefCell::new(&mut answers);
    let mut runner = TestRunner::new(Cases { cases: 1000, failure_persistence: None, ..Cases::default() });
    let done = runner.run(&(paths, bytes), |(path, body)| {
        let answer = asked.ask("POST", &path, "application/json", &body)?;
        *tally.borrow_mut().entry(answer).or_default() += 1;
        Ok(())
    });
    done.unwrap();
    for answer in [(204, true), (204, false), (400, false), (AWAITED, false)] {
        assert!(answers.get(&answer).is_some_and(|count| *count > 3), "{answer:?}: {answers:?}");
    }
}
