//! Attempts, generations, phases and history never go back.

use rekindle_core::job::{Counters, Desired, Job};

use std::collections::BTreeMap;

use super::Broken;
use crate::store::Changed;

/// From one commit of a job to the next.
pub(super) fn step(before: &Job, after: &Job) -> Broken {
    let fault = if after.last_attempt < before.last_attempt {
        "attempts went back"
    } else if after.last_generation < before.last_generation {
        "generations went back"
    } else if after.revision <= before.revision {
        "revisions went back"
    } else if after.sequence < before.sequence {
        "event numbers went back"
    } else if after.line < before.line {
        "checkpoint lines went back"
    } else if before.phase.is_terminal() && after.phase != before.phase {
        "a terminal phase was left"
    } else if before.desired == Desired::Cancel && after.desired != Desired::Cancel {
        "a cancel was taken back"
    } else if before.outcome.is_some() && after.outcome != before.outcome {
        "an outcome was changed"
    } else if counters_went_back(&before.counters, &after.counters) {
        "counters went back"
    } else {
        return None;
    };
    Some(("monotone", format!("{}: {fault} (revision {} to {})", after.id, before.revision, after.revision)))
}

/// A loss that explains an earlier end moves its charge; the sum never falls.
fn counters_went_back(before: &Counters, after: &Counters) -> bool {
    let sum = |c: &Counters| c.preemptions + c.infra_failures + c.user_failures;
    after.steps_repeated < before.steps_repeated
        || after.resumes < before.resumes
        || after.stockouts < before.stockouts
        || after.preemptions < before.preemptions
        || sum(after) < sum(before)
}

/// Whether a commit is one that history tells of: more than what acting has shown was written down.
pub(super) fn is_history(before: &Job, after: &Job) -> bool {
    before.phase != after.phase
        || before.reason != after.reason
        || before.desired != after.desired
        || before.outcome != after.outcome
        || before.last_attempt != after.last_attempt
        || before.last_generation != after.last_generation
        || before.last_end != after.last_end
        || before.line != after.line
}

/// The newest history entry of each job.
#[derive(Default)]
pub(super) struct Histories {
    newest: BTreeMap<String, u64>,
}

impl Histories {
    /// An entry was written.
    pub(super) fn note(&mut self, job: &str, revision: u64) {
        match self.newest.get_mut(job) {
            Some(newest) => *newest = revision,
            None => {
                self.newest.insert(job.to_owned(), revision);
            }
        }
    }

    /// A commit changed a job: the entry of this revision is the newest.
    pub(super) fn lacks(&self, job: &Job) -> Broken {
        let newest = self.newest.get(job.id.as_str()).copied();
        (newest != Some(job.revision)).then(|| {
            ("monotone", format!("{} has revision {}, its newest history entry is of {newest:?}", job.id, job.revision))
        })
    }
}

/// A history entry was written.
pub(super) fn history(changed: &Changed<'_>) -> Broken {
    changed.before.map(|_| ("monotone", format!("the history entry {} was written again", changed.path)))
}

/// A document was deleted.
pub(super) fn deleted(path: &str) -> Broken {
    path.starts_with("jobs/").then(|| ("monotone", format!("{path} was deleted")))
}
