//! From method and path to an RPC of the Cloud TPU API.

use http::Method;

use crate::model::Location;

/// Which RPC is called on what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    /// RPC name.
    pub(super) rpc: &'static str,
    /// `v2` or `v2alpha1`; `v1` and `v1alpha1` for some that only read.
    pub(super) version: &'static str,
    /// Project, and zone: `-` for all zones, empty for calls above zones.
    pub(super) location: Location,
    /// The last segment of the resource, for calls on one.
    pub(super) id: String,
}

/// Every RPC there is.
pub(super) const RPCS: [&str; 27] = [
    "CreateNode",
    "GetNode",
    "ListNodes",
    "DeleteNode",
    "UpdateNode",
    "StopNode",
    "StartNode",
    "GetGuestAttributes",
    "SimulateMaintenanceEvent",
    "PerformMaintenance",
    "CreateQueuedResource",
    "GetQueuedResource",
    "ListQueuedResources",
    "DeleteQueuedResource",
    "ResetQueuedResource",
    "GetOperation",
    "ListOperations",
    "DeleteOperation",
    "CancelOperation",
    "GetAcceleratorType",
    "ListAcceleratorTypes",
    "GetRuntimeVersion",
    "ListRuntimeVersions",
    "GetLocation",
    "ListLocations",
    "ListReservations",
    "GenerateServiceIdentity",
];

/// What of version 1 is answered: gcloud's commands outside of `tpu-vm` and `queued-resources` ask for it.
const RPCS_OF_V1: [&str; 6] =
    ["ListLocations", "GetLocation", "ListAcceleratorTypes", "GetAcceleratorType", "ListNodes", "GetNode"];

/// The RPC of a request; `None` where the API has no method.
pub(super) fn route(method: &Method, path: &str) -> Option<Route> {
    // Clients encode some of the characters of names.
    let path = percent_encoding::percent_decode_str(path).decode_utf8().ok()?;
    let mut parts = path.trim_matches('/').split('/');
    let version = match parts.next()? {
        "v2" => "v2",
        "v2alpha1" => "v2alpha1",
        "v1" => "v1",
        "v1alpha1" => "v1alpha1",
        _ => return None,
    };
    let rest: Vec<&str> = parts.collect();
    let (last, verb) = match rest.last()?.split_once(':') {
        Some((last, verb)) => (last, Some(verb)),
        None => (*rest.last()?, None),
    };
    let mut rest = rest;
    *rest.last_mut()? = last;
    let is_alpha = version == "v2alpha1";
    let (project, zone, rpc, id) = match rest.as_slice() {
        ["projects", project, "locations"] => (*project, "", above(method, verb)?, ""),
        ["projects", project, "locations", zone] => (*project, *zone, on_zone(method, verb)?, *zone),
        ["projects", project, "locations", zone, collection] => {
            (*project, *zone, on_collection(method, verb, collection, is_alpha)?, "")
        }
        ["projects", project, "locations", zone, collection, id] => {
            (*project, *zone, on_resource(method, verb, collection, is_alpha)?, *id)
        }
        _ => return None,
    };
    if version.starts_with("v1") && !RPCS_OF_V1.contains(&rpc) {
        return None;
    }
    let location = Location { project: project.to_owned(), zone: zone.to_owned() };
    Some(Route { rpc, version, location, id: id.to_owned() })
}

fn above(method: &Method, verb: Option<&str>) -> Option<&'static str> {
    (method == Method::GET && verb.is_none()).then_some("ListLocations")
}

fn on_zone(method: &Method, verb: Option<&str>) -> Option<&'static str> {
    match (method.as_str(), verb) {
        ("GET", None) => Some("GetLocation"),
        ("POST", Some("generateServiceIdentity")) => Some("GenerateServiceIdentity"),
        _ => None,
    }
}

fn on_collection(method: &Method, verb: Option<&str>, collection: &str, is_alpha: bool) -> Option<&'static str> {
    match (method.as_str(), verb, collection) {
        ("GET", None, "nodes") => Some("ListNodes"),
        ("POST", None, "nodes") => Some("CreateNode"),
        ("GET", None, "queuedResources") => Some("ListQueuedResources"),
        ("POST", None, "queuedResources") => Some("CreateQueuedResource"),
        ("GET", None, "operations") => Some("ListOperations"),
        ("GET", None, "acceleratorTypes") => Some("ListAcceleratorTypes"),
        ("GET", None, "runtimeVersions") => Some("ListRuntimeVersions"),
        ("GET", None, "reservations") if is_alpha => Some("ListReservations"),
        _ => None,
    }
}

fn on_resource(method: &Method, verb: Option<&str>, collection: &str, is_alpha: bool) -> Option<&'static str> {
    match (method.as_str(), verb, collection) {
        ("GET", None, "nodes") => Some("GetNode"),
        ("DELETE", None, "nodes") => Some("DeleteNode"),
        ("PATCH", None, "nodes") => Some("UpdateNode"),
        ("POST", Some("stop"), "nodes") => Some("StopNode"),
        ("POST", Some("start"), "nodes") => Some("StartNode"),
        ("POST", Some("getGuestAttributes"), "nodes") => Some("GetGuestAttributes"),
        ("POST", Some("simulateMaintenanceEvent"), "nodes") if is_alpha => Some("SimulateMaintenanceEvent"),
        ("POST", Some("performMaintenance"), "nodes") if is_alpha => Some("PerformMaintenance"),
        ("GET", None, "queuedResources") => Some("GetQueuedResource"),
        ("DELETE", None, "queuedResources") => Some("DeleteQueuedResource"),
        ("POST", Some("reset"), "queuedResources") => Some("ResetQueuedResource"),
        ("GET", None, "operations") => Some("GetOperation"),
        ("DELETE", None, "operations") => Some("DeleteOperation"),
        ("POST", Some("cancel"), "operations") => Some("CancelOperation"),
        ("GET", None, "acceleratorTypes") => Some("GetAcceleratorType"),
        ("GET", None, "runtimeVersions") => Some("GetRuntimeVersion"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_their_methods() {
        let rpc =
            |method: Method, path: &str| route(&method, path).map(|route| (route.rpc, route.location.zone, route.id));
        let found = |rpc: &'static str, zone: &str, id: &str| Some((rpc, zone.to_owned(), id.to_owned()));
        let nodes = "/v2/projects/p/locations/us-central2-b/nodes";
        assert_eq!(rpc(Method::GET, nodes), found("ListNodes", "us-central2-b", ""));
        assert_eq!(rpc(Method::GET, "/v2/projects/p/locations/-/nodes"), found("ListNodes", "-", ""));
        assert_eq!(rpc(Method::POST, &format!("{nodes}/n1:stop")), found("StopNode", "us-central2-b", "n1"));
        assert_eq!(rpc(Method::POST, &format!("{nodes}/n1%3Astop")), found("StopNode", "us-central2-b", "n1"));
        assert_eq!(rpc(Method::GET, "/v2/projects/p/locations"), found("ListLocations", "", ""));
        assert_eq!(rpc(Method::PUT, nodes), None);
        assert_eq!(rpc(Method::GET, "/v3/projects/p/locations"), None);
        assert_eq!(rpc(Method::GET, "/v1/projects/p/locations"), found("ListLocations", "", ""));
        assert_eq!(rpc(Method::GET, "/v1/projects/p/locations/z/nodes"), found("ListNodes", "z", ""));
        assert_eq!(rpc(Method::POST, "/v1/projects/p/locations/z/nodes"), None, "version 1 only reads");
        assert_eq!(rpc(Method::GET, "/v1/projects/p/locations/z/queuedResources"), None);
        assert_eq!(rpc(Method::GET, "/v2/projects/p/locations/z/reservations"), None);
        assert_eq!(
            rpc(Method::GET, "/v2alpha1/projects/p/locations/z/reservations"),
            found("ListReservations", "z", "")
        );
    }

    #[test]
    fn every_method_has_a_path_and_is_named() {
        let kinds = ["nodes", "queuedResources", "operations", "acceleratorTypes", "runtimeVersions", "reservations"];
        let verbs = [
            "",
            ":stop",
            ":start",
            ":getGuestAttributes",
            ":simulateMaintenanceEvent",
            ":performMaintenance",
            ":reset",
            ":cancel",
            ":generateServiceIdentity",
        ];
        let mut paths = vec![String::new(), "/z".to_owned()];
        paths.extend(kinds.iter().flat_map(|kind| [format!("/z/{kind}"), format!("/z/{kind}/x")]));
        let mut found = std::collections::BTreeSet::new();
        for path in paths {
            for verb in verbs {
                let path = format!("/v2alpha1/projects/p/locations{path}{verb}");
                let methods = [Method::GET, Method::POST, Method::DELETE, Method::PATCH];
                found.extend(methods.iter().filter_map(|method| route(method, &path)).map(|route| route.rpc));
            }
        }
        assert_eq!(found, RPCS.into_iter().collect());
    }
}
