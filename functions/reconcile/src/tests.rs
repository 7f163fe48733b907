//! Every envelope and every answer.

use axum::Router;
use http::Request;
use serde_json::{Value, json};

use rekindle_core::spec::{ParseContext, parse};
use rekindle_fakes::{Call, Script};
use rekindle_ports::tpu::TpuError;
use rekindle_rig::{Log, Rig, get, post, push, raw, send, spec};
use rekindle_web::{Door, about};

use rekindle_core::ids::JobId;
use rekindle_engine::{PassError, PassOutcome};

use crate::{answer, router};

const PATH: &str = "/functions/reconcile";

async fn rig() -> (Rig, Router) {
    let rig = Rig::new().await;
    let context = ParseContext { deployment: &rig.engine.deployment, caller: "ann@example.com", caller_is_admin: true };
    let submit = parse(&spec("train"), &context).unwrap();
    rig.engine.submit(submit, "ann@example.com", "k").await.unwrap();
    let router = rig.mount(router(rig.engine.clone()), Door::Reconcile);
    (rig, router)
}

fn hint(job: &str) -> Value {
    json!({"job": job, "cause": "test"})
}

fn creates(rig: &Rig) -> usize {
    rig.fakes.tpu.calls().iter().filter(|c| matches!(c, Call::Create(_))).count()
}

#[tokio::test]
async fn a_hint_and_a_wake_up_each_run_a_pass() {
    let (rig, router) = rig().await;
    let answer = send(&router, push(PATH, "1", &[], hint("train").to_string().as_bytes())).await;
    assert_eq!(answer.status, 204);
    assert_eq!(creates(&rig), 1);
    let before = rig.job("train").await.unwrap().revision;
    rig.advance(10);
    let task = Request::post(PATH)
        .header("content-type", "application/json")
        .header("x-cloudtasks-queuename", "wake")
        .header("x-cloudtasks-taskname", "a-1")
        .body(hint("train").to_string().into())
        .unwrap();
    assert_eq!(send(&router, task).await.status, 204);
    assert!(rig.job("train").await.unwrap().revision > before, "READY was seen");
    assert_eq!(creates(&rig), 1, "and nothing was asked for twice");
}

#[tokio::test]
async fn a_hint_of_no_job_is_done() {
    let (rig, router) = rig().await;
    assert_eq!(send(&router, push(PATH, "1", &[], hint("other").to_string().as_bytes())).await.status, 204);
    assert!(rig.fakes.tpu.calls().is_empty() && rig.dead_reasons().is_empty());
}

#[tokio::test]
async fn what_is_no_hint_is_recorded_once_and_forwarded() {
    let (rig, router) = rig().await;
    for (id, data) in
        [("1", &b"not json"[..]), ("2", b"{}"), ("3", b"{\"job\":\"NOT AN ID\",\"cause\":\"\"}"), ("4", b"\xff")]
    {
        assert_eq!(send(&router, push(PATH, id, &[], data)).await.status, 204, "{id}");
    }
    assert_eq!(rig.dead_reasons().len(), 4);
    assert!(rig.dead_reasons().iter().all(|r| r.starts_with("not a hint")));
    let records = rig.fakes.docs.dump().into_iter().filter(|d| d.path.starts_with("dead/")).count();
    assert_eq!(records, 4);
}

#[tokio::test]
async fn what_is_no_envelope_is_refused() {
    let (rig, router) = rig().await;
    assert_eq!(send(&router, post(PATH, &hint("train"))).await.status, 400, "nothing says who sent it");
    assert_eq!(send(&router, raw(PATH, "application/json", "{")).await.status, 400);
    assert_eq!(send(&router, raw(PATH, "application/json", vec![0xff; 100])).await.status, 400);
    assert_eq!(send(&router, raw(PATH, "text/plain", "x")).await.status, 415);
    assert_eq!(send(&router, raw(PATH, "application/json", vec![b' '; 10 << 20])).await.status, 413);
    assert!(rig.fakes.tpu.calls().is_empty() && rig.dead_reasons().is_empty());
}

#[tokio::test]
async fn a_store_that_is_down_brings_503_and_no_call() {
    let (rig, router) = rig().await;
    rig.fakes.docs.set_down(true);
    assert_eq!(send(&router, push(PATH, "1", &[], hint("train").to_string().as_bytes())).await.status, 503);
    assert_eq!(
        send(&router, push(PATH, "2", &[], b"poison")).await.status,
        503,
        "not acknowledged before it is recorded"
    );
    assert!(rig.fakes.tpu.calls().is_empty());
}

#[tokio::test]
async fn a_batch_runs_each_hint_and_comes_again_if_one_must() {
    let (rig, router) = rig().await;
    let event = |id: u32, job: &str| {
        let id = id.to_string();
        json!({"specversion": "1.0", "id": id, "source": "/t", "type": "hint", "data": hint(job)})
    };
    let batch = json!([event(1, "other"), event(2, "train")]).to_string();
    assert_eq!(send(&router, raw(PATH, "application/cloudevents-batch+json", batch)).await.status, 204);
    assert_eq!(creates(&rig), 1);
}

#[test]
fn every_end_of_a_pass_has_its_answer() {
    let job = JobId::parse("train").unwrap();
    for (outcome, status) in [
        (Ok(PassOutcome::Done), 204),
        (Ok(PassOutcome::NothingToDo), 204),
        (Ok(PassOutcome::Superseded), 204),
        (Ok(PassOutcome::NoSuchJob), 204),
        (Err(PassError::Transient("x".into())), 503),
        (Err(PassError::Invariant("x".into())), 500),
    ] {
        let what = format!("{outcome:?}");
        assert_eq!(answer(&job, outcome).status().as_u16(), status, "{what}");
    }
}

#[tokio::test]
async fn a_hint_of_a_fact_that_a_pass_has_read_past_makes_no_call() {
    let (rig, router) = rig().await;
    for _ in 0..3 {
        rig.pass("train").await;
        rig.advance(1);
    }
    let through = rig.job("train").await.unwrap().observed_through_us;
    assert!(through > 0, "worker reports were looked for");
    rig.fakes.tpu.take_calls();
    let old = json!({"job": "train", "cause": "test", "after": through - 1});
    assert_eq!(send(&router, push(PATH, "1", &[], old.to_string().as_bytes())).await.status, 204);
    assert!(rig.fakes.tpu.take_calls().is_empty());
    let new = json!({"job": "train", "cause": "test", "after": through + 1});
    assert_eq!(send(&router, push(PATH, "2", &[], new.to_string().as_bytes())).await.status, 204);
    assert!(!rig.fakes.tpu.take_calls().is_empty());
}

/// The labels of a line.
fn labels(line: &Value) -> &Value {
    &line["logging.googleapis.com/labels"]
}

#[tokio::test]
async fn each_line_of_a_pass_says_whose_it_is_and_can_be_read_alone() {
    let (rig, router) = rig().await;
    let log = Log::default();
    let _guard = log.listen_as_cloud();
    let pass = async |id: &str| send(&router, push(PATH, id, &[], hint("train").to_string().as_bytes())).await.status;
    assert_eq!(pass("1").await, 204);
    rig.advance(10);
    rig.fakes.tpu.script_get(Script::Before(TpuError::Unclear("the network is down".into())));
    assert_eq!(pass("2").await, 204);
    rig.fakes.docs.set_down(true);
    assert_eq!(pass("3").await, 503);
    let lines = log.take_json();
    for line in &lines {
        let message = line["message"].as_str().unwrap();
        assert_eq!(labels(line)["job"], "train", "{line}");
        assert!(message.split(' ').count() > 3, "{message:?} cannot be read alone");
    }
    let find = |text: &str| {
        let found = lines.iter().find(|line| line["message"].as_str().unwrap().contains(text));
        found.unwrap_or_else(|| panic!("{text}: {lines:?}"))
    };
    let unread = find("could not be read: ");
    assert!(unread["message"].as_str().unwrap().contains("the network is down"), "{unread}");
    assert_eq!((&labels(unread)["attempt"], &labels(unread)["generation"]), (&json!("1"), &json!("1")), "{unread}");
    find("is to be delivered again: ");
}

#[tokio::test]
async fn a_panic_says_whose_it_is() {
    let (rig, _) = rig().await;
    let log = Log::default();
    let _guard = log.listen_as_cloud();
    let panics = axum::routing::get(async || -> &'static str {
        about::job(&JobId::parse("train").unwrap());
        panic!("boom")
    });
    let router = rig.mount(Router::new().route("/panics", panics), Door::Reconcile);
    assert_eq!(send(&router, get("/panics")).await.status, 500);
    let lines = log.take_json();
    let [line] = lines.as_slice() else { panic!("{lines:?}") };
    assert_eq!((&labels(line)["job"], &line["message"]), (&json!("train"), &json!("a handler panicked: boom")));
}
