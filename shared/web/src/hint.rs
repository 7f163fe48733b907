//! Publishing hints from handlers.

use rekindle_core::ids::JobId;
use rekindle_ports::Ports;
use rekindle_ports::docs::Revision;
use rekindle_ports::world::Hint;
use rekindle_wire::delivery::Delivery;

use crate::answer::Answer;

/// Publishes "look at this job". `after`: commit time of the stored fact that caused it.
pub async fn publish(
    ports: &Ports,
    job: &JobId,
    cause: &str,
    after: Option<Revision>,
    traceparent: Option<String>,
) -> Answer {
    let hint = Hint { job: job.clone(), after, cause: cause.to_owned(), traceparent };
    match ports.hints.publish(&hint).await {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Transient(error.to_string()),
    }
}

/// The W3C trace context that a message carries.
// `googclient_traceparent` is what Google's client libraries write.
pub fn traceparent(delivery: &Delivery) -> Option<String> {
    ["traceparent", "googclient_traceparent"].iter().find_map(|name| delivery.attributes.get(*name)).cloned()
}
