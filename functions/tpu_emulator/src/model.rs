//! The emulated cloud as data: what is kept on disk and survives a restart of the emulator.
//!
//! Owns the shapes only. Transitions are in [`crate::world`], JSON of the Cloud TPU API in [`crate::wire`].

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use jiff::Timestamp;
use rekindle_core::catalog::{self, Accelerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::scenario::{Scenario, ZoneSettings};

/// `projects/{project}/locations/{zone}`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Location {
    /// Project id, as the caller wrote it.
    pub project: String,
    /// Zone name.
    pub zone: String,
}

impl Location {
    /// Full name of a node here.
    pub(crate) fn node(&self, id: &str) -> String {
        format!("{self}/nodes/{id}")
    }

    /// Full name of a queued resource here.
    pub(crate) fn queued_resource(&self, id: &str) -> String {
        format!("{self}/queuedResources/{id}")
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "projects/{}/locations/{}", self.project, self.zone)
    }
}

/// The last segment of a resource name.
pub(crate) fn short_name(name: &str) -> &str {
    name.rsplit_once('/').map_or(name, |(_, short)| short)
}

/// `Node.State` of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum NodeState {
    Creating,
    Ready,
    Restarting,
    Deleting,
    Repairing,
    Stopped,
    Stopping,
    Starting,
    Preempted,
    Terminated,
    Unknown,
}

impl NodeState {
    /// The name in JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "CREATING",
            Self::Ready => "READY",
            Self::Restarting => "RESTARTING",
            Self::Deleting => "DELETING",
            Self::Repairing => "REPAIRING",
            Self::Stopped => "STOPPED",
            Self::Stopping => "STOPPING",
            Self::Starting => "STARTING",
            Self::Preempted => "PREEMPTED",
            Self::Terminated => "TERMINATED",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// Whether a node in this state occupies chips. Name and quota stay taken in every state.
    pub(crate) fn holds_chips(self) -> bool {
        !matches!(self, Self::Stopped | Self::Preempted | Self::Terminated)
    }
}

/// `QueuedResourceState.State` of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum QueuedState {
    Creating,
    WaitingForResources,
    Provisioning,
    Active,
    Suspending,
    Suspended,
    Failed,
    Deleting,
}

impl QueuedState {
    /// The name in JSON.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "CREATING",
            Self::WaitingForResources => "WAITING_FOR_RESOURCES",
            Self::Provisioning => "PROVISIONING",
            Self::Active => "ACTIVE",
            Self::Suspending => "SUSPENDING",
            Self::Suspended => "SUSPENDED",
            Self::Failed => "FAILED",
            Self::Deleting => "DELETING",
        }
    }
}

/// What a node shows once its VMs are off after a preemption.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum Leave {
    /// State PREEMPTED.
    Preempted,
    /// State TERMINATED.
    Terminated,
    /// State STOPPED, though nobody stopped it.
    Stopped,
    /// The node is gone: 404.
    Gone,
    /// Goes on reading READY.
    Ready,
    /// State UNKNOWN: a repair that failed.
    Unknown,
    /// Of a queued resource: its node is gone, and it FAILED.
    Failed,
}

/// A `google.rpc.Status` without details, as operations carry it (the code is a gRPC code).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RpcStatus {
    /// gRPC code.
    pub code: u16,
    /// Text.
    pub message: String,
}

/// Identifies one node over reuse of its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct NodeKey {
    /// Full name.
    pub name: String,
    /// `Node.id`.
    pub id: u64,
}

/// Where the VMs of a node are in being switched on and off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Power {
    /// No VM runs.
    Off,
    /// The VMs run, or are being started.
    On,
    /// The VMs are being ended; confirmed by the fleet.
    TurningOff,
}

/// What follows once the VMs are off.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AfterOff {
    /// A lost node shows this.
    Leave(Leave),
    /// The VMs start again after a repair of so many milliseconds (`None`: they do not; the node is UNKNOWN).
    Repair(Option<u64>),
}

/// One worker VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Worker {
    /// Index in the slice.
    pub index: u32,
    /// Its own loopback address.
    pub ip: Ipv4Addr,
    /// How many times it was booted; names the boot's folder. 0: never.
    pub boot: u32,
}

/// A maintenance window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Maintenance {
    /// `SCHEDULED` or `UNSCHEDULED`.
    pub kind: String,
    /// Start of the window.
    pub starts_at: Timestamp,
    /// End of the window.
    pub ends_at: Timestamp,
    /// Whether the window has begun.
    pub is_ongoing: bool,
    /// What `maintenance-event` of the metadata server says from the start of the window.
    pub event: String,
    /// Whether the VMs are switched off within the window.
    pub is_terminating: bool,
}

/// A place in a multislice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Multislice {
    /// Index of this slice.
    pub index: u32,
    /// Slices in all.
    pub count: u32,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Node {
    /// Full name.
    pub name: String,
    /// Where.
    pub location: Location,
    /// `Node.id`.
    pub id: u64,
    /// `t1v-n-<hex>`: the VMs are `…-w-0`, `…-w-1`.
    pub vm_prefix: String,
    /// `acceleratorType`.
    pub accelerator: String,
    /// State.
    pub state: NodeState,
    /// `Node.Health`; absent in states that have none.
    pub health: Option<String>,
    /// `healthDescription`.
    pub health_description: Option<String>,
    /// Whether it takes from the pool of spot and preemptible quota.
    pub is_spot: bool,
    /// What the caller gave, normalised: metadata, labels, tags, networkConfig, schedulingConfig and so on.
    pub body: Map<String, Value>,
    /// When.
    pub created_at: Timestamp,
    /// One for each VM.
    pub workers: Vec<Worker>,
    /// Full name of the queued resource that made it.
    pub queued_resource: Option<String>,
    /// Its place, when it is one of several slices.
    pub multislice: Option<Multislice>,
    /// The reservation it takes its chips from, if the zone's are counted.
    #[serde(default)]
    pub reservation: Option<String>,
    /// Announced or ongoing maintenance.
    pub maintenance: Option<Maintenance>,
    /// Whether the preemption notice was given.
    pub is_preempting: bool,
    /// The VMs.
    pub power: Power,
    /// What follows when they are off.
    pub after_off: Option<AfterOff>,
    /// The operation that holds it: create, stop, start, update or delete.
    pub operation: Option<String>,
}

impl Node {
    /// Identifies it over reuse of its name.
    pub(crate) fn key(&self) -> NodeKey {
        NodeKey { name: self.name.clone(), id: self.id }
    }

    /// Its row of the catalogue.
    pub(crate) fn catalogue(&self) -> &'static Accelerator {
        catalog::accelerator(&self.accelerator).expect("nodes are made from the catalogue only")
    }

    /// READY, and not only by name: its VMs are there.
    pub(crate) fn is_running(&self) -> bool {
        self.state == NodeState::Ready && self.power == Power::On
    }

    /// Name of a worker's VM.
    pub(crate) fn vm(&self, index: u32) -> String {
        format!("{}-w-{index}", self.vm_prefix)
    }

    /// `Node.metadata`.
    pub(crate) fn metadata(&self) -> Map<String, Value> {
        self.body.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default()
    }

    /// Whether the VMs have external addresses.
    pub(crate) fn has_external_ips(&self) -> bool {
        let config = self.body.get("networkConfig");
        config.and_then(|config| config.get("enableExternalIps")).and_then(Value::as_bool) == Some(true)
    }
}

/// A queued resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueuedResource {
    /// Full name.
    pub name: String,
    /// Where.
    pub location: Location,
    /// Identifies it over reuse of its name.
    pub id: u64,
    /// When.
    pub created_at: Timestamp,
    /// State.
    pub state: QueuedState,
    /// `USER` or `SERVICE`, in SUSPENDING and SUSPENDED.
    pub initiator: Option<String>,
    /// Why it FAILED.
    pub error: Option<RpcStatus>,
    /// One for each node, expanded, in the shape of the API.
    pub node_specs: Vec<NodeSpec>,
    /// The rest of the body: tier, queueing policy, reservation.
    pub body: Map<String, Value>,
    /// Takes from the pool of spot quota.
    pub is_spot: bool,
    /// After this moment a request that still waits is FAILED.
    pub valid_until: Option<Timestamp>,
    /// Before this moment it is not served.
    pub valid_after: Option<Timestamp>,
    /// The operation that holds it.
    pub operation: Option<String>,
    /// Ends here: delete the queued resource once its nodes are gone.
    pub is_deleting: bool,
    /// `:reset` was called: back to the queue once its nodes are gone.
    pub is_resetting: bool,
}

/// One node of a queued resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct NodeSpec {
    /// `nodeId`.
    pub node_id: String,
    /// The node's body as given.
    pub node: Map<String, Value>,
    /// `acceleratorType`.
    pub accelerator: String,
}

impl QueuedResource {
    /// Chips of all its nodes.
    pub(crate) fn chips(&self) -> u64 {
        let chips = |spec: &NodeSpec| catalog::accelerator(&spec.accelerator).map_or(0, |row| u64::from(row.chips));
        self.node_specs.iter().map(chips).sum()
    }

    /// Workers of all its nodes.
    pub(crate) fn workers(&self) -> usize {
        let workers = |spec: &NodeSpec| catalog::accelerator(&spec.accelerator).map_or(0, |row| row.workers as usize);
        self.node_specs.iter().map(workers).sum()
    }

    /// The family of its nodes (one only: all are alike).
    pub(crate) fn family(&self) -> &'static str {
        let first = self.node_specs.first().and_then(|spec| catalog::accelerator(&spec.accelerator));
        first.map_or("", |row| row.family.as_str())
    }

    /// Full names of its nodes.
    pub(crate) fn node_names(&self) -> Vec<String> {
        self.node_specs.iter().map(|spec| self.location.node(&spec.node_id)).collect()
    }
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// `error`.
    Error(RpcStatus),
    /// `response` is a Node, as it was at that moment (string enums).
    Node(Value),
    /// `response` is a QueuedResource.
    QueuedResource(Value),
    /// `response` is Empty.
    Empty,
}

/// A long-running operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Operation {
    /// Full name.
    pub name: String,
    /// Full name of what it works on.
    pub target: String,
    /// `create`, `delete`, `update`, `stop`, `start`, `reset`.
    pub verb: String,
    /// The RPC that began it (`CreateNode`), for the audit log.
    pub method: String,
    /// `v2` or `v2alpha1`: the version it was called through.
    pub api_version: String,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Whether a cancel was asked for.
    pub is_cancel_requested: bool,
    /// Absent while it runs.
    pub outcome: Option<Outcome>,
    /// An error it ends with instead of its success (fault injection).
    pub doom: Option<RpcStatus>,
}

/// Something that happens at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timer {
    /// When.
    pub due_at: Timestamp,
    /// What.
    pub action: TimerAction,
}

/// What a timer does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TimerAction {
    /// A create has run its time.
    CreateDone(NodeKey),
    /// A delete has run its time.
    DeleteDone(NodeKey),
    /// A stop has run its time.
    StopDone(NodeKey),
    /// A start has run its time.
    StartDone(NodeKey),
    /// A patch has run its time.
    UpdateDone(NodeKey, Map<String, Value>),
    /// The preemption notice is over.
    PowerOff(NodeKey, Leave, Option<u64>),
    /// A node that read READY with dead VMs shows its loss.
    ShowLoss(NodeKey),
    /// A repair has run its time.
    RepairDone(NodeKey),
    /// A maintenance window begins.
    MaintenanceStart(NodeKey),
    /// The VMs are switched off for maintenance.
    MaintenancePowerOff(NodeKey),
    /// A maintenance window ends.
    MaintenanceEnd(NodeKey),
    /// A preemptible node has lived its 24 hours.
    LifetimeOver(NodeKey),
    /// A queued resource goes one step on: name and id.
    QueuedStep(String, u64),
}

/// A fault to inject.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fault {
    /// RPC name (`CreateNode`), or `*`.
    pub method: String,
    /// HTTP status of the answer. Not used for `when: operation`.
    #[serde(default = "default_status")]
    pub status: u16,
    /// Before the effect, after it (the answer is lost), or as the end of the operation.
    #[serde(default)]
    pub when: When,
    /// How many calls it still hits.
    #[serde(default = "one")]
    pub times: u32,
    /// gRPC code for `when: operation`; default 13.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// Text of the error; default one that users reported for the status or code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Only in this zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// How long the answer is held back first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<crate::duration::Span>,
}

fn default_status() -> u16 {
    503
}

fn one() -> u32 {
    1
}

/// When a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum When {
    /// The call has no effect.
    #[default]
    Before,
    /// The call has its effect; only the answer is an error.
    After,
    /// The call is accepted; its operation (or the queued resource it makes) fails.
    Operation,
}

/// Everything that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct World {
    /// Version of this format.
    pub version: u32,
    /// Seed of every draw.
    pub seed: u64,
    /// Draws made so far.
    pub draws: u64,
    /// Worker addresses given out so far.
    pub addresses: u32,
    /// Scenario in force.
    pub scenario: Scenario,
    /// Zones changed since, by name (complete settings).
    pub zones: BTreeMap<String, ZoneSettings>,
    /// By full name.
    pub nodes: BTreeMap<String, Node>,
    /// By full name.
    pub queued_resources: BTreeMap<String, QueuedResource>,
    /// By full name.
    pub operations: BTreeMap<String, Operation>,
    /// What is still to happen.
    pub timers: Vec<Timer>,
    /// Calls with a `requestId`: parent, method and id, to the operation's name.
    pub requests: BTreeMap<String, String>,
    /// Faults still to strike.
    pub faults: Vec<Fault>,
    /// Reports to the outside that the transitions ask for; drained after each.
    #[serde(skip)]
    pub effects: Vec<Effect>,
}

/// What a transition asks the outside to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Start these VMs.
    Boot(NodeKey, Vec<u32>),
    /// End these VMs with everything on them.
    PowerOff(NodeKey, Vec<u32>),
    /// Switch this VM off and on again; its boot number is the new one already.
    Reboot(NodeKey, u32),
    /// Change values of the metadata server of these workers.
    Metadata(NodeKey, Vec<u32>, Vec<(String, Value)>),
    /// The node is gone: forget its VMs.
    Remove(NodeKey),
    /// Write this entry to the audit log.
    Audit(Value),
}
