//! One shape for everything that wakes a function, whichever envelope it came in.

use std::borrow::Cow;
use std::collections::BTreeMap;

use http::header::AsHeaderName;
use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use serde::Deserialize as _;

use crate::pubsub::Push;
use crate::{audit, bounds, cloudevent, pubsub};

/// The way it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// Pub/Sub push, wrapped; also when Eventarc carried it.
    PubSub,
    /// Pub/Sub push, unwrapped.
    PubSubUnwrapped,
    /// A CloudEvent of any mode.
    CloudEvent,
    /// Cloud Scheduler.
    Scheduler,
    /// Cloud Tasks.
    Tasks,
    /// A bare log entry, from an unwrapped Logging sink.
    LogEntry,
    /// A body without any metadata: nothing identifies it.
    Bare,
}

impl Via {
    /// The name, for records and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PubSub => "pubsub",
            Self::PubSubUnwrapped => "pubsub-unwrapped",
            Self::CloudEvent => "cloudevent",
            Self::Scheduler => "scheduler",
            Self::Tasks => "tasks",
            Self::LogEntry => "log-entry",
            Self::Bare => "bare",
        }
    }
}

/// Attributes of a CloudEvent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventAttributes {
    /// `id`.
    pub id: String,
    /// `source`.
    pub source: String,
    /// `type`.
    pub ty: String,
    /// `subject`.
    pub subject: Option<String>,
    /// `time`.
    pub time: Option<Timestamp>,
    /// `datacontenttype`.
    pub datacontenttype: Option<String>,
}

/// What a request brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The way it came.
    pub via: Via,
    /// Names it, the same over redeliveries. `None`: nothing in the request does.
    pub id: Option<String>,
    /// CloudEvents attributes, when it was (or was carried by) a CloudEvent.
    pub event: Option<EventAttributes>,
    /// Pub/Sub attributes, or CloudEvents extensions.
    pub attributes: BTreeMap<String, String>,
    /// The payload; `Err` says why it cannot be had from an envelope that is readable itself.
    pub data: Result<Vec<u8>, String>,
    /// When it was published, by the sender's clock.
    pub published_at: Option<Timestamp>,
    /// Pub/Sub subscription.
    pub subscription: Option<String>,
    /// Delivery attempt, about; only with a dead-letter policy.
    pub attempt: Option<u32>,
}

/// Why a request is no envelope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnEnvelope {
    /// 415: the content type is none that any trigger sends.
    #[error("content type {0:?} is not accepted here")]
    ContentType(String),
    /// 400: it cannot be read.
    #[error("{0}")]
    Malformed(String),
}

/// Reads whatever a trigger may send: Pub/Sub push, CloudEvents, log entries, Cloud Scheduler, Cloud Tasks.
///
/// A batch gives several deliveries, everything else one. Errors: see [`NotAnEnvelope`].
pub fn decode(headers: &HeaderMap, body: &[u8]) -> Result<Vec<Delivery>, NotAnEnvelope> {
    let malformed = NotAnEnvelope::Malformed;
    let content_type = content_type(headers)?;
    let content_type = content_type.as_ref();
    // The longer name first: one is the other's prefix.
    if content_type == "application/cloudevents-batch+json" {
        return cloudevent::batch(body).map_err(malformed);
    }
    if content_type == "application/cloudevents+json" {
        return cloudevent::structured(body).map(|d| vec![d]).map_err(malformed);
    }
    if content_type.starts_with("application/cloudevents") {
        return Err(NotAnEnvelope::ContentType(content_type.to_owned()));
    }
    // Before CloudEvents: attributes of an unwrapped message may look like `ce-*` headers.
    if pubsub::is_unwrapped(headers) {
        return Ok(vec![pubsub::unwrapped(headers, body)]);
    }
    if cloudevent::is_binary(headers) {
        return cloudevent::binary(headers, body).map(|d| vec![d]).map_err(malformed);
    }
    if let Some(delivery) = tasks(headers, body).or_else(|| scheduler(headers, body)) {
        return Ok(vec![delivery]);
    }
    let is_json = content_type == "application/json" || content_type.ends_with("+json");
    let is_raw = matches!(content_type, "" | "application/octet-stream" | "application/x-www-form-urlencoded");
    if !is_json && !is_raw {
        return Err(NotAnEnvelope::ContentType(content_type.to_owned()));
    }
    match json_envelope(body) {
        Ok(delivery) => Ok(vec![delivery]),
        // An unwrapped push without metadata comes with one of these content types, and any bytes.
        Err(_) if is_raw && !body.is_empty() => Ok(vec![bare(Via::Bare, body)]),
        Err(why) => Err(malformed(why)),
    }
}

fn content_type(headers: &HeaderMap) -> Result<Cow<'_, str>, NotAnEnvelope> {
    let Some(value) = headers.get(http::header::CONTENT_TYPE) else { return Ok("".into()) };
    let text = value.to_str().map_err(|_| NotAnEnvelope::ContentType("(not readable)".into()))?;
    let name = text.split(';').next().unwrap_or_default().trim();
    let is_lower = !name.bytes().any(|byte| byte.is_ascii_uppercase());
    Ok(if is_lower { name.into() } else { name.to_ascii_lowercase().into() })
}

fn json_envelope(body: &[u8]) -> Result<Delivery, String> {
    // What nearly all are, without a tree of the whole body in between; anything odd about it is told below.
    if let Ok(push) = serde_json::from_slice::<Push<'_>>(body) {
        return Ok(push.into_delivery());
    }
    let value: serde_json::Value = bounds::from_slice(body).map_err(|e| format!("not JSON: {e}"))?;
    if value.get("message").is_some() {
        let push = Push::deserialize(&value).map_err(|e| format!("not a Pub/Sub push: {e}"))?;
        return Ok(push.into_delivery());
    }
    if audit::is_log_entry(&value) {
        return Ok(bare(Via::LogEntry, body));
    }
    Err("neither a Pub/Sub push (no `message`) nor a CloudEvent (no `ce-*` headers)".into())
}

fn bare(via: Via, body: &[u8]) -> Delivery {
    Delivery {
        via,
        id: None,
        event: None,
        attributes: BTreeMap::new(),
        data: Ok(body.to_vec()),
        published_at: None,
        subscription: None,
        attempt: None,
    }
}

// A name that is known when the program is built is looked up without being read again.
const TASK: HeaderName = HeaderName::from_static("x-cloudtasks-taskname");
const SCHEDULER: HeaderName = HeaderName::from_static("x-cloudscheduler");

fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    headers.get(name).and_then(|v| v.to_str().ok()).filter(|v| !v.is_empty()).map(str::to_owned)
}

/// Cloud Tasks: queue and task name identify the task over its retries.
fn tasks(headers: &HeaderMap, body: &[u8]) -> Option<Delivery> {
    let task = text(headers, TASK)?;
    let queue = text(headers, "x-cloudtasks-queuename").unwrap_or_default();
    // Seconds since 1970 with a fraction.
    let eta: Option<f64> = text(headers, "x-cloudtasks-tasketa").and_then(|t| t.parse().ok());
    Some(Delivery {
        id: Some(format!("{queue}/{task}")),
        published_at: eta.and_then(|s| Timestamp::from_microsecond((s * 1e6) as i64).ok()),
        attempt: text(headers, "x-cloudtasks-taskretrycount").and_then(|t| t.parse().ok()).map(|n: u32| n + 1),
        ..bare(Via::Tasks, body)
    })
}

/// Cloud Scheduler: job name and schedule time identify the run over its retries.
fn scheduler(headers: &HeaderMap, body: &[u8]) -> Option<Delivery> {
    text(headers, SCHEDULER)?;
    let job = text(headers, "x-cloudscheduler-jobname");
    let time = text(headers, "x-cloudscheduler-scheduletime");
    Some(Delivery {
        id: job.as_ref().zip(time.as_ref()).map(|(job, time)| format!("{job} {time}")),
        published_at: time.and_then(|t| t.parse().ok()),
        ..bare(Via::Scheduler, body)
    })
}

#[cfg(test)]
mod tests;
