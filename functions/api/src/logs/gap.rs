//! What is missing at the end of an attempt that is over: said where it would stand, for nobody else can say it. A machine
//! that is gone takes with it what it had not sent, and with its last report tells whether that was anything.

use rekindle_core::ids::WorkerKey;
use rekindle_core::job::Job;
use rekindle_core::observation::{WorkerReport, WorkerState};
use rekindle_ports::store::{Store, StoreError};

use super::reader::Reader;
use super::workers_each;

/// Of each worker that has not sent all, in order: a line that says so.
pub(super) async fn gaps(store: &Store, job: &Job, reader: &Reader) -> Result<Vec<(WorkerKey, String)>, StoreError> {
    let (attempt, filter) = (reader.attempt(), reader.filter());
    let workers = workers_each(job);
    let keys = (0..job.spec.tpu.slices).flat_map(|slice| (0..workers).map(move |worker| WorkerKey { slice, worker }));
    let is_wanted = |key: &WorkerKey| filter.worker.is_none_or(|worker| worker == *key) && !reader.has_noted(*key);
    let of: Vec<(u32, WorkerKey)> = keys.filter(is_wanted).map(|key| (attempt, key)).collect();
    let mut gaps = Vec::new();
    for at in store.workers(&job.id, &of).await?.0 {
        let report = &at.value;
        let is_earlier = filter.since_ms.is_some_and(|since| report.heard_at.as_millisecond() < since);
        let lost = outputs_are_lost(job, report);
        if is_earlier || !(lost || may_lack(job, report, reader) && !is_sent_later(store, job, report).await?) {
            continue;
        }
        let line = match (stands(job, report), &report.exit) {
            _ if lost && !report.has_unsent => {
                "outputs are missing: the machine was gone before all of them were sent".to_owned()
            }
            (true, _) => format!(
                "more of this attempt's output waits on its machine; `rekindle logs {} --attempt {attempt}` shows what has come",
                job.id
            ),
            (false, Some(_)) => "output is missing here: the machine was gone before all of it was sent".to_owned(),
            (false, None) => {
                "output may be missing here: the machine was gone before it told of its program's end".to_owned()
            }
        };
        gaps.push((report.key, format!("rekindle: {line}\n")));
    }
    Ok(gaps)
}

/// What the program of the last attempt left was being collected when its machine went.
pub(crate) fn outputs_are_lost(job: &Job, report: &WorkerReport) -> bool {
    let is_last = report.attempt == job.last_attempt && report.exit.is_some();
    is_last && report.is_collecting && !job.spec.outputs.is_empty() && !stands(job, report)
}

/// Its machine is there, and nobody takes it away.
fn stands(job: &Job, report: &WorkerReport) -> bool {
    job.generation(report.generation).is_some_and(|g| g.delete.is_none() && g.lost.is_none())
}

fn may_lack(job: &Job, report: &WorkerReport, reader: &Reader) -> bool {
    match &report.exit {
        Some(_) => report.has_unsent,
        // What never ran says nothing, unless `setup` did.
        None => !stands(job, report) && (report.state == WorkerState::Running || reader.has_heard(report.key)),
    }
}

/// A later attempt on the same machine says of the earlier ones too whether anything waits there.
async fn is_sent_later(store: &Store, job: &Job, report: &WorkerReport) -> Result<bool, StoreError> {
    if report.exit.is_none() {
        return Ok(false);
    }
    for attempt in report.attempt + 1..=job.last_attempt {
        let (later, _) = store.workers(&job.id, &[(attempt, report.key)]).await?;
        match later.first().filter(|later| later.value.generation == report.generation) {
            Some(later) if !later.value.has_unsent => return Ok(true),
            Some(_) => {}
            None => return Ok(false),
        }
    }
    Ok(false)
}
