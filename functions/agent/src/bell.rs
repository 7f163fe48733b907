//! The bell: a UDP port that anyone in the network may ring, and that only makes the agent ask for its orders now.
//!
//! An agent relies on it once it has been rung, and no longer when its orders turn out to have changed without a sound:
//! where a firewall drops datagrams, it asks as often as without a bell. Who rings for nothing is heard ever less often, in the
//! end as often as an agent without a bell asks: a flood of datagrams costs no more than that.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::net::UdpSocket;

use jiff::Timestamp;

use rekindle_core::orders::{BELL_CHANGED, Order, Want};

/// However often it is rung, the agent asks no more often.
const REST: Duration = Duration::from_millis(200);
/// Nor than this, once it was rung for nothing some times in a row.
// As often as agents without a bell ask in steady running, so that also then a true ring is heard within the 5 s that a
// notice or a cancel has.
const REST_MAX: Duration = Duration::from_secs(4);
/// Most datagrams that are taken at once as one ring.
const AT_ONCE_MAX: usize = 1024;

/// Why the agent asked for its orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was time.
    Time,
    /// The bell.
    Bell,
    /// News of its own, or it has only begun.
    News,
}

/// A bell, or none.
#[derive(Debug)]
pub(crate) struct Bell {
    socket: Option<UdpSocket>,
    is_heard: AtomicBool,
    /// So often in a row it was rung and nothing had changed.
    in_vain: AtomicU32,
}

/// What of an order is told by the bell when it changes.
pub(crate) type Told = (u32, Want, Option<Timestamp>);

impl Bell {
    /// Opens the port on this worker's own address. Without a port or an address, or if it is taken, there is no bell.
    pub(crate) async fn open(address: &str, port: Option<u16>) -> Self {
        let socket = match (port, address.parse::<IpAddr>()) {
            (Some(port), Ok(address)) => UdpSocket::bind((address, port)).await.map_or_else(
                |error| {
                    tracing::warn!(%error, %address, port, "no bell; asking for orders often instead");
                    None
                },
                Some,
            ),
            _ => None,
        };
        Self { socket, is_heard: AtomicBool::new(false), in_vain: AtomicU32::new(0) }
    }

    /// Whether it was rung, and never missed since.
    pub(crate) fn is_heard(&self) -> bool {
        self.is_heard.load(Ordering::Relaxed)
    }

    /// Relies on it no longer, until it is heard again.
    pub(crate) fn doubt(&self) {
        self.is_heard.store(false, Ordering::Relaxed);
    }

    /// What an answer says of the bell: `before` and `now` are the orders, `cause` is why the agent asked.
    pub(crate) fn judge(&self, before: Option<Told>, now: Told, cause: Cause) {
        let is_changed = before.is_some_and(|before| before != now);
        if is_changed && cause == Cause::Time && self.is_heard.swap(false, Ordering::Relaxed) {
            tracing::info!("orders changed and the bell was not rung; asking for orders often until it is");
        }
        if !is_changed && cause == Cause::Bell {
            self.in_vain.fetch_add(1, Ordering::Relaxed);
        } else {
            self.in_vain.store(0, Ordering::Relaxed);
        }
    }

    /// After a call, the bell is not listened to for so long.
    fn rest(&self) -> Duration {
        let doubled = self.in_vain.load(Ordering::Relaxed).min(16);
        (REST * (1 << doubled)).min(REST_MAX)
    }

    /// Waits until it is rung because orders changed; for ever without a bell.
    pub(crate) async fn rung(&self) {
        let Some(socket) = &self.socket else { return std::future::pending().await };
        tokio::time::sleep(self.rest()).await;
        let mut one = [0; 1];
        loop {
            if let Err(error) = socket.recv(&mut one).await {
                tracing::warn!(%error, "the bell cannot be heard");
                self.is_heard.store(false, Ordering::Relaxed);
                return std::future::pending().await;
            }
            let mut is_changed = one[0] == BELL_CHANGED;
            // What was rung meanwhile is in the buffer; it all means the same.
            for _ in 0..AT_ONCE_MAX {
                if socket.try_recv(&mut one).is_err() {
                    break;
                }
                is_changed |= one[0] == BELL_CHANGED;
            }
            self.is_heard.store(true, Ordering::Relaxed);
            if is_changed {
                return;
            }
            // Greetings are no hurry.
            tokio::time::sleep(REST).await;
        }
    }
}

/// What of an order the bell tells of.
pub(crate) fn told(order: &Order) -> Told {
    (order.attempt, order.want, order.kill_at)
}

#[cfg(test)]
mod tests {
    use rekindle_core::orders::BELL_HERE;

    use super::*;

    async fn bell() -> (Bell, UdpSocket, u16) {
        let free = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let hand = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        (Bell::open("127.0.0.1", Some(free)).await, hand, free)
    }

    #[tokio::test]
    async fn a_bell_is_heard_once_however_often_it_is_rung() {
        let (bell, hand, port) = bell().await;
        assert!(Bell::open("127.0.0.1", Some(port)).await.socket.is_none(), "the port is taken");
        assert!(!bell.is_heard());
        for _ in 0..5 {
            hand.send_to(&[BELL_CHANGED], ("127.0.0.1", port)).await.unwrap();
        }
        bell.rung().await;
        assert!(bell.is_heard());
        tokio::select! {
            biased;
            () = bell.rung() => panic!("rung again by nobody"),
            () = tokio::time::sleep(REST * 2) => {} // between two looks
        }
        bell.doubt();
        assert!(!bell.is_heard());
    }

    #[tokio::test]
    async fn a_greeting_is_no_reason_to_ask_and_a_missed_change_is_one_to_doubt() {
        let (bell, hand, port) = bell().await;
        hand.send_to(&[BELL_HERE], ("127.0.0.1", port)).await.unwrap();
        tokio::select! {
            biased;
            () = bell.rung() => panic!("a greeting changes no orders"),
            () = async { while !bell.is_heard() { tokio::task::yield_now().await } } => {}
        }
        let (run, stop) = ((1, Want::Run, None), (1, Want::Stop, None));
        bell.judge(None, run, Cause::Time);
        bell.judge(Some(run), run, Cause::Time);
        bell.judge(Some(run), stop, Cause::News);
        bell.judge(Some(run), stop, Cause::Bell);
        assert!(bell.is_heard(), "nothing was missed");
        bell.judge(Some(run), stop, Cause::Time);
        assert!(!bell.is_heard(), "the orders changed in silence");
        hand.send_to(&[BELL_CHANGED], ("127.0.0.1", port)).await.unwrap();
        bell.rung().await;
        assert!(bell.is_heard());
    }

    #[tokio::test]
    async fn a_flood_of_rings_is_no_flood_of_calls() {
        let (bell, hand, port) = bell().await;
        for _ in 0..500 {
            hand.send_to(&[BELL_CHANGED], ("127.0.0.1", port)).await.unwrap();
        }
        bell.rung().await;
        assert!(bell.socket.as_ref().unwrap().try_recv(&mut [0; 1]).is_err(), "all of them were one ring");
        // Rung without a pause: a call after each rest, and the orders are always the same.
        let (run, stop) = ((1, Want::Run, None), (1, Want::Stop, None));
        let (mut calls, mut over) = (0, Duration::ZERO);
        while over < Duration::from_mins(1) {
            bell.judge(Some(run), run, Cause::Bell);
            calls += 1;
            over += bell.rest();
            assert!(bell.rest() <= REST_MAX, "a true ring is heard in time");
        }
        assert!(calls <= 20, "{calls} calls in a minute");
        bell.judge(Some(run), stop, Cause::Bell);
        assert_eq!(bell.rest(), REST, "once it was rung for something, it is heard at once again");
        bell.judge(Some(stop), stop, Cause::Bell);
        assert_eq!(bell.rest(), 2 * REST);
        bell.judge(Some(stop), stop, Cause::Time);
        assert_eq!(bell.rest(), REST, "also once nobody rings");
    }

    #[tokio::test]
    async fn without_a_port_or_an_address_there_is_no_bell() {
        assert!(Bell::open("127.0.0.1", None).await.socket.is_none());
        assert!(Bell::open("", Some(1)).await.socket.is_none());
    }
}
