//! In which form an entry of the cloud's log reaches `tpu-events`: a push of a Logging sink's topic, or what Eventarc makes of it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use rekindle_wire::audit::AUDIT_TYPE;

use crate::roll::{For, Rolls};
use crate::world::stamp;

/// The form of one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A push of the topic of a Logging sink.
    Push,
    /// A CloudEvent in binary mode.
    Binary,
    /// A CloudEvent in binary mode with an empty body.
    Empty,
    /// A CloudEvent in JSON.
    Structured,
    /// A CloudEvent in JSON whose entry lacks its audit record.
    Bare,
}

impl Form {
    /// One of them: half come by the sink.
    pub(crate) fn draw(rolls: &Rolls) -> Self {
        match rolls.index(For::Form, 12) {
            0..6 => Self::Push,
            6..8 => Self::Binary,
            8 => Self::Empty,
            9..11 => Self::Structured,
            _ => Self::Bare,
        }
    }
}

/// A request: its headers, and its body.
pub(crate) struct Envelope {
    /// Headers.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Body.
    pub(crate) body: Vec<u8>,
}

impl Envelope {
    /// A JSON body.
    pub(crate) fn json(body: &Value) -> Self {
        let body = serde_json::to_vec(body).unwrap_or_default();
        Self { headers: vec![("content-type", "application/json".into())], body }
    }
}

/// A Pub/Sub push envelope.
pub(crate) fn push(id: &str, data: &[u8], attributes: &Value, now: i64) -> Value {
    json!({
        "message": {
            "messageId": id,
            "publishTime": stamp(now).to_string(),
            "attributes": attributes,
            "data": STANDARD.encode(data),
        },
        "subscription": "projects/p/subscriptions/simulated",
    })
}

/// A log entry in its form.
pub(crate) fn entry(form: Form, id: &str, entry: &Value, now: i64) -> Envelope {
    let audit = |field: &str| entry["protoPayload"][field].as_str().unwrap_or_default().to_owned();
    let (service, method, resource) = (audit("serviceName"), audit("methodName"), audit("resourceName"));
    let source = "//cloudaudit.googleapis.com/projects/p/logs/activity";
    let subject = format!("{service}/{resource}");
    match form {
        Form::Push => {
            let data = serde_json::to_vec(entry).unwrap_or_default();
            Envelope::json(&push(id, &data, &json!({}), now))
        }
        Form::Binary | Form::Empty => {
            let mut headers = vec![
                ("ce-specversion", "1.0".into()),
                ("ce-id", id.to_owned()),
                ("ce-type", AUDIT_TYPE.into()),
                ("ce-source", source.into()),
                ("ce-subject", subject),
                ("ce-time", stamp(now).to_string()),
                ("ce-servicename", service),
                ("ce-methodname", method),
                ("ce-resourcename", resource),
            ];
            if form == Form::Empty {
                return Envelope { headers, body: Vec::new() };
            }
            headers.push(("content-type", "application/json; charset=utf-8".into()));
            Envelope { headers, body: serde_json::to_vec(entry).unwrap_or_default() }
        }
        Form::Structured | Form::Bare => {
            let mut data = entry.clone();
            if let Some(fields) = data.as_object_mut().filter(|_| form == Form::Bare) {
                fields.remove("protoPayload");
            }
            let event = json!({
                "specversion": "1.0",
                "id": id,
                "type": AUDIT_TYPE,
                "source": source,
                "subject": subject,
                "time": stamp(now).to_string(),
                "datacontenttype": "application/json",
                "servicename": service,
                "methodname": method,
                "resourcename": resource,
                "data": data,
            });
            let body = serde_json::to_vec(&event).unwrap_or_default();
            Envelope { headers: vec![("content-type", "application/cloudevents+json".into())], body }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use rekindle_wire::{audit, delivery};

    use super::*;

    #[test]
    fn every_form_is_read_as_the_same_subject() {
        let method = "google.cloud.tpu.v2.Tpu.DeleteNode";
        let name = "projects/p/locations/us-west4-a/nodes/rk-simula-job-a-g1";
        let logged = json!({
            "insertId": "e1",
            "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
            "operation": {"id": "op", "last": true},
            "protoPayload": {"serviceName": "tpu.googleapis.com", "methodName": method, "resourceName": name},
        });
        for form in [Form::Push, Form::Binary, Form::Empty, Form::Structured, Form::Bare] {
            let Envelope { headers, body } = entry(form, "event-1", &logged, crate::plan::START_US);
            let pairs = headers.iter().map(|(name, value)| (*name, HeaderValue::from_str(value).unwrap()));
            let headers: HeaderMap = pairs.map(|(name, value)| (name.parse().unwrap(), value)).collect();
            let deliveries = delivery::decode(&headers, &body).unwrap();
            let subject = audit::subject(&deliveries[0]).unwrap().unwrap();
            assert_eq!(subject.method, method, "{form:?}");
            assert_eq!(Some(subject.resource), audit::resource(name), "{form:?}");
            assert_eq!(subject.fact.is_some(), form != Form::Empty, "{form:?}");
        }
    }
}
