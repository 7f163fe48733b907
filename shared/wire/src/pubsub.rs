//! Pub/Sub push, wrapped (`{"message": …}`) and unwrapped (`x-goog-pubsub-*` headers).

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::{HeaderMap, HeaderName};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use crate::bounds::ATTRIBUTES_MAX;
use crate::delivery::{Delivery, Via};
use crate::text::Text;

/// The body of a wrapped push. Both spellings of the ids arrive together, so each is a field of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Push<'a> {
    /// The message.
    #[serde(borrow)]
    pub message: Message<'a>,
    /// Full name of the subscription.
    #[serde(default, borrow)]
    pub subscription: Option<Text<'a>>,
    /// How often it was delivered, about; only with a dead-letter policy.
    #[serde(default, rename = "deliveryAttempt")]
    pub delivery_attempt: Option<u32>,
}

/// The message of a wrapped push. Unknown fields (`@type`, new ones) are allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Message<'a> {
    /// Base64 of the payload; absent or empty when the message has attributes only.
    #[serde(default, borrow)]
    pub data: Option<Text<'a>>,
    /// Attributes; absent when there are none. At most [`ATTRIBUTES_MAX`].
    #[serde(default, deserialize_with = "attributes")]
    pub attributes: Option<BTreeMap<String, String>>,
    /// Id, unique in the topic; the same over redeliveries.
    #[serde(default, borrow, rename = "messageId")]
    pub message_id_camel: Option<Text<'a>>,
    /// The same.
    #[serde(default, borrow, rename = "message_id")]
    pub message_id_snake: Option<Text<'a>>,
    /// When it was published, RFC 3339.
    #[serde(default, borrow, rename = "publishTime")]
    pub publish_time_camel: Option<Text<'a>>,
    /// The same.
    #[serde(default, borrow, rename = "publish_time")]
    pub publish_time_snake: Option<Text<'a>>,
    /// Ordering key, when it was published with one.
    #[serde(default, borrow, rename = "orderingKey")]
    pub ordering_key: Option<Text<'a>>,
}

type Attributes = Option<BTreeMap<String, String>>;

// Read one by one, so that a body of nothing but attributes costs no memory.
fn attributes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Attributes, D::Error> {
    deserializer.deserialize_option(AttributesReader)
}

struct AttributesReader;

impl<'de> Visitor<'de> for AttributesReader {
    type Value = Attributes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_none<E: Error>(self) -> Result<Attributes, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Attributes, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Attributes, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Attributes, A::Error> {
        let mut all = BTreeMap::new();
        while let Some((name, value)) = fields.next_entry()? {
            if all.len() == ATTRIBUTES_MAX {
                return Err(A::Error::custom(format!("more than {ATTRIBUTES_MAX} attributes")));
            }
            all.insert(name, value);
        }
        Ok(Some(all))
    }
}

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const ENGINE: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);

/// Decodes base64 of either alphabet, with or without padding.
// The push documentation shows the standard alphabet, the Gmail guide calls the same field base64url.
pub fn decode_base64(text: &str) -> Result<Vec<u8>, String> {
    ENGINE.decode(text).or_else(|_| {
        let standard: Vec<u8> = text
            .bytes()
            .map(|b| match b {
                b'-' => b'+',
                b'_' => b'/',
                other => other,
            })
            .collect();
        ENGINE.decode(standard).map_err(|e| format!("data is not base64: {e}"))
    })
}

impl Push<'_> {
    /// The message as a delivery. Data that is no base64 makes the payload unusable, not the envelope.
    pub fn into_delivery(self) -> Delivery {
        fn filled(text: Option<Text<'_>>) -> Option<Text<'_>> {
            text.filter(|text| !text.is_empty())
        }
        let message = self.message;
        let published = filled(message.publish_time_camel).or_else(|| filled(message.publish_time_snake));
        Delivery {
            via: Via::PubSub,
            id: filled(message.message_id_camel).or_else(|| filled(message.message_id_snake)).map(Text::into_owned),
            event: None,
            attributes: message.attributes.unwrap_or_default(),
            data: decode_base64(message.data.as_deref().unwrap_or_default()),
            published_at: published.and_then(|t| t.parse().ok()),
            subscription: self.subscription.map(Text::into_owned),
            attempt: self.delivery_attempt,
        }
    }
}

/// Headers that come from HTTP and its proxies, so are no attributes of an unwrapped message.
const TRANSPORT: [&str; 16] = [
    "accept",
    "accept-encoding",
    "authorization",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "forwarded",
    "from",
    "host",
    "te",
    "transfer-encoding",
    "user-agent",
    "via",
    "x-cloud-trace-context",
    "x-serverless-authorization",
];

const MESSAGE_ID: HeaderName = HeaderName::from_static("x-goog-pubsub-message-id");
const SUBSCRIPTION: HeaderName = HeaderName::from_static("x-goog-pubsub-subscription-name");

/// True when the headers carry the metadata of an unwrapped push.
pub fn is_unwrapped(headers: &HeaderMap) -> bool {
    headers.contains_key(MESSAGE_ID) || headers.contains_key(SUBSCRIPTION)
}

/// An unwrapped push: metadata in `x-goog-pubsub-*`, each attribute as a plain header, the body as it was published.
///
/// Header names are compared without case, so attributes come in lower case.
pub fn unwrapped(headers: &HeaderMap, body: &[u8]) -> Delivery {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let attributes = headers
        .iter()
        .filter(|(name, _)| {
            let name = name.as_str();
            !TRANSPORT.contains(&name) && !name.starts_with("x-goog-") && !name.starts_with("x-forwarded-")
        })
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned())))
        .collect();
    Delivery {
        via: Via::PubSubUnwrapped,
        id: text("x-goog-pubsub-message-id"),
        event: None,
        attributes,
        data: Ok(body.to_vec()),
        published_at: text("x-goog-pubsub-publish-time").and_then(|t| t.parse().ok()),
        subscription: text("x-goog-pubsub-subscription-name"),
        attempt: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_both_alphabets_with_or_without_padding() {
        for (text, want) in [
            ("//77IGhlbGxvPz4=", &b"\xff\xfe\xfb hello?>"[..]),
            ("__77IGhlbGxvPz4", b"\xff\xfe\xfb hello?>"),
            ("__77IGhlbGxvPz4=", b"\xff\xfe\xfb hello?>"),
            ("eyJhIjoxfQ==", b"{\"a\":1}"),
            ("eyJhIjoxfQ", b"{\"a\":1}"),
            ("", b""),
        ] {
            assert_eq!(decode_base64(text).as_deref(), Ok(want), "{text}");
        }
        for bad in ["e", "a b", "\u{e9}\u{e9}"] {
            assert!(decode_base64(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn either_spelling_alone_is_enough() {
        for (body, id, published) in [
            (r#"{"message":{"messageId":"1","publishTime":"2026-01-01T00:00:00Z"}}"#, Some("1"), true),
            (r#"{"message":{"message_id":"2","publish_time":"2026-01-01T00:00:00Z"}}"#, Some("2"), true),
            (r#"{"message":{"messageId":"","message_id":"3","publishTime":"never"}}"#, Some("3"), false),
            (r#"{"message":{"data":null,"attributes":null}}"#, None, false),
        ] {
            let push: Push = serde_json::from_str(body).unwrap();
            let delivery = push.into_delivery();
            assert_eq!(delivery.id.as_deref(), id, "{body}");
            assert_eq!(delivery.published_at.is_some(), published, "{body}");
            assert_eq!(delivery.data, Ok(Vec::new()), "{body}");
        }
    }
}
