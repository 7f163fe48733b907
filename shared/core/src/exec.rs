//! Orders to the workers of a workspace: a command of a person, or files that they bring.
//!
//! An order stands in the job's document and reaches the workers with their next call. It names its attempt, and a
//! worker carries out each number once: an order is never done twice, and never on a slice that it was not meant for.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::decide::NoSense;
use crate::ids::WorkerKey;
use crate::job::{Job, Phase};
use crate::spec::CommandLine;

/// Orders that a job's document keeps, for the workers to hear of, and their bytes of JSON.
const KEPT: usize = 64;
const KEPT_BYTES: usize = 256 * 1024;
/// Workers are told of an order for so long: they call with each heartbeat, unless the network is cut.
const TOLD_FOR: SignedDuration = SignedDuration::from_mins(10);
/// Longest order, in bytes of JSON.
// Some of them must fit into the job's document beside a spec of the largest size.
pub const ORDER_MAX: usize = 16 * 1024;

/// What a worker is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecAction {
    /// Run a command in the working directory, with the environment of a program.
    Run(CommandLine),
    /// Unpack a bundle over what is there.
    Unpack {
        /// Its address.
        code: String,
        /// Where: a folder, from the working directory on; empty is that itself.
        to: String,
    },
}

impl ExecAction {
    /// The command of a person that it is of: `exec`, or `sync`.
    pub fn command(&self) -> &'static str {
        match self {
            // What `sync` has the workers run itself, to pack what it fetches, it gives this name.
            Self::Run(CommandLine::Argv(words)) if matches!(words.as_slice(), [_, _, _, name, _] if name == SYNC) => {
                SYNC
            }
            Self::Run(_) => "exec",
            Self::Unpack { .. } => SYNC,
        }
    }
}

/// What the shell that `rekindle sync` starts on the workers is called there: its `$0`.
pub const SYNC: &str = "sync";

/// One order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecOrder {
    /// Its number in the job, from 1.
    pub id: u64,
    /// The attempt that it is for.
    pub attempt: u32,
    /// The worker that it is for; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerKey>,
    /// When it was given.
    pub at: Timestamp,
    /// What to do.
    pub action: ExecAction,
    /// When somebody told its command to end, if somebody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_at: Option<Timestamp>,
}

impl ExecOrder {
    /// When somebody last said something of it.
    pub fn told_at(&self) -> Timestamp {
        self.stop_at.unwrap_or(self.at)
    }
}

/// How a worker carried out an order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecExit {
    /// Exit code; of a command that a signal ended 128 and its number, as shells say it.
    pub code: i32,
    /// Why it could not be carried out, or was ended before its time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The job with one more order. It makes no sense unless all workers of a workspace are up.
pub fn with_order(job: &Job, worker: Option<WorkerKey>, action: &ExecAction, now: Timestamp) -> Result<Job, NoSense> {
    let ready = job.attempts.last().filter(|a| a.started_at.is_some() && a.stop.is_none() && a.ended.is_none());
    let (Some(attempt), Phase::Running, true) = (ready, job.phase, job.spec.workspace) else {
        return Err(NoSense { command: "exec", phase: job.phase, end: None });
    };
    let mut after = job.clone();
    after.last_exec += 1;
    let order = ExecOrder {
        id: after.last_exec,
        attempt: attempt.number,
        worker,
        at: now,
        action: action.clone(),
        stop_at: None,
    };
    keep(&mut after.execs, order);
    Ok(after)
}

/// Adds an order, and lets go of the oldest ones where there are too many.
fn keep(orders: &mut Vec<ExecOrder>, newest: ExecOrder) {
    orders.push(newest);
    let mut bytes = 0;
    let fits = |order: &&ExecOrder| {
        bytes += serde_json::to_vec(order).map_or(ORDER_MAX, |text| text.len());
        bytes <= KEPT_BYTES
    };
    let kept = orders.iter().rev().take(KEPT).take_while(fits).count();
    let excess = orders.len() - kept;
    orders.drain(..excess);
}

/// The job with an order's command told to end. `None`: it has been told so, or ends with its attempt.
///
/// The order may be one that the job's document has let go of.
pub fn with_stop(job: &Job, order: &ExecOrder, now: Timestamp) -> Option<Job> {
    let attempt = job.attempts.iter().find(|a| a.number == order.attempt)?;
    let known = job.execs.iter().position(|known| known.id == order.id);
    let is_told = known.is_some_and(|at| job.execs[at].stop_at.is_some());
    if is_told || attempt.stop.is_some() || attempt.ended.is_some() {
        return None;
    }
    let mut after = job.clone();
    let told = ExecOrder { stop_at: Some(now), ..order.clone() };
    match known {
        Some(at) => after.execs[at] = told,
        // As if it were given now, so that the document stays small however many are told.
        None => keep(&mut after.execs, told),
    }
    Some(after)
}

/// The orders that a worker is told of.
pub fn orders_for(job: &Job, attempt: u32, key: WorkerKey, now: Timestamp) -> Vec<ExecOrder> {
    let is_due = |order: &&ExecOrder| {
        order.attempt == attempt
            && order.worker.is_none_or(|worker| worker == key)
            && now.duration_since(order.told_at()) < TOLD_FOR
    };
    job.execs.iter().filter(is_due).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn orders_that_are_told_to_end_do_not_make_the_document_larger_than_it_may_be() {
        let now = fixture::at(0);
        let mut job = fixture::job(fixture::spec_in(&fixture::open_deployment(), &fixture::small()));
        job.attempts.push(fixture::attempt(1, 1));
        let long = ExecAction::Run(CommandLine::Shell("x".repeat(ORDER_MAX - 100)));
        let order = |id| ExecOrder { id, attempt: 1, worker: None, at: now, action: long.clone(), stop_at: None };
        for id in 1..=40 {
            job = with_stop(&job, &order(id), now).expect("it is told");
            assert_eq!(with_stop(&job, &order(id), now), None, "it has been told");
            let bytes = serde_json::to_vec(&job.execs).unwrap().len();
            assert!(bytes < KEPT_BYTES + KEPT, "{bytes} after {id} of them");
            assert_eq!(job.execs.last().map(|order| order.id), Some(id));
        }
    }
}
