//! Function `notify`: our own events go to the webhooks of their job, as structured CloudEvents.
//!
//! **Invariant:** nothing inside is reached: https only, public addresses only (checked when the connection is made),
//! no redirects, no proxy. Each call is signed with the owner's secret (see [`rekindle_wire::webhook`]).
//!
//! What could not be told is told again with the subscription's back-off, and ends with the dead letters. A webhook that
//! took an event is not told it again because another one did not.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use futures::future::join_all;
use jiff::SignedDuration;

use rekindle_core::spec::{JobSpec, Notify as Hook};
use rekindle_ports::Ports;
use rekindle_ports::store::DeadDoc;
use rekindle_web::{Answer, Deliveries, about, dead};
use rekindle_wire::delivery::Delivery;
use rekindle_wire::event::JobEvent;
use rekindle_wire::webhook::Secret;

mod send;
mod shape;
mod told;

pub use send::Sender;
use send::Tries;
use told::Told;

/// An event that could not be told for so long is given up, and kept with the dead letters; in a pause that a webhook asked for, later.
// A webhook that is down brings its event again and again, and each refusal slows the whole subscription.
const GIVE_UP: SignedDuration = SignedDuration::from_mins(10);

/// An event that is tried again for longer than this is shown with its job, until it is told or given up.
// A blip of some seconds is nobody's concern, and a write at each would double what an event costs.
const SHOWN_AFTER: SignedDuration = SignedDuration::from_secs(30);

/// A webhook has so long to answer.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// What the function needs.
#[derive(Clone)]
pub struct Notify {
    /// The outside.
    pub ports: Ports,
    /// Sends to webhooks.
    pub sender: Arc<Sender>,
    /// The installation's secret, of which the owners' secrets are made.
    pub secret: String,
}

/// `POST /functions/notify`.
pub fn router(notify: Notify) -> Router {
    Router::new().route("/functions/notify", post(handle)).with_state(notify)
}

async fn handle(State(notify): State<Notify>, Deliveries(deliveries): Deliveries) -> Answer {
    let mut answer = Answer::Done;
    for delivery in &deliveries {
        answer = answer.and(one(&notify, delivery).await);
    }
    answer
}

async fn one(notify: &Notify, delivery: &Delivery) -> Answer {
    let event = match JobEvent::from_delivery(delivery) {
        Ok(event) => event,
        Err(reason) => return dead::record(&notify.ports, "notify", delivery, &reason).await,
    };
    about::job(&event.data.job);
    let job = match notify.ports.store.job(&event.data.job).await {
        Ok(Some(at)) => at.value,
        Ok(None) => return Answer::NoSuchJob,
        Err(error) => return Answer::Transient(error.to_string()),
    };
    let wanted = |hook: &&Hook| hook.events.is_empty() || hook.events.iter().any(|e| e == event.data.phase.as_str());
    let hooks: Vec<&Hook> = job.spec.notify.iter().filter(wanted).collect();
    let told = match Told::of(notify, &event.id, hooks.len()).await {
        Ok(told) => told,
        Err(error) => return Answer::Transient(error.to_string()),
    };
    tell(notify, delivery, &event, &job.spec, &hooks, told).await
}

/// Tells the webhooks that are not done with the event.
async fn tell(
    notify: &Notify,
    delivery: &Delivery,
    event: &JobEvent,
    spec: &JobSpec,
    hooks: &[&Hook],
    mut told: Told<'_>,
) -> Answer {
    let secret = Secret::of(&notify.secret, &spec.owner);
    let now = notify.ports.clock.now().as_second();
    let due: Vec<&Hook> = hooks.iter().filter(|hook| !told.has(hook)).copied().collect();
    let sent = join_all(due.iter().map(|hook| notify.sender.send(hook, event, &secret, now))).await;
    let mut open = Vec::new();
    let mut tries = Tries { last: GIVE_UP, sure: GIVE_UP };
    for (hook, sent) in due.iter().zip(sent) {
        match sent {
            Ok(()) => told.note(hook, None),
            Err(failure) => {
                let reason = format!("{}: {failure}", name(hook, &spec.notify));
                match failure.tries(event.time) {
                    Some(its) => {
                        tries = tries.and(its);
                        open.push(reason);
                    }
                    None => told.note(hook, Some(reason)),
                }
            }
        }
    }
    let age = notify.ports.clock.now().duration_since(event.time);
    if !open.is_empty() && age <= tries.last {
        told.keep().await;
        let why = open.join("; ");
        if age >= SHOWN_AFTER {
            // Who refused it is over with it, and fails all the same.
            let refused = told.refusals(hooks).map(|reason| format!("{reason} (not tried again)"));
            let reasons: Vec<String> = open.into_iter().chain(refused).collect();
            show(notify, delivery, event, &reasons.join("\n"), tries.sure).await;
        }
        return Answer::Transient(why);
    }
    if age >= SHOWN_AFTER
        && let Err(error) = notify.ports.store.drop_waiting(&event.id).await
    {
        tracing::warn!(event = event.id, %error, "an event that is over is still shown as waiting");
    }
    let reasons: Vec<String> = told.refusals(hooks).chain(open).collect();
    if reasons.is_empty() {
        Answer::Done
    } else {
        dead::record_of(&notify.ports, "notify", Some(&event.data.job), delivery, &reasons.join("\n")).await
    }
}

/// What a webhook is called: its host, and where two of the job have the same one, its place among them.
fn name(hook: &Hook, all: &[Hook]) -> String {
    let host = send::host(&hook.webhook);
    let is_one_of_many = all.iter().filter(|other| send::host(&other.webhook) == host).count() > 1;
    match all.iter().position(|other| other == hook).filter(|_| is_one_of_many) {
        Some(place) => format!("{host} (notify[{place}])"),
        None => host,
    }
}

/// Keeps that an event is tried again, until it is so old at least, for whoever looks at its job. It only adds to what is shown.
async fn show(notify: &Notify, delivery: &Delivery, event: &JobEvent, why: &str, until: SignedDuration) {
    let letter = dead::letter(&notify.ports, "notify", Some(&event.data.job), delivery, why);
    let letter = DeadDoc { tried_until: event.time.checked_add(until).ok(), ..letter };
    if let Err(error) = notify.ports.store.keep_waiting(&event.id, &letter).await {
        tracing::warn!(event = event.id, %error, "that an event waits could not be kept");
    }
}

#[cfg(test)]
mod tests;
