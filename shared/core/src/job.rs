//! A job and what it owns: phases, generations, attempts, counters.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use crate::account::Usage;
use crate::classify::Verdict;
use crate::exec::ExecOrder;
use crate::failure::FailureKind;
use crate::ids::JobId;
use crate::limits::Vacated;
use crate::observation::{CreateError, CreateErrorKind, Notice};
use crate::policy::{Action, Charge};
use crate::reason::Reason;
use crate::shared::Shared;
use crate::spec::{CapacityKind, JobSpec};

mod line;
mod phase;

pub use phase::{Outcome, Phase};

/// What people want of the job. Changed by commands only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    /// Run to its end.
    Run,
    /// Own nothing until `unpause`.
    Pause,
    /// End it.
    Cancel,
}

/// A person's `restart`, not yet carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRequest {
    /// With a new generation rather than in place.
    pub new_slice: bool,
    /// From scratch: a new checkpoint line, RESUME=0.
    pub from_scratch: bool,
}

/// Where and how a slice is got.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Placement {
    /// Accelerator type, such as `v5litepod-16`.
    pub accelerator: String,
    /// Zone.
    pub zone: String,
    /// How it is bought.
    pub capacity: CapacityKind,
}

/// The two kinds of resource that bring a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// A node, created directly.
    Node,
    /// A queued resource.
    QueuedResource,
}

/// How far the creation of a generation has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Create {
    /// Committed as an intent; the request may or may not have been sent.
    Intended,
    /// The request was accepted; its operation is known by name.
    Sent {
        /// Full name of the operation; empty when an existing resource of ours was adopted.
        operation: String,
    },
    /// The request was refused for good, or its operation failed: nothing (or a husk) is there.
    Failed {
        /// What the API said.
        error: CreateError,
        /// True once `decide` has drawn its conclusions (cool-down, counters).
        counted: bool,
    },
    /// The operation is done, or the resource was seen READY.
    Done,
}

/// A delete that was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delete {
    /// When it was decided.
    pub intended_at: Timestamp,
    /// When the request was last sent; `None`: not yet.
    pub sent_at: Option<Timestamp>,
    /// How often it was sent.
    pub tries: u32,
    /// What the API last said when it refused.
    pub last_error: Option<String>,
}

/// One TPU (all its slices) created for the job, as long as it is not proved gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Its number, from 1.
    pub number: u32,
    /// Id of the node or queued resource.
    pub name: String,
    /// Where and how.
    pub placement: Placement,
    /// The entry of the capacity list that allowed it, by its key; its `max_chips` holds over all jobs.
    #[serde(default)]
    pub entry: String,
    /// Node or queued resource.
    pub via: Via,
    /// Number of slices.
    pub slices: u32,
    /// Workers of each slice.
    pub workers: u32,
    /// Chips of all slices.
    pub chips: u32,
    /// Micro US dollars for each hour of all its chips, by the capacity list; 0 if not known.
    pub usd_micros_per_hour: u64,
    /// When this placement's create was decided.
    pub intended_at: Timestamp,
    /// When the create was last about to be sent: it may be on its way for the handler's deadline plus the request timeout after it.
    pub asked_at: Option<Timestamp>,
    /// How far its creation has come.
    pub create: Create,
    /// When it was last seen waiting in the provider's queue.
    #[serde(default)]
    pub queued_until: Option<Timestamp>,
    /// When it was first seen to have left that queue.
    #[serde(default)]
    pub left_queue_at: Option<Timestamp>,
    /// How often a create request was sent for this placement and not answered clearly.
    pub create_tries: u32,
    /// True once a create of the next generation met a quota or a full reservation while this one still existed: it is waited for.
    pub blocks_quota: bool,
    /// When the API first showed it.
    pub seen_at: Option<Timestamp>,
    /// When it was first seen READY.
    pub ready_at: Option<Timestamp>,
    /// Addresses of the workers, slice by slice, once READY.
    pub addresses: Shared<Vec<Vec<String>>>,
    /// Since when it has been READY but not healthy.
    pub unhealthy_since: Option<Timestamp>,
    /// Since when the API has said that none of its VMs is on any more.
    #[serde(default)]
    pub ended_since: Option<Timestamp>,
    /// Since when the API has answered 404 for it. One answer alone is no proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent_since: Option<Timestamp>,
    /// True while the API's last word of it, but for 404, was that its machines are off, or that it has failed or is being deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leaves: bool,
    /// A notice that it will be taken away.
    pub notice: Option<Notice>,
    /// True once an attempt on it has passed the job's highest step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progressed: bool,
    /// For how long the program has run on it, in attempts that have ended.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub ran: Duration,
    /// Set when it is known to be lost, with the kind it was charged as.
    pub lost: Option<Lost>,
    /// Set when it is to be deleted.
    pub delete: Option<Delete>,
}

/// A loss of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// When it was decided.
    pub at: Timestamp,
    /// `preempted`, `maintenance` or `lost`.
    pub kind: FailureKind,
    /// The fact it rests on, for people.
    pub fact: String,
}

/// Why an attempt's program must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopCause {
    /// The slice will be taken away.
    Notice,
    /// The slice is lost.
    Lost,
    /// A worker of it ended.
    PeerExit,
    /// A person cancelled the job.
    Cancel,
    /// A person paused the job.
    Pause,
    /// A person restarted the job.
    Restart,
    /// A limit passed, or progress stopped.
    Limit,
}

/// The order to end an attempt's program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Why.
    pub cause: StopCause,
    /// Since when.
    pub at: Timestamp,
    /// When the program is killed if it still lives.
    pub deadline: Timestamp,
    /// True if the deadline was put off, since the program could not be told.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub put_off: bool,
}

/// One start of the program on all workers: the fencing token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its number, from 1.
    pub number: u32,
    /// The generation it runs on.
    pub generation: u32,
    /// REKINDLE_RESUME.
    pub resume: bool,
    /// REKINDLE_STAGE: how many times the job has been resumed.
    pub stage: u32,
    /// REKINDLE_LINE: the checkpoint line.
    pub line: u32,
    /// True if it begins in place with a working directory that holds nothing but the code, and `setup` is run again.
    #[serde(default)]
    pub is_clean: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last seen to wait for the end of an earlier attempt alone, with all its workers ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// When `run` was released to all workers together.
    pub released_at: Option<Timestamp>,
    /// When all workers had reported that the program runs.
    pub started_at: Option<Timestamp>,
    /// Set when its program must end.
    pub stop: Option<Stop>,
    /// When the first worker's exit was seen.
    pub first_exit_at: Option<Timestamp>,
    /// Set once its end was judged.
    pub ended: Option<Ended>,
    /// Set once no worker can be running it any more: every worker has reported, or its slice is proved gone.
    pub fenced_at: Option<Timestamp>,
    /// Since when the API has said that its slice is gone. It is fenced a moment later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gone_since: Option<Timestamp>,
    /// True once it has passed the job's highest step.
    pub progressed: bool,
    /// Highest step it has reported.
    pub step: Option<u64>,
    /// When that step was first seen.
    pub step_at: Option<Timestamp>,
    /// The job's checkpoint when it was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved_before: Option<u64>,
    /// Step at which it resumed, by its own words; of several workers the smallest.
    pub resumed_from: Option<u64>,
    /// For how long nobody had used the workspace, counted while it was up: when the attempt began, and from its end on
    /// then.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub idle: Duration,
}

/// The judged end of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// When.
    pub at: Timestamp,
    /// `None`: success, or a person ended it.
    pub kind: Option<FailureKind>,
    /// What was decided about it.
    pub action: Option<Action>,
    /// The budget it is charged to.
    pub charge: Option<Charge>,
    /// The root cause in one sentence.
    pub summary: String,
    /// The evidence, when the program's exit was classified.
    pub verdict: Option<Verdict>,
}

impl Eq for Ended {}

/// What is to be started next, and not before when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Next {
    /// Not before this time (back-off).
    pub not_before: Timestamp,
    /// REKINDLE_RESUME of the next attempt.
    pub resume: bool,
    /// It begins a new checkpoint line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_scratch: bool,
    /// A new generation is needed; else the next attempt runs in place.
    pub new_generation: bool,
    /// Why, for people.
    pub why: Reason,
}

/// A failure whose answer is `fail` waits for the settle window, since a preemption may still explain it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settling {
    /// The attempt.
    pub attempt: u32,
    /// When the failure becomes final.
    pub until: Timestamp,
    /// Its kind.
    pub kind: FailureKind,
    /// The sentence that becomes the job's.
    pub summary: String,
}

/// Numbers that only grow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Preemptions and maintenance.
    pub preemptions: u32,
    /// The infrastructure's failures.
    pub infra_failures: u32,
    /// The user's failures.
    pub user_failures: u32,
    /// Create requests that met a stockout.
    pub stockouts: u32,
    /// Steps that were computed again after a resume.
    pub steps_repeated: u64,
    /// How many times the job was resumed from a checkpoint line that may hold one.
    pub resumes: u32,
}

/// What has been spent of the budgets since the last progress, and the repeats that rules look at.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Infra failures since progress.
    pub infra_failures: u32,
    /// User failures since progress.
    pub user_failures: u32,
    /// Generations in a row without progress.
    pub generations_without_progress: u32,
    /// For each kind: how many since progress, and when the last one was.
    pub kinds: BTreeMap<FailureKind, Repeat>,
}

/// Repeats of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// How many since the last progress.
    pub count: u32,
    /// When the last one was.
    pub last_at: Timestamp,
}

/// Why a candidate is not tried for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barred {
    /// The candidate.
    pub placement: Placement,
    /// Until when; `None`: for good.
    pub until: Option<Timestamp>,
    /// Why.
    pub error: CreateError,
    /// How often in a row.
    pub times: u32,
    /// Until when a delete of what was there may still arrive, though nothing is left: it would meet whatever has the same name next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletes_until: Option<Timestamp>,
}

/// An outgoing event that is committed but may not be published yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutEvent {
    /// Increasing in the job.
    pub sequence: u64,
    /// When.
    pub at: Timestamp,
    /// The phase that was entered.
    pub phase: Phase,
    /// The reason.
    pub reason: Reason,
    /// One sentence.
    pub message: String,
    /// Attempt at that moment.
    pub attempt: u32,
    /// Generation at that moment.
    pub generation: u32,
}

/// A job: one document.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// What was asked for.
    pub spec: Shared<JobSpec>,
    /// sha256 of the spec's canonical JSON: equal specs, equal hashes.
    pub spec_hash: String,
    /// The same over all attempts.
    pub run_id: String,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// Who submitted it.
    pub submitted_by: String,
    /// What people want.
    pub desired: Desired,
    /// A restart that is not carried out yet.
    pub restart: Option<RestartRequest>,
    /// Coarse state.
    pub phase: Phase,
    /// Since when.
    pub phase_since: Timestamp,
    /// The end, from the moment it is known.
    pub outcome: Option<Outcome>,
    /// Why it is where it is.
    pub reason: Reason,
    /// The same in one sentence.
    pub message: String,
    /// Highest generation ever used.
    pub last_generation: u32,
    /// Highest attempt ever used.
    pub last_attempt: u32,
    /// Checkpoint line.
    pub line: u32,
    /// Generations not yet proved gone, oldest first; at most two.
    pub generations: Vec<Generation>,
    /// Attempts not yet fenced, and the current one, oldest first.
    pub attempts: Vec<Attempt>,
    /// What is to be started next.
    pub next: Option<Next>,
    /// A failure that waits for the settle window.
    pub settling: Option<Settling>,
    /// The last judged end of an attempt: the root cause that `show` and `explain` give.
    pub last_end: Option<LastEnd>,
    /// Counters for people.
    pub counters: Counters,
    /// Budgets spent.
    pub spent: Spent,
    /// Highest step ever seen.
    pub highest_step: Option<u64>,
    /// Highest step of the current checkpoint line; see [`Job::step`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_step: Option<u64>,
    /// The newest checkpoint of the whole job on its line (see [`crate::decide::saved_by_all`]).
    #[serde(rename = "highest_checkpoint")]
    pub saved: Option<u64>,
    /// How many workers save on this line: one for all of them, or each its own.
    #[serde(default)]
    pub savers: u32,
    /// Loss at the highest step of the line, as the program wrote it.
    pub last_loss: Option<String>,
    /// When the program first started.
    pub first_started_at: Option<Timestamp>,
    /// Since when it waits for capacity.
    pub queued_since: Timestamp,
    /// Candidates that are not tried for a while.
    pub barred: Vec<Barred>,
    /// Accelerators that the provider refused to queue ([`crate::observation::CreateErrorKind::NotQueueable`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unqueueable: Vec<String>,
    /// Orders to the workers of a workspace, the newest few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub execs: Vec<ExecOrder>,
    /// Number of the last of them.
    #[serde(default)]
    pub last_exec: u64,
    /// What it gave back since the use of all jobs was last counted.
    #[serde(default)]
    pub vacated: Option<Vacated>,
    /// When the next pass is due; `None`: only an event can change anything.
    pub wake_at: Option<Timestamp>,
    /// Events that may not be published yet.
    pub outbox: Vec<OutEvent>,
    /// Number of the last event.
    pub sequence: u64,
    /// Number of the last history entry; grows with every commit, so that no write is without a change.
    pub revision: u64,
    /// When the revision last grew: what a watcher asks by.
    #[serde(default)]
    pub changed_at: Timestamp,
    /// Worker reports up to this commit time have been looked at (microseconds of the store's clock).
    pub observed_through_us: i64,
    /// Chip time and money.
    pub usage: Usage,
}

/// The last judged end of an attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LastEnd {
    /// The attempt.
    pub attempt: u32,
    /// The generation it ran on.
    pub generation: u32,
    /// Its end.
    pub ended: Ended,
}

impl Generation {
    /// Chips of one of its workers.
    pub fn chips_per_worker(&self) -> u32 {
        self.chips / (self.slices * self.workers).max(1)
    }

    /// True while neither an accepted create nor a look has shown that what has its name, if anything, is this job's.
    pub fn is_unproved(&self) -> bool {
        matches!(self.create, Create::Intended | Create::Failed { .. }) && self.seen_at.is_none()
    }

    /// True if what has its name is not this job's: it is never deleted.
    pub fn is_somebody_elses(&self) -> bool {
        matches!(&self.create, Create::Failed { error, .. } if error.kind == CreateErrorKind::NameTaken)
    }
}

impl Job {
    /// The current attempt: the newest.
    pub fn attempt(&self) -> Option<&Attempt> {
        self.attempts.last()
    }

    /// The generation with that number, if it is not proved gone.
    pub fn generation(&self, number: u32) -> Option<&Generation> {
        self.generations.iter().find(|g| g.number == number)
    }

    /// The newest generation that is not proved gone.
    pub fn current_generation(&self) -> Option<&Generation> {
        self.generations.last()
    }
}
