//! What is sent to create a node or a queued resource.

use std::collections::HashMap;

use google_cloud_tpu_v2::model::accelerator_config::Type;
use google_cloud_tpu_v2::model::queued_resource::{self, Spot, tpu};
use google_cloud_tpu_v2::model::{
    AcceleratorConfig, NetworkConfig, Node, QueuedResource, SchedulingConfig, ServiceAccount,
};

use rekindle_core::catalog;
use rekindle_core::spec::CapacityKind;
use rekindle_ports::tpu::CreateRequest;

/// Full access within the worker identity's IAM roles, as Google advises.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Label keys under which [`rekindle_core::observation::SliceLabels`] stands on resources.
pub(super) const LABEL_INSTALLATION: &str = "rekindle-installation";
pub(super) const LABEL_JOB: &str = "rekindle-job";
pub(super) const LABEL_GENERATION: &str = "rekindle-generation";
pub(super) const LABEL_SPEC: &str = "rekindle-spec";

/// The node, with its scheduling: for a direct create.
pub(super) fn node(request: &CreateRequest) -> Node {
    let scheduling = match request.placement.capacity {
        CapacityKind::Spot => Some(SchedulingConfig::new().set_spot(true)),
        CapacityKind::Preemptible => Some(SchedulingConfig::new().set_preemptible(true)),
        CapacityKind::Reserved => Some(SchedulingConfig::new().set_reserved(true)),
        CapacityKind::OnDemand => None,
    };
    bare_node(request).set_or_clear_scheduling_config(scheduling)
}

/// The queued resource: one node with the name of the resource, or so many that the API numbers them from 0.
pub(super) fn queued(request: &CreateRequest, project: &str) -> QueuedResource {
    let zone = &request.placement.zone;
    let spec = tpu::NodeSpec::new().set_parent(format!("projects/{project}/locations/{zone}"));
    let mut queued = QueuedResource::new();
    match request.placement.capacity {
        // A queued resource has no preemptible tier; spot has the same price and quota, without the end after 24 hours.
        CapacityKind::Spot | CapacityKind::Preemptible => queued = queued.set_spot(Spot::new()),
        CapacityKind::Reserved => {
            let reservation = request.reservation.as_deref().unwrap_or("-");
            let full = format!("projects/{project}/locations/{zone}/reservations/{reservation}");
            queued = queued.set_reservation_name(if reservation.contains('/') { reservation } else { &full });
        }
        CapacityKind::OnDemand => {}
    }
    // The tier stands at the queued resource, and nowhere else.
    let spec = spec.set_node(bare_node(request));
    let spec = if request.slices > 1 {
        let count = i32::try_from(request.slices).unwrap_or(i32::MAX);
        let params = tpu::node_spec::MultisliceParams::new().set_node_count(count).set_node_id_prefix(&request.name);
        spec.set_multislice_params(params)
    } else {
        spec.set_node_id(&request.name)
    };
    queued.set_tpu(queued_resource::Tpu::new().set_node_spec([spec]))
}

fn bare_node(request: &CreateRequest) -> Node {
    let network = NetworkConfig::new()
        .set_network(&request.network)
        .set_subnetwork(request.subnetwork.as_deref().unwrap_or_default())
        .set_enable_external_ips(request.external_ips);
    let node = Node::new()
        .set_runtime_version(&request.runtime_version)
        .set_network_config(network)
        .set_labels(labels(request))
        .set_metadata(request.metadata.clone())
        .set_tags(request.tags.clone());
    let node = match &request.service_account {
        Some(email) => node.set_service_account(ServiceAccount::new().set_email(email).set_scope([SCOPE])),
        None => node,
    };
    // The API wants the type or the configuration, never both.
    match (&request.topology, catalog::accelerator(&request.placement.accelerator)) {
        (Some(topology), Some(known)) => {
            let kind = Type::from(known.api_type.as_str());
            node.set_accelerator_config(AcceleratorConfig::new().set_type(kind).set_topology(topology))
        }
        _ => node.set_accelerator_type(&request.placement.accelerator),
    }
}

/// Ours win over the job's: they decide whose the resource is.
fn labels(request: &CreateRequest) -> HashMap<String, String> {
    let mut labels: HashMap<String, String> = request.extra_labels.clone().into_iter().collect();
    let ours = [
        ("managed-by", "rekindle"),
        (LABEL_INSTALLATION, &request.labels.installation),
        (LABEL_JOB, &request.labels.job),
        (LABEL_GENERATION, &request.labels.generation),
        (LABEL_SPEC, &request.labels.spec),
    ];
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}
