//! Plans, labels, bundles and secrets.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use rekindle_rig::{CALLER, send, spec};
use rekindle_wire::v1::{BundleView, JobView, PlanView, WebhookSecretView};
use rekindle_wire::webhook::Secret;

use super::Served;

async fn patch(served: &Served, path: &str, body: &Value) -> rekindle_rig::Answer {
    let request = Request::patch(path).header("content-type", "application/json");
    send(&served.router, request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn a_dry_run_says_where_and_stores_nothing() {
    let served = Served::new().await;
    let answer = served.post("/v1/jobs?dry_run=true", &spec("train")).await;
    let plan: PlanView = serde_json::from_slice(&answer.body).unwrap();
    let first = &plan.candidates[0];
    assert_eq!((first.accelerator.as_str(), first.workers, first.chips), ("v5litepod-16", 4, 16));
    assert!(plan.spec["limits"]["stall"].is_object(), "every default is filled in");
    assert_eq!(served.get("/v1/jobs/train").await.status, 404);
    let bad = served.post("/v1/jobs?dry_run=true", &json!({"run": ["true"]})).await;
    assert_eq!((bad.status.as_u16(), &bad.json()["errors"][0]["field"]), (400, &json!("tpu")));
    assert_eq!(served.post("/v1/jobs?dryrun=true", &spec("train")).await.status, 400);
}

/// A document that is full would take no cancel either.
#[tokio::test]
async fn tags_are_bounded_however_many_calls_bring_them() {
    let served = Served::with_job().await;
    let tags = |from: usize, to: usize| (from..to).map(|number| format!("tag-{number}")).collect::<Vec<_>>();
    let filled = patch(&served, "/v1/jobs/train", &json!({"add_tags": tags(0, 100)})).await;
    assert_eq!(filled.status, 200);
    let more = patch(&served, "/v1/jobs/train", &json!({"add_tags": tags(100, 102)})).await;
    assert_eq!((more.status.as_u16(), &more.json()["errors"][0]["field"]), (400, &json!("add_tags")));
    let said = more.json()["errors"][0]["message"].clone();
    assert_eq!(said, "the job would have 102 tags; at most 100: take others away first");
    let swap = json!({"add_tags": tags(100, 102), "remove_tags": tags(0, 2)});
    let job: JobView = serde_json::from_slice(&patch(&served, "/v1/jobs/train", &swap).await.body).unwrap();
    assert_eq!(job.tags.len(), 100);
    let mut spec = spec("other");
    spec["tags"] = json!(tags(0, 101));
    let refused = served.post("/v1/jobs", &spec).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["errors"][0]["field"]), (400, &json!("tags")));
}

#[tokio::test]
async fn labels_change_at_any_time_and_leave_the_job_the_same() {
    let served = Served::with_job().await;
    let body = json!({"add_tags": ["best", "best"], "notes": "look at step 40k"});
    let job: JobView = serde_json::from_slice(&patch(&served, "/v1/jobs/train", &body).await.body).unwrap();
    assert_eq!((job.tags.as_slice(), &job.spec["notes"]), (&["best".to_owned()][..], &json!("look at step 40k")));
    let list = served.get("/v1/jobs?tag=best").await.json();
    assert_eq!(list["jobs"][0]["id"], "train", "a list finds it by its new tag");
    let again: JobView = serde_json::from_slice(&patch(&served, "/v1/jobs/train", &body).await.body).unwrap();
    let stored =
        served.rig.fakes.store().job(&rekindle_core::ids::JobId::parse("train").unwrap()).await.unwrap().unwrap();
    assert_eq!(stored.value.changed_at, served.rig.engine.ports.clock.now(), "whoever watches is told");
    assert_eq!(again.revision, job.revision, "nothing to change, nothing written");
    assert_eq!(served.post("/v1/jobs", &spec("train")).await.status, 200, "the same spec is the same job");
    let entries = served.get("/v1/jobs/train/history").await.json()["entries"].clone();
    let last = entries.as_array().unwrap().last().unwrap().clone();
    assert_eq!((&last["cause"], &last["actor"]), (&json!("label"), &json!(CALLER)));
    assert!(last["message"].as_str().unwrap().starts_with("tagged best; notes changed"), "{last}");

    served.tell("/v1/jobs/train/cancel").await;
    for _ in 0..3 {
        served.rig.pass("train").await;
    }
    let body = json!({"remove_tags": ["best"], "notes": ""});
    let job: JobView = serde_json::from_slice(&patch(&served, "/v1/jobs/train", &body).await.body).unwrap();
    assert!(job.tags.is_empty() && job.spec.get("notes").is_none(), "{job:?}");
    let entries = served.get("/v1/jobs/train/history").await.json()["entries"].clone();
    let last = entries.as_array().unwrap().last().unwrap().clone();
    assert!(last["message"].as_str().unwrap().starts_with("took away the tag best; notes changed by "), "{last}");

    for (body, field) in [
        (json!({"add_tags": [" "]}), "add_tags"),
        (json!({"add_tags": ["a\nb"]}), "add_tags"),
        (json!({"notes": "x".repeat(9000)}), "notes"),
    ] {
        let answer = patch(&served, "/v1/jobs/train", &body).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["errors"][0]["field"]), (400, &json!(field)), "{body}");
    }
    assert_eq!(patch(&served, "/v1/jobs/train", &json!({"phase": "x"})).await.status, 400);
    assert_eq!(patch(&served, "/v1/jobs/none", &json!({})).await.status, 404);
}

#[tokio::test]
async fn a_bundle_can_be_looked_for_without_an_upload() {
    let served = Served::new().await;
    let (digest, path) = ("a".repeat(64), format!("/v1/bundles/{}", "a".repeat(64)));
    let look = async || serde_json::from_slice::<BundleView>(&served.get(&path).await.body).unwrap();
    let view = look().await;
    assert!(!view.present && view.upload.is_none() && view.code.ends_with(&format!("bundles/{digest}.tar.zst")));
    let name = format!("bundles/{digest}.tar.zst");
    served.rig.engine.ports.objects.put(&name, "x".into()).await.unwrap();
    assert!(look().await.present);
    assert_eq!(served.get("/v1/bundles/x").await.status, 400);
}

#[tokio::test]
async fn the_webhook_secret_is_the_callers() {
    let served = Served::new().await;
    let own: WebhookSecretView = serde_json::from_slice(&served.get("/v1/webhook-secret").await.body).unwrap();
    let secret = Secret::of(&served.rig.engine.installation.secret, CALLER);
    assert_eq!((own.owner.as_str(), own.secret), (CALLER, secret.to_text()));
    // On loopback everybody is an admin.
    let other = served.get("/v1/webhook-secret?owner=bob@example.com").await.json();
    assert_eq!(other["owner"], "bob@example.com");
    assert_ne!(other["secret"], secret.to_text());
}
