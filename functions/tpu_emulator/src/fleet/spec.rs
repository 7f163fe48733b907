//! What a VM is told at its boot: the tree of its metadata server and the environment of its startup script.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rekindle_core::catalog::Accelerator;
use serde_json::{Map, Value, json};
use sha2::Digest as _;

use super::Vm;
use crate::model::{Node, Worker, World, short_name};
use crate::vm::VmSpec;
use crate::world::{no_maintenance, policy, project_number, upcoming_value};

/// What is the same for every VM of an emulator.
#[derive(Debug, Clone)]
pub(crate) struct Template {
    /// PEM file of the key for identity tokens.
    pub(crate) key_file: PathBuf,
    /// Touched by the emulator while it lives.
    pub(crate) alive_file: PathBuf,
    /// How long VMs go on without the emulator.
    pub(crate) away_limit: Duration,
    /// Startup scripts that end with an error are started again.
    pub(crate) restarts_scripts: bool,
    /// More environment for startup scripts.
    pub(crate) env: BTreeMap<String, String>,
}

/// The mark of a VM's boot in the environment of its processes; unique over all emulators of the machine.
pub(super) fn marker(vms: &Path, vm: &Vm) -> String {
    format!("{}/{}/boot-{}", vms.display(), vm.name, vm.boot)
}

impl Template {
    /// The spec of one worker's current boot.
    pub(crate) fn spec(&self, world: &World, node: &Node, worker: &Worker, vms: &Path) -> VmSpec {
        let vm = Vm { name: node.vm(worker.index), boot: worker.boot };
        let marker = marker(vms, &vm);
        let secret = |purpose: &str| {
            let text = format!("{purpose} {} {} {}", world.seed, marker, node.id);
            hex::encode(&sha2::Sha256::digest(text.as_bytes())[..16])
        };
        let has_nat = world.scenario.nat_networks.contains(network(node));
        let egress = match (node.has_external_ips(), has_nat) {
            (true, _) => "external-ip",
            (false, true) => "nat",
            (false, false) => "none",
        };
        let boot_id = secret("boot");
        let mut env = self.env.clone();
        for (key, value) in
            [("TPU_EMULATOR", "rekindle"), ("TPU_EMULATOR_BOOT_ID", &boot_id), ("TPU_EMULATOR_EGRESS", egress)]
        {
            env.insert(key.to_owned(), value.to_owned());
        }
        if egress == "none" {
            env.extend(no_way_out(node));
        }
        let home = vms.join(&vm.name);
        VmSpec {
            token: secret("control"),
            ip: worker.ip,
            port: None,
            tree: tree(world, node, worker, &vm.name, egress, &boot_id),
            identity: identity(node, worker, &vm.name),
            key_file: self.key_file.clone(),
            startup_script: node.metadata().get("startup-script").and_then(Value::as_str).map(str::to_owned),
            restarts_script: self.restarts_scripts,
            env,
            home: home.join("home"),
            tmp: home.join("tmp"),
            alive_file: self.alive_file.clone(),
            away_limit_ms: self.away_limit.as_millis() as u64,
            marker,
            vm: vm.name,
        }
    }
}

/// What keeps HTTP clients from everything beyond the slice, as a network without NAT does: a proxy that nobody serves.
/// Sockets that heed no proxy get out.
fn no_way_out(node: &Node) -> impl Iterator<Item = (String, String)> + use<> {
    const NOBODY: &str = "http://127.0.0.1:9";
    // Neighbours and metadata servers are reached as ever.
    let near: Vec<String> = node.workers.iter().map(|worker| worker.ip.to_string()).collect();
    let near = format!("metadata.google.internal,{}", near.join(","));
    let proxies =
        ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"].map(|name| (name, NOBODY.to_owned()));
    let direct = ["no_proxy", "NO_PROXY"].map(|name| (name, near.clone()));
    proxies.into_iter().chain(direct).map(|(name, value)| (name.to_owned(), value))
}

fn network(node: &Node) -> &str {
    let name = node.body.get("networkConfig").and_then(|config| config.get("network")).and_then(Value::as_str);
    short_name(name.unwrap_or("default"))
}

fn vm_id(node: &Node, worker: &Worker) -> u64 {
    node.id ^ u64::from(worker.index)
}

fn tree(world: &World, node: &Node, worker: &Worker, vm: &str, egress: &str, boot_id: &str) -> Value {
    let (project, zone) = (&node.location.project, &node.location.zone);
    let number = project_number(project);
    let email = node.body["serviceAccount"]["email"].as_str().unwrap_or_default();
    let scopes: Vec<&str> =
        node.body["serviceAccount"]["scope"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let account = json!({"email": email, "aliases": "default", "scopes": scopes.join("\n")});
    let external = if egress == "external-ip" { format!("203.0.113.{}", worker.ip.octets()[3]) } else { String::new() };
    let network = format!("projects/{number}/networks/{}", network(node));
    let flag = |is_set: bool| if is_set { "TRUE" } else { "FALSE" };
    json!({
        "instance": {
            "attributes": attributes(world, node, worker),
            "description": "",
            "emulator": {"boot-id": boot_id, "egress": egress},
            "guest-attributes": {},
            "hostname": format!("{vm}.{zone}.c.{project}.internal"),
            "id": vm_id(node, worker).to_string(),
            "maintenance-event": "NONE",
            "machine-type": format!("projects/{number}/machineTypes/{}", machine_type(node.catalogue())),
            "name": vm,
            "network-interfaces": {"0": {
                "access-configs": {"0": {"external-ip": external, "type": "ONE_TO_ONE_NAT"}},
                "ip": worker.ip.to_string(),
                "network": network,
            }},
            "preempted": flag(node.is_preempting),
            "scheduling": {
                "automatic-restart": flag(!node.is_spot),
                "on-host-maintenance": policy(node.maintenance.as_ref()),
                "preemptible": flag(node.is_spot),
            },
            "service-accounts": {"default": account, email: account},
            "upcoming-maintenance": node.maintenance.as_ref().map_or_else(no_maintenance, upcoming_value),
            "zone": format!("projects/{number}/zones/{zone}"),
        },
        "project": {
            "attributes": {},
            "numeric-project-id": number.to_string(),
            "project-id": project,
        },
    })
}

/// The node's own metadata, and what the service adds for each worker.
fn attributes(world: &World, node: &Node, worker: &Worker) -> Map<String, Value> {
    let mut attributes = node.metadata();
    let addresses: Vec<String> = node.workers.iter().map(|worker| format!("unknown:unknown:{}", worker.ip)).collect();
    attributes.insert("accelerator-type".to_owned(), json!(node.accelerator));
    attributes.insert("agent-worker-number".to_owned(), json!(worker.index.to_string()));
    attributes.insert("instance-id".to_owned(), json!(short_name(&node.name)));
    attributes.insert("worker-network-endpoints".to_owned(), json!(addresses.join(",")));
    attributes.insert("tpu-env".to_owned(), json!(tpu_env(world, node, worker)));
    attributes
}

fn tpu_env(world: &World, node: &Node, worker: &Worker) -> String {
    let row = node.catalogue();
    let bounds = |topology: &str| {
        let mut sides: Vec<&str> = topology.split('x').collect();
        sides.resize(3, "1");
        sides.join(",")
    };
    let mut lines: Vec<(String, String)> = [
        ("ACCELERATOR_TYPE", node.accelerator.clone()),
        ("CONSUMER_PROJECT_ID", node.location.project.clone()),
        ("CONSUMER_PROJECT_NUMBER", project_number(&node.location.project).to_string()),
        ("NODE_ID", short_name(&node.name).to_owned()),
        ("PREEMPTIBLE", node.is_spot.to_string()),
        ("TOPOLOGY", bounds(&row.topology)),
        ("TYPE", row.api_type.clone()),
        ("UID", node.id.to_string()),
        ("WORKER_ID", worker.index.to_string()),
        ("ZONE", node.location.zone.clone()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    if let Some(slices) = node.multislice {
        let is_first = |other: &&Node| {
            other.queued_resource == node.queued_resource && other.multislice.is_some_and(|slices| slices.index == 0)
        };
        if let Some(first) = world.nodes.values().find(is_first).and_then(|node| node.workers.first()) {
            lines.push(("MEGASCALE_COORDINATOR_ADDRESS".to_owned(), first.ip.to_string()));
        }
        lines.push(("MEGASCALE_NUM_SLICES".to_owned(), slices.count.to_string()));
        lines.push(("MEGASCALE_SLICE_ID".to_owned(), slices.index.to_string()));
    }
    lines.iter().map(|(key, value)| format!("{key}: '{value}'")).collect::<Vec<_>>().join("\n") + "\n"
}

fn machine_type(row: &Accelerator) -> String {
    let chips = row.chips_per_worker;
    match row.family.as_str() {
        "v5litepod" => format!("ct5lp-hightpu-{chips}t"),
        "v5p" => format!("ct5p-hightpu-{chips}t"),
        "v6e" => format!("ct6e-standard-{chips}t"),
        "v4" => format!("ct4p-hightpu-{chips}t"),
        family => format!("{family}-host"),
    }
}

fn identity(node: &Node, worker: &Worker, vm: &str) -> Value {
    let email = node.body["serviceAccount"]["email"].as_str().unwrap_or_default();
    let subject = project_number(email).to_string();
    json!({
        "iss": "https://accounts.google.com",
        "azp": subject,
        "sub": subject,
        "email": email,
        "email_verified": true,
        "google": {"compute_engine": {
            "instance_creation_timestamp": node.created_at.as_second(),
            "instance_id": vm_id(node, worker).to_string(),
            "instance_name": vm,
            "project_id": node.location.project,
            "project_number": project_number(&node.location.project),
            "zone": node.location.zone,
        }},
    })
}
