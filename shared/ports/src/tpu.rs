//! The provider's TPU API in our words: slices, not nodes; classes of errors, not codes.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use rekindle_core::job::{Placement, Via};
use rekindle_core::observation::{CreateError, OperationView, SliceLabels, SliceView};
use rekindle_core::shared::Shared;
use rekindle_core::spec::CapacityKind;

/// Everything needed to ask for a slice.
#[derive(Debug, Clone, PartialEq)]
pub struct CreateRequest {
    /// Id of the node or queued resource.
    pub name: String,
    /// Where and how.
    pub placement: Placement,
    /// Node or queued resource.
    pub via: Via,
    /// Number of slices; more than one needs a queued resource.
    pub slices: u32,
    /// Runtime version.
    pub runtime_version: String,
    /// Topology, instead of the accelerator type, when a special one is asked for.
    pub topology: Option<String>,
    /// Reservation name, with reserved capacity.
    pub reservation: Option<String>,
    /// Network.
    pub network: String,
    /// Subnetwork.
    pub subnetwork: Option<String>,
    /// External addresses.
    pub external_ips: bool,
    /// Service account of the workers.
    pub service_account: Option<String>,
    /// Network tags.
    pub tags: Vec<String>,
    /// Whose it is; written as labels.
    pub labels: SliceLabels,
    /// Further labels.
    pub extra_labels: BTreeMap<String, String>,
    /// Node metadata: startup script, nonce, addresses.
    pub metadata: BTreeMap<String, String>,
    /// A UUID-shaped text that is the same for each repeat of this request.
    pub request_id: String,
}

/// Names one node or queued resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SliceRef {
    /// Zone.
    pub zone: String,
    /// Id of the node or queued resource.
    pub name: String,
    /// Which of both.
    pub via: Via,
}

/// A resource as the list shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    /// Which.
    pub slice: SliceRef,
    /// Accelerator type.
    pub accelerator: String,
    /// True if it is bought as spot or preemptible.
    pub preemptible: bool,
    /// True if it is of a reservation.
    #[serde(default)]
    pub reserved: bool,
    /// Its view, as in [`TpuApi::get`], without addresses: nobody asks a list for them, and those of a large slice fill a document.
    pub view: SliceView,
    /// Set on a node that a queued resource made: the id of that queued resource.
    pub owned_by: Option<String>,
    /// When the API made it.
    pub created_at: Option<Timestamp>,
}

impl Listed {
    /// How it is bought. The older preemptible kind counts as spot: a list does not tell them apart.
    pub const fn capacity(&self) -> CapacityKind {
        match (self.preemptible, self.reserved) {
            (true, _) => CapacityKind::Spot,
            (false, true) => CapacityKind::Reserved,
            (false, false) => CapacityKind::OnDemand,
        }
    }
}

/// The list over all zones.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// Nodes and queued resources.
    pub resources: Vec<Shared<Listed>>,
    /// Zones that could not be read; absence there proves nothing.
    pub unreachable: Vec<String>,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TpuError {
    /// The create was refused, for this reason; nothing was made.
    #[error("the create was refused: {}", .0.message)]
    Refused(CreateError),
    /// 409: the name is taken.
    #[error("the name exists already")]
    Exists,
    /// 404.
    #[error("not found")]
    NotFound,
    /// 400 or 409 because of the state it is in (a delete while it is being made, another operation holds it).
    #[error("not possible in this state: {0}")]
    State(String),
    /// 401 or 403.
    #[error("not allowed: {0}")]
    Denied(String),
    /// Any other 4xx.
    #[error("bad request: {0}")]
    Bad(String),
    /// 5xx, 429 on other calls, a time-out, a broken connection: it is not known whether the call took effect.
    #[error("the TPU API did not answer clearly: {0}")]
    Unclear(String),
}

/// The TPU API.
#[async_trait]
pub trait TpuApi: Send + Sync {
    /// Asks for a slice. Answers the operation's full name at once; never waits for it.
    async fn create(&self, request: &CreateRequest) -> Result<String, TpuError>;

    /// Deletes a node, or a queued resource with force. Answers the operation's name.
    async fn delete(&self, slice: &SliceRef) -> Result<String, TpuError>;

    /// Reads a slice: the node, or the queued resource with all its nodes. `Ok(None)`: 404.
    async fn get(&self, slice: &SliceRef) -> Result<Option<SliceView>, TpuError>;

    /// Reads an operation by its full name. `Ok(None)`: 404, which is not proof of anything.
    async fn operation(&self, name: &str) -> Result<Option<OperationView>, TpuError>;

    /// Lists nodes and queued resources in every zone, all pages.
    async fn list(&self) -> Result<Listing, TpuError>;
}
