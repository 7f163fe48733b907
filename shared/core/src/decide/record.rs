//! Folds into the job what acting has shown and no later look can show again: names of operations, refusals, what was published.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{Create, Desired, Generation, Job, Phase};
use crate::observation::CreateError;

/// What became of one effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The create was accepted (or the resource is there and ours: then the operation is empty).
    CreateSent {
        /// The generation.
        generation: u32,
        /// The operation's full name.
        operation: String,
    },
    /// The create was refused; nothing was made.
    CreateRefused {
        /// The generation.
        generation: u32,
        /// Why.
        error: CreateError,
    },
    /// It is not known whether the create took effect.
    CreateUnclear {
        /// The generation.
        generation: u32,
        /// What happened.
        why: String,
    },
    /// The delete was accepted.
    DeleteSent {
        /// The generation.
        generation: u32,
    },
    /// There was nothing to delete (yet).
    DeleteNotFound {
        /// The generation.
        generation: u32,
    },
    /// The delete was refused or its answer is not known.
    DeleteFailed {
        /// The generation.
        generation: u32,
        /// What happened.
        why: String,
    },
    /// Events up to this sequence are safe.
    Published {
        /// The last one.
        through: u64,
    },
}

impl Outcome {
    /// True if what it speaks of in the job that was acted on is still the same thing in `current`: a number is used again at another place.
    pub fn is_of(&self, acted: &Job, current: &Job) -> bool {
        let number = match self {
            Self::CreateSent { generation, .. }
            | Self::CreateRefused { generation, .. }
            | Self::CreateUnclear { generation, .. }
            | Self::DeleteSent { generation }
            | Self::DeleteNotFound { generation }
            | Self::DeleteFailed { generation, .. } => *generation,
            Self::Published { .. } => return true,
        };
        let place = |job: &Job| job.generation(number).map(|g| (g.placement.clone(), g.intended_at));
        place(acted).is_some() && place(acted) == place(current)
    }
}

/// The job with the outcomes folded in, and sentences for the history about what was refused.
pub fn record(job: &Job, outcomes: &[Outcome], now: Timestamp) -> (Job, Vec<String>) {
    let mut after = job.clone();
    let mut notes = Vec::new();
    for outcome in outcomes {
        fold(&mut after, outcome, now, &mut notes);
    }
    // A command may have been accepted meanwhile: then the job is due, and paused only until a pass has looked at it.
    let rests = after.phase.is_terminal() || (after.phase == Phase::Paused && after.desired == Desired::Pause);
    if after.outbox.is_empty() && rests {
        after.wake_at = None;
    }
    (after, notes)
}

fn fold(job: &mut Job, outcome: &Outcome, now: Timestamp, notes: &mut Vec<String>) {
    let mut with = |number: &u32, act: &mut dyn FnMut(&mut Generation)| {
        if let Some(g) = job.generations.iter_mut().find(|g| g.number == *number) {
            act(g);
        }
    };
    match outcome {
        Outcome::CreateSent { generation, operation } => with(generation, &mut |g| {
            // A look may have found the resource before its create's answer was stored.
            let unnamed = matches!(&g.create, Create::Sent { operation } if operation.is_empty());
            if g.create == Create::Intended || unnamed {
                g.create = Create::Sent { operation: operation.clone() };
            }
        }),
        Outcome::CreateRefused { generation, error } => {
            notes.push(format!("the create of generation {generation} was refused: {}", error.message));
            with(generation, &mut |g| {
                if g.create == Create::Intended {
                    g.create = Create::Failed { error: error.clone(), counted: false };
                }
            });
        }
        Outcome::CreateUnclear { generation, why } => {
            notes.push(format!("the create of generation {generation} was not answered clearly: {why}"));
            with(generation, &mut |g| g.create_tries += 1);
        }
        Outcome::DeleteSent { generation } => with(generation, &mut |g| {
            // Of what is not there none is taken.
            g.absent_since = None;
            if let Some(d) = g.delete.as_mut() {
                d.sent_at = Some(now);
                d.tries += 1;
                d.last_error = None;
            }
        }),
        // Not counted as sent: a create may still be on its way, and the delete is due again as soon as it shows.
        Outcome::DeleteNotFound { .. } => {}
        Outcome::DeleteFailed { generation, why } => {
            notes.push(format!("the delete of generation {generation} failed: {why}"));
            with(generation, &mut |g| {
                if let Some(d) = g.delete.as_mut() {
                    d.sent_at = Some(now);
                    d.tries += 1;
                    d.last_error = Some(why.clone());
                }
            });
        }
        Outcome::Published { through } => job.outbox.retain(|e| e.sequence > *through),
    }
}
