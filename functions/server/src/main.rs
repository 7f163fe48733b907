//! `rekindle-server`: the functions, for Cloud Run.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    rekindle_server::run(&rekindle_server::Config::parse())
}
