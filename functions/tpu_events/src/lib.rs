//! Function `tpu-events`: audit log entries of TPUs and system events of their VMs become hints.
//!
//! **Invariant:** an event decides nothing. It is reduced to a job, and the pass looks for itself.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use quick_cache::sync::Cache;

use rekindle_core::ids::JobId;
use rekindle_core::names;
use rekindle_engine::Engine;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::InstanceDoc;
use rekindle_web::{Answer, Deliveries, about, dead, hint};
use rekindle_wire::audit::{self, Resource};
use rekindle_wire::delivery::Delivery;

/// VMs whose jobs are remembered: those of a storm over a fleet, each of which has several entries within seconds.
const KNOWN_MAX: usize = 4096;

/// What every request shares.
struct Shared {
    engine: Engine,
    /// Whose a VM is never changes: its name is of Google's making, and no other VM gets it.
    known: Cache<String, JobId>,
}

/// `POST /functions/tpu-events`.
pub fn router(engine: Engine) -> Router {
    let shared = Shared { engine, known: Cache::new(KNOWN_MAX) };
    Router::new().route("/functions/tpu-events", post(handle)).with_state(Arc::new(shared))
}

async fn handle(State(shared): State<Arc<Shared>>, Deliveries(deliveries): Deliveries) -> Answer {
    let mut answer = Answer::Done;
    for delivery in &deliveries {
        answer = answer.and(hint::traced(hint::traceparent(delivery), one(&shared, delivery)).await);
    }
    answer
}

async fn one(Shared { engine, known }: &Shared, delivery: &Delivery) -> Answer {
    let (resource, method) = match audit::subject(delivery) {
        Ok(Some(subject)) => subject,
        Ok(None) => return Answer::NotOurs,
        Err(reason) => return dead::record(&engine.ports, "tpu-events", delivery, &reason).await,
    };
    let job = match &resource {
        Resource::Node { name, .. } | Resource::QueuedResource { name, .. } => match names::parse(name) {
            Some(parsed) if parsed.installation == engine.installation.id => parsed.job,
            _ => return Answer::NotOurs,
        },
        // Worker VMs have names of Google's making; what `hello` stored says whose they are. An unknown one is left to
        // the tick.
        Resource::Instance { name, .. } => match known.get(name.as_str()) {
            Some(job) => job,
            None => match engine.ports.store.read::<InstanceDoc>(&Kind::Instance(name.clone())).await {
                Ok(Some(doc)) => {
                    known.insert(name.clone(), doc.value.job.clone());
                    doc.value.job
                }
                Ok(None) => return Answer::NotOurs,
                Err(error) => return Answer::Transient(error.to_string()),
            },
        },
    };
    about::job(&job);
    let cause = format!("event: {}", method.rsplit('.').next().unwrap_or_default());
    hint::publish(&engine.ports, &job, &cause, None).await
}

#[cfg(test)]
mod tests;
