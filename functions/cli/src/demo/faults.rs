//! Injects the plan's faults, each at its moment. The manager is not told: what it learns it learns from notices,
//! states and exits.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rekindle_core::job::Phase;
use rekindle_wire::v1::{JobView, ResourceView};

use super::cloud::{Cloud, Cut};
use super::plan::{Kind, Moment, Plan};
use super::timeline::Timeline;
use super::{SETTLE, SPEED};
use crate::fault::Result;

/// As the real service announces a preemption; divided by the speed as all waits.
const NOTICE: Duration = Duration::from_secs(30);
/// Worker 0 holds the connections to all others.
const CUT_WORKER: u32 = 0;
/// Where connections cannot be cut, another worker stands still for longer than the others wait (10 s and a margin).
const FROZEN_WORKER: u32 = 1;
const FREEZE: Duration = Duration::from_secs(14);

const SETTLE_MARGIN: Duration = Duration::from_millis(250);

/// The faults that are still to come.
pub(crate) struct Faults<'a> {
    plan: &'a Plan,
    next: usize,
    /// Newest checkpoint at the last fault.
    checkpoint: u64,
    /// Attempt that the last fault hit.
    attempt: u32,
}

/// A preemption that was just announced.
pub(crate) struct Noticed {
    /// When the notice was given.
    pub(crate) at: Timestamp,
    /// The generation that is taken away.
    pub(crate) generation: u32,
}

impl<'a> Faults<'a> {
    /// All of them.
    pub(crate) fn new(plan: &'a Plan) -> Self {
        Self { plan, next: 0, checkpoint: 0, attempt: 0 }
    }

    /// True once all were injected.
    pub(crate) fn are_over(&self) -> bool {
        self.next == self.plan.faults.len()
    }

    /// Injects the next fault if its moment has come. Answers the notice of a preemption.
    pub(crate) async fn look(&mut self, job: &JobView, cloud: &Cloud, timeline: &Timeline) -> Result<Option<Noticed>> {
        let Some(moment) = self.plan.faults.get(self.next).copied() else { return Ok(None) };
        let Some(resource) = self.target(moment, job) else { return Ok(None) };
        let (step, checkpoint) = (job.progress.step.unwrap_or(0), job.progress.checkpoint.unwrap_or(0));
        let noticed = match moment.kind {
            Kind::Preemption => Some(preempt(resource, step, cloud, timeline).await?),
            Kind::GrpcFailure if break_transport(resource, step, cloud, timeline).await? => None,
            // The program was between two connections; the next look tries again.
            Kind::GrpcFailure => return Ok(None),
        };
        self.next += 1;
        self.checkpoint = checkpoint;
        self.attempt = job.attempt;
        Ok(noticed)
    }

    /// The TPU to hit, if the moment has come: the program runs, has passed the step, and has saved since the last
    /// fault.
    fn target<'j>(&self, moment: Moment, job: &'j JobView) -> Option<&'j ResourceView> {
        let is_running = job.phase == Phase::Running && job.attempt > self.attempt;
        // The fault before must be judged by itself, not as a part of this one.
        let is_settled = job.last_end.as_ref().is_none_or(|end| Timestamp::now() > end.at + SETTLE + SETTLE_MARGIN);
        let has_come = job.progress.step? >= moment.after_step && job.progress.checkpoint? > self.checkpoint;
        let resource = job.resources.iter().find(|resource| resource.generation == job.generation)?;
        (is_running && is_settled && has_come && resource.state == "ready").then_some(resource)
    }
}

async fn preempt(resource: &ResourceView, step: u64, cloud: &Cloud, timeline: &Timeline) -> Result<Noticed> {
    let off_at = cloud.preempt(&resource.name, &resource.zone, NOTICE).await?;
    let notice = NOTICE.div_f64(SPEED);
    let notice = SignedDuration::try_from(notice).unwrap_or(SignedDuration::ZERO);
    let text = format!("{} is being preempted, {} s notice, at step {step}", resource.name, notice.as_secs());
    timeline.fault(&text);
    Ok(Noticed { at: off_at - notice, generation: resource.generation })
}

/// True once something was broken.
async fn break_transport(resource: &ResourceView, step: u64, cloud: &Cloud, timeline: &Timeline) -> Result<bool> {
    match cloud.cut(&resource.name, &resource.zone, CUT_WORKER).await? {
        Cut::Done(0) => Ok(false),
        Cut::Done(count) => {
            let count = crate::human::count(count, "gRPC connection");
            timeline.fault(&format!("{count} of worker {CUT_WORKER} cut at step {step}"));
            Ok(true)
        }
        Cut::Refused => {
            cloud.freeze(&resource.name, &resource.zone, FROZEN_WORKER, FREEZE.mul_f64(SPEED)).await?;
            timeline.fault(&format!("worker {FROZEN_WORKER} stands still at step {step}"));
            Ok(true)
        }
    }
}
