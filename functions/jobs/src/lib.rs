//! Function `jobs`: job messages become jobs and commands.
//!
//! **Invariant:** a message is acknowledged only after its effect (or its reason to be unusable) is stored and the hint
//! is published; the
//! same message again changes nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::post;

use rekindle_engine::Engine;
use rekindle_web::{Answer, Caller, Messages, hint};

mod message;

pub use message::Name;

/// The identity that stands in records for everybody who may publish to the topic.
pub const ACTOR: &str = rekindle_core::access::PUBSUB;

/// What the function needs.
#[derive(Clone)]
pub struct Jobs {
    /// The engine.
    pub engine: Engine,
    /// What whoever may publish to the topic may ask for.
    pub may: Arc<BTreeSet<Name>>,
}

/// `POST /functions/jobs`.
pub fn router(jobs: Jobs) -> Router {
    Router::new().route("/functions/jobs", post(handle)).with_state(jobs)
}

async fn handle(State(jobs): State<Jobs>, caller: Caller, Messages(deliveries): Messages) -> Answer {
    let mut answer = Answer::Done;
    for delivery in &deliveries {
        answer = answer
            .and(hint::traced(hint::traceparent(delivery), Box::pin(message::handle(&jobs, &caller, delivery))).await);
    }
    answer
}

#[cfg(test)]
mod tests;
