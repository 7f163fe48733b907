//! Hints, events and dead letters through Cloud Pub/Sub. Owns the topic names; `admin` makes topics and subscriptions
//! for a local emulator (in the cloud Terraform does).
//!
//! **Invariant:** a publish returns only when the service has the message. Nothing is left to a background task,
//! which would lose its processor once the request is answered.

use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use google_cloud_pubsub::client::{BasePublisher, Publisher};
use google_cloud_pubsub::model::Message;

use rekindle_core::ids::{InstallationId, JobId};
use rekindle_core::job::OutEvent;
use rekindle_ports::world::{DeadLetters, Events, Hint, Hints, WorldError};
use rekindle_telemetry::trace;
use rekindle_wire::event::JobEvent;

use crate::auth::{ConnectError, Service};

pub mod admin;
#[cfg(test)]
mod tests;

const WHAT: &str = "Cloud Pub/Sub";

/// Topic of job messages: people publish here.
pub const TOPIC_JOBS: &str = "rekindle-jobs";
/// Topic of hints, pushed to `reconcile`.
pub const TOPIC_HINTS: &str = "rekindle-hints";
/// Topic of our own events: people subscribe here.
pub const TOPIC_EVENTS: &str = "rekindle-events";
/// Topic of messages that cannot be used.
pub const TOPIC_DEAD_LETTER: &str = "rekindle-dead-letter";

/// Largest body of a dead letter, in bytes: the service takes 10 MB with the attributes.
const BODY_MAX: usize = 9_000_000;

/// Largest attribute value that the service takes, in bytes.
const ATTRIBUTE_MAX: usize = 1024;

/// Pub/Sub in one project. Clones share the connection.
#[derive(Debug, Clone)]
pub struct PubSub {
    base: BasePublisher,
    project: String,
    timeout: Duration,
}

impl PubSub {
    /// Makes the client. Nothing is called yet.
    pub fn connect<'a>(project: &'a str, service: &'a Service) -> BoxFuture<'a, Result<Self, ConnectError>> {
        Box::pin(async move {
            let mut builder = BasePublisher::builder().with_credentials(service.access.credentials(WHAT)?);
            if let Some(endpoint) = &service.endpoint {
                builder = builder.with_endpoint(endpoint);
            }
            let base = builder.build().await.map_err(|error| ConnectError::new(WHAT, error))?;
            Ok(Self { base, project: project.to_owned(), timeout: service.timeout })
        })
    }

    /// Publishes hints to [`TOPIC_HINTS`].
    pub fn hints(&self) -> PubSubHints {
        PubSubHints(self.topic(TOPIC_HINTS))
    }

    /// Publishes events of this installation's jobs to [`TOPIC_EVENTS`].
    pub fn events(&self, installation: InstallationId) -> PubSubEvents {
        PubSubEvents { topic: self.topic(TOPIC_EVENTS), installation }
    }

    /// Forwards unusable messages to [`TOPIC_DEAD_LETTER`].
    pub fn dead_letters(&self) -> PubSubDeadLetters {
        PubSubDeadLetters(self.topic(TOPIC_DEAD_LETTER))
    }

    fn topic(&self, topic: &str) -> Topic {
        let name = format!("projects/{}/topics/{topic}", self.project);
        // One message is one request: waiting for more costs each publish 10 ms, and we publish one at a time.
        let publisher = self.base.publisher(name).set_message_count_threshold(1).build();
        Topic { publisher, timeout: self.timeout }
    }
}

/// One topic to publish to.
#[derive(Debug, Clone)]
struct Topic {
    publisher: Publisher,
    timeout: Duration,
}

impl Topic {
    /// The client tries again by itself within the time; a message that gets there twice is one too many at most.
    async fn publish(
        &self,
        what: &'static str,
        data: impl Into<Bytes>,
        attributes: BTreeMap<String, String>,
    ) -> Result<(), WorldError> {
        let message = Message::new().set_data(data).set_attributes(attributes);
        match tokio::time::timeout(self.timeout, self.publisher.publish(message)).await {
            Ok(Ok(_id)) => Ok(()),
            Ok(Err(error)) => Err(WorldError { what, why: error.to_string() }),
            Err(_) => Err(WorldError { what, why: format!("no answer within {:?}", self.timeout) }),
        }
    }
}

/// [`Hints`] over Pub/Sub: the hint as JSON; attribute `job`, and `googclient_traceparent` when there is a trace.
#[derive(Debug, Clone)]
pub struct PubSubHints(Topic);

#[async_trait]
impl Hints for PubSubHints {
    async fn publish(&self, hint: &Hint) -> Result<(), WorldError> {
        const WHAT: &str = "publish a hint";
        let mut attributes = BTreeMap::from([("job".to_owned(), hint.job.to_string())]);
        // What names no trace belongs to the one that this task works for: the tick's own, or a person's request.
        let traceparent = hint.traceparent.clone().or_else(|| trace::current().map(|t| t.traceparent()));
        if let Some(trace) = &traceparent {
            attributes.insert("googclient_traceparent".to_owned(), cut(trace, ATTRIBUTE_MAX).to_owned());
        }
        let hint = Hint { traceparent, ..hint.clone() };
        self.0.publish(WHAT, json(WHAT, &hint)?, attributes).await
    }
}

/// [`Events`] over Pub/Sub: CloudEvents in binary mode, the attributes as Pub/Sub attributes.
#[derive(Debug, Clone)]
pub struct PubSubEvents {
    topic: Topic,
    installation: InstallationId,
}

#[async_trait]
impl Events for PubSubEvents {
    async fn publish(&self, job: &JobId, event: &OutEvent) -> Result<(), WorldError> {
        const WHAT: &str = "publish an event";
        let event = JobEvent::new(&self.installation, job, event);
        self.topic.publish(WHAT, json(WHAT, &event.data)?, event.attributes()).await
    }
}

/// [`DeadLetters`] over Pub/Sub: the body as it came; attributes `source`, `reason`, and `truncated` when it was too
/// long.
#[derive(Debug, Clone)]
pub struct PubSubDeadLetters(Topic);

#[async_trait]
impl DeadLetters for PubSubDeadLetters {
    async fn send(&self, source: &str, reason: &str, body: Bytes) -> Result<(), WorldError> {
        let mut attributes = BTreeMap::from([
            ("source".to_owned(), cut(source, ATTRIBUTE_MAX).to_owned()),
            ("reason".to_owned(), cut(reason, ATTRIBUTE_MAX).to_owned()),
        ]);
        if body.len() > BODY_MAX {
            attributes.insert("truncated".to_owned(), format!("from {} bytes", body.len()));
        }
        let kept = body.slice(..body.len().min(BODY_MAX));
        self.0.publish("send a dead letter", kept, attributes).await
    }
}

fn json(what: &'static str, value: &impl serde::Serialize) -> Result<Bytes, WorldError> {
    let text = serde_json::to_vec(value).map_err(|error| WorldError { what, why: error.to_string() })?;
    Ok(text.into())
}

/// The longest beginning of at most `max` bytes that ends with a whole character.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
