//! A topic in process, with push subscriptions over real HTTP.
//!
//! Deliveries look as Pub/Sub's: wrapped, both spellings of the ids, standard base64. At least once within the life of
//! the process; what a crash loses the tick repairs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use rekindle_ports::world::{DeadLetters, WorldError};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use serde_json::json;

use crate::post::{BACKOFF_MAX, BACKOFF_MIN, Hand, Request, Sender, pause};

/// A push subscription.
#[derive(Clone)]
pub struct Subscription {
    /// Its short name.
    pub name: String,
    /// Where it pushes: `http://127.0.0.1:8080/functions/jobs`.
    pub endpoint: String,
    /// A push without an answer for so long is sent again.
    pub ack_deadline: Duration,
    /// Pushes at a time.
    pub concurrency: usize,
    /// Pause before the second try; doubled for each further one.
    pub backoff_min: Duration,
    /// Longest pause between tries.
    pub backoff_max: Duration,
    /// After so many tries the message goes to the dead letters; pushes then carry `deliveryAttempt`.
    pub dead_letter: Option<(u32, Arc<dyn DeadLetters>)>,
}

impl Subscription {
    /// With the platform's figures: 60 s to answer, 100 ms to 60 s between tries, 16 at a time, no dead letters.
    pub fn new(name: impl Into<String>, endpoint: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            endpoint: endpoint.into(),
            ack_deadline: Duration::from_mins(1),
            concurrency: 16,
            backoff_min: BACKOFF_MIN,
            backoff_max: BACKOFF_MAX,
            dead_letter: None,
        }
    }
}

/// A topic in process. Dropping it ends its deliveries.
pub struct LocalTopic {
    project: String,
    name: String,
    subscriptions: Vec<(Arc<Subscription>, Sender)>,
}

/// A message as it is pushed.
struct Message {
    id: String,
    published: String,
    data: Bytes,
    attributes: BTreeMap<String, String>,
}

impl LocalTopic {
    /// A topic with these subscriptions; without any, messages go nowhere. Needs a tokio runtime at each publish.
    pub fn new(
        project: impl Into<String>,
        name: impl Into<String>,
        subscriptions: Vec<Subscription>,
    ) -> Result<Self, WorldError> {
        let subscriptions = subscriptions
            .into_iter()
            .map(|s| Ok((Sender::new(s.concurrency, s.ack_deadline)?, Arc::new(s))))
            .map(|made| made.map(|(sender, subscription)| (subscription, sender)))
            .collect::<Result<_, reqwest::Error>>()
            .map_err(|e| WorldError { what: "make a topic", why: e.to_string() })?;
        Ok(Self { project: project.into(), name: name.into(), subscriptions })
    }

    /// Publishes, and answers the message id. Each subscription begins to push at once.
    pub fn publish(&self, data: impl Into<Bytes>, attributes: BTreeMap<String, String>) -> String {
        let message = Arc::new(Message {
            // Random, since commands are remembered by message id: an id must not come again after a restart.
            id: (rand::random::<u64>() >> 1).to_string(),
            published: Timestamp::now().to_string(),
            data: data.into(),
            attributes,
        });
        for (subscription, sender) in &self.subscriptions {
            let delivery = Delivery {
                project: self.project.clone(),
                topic: self.name.clone(),
                subscription: Arc::clone(subscription),
                message: Arc::clone(&message),
            };
            sender.spawn(delivery.run(sender.hand()));
        }
        message.id.clone()
    }

    /// Messages that some subscription has not taken yet.
    pub fn pending(&self) -> usize {
        self.subscriptions.iter().map(|(_, sender)| sender.pending()).sum()
    }

    /// Waits until everything is delivered, at most `grace`; answers how many deliveries were given up.
    pub async fn close(&self, grace: Duration) -> usize {
        let deadline = tokio::time::Instant::now() + grace;
        let mut left = 0;
        for (_, sender) in &self.subscriptions {
            left += sender.close(deadline.saturating_duration_since(tokio::time::Instant::now())).await;
        }
        left
    }
}

/// One message on its way to one subscription.
struct Delivery {
    project: String,
    topic: String,
    subscription: Arc<Subscription>,
    message: Arc<Message>,
}

impl Delivery {
    async fn run(self, hand: Hand) {
        let mut attempt = 1;
        loop {
            let Err(why) = hand.once(&self.request(attempt)).await else { return };
            tracing::debug!(topic = self.topic, message = self.message.id, attempt, why, "a push was not taken");
            if let Some((most, letters)) = &self.subscription.dead_letter
                && attempt >= *most
            {
                let reason = format!("not taken in {attempt} tries: {why}");
                match letters.send(&self.topic, &reason, self.message.data.clone()).await {
                    Ok(()) => return,
                    // Kept, and tried again: a message is never lost because its grave is closed.
                    Err(error) => tracing::warn!(%error, message = self.message.id, "a dead letter was not kept"),
                }
            }
            attempt = attempt.saturating_add(1);
            tokio::time::sleep(pause(attempt, self.subscription.backoff_min, self.subscription.backoff_max)).await;
        }
    }

    fn request(&self, attempt: u32) -> Request {
        let m = &self.message;
        let mut message = json!({
            "data": STANDARD.encode(&m.data),
            "messageId": m.id,
            "message_id": m.id,
            "publishTime": m.published,
            "publish_time": m.published,
        });
        if !m.attributes.is_empty() {
            message["attributes"] = json!(m.attributes);
        }
        let subscription = format!("projects/{}/subscriptions/{}", self.project, self.subscription.name);
        let mut body = json!({"message": message, "subscription": subscription});
        if self.subscription.dead_letter.is_some() {
            body["deliveryAttempt"] = json!(attempt);
        }
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (USER_AGENT, HeaderValue::from_static("CloudPubSub-Google")),
        ]);
        Request { url: self.subscription.endpoint.clone(), headers, body: body.to_string().into_bytes() }
    }
}
