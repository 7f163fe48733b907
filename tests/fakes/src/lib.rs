//! Every port in memory, for the tests of all crates; and the official emulators, for the tests that need the real
//! thing.
//!
//! [`MemoryDocs`] is also the model that the contract suite compares the real stores with.

use std::sync::Arc;

use jiff::Timestamp;
use rekindle_ports::Ports;
use rekindle_ports::store::Store;

mod clock;
mod deployment;
mod docs;
mod emulators;
#[cfg(test)]
mod tests;
pub mod tokens;
mod tpu;
mod world;

pub use clock::{FakeClock, FakeIds};
pub use deployment::deployment;
pub use docs::{CommitFault, MemoryDocs};
pub use emulators::{Emulator, Emulators};
pub use tpu::{Call, FakeTpu, Script};
pub use world::{
    DeadLetter, FakeProbe, MemoryBells, MemoryDeadLetters, MemoryEvents, MemoryHints, MemoryObjects, MemoryWakeups,
    Wakeup,
};

/// One memory part for each port, in reach of the test.
#[derive(Clone)]
pub struct Fakes {
    /// The document store.
    pub docs: Arc<MemoryDocs>,
    /// The TPU API.
    pub tpu: Arc<FakeTpu>,
    /// Hints.
    pub hints: Arc<MemoryHints>,
    /// Wake-ups.
    pub wakeups: Arc<MemoryWakeups>,
    /// Bells.
    pub bells: Arc<MemoryBells>,
    /// Events.
    pub events: Arc<MemoryEvents>,
    /// Dead letters.
    pub dead_letters: Arc<MemoryDeadLetters>,
    /// Objects.
    pub objects: Arc<MemoryObjects>,
    /// The time.
    pub clock: Arc<FakeClock>,
    /// Random numbers.
    pub ids: Arc<FakeIds>,
    /// The probe.
    pub probe: Arc<FakeProbe>,
}

impl Fakes {
    /// Empty parts; the clock stands at `start`, the random numbers are the seed's.
    pub fn new(start: Timestamp, seed: u64) -> Self {
        let clock = Arc::new(FakeClock::new(start));
        Self {
            docs: Arc::new(MemoryDocs::with_clock(clock.clone())),
            tpu: Arc::new(FakeTpu::new(clock.clone())),
            hints: Arc::default(),
            wakeups: Arc::default(),
            bells: Arc::default(),
            events: Arc::default(),
            dead_letters: Arc::default(),
            objects: Arc::default(),
            clock,
            ids: Arc::new(FakeIds::new(seed)),
            probe: Arc::default(),
        }
    }

    /// The typed store over the documents.
    pub fn store(&self) -> Store {
        Store::new(self.docs.clone())
    }

    /// All of them as ports.
    pub fn ports(&self) -> Ports {
        Ports {
            store: self.store(),
            tpu: self.tpu.clone(),
            hints: self.hints.clone(),
            wakeups: self.wakeups.clone(),
            bells: self.bells.clone(),
            events: self.events.clone(),
            dead_letters: self.dead_letters.clone(),
            objects: self.objects.clone(),
            clock: self.clock.clone(),
            ids: self.ids.clone(),
            probe: self.probe.clone(),
        }
    }
}

/// Ports of memory parts, when the test needs no hold of them.
pub fn ports(start: Timestamp, seed: u64) -> Ports {
    Fakes::new(start, seed).ports()
}
