//! Audit entries and system events in every envelope: hints for what is ours, nothing for what is not.

use axum::Router;
use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::names;
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

#[tokio::test]
async fn each_envelope_of_an_entry_about_our_node_becomes_a_hint() {
    let (rig, router) = rig().await;
    let resource = format!("projects/p/locations/us-central1-a/nodes/{}", node_of(&rig, "train"));
    let log = entry("tpu.googleapis.com", "google.cloud.tpu.v2alpha1.Tpu.DeleteNode", &resource);
    let structured = json!({
        "specversion": "1.0", "id": "1", "source": "//cloudaudit.googleapis.com/projects/p",
        "type": "google.cloud.audit.log.v1.written", "data": log,
    });
    let requests = [
        ("Eventarc", eventarc(&log, &resource)),
        ("Eventarc without a body", eventarc(&Value::Null, &resource)),
        ("Logging sink", push(PATH, "1", &[], log.to_string().as_bytes())),
        ("Logging sink, unwrapped", post(PATH, &log)),
        ("structured", raw(PATH, "application/cloudevents+json", structured.to_string())),
    ];
    for (what, request) in requests {
        assert_eq!(send(&router, request).await.status, 204, "{what}");
        assert_eq!(rig.hints(), [("train".to_owned(), "event: DeleteNode".to_owned())], "{what}");
        rig.take_causes();
    }
}

#[tokio::test]
async fn queued_resources_slices_and_both_entries_of_one_operation() {
    let (rig, router) = rig().await;
    let name = node_of(&rig, "train");
    for resource in [format!("queuedResources/{name}"), format!("nodes/{name}-1")] {
        let resource = format!("projects/123/locations/us-central1-a/{resource}");
        let log = entry("tpu.googleapis.com", "google.cloud.tpu.v2.Tpu.CreateNode", &resource);
        for _ in 0..2 {
            assert_eq!(send(&router, push(PATH, "1", &[], log.to_string().as_bytes())).await.status, 204);
        }
    }
    assert_eq!(rig.hints().len(), 4, "a hint decides nothing, so it may come twice");
}

#[tokio::test]
async fn a_worker_vm_is_found_by_what_hello_stored() {
    let (rig, router) = rig().await;
    let log =
        entry("compute.googleapis.com", "compute.instances.preempted", &format!("projects/p/zones/z/instances/{VM}"));
    let request = || push(PATH, "1", &[], log.to_string().as_bytes());
    assert_eq!(send(&router, request()).await.status, 204);
    assert!(rig.hints().is_empty(), "an unknown VM is left to the tick");
    bind_vm(&rig).await;
    assert_eq!(send(&router, request()).await.status, 204);
    assert_eq!(rig.hints(), [("train".to_owned(), "event: preempted".to_owned())]);
    let reads = rig.fakes.docs.reads();
    assert_eq!(send(&router, request()).await.status, 204);
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
