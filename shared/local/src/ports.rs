//! Hints, events and dead letters over topics and files; clock and random numbers of the machine; the probe.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use rekindle_core::ids::{InstallationId, JobId};
use rekindle_core::job::OutEvent;
use rekindle_ports::world::{Clock, DeadLetters, Events, Hint, Hints, Ids, Probe, WorldError};
use rekindle_telemetry::trace;
use rekindle_wire::event::JobEvent;
use tokio::io::AsyncWriteExt;

use crate::topic::LocalTopic;

/// Hints over a topic in process.
pub struct LocalHints {
    topic: Arc<LocalTopic>,
}

impl LocalHints {
    /// Over a topic whose subscription pushes to `/functions/reconcile`.
    pub fn new(topic: Arc<LocalTopic>) -> Self {
        Self { topic }
    }
}

#[async_trait]
impl Hints for LocalHints {
    async fn publish(&self, hint: &Hint) -> Result<(), WorldError> {
        // What names no trace belongs to the one that this task works for.
        let traceparent = hint.traceparent.clone().or_else(|| trace::current().map(|t| t.traceparent()));
        let hint = Hint { traceparent, ..hint.clone() };
        let data = serde_json::to_vec(&hint);
        let data = data.map_err(|e| WorldError { what: "publish a hint", why: e.to_string() })?;
        // The same attributes as in the cloud.
        let mut attributes = BTreeMap::from([("job".to_owned(), hint.job.to_string())]);
        if let Some(trace) = &hint.traceparent {
            attributes.insert("googclient_traceparent".to_owned(), trace.clone());
        }
        self.topic.publish(data, attributes);
        Ok(())
    }
}

/// Our own events over a topic in process: CloudEvents in binary mode.
pub struct LocalEvents {
    topic: Arc<LocalTopic>,
    installation: InstallationId,
}

impl LocalEvents {
    /// Over a topic, on behalf of this installation.
    pub fn new(topic: Arc<LocalTopic>, installation: InstallationId) -> Self {
        Self { topic, installation }
    }
}

#[async_trait]
impl Events for LocalEvents {
    async fn publish(&self, job: &JobId, event: &OutEvent) -> Result<(), WorldError> {
        let event = JobEvent::new(&self.installation, job, event);
        let data = serde_json::to_vec(&event.data);
        let data = data.map_err(|e| WorldError { what: "publish an event", why: e.to_string() })?;
        self.topic.publish(data, event.attributes());
        Ok(())
    }
}

/// Dead letters, whole, in a file of JSON lines: what the topic is in the cloud. Who sends one has recorded it in the
/// store.
pub struct LocalDeadLetters {
    file: PathBuf,
    writing: tokio::sync::Mutex<()>,
}

impl LocalDeadLetters {
    /// Appends to `file`; its folder must exist.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), writing: tokio::sync::Mutex::default() }
    }

    async fn append(&self, line: String) -> std::io::Result<()> {
        let _one_at_a_time = self.writing.lock().await;
        let mut file = tokio::fs::OpenOptions::new().create(true).append(true).open(&self.file).await?;
        file.write_all(line.as_bytes()).await?;
        file.sync_data().await
    }
}

#[async_trait]
impl DeadLetters for LocalDeadLetters {
    async fn send(&self, source: &str, reason: &str, body: Bytes) -> Result<(), WorldError> {
        let failed = |why: String| WorldError { what: "keep a dead letter", why };
        let at = Timestamp::now();
        let line = serde_json::json!({"source": source, "reason": reason, "at": at, "data": STANDARD.encode(&body)});
        self.append(format!("{line}\n")).await.map_err(|e| failed(e.to_string()))
    }
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that runs `speed` times as fast as the machine's, from its making on. It never steps back.
#[derive(Debug, Clone, Copy)]
pub struct ScaledClock {
    start: Timestamp,
    made: Instant,
    speed: f64,
}

impl ScaledClock {
    /// Shows `start` now: the machine's time, or, after a restart, what it showed last if that is later.
    pub fn new(start: Timestamp, speed: f64) -> Self {
        Self { start, made: Instant::now(), speed }
    }
}

impl Clock for ScaledClock {
    fn now(&self) -> Timestamp {
        let passed = SignedDuration::try_from_secs_f64(self.made.elapsed().as_secs_f64() * self.speed);
        passed.ok().and_then(|passed| self.start.checked_add(passed).ok()).unwrap_or(Timestamp::MAX)
    }
}

/// Random numbers of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RandomIds;

impl Ids for RandomIds {
    fn random(&self) -> u128 {
        rand::random()
    }
}

/// Asks an address for an answer.
pub struct HttpProbe {
    client: reqwest::Client,
    url: String,
}

impl HttpProbe {
    /// A probe of `url`; every 2xx counts.
    pub fn new(url: impl Into<String>) -> Result<Self, WorldError> {
        let client = reqwest::Client::builder().timeout(Duration::from_secs(5)).no_proxy().build();
        let client = client.map_err(|e| WorldError { what: "make a probe", why: e.to_string() })?;
        Ok(Self { client, url: url.into() })
    }
}

#[async_trait]
impl Probe for HttpProbe {
    async fn ping(&self) -> Result<(), WorldError> {
        let answer = self.client.get(&self.url).send().await.and_then(reqwest::Response::error_for_status);
        answer.map(|_| ()).map_err(|e| WorldError { what: "ask api", why: e.to_string() })
    }
}
