//! How long an exit is held back until all output is sent.

use std::time::{Duration, Instant};

use rekindle_core::classify::Exit;
use tokio::sync::oneshot;

use super::{BOUND_EACH, Flushes};

/// Before the machine goes, so much time is left for telling the exit.
pub(crate) const TELLING: Duration = Duration::from_secs(1);

/// An `api` that is away for so long may be one that takes exits alone.
pub(super) const AWAY_MAX: Duration = Duration::from_mins(10);

/// After the moment by which an ordered end is to be over, an exit is held back no longer than this: half of the time for which such an
/// exit is waited for until the slice is deleted without it.
const AFTER_ORDER: Duration = Duration::from_secs(10);

/// How long an exit may be held back until all output is sent. `goes_in`: under notice, when the machine goes. `ordered_in`: by when an end that
/// was ordered is to be over.
// Under notice the job goes on elsewhere, where it waits for a new machine anyhow, and what is not sent is lost with this
// one. Without it the others of a failed worker are to know within 5 s; nobody waits for an exit with code 0.
pub(crate) fn patience(exit: Exit, goes_in: Option<Duration>, ordered_in: Option<Duration>) -> Patience {
    let left = match (exit, goes_in) {
        (_, Some(left)) => left.saturating_sub(TELLING).max(TELLING),
        (Exit::Code(0), None) => {
            ordered_in.map_or(Duration::MAX, |left| left.saturating_add(AFTER_ORDER)).min(Duration::from_secs(30))
        }
        (Exit::Code(_) | Exit::Signal(_) | Exit::Silent, None) => Duration::from_secs(2),
    };
    if goes_in.is_some() { Patience::absolute(left) } else { Patience::of_reach(left) }
}

/// How long something is held back until all output is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// So long.
    pub(crate) left: Duration,
    /// So long more while `api` is away.
    pub(crate) away_left: Duration,
}

impl Patience {
    /// With no thought for an `api` that is away.
    pub(crate) const fn absolute(left: Duration) -> Self {
        Self { left, away_left: Duration::ZERO }
    }

    /// While `api` is away the exit itself cannot be told, so nobody waits for it; and once it can, the machine may be gone
    /// within the second, and with it what was not sent.
    pub(crate) const fn of_reach(left: Duration) -> Self {
        Self { left, away_left: AWAY_MAX }
    }

    /// What is left of it when so much time has passed.
    pub(crate) fn after(self, passed: Duration, is_away: bool) -> Self {
        let away = if is_away { passed.min(self.away_left) } else { Duration::ZERO };
        Self {
            left: self.left.saturating_sub(passed.saturating_sub(away)),
            away_left: self.away_left.saturating_sub(away),
        }
    }
}

/// Waits until everything that was written is sent; gives up when there is no patience left, and then it is sent when it
/// can be. What is left of the patience.
pub(crate) async fn all_sent(flushes: &Flushes, mut patience: Patience) -> Patience {
    let (done, is_done) = oneshot::channel();
    let sent = async { flushes.ask.send(done).await.is_ok() && is_done.await.is_ok() };
    tokio::pin!(sent);
    loop {
        let began = Instant::now();
        let is_sent = tokio::time::timeout(BOUND_EACH.min(patience.left), &mut sent).await;
        patience = patience.after(began.elapsed(), flushes.api.is_away());
        match is_sent {
            Ok(true) => return patience,
            Err(_) if !patience.left.is_zero() => {}
            Ok(false) | Err(_) => {
                tracing::warn!("an exit is told before all output is sent");
                return Patience::absolute(Duration::ZERO);
            }
        }
    }
}
