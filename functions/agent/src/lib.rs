//! The agent: what runs on every worker VM, from its startup script on.
//!
//! It says hello, gets ready, runs the job's program once for each attempt, ends it when it is told to, and says how
//! it ended. What it knows of the job it knows from node metadata and from the orders of `api`; it decides nothing.
//! Entry points: [`entry`] for binaries, [`run`] for a configuration at hand. The wire format is
//! `rekindle_wire::agent`.

mod api;
mod backoff;
mod bell;
mod bundle;
mod closing;
mod config;
mod devices;
mod ending;
mod evidence;
mod exec;
mod files;
mod keep;
mod kernel;
mod logs;
mod lows;
mod machine;
mod metadata;
mod notice;
mod outputs;
mod procs;
mod program;
mod progress;
mod reporter;
mod resume;
mod secrets;
mod shim;
mod snapshot;
mod spool;
mod state;
mod steps;
mod stream;

use std::os::fd::IntoRawFd as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::{mpsc, watch};

use rekindle_wire::agent::{Progress, WorkerState};

use crate::api::Api;
use crate::bell::Bell;
use crate::exec::{Activity, Exec};
use crate::files::Layout;
use crate::keep::Keeper;
use crate::kernel::Kernel;
use crate::logs::{Flushes, Shipper};
use crate::machine::{Leave, Machine, Parts};
use crate::metadata::Metadata;
use crate::program::Reaped;
use crate::reporter::{Reporter, Snapshot};
use crate::secrets::Secrets;
use crate::state::State;

pub use crate::config::{AgentArgs, AgentCommand, AgentConfig, DEFAULT_HOME};

/// The startup script of every worker, for node metadata `startup-script`.
pub const STARTUP_SCRIPT: &str = include_str!("../../../infra/worker/startup.sh");

/// Exit code of an agent that was told to end; whoever started it starts it again.
pub const EXIT_RESTART: u8 = 75;

/// Runs the agent's command line in this process. `prefix` is what stands before it (`["__agent"]` in the CLI).
///
/// Must be called before any async runtime is started: the shim wants to stay small.
///
/// # Errors
/// If the agent cannot even begin, or the shim cannot write its files.
pub fn entry(prefix: &[&str], args: AgentArgs) -> anyhow::Result<ExitCode> {
    if let Some(AgentCommand::Shim { spec }) = &args.command {
        return shim::run(spec);
    }
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A log file on a full disk must not end a task: the complaint about it would be written there too, and panic.
    let _ = lines.log_internal_errors(false).try_init();
    let config = AgentConfig::from_args(prefix, args)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let done = runtime.block_on(run(config));
    // A write on a disk that hangs keeps no agent from leaving.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

/// Is the agent until its generation is of no use any more (exit code 0) or somebody ends it ([`EXIT_RESTART`]; the
/// program lives on).
///
/// A second agent on the same home waits until the process of the first has ended, which is to follow. A crash at any await is made good by the next
/// agent, which adopts the program that lives.
///
/// # Errors
/// If home cannot be written to. An unreachable metadata server or `api` is no error: it is tried for ever.
pub async fn run(config: AgentConfig) -> anyhow::Result<ExitCode> {
    let config = Arc::new(config);
    // What its shims lose becomes a child of the agent, which can then tell how it ended.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("cannot become a subreaper")?;
    let metadata = Metadata::new(&config.metadata_host)?;
    let node = Arc::new(metadata.node().await);
    let layout = Layout::new(&config.home, &config.buffer, &node.job, node.generation);
    layout.make().with_context(|| format!("cannot write to {}", config.home.display()))?;
    lock(&layout).await?;
    tracing::info!(job = %node.job, generation = node.generation, worker = node.key.worker, "the agent begins");

    let api = Api::new(&node, metadata.clone()).with_context(|| format!("{} is no address", node.api))?;
    let (token, tokens) = watch::channel(None);
    let (snapshots, snapshot) = watch::channel(first_snapshot());
    let ((out, from_api), (words_out, words)) = (mpsc::channel(16), mpsc::channel(16));
    let (ask, flush_requests) = mpsc::channel(16);
    let flushes = Flushes { ask, api: api.clone() };
    notice::watch(&metadata, &words_out);
    let secrets = Secrets::new(metadata.clone());
    let exec = Exec {
        api: api.clone(),
        node: Arc::clone(&node),
        token: tokens.clone(),
        metadata: metadata.clone(),
        secrets: secrets.clone(),
        layout: layout.clone(),
        boot_id: config.boot_id.clone(),
        reaped: Reaped::default(),
        stops: Arc::default(),
        closed: Arc::default(),
        activity: Activity::default(),
    };
    bundle::tidy(&layout);
    let is_rebooted = State::load(&layout).is_of_another_boot(&config.boot_id);
    program::put_right(&layout.folders(), 2 * shim::LOOK_EACH).await;
    let machine = Machine::new(Parts {
        config: Arc::clone(&config),
        node: Arc::clone(&node),
        metadata,
        secrets,
        layout: layout.clone(),
        snapshots,
        flushes,
        exec,
    });
    let reporter = Reporter {
        api: api.clone(),
        node: Arc::clone(&node),
        boot_id: config.boot_id.clone(),
        token_file: layout.token(),
        keeper: Keeper::begin(),
        kernel: Kernel::new(&config.kernel_root),
        disk: layout.generation().to_owned(),
        token,
        out,
        bell: Bell::open(&node.address, node.bell_port).await,
    };
    let (flush, backlog_max) = (config.log_flush, config.log_backlog_bytes);
    let (sent, snapshots) = (layout.has_buffer().then(Keeper::begin), snapshot.clone());
    let shipper = Shipper { api, node, layout, snapshots, flush, backlog_max, sent, is_rebooted, read: logs::read_at };
    let reports = tokio::spawn(reporter.run(snapshot));
    let shipping = tokio::spawn(shipper.run(tokens, flush_requests));
    let leave = machine.run(from_api, words).await;
    reports.abort();
    shipping.abort();
    Ok(match leave? {
        Leave::Retired => ExitCode::SUCCESS,
        Leave::Told => ExitCode::from(EXIT_RESTART),
    })
}

fn first_snapshot() -> Snapshot {
    Snapshot {
        attempt: 0,
        state: WorkerState::Preparing,
        started_at: None,
        progress: Progress::default(),
        output_at: None,
        notice: None,
        exit: None,
        has_work: false,
        is_collecting: false,
        has_unsent: false,
    }
}

/// Waits to be the only agent that acts, which this process is until it ends: a write of ours that a disk holds up may outlast
/// [`run`], and would put what is old in the place of what the next agent knows. The kernel gives the lock back when its holder
/// dies, however it dies.
async fn lock(layout: &Layout) -> anyhow::Result<()> {
    let path = layout.lock();
    tokio::task::spawn_blocking(move || {
        let file = files::append_to(&path)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        let _held = file.into_raw_fd();
        Ok::<_, std::io::Error>(())
    })
    .await
    .context("waiting for the lock ended")?
    .context("cannot lock the home folder")
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
