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
use rekindle_ports::store::{JobFilter, StoreError};
use rekindle_web::{Caller, NoQuery, Path, Problem, Query, etag};
use rekindle_wire::seeing::{AttemptProgress, DigestView, ProgressList, WorkerView, attempts_shown};

use crate::Api;
use crate::access::{Shown, seen};
use crate::jobs::{counted, first_reports, job_id, reports, store};
use crate::logs::workers_each;
use crate::streams::Moment;

/// Jobs of one digest.
const JOBS_MAX: usize = 500;
/// Jobs that are read at once.
const PAGE: usize = 100;
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
    let shown = Shown::new(&api, &caller, query.owner);
    let (mut jobs, mut is_cut) = changed(&api, since, &shown).await.map_err(|error| store(&error))?;
    // After the others: a job that ends between the two reads is in the next digest.
    if !is_cut && since <= through {
        is_cut = add_running(&api, &mut jobs, &shown).await.map_err(|error| store(&error))?;
    }
    // The document is as old as the last pass: of a job that only runs, hours.
    let told = first_reports(&api, jobs.iter()).await;
    let digests = stream::iter(jobs)
        .map(|job| {
            let report = told.get(&job.id).cloned();
            one(&api, job, since, report)
        })
        .buffered(AT_ONCE);
    let jobs: Vec<Option<JobDigest>> = digests.try_collect().await.map_err(|error| store(&error))?;
    let jobs = jobs.into_iter().flatten().collect();
    Ok(etag::json(&headers, &DigestView { since, through, jobs, is_cut }))
}

async fn changed(api: &Api, since: Timestamp, shown: &Shown<'_>) -> Result<(Vec<Job>, bool), StoreError> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = api.engine.ports.store.changed_jobs(since, after, PAGE).await?;
        let wanted = page.into_iter().filter(|at| shown.has(Some(&at.value)));
        found.extend(wanted.map(|at| Job::clone(&at.value)));
        if found.len() > JOBS_MAX {
            found.truncate(JOBS_MAX);
            return Ok((found, true));
        }
        after = next;
        if after.is_none() {
            return Ok((found, false));
        }
    }
}

/// Adds those that run, though nothing but steps happened to them: they do work, and cost. True when there are too many.
async fn add_running(api: &Api, jobs: &mut Vec<Job>, shown: &Shown<'_>) -> Result<bool, StoreError> {
    let filter = JobFilter { phase: Some(Phase::Running), ..JobFilter::default() };
    let known: BTreeSet<JobId> = jobs.iter().map(|job| job.id.clone()).collect();
    let mut after = None;
    let is_cut = loop {
        let (page, next) = api.engine.ports.store.jobs(&filter, after, PAGE).await?;
        let wanted = page.into_iter().filter(|at| shown.has(Some(&at.value)) && !known.contains(&at.value.id));
        jobs.extend(wanted.map(|at| Job::clone(&at.value)));
        if jobs.len() > JOBS_MAX {
            jobs.truncate(JOBS_MAX);
            break true;
        }
        after = next;
        if after.is_none() {
            break false;
        }
    };
    jobs.sort_by_key(|job| job.changed_at);
    Ok(is_cut)
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
