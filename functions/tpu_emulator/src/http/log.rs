//! The log of every call to the Cloud TPU API (`GET /emulator/v1/requests`).

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;

/// Calls that are kept.
const KEPT: usize = 20_000;

/// One call.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Entry {
    /// Number of the call, from 1.
    pub(crate) seq: u64,
    /// RPC name: `CreateNode`.
    pub(crate) method: String,
    /// `GET`, `POST`, …
    pub(crate) http_method: String,
    /// Path.
    pub(crate) path: String,
    /// Query.
    pub(crate) query: String,
    /// Wall clock when it arrived.
    pub(crate) at: Timestamp,
    /// Milliseconds since the emulator's start, on a clock that never jumps.
    pub(crate) at_ms: f64,
    /// HTTP status of the answer.
    pub(crate) status: u16,
    /// Milliseconds until the answer was ready.
    pub(crate) duration_ms: f64,
    /// Whether a fault was injected.
    pub(crate) faulted: bool,
    /// Who called.
    pub(crate) user_agent: String,
}

/// A call that has arrived.
#[derive(Debug)]
pub(crate) struct Arrival {
    at: Timestamp,
    instant: Instant,
}

impl Arrival {
    /// Now.
    pub(crate) fn now() -> Self {
        Self { at: Timestamp::now(), instant: Instant::now() }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RequestLog {
    started_at: Instant,
    entries: Mutex<(u64, VecDeque<Entry>)>,
}

impl RequestLog {
    pub(crate) fn new() -> Self {
        Self { started_at: Instant::now(), entries: Mutex::new((0, VecDeque::new())) }
    }

    /// Writes down a call; number, times and duration are filled in here.
    pub(crate) fn write(&self, arrival: &Arrival, mut entry: Entry) {
        let millis = |span: Duration| span.as_secs_f64() * 1e3;
        entry.at = arrival.at;
        entry.at_ms = millis(arrival.instant.duration_since(self.started_at));
        entry.duration_ms = millis(arrival.instant.elapsed());
        let mut guard = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (count, entries) = &mut *guard;
        *count += 1;
        entry.seq = *count;
        entries.push_back(entry);
        if entries.len() > KEPT {
            entries.pop_front();
        }
    }

    /// Calls after `seq`, of one RPC if given, oldest first.
    pub(crate) fn since(&self, seq: u64, method: Option<&str>) -> Vec<Entry> {
        let guard = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |entry: &&Entry| entry.seq > seq && method.is_none_or(|method| entry.method == method);
        guard.1.iter().filter(wanted).cloned().collect()
    }
}
