//! Serves until told to stop, then ends within the time that Cloud Run gives.

use std::future::Future;
use std::io;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Between the signal and the end; open streams (followed logs) are cut then.
// Cloud Run kills 10 s after SIGTERM. Handlers that are cut had not answered, so their messages come again.
const DRAIN: Duration = Duration::from_secs(8);

/// Serves `router`. Once `stop` ends, no new connection is taken, and requests that are under way have 8 s to end.
pub async fn serve(listener: TcpListener, router: Router, stop: impl Future<Output = ()> + Send) -> io::Result<()> {
    serve_for(listener, router, stop, DRAIN).await
}

pub(crate) async fn serve_for(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send,
    drain: Duration,
) -> io::Result<()> {
    let (tell, told) = oneshot::channel::<()>();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async {
        // Also when the sender is dropped: then nobody waits any more.
        let _ = told.await;
    });
    let mut serving = std::pin::pin!(serving.into_future());
    tokio::select! {
        ended = &mut serving => return ended,
        () = stop => {}
    }
    tracing::info!("stopping");
    let _ = tell.send(());
    if let Ok(ended) = tokio::time::timeout(drain, serving).await {
        return ended;
    }
    tracing::info!("requests that were still open are cut");
    Ok(())
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
