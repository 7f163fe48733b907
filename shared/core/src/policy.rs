//! What to do for each kind of failure: actions, rules and the table that a job keeps from its submit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::failure::FailureKind;

mod presets;

#[cfg(test)]
mod tests;

pub use presets::{answer, budget_decides, charge, default_preset};

/// The answer to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Same slice, next attempt, RESUME=1.
    ResumeInPlace,
    /// Same slice, next attempt, RESUME=0, a new checkpoint line.
    RestartInPlace,
    /// New generation, RESUME=1.
    Recreate,
    /// New generation, RESUME=0, a new checkpoint line.
    RecreateFromScratch,
    /// The job fails.
    Fail,
}

/// Which budget a failure is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Charge {
    /// Preemptions and maintenance.
    Preemptions,
    /// The infrastructure's failures.
    Infra,
    /// The user's failures.
    User,
}

/// The rule for one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// The answer to the first one.
    pub first: Action,
    /// The answer when it repeats within `within` without progress in between.
    pub again: Action,
    /// The window of a repeat; `None`: any time before progress.
    pub within: Option<Duration>,
    /// After so many without progress the job fails; `None`: the budgets alone decide.
    pub max: Option<u32>,
}

/// The presets of the outside interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// Default on spot and preemptible capacity.
    Pre,
    /// Default elsewhere.
    Resume,
    /// Everything recreates.
    Reapply,
    /// Begins from scratch after a failure of the program.
    Rerun,
    /// Nothing is repaired.
    Pass,
}

/// The table of one job: preset, and the rule for each kind with the overrides applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTable {
    /// The preset that it began as.
    pub preset: Preset,
    /// One rule for each kind.
    pub rules: BTreeMap<FailureKind, Rule>,
}
