//! The built-in training program: a real, deterministic, data-parallel training run that needs nothing but the
//! environment Rekindle gives a program (contract section 4).
//!
//! Workers average their gradients over gRPC, worker 0 saves checkpoints, and whatever interrupts the run, the final
//! parameters are the same bits as those of an undisturbed one ([`run_reference`]). Nothing in here knows of injected
//! faults: a cut connection is an error of this program like any other.
//!
//! Exit codes: 0 all steps done, 1 an error (its chain is on stderr), 2 wrong options, 143 stopped by SIGTERM.

mod checkpoint;
mod data;
mod environment;
mod group;
mod model;
mod progress;
mod talk;
mod train;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use environment::Environment;
use group::Patience;
use train::Ended;

/// What a shell shows for a program that ended by SIGTERM.
const EXIT_SIGTERM: u8 = 128 + 15;

/// The options of the training program.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Steps of the whole run, over all attempts.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: u64,
    /// Least time a step takes, in milliseconds.
    #[arg(long, default_value_t = 20)]
    pub step_ms: u64,
    /// Steps between two checkpoints.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..))]
    pub checkpoint_every: u64,
    /// Seed of the data, its order, and the initial parameters.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Dataset file; made from the seed when absent. Default: next to the checkpoint folder.
    #[arg(long)]
    pub data: Option<PathBuf>,
}

#[derive(Debug, clap::Parser)]
#[command(name = "trainer", no_binary_name = true, about = "A deterministic data-parallel training run")]
struct Arguments {
    #[command(flatten)]
    options: Options,
}

/// Runs the program with the arguments behind its name, in this process's environment.
pub fn main_with<I>(args: I) -> ExitCode
where
    I: IntoIterator,
    I::Item: Into<OsString> + Clone,
{
    match Arguments::try_parse_from(args) {
        Ok(arguments) => run(&arguments.options),
        Err(error) => {
            // Help goes to stdout with 0, a wrong option to stderr with 2. A closed pipe changes neither.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
        }
    }
}

/// Runs the program with options that are parsed already, in this process's environment.
pub fn run(options: &Options) -> ExitCode {
    match train_here(options) {
        Ok(Ended::Finished) => ExitCode::SUCCESS,
        Ok(Ended::Stopped) => ExitCode::from(EXIT_SIGTERM),
        Err(error) => {
            talk::complain(format_args!("Error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn train_here(options: &Options) -> anyhow::Result<Ended> {
    let env = Environment::read(|name| std::env::var_os(name))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
        let (sender, stop) = watch::channel(false);
        tokio::spawn(async move {
            if terminate.recv().await.is_some() {
                // The run has ended, then nobody needs to know.
                let _ = sender.send(true);
            }
        });
        train::run(options, &env, Patience::REAL, stop).await
    })
}

/// The digest (`sha256:…`) of the final parameters of an undisturbed run on the generated dataset.
///
/// The same code computes, averages and applies the gradients as in the real run; only the transport is left out.
/// `workers` counts them over all slices.
pub fn run_reference(seed: u64, workers: u32, steps: u64) -> String {
    train::undisturbed(seed, workers, steps, data::Dataset::generate(seed)).digest()
}
