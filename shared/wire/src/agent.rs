//! What agents and `api` say to each other, under `/agent/v1/`.
//!
//! `POST hello` once per boot (and after a lost token), then `POST report` for ever: each carries everything the agent
//! knows (levels, not
//! edges), and each answer is an [`Order`]. `PUT logs/…` ships output. All but `hello` carry `Authorization: Bearer
//! <token>`.
//!
//! Unknown fields are passed over on both sides: during an upgrade an agent meets an `api` that is older or newer. What people
//! write is read strictly; nobody writes this by hand.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_core::ids::{JobId, WorkerKey};
pub use rekindle_core::observation::{ExitReport, Notice, NoticeKind, WorkerState};
pub use rekindle_core::orders::{Order, Want, Work};

/// The longest [`Progress::loss`], in bytes. A longer one is no number that anybody reads.
pub const LOSS_MAX: usize = 64;

/// Names that an agent tells of its machine (instance, boot id, address, version) are at most so long, in bytes.
pub const NAME_MAX: usize = 256;

/// `POST /agent/v1/hello`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The job, from node metadata `rekindle-job`.
    pub job: JobId,
    /// The generation, from node metadata `rekindle-generation`.
    pub generation: u32,
    /// Which worker.
    pub key: WorkerKey,
    /// The generation's nonce, from node metadata `rekindle-nonce`.
    pub nonce: String,
    /// VM name.
    pub instance: String,
    /// Boot id of the VM (`/proc/sys/kernel/random/boot_id`, or the emulator's for its VMs).
    pub boot_id: String,
    /// Address within the slice.
    pub address: String,
    /// Version of the agent.
    pub version: String,
}

/// The answer to [`Hello`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Carried by every later call.
    pub token: String,
    /// What to do.
    pub order: Order,
}

/// `POST /agent/v1/report`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The job.
    pub job: JobId,
    /// The generation.
    pub generation: u32,
    /// Which worker.
    pub key: WorkerKey,
    /// VM name, as in [`Hello`].
    pub instance: String,
    /// Boot id.
    pub boot_id: String,
    /// The attempt that the rest speaks of: the one of the last order that the agent carries out.
    pub attempt: u32,
    /// Stored only if true: a heartbeat is due, or something below changed. Else the call only fetches the order.
    pub store: bool,
    /// What the agent does.
    pub state: WorkerState,
    /// When the program of this attempt started.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Progress, as the program wrote it.
    #[serde(default)]
    pub progress: Progress,
    /// When the program last wrote any output.
    #[serde(default)]
    pub output_at: Option<Timestamp>,
    /// Free disk in the working directory's file system, in bytes.
    #[serde(default)]
    pub disk_free_bytes: Option<u64>,
    /// Free memory, in bytes.
    #[serde(default)]
    pub memory_free_bytes: Option<u64>,
    /// A notice seen on the metadata server.
    #[serde(default)]
    pub notice: Option<Notice>,
    /// The end of this attempt's program. Sent until an answer accepts it; its write is fenced by the attempt.
    #[serde(default)]
    pub exit: Option<ExitReport>,
    /// True once the agent holds [`Order::work`] of this attempt and need not be sent it again.
    #[serde(default)]
    pub has_work: bool,
    /// True once the agent has heard its bell, which rings when its orders change, so that it need not ask often.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_bell: bool,
    /// True while the program has ended and its outputs are still being collected from this machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_collecting: bool,
    /// True while output of a program that has ended, of this attempt or an earlier one, waits on this machine to be sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_unsent: bool,
}

/// Progress lines, summed up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Highest `step=` that counts: one far above the last counts once the next line bears it out.
    pub step: Option<u64>,
    /// When it was written.
    pub step_at: Option<Timestamp>,
    /// The last `loss=`, as it was written, of at most [`LOSS_MAX`] bytes; a longer one is passed over.
    pub loss: Option<String>,
    /// The last `checkpoint=`.
    pub checkpoint: Option<u64>,
    /// `resumed_from=`.
    pub resumed_from: Option<u64>,
}

/// Which chunk of output: `PUT /agent/v1/logs/{job}/{attempt}/{slice}-{worker}/{stream}/{number}` with the bytes as the
/// body, and the same
/// `generation` and `instance` in the query for the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogChunk {
    /// Generation, for the token.
    pub generation: u32,
    /// VM name, for the token.
    pub instance: String,
}

/// `POST /agent/v1/outputs`: where does this file go?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPlace {
    /// The job.
    pub job: JobId,
    /// Generation, for the token.
    pub generation: u32,
    /// Which worker.
    pub key: WorkerKey,
    /// VM name, for the token.
    pub instance: String,
    /// The attempt whose program left it; `None`: the agent is too old to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Path of the file below the working directory.
    pub path: String,
}

/// The answer to [`OutputPlace`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputAddress {
    /// PUT it there; no token goes with it.
    pub upload: String,
}
