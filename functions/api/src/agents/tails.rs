//! Bounds what the last words of the programs of one attempt take: in the store, and in the memory of whoever reads all its workers.

use std::borrow::Cow;

use rekindle_core::classify;
use rekindle_core::job::Job;
use rekindle_wire::agent::Report;

/// Bytes of the tails of all workers of an attempt, as long as each has [`TAIL_BYTES_MIN`]: each worker may use the same part. An agent sends up to
/// 144 KiB, so that up to 14 workers keep all of it, and of 256 no more than 2 MiB of 36 is kept.
// A pass and a roll call read all documents of an attempt, 40 and 8 at once, each as text and decoded: 2 x 2 MiB a read leave room in 512 MiB.
const TAILS_BYTES_MAX: usize = 2 << 20;

/// No agent sends more.
const TAIL_BYTES_MAX: usize = 144 << 10;
/// A worker keeps so much however many there are: the cause with what stands around it, and the end.
const TAIL_BYTES_MIN: usize = 8 << 10;

/// The report with no more of a tail than is this worker's part; what the end is judged by, and people are shown of it, stays.
pub(super) fn bounded<'a>(job: &Job, report: &'a Report) -> Cow<'a, Report> {
    let Some(exit) = &report.exit else { return Cow::Borrowed(report) };
    let workers = job.generation(report.generation).map_or(1, |g| (g.slices * g.workers).max(1));
    let part = (TAILS_BYTES_MAX / workers as usize).clamp(TAIL_BYTES_MIN, TAIL_BYTES_MAX);
    let Some(tail) = classify::shorten(&exit.evidence, part) else { return Cow::Borrowed(report) };
    let mut report = report.clone();
    if let Some(exit) = &mut report.exit {
        exit.evidence.tail = tail;
    }
    Cow::Owned(report)
}
