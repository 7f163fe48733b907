//! What the classifier is told, and what it answers: plain data, sent between agent and manager as JSON.

use serde::{Deserialize, Serialize};

use crate::failure::FailureKind;

/// Everything known about how one attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Evidence {
    /// One entry for each worker that said anything, in any order.
    pub workers: Vec<WorkerEvidence>,
    /// What the cloud says about the node now.
    pub node: NodeFact,
    /// The notice that reached any worker of the attempt, if one did.
    pub notice: Option<NoticeFact>,
    /// How many workers the attempt had. Those missing from `workers` count as silent.
    pub multi_worker_expected: Option<usize>,
    /// True if nobody told how the program ended, as of a plain log: a failure is assumed, and no exit code is named.
    pub is_end_assumed: bool,
}

/// How one worker ended, and what it said.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerEvidence {
    /// The worker's index in its slice.
    pub index: u32,
    /// The slice's index in a multislice job.
    pub slice: u32,
    /// How the program ended.
    pub exit: Exit,
    /// Who sent the signal that ended the program, where somebody knows.
    pub signal_sender: Option<SignalSender>,
    /// The ends of what the TPU runtime logged and of both output streams, lossily decoded; the agent sends up to
    /// 64 KiB of each stream.
    pub tail: String,
    /// True if the kernel or the memory cgroup says that it killed for want of memory.
    pub oom_kill: bool,
    /// The line of the kernel's log that says so, where the log can be read.
    pub oom_line: String,
    /// Free bytes of the fullest disk the program writes to.
    pub disk_free_bytes: Option<u64>,
    /// Free bytes of memory under the limit that binds. Known means that somebody looked.
    pub memory_free_bytes: Option<u64>,
    /// True if somebody else held the TPU device when the program ended.
    pub device_busy: bool,
    /// Who held it, and whether a dead program's lock was found: a line for each, for people.
    pub holders: Vec<String>,
    /// True if the machine was started anew while the program ran, which took it without an exit.
    pub rebooted: bool,
    /// When the program ended, in milliseconds on any clock that the workers share.
    pub exited_at_ms: Option<u64>,
    /// The newest step the program reported.
    pub last_step: Option<u64>,
    /// Which part of the attempt ended.
    pub during: Stage,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It left with this code. Codes over 128 and below 0 are read as signals, as shells and Python write them.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
    /// Nothing was heard: the worker is lost, or its program still hangs.
    #[default]
    Silent,
}

/// Who sent a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalSender {
    /// Process 1: the machine is shutting down.
    Init,
    /// The manager's own agent: never a cause.
    Ourselves,
    /// Another process.
    Other(i32),
}

/// The part of an attempt in which a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Preparing the machine: the job's setup commands.
    Setup,
    /// The program itself.
    #[default]
    Run,
}

/// What the cloud says about the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeFact {
    /// Not asked, or no answer.
    #[default]
    Unknown,
    /// It is there and well.
    Ready,
    /// It is there, and its health is bad.
    Unhealthy,
    /// The provider took it back: `PREEMPTED`, or missing on capacity that can be taken back.
    GoneOrPreempted,
    /// It is missing, and the provider gives no reason.
    Gone,
}

/// A notice from the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeFact {
    /// The machine is being taken back.
    Preemption,
    /// The host goes into maintenance.
    Maintenance,
}

/// What ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The program did all it had to do.
    Success,
    /// It did not, for this reason.
    Failure(FailureKind),
}

impl Outcome {
    /// The name in reports: `success`, or the kind's.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure(kind) => kind.as_str(),
        }
    }
}

/// What to do with a job that ended so, without a policy at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseAction {
    /// Running it again can help, and nobody has to do anything first.
    Retry,
    /// Running it again as it is cannot help: a person must look.
    Stop,
    /// It is finished.
    Done,
}

impl CaseAction {
    /// The answer to an outcome.
    // A full disk, a broken environment and an undecided end may be tried once more by a policy; by themselves they
    // ask for a change first, so the case answer is to stop.
    pub const fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Success => Self::Done,
            Outcome::Failure(kind) => match kind {
                FailureKind::Preempted
                | FailureKind::Maintenance
                | FailureKind::Lost
                | FailureKind::InfraGrpc
                | FailureKind::TpuRuntime
                | FailureKind::StorageNetwork
                | FailureKind::Stalled => Self::Retry,
                FailureKind::OomHbm
                | FailureKind::OomHost
                | FailureKind::DiskFull
                | FailureKind::Auth
                | FailureKind::Environment
                | FailureKind::UserError
                | FailureKind::Timeout
                | FailureKind::Unknown => Self::Stop,
            },
        }
    }

    /// The word in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Stop => "stop",
            Self::Done => "done",
        }
    }
}

/// One line that speaks for the verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceLine {
    /// The worker it came from.
    pub worker: u32,
    /// That worker's slice.
    pub slice: u32,
    /// The line as printed, shortened; empty if the evidence is no line.
    pub line: String,
    /// What it means.
    pub reason: String,
    /// The name of the signature or rule that found it.
    pub signature: String,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Success, or the kind of failure.
    pub outcome: Outcome,
    /// From 0 to 1: how far to trust it.
    pub confidence: f32,
    /// The cause first, then what else speaks for it and what was judged an echo.
    pub evidence: Vec<EvidenceLine>,
    /// What to do without a policy at hand.
    pub action: CaseAction,
    /// The root cause in one sentence, for a person.
    pub summary: String,
}
