//! Workspaces: `up`, `status`, `delete`, `exec`, `sync`, `ssh`; and the outputs of jobs.

use std::path::PathBuf;

use clap::Args;

use crate::complete;

/// `up`.
#[derive(Debug, Args)]
#[command(after_help = UP_EXAMPLES)]
pub(crate) struct Up {
    /// The workspace
    #[arg(add = complete::workspaces())]
    pub(crate) name: String,
    /// Accelerator type; several in order of preference
    #[arg(add = complete::accelerators(), long, value_name = "TYPE", value_delimiter = ',')]
    pub(crate) tpu: Vec<String>,
    /// Zone; several in order of preference [default: all that the deployment allows]
    #[arg(add = complete::zones(), long, value_name = "ZONE", value_delimiter = ',')]
    pub(crate) zone: Vec<String>,
    /// spot, preemptible, on_demand, reserved; several in order of preference
    #[arg(add = complete::capacities(), long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) capacity: Vec<String>,
    /// On each worker of each new TPU, by bash
    #[arg(long, value_name = "COMMAND")]
    pub(crate) setup: Option<String>,
    /// Folder to begin with, on each new TPU; `rekindle sync` brings more [default: `folder` of the preset, else none]
    #[arg(add = complete::folders(), long, value_name = "DIR")]
    pub(crate) folder: Option<PathBuf>,
    /// Pause it when nobody has used it for so long, or `none` [default: 8h]
    #[arg(long, value_name = "TIME")]
    pub(crate) idle: Option<String>,
    /// Part of a job by name, such as spot-v6e; may be repeated
    #[arg(add = complete::presets(), long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) preset: Vec<String>,
    /// Any field of the definition: `--set tpu.network=mine`
    #[arg(add = complete::assignments(), long, value_name = "FIELD=VALUE")]
    pub(crate) set: Vec<String>,
    /// Do not wait until it can be used
    #[arg(long)]
    pub(crate) no_wait: bool,
    /// Print its job, and what would be created, where, at what price; send and make nothing
    #[arg(long = "dry-run")]
    pub(crate) is_dry: bool,
}

impl Up {
    /// The options that define a workspace, as far as they were given.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let given = [
            ("--tpu", !self.tpu.is_empty()),
            ("--zone", !self.zone.is_empty()),
            ("--capacity", !self.capacity.is_empty()),
            ("--setup", self.setup.is_some()),
            ("--folder", self.folder.is_some()),
            ("--idle", self.idle.is_some()),
            ("--preset", !self.preset.is_empty()),
            ("--set", !self.set.is_empty()),
        ];
        given.into_iter().filter(|(_, is)| *is).map(|(name, _)| name).collect()
    }
}

const UP_EXAMPLES: &str = "\
Examples:
  rekindle up dev --tpu v6e-8 --setup 'pip install flax' --folder .
  rekindle pause dev         give the TPU back, keep the definition
  rekindle up dev            the same again
  rekindle exec dev -- python3 -c 'import jax; print(jax.device_count())'
  rekindle ssh dev --forward
  rekindle delete dev";

/// `status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle status\n  rekindle status dev")]
pub(crate) struct Status {
    /// The workspace; without it all that are not deleted
    #[arg(add = complete::workspaces())]
    pub(crate) name: Option<String>,
}

/// `delete`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  rekindle delete dev")]
pub(crate) struct Delete {
    /// The workspaces
    #[arg(add = complete::workspaces(), required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// `exec`.
#[derive(Debug, Args)]
#[command(after_help = EXEC_EXAMPLES)]
pub(crate) struct Exec {
    /// The workspace
    #[arg(add = complete::workspaces())]
    pub(crate) name: String,
    /// Only on this worker: w3, or s1w3 where there are slices; `all` is every worker
    #[arg(long, value_name = "wN|all", default_value = "all")]
    pub(crate) worker: String,
    /// The command and its arguments; one word alone is a line for bash
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

const EXEC_EXAMPLES: &str = "\
The command gets no input: `rekindle sync` brings a file that it can read.
The exit code is 0 if it is 0 on every worker, else the highest.
Ctrl-C ends the command on its workers; a second one does not wait for that.
Examples:
  rekindle exec dev -- nproc
  rekindle exec dev --worker 0 -- 'ls -l results | head'
  rekindle exec dev -- python3 train.py --lr=0.01";

/// `sync`.
#[derive(Debug, Args)]
#[command(after_help = SYNC_EXAMPLES)]
pub(crate) struct Sync {
    /// A folder or file here, or NAME:PATH in a workspace
    #[arg(add = complete::sides())]
    pub(crate) from: String,
    /// The same; one of both is in a workspace. One file takes this name, or keeps its own in a folder that is there
    #[arg(add = complete::sides())]
    pub(crate) to: String,
    /// Only this worker: w3, or s1w3 where there are slices; `all` is every worker
    #[arg(long, value_name = "wN|all", default_value = "all")]
    pub(crate) worker: String,
}

const SYNC_EXAMPLES: &str = "\
Files are added and replaced, never removed, and keep their times. \
What .gitignore and .rekindleignore name stays here.
From several workers each gets its own folder: w0, w1 and so on.
Examples:
  rekindle sync . dev:
  rekindle sync src dev:src
  rekindle sync conf/big.yaml dev:conf/        one file, into a folder
  rekindle sync dev:results ./results --worker 0";

/// `ssh`.
#[derive(Debug, Args)]
#[command(after_help = SSH_EXAMPLES)]
pub(crate) struct Ssh {
    /// The workspace, or any job with a TPU
    #[arg(add = complete::jobs())]
    pub(crate) name: String,
    /// The worker: w3, or s1w3 where there are slices
    #[arg(long, value_name = "wN", default_value = "0")]
    pub(crate) worker: String,
    /// Bring ports 6006 (TensorBoard) and 8888 (Jupyter) here
    #[arg(long)]
    pub(crate) forward: bool,
    /// Go to the worker's internal address, from a machine in its network
    #[arg(long)]
    pub(crate) internal_ip: bool,
    /// Go through Identity-Aware Proxy, which takes gcloud's alpha commands [default: where the job's workers have no external address]
    #[arg(long, conflicts_with = "internal_ip")]
    pub(crate) iap: bool,
    /// Private key [default: gcloud's own]
    #[arg(long = "ssh-key-file", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Neither make keys nor add them to the project
    #[arg(long, hide = true)]
    pub(crate) plain: bool,
    /// Project of the TPU [default: gcloud's own]
    #[arg(long, value_name = "ID")]
    pub(crate) project: Option<String>,
    /// Options of ssh
    #[arg(last = true, value_name = "SSH ARGS")]
    pub(crate) rest: Vec<String>,
}

const SSH_EXAMPLES: &str = "\
Examples:
  rekindle ssh dev
  rekindle ssh dev --worker 2 --forward
  rekindle ssh dev -- -L 9000:localhost:9000";

/// `outputs`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  rekindle outputs train-1\n  rekindle outputs train-1 --to ./results --worker 0\n  rekindle outputs train-1 --attempt 2          what an earlier attempt left"
)]
pub(crate) struct Outputs {
    /// The job
    #[arg(add = complete::jobs())]
    pub(crate) job: String,
    /// Bring them into this folder, each worker's into its own, `w0`, `w1`, …; they have the time of their coming
    #[arg(long, value_name = "DIR")]
    pub(crate) to: Option<PathBuf>,
    /// Only of this worker: w3, or s1w3 where there are slices; `all` is every worker
    #[arg(long, value_name = "wN|all")]
    pub(crate) worker: Option<String>,
    /// Those of this attempt [default: the last that left any]
    #[arg(long, value_name = "N")]
    pub(crate) attempt: Option<u32>,
}
