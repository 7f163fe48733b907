//! Attempts, generations, phases and history never go back.

use rekindle_core::job::{Desired, Job};

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
    } else if after.counters.steps_repeated < before.counters.steps_repeated
        || after.counters.resumes < before.counters.resumes
    {
        "counters went back"
    } else {
        return None;
    };
    Some(("monotone", format!("{}: {fault} (revision {} to {})", after.id, before.revision, after.revision)))
}

/// A history entry was written.
pub(super) fn history(changed: &Changed<'_>) -> Broken {
    changed.before.map(|_| ("monotone", format!("the history entry {} was written again", changed.path)))
}

/// A document was deleted.
pub(super) fn deleted(path: &str) -> Broken {
    path.starts_with("jobs/").then(|| ("monotone", format!("{path} was deleted")))
}
