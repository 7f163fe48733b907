//! The job spec after validation: what a person asked for, with every default filled in.
//!
//! The outside shape and its validation are in `spec/parse.rs`; nothing else builds a [`JobSpec`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::policy::PolicyTable;

pub mod execve;
pub mod fields;
mod hash;
mod limits;
pub mod outputs;
mod parse;
mod reader;
mod recovery;
mod secrets;
mod source;
mod tpu;

#[cfg(test)]
mod tests;

pub use hash::hash;
pub use parse::{FieldError, LABEL_IS, LABEL_MAX, ParseContext, Submit, TAGS_MAX, is_label, parse};

/// A command line: a list of words, or one string that is given to `bash -c`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CommandLine {
    /// Given to `bash -c`.
    Shell(String),
    /// Program and arguments, no shell.
    Argv(Vec<String>),
}

impl CommandLine {
    /// True if there is nothing to run.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Shell(line) => line.trim().is_empty(),
            Self::Argv(words) => words.first().is_none_or(String::is_empty),
        }
    }
}

/// How capacity is bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CapacityKind {
    /// Spot: may be taken away at any moment, no maximum age.
    Spot,
    /// The older preemptible form: as spot, and ended after 24 hours.
    Preemptible,
    /// On demand.
    OnDemand,
    /// From a reservation.
    Reserved,
}

impl CapacityKind {
    /// True for capacity that the provider may take back.
    pub const fn is_preemptible(self) -> bool {
        matches!(self, Self::Spot | Self::Preemptible)
    }

    /// The name as it stands in job specs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::Preemptible => "preemptible",
            Self::OnDemand => "on_demand",
            Self::Reserved => "reserved",
        }
    }
}

/// When a queued resource is used instead of a plain node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Queued {
    /// For more than one slice, or after two stockouts, where the type supports it.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Which TPU, where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TpuSpec {
    /// Accelerator types in order of preference, at least one.
    pub accelerators: Vec<String>,
    /// Zones in order of preference; empty: every entry of the capacity list.
    pub zones: Vec<String>,
    /// Kinds of capacity in order of preference, at least one.
    pub capacity: Vec<CapacityKind>,
    /// When to use a queued resource.
    pub queued: Queued,
    /// Name of the reservation, with `reserved`.
    pub reservation: Option<String>,
    /// Runtime version; absent: the right one for the accelerator.
    pub runtime_version: Option<String>,
    /// Topology such as `4x4`; absent: the type's usual one.
    pub topology: Option<String>,
    /// Number of slices; more than one is multislice, all or nothing.
    pub slices: u32,
    /// Network settings.
    pub network: NetworkSpec,
}

/// Network settings of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkSpec {
    /// VPC network.
    pub network: String,
    /// Subnetwork; absent: the region's.
    pub subnetwork: Option<String>,
    /// Whether workers get external addresses.
    pub external_ips: bool,
    /// Service account of the workers; absent: the deployment's.
    pub service_account: Option<String>,
    /// Network tags.
    pub tags: Vec<String>,
    /// Extra labels of the node.
    pub labels: BTreeMap<String, String>,
}

/// How many failures of each sort a job may have. `None` is unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budgets {
    /// Failures of the user's program; reset by progress.
    pub user_failures: Option<u32>,
    /// Failures of the infrastructure; reset by progress.
    pub infra_failures: Option<u32>,
    /// Preemptions and maintenance.
    pub preemptions: Option<u32>,
    /// Generations in a row without a step above the highest before the job pauses.
    pub no_progress: Option<u32>,
}

/// The longest `stop_grace`.
// The platform's longest notice is the hour before host maintenance; a preemption gives 30 s. A program that cannot save
// within it is lost with its machine anyhow, and until its end a cancelled job pays for its slice.
pub const STOP_GRACE_MAX: Duration = Duration::from_hours(1);

/// Time and money limits. `None` is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// From the first start of the program to the end of the job.
    pub total: Option<Duration>,
    /// From the start of one attempt's program to its end.
    pub attempt: Option<Duration>,
    /// Waiting for capacity since the job last held a TPU (or was submitted).
    pub queue: Option<Duration>,
    /// From the node's READY to the start of the program on all workers.
    pub start: Duration,
    /// No new step (or, set by hand, no output) for so long.
    pub stall: Option<Duration>,
    /// True if `stall` was given by the person, so that it also watches the output of programs without progress lines.
    pub stall_by_hand: bool,
    /// Between SIGTERM and SIGKILL; at most [`STOP_GRACE_MAX`].
    pub stop_grace: Duration,
    /// The job fails when it has cost more than so many US dollars.
    pub cost_usd: Option<f64>,
    /// A workspace that nobody has used for so long is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
}

/// A webhook for some of the job's events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    /// Address, https.
    pub webhook: String,
    /// Phases in snake_case that are told; empty: all.
    pub events: Vec<String>,
    /// What is sent; absent: what the address takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<HookShape>,
}

/// What a webhook gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookShape {
    /// The event, as a structured CloudEvent.
    Event,
    /// A line for Slack, and what speaks as it does.
    Slack,
    /// A line for Discord.
    Discord,
    /// Subject and text, for a gateway that makes a mail of them.
    Mail,
}

impl HookShape {
    /// The names in a spec, with what they mean.
    pub const NAMES: [(&str, Self); 4] =
        [("event", Self::Event), ("slack", Self::Slack), ("discord", Self::Discord), ("mail", Self::Mail)];
}

/// A validated job spec. It never changes after submit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The program, on every worker; an empty list in a workspace.
    pub run: CommandLine,
    /// Once per worker and slice generation, before `run`.
    pub setup: Option<CommandLine>,
    /// Address of a bundle `…/<sha256>.tar.zst` that is unpacked into the working directory.
    pub code: Option<String>,
    /// Environment of the program.
    pub env: BTreeMap<String, String>,
    /// Variables of the program whose values each worker reads from Secret Manager: names of versions,
    /// `projects/P/secrets/NAME/versions/V`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Which TPU, where.
    pub tpu: TpuSpec,
    /// What to do for each kind of failure, fixed at submit.
    pub recovery: PolicyTable,
    /// Failure budgets.
    pub budgets: Budgets,
    /// Limits.
    pub limits: Limits,
    /// Checkpoint folder; absent: `<bucket>/jobs/<id>/checkpoints`. A map region to folder has its entries under the region's name.
    pub checkpoint: CheckpointSpec,
    /// 0 to 100, higher first.
    pub priority: u8,
    /// Who pays.
    pub owner: String,
    /// Labels for people.
    pub tags: Vec<String>,
    /// Free text for people.
    pub notes: Option<String>,
    /// Webhooks.
    pub notify: Vec<Notify>,
    /// True: also slices outside the regions of the checkpoint bucket.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub any_region: bool,
    /// True: also the first attempt is to go on from what lies in `checkpoint`, which another job has left.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume: bool,
    /// A TPU for interactive work: it has no program, and ends only when a person ends it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub workspace: bool,
    /// Patterns of files in the working directory that are collected from every worker at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// Where `code` comes from, for people; no part of what the job is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Where a bundle was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Name of the folder.
    pub folder: String,
    /// The commit that was checked out, if it is a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Its branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// True if files differed from the commit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dirty: bool,
}

/// Where checkpoints live.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointSpec {
    /// `<bucket>/jobs/<id>/checkpoints`.
    Default,
    /// One folder.
    Folder(String),
    /// A folder for each region.
    ByRegion(BTreeMap<String, String>),
}
