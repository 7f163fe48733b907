//! The small ports in memory: each keeps what it was given, and fails when told to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use jiff::Timestamp;
use rekindle_core::ids::JobId;
use rekindle_core::job::OutEvent;
use rekindle_ports::world::{Bells, DeadLetters, Events, Hint, Hints, Objects, Probe, Wakeups, WorldError};

/// How the next calls of a fake end.
#[derive(Debug, Default)]
struct Failing {
    before: u32,
    after: u32,
}

/// A list of what was given, with scripted failures.
#[derive(Debug)]
struct Kept<T> {
    items: Mutex<(Vec<T>, Failing)>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { items: Mutex::new((Vec::new(), Failing::default())) }
    }
}

impl<T: Clone> Kept<T> {
    fn lock(&self) -> MutexGuard<'_, (Vec<T>, Failing)> {
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, what: &'static str, item: T) -> Result<(), WorldError> {
        let mut kept = self.lock();
        let scripted = || WorldError { what, why: "scripted".into() };
        if kept.1.before > 0 {
            kept.1.before -= 1;
            return Err(scripted());
        }
        kept.0.push(item);
        if kept.1.after > 0 {
            kept.1.after -= 1;
            return Err(scripted());
        }
        Ok(())
    }
}

macro_rules! kept_list {
    ($(#[$doc:meta])* $name:ident, $item:ty) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        pub struct $name(Kept<$item>);

        impl $name {
            /// Everything it was given, in order.
            pub fn all(&self) -> Vec<$item> {
                self.0.lock().0.clone()
            }

            /// Takes everything it was given.
            pub fn take(&self) -> Vec<$item> {
                std::mem::take(&mut self.0.lock().0)
            }

            /// The next `count` calls fail and keep nothing.
            pub fn fail_before(&self, count: u32) {
                self.0.lock().1.before = count;
            }

            /// The next `count` calls keep what they are given, and say that they failed.
            pub fn fail_after(&self, count: u32) {
                self.0.lock().1.after = count;
            }
        }
    };
}

kept_list! {
    /// Hints that were published.
    MemoryHints, Hint
}
kept_list! {
    /// Wake-ups that were scheduled; the same key twice is one.
    MemoryWakeups, Wakeup
}
kept_list! {
    /// Events that were published.
    MemoryEvents, (JobId, OutEvent)
}
kept_list! {
    /// Messages that could not be used.
    MemoryDeadLetters, DeadLetter
}

/// A scheduled wake-up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wakeup {
    /// The job.
    pub job: JobId,
    /// When.
    pub at: Timestamp,
    /// Its name.
    pub key: String,
}

/// Bells that were rung.
#[derive(Debug, Default)]
pub struct MemoryBells {
    rung: Mutex<Vec<String>>,
    greeted: Mutex<Vec<String>>,
}

impl MemoryBells {
    /// Takes the addresses that were rung so far.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.rung))
    }

    /// Takes the addresses that were greeted so far.
    pub fn take_greeted(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.greeted))
    }
}

fn lock(addresses: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    addresses.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Bells for MemoryBells {
    async fn ring(&self, addresses: &[String]) {
        lock(&self.rung).extend_from_slice(addresses);
    }

    async fn greet(&self, addresses: &[String]) {
        lock(&self.greeted).extend_from_slice(addresses);
    }
}

/// A message that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it came from.
    pub source: String,
    /// Why it could not be used.
    pub reason: String,
    /// The message.
    pub body: Bytes,
}

impl MemoryWakeups {
    /// Takes the wake-ups that are due at `now`, the earliest first.
    pub fn due(&self, now: Timestamp) -> Vec<Wakeup> {
        let mut kept = self.0.lock();
        let (mut due, later): (Vec<_>, Vec<_>) = kept.0.drain(..).partition(|w| w.at <= now);
        kept.0 = later;
        due.sort_by_key(|w| w.at);
        due
    }
}

#[async_trait]
impl Hints for MemoryHints {
    async fn publish(&self, hint: &Hint) -> Result<(), WorldError> {
        self.0.push("publish a hint", hint.clone())
    }
}

#[async_trait]
impl Wakeups for MemoryWakeups {
    async fn schedule(&self, job: &JobId, at: Timestamp, key: &str) -> Result<(), WorldError> {
        let known = self.0.lock().0.iter().any(|w| w.key == key);
        if known {
            return Ok(());
        }
        self.0.push("schedule a wake-up", Wakeup { job: job.clone(), at, key: key.to_owned() })
    }
}

#[async_trait]
impl Events for MemoryEvents {
    async fn publish(&self, job: &JobId, event: &OutEvent) -> Result<(), WorldError> {
        self.0.push("publish an event", (job.clone(), event.clone()))
    }
}

#[async_trait]
impl DeadLetters for MemoryDeadLetters {
    async fn send(&self, source: &str, reason: &str, body: Bytes) -> Result<(), WorldError> {
        let letter = DeadLetter { source: source.to_owned(), reason: reason.to_owned(), body };
        self.0.push("forward a dead letter", letter)
    }
}

/// Objects in memory.
#[derive(Debug, Default)]
pub struct MemoryObjects {
    objects: Mutex<BTreeMap<String, Bytes>>,
}

impl MemoryObjects {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Objects for MemoryObjects {
    async fn put(&self, name: &str, body: Bytes) -> Result<(), WorldError> {
        self.lock().insert(name.to_owned(), body);
        Ok(())
    }

    async fn get(&self, name: &str, from: u64, len: u64) -> Result<Option<Bytes>, WorldError> {
        let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Ok(self.lock().get(name).map(|body| {
            let start = size(from).min(body.len());
            body.slice(start..start.saturating_add(size(len)).min(body.len()))
        }))
    }

    async fn size(&self, name: &str) -> Result<Option<u64>, WorldError> {
        Ok(self.lock().get(name).map(|body| body.len() as u64))
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<String>, WorldError> {
        let objects = self.lock();
        let names = objects.keys().filter(|n| n.starts_with(prefix) && after.is_none_or(|a| n.as_str() > a));
        Ok(names.take(limit).cloned().collect())
    }

    async fn upload_address(&self, name: &str) -> Result<String, WorldError> {
        Ok(format!("memory://objects/{name}"))
    }
}

/// A probe whose answer is set by hand; it answers until told otherwise.
#[derive(Debug, Default)]
pub struct FakeProbe {
    silent: Mutex<bool>,
    asked: AtomicU64,
}

impl FakeProbe {
    /// Whether `api` answers from now on.
    pub fn set_answering(&self, answering: bool) {
        *self.silent.lock().unwrap_or_else(PoisonError::into_inner) = !answering;
    }

    /// How often `api` was asked since the last time.
    pub fn take_asked(&self) -> u64 {
        self.asked.swap(0, Ordering::Relaxed)
    }
}

#[async_trait]
impl Probe for FakeProbe {
    async fn ping(&self) -> Result<(), WorldError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if *self.silent.lock().unwrap_or_else(PoisonError::into_inner) {
            return Err(WorldError { what: "ask api", why: "scripted".into() });
        }
        Ok(())
    }
}
