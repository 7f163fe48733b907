//! Transitions of the emulated cloud: pure methods over [`World`] that are told the time and leave effects behind.
//!
//! **Invariant:** nothing here waits, reads a clock or touches a process; [`crate::shared`] persists the world after
//! each call and hands the effects to the fleet and the audit log.

use std::net::Ipv4Addr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rekindle_core::catalog;
use serde_json::{Map, Value};

use crate::model::{
    Effect, Fault, Location, Node, NodeKey, NodeState, Operation, Outcome, QueuedResource, QueuedState, RpcStatus,
    Timer, TimerAction, When, World,
};
use crate::scenario::{Scenario, Wait, ZoneSettings};
use crate::wire::audit;
use crate::wire::errors::ApiError;

mod disasters;
mod nodes;
mod queued;
mod reserved;
#[cfg(test)]
mod tests;

pub(crate) use disasters::{MaintenanceOrder, PreemptOrder, no_maintenance, policy, upcoming_value};

/// Version of the stored format.
const VERSION: u32 = 1;

/// Most workers at a time over all nodes. Each is several processes: some thousands bring a machine down.
const WORKERS_MAX: usize = 1024;

/// Operations that are kept; the real service keeps them for days. The state is written whole at every change.
const OPERATIONS_KEPT: usize = 500;

/// Calls with a request id that are remembered.
const REQUESTS_KEPT: usize = 2_000;

/// Time and speed of one transition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Now.
    pub now: Timestamp,
    /// Every wait is divided by this.
    pub speed: f64,
}

impl Moment {
    /// The moment when a nominal wait that begins now is over.
    pub(crate) fn after(&self, wait: Duration) -> Timestamp {
        let scaled = wait.div_f64(self.speed);
        self.now.checked_add(SignedDuration::try_from(scaled).unwrap_or(SignedDuration::MAX)).unwrap_or(Timestamp::MAX)
    }
}

impl World {
    /// An empty cloud.
    pub(crate) fn new(seed: u64, scenario: Scenario) -> Self {
        Self {
            version: VERSION,
            seed,
            draws: 0,
            addresses: 0,
            scenario,
            zones: std::collections::BTreeMap::new(),
            nodes: std::collections::BTreeMap::new(),
            queued_resources: std::collections::BTreeMap::new(),
            operations: std::collections::BTreeMap::new(),
            timers: Vec::new(),
            requests: std::collections::BTreeMap::new(),
            faults: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Whether this version of the emulator reads it.
    pub(crate) fn is_current(&self) -> bool {
        self.version == VERSION
    }

    /// The next random number; the sequence follows from the seed alone.
    pub(crate) fn draw(&mut self) -> u64 {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(self.draws);
        self.draws += 1;
        rng.next_u64()
    }

    /// The event id that ends many messages of the service.
    pub(crate) fn event_id(&mut self) -> String {
        format!("[EID: 0x{:016x}]", self.draw())
    }

    /// The next worker address: 127.x.y.z, each given out once, from a start that follows from the seed.
    pub(crate) fn next_address(&mut self) -> Ipv4Addr {
        const HOSTS: u32 = 254;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ 0xadd7_e550);
        let (block, offset) = (rng.next_u32(), self.addresses);
        self.addresses += 1;
        // 127.0.x.y stays free for people's own services; z is never 0 or 255.
        let subnet = (block.wrapping_add(offset / HOSTS)) % (255 * 256) + 256;
        Ipv4Addr::new(127, (subnet >> 8) as u8, (subnet & 0xff) as u8, (offset % HOSTS + 1) as u8)
    }

    /// Settings of a zone that are in force.
    pub(crate) fn zone(&self, zone: &str) -> ZoneSettings {
        self.zones.get(zone).cloned().unwrap_or_else(|| self.scenario.zone(zone))
    }

    /// Changes a zone.
    pub(crate) fn set_zone(&mut self, zone: &str, change: &ZoneSettings) {
        let mut settings = self.zone(zone);
        settings.merge(change);
        self.zones.insert(zone.to_owned(), settings);
    }

    /// A nominal wait of a zone, with its jitter.
    pub(crate) fn wait(&mut self, zone: &str, wait: Wait) -> Duration {
        let settings = self.zone(zone);
        let nominal = settings.latency(wait);
        let jitter = settings.jitter.unwrap_or(0.0).clamp(0.0, 1.0);
        if jitter == 0.0 {
            return nominal;
        }
        let unit = (self.draw() >> 11) as f64 / (1_u64 << 53) as f64;
        nominal.mul_f64(1.0 + jitter * (2.0 * unit - 1.0))
    }

    /// Chips of a family that are free in a zone; `None` is unlimited.
    pub(crate) fn free_chips(&self, zone: &str, family: &str) -> Option<u64> {
        let capacity = *self.zone(zone).capacity.get(family)?;
        // A create that is going to fail makes nothing.
        let is_doomed = |node: &Node| {
            let operation = node.operation.as_ref().and_then(|name| self.operations.get(name));
            node.state == NodeState::Creating && operation.is_some_and(|operation| operation.doom.is_some())
        };
        let here = |node: &&Node| node.location.zone == zone && node.state.holds_chips() && !is_doomed(node);
        let nodes = self.nodes.values().filter(here);
        let used: u64 =
            nodes.map(Node::catalogue).filter(|row| row.family == family).map(|row| u64::from(row.chips)).sum();
        Some(capacity.saturating_sub(used))
    }

    /// Chips of a family that a project holds in one pool, of spot in the whole region, else in the zone: every node until it is deleted,
    /// whatever its state, and every queued resource until it is deleted, whatever is left of it.
    pub(crate) fn held_chips(&self, location: &Location, family: &str, is_spot: bool) -> u64 {
        let same_region = |at: &Location| catalog::region_of(&at.zone) == catalog::region_of(&location.zone);
        let counts = |at: &Location| {
            at.project == location.project && (at.zone == location.zone || (is_spot && same_region(at)))
        };
        let nodes = self
            .nodes
            .values()
            .filter(|node| counts(&node.location) && node.is_spot == is_spot && node.queued_resource.is_none());
        let by_nodes = nodes.map(Node::catalogue).filter(|row| row.family == family).map(|row| u64::from(row.chips));
        let queued = self
            .queued_resources
            .values()
            .filter(|queued| counts(&queued.location) && queued.is_spot == is_spot && queued.family() == family);
        by_nodes.sum::<u64>() + queued.map(crate::model::QueuedResource::chips).sum::<u64>()
    }

    /// The limit that a request for so many more chips would break.
    pub(crate) fn quota_broken(&self, location: &Location, family: &str, is_spot: bool, chips: u64) -> Option<u64> {
        let limit = self.zone(&location.zone).quota_of(family, is_spot)?;
        (self.held_chips(location, family, is_spot) + chips > limit).then_some(limit)
    }

    /// Refuses what this machine could not carry. The real service has no such limit; a quota is its nearest answer.
    pub(super) fn check_room_for_workers(&self, more: usize) -> Result<(), ApiError> {
        let without_nodes = self
            .queued_resources
            .values()
            .filter(|queued| !queued.node_names().iter().any(|name| self.nodes.contains_key(name)));
        let waiting: usize = without_nodes.map(QueuedResource::workers).sum();
        let held = self.nodes.values().map(|node| node.workers.len()).sum::<usize>() + waiting;
        if held + more <= WORKERS_MAX { Ok(()) } else { Err(ApiError::machine_full(WORKERS_MAX, held, more)) }
    }

    /// Lets something happen later.
    pub(crate) fn schedule(&mut self, moment: Moment, wait: Duration, action: TimerAction) {
        self.timers.push(Timer { due_at: moment.after(wait), action });
    }

    /// When the next timer is due.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.timers.iter().map(|timer| timer.due_at).min()
    }

    /// Lets everything happen that is due.
    pub(crate) fn tick(&mut self, moment: Moment) {
        loop {
            let due = self.timers.iter().enumerate().filter(|(_, timer)| timer.due_at <= moment.now);
            let Some((index, _)) = due.min_by_key(|(_, timer)| timer.due_at) else { break };
            let timer = self.timers.remove(index);
            self.fire(moment, timer.action);
        }
    }

    fn fire(&mut self, moment: Moment, action: TimerAction) {
        match action {
            TimerAction::CreateDone(key) => self.create_done(moment, &key),
            TimerAction::DeleteDone(key) => self.delete_done(moment, &key),
            TimerAction::StopDone(key) => self.stop_done(moment, &key),
            TimerAction::StartDone(key) => self.start_done(moment, &key),
            TimerAction::UpdateDone(key, patch) => self.update_done(moment, &key, patch),
            TimerAction::PowerOff(key, leave, shows_after) => self.notice_over(moment, &key, leave, shows_after),
            TimerAction::ShowLoss(key) => self.show_loss(moment, &key),
            TimerAction::RepairDone(key) => self.repair_done(&key),
            TimerAction::MaintenanceStart(key) => self.maintenance_start(moment, &key),
            TimerAction::MaintenancePowerOff(key) => self.maintenance_power_off(moment, &key),
            TimerAction::MaintenanceEnd(key) => self.maintenance_end(moment, &key),
            TimerAction::LifetimeOver(key) => self.lifetime_over(moment, &key),
            TimerAction::QueuedStep(name, id) => self.queued_step(moment, &name, id),
        }
    }

    /// The node with this key, unless it is gone or its name was taken by another.
    pub(crate) fn node_mut(&mut self, key: &NodeKey) -> Option<&mut Node> {
        self.nodes.get_mut(&key.name).filter(|node| node.id == key.id)
    }

    /// Begins an operation and writes the first audit entry.
    pub(crate) fn begin(&mut self, moment: Moment, call: &Call, verb: &str, target: &str) -> String {
        let (one, two) = (self.draw(), self.draw());
        let name = format!(
            "{}/operations/operation-{}-{:013x}-{:08x}-{:08x}",
            call.location,
            moment.now.as_millisecond(),
            one >> 12,
            two >> 32,
            two & 0xffff_ffff,
        );
        let doom = self.take_fault(&call.method, &call.location.zone, When::Operation).map(|fault| RpcStatus {
            code: fault.code.unwrap_or(13),
            message: fault.message.unwrap_or_else(|| "an internal error has occurred".to_owned()),
        });
        let operation = Operation {
            name: name.clone(),
            target: target.to_owned(),
            verb: verb.to_owned(),
            method: call.method.clone(),
            api_version: call.api_version.clone(),
            created_at: moment.now,
            ended_at: None,
            is_cancel_requested: false,
            outcome: None,
            doom,
        };
        self.effects.push(Effect::Audit(audit::first(&operation, &call.location, moment.now)));
        if let Some(key) = call.request_key() {
            self.requests.insert(key, name.clone());
        }
        self.operations.insert(name.clone(), operation);
        self.forget_old();
        name
    }

    /// The operation that an earlier call with the same request id began.
    pub(crate) fn earlier(&self, call: &Call) -> Option<&Operation> {
        self.operations.get(self.requests.get(&call.request_key()?)?)
    }

    /// Ends an operation and writes the last audit entry. Does nothing to one that has ended.
    pub(crate) fn end(&mut self, moment: Moment, name: &str, outcome: Outcome) {
        let Some(operation) = self.operations.get_mut(name).filter(|operation| operation.outcome.is_none()) else {
            return;
        };
        operation.ended_at = Some(moment.now);
        operation.outcome = Some(outcome);
        let entry = audit::last(operation, moment.now);
        self.effects.push(Effect::Audit(entry));
    }

    /// Takes a fault that hits this call.
    pub(crate) fn take_fault(&mut self, method: &str, zone: &str, when: When) -> Option<Fault> {
        let hits = |fault: &Fault| {
            fault.when == when
                && (fault.method == "*" || fault.method == method)
                && fault.zone.as_deref().is_none_or(|only| only == zone)
        };
        let index = self.faults.iter().position(hits)?;
        self.faults[index].times = self.faults[index].times.saturating_sub(1);
        let fault = self.faults[index].clone();
        if fault.times == 0 {
            self.faults.remove(index);
        }
        Some(fault)
    }

    fn forget_old(&mut self) {
        if self.operations.len() > OPERATIONS_KEPT {
            let oldest = self.operations.values().filter(|operation| operation.outcome.is_some());
            if let Some(name) =
                oldest.min_by_key(|operation| operation.ended_at).map(|operation| operation.name.clone())
            {
                self.operations.remove(&name);
            }
        }
        if self.requests.len() > REQUESTS_KEPT {
            self.requests.retain(|_, operation| self.operations.contains_key(operation));
        }
    }

    /// Asks the metadata servers of all workers of a node to change.
    fn tell_workers(&mut self, key: &NodeKey, changes: Vec<(String, Value)>) {
        let Some(node) = self.node_mut(key) else { return };
        let workers = node.workers.iter().map(|worker| worker.index).collect();
        self.effects.push(Effect::Metadata(key.clone(), workers, changes));
    }
}

/// Who calls what, for operations and audit entries.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// RPC name: `CreateNode`.
    pub method: String,
    /// `v2` or `v2alpha1`.
    pub api_version: String,
    /// Where.
    pub location: Location,
    /// `requestId`, where the method has one.
    pub request_id: Option<String>,
}

impl Call {
    fn request_key(&self) -> Option<String> {
        let id = self.request_id.as_deref().filter(|id| !id.is_empty())?;
        Some(format!("{} {} {id}", self.location, self.method))
    }
}

/// Whether a queued resource in this state may be deleted without force.
fn is_at_rest(state: QueuedState) -> bool {
    matches!(state, QueuedState::WaitingForResources | QueuedState::Failed | QueuedState::Suspended)
}

/// The project number of a project id: made up, but always the same.
pub(crate) fn project_number(project: &str) -> u64 {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(project.as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    100_000_000_000 + u64::from_be_bytes(bytes) % 900_000_000_000
}

/// The catalogue's row for an `acceleratorConfig` or `acceleratorType` of a body.
fn accelerator_of(body: &Map<String, Value>) -> Result<Option<&'static catalog::Accelerator>, String> {
    if let Some(name) = body.get("acceleratorType").and_then(Value::as_str) {
        return catalog::accelerator(name).map(Some).ok_or_else(|| name.to_owned());
    }
    let Some(config) = body.get("acceleratorConfig") else { return Ok(None) };
    let topology = config.get("topology").and_then(Value::as_str).unwrap_or_default();
    let family = crate::wire::enums::accelerator_type(config.get("type").unwrap_or(&Value::Null));
    let family = family.unwrap_or_else(|| "TYPE_UNSPECIFIED".to_owned());
    catalog::by_config(&family, topology).map(Some).ok_or_else(|| format!("{family} {topology}"))
}
