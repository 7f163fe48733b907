//! `GET /v1/jobs/{id}/progress` and `GET /v1/digest`: what people look at who come back.

use axum::extract::State;
use axum::response::Response;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::HeaderMap;
use jiff::Timestamp;
use serde::Deserialize;

use rekindle_core::digest::{JobDigest, digest};
use rekindle_core::job::Job;
use rekindle_ports::store::StoreError;
use rekindle_web::{Caller, NoQuery, Path, Problem, Query, etag};
use rekindle_wire::seeing::{AttemptProgress, DigestView, ProgressList, WorkerView, attempts_shown};

use crate::Api;
use crate::access::{Shown, seen};
use crate::jobs::{counted, job_id, reports, store};
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
    let attempts = series.into_iter().map(|(attempt, series)| AttemptProgress { attempt, points: series.points });
    let workers = reports(&api, &job).await.iter().map(WorkerView::of).collect();
    let (slices, slice_workers) = (job.spec.tpu.slices, workers_each(&job));
    let list = ProgressList { id: job.id, attempts: attempts.collect(), workers, slices, slice_workers };
    Ok(etag::json(&headers, &list))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DigestQuery {
    since: Moment,
    owner: Option<String>,
}

/// `GET /v1/digest`: jobs that the caller may see and to which something happened since then.
pub(crate) async fn since(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<DigestQuery>,
) -> Result<Response, Problem> {
    let Moment(since) = query.since;
    let through = api.engine.ports.clock.now();
    let shown = Shown::new(&api, &caller, query.owner);
    let (jobs, is_cut) = changed(&api, since, &shown).await.map_err(|error| store(&error))?;
    let digests = stream::iter(jobs).map(|job| one(&api, job, since)).buffered(AT_ONCE);
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

async fn one(api: &Api, job: Job, since: Timestamp) -> Result<Option<JobDigest>, StoreError> {
    let (before, entries) = api.engine.ports.store.history_since(&job, since).await?;
    if entries.is_empty() {
        return Ok(None);
    }
    Ok(Some(digest(&counted(api, job), before.as_ref(), &entries)))
}
