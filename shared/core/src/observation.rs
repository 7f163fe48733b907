//! What one pass saw. A failed read is `Unknown`, and never destroys anything.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::catalog;
use crate::classify::WorkerEvidence;
use crate::ids::WorkerKey;
use crate::job::Placement;
use crate::limits::InUse;
use crate::shared::Shared;

/// Three-valued knowledge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Look<T> {
    /// It is there, like this.
    Seen(T),
    /// The API says that it is not there.
    Absent,
    /// The read failed, or was not made.
    Unknown,
}

impl<T> Look<T> {
    /// The thing, if it was seen.
    pub const fn seen(&self) -> Option<&T> {
        match self {
            Self::Seen(x) => Some(x),
            Self::Absent | Self::Unknown => None,
        }
    }
}

/// State of a slice, over nodes and queued resources, in our words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SliceState {
    /// Waiting in the provider's queue.
    Queued,
    /// Being made.
    Creating,
    /// Usable (look at the health too).
    Ready,
    /// In some transition that should end by itself: restarting, repairing, starting, stopping, hiding. UNKNOWN after a repair that failed
    /// is one, too: it is no fact of loss, and what is heard of its workers says more.
    InTransition(String),
    /// It is there, and the API does not say how it is (STATE_UNSPECIFIED): nothing is known, until the next read.
    Unspecified,
    /// Taken back by the provider (PREEMPTED; a queued resource SUSPENDED or SUSPENDING by SERVICE).
    Preempted,
    /// Ended by maintenance or end of life (TERMINATED).
    Terminated,
    /// Stopped (STOPPED; a queued resource suspended by USER).
    Stopped,
    /// Could not be made, or has ended so (a queued resource FAILED).
    Failed,
    /// Being deleted.
    Deleting,
    /// A state that this version does not know.
    Unrecognized(String),
}

/// Health of a READY node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// HEALTHY, or not told.
    Healthy,
    /// UNHEALTHY_MAINTENANCE.
    Maintenance,
    /// Anything else, as the API says it.
    Unhealthy(String),
}

/// The slice (all nodes of a generation) as the API shows it: the worst node's state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceView {
    /// The worst state of its nodes.
    pub state: SliceState,
    /// True if no VM of it is on any more, by the API's word: each of its nodes is PREEMPTED, TERMINATED or STOPPED, or the queued resource
    /// is SUSPENDED. The worst state alone says so of one node at most.
    pub ended: bool,
    /// The worst health of its nodes.
    pub health: Health,
    /// Worker addresses, slice by slice; empty until READY.
    pub addresses: Shared<Vec<Vec<String>>>,
    /// Label values `installation`, `job`, `generation`, `spec` as they stand on it.
    pub labels: SliceLabels,
    /// When the API made it.
    pub created_at: Option<Timestamp>,
    /// The error of a queued resource that FAILED.
    pub error: Option<CreateError>,
    /// What the API adds in words (health description, symptoms, upcoming maintenance).
    pub note: Option<String>,
    /// What was made, node by node, as far as the API tells it. Lists leave it out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub made: Vec<Made>,
}

/// What a node was made as. What the API does not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Accelerator type.
    pub accelerator: Option<String>,
    /// Chips along each side, `4x4`.
    pub topology: Option<String>,
    /// True if it was made as spot or preemptible.
    pub preemptible: Option<bool>,
}

impl Made {
    /// How it differs from what was asked for, in words. What is not told, and a type that nobody here knows, differs in nothing.
    fn difference(&self, placement: &Placement, topology: Option<&str>) -> Option<String> {
        let asked = &placement.accelerator;
        if let Some(known) = self.accelerator.as_deref().and_then(catalog::accelerator)
            && known.name != *asked
        {
            return Some(format!("{} was made, and {asked} was asked for", known.name));
        }
        if let (Some(made), Some(asked)) = (self.topology.as_deref(), topology)
            && !is_same_topology(made, asked)
        {
            return Some(format!("the topology {made} was made, and {asked} was asked for"));
        }
        match self.preemptible? {
            true if !placement.capacity.is_preemptible() => {
                Some(format!("it was made as spot, and {} was asked for", placement.capacity.as_str()))
            }
            false if placement.capacity.is_preemptible() => {
                Some(format!("it was made as on-demand, and {} was asked for", placement.capacity.as_str()))
            }
            true | false => None,
        }
    }
}

/// By their numbers: `04x4` is `4x4`.
fn is_same_topology(made: &str, asked: &str) -> bool {
    match (catalog::sides(made), catalog::sides(asked)) {
        (Some(made), Some(asked)) => made == asked,
        (None, _) | (_, None) => made == asked,
    }
}

impl SliceView {
    /// How what was made differs from what was asked for, in words; `None`: in nothing that the API tells.
    pub fn difference(&self, placement: &Placement, topology: Option<&str>) -> Option<String> {
        self.made.iter().find_map(|node| node.difference(placement, topology))
    }

    /// READY and healthy.
    pub fn is_well(&self) -> bool {
        self.state == SliceState::Ready && self.health == Health::Healthy
    }

    /// True if the provider charges for it now: it was READY, and VMs of it are on. The account of a job counts the same time.
    pub const fn is_charged(&self) -> bool {
        match self.state {
            SliceState::Queued | SliceState::Creating => false,
            SliceState::Ready
            | SliceState::InTransition(_)
            | SliceState::Unspecified
            | SliceState::Preempted
            | SliceState::Terminated
            | SliceState::Stopped
            | SliceState::Failed
            | SliceState::Deleting
            | SliceState::Unrecognized(_) => !self.ended,
        }
    }
}

/// The labels that say whose a resource is. Absent ones are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceLabels {
    /// Installation id.
    pub installation: String,
    /// Job id.
    pub job: String,
    /// Generation.
    pub generation: String,
    /// First characters of the spec hash.
    pub spec: String,
}

/// A long-running operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationView {
    /// Finished, well or badly.
    pub done: bool,
    /// Its error, when it finished badly.
    pub error: Option<CreateError>,
}

/// What kind of no a create met. Each has a different answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CreateErrorKind {
    /// Code 8 in the operation: no capacity in the zone now.
    Stockout,
    /// Code 13 in the operation: in practice no capacity.
    HiddenStockout,
    /// 429 with a quota, on the request.
    Quota,
    /// 429 with a rate, on the request.
    RateLimit,
    /// External addresses are used up.
    AddressQuota,
    /// 400: not offered here, or not as it is asked for (a network, a runtime version).
    NotOffered,
    /// 400: not by a queued resource, which this accelerator never comes by; a node may.
    NotQueueable,
    /// 403: not allowed.
    Forbidden,
    /// The reservation is not there or exhausted.
    Reservation,
    /// Code 3: preempted while it was being created.
    PreemptedWhileCreating,
    /// The name is taken by a resource that is not this generation's.
    NameTaken,
    /// The operation was cancelled.
    Cancelled,
    /// Any other refusal.
    Other,
}

/// Why a create did not bring a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateError {
    /// Its kind.
    pub kind: CreateErrorKind,
    /// What the API said.
    pub message: String,
}

/// Sort of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// The metadata server says `preempted` = TRUE.
    Preemption,
    /// Maintenance is coming.
    Maintenance,
    /// The machine will be moved to another host while it runs: shown, and nothing else.
    Migration,
}

/// A report arrives within this time, or never.
// An agent's call lasts 10 s at most, and its clock may differ by some seconds.
const REPORT_UNDER_WAY: SignedDuration = SignedDuration::from_mins(1);

/// A notice of what will happen to the slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Its sort.
    pub kind: NoticeKind,
    /// When a worker saw it.
    pub seen_at: Timestamp,
    /// When that is: the slice goes, or is moved.
    pub deadline: Timestamp,
}

impl Notice {
    /// True if the slice is lost by it.
    pub const fn takes_away(&self) -> bool {
        match self.kind {
            NoticeKind::Preemption | NoticeKind::Maintenance => true,
            NoticeKind::Migration => false,
        }
    }

    /// True if a report that was taken at `now` and lacks it says that it was called off. A preemption never is; and a report may have been
    /// under way since before the notice.
    pub fn is_over_without(&self, now: Timestamp) -> bool {
        self.kind != NoticeKind::Preemption && now.duration_since(self.seen_at) >= REPORT_UNDER_WAY
    }

    /// True if it holds instead of the one known. A preemption says more than anything else, and of two the earlier deadline
    /// holds; a window may be moved, or become another kind of window, so that of two the one told last holds.
    pub fn says_more(&self, known: &Self) -> bool {
        match (self.kind, known.kind) {
            (NoticeKind::Preemption, NoticeKind::Preemption) => self.deadline < known.deadline,
            (NoticeKind::Preemption, _) => true,
            (_, NoticeKind::Preemption) => false,
            (NoticeKind::Maintenance | NoticeKind::Migration, NoticeKind::Maintenance | NoticeKind::Migration) => {
                self.seen_at > known.seen_at
            }
        }
    }
}

/// What a worker's agent does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// Said hello; unpacking or in `setup`.
    Preparing,
    /// Set up; waits for the release of `run`.
    Ready,
    /// The program runs.
    Running,
    /// The program (or `setup`) of this attempt ended, and nothing of it lives.
    Exited,
}

/// The newest report of one worker for one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerReport {
    /// Attempt.
    pub attempt: u32,
    /// Generation.
    pub generation: u32,
    /// Which worker.
    pub key: WorkerKey,
    /// VM name, `t1v-n-…-w-i`.
    pub instance: String,
    /// Boot id of the VM; a new one in a running attempt means that the program was lost.
    pub boot_id: String,
    /// Address within the slice.
    pub address: String,
    /// What it does.
    pub state: WorkerState,
    /// When `api` last heard of it. In a document by the clock of one of its instances; in an [`Observation`] by the store's, as the
    /// document was committed then.
    pub heard_at: Timestamp,
    /// When the program started.
    pub started_at: Option<Timestamp>,
    /// Highest step reported.
    pub step: Option<u64>,
    /// When that step was reported.
    pub step_at: Option<Timestamp>,
    /// When the program last wrote any output.
    pub output_at: Option<Timestamp>,
    /// Loss as the program wrote it.
    pub loss: Option<String>,
    /// The last checkpoint reported.
    pub checkpoint: Option<u64>,
    /// `resumed_from` as the program wrote it.
    pub resumed_from: Option<u64>,
    /// Free disk, in bytes.
    pub disk_free_bytes: Option<u64>,
    /// Free memory, in bytes.
    pub memory_free_bytes: Option<u64>,
    /// A notice that this worker saw.
    pub notice: Option<Notice>,
    /// How the program (or `setup`) of this attempt ended.
    pub exit: Option<ExitReport>,
    /// It has ended, and what it left (`outputs`) is still being collected from the machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_collecting: bool,
    /// Output of a program that has ended, of this attempt or an earlier one, waits on the machine to be sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_unsent: bool,
    /// The VM has booted since the attempt was released. Its program, if it had begun, is lost, and with the disk perhaps the memory of it:
    /// the worker is not told to run this attempt again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_rebooted: bool,
    /// Since when its reports tell of a program that has not begun, though it had. One of an earlier moment that comes late does so too, and is
    /// contradicted by the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub less_since: Option<Timestamp>,
}

impl WorkerReport {
    /// Something that its ended program left (outputs, output) is on the machine alone.
    pub const fn has_left_something(&self) -> bool {
        self.is_collecting || self.has_unsent
    }

    /// Takes times that no clock of a worker can tell for the nearest ones that it can, `now` being when it was heard: whatever runs on a worker
    /// can speak in its agent's place, and no sum with what it says may overflow, nor a slice be kept for an end that never comes.
    pub fn within_reason(&mut self, now: Timestamp) {
        for (at, ahead) in self.times() {
            *at = (*at).clamp(now - TOLD_AGO, now + ahead);
        }
    }

    /// Whether [`Self::within_reason`] changes nothing.
    pub fn is_within_reason(&self, now: Timestamp) -> bool {
        let is_within = |at: Timestamp, ahead| now - TOLD_AGO <= at && at <= now + ahead;
        let exit = self.exit.as_ref().map(|exit| exit.at);
        let told = [self.started_at, self.step_at, self.output_at, exit, self.notice.as_ref().map(|n| n.seen_at)];
        told.into_iter().flatten().all(|at| is_within(at, TOLD_AHEAD))
            && self.notice.as_ref().is_none_or(|notice| is_within(notice.deadline, notice.kind.ahead()))
    }

    /// Each time that the worker tells, and how far ahead it may be.
    fn times(&mut self) -> impl Iterator<Item = (&mut Timestamp, SignedDuration)> {
        let exit = self.exit.as_mut().map(|exit| &mut exit.at);
        let (seen_at, deadline) = match &mut self.notice {
            Some(notice) => (Some(&mut notice.seen_at), Some((&mut notice.deadline, notice.kind.ahead()))),
            None => (None, None),
        };
        let told = [self.started_at.as_mut(), self.step_at.as_mut(), self.output_at.as_mut(), exit, seen_at];
        told.into_iter().flatten().map(|at| (at, TOLD_AHEAD)).chain(deadline)
    }
}

impl NoticeKind {
    /// How far ahead its deadline may be.
    const fn ahead(self) -> SignedDuration {
        match self {
            Self::Preemption => PREEMPTED_WITHIN,
            Self::Maintenance | Self::Migration => ANNOUNCED_WITHIN,
        }
    }
}

/// Clocks of workers are not ahead of ours by more.
const TOLD_AHEAD: SignedDuration = SignedDuration::from_mins(15);
/// Nothing that a worker tells of is older.
const TOLD_AGO: SignedDuration = SignedDuration::from_hours(10 * 365 * 24);
/// A preempted machine goes within seconds, minutes at most.
const PREEMPTED_WITHIN: SignedDuration = SignedDuration::from_mins(10);
/// Maintenance is announced weeks ahead at most.
const ANNOUNCED_WITHIN: SignedDuration = SignedDuration::from_hours(366 * 24);

/// The end of one worker's program, told once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExitReport {
    /// When.
    pub at: Timestamp,
    /// True if the agent ended it on our order or after a notice.
    pub ordered: bool,
    /// What the agent gathered.
    pub evidence: WorkerEvidence,
}

/// What one pass saw of one generation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GenerationLook {
    /// The generation's number.
    pub number: u32,
    /// Where it was looked for; a number is used again at another place when a create brought nothing.
    pub placement: Placement,
    /// The generation's `intended_at`: what was seen of an earlier try says nothing of this one.
    pub intended_at: Timestamp,
    /// Node or queued resource.
    pub slice: Look<SliceView>,
    /// When that read began.
    pub looked_at: Timestamp,
    /// The create's operation, when its name is known.
    pub operation: Look<OperationView>,
}

/// What others met at a candidate lately; advisory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZoneReport {
    /// The candidate.
    pub placement: Placement,
    /// No create there before this time.
    pub cool_until: Timestamp,
    /// Why.
    pub error: CreateError,
}

/// Whether the outside allows a create now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permit {
    /// A permit may be taken with this commit.
    Free,
    /// Those that passes may take by themselves are used; ticks grant the rest.
    Wait,
    /// The tick granted one to this job.
    Granted,
    /// The installation is frozen.
    Frozen,
}

/// The stretch of time over which silence can be held against a worker: ticks ran and `api` took calls all through it. By the store's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Liveness {
    /// Its start; `None`: not known, no silence counts.
    pub since: Option<Timestamp>,
    /// The last moment known to belong to it; silence after it does not count yet.
    pub through: Option<Timestamp>,
}

/// Everything one pass saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// One for each generation of the job.
    pub generations: Vec<GenerationLook>,
    /// Reports of the job's attempts. `None`: the read failed.
    pub workers: Option<Vec<Shared<WorkerReport>>>,
    /// Commit time of the store up to which worker reports were read, in microseconds.
    pub read_through_us: i64,
    /// What others met at the job's candidates.
    pub zones: Vec<ZoneReport>,
    /// Whether a create is allowed now.
    pub permit: Permit,
    /// What all jobs use of the limits.
    pub used: InUse,
    /// Since when silence counts.
    pub liveness: Liveness,
}
