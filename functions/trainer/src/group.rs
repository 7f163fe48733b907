//! The group of workers of one run, and how they average: one gRPC stream from each worker to worker 0.
//!
//! The stream lives as long as the run, so that a lost connection is an error at once and never a silent reconnect:
//! after a gap nobody can say which contributions were counted.

mod leader;
mod peer;
#[cfg(test)]
mod tests;
mod wire;

use std::fmt;
use std::time::Duration;

use tonic::{Code, Status};

use crate::checkpoint::Snapshot;

pub(crate) use leader::{Invitation, Leader};
pub(crate) use peer::{Application, Peer};

/// How long the group waits. Separate from the code that waits, so that tests need not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// From the start of a worker until all have joined. The agents start all workers together, but not at one moment.
    pub(crate) join: Duration,
    /// From a worker's own contribution until all others have sent theirs.
    pub(crate) barrier: Duration,
    /// What a worker adds to `barrier` before it gives up on worker 0, so that worker 0's better account arrives first.
    pub(crate) answer_margin: Duration,
    /// From SIGTERM until a worker gives up on the step that is under way. Worker 0 must have saved within a second.
    pub(crate) last_step: Duration,
    /// For the others to close their streams when worker 0 has said its last word.
    pub(crate) farewell: Duration,
    /// For the own SIGTERM after another worker had to stop.
    pub(crate) own_signal: Duration,
}

impl Patience {
    /// What the program uses.
    pub(crate) const REAL: Self = Self {
        join: Duration::from_secs(30),
        barrier: Duration::from_secs(10),
        answer_margin: Duration::from_secs(2),
        last_step: Duration::from_millis(700),
        farewell: Duration::from_millis(500),
        own_signal: Duration::from_secs(10),
    };
}

/// What came of one all-reduce.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Exchange {
    /// The mean of all contributions.
    Mean(Vec<f64>),
    /// Some worker has to stop, so all do. The step under way does not count.
    Stop {
        /// The worker that had to stop first.
        worker: u32,
    },
}

/// What came of the comparison at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Agreement {
    /// All have the same parameters, and worker 0 has saved them.
    All,
    /// Some worker has to stop and did not come to the end.
    Stop {
        /// The worker that had to stop first.
        worker: u32,
    },
}

/// This worker's place in the group.
#[derive(Debug)]
pub(crate) enum Group {
    /// The only worker: nothing to send.
    Solo,
    /// Worker 0.
    Leader(Leader),
    /// Any other worker.
    Peer(Peer),
}

impl Group {
    /// Sends the contribution to one step and waits for the mean.
    pub(crate) async fn all_reduce(&mut self, step: u64, own: Vec<f64>) -> Result<Exchange, Rpc> {
        match self {
            Self::Solo => Ok(Exchange::Mean(crate::model::mean(&[own]))),
            Self::Leader(leader) => leader.all_reduce(step, own).await,
            Self::Peer(peer) => peer.all_reduce(step, own).await,
        }
    }
}

/// What all workers of a run must agree on, compared word for word when a worker joins.
pub(crate) fn run_identity(seed: u64, steps: u64, dataset: &[u8]) -> String {
    format!("seed {seed}, {steps} steps, dataset {}", hex::encode(dataset))
}

/// A gRPC failure, as tonic saw it. It prints the status alone; the causes below it are its sources.
#[derive(Debug)]
pub(crate) struct Rpc(pub(crate) Status);

impl fmt::Display for Rpc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gRPC status {}: {}", code_name(self.0.code()), self.0.message())
    }
}

impl std::error::Error for Rpc {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0)
    }
}

impl From<Status> for Rpc {
    fn from(status: Status) -> Self {
        Self(status)
    }
}

/// The code as the gRPC specification spells it: `DEADLINE_EXCEEDED`.
fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(letter.to_uppercase());
    }
    name
}

/// What a new member needs to begin: the state to go on from.
type State = Snapshot;
