//! Reads nodes and queued resources into our words. Enumerations may come as names or numbers, unknown values too;
//! names may carry the project's number instead of its id, so only zone and last segment count.

use google_cloud_tpu_v2::model::node::{Health as ApiHealth, State};
use google_cloud_tpu_v2::model::queued_resource::tpu::NodeSpec;
use google_cloud_tpu_v2::model::queued_resource_state::{State as QueuedState, StateInitiator};
use google_cloud_tpu_v2::model::{Node, QueuedResource};
use jiff::Timestamp;

use rekindle_core::catalog;
use rekindle_core::job::Via;
use rekindle_core::observation::{CreateError, Health, Made, SliceLabels, SliceState, SliceView};
use rekindle_ports::tpu::{Listed, SliceRef};

use super::{classify, request};

/// Symptoms stay on a node for good; the newest say what is the matter now.
const SYMPTOMS_SHOWN: usize = 3;

/// The last part of a resource name or path.
pub(super) fn last_segment(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// Zone and id of `projects/P/locations/Z/nodes/N` or `…/queuedResources/Q`.
pub(super) fn zone_and_id(name: &str) -> Option<(&str, &str)> {
    let mut parts = name.split('/');
    let zone = parts.by_ref().skip_while(|part| *part != "locations").nth(1)?;
    let id = parts.nth(1)?;
    (!zone.is_empty() && !id.is_empty() && parts.next().is_none()).then_some((zone, id))
}

/// A node as a slice.
pub(super) fn of_node(node: &Node) -> SliceView {
    let state = node_state(&node.state);
    let ready = state == SliceState::Ready;
    let addresses = if ready { endpoints(node).into_iter().collect() } else { Vec::new() };
    SliceView {
        addresses: addresses.into(),
        ended: has_ended(&state),
        health: health(&node.health),
        labels: labels(node),
        created_at: timestamp(node.create_time.as_ref()),
        error: None,
        note: node_note(node),
        made: vec![made(node)],
        state,
    }
}

/// A queued resource as a slice, with the views of its nodes in the order of [`node_ids`] (`None`: not found). Only an
/// ACTIVE one looks at them.
#[expect(clippy::wildcard_enum_match_arm, reason = "Google's enumerations are open; what is new is told as it is")]
pub(super) fn of_queued(queued: &QueuedResource, nodes: &[Option<SliceView>]) -> SliceView {
    let mut view = SliceView {
        state: SliceState::Unspecified,
        ended: false,
        health: Health::Healthy,
        addresses: Vec::new().into(),
        labels: node_specs(queued).iter().find_map(|spec| spec.node.as_ref()).map(labels).unwrap_or_default(),
        created_at: timestamp(queued.create_time.as_ref()),
        error: None,
        note: None,
        made: Vec::new(),
    };
    let Some(state) = queued.state.as_ref() else {
        return view;
    };
    // While it is SUSPENDING its machines may still be on.
    view.ended = state.state == QueuedState::Suspended;
    let by_service = state.state_initiator == StateInitiator::Service;
    view.state = match &state.state {
        QueuedState::Creating | QueuedState::Accepted | QueuedState::WaitingForResources => SliceState::Queued,
        QueuedState::Provisioning => SliceState::Creating,
        QueuedState::Active => return with_nodes(view, nodes),
        QueuedState::Suspending | QueuedState::Suspended if by_service => SliceState::Preempted,
        // By a person, or nobody says: the resources are gone, and nothing proves a preemption.
        QueuedState::Suspending | QueuedState::Suspended => SliceState::Stopped,
        QueuedState::Failed => {
            view.error = Some(failure(queued));
            SliceState::Failed
        }
        QueuedState::Deleting => SliceState::Deleting,
        QueuedState::Unspecified => SliceState::Unspecified,
        other => SliceState::Unrecognized(enum_text(other.name(), other.value())),
    };
    view
}

/// True if the view of this queued resource rests on its nodes.
pub(super) fn asks_for_nodes(queued: &QueuedResource) -> bool {
    queued.state.as_ref().is_some_and(|state| state.state == QueuedState::Active)
}

/// Ids of the nodes, in the order of the slices: as the API expanded them, else as it would name them.
pub(super) fn node_ids(queued: &QueuedResource) -> Vec<String> {
    let mut ids = Vec::new();
    for spec in node_specs(queued) {
        if let Some(id) = spec.node_id() {
            ids.push(id.clone());
        } else if let Some(params) = spec.multislice_params() {
            let prefix = match params.node_id_prefix.as_str() {
                "" => last_segment(&queued.name),
                prefix => prefix,
            };
            ids.extend((0..params.node_count).map(|index| format!("{prefix}-{index}")));
        }
    }
    ids
}

/// A node's entry in the list; `owner` is the queued resource that names it.
pub(super) fn listed_node(node: &Node, zone: &str, id: &str, owner: Option<String>) -> Listed {
    let named = (!node.queued_resource.is_empty()).then(|| last_segment(&node.queued_resource).to_owned());
    let view = without_addresses(of_node(node));
    Listed {
        slice: SliceRef { zone: zone.to_owned(), name: id.to_owned(), via: Via::Node },
        accelerator: accelerator(node),
        preemptible: is_preemptible(node),
        reserved: is_reserved(node),
        owned_by: named.or(owner),
        created_at: view.created_at,
        view,
    }
}

/// A queued resource's entry in the list.
pub(super) fn listed_queued(queued: &QueuedResource, zone: &str, id: &str, nodes: &[Option<SliceView>]) -> Listed {
    let node = node_specs(queued).iter().find_map(|spec| spec.node.as_ref());
    let view = without_addresses(of_queued(queued, nodes));
    Listed {
        slice: SliceRef { zone: zone.to_owned(), name: id.to_owned(), via: Via::QueuedResource },
        accelerator: node.map(accelerator).unwrap_or_default(),
        preemptible: queued.spot().is_some() || node.is_some_and(is_preemptible),
        reserved: !queued.reservation_name.is_empty() || node.is_some_and(is_reserved),
        owned_by: None,
        created_at: view.created_at,
        view,
    }
}

/// As lists tell it.
fn without_addresses(view: SliceView) -> SliceView {
    SliceView { addresses: Vec::new().into(), made: Vec::new(), ..view }
}

/// An ACTIVE queued resource: the worst of its nodes.
fn with_nodes(mut view: SliceView, nodes: &[Option<SliceView>]) -> SliceView {
    let mut notes = Vec::new();
    let mut addresses = Vec::new();
    // Without any node named there is nothing to say READY about.
    view.state = match nodes {
        [] => SliceState::InTransition("ACTIVE, and no node is named".into()),
        _ => SliceState::Ready,
    };
    for (index, node) in nodes.iter().enumerate() {
        // Deleted by hand, preempted a moment ago, or not shown yet: the queued resource itself will soon say which.
        let absent = SliceState::InTransition(format!("ACTIVE, and the node of slice {index} is absent"));
        let state = node.as_ref().map_or(&absent, |node| &node.state);
        if badness(state) > badness(&view.state) {
            view.state = state.clone();
        }
        let Some(node) = node else { continue };
        view.health = worse(view.health, node.health.clone());
        // The tier stands at the queued resource, and whether its nodes tell it is not known.
        view.made.extend(node.made.iter().map(|made| Made { preemptible: None, ..made.clone() }));
        if view.labels == SliceLabels::default() {
            view.labels = node.labels.clone();
        }
        addresses.extend(node.addresses.iter().cloned());
        notes.extend(node.note.iter().map(|note| match nodes.len() {
            1 => note.clone(),
            _ => format!("slice {index}: {note}"),
        }));
    }
    // An absent node proves nothing: it may not be shown yet.
    view.ended = !nodes.is_empty() && nodes.iter().all(|node| node.as_ref().is_some_and(|node| node.ended));
    if view.state == SliceState::Ready && addresses.len() == nodes.len() {
        view.addresses = addresses.into();
    }
    view.note = join(&notes);
    view
}

/// A node in this state has no machine that is on.
const fn has_ended(state: &SliceState) -> bool {
    matches!(state, SliceState::Preempted | SliceState::Terminated | SliceState::Stopped)
}

/// Which of two nodes' states tells more about the whole slice: facts of loss before waiting, waiting before READY.
fn badness(state: &SliceState) -> u8 {
    match state {
        SliceState::Ready => 0,
        SliceState::Unspecified => 1,
        SliceState::InTransition(_) => 2,
        SliceState::Creating => 3,
        SliceState::Queued => 4,
        SliceState::Unrecognized(_) => 5,
        SliceState::Deleting => 6,
        SliceState::Failed => 7,
        SliceState::Stopped => 8,
        SliceState::Terminated => 9,
        SliceState::Preempted => 10,
    }
}

fn worse(one: Health, other: Health) -> Health {
    match (&one, &other) {
        (Health::Unhealthy(_), _) | (Health::Maintenance, Health::Healthy) => one,
        _ => other,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "Google's enumerations are open; what is new is told as it is")]
fn node_state(state: &State) -> SliceState {
    match state {
        State::Creating => SliceState::Creating,
        State::Ready => SliceState::Ready,
        State::Preempted => SliceState::Preempted,
        State::Terminated => SliceState::Terminated,
        State::Stopped => SliceState::Stopped,
        State::Deleting => SliceState::Deleting,
        State::Unspecified => SliceState::Unspecified,
        State::Restarting
        | State::Reimaging
        | State::Repairing
        | State::Stopping
        | State::Starting
        | State::Hiding
        | State::Hidden
        | State::Unhiding
        // After a repair that failed, in the API's words. It seldom comes back, and proves nothing of the machines.
        | State::Unknown => SliceState::InTransition(enum_text(state.name(), state.value())),
        other => SliceState::Unrecognized(enum_text(other.name(), other.value())),
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "Google's enumerations are open; what is new is told as it is")]
fn health(health: &ApiHealth) -> Health {
    match health {
        ApiHealth::Healthy | ApiHealth::Unspecified => Health::Healthy,
        ApiHealth::UnhealthyMaintenance => Health::Maintenance,
        other => Health::Unhealthy(enum_text(other.name(), other.value())),
    }
}

/// One address for each worker, in the order of the workers; `None` if any has none.
fn endpoints(node: &Node) -> Option<Vec<String>> {
    let addresses: Vec<String> = node.network_endpoints.iter().map(|endpoint| endpoint.ip_address.clone()).collect();
    (!addresses.is_empty() && addresses.iter().all(|address| !address.is_empty())).then_some(addresses)
}

fn labels(node: &Node) -> SliceLabels {
    let value = |key: &str| node.labels.get(key).cloned().unwrap_or_default();
    SliceLabels {
        installation: value(request::LABEL_INSTALLATION),
        job: value(request::LABEL_JOB),
        generation: value(request::LABEL_GENERATION),
        spec: value(request::LABEL_SPEC),
    }
}

fn accelerator(node: &Node) -> String {
    if !node.accelerator_type.is_empty() {
        return node.accelerator_type.clone();
    }
    let Some(config) = node.accelerator_config.as_ref() else {
        return String::new();
    };
    let api_type = enum_text(config.r#type.name(), config.r#type.value());
    catalog::by_config(&api_type, &config.topology)
        .map_or_else(|| format!("{api_type} {}", config.topology), |known| known.name.clone())
}

/// A node that is not preemptible tells an empty `schedulingConfig`; one that tells none tells nothing.
fn made(node: &Node) -> Made {
    let told = |text: String| Some(text).filter(|text| !text.is_empty());
    Made {
        accelerator: told(accelerator(node)),
        topology: node.accelerator_config.as_ref().and_then(|config| told(config.topology.clone())),
        preemptible: node.scheduling_config.as_ref().map(|_| is_preemptible(node)),
    }
}

fn is_preemptible(node: &Node) -> bool {
    node.scheduling_config.as_ref().is_some_and(|scheduling| scheduling.spot || scheduling.preemptible)
}

fn is_reserved(node: &Node) -> bool {
    node.scheduling_config.as_ref().is_some_and(|scheduling| scheduling.reserved)
}

fn failure(queued: &QueuedResource) -> CreateError {
    let error = queued.state.as_ref().and_then(|state| state.failed_data()).and_then(|failed| failed.error.as_ref());
    // 2 is UNKNOWN: it failed, and nothing more is known.
    error.map_or_else(
        || classify::of_status(2, "the queued resource failed, and the API does not say why"),
        |status| classify::of_status(status.code, &status.message),
    )
}

fn node_specs(queued: &QueuedResource) -> &[NodeSpec] {
    queued.tpu().map(|tpu| tpu.node_spec.as_slice()).unwrap_or_default()
}

fn node_note(node: &Node) -> Option<String> {
    let mut notes = Vec::new();
    if !node.health_description.is_empty() {
        notes.push(node.health_description.clone());
    }
    let mut symptoms: Vec<_> = node.symptoms.iter().collect();
    symptoms.sort_by_key(|symptom| symptom.create_time.as_ref().map(|at| (at.seconds(), at.nanos())));
    for symptom in symptoms.iter().rev().take(SYMPTOMS_SHOWN) {
        let kind = enum_text(symptom.symptom_type.name(), symptom.symptom_type.value());
        notes.push(format!("worker {}: {kind} ({})", symptom.worker_id, symptom.details));
    }
    notes.extend(upcoming_maintenance(node));
    join(&notes)
}

/// `upcomingMaintenance` is younger than the client's types, which keep what they do not know.
fn upcoming_maintenance(node: &Node) -> Option<String> {
    let value = serde_json::to_value(node).ok()?;
    let maintenance = value.get("upcomingMaintenance")?.as_object()?;
    let text = |key: &str| match maintenance.get(key) {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "?".to_owned(),
    };
    Some(format!(
        "maintenance {} ({}) from {} to {}",
        text("maintenanceStatus"),
        text("type"),
        text("windowStartTime"),
        text("windowEndTime")
    ))
}

fn join(notes: &[String]) -> Option<String> {
    (!notes.is_empty()).then(|| notes.join("; "))
}

fn enum_text(name: Option<&str>, value: Option<i32>) -> String {
    match (name, value) {
        (Some(name), _) => name.to_owned(),
        (None, Some(value)) => value.to_string(),
        (None, None) => String::new(),
    }
}

fn timestamp(at: Option<&google_cloud_wkt::Timestamp>) -> Option<Timestamp> {
    at.and_then(|at| Timestamp::new(at.seconds(), at.nanos()).ok())
}
