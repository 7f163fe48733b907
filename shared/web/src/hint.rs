//! Publishing hints from handlers, and working inside the trace of a message.

use std::future::Future;

use futures::future::Either;
use rekindle_core::ids::JobId;
use rekindle_ports::Ports;
use rekindle_ports::docs::Revision;
use rekindle_ports::world::Hint;
use rekindle_telemetry::trace::{self, TraceContext};
use rekindle_wire::delivery::Delivery;

use crate::answer::Answer;

/// Publishes "look at this job". `after`: commit time of the stored fact that caused it.
pub async fn publish(ports: &Ports, job: &JobId, cause: &str, after: Option<Revision>) -> Answer {
    send(ports, Hint { job: job.clone(), after, news: None, cause: cause.to_owned(), traceparent: None }).await
}

/// Publishes a hint in the trace of this request.
pub async fn send(ports: &Ports, mut hint: Hint) -> Answer {
    hint.traceparent = trace::current().map(|trace| trace.traceparent());
    match ports.hints.publish(&hint).await {
        Ok(()) => Answer::Done,
        Err(error) => Answer::Transient(error.to_string()),
    }
}

/// Works inside the trace that a message carries; without one, in the trace of the request that brought it.
pub fn traced<W: Future>(traceparent: Option<&str>, work: W) -> impl Future<Output = W::Output> + use<W> {
    match traceparent.and_then(TraceContext::parse) {
        Some(parent) => {
            let span = || tracing::info_span!("message", otel.kind = "consumer");
            Either::Left(trace::within(span, Some(parent), work))
        }
        None => Either::Right(work),
    }
}

/// The W3C trace context that a message carries.
// `googclient_traceparent` is what Google's client libraries write.
pub fn traceparent(delivery: &Delivery) -> Option<&str> {
    [trace::TRACEPARENT, "googclient_traceparent"]
        .iter()
        .find_map(|name| delivery.attributes.get(*name))
        .map(String::as_str)
}
