//! Resources as the API shows them, with enums as text and default values left out.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::model::{Maintenance, Node, NodeState, Operation, Outcome, QueuedResource, QueuedState, World};
use crate::world::project_number;

/// A moment with microseconds, as the API writes it.
pub(crate) fn time(moment: Timestamp) -> String {
    format!("{moment:.6}")
}

/// A node.
pub(crate) fn node(node: &Node) -> Value {
    let row = node.catalogue();
    let mut shown = node.body.clone();
    let mut put = |key: &str, value: Value| {
        shown.insert(key.to_owned(), value);
    };
    put("name", json!(node.name));
    put("acceleratorConfig", json!({"type": row.api_type, "topology": row.topology}));
    put("state", json!(node.state.as_str()));
    put("createTime", json!(time(node.created_at)));
    put("id", json!(node.id.to_string()));
    put("apiVersion", json!("V2"));
    if let Some(health) = &node.health {
        put("health", json!(health));
    }
    if let Some(description) = &node.health_description {
        put("healthDescription", json!(description));
    }
    if node.state != NodeState::Creating {
        put("networkEndpoints", endpoints(node));
    }
    if let Some(queued) = &node.queued_resource {
        put("queuedResource", json!(queued));
    }
    if node.multislice.is_some() {
        put("multisliceNode", json!(true));
    }
    if let Some(maintenance) = &node.maintenance {
        put("upcomingMaintenance", upcoming(maintenance));
    }
    Value::Object(shown)
}

/// A node as operations keep it: without its metadata, which [`operation`] takes from the node while it lives.
pub(crate) fn snapshot(node: &Node) -> Value {
    let mut shown = self::node(node);
    if let Some(shown) = shown.as_object_mut() {
        shown.remove("metadata");
    }
    shown
}

/// A queued resource as operations keep it: without the metadata of its nodes.
pub(crate) fn queued_snapshot(queued: &QueuedResource) -> Value {
    let mut shown = self::queued(queued, "v2", false);
    for spec in shown["tpu"]["nodeSpec"].as_array_mut().into_iter().flatten() {
        spec["node"].as_object_mut().map(|node| node.remove("metadata"));
    }
    shown
}

/// One entry for each worker, in order. An external address is there only while the VMs are.
fn endpoints(node: &Node) -> Value {
    let has_access = node.has_external_ips() && node.state.holds_chips() && node.state != NodeState::Starting;
    let endpoint = |worker: &crate::model::Worker| {
        // 203.0.113.0/24 is for documentation: it shows that there is an external address and reaches nobody.
        let external = format!("203.0.113.{}", worker.ip.octets()[3]);
        let access = if has_access { json!({"externalIp": external}) } else { json!({}) };
        json!({"ipAddress": worker.ip.to_string(), "port": 8470, "accessConfig": access})
    };
    node.workers.iter().map(endpoint).collect()
}

fn upcoming(maintenance: &Maintenance) -> Value {
    let at = |moment: Timestamp| time(moment);
    json!({
        "type": maintenance.kind,
        "canReschedule": false,
        "windowStartTime": at(maintenance.starts_at),
        "windowEndTime": at(maintenance.ends_at),
        "latestWindowStartTime": at(maintenance.starts_at),
        "maintenanceStatus": if maintenance.is_ongoing { "ONGOING" } else { "PENDING" },
    })
}

/// A queued resource; `shows_accepted` gives the older name of the waiting state.
pub(crate) fn queued(queued: &QueuedResource, api_version: &str, shows_accepted: bool) -> Value {
    let number = project_number(&queued.location.project);
    let parent = format!("projects/{number}/locations/{}", queued.location.zone);
    let spec = |spec: &crate::model::NodeSpec| json!({"parent": parent, "nodeId": spec.node_id, "node": spec.node});
    let specs: Vec<Value> = queued.node_specs.iter().map(spec).collect();
    let mut shown: Map<String, Value> = queued.body.clone();
    if let Some(until) = queued.valid_until {
        shown.insert("queueingPolicy".to_owned(), json!({"validUntilTime": time(until)}));
    }
    if api_version != "v2alpha1" {
        shown.retain(|key, _| ["spot", "guaranteed", "queueingPolicy", "reservationName"].contains(&key.as_str()));
    }
    shown.insert("name".to_owned(), json!(queued.name));
    shown.insert("createTime".to_owned(), json!(time(queued.created_at)));
    shown.insert("tpu".to_owned(), json!({"nodeSpec": specs}));
    shown.insert("state".to_owned(), queued_state(queued, shows_accepted));
    Value::Object(shown)
}

fn queued_state(queued: &QueuedResource, shows_accepted: bool) -> Value {
    let accepted = shows_accepted && queued.state == QueuedState::WaitingForResources;
    let name = if accepted { "ACCEPTED" } else { queued.state.as_str() };
    let mut state = json!({"state": name});
    if let Some(initiator) = &queued.initiator {
        state["stateInitiator"] = json!(initiator);
    }
    let data = match queued.state {
        QueuedState::Creating => Some("creatingData"),
        QueuedState::WaitingForResources => accepted.then_some("acceptedData"),
        QueuedState::Provisioning => Some("provisioningData"),
        QueuedState::Active => Some("activeData"),
        QueuedState::Suspending => Some("suspendingData"),
        QueuedState::Suspended => Some("suspendedData"),
        QueuedState::Failed => Some("failedData"),
        QueuedState::Deleting => Some("deletingData"),
    };
    if let Some(data) = data {
        let error = queued.error.as_ref().filter(|_| queued.state == QueuedState::Failed);
        state[data] = match error {
            Some(error) => json!({"error": {"code": error.code, "message": error.message}}),
            None => json!({}),
        };
    }
    state
}

/// An operation, in the version it is asked for through.
pub(crate) fn operation(world: &World, operation: &Operation, api_version: &str) -> Value {
    let kind = |name: &str| format!("type.googleapis.com/google.cloud.tpu.{api_version}.{name}");
    let mut metadata = json!({
        "@type": kind("OperationMetadata"),
        "createTime": time(operation.created_at),
        "target": operation.target,
        "verb": operation.verb,
        "cancelRequested": operation.is_cancel_requested,
        "apiVersion": operation.api_version,
    });
    if let Some(ended_at) = operation.ended_at {
        metadata["endTime"] = json!(time(ended_at));
    }
    let mut shown = json!({"name": operation.name, "metadata": metadata, "done": operation.outcome.is_some()});
    let with_type = |value: &Value, name: &str| {
        let mut value = value.clone();
        value["@type"] = json!(kind(name));
        value
    };
    match &operation.outcome {
        None => {}
        Some(Outcome::Error(status)) => shown["error"] = json!({"code": status.code, "message": status.message}),
        Some(Outcome::Node(snapshot)) => {
            shown["response"] = with_type(snapshot, "Node");
            let node = world
                .nodes
                .get(&operation.target)
                .filter(|node| snapshot["id"].as_str() == Some(node.id.to_string().as_str()));
            if let Some(metadata) = node.and_then(|node| node.body.get("metadata")) {
                shown["response"]["metadata"] = metadata.clone();
            }
        }
        Some(Outcome::QueuedResource(snapshot)) => {
            shown["response"] = with_type(snapshot, "QueuedResource");
            let queued = world.queued_resources.get(&operation.target);
            let specs = shown["response"]["tpu"]["nodeSpec"].as_array_mut().into_iter().flatten();
            for (spec, given) in specs.zip(queued.map(|queued| &queued.node_specs).into_iter().flatten()) {
                spec["node"] = json!(given.node);
            }
        }
        Some(Outcome::Empty) => shown["response"] = json!({"@type": "type.googleapis.com/google.protobuf.Empty"}),
    }
    shown
}
