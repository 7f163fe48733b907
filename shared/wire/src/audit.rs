//! Audit log entries (`LogEntryData`), from Eventarc or from a Logging sink: activity and system events.

use serde::Deserialize;
use serde_json::Value;

use crate::delivery::Delivery;

/// The CloudEvents type of audit log entries.
pub const AUDIT_TYPE: &str = "google.cloud.audit.log.v1.written";

/// As much of a log entry as says which resource it speaks of.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogEntry {
    /// Unique in the log, with the time.
    pub insert_id: String,
    /// Such as `projects/P/logs/cloudaudit.googleapis.com%2Factivity`.
    pub log_name: String,
    /// The audit record.
    pub proto_payload: Option<AuditLog>,
}

/// The audit record of a log entry.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditLog {
    /// Such as `tpu.googleapis.com`.
    pub service_name: String,
    /// Such as `google.cloud.tpu.v2.Tpu.DeleteNode`, `compute.instances.preempted`.
    pub method_name: String,
    /// Such as `projects/P/locations/Z/nodes/N`.
    pub resource_name: String,
    /// The request, where the log keeps it.
    pub request: Option<Value>,
}

/// A resource that a log entry speaks of, as far as it may be one of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// A node.
    Node {
        /// Zone.
        zone: String,
        /// Id.
        name: String,
    },
    /// A queued resource.
    QueuedResource {
        /// Zone.
        zone: String,
        /// Id.
        name: String,
    },
    /// A virtual machine, which may be a worker.
    Instance {
        /// Zone.
        zone: String,
        /// Name.
        name: String,
    },
}

/// True when a JSON value looks like a log entry.
pub fn is_log_entry(value: &Value) -> bool {
    value.get("logName").is_some_and(Value::is_string) || value.get("protoPayload").is_some_and(Value::is_object)
}

/// The resource and the method that a delivery speaks of.
///
/// `Ok(None)`: it is an audit entry of something else (foreign). `Err`: it is no audit entry.
pub fn subject(delivery: &Delivery) -> Result<Option<(Resource, String)>, String> {
    // Entries with an empty body have been seen: then the attributes of the event are enough.
    if let (Some(event), Some(name)) = (&delivery.event, delivery.attributes.get("resourcename"))
        && event.ty == AUDIT_TYPE
    {
        let method = delivery.attributes.get("methodname").cloned().unwrap_or_default();
        if let Some(resource) = resource(name) {
            return Ok(Some((resource, method)));
        }
    }
    let data = delivery.data.as_ref().map_err(Clone::clone)?;
    if data.is_empty() && delivery.event.as_ref().is_some_and(|e| e.ty == AUDIT_TYPE) {
        return Ok(None);
    }
    // What nearly all are, without a tree of the whole entry in between; anything odd about it is told below.
    if let Ok(entry) = serde_json::from_slice::<LogEntry>(data)
        && let Some(audit) = entry.proto_payload
    {
        return Ok(spoken_of(audit));
    }
    let value: Value = serde_json::from_slice(data).map_err(|e| format!("not JSON: {e}"))?;
    if !is_log_entry(&value) {
        return Err("not a log entry".into());
    }
    let entry: LogEntry = serde_json::from_value(value).map_err(|e| format!("not a log entry: {e}"))?;
    Ok(entry.proto_payload.and_then(spoken_of))
}

fn spoken_of(audit: AuditLog) -> Option<(Resource, String)> {
    let found = resource(&audit.resource_name).or_else(|| created(&audit));
    found.map(|resource| (resource, audit.method_name))
}

/// Reads a resource name; a leading `//service/` and a project number are allowed.
pub fn resource(name: &str) -> Option<Resource> {
    let path = match name.strip_prefix("//") {
        Some(rest) => rest.split_once('/')?.1,
        None => name,
    };
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let ["projects", _project, place, zone, kind, id] = parts.as_slice() else { return None };
    if zone.is_empty() || id.is_empty() {
        return None;
    }
    let (zone, name) = ((*zone).to_owned(), (*id).to_owned());
    match (*place, *kind) {
        ("locations", "nodes") => Some(Resource::Node { zone, name }),
        ("locations", "queuedResources") => Some(Resource::QueuedResource { zone, name }),
        ("zones", "instances") => Some(Resource::Instance { zone, name }),
        _ => None,
    }
}

/// A create may be logged under its parent, `projects/P/locations/Z`, with the id in the request.
fn created(audit: &AuditLog) -> Option<Resource> {
    let request = audit.request.as_ref()?;
    let field = |names: [&str; 2]| names.iter().find_map(|n| request.get(n)).and_then(Value::as_str);
    let parent = audit.resource_name.trim_end_matches('/');
    if let Some(id) = field(["nodeId", "node_id"]) {
        return resource(&format!("{parent}/nodes/{id}"));
    }
    let id = field(["queuedResourceId", "queued_resource_id"])?;
    resource(&format!("{parent}/queuedResources/{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_names() {
        let node = |zone: &str, name: &str| Some(Resource::Node { zone: zone.into(), name: name.into() });
        assert_eq!(resource("projects/p/locations/us-central2-b/nodes/n-1"), node("us-central2-b", "n-1"));
        assert_eq!(resource("//tpu.googleapis.com/projects/123/locations/z/nodes/n"), node("z", "n"));
        assert_eq!(
            resource("projects/p/locations/z/queuedResources/q"),
            Some(Resource::QueuedResource { zone: "z".into(), name: "q".into() })
        );
        assert_eq!(
            resource("projects/p/zones/z/instances/t1v-n-1-w-0"),
            Some(Resource::Instance { zone: "z".into(), name: "t1v-n-1-w-0".into() })
        );
        for foreign in
            ["", "projects/p", "projects/p/locations/z/nodes/", "projects/p/topics/t", "projects/p/locations/z"]
        {
            assert_eq!(resource(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_create_logged_under_its_parent_is_found_by_the_id_in_the_request() {
        let audit = AuditLog {
            resource_name: "projects/p/locations/z".into(),
            request: Some(serde_json::json!({"nodeId": "n"})),
            ..AuditLog::default()
        };
        assert_eq!(created(&audit), Some(Resource::Node { zone: "z".into(), name: "n".into() }));
    }
}
