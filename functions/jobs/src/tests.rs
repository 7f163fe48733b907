//! Job messages: every envelope, every command, every poison.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use serde_json::{Value, json};

use rekindle_core::job::{Desired, Phase};
use rekindle_fakes::CommitFault;
use rekindle_rig::{Rig, post, push, raw, send, spec};
use rekindle_web::Door;

use crate::{Jobs, Name, router};

mod whose;

const PATH: &str = "/functions/jobs";

fn mount(rig: &Rig, may: &[Name]) -> Router {
    let jobs = Jobs { engine: rig.engine.clone(), may: Arc::new(may.iter().copied().collect()) };
    rig.mount(router(jobs), Door::Jobs)
}

async fn rig() -> (Rig, Router) {
    let rig = Rig::new().await;
    let router = mount(&rig, &Name::ALL);
    (rig, router)
}

async fn message(router: &Router, id: &str, command: Option<&str>, body: &Value) -> u16 {
    let attributes: Vec<(&str, &str)> = command.iter().map(|c| ("command", *c)).collect();
    send(router, push(PATH, id, &attributes, body.to_string().as_bytes())).await.status.as_u16()
}

fn jobs(rig: &Rig) -> Vec<String> {
    let docs = rig.fakes.docs.dump().into_iter().map(|d| d.path);
    docs.filter_map(|p| p.strip_prefix("jobs/").filter(|p| !p.contains('/')).map(str::to_owned)).collect()
}

fn without_id() -> Value {
    let mut spec = spec("x");
    spec.as_object_mut().unwrap().remove("id");
    spec
}

#[tokio::test]
async fn a_message_makes_a_job_and_a_hint() {
    let (rig, router) = rig().await;
    assert_eq!(message(&router, "1", None, &spec("train")).await, 204);
    assert_eq!(jobs(&rig), ["train"]);
    assert_eq!(rig.hints(), [("train".to_owned(), "message: submit".to_owned())]);
    let job = rig.job("train").await.unwrap();
    assert_eq!((job.submitted_by.as_str(), job.phase), ("pubsub", Phase::Pending));
}

#[tokio::test]
async fn the_same_message_five_times_at_once_makes_one_job() {
    let (rig, router) = rig().await;
    let all = (0..5).map(|_| {
        let router = router.clone();
        tokio::spawn(async move { message(&router, "7", None, &without_id()).await })
    });
    for one in all.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap(), 204);
    }
    assert_eq!(jobs(&rig).len(), 1);
    assert!(rig.dead_reasons().is_empty());
    assert_eq!(message(&router, "8", None, &without_id()).await, 204);
    assert_eq!(jobs(&rig).len(), 2, "another message is another job");
}

#[tokio::test]
async fn every_envelope_makes_the_same_job() {
    let body = spec("train").to_string();
    let unwrapped = || Request::post(PATH).header("x-goog-pubsub-message-id", "1");
    let event = json!({"specversion": "1.0", "id": "1", "source": "/s", "type": "job", "data": spec("train")});
    let eventarc = |body: String| {
        Request::post(PATH)
            .header("content-type", "application/json")
            .header("ce-specversion", "1.0")
            .header("ce-id", "1")
            .header("ce-source", "//pubsub.googleapis.com/projects/p/topics/t")
            .header("ce-type", "google.cloud.pubsub.topic.v1.messagePublished")
            .body(Body::from(body))
            .unwrap()
    };
    let wrapped = json!({"message": {"data": base64(&body), "messageId": "1"}}).to_string();
    let url_safe = wrapped.replace('+', "-").replace('/', "_").replace('=', "");
    let requests: Vec<(&str, Request<Body>)> = vec![
        ("wrapped", push(PATH, "1", &[], body.as_bytes())),
        ("other alphabet, no padding", raw(PATH, "application/json", url_safe)),
        ("unwrapped", unwrapped().body(Body::from(body.clone())).unwrap()),
        ("unwrapped, command", unwrapped().header("command", "submit").body(Body::from(body.clone())).unwrap()),
        ("without metadata", raw(PATH, "application/x-www-form-urlencoded", body.clone())),
        ("structured", raw(PATH, "application/cloudevents+json; charset=utf-8", event.to_string())),
        ("batched", raw(PATH, "application/cloudevents-batch+json", json!([event]).to_string())),
        ("Eventarc", eventarc(wrapped)),
    ];
    for (what, request) in requests {
        let (rig, router) = rig().await;
        assert_eq!(send(&router, request).await.status, 204, "{what}");
        assert_eq!(jobs(&rig), ["train"], "{what}: {:?}", rig.dead_reasons());
    }
}

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

#[tokio::test]
async fn commands_change_the_job_once() {
    let (rig, router) = rig().await;
    assert_eq!(message(&router, "1", Some("submit"), &spec("train")).await, 204);
    rig.take_causes();
    assert_eq!(message(&router, "2", Some("wake"), &json!({"id": "train"})).await, 204);
    assert_eq!(message(&router, "3", Some("pause"), &json!({"id": "train"})).await, 204);
    assert_eq!(rig.job("train").await.unwrap().desired, Desired::Pause);
    let revision = rig.job("train").await.unwrap().revision;
    assert_eq!(message(&router, "3", Some("pause"), &json!({"id": "train"})).await, 204);
    assert_eq!(rig.job("train").await.unwrap().revision, revision, "a second delivery changes nothing");
    assert_eq!(message(&router, "4", Some("cancel"), &json!({"id": "train"})).await, 204);
    assert_eq!(rig.job("train").await.unwrap().desired, Desired::Cancel);
    assert_eq!(
        rig.take_causes(),
        ["message: wake", "message: pause", "message: pause", "message: cancel"],
        "each is hinted, also the repeated one"
    );
    assert!(rig.dead_reasons().is_empty(), "{:?}", rig.dead_reasons());
    assert_eq!(message(&router, "4", Some("cancel"), &json!({"id": "train", "if_attempt": 0})).await, 204);
    assert!(rig.dead_reasons()[0].contains("the message id was used before for another cancel"));
}

#[tokio::test]
async fn unusable_messages_are_recorded_and_forwarded_and_block_nobody() {
    let (rig, router) = rig().await;
    message(&router, "0", None, &spec("taken")).await;
    let mut other = spec("taken");
    other["priority"] = json!(99);
    let cases: Vec<(&str, Option<&str>, Value, &str)> = vec![
        ("a", None, json!({"id": "x"}), "run"),
        ("b", None, json!({"id": "X!", "run": "a", "tpu": {"accelerator": "v9-1"}, "foo": 1}), "foo"),
        ("c", None, json!([1, 2]), "spec"),
        ("d", None, json!("text"), "spec"),
        ("e", Some("destroy"), json!({"id": "taken"}), "unknown"),
        ("g", Some("cancel"), json!({}), "missing field `id`"),
        ("h", Some("cancel"), json!({"id": "taken", "x": 1}), "unknown field"),
        ("i", Some("cancel"), json!({"id": "taken", "new_slice": true}), "belong to `restart`"),
        ("j", Some("restart"), json!({"id": "taken"}), "job taken: `restart` is for jobs that are starting"),
        ("k", Some("restart"), json!({"id": "taken", "if_attempt": 7}), "attempt 0"),
        ("l", None, other, "taken by another spec"),
    ];
    for (id, command, body, reason) in &cases {
        assert_eq!(message(&router, id, *command, body).await, 204, "{id}");
        let last = rig.dead_reasons().pop().unwrap();
        assert!(last.contains(reason), "{id}: {last}");
    }
    let records = || rig.fakes.docs.dump().into_iter().filter(|d| d.path.starts_with("dead/")).count();
    assert_eq!((rig.dead_reasons().len(), records()), (cases.len(), cases.len()));
    assert_eq!(message(&router, "a", None, &cases[0].2).await, 204);
    assert_eq!(records(), cases.len(), "a second delivery adds no record");
    assert_eq!(message(&router, "z", None, &spec("fine")).await, 204);
    assert_eq!(jobs(&rig), ["fine", "taken"]);
}

#[tokio::test]
async fn a_command_that_overtakes_its_submit_waits_for_it_ten_minutes() {
    let (rig, router) = rig().await;
    for command in ["cancel", "pause", "wake"] {
        assert_eq!(message(&router, command, Some(command), &json!({"id": "train"})).await, 503, "{command}");
    }
    assert!(rig.dead_reasons().is_empty() && rig.hints().is_empty());
    assert_eq!(message(&router, "1", None, &spec("train")).await, 204);
    assert_eq!(message(&router, "cancel", Some("cancel"), &json!({"id": "train"})).await, 204);
    assert_eq!(rig.job("train").await.unwrap().desired, Desired::Cancel);

    rig.advance(590);
    assert_eq!(message(&router, "2", Some("cancel"), &json!({"id": "nobody"})).await, 503);
    rig.advance(20);
    assert_eq!(message(&router, "2", Some("cancel"), &json!({"id": "nobody"})).await, 204);
    assert!(rig.dead_reasons()[0].contains("no job nobody"), "{:?}", rig.dead_reasons());
}

#[tokio::test]
async fn a_command_without_a_believable_time_waits_for_nobody() {
    let (rig, router) = rig().await;
    let event = |time: &str| {
        json!({
            "specversion": "1.0", "id": time, "source": "/s", "type": "job", "time": time, "command": "cancel",
            "data": {"id": "nobody"},
        })
    };
    for (time, status) in [
        ("2026-11-20T09:59:00Z", 503),
        ("2026-11-20T10:09:00Z", 503),
        ("2026-11-20T10:11:00Z", 204),
        ("2036-11-20T10:00:00Z", 204),
        ("2026-11-20T09:49:00Z", 204),
    ] {
        let request = raw(PATH, "application/cloudevents+json", event(time).to_string());
        assert_eq!(send(&router, request).await.status, status, "{time}");
    }
    assert_eq!(rig.dead_reasons().len(), 3);
}

#[tokio::test]
async fn every_fault_of_a_spec_is_named_at_once() {
    let (rig, router) = rig().await;
    let bad = json!({"id": "Bad Id", "run": "", "tpu": {"accelerator": "v99-1"}, "priority": 1000, "unknown": true});
    assert_eq!(message(&router, "1", None, &bad).await, 204);
    let reason = rig.dead_reasons().pop().unwrap();
    for field in ["id:", "run:", "tpu.accelerator:", "priority:", "unknown:"] {
        assert!(reason.contains(field), "{field} in {reason}");
    }
}

#[tokio::test]
async fn poison_bytes() {
    let (rig, router) = rig().await;
    let deep = [b"{\"a\":".repeat(50_000), b"1".to_vec(), b"}".repeat(50_000)].concat();
    for (id, data) in [("1", b"".to_vec()), ("2", b"\xff\xfe\x00".to_vec()), ("3", b"{".to_vec()), ("4", deep)] {
        assert_eq!(send(&router, push(PATH, id, &[], &data)).await.status, 204, "{id}");
    }
    let broken = raw(PATH, "application/json", r#"{"message":{"messageId":"5","data":"!!!"}}"#);
    assert_eq!(send(&router, broken).await.status, 204);
    let emulator = raw(PATH, "application/x-www-form-urlencoded", b"\xff\xfe\xfb hello?>".to_vec());
    assert_eq!(send(&router, emulator).await.status, 204, "an unwrapped push without metadata");
    assert_eq!(rig.dead_reasons().len(), 6);

    for (content_type, body, status) in [
        ("application/json", b"{".to_vec(), 400),
        ("application/json", b"{\"foo\":1}".to_vec(), 400),
        ("application/json", b"\xff\xfe".to_vec(), 400),
        ("application/json", b"[".repeat(100_000), 400),
        ("application/json", vec![b' '; 10 << 20], 400),
        ("application/json", vec![b' '; 15 << 20], 413),
        ("text/plain", b"x".to_vec(), 415),
        ("application/cloudevents+json", b"{\"specversion\":\"1.0\"}".to_vec(), 400),
    ] {
        assert_eq!(send(&router, raw(PATH, content_type, body)).await.status, status, "{content_type}");
    }
    assert_eq!(rig.dead_reasons().len(), 6, "what is no envelope is refused, not kept");
    assert!(jobs(&rig).is_empty());
}

#[tokio::test]
async fn the_largest_message_of_a_topic_is_told_to_be_unusable() {
    let (rig, router) = rig().await;
    let mut large = spec("train");
    large["notes"] = "x".repeat(9_900_000).into();
    assert_eq!(message(&router, "1", None, &large).await, 204);
    let reasons = rig.dead_reasons();
    assert!(reasons.len() == 1 && reasons[0].contains("put what is big into the bundle"), "{reasons:?}");
    assert!(jobs(&rig).is_empty());
}

#[tokio::test]
async fn nothing_is_acknowledged_before_it_is_safe() {
    let (rig, router) = rig().await;
    rig.fakes.docs.set_down(true);
    assert_eq!(message(&router, "1", None, &spec("train")).await, 503);
    assert_eq!(message(&router, "2", None, &json!({})).await, 503);
    rig.fakes.docs.set_down(false);
    rig.fakes.hints.fail_before(1);
    assert_eq!(message(&router, "1", None, &spec("train")).await, 503, "stored, but not hinted");
    assert_eq!(message(&router, "1", None, &spec("train")).await, 204, "the second delivery hints");
    assert_eq!(rig.hints().len(), 1);
    rig.fakes.dead_letters.fail_before(1);
    assert_eq!(message(&router, "2", None, &json!({})).await, 503, "recorded, but not forwarded");
    assert_eq!(message(&router, "2", None, &json!({})).await, 204);
    assert_eq!(rig.dead_reasons().len(), 1);
}

#[tokio::test]
async fn an_unclear_commit_is_repeated_and_makes_one_job() {
    let (rig, router) = rig().await;
    rig.fakes.docs.fail_commit(CommitFault::UnclearAfter);
    assert_eq!(message(&router, "1", None, &spec("train")).await, 503);
    assert_eq!(message(&router, "1", None, &spec("train")).await, 204);
    assert_eq!(jobs(&rig), ["train"]);
    assert!(rig.dead_reasons().is_empty());
}

#[tokio::test]
async fn messages_may_only_what_they_may() {
    let rig = Rig::new().await;
    let router = mount(&rig, &[Name::Submit]);
    assert_eq!(message(&router, "1", None, &spec("train")).await, 204);
    assert_eq!(message(&router, "2", Some("cancel"), &json!({"id": "train"})).await, 204);
    assert_eq!(rig.job("train").await.unwrap().desired, Desired::Run);
    assert!(rig.dead_reasons()[0].contains("may not cancel"));
}

#[tokio::test]
async fn a_job_without_an_id_needs_a_message_id() {
    let (rig, router) = rig().await;
    let request = raw(PATH, "application/octet-stream", without_id().to_string());
    assert_eq!(send(&router, request).await.status, 204);
    assert!(jobs(&rig).is_empty() && rig.dead_reasons()[0].contains("writeMetadata"));
    let request = post(PATH, &json!({"message": {"data": base64(&without_id().to_string())}}));
    assert_eq!(send(&router, request).await.status, 204);
    assert!(jobs(&rig).is_empty());
}

#[tokio::test]
async fn the_trace_of_the_message_goes_on_in_the_hint() {
    let (rig, router) = rig().await;
    let trace = "00-8128a5babf1345f69ce0aab47169e538-35e9d5d6a1b2c3d4-01";
    let request = push(PATH, "1", &[("googclient_traceparent", trace)], spec("train").to_string().as_bytes());
    assert_eq!(send(&router, request).await.status, 204);
    assert_eq!(rig.fakes.hints.all()[0].traceparent.as_deref(), Some(trace));
}

#[tokio::test]
async fn a_message_that_cannot_be_used_is_seen_and_put_right_as_the_readme_says() {
    let (rig, router) = rig().await;
    let readme = include_str!("../../../README.md");
    let sent = readme.lines().filter(|line| line.starts_with("curl --json @") && line.contains(PATH));
    let headers: Vec<(&str, &str)> = sent.filter_map(|line| line.split('\'').nth(1)?.split_once(": ")).collect();
    assert_eq!(headers.len(), 2, "the first try, and the mended message");
    let publish = async |(name, value): (&'static str, &str), body: &Value| {
        let mut request = raw(PATH, "application/json", body.to_string());
        request.headers_mut().insert(http::HeaderName::try_from(name).unwrap(), value.parse().unwrap());
        send(&router, request).await.status.as_u16()
    };
    let mut wrong = spec("train");
    wrong["tpu"]["acelerator"] = wrong["tpu"]["accelerator"].take();
    wrong["tpu"].as_object_mut().unwrap().remove("accelerator");
    assert_eq!(publish(headers[0], &wrong).await, 204);
    let told = rig.dead_reasons().concat();
    assert!(jobs(&rig).is_empty() && told.contains("did you mean `tpu.accelerator`?"), "{told}");
    assert_eq!(publish(headers[1], &spec("train")).await, 204);
    assert_eq!(jobs(&rig), ["train"]);
}
