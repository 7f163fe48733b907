//! CloudEvents over HTTP: binary, structured and batched mode, by the HTTP protocol binding 1.0.
//!
//! The types and the JSON format are the SDK's. Reading the headers is ours: the SDK does not undo their
//! percent-encoding, and takes
//! an event without an id.

use cloudevents::event::{AttributesReader, Data, Event};
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode;
use serde_json::{Map, Value};

use crate::bounds;
use crate::delivery::{Delivery, EventAttributes, Via};
use crate::pubsub::Push;

/// Type of the events by which Eventarc carries Pub/Sub messages.
pub const PUBSUB_TYPE: &str = "google.cloud.pubsub.topic.v1.messagePublished";

/// True when the headers are those of binary mode.
// Any of the required attributes is enough: an event that lacks another one is a bad event, not some other envelope.
pub fn is_binary(headers: &HeaderMap) -> bool {
    const ANY: [HeaderName; 4] = [
        HeaderName::from_static("ce-specversion"),
        HeaderName::from_static("ce-id"),
        HeaderName::from_static("ce-type"),
        HeaderName::from_static("ce-source"),
    ];
    ANY.iter().any(|name| headers.contains_key(name))
}

/// A binary-mode event: attributes in `ce-*` headers, data in the body.
pub fn binary(headers: &HeaderMap, body: &[u8]) -> Result<Delivery, String> {
    let mut map = Map::new();
    for (name, value) in headers {
        let Some(attribute) = name.as_str().strip_prefix("ce-") else { continue };
        if attribute == "datacontenttype" {
            return Err("ce-datacontenttype must not be sent: Content-Type says it".into());
        }
        if map.insert(attribute.to_owned(), Value::String(header_text(value.as_bytes(), attribute)?)).is_some() {
            return Err(format!("ce-{attribute} was sent twice"));
        }
    }
    if let Some(content_type) = headers.get(http::header::CONTENT_TYPE) {
        let text = content_type.to_str().map_err(|_| "Content-Type is not readable".to_owned())?;
        map.insert("datacontenttype".into(), Value::String(text.to_owned()));
    }
    let event: Event = serde_json::from_value(Value::Object(map)).map_err(|e| format!("not a CloudEvent: {e}"))?;
    delivery(&event, Ok(body.to_vec()))
}

/// One event in JSON format.
pub fn structured(body: &[u8]) -> Result<Delivery, String> {
    let event: Event = bounds::from_slice(body).map_err(|e| format!("not a CloudEvent: {e}"))?;
    let data = data_of(&event);
    delivery(&event, data)
}

/// A batch of events in JSON format. One bad event refuses the batch, since an answer speaks of all of it.
pub fn batch(body: &[u8]) -> Result<Vec<Delivery>, String> {
    let events: Vec<Event> = bounds::from_slice(body).map_err(|e| format!("not a batch of CloudEvents: {e}"))?;
    events.iter().map(|event| delivery(event, data_of(event))).collect()
}

/// Undoes quoting and one round of percent-encoding; refuses what is no UTF-8 then.
fn header_text(raw: &[u8], attribute: &str) -> Result<String, String> {
    let unquoted;
    let inner = match raw {
        [b'"', inner @ .., b'"'] => {
            unquoted = unescape(inner);
            unquoted.as_slice()
        }
        _ => raw,
    };
    let text = percent_decode(inner).decode_utf8().map_err(|_| format!("ce-{attribute} is not UTF-8"))?;
    Ok(text.into_owned())
}

/// `\x` is `x` in a quoted string (RFC 7230, section 3.2.6).
fn unescape(inner: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => out.extend(bytes.next()),
            other => out.push(*other),
        }
    }
    out
}

fn data_of(event: &Event) -> Result<Vec<u8>, String> {
    match event.data() {
        None => Ok(Vec::new()),
        Some(Data::Binary(bytes)) => Ok(bytes.clone()),
        Some(Data::String(text)) => Ok(text.clone().into_bytes()),
        Some(Data::Json(value)) => serde_json::to_vec(value).map_err(|e| e.to_string()),
    }
}

fn delivery(event: &Event, data: Result<Vec<u8>, String>) -> Result<Delivery, String> {
    for (name, value) in [("id", event.id()), ("source", event.source().as_str()), ("type", event.ty())] {
        if value.is_empty() {
            return Err(format!("not a CloudEvent: {name} is empty"));
        }
    }
    let attributes = EventAttributes {
        id: event.id().to_owned(),
        source: event.source().clone(),
        ty: event.ty().to_owned(),
        subject: event.subject().map(str::to_owned),
        // The SDK's time is chrono's; its RFC 3339 form is read again.
        time: event.time().and_then(|t| t.to_rfc3339().parse().ok()),
        datacontenttype: event.datacontenttype().map(str::to_owned),
    };
    if attributes.ty == PUBSUB_TYPE {
        let bytes = data.map_err(|e| format!("not a Pub/Sub message: {e}"))?;
        let push: Push<'_> = serde_json::from_slice(&bytes).map_err(|e| format!("not a Pub/Sub message: {e}"))?;
        let mut inner = push.into_delivery();
        inner.id = inner.id.or_else(|| Some(attributes.id.clone()));
        inner.event = Some(attributes);
        return Ok(inner);
    }
    Ok(Delivery {
        via: Via::CloudEvent,
        // Source and id together name an event.
        id: Some(format!("{} {}", attributes.source, attributes.id)),
        attributes: event.iter_extensions().map(|(name, value)| (name.to_owned(), value.to_string())).collect(),
        data,
        published_at: attributes.time,
        event: Some(attributes),
        subscription: None,
        attempt: None,
    })
}

#[cfg(test)]
mod tests;
