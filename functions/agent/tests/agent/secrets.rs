//! Secrets: in the environment of the job's programs, and nowhere else.

use std::collections::BTreeMap;
use std::path::Path;

use axum::Json;
use axum::extract::{Path as UrlPath, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rekindle_core::classify::Exit;
use rekindle_core::exec::{ExecAction, ExecOrder};
use rekindle_core::spec::CommandLine;
use rekindle_wire::agent::{Want, WorkerState};

use crate::cloud::{Cloud, Inner, Worker, order, work};

const VERSION: &str = "projects/p/secrets/wandb/versions/latest";
const FIRST: &str = "hush-one-9f31";
const SECOND: &str = "hush-two-77ac";
/// Tells a value apart from others without telling it.
const SUM: &str = r#"printf %s "$WANDB_API_KEY" | sha256sum >> sums"#;

/// Secret Manager.
pub(crate) async fn access(State(cloud): State<Cloud>, UrlPath(path): UrlPath<String>, headers: HeaderMap) -> Response {
    let token = headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    cloud.set(|inner| {
        inner.accessed.push(token);
        match path.strip_suffix(":access").and_then(|version| inner.secrets.get(version)) {
            // A server that is down.
            Some(value) if value.is_empty() => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Some(value) => {
                let data = STANDARD.encode(value);
                Json(serde_json::json!({"name": path, "payload": {"data": data, "dataCrc32c": "1"}})).into_response()
            }
            None => {
                let why = serde_json::json!({"error": {"code": 403, "message": "Permission denied on resource"}});
                (StatusCode::FORBIDDEN, Json(why)).into_response()
            }
        }
    })
}

fn secrets() -> BTreeMap<String, String> {
    BTreeMap::from([("WANDB_API_KEY".to_owned(), VERSION.to_owned())])
}

/// The first work asks for the secret, which has this value; an empty one: the server is down.
fn asks(inner: &mut Inner, value: Option<&str>) {
    inner.order.work.as_mut().unwrap().secrets = secrets();
    inner.secrets = value.map(|value| (VERSION.to_owned(), value.to_owned())).into_iter().collect();
}

/// Every file below a folder that holds a text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in there(std::fs::read_dir(folder)).into_iter().flatten().flatten() {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            found.extend(holding(&path, text));
        } else if kind.is_file()
            && there(std::fs::read(&path)).is_some_and(|bytes| bytes.windows(text.len()).any(|w| w == text.as_bytes()))
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// `None`: the agent, which is at work, has replaced or removed it meanwhile.
fn there<T>(read: std::io::Result<T>) -> Option<T> {
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        read => Some(read.unwrap()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_have_them_and_neither_the_disk_nor_a_log_nor_a_report() {
    let cloud = Cloud::start(&format!("{SUM}; ! env | grep REKINDLE_SECRET_")).await;
    cloud.set(|inner| {
        asks(inner, Some(FIRST));
        inner.order.work.as_mut().unwrap().setup = Some(CommandLine::Shell(SUM.into()));
    });
    let worker = Worker::start_with(&cloud, vec![("RUST_LOG", "trace".into())]);
    cloud.until_state(1, WorkerState::Ready).await;
    cloud.want(Want::Run);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(0), "{}", exit.evidence.tail);
    // The next attempt takes what is the latest by now.
    cloud.set(|inner| {
        inner.order = order(2, Want::Run, Some(work(2, SUM)));
        asks(inner, Some(SECOND));
    });
    cloud.until_state(2, WorkerState::Exited).await;
    let sums = worker.lines("sums", 3).await;
    assert!(sums[0] == sums[1] && sums[1] != sums[2], "setup, run, and the run of the next attempt: {sums:?}");
    assert!(cloud.set(|inner| inner.accessed.clone()).iter().all(|token| token == "Bearer the-machines"));
    let log = std::fs::read_to_string(worker.home().join("agent.log")).unwrap();
    assert!(log.contains("TRACE"), "the log says everything");
    for secret in [FIRST, SECOND] {
        assert_eq!(holding(&worker.home(), secret), Vec::<String>::new());
        let told = cloud.set(|inner| format!("{:?} {:?}", inner.reports, inner.hellos));
        assert!(!told.contains(secret), "{told}");
        let output = cloud.set(|inner| inner.chunks.values().flatten().copied().collect::<Vec<u8>>());
        assert!(!String::from_utf8_lossy(&output).contains(secret));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_is_told_and_nothing_is_started() {
    let cloud = Cloud::start("echo x > started").await;
    cloud.set(|inner| asks(inner, None));
    let worker = Worker::start(&cloud);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(1));
    for part in ["cannot read the secret", VERSION, "WANDB_API_KEY", "403", "Permission denied", "secretAccessor"] {
        assert!(exit.evidence.tail.contains(part), "{part}: {}", exit.evidence.tail);
    }
    assert!(!worker.work().join("started").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_is_waited_for_and_a_new_agent_reads_again() {
    let cloud = Cloud::start(SUM).await;
    cloud.set(|inner| asks(inner, Some("")));
    let mut worker = Worker::start(&cloud);
    cloud.until("a second try", |inner| (inner.accessed.len() > 1).then_some(())).await;
    cloud.set(|inner| asks(inner, Some(FIRST)));
    cloud.until_state(1, WorkerState::Ready).await;
    worker.kill_agent();
    let before = cloud.set(|inner| inner.accessed.len());
    worker.start_agent();
    cloud.want(Want::Run);
    let exit = cloud.until_state(1, WorkerState::Exited).await.exit.unwrap();
    assert_eq!(exit.evidence.exit, Exit::Code(0), "{}", exit.evidence.tail);
    assert!(cloud.set(|inner| inner.accessed.len()) > before);
    assert!(!worker.line("sums").await.starts_with("e3b0c442"), "that would be the sum of nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_of_people_have_them_too() {
    let cloud = Cloud::start("sleep 600").await;
    cloud.set(|inner| asks(inner, Some(FIRST)));
    let worker = Worker::start(&cloud);
    cloud.until_running(1).await;
    let action = ExecAction::Run(CommandLine::Shell(SUM.into()));
    cloud.set(|inner| {
        inner.order.exec =
            vec![ExecOrder { id: 1, attempt: 1, worker: None, at: Timestamp::now(), action, stop_at: None }];
    });
    assert!(!worker.line("sums").await.starts_with("e3b0c442"), "that would be the sum of nothing");
}
