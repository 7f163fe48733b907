//! The emulator's own paths: what it holds, and what people and tests do to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use http::{Method, StatusCode, Uri};
use rekindle_core::catalog;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::log::Entry;
use super::route::RPCS;
use crate::duration::Span;
use crate::fleet::vm_of;
use crate::model::{Fault, Node, When, World};
use crate::scenario::{ZoneSettings, check_zone};
use crate::shared::Shared;
use crate::vm::{Connection, CutReport};
use crate::wire::enums::HEALTHS;
use crate::wire::errors::ApiError;
use crate::wire::render;
use crate::world::{MaintenanceOrder, PreemptOrder};

type App = State<Arc<Shared>>;
type Asked<T> = Result<Query<T>, QueryRejection>;

/// The emulator's own paths.
const PATHS: [&str; 7] = [
    "GET /emulator/v1/state",
    "GET /emulator/v1/requests",
    "GET /emulator/v1/audit",
    "GET /emulator/v1/jwks",
    "GET, POST, DELETE /emulator/v1/faults",
    "GET, PUT /emulator/v1/zones/{zone}",
    "POST /emulator/v1/nodes/{node}/{action}",
];

/// What can be done to a node.
const ACTIONS: [&str; 8] =
    ["preempt", "host-error", "maintenance", "health", "kill-worker", "reboot-worker", "cut-connections", "freeze"];

/// What a fault may hit beside the methods of the API: the making of the nodes of a queued request.
const PROVISION: &str = "ProvisionQueuedResource";

/// A path below `/emulator/` that leads nowhere.
pub(super) async fn unknown(uri: Uri) -> ApiError {
    ApiError::unknown("path", uri.path(), &PATHS)
}

/// A path with a method that it does not take.
pub(super) async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    ApiError::wrong_method(&format!("{} does not take {method}; there is {}", uri.path(), PATHS.join(", ")))
}

fn asked<T>(query: Asked<T>) -> Result<T, ApiError> {
    query.map(|query| query.0).map_err(|rejection| ApiError::invalid(&rejection.body_text()))
}

/// A body that may be empty, with unknown fields refused by name.
fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, ApiError> {
    let body = body.trim_ascii();
    let body: &[u8] = if body.is_empty() { b"{}" } else { body };
    // A list would be taken for the fields in their order.
    if body.first() != Some(&b'{') {
        return Err(ApiError::invalid("the body must be a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| ApiError::invalid(&format!("the body cannot be used: {error}")))
}

/// `GET /emulator/v1/state`.
pub(super) async fn state(State(shared): App) -> Json<Value> {
    let world = shared.read(World::clone);
    let zones: BTreeMap<&str, Value> =
        catalog::zones().into_iter().map(|zone| (zone, zone_state(&world, zone))).collect();
    let nodes: Vec<Value> = world.nodes.values().map(|node| node_state(&shared, node)).collect();
    let queued: Vec<Value> =
        world.queued_resources.values().map(|queued| render::queued(queued, "v2alpha1", false)).collect();
    let operations: Vec<Value> = world
        .operations
        .values()
        .map(|operation| render::operation(&world, operation, &operation.api_version))
        .collect();
    let timers: Vec<Value> =
        world.timers.iter().map(|timer| json!({"due_at": timer.due_at, "action": timer.action})).collect();
    Json(json!({
        "seed": world.seed,
        "zones": zones,
        "nodes": nodes,
        "queued_resources": queued,
        "operations": operations,
        "timers": timers,
        "faults": world.faults,
    }))
}

fn zone_state(world: &World, zone: &str) -> Value {
    let settings = world.zone(zone);
    let mut used: BTreeMap<&str, u64> = BTreeMap::new();
    for node in world.nodes.values().filter(|node| node.location.zone == zone && node.state.holds_chips()) {
        *used.entry(node.catalogue().family.as_str()).or_default() += u64::from(node.catalogue().chips);
    }
    json!({"settings": settings, "chips_in_use": used})
}

fn node_state(shared: &Shared, node: &Node) -> Value {
    let machine = shared.fleet.machine();
    let workers: Vec<Value> = node
        .workers
        .iter()
        .map(|worker| {
            let vm = vm_of(node, worker.index);
            let record = machine.record(&vm);
            json!({
                "worker": worker.index,
                "vm": vm.name,
                "ip": worker.ip,
                "boot": worker.boot,
                "alive": machine.alive(&vm).is_some(),
                "pid": record.as_ref().map(|record| record.pid),
                "metadata": record.as_ref().map(|record| record.address),
                "program": machine.program(&vm),
                "folder": machine.folder(&vm),
            })
        })
        .collect();
    let mut shown = render::node(node);
    shown["power"] = json!(node.power);
    shown["preempting"] = json!(node.is_preempting);
    shown["workers"] = json!(workers);
    shown
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestQuery {
    #[serde(default)]
    since: u64,
    method: Option<String>,
}

/// `GET /emulator/v1/requests?since=SEQ&method=RPC`.
pub(super) async fn requests(
    State(shared): App,
    query: Asked<RequestQuery>,
) -> Result<Json<BTreeMap<&'static str, Vec<Entry>>>, ApiError> {
    let query = asked(query)?;
    if let Some(method) = query.method.as_deref().filter(|method| !RPCS.contains(method)) {
        return Err(ApiError::invalid(&format!("no method {method:?}; methods are {}", RPCS.join(", "))));
    }
    Ok(Json(BTreeMap::from([("requests", shared.log.since(query.since, query.method.as_deref()))])))
}

/// `GET /emulator/v1/audit`: the audit log.
pub(super) async fn audit(State(shared): App) -> Json<Value> {
    Json(json!({"entries": shared.events.all()}))
}

/// `GET /emulator/v1/jwks`: the key that signs identity tokens of VMs.
pub(super) async fn jwks(State(shared): App) -> Result<Json<Value>, ApiError> {
    crate::identity::jwks(&shared.key_file).map(Json).map_err(|error| ApiError::unavailable(&error.to_string()))
}

/// `GET /emulator/v1/faults`: those that have not struck yet.
pub(super) async fn faults(State(shared): App) -> Json<Value> {
    Json(json!({"faults": shared.read(|world| world.faults.clone())}))
}

/// `POST /emulator/v1/faults`.
pub(super) async fn add_fault(State(shared): App, body: Bytes) -> Result<Json<Value>, ApiError> {
    let fault: Fault = parse(&body)?;
    check_fault(&fault)?;
    shared.change(|world, _| world.faults.push(fault.clone()));
    Ok(Json(json!(fault)))
}

/// Refuses a fault that could never strike, or not as it says.
fn check_fault(fault: &Fault) -> Result<(), ApiError> {
    let refuse = |text: &str| Err(ApiError::invalid(text));
    let is_operation = fault.when == When::Operation;
    if fault.method != "*" && fault.method != PROVISION && !RPCS.contains(&fault.method.as_str()) {
        let known = RPCS.join(", ");
        return refuse(&format!("no method {:?}; methods are *, {PROVISION}, {known}", fault.method));
    }
    if fault.method == PROVISION && !is_operation {
        return refuse("ProvisionQueuedResource is no call: it goes with \"when\": \"operation\" only");
    }
    if is_operation && ["Get", "List"].iter().any(|read| fault.method.starts_with(read)) {
        return refuse(&format!("{} begins no operation", fault.method));
    }
    if let Some(zone) = &fault.zone {
        check_zone(zone).map_err(|error| ApiError::invalid(&error.to_string()))?;
    }
    if fault.times == 0 {
        return refuse("times must be at least 1");
    }
    if !is_operation && !(400..600).contains(&fault.status) {
        return refuse("status must be 400 to 599");
    }
    if fault.code.is_some_and(|code| !is_operation || !(1..=16).contains(&code)) {
        return refuse("code is a gRPC code, 1 to 16, and goes with \"when\": \"operation\"");
    }
    Ok(())
}

/// `DELETE /emulator/v1/faults`.
pub(super) async fn clear_faults(State(shared): App) -> StatusCode {
    shared.change(|world, _| world.faults.clear());
    StatusCode::NO_CONTENT
}

/// `GET /emulator/v1/zones/{zone}`.
pub(super) async fn zone(State(shared): App, Path(zone): Path<String>) -> Result<Json<Value>, ApiError> {
    check_zone(&zone).map_err(|error| ApiError::not_found(&error.to_string()))?;
    Ok(Json(shared.read(|world| zone_state(world, &zone))))
}

/// `PUT /emulator/v1/zones/{zone}`: what is given changes, the rest stays.
pub(super) async fn set_zone(
    State(shared): App,
    Path(zone): Path<String>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    check_zone(&zone).map_err(|error| ApiError::not_found(&error.to_string()))?;
    let settings: ZoneSettings = parse(&body)?;
    settings.check().map_err(|error| ApiError::invalid(&error.to_string()))?;
    shared.change(|world, _| world.set_zone(&zone, &settings));
    Ok(Json(shared.read(|world| zone_state(world, &zone))))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NodeQuery {
    zone: Option<String>,
    project: Option<String>,
}

/// The node of this name; zone and project tell several of one name apart.
fn find(world: &World, name: &str, query: &NodeQuery) -> Result<Node, ApiError> {
    let fits = |node: &&Node| {
        crate::model::short_name(&node.name) == name
            && query.zone.as_ref().is_none_or(|zone| *zone == node.location.zone)
            && query.project.as_ref().is_none_or(|project| *project == node.location.project)
    };
    let mut found = world.nodes.values().filter(fits);
    let Some(node) = found.next() else {
        let known: Vec<String> = world
            .nodes
            .values()
            .map(|node| format!("{} in {}", crate::model::short_name(&node.name), node.location))
            .collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        return Err(ApiError::unknown("node", name, &known));
    };
    if found.next().is_some() {
        return Err(ApiError::conflict(&format!("several nodes are named {name}: add ?zone= and ?project=")));
    }
    Ok(node.clone())
}

/// `POST /emulator/v1/nodes/{node}/{action}`.
pub(super) async fn act(
    State(shared): App,
    Path((name, action)): Path<(String, String)>,
    query: Asked<NodeQuery>,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    let query = asked(query)?;
    if let Some(zone) = &query.zone {
        check_zone(zone).map_err(|error| ApiError::invalid(&error.to_string()))?;
    }
    let node = shared.read(|world| find(world, &name, &query))?;
    let answer = match action.as_str() {
        "preempt" => preempt(&shared, &node, &parse(&body)?),
        "host-error" => host_error(&shared, &node, &parse(&body)?),
        "maintenance" => maintenance(&shared, &node, &parse(&body)?),
        "reboot-worker" => reboot_worker(&shared, &node, &parse(&body)?),
        "health" => health(&shared, &node, parse(&body)?),
        "kill-worker" => return kill_worker(&shared, &node, &parse(&body)?).await,
        "cut-connections" => return cut_connections(&shared, &node, &parse(&body)?).await,
        "freeze" => return freeze(&shared, &node, &parse(&body)?).await,
        other => return Err(ApiError::unknown("action", other, &ACTIONS)),
    }?;
    // The workers know by the time the caller does.
    shared.fleet.settle(&node).await;
    Ok(Json(answer))
}

fn preempt(shared: &Arc<Shared>, node: &Node, order: &PreemptOrder) -> Result<Value, ApiError> {
    let key = node.key();
    let power_off_at = shared.change(|world, moment| world.preempt(moment, &key, order))?;
    Ok(json!({"node": key.name, "leave": order.leave, "power_off_at": power_off_at}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HostErrorOrder {
    worker: u32,
    repair: Option<Span>,
    recovers: bool,
}

impl Default for HostErrorOrder {
    fn default() -> Self {
        Self { worker: 0, repair: None, recovers: true }
    }
}

fn host_error(shared: &Arc<Shared>, node: &Node, order: &HostErrorOrder) -> Result<Value, ApiError> {
    let key = node.key();
    let repair = order.repair.unwrap_or(Span::secs(20));
    let repair = order.recovers.then_some(repair.0);
    shared.change(|world, moment| world.host_error(moment, &key, order.worker, repair))?;
    Ok(json!({"node": key.name, "worker": order.worker}))
}

fn maintenance(shared: &Arc<Shared>, node: &Node, order: &MaintenanceOrder) -> Result<Value, ApiError> {
    let events = ["TERMINATE_ON_HOST_MAINTENANCE", "MIGRATE_ON_HOST_MAINTENANCE", "NONE"];
    if !events.contains(&order.event.as_str()) {
        return Err(ApiError::invalid(&format!("event must be one of {}", events.join(", "))));
    }
    if !["SCHEDULED", "UNSCHEDULED"].contains(&order.kind.as_str()) {
        return Err(ApiError::invalid("type must be SCHEDULED or UNSCHEDULED"));
    }
    let window = shared.change(|world, moment| world.maintenance(moment, &node.key(), order))?;
    Ok(json!({"node": node.name, "window": window}))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HealthOrder {
    health: String,
    description: Option<String>,
}

fn health(shared: &Arc<Shared>, node: &Node, order: HealthOrder) -> Result<Value, ApiError> {
    if order.health.is_empty() || !HEALTHS.contains(&order.health.as_str()) {
        return Err(ApiError::invalid(&format!("health must be one of {}", HEALTHS.join(", "))));
    }
    shared.change(|world, _| world.set_health(&node.key(), &order.health, order.description))?;
    Ok(json!({"node": node.name, "health": order.health}))
}

fn reboot_worker(shared: &Arc<Shared>, node: &Node, order: &WorkerOrder) -> Result<Value, ApiError> {
    shared.change(|world, _| world.reboot_worker(&node.key(), order.worker))?;
    Ok(json!({"node": node.name, "worker": order.worker}))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WorkerOrder {
    worker: u32,
}

/// Waits for what the node's VMs are at, and checks that there is such a worker.
async fn worker_vm(shared: &Arc<Shared>, node: &Node, worker: u32) -> Result<crate::fleet::Vm, ApiError> {
    if worker as usize >= node.workers.len() {
        return Err(no_worker(node, worker));
    }
    shared.fleet.settle(node).await;
    let vm = vm_of(node, worker);
    if shared.fleet.machine().alive(&vm).is_none() {
        return Err(ApiError::conflict(&format!("the VM of worker {worker} is off")));
    }
    Ok(vm)
}

fn no_worker(node: &Node, worker: u32) -> ApiError {
    let known: Vec<String> = node.workers.iter().map(|worker| worker.index.to_string()).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    ApiError::unknown("worker", &worker.to_string(), &known)
}

/// A supervisor could not be asked: its VM went off meanwhile, or something is wrong.
fn failed(shared: &Arc<Shared>, vm: &crate::fleet::Vm, error: &anyhow::Error) -> ApiError {
    if shared.fleet.machine().alive(vm).is_none() {
        return ApiError::conflict(&format!("VM {} went off meanwhile", vm.name));
    }
    ApiError::unavailable(&format!("the supervisor of VM {}: {error:#}", vm.name))
}

/// Ends all processes of one worker; its VM and metadata server stay.
async fn kill_worker(shared: &Arc<Shared>, node: &Node, order: &WorkerOrder) -> Result<Json<Value>, ApiError> {
    let vm = worker_vm(shared, node, order.worker).await?;
    let killed: anyhow::Result<Option<()>> = shared.fleet.machine().post(&vm, "kill-program", &()).await;
    killed.map_err(|error| failed(shared, &vm, &error))?;
    Ok(Json(json!({"node": node.name, "worker": order.worker})))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FreezeOrder {
    worker: u32,
    #[serde(rename = "for")]
    length: Span,
}

impl Default for FreezeOrder {
    fn default() -> Self {
        Self { worker: 0, length: Span::secs(20) }
    }
}

/// Stops all processes of one worker for a while.
async fn freeze(shared: &Arc<Shared>, node: &Node, order: &FreezeOrder) -> Result<Json<Value>, ApiError> {
    let vm = worker_vm(shared, node, order.worker).await?;
    let millis = shared.scaled(order.length.0).as_millis() as u64;
    let frozen: anyhow::Result<usize> = shared.fleet.machine().post(&vm, "freeze", &millis).await;
    let frozen = frozen.map_err(|error| failed(shared, &vm, &error))?;
    Ok(Json(json!({"node": node.name, "worker": order.worker, "processes": frozen})))
}

/// The connections of a VM's programs; one that is off, or went off meanwhile, has none.
async fn connections(shared: &Arc<Shared>, vm: &crate::fleet::Vm) -> Result<Vec<Connection>, ApiError> {
    let machine = shared.fleet.machine();
    if machine.alive(vm).is_none() {
        return Ok(Vec::new());
    }
    match machine.get(vm, "connections").await {
        Ok(found) => Ok(found),
        Err(_) if machine.alive(vm).is_none() => Ok(Vec::new()),
        Err(error) => Err(failed(shared, vm, &error)),
    }
}

/// Cuts the live connections between one worker's programs and those of the other workers of the node (and of the
/// other slices of its multislice). Both ends must belong to such a program: connections to the metadata server or to
/// the manager stay.
async fn cut_connections(shared: &Arc<Shared>, node: &Node, order: &WorkerOrder) -> Result<Json<Value>, ApiError> {
    let vm = worker_vm(shared, node, order.worker).await?;
    let is_peer = |other: &&Node| {
        other.name == node.name || (node.queued_resource.is_some() && other.queued_resource == node.queued_resource)
    };
    let peers: Vec<Node> = shared.read(|world| world.nodes.values().filter(is_peer).cloned().collect());
    let others = peers.iter().flat_map(|peer| peer.workers.iter().map(move |worker| vm_of(peer, worker.index)));
    let others = others.filter(|other| *other != vm).map(|other| async move { connections(shared, &other).await });
    // All at once: there may be many, and each supervisor has to look through the whole process table.
    let theirs: Vec<Vec<Connection>> = futures::future::try_join_all(others).await?;
    let theirs: Vec<Connection> = theirs.into_iter().flatten().collect();
    let own = connections(shared, &vm).await?;
    let has_other_end = |connection: &&Connection| {
        theirs.iter().any(|other| other.local == connection.remote && other.remote == connection.local)
    };
    let wanted: Vec<&Connection> = own.iter().filter(has_other_end).collect();
    let report: anyhow::Result<CutReport> = shared.fleet.machine().post(&vm, "cut", &wanted).await;
    let report = report.map_err(|error| failed(shared, &vm, &error))?;
    match report.refused {
        Some(reason) if report.cut == 0 => Err(ApiError::refused(&format!(
            "the kernel does not let the supervisor cut connections ({reason}); use \
             POST /emulator/v1/nodes/{{node}}/freeze {{\"worker\":{},\"for\":\"20s\"}} instead",
            order.worker,
        ))),
        _ => Ok(Json(json!({"node": node.name, "worker": order.worker, "cut": report.cut, "connections": wanted}))),
    }
}
