//! Nodes: create, delete, stop, start, patch, and what follows once their time has run.

use std::time::Duration;

use jiff::SignedDuration;
use rekindle_core::catalog::{self, Accelerator};
use serde_json::{Map, Value, json};

use super::{Call, Moment, accelerator_of, reserved};
use crate::model::{
    AfterOff, Effect, Leave, Multislice, Node, NodeKey, NodeState, Outcome, Power, RpcStatus, Timer, TimerAction, When,
    Worker, World,
};
use crate::scenario::Wait;
use crate::wire::body::{self, Version};
use crate::wire::errors::ApiError;
use crate::wire::render;

/// While the VMs of a node that is being deleted or stopped are not confirmed off, look again so often. Real time.
const OFF_RECHECK: SignedDuration = SignedDuration::from_millis(20);

/// How long a `preemptible` node lives at most; `spot` nodes have no limit.
const PREEMPTIBLE_LIFETIME: Duration = Duration::from_hours(24);

/// A node that may be made: its body is checked.
#[derive(Debug, Clone)]
pub(crate) struct NodeDraft {
    /// `nodeId`.
    pub id: String,
    /// The row of the catalogue.
    pub accelerator: &'static Accelerator,
    /// The normalised body.
    pub body: Map<String, Value>,
    /// The pool it takes quota from.
    pub is_spot: bool,
}

impl World {
    /// Checks the body of a node; `is_spot` is the tier of the queued resource it belongs to.
    pub(crate) fn draft_node(
        &mut self,
        call: &Call,
        id: &str,
        given: &Map<String, Value>,
        tier: Option<bool>,
    ) -> Result<NodeDraft, ApiError> {
        body::check_id("nodeId", id)?;
        let version = Version::of(&call.api_version);
        let mut body = body::node(given, &call.location.project, &call.location.zone, version)?;
        let zone = &call.location.zone;
        let row = match accelerator_of(&body) {
            Ok(Some(row)) if catalog::is_offered(&row.name, zone) => row,
            Ok(Some(row)) => return Err(ApiError::accelerator_not_in_zone(&row.name, zone, &self.event_id())),
            Err(name) => return Err(ApiError::accelerator_not_in_zone(&name, zone, &self.event_id())),
            Ok(None) => {
                let text = "The field \"acceleratorType\" or \"acceleratorConfig\" is required.";
                return Err(ApiError::bad_request(text, &self.event_id()));
            }
        };
        body.remove("acceleratorConfig");
        body.insert("acceleratorType".to_owned(), json!(row.name));
        let runtime = body.get("runtimeVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !catalog::runtime_exists(&runtime) {
            let text = format!("The field \"runtimeVersion\" cannot be \"{runtime}\".");
            return Err(ApiError::bad_request(&text, &self.event_id()));
        }
        let is_spot = tier.unwrap_or_else(|| body::is_spot(&body));
        Ok(NodeDraft { id: id.to_owned(), accelerator: row, body, is_spot })
    }

    /// CreateNode: the name of its operation.
    pub(crate) fn create_node(&mut self, moment: Moment, call: &Call, draft: NodeDraft) -> Result<String, ApiError> {
        if let Some(earlier) = self.earlier(call) {
            return Ok(earlier.name.clone());
        }
        let name = call.location.node(&draft.id);
        if self.nodes.contains_key(&name) {
            return Err(ApiError::already_exists(&name));
        }
        let chips = u64::from(draft.accelerator.chips);
        if let Some(limit) = self.quota_broken(&call.location, &draft.accelerator.family, draft.is_spot, chips) {
            return Err(ApiError::quota(&call.location, draft.accelerator, draft.is_spot, limit));
        }
        self.check_room_for_workers(draft.accelerator.workers as usize)?;
        let zone = &call.location.zone;
        let has_room = self.has_room(zone, &draft.accelerator.family, chips);
        // A node cannot say which one: any will do.
        let reserved = body::is_reserved(&draft.body).then(|| self.reserve(zone, reserved::ANY, chips)).transpose();
        let operation = self.begin(moment, call, "create", &name);
        let wait = self.wait(zone, if has_room && reserved.is_ok() { Wait::Create } else { Wait::Stockout });
        let refusal = match &reserved {
            Ok(_) if has_room => None,
            Ok(_) => Some(stockout(zone, &self.event_id())),
            Err(_) => Some(reserved::used_up(&self.event_id())),
        };
        if let (Some(status), Some(operation)) = (refusal, self.operations.get_mut(&operation)) {
            operation.doom.get_or_insert(status);
        }
        let key = self.add_node(moment, call, draft, Some(operation.clone()), None);
        if let Some(node) = self.node_mut(&key) {
            node.reservation = reserved.ok().flatten().flatten();
        }
        self.schedule(moment, wait, TimerAction::CreateDone(key));
        Ok(operation)
    }

    fn has_room(&self, zone: &str, family: &str, chips: u64) -> bool {
        self.free_chips(zone, family).is_none_or(|free| free >= chips)
    }

    /// Puts a node in state CREATING.
    pub(super) fn add_node(
        &mut self,
        moment: Moment,
        call: &Call,
        draft: NodeDraft,
        operation: Option<String>,
        queued: Option<(String, Option<Multislice>)>,
    ) -> NodeKey {
        let id = self.draw() >> 1;
        let vm_prefix = format!("t1v-n-{:08x}", self.draw() >> 32);
        let workers = (0..draft.accelerator.workers).map(|index| Worker { index, ip: self.next_address(), boot: 0 });
        let workers = workers.collect();
        let name = call.location.node(&draft.id);
        let node = Node {
            name: name.clone(),
            location: call.location.clone(),
            id,
            vm_prefix,
            accelerator: draft.accelerator.name.clone(),
            state: NodeState::Creating,
            health: None,
            health_description: None,
            is_spot: draft.is_spot,
            body: draft.body,
            created_at: moment.now,
            workers,
            multislice: queued.as_ref().and_then(|(_, multislice)| *multislice),
            queued_resource: queued.map(|(name, _)| name),
            reservation: None,
            maintenance: None,
            is_preempting: false,
            power: Power::Off,
            after_off: None,
            operation,
        };
        self.nodes.insert(name.clone(), node);
        NodeKey { name, id }
    }

    /// A create has run its time: READY and booting, or the operation's error and no node.
    pub(super) fn create_done(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key).filter(|node| node.state == NodeState::Creating) else { return };
        let operation = node.operation.take();
        let doom = operation.as_ref().and_then(|name| self.operations.get(name)?.doom.clone());
        if let (Some(name), Some(status)) = (&operation, doom) {
            self.end(moment, name, Outcome::Error(status));
            self.remove_node(key);
            return;
        }
        self.boot_node(key);
        let node = &self.nodes[&key.name];
        if node.body["schedulingConfig"]["preemptible"] == true {
            self.schedule(moment, PREEMPTIBLE_LIFETIME, TimerAction::LifetimeOver(key.clone()));
        }
        if let Some(name) = operation {
            let rendered = render::snapshot(&self.nodes[&key.name]);
            self.end(moment, &name, Outcome::Node(rendered));
        }
        self.queued_node_ready(moment, key);
    }

    /// READY, with every VM starting.
    pub(super) fn boot_node(&mut self, key: &NodeKey) {
        let Some(node) = self.node_mut(key) else { return };
        node.state = NodeState::Ready;
        node.health = Some("HEALTHY".to_owned());
        node.health_description = None;
        node.power = Power::On;
        for worker in &mut node.workers {
            worker.boot += 1;
        }
        let workers = node.workers.iter().map(|worker| worker.index).collect();
        self.effects.push(Effect::Boot(key.clone(), workers));
    }

    /// Ends every VM of a node; [`World::powered_off`] is told when they are off.
    pub(super) fn switch_off(&mut self, moment: Moment, key: &NodeKey, after: Option<AfterOff>) {
        let Some(node) = self.node_mut(key) else { return };
        node.after_off = after.or(node.after_off.take());
        match node.power {
            Power::On => {
                node.power = Power::TurningOff;
                let workers = node.workers.iter().map(|worker| worker.index).collect();
                self.effects.push(Effect::PowerOff(key.clone(), workers));
            }
            Power::TurningOff => {}
            Power::Off => self.powered_off(moment, key),
        }
    }

    /// The fleet's word that no process of the node is left.
    pub(crate) fn powered_off(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key).filter(|node| node.power != Power::On) else { return };
        node.power = Power::Off;
        match node.after_off.take() {
            Some(AfterOff::Leave(leave)) => self.leave(moment, key, leave),
            Some(AfterOff::Repair(Some(millis))) => {
                self.schedule(moment, Duration::from_millis(millis), TimerAction::RepairDone(key.clone()));
            }
            Some(AfterOff::Repair(None)) => self.leave(moment, key, Leave::Unknown),
            None => {}
        }
    }

    /// DeleteNode: the name of its operation.
    pub(crate) fn delete_node(&mut self, moment: Moment, call: &Call, id: &str) -> Result<String, ApiError> {
        if let Some(earlier) = self.earlier(call) {
            return Ok(earlier.name.clone());
        }
        let name = call.location.node(id);
        let Some(node) = self.nodes.get(&name) else { return Err(ApiError::not_found(&name)) };
        let (state, key, pending) = (node.state, node.key(), node.operation.clone());
        let refuses = self.zone(&call.location.zone).refuse_delete_while_creating == Some(true);
        if state == NodeState::Deleting || (state == NodeState::Creating && refuses) {
            return Err(ApiError::wrong_state("delete", state, &self.event_id()));
        }
        if let Some(pending) = pending {
            let message = format!("operation was cancelled: {name} is being deleted");
            self.end(moment, &pending, Outcome::Error(RpcStatus { code: 1, message }));
        }
        let operation = self.begin(moment, call, "delete", &name);
        let node = self.node_mut(&key).expect("looked up above");
        node.operation = Some(operation.clone());
        let queued = node.queued_resource.clone();
        self.begin_delete(moment, &key);
        if let Some(queued) = queued {
            self.suspend(moment, &queued, "USER");
        }
        Ok(operation)
    }

    /// DELETING: the VMs go off at once, the name is free later.
    pub(super) fn begin_delete(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key) else { return };
        node.state = NodeState::Deleting;
        node.health = None;
        node.after_off = None;
        let zone = node.location.zone.clone();
        self.switch_off(moment, key, None);
        let wait = self.wait(&zone, Wait::Delete);
        self.schedule(moment, wait, TimerAction::DeleteDone(key.clone()));
    }

    pub(super) fn delete_done(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key) else { return };
        if node.power != Power::Off {
            // A 404 says that nothing of the slice runs any more.
            self.recheck(moment, TimerAction::DeleteDone(key.clone()));
            return;
        }
        let (operation, queued) = (node.operation.take(), node.queued_resource.clone());
        if let Some(name) = operation {
            let doom = self.operations.get(&name).and_then(|operation| operation.doom.clone());
            if let Some(status) = doom {
                self.node_mut(key).expect("looked up above").state = NodeState::Unknown;
                self.end(moment, &name, Outcome::Error(status));
                return;
            }
            self.end(moment, &name, Outcome::Empty);
        }
        self.remove_node(key);
        if let Some(queued) = queued {
            self.queued_node_gone(moment, &queued);
        }
    }

    /// Tries again shortly: the VMs are not off yet.
    pub(super) fn recheck(&mut self, moment: Moment, action: TimerAction) {
        let due_at = moment.now + OFF_RECHECK;
        self.timers.push(Timer { due_at, action });
    }

    /// The node is gone at once.
    pub(super) fn remove_node(&mut self, key: &NodeKey) {
        if self.node_mut(key).is_some() {
            self.nodes.remove(&key.name);
            self.effects.push(Effect::Remove(key.clone()));
        }
    }

    /// StopNode: the name of its operation.
    pub(crate) fn stop_node(&mut self, moment: Moment, call: &Call, id: &str) -> Result<String, ApiError> {
        let key = self.stoppable(call, id, "stop", NodeState::Ready)?;
        let operation = self.begin(moment, call, "stop", &key.name);
        let node = self.node_mut(&key).expect("looked up above");
        node.state = NodeState::Stopping;
        node.health = None;
        node.operation = Some(operation.clone());
        self.switch_off(moment, &key, None);
        let wait = self.wait(&call.location.zone, Wait::Stop);
        self.schedule(moment, wait, TimerAction::StopDone(key));
        Ok(operation)
    }

    /// StartNode: the name of its operation.
    pub(crate) fn start_node(&mut self, moment: Moment, call: &Call, id: &str) -> Result<String, ApiError> {
        let key = self.stoppable(call, id, "start", NodeState::Stopped)?;
        let operation = self.begin(moment, call, "start", &key.name);
        let row = self.nodes[&key.name].catalogue();
        if !self.has_room(&call.location.zone, &row.family, u64::from(row.chips)) {
            let status = stockout(&call.location.zone, &self.event_id());
            let operation = self.operations.get_mut(&operation).expect("begun above");
            operation.doom.get_or_insert(status);
        }
        let node = self.node_mut(&key).expect("looked up above");
        node.state = NodeState::Starting;
        node.operation = Some(operation.clone());
        let wait = self.wait(&call.location.zone, Wait::Stop);
        self.schedule(moment, wait, TimerAction::StartDone(key));
        Ok(operation)
    }

    fn stoppable(&mut self, call: &Call, id: &str, verb: &str, wanted: NodeState) -> Result<NodeKey, ApiError> {
        let name = call.location.node(id);
        let Some(node) = self.nodes.get(&name) else { return Err(ApiError::not_found(&name)) };
        let refusal = if node.is_spot {
            Some(format!("{verb} is not supported for preemptible and spot nodes"))
        } else if node.workers.len() > 1 {
            Some(format!("{verb} is not supported for multi-host nodes"))
        } else if node.queued_resource.is_some() {
            Some(format!("{verb} is not supported for nodes of a queued resource"))
        } else if node.state == wanted {
            None
        } else {
            Some(format!("{verb} is not supported while in state {}", node.state.as_str()))
        };
        let key = node.key();
        match refusal {
            Some(text) => Err(ApiError::failed_precondition(&text, &self.event_id())),
            None => Ok(key),
        }
    }

    pub(super) fn stop_done(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key).filter(|node| node.state == NodeState::Stopping) else { return };
        if node.power != Power::Off {
            self.recheck(moment, TimerAction::StopDone(key.clone()));
            return;
        }
        node.state = NodeState::Stopped;
        self.end_with_node(moment, key);
    }

    pub(super) fn start_done(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key).filter(|node| node.state == NodeState::Starting) else { return };
        let operation = node.operation.clone();
        let doom = operation.and_then(|name| self.operations.get(&name)?.doom.clone());
        if doom.is_some() {
            self.node_mut(key).expect("looked up above").state = NodeState::Stopped;
        } else {
            self.boot_node(key);
        }
        self.end_with_node(moment, key);
    }

    /// Ends the operation that holds a node, with the node or with the operation's doom.
    fn end_with_node(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key) else { return };
        let Some(name) = node.operation.take() else { return };
        let rendered = render::snapshot(node);
        let doom = self.operations.get(&name).and_then(|operation| operation.doom.clone());
        self.end(moment, &name, doom.map_or(Outcome::Node(rendered), Outcome::Error));
    }

    /// UpdateNode: the name of its operation.
    pub(crate) fn update_node(
        &mut self,
        moment: Moment,
        call: &Call,
        id: &str,
        given: &Map<String, Value>,
        mask: &str,
    ) -> Result<String, ApiError> {
        let name = call.location.node(id);
        let Some(node) = self.nodes.get(&name) else { return Err(ApiError::not_found(&name)) };
        if node.operation.is_some() {
            return Err(ApiError::busy(&name));
        }
        let patch = body::patch(given, mask)?;
        let (key, state) = (node.key(), node.state);
        let operation = self.begin(moment, call, "update", &name);
        if !matches!(state, NodeState::Ready | NodeState::Stopped) {
            let message = format!(
                "Cloud TPU received a bad request. update is not supported while in state {} {}",
                state.as_str(),
                self.event_id(),
            );
            self.end(moment, &operation, Outcome::Error(RpcStatus { code: 3, message }));
            return Ok(operation);
        }
        self.node_mut(&key).expect("looked up above").operation = Some(operation.clone());
        let wait = self.wait(&call.location.zone, Wait::Update);
        self.schedule(moment, wait, TimerAction::UpdateDone(key, patch));
        Ok(operation)
    }

    pub(super) fn update_done(&mut self, moment: Moment, key: &NodeKey, patch: Map<String, Value>) {
        let Some(node) = self.node_mut(key) else { return };
        let name = node.operation.clone();
        let is_ours = |name: &String| self.operations.get(name).is_some_and(|operation| operation.verb == "update");
        let Some(name) = name.filter(is_ours) else { return };
        let is_doomed = self.operations[&name].doom.is_some();
        let before = self.nodes[&key.name].metadata();
        if !is_doomed {
            let node = self.node_mut(key).expect("looked up above");
            body::apply(&mut node.body, patch);
            let after = node.metadata();
            let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
            let changed = changed.map(|(key, value)| (format!("instance/attributes/{key}"), value.clone()));
            let gone = before.keys().filter(|key| !after.contains_key(*key));
            let gone = gone.map(|key| (format!("instance/attributes/{key}"), Value::Null));
            let changes: Vec<(String, Value)> = changed.chain(gone).collect();
            if !changes.is_empty() {
                self.tell_workers(key, changes);
            }
        }
        self.end_with_node(moment, key);
    }

    /// CancelOperation. A create stops and leaves no node; anything else only notes the wish.
    pub(crate) fn cancel_operation(&mut self, moment: Moment, name: &str) -> Result<(), ApiError> {
        let Some(operation) = self.operations.get_mut(name) else { return Err(ApiError::not_found(name)) };
        operation.is_cancel_requested = true;
        let is_create = operation.verb == "create" && operation.outcome.is_none();
        let target = operation.target.clone();
        let creating = self.nodes.get(&target).filter(|node| node.state == NodeState::Creating).map(Node::key);
        if let Some(key) = creating.filter(|_| is_create) {
            let message = "operation was cancelled".to_owned();
            self.end(moment, name, Outcome::Error(RpcStatus { code: 1, message }));
            self.remove_node(&key);
        }
        Ok(())
    }

    /// A fault that strikes before (`When::Before`) or after the call.
    pub(crate) fn fault(&mut self, call: &Call, when: When) -> Option<(ApiError, Option<Duration>)> {
        let fault = self.take_fault(&call.method, &call.location.zone, when)?;
        Some((ApiError::injected(fault.status, fault.message.as_deref()), fault.delay.map(|delay| delay.0)))
    }
}

/// The stockout of a zone, as it appears in operations and failed queued resources.
pub(super) fn stockout(zone: &str, event_id: &str) -> RpcStatus {
    let message = format!(
        "There is no more capacity in the zone \"{zone}\"; you can try in another zone where Cloud TPU Nodes are \
         offered (see https://cloud.google.com/tpu/docs/regions) {event_id}"
    );
    RpcStatus { code: 8, message }
}
