//! A clock that moves only when told, and random numbers that repeat by seed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rekindle_ports::world::{Clock, Ids};

/// A clock set by hand.
pub struct FakeClock(Mutex<Timestamp>);

impl FakeClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self(Mutex::new(start))
    }

    /// Moves it by so much; back, if negative. Answers the new time.
    pub fn advance(&self, by: SignedDuration) -> Timestamp {
        let mut now = self.lock();
        *now = now.saturating_add(by).unwrap_or(*now);
        *now
    }

    /// Sets it.
    pub fn set(&self, to: Timestamp) {
        *self.lock() = to;
    }

    fn lock(&self) -> MutexGuard<'_, Timestamp> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for FakeClock {
    /// 2026-01-01, midnight UTC.
    fn default() -> Self {
        Self::new(Timestamp::constant(1_767_225_600, 0))
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        *self.lock()
    }
}

/// Random numbers that repeat by seed.
pub struct FakeIds(Mutex<ChaCha8Rng>);

impl FakeIds {
    /// The numbers of this seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(ChaCha8Rng::seed_from_u64(seed)))
    }
}

impl Ids for FakeIds {
    fn random(&self) -> u128 {
        let mut rng = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (u128::from(rng.next_u64()) << 64) | u128::from(rng.next_u64())
    }
}
