//! `doctor` over a project, with a `gcloud` that answers as the real one would and keeps what it was asked.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Json;
use axum::http::{HeaderMap, Uri};
use rekindle_infra_tests::gcloud;
use serde_json::{Value, json};

mod healthy;

/// Answers by the first words of the command; everything else is refused as gcloud refuses.
const GCLOUD: &str = r#"#!/bin/bash
here=$(dirname "$0")
echo "$*" >> "$here/asked"
case "$1 $2" in
  "run services") cat "$here/services.json" ;;
  "tasks queues") echo '{"state": "PAUSED"}' ;;
  "pubsub topics") echo '[]' ;;
  "auth print-access-token")
    # One account may not be asked as; the others are all the same.
    case "$3" in *rekindle-events@*) echo "ERROR: PERMISSION_DENIED: iam.serviceAccounts.getAccessToken" >&2; exit 1 ;; esac
    echo "of:${3#*=}" ;;
  "storage cat") printf abc ;;
  "logging sinks") echo "ERROR: (gcloud.logging.sinks.describe) NOT_FOUND: Sink rekindle-tpu-events does not exist" >&2; exit 1 ;;
  *) echo "ERROR: (gcloud.$1.$2) PERMISSION_DENIED: not allowed" >&2; exit 1 ;;
esac
"#;

#[tokio::test]
async fn a_project_is_checked_with_gcloud_and_each_fault_has_its_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let gcloud = folder.path().join("gcloud");
    std::fs::write(&gcloud, GCLOUD).unwrap();
    std::fs::set_permissions(&gcloud, std::fs::Permissions::from_mode(0o755)).unwrap();
    let env = json!([
        {"name": "REKINDLE_BUCKET", "value": "gs://b"},
        {"name": "REKINDLE_CAPACITY", "value": "[]"},
        {"name": "REKINDLE_AGENT_URL", "value": format!("gs://b/agents/{}", "0".repeat(64))},
    ]);
    let service = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"template": {"spec": {"containers": [{"image": "r/i@sha256:1", "env": env}]}}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    let services = ["rekindle-api", "rekindle-events", "rekindle-reconcile"].map(service);
    std::fs::write(folder.path().join("services.json"), json!(services).to_string()).unwrap();

    let (apis, asked_of) = apis("tpu.nodes.delete").await;
    let (code, checks) = doctor(folder.path(), &apis).await;
    assert_eq!(code, Some(1), "something is bad");
    for check in &checks {
        super::has_the_fields_of_its_example("doctor", check);
    }
    let of = |name: &str| checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(of("services")["verdict"], "good");
    assert_eq!(of("wake-ups")["verdict"], "bad");
    assert!(of("wake-ups")["next"].as_str().unwrap().contains("gcloud tasks queues resume rekindle-wakeups"));
    assert!(of("topics")["found"].as_str().unwrap().contains("rekindle-jobs"));
    assert_eq!(of("zones")["verdict"], "bad", "the capacity list is empty");
    assert!(of("sink")["found"].as_str().unwrap().contains("NOT_FOUND"));
    assert_eq!(of("sink")["next"], "`terraform -chdir=infra/envs/example apply`");
    assert!(of("tick")["found"].as_str().unwrap().contains("PERMISSION_DENIED"));
    assert!(of("tick")["next"].as_str().unwrap().contains("gcloud scheduler jobs describe rekindle-tick"));
    let asked = std::fs::read_to_string(folder.path().join("asked")).unwrap();
    assert!(asked.contains("storage buckets describe gs://b --project=p --format=json"), "{asked}");
    assert_eq!(of("digest")["verdict"], "bad", "nobody's digest is all zeros");
    assert_eq!(of("permissions")["found"], "rekindle-reconcile lacks tpu.nodes.delete on projects/p");
    assert!(of("permissions")["next"].as_str().unwrap().contains("terraform"));
    let asked_of = asked_of.lock().unwrap();
    let project = "/v1/projects/p:testIamPermissions as rekindle-reconcile@p.iam.gserviceaccount.com";
    assert!(asked_of.iter().any(|call| call == project), "{asked_of:#?}");
    assert!(
        asked_of.iter().any(|call| call.starts_with("/v2/projects/p/locations/us-central1/queues/")),
        "{asked_of:#?}"
    );
    for check in &checks {
        let is_good = check["verdict"] == "good";
        let next = check["next"].as_str().unwrap_or_default();
        assert!(is_good || next.contains('`'), "no command mends {check}");
    }
    let named = checks.iter().filter_map(|check| check["next"].as_str());
    let named: Vec<String> = named.flat_map(|next| next.split('`').skip(1).step_by(2)).map(str::to_owned).collect();
    scripts_are_called_as_they_say(&named);
    let Some(tree) = gcloud::tree() else { return };
    let asked = asked.lines().map(|line| format!("gcloud {line}"));
    let commands: Vec<String> = asked.chain(named).filter(|command| command.starts_with("gcloud ")).collect();
    assert!(commands.len() > 25, "{commands:#?}");
    for command in commands {
        let words: Vec<String> = command.split_whitespace().map(str::to_owned).collect();
        if let Err(why) = gcloud::check(&tree, &words) {
            panic!("{command}: {why}");
        }
    }
}

/// Our own scripts say at their head how they are called.
fn scripts_are_called_as_they_say(named: &[String]) {
    let scripts: Vec<&String> = named.iter().filter(|command| command.starts_with("infra/")).collect();
    assert!(!scripts.is_empty(), "{named:?}");
    for command in scripts {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(command.split(' ').next().unwrap());
        let head = std::fs::read_to_string(&script).unwrap_or_else(|error| panic!("{command}: {error}"));
        assert!(head.lines().any(|line| line == format!("#   {command}")), "{command} is not how it is called");
    }
}

/// Google's APIs, of which each account holds what it asks for but this right; and what they were asked.
async fn apis(lacking: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&asked);
    let answer = async move |uri: Uri, headers: HeaderMap, Json(body): Json<Value>| {
        let token = headers["authorization"].to_str().unwrap().trim_start_matches("Bearer of:");
        kept.lock().unwrap().push(format!("{uri} as {token}"));
        let held: Vec<&Value> = body["permissions"].as_array().unwrap().iter().filter(|p| **p != lacking).collect();
        Json(json!({"permissions": held}))
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
    (url, asked)
}

async fn doctor(path: &Path, apis: &str) -> (Option<i32>, Vec<Value>) {
    let usual = std::env::var("PATH").unwrap_or_default();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_rekindle"));
    for api in ["CLOUDRESOURCEMANAGER", "PUBSUB", "CLOUDTASKS", "IAM", "RUN"] {
        command.env(format!("CLOUDSDK_API_ENDPOINT_OVERRIDES_{api}"), apis);
    }
    let output = command
        .args(["doctor", "--project=p", "--region=us-central1", "--json"])
        .env("PATH", format!("{}:{usual}", path.display()))
        .env("HOME", "/nonexistent")
        .env("REKINDLE_SERVER", super::server::start().await.url())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let checks = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
    (output.status.code(), checks.collect())
}
