//! `infra/certify.sh` against the emulator: it asks everything, leaves nothing, and keeps nothing of the project.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use regex::Regex;
use rekindle_core::catalog;
use rekindle_tpu_emulator::Scenario;

use crate::bench::{Bench, ZONE};

/// The names of what nobody has written down, as the script's head lists them.
fn asked(script: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(script).unwrap();
    let lines = text.lines().skip_while(|line| !line.starts_with("# What is asked")).skip(1);
    let lines = lines.take_while(|line| line.starts_with("#  "));
    lines
        .filter_map(|line| line.trim_start_matches("# ").split("  ").find(|part| part.contains('-')))
        .map(|name| name.split_whitespace().last().unwrap().to_owned())
        .collect()
}

/// What is there of what was made, by name: the queues and the jobs of Scheduler.
type Made = Arc<Mutex<BTreeSet<String>>>;

/// Keeps what is made and deleted; the jobs and queues that there are.
fn keep(made: &Made, method: &Method, uri: &Uri, body: &str) -> String {
    let mut made = made.lock().unwrap();
    let path = uri.path();
    if *method == Method::POST && (path.ends_with("/jobs") || path.ends_with("/queues")) {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        made.insert(body["name"].as_str().unwrap().to_owned());
    } else if *method == Method::DELETE {
        made.remove(path.trim_start_matches("/v1/").trim_start_matches("/v2/"));
    }
    serde_json::json!({"made": *made}).to_string()
}

/// All other services, as far as the script looks at their answers.
async fn platform(made: Made, has_logs: bool) -> String {
    let answer = async move |method: Method, uri: Uri, body: String| {
        let left = keep(&made, &method, &uri, &body);
        let is_again = method == Method::POST && uri.path().ends_with("/tasks");
        let told = match uri.path() {
            "/v2/entries:list" if !has_logs => "{}",
            "/v2/entries:list" if body.contains("preempted") => {
                r#"{"entries": [{"protoPayload": {"resourceName": "projects/secret-project/zones/z/instances/t1v-n-1-w-0", "requestMetadata": {"callerIp": "2001:db8::17", "callerSuppliedUserAgent": "314159265358 fe80:1:2:3:4:5:6:7"}}}]}"#
            }
            "/v2/entries:list" if body.contains("identity tokens") => {
                r#"{"entries": [{"jsonPayload": {"message": "identity tokens come with their signatures taken off"}}]}"#
            }
            "/v2/entries:list" => {
                r#"{"entries": [{"timestamp": "2026-11-20T12:02:01Z", "receiveTimestamp": "2026-11-20T12:02:09Z"}]}"#
            }
            "/v1/services" => {
                r#"{"services": [{"name": "services/F", "serviceId": "F", "displayName": "Cloud Firestore"}]}"#
            }
            // Its pages never end: the script must.
            "/v1/services/F/skus" => {
                r#"{"skus": [{"name": "services/F/skus/1", "description": "Entity Deletes"}], "nextPageToken": "more"}"#
            }
            path if path.ends_with("/skus") => {
                r#"{"skus": [{"name": "services/x/skus/1", "description": "Ironwood chip hour"}]}"#
            }
            path if path.ends_with("/services") && body.contains("3601s") => {
                r#"{"error": {"message": "at most 3600s"}}"#
            }
            path if path.ends_with("/services") => r#"{"response": {"template": {"timeout": "300s"}}}"#,
            path if path.ends_with("/jobs") && method == Method::GET => &left,
            path if path.ends_with("/queues") && method == Method::GET => &left,
            "/v1/projects/secret-project" => r#"{"projectNumber": "314159265358"}"#,
            path if path.ends_with("/jobs") => r#"{"attemptDeadline": "180s"}"#,
            _ => "{}",
        };
        (if is_again { StatusCode::CONFLICT } else { StatusCode::OK }, told.to_owned())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
    url
}

fn script() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/certify.sh")
}

/// A project in which nothing has happened yet.
const FRESH: (&str, &str) = ("FRESH", "1");

/// Runs the script to its end, with more of its environment.
async fn certify(bench: &Bench, out: &Path, made: &Made, more: &[(&str, &str)]) -> Output {
    // A project in which nothing was deployed yet has nothing to find in its log.
    let has_logs = !more.contains(&FRESH);
    tokio::process::Command::new("bash")
        .arg(script())
        .arg(out)
        .env("PROJECT", "secret-project")
        .env("ZONE", ZONE)
        .env("TPU_API", bench.endpoint())
        .env("PLATFORM_API", platform(made.clone(), has_logs).await)
        .env("ACCELERATOR", "v5litepod-4")
        .env("PAUSE", "0.1")
        .envs(more.iter().copied())
        .output()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_certification_asks_everything_and_leaves_nothing() {
    // The limit's minute is as much shorter as everything else.
    let limited = Scenario::parse("creates_per_minute: 10").unwrap();
    let bench = Bench::with(|config| {
        config.speed = 50.0;
        config.scenario = Some(limited);
    })
    .await;
    let out = tempfile::tempdir().unwrap();
    let made = Made::default();
    let run = certify(&bench, out.path(), &made, &[]).await;
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}");
    for list in ["left-jobs.txt", "left-queues.txt"] {
        assert!(out.path().join(list).exists(), "{list}: they are looked for too");
    }
    assert_eq!(*made.lock().unwrap(), BTreeSet::new(), "what is left: {told}");
    for (line, why) in [
        ("runtime-version: 400 message", "a wrong runtime version is refused"),
        ("metadata-type: create 200, metadata of type", "a create answers an operation"),
        ("name-again: delete while it is made: 200", "a node that is made may be deleted"),
        ("operation-details: of a create whose node was deleted: 200 done", "its operation is read to the end"),
        ("details none", "with its details, if it has any"),
        ("operation-details: its node is READY", "a node comes up"),
        ("request-without-force: ACTIVE", "a queued resource comes up"),
        ("request-without-force: 400 while ACTIVE", "it is not deleted without force"),
        ("request-without-force: with force 200", "it is deleted with force"),
        ("task-names: 409 at once", "a name is taken after its delete"),
        ("task-names: 409 still, so for more than 0 minutes", "what was not seen to end is told so"),
        (
            "audit-delay: 200 timestamp \"2026-11-20T12:02:01Z\";receiveTimestamp \"2026-11-20T12:02:09Z\"",
            "delays are told",
        ),
        (
            "token-signatures: 200 message \"identity tokens come with their signatures taken off\"",
            "tokens are told of",
        ),
        ("ironwood-price: Ironwood chip hour", "prices are told"),
        ("delete-price: Entity Deletes (of the first 10 pages)", "of deletes too, without end of pages"),
        ("were answered 429", "the limit of a minute is met"),
        ("details [{\"@type\"", "and its body is told"),
        ("run-timeout: usual 200 timeout \"300s\"", "the usual timeout is told"),
        ("run-timeout: an hour and a second: 200 message \"at most 3600s\"", "and the longest"),
        ("attempt-deadline: 200 attemptDeadline \"180s\"", "and that of Scheduler"),
    ] {
        assert!(told.contains(line), "{why}: {told}");
    }
    let ends =
        r"name-again: delete: operation done after \d+ s, 404 (after \d+ s|not seen); the name may be used after \d+ s";
    let ends = Regex::new(ends).unwrap();
    assert!(ends.is_match(&told), "the name is measured from both ends: {told}");
    let names = asked(&script());
    assert_eq!(names.len(), 14, "{names:?}");
    for name in names {
        assert!(told.lines().any(|line| line.starts_with(&format!("{name}: "))), "{name} is not told of: {told}");
    }
    for entry in std::fs::read_dir(out.path()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for secret in ["secret-project", "314159265358", "2001:db8", "fe80:"] {
            assert!(!text.contains(secret), "{} keeps {secret}", path.display());
        }
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certification_without_time_says_what_it_did_not_ask_and_cleans_up() {
    let never = Scenario::parse("defaults: {create_latency: 100h}").unwrap();
    let bench = Bench::with(|config| {
        config.speed = 50.0;
        config.scenario = Some(never);
    })
    .await;
    let out = tempfile::tempdir().unwrap();
    let made = Made::default();
    let run = certify(&bench, out.path(), &made, &[("LIMIT", "6")]).await;
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}");
    for name in ["request-without-force", "creates-a-minute", "audit-delay"] {
        assert!(told.contains(&format!("{name}: not asked: out of time")), "{name}: {told}");
    }
    assert_eq!(*made.lock().unwrap(), BTreeSet::new(), "what is left: {told}");
    for kind in ["nodes", "queuedResources"] {
        let (status, list) = bench.get(&format!("v2/projects/secret-project/locations/{ZONE}/{kind}")).await;
        assert!(status == 200 && !list.to_string().contains("rk-certify"), "{list}");
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_only_its_operation_refuses_is_followed_and_no_other_name_is_taken_by_it() {
    let bench = Bench::with(|config| config.speed = 50.0).await;
    let out = tempfile::tempdir().unwrap();
    let made = Made::default();
    // A version that the emulator takes stands for one whose create is accepted and then ends.
    let more = [("WRONG_RUNTIME", "v2-alpha-tpuv5-lite"), ("NETWORK", "rekindle"), FRESH];
    let run = certify(&bench, out.path(), &made, &more).await;
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}");
    for (line, why) in [
        ("runtime-version: 200", "the create is accepted"),
        ("runtime-version: its operation: done", "its operation is followed to the end"),
        ("metadata-type: create 200", "the next create has a name of its own"),
        ("name-again: delete while it is made: 200", "and is asked what it should be"),
        ("preempted-entry: 200 nothing found: it needs a preemption", "an empty log is no answer"),
        ("token-signatures: 200 nothing found: it needs a deployed Rekindle", "nor is this one"),
    ] {
        assert!(told.contains(line), "{why}: {told}");
    }
    let node = std::fs::read_to_string(out.path().join("node-ready.txt")).unwrap();
    assert!(
        node.contains("\"network\": \"rekindle\"")
            || node.contains("networks/rekindle")
            || node.contains("\"network\":\"rekindle\""),
        "{node}"
    );
    let (status, list) = bench.get(&format!("v2/projects/secret-project/locations/{ZONE}/nodes")).await;
    assert!(status == 200 && !list.to_string().contains("rk-certify"), "{list}");
    bench.end().await;
}

#[test]
fn the_shares_of_time_are_within_half_an_hour() {
    let text = std::fs::read_to_string(script()).unwrap();
    let number = |pattern: &str| {
        let found = Regex::new(pattern).unwrap();
        found.captures_iter(&text).map(|one| one[1].parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    let sections = number(r"(?m)\bsection [a-z_]+ (\d+)");
    let (limit, cleaning) = (number(r"(?m)^limit=.*:-(\d+)\}")[0], number(r"(?m)^cleaning=(\d+)$")[0]);
    assert_eq!(sections.len(), 7, "{sections:?}");
    assert!(sections.iter().sum::<u64>() <= limit, "no section takes another's time: {sections:?}");
    assert!(limit + cleaning <= 1800, "{limit} + {cleaning}");
    // And for less than two dollars: one TPU at a time, at the dearest place that has it.
    let name =
        Regex::new(r"(?m)^accelerator=.*:-([a-z0-9-]+)\}").unwrap().captures(&text).expect("a TPU")[1].to_owned();
    let chips = catalog::accelerator(&name).unwrap().chips;
    let zones = catalog::zones_offering(&name);
    let dearest = zones.iter().filter_map(|zone| catalog::price_in_zone(&name, zone, true)).fold(0.0, f64::max);
    let dollars = dearest * f64::from(chips) * (limit + cleaning) as f64 / 3600.0;
    assert!(dollars > 0.1 && dollars < 2.0, "{name}: {dollars}");
    // Nothing waits by another clock, and each request has an end.
    assert_eq!(text.matches("curl -").count(), text.matches("--max-time").count());
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("while ")) {
        let is_bound = line.contains("is_time") || line.contains("deadline");
        assert!(is_bound, "line {}: {line}", at + 1);
    }
}
