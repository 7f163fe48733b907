//! Whether all workers of an attempt are that far, read once for all that ask at the same moment.
//!
//! The workers of a large slice that end together all ask, and each answer needs every worker's document: read by each caller for itself, those of
//! 256 workers would not fit into the memory of the service, nor be read in time.

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::{Attempt, Job};
use rekindle_core::observation::{WorkerReport, WorkerState};
use rekindle_ports::docs::Revision;
use rekindle_ports::store::StoreError;
use tokio::sync::Mutex;

use crate::Api;

/// So many attempts are read at once by one process.
// Each takes twice its documents, as text and decoded: of tails 2 MiB at most (`tails`), and some kB a worker.
const SLOTS: usize = 8;

/// What was read last, in as many places as attempts may be read at once. A job's calls meet at the same one.
#[derive(Default)]
pub(crate) struct Rolls([Mutex<Option<Roll>>; SLOTS]);

/// How far one worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    /// What it does.
    pub(crate) state: WorkerState,
    /// Something that its ended program left is on the machine alone.
    pub(crate) has_left_something: bool,
    /// When its document was written.
    at: Revision,
}

struct Roll {
    job: JobId,
    attempt: u32,
    /// Everything that was written up to here was seen.
    through: Revision,
    workers: Vec<Standing>,
}

/// Whether all workers of an attempt are that far; with the commit time of the newest of them.
///
/// Each worker asks after its own write, which was `wrote`, so of those that come together the last one sees all: what was read for another caller
/// answers this one if the read has seen that write.
pub(crate) async fn all(
    api: &Api,
    job: &Job,
    attempt: &Attempt,
    wrote: Revision,
    is: impl Fn(Standing) -> bool,
) -> Result<Option<Revision>, StoreError> {
    let Some(g) = job.generation(attempt.generation) else { return Ok(None) };
    let keys = (0..g.slices).flat_map(|slice| (0..g.workers).map(move |worker| WorkerKey { slice, worker }));
    let of: Vec<(u32, WorkerKey)> = keys.map(|key| (attempt.number, key)).collect();
    let place = job.id.as_str().bytes().map(usize::from).sum::<usize>() % SLOTS;
    let mut slot = api.rolls.0[place].lock().await;
    let has_seen = |roll: &Roll| roll.job == job.id && roll.attempt == attempt.number && roll.through >= wrote;
    let roll = match slot.take().filter(has_seen) {
        Some(roll) => roll,
        None => call(api, job, attempt.number, &of).await?,
    };
    let roll = slot.insert(roll);
    let complete = roll.workers.len() == of.len() && roll.workers.iter().all(|worker| is(*worker));
    Ok(roll.workers.iter().map(|worker| worker.at).max().filter(|_| complete))
}

async fn call(api: &Api, job: &Job, attempt: u32, of: &[(u32, WorkerKey)]) -> Result<Roll, StoreError> {
    let (reports, through) = api.engine.ports.store.workers(&job.id, of).await?;
    let standing = |report: &WorkerReport, at| Standing {
        state: report.state,
        has_left_something: report.has_left_something(),
        at,
    };
    let workers = reports.iter().map(|at| standing(&at.value, at.revision)).collect();
    Ok(Roll { job: job.id.clone(), attempt, through, workers })
}
