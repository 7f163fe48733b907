//! A deployment that is well in every point: `doctor` says so, and ends with 0. And one of which a part is not there.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};
use sha2::Digest as _;

/// Answers a question by the file that is named after its first words; what no file answers is refused. A file that begins with `ERROR`
/// is how gcloud says that it fails.
const GCLOUD: &str = r#"#!/bin/bash
here=$(dirname "$0")
case "$1 $2" in
  "auth print-access-token") echo "of:${3#*=}"; exit ;;
  "storage cat") [ -f "$here/storage cat" ] || { printf abc; exit; } ;;
esac
file="$here/$1 $2 $3"
case "$1 $2" in "logging read"|"storage cat") file="$here/$1 $2" ;; esac
[ "$1 $2 $3" = "run services get-iam-policy" ] && file="$file $4"
[ -f "$file" ] || { echo "ERROR: (gcloud.$1.$2) no answer to $*" >&2; exit 1; }
if grep -q ^ERROR "$file"; then cat "$file" >&2; exit 1; fi
cat "$file"
"#;

const URL: &str = "https://rekindle-events-1.us-central1.run.app";

/// The example's, and a zone with an odd name.
const CAPACITY: &str = r#"[
    {"accelerator": "v5litepod-*", "zone": "us-central1-a", "kind": "spot", "max_chips": 64, "usd_per_chip_hour": 0.55},
    {"accelerator": "v5litepod-8", "zone": "us-central1-a", "kind": "on_demand", "max_chips": 8, "usd_per_chip_hour": 1.2},
    {"accelerator": "*", "zone": "us-south1-ai1b", "kind": "spot", "max_chips": null, "usd_per_chip_hour": 0.55}
]"#;

fn account(name: &str) -> String {
    format!("serviceAccount:rekindle-{name}@p.iam.gserviceaccount.com")
}

/// The services, as one bucket in the multi-region US has them told.
fn services() -> Value {
    let digest = hex::encode(sha2::Sha256::digest(b"abc"));
    let env = json!([
        {"name": "REKINDLE_BUCKET", "value": "gs://b"},
        {"name": "REKINDLE_BUCKET_REGIONS", "value": "us"},
        {"name": "REKINDLE_CAPACITY", "value": CAPACITY},
        {"name": "REKINDLE_AGENT_URL", "value": format!("gs://b/agents/{digest}")},
        {"name": "REKINDLE_AUDIENCES", "value": format!("{URL},https://rekindle-events-*.a.run.app")},
    ]);
    let service = |name: &str| {
        json!({
            "metadata": {"name": name},
            "spec": {"template": {"spec": {"containers": [{"image": "r/i@sha256:1", "env": env}]}}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    json!(["rekindle-api", "rekindle-events", "rekindle-reconcile"].map(service))
}

fn subscriptions() -> Value {
    let push = |topic: &str| {
        json!({
            "name": format!("projects/p/subscriptions/rekindle-{topic}-push"),
            "pushConfig": {
                "pushEndpoint": format!("{URL}/functions/{topic}"),
                "oidcToken": {"serviceAccountEmail": "rekindle-push@p.iam.gserviceaccount.com", "audience": URL},
            },
            "deadLetterPolicy": {"deadLetterTopic": "projects/p/topics/rekindle-dead-letter"},
        })
    };
    let eventarc = json!({
        "name": "projects/p/subscriptions/eventarc-global-rekindle-deletenode-sub-1",
        "pushConfig": {"pushEndpoint": format!("{URL}/functions/tpu-events"), "oidcToken": {"audience": "https://rekindle-events-a-uc.a.run.app"}},
    });
    let pull = json!({"name": "projects/p/subscriptions/rekindle-dead-letter-pull"});
    json!([push("jobs"), push("hints"), push("events"), push("tpu-events"), pull, eventarc])
}

fn names(kind: &str, all: &[&str]) -> Value {
    all.iter().map(|name| json!({"name": format!("projects/p/{kind}/{name}")})).collect()
}

/// Every answer, by the first words of its question. The APIs are those that bootstrap turns on.
fn answers() -> Vec<(&'static str, Value)> {
    let bootstrap = include_str!("../../../../infra/modules/bootstrap/main.tf");
    let apis = bootstrap.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix("\","));
    let apis: Vec<Value> = apis.map(|name| json!({"config": {"name": name}})).collect();
    let indexes: Value = serde_json::from_str(include_str!("../../../../infra/firestore.indexes.json")).unwrap();
    let mut indexes = indexes["indexes"].clone();
    indexes.as_array_mut().unwrap().iter_mut().for_each(|index| index["state"] = json!("READY"));
    let binding = |role: &str, members: &[&str]| {
        let members: Vec<String> = members.iter().map(|name| account(name)).collect();
        json!({"bindings": [{"role": role, "members": members}]})
    };
    let invoker = |members: &[&str]| binding("roles/run.invoker", members);
    let mut roles = binding("projects/p/roles/rekindleTpu", &["reconcile"]);
    let documents = binding("projects/p/roles/rekindleDocuments", &["api", "events", "reconcile"]);
    roles["bindings"].as_array_mut().unwrap().push(documents["bindings"][0].clone());
    let quota = |id: &str, metric: &str, value: &str| json!({"quotaId": id, "metric": metric, "dimensionsInfos": [{"details": {"value": value}}]});
    let quotas = json!([
        quota("TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI", "tpu.googleapis.com/tpu-v5s", "64"),
        quota("TPUV5sLitepodServingPerProjectPerZoneForTPUAPI", "tpu.googleapis.com/tpu-v5s-serving", "8"),
        quota("CreatesPerMinutePerProject", "tpu.googleapis.com/qps/create", "91"),
    ]);
    let digest = hex::encode(sha2::Sha256::digest(b"abc"));
    let topics = ["rekindle-jobs", "rekindle-hints", "rekindle-events", "rekindle-tpu-events", "rekindle-dead-letter"];
    vec![
        ("run services list", services()),
        ("run services get-iam-policy rekindle-api", invoker(&["reconcile", "worker"])),
        ("run services get-iam-policy rekindle-events", invoker(&["push", "eventarc"])),
        ("run services get-iam-policy rekindle-reconcile", invoker(&["push", "tasks", "scheduler"])),
        ("services list --enabled", json!(apis)),
        ("pubsub topics list", names("topics", &topics)),
        ("pubsub subscriptions list", subscriptions()),
        ("scheduler jobs describe", json!({"state": "ENABLED", "lastAttemptTime": jiff::Timestamp::now().to_string()})),
        ("tasks queues describe", json!({"state": "RUNNING"})),
        ("eventarc triggers list", names("locations/global/triggers", &["rekindle-deletenode"])),
        (
            "logging sinks describe",
            json!({"destination": "pubsub.googleapis.com/projects/p/topics/rekindle-tpu-events"}),
        ),
        ("logging read", json!([])),
        ("firestore indexes composite", indexes),
        ("projects get-iam-policy p", roles),
        ("beta quotas info", quotas),
        ("storage buckets describe", json!({"location": "US"})),
        ("storage objects describe", json!({"name": format!("agents/{digest}"), "size": "8000000"})),
    ]
}

fn write(folder: &Path) {
    let gcloud = folder.join("gcloud");
    std::fs::write(&gcloud, GCLOUD).unwrap();
    std::fs::set_permissions(&gcloud, std::fs::Permissions::from_mode(0o755)).unwrap();
    for (words, answer) in answers() {
        std::fs::write(folder.join(words), answer.to_string()).unwrap();
    }
}

#[tokio::test]
async fn a_project_that_is_well_ends_with_0() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let (apis, _) = super::apis("").await;
    let (code, checks) = super::doctor(folder.path(), &apis).await;
    let of_project = [
        "services",
        "zones",
        "apis",
        "topics",
        "pushes",
        "tick",
        "wake-ups",
        "triggers",
        "sink",
        "indexes",
        "roles",
        "quotas",
        "callers",
        "invokers",
        "bucket",
        "audiences",
        "agent",
        "digest",
        "permissions",
    ];
    for name in of_project {
        let found: Vec<&Value> = checks.iter().filter(|check| check["check"] == name).collect();
        assert!(!found.is_empty(), "{name} is not checked");
        assert!(found.iter().all(|check| check["verdict"] == "good"), "{found:#?}");
    }
    assert_eq!(code, Some(0), "{checks:#?}");
}

/// In the words of gcloud 528, which keeps Cloud Storage's 404 from its other errors.
#[tokio::test]
async fn what_is_not_there_is_mended_by_what_makes_it() {
    const APPLY: &str = "`terraform -chdir=infra/envs/example apply`";
    let publish = format!("`infra/publish.sh infra/envs/example`, then {APPLY}");
    let bootstrap = "`terraform -chdir=infra/envs/example/bootstrap apply -var-file=../terraform.tfvars`";
    let of_storage = "ERROR: (gcloud.storage.objects.describe) gs://b%2Fx not found: 404.\n";
    let unmatched = "ERROR: (gcloud.storage.cat) The following URLs matched no objects or files:\ngs://b/agents/x\n";
    let absent = "ERROR: (gcloud.x.y.describe) NOT_FOUND: Requested entity was not found.\n";
    let denied =
        "ERROR: (gcloud.x.y.describe) [a@b] does not have permission to access it (or it may not exist): denied\n";
    let unknown = "ERROR: (gcloud.x.y.describe) You do not currently have an active account selected.\n";
    for (check, words, said, next) in [
        ("agent", "storage objects describe", of_storage, publish.as_str()),
        ("digest", "storage cat", unmatched, &publish),
        ("bucket", "storage buckets describe", of_storage, bootstrap),
        ("tick", "scheduler jobs describe", absent, APPLY),
        ("wake-ups", "tasks queues describe", absent, APPLY),
        ("sink", "logging sinks describe", absent, APPLY),
        ("indexes", "firestore indexes composite", absent, APPLY),
        ("invokers", "run services get-iam-policy rekindle-api", absent, APPLY),
        ("tick", "scheduler jobs describe", denied, "`gcloud scheduler jobs describe rekindle-tick"),
        ("agent", "storage objects describe", denied, "`gcloud storage objects describe gs://b/agents/"),
        ("digest", "storage cat", unknown, "`gcloud storage cat gs://b/agents/"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path());
        std::fs::write(folder.path().join(words), said).unwrap();
        let (apis, _) = super::apis("").await;
        let (code, checks) = super::doctor(folder.path(), &apis).await;
        let bad: Vec<&Value> = checks.iter().filter(|check| check["verdict"] == "bad").collect();
        assert!(code == Some(1) && bad.len() == 1 && bad[0]["check"] == check, "{words}: {bad:#?}");
        let told = bad[0]["next"].as_str().unwrap();
        let is_whole = next.ends_with('`');
        assert!(if is_whole { told == next } else { told.starts_with(next) }, "{words}: {told}");
    }
}
