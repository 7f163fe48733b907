//! The static binary `rekindle-agent` for worker VMs; everything is in the library.

use std::process::ExitCode;

use clap::Parser;

/// The agent of a Rekindle worker.
#[derive(Debug, Parser)]
#[command(name = "rekindle-agent", version)]
struct Cli {
    #[command(flatten)]
    args: rekindle_agent::AgentArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    rekindle_agent::entry(&[], Cli::parse().args)
}
