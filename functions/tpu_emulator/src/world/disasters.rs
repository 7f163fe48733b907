//! What the provider does to nodes: preemption, host errors, maintenance, bad health.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Moment;
use crate::duration::Span;
use crate::model::{
    AfterOff, Effect, Leave, Maintenance, Node, NodeKey, NodeState, Outcome, Power, RpcStatus, TimerAction, World,
};
use crate::wire::audit;
use crate::wire::errors::ApiError;

/// `POST …/preempt`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PreemptOrder {
    /// From the notice to the hard power-off. Default 30 s.
    pub notice: Span,
    /// What the node shows then. Default PREEMPTED; the node of a queued resource is deleted whatever is asked for,
    /// but for READY, and the queued resource is SUSPENDED, or with FAILED (for such a node alone) FAILED.
    pub leave: Leave,
    /// With READY, which a node that is being created cannot be left: after so long it shows PREEMPTED after all. Absent: never.
    #[serde(rename = "for")]
    pub shows_after: Option<Span>,
}

impl Default for PreemptOrder {
    fn default() -> Self {
        Self { notice: Span::secs(30), leave: Leave::Preempted, shows_after: None }
    }
}

/// `POST …/maintenance`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MaintenanceOrder {
    /// From the announcement to the start of the window. Default 60 s.
    #[serde(rename = "in")]
    pub starts_in: Span,
    /// Length of the window; the node is well again at its end. Default 60 s.
    pub duration: Span,
    /// `TERMINATE_ON_HOST_MAINTENANCE` (the VMs go off `notice` after the start and boot again at the end),
    /// `MIGRATE_ON_HOST_MAINTENANCE` or `NONE` (they run on). Default TERMINATE.
    pub event: String,
    /// From the start of the window to the power-off. Default 60 s, at most the window.
    pub notice: Span,
    /// `SCHEDULED` or `UNSCHEDULED`.
    #[serde(rename = "type")]
    pub kind: String,
}

impl Default for MaintenanceOrder {
    fn default() -> Self {
        Self {
            starts_in: Span::secs(60),
            duration: Span::secs(60),
            event: "TERMINATE_ON_HOST_MAINTENANCE".to_owned(),
            notice: Span::secs(60),
            kind: "SCHEDULED".to_owned(),
        }
    }
}

impl World {
    /// Preempts a node: notice now, hard power-off after it. A node that is being created fails at once.
    /// Returns the moment of the power-off.
    pub(crate) fn preempt(
        &mut self,
        moment: Moment,
        key: &NodeKey,
        order: &PreemptOrder,
    ) -> Result<Timestamp, ApiError> {
        let Some(node) = self.node_mut(key) else { return Err(ApiError::not_found(&key.name)) };
        if order.leave == Leave::Failed && node.queued_resource.is_none() {
            return Err(ApiError::invalid("only a queued resource is left FAILED, and this node belongs to none"));
        }
        if node.state == NodeState::Creating {
            if order.leave == Leave::Ready {
                let text =
                    "a node that is being created has no machines yet and cannot be left READY: its create fails";
                return Err(ApiError::invalid(text));
            }
            self.preempt_creating(moment, key, order.leave);
            return Ok(moment.now);
        }
        let has_vms = matches!(node.state, NodeState::Ready | NodeState::Restarting | NodeState::Repairing);
        if !has_vms || node.is_preempting {
            let text = format!("a node in state {} cannot be preempted (again)", node.state.as_str());
            return Err(ApiError::conflict(&text));
        }
        node.is_preempting = true;
        let entries: Vec<Value> = node
            .workers
            .iter()
            .map(|worker| audit::system_event(node, worker.index, "preempted", "Instance was preempted.", moment.now))
            .collect();
        self.effects.extend(entries.into_iter().map(Effect::Audit));
        self.tell_workers(key, vec![("instance/preempted".to_owned(), json!("TRUE"))]);
        let shows_after = order.shows_after.map(|span| span.0.as_millis() as u64);
        self.schedule(moment, order.notice.0, TimerAction::PowerOff(key.clone(), order.leave, shows_after));
        Ok(moment.after(order.notice.0))
    }

    /// Preempted while creating: the operation fails and leaves a node to delete.
    fn preempt_creating(&mut self, moment: Moment, key: &NodeKey, leave: Leave) {
        let message = format!(
            "Cloud TPU received a bad request. create is not supported while in state PREEMPTED {}",
            self.event_id(),
        );
        let Some(node) = self.node_mut(key) else { return };
        let (operation, queued) = (node.operation.take(), node.queued_resource.clone());
        if let Some(name) = operation {
            self.end(moment, &name, Outcome::Error(RpcStatus { code: 3, message }));
        }
        if queued.is_none() {
            self.leave(moment, key, leave);
            return;
        }
        let leave = if leave == Leave::Failed { leave } else { Leave::Preempted };
        self.leave(moment, key, leave);
    }

    pub(super) fn notice_over(&mut self, moment: Moment, key: &NodeKey, leave: Leave, shows_after: Option<u64>) {
        let Some(node) = self.node_mut(key).filter(|node| node.is_preempting) else { return };
        if !matches!(node.state, NodeState::Ready | NodeState::Restarting | NodeState::Repairing) {
            // Deleted during the notice.
            return;
        }
        self.switch_off(moment, key, Some(AfterOff::Leave(leave)));
        if let (Leave::Ready, Some(millis)) = (leave, shows_after) {
            self.schedule(moment, Duration::from_millis(millis), TimerAction::ShowLoss(key.clone()));
        }
    }

    /// The VMs of a lost node are off: what it shows from now on.
    pub(super) fn leave(&mut self, moment: Moment, key: &NodeKey, leave: Leave) {
        let Some(node) = self.node_mut(key) else { return };
        if node.state == NodeState::Deleting {
            return;
        }
        if let (Some(queued), false) = (node.queued_resource.clone(), leave == Leave::Ready) {
            self.begin_delete(moment, key);
            self.suspend(moment, &queued, "SERVICE");
            if leave == Leave::Failed {
                self.fail_once_suspended(&queued);
            }
            return;
        }
        node.state = match leave {
            Leave::Preempted => NodeState::Preempted,
            Leave::Terminated => NodeState::Terminated,
            Leave::Stopped => NodeState::Stopped,
            // FAILED is refused where there is no queued resource.
            Leave::Unknown | Leave::Failed => NodeState::Unknown,
            Leave::Ready => {
                node.state = NodeState::Ready;
                return;
            }
            Leave::Gone => {
                self.remove_node(key);
                return;
            }
        };
        node.health = None;
        node.health_description = None;
    }

    pub(super) fn show_loss(&mut self, moment: Moment, key: &NodeKey) {
        let is_hidden = |node: &&mut Node| node.state == NodeState::Ready && node.power == Power::Off;
        if self.node_mut(key).as_ref().is_some_and(is_hidden) {
            self.leave(moment, key, Leave::Preempted);
        }
    }

    /// A node whose VMs were found ended at a restart of the emulator.
    pub(crate) fn vms_lost(&mut self, moment: Moment, key: &NodeKey) {
        self.switch_off(moment, key, Some(AfterOff::Leave(Leave::Terminated)));
    }

    /// The host of one worker fails: all VMs go off at once; after `repair` they boot again, or (with `None`) the
    /// node ends UNKNOWN.
    pub(crate) fn host_error(
        &mut self,
        moment: Moment,
        key: &NodeKey,
        worker: u32,
        repair: Option<Duration>,
    ) -> Result<(), ApiError> {
        let node = self.running_node(key, worker)?;
        let text = "Instance terminated by Compute Engine.";
        let entry = audit::system_event(node, worker, "hostError", text, moment.now);
        node.state = NodeState::Repairing;
        node.health = Some("TIMEOUT".to_owned());
        node.health_description = Some(format!("worker {worker} is not responding"));
        self.effects.push(Effect::Audit(entry));
        let millis = repair.map(|repair| repair.as_millis() as u64);
        self.switch_off(moment, key, Some(AfterOff::Repair(millis)));
        Ok(())
    }

    pub(super) fn repair_done(&mut self, key: &NodeKey) {
        if self.node_mut(key).is_some_and(|node| node.state == NodeState::Repairing) {
            self.boot_node(key);
        }
    }

    /// Switches one worker's VM off and on again; the node goes on reading READY.
    pub(crate) fn reboot_worker(&mut self, key: &NodeKey, worker: u32) -> Result<(), ApiError> {
        let node = self.running_node(key, worker)?;
        node.workers[worker as usize].boot += 1;
        self.effects.push(Effect::Reboot(key.clone(), worker));
        Ok(())
    }

    /// Preemptible nodes (not spot) end after a day, with the usual notice.
    pub(super) fn lifetime_over(&mut self, moment: Moment, key: &NodeKey) {
        let order = PreemptOrder { leave: Leave::Terminated, ..PreemptOrder::default() };
        // One that is lost or leaving already needs no second end.
        let _ = self.preempt(moment, key, &order);
    }

    /// Sets the health of a node.
    pub(crate) fn set_health(
        &mut self,
        key: &NodeKey,
        health: &str,
        description: Option<String>,
    ) -> Result<(), ApiError> {
        let node = self.running_node(key, 0)?;
        node.health = (health != "HEALTH_UNSPECIFIED").then(|| health.to_owned());
        node.health_description = description;
        Ok(())
    }

    /// A READY node whose VMs run.
    fn running_node(&mut self, key: &NodeKey, worker: u32) -> Result<&mut Node, ApiError> {
        let Some(node) = self.node_mut(key) else { return Err(ApiError::not_found(&key.name)) };
        if !node.is_running() {
            return Err(ApiError::conflict(&format!("the node is in state {}; its VMs are off", node.state.as_str())));
        }
        if worker as usize >= node.workers.len() {
            let known: Vec<String> = (0..node.workers.len()).map(|index| index.to_string()).collect();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(ApiError::unknown("worker", &worker.to_string(), &known));
        }
        Ok(node)
    }

    /// Announces maintenance. Returns the window.
    pub(crate) fn maintenance(
        &mut self,
        moment: Moment,
        key: &NodeKey,
        order: &MaintenanceOrder,
    ) -> Result<Maintenance, ApiError> {
        let starts_at = moment.after(order.starts_in.0);
        let ends_at = moment.after(order.starts_in.0 + order.duration.0);
        let maintenance = Maintenance {
            kind: order.kind.clone(),
            starts_at,
            ends_at,
            is_ongoing: false,
            event: order.event.clone(),
            is_terminating: order.event == "TERMINATE_ON_HOST_MAINTENANCE",
        };
        let node = self.running_node(key, 0)?;
        node.maintenance = Some(maintenance.clone());
        let entries: Vec<Value> =
            node.workers.iter().map(|worker| audit::upcoming_maintenance(node, worker.index, moment.now)).collect();
        self.effects.extend(entries.into_iter().map(Effect::Audit));
        let upcoming = vec![
            ("instance/scheduling/on-host-maintenance".to_owned(), json!(policy(Some(&maintenance)))),
            ("instance/upcoming-maintenance".to_owned(), upcoming_value(&maintenance)),
        ];
        self.tell_workers(key, upcoming);
        self.schedule(moment, order.starts_in.0, TimerAction::MaintenanceStart(key.clone()));
        if maintenance.is_terminating {
            let off = order.starts_in.0 + order.notice.0.min(order.duration.0);
            self.schedule(moment, off, TimerAction::MaintenancePowerOff(key.clone()));
        }
        self.schedule(moment, order.starts_in.0 + order.duration.0, TimerAction::MaintenanceEnd(key.clone()));
        Ok(maintenance)
    }

    pub(super) fn maintenance_start(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key).filter(|node| node.is_running()) else { return };
        let Some(maintenance) = node.maintenance.as_mut() else { return };
        maintenance.is_ongoing = true;
        let changes = vec![
            ("instance/upcoming-maintenance".to_owned(), upcoming_value(maintenance)),
            ("instance/maintenance-event".to_owned(), json!(maintenance.event)),
        ];
        if maintenance.event != "NONE" {
            node.health = Some("UNHEALTHY_MAINTENANCE".to_owned());
            node.health_description = Some("The TPU had a maintenance event".to_owned());
        }
        let is_migrating = maintenance.event == "MIGRATE_ON_HOST_MAINTENANCE";
        let method = "migrateOnHostMaintenance";
        let text = "Instance migrated during Compute Engine maintenance.";
        let event = |worker: u32| audit::system_event(node, worker, method, text, moment.now);
        let entries: Vec<Value> =
            if is_migrating { node.workers.iter().map(|worker| event(worker.index)).collect() } else { Vec::new() };
        self.effects.extend(entries.into_iter().map(Effect::Audit));
        self.tell_workers(key, changes);
    }

    pub(super) fn maintenance_power_off(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key).filter(|node| node.is_running()) else { return };
        node.state = NodeState::Restarting;
        let text = "Instance terminated during Compute Engine maintenance.";
        let event = |worker: u32| audit::system_event(node, worker, "terminateOnHostMaintenance", text, moment.now);
        let entries: Vec<Value> = node.workers.iter().map(|worker| event(worker.index)).collect();
        self.effects.extend(entries.into_iter().map(Effect::Audit));
        self.switch_off(moment, key, None);
    }

    pub(super) fn maintenance_end(&mut self, moment: Moment, key: &NodeKey) {
        let Some(node) = self.node_mut(key) else { return };
        if node.state == NodeState::Restarting && node.power != Power::Off {
            self.recheck(moment, TimerAction::MaintenanceEnd(key.clone()));
        } else if node.state == NodeState::Restarting {
            node.maintenance = None;
            self.boot_node(key);
        } else if node.is_running() {
            node.maintenance = None;
            node.health = Some("HEALTHY".to_owned());
            node.health_description = None;
            let changes = vec![
                ("instance/upcoming-maintenance".to_owned(), no_maintenance()),
                ("instance/maintenance-event".to_owned(), json!("NONE")),
                ("instance/scheduling/on-host-maintenance".to_owned(), json!(policy(None))),
            ];
            self.tell_workers(key, changes);
        }
    }
}

/// `instance/scheduling/on-host-maintenance`. TPU VMs are switched off; one that is to be moved says so beforehand.
pub(crate) fn policy(maintenance: Option<&Maintenance>) -> &'static str {
    if maintenance.is_some_and(|maintenance| maintenance.event == "MIGRATE_ON_HOST_MAINTENANCE") {
        "MIGRATE"
    } else {
        "TERMINATE"
    }
}

/// `instance/upcoming-maintenance` when there is none.
pub(crate) fn no_maintenance() -> Value {
    json!(json!({"error": "no notifications have been received yet, try again later"}).to_string())
}

/// `instance/upcoming-maintenance` of a window.
pub(crate) fn upcoming_value(maintenance: &Maintenance) -> Value {
    let at = |moment: Timestamp| moment.round(jiff::Unit::Second).unwrap_or(moment).to_string();
    let window = json!({
        "type": maintenance.kind,
        "can_reschedule": "FALSE",
        "window_start_time": at(maintenance.starts_at),
        "window_end_time": at(maintenance.ends_at),
        "latest_window_start_time": at(maintenance.starts_at),
        "maintenance_status": if maintenance.is_ongoing { "ONGOING" } else { "PENDING" },
    });
    json!(window.to_string())
}
