//! TPUs that cost money while nobody's code runs on them.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{Attempt, Generation, Job};
use crate::observation::WorkerReport;

/// A workspace that nobody has used for so long is idle. Its own limit `idle`, after which it is paused, is longer.
// A person who reads, thinks or drinks a coffee has not left.
pub const UNUSED_AFTER: Duration = Duration::from_mins(10);

/// Why nobody's code runs on a TPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdleCause {
    /// The program has not started on all its workers yet: agents come up, code is fetched, `setup` runs, or another
    /// slice of the job is waited for.
    Starting,
    /// The last attempt on it has ended, and the next one is not made yet: a back-off, or the end is being judged.
    Ended,
    /// It is being given back: its delete is decided, and it is still there.
    HandedBack,
    /// It is a workspace's, and nobody has used that for ten minutes.
    Unused,
}

impl IdleCause {
    /// What the account calls this time: people read one word for it everywhere.
    pub const fn account(self) -> &'static str {
        match self {
            Self::Starting => "waiting",
            Self::Ended | Self::HandedBack | Self::Unused => "idle",
        }
    }
}

/// That a TPU is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Idle {
    /// Why.
    pub cause: IdleCause,
    /// Since when.
    pub since: Timestamp,
}

/// What a generation's TPUs do, as far as the job's document tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// They cost nothing: not made yet, or lost.
    Free,
    /// An attempt runs somebody's code on them; also one that was told to end, as long as it may still save.
    Busy,
    /// A workspace is up on them with this attempt: its workers' reports tell whether anybody uses it ([`unused`]).
    Workspace(u32),
    /// Nobody's code runs on them.
    Idle(Idle),
}

/// What the TPUs of a generation of this job do.
pub fn of(job: &Job, g: &Generation) -> Use {
    let Some(ready) = g.ready_at.filter(|_| g.lost.is_none()) else { return Use::Free };
    let idle = |cause, since: Timestamp| Use::Idle(Idle { cause, since: since.max(ready) });
    let newest = job.attempts.iter().rev().find(|a| a.generation == g.number);
    match (newest, &g.delete) {
        (Some(a), _) if a.started_at.is_some() && a.ended.is_none() && a.fenced_at.is_none() => {
            if job.spec.workspace {
                Use::Workspace(a.number)
            } else {
                Use::Busy
            }
        }
        (_, Some(delete)) => idle(IdleCause::HandedBack, delete.intended_at),
        (Some(Attempt { ended: Some(ended), .. }), None) => idle(IdleCause::Ended, ended.at),
        (Some(a), None) => idle(IdleCause::Starting, a.created_at),
        (None, None) => idle(IdleCause::Starting, ready),
    }
}

/// Whether nobody has used a workspace that is up with this attempt for [`UNUSED_AFTER`]. `None` also where not all of
/// its workers have told: only who hears all of them can say so.
pub fn unused(job: &Job, attempt: u32, reports: &[&WorkerReport]) -> Option<Idle> {
    let a = job.attempts.iter().find(|a| a.number == attempt)?;
    let g = job.generation(a.generation)?;
    if reports.len() != (g.slices * g.workers) as usize {
        return None;
    }
    // What they did after they were heard of last is not known.
    let known_until = reports.iter().map(|report| report.heard_at).min()?;
    let since = last_use(job, a, a.started_at?, reports);
    (known_until.duration_since(since) >= jiff::SignedDuration::try_from(UNUSED_AFTER).ok()?)
        .then_some(Idle { cause: IdleCause::Unused, since })
}

/// The last use of a workspace in this attempt; without one the moment from which its beginning counts as idle.
pub(crate) fn last_use(job: &Job, a: &Attempt, started: Timestamp, reports: &[&WorkerReport]) -> Timestamp {
    let used = reports.iter().filter_map(|r| r.output_at).max();
    let ordered = job.execs.iter().map(|order| order.at).max();
    let idle = started.checked_sub(a.idle).unwrap_or(started);
    used.into_iter().chain(ordered).max().unwrap_or(idle).max(idle)
}

#[cfg(test)]
mod tests;
