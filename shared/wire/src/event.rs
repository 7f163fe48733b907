//! Our own events: binary mode as Pub/Sub attributes, structured mode for webhooks.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_core::ids::{InstallationId, JobId};
use rekindle_core::job::{OutEvent, Phase};

use crate::delivery::Delivery;

/// The data of an event of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Data {
    /// The job.
    pub job: JobId,
    /// The phase that was entered, in snake_case.
    pub phase: Phase,
    /// The reason, in snake_case.
    pub reason: String,
    /// The same in one sentence.
    pub message: String,
    /// Attempt at that moment; 0: none yet.
    pub attempt: u32,
    /// Generation at that moment; 0: none yet.
    pub generation: u32,
    /// Increasing in the job.
    pub sequence: u64,
}

/// An event of a job as a CloudEvent: JSON format of version 1.0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobEvent {
    /// `1.0`.
    pub specversion: String,
    /// `<job>-<sequence>`; with the source, unique.
    pub id: String,
    /// `/rekindle/<installation>`.
    pub source: String,
    /// `dev.rekindle.job.<phase>.v1`.
    #[serde(rename = "type")]
    pub ty: String,
    /// The job id.
    pub subject: String,
    /// When.
    pub time: Timestamp,
    /// The sequence as text of 20 digits, so that it sorts as text too.
    pub sequence: String,
    /// `application/json`.
    pub datacontenttype: String,
    /// The data.
    pub data: Data,
}

impl JobEvent {
    /// The CloudEvent of a job's event.
    pub fn new(installation: &InstallationId, job: &JobId, event: &OutEvent) -> Self {
        Self {
            specversion: "1.0".into(),
            id: format!("{job}-{}", event.sequence),
            source: format!("/rekindle/{installation}"),
            ty: type_of(event.phase),
            subject: job.to_string(),
            time: event.at,
            sequence: format!("{:020}", event.sequence),
            datacontenttype: "application/json".into(),
            data: Data {
                job: job.clone(),
                phase: event.phase,
                reason: event.reason.name().to_owned(),
                message: event.message.clone(),
                attempt: event.attempt,
                generation: event.generation,
                sequence: event.sequence,
            },
        }
    }

    /// Binary mode: the attributes of the Pub/Sub message. Its payload is [`Self::data`] as JSON.
    pub fn attributes(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("ce-specversion", self.specversion.clone()),
            ("ce-id", self.id.clone()),
            ("ce-source", self.source.clone()),
            ("ce-type", self.ty.clone()),
            ("ce-subject", self.subject.clone()),
            ("ce-time", self.time.to_string()),
            ("ce-sequence", self.sequence.clone()),
            ("content-type", self.datacontenttype.clone()),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Reads an event of ours from a delivery: binary mode in Pub/Sub attributes, or a CloudEvent.
    pub fn from_delivery(delivery: &Delivery) -> Result<Self, String> {
        let data = delivery.data.as_ref().map_err(Clone::clone)?;
        let data: Data = serde_json::from_slice(data).map_err(|e| format!("not an event of a job: {e}"))?;
        let known = |name: &str| delivery.attributes.get(name).cloned();
        let (id, source, ty, time, sequence) = match &delivery.event {
            Some(e) if e.ty != crate::cloudevent::PUBSUB_TYPE => {
                (Some(e.id.clone()), Some(e.source.clone()), Some(e.ty.clone()), e.time, known("sequence"))
            }
            _ => (
                known("ce-id"),
                known("ce-source"),
                known("ce-type"),
                known("ce-time").and_then(|t| t.parse().ok()),
                known("ce-sequence"),
            ),
        };
        let missing = |name: &str| format!("the event has no {name}");
        let ty = ty.ok_or_else(|| missing("type"))?;
        if ty != type_of(data.phase) {
            return Err(format!("type {ty:?} does not fit phase {:?}", data.phase.as_str()));
        }
        Ok(Self {
            specversion: "1.0".into(),
            id: id.ok_or_else(|| missing("id"))?,
            source: source.ok_or_else(|| missing("source"))?,
            ty,
            subject: data.job.to_string(),
            time: time.ok_or_else(|| missing("time"))?,
            sequence: sequence.unwrap_or_else(|| format!("{:020}", data.sequence)),
            datacontenttype: "application/json".into(),
            data,
        })
    }
}

fn type_of(phase: Phase) -> String {
    format!("dev.rekindle.job.{}.v1", phase.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::Via;
    use rekindle_core::reason::Reason;

    fn event() -> JobEvent {
        let out = OutEvent {
            sequence: 7,
            at: "2026-01-01T00:00:00Z".parse().unwrap(),
            phase: Phase::Running,
            reason: Reason::Running,
            message: "runs".into(),
            attempt: 2,
            generation: 1,
        };
        JobEvent::new(&InstallationId::parse("abc123").unwrap(), &JobId::parse("j").unwrap(), &out)
    }

    #[test]
    fn binary_mode_in_attributes_is_read_back() {
        let event = event();
        let delivery = Delivery {
            via: Via::PubSub,
            id: Some("1".into()),
            event: None,
            attributes: event.attributes(),
            data: serde_json::to_vec(&event.data).map_err(|e| e.to_string()),
            published_at: None,
            subscription: None,
            attempt: None,
        };
        assert_eq!(JobEvent::from_delivery(&delivery).unwrap(), event);
    }

    #[test]
    fn structured_mode_is_a_cloudevent_and_is_read_back() {
        let event = event();
        let delivery = crate::cloudevent::structured(&serde_json::to_vec(&event).unwrap()).unwrap();
        assert_eq!(delivery.event.as_ref().unwrap().ty, "dev.rekindle.job.running.v1");
        assert_eq!(JobEvent::from_delivery(&delivery).unwrap(), event);
    }
}
