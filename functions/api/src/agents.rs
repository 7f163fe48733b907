//! Agents: hello, report, ping.
//!
//! One writer for each worker document: the agent whose VM said the first hello for that worker of that generation. A
//! report is a level, not
//! an edge: it is merged into the document, and a hint is published only for what changes a decision.

use std::sync::Arc;

use axum::extract::State;
use http::{HeaderMap, StatusCode, header};

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Job;
use rekindle_core::observation::{WorkerReport, WorkerState};
use rekindle_core::orders::{Context, Order, Want, attempt_of, is_awaited, order_for};
use rekindle_engine::tokens;
use rekindle_ports::docs::Revision;
use rekindle_ports::kinds::Kind;
use rekindle_web::hint;
use rekindle_web::{Answer, Json, Problem, about, problem};
use rekindle_wire::agent::{Hello, NAME_MAX, Report, Welcome};

use crate::jobs::{load, store};
use crate::{Api, liveness};

mod bind;
pub(crate) mod machine;
mod merge;
mod points;
pub(crate) mod roll;
mod store;
mod tails;

/// A hint that cannot be published is tried again so often before the agent is asked to come again.
const HINT_TRIES: u32 = 3;

/// While a fact could not be hinted, its worker comes again after so many milliseconds at most, and not with its next heartbeat, which may be
/// minutes away: as long as an agent waits at most where nobody answers.
const TOLD_AGAIN_MS: u64 = 10_000;

/// `POST /agent/v1/hello`: 401 a wrong nonce, 409 another VM speaks for this worker, 410 no such job.
///
/// In the cloud also 401 and 403 for a machine's identity token that is not the worker's.
pub(crate) async fn hello(
    State(api): State<Api>,
    headers: HeaderMap,
    Json(hello): Json<Hello>,
) -> Result<axum::Json<Welcome>, Problem> {
    about::job(&hello.job);
    let machine = machine::of(&api, &headers, &hello.instance).await?;
    let secret = &api.engine.installation.secret;
    if !tokens::same(&hello.nonce, &tokens::nonce(secret, &hello.job, hello.generation)) {
        let (generation, instance) = (hello.generation, &hello.instance);
        tracing::warn!(job = %hello.job, generation, instance, "hello with a wrong nonce");
        return Err(problem(StatusCode::UNAUTHORIZED, "nonce", "this is not the nonce of the generation"));
    }
    if hello.instance.is_empty() || hello.boot_id.is_empty() {
        return Err(problem(StatusCode::BAD_REQUEST, "hello", "instance and boot_id must not be empty"));
    }
    let (address, version) = (&hello.address, &hello.version);
    let names =
        [("instance", &hello.instance), ("boot_id", &hello.boot_id), ("address", address), ("version", version)];
    short("hello", &names)?;
    let job = job(&api, &hello.job).await?;
    if let Some(g) = job.generation(hello.generation) {
        if hello.key.slice >= g.slices || hello.key.worker >= g.workers {
            let why = format!("generation {} has {} slices of {} workers", g.number, g.slices, g.workers);
            return Err(problem(StatusCode::BAD_REQUEST, "hello", why));
        }
        machine::is_worker(&api, machine.as_ref(), &job, g, hello.key)?;
        if let Some(news) = bind::bind(&api, &job, &hello).await? {
            // A worker that has said hello reports next.
            let _: bool = tell(&api, &hello.job, &news).await?;
        }
    }
    liveness::mark(&api).await;
    let token = tokens::token(secret, &hello.job, hello.generation, hello.key, &hello.instance);
    let mut order = order(&api, &job, hello.generation, hello.key, None);
    if has_rebooted(&api, &job, hello.generation, hello.key, &order).await? {
        hold(&mut order);
    }
    tracing::info!(
        job = %hello.job, generation = hello.generation, slice = hello.key.slice, worker = hello.key.worker,
        instance = hello.instance, want = ?order.want, "a worker says hello"
    );
    Ok(axum::Json(Welcome { token, order }))
}

/// `POST /agent/v1/report`: 401 a wrong token, 410 no such job.
pub(crate) async fn report(
    State(api): State<Api>,
    headers: HeaderMap,
    Json(report): Json<Report>,
) -> Result<axum::Json<Order>, Problem> {
    about::job(&report.job);
    let machine = machine::of(&api, &headers, &report.instance).await?;
    admit(&api, &headers, &report.job, report.generation, report.key, &report.instance)?;
    short("report", &[("boot_id", &report.boot_id)])?;
    let job = job(&api, &report.job).await?;
    if let Some(g) = job.generation(report.generation) {
        machine::is_worker(&api, machine.as_ref(), &job, g, report.key)?;
    }
    let mut is_told = true;
    if report.store
        && let Some(news) = store::store(&api, &job, &report).await?
    {
        is_told = tell(&api, &report.job, &news).await?;
    }
    liveness::mark(&api).await;
    let held = report.has_work.then_some(report.attempt);
    let mut order = order(&api, &job, report.generation, report.key, held);
    let runs = report.state >= WorkerState::Running;
    if !runs && has_lost_its_program(&api, &job, &report, &order).await? {
        hold(&mut order);
    }
    if !is_told {
        order.heartbeat_ms = order.heartbeat_ms.min(TOLD_AGAIN_MS);
    }
    // A bell may be lost, and who works on a workspace is not to wait.
    if report.has_bell && !is_awaited(&job, report.generation, api.engine.ports.clock.now()) {
        order = order.with_bell(&api.engine.settings);
    }
    Ok(axum::Json(order))
}

/// 400 for what is no name: whatever runs on a worker can speak in its agent's place, and what is stored of it must stay small.
fn short(call: &str, names: &[(&str, &String)]) -> Result<(), Problem> {
    match names.iter().find(|(_, told)| told.len() > NAME_MAX) {
        None => Ok(()),
        Some((name, told)) => {
            let why = format!("{name} has {} bytes; at most {NAME_MAX}", told.len());
            Err(problem(StatusCode::BAD_REQUEST, call, why))
        }
    }
}

/// `/agent/v1/ping`: what an agent's call needs, without an agent.
pub(crate) async fn ping(State(api): State<Api>) -> Result<StatusCode, Problem> {
    let read = api.engine.ports.store.read::<serde_json::Value>(&Kind::Installation).await;
    read.map_err(|e| store(&e))?;
    Ok(StatusCode::NO_CONTENT)
}

/// Checks the token of a call. 401 when it is not that worker's.
pub(crate) fn admit(
    api: &Api,
    headers: &HeaderMap,
    job: &JobId,
    generation: u32,
    key: WorkerKey,
    instance: &str,
) -> Result<(), Problem> {
    let given = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
    let wanted = tokens::token(&api.engine.installation.secret, job, generation, key, instance);
    if given.is_some_and(|given| tokens::same(given, &wanted)) {
        return Ok(());
    }
    tracing::warn!(%job, generation, instance, "a call with a wrong token");
    Err(problem(StatusCode::UNAUTHORIZED, "token", "this token is not this worker's; say hello"))
}

/// The worker that calls, as it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named<'a> {
    pub(crate) job: &'a JobId,
    pub(crate) generation: u32,
    pub(crate) key: WorkerKey,
    pub(crate) instance: &'a str,
}

/// The job of a worker that brings what a program said or left: 401 when token or machine are not that worker's, 403 when the
/// machine cannot be a worker of the generation, 404 without the job.
pub(crate) async fn job_of(api: &Api, headers: &HeaderMap, who: Named<'_>) -> Result<Job, Problem> {
    let machine = machine::of(api, headers, who.instance).await?;
    admit(api, headers, who.job, who.generation, who.key, who.instance)?;
    let job = load(api, who.job).await?;
    if let Some(g) = job.generation(who.generation) {
        machine::is_worker(api, machine.as_ref(), &job, g, who.key)?;
    }
    Ok(job)
}

/// Why a hint is published, and the commit it rests on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct News {
    cause: String,
    after: Revision,
    /// True if the fact was stored by an earlier call, whose hint may be lost.
    is_retold: bool,
}

/// 503 when the hint of what was stored now cannot be published: the agent comes again. A fact that is told again goes without: its worker
/// must get its order, and is to be heard, however long the topic is away. False: it was not published.
async fn tell(api: &Api, job: &JobId, news: &News) -> Result<bool, Problem> {
    let mut last = String::new();
    // A topic that hangs takes ten seconds for each, and an agent hangs up after fifteen.
    let tries = if news.is_retold { 1 } else { HINT_TRIES };
    for _ in 0..tries {
        let answer = hint::publish(&api.engine.ports, job, &news.cause, Some(news.after)).await;
        let Answer::Transient(error) = answer else { return Ok(true) };
        last = error;
    }
    if news.is_retold {
        tracing::warn!(%job, cause = news.cause, error = last, "a hint could not be published once more; the next call tries again");
        return Ok(false);
    }
    Err(Problem::unavailable("the hint topic", &last))
}

async fn job(api: &Api, id: &JobId) -> Result<Arc<Job>, Problem> {
    match api.engine.ports.store.job(id).await {
        Ok(Some(at)) => Ok(at.value),
        Ok(None) => Err(problem(StatusCode::GONE, "gone", format!("there is no job {id}"))),
        Err(error) => Err(store(&error)),
    }
}

/// Whether a worker that prepares did more before: the attempt has started on all of them, or its VM has booted since it was released.
async fn has_lost_its_program(api: &Api, job: &Job, report: &Report, order: &Order) -> Result<bool, Problem> {
    let has_started = attempt_of(job, report.generation).is_some_and(|a| a.started_at.is_some());
    Ok(has_started || has_rebooted(api, job, report.generation, report.key, order).await?)
}

/// Whether a worker that would be told to run has booted since its attempt was released. Asked before each such answer alone: once for a
/// worker and an attempt, as a rule.
async fn has_rebooted(api: &Api, job: &Job, generation: u32, key: WorkerKey, order: &Order) -> Result<bool, Problem> {
    let Some(attempt) = attempt_of(job, generation).filter(|_| order.want == Want::Run) else { return Ok(false) };
    let kind = Kind::Worker(job.id.clone(), attempt.number, key);
    let known = api.engine.ports.store.read::<WorkerReport>(&kind).await.map_err(|e| store(&e))?;
    Ok(known.is_some_and(|at| at.value.has_rebooted))
}

/// A worker that has lost its program, and with its disk perhaps the memory of it, is not told to run it a second time, but waits for the
/// next attempt.
fn hold(order: &mut Order) {
    if order.want == Want::Run {
        order.want = Want::Prepare;
        order.exec.clear();
    }
}

fn order(api: &Api, job: &Job, generation: u32, key: WorkerKey, held: Option<u32>) -> Order {
    let context = Context {
        settings: &api.engine.settings,
        deployment: &api.engine.deployment,
        now: api.engine.ports.clock.now(),
    };
    order_for(job, generation, key, held, &context)
}
