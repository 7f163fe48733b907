//! Cloud Scheduler and Cloud Tasks as people set them up: what the real `gcloud` asks these services to send is recorded, and sent.

use std::process::Stdio;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{Method, Request, Uri};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use rekindle_rig::{Answer, spec};

use super::identity::{World, sign};

/// What came: path and body.
type Seen = Arc<Mutex<Vec<(String, Value)>>>;

/// Stands in for Google's services: remembers what it is asked, and answers it as if it had been done.
async fn services() -> (String, Seen) {
    let seen = Seen::default();
    let record = async |State(seen): State<Seen>, method: Method, uri: Uri, body: String| {
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        seen.lock().unwrap().push((format!("{method} {}", uri.path()), body.clone()));
        axum::Json(body.get("task").cloned().unwrap_or(body))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().fallback(record).with_state(Arc::clone(&seen));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, seen)
}

/// Runs `gcloud`; the requests that it sent. `None`: it is not installed.
async fn gcloud(words: &[&str]) -> Option<Vec<(String, Value)>> {
    let (url, seen) = services().await;
    let folder = tempfile::tempdir().unwrap();
    let mut command = tokio::process::Command::new("gcloud");
    command.args(words).args(["--project=p", "--location=us-central1", "--quiet", "--format=json"]);
    for (name, value) in [
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER", url.as_str()),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDTASKS", url.as_str()),
        ("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "true"),
        ("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true"),
        ("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true"),
        ("CLOUDSDK_CONFIG", folder.path().to_str().unwrap()),
    ] {
        command.env(name, value);
    }
    let output = match command.stdin(Stdio::null()).output().await {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && std::env::var("CI").is_err() => {
            eprintln!("note: gcloud is not installed; what it sends was not looked at");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let seen = seen.lock().unwrap().clone();
    assert!(output.status.success(), "{words:?}: {} {seen:?}", String::from_utf8_lossy(&output.stderr));
    Some(seen)
}

/// Sends what a service was asked to send, with the headers of its own.
async fn deliver(world: &World, target: &Value, own: &[(&str, &str)]) -> Answer {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let url = if target["uri"].is_null() { text(&target["url"]) } else { text(&target["uri"]) };
    let uri: Uri = url.parse().unwrap();
    // Absent means POST.
    let method = target["httpMethod"].as_str().unwrap_or("POST");
    let mut request = Request::builder().method(method).uri(uri.path());
    for (name, value) in target["headers"].as_object().into_iter().flatten() {
        request = request.header(name, text(value));
    }
    for (name, value) in own {
        request = request.header(*name, *value);
    }
    let mut claims = world.claims(target["oidcToken"]["serviceAccountEmail"].as_str().unwrap());
    claims["aud"] = target["oidcToken"]["audience"].clone();
    request = request.header("authorization", format!("Bearer {}", sign(&claims)));
    let body = STANDARD.decode(text(&target["body"])).unwrap();
    rekindle_rig::send(&world.router, request.body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn the_tick_runs_as_gcloud_scheduler_jobs_run_makes_it_run() {
    let account = "scheduler@p.iam.gserviceaccount.com";
    let Some(made) = gcloud(&[
        "scheduler",
        "jobs",
        "create",
        "http",
        "rekindle-tick",
        "--schedule=* * * * *",
        "--uri=https://svc.example.app/functions/tick",
        "--http-method=post",
        &format!("--oidc-service-account-email={account}"),
        "--oidc-token-audience=https://svc.example.app",
    ])
    .await
    else {
        return;
    };
    let run = gcloud(&["scheduler", "jobs", "run", "rekindle-tick"]).await.unwrap();
    let name = "projects/p/locations/us-central1/jobs/rekindle-tick";
    assert!(run.iter().any(|(call, _)| *call == format!("POST /v1/{name}:run")), "{run:?}");
    let (_, job) = made.iter().find(|(_, body)| body["name"] == name).unwrap_or_else(|| panic!("{made:?}"));

    let world = World::new().await;
    let own = include_str!("../../../../tests/samples/events/cloud-scheduler/real-headers.json");
    let own: Value = serde_json::from_str(own).unwrap();
    let own: Vec<(&str, &str)> = own["headers"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "authorization" && *name != "content-length")
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .collect();
    for _ in 0..2 {
        let answer = deliver(&world, &job["httpTarget"], &own).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
    assert!(world.rig.fakes.tpu.calls().iter().any(|call| matches!(call, rekindle_fakes::Call::List)), "the sweep ran");
}

#[tokio::test]
async fn a_job_is_submitted_as_gcloud_tasks_create_http_task_sends_it() {
    let body = spec("by-task").to_string();
    let Some(made) = gcloud(&[
        "tasks",
        "create-http-task",
        "tonight",
        "--queue=submits",
        "--url=https://svc.example.app/v1/jobs",
        "--header=Content-Type: application/json",
        &format!("--body-content={body}"),
        "--oidc-service-account-email=ann@example.com",
        "--oidc-token-audience=https://svc.example.app",
    ])
    .await
    else {
        return;
    };
    let (call, sent) = made.iter().find(|(_, body)| body["task"].is_object()).unwrap_or_else(|| panic!("{made:?}"));
    assert!(call.ends_with("/queues/submits/tasks"), "{call}");

    let world = World::new().await;
    let own = [
        ("user-agent", "Google-Cloud-Tasks"),
        ("x-cloudtasks-queuename", "submits"),
        ("x-cloudtasks-taskname", "tonight"),
        ("x-cloudtasks-taskretrycount", "0"),
        ("x-cloudtasks-tasketa", "1796000000.0"),
    ];
    let target = &sent["task"]["httpRequest"];
    let answer = deliver(&world, target, &own).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["id"]), (201, &json!("by-task")), "{}", answer.text());
    assert_eq!(answer.json()["owner"], "ann@example.com");
    // A task whose answer was lost is sent again.
    assert_eq!(deliver(&world, target, &own).await.status, 200);
    assert_eq!(world.rig.job("by-task").await.unwrap().spec.owner, "ann@example.com");
}
