//! History entries: one for each commit of a job. Append-only; never read by `decide`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::effect::Effect;
use crate::job::Phase;
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
}
