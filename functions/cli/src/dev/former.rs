//! Ports of earlier starts. A machine keeps the address that it was made with, so that its worker calls there as long as it
//! lives, wherever the functions are now.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Between two attempts to take a port that another program has.
const AGAIN: Duration = Duration::from_secs(1);

/// Listeners of earlier starts, where their ports are free.
pub(super) struct Former(Vec<(u16, Option<TcpListener>)>);

impl Former {
    /// Takes what is free of `ports`.
    pub(super) async fn listen(ports: &[u16]) -> Self {
        let mut all = Vec::new();
        for port in ports {
            all.push((*port, bind(*port).await));
        }
        Self(all)
    }

    /// Ports that another program has.
    pub(super) fn unreached(&self) -> Vec<u16> {
        self.0.iter().filter(|(_, listener)| listener.is_none()).map(|(port, _)| *port).collect()
    }

    /// Serves `router` at each until the end; where another program is, as soon as that has gone.
    pub(super) fn serve(self, router: &Router, stopped: &watch::Receiver<()>) -> JoinSet<()> {
        let mut all = JoinSet::new();
        for (port, listener) in self.0 {
            let (router, stopped) = (router.clone(), stopped.clone());
            all.spawn(async move {
                let listener = tokio::select! {
                    listener = taken(port, listener) => listener,
                    () = end(stopped.clone()) => return,
                };
                rekindle_web::serve_here(listener, router, end(stopped)).await;
            });
        }
        all
    }
}

/// Ends with the stack.
pub(super) async fn end(mut stopped: watch::Receiver<()>) {
    while stopped.changed().await.is_ok() {}
}

async fn bind(port: u16) -> Option<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.ok()
}

async fn taken(port: u16, mut listener: Option<TcpListener>) -> TcpListener {
    loop {
        if let Some(listener) = listener {
            return listener;
        }
        tokio::time::sleep(AGAIN).await;
        listener = bind(port).await;
        if listener.is_some() {
            tracing::info!(port, "workers of running jobs are heard again at the port of an earlier start");
        }
    }
}
