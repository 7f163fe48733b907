//! Function `reconcile`: a hint or a wake-up becomes one pass of its job. The only function that may touch TPUs.

use axum::Router;
use axum::extract::State;
use axum::routing::post;

use rekindle_core::ids::JobId;
use rekindle_engine::{Engine, PassError, PassOutcome};
use rekindle_ports::world::Hint;
use rekindle_web::hint::traced;
use rekindle_web::{Answer, Deliveries, about, dead};
use rekindle_wire::delivery::Delivery;

/// `POST /functions/reconcile`.
pub fn router(engine: Engine) -> Router {
    Router::new().route("/functions/reconcile", post(handle)).with_state(engine)
}

async fn handle(State(engine): State<Engine>, Deliveries(deliveries): Deliveries) -> Answer {
    let mut answer = Answer::Done;
    for delivery in &deliveries {
        answer = answer.and(one(&engine, delivery).await);
    }
    answer
}

async fn one(engine: &Engine, delivery: &Delivery) -> Answer {
    let hint = match decode(delivery) {
        Ok(hint) => hint,
        Err(reason) => return dead::record(&engine.ports, "reconcile", delivery, &reason).await,
    };
    about::job(&hint.job);
    tracing::debug!(job = %hint.job, cause = hint.cause, delivery = delivery.id.as_deref().unwrap_or_default(), "pass");
    // A pass is a large future: every await of load, observe, decide and act is in it.
    let pass = Box::pin(engine.pass_for(&hint));
    let outcome = traced(hint.traceparent.as_deref(), pass).await;
    answer(&hint.job, outcome)
}

fn answer(job: &JobId, outcome: Result<PassOutcome, PassError>) -> Answer {
    match outcome {
        Ok(PassOutcome::Done | PassOutcome::NothingToDo) => Answer::Done,
        Ok(PassOutcome::Superseded) => Answer::Superseded,
        Ok(PassOutcome::NoSuchJob) => Answer::NoSuchJob,
        Err(PassError::Transient(why)) => Answer::Transient(why),
        Err(PassError::Invariant(why)) => Answer::Invariant(format!("job {job}: {why}")),
    }
}

fn decode(delivery: &Delivery) -> Result<Hint, String> {
    let data = delivery.data.as_ref().map_err(Clone::clone)?;
    serde_json::from_slice(data).map_err(|e| format!("not a hint: {e}"))
}

#[cfg(test)]
mod tests;
