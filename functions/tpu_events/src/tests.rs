//! Audit entries and system events in every envelope: hints for what is ours, nothing for what is not.

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::names;
use rekindle_core::news::{News, NewsKind};
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::InstanceDoc;
use rekindle_rig::{Rig, post, push, raw, send};
use rekindle_web::Door;

use crate::router;

const PATH: &str = "/functions/tpu-events";
const VM: &str = "t1v-n-9472280f-w-0";

async fn rig() -> (Rig, Router) {
    let rig = Rig::new().await;
    let router = rig.mount(router(rig.engine.clone()), Door::TpuEvents);
    (rig, router)
}

fn entry(service: &str, method: &str, resource: &str) -> Value {
    json!({
        "insertId": "i", "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
        "protoPayload": {
            "@type": "type.googleapis.com/google.cloud.audit.AuditLog",
            "serviceName": service, "methodName": method, "resourceName": resource, "status": {},
        },
        "operation": {"id": "o", "last": true},
    })
}

fn node_of(rig: &Rig, job: &str) -> String {
    names::generation_name(&rig.engine.installation.id, &JobId::parse(job).unwrap(), 3)
}

fn eventarc(data: &Value, resource: &str) -> Request<Body> {
    Request::post(PATH)
        .header("content-type", "application/json; charset=utf-8")
        .header("ce-specversion", "1.0")
        .header("ce-id", "projects/p/logs/cloudaudit.googleapis.com%2Factivityi1795")
        .header("ce-source", "//cloudaudit.googleapis.com/projects/p/logs/activity")
        .header("ce-type", "google.cloud.audit.log.v1.written")
        .header("ce-methodname", "google.cloud.tpu.v2.Tpu.DeleteNode")
        .header("ce-resourcename", resource)
        .body(if data.is_null() { Body::empty() } else { Body::from(data.to_string()) })
        .unwrap()
}

async fn bind_vm(rig: &Rig) {
    let key = WorkerKey { slice: 0, worker: 0 };
    let doc = InstanceDoc { name: VM.into(), job: JobId::parse("train").unwrap(), generation: 3, key };
    rig.fakes.store().write(&Kind::Instance(VM.into()), &doc, Precondition::None).await.unwrap();
}

/// The entry by every way that it may come.
fn by_all_ways(log: &Value, resource: &str) -> Vec<(&'static str, Request<Body>)> {
    let structured = json!({
        "specversion": "1.0", "id": "1", "source": "//cloudaudit.googleapis.com/projects/p",
        "type": "google.cloud.audit.log.v1.written", "data": log,
    });
    vec![
        ("Eventarc", eventarc(log, resource)),
        ("Logging sink", push(PATH, "1", &[], log.to_string().as_bytes())),
        ("Logging sink, unwrapped", post(PATH, log)),
        ("structured", raw(PATH, "application/cloudevents+json", structured.to_string())),
        ("Eventarc without a body", eventarc(&Value::Null, resource)),
    ]
}

#[tokio::test]
async fn each_envelope_of_an_entry_about_our_node_becomes_a_hint() {
    for way in 0..5 {
        let (rig, router) = rig().await;
        let resource = format!("projects/p/locations/us-central1-a/nodes/{}", node_of(&rig, "train"));
        let log = entry("tpu.googleapis.com", "google.cloud.tpu.v2alpha1.Tpu.DeleteNode", &resource);
        let (what, request) = by_all_ways(&log, &resource).swap_remove(way);
        assert_eq!(send(&router, request).await.status, 204, "{what}");
        assert_eq!(rig.hints(), [("train".to_owned(), "event: DeleteNode".to_owned())], "{what}");
    }
}

#[tokio::test]
async fn one_entry_by_all_ways_becomes_one_hint_and_another_operation_another() {
    let (rig, router) = rig().await;
    let resource = format!("projects/p/locations/us-central1-a/nodes/{}", node_of(&rig, "train"));
    let mut log = entry("tpu.googleapis.com", "google.cloud.tpu.v2.Tpu.DeleteNode", &resource);
    for (operation, hints) in [("one", 1), ("another", 2)] {
        log["operation"]["id"] = operation.into();
        for (what, request) in by_all_ways(&log, &resource).into_iter().take(4) {
            assert_eq!(send(&router, request).await.status, 204, "{what}");
            assert_eq!(rig.hints().len(), hints, "{what} of {operation}");
        }
    }
    let of_a_slice = format!("{resource}-1");
    let log = entry("tpu.googleapis.com", "google.cloud.tpu.v2.Tpu.DeleteNode", &of_a_slice);
    assert_eq!(send(&router, post(PATH, &log)).await.status, 204);
    assert_eq!(rig.hints().len(), 3, "no two resources share an operation, whatever its name");
    let log = entry("tpu.googleapis.com", "google.cloud.tpu.v2.Tpu.StopNode", &of_a_slice);
    assert_eq!(send(&router, post(PATH, &log)).await.status, 204);
    assert_eq!(rig.hints().len(), 4, "nor is one event another, though they share an operation");
}

#[tokio::test]
async fn the_end_of_an_operation_is_hinted_and_its_begin_is_not() {
    let (rig, router) = rig().await;
    let name = node_of(&rig, "train");
    for resource in [format!("queuedResources/{name}"), format!("nodes/{name}-1")] {
        let resource = format!("projects/123/locations/us-central1-a/{resource}");
        let mut log = entry("tpu.googleapis.com", "google.cloud.tpu.v2.Tpu.DeleteNode", &resource);
        rig.take_causes();
        for (operation, hints) in [
            (json!({"id": "o", "first": true}), 0),
            (json!({"id": "o", "last": true}), 1),
            (json!({"id": "o", "last": true}), 1),
            (json!({"id": "p", "first": true, "last": true}), 2),
            (Value::Null, 3),
            (Value::Null, 3),
        ] {
            log["operation"] = operation.clone();
            for request in [push(PATH, "1", &[], log.to_string().as_bytes()), eventarc(&log, &resource)] {
                assert_eq!(send(&router, request).await.status, 204);
                assert_eq!(rig.hints().len(), hints, "{operation}");
            }
        }
    }
}

#[tokio::test]
async fn a_hint_says_what_is_told_of_which_generation() {
    let (rig, router) = rig().await;
    bind_vm(&rig).await;
    let node = format!("locations/z/nodes/{}", node_of(&rig, "train"));
    let queued = format!("locations/z/queuedResources/{}", node_of(&rig, "train"));
    for (method, resource, kind) in [
        ("google.cloud.tpu.v2.Tpu.CreateNode", &node, NewsKind::Made),
        ("google.cloud.tpu.v2alpha1.Tpu.CreateQueuedResource", &queued, NewsKind::Made),
        ("google.cloud.tpu.v2.Tpu.DeleteNode", &node, NewsKind::Other),
        ("google.cloud.tpu.v2.Tpu.StopNode", &node, NewsKind::Other),
        ("compute.instances.preempted", &format!("zones/z/instances/{VM}"), NewsKind::Machine),
    ] {
        let mut log = entry("s", method, &format!("projects/p/{resource}"));
        log["operation"]["id"] = method.into();
        assert_eq!(send(&router, post(PATH, &log)).await.status, 204);
        let hints = rig.fakes.hints.take();
        assert_eq!(hints.len(), 1);
        assert_eq!((hints[0].news, hints[0].after), (Some(News { generation: 3, kind }), None), "{method}");
    }
}

#[tokio::test]
async fn a_hint_that_failed_is_published_when_the_entry_comes_again() {
    let (rig, router) = rig().await;
    let resource = format!("projects/p/locations/z/nodes/{}", node_of(&rig, "train"));
    let log = entry("tpu.googleapis.com", "google.cloud.tpu.v2.Tpu.DeleteNode", &resource);
    rig.fakes.hints.fail_before(1);
    for (status, hints) in [(503, 0), (204, 1), (204, 1)] {
        assert_eq!(send(&router, post(PATH, &log)).await.status, status);
        assert_eq!(rig.hints().len(), hints);
    }
}

#[tokio::test]
async fn a_worker_vm_is_found_by_what_hello_stored() {
    let (rig, router) = rig().await;
    let mut log =
        entry("compute.googleapis.com", "compute.instances.preempted", &format!("projects/p/zones/z/instances/{VM}"));
    log["operation"] = json!({"id": "systemevent-1", "first": true, "last": true});
    let request = || push(PATH, "1", &[], log.to_string().as_bytes());
    assert_eq!(send(&router, request()).await.status, 204);
    assert!(rig.hints().is_empty(), "an unknown VM is left to the tick");
    bind_vm(&rig).await;
    assert_eq!(send(&router, request()).await.status, 204);
    assert_eq!(rig.hints(), [("train".to_owned(), "event: preempted".to_owned())]);
    let reads = rig.fakes.docs.reads();
    log["operation"]["id"] = "systemevent-2".into();
    let request = push(PATH, "2", &[], log.to_string().as_bytes());
    assert_eq!(send(&router, request).await.status, 204);
    assert_eq!((rig.hints().len(), rig.fakes.docs.reads()), (2, reads), "a VM stays whose it is, and is read once");
}

#[tokio::test]
async fn what_is_not_ours_is_done() {
    let (rig, router) = rig().await;
    let other = rekindle_core::ids::InstallationId::parse("zzzzzz").unwrap();
    let foreign = names::generation_name(&other, &JobId::parse("train").unwrap(), 3);
    for resource in [
        format!("projects/p/locations/z/nodes/{foreign}"),
        "projects/p/locations/z/nodes/somebody-elses".to_owned(),
        "projects/p/zones/z/instances/web-1".to_owned(),
        "projects/p/topics/t".to_owned(),
        String::new(),
    ] {
        let log = entry("x", "y", &resource);
        assert_eq!(send(&router, push(PATH, "1", &[], log.to_string().as_bytes())).await.status, 204, "{resource}");
        assert_eq!(send(&router, eventarc(&log, &resource)).await.status, 204, "{resource}");
    }
    assert!(rig.hints().is_empty() && rig.dead_reasons().is_empty());
}

#[tokio::test]
async fn what_is_no_entry_is_recorded_and_what_is_no_envelope_refused() {
    let (rig, router) = rig().await;
    for (id, data) in [("1", &b"{}"[..]), ("2", b"text"), ("3", b""), ("4", b"{\"logName\":1}"), ("5", b"\xff")] {
        assert_eq!(send(&router, push(PATH, id, &[], data)).await.status, 204, "{id}");
    }
    assert_eq!(rig.dead_reasons().len(), 5);
    assert_eq!(send(&router, raw(PATH, "application/json", "{}")).await.status, 400);
    assert_eq!(send(&router, raw(PATH, "application/json", vec![b'1'; 10 << 20])).await.status, 413);
    assert_eq!(send(&router, raw(PATH, "text/html", "<p>")).await.status, 415);
    assert_eq!(rig.dead_reasons().len(), 5);
}

#[tokio::test]
async fn troubles_bring_503() {
    let (rig, router) = rig().await;
    let resource = format!("projects/p/locations/z/nodes/{}", node_of(&rig, "train"));
    let node = entry("t", "m", &resource).to_string();
    rig.fakes.hints.fail_before(1);
    assert_eq!(send(&router, push(PATH, "1", &[], node.as_bytes())).await.status, 503);
    let vm = entry("c", "m", &format!("projects/p/zones/z/instances/{VM}")).to_string();
    rig.fakes.docs.set_down(true);
    assert_eq!(send(&router, push(PATH, "2", &[], vm.as_bytes())).await.status, 503);
}
