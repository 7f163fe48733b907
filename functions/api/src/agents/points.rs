//! Keeps points of an attempt's progress for plots: few writes, and none that anything waits for.

use rekindle_core::ids::JobId;
use rekindle_core::job::Attempt;
use rekindle_core::observation::WorkerReport;
use rekindle_core::series::{Point, Series};
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::StoreError;

use crate::Api;

/// Adds the step of a report, and where its attempt began, if either is news. What fails is a point less in a plot.
pub(super) async fn add(api: &Api, job: &JobId, attempt: &Attempt, before: Option<&WorkerReport>, next: &WorkerReport) {
    let Some(step) = next.step else { return };
    // What is told before the first step goes with that one: nothing is written of an attempt that makes none.
    let told = |report: &WorkerReport| (report.step, report.resumed_from);
    if before.map(told) == Some(told(next)) {
        return;
    }
    let point = Point::new(next.step_at.unwrap_or(next.heard_at), step, next.loss.as_deref());
    if let Err(error) = write(api, Kind::Progress(job.clone(), next.attempt), point, attempt, next.resumed_from).await {
        tracing::debug!(%job, %error, "a point of progress was not stored");
    }
}

/// Several workers may report the same step: the first one's point stays. Where they began, each may tell less.
async fn write(
    api: &Api,
    kind: Kind,
    point: Point,
    attempt: &Attempt,
    resumed_from: Option<u64>,
) -> Result<(), StoreError> {
    let docs = &api.engine.ports.store;
    let at = docs.read::<Series>(&kind).await?;
    let mut series = at.as_ref().map(|at| at.value.clone()).unwrap_or_default();
    // What the job knows already may be of a worker that makes no step, or whose word lost a race here.
    let told = resumed_from.into_iter().chain(attempt.resumed_from).min();
    let has_begun = series.begin(told, attempt.begins_at());
    let was_known = std::mem::replace(&mut series.from_scratch, !attempt.resume) == series.from_scratch;
    if series.add(point) || has_begun || !was_known {
        let when = at.map_or(Precondition::Absent, |at| Precondition::At(at.revision));
        docs.write(&kind, &series, when).await?;
    }
    Ok(())
}
