//! No event is published that was not committed as it is told, and each that was committed is.

use std::collections::BTreeMap;

use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, OutEvent};

use super::Broken;

/// Every event that was committed, with whether it was published.
#[derive(Default)]
pub(super) struct Events {
    committed: BTreeMap<JobId, BTreeMap<u64, (OutEvent, bool)>>,
}

impl Events {
    /// A job was committed.
    pub(super) fn step(&mut self, job: &Job) -> Broken {
        if job.outbox.is_empty() {
            return None;
        }
        let known = self.committed.entry(job.id.clone()).or_default();
        for event in &job.outbox {
            let (first, _) = known.entry(event.sequence).or_insert_with(|| (event.clone(), false));
            if first != event {
                return Some(("events", format!("event {} of {} was changed", event.sequence, job.id)));
            }
        }
        None
    }

    /// An event was published.
    pub(super) fn told(&mut self, job: &JobId, event: &OutEvent) -> Broken {
        let known = self.committed.get_mut(job).and_then(|known| known.get_mut(&event.sequence));
        match known {
            Some((committed, told)) if committed == event => {
                *told = true;
                None
            }
            Some(_) => Some(("events", format!("event {} of {job} was published otherwise", event.sequence))),
            None => Some(("events", format!("event {} of {job} was published and never committed", event.sequence))),
        }
    }

    /// The first event of a job that was not published.
    pub(super) fn untold(&self, job: &Job) -> Broken {
        let known = self.committed.get(&job.id);
        let is_told = |n: &u64| known.and_then(|known| known.get(n)).is_some_and(|(_, told)| *told);
        let missing = (1..=job.sequence).find(|n| !is_told(n))?;
        Some(("events", format!("event {missing} of {} was never published", job.id)))
    }
}
