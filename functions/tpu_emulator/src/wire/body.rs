//! Bodies that callers send: checked field by field, and brought into the form that reads give back.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::errors::ApiError;
use crate::world::{Moment, project_number};

/// Which version of the API a call came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// `/v2/`.
    V2,
    /// `/v2alpha1/`.
    V2Alpha1,
}

impl Version {
    /// From the first segment of the path.
    pub(crate) fn of(segment: &str) -> Self {
        if segment == "v2alpha1" { Self::V2Alpha1 } else { Self::V2 }
    }
}

const NODE_FIELDS: &[&str] = &[
    "name",
    "description",
    "acceleratorType",
    "acceleratorConfig",
    "state",
    "health",
    "healthDescription",
    "runtimeVersion",
    "networkConfig",
    "networkConfigs",
    "cidrBlock",
    "serviceAccount",
    "createTime",
    "schedulingConfig",
    "networkEndpoints",
    "labels",
    "metadata",
    "tags",
    "id",
    "dataDisks",
    "apiVersion",
    "symptoms",
    "shieldedInstanceConfig",
    "queuedResource",
    "multisliceNode",
    "upcomingMaintenance",
];

const NODE_FIELDS_ALPHA: &[&str] = &["autocheckpointEnabled", "bootDiskConfig"];

const OUTPUT_ONLY: &[&str] = &[
    "name",
    "state",
    "healthDescription",
    "createTime",
    "networkEndpoints",
    "id",
    "apiVersion",
    "symptoms",
    "queuedResource",
    "multisliceNode",
    "upcomingMaintenance",
    "health",
];

const QUEUED_FIELDS: &[&str] =
    &["name", "createTime", "tpu", "spot", "guaranteed", "queueingPolicy", "state", "reservationName"];

const QUEUED_FIELDS_ALPHA: &[&str] = &["bestEffort", "provisioningModel", "runDuration", "trafficConfig"];

const SPEC_FIELDS: &[&str] = &["parent", "node", "nodeId", "multisliceParams"];

const SPEC_FIELDS_ALPHA: &[&str] = &["multiNodeParams"];

/// Most bytes of one metadata value; the limit of Compute Engine.
const METADATA_VALUE_MAX: usize = 262_144;

/// Most bytes of all metadata.
const METADATA_MAX: usize = 512 * 1024;

/// Refuses an id outside the documented pattern.
pub(crate) fn check_id(field: &str, id: &str) -> Result<(), ApiError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.~+%-".contains(&byte);
    if !id.is_empty() && id.len() <= 128 && id.bytes().all(is_allowed) {
        return Ok(());
    }
    Err(ApiError::invalid(&format!("{field} {id:?} does not match ^[A-Za-z0-9_.~+%-]+$")))
}

fn check_fields(
    given: &Map<String, Value>,
    at: &str,
    known: &[&str],
    alpha: &[&str],
    version: Version,
) -> Result<(), ApiError> {
    for key in given.keys() {
        let is_known = known.contains(&key.as_str()) || (version == Version::V2Alpha1 && alpha.contains(&key.as_str()));
        if !is_known {
            let text = format!("Invalid JSON payload received. Unknown name \"{key}\" at '{at}': Cannot find field.");
            return Err(ApiError::invalid(&text));
        }
    }
    Ok(())
}

/// The body of a node, normalised.
pub(crate) fn node(
    given: &Map<String, Value>,
    project: &str,
    zone: &str,
    version: Version,
) -> Result<Map<String, Value>, ApiError> {
    check_fields(given, "node", NODE_FIELDS, NODE_FIELDS_ALPHA, version)?;
    let mut body: Map<String, Value> = given.clone();
    body.retain(|key, value| !value.is_null() && !OUTPUT_ONLY.contains(&key.as_str()));
    if body.contains_key("acceleratorType") && body.contains_key("acceleratorConfig") {
        return Err(ApiError::invalid("acceleratorType and acceleratorConfig exclude each other"));
    }
    if body.contains_key("networkConfig") && body.contains_key("networkConfigs") {
        return Err(ApiError::invalid("networkConfig and networkConfigs exclude each other"));
    }
    if body.get("runtimeVersion").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(ApiError::invalid("runtimeVersion is required"));
    }
    check_labels(body.get("labels"))?;
    check_metadata(body.get("metadata"))?;
    if !body.contains_key("networkConfigs") {
        let network = network_config(body.get("networkConfig"), project, zone);
        body.insert("networkConfig".to_owned(), network);
    }
    body.insert("serviceAccount".to_owned(), service_account(body.get("serviceAccount"), project));
    let scheduling = body.remove("schedulingConfig").unwrap_or_else(|| json!({}));
    let is_set = |value: &Value| value != &Value::Bool(false) && !value.is_null();
    let scheduling: Map<String, Value> = scheduling
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, value)| is_set(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    body.insert("schedulingConfig".to_owned(), Value::Object(scheduling));
    body.insert("shieldedInstanceConfig".to_owned(), json!({}));
    Ok(body)
}

fn network_config(given: Option<&Value>, project: &str, zone: &str) -> Value {
    let text =
        |key: &str| given.and_then(|config| config.get(key)).and_then(Value::as_str).filter(|text| !text.is_empty());
    let full = |name: &str, kind: &str| {
        if name.contains('/') { name.to_owned() } else { format!("projects/{project}/{kind}/{name}") }
    };
    let region = rekindle_core::catalog::region_of(zone);
    let network = text("network").unwrap_or("default");
    let subnetwork = text("subnetwork").unwrap_or("default");
    let mut config = json!({
        "network": full(network, "global/networks"),
        "subnetwork": full(subnetwork, &format!("regions/{region}/subnetworks")),
    });
    for key in ["enableExternalIps", "canIpForward", "queueCount"] {
        let value = given.and_then(|config| config.get(key)).filter(|value| **value != json!(false));
        if let Some(value) = value {
            config[key] = value.clone();
        }
    }
    config
}

/// The service account, with the default one filled in.
fn service_account(given: Option<&Value>, project: &str) -> Value {
    let email = given.and_then(|account| account.get("email")).and_then(Value::as_str).unwrap_or_default();
    let default = format!("{}-compute@developer.gserviceaccount.com", project_number(project));
    let scopes = given
        .and_then(|account| account.get("scope"))
        .filter(|scope| scope.as_array().is_some_and(|list| !list.is_empty()));
    json!({
        "email": if email.is_empty() { default.as_str() } else { email },
        "scope": scopes.cloned().unwrap_or_else(|| json!(["https://www.googleapis.com/auth/cloud-platform"])),
    })
}

/// Whether a body asks for spot or preemptible capacity.
pub(crate) fn is_spot(body: &Map<String, Value>) -> bool {
    let Some(scheduling) = body.get("schedulingConfig") else { return false };
    let flag = |key: &str| scheduling.get(key).and_then(Value::as_bool) == Some(true);
    flag("spot") || flag("preemptible") || scheduling.get("provisioningModel") == Some(&json!("SPOT"))
}

/// Whether a body asks for reserved capacity.
pub(crate) fn is_reserved(body: &Map<String, Value>) -> bool {
    body.get("schedulingConfig").is_some_and(|scheduling| scheduling["reserved"] == Value::Bool(true))
}

fn check_labels(labels: Option<&Value>) -> Result<(), ApiError> {
    let is_word = |text: &str| {
        text.len() <= 63
            && text
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-')
    };
    for (key, value) in labels.and_then(Value::as_object).into_iter().flatten() {
        let starts_right = key.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
        let value = value.as_str().unwrap_or("\0");
        if !starts_right || !is_word(key) || !is_word(value) {
            return Err(ApiError::invalid(&format!("label {key:?}: {value:?} is not allowed")));
        }
    }
    Ok(())
}

fn check_metadata(metadata: Option<&Value>) -> Result<(), ApiError> {
    let mut total = 0;
    for (key, value) in metadata.and_then(Value::as_object).into_iter().flatten() {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let Some(text) = value.as_str() else {
            return Err(ApiError::invalid(&format!("metadata {key:?} is not a string")));
        };
        if key.is_empty() || key.len() >= 128 || !key.bytes().all(is_allowed) {
            return Err(ApiError::invalid(&format!("metadata key {key:?} does not match [a-zA-Z0-9-_]{{1,127}}")));
        }
        if text.len() > METADATA_VALUE_MAX {
            return Err(ApiError::invalid(&format!("metadata {key:?} has more than {METADATA_VALUE_MAX} bytes")));
        }
        total += key.len() + text.len();
    }
    if total > METADATA_MAX {
        return Err(ApiError::invalid(&format!("metadata has more than {METADATA_MAX} bytes")));
    }
    Ok(())
}

/// The part of a patch that its mask names. `Null` clears a field.
pub(crate) fn patch(given: &Map<String, Value>, mask: &str) -> Result<Map<String, Value>, ApiError> {
    let mut patch = Map::new();
    for path in mask.split(',').map(str::trim).filter(|path| !path.is_empty()) {
        let field = match path {
            "description" | "tags" | "labels" | "metadata" => path,
            "data_disks" | "dataDisks" => "dataDisks",
            "network_config.enable_external_ips" | "networkConfig.enableExternalIps" => {
                let value = given.get("networkConfig").and_then(|config| config.get("enableExternalIps"));
                let value = value.cloned().unwrap_or(json!(false));
                patch.insert("networkConfig".to_owned(), json!({"enableExternalIps": value}));
                continue;
            }
            other => return Err(ApiError::invalid(&format!("updateMask: {other:?} cannot be changed"))),
        };
        patch.insert(field.to_owned(), given.get(field).cloned().unwrap_or(Value::Null));
    }
    if patch.is_empty() {
        return Err(ApiError::invalid("updateMask is required"));
    }
    check_labels(patch.get("labels"))?;
    check_metadata(patch.get("metadata"))?;
    Ok(patch)
}

/// Puts a patch into a body.
pub(crate) fn apply(body: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        if value.is_null() {
            body.remove(&key);
        } else if key == "networkConfig" {
            if let Some(config) = body.get_mut("networkConfig") {
                config["enableExternalIps"] = value["enableExternalIps"].clone();
            }
        } else {
            body.insert(key, value);
        }
    }
}

/// One `nodeSpec` as given.
#[derive(Debug, Clone)]
pub(crate) struct SpecInput {
    /// `parent`.
    pub parent: String,
    /// `node`.
    pub node: Map<String, Value>,
    node_id: Option<String>,
    multislice: Option<(u64, Option<String>)>,
}

impl SpecInput {
    /// The names of its nodes: `nodeId`, or `<prefix>-0 …` with the prefix defaulting to the queued resource's id.
    pub(crate) fn node_ids(&self, queued_id: &str) -> Result<Vec<String>, ApiError> {
        match (&self.node_id, &self.multislice) {
            (Some(_), Some(_)) => Err(ApiError::invalid("nodeId and multisliceParams exclude each other")),
            (Some(id), None) => Ok(vec![id.clone()]),
            (None, Some((count, prefix))) if *count > 1 => {
                let prefix = prefix.as_deref().filter(|prefix| !prefix.is_empty()).unwrap_or(queued_id);
                Ok((0..*count).map(|index| format!("{prefix}-{index}")).collect())
            }
            (None, Some(_)) => Err(ApiError::invalid("multisliceParams.nodeCount must be greater than 1")),
            (None, None) => Err(ApiError::invalid("a nodeSpec needs nodeId or multisliceParams")),
        }
    }
}

/// The body of a queued resource: its node specs, and the rest (tier, policy, reservation).
pub(crate) fn queued(
    given: &Map<String, Value>,
    version: Version,
) -> Result<(Vec<SpecInput>, Map<String, Value>), ApiError> {
    check_fields(given, "queued_resource", QUEUED_FIELDS, QUEUED_FIELDS_ALPHA, version)?;
    let mut rest: Map<String, Value> = given.clone();
    rest.retain(|key, value| !value.is_null() && !["name", "createTime", "state"].contains(&key.as_str()));
    if rest.contains_key("spot") && rest.contains_key("guaranteed") {
        return Err(ApiError::invalid("spot and guaranteed exclude each other"));
    }
    let tpu = rest.remove("tpu").unwrap_or_default();
    let mut specs = Vec::new();
    for spec in tpu.get("nodeSpec").and_then(Value::as_array).into_iter().flatten() {
        let spec = spec.as_object().ok_or_else(|| ApiError::invalid("nodeSpec holds objects"))?;
        check_fields(spec, "queued_resource.tpu.node_spec[]", SPEC_FIELDS, SPEC_FIELDS_ALPHA, version)?;
        let multi =
            spec.get("multisliceParams").or_else(|| spec.get("multiNodeParams")).filter(|value| !value.is_null());
        let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0);
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        specs.push(SpecInput {
            parent: text(spec.get("parent")).unwrap_or_default(),
            node: spec.get("node").and_then(Value::as_object).cloned().unwrap_or_default(),
            node_id: text(spec.get("nodeId")).filter(|id| !id.is_empty()),
            multislice: multi.map(|multi| (number(&multi["nodeCount"]), text(multi.get("nodeIdPrefix")))),
        });
    }
    Ok((specs, rest))
}

/// When a request may be served, and until when: from `queueingPolicy`.
pub(crate) fn validity(
    rest: &Map<String, Value>,
    moment: Moment,
) -> Result<(Option<Timestamp>, Option<Timestamp>), ApiError> {
    let Some(policy) = rest.get("queueingPolicy").and_then(Value::as_object) else { return Ok((None, None)) };
    let at = |value: Option<&Value>| -> Result<Option<Timestamp>, ApiError> {
        let Some(text) = value.and_then(Value::as_str) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| ApiError::invalid(&format!("{text:?} is not a time")))
    };
    let later = |value: Option<&Value>| -> Result<Option<Timestamp>, ApiError> {
        let Some(text) = value.and_then(Value::as_str) else { return Ok(None) };
        let secs = text.strip_suffix('s').and_then(|secs| secs.parse::<f64>().ok());
        let wait = secs.and_then(|secs| SignedDuration::try_from_secs_f64(secs).ok());
        let wait = wait.ok_or_else(|| ApiError::invalid(&format!("{text:?} is not a duration")))?;
        Ok(Some(moment.now + wait))
    };
    let interval = policy.get("validInterval");
    let after = [
        at(policy.get("validAfterTime"))?,
        later(policy.get("validAfterDuration"))?,
        at(interval.and_then(|interval| interval.get("startTime")))?,
    ];
    let until = [
        at(policy.get("validUntilTime"))?,
        later(policy.get("validUntilDuration"))?,
        at(interval.and_then(|interval| interval.get("endTime")))?,
    ];
    Ok((after.into_iter().flatten().next(), until.into_iter().flatten().next()))
}
