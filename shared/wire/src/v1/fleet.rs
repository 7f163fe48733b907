//! `GET /v1/fleet`: every TPU, whose it is, and whether it is idle.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_core::idle::{Idle, IdleCause};
use rekindle_core::ids::{BadId, JobId};
use rekindle_core::spec::CapacityKind;

/// Who a resource belongs to: the id of a job, `ORPHAN` or `FOREIGN` (ids have small letters alone).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Owner {
    /// A live generation of this job of ours.
    Job(JobId),
    /// Ours by installation id, owned by no live generation.
    Orphan,
    /// Not ours; never touched.
    Foreign,
}

impl TryFrom<String> for Owner {
    type Error = BadId;
    fn try_from(text: String) -> Result<Self, BadId> {
        match text.as_str() {
            "ORPHAN" => Ok(Self::Orphan),
            "FOREIGN" => Ok(Self::Foreign),
            _ => JobId::try_from(text).map(Self::Job),
        }
    }
}

impl From<Owner> for String {
    fn from(owner: Owner) -> Self {
        match owner {
            Owner::Job(id) => id.into(),
            Owner::Orphan => "ORPHAN".into(),
            Owner::Foreign => "FOREIGN".into(),
        }
    }
}

/// One TPU or queued resource of the project.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FleetEntry {
    /// Id.
    pub name: String,
    /// `node` or `queued_resource`.
    pub kind: String,
    /// Zone.
    pub zone: String,
    /// Accelerator type.
    pub accelerator: String,
    /// True if bought as spot or preemptible.
    pub preemptible: bool,
    /// How it is bought; `spot` stands also for the older `preemptible`. `null`: the server is too old to tell.
    #[serde(default)]
    pub capacity: Option<CapacityKind>,
    /// State in our words.
    pub state: String,
    /// When the API made it.
    pub created_at: Option<Timestamp>,
    /// Its age in seconds.
    pub age_secs: Option<i64>,
    /// Whose it is; `null`: a job's that the policy does not show to the caller.
    pub owner: Option<Owner>,
    /// The job, when it is one of ours; of an orphan the one that it was made for.
    pub job: Option<JobId>,
    /// The generation, when it is one of ours.
    pub generation: Option<u32>,
    /// Who pays for that job; `null`: it is nobody's, or the policy does not show it to the caller.
    #[serde(default)]
    pub job_owner: Option<String>,
    /// US dollars an hour by the capacity list, else by the catalogue; 0 in a state that is not charged, such as
    /// `preempted` or `creating`; absent when neither knows.
    pub usd_per_hour: Option<f64>,
    /// The queued resource that made this node.
    pub owned_by: Option<String>,
    /// That it costs money while nobody's code runs on it. `null`: it is in use, it costs nothing now, or it is an orphan
    /// or foreign, of which nothing is known.
    #[serde(default)]
    pub idle: Option<IdleView>,
}

/// That a TPU of a job is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleView {
    /// Why.
    pub cause: IdleCause,
    /// Since when.
    pub since: Timestamp,
    /// For how many seconds.
    pub secs: i64,
}

impl IdleView {
    /// As of now.
    pub fn of(idle: Idle, now: Timestamp) -> Self {
        Self { cause: idle.cause, since: idle.since, secs: now.duration_since(idle.since).as_secs().max(0) }
    }
}

/// Every TPU and queued resource in every zone.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// The resources.
    pub resources: Vec<FleetEntry>,
    /// Zones that could not be read: nothing is known of them.
    pub unreachable: Vec<String>,
    /// When the tick saw this; absent: the API was asked for this answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed_at: Option<Timestamp>,
    /// Resources beyond those that are told.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference over")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
