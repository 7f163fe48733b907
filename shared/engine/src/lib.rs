//! One pass of one job: load, observe, decide, check, commit, act, record. And the periodic tick, submits and commands.
//!
//! Generic over [`rekindle_ports`]; knows no HTTP and no provider. A pass may be cut at any await: before the commit nothing happened, after
//! it the next pass finds the intents.

use std::sync::Arc;

use rekindle_core::decide::Rules;
use rekindle_core::settings::{Deployment, Settings};
use rekindle_ports::Ports;
use rekindle_ports::store::{Installation, StoreError};

pub mod act;
mod commands;
mod fleet;
mod labels;
mod observe;
mod orphans;
mod pass;
mod permits;
mod sweep;
#[cfg(test)]
mod tests;
mod tick;
pub mod tokens;
mod told;

pub use commands::{Commanded, Submitted};
pub use fleet::FleetSeen;
pub use labels::{Labelled, Labels};
pub use pass::PassOutcome;
pub use sweep::{FleetEntry, Owner, SweepReport};
pub use tick::TickReport;

/// The engine: ports and the numbers it works with.
#[derive(Clone)]
pub struct Engine {
    /// The outside.
    pub ports: Ports,
    /// Numbers.
    pub settings: Arc<Settings>,
    /// What is allowed and where things are.
    pub deployment: Arc<Deployment>,
    /// Whose resources are ours.
    pub installation: Arc<Installation>,
}

/// Why a pass or a tick did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// Something outside failed; the same message should come again.
    #[error("not now: {0}")]
    Transient(String),
    /// A decision broke a rule; nothing was committed.
    #[error("a decision broke a rule: {0}")]
    Invariant(String),
}

impl From<StoreError> for PassError {
    fn from(error: StoreError) -> Self {
        // Unreadable documents and refusals do not get better by being hidden: they are retried, seen and dead-lettered.
        Self::Transient(error.to_string())
    }
}

impl Engine {
    fn rules(&self) -> Rules<'_> {
        Rules { settings: &self.settings, deployment: &self.deployment, installation: &self.installation.id }
    }
}
