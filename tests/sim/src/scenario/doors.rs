//! Scenarios of what comes to the doors of the functions and can never be used.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use rekindle_core::job::Phase;

use super::crowds::{begin, small_job};
use super::{Special, Wrong, verdict};
use crate::deliver;
use crate::envelope;
use crate::exec::lock;
use crate::people;
use crate::plan::{Plan, START_US};
use crate::roll::{HOUR, MIN};
use crate::run::ending;
use crate::stage::Stage;
use crate::world::World;

/// All of them.
pub(super) fn all() -> Vec<Special> {
    vec![
        (
            "J05-poison-at-every-door",
            "what nobody can use is recorded once, wherever it comes, and never asked for again",
            poison,
        ),
        (
            "B04-names-that-are-no-ids",
            "skypilot#10742: names that the cloud would bend into others are refused, each with why",
            no_ids,
        ),
    ]
}

const JOBS: &str = "/functions/jobs";
const RECONCILE: &str = "/functions/reconcile";
const EVENTS: &str = "/functions/tpu-events";

/// What Pub/Sub takes at most, in bytes.
const LARGEST: usize = 9_900_000;

/// A body at a door, and what is to come of it.
struct Letter {
    name: &'static str,
    path: &'static str,
    body: Vec<u8>,
    /// Whether it is acknowledged. What is no envelope at all cannot be: Pub/Sub sends none, and gives it up by its own policy.
    is_taken: bool,
    /// Whether it is recorded as a dead letter.
    is_kept: bool,
}

/// A push with these data, which is recorded.
fn kept(name: &'static str, path: &'static str, command: &str, data: &[u8]) -> Letter {
    let attributes = if command.is_empty() { json!({}) } else { json!({"command": command}) };
    let envelope = envelope::push(name, data, &attributes, START_US);
    Letter { name, path, body: bytes(&envelope), is_taken: true, is_kept: true }
}

fn bytes(value: &Value) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// One of each kind at each door.
fn letters(spec: &Value) -> Vec<Letter> {
    let with = |field: &str, value: Value| {
        let mut spec = spec.clone();
        spec["id"] = "never".into();
        spec[field] = value;
        bytes(&spec)
    };
    let deep = [vec![b'['; 50_000], vec![b']'; 50_000]].concat();
    let undecodable = |name, path| {
        let mut envelope = envelope::push(name, b"", &json!({}), START_US);
        envelope["message"]["data"] = "!!!".into();
        Letter { name, path, body: bytes(&envelope), is_taken: true, is_kept: true }
    };
    let no_envelope =
        |name, path, body: &[u8]| Letter { name, path, body: body.to_vec(), is_taken: false, is_kept: false };
    vec![
        kept("huge", JOBS, "submit", &with("notes", "x".repeat(LARGEST).into())),
        kept("of another version", JOBS, "submit", &with("schema_version", 2.into())),
        kept("of the wrong type", JOBS, "submit", &with("tpu", json!(["v5litepod-8"]))),
        kept("a list", JOBS, "submit", b"[1, 2]"),
        kept("a number", JOBS, "cancel", b"7"),
        kept("deep", JOBS, "submit", &deep),
        kept("without data", JOBS, "submit", b""),
        undecodable("not base64 for jobs", JOBS),
        no_envelope("no envelope for jobs", JOBS, b"{\"foo\": 1}"),
        kept("no hint", RECONCILE, "", b"not json"),
        kept("a hint of the wrong type", RECONCILE, "", br#"{"job": 7, "cause": []}"#),
        kept("a hint of another version", RECONCILE, "", br#"{"jobs": ["many-00000"]}"#),
        undecodable("not base64 for reconcile", RECONCILE),
        no_envelope("no envelope for reconcile", RECONCILE, b"[]"),
        kept("no entry", EVENTS, "", b"not json"),
        kept("an entry of the wrong type", EVENTS, "", br#"{"protoPayload": "text"}"#),
        undecodable("not base64 for events", EVENTS),
        no_envelope("no envelope for events", EVENTS, b"7"),
    ]
}

/// Brings every letter to its door, ten minutes after the start, and answers what went otherwise than it should have.
fn bring(world: &Arc<World>, stage: &Arc<Stage>, letters: Vec<Letter>) -> Vec<String> {
    world.exec.run_until(START_US + 10 * MIN, || world.is_broken());
    let wrong = Arc::new(Mutex::new(Vec::new()));
    let (stage, told) = (stage.clone(), wrong.clone());
    world.exec.spawn(async move {
        let dead = |world: &World| lock(&world.counts).others.get("dead letters").copied().unwrap_or(0);
        for letter in letters {
            let before = dead(&stage.world);
            let (status, text) = deliver::post(&stage, letter.path, None, letter.body).await;
            let kept = dead(&stage.world) - before;
            if status.is_success() != letter.is_taken || kept != u64::from(letter.is_kept) {
                lock(&told).push(format!("{}: {status}, recorded {kept} times {text}", letter.name));
            }
        }
        lock(&told).push("done".into());
    });
    world.exec.run_until(START_US + 6 * HOUR, || world.is_broken());
    let mut wrong = std::mem::take(&mut *lock(&wrong));
    if wrong.pop().as_deref() != Some("done") {
        wrong.push("not all letters were brought".into());
    }
    wrong
}

/// Brings letters to a world with one job, which must not notice.
fn beside_a_job(make: impl FnOnce(&Value) -> Vec<Letter>) -> Option<Wrong> {
    let mut plan = Plan::calm(12);
    plan.jobs = vec![small_job(0, 2 * HOUR)];
    let (world, stage) = begin(plan);
    let mut wrong = Vec::new();
    let end = ending(&world, || {
        let letters = make(&people::spec(&world.plan.jobs[0]));
        wrong = bring(&world, &stage, letters);
    });
    let jobs: Vec<String> = lock(&world.checks)
        .jobs
        .values()
        .filter(|j| j.id.as_str() != "many-00000" || j.phase != Phase::Succeeded || j.last_attempt != 1)
        .map(|j| format!("{} is {}", j.id, j.phase.as_str()))
        .collect();
    world.exec.clear();
    wrong.extend(jobs);
    verdict(&end, || (!wrong.is_empty()).then(|| wrong.join("; ")))
}

fn poison() -> Option<Wrong> {
    beside_a_job(letters)
}

/// Ids that a cloud name could only carry bent: refused, so that no two jobs can have one name.
fn no_ids() -> Option<Wrong> {
    beside_a_job(|spec| {
        let long = |last: char| format!("{}{last}", "a".repeat(69));
        let of = |name, id: String| {
            let mut spec = spec.clone();
            spec["id"] = id.into();
            kept(name, JOBS, "submit", &bytes(&spec))
        };
        vec![
            of("an underscore", "a_b".into()),
            of("a capital letter", "A-b".into()),
            of("both", "A_b".into()),
            of("70 characters", long('x')),
            of("70 other characters", long('y')),
        ]
    })
}
