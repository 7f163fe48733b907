//! Lists: pages, and `locations/-` with the zones that did not answer.

use base64::Engine as _;
use rekindle_core::catalog;
use serde_json::{Map, Value, json};

use super::api::Parameters;
use crate::model::{Location, World};
use crate::wire::errors::ApiError;

/// Most entries of one page.
const PAGE_MAX: usize = 1000;

const TOKENS: base64::engine::GeneralPurpose = base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The zones a list covers, and the names of those that do not answer.
pub(super) fn zones(world: &World, location: &Location) -> (Vec<String>, Vec<String>) {
    if location.zone != "-" {
        return (vec![location.zone.clone()], Vec::new());
    }
    let mut answering = Vec::new();
    let mut silent = Vec::new();
    for zone in catalog::zones() {
        let settings = world.zone(zone);
        if settings.unreachable == Some(true) {
            silent.push(format!("projects/{}/locations/{zone}", location.project));
        } else if settings.denied != Some(true) {
            answering.push(zone.to_owned());
        }
    }
    (answering, silent)
}

/// One page of a list, sorted by name. `field` is its name in the answer.
pub(super) fn page(
    field: &str,
    mut items: Vec<(String, Value)>,
    unreachable: &[String],
    parameters: &Parameters,
) -> Result<Value, ApiError> {
    let size = match parameters.get("pageSize").unwrap_or("0").parse::<i64>() {
        Ok(size) if size >= 0 => size as usize,
        _ => return Err(ApiError::invalid("pageSize must not be negative")),
    };
    let size = if size == 0 { PAGE_MAX } else { size.min(PAGE_MAX) };
    items.sort_by(|one, other| one.0.cmp(&other.0));
    if let Some(token) = parameters.get("pageToken").filter(|token| !token.is_empty()) {
        let last = TOKENS.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let last = last.ok_or_else(|| ApiError::invalid("pageToken is not valid"))?;
        items.retain(|(name, _)| *name > last);
    }
    let has_more = items.len() > size;
    items.truncate(size);
    let next = items.last().filter(|_| has_more).map(|(name, _)| TOKENS.encode(name));
    let mut answer = Map::new();
    let values: Vec<Value> = items.into_iter().map(|(_, value)| value).collect();
    if !values.is_empty() {
        answer.insert(field.to_owned(), json!(values));
    }
    if let Some(next) = next {
        answer.insert("nextPageToken".to_owned(), json!(next));
    }
    if !unreachable.is_empty() {
        answer.insert("unreachable".to_owned(), json!(unreachable));
    }
    Ok(Value::Object(answer))
}

/// A location.
pub(super) fn location(project: &str, zone: &str) -> Value {
    json!({
        "name": format!("projects/{project}/locations/{zone}"),
        "locationId": zone,
        "labels": {"cloud.googleapis.com/region": catalog::region_of(zone)},
    })
}

/// An accelerator type of a zone. Version 1 knows no topologies.
pub(super) fn accelerator(location: &Location, row: &catalog::Accelerator, version: &str) -> Value {
    let mut shown = json!({"name": format!("{location}/acceleratorTypes/{}", row.name), "type": row.name});
    if version.starts_with("v2") {
        shown["acceleratorConfigs"] = json!([{"type": row.api_type, "topology": row.topology}]);
    }
    shown
}

/// A runtime version of a zone.
pub(super) fn runtime(location: &Location, version: &str) -> Value {
    json!({"name": format!("{location}/runtimeVersions/{version}"), "version": version})
}
