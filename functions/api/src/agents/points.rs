//! Keeps points of an attempt's progress for plots: few writes, and none that anything waits for.

use rekindle_core::ids::JobId;
use rekindle_core::job::Attempt;
use rekindle_core::observation::WorkerReport;
use rekindle_core::series::{Point, Series};
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::StoreError;

use crate::Api;

/// Adds the step of a report, if it is news. What fails is a point less in a plot.
pub(super) async fn add(api: &Api, job: &JobId, attempt: &Attempt, before: Option<&WorkerReport>, next: &WorkerReport) {
    let Some(step) = next.step.filter(|step| before.and_then(|known| known.step) < Some(*step)) else { return };
    let point = Point::new(next.step_at.unwrap_or(next.heard_at), step, next.loss.as_deref());
    let from = next.resumed_from.or_else(|| attempt.begins_at());
    if let Err(error) = write(api, Kind::Progress(job.clone(), next.attempt), point, from).await {
        tracing::debug!(%job, %error, "a point of progress was not stored");
    }
}

/// Several workers may report the same step: the first one's point stays.
async fn write(api: &Api, kind: Kind, point: Point, from: Option<u64>) -> Result<(), StoreError> {
    let docs = &api.engine.ports.store;
    let at = docs.read::<Series>(&kind).await?;
    let mut series = at.as_ref().map(|at| at.value.clone()).unwrap_or_default();
    if series.add(point) {
        series.from = series.from.or(from);
        let when = at.map_or(Precondition::Absent, |at| Precondition::At(at.revision));
        docs.write(&kind, &series, when).await?;
    }
    Ok(())
}
