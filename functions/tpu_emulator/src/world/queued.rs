//! Queued resources: the queue, what it makes, how it is suspended and deleted.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::nodes::stockout;
use super::{Call, Moment, is_at_rest, reserved};
use crate::model::{
    Multislice, NodeKey, NodeSpec, NodeState, Outcome, QueuedResource, QueuedState, RpcStatus, TimerAction, When, World,
};
use crate::scenario::Wait;
use crate::wire::body::{self, Version};
use crate::wire::errors::ApiError;
use crate::wire::render;

/// How often a request in the queue is looked at again. Nominal.
const QUEUE_POLL: Duration = Duration::from_secs(1);

/// A queued resource that may be made: its body is checked.
#[derive(Debug, Clone)]
pub(crate) struct QueuedDraft {
    /// `queuedResourceId`.
    pub id: String,
    /// One for each node.
    pub node_specs: Vec<NodeSpec>,
    /// Tier, queueing policy, reservation.
    pub body: Map<String, Value>,
    /// The pool it takes quota from.
    pub is_spot: bool,
    valid_until: Option<Timestamp>,
    valid_after: Option<Timestamp>,
}

impl World {
    /// Checks the body of a queued resource.
    pub(crate) fn draft_queued(
        &mut self,
        moment: Moment,
        call: &Call,
        id: &str,
        given: &Map<String, Value>,
    ) -> Result<QueuedDraft, ApiError> {
        body::check_id("queuedResourceId", id)?;
        let version = Version::of(&call.api_version);
        let (specs, rest) = body::queued(given, version)?;
        let is_spot_model = rest.get("provisioningModel").is_some_and(|model| model == "SPOT");
        let is_spot = rest.contains_key("spot") || rest.contains_key("bestEffort") || is_spot_model;
        let mut node_specs: Vec<NodeSpec> = Vec::new();
        for spec in specs {
            let parent_zone = spec.parent.rsplit('/').next().unwrap_or_default();
            if !spec.parent.is_empty() && parent_zone != call.location.zone {
                return Err(ApiError::invalid("the parent of a node must be the parent of the queued resource"));
            }
            for node_id in spec.node_ids(id)? {
                let draft = self.draft_node(call, &node_id, &spec.node, Some(is_spot))?;
                if !self.scenario.queues(&draft.accelerator.name) {
                    let text = format!("Queueing is not supported for accelerator type {}", draft.accelerator.name);
                    return Err(ApiError::invalid(&text));
                }
                let accelerator = draft.accelerator.name.clone();
                node_specs.push(NodeSpec { node_id, node: spec.node.clone(), accelerator });
            }
        }
        if node_specs.is_empty() {
            return Err(ApiError::invalid("a queued resource needs at least one node"));
        }
        if node_specs.windows(2).any(|pair| pair[0].accelerator != pair[1].accelerator) {
            return Err(ApiError::invalid("all nodes of a queued resource must be alike"));
        }
        let reservation = reserved::of_queued(&rest).map(|asked| self.reserve(&call.location.zone, asked, 0));
        if reservation == Some(Err(reserved::Shortage::NotFound)) {
            return Err(ApiError::reservation_not_found());
        }
        let (valid_after, valid_until) = body::validity(&rest, moment)?;
        Ok(QueuedDraft { id: id.to_owned(), node_specs, body: rest, is_spot, valid_until, valid_after })
    }

    /// CreateQueuedResource: the name of its operation.
    pub(crate) fn create_queued(
        &mut self,
        moment: Moment,
        call: &Call,
        draft: QueuedDraft,
    ) -> Result<String, ApiError> {
        if let Some(earlier) = self.earlier(call) {
            return Ok(earlier.name.clone());
        }
        let name = call.location.queued_resource(&draft.id);
        if self.queued_resources.contains_key(&name) {
            return Err(ApiError::already_exists(&name));
        }
        for spec in &draft.node_specs {
            let node = call.location.node(&spec.node_id);
            if self.nodes.contains_key(&node) {
                return Err(ApiError::already_exists(&node));
            }
        }
        let mut queued = QueuedResource {
            name: name.clone(),
            location: call.location.clone(),
            id: self.draw() >> 1,
            created_at: moment.now,
            state: QueuedState::Creating,
            initiator: None,
            error: None,
            node_specs: draft.node_specs,
            body: draft.body,
            is_spot: draft.is_spot,
            valid_until: draft.valid_until,
            valid_after: draft.valid_after,
            operation: None,
            is_deleting: false,
            is_resetting: false,
        };
        let (family, chips) = (queued.family(), queued.chips());
        if let Some(limit) = self.quota_broken(&call.location, family, queued.is_spot, chips) {
            return Err(ApiError::queued_quota(&call.location, family, queued.is_spot, limit));
        }
        self.check_room_for_workers(queued.workers())?;
        let operation = self.begin(moment, call, "create", &name);
        queued.operation = Some(operation.clone());
        let id = queued.id;
        self.queued_resources.insert(name.clone(), queued);
        let wait = self.wait(&call.location.zone, Wait::Queue);
        self.schedule(moment, wait, TimerAction::QueuedStep(name, id));
        Ok(operation)
    }

    /// DeleteQueuedResource: the name of its operation.
    pub(crate) fn delete_queued(
        &mut self,
        moment: Moment,
        call: &Call,
        id: &str,
        force: bool,
    ) -> Result<String, ApiError> {
        if let Some(earlier) = self.earlier(call) {
            return Ok(earlier.name.clone());
        }
        let name = call.location.queued_resource(id);
        let Some(queued) = self.queued_resources.get(&name) else { return Err(ApiError::not_found(&name)) };
        let (state, pending) = (queued.state, queued.operation.clone());
        if state == QueuedState::Deleting || (!force && !is_at_rest(state)) {
            let text = format!("delete is not supported while in state {}", state.as_str());
            return Err(ApiError::failed_precondition(&text, &self.event_id()));
        }
        if let Some(pending) = pending {
            let message = format!("operation was cancelled: {name} is being deleted");
            self.end(moment, &pending, Outcome::Error(RpcStatus { code: 1, message }));
        }
        let operation = self.begin(moment, call, "delete", &name);
        let queued = self.queued_resources.get_mut(&name).expect("looked up above");
        queued.operation = Some(operation.clone());
        queued.is_deleting = true;
        queued.state = QueuedState::Deleting;
        queued.initiator = None;
        let id = queued.id;
        self.delete_nodes_of(moment, &name);
        let wait = self.wait(&call.location.zone, Wait::Queue);
        self.schedule(moment, wait, TimerAction::QueuedStep(name, id));
        Ok(operation)
    }

    /// ResetQueuedResource: the nodes go, the request waits again. Only while ACTIVE.
    pub(crate) fn reset_queued(&mut self, moment: Moment, call: &Call, id: &str) -> Result<String, ApiError> {
        let name = call.location.queued_resource(id);
        let Some(queued) = self.queued_resources.get(&name) else { return Err(ApiError::not_found(&name)) };
        if queued.state != QueuedState::Active {
            let text = format!("reset is not supported while in state {}", queued.state.as_str());
            return Err(ApiError::failed_precondition(&text, &self.event_id()));
        }
        let operation = self.begin(moment, call, "reset", &name);
        let queued = self.queued_resources.get_mut(&name).expect("looked up above");
        queued.operation = Some(operation.clone());
        queued.is_resetting = true;
        queued.state = QueuedState::Provisioning;
        self.delete_nodes_of(moment, &name);
        Ok(operation)
    }

    /// Begins to delete every node that a queued resource made. Whether there were any.
    fn delete_nodes_of(&mut self, moment: Moment, name: &str) -> bool {
        let mine = self.nodes.values().filter(|node| node.queued_resource.as_deref() == Some(name));
        let keys: Vec<(NodeKey, NodeState)> = mine.map(|node| (node.key(), node.state)).collect();
        for (key, state) in &keys {
            if *state != NodeState::Deleting {
                self.begin_delete(moment, key);
            }
        }
        !keys.is_empty()
    }

    /// SUSPENDING: all nodes go, then SUSPENDED.
    pub(super) fn suspend(&mut self, moment: Moment, name: &str, initiator: &str) {
        let Some(queued) = self.queued_resources.get_mut(name) else { return };
        if !matches!(queued.state, QueuedState::Active | QueuedState::Provisioning) || queued.is_resetting {
            return;
        }
        queued.state = QueuedState::Suspending;
        queued.initiator = Some(initiator.to_owned());
        self.delete_nodes_of(moment, name);
    }

    /// What is SUSPENDING ends FAILED instead of SUSPENDED.
    pub(super) fn fail_once_suspended(&mut self, name: &str) {
        let suspending = |queued: &&mut QueuedResource| queued.state == QueuedState::Suspending;
        if let Some(queued) = self.queued_resources.get_mut(name).filter(suspending) {
            let message = "an internal error has occurred".to_owned();
            queued.error = Some(RpcStatus { code: 13, message });
        }
    }

    /// One node of a queued resource became READY.
    pub(super) fn queued_node_ready(&mut self, moment: Moment, key: &NodeKey) {
        let Some(name) = self.nodes.get(&key.name).and_then(|node| node.queued_resource.clone()) else { return };
        let Some(queued) = self.queued_resources.get(&name) else { return };
        let is_ready = |name: &String| self.nodes.get(name).is_some_and(|node| node.state == NodeState::Ready);
        if queued.state != QueuedState::Provisioning || !queued.node_names().iter().all(is_ready) {
            return;
        }
        let queued = self.queued_resources.get_mut(&name).expect("looked up above");
        queued.state = QueuedState::Active;
        let operation = queued.operation.take();
        let rendered = render::queued_snapshot(queued);
        if let Some(operation) = operation {
            self.end(moment, &operation, Outcome::QueuedResource(rendered));
        }
    }

    /// One node of a queued resource is gone.
    pub(super) fn queued_node_gone(&mut self, moment: Moment, name: &str) {
        let Some(queued) = self.queued_resources.get(name) else { return };
        let (id, zone) = (queued.id, queued.location.zone.clone());
        if self.has_nodes(name) {
            return;
        }
        let wait = self.wait(&zone, Wait::Queue);
        self.schedule(moment, wait, TimerAction::QueuedStep(name.to_owned(), id));
    }

    /// A queued resource goes one step on.
    pub(super) fn queued_step(&mut self, moment: Moment, name: &str, id: u64) {
        let Some(queued) = self.queued_resources.get(name).filter(|queued| queued.id == id) else { return };
        match queued.state {
            QueuedState::Creating => self.enqueue(moment, name),
            QueuedState::WaitingForResources => self.serve(moment, name),
            // The end of the last node comes back here.
            QueuedState::Suspending | QueuedState::Deleting if self.has_nodes(name) => {}
            QueuedState::Provisioning if queued.is_resetting && !self.has_nodes(name) => {
                let queued = self.queued_resources.get_mut(name).expect("looked up above");
                queued.is_resetting = false;
                queued.state = QueuedState::WaitingForResources;
                self.serve(moment, name);
            }
            QueuedState::Suspending => {
                let queued = self.queued_resources.get_mut(name).expect("looked up above");
                queued.state = if queued.error.is_some() { QueuedState::Failed } else { QueuedState::Suspended };
                if queued.state == QueuedState::Failed {
                    queued.initiator = None;
                }
            }
            QueuedState::Deleting => self.delete_queued_done(moment, name),
            QueuedState::Provisioning | QueuedState::Active | QueuedState::Suspended | QueuedState::Failed => {}
        }
    }

    fn enqueue(&mut self, moment: Moment, name: &str) {
        let queued = self.queued_resources.get_mut(name).expect("looked up by the caller");
        queued.state = QueuedState::WaitingForResources;
        let operation = queued.operation.take();
        let rendered = render::queued_snapshot(queued);
        let doom = operation.as_ref().and_then(|name| self.operations.get(name)?.doom.clone());
        if let Some(operation) = operation {
            self.end(moment, &operation, Outcome::QueuedResource(rendered));
        }
        if let Some(status) = doom {
            // As users saw it: accepted, and FAILED some time later.
            self.fail_queued(name, status);
            return;
        }
        let queued = &self.queued_resources[name];
        let (id, zone) = (queued.id, queued.location.zone.clone());
        let wait = self.wait(&zone, Wait::Queue);
        self.schedule(moment, wait, TimerAction::QueuedStep(name.to_owned(), id));
    }

    fn poll_queue(&mut self, moment: Moment, name: &str) {
        let Some(queued) = self.queued_resources.get(name) else { return };
        let id = queued.id;
        self.schedule(moment, QUEUE_POLL, TimerAction::QueuedStep(name.to_owned(), id));
    }

    fn has_nodes(&self, name: &str) -> bool {
        self.nodes.values().any(|node| node.queued_resource.as_deref() == Some(name))
    }

    fn fail_queued(&mut self, name: &str, status: RpcStatus) {
        if let Some(queued) = self.queued_resources.get_mut(name) {
            queued.state = QueuedState::Failed;
            queued.error = Some(status);
        }
    }

    /// Takes a waiting request out of the queue when there is room for all of its nodes.
    fn serve(&mut self, moment: Moment, name: &str) {
        let queued = self.queued_resources[name].clone();
        if queued.valid_until.is_some_and(|until| moment.now > until) {
            let message = "the request expired before it could be fulfilled".to_owned();
            self.fail_queued(name, RpcStatus { code: 4, message });
            return;
        }
        let zone = &queued.location.zone;
        let reservation =
            reserved::of_queued(&queued.body).map(|asked| self.reserve(zone, asked, queued.chips())).transpose();
        let Ok(reservation) = reservation else {
            let status = reserved::used_up(&self.event_id());
            self.fail_queued(name, status);
            return;
        };
        let has_room = self.free_chips(zone, queued.family()).is_none_or(|free| free >= queued.chips());
        if !has_room || queued.valid_after.is_some_and(|after| moment.now < after) {
            self.poll_queue(moment, name);
            return;
        }
        if let Some(fault) = self.take_fault("ProvisionQueuedResource", zone, When::Operation) {
            let status = match (fault.code, fault.message) {
                (Some(8), None) => stockout(zone, &self.event_id()),
                (code, message) => RpcStatus {
                    code: code.unwrap_or(13),
                    message: message.unwrap_or_else(|| "an internal error has occurred".to_owned()),
                },
            };
            self.fail_queued(name, status);
            return;
        }
        self.provision(moment, &queued, reservation.flatten().as_deref());
    }

    fn provision(&mut self, moment: Moment, queued: &QueuedResource, reservation: Option<&str>) {
        let call = Call {
            method: "CreateQueuedResource".to_owned(),
            // The fields were checked against the version of the request when it came.
            api_version: "v2alpha1".to_owned(),
            location: queued.location.clone(),
            request_id: None,
        };
        self.queued_resources.get_mut(&queued.name).expect("cloned from there").state = QueuedState::Provisioning;
        let count = queued.node_specs.len() as u32;
        for (index, spec) in (0..).zip(&queued.node_specs) {
            let multislice = (count > 1).then_some(Multislice { index, count });
            let draft = match self.draft_node(&call, &spec.node_id, &spec.node, Some(queued.is_spot)) {
                Ok(draft) if !self.nodes.contains_key(&queued.location.node(&spec.node_id)) => draft,
                Ok(_) => {
                    let message = format!("{} already exists", queued.location.node(&spec.node_id));
                    return self.fail_provision(moment, &queued.name, RpcStatus { code: 6, message });
                }
                Err(error) => {
                    let status = RpcStatus { code: 3, message: error.message };
                    return self.fail_provision(moment, &queued.name, status);
                }
            };
            let mut draft = draft;
            if queued.is_spot {
                draft.body.insert("schedulingConfig".to_owned(), json!({"spot": true}));
            } else if reserved::of_queued(&queued.body).is_some() {
                draft.body.insert("schedulingConfig".to_owned(), json!({"reserved": true}));
            }
            let key = self.add_node(moment, &call, draft, None, Some((queued.name.clone(), multislice)));
            if let Some(node) = self.node_mut(&key) {
                node.reservation = reservation.map(str::to_owned);
            }
            let wait = self.wait(&queued.location.zone, Wait::Create);
            self.schedule(moment, wait, TimerAction::CreateDone(key));
        }
    }

    fn fail_provision(&mut self, moment: Moment, name: &str, status: RpcStatus) {
        self.fail_queued(name, status);
        self.delete_nodes_of(moment, name);
    }

    fn delete_queued_done(&mut self, moment: Moment, name: &str) {
        let Some(queued) = self.queued_resources.remove(name) else { return };
        if let Some(operation) = queued.operation {
            self.end(moment, &operation, Outcome::Empty);
        }
    }
}
