//! Which envelope is taken for which, and what is none.

use http::{HeaderName, HeaderValue};

use super::*;

fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    pairs.iter().map(|(n, v)| (n.parse::<HeaderName>().unwrap(), v.parse::<HeaderValue>().unwrap())).collect()
}

fn one(pairs: &[(&str, &str)], body: &str) -> Result<Delivery, NotAnEnvelope> {
    let mut deliveries = decode(&headers(pairs), body.as_bytes())?;
    assert_eq!(deliveries.len(), 1);
    Ok(deliveries.remove(0))
}

const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn cloud_tasks_and_scheduler_are_known_by_their_headers() {
    let task = [
        JSON,
        ("x-cloudtasks-queuename", "wake"),
        ("x-cloudtasks-taskname", "abc-3"),
        ("x-cloudtasks-taskretrycount", "2"),
        ("x-cloudtasks-tasketa", "1795000000.25"),
    ];
    let delivery = one(&task, r#"{"job":"j"}"#).unwrap();
    assert_eq!((delivery.via, delivery.id.as_deref()), (Via::Tasks, Some("wake/abc-3")));
    assert_eq!((delivery.attempt, delivery.data), (Some(3), Ok(br#"{"job":"j"}"#.to_vec())));
    assert_eq!(delivery.published_at.map(Timestamp::as_microsecond), Some(1_795_000_000_250_000));

    let run = [
        ("x-cloudscheduler", "true"),
        ("x-cloudscheduler-jobname", "tick"),
        ("x-cloudscheduler-scheduletime", "2026-10-05T01:41:00-07:00"),
    ];
    let delivery = one(&run, "").unwrap();
    assert_eq!((delivery.via, delivery.id.as_deref()), (Via::Scheduler, Some("tick 2026-10-05T01:41:00-07:00")));
    assert_eq!(delivery.published_at, Some("2026-10-05T08:41:00Z".parse().unwrap()));
}

#[test]
fn an_unwrapped_message_that_carries_ce_headers_is_still_pubsub() {
    let delivery =
        one(&[("x-goog-pubsub-message-id", "7"), ("ce-id", "x"), ("content-type", "text/plain")], "hi").unwrap();
    assert_eq!((delivery.via, delivery.id.as_deref()), (Via::PubSubUnwrapped, Some("7")));
    assert_eq!(delivery.attributes.get("ce-id").map(String::as_str), Some("x"));
}

#[test]
fn a_bare_log_entry_is_known_by_its_fields() {
    let delivery = one(&[JSON], r#"{"logName":"l","protoPayload":{}}"#).unwrap();
    assert_eq!((delivery.via, delivery.id), (Via::LogEntry, None));
}

#[test]
fn a_wrapped_push_without_content_type_is_read_and_other_bytes_are_bare() {
    assert_eq!(one(&[], r#"{"message":{"messageId":"1"}}"#).unwrap().via, Via::PubSub);
    for content_type in ["application/octet-stream", "application/x-www-form-urlencoded"] {
        let delivery = one(&[("content-type", content_type)], "{\"run\":\"x\"}").unwrap();
        assert_eq!((delivery.via, delivery.id), (Via::Bare, None));
    }
}

#[test]
fn what_is_no_envelope() {
    let deep = format!(r#"{{"message":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    for body in
        ["", "{}", "[]", "null", "\"x\"", "{\"foo\":1}", "{", "{\"message\":1}", "{\"message\":{\"data\":1}}", &deep]
    {
        let result = one(&[JSON], body);
        assert!(matches!(result, Err(NotAnEnvelope::Malformed(_))), "{}", &body[..body.len().min(40)]);
    }
    assert!(matches!(
        decode(&headers(&[JSON]), b"{\"message\":{\"data\":\"\xff\"}}"),
        Err(NotAnEnvelope::Malformed(_))
    ));
    assert!(matches!(decode(&headers(&[]), b""), Err(NotAnEnvelope::Malformed(_))));
    for content_type in ["text/plain", "text/html; charset=utf-8", "image/png", "application/cloudevents+protobuf"] {
        let result = one(&[("content-type", content_type)], r#"{"message":{}}"#);
        assert!(matches!(result, Err(NotAnEnvelope::ContentType(_))), "{content_type}");
    }
}

#[test]
fn data_that_is_no_base64_leaves_the_envelope_readable() {
    let delivery = one(&[JSON], r#"{"message":{"messageId":"1","data":"!!"}}"#).unwrap();
    assert!(delivery.data.is_err());
    assert_eq!(delivery.id.as_deref(), Some("1"));
}
