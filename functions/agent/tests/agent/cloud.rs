//! A small `api` and metadata server.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{Path as UrlPath, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use jiff::SignedDuration;
use rekindle_core::spec::CommandLine;
use rekindle_wire::agent::{Hello, Order, OutputAddress, OutputPlace, Report, Want, Welcome, Work, WorkerState};
use serde::Deserialize;
use tokio::sync::watch;

pub(crate) use crate::worker::{PATIENCE, Worker, is_alive, poll, until_dead};

/// What the servers hold.
#[derive(Debug)]
pub(crate) struct Inner {
    /// The answer to every call.
    pub(crate) order: Order,
    /// Every hello.
    pub(crate) hellos: Vec<Hello>,
    /// Every report.
    pub(crate) reports: Vec<Report>,
    /// Chunks of output by attempt, stream and number.
    pub(crate) chunks: BTreeMap<(u32, String, u64), Vec<u8>>,
    /// Chunks that came again with other bytes.
    pub(crate) changed_chunks: usize,
    /// `api` answers 503 while true.
    pub(crate) is_down: bool,
    /// The calls that it answered so, and when.
    pub(crate) turned_away: Vec<Instant>,
    /// Reports and output are answered after so long.
    pub(crate) takes: Duration,
    /// It answers 503 to output alone while true.
    pub(crate) takes_no_logs: bool,
    /// Outputs have no place while true: who asks waits.
    pub(crate) holds_outputs: bool,
    /// Outputs by their attempt and path: `a1/results/x`.
    pub(crate) outputs: BTreeMap<String, Vec<u8>>,
    /// What orders of people brought: streams of bytes, and the end, by order, stream and number.
    pub(crate) brought: BTreeMap<(u64, String, u64), Vec<u8>>,
    /// Values of Secret Manager by version; what is not there is refused.
    pub(crate) secrets: BTreeMap<String, String>,
    /// Tokens that came with the calls of Secret Manager.
    pub(crate) accessed: Vec<String>,
    /// Values of the metadata server that change.
    pub(crate) values: BTreeMap<String, String>,
    /// Token that is known.
    pub(crate) token: String,
    /// The agent's binary, for its download.
    pub(crate) binary: Vec<u8>,
    /// So many downloads are cut after about a quarter of the binary.
    pub(crate) cuts: usize,
    /// Where each download began.
    pub(crate) downloads: Vec<usize>,
    /// The address, as it stands in the request, and who asked, of each object of Cloud Storage.
    pub(crate) objects: Vec<(String, String)>,
    /// The clock of `api` is so far ahead.
    pub(crate) ahead: SignedDuration,
}

impl Inner {
    /// The newest report.
    pub(crate) fn last(&self) -> Option<&Report> {
        self.reports.last()
    }

    /// The newest report of an attempt in a state.
    pub(crate) fn is(&self, attempt: u32, state: WorkerState) -> Option<Report> {
        let last = self.last().filter(|r| r.attempt == attempt && r.state == state)?;
        // An exit is told until it is accepted, and not with every report after that.
        let told = self.reports.iter().rev().find(|r| r.attempt == attempt && r.exit.is_some());
        Some(Report { exit: told.and_then(|r| r.exit.clone()), ..last.clone() })
    }

    /// Everything that came of a stream, in order; `None` if a number is missing.
    pub(crate) fn output(&self, attempt: u32, stream: &str) -> Option<Vec<u8>> {
        let chunks = self.chunks.iter().filter(|((a, s, _), _)| *a == attempt && s == stream);
        let mut all = Vec::new();
        for (expected, ((_, _, number), bytes)) in (0_u64..).zip(chunks) {
            if *number != expected {
                return None;
            }
            all.extend_from_slice(bytes);
        }
        Some(all)
    }
}

/// Both servers, on one port.
#[derive(Clone)]
pub(crate) struct Cloud {
    /// `host:port`.
    pub(crate) address: String,
    inner: Arc<Mutex<Inner>>,
    changes: watch::Sender<u64>,
}

#[derive(Debug, Deserialize)]
struct Wait {
    #[serde(rename = "wait_for_change")]
    is_waiting: Option<bool>,
    last_etag: Option<String>,
    timeout_sec: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Whose {
    generation: u32,
    instance: String,
}

impl Cloud {
    /// Starts both; the first order is to prepare attempt 1 with this program.
    pub(crate) async fn start(run: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let inner = Inner {
            order: order(1, Want::Prepare, Some(work(1, run))),
            hellos: Vec::new(),
            reports: Vec::new(),
            chunks: BTreeMap::new(),
            changed_chunks: 0,
            is_down: false,
            turned_away: Vec::new(),
            takes: Duration::ZERO,
            takes_no_logs: false,
            holds_outputs: false,
            outputs: BTreeMap::new(),
            brought: BTreeMap::new(),
            secrets: BTreeMap::new(),
            accessed: Vec::new(),
            values: BTreeMap::from([("preempted".into(), "FALSE".into()), ("maintenance-event".into(), "NONE".into())]),
            token: "token-0".into(),
            binary: Vec::new(),
            cuts: 0,
            downloads: Vec::new(),
            objects: Vec::new(),
            ahead: SignedDuration::ZERO,
        };
        let cloud = Self { address, inner: Arc::new(Mutex::new(inner)), changes: watch::Sender::new(0) };
        let known = Router::new()
            .route("/agent/v1/report", post(report))
            .route("/agent/v1/logs/{job}/{attempt}/{worker}/{stream}/{number}", put(log))
            .route("/agent/v1/exec/{job}/{order}/{worker}/{stream}/{number}", put(brought))
            .route("/agent/v1/outputs", post(place))
            .layer(middleware::from_fn_with_state(cloud.clone(), refused));
        let app = Router::new()
            .merge(known)
            .route("/agent/v1/hello", post(hello))
            .route("/outputs/{*path}", put(output))
            .route("/computeMetadata/v1/instance/{*key}", get(metadata))
            .route("/agent-binary", get(binary))
            .route("/storage/{*object}", get(object))
            .route("/v1/{*version}", get(crate::secrets::access))
            .layer(axum::extract::DefaultBodyLimit::max(4 << 20))
            .layer(middleware::from_fn_with_state(cloud.clone(), dated))
            .with_state(cloud.clone());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        cloud
    }

    /// Changes something.
    pub(crate) fn set<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let done = change(&mut self.inner.lock().unwrap());
        self.changes.send_modify(|n| *n += 1);
        done
    }

    /// Changes what is wanted of the attempt.
    pub(crate) fn want(&self, want: Want) {
        self.set(|inner| inner.order.want = want);
    }

    /// Waits until `look` finds something.
    pub(crate) async fn until<T>(&self, what: &str, look: impl Fn(&Inner) -> Option<T>) -> T {
        let mut changes = self.changes.subscribe();
        let deadline = Instant::now() + PATIENCE;
        loop {
            changes.mark_unchanged();
            if let Some(found) = look(&self.inner.lock().unwrap()) {
                return found;
            }
            if tokio::time::timeout_at(deadline.into(), changes.changed()).await.is_err() {
                let inner = self.inner.lock().unwrap();
                panic!(
                    "not within {PATIENCE:?}: {what}; last report: {:#?}; order: {:?}",
                    inner.last(),
                    inner.order.want
                );
            }
        }
    }

    /// Waits until the newest report is of this attempt in this state.
    pub(crate) async fn until_state(&self, attempt: u32, state: WorkerState) -> Report {
        self.until(&format!("attempt {attempt} is {state:?}"), |inner| inner.is(attempt, state)).await
    }

    /// Prepares, runs and waits for the program to be told as running.
    pub(crate) async fn until_running(&self, attempt: u32) -> Report {
        self.until_state(attempt, WorkerState::Ready).await;
        self.want(Want::Run);
        self.until_state(attempt, WorkerState::Running).await
    }
}

/// An order with short waits.
pub(crate) fn order(attempt: u32, want: Want, work: Option<Work>) -> Order {
    Order {
        attempt,
        want,
        poll_after_ms: 50,
        heartbeat_ms: 1000,
        kill_at: None,
        cause: None,
        notice: None,
        work,
        exec: Vec::new(),
    }
}

/// Work of one shell program.
pub(crate) fn work(attempt: u32, run: &str) -> Work {
    Work {
        run: CommandLine::Shell(run.to_owned()),
        setup: None,
        code: None,
        env: BTreeMap::from([
            ("REKINDLE_JOB".to_owned(), "train".to_owned()),
            ("REKINDLE_ATTEMPT".to_owned(), attempt.to_string()),
        ]),
        secrets: BTreeMap::new(),
        clean: false,
        outputs: Vec::new(),
        stop_grace_ms: 5000,
        highest_step: None,
    }
}

impl Inner {
    /// The order as it is answered: `run` only after the worker has said that it is ready for this attempt.
    fn due(&self) -> Order {
        let mut order = self.order.clone();
        let was_ready = |r: &Report| r.attempt == order.attempt && r.state != WorkerState::Preparing;
        if order.want == Want::Run && !self.reports.iter().any(was_ready) {
            order.want = Want::Prepare;
        }
        order
    }
}

async fn hello(State(cloud): State<Cloud>, Json(hello): Json<Hello>) -> Response {
    cloud.set(|inner| {
        if inner.is_down {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        if hello.nonce != "nonce" {
            return StatusCode::FORBIDDEN.into_response();
        }
        inner.hellos.push(hello);
        inner.token = format!("token-{}", inner.hellos.len());
        Json(Welcome { token: inner.token.clone(), order: inner.due() }).into_response()
    })
}

async fn dated(State(cloud): State<Cloud>, request: Request, next: Next) -> Response {
    let mut answer = next.run(request).await;
    let now = jiff::Timestamp::now() + cloud.inner.lock().unwrap().ahead;
    let date = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    answer.headers_mut().insert("date", date.parse().unwrap());
    answer
}

/// Who may call: whoever knows the token.
async fn refused(State(cloud): State<Cloud>, request: Request, next: Next) -> Response {
    let refusal = cloud.set(|inner| {
        inner.turned_away.extend(inner.is_down.then(Instant::now));
        let token = request.headers().get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
        match token == format!("Bearer {}", inner.token) {
            _ if inner.is_down => Some(StatusCode::SERVICE_UNAVAILABLE),
            false => Some(StatusCode::UNAUTHORIZED),
            true => None,
        }
    });
    match refusal {
        Some(status) => status.into_response(),
        None => next.run(request).await,
    }
}

/// Waits as `api` does for a slow store.
async fn slowly(cloud: &Cloud) {
    let takes = cloud.set(|inner| inner.takes);
    let _ = tokio::time::timeout(takes, std::future::pending::<()>()).await;
}

async fn report(State(cloud): State<Cloud>, Json(report): Json<Report>) -> Response {
    slowly(&cloud).await;
    cloud.set(|inner| {
        inner.reports.push(report.clone());
        let mut order = inner.due();
        if report.has_work && report.attempt == order.attempt {
            order.work = None;
        }
        Json(order).into_response()
    })
}

async fn log(
    State(cloud): State<Cloud>,
    UrlPath((job, attempt, worker, stream, number)): UrlPath<(String, u32, String, String, u64)>,
    Query(whose): Query<Whose>,
    body: Bytes,
) -> Response {
    slowly(&cloud).await;
    cloud.set(|inner| {
        if inner.takes_no_logs {
            return StatusCode::SERVICE_UNAVAILABLE.into_response();
        }
        if (job.as_str(), worker.as_str(), whose.generation, whose.instance.as_str())
            != ("train", "0-1", 2, "t1v-n-abc-w-1")
        {
            return StatusCode::NOT_FOUND.into_response();
        }
        let key = (attempt, stream, number);
        let known = inner.chunks.get(&key);
        if known.is_some_and(|known| *known != body) {
            inner.changed_chunks += 1;
        }
        if known.is_some() {
            return StatusCode::CONFLICT.into_response();
        }
        inner.chunks.insert(key, body.to_vec());
        StatusCode::NO_CONTENT.into_response()
    })
}

async fn brought(
    State(cloud): State<Cloud>,
    UrlPath((_, order, _, stream, number)): UrlPath<(String, u64, String, String, u64)>,
    body: Bytes,
) -> StatusCode {
    cloud.set(|inner| inner.brought.insert((order, stream, number), body.to_vec()));
    StatusCode::NO_CONTENT
}

async fn place(State(cloud): State<Cloud>, Json(place): Json<OutputPlace>) -> Response {
    cloud.until("outputs have a place", |inner| (!inner.holds_outputs).then_some(())).await;
    let upload = format!("http://{}/outputs/a{}/{}", cloud.address, place.attempt.unwrap_or_default(), place.path);
    (StatusCode::CREATED, Json(OutputAddress { upload })).into_response()
}

async fn output(State(cloud): State<Cloud>, UrlPath(path): UrlPath<String>, body: Bytes) -> StatusCode {
    cloud.set(|inner| inner.outputs.insert(path, body.to_vec()));
    StatusCode::OK
}

async fn metadata(
    State(cloud): State<Cloud>,
    UrlPath(key): UrlPath<String>,
    Query(wait): Query<Wait>,
    headers: HeaderMap,
) -> Response {
    if headers.get("metadata-flavor").is_none_or(|v| v != "Google") {
        return StatusCode::FORBIDDEN.into_response();
    }
    let fixed = match key.as_str() {
        "attributes/rekindle-job" => Some("train".to_owned()),
        "attributes/rekindle-generation" => Some("2".to_owned()),
        "service-accounts/default/token" => Some(r#"{"access_token":"the-machines","expires_in":3000}"#.to_owned()),
        "attributes/rekindle-nonce" => Some("nonce".to_owned()),
        "attributes/rekindle-api" => Some(format!("http://{}", cloud.address)),
        "attributes/agent-worker-number" => Some("1".to_owned()),
        "attributes/worker-network-endpoints" => Some("a:b:10.0.0.4,a:b:10.0.0.5".to_owned()),
        "name" => Some("t1v-n-abc-w-1".to_owned()),
        _ => None,
    };
    if let Some(value) = fixed {
        return value.into_response();
    }
    let mut changes = cloud.changes.subscribe();
    let deadline = Instant::now() + Duration::from_secs(wait.timeout_sec.unwrap_or(60));
    loop {
        let value = cloud.inner.lock().unwrap().values.get(&key).cloned();
        let Some(value) = value else { return StatusCode::NOT_FOUND.into_response() };
        let is_waiting = wait.is_waiting == Some(true) && wait.last_etag.as_deref() == Some(&value);
        if !is_waiting || tokio::time::timeout_at(deadline.into(), changes.changed()).await.is_err() {
            return ([("etag", value.clone())], value).into_response();
        }
    }
}

/// Whatever is asked for is the agent's binary: who looks at it knows what was due.
async fn object(State(cloud): State<Cloud>, uri: Uri, headers: HeaderMap) -> Response {
    let bearer = headers.get("authorization").and_then(|v| v.to_str().ok()).unwrap_or_default();
    cloud.set(|inner| inner.objects.push((uri.to_string(), bearer.to_owned())));
    binary(State(cloud), headers).await
}

async fn binary(State(cloud): State<Cloud>, headers: HeaderMap) -> Response {
    let resumed = headers.get("range").and_then(|range| range.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-'));
    let resumed: Option<usize> = resumed.map(|from| from.parse().unwrap());
    let from = resumed.unwrap_or(0);
    let inner = &mut *cloud.inner.lock().unwrap();
    inner.downloads.push(from);
    let (size, is_cut) = (inner.binary.len(), inner.downloads.len() <= inner.cuts);
    let end = if is_cut { from + size / 4 } else { size };
    // In small parts, so that most of them are on their way when the connection is cut.
    let parts: Vec<Bytes> = inner.binary[from..end].chunks(1 << 16).map(Bytes::copy_from_slice).collect();
    let parts = parts.into_iter().map(Ok).chain(is_cut.then(|| Err(std::io::Error::other("cut"))));
    let body = axum::body::Body::from_stream(futures::stream::iter(parts));
    let headers = [("content-length", (size - from).to_string())];
    if resumed.is_none() {
        return (headers, body).into_response();
    }
    let range = [("content-range", format!("bytes {from}-{}/{size}", size - 1))];
    (StatusCode::PARTIAL_CONTENT, headers, range, body).into_response()
}
