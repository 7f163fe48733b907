//! A job fails by its limit `queue` only after so long a wait: from when it was accepted, or last had a slice, or was let go on by a person.

use std::collections::BTreeMap;

use rekindle_core::ids::JobId;
use rekindle_core::job::{Desired, Job, Outcome, Phase};
use rekindle_core::reason::Reason;

use super::Broken;
use crate::fault::Fault;
use crate::roll::{MIN, SEC};
use crate::world::World;

/// Since when each job waits, by the true time.
#[derive(Default)]
pub(super) struct Waits(BTreeMap<JobId, i64>);

impl Waits {
    /// A job was committed.
    pub(super) fn step(&mut self, world: &World, before: Option<&Job>, after: &Job) -> Broken {
        let now = world.now();
        let had_slice = before.is_some_and(|b| matches!(b.phase, Phase::Starting | Phase::Running));
        let goes_on = before.is_some_and(|b| b.desired == Desired::Pause) && after.desired == Desired::Run;
        let since = self.0.entry(after.id.clone()).or_insert(now);
        if had_slice || goes_on {
            *since = now;
        }
        let fails = after.outcome == Some(Outcome::Failed) && before.is_none_or(|b| b.outcome.is_none());
        let limit = after.spec.limits.queue.filter(|_| fails && after.reason == Reason::QueueTimeout)?;
        let limit = i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
        let waited = now - *since;
        // A pass reads the clock before it commits, and clocks may differ.
        let skew = if world.has(Fault::ClockSkew) { world.plan.skew_us * 2 } else { 0 };
        (waited + MIN + skew < limit).then(|| {
            let (waited, limit) = (waited / SEC, limit / SEC);
            ("waits", format!("{} failed after a wait of {waited} s, and its limit `queue` is {limit} s", after.id))
        })
    }
}
