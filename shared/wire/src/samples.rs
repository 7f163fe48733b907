//! Every captured and published sample is read, and read as what it is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::audit::{self, Resource, Subject};
use crate::delivery::{Delivery, NotAnEnvelope, Via, decode};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/samples")
}

fn files(under: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root().join(under)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(root()).unwrap().to_path_buf());
            }
        }
    }
    found
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(root().join(path)).unwrap()).unwrap()
}

fn headers<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> HeaderMap {
    pairs
        .into_iter()
        .map(|(n, v)| (n.to_lowercase().parse::<HeaderName>().unwrap(), HeaderValue::from_str(v).unwrap()))
        .collect()
}

fn one(headers: &HeaderMap, body: &[u8]) -> Delivery {
    let mut deliveries = decode(headers, body).unwrap();
    assert_eq!(deliveries.len(), 1);
    deliveries.remove(0)
}

/// The attributes with which Eventarc carries data of a file.
fn eventarc(ty: &str) -> HeaderMap {
    headers([
        ("ce-specversion", "1.0"),
        ("ce-id", "id-1"),
        ("ce-source", "//x.googleapis.com/projects/p"),
        ("ce-type", ty),
        ("content-type", "application/json; charset=utf-8"),
    ])
}

/// A request as the emulator's recorder wrote it.
fn recorded(path: &Path) -> (HeaderMap, Vec<u8>) {
    let file = json(path);
    let pairs: Vec<(String, String)> = serde_json::from_value(file["headers"].clone()).unwrap();
    let headers = headers(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())));
    (headers, file["body"].as_str().unwrap().as_bytes().to_vec())
}

fn check_emulator(path: &Path) {
    let (headers, body) = recorded(path);
    let name = path.file_name().unwrap().to_str().unwrap();
    let delivery = one(&headers, &body);
    match name {
        "unwrapped-no-metadata.json" => {
            assert_eq!((delivery.via, &delivery.id), (Via::Bare, &None));
        }
        "unwrapped-write-metadata.json" => {
            assert_eq!((delivery.via, delivery.id.as_deref()), (Via::PubSubUnwrapped, Some("3")));
            let pairs: Vec<(&str, &str)> = delivery.attributes.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            assert_eq!(pairs, [("a", "1"), ("kind", "tick")]);
            assert!(delivery.published_at.is_some() && delivery.subscription.is_some());
        }
        _ => {
            assert!(name.starts_with("wrapped-"), "{name}");
            assert_eq!(delivery.via, Via::PubSub);
            assert!(delivery.id.is_some() && delivery.published_at.is_some() && delivery.subscription.is_some());
            assert!(!delivery.data.unwrap().is_empty());
        }
    }
}

fn check_google(path: &Path) {
    let text = path.to_str().unwrap();
    let body = std::fs::read(root().join(path)).unwrap();
    if text.contains("/jsonschema/") {
        // Schemas of the data, not data.
        assert!(json(path)["$schema"].is_string() || json(path)["$id"].is_string(), "{text}");
    } else if text.contains("/structured/") {
        let delivery = one(&headers([("content-type", "application/cloudevents+json")]), &body);
        assert!(delivery.event.is_some() && delivery.data.is_ok());
        assert_eq!(delivery.via == Via::PubSub, text.contains("/pubsub/"), "{text}");
    } else if text.contains("/pubsub/") {
        for headers in [eventarc(crate::cloudevent::PUBSUB_TYPE), headers([("content-type", "application/json")])] {
            let delivery = one(&headers, &body);
            assert_eq!((delivery.via, delivery.id.as_deref()), (Via::PubSub, Some("message-id")));
            let data = delivery.data.unwrap();
            assert!(data == b"test message 3" || data == [1, 2, 3, 4], "{data:?}");
        }
    } else if text.contains("/audit/") {
        let delivery = one(&eventarc(audit::AUDIT_TYPE), &body);
        assert_eq!(audit::subject(&delivery), Ok(None), "foreign: {text}");
        assert_eq!(one(&headers([("content-type", "application/json")]), &body).via, Via::LogEntry);
    } else {
        // Other services' data: a CloudEvent like any other when Eventarc brings it, no envelope by itself.
        let delivery = one(&eventarc("google.cloud.other.v1.happened"), &body);
        assert_eq!(delivery.via, Via::CloudEvent);
        assert!(audit::subject(&delivery).is_err());
        let alone = decode(&headers([("content-type", "application/json")]), &body);
        assert!(matches!(alone, Err(NotAnEnvelope::Malformed(_))), "{text}");
    }
}

fn check_scheduler(path: &Path) {
    let file = json(path);
    let pairs = file["headers"].as_object().unwrap();
    let delivery = one(&headers(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str().unwrap()))), b"");
    assert_eq!(delivery.via, Via::Scheduler);
    assert_eq!(delivery.id.as_deref(), Some("firebase-schedule-schedOkV2-us-central1 2026-10-05T01:41:00-07:00"));
}

fn check_synthetic(path: &Path) {
    let text = std::fs::read_to_string(root().join(path)).unwrap();
    let (head, body) = text.split_once("\n\n").unwrap();
    let lines = head.lines().filter(|l| !l.starts_with('#') && !l.starts_with("POST "));
    let delivery = one(&headers(lines.map(|l| l.split_once(": ").unwrap())), body.trim().as_bytes());
    let Subject { resource, method, .. } = audit::subject(&delivery).unwrap().unwrap();
    assert_eq!(resource, Resource::Node { zone: "us-central2-b".into(), name: "job-1".into() });
    assert_eq!(method, "google.cloud.tpu.v2.Tpu.CreateNode");
}

#[test]
fn every_event_sample() {
    let all = files("events");
    assert!(all.len() > 30, "the samples are there");
    for path in &all {
        let folder = path.components().nth(1).unwrap().as_os_str().to_str().unwrap();
        match folder {
            "pubsub-emulator" => check_emulator(path),
            "google-cloudevents" => check_google(path),
            "cloud-scheduler" => check_scheduler(path),
            "synthetic" => check_synthetic(path),
            // Read by the conformance test of `cloudevent`.
            "cloudevents-conformance" => assert!(path.extension().is_some_and(|e| e == "feature")),
            // Requests that gcloud sends to Google's APIs, not to us.
            "gcloud-captured" => assert!(json(path)["path"].is_string()),
            other => panic!("nothing reads tests/samples/events/{other}"),
        }
    }
}

const AUDIT: [&str; 13] = [
    "audit-create_node-first",
    "audit-create_node-last-ok",
    "audit-create_node-last-stockout",
    "audit-create_node-rejected-quota",
    "audit-create_queued_resource-last",
    "audit-delete_node-first",
    "audit-delete_node-last",
    "audit-stop_node-last",
    "audit-system_event-host_error",
    "audit-system_event-preempted-worker0",
    "audit-system_event-upcoming_maintenance",
    "eventarc-delivery-delete_node",
    "logsink-pubsub-push-preempted",
];

#[test]
fn every_audit_sample() {
    let zone = "us-central2-b".to_owned();
    let node = Resource::Node { zone: zone.clone(), name: "job-7f3a-a1".into() };
    let queued = Resource::QueuedResource { zone: zone.clone(), name: "qr-7f3a".into() };
    let worker = |i: u32| Resource::Instance { zone: zone.clone(), name: format!("t1v-n-9472280f-w-{i}") };
    for name in AUDIT {
        let file = json(Path::new(&format!("tpu/{name}.json")));
        let want = match name {
            n if n.contains("queued") => queued.clone(),
            n if n.contains("host_error") => worker(1),
            n if n.contains("system_event") || n.contains("preempted") => worker(0),
            _ => node.clone(),
        };
        let deliveries = match file.get("body") {
            None => {
                let body = serde_json::to_vec(&file).unwrap();
                vec![
                    one(&eventarc(audit::AUDIT_TYPE), &body),
                    one(&headers([("content-type", "application/json")]), &body),
                ]
            }
            Some(body) => {
                let empty = serde_json::Map::new();
                let pairs = file.get("headers").and_then(Value::as_object).unwrap_or(&empty);
                let mut headers = headers(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str().unwrap())));
                headers.insert("content-type", HeaderValue::from_static("application/json"));
                vec![one(&headers, &serde_json::to_vec(body).unwrap())]
            }
        };
        for delivery in deliveries {
            let subject = audit::subject(&delivery).unwrap().unwrap();
            assert_eq!(subject.resource, want, "{name}");
            assert!(!subject.method.is_empty() && subject.fact.is_some(), "{name}");
            assert_eq!(subject.is_begin, name.ends_with("-first"), "{name}");
        }
    }
}

#[test]
fn an_audit_event_without_a_body_is_known_by_its_attributes() {
    let file = json(Path::new("tpu/eventarc-delivery-delete_node.json"));
    let pairs = file["headers"].as_object().unwrap();
    let headers = headers(pairs.iter().map(|(n, v)| (n.as_str(), v.as_str().unwrap())));
    let subject = audit::subject(&one(&headers, b"")).unwrap().unwrap();
    assert!(matches!(subject.resource, Resource::Node { .. }));
    assert_eq!((subject.fact, subject.is_begin), (None, false));
}
