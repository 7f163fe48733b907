//! Where a job stands, and how it ended.

use serde::{Deserialize, Serialize};

/// Coarse state for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Accepted; no TPU asked for yet.
    Pending,
    /// A TPU is asked for.
    Provisioning,
    /// The TPU is there; workers prepare.
    Starting,
    /// The program runs.
    Running,
    /// The slice or the program was lost; the next attempt is being arranged.
    Recovering,
    /// The end (or a pause) is known; resources are going away.
    Stopping,
    /// Paused; owns nothing.
    Paused,
    /// Ended well; owns nothing.
    Succeeded,
    /// Ended badly; owns nothing.
    Failed,
    /// Ended by a person; owns nothing.
    Cancelled,
}

impl Phase {
    /// Every phase.
    pub const ALL: [Self; 10] = [
        Self::Pending,
        Self::Provisioning,
        Self::Starting,
        Self::Running,
        Self::Recovering,
        Self::Stopping,
        Self::Paused,
        Self::Succeeded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// True for the phases that a job never leaves.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// True while the job holds a slice that its program runs on, or is to.
    pub(crate) const fn has_slice(self) -> bool {
        matches!(self, Self::Starting | Self::Running)
    }

    /// The name in snake_case, as in event types and filters.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Provisioning => "provisioning",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Recovering => "recovering",
            Self::Stopping => "stopping",
            Self::Paused => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The phase with that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.as_str() == name)
    }
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All workers ended well.
    Succeeded,
    /// A failure that is not repaired.
    Failed,
    /// A person cancelled it.
    Cancelled,
}

impl Outcome {
    /// The terminal phase of that outcome.
    pub const fn phase(self) -> Phase {
        match self {
            Self::Succeeded => Phase::Succeeded,
            Self::Failed => Phase::Failed,
            Self::Cancelled => Phase::Cancelled,
        }
    }
}
