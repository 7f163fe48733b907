//! The small ports: hints, wake-ups, events, dead letters, objects, clock, random numbers, probe.

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_core::ids::JobId;
use rekindle_core::job::OutEvent;
use rekindle_core::news::News;

use crate::docs::Revision;

/// A failed call to one of these ports. It may or may not have taken effect.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{what}: {why}")]
pub struct WorldError {
    /// What was tried, such as `publish a hint`.
    pub what: &'static str,
    /// Why it failed.
    pub why: String,
}

/// "Look at job X". Carries no decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// The job.
    pub job: JobId,
    /// Commit time of the stored fact that caused it. A pass that has already read past it has nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Revision>,
    /// What of the cloud's log caused it. Where the job knows that, a pass has nothing to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub news: Option<News>,
    /// What caused it, for the history.
    pub cause: String,
    /// W3C trace context, carried from message to pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Sends hints, at least once, in any order.
#[async_trait]
pub trait Hints: Send + Sync {
    /// Publishes; returns once the message is safe.
    async fn publish(&self, hint: &Hint) -> Result<(), WorldError>;
}

/// Wakes a job at a time; may come late, twice or never (the tick repairs).
#[async_trait]
pub trait Wakeups: Send + Sync {
    /// Schedules a pass of the job. `key` names the wake-up: the same key again changes nothing.
    async fn schedule(&self, job: &JobId, at: Timestamp, key: &str) -> Result<(), WorldError>;
}

/// Publishes our own events.
#[async_trait]
pub trait Events: Send + Sync {
    /// Publishes one event of a job; returns once it is safe.
    async fn publish(&self, job: &JobId, event: &OutEvent) -> Result<(), WorldError>;
}

/// Keeps messages that cannot be used.
#[async_trait]
pub trait DeadLetters: Send + Sync {
    /// Forwards the message with its reason; returns once it is safe.
    async fn send(&self, source: &str, reason: &str, body: Bytes) -> Result<(), WorldError>;
}

/// Longest name of an object, in bytes, in every store. Cloud Storage itself takes 1024.
pub const OBJECT_NAME_MAX: usize = 1000;

/// Objects by name: `bundles/…`, `agent/…`, `jobs/<id>/logs/…`.
#[async_trait]
pub trait Objects: Send + Sync {
    /// Writes an object whole.
    async fn put(&self, name: &str, body: Bytes) -> Result<(), WorldError>;
    /// Reads an object from `from` (bytes), at most `len`. `Ok(None)`: no such object.
    async fn get(&self, name: &str, from: u64, len: u64) -> Result<Option<Bytes>, WorldError>;
    /// Size of an object. `Ok(None)`: no such object.
    async fn size(&self, name: &str) -> Result<Option<u64>, WorldError>;
    /// Names with a prefix, in order, after `after`, at most `limit`.
    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<String>, WorldError>;
    /// An address to which a client without our rights may upload the object for a while.
    async fn upload_address(&self, name: &str) -> Result<String, WorldError>;

    /// Longest part of a name between two slashes, in bytes.
    fn part_max(&self) -> usize {
        OBJECT_NAME_MAX
    }

    /// Why a name is too long for an object here, as words behind that of which it is the name. What is not can be written and read.
    fn too_long(&self, name: &str) -> Option<String> {
        let (bytes, part_max) = (name.len(), self.part_max());
        if bytes > OBJECT_NAME_MAX {
            return Some(format!("is stored under a name of {bytes} bytes, {OBJECT_NAME_MAX} at most"));
        }
        let part = name.split('/').map(str::len).find(|part| *part > part_max)?;
        Some(format!("is stored under a name with a part of {part} bytes, {part_max} at most"))
    }
}

/// The time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// Random numbers.
pub trait Ids: Send + Sync {
    /// 128 random bits.
    fn random(&self) -> u128;
}

/// Tells workers that their orders have changed. Nothing rests on it: it only saves them the wait until their next call.
#[async_trait]
pub trait Bells: Send + Sync {
    /// Rings the workers at these addresses. Never waits for them.
    async fn ring(&self, addresses: &[String]);

    /// Lets the workers at these addresses know that they can be rung: only who has heard this relies on it.
    async fn greet(&self, addresses: &[String]);
}

/// No bells: workers ask often enough by themselves.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoBells;

#[async_trait]
impl Bells for NoBells {
    async fn ring(&self, _: &[String]) {}

    async fn greet(&self, _: &[String]) {}
}

/// Asks `api` whether agents' calls are answered.
#[async_trait]
pub trait Probe: Send + Sync {
    /// `Ok` when `api` answered.
    async fn ping(&self) -> Result<(), WorldError>;
}
