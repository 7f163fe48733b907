//! Function `tpu-events`: audit log entries of TPUs and system events of their VMs become hints.
//!
//! **Invariant:** an event decides nothing. It is reduced to a job and what is told of it, and the pass looks for itself, unless the job knows that
//! already.
//!
//! Of a long-running call its end is news; whoever began it knows, or the tick tells. What comes by the sink and by Eventarc is hinted at once.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use quick_cache::sync::Cache;

use rekindle_core::ids::JobId;
use rekindle_core::names;
use rekindle_core::news::{News, NewsKind};
use rekindle_engine::Engine;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::InstanceDoc;
use rekindle_ports::world::Hint;
use rekindle_web::{Answer, Deliveries, about, dead, hint};
use rekindle_wire::audit::{self, Resource, Subject};
use rekindle_wire::delivery::Delivery;

/// VMs whose jobs are remembered: those of a storm over a fleet, each of which has several entries within seconds.
const KNOWN_MAX: usize = 4096;

/// Entries that are remembered: both ways bring one within seconds.
const HINTED_MAX: usize = 4096;

/// What every request shares.
struct Shared {
    engine: Engine,
    /// Digests of what hints were published for, so that no length of an id counts. It saves passes and nothing hangs on it: another instance
    /// hints again, and a hint that is not published is the tick's.
    hinted: Cache<u64, ()>,
    digests: RandomState,
    /// The job and the generation of a VM, which never change: its name is of Google's making, and no other VM gets it.
    known: Cache<String, (JobId, u32)>,
}

/// `POST /functions/tpu-events`.
pub fn router(engine: Engine) -> Router {
    let (hinted, known) = (Cache::new(HINTED_MAX), Cache::new(KNOWN_MAX));
    let shared = Shared { engine, hinted, digests: RandomState::new(), known };
    Router::new().route("/functions/tpu-events", post(handle)).with_state(Arc::new(shared))
}

async fn handle(State(shared): State<Arc<Shared>>, Deliveries(deliveries): Deliveries) -> Answer {
    let mut answer = Answer::Done;
    for delivery in &deliveries {
        answer = answer.and(hint::traced(hint::traceparent(delivery), one(&shared, delivery)).await);
    }
    answer
}

async fn one(Shared { engine, hinted, digests, known }: &Shared, delivery: &Delivery) -> Answer {
    let Subject { resource, method, fact, is_begin } = match audit::subject(delivery) {
        Ok(Some(subject)) => subject,
        Ok(None) => return Answer::NotOurs,
        Err(reason) => return Box::pin(dead::record(&engine.ports, "tpu-events", delivery, &reason)).await,
    };
    // System events of one VM may share an operation: that its maintenance is announced is not that it was preempted.
    let what = method.rsplit('.').next().unwrap_or_default();
    let digest = fact.map(|fact| digests.hash_one((&resource, what, fact)));
    if is_begin {
        return Answer::Done;
    }
    if digest.is_some_and(|digest| hinted.get(&digest).is_some()) {
        return Answer::Superseded;
    }
    let (job, news) = match &resource {
        Resource::Node { name, .. } | Resource::QueuedResource { name, .. } => match names::parse(name) {
            Some(parsed) if parsed.installation == engine.installation.id => {
                let kind = if method.contains(".Create") { NewsKind::Made } else { NewsKind::Other };
                (parsed.job, News { generation: parsed.generation, kind })
            }
            _ => return Answer::NotOurs,
        },
        // Worker VMs have names of Google's making; what `hello` stored says whose they are. An unknown one is left to
        // the tick.
        Resource::Instance { name, .. } => {
            let of = |(job, generation)| (job, News { generation, kind: NewsKind::Machine });
            match known.get(name.as_str()) {
                Some(found) => of(found),
                None => match engine.ports.store.read::<InstanceDoc>(&Kind::Instance(name.clone())).await {
                    Ok(Some(doc)) => {
                        let found = (doc.value.job, doc.value.generation);
                        known.insert(name.clone(), found.clone());
                        of(found)
                    }
                    Ok(None) => return Answer::NotOurs,
                    Err(error) => return Answer::Transient(error.to_string()),
                },
            }
        }
    };
    about::job(&job);
    let cause = format!("event: {what}");
    let answer = hint::send(&engine.ports, Hint { job, after: None, news: Some(news), cause, traceparent: None }).await;
    // One that failed comes again, and must be heard then.
    if let (Some(digest), Answer::Done) = (digest, &answer) {
        hinted.insert(digest, ());
    }
    answer
}

#[cfg(test)]
mod tests;
