//! Entries of the audit log, as a Logging sink would send them: what the service writes when a long-running call
//! begins and ends, and what Compute Engine writes when it takes a VM.
//!
//! A preemption writes nothing under `tpu.googleapis.com`; only the entries of the VMs (`t1v-n-…-w-…`) tell of it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::render::time;
use crate::model::{Location, Node, Operation, Outcome};

const AUDIT_LOG: &str = "type.googleapis.com/google.cloud.audit.AuditLog";

/// The entry when a long-running call is accepted.
pub(crate) fn first(operation: &Operation, location: &Location, now: Timestamp) -> Value {
    let mut entry = activity(operation, location, now);
    entry["protoPayload"]["status"] = json!({});
    entry["protoPayload"]["authorizationInfo"] = json!([{
        "resource": operation.target,
        "permission": permission(&operation.method),
        "granted": true,
    }]);
    entry["severity"] = json!("NOTICE");
    entry["operation"]["first"] = json!(true);
    entry
}

/// The entry when a long-running call has ended.
pub(crate) fn last(operation: &Operation, now: Timestamp) -> Value {
    let mut parts = operation.name.split('/');
    let (project, zone) = (parts.nth(1).unwrap_or_default().to_owned(), parts.nth(1).unwrap_or_default().to_owned());
    let mut entry = activity(operation, &Location { project, zone }, now);
    let (status, severity) = match &operation.outcome {
        Some(Outcome::Error(status)) => (json!({"code": status.code, "message": status.message}), "ERROR"),
        _ => (json!({}), "NOTICE"),
    };
    entry["protoPayload"]["status"] = status;
    entry["severity"] = json!(severity);
    entry["operation"]["last"] = json!(true);
    entry
}

fn activity(operation: &Operation, location: &Location, now: Timestamp) -> Value {
    let method = format!("google.cloud.tpu.{}.Tpu.{}", operation.api_version, operation.method);
    let project = &location.project;
    let at = time(now);
    json!({
        "protoPayload": {
            "@type": AUDIT_LOG,
            "authenticationInfo": {"principalEmail": format!("emulated@{project}.iam.gserviceaccount.com")},
            "requestMetadata": {"callerIp": "private"},
            "serviceName": "tpu.googleapis.com",
            "methodName": method,
            "resourceName": operation.target,
            "resourceLocation": {"currentLocations": [location.zone]},
        },
        "resource": {
            "type": "audited_resource",
            "labels": {"method": method, "service": "tpu.googleapis.com", "project_id": project},
        },
        "timestamp": at,
        "logName": format!("projects/{project}/logs/cloudaudit.googleapis.com%2Factivity"),
        "receiveTimestamp": at,
        "operation": {"id": operation.name, "producer": "tpu.googleapis.com"},
    })
}

fn permission(method: &str) -> &'static str {
    match method {
        "CreateNode" => "tpu.nodes.create",
        "DeleteNode" => "tpu.nodes.delete",
        "StopNode" => "tpu.nodes.stop",
        "StartNode" => "tpu.nodes.start",
        "UpdateNode" => "tpu.nodes.update",
        "CreateQueuedResource" => "tpu.queuedresources.create",
        "DeleteQueuedResource" => "tpu.queuedresources.delete",
        _ => "tpu.queuedresources.update",
    }
}

/// The entry of Compute Engine about one worker's VM: `preempted`, `hostError`, `terminateOnHostMaintenance`.
pub(crate) fn system_event(node: &Node, worker: u32, method: &str, message: &str, now: Timestamp) -> Value {
    let method = format!("compute.instances.{method}");
    let (project, zone) = (&node.location.project, &node.location.zone);
    let at = time(now);
    json!({
        "protoPayload": {
            "@type": AUDIT_LOG,
            "status": {"message": message},
            "authenticationInfo": {"principalEmail": "system@google.com"},
            "requestMetadata": {},
            "serviceName": "compute.googleapis.com",
            "methodName": method,
            "resourceName": format!("projects/{project}/zones/{zone}/instances/{}", node.vm(worker)),
            "request": {"@type": format!("type.googleapis.com/{method}")},
        },
        "resource": {
            "type": "gce_instance",
            "labels": {"project_id": project, "zone": zone, "instance_id": (node.id ^ u64::from(worker)).to_string()},
        },
        "timestamp": at,
        "severity": "INFO",
        "logName": format!("projects/{project}/logs/cloudaudit.googleapis.com%2Fsystem_event"),
        "operation": {
            "id": format!("systemevent-{}-{worker}-{:x}", now.as_millisecond(), node.id),
            "producer": method,
            "first": true,
            "last": true,
        },
        "receiveTimestamp": at,
    })
}

/// The entry that announces maintenance of one worker's VM.
pub(crate) fn upcoming_maintenance(node: &Node, worker: u32, now: Timestamp) -> Value {
    let mut entry = system_event(node, worker, "upcomingMaintenance", "", now);
    entry["protoPayload"]["status"] = json!({});
    if let Some(maintenance) = &node.maintenance {
        entry["protoPayload"]["metadata"] = json!({
            "@type": "type.googleapis.com/google.cloud.compute.v1.UpcomingMaintenance",
            "type": maintenance.kind,
            "canReschedule": false,
            "windowStartTime": time(maintenance.starts_at),
            "windowEndTime": time(maintenance.ends_at),
            "maintenanceStatus": "PENDING",
        });
    }
    entry
}
