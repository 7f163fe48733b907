//! Orders to workspaces, and the outputs of jobs.

use serde::{Deserialize, Serialize};

use rekindle_core::exec::ExecExit;
use rekindle_core::spec::CommandLine;

/// Body of `POST /v1/jobs/{id}/exec`: one of `run` and `unpack`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecBody {
    /// A command: words, or one line for bash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<CommandLine>,
    /// A bundle to unpack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpack: Option<UnpackBody>,
    /// The worker, as `N` or `SLICE-N`; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Which bundle goes where.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UnpackBody {
    /// Address of the bundle.
    pub code: String,
    /// Folder below the working directory, or an absolute one; empty: the working directory.
    pub to: String,
}

/// An order to a workspace's workers, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecView {
    /// Its number in the job.
    pub id: u64,
    /// The attempt that it is for.
    pub attempt: u32,
    /// True once that attempt is being ended or is over: what is missing will not come.
    pub is_over: bool,
    /// The workers that it is for.
    pub workers: Vec<ExecWorkerView>,
}

/// What an order brought on one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecWorkerView {
    /// `0-3`: its slice and its index. The command line calls it `w3`, and `s0w3` where there are slices.
    pub worker: String,
    /// Chunks of standard output that are there; the first is number 0.
    pub stdout: u64,
    /// Chunks of standard error.
    pub stderr: u64,
    /// How it ended, once it has.
    pub exit: Option<ExecExit>,
}

/// Answer of `GET /v1/jobs/{id}/outputs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputList {
    /// Where they are in the object store.
    pub place: String,
    /// The attempt that left them: the one that was asked for, else the last that left any; null: none did.
    #[serde(default)]
    pub attempt: Option<u32>,
    /// The other attempts that left files, in order.
    #[serde(default)]
    pub other_attempts: Vec<u32>,
    /// The files, in order.
    pub outputs: Vec<OutputView>,
}

/// A file that a worker left at the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputView {
    /// `w0`; `s1w0` where there are slices.
    pub worker: String,
    /// Its path below the working directory.
    pub path: String,
    /// What to ask for: `GET /v1/jobs/{id}/outputs/{object}`.
    pub object: String,
}
