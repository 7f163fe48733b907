//! The Cloud TPU API.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse, Response};
use rekindle_core::catalog;
use serde_json::{Map, Value, json};

use super::lists;
use super::log::{Arrival, Entry};
use super::route::{Route, route};
use crate::model::{Location, When};
use crate::shared::Shared;
use crate::wire::errors::ApiError;
use crate::wire::{enums, render};
use crate::world::{Call, MaintenanceOrder};

/// Most bytes of a body: metadata may have 512 KiB.
const BODY_MAX: usize = 4 * 1024 * 1024;

/// The query of a call.
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn of(request: &Request) -> Self {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(request.uri());
        Self(pairs.map(|pairs| pairs.0).unwrap_or_default())
    }

    /// A parameter by name.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A boolean, in any capitals: gcloud writes `True`.
    fn flag(&self, key: &str) -> bool {
        self.get(key).is_some_and(|text| text.eq_ignore_ascii_case("true") || text == "1")
    }

    fn wants_numbers(&self) -> bool {
        self.get("$alt").or_else(|| self.get("alt")).is_some_and(|alt| alt.contains("enum-encoding=int"))
    }
}

/// Answers any call, and writes it down.
pub(super) async fn handle(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let arrival = Arrival::now();
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let entry = entry("", &method, &uri, request.headers());
    let (rpc, faulted, response) = match route(&method, uri.path()) {
        Some(route) => {
            let rpc = route.rpc;
            let (faulted, response) = call(&shared, route, request).await;
            (rpc, faulted, response)
        }
        None => ("", false, ApiError::no_such_method(uri.path()).into_response()),
    };
    let entry = Entry { method: rpc.to_owned(), status: response.status().as_u16(), faulted, ..entry };
    shared.log.write(&arrival, entry);
    response
}

/// A call of this RPC that is answered with 200.
pub(super) fn entry(rpc: &str, method: &Method, uri: &Uri, headers: &HeaderMap) -> Entry {
    Entry {
        seq: 0,
        method: rpc.to_owned(),
        http_method: method.to_string(),
        path: uri.path().to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        at: jiff::Timestamp::UNIX_EPOCH,
        at_ms: 0.0,
        status: 200,
        duration_ms: 0.0,
        faulted: false,
        user_agent: headers.get("user-agent").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned(),
    }
}

/// One call with the faults that hit it, and whether one did.
async fn call(shared: &Arc<Shared>, route: Route, request: Request) -> (bool, Response) {
    let parameters = Parameters::of(&request);
    let call = Call {
        method: route.rpc.to_owned(),
        api_version: route.version.to_owned(),
        location: route.location.clone(),
        request_id: request_id(&route, &parameters),
    };
    let has_faults = shared.read(|world| !world.faults.is_empty());
    let fault = |when: When| if has_faults { shared.change(|world, _| world.fault(&call, when)) } else { None };
    if let Some((error, delay)) = fault(When::Before) {
        tokio::time::sleep(shared.scaled(delay.unwrap_or_default())).await;
        return (true, error.into_response());
    }
    let answer = match body(request.into_body()).await {
        Ok(body) => perform(shared, &route, &call, &parameters, &body),
        Err(error) => Err(error),
    };
    if let Some((error, delay)) = fault(When::After) {
        tokio::time::sleep(shared.scaled(delay.unwrap_or_default())).await;
        return (true, error.into_response());
    }
    let response = match answer {
        Ok(mut value) => {
            if parameters.wants_numbers() {
                number_enums(route.rpc, &mut value);
            }
            Json(value).into_response()
        }
        Err(error) => error.into_response(),
    };
    (false, response)
}

/// `requestId`, for the methods that have it: queued resources in both versions, nodes in v2alpha1 only.
fn request_id(route: &Route, parameters: &Parameters) -> Option<String> {
    let has_it = match route.rpc {
        "CreateQueuedResource" | "DeleteQueuedResource" => true,
        "CreateNode" | "DeleteNode" => route.version == "v2alpha1",
        _ => false,
    };
    parameters.get("requestId").filter(|_| has_it).map(str::to_owned)
}

async fn body(body: Body) -> Result<Map<String, Value>, ApiError> {
    let bytes =
        to_bytes(body, BODY_MAX).await.map_err(|_| ApiError::invalid("Request payload size exceeds the limit."))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| ApiError::invalid(&format!("Invalid JSON payload received. {error}")))
}

/// Whether a zone can be called at all.
fn check_zone(shared: &Arc<Shared>, route: &Route) -> Result<(), ApiError> {
    let zone = &route.location.zone;
    let is_list = route.rpc.starts_with("List");
    if zone.is_empty() || (zone == "-" && is_list) {
        return Ok(());
    }
    if !catalog::zones().contains(&zone.as_str()) {
        return Err(shared.change(|world, _| ApiError::zone_unsupported(zone, &world.event_id())));
    }
    let settings = shared.read(|world| world.zone(zone));
    if settings.denied == Some(true) {
        return Err(ApiError::location_denied(&route.location));
    }
    if settings.unreachable == Some(true) {
        return Err(ApiError::unavailable("The service is currently unavailable."));
    }
    Ok(())
}

fn perform(
    shared: &Arc<Shared>,
    route: &Route,
    call: &Call,
    parameters: &Parameters,
    body: &Map<String, Value>,
) -> Result<Value, ApiError> {
    check_zone(shared, route)?;
    match route.rpc {
        "CreateNode" => create_node(shared, call, parameters, body),
        "DeleteNode" => {
            begun(shared, call, |shared| shared.change(|world, moment| world.delete_node(moment, call, &route.id)))
        }
        "StopNode" => {
            begun(shared, call, |shared| shared.change(|world, moment| world.stop_node(moment, call, &route.id)))
        }
        "StartNode" => {
            begun(shared, call, |shared| shared.change(|world, moment| world.start_node(moment, call, &route.id)))
        }
        "UpdateNode" => {
            let mask = parameters.get("updateMask").unwrap_or_default();
            begun(shared, call, |shared| {
                shared.change(|world, moment| world.update_node(moment, call, &route.id, body, mask))
            })
        }
        "CreateQueuedResource" => create_queued(shared, call, parameters, body),
        "DeleteQueuedResource" => {
            let force = parameters.flag("force");
            begun(shared, call, |shared| {
                shared.change(|world, moment| world.delete_queued(moment, call, &route.id, force))
            })
        }
        "ResetQueuedResource" => {
            begun(shared, call, |shared| shared.change(|world, moment| world.reset_queued(moment, call, &route.id)))
        }
        "CancelOperation" => {
            let name = format!("{}/operations/{}", route.location, route.id);
            shared.change(|world, moment| world.cancel_operation(moment, &name))?;
            Ok(json!({}))
        }
        "DeleteOperation" => {
            let name = format!("{}/operations/{}", route.location, route.id);
            let removed = shared.change(|world, _| world.operations.remove(&name));
            removed.map(|_| json!({})).ok_or_else(|| ApiError::not_found(&name))
        }
        "GetGuestAttributes" => guest_attributes(shared, route, body),
        "SimulateMaintenanceEvent" | "PerformMaintenance" => maintain(shared, route, call),
        _ => look(shared, route, parameters),
    }
}

/// A call that begins an operation: answers with it as it is now.
fn begun(
    shared: &Arc<Shared>,
    call: &Call,
    begin: impl FnOnce(&Arc<Shared>) -> Result<String, ApiError>,
) -> Result<Value, ApiError> {
    let name = begin(shared)?;
    shared
        .read(|world| {
            world.operations.get(&name).map(|operation| render::operation(world, operation, &call.api_version))
        })
        .ok_or_else(|| ApiError::not_found(&name))
}

fn create_node(
    shared: &Arc<Shared>,
    call: &Call,
    parameters: &Parameters,
    body: &Map<String, Value>,
) -> Result<Value, ApiError> {
    let id = parameters.get("nodeId").unwrap_or_default().to_owned();
    if let Err(limit) = shared.count_create(&call.location.project) {
        return Err(ApiError::rate(&call.location.project, limit));
    }
    begun(shared, call, |shared| {
        shared.change(|world, moment| {
            let draft = world.draft_node(call, &id, body, None)?;
            world.create_node(moment, call, draft)
        })
    })
}

fn create_queued(
    shared: &Arc<Shared>,
    call: &Call,
    parameters: &Parameters,
    body: &Map<String, Value>,
) -> Result<Value, ApiError> {
    let id = parameters.get("queuedResourceId").unwrap_or_default().to_owned();
    begun(shared, call, |shared| {
        shared.change(|world, moment| {
            let draft = world.draft_queued(moment, call, &id, body)?;
            world.create_queued(moment, call, draft)
        })
    })
}

/// v2alpha1: the only fault injection that the real service has.
fn maintain(shared: &Arc<Shared>, route: &Route, call: &Call) -> Result<Value, ApiError> {
    let name = route.location.node(&route.id);
    begun(shared, call, |shared| {
        shared.change(|world, moment| {
            let key = world.nodes.get(&name).map(crate::model::Node::key).ok_or_else(|| ApiError::not_found(&name))?;
            world.maintenance(moment, &key, &MaintenanceOrder::default())?;
            let operation = world.begin(moment, call, "update", &name);
            let node = render::snapshot(&world.nodes[&name]);
            world.end(moment, &operation, crate::model::Outcome::Node(node));
            Ok(operation)
        })
    })
}

/// The guest attributes of some or all workers: the host name, and what the VM wrote.
fn guest_attributes(shared: &Arc<Shared>, route: &Route, body: &Map<String, Value>) -> Result<Value, ApiError> {
    let name = route.location.node(&route.id);
    let node = shared.read(|world| world.nodes.get(&name).cloned()).ok_or_else(|| ApiError::not_found(&name))?;
    let ids = body.get("workerIds").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    // gcloud asks for all of them by one that is empty.
    let wanted: Vec<&str> = ids.filter(|id| !id.is_empty()).collect();
    let path = body.get("queryPath").and_then(Value::as_str).unwrap_or_default();
    let mut answers = Vec::new();
    for worker in &node.workers {
        if !wanted.is_empty() && !wanted.contains(&worker.index.to_string().as_str()) {
            continue;
        }
        let vm = crate::fleet::vm_of(&node, worker.index);
        let mut items = vec![("guestInventory".to_owned(), "hostname".to_owned(), json!(vm.name))];
        let written = shared.fleet.machine().guest_attributes(&vm).unwrap_or_default();
        for (namespace, values) in written.as_object().into_iter().flatten() {
            let values = values.as_object().into_iter().flatten();
            items.extend(values.map(|(key, value)| (namespace.clone(), key.clone(), value.clone())));
        }
        items.retain(|(namespace, key, _)| {
            path.is_empty() || path.trim_end_matches('/') == namespace || path == format!("{namespace}/{key}")
        });
        let item = |(namespace, key, value)| json!({"namespace": namespace, "key": key, "value": value});
        let items: Vec<Value> = items.into_iter().map(item).collect();
        answers.push(json!({"queryPath": path, "queryValue": {"items": items}}));
    }
    Ok(json!({"guestAttributes": answers}))
}

/// Calls that only look.
fn look(shared: &Arc<Shared>, route: &Route, parameters: &Parameters) -> Result<Value, ApiError> {
    let (location, id) = (&route.location, &route.id);
    shared.read(|world| match route.rpc {
        "GetNode" => {
            let name = location.node(id);
            world.nodes.get(&name).map(render::node).ok_or_else(|| ApiError::not_found(&name))
        }
        "GetQueuedResource" => {
            let name = location.queued_resource(id);
            let shows_accepted = world.zone(&location.zone).show_accepted == Some(true);
            let found = world.queued_resources.get(&name);
            found
                .map(|queued| render::queued(queued, route.version, shows_accepted))
                .ok_or_else(|| ApiError::not_found(&name))
        }
        "GetOperation" => {
            let name = format!("{location}/operations/{id}");
            let found = world.operations.get(&name);
            found
                .map(|operation| render::operation(world, operation, route.version))
                .ok_or_else(|| ApiError::not_found(&name))
        }
        "ListNodes" => {
            let (zones, silent) = lists::zones(world, location);
            let here = |at: &Location| at.project == location.project && zones.contains(&at.zone);
            let nodes = world.nodes.values().filter(|node| here(&node.location));
            lists::page(
                "nodes",
                nodes.map(|node| (node.name.clone(), render::node(node))).collect(),
                &silent,
                parameters,
            )
        }
        "ListQueuedResources" => {
            let (zones, silent) = lists::zones(world, location);
            let here = |at: &Location| at.project == location.project && zones.contains(&at.zone);
            let shown = world.queued_resources.values().filter(|queued| here(&queued.location)).map(|queued| {
                let shows_accepted = world.zone(&queued.location.zone).show_accepted == Some(true);
                (queued.name.clone(), render::queued(queued, route.version, shows_accepted))
            });
            lists::page("queuedResources", shown.collect(), &silent, parameters)
        }
        "ListOperations" => {
            let (zones, _) = lists::zones(world, location);
            let prefixes: Vec<String> =
                zones.iter().map(|zone| format!("projects/{}/locations/{zone}/", location.project)).collect();
            let here = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
            let shown = world.operations.values().filter(|operation| here(&operation.name));
            let shown =
                shown.map(|operation| (operation.name.clone(), render::operation(world, operation, route.version)));
            lists::page("operations", shown.collect(), &[], parameters)
        }
        _ => look_up_catalogue(world, route, parameters),
    })
}

fn look_up_catalogue(world: &crate::model::World, route: &Route, parameters: &Parameters) -> Result<Value, ApiError> {
    let (location, id) = (&route.location, &route.id);
    let here = |zone: &str| Location { project: location.project.clone(), zone: zone.to_owned() };
    match route.rpc {
        "ListLocations" => {
            let zones = catalog::zones().into_iter().filter(|zone| world.zone(zone).denied != Some(true));
            let shown = zones.map(|zone| (zone.to_owned(), lists::location(&location.project, zone)));
            lists::page("locations", shown.collect(), &[], parameters)
        }
        "GetLocation" => Ok(lists::location(&location.project, &location.zone)),
        "GenerateServiceIdentity" => {
            let number = crate::world::project_number(&location.project);
            let email = format!("service-{number}@gcp-sa-tpu.iam.gserviceaccount.com");
            Ok(json!({"identity": {"email": email}}))
        }
        "ListAcceleratorTypes" => {
            let (zones, silent) = lists::zones(world, location);
            let mut shown = Vec::new();
            for zone in &zones {
                let rows = catalog::accelerators_in(zone).into_iter();
                shown.extend(rows.map(|row| lists::accelerator(&here(zone), row, route.version)));
            }
            let named = shown.into_iter().map(|value| (value["name"].as_str().unwrap_or_default().to_owned(), value));
            lists::page("acceleratorTypes", named.collect(), &silent, parameters)
        }
        "GetAcceleratorType" => {
            let row = catalog::accelerator(id).filter(|row| catalog::is_offered(&row.name, &location.zone));
            row.map(|row| lists::accelerator(location, row, route.version))
                .ok_or_else(|| ApiError::not_found(&format!("{location}/acceleratorTypes/{id}")))
        }
        "ListRuntimeVersions" => {
            let (zones, silent) = lists::zones(world, location);
            let versions = catalog::runtime_versions();
            let all = zones.iter().flat_map(|zone| versions.iter().map(|version| lists::runtime(&here(zone), version)));
            let named = all.map(|value| (value["name"].as_str().unwrap_or_default().to_owned(), value));
            lists::page("runtimeVersions", named.collect(), &silent, parameters)
        }
        "GetRuntimeVersion" if catalog::runtime_exists(id) => Ok(lists::runtime(location, id)),
        "ListReservations" => Ok(json!({})),
        _ => Err(ApiError::not_found(&format!("{location}/{id}"))),
    }
}

/// Replaces the enums of an answer by their numbers.
fn number_enums(rpc: &str, value: &mut Value) {
    let each = |value: &mut Value, field: &str, replace: fn(&mut Value)| {
        value.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten().for_each(replace);
    };
    match rpc {
        "GetNode" => enums::node(value),
        "ListNodes" => each(value, "nodes", enums::node),
        "GetQueuedResource" => enums::queued(value),
        "ListQueuedResources" => each(value, "queuedResources", enums::queued),
        "ListOperations" => each(value, "operations", enums::operation),
        "GetAcceleratorType" => enums::accelerator(value),
        "ListAcceleratorTypes" => each(value, "acceleratorTypes", enums::accelerator),
        _ => enums::operation(value),
    }
}
