//! Stores reports, fenced by attempt, and finds out whether a pass must know.

use std::borrow::Cow;
use std::sync::Arc;

use rekindle_core::job::{Attempt, Job};
use rekindle_core::observation::{WorkerReport, WorkerState};
use rekindle_core::orders::attempt_of;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::StoreError;
use rekindle_web::Problem;
use rekindle_wire::agent::Report;

use super::News;
use super::merge::{Change, change, merge};
use super::roll::{Standing, all};
use super::{points, tails};
use crate::Api;
use crate::jobs::store as trouble;

/// Lost races before the agent is asked to come again. The only other writer is the agent's own repeated call.
const RACES_MAX: u32 = 5;

/// Stores a report in its attempt's own document. `Some`: a pass should know.
///
/// A report of an attempt that the job has let go of is dropped: nobody reads it. One of an older attempt than the
/// generation's current one is
/// refused for state, but an exit or a notice in it is stored, and the end of the collecting after an exit.
pub(super) async fn store(api: &Api, job: &Job, report: &Report) -> Result<Option<News>, Problem> {
    let of = |a: &&Attempt| a.number == report.attempt && a.generation == report.generation;
    let Some(attempt) = job.attempts.iter().find(of) else {
        if report.attempt > job.last_attempt {
            // The order that it is answered tells an agent which counts: shared/decisions/0015-tokens-of-a-generation.md.
            tracing::warn!(
                job = %report.job, attempt = report.attempt, generation = report.generation, instance = report.instance,
                last_attempt = job.last_attempt, "a report of an attempt that was never made was dropped"
            );
        } else {
            tracing::debug!(job = %report.job, attempt = report.attempt, "a report of an attempt that is over");
        }
        return Ok(None);
    };
    let is_late = attempt_of(job, report.generation).is_some_and(|current| current.number > attempt.number)
        || attempt.fenced_at.is_some();
    for _ in 0..RACES_MAX {
        match once(api, job, attempt, report, is_late).await {
            Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(trouble(&error)),
            Ok(news) => return Ok(news),
        }
    }
    Err(Problem::unavailable("the store", &"a report lost every race"))
}

async fn once(
    api: &Api,
    job: &Job,
    attempt: &Attempt,
    report: &Report,
    is_late: bool,
) -> Result<Option<News>, StoreError> {
    let docs = &api.engine.ports.store;
    let kind = Kind::Worker(report.job.clone(), report.attempt, report.key);
    let known = docs.read::<WorkerReport>(&kind).await?;
    let before = known.as_ref().map(|at| &at.value);
    let tells =
        report.exit.is_some() || report.notice.is_some() || before.is_some_and(WorkerReport::has_left_something);
    if is_late && !tells {
        return Ok(None);
    }
    // An exit is told again and again, and kept as it was told first.
    let report = match before {
        Some(known) if known.exit.is_some() => Cow::Borrowed(report),
        Some(_) | None => tails::bounded(job, report),
    };
    let report = report.as_ref();
    let next = Arc::new(merge(before, report, &address(job, report), api.engine.ports.clock.now(), is_late));
    let news = change(before, &next, job, attempt);
    let revision = match &known {
        // A write that changes nothing would keep its time, and say nothing new.
        Some(at) if at.value == *next => at.revision,
        Some(at) => docs.write_shared(&kind, next.clone(), Precondition::At(at.revision)).await?,
        None => docs.write_shared(&kind, next.clone(), Precondition::Absent).await?,
    };
    points::add(api, &report.job, attempt, before, &next).await;
    let Some(news) = news else { return Ok(None) };
    let complete = match news {
        Change::Ready => all(api, job, attempt, revision, |w| w.state == WorkerState::Ready).await?,
        Change::Running => {
            let has_begun = |w: Standing| matches!(w.state, WorkerState::Running | WorkerState::Exited);
            all(api, job, attempt, revision, has_begun).await?
        }
        Change::AllExited => all(api, job, attempt, revision, |w| w.state == WorkerState::Exited).await?,
        Change::Collected | Change::Sent => all(api, job, attempt, revision, |w| !w.has_left_something).await?,
        Change::Exit | Change::Notice | Change::Reboot | Change::Step | Change::Resumed => Some(revision),
    };
    let cause = match news {
        Change::Exit => "worker exit",
        Change::AllExited => "workers exited",
        Change::Collected => "outputs collected",
        Change::Sent => "output sent",
        Change::Notice => "notice",
        Change::Reboot => "worker rebooted",
        Change::Ready => "workers ready",
        Change::Running => "workers running",
        Change::Step => "first new step",
        Change::Resumed => "resumed further back",
    };
    let is_retold = news.is_retold(before, &next);
    Ok(complete.map(|read| News { cause: cause.into(), after: read.max(revision), is_retold }))
}

/// Hello told it for the first attempt of the VM; later attempts take it from the slice.
fn address(job: &Job, report: &Report) -> String {
    let of = || {
        let g = job.generation(report.generation)?;
        g.addresses.get(report.key.slice as usize)?.get(report.key.worker as usize).cloned()
    };
    of().unwrap_or_default()
}
