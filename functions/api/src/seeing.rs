//! `GET /v1/jobs/{id}/progress` and `GET /v1/digest`: what people look at who come back.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::HeaderMap;
use jiff::Timestamp;
use serde::Deserialize;

use rekindle_core::digest::{JobDigest, digest};
use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, Phase};
use rekindle_core::observation::WorkerReport;
use rekindle_ports::store::{At, JobFilter, StoreError};
use rekindle_web::{Caller, NoQuery, Path, Problem, Query, etag};
use rekindle_wire::seeing::{AttemptProgress, DigestView, ProgressList, WorkerView, attempts_shown};

use crate::Api;
use crate::access::{Shown, seen};
use crate::jobs::{counted, first_reports, has_none, job_id, only_owner, reports, store};
use crate::logs::workers_each;
use crate::streams::Moment;

/// Jobs of one digest.
const JOBS_MAX: usize = 500;
/// Jobs that are read at once: of large ones more would not fit into the service's memory.
const PAGE: usize = 64;
/// Histories that are read side by side.
const AT_ONCE: usize = 16;

/// `GET /v1/jobs/{id}/progress`.
pub(crate) async fn progress(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Path(id): Path<String>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let job = seen(&api, &caller, &job_id(&id)?).await?;
    let attempts = attempts_shown(job.last_attempt);
    let series = api.engine.ports.store.progress(&job.id, &attempts).await.map_err(|error| store(&error))?;
    let workers = reports(&api, &job).await;
    let attempts = series.into_iter().map(|(attempt, series)| {
        let of = || workers.iter().filter(|report| report.attempt == attempt);
        let known = job.attempts.iter().find(|a| a.number == attempt);
        let told = of().filter_map(|report| report.resumed_from).min();
        // Of one that the job has forgotten the series tells alone.
        let from = told.or_else(|| known?.begins_at()).or(series.from);
        let step = of().filter_map(|report| report.step).max().max(known.and_then(|a| a.step));
        let from_scratch = known.map_or(series.from_scratch, |a| !a.resume);
        AttemptProgress { attempt, from, step, from_scratch, points: series.points }
    });
    let attempts = attempts.collect();
    let workers = workers.iter().map(WorkerView::of).collect();
    let (slices, slice_workers) = (job.spec.tpu.slices, workers_each(&job));
    let list = ProgressList { id: job.id, attempts, workers, slices, slice_workers };
    Ok(etag::json(&headers, &list))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DigestQuery {
    since: Moment,
    owner: Option<String>,
}

/// `GET /v1/digest`: jobs that the caller may see and that run, or to which something happened since then.
pub(crate) async fn since(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<DigestQuery>,
) -> Result<Response, Problem> {
    let Moment(since) = query.since;
    let through = api.engine.ports.clock.now();
    let owner = only_owner(&api, &caller, query.owner.clone());
    let shown = Shown::new(&api, &caller, query.owner);
    let mut news = News { api: &api, since, shown: &shown, known: BTreeSet::new(), told: Vec::new(), is_cut: false };
    let _place = api.queue.place(&caller.identity).await?;
    if !has_none(&api, &caller, owner.as_ref()).await.map_err(|error| store(&error))? {
        news.add_changed().await.map_err(|error| store(&error))?;
        // After the others: a job that ends between the two reads is in the next digest.
        if !news.is_cut && since <= through {
            news.add_running(owner).await.map_err(|error| store(&error))?;
        }
    }
    let News { mut told, is_cut, .. } = news;
    told.sort_by_key(|(changed_at, _)| *changed_at);
    let jobs = told.into_iter().map(|(_, digest)| digest).collect();
    Ok(etag::json(&headers, &DigestView { since, through, jobs, is_cut }))
}

/// A digest that is being put together. Of each page of jobs only what is told of them is kept: they may be large.
struct News<'a> {
    api: &'a Api,
    since: Timestamp,
    shown: &'a Shown<'a>,
    /// Jobs that were looked at.
    known: BTreeSet<JobId>,
    /// By when they changed.
    told: Vec<(Timestamp, JobDigest)>,
    /// There were too many.
    is_cut: bool,
}

impl News<'_> {
    async fn add_changed(&mut self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let (page, next) = self.api.engine.ports.store.changed_jobs(self.since, after, PAGE).await?;
            self.add(page).await?;
            after = next;
            if self.is_cut || after.is_none() {
                return Ok(());
            }
        }
    }

    /// Adds those that run, though nothing but steps happened to them: they do work, and cost.
    async fn add_running(&mut self, owner: Option<String>) -> Result<(), StoreError> {
        let filter = JobFilter { phase: Some(Phase::Running), owner, ..JobFilter::default() };
        let mut after = None;
        loop {
            let (page, next) = self.api.engine.ports.store.jobs(&filter, after, PAGE).await?;
            self.add(page).await?;
            after = next;
            if self.is_cut || after.is_none() {
                return Ok(());
            }
        }
    }

    async fn add(&mut self, page: Vec<At<Arc<Job>>>) -> Result<(), StoreError> {
        let (api, since) = (self.api, self.since);
        let is_wanted = |job: &Arc<Job>| self.shown.has(Some(job)) && !self.known.contains(&job.id);
        let mut jobs: Vec<Arc<Job>> = page.into_iter().map(|at| at.value).filter(is_wanted).collect();
        let room = JOBS_MAX - self.known.len();
        self.is_cut = jobs.len() > room;
        jobs.truncate(room);
        self.known.extend(jobs.iter().map(|job| job.id.clone()));
        // The document is as old as the last pass: of a job that only runs, hours.
        let reports = first_reports(api, jobs.iter().map(AsRef::as_ref)).await;
        let digests = stream::iter(jobs).map(|job| {
            let report = reports.get(&job.id).cloned();
            let changed_at = job.changed_at;
            async move { Ok::<_, StoreError>((changed_at, one(api, Arc::unwrap_or_clone(job), since, report).await?)) }
        });
        let digests: Vec<(Timestamp, Option<JobDigest>)> = digests.buffered(AT_ONCE).try_collect().await?;
        self.told.extend(digests.into_iter().filter_map(|(changed_at, digest)| Some((changed_at, digest?))));
        Ok(())
    }
}

/// `told`: what its first worker reported last.
async fn one(
    api: &Api,
    mut job: Job,
    since: Timestamp,
    told: Option<Arc<WorkerReport>>,
) -> Result<Option<JobDigest>, StoreError> {
    let jobs = &api.engine.ports.store;
    let (before, entries) = jobs.history_since(&job, since).await?;
    if entries.is_empty() && job.phase != Phase::Running {
        return Ok(None);
    }
    if let Some(report) = told.filter(|report| report.step.is_some() && report.step >= job.step()) {
        (job.line_step, job.last_loss) = (report.step, report.loss.clone());
    }
    let attempts = attempts_shown(job.last_attempt);
    let series = if job.step().is_some() { jobs.progress(&job.id, &attempts).await? } else { Vec::new() };
    let job = counted(api, job);
    Ok(Some(digest(&job, before.as_ref(), &entries).with_steps(&job, since, &series)))
}
