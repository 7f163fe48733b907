//! Orders to the workers of a workspace: people give them and read what they bring, agents put that as chunks.
//!
//! Objects: `jobs/<id>/exec/<order>/<slice>-<worker>/<stream>/<number>`; the stream `exit` has one, the end. And
//! `jobs/<id>/exec/<order>/order`: the order itself, for the time after the job's document has let go of it.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use rekindle_core::access::Right;
use rekindle_core::exec::{ExecAction, ExecExit, ExecOrder, ORDER_MAX};
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::{Job, Phase};
use rekindle_core::spec::{FieldError, execve};
use rekindle_engine::Commanded;
use rekindle_web::{Caller, Json, NoQuery, Path, Problem, Query, body, faulty_query, problem};
use rekindle_wire::agent::LogChunk;
use rekindle_wire::v1::{self, ExecBody, ExecView, ExecWorkerView, FieldFault};

use crate::access::{check, seen};
use crate::freeze::NoFields;
use crate::jobs::{hint, job_id, key, load, store};
use crate::logs::name;
use crate::{Api, agents};

/// The largest chunk, in bytes.
const CHUNK_MAX: usize = 8 * 1024 * 1024;
/// Names that are asked for at once.
const NAMES: usize = 1000;
/// After the kill at the end of the grace, what was said last is on its way for so long.
const LAST_WORDS: SignedDuration = SignedDuration::from_secs(10);
const STREAMS: [&str; 3] = ["stdout", "stderr", "exit"];

fn folder(job: &JobId, id: u64) -> String {
    format!("jobs/{job}/exec/{id:08}/")
}

fn object(job: &JobId, id: u64, key: WorkerKey, stream: &str, number: u64) -> String {
    format!("{}{:04}-{:04}/{stream}/{number:010}", folder(job, id), key.slice, key.worker)
}

fn paper(job: &JobId, id: u64) -> String {
    format!("{}order", folder(job, id))
}

/// A worker by its name; without a name it is all of them.
fn worker_of(job: &Job, text: Option<&str>, known: impl Fn(WorkerKey) -> bool) -> Result<Option<WorkerKey>, Problem> {
    let Some(text) = text.filter(|text| *text != "all") else { return Ok(None) };
    v1::worker_key(text).filter(|key| known(*key)).map(Some).ok_or_else(|| {
        let all = workers(job, None);
        let has_slices = all.iter().any(|key| key.slice > 0);
        let name = |key: Option<&WorkerKey>| {
            v1::worker_label(key.copied().unwrap_or(WorkerKey { slice: 0, worker: 0 }), has_slices)
        };
        let why = format!("{text:?} is no worker; there are {} to {}", name(all.first()), name(all.last()));
        problem(StatusCode::BAD_REQUEST, "worker", why)
    })
}

/// The workers of the newest generation, or the one that an order names.
fn workers(job: &Job, order: Option<&ExecOrder>) -> Vec<WorkerKey> {
    if let Some(key) = order.and_then(|order| order.worker) {
        return vec![key];
    }
    let Some(g) = job.current_generation() else { return Vec::new() };
    (0..g.slices).flat_map(|slice| (0..g.workers).map(move |worker| WorkerKey { slice, worker })).collect()
}

/// Why nobody is there to carry out an order.
fn no_workers(id: &JobId, phase: Phase) -> String {
    match phase {
        Phase::Paused => format!("{id} has no workers: it is paused"),
        Phase::Stopping => format!("{id} has no workers any more: it is stopping"),
        Phase::Succeeded | Phase::Failed | Phase::Cancelled => {
            format!("{id} has no workers any more: it has ended ({})", phase.as_str())
        }
        Phase::Pending | Phase::Provisioning | Phase::Starting | Phase::Recovering => {
            format!("{id} has no workers yet: it is {}", phase.as_str())
        }
        Phase::Running => format!("{id} has no workers now: they are being stopped"),
    }
}

/// Nothing of it comes any more: its attempt is over, and so is the time that commands were given to save.
fn is_over(job: &Job, order: &ExecOrder, now: Timestamp) -> bool {
    let attempt = job.attempts.iter().find(|a| a.number == order.attempt);
    attempt.is_none_or(|a| {
        a.fenced_at.is_some() || a.stop.as_ref().map_or(a.ended.is_some(), |stop| now >= stop.deadline + LAST_WORDS)
    })
}

/// `POST /v1/jobs/{id}/exec`: 202 the order, also when it is asked again under the same key; 403 and 404 when the
/// policy does not let the caller submit for the owner, 409 when no worker is there to carry it out, or when another order was given under the key.
pub(crate) async fn order(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(body): Json<ExecBody>,
) -> Result<Response, Problem> {
    let id = job_id(&id)?;
    check(&api, &caller, Right::Submit, &id).await?;
    let job = load(&api, &id).await?;
    if !job.spec.workspace {
        let why = format!("{id} is a job with a program of its own; orders are for workspaces (`rekindle up`)");
        return Err(problem(StatusCode::CONFLICT, "no-workspace", why));
    }
    let action = action_of(&api, &body)?;
    let name = body.worker.as_deref();
    let key = key(&api, &caller, &headers)?;
    // First, because a repeated request has the first answer also when no worker is there any more.
    let given = api.engine.exec_given(&id, &key).await.map_err(|error| store(&error))?;
    let (job, given) = if let Some(given) = given {
        (Box::new(job), Some(given))
    } else {
        let worker = worker_of(&job, name, |key| workers(&job, None).contains(&key))?;
        match Box::pin(api.engine.exec(&id, worker, &action, &caller.identity, &key)).await {
            Ok(Commanded::Accepted(job)) => {
                let given = job.execs.last().cloned();
                (job, given)
            }
            // The same request, at the same time.
            Ok(Commanded::AlreadyHolds(job)) => {
                let given = api.engine.exec_given(&id, &key).await.map_err(|error| store(&error))?;
                (job, given)
            }
            Ok(Commanded::NoSense(no)) => {
                let why = no_workers(&id, no.phase);
                return Err(problem(StatusCode::CONFLICT, "phase", why).with("phase", no.phase.as_str()));
            }
            Ok(Commanded::WrongAttempt(_) | Commanded::OtherUnderKey(_) | Commanded::NoSuchJob) => {
                return Err(Problem::not_found(&format!("job {id}")));
            }
            Err(error) => return Err(store(&error)),
        }
    };
    let given = given.ok_or_else(|| Problem::not_found("the order"))?;
    if given.action != action || given.worker != worker_of(&job, name, |_| true)? {
        let why =
            format!("order {} was given under this Idempotency-Key, and it is another one; give another key", given.id);
        return Err(problem(StatusCode::CONFLICT, "idempotency-key", why));
    }
    keep(&api, &id, &given).await?;
    // Its pass rings the workers.
    hint(&api, &id, "exec").await;
    Ok((StatusCode::ACCEPTED, axum::Json(view(&api, &job, &given, &BTreeMap::new()))).into_response())
}

/// Writes the order down for the time when it has left the job's document. Once: in the cloud this service may replace nothing.
async fn keep(api: &Api, id: &JobId, given: &ExecOrder) -> Result<(), Problem> {
    let unavailable = |error| Problem::unavailable("the object store", &error);
    let (objects, name) = (&api.engine.ports.objects, paper(id, given.id));
    if objects.size(&name).await.map_err(unavailable)?.is_some() {
        return Ok(());
    }
    let text = serde_json::to_vec(given).map_err(|error| Problem::unavailable("the order", &error))?;
    objects.put(&name, text.into()).await.map_err(unavailable)
}

/// `POST /v1/jobs/{id}/exec/{order}/stop`: 202; the command is told to end, and killed when it does not. It changes
/// nothing where that was asked before, or the attempt is over. 403 and 404 as for the order, 404 for none, and 409 for
/// one that has no command.
pub(crate) async fn stop(
    State(api): State<Api>,
    caller: Caller,
    Path((id, number)): Path<(String, u64)>,
    _: Query<NoQuery>,
    headers: HeaderMap,
    _: Json<NoFields>,
) -> Result<Response, Problem> {
    let id = job_id(&id)?;
    check(&api, &caller, Right::Submit, &id).await?;
    let order = order_of(&api, &load(&api, &id).await?, number).await?;
    if let ExecAction::Unpack { .. } = order.action {
        let why = format!("order {number} of {id} brings files; it has no command to end, and ends by itself");
        return Err(problem(StatusCode::CONFLICT, "exec", why));
    }
    let key = key(&api, &caller, &headers)?;
    match Box::pin(api.engine.stop_exec(&id, &order, &caller.identity, &key)).await {
        Ok(Commanded::Accepted(job) | Commanded::AlreadyHolds(job)) => {
            hint(&api, &id, "exec-stop").await;
            Ok((StatusCode::ACCEPTED, axum::Json(view(&api, &job, &order, &BTreeMap::new()))).into_response())
        }
        Ok(Commanded::NoSense(_) | Commanded::WrongAttempt(_) | Commanded::OtherUnderKey(_) | Commanded::NoSuchJob) => {
            Err(Problem::not_found(&format!("order {number} of {id}")))
        }
        Err(error) => Err(store(&error)),
    }
}

/// What a body orders.
fn action_of(api: &Api, body: &ExecBody) -> Result<ExecAction, Problem> {
    let faulty = |why: &str| problem(StatusCode::BAD_REQUEST, "exec", why);
    let action = match (&body.run, &body.unpack) {
        (Some(command), None) if !command.is_empty() => ExecAction::Run(command.clone()),
        (None, Some(unpack)) if is_bundle(api, &unpack.code) => {
            ExecAction::Unpack { code: unpack.code.clone(), to: unpack.to.clone() }
        }
        (Some(_), None) => return Err(faulty("`run` is empty; give the command to run")),
        (None, Some(_)) => return Err(faulty("`unpack.code` is no bundle of this deployment")),
        (Some(_), Some(_)) | (None, None) => return Err(faulty("give one of `run` and `unpack`")),
    };
    let faults = match &action {
        ExecAction::Run(command) => execve::faults(command, "run"),
        ExecAction::Unpack { to, .. } if to.contains('\0') => {
            let message = "has a NUL character, which no path can hold; remove it".to_owned();
            vec![FieldError { field: "unpack.to".into(), message }]
        }
        ExecAction::Unpack { .. } => Vec::new(),
    };
    if let Some(first) = faults.first() {
        let told = format!("`{}` {}", first.field, first.message);
        let faults = faults.into_iter().map(|f| FieldFault { field: f.field, message: f.message }).collect();
        return Err(faulty(&told).with_errors(faults));
    }
    if serde_json::to_vec(&action).map_or(0, |bytes| bytes.len()) > ORDER_MAX {
        return Err(faulty(&format!("an order has at most {ORDER_MAX} bytes; bring a script by `sync`, and run that")));
    }
    Ok(action)
}

fn is_bundle(api: &Api, code: &str) -> bool {
    let bucket = api.engine.deployment.bucket.trim_end_matches('/');
    let name = code.strip_prefix(bucket).and_then(|rest| rest.strip_prefix("/bundles/")?.strip_suffix(".tar.zst"));
    name.is_some_and(crate::bundles::is_sha256)
}

/// How far a worker is with an order.
#[derive(Debug, Default)]
struct Brought {
    chunks: BTreeMap<String, u64>,
    exit: Option<ExecExit>,
}

fn view(api: &Api, job: &Job, order: &ExecOrder, brought: &BTreeMap<WorkerKey, Brought>) -> ExecView {
    let mut keys = workers(job, Some(order));
    keys.extend(brought.keys().copied());
    keys.sort_unstable();
    keys.dedup();
    let none = Brought::default();
    let of = |key: WorkerKey| {
        let brought = brought.get(&key).unwrap_or(&none);
        let chunks = |stream: &str| brought.chunks.get(stream).copied().unwrap_or(0);
        ExecWorkerView {
            worker: format!("{}-{}", key.slice, key.worker),
            stdout: chunks("stdout"),
            stderr: chunks("stderr"),
            exit: brought.exit.clone(),
        }
    };
    let workers = keys.into_iter().map(of).collect();
    let is_over = is_over(job, order, api.engine.ports.clock.now());
    ExecView { id: order.id, attempt: order.attempt, is_over, workers }
}

/// An order, however many came after it.
async fn order_of(api: &Api, job: &Job, id: u64) -> Result<ExecOrder, Problem> {
    if let Some(order) = job.execs.iter().find(|order| order.id == id) {
        return Ok(order.clone());
    }
    let missing = || Problem::not_found(&format!("order {id} of {}", job.id));
    if id == 0 || id > job.last_exec {
        return Err(missing());
    }
    let text = api.engine.ports.objects.get(&paper(&job.id, id), 0, 4 * ORDER_MAX as u64).await;
    let text = text.map_err(|e| Problem::unavailable("the object store", &e))?.ok_or_else(missing)?;
    serde_json::from_slice(&text).map_err(|_| missing())
}

/// Which chunk an object below an order's folder is.
fn chunk_of<'a>(folder: &str, name: &'a str) -> Option<(WorkerKey, &'a str, u64)> {
    let parts: Vec<&str> = name.strip_prefix(folder)?.split('/').collect();
    let [worker, stream, number] = parts.as_slice() else { return None };
    Some((v1::worker_key(worker)?, stream, name::number(number)?))
}

/// Query of a look.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LookQuery {
    /// Chunks that are known, as `0-3/stdout/17;…`: those are not listed again.
    from: Option<String>,
}

/// Reads the chunks that a caller knows of.
fn known(from: Option<&str>) -> Result<BTreeMap<(WorkerKey, String), u64>, Problem> {
    let place = |text: &str| {
        let parts: Vec<&str> = text.split('/').collect();
        let [worker, stream, count] = parts.as_slice() else { return None };
        let stream = STREAMS.contains(stream).then(|| (*stream).to_owned())?;
        Some(((v1::worker_key(worker)?, stream), count.parse().ok()?))
    };
    let places = from.unwrap_or_default().split(';').filter(|text| !text.is_empty());
    places.map(|text| place(text).ok_or_else(|| faulty_query("from", &format!("{text:?} names no chunk")))).collect()
}

/// `GET /v1/jobs/{id}/exec/{order}`.
pub(crate) async fn look(
    State(api): State<Api>,
    caller: Caller,
    Path((id, number)): Path<(String, u64)>,
    Query(query): Query<LookQuery>,
) -> Result<axum::Json<ExecView>, Problem> {
    let known = known(query.from.as_deref())?;
    // The job first: what it still had then has put all that it ever will.
    let job = seen(&api, &caller, &job_id(&id)?).await?;
    let order = order_of(&api, &job, number).await?;
    let folder = folder(&job.id, number);
    let objects = &api.engine.ports.objects;
    let unavailable = |e| Problem::unavailable("the object store", &e);
    let mut brought: BTreeMap<WorkerKey, Brought> = BTreeMap::new();
    for ((key, stream), count) in &known {
        brought.entry(*key).or_default().chunks.insert(stream.clone(), *count);
    }
    let mut after: Option<String> = None;
    loop {
        let names = objects.list(&folder, after.as_deref(), NAMES).await.map_err(unavailable)?;
        for name in &names {
            let Some((key, stream, number)) = chunk_of(&folder, name) else { continue };
            let brought = brought.entry(key).or_default();
            if stream == "exit" {
                let bytes = objects.get(name, 0, CHUNK_MAX as u64).await.map_err(unavailable)?.unwrap_or_default();
                brought.exit = serde_json::from_slice(&bytes).ok();
            }
            let chunks = brought.chunks.entry(stream.to_owned()).or_default();
            // Chunks are put one after the other: without the one before, the next is not there either.
            *chunks = (*chunks).max(number + 1);
        }
        let Some(last) = names.last().filter(|_| names.len() == NAMES) else { break };
        // What the caller knows of the same stream is not listed.
        let skipped = chunk_of(&folder, last).and_then(|(key, stream, number)| {
            let count = known.get(&(key, stream.to_owned())).filter(|count| **count > number + 1)?;
            Some(object(&job.id, order.id, key, stream, count - 1))
        });
        after = skipped.or_else(|| Some(last.clone()));
    }
    Ok(axum::Json(view(&api, &job, &order, &brought)))
}

/// `GET /v1/jobs/{id}/exec/{order}/{worker}/{stream}/{number}`: the bytes of one chunk.
pub(crate) async fn chunk(
    State(api): State<Api>,
    caller: Caller,
    Path((id, order, worker, stream, number)): Path<(String, u64, String, String, u64)>,
    _: Query<NoQuery>,
) -> Result<([(header::HeaderName, &'static str); 1], Bytes), Problem> {
    let id = job_id(&id)?;
    let missing = || Problem::not_found(&format!("chunk {number} of {stream} of worker {worker}"));
    let key = v1::worker_key(&worker).filter(|_| STREAMS.contains(&stream.as_str())).ok_or_else(missing)?;
    seen(&api, &caller, &id).await?;
    let name = object(&id, order, key, &stream, number);
    let bytes = api.engine.ports.objects.get(&name, 0, CHUNK_MAX as u64).await;
    let bytes = bytes.map_err(|e| Problem::unavailable("the object store", &e))?.ok_or_else(missing)?;
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], bytes))
}

/// `PUT /agent/v1/exec/…`: 204; 409 when the chunk is there already, 404 when the order is not this worker's.
pub(crate) async fn put_chunk(
    State(api): State<Api>,
    Path((id, order, worker, stream, number)): Path<(String, u64, String, String, u64)>,
    Query(query): Query<LogChunk>,
    headers: HeaderMap,
    request: Request,
) -> Result<StatusCode, Problem> {
    let id = job_id(&id)?;
    let key = v1::worker_key(&worker).ok_or_else(|| Problem::not_found(&format!("worker {worker:?}")))?;
    let who = agents::Named { job: &id, generation: query.generation, key, instance: &query.instance };
    let job = agents::job_of(&api, &headers, who).await?;
    let given = order_of(&api, &job, order).await?;
    let is_its = job.attempts.iter().any(|a| a.number == given.attempt && a.generation == query.generation);
    let is_for = given.worker.is_none_or(|worker| worker == key) && STREAMS.contains(&stream.as_str());
    if !is_its || !is_for {
        return Err(Problem::not_found(&format!("order {order} for this worker")));
    }
    name::check(number)?;
    let name = object(&id, order, key, &stream, number);
    let bytes = body::read(request, CHUNK_MAX).await?;
    let objects = &api.engine.ports.objects;
    let unavailable = |e| Problem::unavailable("the object store", &e);
    if objects.size(&name).await.map_err(unavailable)?.is_some() {
        return Err(problem(StatusCode::CONFLICT, "chunk", "this chunk is there already"));
    }
    objects.put(&name, bytes).await.map_err(unavailable)?;
    Ok(StatusCode::NO_CONTENT)
}
