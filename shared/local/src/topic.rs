//! A topic in process, with push subscriptions over real HTTP.
//!
//! Deliveries look as Pub/Sub's: wrapped, both spellings of the ids, standard base64. At least once: of a topic that keeps
//! its messages ([`LocalTopic::kept_in`]) also over a crash of the process; what another loses the tick repairs.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use rekindle_ports::world::{DeadLetters, WorldError};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use serde::{Deserialize, Serialize};
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
    /// Where messages are kept until they are taken.
    folder: Option<PathBuf>,
}

/// A message as it is pushed, and kept.
#[derive(Debug, Serialize, Deserialize)]
struct Message {
    id: String,
    published: Timestamp,
    data: String,
    attributes: BTreeMap<String, String>,
}

/// A message that some subscription has not taken yet.
struct Open {
    message: Message,
    /// Subscriptions that have not taken it.
    left: AtomicUsize,
    /// Where it is kept.
    file: Option<PathBuf>,
}

impl Open {
    /// A subscription has taken it.
    fn taken(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some(file) = &self.file
            && let Err(error) = std::fs::remove_file(file)
        {
            tracing::warn!(%error, message = self.message.id, "a message that was taken stays, and will come again");
        }
    }
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
        Ok(Self { project: project.into(), name: name.into(), subscriptions, folder: None })
    }

    /// Keeps messages in this folder until each subscription has taken them, and begins to push those that an earlier process
    /// left there. Needs a tokio runtime.
    ///
    /// # Errors
    /// If the folder cannot be made or read.
    pub fn kept_in(mut self, folder: impl Into<PathBuf>) -> Result<Self, WorldError> {
        let folder = folder.into();
        let left = std::fs::create_dir_all(&folder).and_then(|()| messages(&folder));
        let left = left.map_err(|e| WorldError { what: "read the kept messages", why: e.to_string() })?;
        for (file, message) in left {
            self.push(message, Some(file));
        }
        self.folder = Some(folder);
        Ok(self)
    }

    /// Publishes, and answers the message id. Each subscription begins to push at once.
    pub fn publish(&self, data: impl Into<Bytes>, attributes: BTreeMap<String, String>) -> String {
        let message = Message {
            // Random, since commands are remembered by message id: an id must not come again after a restart.
            id: (rand::random::<u64>() >> 1).to_string(),
            published: Timestamp::now(),
            data: STANDARD.encode(data.into()),
            attributes,
        };
        let id = message.id.clone();
        let file = self.folder.as_ref().map(|folder| folder.join(format!("{id}.json")));
        let file = file.filter(|file| match keep(file, &message) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, message = id, "a message cannot be kept: a crash would lose it");
                false
            }
        });
        self.push(message, file);
        id
    }

    /// Pushes a message to each subscription.
    fn push(&self, message: Message, file: Option<PathBuf>) {
        let open = Arc::new(Open { message, left: AtomicUsize::new(self.subscriptions.len()), file });
        for (subscription, sender) in &self.subscriptions {
            let delivery = Delivery {
                project: self.project.clone(),
                topic: self.name.clone(),
                subscription: Arc::clone(subscription),
                open: Arc::clone(&open),
            };
            sender.spawn(delivery.run(sender.hand()));
        }
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

/// What a message that is being written down has for an extension.
const UNFINISHED: &str = "new";

/// Writes a message down: whole under its name, or not there.
fn keep(file: &Path, message: &Message) -> std::io::Result<()> {
    let unfinished = file.with_extension(UNFINISHED);
    let mut written = std::fs::File::create(&unfinished)?;
    written.write_all(&serde_json::to_vec(message)?)?;
    written.sync_data()?;
    std::fs::rename(unfinished, file)
}

/// What is kept in a folder, in the order of publishing. Halves that a process left which was killed are removed; what else is
/// no message stays where it is.
fn messages(folder: &Path) -> std::io::Result<Vec<(PathBuf, Message)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == UNFINISHED) {
            if let Err(error) = std::fs::remove_file(&file) {
                tracing::warn!(%error, file = %file.display(), "half a message stays");
            }
            continue;
        }
        if file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        match std::fs::read(&file).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?)) {
            Ok(message) => found.push((file, message)),
            Err(error) => tracing::warn!(%error, file = %file.display(), "what is kept here is no message"),
        }
    }
    found.sort_by_key(|(_, message): &(PathBuf, Message)| message.published);
    Ok(found)
}

/// One message on its way to one subscription.
struct Delivery {
    project: String,
    topic: String,
    subscription: Arc<Subscription>,
    open: Arc<Open>,
}

impl Delivery {
    async fn run(self, hand: Hand) {
        let mut attempt = 1;
        loop {
            let Err(why) = hand.once(&self.request(attempt)).await else { return self.open.taken() };
            let message = &self.open.message;
            tracing::debug!(topic = self.topic, message = message.id, attempt, why, "a push was not taken");
            if let Some((most, letters)) = &self.subscription.dead_letter
                && attempt >= *most
            {
                let reason = format!("not taken in {attempt} tries: {why}");
                let data = STANDARD.decode(&message.data).unwrap_or_default();
                match letters.send(&self.topic, &reason, data.into()).await {
                    Ok(()) => return self.open.taken(),
                    // Kept, and tried again: a message is never lost because its grave is closed.
                    Err(error) => tracing::warn!(%error, message = message.id, "a dead letter was not kept"),
                }
            }
            attempt = attempt.saturating_add(1);
            tokio::time::sleep(pause(attempt, self.subscription.backoff_min, self.subscription.backoff_max)).await;
        }
    }

    fn request(&self, attempt: u32) -> Request {
        let m = &self.open.message;
        let mut message = json!({
            "data": m.data,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_message_of_a_process_that_was_killed_is_removed_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        for name in ["12.new", "torn.json", "of-somebody.txt"] {
            std::fs::write(file(name), "{").unwrap();
        }
        LocalTopic::new("local", "rekindle-events", Vec::new()).unwrap().kept_in(folder.path()).unwrap();
        assert!(!file("12.new").exists() && file("torn.json").exists() && file("of-somebody.txt").exists());
    }
}
