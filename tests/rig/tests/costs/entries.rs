//! What the cloud tells of TPUs: entries of the audit log, by the ways of `infra/modules/trigger/audit.tf`.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use rekindle_rig::{push, raw};

const PATH: &str = "/functions/tpu-events";
const SINK: &str = include_str!("../../../samples/tpu/audit-delete_node-last.json");
const SYSTEM_EVENT: &str = include_str!("../../../samples/tpu/audit-system_event-preempted-worker0.json");

/// Messages are billed by 1000 bytes. Recorded entries have 900 to 1100, and their attributes come to that.
pub(crate) const MESSAGES_AN_ENTRY: u64 = 2;
/// An entry comes so long after what it tells of.
pub(crate) const LAG_SECS: i64 = 3;

/// The end of a long-running call on a node, as recorded but for its names.
fn ended(method: &str, node: &str) -> Value {
    let mut entry: Value = serde_json::from_str(SINK).unwrap();
    let method = format!("google.cloud.tpu.v2.Tpu.{method}");
    entry["protoPayload"]["resourceName"] = format!("projects/p/locations/us-central1-a/nodes/{node}").into();
    entry["operation"]["id"] =
        format!("projects/p/locations/us-central1-a/operations/operation-{method}-{node}").into();
    entry["protoPayload"]["methodName"] = method.into();
    entry
}

/// The sink's filter takes the ends of calls, and each system event of a VM: a test of `tests/infra` shows it with recorded entries.
fn by_the_sink(entry: &Value) -> Request<Body> {
    push(PATH, "1", &[], entry.to_string().as_bytes())
}

/// A create has ended.
pub(crate) fn created(node: &str) -> Vec<Request<Body>> {
    vec![by_the_sink(&ended("CreateNode", node))]
}

/// A delete was accepted: Eventarc's triggers know nothing of operations, so that it brings this entry, too.
pub(crate) fn is_being_deleted(node: &str) -> Vec<Request<Body>> {
    let mut entry = ended("DeleteNode", node);
    let id = entry["operation"]["id"].take();
    entry["operation"] = json!({"id": id, "producer": "tpu.googleapis.com", "first": true});
    vec![by_eventarc(&entry)]
}

/// A delete has ended.
pub(crate) fn deleted(node: &str) -> Vec<Request<Body>> {
    let entry = ended("DeleteNode", node);
    vec![by_the_sink(&entry), by_eventarc(&entry)]
}

/// A VM was taken back.
pub(crate) fn preempted(vm: &str) -> Vec<Request<Body>> {
    let mut entry: Value = serde_json::from_str(SYSTEM_EVENT).unwrap();
    entry["protoPayload"]["resourceName"] = format!("projects/p/zones/us-central1-a/instances/{vm}").into();
    entry["operation"]["id"] = format!("systemevent-{vm}").into();
    vec![by_the_sink(&entry)]
}

fn by_eventarc(entry: &Value) -> Request<Body> {
    let mut request = raw(PATH, "application/json", entry.to_string());
    let payload = &entry["protoPayload"];
    for (name, value) in [
        ("ce-specversion", "1.0"),
        ("ce-id", "projects/p/logs/cloudaudit.googleapis.com%2Factivity1a2b3c4d5e811763646175500000"),
        ("ce-source", "//cloudaudit.googleapis.com/projects/p/logs/activity"),
        ("ce-type", "google.cloud.audit.log.v1.written"),
        ("ce-servicename", "tpu.googleapis.com"),
        ("ce-methodname", payload["methodName"].as_str().unwrap()),
        ("ce-resourcename", payload["resourceName"].as_str().unwrap()),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    request
}
