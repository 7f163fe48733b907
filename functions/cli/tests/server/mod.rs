//! A server with a few jobs in known states, in the shapes of the wire.

mod faulty;
mod logs;
mod objects;
mod seeing;
mod space;
mod uploads;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use jiff::{SignedDuration, Timestamp};
use rekindle_core::decide::NoSense;
use rekindle_core::job::Phase;
use rekindle_wire::v1::{JobView, Problem};
use serde_json::{Value, json};

/// What came in.
#[derive(Default)]
struct Seen {
    bundles: BTreeMap<String, Bytes>,
    headers: Vec<HeaderMap>,
    bodies: Vec<Value>,
    looks: u32,
    follows: u32,
    looked: Arc<tokio::sync::Notify>,
    addresses: u32,
    uploads: Vec<String>,
    stall: Option<Arc<tokio::sync::Notify>>,
    loses_answers: bool,
    pages: Vec<String>,
    queries: Vec<BTreeMap<String, String>>,
}

type Log = Arc<Mutex<Seen>>;

/// A running server; ends when it is dropped.
pub(crate) struct Server {
    addr: std::net::SocketAddr,
    log: Log,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Every value of a header, in the order of the requests.
    pub(crate) fn seen(&self, name: &str) -> Vec<String> {
        let log = self.log.lock().unwrap();
        log.headers.iter().filter_map(|headers| Some(headers.get(name)?.to_str().unwrap().to_owned())).collect()
    }

    /// The next upload stops in its middle.
    pub(crate) fn stall_next_upload(&self) {
        self.log.lock().unwrap().stall = Some(Arc::default());
    }

    /// Uploads arrive from now on, and their answers do not.
    pub(crate) fn lose_answers(&self) {
        self.log.lock().unwrap().loses_answers = true;
    }

    /// Waits until the upload has stopped.
    pub(crate) async fn stalled(&self) {
        let stall = self.log.lock().unwrap().stall.clone().unwrap();
        stall.notified().await;
    }

    /// Each request of uploads: the number of its address, and what it was.
    pub(crate) fn uploads(&self) -> Vec<String> {
        self.log.lock().unwrap().uploads.clone()
    }

    /// Each page of a history, or of a list, of which not all is told at once.
    pub(crate) fn pages(&self) -> Vec<String> {
        self.log.lock().unwrap().pages.clone()
    }

    /// What each request for output asked for.
    pub(crate) fn queries(&self) -> Vec<BTreeMap<String, String>> {
        self.log.lock().unwrap().queries.clone()
    }

    /// How often the address of a bundle was asked for.
    pub(crate) fn addresses(&self) -> u32 {
        self.log.lock().unwrap().addresses
    }

    /// Waits until somebody has looked at a job so often.
    pub(crate) async fn looked(&self, count: u32) {
        let looked = self.log.lock().unwrap().looked.clone();
        while self.log.lock().unwrap().looks < count {
            looked.notified().await;
        }
    }

    /// Every JSON body, in order.
    pub(crate) fn bodies(&self) -> Vec<Value> {
        self.log.lock().unwrap().bodies.clone()
    }
}

pub(crate) async fn start() -> Server {
    start_as(json!({"version": "0.1.0", "installation": "abc123"})).await
}

/// One that says that it is `rekindle dev`.
pub(crate) async fn start_local() -> Server {
    start_as(json!({"version": "0.1.0", "installation": "abc123", "local": true})).await
}

/// One of another version, from before servers say with each answer that it is theirs.
pub(crate) async fn start_earlier() -> Server {
    let earlier = axum::middleware::map_response(faulty::unmarked);
    serve(json!({"version": "0.0.9", "installation": "abc123"}), |router| router.layer(earlier)).await
}

/// One that goes on telling changes, though there are no more.
pub(crate) async fn start_telling() -> Server {
    let watch = Router::new().route("/v1/watch", get(seeing::watch_on));
    let watch = watch.layer(axum::middleware::map_response(faulty::ours));
    let version = json!({"version": "0.1.0", "installation": "abc123"});
    serve(version, |router| watch.fallback_service(router)).await
}

async fn start_as(version: Value) -> Server {
    serve(version, |router| router).await
}

async fn serve(version: Value, change: impl FnOnce(Router) -> Router) -> Server {
    let log = Log::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let router = Router::new()
        .route("/v1/jobs", get(list).post(submit))
        .route("/v1/jobs/{id}", get(show).patch(label))
        .route("/v1/bundles/{sha256}", get(uploads::bundle).post(uploads::bundle))
        .route("/objects/{sha256}/{address}", put(uploads::upload))
        .route("/v1/webhook-secret", get(async || Json(json!({"owner": "ada@example.com", "secret": "whsec_AAAA"}))))
        .route("/v1/jobs/{id}/explain", get(explain))
        .route("/v1/jobs/{id}/history", get(history))
        .route("/v1/jobs/{id}/logs", get(logs::logs))
        .route("/v1/jobs/{id}/outputs", get(space::outputs))
        .route("/v1/jobs/{id}/outputs/{*object}", get(space::output))
        .route("/v1/jobs/{id}/{command}", post(command))
        .route("/v1/jobs/{id}/progress", get(seeing::progress))
        .route("/v1/account", get(seeing::account))
        .route("/v1/digest", get(seeing::digest))
        .route("/v1/watch", get(seeing::watch))
        .route("/v1/fleet", get(fleet))
        .route("/v1/dead-letters", get(seeing::letters))
        .route("/v1/freeze", post(async || Json(json!({"frozen": true, "by": "me", "at": null}))))
        .route("/v1/thaw", post(async || Json(json!({"frozen": false, "by": "me", "at": null}))))
        .route("/version", get(async move || Json(version)))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .with_state(log.clone())
        .merge(space::orders())
        .layer(axum::middleware::map_response(faulty::ours));
    let router = change(router);
    let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    Server { addr, log, task }
}

fn problem(status: u16, detail: &str, errors: &[(&str, &str)]) -> Response {
    problem_with(status, detail, errors, &[])
}

fn problem_with(status: u16, detail: &str, errors: &[(&str, &str)], more: &[(&str, &str)]) -> Response {
    let errors = errors.iter().map(|(field, message)| json!({"field": field, "message": message}));
    let mut problem: Problem = serde_json::from_value(json!({
        "type": "about:blank", "title": "refused", "status": status, "detail": detail,
        "errors": errors.collect::<Vec<_>>(),
    }))
    .unwrap();
    problem.more.extend(more.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
    let headers = [(header::CONTENT_TYPE, "application/problem+json")];
    (StatusCode::from_u16(status).unwrap(), headers, Json(problem)).into_response()
}

fn problem_of(kind: &str, status: u16, detail: &str) -> Response {
    let body = json!({
        "type": format!("urn:rekindle:problem:{kind}"), "title": "refused", "status": status, "detail": detail,
    });
    let headers = [(header::CONTENT_TYPE, "application/problem+json")];
    (StatusCode::from_u16(status).unwrap(), headers, Json(body)).into_response()
}

/// So long ago that its age is the same for some time.
fn ago(secs: i64) -> Timestamp {
    Timestamp::now() - SignedDuration::from_secs(secs)
}

/// A job in a state; what it says is checked against the wire's shape.
fn job(id: &str, change: &[(&str, Value)]) -> Value {
    let mut view = json!({
        "id": id,
        "phase": "running",
        "phase_since": ago(1510),
        "outcome": null,
        "reason": "running",
        "message": "The program runs on 4 workers.",
        "desired": "run",
        "attempt": 2,
        "generation": 2,
        "waiting_for": null,
        "next_wake_at": null,
        "resources": [{
            "generation": 2, "name": format!("rk-abc123-{id}-g2"), "kind": "node", "zone": "us-central1-a",
            "accelerator": "v5litepod-16", "capacity": "spot", "slices": 1, "workers": 4, "chips": 16,
            "state": "ready", "created_at": ago(1690), "ready_at": ago(1570), "notice_deadline": null,
            "usd_per_hour": 3.92,
        }],
        "counters": {
            "preemptions": 1, "infra_failures": 0, "user_failures": 0, "stockouts": 0, "resumes": 1,
            "steps_repeated": 25,
        },
        "progress": {"step": 1200, "step_at": null, "loss": "2.31", "checkpoint": 1175},
        "cost_usd": 1.234,
        "chip_hours": {"total": 5.0, "useful": 4.5, "repeated": 0.1, "waiting": 0.3, "idle": 0.1},
        "last_end": {
            "attempt": 1, "generation": 1, "at": ago(1750), "kind": "preempted",
            "summary": "The provider took the slice back.",
        },
        "created_at": ago(7510),
        "first_started_at": ago(7390),
        "submitted_by": "ada@example.com",
        "owner": "research",
        "tags": ["ablation"],
        "run_id": "r1",
        "line": 0,
        "revision": 12,
        "changed_at": ago(1510),
        "spec": {
            "run": ["python3", "train.py"], "tpu": {"accelerator": "v5litepod-16"},
            "code": "gs://bucket/bundles/0123456789abcdef.tar.zst",
            "source": {"folder": "train", "commit": "1a2b3c4d5e6f7a8b", "branch": "main", "dirty": true},
        },
        "defaults": {"tpu.zones": ["us-central1-a", "us-west4-a"], "tpu.runtime_version": "v2-alpha-tpuv5-lite"},
    });
    for (name, value) in change {
        assert!(view.get(*name).is_some(), "{name}");
        view[*name] = value.clone();
    }
    let _: JobView = serde_json::from_value(view.clone()).unwrap();
    view
}

fn waiting() -> Value {
    job(
        "waits",
        &[
            ("phase", json!("pending")),
            ("phase_since", json!(ago(130))),
            ("reason", json!("stockout")),
            ("message", json!("No capacity in us-central1-a.")),
            ("attempt", json!(0)),
            ("generation", json!(0)),
            ("waiting_for", json!("capacity")),
            ("next_wake_at", json!(ago(-190))),
            ("resources", json!([])),
            ("progress", json!({"step": null, "step_at": null, "loss": null, "checkpoint": null})),
            ("last_end", Value::Null),
        ],
    )
}

fn ended(id: &str, phase: &str, message: &str) -> Value {
    let end = [("phase", json!(phase)), ("outcome", json!(phase)), ("message", json!(message))];
    job(id, &[&end[..], &[("resources", json!([])), ("waiting_for", Value::Null)]].concat())
}

/// The jobs that are there by name.
fn known(id: &str) -> Option<Value> {
    match id {
        "train-1" | "guarded" | "past" | "endless" => Some(job(id, &[])),
        "waits" => Some(waiting()),
        "sending" => Some(logs::sending()),
        "box" | "box-lost" | "left" | "full" | "half" | "grows" | "none" | "busy" | "deaf" | "firm" | "shaky"
        | "napped" | "hung" | "piped" | "lone" | "quiet" | "again-2" => Some(space::workspace(id)),
        "asleep" | "restless" => Some(space::asleep(id)),
        "rising" => Some(space::rising()),
        "old" => Some(space::ended()),
        "again" => Some(space::worn(id)),
        "stuck" => Some(space::stuck()),
        "crashed" => Some(space::crashed()),
        "leaving" => Some(space::leaving()),
        "held" => Some(space::held()),
        "sliced" => Some(space::sliced()),
        "queued" => Some(space::queued()),
        id if id.starts_with("worn") => Some(space::worn(id)),
        "silent" => Some(seeing::settling()),
        "hooked" => Some(seeing::hooked()),
        "noted" => Some(seeing::noted()),
        "knocking" => Some(seeing::knocking()),
        "crowd" => Some(seeing::crowd()),
        "mute" => Some(seeing::mute()),
        "unborn" => Some(seeing::unborn()),
        "good" | "moved" | "odd" | "cut" | "young" | "gated" | "forger" | "ending" => {
            Some(ended(id, "succeeded", "All 4 workers ended well."))
        }
        "bad" => Some(ended(id, "failed", "ModuleNotFoundError: No module named 'flax' (environment).")),
        "gone" => Some(ended(id, "cancelled", "ada@example.com cancelled it.")),
        "rude" => Some(job(id, &[("message", json!("\u{1b}[2Jcleared"))])),
        _ => None,
    }
}

async fn list(State(log): State<Log>, Query(query): Query<BTreeMap<String, String>>) -> Response {
    if query.get("tag").is_some_and(|tag| tag == "many") {
        return many(&log, &query);
    }
    // `status` asks for as many as it can get; what else is asked for stays a short list.
    let workspaces = ["box"].into_iter().filter(|_| query.get("page_size").is_some_and(|size| size == "500"));
    let deleted = ["old"].into_iter().filter(|_| query.get("phase").is_some_and(|phase| phase == "cancelled"));
    let ids = ["waits", "train-1", "good", "bad"].into_iter().chain(workspaces).chain(deleted);
    let jobs = ids.filter_map(known);
    let is = |job: &Value, field: &str| query.get(field).is_none_or(|wanted| job[field] == wanted.as_str());
    let fits = |job: &Value| is(job, "phase") && is(job, "owner");
    Json(json!({"jobs": jobs.filter(fits).collect::<Vec<_>>(), "next_page_token": null})).into_response()
}

fn many(log: &Log, query: &BTreeMap<String, String>) -> Response {
    let from: usize = query.get("page_token").map_or(0, |token| token.parse().unwrap());
    let size: usize = query["page_size"].parse().unwrap();
    let to = (from + size).min(5000);
    log.lock().unwrap().pages.push(format!("{from} {size}"));
    let one = job("many", &[]);
    let named = |number: usize| {
        let mut job = one.clone();
        job["id"] = json!(format!("many-{number}"));
        job
    };
    let jobs: Vec<Value> = (from..to).map(named).collect();
    Json(json!({"jobs": jobs, "next_page_token": (to < 5000).then(|| to.to_string())})).into_response()
}

async fn label(Path(id): Path<String>, Json(body): Json<Value>) -> Response {
    let body: rekindle_wire::v1::LabelsBody = serde_json::from_value(body).unwrap();
    let Some(mut job) = known(&id) else { return no_such_job(&id) };
    let mut tags: Vec<String> = serde_json::from_value(job["tags"].take()).unwrap();
    tags.retain(|tag| !body.remove_tags.contains(tag));
    tags.extend(body.add_tags);
    job["tags"] = json!(tags);
    if let Some(notes) = body.notes.filter(|notes| !notes.is_empty()) {
        job["spec"]["notes"] = json!(notes);
    }
    Json(job).into_response()
}

fn plan(body: &Value) -> Response {
    let place = |zone: &str, usd: f64| {
        json!({
            "accelerator": body["tpu"]["accelerator"], "zone": zone, "capacity": "spot", "slices": 1, "workers": 4,
            "chips": 16, "usd_per_hour": usd,
        })
    };
    let view = json!({"spec": body, "candidates": [place("us-central1-a", 3.92), place("us-west4-a", 4.5)]});
    let _: rekindle_wire::v1::PlanView = serde_json::from_value(view.clone()).unwrap();
    Json(view).into_response()
}

async fn submit(
    State(log): State<Log>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body: Value = serde_json::from_slice(&body).unwrap();
    let is_dry = query.get("dry_run").is_some_and(|dry| dry == "true");
    if !is_dry {
        let mut log = log.lock().unwrap();
        log.headers.push(headers);
        log.bodies.push(body.clone());
    }
    let accelerator = body.pointer("/tpu/accelerator").and_then(Value::as_str).unwrap_or_default();
    if accelerator == "v5e-16" {
        let faults = [
            ("tpu.accelerator", "\"v5e-16\" is not known; did you mean v5litepod-16?"),
            ("limits.total", "\"2 days\" is no duration; write 90s, 30m, 24h or 7d"),
        ];
        return problem(400, "The job was refused: 2 fields are wrong.", &faults);
    }
    if is_dry {
        return plan(&body);
    }
    let id = body.get("id").and_then(Value::as_str).unwrap_or("made-up");
    // The answer of a job that is named so, or has no name and this tag, is lost.
    if id == "broken" || body["tags"] == json!(["broken"]) {
        return faulty::broken();
    }
    if id == "taken" {
        return problem(409, "The id \"taken\" is in use for another spec.", &[]);
    }
    (StatusCode::CREATED, Json(job(id, &[("message", json!("Accepted."))]))).into_response()
}

async fn show(State(log): State<Log>, Path(id): Path<String>, headers: HeaderMap) -> Response {
    let token = headers.get(header::AUTHORIZATION).cloned();
    {
        let mut log = log.lock().unwrap();
        log.headers.push(headers.clone());
        log.looks += 1;
        log.looked.notify_one();
        // A job that ends while somebody waits for it.
        if let Some(answer) = faulty::stray(&id, log.looks) {
            return answer;
        }
        if matches!(id.as_str(), "soon" | "strayed" | "crowded" | "locked") {
            let view = if log.looks < 3 { job(&id, &[]) } else { ended(&id, "succeeded", "All 4 workers ended well.") };
            let etag = if log.looks < 3 { "\"running\"" } else { "\"ended\"" };
            if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == etag) {
                return StatusCode::NOT_MODIFIED.into_response();
            }
            return ([(header::ETAG, etag)], Json(view)).into_response();
        }
    }
    if id == "guarded" && token.is_none_or(|token| token != "Bearer token-2") {
        return problem(401, "The token is not accepted.", &[]);
    }
    if let Some(answer) = faulty::answer(&id) {
        return answer;
    }
    known(&id).map_or_else(|| no_such_job(&id), |job| Json(job).into_response())
}

fn no_such_job(id: &str) -> Response {
    problem(404, &format!("There is no job \"{id}\"."), &[])
}

async fn command(
    State(log): State<Log>,
    Path((id, command)): Path<(String, String)>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut log = log.lock().unwrap();
    log.headers.push(headers);
    let body: Value = serde_json::from_slice(&body).unwrap();
    log.bodies.push(body.clone());
    if let Some(answer) = faulty::answer(&id) {
        return answer;
    }
    match (known(&id), command.as_str()) {
        (None, _) => no_such_job(&id),
        (Some(job), "cancel") if job["phase"] == "succeeded" => {
            let no = NoSense { command: "cancel", phase: Phase::Succeeded, end: None };
            problem_with(409, &format!("job {id}: {no}"), &[], &[("phase", no.phase.as_str())])
        }
        (Some(job), "restart") if job["phase"] == "failed" => {
            let no = NoSense { command: "restart", phase: Phase::Failed, end: None };
            let more = [("phase", no.phase.as_str()), ("checkpoint", "gs://bucket/jobs/bad/checkpoints")];
            problem_with(409, &format!("job {id}: {no}"), &[], &more)
        }
        // Somebody pauses it again before it is up.
        (Some(mut job), "unpause") if id == "restless" => {
            job["desired"] = json!("run");
            (StatusCode::OK, Json(job)).into_response()
        }
        (Some(job), "pause") if id == "train-1" => (StatusCode::OK, Json(job)).into_response(),
        (Some(mut job), _) => {
            job["message"] = json!(format!("{command} {body} is recorded."));
            (StatusCode::ACCEPTED, Json(job)).into_response()
        }
    }
}

async fn explain(Path(id): Path<String>) -> Response {
    if known(&id).is_none() {
        return no_such_job(&id);
    }
    let text = "It waits for capacity: us-central1-a had none at 10:00:00. It is tried again at 10:05:00.";
    let facts = ["phase pending since 10:00:00", "us-central1-a: no capacity, tried again at 10:05:00"];
    let view = json!({"id": id, "phase": "pending", "paragraph": text, "facts": facts});
    let _: rekindle_wire::v1::ExplainView = serde_json::from_value(view.clone()).unwrap();
    Json(view).into_response()
}

/// What `show` draws: two attempts of a job that was preempted; of another only how its first attempt ended.
fn lately(id: &str) -> Vec<Value> {
    let steps = [
        (7510, "pending", 0, 0),
        (7480, "provisioning", 1, 1),
        (7420, "starting", 1, 1),
        (7390, "running", 1, 1),
        (1750, "recovering", 1, 1),
        (1680, "provisioning", 2, 2),
        (1570, "starting", 2, 2),
        (1510, "running", 2, 2),
    ];
    let entry = |(revision, (secs, to, attempt, generation)): (usize, (i64, &str, u32, u32))| {
        let ended = json!({"attempt": 1, "kind": "preempted", "summary": "The provider took the slice back."});
        json!({
            "revision": revision, "at": ago(secs), "cause": "hint", "actor": "rekindle", "from": to, "to": to,
            "reason": "running", "message": "", "notes": [], "effects": [], "attempt": attempt,
            "generation": generation, "ended": (to == "recovering").then_some(ended),
        })
    };
    let wanted = |step: &(i64, &str, u32, u32)| id == "train-1" || (id == "good" && step.1 == "recovering");
    steps.into_iter().filter(wanted).enumerate().map(entry).collect()
}

async fn history(
    State(log): State<Log>,
    Path(id): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    if known(&id).is_none() {
        return no_such_job(&id);
    }
    if id == "mute" {
        return Json(seeing::ends_of_mute()).into_response();
    }
    if id == "moved" {
        let page = query.get("page_token").cloned().unwrap_or_default();
        log.lock().unwrap().pages.push(page.clone());
        return Json(seeing::ends(&page)).into_response();
    }
    if id != "past" {
        return Json(json!({"entries": lately(&id), "next_page_token": null})).into_response();
    }
    let entry = |revision: u32, from: &str, to: &str, message: &str, effects: Value| {
        json!({
            "revision": revision, "at": format!("2026-01-01T10:00:0{revision}Z"), "cause": "hint: worker exit",
            "actor": "rekindle", "from": from, "to": to, "reason": "running", "message": message,
            "notes": ["node seen PREEMPTED"], "effects": effects, "attempt": 1, "generation": 1,
        })
    };
    let first = [
        entry(1, "pending", "pending", "Accepted.", json!([])),
        entry(
            2,
            "pending",
            "provisioning",
            "A TPU is asked for.",
            json!([
                {"effect": "create_generation", "generation": 1}, {"effect": "publish_events"}
            ]),
        ),
    ];
    let second = [entry(
        3,
        "running",
        "recovering",
        "The slice was preempted.",
        json!([
            {"effect": "delete_generation", "generation": 1}
        ]),
    )];
    if query.get("page_token").is_some_and(|token| token == "2") {
        Json(json!({"entries": second, "next_page_token": null})).into_response()
    } else {
        Json(json!({"entries": first, "next_page_token": "2"})).into_response()
    }
}

async fn fleet() -> Json<Value> {
    let entry = |name: &str, owner: &str, job: Value, state: &str, capacity: &str, idle: Value| {
        json!({
            "name": name, "kind": "node", "zone": "us-central1-a", "accelerator": "v5litepod-16",
            "preemptible": capacity == "spot", "capacity": capacity, "state": state, "created_at": null,
            "age_secs": 7400, "owner": owner, "job": job, "generation": 2,
            "usd_per_hour": if state == "stopped" { 0.0 } else { 3.92 }, "owned_by": null, "idle": idle,
            "job_owner": if job.is_null() { Value::Null } else { json!("research") },
        })
    };
    let idle = json!({"cause": "unused", "since": "2026-11-28T09:00:00Z", "secs": 4000});
    let going = json!({"cause": "handed_back", "since": "2026-11-28T09:00:00Z", "secs": 12});
    Json(json!({
        "resources": [
            entry("rk-abc123-train-1-g2", "train-1", json!("train-1"), "ready", "spot", Value::Null),
            entry("rk-abc123-box-g2", "box", json!("box"), "ready", "reserved", idle),
            entry("rk-abc123-old-g1", "ORPHAN", Value::Null, "ready", "spot", Value::Null),
            entry("rk-abc123-past-g1", "past", json!("past"), "deleting", "spot", going),
            entry("notebook", "FOREIGN", Value::Null, "stopped", "on_demand", Value::Null),
        ],
        "unreachable": ["us-west4-a"],
    }))
}
