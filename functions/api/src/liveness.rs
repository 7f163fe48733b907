//! The record that `api` takes calls: silence counts against workers only while it does.

use std::sync::atomic::Ordering;

use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{LivenessDoc, StoreError};

use crate::Api;

/// Parts of the outage gap between two writes of one process.
// A write each 150 s / 4 = 37 s: a lost one or two leave no gap, and it costs less than a heartbeat.
const WRITES_PER_GAP: i64 = 4;

/// A lost race is tried again so often; then another process has just written the same.
const RACES_MAX: u32 = 3;

/// Stores that a call was taken now, at most every quarter of the outage gap. A failure is logged: the next call tries
/// again.
pub(crate) async fn mark(api: &Api) {
    let now = api.engine.ports.clock.now().as_microsecond();
    let gap = i64::try_from(api.engine.settings.outage_gap.as_micros()).unwrap_or(i64::MAX);
    let last = api.marked_at_us.load(Ordering::Relaxed);
    if now.saturating_sub(last) < gap / WRITES_PER_GAP && now >= last {
        return;
    }
    // One of the calls that come together writes.
    if api.marked_at_us.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return;
    }
    if let Err(error) = write(api).await {
        tracing::warn!(%error, "that a call was taken could not be stored");
        let _ = api.marked_at_us.compare_exchange(now, last, Ordering::Relaxed, Ordering::Relaxed);
    }
}

async fn write(api: &Api) -> Result<(), StoreError> {
    let store = &api.engine.ports.store;
    let mut lost = None;
    for _ in 0..RACES_MAX {
        let (at, now) = store.read_timed::<LivenessDoc>(&Kind::Liveness).await?;
        let mut doc = at.as_ref().map(|a| a.value.clone()).unwrap_or_default();
        doc.tell_late_tick(now);
        if doc.api_at.is_none_or(|last| now >= last + api.engine.settings.outage_gap) {
            doc.api_since = Some(now);
        }
        // Of two that read at once the later one may write first: the record never goes back.
        doc.api_at = Some(doc.api_at.map_or(now, |last| last.max(now)));
        let when = at.map_or(Precondition::Absent, |a| Precondition::At(a.revision));
        match store.write(&Kind::Liveness, &doc, when).await {
            Ok(_) => return Ok(()),
            Err(error @ StoreError::Conflict(_)) => lost = Some(error),
            Err(error) => return Err(error),
        }
    }
    lost.map_or(Ok(()), Err)
}
