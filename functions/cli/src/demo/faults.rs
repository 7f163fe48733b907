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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use axum::extract::Path;
    use axum::http::StatusCode;
    use axum::routing::post;
    use axum::{Json, Router};
    use rekindle_core::spec::CapacityKind;
    use serde_json::{Value, json};

    use super::*;
    use crate::printer::Printer;

    type Calls = Arc<Mutex<Vec<(String, Value)>>>;

    /// An emulator whose kernel does not let it cut connections, or that finds none to cut.
    async fn emulator(refuses: bool) -> (Cloud, Calls) {
        let calls = Calls::default();
        let seen = Arc::clone(&calls);
        let act = async move |Path((_, action)): Path<(String, String)>, Json(body): Json<Value>| {
            seen.lock().unwrap().push((action.clone(), body));
            match action.as_str() {
                "cut-connections" if refuses => {
                    let text = "the kernel does not let the supervisor cut connections (EPERM)";
                    (StatusCode::BAD_REQUEST, Json(json!({"error": {"message": text}})))
                }
                "preempt" => (StatusCode::OK, Json(json!({"power_off_at": "2026-01-01T00:00:10Z"}))),
                _ => (StatusCode::OK, Json(json!({"cut": 0}))),
            }
        };
        let router = Router::new().route("/emulator/v1/nodes/{node}/{action}", post(act));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (Cloud::new(&url).unwrap(), calls)
    }

    fn timeline() -> Timeline {
        Timeline::new(Printer::new(false, anstream::ColorChoice::Never), std::time::Instant::now(), 1)
    }

    fn resource() -> ResourceView {
        ResourceView {
            generation: 3,
            name: "rk-abc123-demo-g3".into(),
            kind: "node".into(),
            zone: "us-central1-a".into(),
            accelerator: "v5litepod-16".into(),
            capacity: CapacityKind::Spot,
            slices: 1,
            workers: 4,
            chips: 16,
            state: "ready".into(),
            created_at: Timestamp::UNIX_EPOCH,
            ready_at: None,
            notice_deadline: None,
            usd_per_hour: 0.0,
        }
    }

    #[tokio::test]
    async fn where_connections_cannot_be_cut_a_worker_stands_still_for_longer_than_the_others_wait() {
        let (cloud, calls) = emulator(true).await;
        assert!(break_transport(&resource(), 7, &cloud, &timeline()).await.unwrap());
        let calls = calls.lock().unwrap().clone();
        let want = [
            ("cut-connections".to_owned(), json!({"worker": 0})),
            ("freeze".to_owned(), json!({"worker": 1, "for": "140s"})),
        ];
        assert_eq!(calls, want);
    }

    #[tokio::test]
    async fn a_cut_that_met_no_connection_broke_nothing() {
        let (cloud, _) = emulator(false).await;
        assert!(!break_transport(&resource(), 7, &cloud, &timeline()).await.unwrap());
    }

    #[tokio::test]
    async fn the_notice_was_given_as_long_before_the_end_as_it_lasts() {
        let (cloud, _) = emulator(false).await;
        let noticed = preempt(&resource(), 7, &cloud, &timeline()).await.unwrap();
        assert_eq!(noticed.at.to_string(), "2026-01-01T00:00:07Z");
        assert_eq!(noticed.generation, 3);
    }
}
