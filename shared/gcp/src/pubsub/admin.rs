//! Topics and push subscriptions for a Pub/Sub emulator, as Terraform makes them in the cloud.

use std::time::Duration;

use futures::future::BoxFuture;
use google_cloud_gax::error::Error;
use google_cloud_gax::error::rpc::Code;
use google_cloud_pubsub::client::{SubscriptionAdmin, TopicAdmin};
use google_cloud_pubsub::model::{DeadLetterPolicy, ExpirationPolicy, PushConfig, RetryPolicy, Subscription};

use rekindle_ports::world::WorldError;

use super::{TOPIC_DEAD_LETTER, TOPIC_EVENTS, TOPIC_HINTS, TOPIC_JOBS, WHAT};
use crate::auth::{ConnectError, Service};

/// How long a function has to answer a push. Longer than any handler's own deadline, so that none is called twice at
/// once.
const ACK_DEADLINE_SECS: i32 = 60;

/// Shortest wait before a message comes again; of one only, the push back-off of the service holds all of them.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_mins(1);

/// Most attempts that the service allows.
const ATTEMPTS_MAX: i32 = 100;

struct Push {
    topic: &'static str,
    subscription: &'static str,
    path: &'static str,
    /// After so many the message goes to the dead-letter topic.
    attempts: i32,
}

const PUSHES: &[Push] = &[
    // A person's command: given up last.
    Push { topic: TOPIC_JOBS, subscription: "rekindle-jobs-push", path: "/functions/jobs", attempts: ATTEMPTS_MAX },
    // The tick repairs a lost hint.
    Push { topic: TOPIC_HINTS, subscription: "rekindle-hints-push", path: "/functions/reconcile", attempts: 10 },
    Push {
        topic: TOPIC_EVENTS,
        subscription: "rekindle-events-push",
        path: "/functions/notify",
        attempts: ATTEMPTS_MAX,
    },
];

/// Subscription of the dead-letter topic, to be pulled; a topic without one loses what it gets.
pub const SUBSCRIPTION_DEAD_LETTER: &str = "rekindle-dead-letter-pull";

/// Makes what is missing of the topics, their push subscriptions to `{base}/functions/…` and the dead-letter
/// subscription; existing push subscriptions are pointed to `base`. May be called again and again.
///
/// `base` is the address of our server as the emulator sees it, such as `http://127.0.0.1:8080`.
pub fn ensure_topics<'a>(
    project: &'a str,
    service: &'a Service,
    base: &'a str,
) -> BoxFuture<'a, Result<(), EnsureError>> {
    Box::pin(async move {
        let topics = topic_admin(service).await?;
        let subscriptions = subscription_admin(service).await?;
        for topic in [TOPIC_JOBS, TOPIC_HINTS, TOPIC_EVENTS, TOPIC_DEAD_LETTER] {
            let made = topics.create_topic().set_name(topic_name(project, topic)).send();
            unless_exists("make a topic", within(service, made).await)?;
        }
        for push in PUSHES {
            let endpoint = format!("{}{}", base.trim_end_matches('/'), push.path);
            let name = subscription_name(project, push.subscription);
            let config = PushConfig::new().set_push_endpoint(endpoint);
            let made = subscriptions.create_subscription().with_request(subscription(project, push, &config)).send();
            if unless_exists("make a push subscription", within(service, made).await)? == Made::Already {
                let moved = subscriptions.modify_push_config().set_subscription(name).set_push_config(config).send();
                within(service, moved)
                    .await
                    .map_err(|why| WorldError { what: "move a push subscription", why: text(&why) })?;
            }
        }
        let made = subscriptions
            .create_subscription()
            .set_name(subscription_name(project, SUBSCRIPTION_DEAD_LETTER))
            .set_topic(topic_name(project, TOPIC_DEAD_LETTER))
            .set_expiration_policy(ExpirationPolicy::new())
            .send();
        unless_exists("make the dead-letter subscription", within(service, made).await)?;
        Ok(())
    })
}

/// Why [`ensure_topics`] failed.
#[derive(Debug, thiserror::Error)]
pub enum EnsureError {
    /// No client could be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A call failed.
    #[error("{0}")]
    Call(#[from] WorldError),
}

async fn topic_admin(service: &Service) -> Result<TopicAdmin, ConnectError> {
    let mut builder = TopicAdmin::builder().with_credentials(service.access.credentials(WHAT)?);
    if let Some(endpoint) = &service.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    builder.build().await.map_err(|error| ConnectError::new(WHAT, error))
}

async fn subscription_admin(service: &Service) -> Result<SubscriptionAdmin, ConnectError> {
    let mut builder = SubscriptionAdmin::builder().with_credentials(service.access.credentials(WHAT)?);
    if let Some(endpoint) = &service.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    builder.build().await.map_err(|error| ConnectError::new(WHAT, error))
}

fn subscription(project: &str, push: &Push, config: &PushConfig) -> Subscription {
    let dead_letter = DeadLetterPolicy::new()
        .set_dead_letter_topic(topic_name(project, TOPIC_DEAD_LETTER))
        .set_max_delivery_attempts(push.attempts);
    let retry = RetryPolicy::new().set_minimum_backoff(duration(RETRY_MIN)).set_maximum_backoff(duration(RETRY_MAX));
    Subscription::new()
        .set_name(subscription_name(project, push.subscription))
        .set_topic(topic_name(project, push.topic))
        .set_push_config(config.clone())
        .set_ack_deadline_seconds(ACK_DEADLINE_SECS)
        .set_retry_policy(retry)
        .set_dead_letter_policy(dead_letter)
        // Never: a month without a job must not end in silence.
        .set_expiration_policy(ExpirationPolicy::new())
}

fn duration(duration: Duration) -> google_cloud_wkt::Duration {
    google_cloud_wkt::Duration::clamp(duration.as_secs().try_into().unwrap_or(i64::MAX), 0)
}

fn topic_name(project: &str, topic: &str) -> String {
    format!("projects/{project}/topics/{topic}")
}

fn subscription_name(project: &str, subscription: &str) -> String {
    format!("projects/{project}/subscriptions/{subscription}")
}

#[derive(Debug, PartialEq, Eq)]
enum Made {
    Now,
    Already,
}

async fn within<T>(service: &Service, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(service.timeout, call).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(Error::timeout(elapsed)),
    }
}

fn unless_exists<T>(what: &'static str, answer: Result<T, Error>) -> Result<Made, WorldError> {
    match answer {
        Ok(_) => Ok(Made::Now),
        Err(error) if error.status().is_some_and(|status| status.code == Code::AlreadyExists) => Ok(Made::Already),
        Err(error) => Err(WorldError { what, why: text(&error) }),
    }
}

fn text(error: &Error) -> String {
    error.status().map_or_else(|| error.to_string(), |status| status.message.clone())
}
