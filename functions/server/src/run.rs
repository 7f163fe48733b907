//! Serves until told to stop, then ends within the time that Cloud Run gives.

use std::future::Future;
use std::io;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use rekindle_telemetry::{Format, Service};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::build::build;
use crate::config::Config;

/// Between the signal and the end; open streams (followed logs) are cut then.
// Cloud Run kills 10 s after SIGTERM. Handlers that are cut had not answered, so their messages come again.
const DRAIN: Duration = Duration::from_secs(8);

/// Is the server of a configuration until SIGTERM or SIGINT.
///
/// # Errors
/// With the setting, address or service that stands in the way.
// The runtime is driven here and not in the program: what is driven in a library is compiled once, in the library.
pub fn run(config: &Config) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(main(config))
}

async fn main(config: &Config) -> anyhow::Result<()> {
    let service = Service {
        name: std::env::var("K_SERVICE").unwrap_or_else(|_| "rekindle-server".into()),
        version: std::env::var("K_REVISION").unwrap_or_else(|_| env!("CARGO_PKG_VERSION").into()),
    };
    let is_cloud = std::env::var_os("K_SERVICE").is_some();
    let format = if is_cloud {
        Format::Cloud { project: config.project.clone(), service: service.clone() }
    } else {
        Format::Pretty
    };
    let otlp =
        config.otlp_endpoint.as_deref().filter(|endpoint| !endpoint.is_empty()).map(|endpoint| (endpoint, &service));
    let log = if config.log.trim().is_empty() { "info" } else { &config.log };
    rekindle_telemetry::init(format, log, otlp).context("logs and traces cannot be set up")?;
    for doubt in config.doubts().into_iter().filter(|_| is_cloud) {
        tracing::warn!("{doubt}");
    }
    // Before anything slow: a signal during the start is kept, and ends the server once it serves.
    let stop = terminated().context("signals cannot be heard")?;
    let address = config.address()?;
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let router = Box::pin(build(config)).await?;
    tracing::info!(address = %listener.local_addr()?, role = ?config.role, "serving");
    serve(listener, router, stop).await;
    Ok(())
}

/// Serves `router`. Once `stop` ends, no new connection is taken, and requests that are under way have 8 s to end.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()> + Send) {
    serve_for(listener, router, stop, DRAIN).await;
}

pub(crate) async fn serve_for(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send,
    drain: Duration,
) {
    let (tell, told) = oneshot::channel::<()>();
    let mut serving = std::pin::pin!(rekindle_web::serve(listener, router, async {
        // Also when the sender is dropped: then nobody waits any more.
        let _ = told.await;
    }));
    tokio::select! {
        () = &mut serving => return,
        () = stop => {}
    }
    tracing::info!("stopping");
    let _ = tell.send(());
    if tokio::time::timeout(drain, serving).await.is_err() {
        tracing::info!("requests that were still open are cut");
    }
}

/// Listens for SIGTERM and SIGINT from this call on; the future ends at the first of them.
pub fn terminated() -> io::Result<impl Future<Output = ()> + Send> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
