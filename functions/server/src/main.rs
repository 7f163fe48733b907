//! `rekindle-server`: the functions, for Cloud Run.

use anyhow::Context;
use clap::Parser;
use tokio::net::TcpListener;

use rekindle_server::{Config, build, serve, terminated};
use rekindle_telemetry::{Format, Service};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::parse();
    let is_cloud = std::env::var_os("K_SERVICE").is_some();
    let format = if is_cloud {
        let name = std::env::var("K_SERVICE").unwrap_or_default();
        let version = std::env::var("K_REVISION").unwrap_or_else(|_| env!("CARGO_PKG_VERSION").into());
        Format::Cloud { project: config.project.clone(), service: Service { name, version } }
    } else {
        Format::Pretty
    };
    rekindle_telemetry::init(format, &config.log).context("logs cannot be set up")?;
    // Before anything slow: a signal during the start is kept, and ends the server once it serves.
    let stop = terminated().context("signals cannot be heard")?;
    let address = config.address()?;
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let router = Box::pin(build(&config)).await?;
    tracing::info!(address = %listener.local_addr()?, role = ?config.role, "serving");
    serve(listener, router, stop).await?;
    Ok(())
}
