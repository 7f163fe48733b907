//! History entries: one for each commit of a job. Append-only; never read by `decide`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::failure::FailureKind;
use crate::job::{Job, Phase};
use crate::reason::Reason;

/// One decision, as people and audits see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// The job's revision after it.
    pub revision: u64,
    /// When.
    pub at: Timestamp,
    /// What woke the pass, or the command: `hint: worker exit`, `tick`, `cancel`.
    pub cause: String,
    /// Who: `rekindle` for passes, the caller's identity for commands.
    pub actor: String,
    /// Phase before.
    pub from: Phase,
    /// Phase after.
    pub to: Phase,
    /// Reason after.
    pub reason: Reason,
    /// One sentence.
    pub message: String,
    /// Further sentences: everything that was found out or decided in this pass.
    pub notes: Vec<String>,
    /// Effects committed with it.
    pub effects: Vec<Effect>,
    /// Attempt after.
    pub attempt: u32,
    /// Generation after.
    pub generation: u32,
    /// The attempt whose end was judged in this pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<AttemptEnd>,
}

/// The end of an attempt, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    /// The attempt.
    pub attempt: u32,
    /// Kind of failure; absent: it succeeded, or a person ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FailureKind>,
    /// The root cause in one sentence.
    pub summary: String,
}

impl AttemptEnd {
    /// The end that became known between two states of a job.
    pub fn between(before: &Job, after: &Job) -> Option<Self> {
        let end = after.last_end.as_ref().filter(|_| after.last_end != before.last_end)?;
        Some(Self { attempt: end.attempt, kind: end.ended.kind, summary: end.ended.summary.clone() })
    }
}

impl HistoryEntry {
    /// Attempts whose program was seen to begin in this pass. An attempt has its number before that: from when a slice is waited for.
    pub fn begun(&self) -> impl Iterator<Item = u32> + '_ {
        self.notes.iter().filter_map(|note| begun_of(note))
    }
}

/// The note that the program of an attempt runs. It alone tells of one that ended before anybody looked again, and histories of years have it.
pub(crate) fn begun(attempt: u32, workers: usize) -> String {
    match workers {
        1 => format!("attempt {attempt} runs on {ITS_WORKER}"),
        workers => format!("attempt {attempt} runs on all {workers} workers"),
    }
}

const ITS_WORKER: &str = "its worker";

fn begun_of(note: &str) -> Option<u32> {
    let (attempt, on) = note.strip_prefix("attempt ")?.split_once(" runs on ")?;
    let is_all = || on.strip_prefix("all ").and_then(|rest| rest.strip_suffix(" workers")).is_some();
    if on == ITS_WORKER || is_all() { attempt.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_tells_which_program_began() {
        for workers in [1, 2, 256] {
            assert_eq!(begun_of(&begun(17, workers)), Some(17), "{workers}");
        }
        for other in [
            "attempt 2 runs on generation 2",
            "attempt 2 is being started on its workers",
            "attempt x runs on its worker",
            "",
        ] {
            assert_eq!(begun_of(other), None, "{other}");
        }
    }
}
