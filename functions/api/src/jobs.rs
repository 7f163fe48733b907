//! Jobs: submit, list, one, history, explain.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::Deserialize;

use rekindle_core::access::{Right, spelled};
use rekindle_core::explain;
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::{Job, Phase, Usage};
use rekindle_core::observation::WorkerReport;
use rekindle_core::spec::{JobSpec, ParseContext, parse};
use rekindle_core::{names, orders, placement};
use rekindle_engine::Submitted;
use rekindle_ports::docs::Cursor;
use rekindle_ports::store::{JobFilter, StoreError};
use rekindle_web::problem::FieldFault;
use rekindle_web::{Caller, Json, NoQuery, Path, Problem, Query, about, etag, faulty_query, problem};
use rekindle_wire::once::Once;
use rekindle_wire::spec_view;
use rekindle_wire::v1::{CandidateView, ExplainView, HistoryList, JobList, JobView, PlanView, ProgressView};

use crate::access::{may, may_all, seen};
use crate::{Api, letters, page};

/// Reads the id of a path. 404: no job has an id like that.
pub(crate) fn job_id(text: &str) -> Result<JobId, Problem> {
    let id = JobId::parse(text).map_err(|_| Problem::not_found(&format!("job {text:?}")))?;
    about::job(&id);
    Ok(id)
}

/// Loads a job. 404 and 503.
pub(crate) async fn load(api: &Api, id: &JobId) -> Result<Job, Problem> {
    match api.engine.ports.store.job(id).await {
        Ok(Some(at)) => Ok(Arc::unwrap_or_clone(at.value)),
        Ok(None) => Err(Problem::not_found(&format!("job {id}"))),
        Err(error) => Err(store(&error)),
    }
}

/// The refusal of what a job whose end is known cannot do, with the place of its checkpoints: another job may go on from them.
pub(crate) async fn with_checkpoint(api: &Api, id: &JobId, has_end: bool, problem: Problem) -> Problem {
    if !has_end {
        return problem;
    }
    // Without it the refusal says what it has to.
    let Ok(job) = load(api, id).await else { return problem };
    match orders::checkpoint_left(&job, &api.engine.deployment.bucket) {
        Some(folder) => problem.with("checkpoint", folder),
        None => problem,
    }
}

/// 503, or 400 for what the store will never take.
pub(crate) fn store(error: &StoreError) -> Problem {
    match error {
        StoreError::Refused(why) => problem(
            StatusCode::BAD_REQUEST,
            "refused",
            format!(
                "{why}; where a job's document is too large, take away its notes or tags, which is always possible"
            ),
        ),
        // Of a store on one's own machine, whose person alone can help.
        StoreError::Full(why) => problem(StatusCode::SERVICE_UNAVAILABLE, "disk-full", why.clone()),
        StoreError::Conflict(_)
        | StoreError::Unclear(_)
        | StoreError::Unavailable(_)
        | StoreError::Unreadable { .. } => Problem::unavailable("the store", error),
    }
}

/// The caller's key for this request; a random one when they gave none.
pub(crate) fn key(api: &Api, caller: &Caller, headers: &HeaderMap) -> Result<String, Problem> {
    let Some(given) = headers.get("idempotency-key") else {
        return Ok(format!("http {:032x}", api.engine.ports.ids.random()));
    };
    match given.to_str() {
        // Keys are the caller's own: another caller's same key is another one.
        Ok(text) if !text.is_empty() && text.len() <= 256 => Ok(format!("http {} {text}", caller.identity)),
        _ => {
            Err(problem(StatusCode::BAD_REQUEST, "idempotency-key", "Idempotency-Key has 1 to 256 visible characters"))
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SubmitQuery {
    /// Only say what the job would be.
    dry_run: Option<bool>,
}

/// `POST /v1/jobs`.
pub(crate) async fn submit(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<SubmitQuery>,
    Json(Once(body)): Json<Once>,
) -> Result<Response, Problem> {
    let context =
        ParseContext { deployment: &api.engine.deployment, caller: &caller.identity, caller_is_admin: caller.is_admin };
    let mut submit = parse(&body, &context).map_err(|faults| {
        let count = match faults.len() {
            1 => "a fault".to_owned(),
            count => format!("{count} faults"),
        };
        let errors = faults.into_iter().map(|f| FieldFault { field: f.field, message: f.message }).collect();
        problem(StatusCode::BAD_REQUEST, "job-spec", format!("the job spec has {count}")).with_errors(errors)
    })?;
    if query.dry_run == Some(true) {
        return Ok(axum::Json(plan(&submit.spec, &api)).into_response());
    }
    let key = key(&api, &caller, &headers)?;
    let by_key = submit.id.is_none();
    let id = submit.id.get_or_insert_with(|| names::generated_job_id(&key)).clone();
    if !by_key && headers.contains_key("idempotency-key") {
        bind(&api, &caller, &id, &key).await?;
    }
    let (job, status) = match Box::pin(api.engine.submit(submit, &caller.identity, &key)).await {
        Ok(Submitted::Created(job)) => (job, StatusCode::CREATED),
        Ok(Submitted::Same(job)) => (job, StatusCode::OK),
        Ok(Submitted::Conflict { .. }) if by_key => {
            let used_for = api.engine.bound_to(&key).await.map_err(|error| store(&error))?.unwrap_or(id);
            let why = format!(
                "this Idempotency-Key was used before to submit another spec or id, job {used_for}; repeat that, or give another key"
            );
            return Err(problem(StatusCode::CONFLICT, "idempotency-key", why));
        }
        Ok(Submitted::Conflict { phase: None }) => return Err(taken(&id, None)),
        Ok(Submitted::Conflict { phase: Some(phase) }) => {
            return Err(with_checkpoint(&api, &id, phase.is_terminal(), taken(&id, Some(phase))).await);
        }
        Err(error) => return Err(store(&error)),
    };
    hint(&api, &id, "submit").await;
    let location = HeaderValue::from_str(&format!("/v1/jobs/{id}")).unwrap_or(HeaderValue::from_static("/v1/jobs"));
    Ok((status, [(header::LOCATION, location)], axum::Json(JobView::of(&job, &[]))).into_response())
}

/// The key that came with an id is for that id alone: 409 when it was used for another one.
async fn bind(api: &Api, caller: &Caller, id: &JobId, key: &str) -> Result<(), Problem> {
    match api.engine.bind_key(id, &caller.identity, key).await {
        Ok(None) => Ok(()),
        Ok(Some(other)) => {
            let why = format!("this Idempotency-Key was used before to submit job {other}; give another key for {id}");
            Err(problem(StatusCode::CONFLICT, "idempotency-key", why))
        }
        Err(error) => Err(store(&error)),
    }
}

fn plan(spec: &JobSpec, api: &Api) -> PlanView {
    let candidates = placement::candidates(spec, &api.engine.deployment);
    let view = |candidate: placement::Candidate| CandidateView {
        slices: spec.tpu.slices,
        workers: candidate.workers * spec.tpu.slices,
        chips: candidate.chips,
        usd_per_hour: candidate.usd_micros_per_hour as f64 / 1e6,
        accelerator: candidate.placement.accelerator,
        zone: candidate.placement.zone,
        capacity: candidate.placement.capacity,
    };
    PlanView { spec: spec_view::spec(spec), candidates: candidates.into_iter().map(view).collect() }
}

fn taken(id: &JobId, phase: Option<Phase>) -> Problem {
    let why = match phase {
        Some(phase) if phase.is_terminal() => format!("job {id} has ended ({}); choose another id", phase.as_str()),
        Some(phase) => format!("job {id} exists with another spec (it is {}); choose another id", phase.as_str()),
        None => format!("the id {id} is taken; choose another one"),
    };
    let problem = problem(StatusCode::CONFLICT, "job-exists", why);
    match phase {
        Some(phase) => problem.with("phase", phase.as_str()),
        None => problem,
    }
}

/// Tells the engine. The fact is stored with its wake-up due at once, so a lost hint costs a minute and no answer.
pub(crate) async fn hint(api: &Api, id: &JobId, cause: &str) {
    let answer = rekindle_web::hint::publish(&api.engine.ports, id, cause, None).await;
    if let rekindle_web::Answer::Transient(error) = answer {
        tracing::warn!(job = %id, error, "a hint could not be published; the tick finds the job");
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// `list`: of each spec only its accelerator.
    view: Option<String>,
    phase: Option<String>,
    owner: Option<String>,
    tag: Option<String>,
    page_size: Option<usize>,
    page_token: Option<String>,
}

/// So often a list is read on where some that were read are others', or large.
const ROUNDS: usize = 20;
/// A page ends once its jobs are so long. The last read adds a page of the store at most, so an answer stays far below the 32 MiB that
/// Cloud Run lets through.
const ANSWER_BYTES: usize = 2 << 20;

/// `GET /v1/jobs`: those that the caller may see. A page may hold fewer than were asked for, and another may follow.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let phase = match query.phase.as_deref().filter(|p| !p.is_empty()) {
        None => None,
        Some(name) => Some(Phase::parse(&name.to_ascii_lowercase()).ok_or_else(|| {
            let known = Phase::ALL.map(Phase::as_str).join(", ");
            faulty_query("phase", &format!("{name:?} is unknown; one of {known}"))
        })?),
    };
    let is_brief = match query.view.as_deref() {
        None | Some("" | "full") => false,
        Some("list") => true,
        Some(other) => return Err(faulty_query("view", &format!("{other:?} is unknown; full or list"))),
    };
    let owner = only_owner(&api, &caller, query.owner);
    let filter = JobFilter { phase, owner, tag: query.tag.filter(|tag| !tag.is_empty()) };
    let asked = format!("jobs {} {filter:?}", caller.identity);
    let after = page::cursor(&api, &asked, query.page_token.as_deref())?;
    let size = page::size(query.page_size)?;
    // Nor do empty pages tell how many jobs an owner has who is not to be seen, and in which phase.
    if filter.owner.as_ref().is_some_and(|owner| !may(&api, &caller, Right::See, owner)) {
        return Ok(etag::json(&headers, &JobList { jobs: Vec::new(), next_page_token: None }));
    }
    let _place = api.queue.place(&caller.identity).await?;
    let (jobs, next) = fill(&api, &caller, &filter, after, (size, is_brief)).await?;
    let next_page_token = next.as_ref().and_then(|next| page::token(&api, &asked, next));
    Ok(etag::json(&headers, &JobList { jobs, next_page_token }))
}

/// The one owner whose jobs a caller asks for, or may see at all; `None`: those of several.
pub(crate) fn only_owner(api: &Api, caller: &Caller, asked: Option<String>) -> Option<String> {
    let asked = asked.filter(|owner| !owner.is_empty()).map(|owner| spelled(&owner, &caller.identity));
    let sees_others =
        may_all(api, caller, Right::See) || api.engine.deployment.access.may_others(&caller.identity, Right::See);
    asked.or_else(|| (!sees_others).then(|| caller.identity.clone()))
}

/// Whether an owner has no job that the caller may see: nobody else's is read then for an answer over many jobs.
pub(crate) async fn has_none(api: &Api, caller: &Caller, owner: Option<&String>) -> Result<bool, StoreError> {
    let Some(owner) = owner else { return Ok(false) };
    if !may(api, caller, Right::See, owner) {
        return Ok(true);
    }
    let filter = JobFilter { owner: Some(owner.clone()), ..JobFilter::default() };
    let (jobs, next) = api.engine.ports.store.jobs(&filter, None, 1).await?;
    Ok(jobs.is_empty() && next.is_none())
}

/// Reads a page of `size` jobs that the caller may see, and where the next one begins: on past those of others, whom a page that is not
/// full would tell of, and past large ones, of which the store hands out few at once.
async fn fill(
    api: &Api,
    caller: &Caller,
    filter: &JobFilter,
    after: Option<Cursor>,
    (size, is_brief): (usize, bool),
) -> Result<(Vec<JobView>, Option<Cursor>), Problem> {
    let sees_all = may_all(api, caller, Right::See);
    let (mut views, mut next, mut bytes) = (Vec::new(), after, 0);
    for _ in 0..ROUNDS {
        let page = api.engine.ports.store.jobs(filter, next, size - views.len()).await;
        let (found, behind) = page.map_err(|e| store(&e))?;
        next = behind;
        let seen = |job: &Arc<Job>| sees_all || may(api, caller, Right::See, &job.spec.owner);
        let jobs: Vec<Arc<Job>> = found.into_iter().map(|at| at.value).filter(seen).collect();
        let steps = first_reports(api, jobs.iter().map(AsRef::as_ref)).await;
        for job in jobs {
            let view = if is_brief {
                // Jobs are shared with the store: a list copies none.
                JobView::in_list(&job, &usage(api, &job))
            } else {
                JobView::of(&counted(api, Arc::unwrap_or_clone(job)), &[])
            };
            let view = match steps.get(&view.id) {
                Some(report) => view.with_newer_step(report),
                None => view,
            };
            bytes += written_len(&view);
            views.push(view);
        }
        if views.len() >= size || bytes >= ANSWER_BYTES || next.is_none() {
            break;
        }
    }
    Ok((views, next))
}

/// How long a view is as JSON.
fn written_len(view: &JobView) -> usize {
    struct Counter(usize);
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // What cannot be written is told where the answer is.
    let _ = serde_json::to_writer(&mut counter, view);
    counter.0
}

/// `GET /v1/jobs/{id}`.
pub(crate) async fn show(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let job = seen(&api, &caller, &job_id(&id)?).await?;
    let workers = reports(&api, &job).await;
    let job = counted(&api, job);
    let mut view = JobView::of(&job, &workers).with_defaults(&job, &api.engine.deployment);
    view.untold = letters::newest(&api, &job).await;
    Ok(etag::json(&headers, &view))
}

/// The job with its chip time and cost up to now: stored are those of its last pass.
pub(crate) fn counted(api: &Api, mut job: Job) -> Job {
    job.usage = usage(api, &job);
    job
}

/// Its chip time and cost up to now.
pub(crate) fn usage(api: &Api, job: &Job) -> Usage {
    let now = api.engine.ports.clock.now();
    // In steps, so that the ETag of a job that only runs on holds for a while.
    let step = Timestamp::from_second(now.as_second().div_euclid(COST_STEP_SECS) * COST_STEP_SECS).unwrap_or(now);
    rekindle_core::decide::usage_at(job, step)
}

/// The cost of a running job is shown as of so many whole seconds.
const COST_STEP_SECS: i64 = 10;

/// The newest reports of the current attempt. They only make progress fresher, so a failed read is none.
pub(crate) async fn reports(api: &Api, job: &Job) -> Vec<WorkerReport> {
    let Some(attempt) = job.attempt().filter(|a| a.ended.is_none()) else { return Vec::new() };
    let Some(g) = job.generation(attempt.generation) else { return Vec::new() };
    let keys = (0..g.slices).flat_map(|slice| (0..g.workers).map(move |worker| WorkerKey { slice, worker }));
    let of: Vec<(u32, WorkerKey)> = keys.map(|key| (attempt.number, key)).collect();
    match api.engine.ports.store.workers(&job.id, &of).await {
        Ok((reports, _)) => reports.into_iter().map(|at| at.value.into_inner()).collect(),
        Err(error) => {
            tracing::warn!(job = %job.id, %error, "worker reports could not be read");
            Vec::new()
        }
    }
}

/// What the first workers of those jobs that run told last. It only makes progress fresher, so a failed read is none.
pub(crate) async fn first_reports<'a>(
    api: &Api,
    jobs: impl Iterator<Item = &'a Job>,
) -> BTreeMap<JobId, Arc<WorkerReport>> {
    let attempt = |job: &Job| job.attempt().filter(|a| a.ended.is_none()).map(|a| a.number);
    let running: Vec<(JobId, u32)> = jobs.filter_map(|job| Some((job.id.clone(), attempt(job)?))).collect();
    if running.is_empty() {
        return BTreeMap::new();
    }
    api.engine.ports.store.first_workers(&running).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "worker reports could not be read");
        BTreeMap::new()
    })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    page_size: Option<usize>,
    page_token: Option<u64>,
}

/// `GET /v1/jobs/{id}/history`. Its page token is the revision after which to go on.
pub(crate) async fn history(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    Query(query): Query<HistoryQuery>,
) -> Result<Response, Problem> {
    let id = job_id(&id)?;
    let limit = page::size(query.page_size)?;
    let after = query.page_token.unwrap_or(0);
    if !may_all(&api, &caller, Right::See) {
        seen(&api, &caller, &id).await?;
    }
    let entries = api.engine.ports.store.history(&id, after, limit).await.map_err(|e| store(&e))?;
    if entries.is_empty() && after == 0 {
        // Every job has an entry from its submit on.
        return Err(Problem::not_found(&format!("job {id}")));
    }
    let next = (entries.len() == limit).then(|| entries.last().map(|e| e.revision.to_string())).flatten();
    Ok(etag::json(&headers, &HistoryList { entries, next_page_token: next }))
}

/// `GET /v1/jobs/{id}/explain`.
pub(crate) async fn explain(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let job = seen(&api, &caller, &job_id(&id)?).await?;
    let workers = reports(&api, &job).await;
    let mut job = counted(&api, job);
    // As `show` has it: the document is as old as the last pass.
    let JobView { progress: ProgressView { step, loss, checkpoint, .. }, counters, .. } = JobView::of(&job, &workers);
    job.counters.steps_repeated = counters.steps_repeated;
    job.highest_step = job.highest_step.max(step);
    (job.line_step, job.last_loss, job.saved) = (step, loss, checkpoint);
    if let Some(a) = job.attempts.last_mut() {
        a.step = a.step.max(workers.iter().filter(|r| r.attempt == a.number).filter_map(|r| r.step).max());
    }
    let explanation = explain::explain(&job, api.engine.ports.clock.now());
    let (mut paragraph, mut facts) = (explanation.paragraph, explanation.facts);
    if let Some(letter) = letters::newest(&api, &job).await {
        let told = letters::sentence(&letter);
        paragraph = format!("{paragraph} {told} `rekindle dead-letters {}` lists all of them.", job.id);
        facts.push(told);
    }
    let view = ExplainView { id: job.id, phase: job.phase, paragraph, facts };
    Ok(etag::json(&headers, &view))
}
