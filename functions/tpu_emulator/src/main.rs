//! `rekindle-tpu-emulator`: the emulator alone.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use rekindle_tpu_emulator::{Config, Emulator, Scenario, Vms, supervisor_main};

/// The hidden subcommand: supervises one VM.
const SUPERVISE: &str = "supervise-vm";

/// Emulates the Cloud TPU API (v2 and v2alpha1); worker VMs are processes of this machine.
///
/// Point clients at it with CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU=http://127.0.0.1:PORT/ and
/// CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true (gcloud), or an endpoint override and anonymous credentials (libraries).
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Port on 127.0.0.1; 0 takes a free one.
    #[arg(long, default_value_t = 8470)]
    port: u16,
    /// Capacity, quota, limits and latencies of the zones (JSON or YAML).
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Makes addresses, ids and jitter repeatable.
    #[arg(long)]
    seed: Option<u64>,
    /// Divides every wait.
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// Folder of the state; workers found there go on. Default: a temporary folder, and the workers end with us.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Deliver audit-log entries to this URL, as a Logging sink with a Pub/Sub push subscription does.
    #[arg(long, value_name = "URL")]
    event_push_url: Option<String>,
}

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    if arguments.nth(1).is_some_and(|first| first == SUPERVISE) {
        return supervisor_main(arguments);
    }
    tracing_subscriber::fmt().with_writer(std::io::stderr).log_internal_errors(false).init();
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let own: OsString = std::env::current_exe()?.into();
    let temporary = std::env::temp_dir().join(format!("rekindle-tpu-emulator-{}", std::process::id()));
    let is_temporary = arguments.state.is_none();
    let state_dir = arguments.state.clone().unwrap_or_else(|| temporary.clone());
    let mut config = Config::new(state_dir, vec![own, SUPERVISE.into()]);
    config.addr = SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port));
    config.scenario = arguments.scenario.as_deref().map(Scenario::read).transpose()?;
    config.seed = arguments.seed;
    config.speed = arguments.speed;
    config.event_push_url = arguments.event_push_url;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let emulator = Emulator::start(config).await?;
        writeln!(std::io::stdout(), "Cloud TPU emulator at {} (seed {})", emulator.endpoint(), emulator.seed())?;
        interrupted().await?;
        emulator.shutdown(if is_temporary { Vms::End } else { Vms::Leave }).await;
        anyhow::Ok(())
    })?;
    if is_temporary {
        std::fs::remove_dir_all(&temporary)?;
    }
    Ok(())
}

async fn interrupted() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        ended = tokio::signal::ctrl_c() => ended,
        _ = terminate.recv() => Ok(()),
    }
}
