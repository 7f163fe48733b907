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
/// Rings in vain that are counted. One more than make the longest rest, so that a heartbeat amid a flood shortens nothing, and no
/// more, so that some heartbeats in quiet end it.
const IN_VAIN_MAX: u32 = 6;
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
    /// How often it was rung and nothing had changed, less the times that it was silent until the agent asked.
    in_vain: AtomicU32,
    /// It was rung because orders changed, and that was taken from the socket before anybody waited for it.
    is_due: AtomicBool,
}

/// What of an order is told by the bell when it changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// Attempt, what is wanted, and until when.
    order: Option<(u32, Want, Option<Timestamp>)>,
    /// The newest order of a person, and when one was last told to end. They are told for some time only.
    exec: (u64, Option<Timestamp>),
    /// The agent asked so often that it may have heard of it before the bell was rung.
    is_hurried: bool,
}

impl Told {
    /// Whether the bell should have told of this.
    fn changes_to(self, now: Self) -> bool {
        self.order != now.order || now.exec.0 > self.exec.0 || now.exec.1 > self.exec.1
    }
}

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
        Self { socket, is_heard: AtomicBool::new(false), in_vain: AtomicU32::new(0), is_due: AtomicBool::new(false) }
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
        let is_changed = before.is_some_and(|before| before.changes_to(now));
        // Orders of people are rung a moment after they are given.
        let is_missed = before.is_some_and(|before| before.order != now.order || is_changed && !before.is_hurried);
        if is_missed && cause == Cause::Time && !self.waits() && self.is_heard.swap(false, Ordering::Relaxed) {
            tracing::info!("orders changed and the bell was not rung; asking for orders often until it is");
        }
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        let in_vain = match cause {
            _ if is_changed => 0,
            Cause::Bell => (in_vain + 1).min(IN_VAIN_MAX),
            // Not 0: heartbeats come in a flood as well, and each would begin it anew.
            Cause::Time => in_vain.saturating_sub(1),
            Cause::News => in_vain,
        };
        self.in_vain.store(in_vain, Ordering::Relaxed);
    }

    /// Whether a ring came while nobody listened, as in the rest after a call. It stays due: what it tells of may have happened
    /// after the answer that is being judged.
    fn waits(&self) -> bool {
        if self.socket.as_ref().is_some_and(drain) {
            self.is_due.store(true, Ordering::Relaxed);
        }
        self.is_due.load(Ordering::Relaxed)
    }

    /// After a call, the bell is not listened to for so long.
    fn rest(&self) -> Duration {
        (REST * (1 << self.in_vain.load(Ordering::Relaxed))).min(REST_MAX)
    }

    /// Waits until it is rung because orders changed; for ever without a bell.
    pub(crate) async fn rung(&self) {
        let Some(socket) = &self.socket else { return std::future::pending().await };
        tokio::time::sleep(self.rest()).await;
        if self.is_due.swap(false, Ordering::Relaxed) {
            drain(socket);
            self.is_heard.store(true, Ordering::Relaxed);
            return;
        }
        let mut one = [0; 1];
        loop {
            if let Err(error) = socket.recv(&mut one).await {
                tracing::warn!(%error, "the bell cannot be heard");
                self.is_heard.store(false, Ordering::Relaxed);
                return std::future::pending().await;
            }
            // First what was rung meanwhile, which is in the buffer; it all means the same.
            let is_changed = drain(socket) || one[0] == BELL_CHANGED;
            self.is_heard.store(true, Ordering::Relaxed);
            if is_changed {
                return;
            }
            // Greetings are no hurry.
            tokio::time::sleep(REST).await;
        }
    }
}

/// Takes what waits in the buffer: whether it was rung because orders changed.
fn drain(socket: &UdpSocket) -> bool {
    let mut one = [0; 1];
    let mut is_changed = false;
    for _ in 0..AT_ONCE_MAX {
        if socket.try_recv(&mut one).is_err() {
            break;
        }
        is_changed |= one[0] == BELL_CHANGED;
    }
    is_changed
}

/// What of an order the bell tells of.
pub(crate) fn told(order: &Order) -> Told {
    let newest = order.exec.iter().map(|exec| exec.id).max().unwrap_or_default();
    let ended = order.exec.iter().filter_map(|exec| exec.stop_at).max();
    Told {
        order: Some((order.attempt, order.want, order.kill_at)),
        exec: (newest, ended),
        is_hurried: Duration::from_millis(order.poll_after_ms) < REST_MAX,
    }
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

    fn wants(want: Want) -> Told {
        Told { order: Some((1, want, None)), ..Told::default() }
    }

    #[tokio::test]
    async fn an_order_of_a_person_is_a_change_and_its_going_is_none() {
        let (bell, hand, port) = bell().await;
        let ring = async || {
            hand.send_to(&[BELL_CHANGED], ("127.0.0.1", port)).await.unwrap();
            bell.rung().await;
        };
        let run = wants(Want::Run);
        let (first, second) = (Told { exec: (1, None), ..run }, Told { exec: (2, None), ..run });
        let ended = Told { exec: (2, Some(Timestamp::UNIX_EPOCH)), ..run };
        ring().await;
        for (before, now) in [(run, first), (first, second), (second, ended), (ended, run)] {
            bell.judge(Some(before), now, Cause::Bell);
            assert_eq!(bell.rest(), if now == run { 2 * REST } else { REST }, "{now:?}");
        }
        bell.judge(Some(ended), run, Cause::Time);
        assert!(bell.is_heard(), "that it is told no more is no news");
        for (before, now) in [(run, first), (second, ended)] {
            bell.judge(Some(Told { is_hurried: true, ..before }), now, Cause::Time);
            assert!(bell.is_heard(), "it asked before it could be rung");
            bell.judge(Some(before), now, Cause::Time);
            assert!(!bell.is_heard(), "it was told in silence");
            ring().await;
        }
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
        let (run, stop) = (wants(Want::Run), wants(Want::Stop));
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
        // Rung without a pause: a call after each rest, and the orders are always the same. Heartbeats and news come as ever.
        let (run, stop) = (wants(Want::Run), wants(Want::Stop));
        let (mut calls, mut over) = (0, Duration::ZERO);
        let (mut heartbeat_at, mut news_at) = (Duration::from_secs(5), Duration::from_secs(7));
        while over < Duration::from_mins(1) {
            let rung_at = over + bell.rest();
            over = rung_at.min(heartbeat_at).min(news_at);
            if over == rung_at {
                bell.judge(Some(run), run, Cause::Bell);
                calls += 1;
            } else if over == heartbeat_at {
                bell.judge(Some(run), run, Cause::Time);
                heartbeat_at += Duration::from_secs(5);
            } else {
                bell.judge(Some(run), run, Cause::News);
                news_at += Duration::from_secs(7);
            }
            assert!(bell.rest() <= REST_MAX, "a true ring is heard in time");
        }
        assert!(calls <= 20, "{calls} calls in a minute");
        bell.judge(Some(run), stop, Cause::Bell);
        assert_eq!(bell.rest(), REST, "once it was rung for something, it is heard at once again");
        bell.judge(Some(stop), stop, Cause::Bell);
        assert_eq!(bell.rest(), 2 * REST);
        bell.judge(Some(stop), stop, Cause::News);
        assert_eq!(bell.rest(), 2 * REST, "news of its own says nothing of who rings");
        bell.judge(Some(stop), stop, Cause::Time);
        assert_eq!(bell.rest(), REST, "also once nobody rings");
        for _ in 0..500 {
            bell.judge(Some(stop), stop, Cause::Bell);
        }
        for _ in 0..IN_VAIN_MAX {
            bell.judge(Some(stop), stop, Cause::Time);
        }
        assert_eq!(bell.rest(), REST, "however long it was");
    }

    #[tokio::test]
    async fn a_ring_that_comes_in_the_rest_is_not_missed() {
        let (bell, hand, port) = bell().await;
        let (run, stop) = (wants(Want::Run), wants(Want::Stop));
        let rings = async |what: u8| {
            hand.send_to(&[what], ("127.0.0.1", port)).await.unwrap();
            bell.socket.as_ref().unwrap().readable().await.unwrap();
        };
        rings(BELL_CHANGED).await;
        bell.rung().await;
        rings(BELL_CHANGED).await;
        bell.judge(Some(run), stop, Cause::Time);
        assert!(bell.is_heard(), "it was rung, but the agent asked before it listened again");
        bell.rung().await; // what was rung may be later than that answer
        rings(BELL_HERE).await;
        bell.judge(Some(run), stop, Cause::Time);
        assert!(!bell.is_heard(), "a greeting tells of no change");
    }

    #[tokio::test]
    async fn without_a_port_or_an_address_there_is_no_bell() {
        assert!(Bell::open("127.0.0.1", None).await.socket.is_none());
        assert!(Bell::open("", Some(1)).await.socket.is_none());
    }
}
