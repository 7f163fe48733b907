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
fn each_reader_of_a_tree_bounds_its_depth_and_number() {
    let structured = ("content-type", "application/cloudevents+json");
    let batch = ("content-type", "application/cloudevents-batch+json");
    let deep = format!("{}1{}", "[".repeat(40), "]".repeat(40));
    let many = format!("[{}]", vec!["0"; 20_000].join(","));
    for (filling, limit) in [(&deep, "more than 32 objects and lists"), (&many, "more than 10000 fields and items")] {
        let event = format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"t","data":{filling}}}"#);
        let entry = format!(r#"{{"logName":"l","protoPayload":{{"response":{filling}}}}}"#);
        let odd_push = format!(r#"{{"message":{{"data":{filling}}}}}"#);
        for (header, body) in
            [(structured, event.clone()), (batch, format!("[{event}]")), (JSON, entry.clone()), (JSON, odd_push)]
        {
            let told = one(&[header], &body).unwrap_err().to_string();
            assert!(told.contains(limit), "{}: {told}", header.1);
        }
        // Read into its fields alone, the same entry costs nothing.
        let delivery = one(&[("x-goog-pubsub-message-id", "1")], &entry).unwrap();
        assert_eq!(crate::audit::subject(&delivery), Ok(None));
        let odd = one(&[("x-goog-pubsub-message-id", "1")], &entry.replace("protoPayload", "other")).unwrap();
        let told = crate::audit::subject(&odd).unwrap_err();
        assert!(told.contains(limit), "{told}");
    }
}

#[test]
fn a_message_has_at_most_as_many_attributes_as_pubsub_takes() {
    let push = |count: usize| {
        let attributes: BTreeMap<String, &str> = (0..count).map(|n| (n.to_string(), "x")).collect();
        serde_json::json!({"message": {"messageId": "1", "attributes": attributes}}).to_string()
    };
    assert_eq!(one(&[JSON], &push(100)).unwrap().attributes.len(), 100);
    let told = one(&[JSON], &push(101)).unwrap_err().to_string();
    assert!(told.contains("more than 100 attributes"), "{told}");
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
