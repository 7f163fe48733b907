//! Against a server that keeps what it is sent.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use base64::Engine;
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Default)]
struct Fake {
    seen: Arc<Mutex<Vec<(String, Value)>>>,
    answer: Arc<Mutex<Option<(u16, Value)>>>,
}

async fn answer(State(fake): State<Fake>, uri: Uri, body: String) -> (StatusCode, String) {
    fake.seen.lock().unwrap().push((uri.path().to_owned(), serde_json::from_str(&body).unwrap()));
    let (status, body) = fake.answer.lock().unwrap().clone().unwrap_or((200, json!({})));
    (StatusCode::from_u16(status).unwrap(), body.to_string())
}

async fn client(fake: &Fake, service_account: Option<&str>) -> CloudTasksWakeups {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let router = Router::new().fallback(answer).with_state(fake.clone());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    let settings = TasksSettings {
        project: "p".into(),
        location: "us-central1".into(),
        queue: "wake".into(),
        url: "https://reconcile.example.app/functions/reconcile".into(),
        service_account: service_account.map(str::to_owned),
        audience: "https://reconcile.example.app".into(),
    };
    CloudTasksWakeups::new(settings, Service::emulator(&address))
}

fn job() -> JobId {
    JobId::parse("llama-7b").unwrap()
}

#[tokio::test]
async fn a_wake_up_is_a_named_task_that_posts_a_hint() {
    let fake = Fake::default();
    let client = client(&fake, Some("wake@p.iam.gserviceaccount.com")).await;
    let at: Timestamp = "2026-11-27T10:00:30.25Z".parse().unwrap();
    client.schedule(&job(), at, "3 poll/qr").await.unwrap();
    let (path, body) = fake.seen.lock().unwrap()[0].clone();
    assert_eq!(path, "/v2/projects/p/locations/us-central1/queues/wake/tasks");
    let task = &body["task"];
    let name = task["name"].as_str().unwrap().rsplit('/').next().unwrap();
    assert!(name.ends_with("-llama-7b-3-poll-qr"), "{name}");
    assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'), "{name}");
    assert_eq!(task["scheduleTime"], "2026-11-27T10:00:30.25Z");
    let request = &task["httpRequest"];
    assert_eq!(request["url"], "https://reconcile.example.app/functions/reconcile");
    assert_eq!(request["httpMethod"], 1, "1 is POST");
    assert_eq!(request["headers"], json!({ "Content-Type": "application/json" }));
    let token =
        json!({ "serviceAccountEmail": "wake@p.iam.gserviceaccount.com", "audience": "https://reconcile.example.app" });
    assert_eq!(request["oidcToken"], token);
    let body = base64::engine::general_purpose::STANDARD.decode(request["body"].as_str().unwrap()).unwrap();
    let hint: Hint = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        hint,
        Hint { job: job(), after: None, news: None, cause: "wake-up 3 poll/qr".into(), traceparent: None }
    );
}

#[test]
fn names_tell_jobs_and_keys_apart_and_begin_with_a_hash() {
    let id = task_id(&job(), "k");
    assert_eq!(id, task_id(&job(), "k"), "the same key is the same task");
    let others = [
        task_id(&job(), "k2"),
        task_id(&job(), "a/b"),
        task_id(&job(), "a-b"),
        task_id(&JobId::parse("llama-7").unwrap(), "b-k"),
        task_id(&job(), &"x".repeat(900)),
        task_id(&job(), &"x".repeat(901)),
    ];
    let mut all: Vec<&str> = others.iter().map(String::as_str).chain([id.as_str()]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 7);
    assert!(all.iter().all(|id| id.len() <= 500 && id.as_bytes()[16] == b'-'), "{all:?}");
}

#[tokio::test]
async fn a_task_that_exists_is_what_was_wanted() {
    let fake = Fake::default();
    let client = client(&fake, None).await;
    let at = Timestamp::now();
    let error = |code: u16, status: &str| {
        Some((code, json!({ "error": { "code": code, "status": status, "message": "said so" } })))
    };
    *fake.answer.lock().unwrap() = error(409, "ALREADY_EXISTS");
    client.schedule(&job(), at, "k").await.unwrap();
    assert_eq!(fake.seen.lock().unwrap()[0].1["task"]["httpRequest"]["oidcToken"], Value::Null);
    for (code, status) in [(403, "PERMISSION_DENIED"), (404, "NOT_FOUND"), (503, "UNAVAILABLE")] {
        *fake.answer.lock().unwrap() = error(code, status);
        let refused = client.schedule(&job(), at, "k").await.unwrap_err();
        assert_eq!(refused.to_string(), "schedule a wake-up: said so");
    }
    assert_eq!(fake.seen.lock().unwrap().len(), 4, "nothing is tried again");
}

#[tokio::test]
async fn what_is_too_far_ahead_is_left_to_the_tick() {
    let fake = Fake::default();
    let client = client(&fake, None).await;
    let at = Timestamp::now() + SignedDuration::from_hours(40 * 24);
    client.schedule(&job(), at, "k").await.unwrap();
    assert!(fake.seen.lock().unwrap().is_empty());
}
