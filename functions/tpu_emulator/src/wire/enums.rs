//! Enums of the API by number: replies carry integers when the caller asks with `$alt=json;enum-encoding=int`.

use serde_json::{Value, json};

// Empty names are numbers that the API's own definition leaves out (see the enums of Google's Rust client; the Python
// SDK numbers its own without the holes, and does not speak in numbers).
const NODE_STATES: &[&str] = &[
    "STATE_UNSPECIFIED",
    "CREATING",
    "READY",
    "RESTARTING",
    "REIMAGING",
    "DELETING",
    "REPAIRING",
    "",
    "STOPPED",
    "STOPPING",
    "STARTING",
    "PREEMPTED",
    "TERMINATED",
    "HIDING",
    "HIDDEN",
    "UNHIDING",
    "UNKNOWN",
];

/// `Node.Health`, by number.
pub(crate) const HEALTHS: &[&str] =
    &["HEALTH_UNSPECIFIED", "HEALTHY", "", "TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE"];

const API_VERSIONS: &[&str] = &["API_VERSION_UNSPECIFIED", "V1_ALPHA1", "V1", "V2_ALPHA1", "V2"];

const ACCELERATOR_TYPES: &[&str] =
    &["TYPE_UNSPECIFIED", "", "V2", "", "V3", "", "", "V4", "", "V5LITE_POD", "V5P", "V6E"];

const DISK_MODES: &[&str] = &["DISK_MODE_UNSPECIFIED", "READ_WRITE", "READ_ONLY"];

const SYMPTOMS: &[&str] = &[
    "SYMPTOM_TYPE_UNSPECIFIED",
    "LOW_MEMORY",
    "OUT_OF_MEMORY",
    "EXECUTE_TIMED_OUT",
    "MESH_BUILD_FAIL",
    "HBM_OUT_OF_MEMORY",
    "PROJECT_ABUSE",
];

const MAINTENANCE_TYPES: &[&str] = &["UNKNOWN_TYPE", "SCHEDULED", "UNSCHEDULED"];

const MAINTENANCE_STATES: &[&str] = &["UNKNOWN", "PENDING", "ONGOING"];

const QUEUED_STATES: &[&str] = &[
    "STATE_UNSPECIFIED",
    "CREATING",
    "ACCEPTED",
    "PROVISIONING",
    "FAILED",
    "DELETING",
    "ACTIVE",
    "SUSPENDING",
    "SUSPENDED",
    "WAITING_FOR_RESOURCES",
];

const INITIATORS: &[&str] = &["STATE_INITIATOR_UNSPECIFIED", "USER", "SERVICE"];

/// `AcceleratorConfig.Type` as text, from text or number.
pub(crate) fn accelerator_type(value: &Value) -> Option<String> {
    let by_number = |number: u64| ACCELERATOR_TYPES.get(number as usize).map(|name| (*name).to_owned());
    value.as_str().map(str::to_owned).or_else(|| value.as_u64().and_then(by_number))
}

/// Replaces the enums of a node by their numbers.
pub(crate) fn node(node: &mut Value) {
    replace(node, "state", NODE_STATES);
    replace(node, "health", HEALTHS);
    replace(node, "apiVersion", API_VERSIONS);
    if let Some(config) = node.get_mut("acceleratorConfig") {
        replace(config, "type", ACCELERATOR_TYPES);
    }
    for disk in list(node, "dataDisks") {
        replace(disk, "mode", DISK_MODES);
    }
    for symptom in list(node, "symptoms") {
        replace(symptom, "symptomType", SYMPTOMS);
    }
    if let Some(maintenance) = node.get_mut("upcomingMaintenance") {
        replace(maintenance, "type", MAINTENANCE_TYPES);
        replace(maintenance, "maintenanceStatus", MAINTENANCE_STATES);
    }
}

/// Replaces the enums of a queued resource by their numbers.
pub(crate) fn queued(queued: &mut Value) {
    if let Some(state) = queued.get_mut("state") {
        replace(state, "state", QUEUED_STATES);
        replace(state, "stateInitiator", INITIATORS);
    }
    if let Some(tpu) = queued.get_mut("tpu") {
        for spec in list(tpu, "nodeSpec") {
            if let Some(inner) = spec.get_mut("node") {
                node(inner);
            }
        }
    }
}

/// Replaces the enums in the response of an operation by their numbers.
pub(crate) fn operation(operation: &mut Value) {
    let Some(response) = operation.get_mut("response") else { return };
    let kind = response.get("@type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.ends_with(".Node") {
        node(response);
    } else if kind.ends_with(".QueuedResource") {
        queued(response);
    }
}

/// Replaces the enums of an accelerator type by their numbers.
pub(crate) fn accelerator(accelerator: &mut Value) {
    for config in list(accelerator, "acceleratorConfigs") {
        replace(config, "type", ACCELERATOR_TYPES);
    }
}

fn list<'a>(value: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

fn replace(object: &mut Value, key: &str, names: &[&str]) {
    let Some(field) = object.get_mut(key) else { return };
    let number = field.as_str().and_then(|text| names.iter().position(|name| *name == text && !name.is_empty()));
    if let Some(number) = number {
        *field = json!(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_enum_of_a_node_becomes_its_number() {
        let mut value = json!({"state": "PREEMPTED", "health": "TIMEOUT", "apiVersion": "V2",
            "acceleratorConfig": {"type": "V4", "topology": "2x2x2"},
            "upcomingMaintenance": {"type": "SCHEDULED", "maintenanceStatus": "ONGOING"},
            "symptoms": [{"symptomType": "HBM_OUT_OF_MEMORY"}], "dataDisks": [{"mode": "READ_ONLY"}]});
        node(&mut value);
        let expected = json!({"state": 11, "health": 3, "apiVersion": 4,
            "acceleratorConfig": {"type": 7, "topology": "2x2x2"},
            "upcomingMaintenance": {"type": 1, "maintenanceStatus": 2},
            "symptoms": [{"symptomType": 5}], "dataDisks": [{"mode": 2}]});
        assert_eq!(value, expected);
    }

    #[test]
    fn a_queued_state_has_its_own_numbers() {
        let mut value = json!({"state": {"state": "WAITING_FOR_RESOURCES", "stateInitiator": "SERVICE"}});
        queued(&mut value);
        assert_eq!(value, json!({"state": {"state": 9, "stateInitiator": 2}}));
    }

    /// The client's own idea of every number: it is generated from the definition of the API.
    #[test]
    fn the_numbers_are_those_of_googles_client() {
        use google_cloud_tpu_v2::model;
        fn check(names: &[&str], number: impl Fn(&str) -> Option<i32>) {
            for (index, name) in names.iter().enumerate().filter(|(_, name)| !name.is_empty()) {
                assert_eq!(number(name), Some(index as i32), "{name}");
            }
        }
        check(NODE_STATES, |name| model::node::State::from(name).value());
        check(HEALTHS, |name| model::node::Health::from(name).value());
        check(API_VERSIONS, |name| model::node::ApiVersion::from(name).value());
        check(ACCELERATOR_TYPES, |name| model::accelerator_config::Type::from(name).value());
        check(DISK_MODES, |name| model::attached_disk::DiskMode::from(name).value());
        check(SYMPTOMS, |name| model::symptom::SymptomType::from(name).value());
        check(QUEUED_STATES, |name| model::queued_resource_state::State::from(name).value());
        check(INITIATORS, |name| model::queued_resource_state::StateInitiator::from(name).value());
    }
}
