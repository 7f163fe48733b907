//! Bells over UDP: one datagram to each worker, which then asks for its orders at once.
//!
//! It carries one byte, proves nothing and may get lost: it only saves the wait until the next call.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::UdpSocket;
use tokio::sync::OnceCell;

use rekindle_core::orders::{BELL_CHANGED, BELL_HERE};
use rekindle_ports::world::Bells;

/// A lost datagram costs up to a heartbeat; the second one costs nothing.
const COPIES: u32 = 2;

/// A pass has other things to do.
const SEND_MAX: Duration = Duration::from_millis(200);

/// Rings the bells of workers.
#[derive(Debug)]
pub struct UdpBells {
    from: IpAddr,
    port: u16,
    socket: OnceCell<UdpSocket>,
}

impl UdpBells {
    /// Sends from that address of this machine, to that port of the workers.
    pub fn new(from: IpAddr, port: u16) -> Self {
        Self { from, port, socket: OnceCell::new() }
    }

    async fn send(&self, addresses: &[String], byte: u8) {
        let socket = match self.socket.get_or_try_init(|| UdpSocket::bind((self.from, 0))).await {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "no bell can be rung; workers find out by themselves");
                return;
            }
        };
        let all = async {
            for address in addresses.iter().filter_map(|text| text.parse::<IpAddr>().ok()) {
                for _ in 0..COPIES {
                    if let Err(error) = socket.send_to(&[byte], SocketAddr::new(address, self.port)).await {
                        tracing::debug!(%error, %address, "a bell did not ring");
                    }
                }
            }
        };
        // A full buffer is no reason to wait long: workers ask by themselves.
        if tokio::time::timeout(SEND_MAX, all).await.is_err() {
            tracing::warn!(workers = addresses.len(), "not all bells were rung in time");
        }
    }
}

#[async_trait]
impl Bells for UdpBells {
    async fn ring(&self, addresses: &[String]) {
        self.send(addresses, BELL_CHANGED).await;
    }

    async fn greet(&self, addresses: &[String]) {
        self.send(addresses, BELL_HERE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn each_worker_is_rung_and_what_is_no_address_harms_nobody() {
        let worker = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let bells = UdpBells::new(IpAddr::from([127, 0, 0, 1]), worker.local_addr().unwrap().port());
        bells.ring(&["not an address".into(), "127.0.0.1".into()]).await;
        let mut buffer = [0; 8];
        for _ in 0..COPIES {
            assert_eq!(worker.recv(&mut buffer).await.unwrap(), 1);
            assert_eq!(buffer[0], BELL_CHANGED);
        }
        bells.ring(&[]).await;
        bells.greet(&["127.0.0.1".into()]).await;
        worker.recv(&mut buffer).await.unwrap();
        assert_eq!(buffer[0], BELL_HERE, "nobody was rung by an empty list");
    }
}
