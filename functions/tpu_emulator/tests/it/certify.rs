//! `infra/certify.sh` against the emulator: it asks everything, leaves nothing, and keeps nothing of the project.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{Method, StatusCode, Uri};

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

/// Keeps what is made and deleted; the jobs that there are.
fn keep(made: &Made, method: &Method, uri: &Uri, body: &str) -> String {
    let mut made = made.lock().unwrap();
    let path = uri.path();
    if *method == Method::POST && (path.ends_with("/jobs") || path.ends_with("/queues")) {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        made.insert(body["name"].as_str().unwrap().to_owned());
    } else if *method == Method::DELETE {
        made.remove(path.trim_start_matches("/v1/").trim_start_matches("/v2/"));
    }
    let jobs: Vec<_> = made.iter().filter(|name| name.contains("/jobs/")).collect();
    serde_json::json!({"jobs": jobs}).to_string()
}

/// All other services, as far as the script looks at their answers.
async fn platform(made: Made) -> String {
    let answer = async move |method: Method, uri: Uri, body: String| {
        let jobs = keep(&made, &method, &uri, &body);
        let is_again = method == Method::POST && uri.path().ends_with("/tasks");
        let told = match uri.path() {
            "/v2/entries:list" if body.contains("preempted") => {
                r#"{"entries": [{"protoPayload": {"resourceName": "projects/secret-project/zones/z/instances/t1v-n-1-w-0"}}]}"#
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
            "/v1/services/F/skus" => r#"{"skus": [{"name": "services/F/skus/1", "description": "Entity Deletes"}]}"#,
            path if path.ends_with("/skus") => {
                r#"{"skus": [{"name": "services/x/skus/1", "description": "Ironwood chip hour"}]}"#
            }
            path if path.ends_with("/services") && body.contains("3601s") => {
                r#"{"error": {"message": "at most 3600s"}}"#
            }
            path if path.ends_with("/services") => r#"{"response": {"template": {"timeout": "300s"}}}"#,
            path if path.ends_with("/jobs") && method == Method::GET => &jobs,
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

#[tokio::test(flavor = "multi_thread")]
async fn the_certification_asks_everything_and_leaves_nothing() {
    let bench = Bench::with(|config| config.speed = 50.0).await;
    let out = tempfile::tempdir().unwrap();
    let made = Made::default();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/certify.sh");
    let run = tokio::process::Command::new("bash")
        .arg(&script)
        .arg(out.path())
        .env("PROJECT", "secret-project")
        .env("ZONE", ZONE)
        .env("TPU_API", bench.endpoint())
        .env("PLATFORM_API", platform(made.clone()).await)
        .env("ACCELERATOR", "v5litepod-4")
        .env("PAUSE", "0.1")
        .output()
        .await
        .unwrap();
    let told = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{told}");
    assert!(out.path().join("left-jobs.txt").exists(), "jobs are looked for too");
    assert_eq!(*made.lock().unwrap(), BTreeSet::new(), "what is left: {told}");
    for (line, why) in [
        ("runtime-version: 400 message", "a wrong runtime version is refused"),
        ("metadata-type: create 200, metadata of type", "a create answers an operation"),
        ("name-again: 200", "a name may be used again"),
        ("operation-details: READY after", "a node comes up"),
        ("operation-details: 200 done", "its operation is read to the end"),
        ("request-without-force: ACTIVE", "a queued resource comes up"),
        ("request-without-force: 400 while ACTIVE", "it is not deleted without force"),
        ("request-without-force: with force 200", "it is deleted with force"),
        ("task-names: 409 at once", "a name is taken after its delete"),
        (
            "audit-delay: 200 timestamp \"2026-11-20T12:02:01Z\";receiveTimestamp \"2026-11-20T12:02:09Z\"",
            "delays are told",
        ),
        (
            "token-signatures: 200 message \"identity tokens come with their signatures taken off\"",
            "tokens are told of",
        ),
        ("ironwood-price: Ironwood chip hour", "prices are told"),
        ("delete-price: Entity Deletes", "of deletes too"),
        ("run-timeout: usual 200 timeout \"300s\"", "the usual timeout is told"),
        ("run-timeout: an hour and a second: 200 message \"at most 3600s\"", "and the longest"),
        ("attempt-deadline: 200 attemptDeadline \"180s\"", "and that of Scheduler"),
    ] {
        assert!(told.contains(line), "{why}: {told}");
    }
    let names = asked(&script);
    assert_eq!(names.len(), 14, "{names:?}");
    for name in names {
        assert!(told.lines().any(|line| line.starts_with(&format!("{name}: "))), "{name} is not told of: {told}");
    }
    for entry in std::fs::read_dir(out.path()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("secret-project"), "{} keeps the project", path.display());
    }
    bench.end().await;
}
