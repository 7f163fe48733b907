//! What the server with a few jobs says of its workspace `box` of two workers, and of outputs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rekindle_core::spec::CommandLine;
use rekindle_wire::v1::{ExecBody, ExecView, OutputList};
use serde_json::{Value, json};

use super::{job, known, no_such_job, problem};

fn spec() -> Value {
    json!({"workspace": true, "tpu": {"accelerator": "v5litepod-16"}, "limits": {"idle": "8h"}})
}

/// A workspace that is up.
pub(super) fn workspace(id: &str) -> Value {
    job(id, &[("spec", spec()), ("message", json!("It is up."))])
}

/// One that ends and never came up.
pub(super) fn stuck() -> Value {
    let message = json!("setup failed: No module named 'flax' (environment).");
    let end = [("phase", json!("stopping")), ("outcome", json!("failed"))];
    job("stuck", &[&[("spec", spec()), ("message", message)][..], &end].concat())
}

/// One that ended by itself.
pub(super) fn crashed() -> Value {
    let message = json!("setup failed: No module named 'flax' (environment).");
    let end = [("phase", json!("failed")), ("outcome", json!("failed")), ("resources", json!([]))];
    job("crashed", &[&[("spec", spec()), ("message", message)][..], &end].concat())
}

/// One whose end is under way.
pub(super) fn leaving() -> Value {
    let end = [("phase", json!("stopping")), ("desired", json!("cancel"))];
    job("leaving", &[&[("spec", spec()), ("message", json!("ada@example.com deletes it."))][..], &end].concat())
}

/// A paused job with a program: no workspace.
pub(super) fn held() -> Value {
    job("held", &[("phase", json!("paused")), ("desired", json!("pause")), ("resources", json!([]))])
}

/// One whose name was used too often.
pub(super) fn worn(id: &str) -> Value {
    job(id, &[("spec", spec()), ("phase", json!("cancelled")), ("outcome", json!("cancelled"))])
}

/// One that came through the queue, into a network without external addresses.
pub(super) fn queued() -> Value {
    let mut job = job("queued", &[]);
    job["spec"]["tpu"]["external_ips"] = json!(false);
    job["resources"][0]["kind"] = json!("queued_resource");
    job
}

/// One that is on its way, for ever.
pub(super) fn rising() -> Value {
    job("rising", &[("spec", spec()), ("phase", json!("provisioning")), ("message", json!("A TPU is made."))])
}

/// One that is paused.
pub(super) fn asleep(id: &str) -> Value {
    let paused = [("phase", json!("paused")), ("desired", json!("pause")), ("resources", json!([]))];
    job(id, &[&[("spec", spec())][..], &paused].concat())
}

/// One that was deleted.
pub(super) fn ended() -> Value {
    let end = [("phase", json!("cancelled")), ("outcome", json!("cancelled")), ("resources", json!([]))];
    let mut spec = spec();
    spec["tpu"]["capacity"] = json!(["spot", "on_demand"]);
    spec["setup"] = json!("pip install flax");
    spec["code"] = json!("gs://bucket/bundles/0123456789abcdef.tar.zst");
    let message = [("spec", spec), ("message", json!("ada@example.com deleted it."))];
    job("old", &[&message[..], &end].concat())
}

/// One of two slices.
pub(super) fn sliced() -> Value {
    let mut job = job("sliced", &[]);
    let tpu = &mut job["resources"][0];
    (tpu["kind"], tpu["slices"]) = (json!("queued_resource"), json!(2));
    job
}

/// Order 2 brings files and goes well; order 1 says something, and ends with 3 on the second worker. Orders 3 to 5 ask
/// whether a folder is there: on both workers, on none, on the first.
fn brought(order: u64) -> Value {
    let worker = |worker: &str, stdout: u32, code: i32| json!({"worker": worker, "stdout": stdout, "stderr": 0, "exit": {"code": code}});
    let workers = match order {
        1 => [worker("0-0", 1, 0), worker("0-1", 1, 3)],
        4 => [worker("0-0", 0, 1), worker("0-1", 0, 1)],
        5 => [worker("0-0", 0, 0), worker("0-1", 0, 1)],
        _ => [worker("0-0", 0, 0), worker("0-1", 0, 0)],
    };
    let view = json!({"id": order, "attempt": 2, "is_over": false, "workers": workers});
    let _: ExecView = serde_json::from_value(view.clone()).unwrap();
    view
}

/// What a server was asked of its orders.
#[derive(Default)]
struct Asked {
    /// How often an order was to end, by workspace.
    stops: BTreeMap<String, u32>,
    chunks: u32,
}

type Asks = Arc<Mutex<Asked>>;

/// The paths of orders.
pub(super) fn orders() -> Router {
    Router::new()
        .route("/v1/jobs/{id}/exec", post(order))
        .route("/v1/jobs/{id}/exec/{order}", get(look))
        .route("/v1/jobs/{id}/exec/{order}/stop", post(stop))
        .route("/v1/jobs/{id}/exec/{order}/{worker}/{stream}/{number}", get(chunk))
        .with_state(Asks::default())
}

/// For `deaf` it does not answer; for `busy` it cannot do so at first; for `firm` it is refused.
async fn stop(State(asks): State<Asks>, Path((id, order)): Path<(String, u64)>) -> Response {
    if id == "deaf" {
        return std::future::pending().await;
    }
    let count = {
        let mut asks = asks.lock().unwrap();
        let count = asks.stops.entry(id.clone()).or_default();
        *count += 1;
        *count
    };
    match id.as_str() {
        "busy" if count == 1 => return problem(503, "The store is not available.", &[]),
        "firm" => return problem(403, "The policy does not allow it.", &[]),
        _ => {}
    }
    (StatusCode::ACCEPTED, Json(brought(order))).into_response()
}

/// For `hung` it does not answer, but makes the file that the command names: the order has come.
async fn order(Path(id): Path<String>, Json(body): Json<ExecBody>) -> Response {
    if id == "hung" {
        let Some(CommandLine::Shell(file)) = body.run else { panic!("{body:?} names no file") };
        std::fs::write(file, "").unwrap();
        return std::future::pending().await;
    }
    if id == "box-lost" {
        return super::faulty::broken();
    }
    if known(&id).is_none() {
        return no_such_job(&id);
    }
    if id == "asleep" {
        return super::problem_with(409, "asleep has no workers: it is paused", &[], &[("phase", "paused")]);
    }
    if body.worker.as_deref() == Some("9") {
        return super::problem_of("worker", 400, "\"9\" is no worker; there are w0 to w1");
    }
    let order = match (&body.unpack, &body.run) {
        (Some(_), _) => 2,
        (None, Some(CommandLine::Argv(words))) if words.len() == 5 && words[2].starts_with("[ -d") => {
            match words[4].as_str() {
                "conf" => 3,
                "half" => 5,
                _ => 4,
            }
        }
        (None, _) => 1,
    };
    let mut view = brought(order);
    if id == "lone" {
        view["workers"].as_array_mut().unwrap().remove(0);
    }
    (StatusCode::ACCEPTED, Json(view)).into_response()
}

/// `left` goes away in the middle; on `full` nothing can be written, `napped` is paused. On `half` the second worker lacks what it is to send,
/// on `none` both do; on `grows` it changes meanwhile. The second worker of `busy` ends when it is told to, that of `deaf` never; that of
/// `firm` as that of `busy`, although nobody could be told. `lone` has the second worker alone.
async fn look(State(asks): State<Asks>, Path((id, order)): Path<(String, u64)>) -> Json<Value> {
    let mut view = brought(order);
    if id == "lone" {
        view["workers"].as_array_mut().unwrap().remove(0);
    } else if id == "left" {
        view["is_over"] = json!(true);
        view["workers"][1]["exit"] = Value::Null;
    } else if id == "full" {
        view["workers"][1]["exit"] = json!({"code": 126, "error": "No space left on device"});
    } else if id == "napped" {
        view["workers"][1]["exit"] = json!({"code": 143, "error": "ended with 143: it is being paused"});
    } else if id == "piped" {
        view["workers"][1]["exit"] = json!({"code": 0});
    }
    if id == "busy" || id == "deaf" || id == "firm" {
        let asked = asks.lock().unwrap().stops.get(&id).copied().unwrap_or(0);
        let is_ended = asked > u32::from(id == "busy");
        view["workers"][1]["exit"] = if is_ended { json!({"code": 143}) } else { Value::Null };
    }
    if id == "grows" {
        view["workers"] = json!([{"worker": "0-0", "stdout": 1, "stderr": 1, "exit": {"code": 1}}]);
    }
    if id == "half" || id == "none" {
        let lacks = json!({"worker": "0-1", "stdout": 0, "stderr": 1, "exit": {"code": 2}});
        let has = json!({"worker": "0-0", "stdout": 1, "stderr": 0, "exit": {"code": 0}});
        view["workers"] = if id == "half" { json!([has, lacks]) } else { json!([lacks]) };
    }
    Json(view)
}

/// The first one of `shaky` is not to be had at first.
async fn chunk(
    State(asks): State<Asks>,
    Path((id, _, worker, stream, number)): Path<(String, u64, String, String, u64)>,
) -> Response {
    let mut asks = asks.lock().unwrap();
    asks.chunks += 1;
    if id == "shaky" && asks.chunks == 1 {
        return problem(503, "The object store is not available.", &[]);
    }
    let bytes = match (id.as_str(), stream.as_str()) {
        ("half" | "full" | "grows" | "napped", "stdout") => archive(),
        ("grows", _) => b"tar: ./a.txt: file changed as we read it\n".to_vec(),
        ("piped", "stdout") => pipe(),
        ("lone", _) => b"no end".to_vec(),
        ("half" | "none", _) => b"tar: results: Cannot open: No such file or directory\n".to_vec(),
        _ => format!("{stream} {number} of worker {worker}\n").into_bytes(),
    };
    bytes.into_response()
}

/// A folder with one file, packed.
fn archive() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_size(0);
    header.set_mode(0o755);
    archive.append_data(&mut header, "./", std::io::empty()).unwrap();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_size(2);
    header.set_mode(0o644);
    archive.append_data(&mut header, "a.txt", &b"a\n"[..]).unwrap();
    archive.into_inner().unwrap()
}

/// A named pipe alone, packed.
fn pipe() -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Fifo);
    header.set_size(0);
    header.set_mode(0o644);
    archive.append_data(&mut header, "pipe", std::io::empty()).unwrap();
    archive.into_inner().unwrap()
}

/// One file alone can be had.
pub(super) async fn output(Path((_, object)): Path<(String, String)>) -> Response {
    if object == "w0/y" {
        "yes\n".into_response()
    } else {
        problem(404, &format!("There is no output {object:?}."), &[])
    }
}

pub(super) async fn outputs(Path(id): Path<String>, Query(query): Query<BTreeMap<String, String>>) -> Response {
    if known(&id).is_none() {
        return no_such_job(&id);
    }
    if id == "odd" {
        let outputs =
            ["../x", "gone", "y"].map(|path| json!({"worker": "w0", "path": path, "object": format!("w0/{path}")}));
        return Json(json!({"place": "gs://bucket/jobs/odd/outputs/", "outputs": outputs})).into_response();
    }
    if matches!(id.as_str(), "mute" | "unborn" | "waits") {
        return Json(json!({"place": format!("gs://bucket/jobs/{id}/outputs/"), "outputs": []})).into_response();
    }
    let output = |worker: &str, path: &str, object: &str| json!({"worker": worker, "path": path, "object": object});
    // `bad` left some at its first attempt alone; `past` at both.
    let last = if id == "bad" { 1 } else { 2 };
    let attempt = query.get("attempt").map_or(last, |attempt| attempt.parse().unwrap());
    let others: Vec<u32> =
        if id == "past" || id == "bad" { (1..=last).filter(|n| *n != attempt).collect() } else { vec![] };
    let names = [("w0", "results/a b.png", "w0/results/a=20b.png"), ("w1", "results/c", "w1/results/c")];
    let outputs = names.map(|(worker, path, object)| output(worker, path, &format!("a{attempt}/{object}")));
    let list = json!({
        "place": format!("gs://bucket/jobs/{id}/outputs/a{attempt}/"),
        "attempt": attempt,
        "other_attempts": others,
        "outputs": if attempt > last { &[] } else { &outputs[..] },
    });
    let _: OutputList = serde_json::from_value(list.clone()).unwrap();
    Json(list).into_response()
}
