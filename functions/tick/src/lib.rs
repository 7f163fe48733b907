//! Function `tick`: each minute the liveness record, the create permits, the jobs that are due, the orphan sweep.

use axum::Router;
use axum::extract::State;
use axum::routing::post;

use rekindle_engine::{Engine, PassError};
use rekindle_web::{Answer, Raw};

/// `POST /functions/tick`. The body is not looked at: Cloud Scheduler sends none by default.
pub fn router(engine: Engine) -> Router {
    Router::new().route("/functions/tick", post(handle)).with_state(engine)
}

async fn handle(State(engine): State<Engine>, Raw(_): Raw) -> Answer {
    let now = engine.ports.clock.now();
    match Box::pin(engine.tick(now)).await {
        Ok(report) => {
            tracing::debug!(report = ?report, "what the tick did");
            Answer::Done
        }
        Err(PassError::Transient(why)) => Answer::Transient(why),
        Err(PassError::Invariant(why)) => Answer::Invariant(why),
    }
}

#[cfg(test)]
mod tests;
