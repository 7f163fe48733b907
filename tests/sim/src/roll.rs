//! Random numbers: one stream for each purpose, so that one more draw for one of them does not shift the others.

use std::sync::Mutex;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::exec::lock;

/// A second, in microseconds.
pub(crate) const SEC: i64 = 1_000_000;
/// A minute.
pub(crate) const MIN: i64 = 60 * SEC;
/// An hour.
pub(crate) const HOUR: i64 = 60 * MIN;
/// A day.
pub(crate) const DAY: i64 = 24 * HOUR;

/// What a random number is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Latencies of calls.
    Latency,
    /// Whether and how a call fails.
    Fault,
    /// Delivery: order, delay, loss.
    Delivery,
    /// What the cloud does by itself.
    Cloud,
    /// Workers and programs.
    Worker,
    /// Whom a fault hits.
    Target,
    /// All about faults that came later ([`crate::fault::Fault::is_later`]).
    Later,
    /// In which form things come, and how agents and people call.
    Form,
}

/// The streams.
pub(crate) struct Rolls([Mutex<ChaCha8Rng>; 8]);

/// A generator for one purpose of a seed.
pub(crate) fn stream(seed: u64, purpose: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(purpose + 1);
    rng
}

impl Rolls {
    /// The streams of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(std::array::from_fn(|n| Mutex::new(stream(seed, 100 + n as u64))))
    }

    /// True with this probability. A probability of 0 draws nothing.
    pub(crate) fn chance(&self, purpose: For, p: f64) -> bool {
        p > 0.0 && lock(&self.0[purpose as usize]).random::<f64>() < p
    }

    /// A number from `from` to `to`, both included.
    pub(crate) fn between(&self, purpose: For, from: i64, to: i64) -> i64 {
        lock(&self.0[purpose as usize]).random_range(from..=to.max(from))
    }

    /// An index below `len`, which is at least 1.
    pub(crate) fn index(&self, purpose: For, len: usize) -> usize {
        lock(&self.0[purpose as usize]).random_range(0..len.max(1))
    }

    /// A wait of about `mean`: most are shorter, few are much longer (up to 6 times).
    pub(crate) fn about(&self, purpose: For, mean: i64) -> i64 {
        let u: f64 = lock(&self.0[purpose as usize]).random();
        ((-(1.0 - u).max(0.0025).ln()) * mean as f64) as i64
    }

    /// 128 random bits.
    pub(crate) fn bits(&self, purpose: For) -> u128 {
        lock(&self.0[purpose as usize]).random()
    }
}
