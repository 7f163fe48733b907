//! Connections as every server here takes them.

use std::net::SocketAddr;

use axum::serve::{Listener, ListenerExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The listener, with connections that send what they have at once.
///
/// Held back for company (Nagle's algorithm), the end of each long answer, and each line of a stream, waits for an
/// acknowledgement that the other side may delay by 40 ms.
pub fn prompt(listener: TcpListener) -> impl Listener<Io = TcpStream, Addr = SocketAddr> {
    listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection stays slow");
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_hold_nothing_back() {
        let mut listener = prompt(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let (taken, _kept) = tokio::join!(listener.accept(), TcpStream::connect(address));
        assert!(taken.0.nodelay().unwrap());
    }
}
