//! `GET /v1/jobs/{id}/progress` and `GET /v1/digest`: what a person looks at.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_core::digest::JobDigest;
use rekindle_core::ids::JobId;
use rekindle_core::observation::{WorkerReport, WorkerState};
use rekindle_core::series::Point;

/// Progress of a job over its attempts, and its workers now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgressList {
    /// The job.
    pub id: JobId,
    /// Attempts that reported progress, oldest first; at most the newest hundred.
    pub attempts: Vec<AttemptProgress>,
    /// Workers of the current attempt, as they last reported.
    pub workers: Vec<WorkerView>,
    /// Slices of each attempt; 0: the server is too old to tell.
    #[serde(default)]
    pub slices: u32,
    /// Workers of each slice: the most that an attempt has had or may have. Together with `slices` it names every worker
    /// whose output can be asked for, also of a job that owns no TPU any more; 0: the server is too old to tell.
    #[serde(default)]
    pub slice_workers: u32,
}

/// Progress of one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AttemptProgress {
    /// The attempt.
    pub attempt: u32,
    /// Step at which it began, if that is known.
    #[serde(default)]
    pub from: Option<u64>,
    /// Highest step that it came to, of which there may be no point yet.
    #[serde(default)]
    pub step: Option<u64>,
    /// It was to begin from nothing: it took up no work of those before it, and threw none away.
    #[serde(default)]
    pub from_scratch: bool,
    /// Points by time, thinned: at most 128.
    pub points: Vec<Point>,
}

/// A worker of the current attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its slice.
    pub slice: u32,
    /// Its index in the slice.
    pub worker: u32,
    /// Attempt.
    pub attempt: u32,
    /// What its agent does.
    pub state: WorkerState,
    /// When it was last heard of.
    pub heard_at: Timestamp,
    /// Highest step it reported.
    pub step: Option<u64>,
    /// Loss there, as the program wrote it.
    pub loss: Option<String>,
    /// The last checkpoint it reported.
    pub checkpoint: Option<u64>,
    /// Free disk, in bytes.
    pub disk_free_bytes: Option<u64>,
    /// Free memory, in bytes.
    pub memory_free_bytes: Option<u64>,
    /// When its slice will be taken away, if it was told.
    pub notice_deadline: Option<Timestamp>,
}

impl WorkerView {
    /// The view of a report.
    pub fn of(report: &WorkerReport) -> Self {
        Self {
            slice: report.key.slice,
            worker: report.key.worker,
            attempt: report.attempt,
            state: report.state,
            heard_at: report.heard_at,
            step: report.step,
            loss: report.loss.clone(),
            checkpoint: report.checkpoint,
            disk_free_bytes: report.disk_free_bytes,
            memory_free_bytes: report.memory_free_bytes,
            notice_deadline: report.notice.as_ref().filter(|n| n.takes_away()).map(|n| n.deadline),
        }
    }
}

/// Attempts that a plot shows: the newest of so many.
pub const ATTEMPTS_MAX: u32 = 100;

/// The numbers of the attempts that are shown, of so many.
pub fn attempts_shown(last: u32) -> Vec<u32> {
    (last.saturating_sub(ATTEMPTS_MAX) + 1..=last).collect()
}

/// What happened since a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DigestView {
    /// From when on.
    pub since: Timestamp,
    /// Up to when; the next look goes on from here.
    pub through: Timestamp,
    /// Jobs to which something happened, the newest change last.
    pub jobs: Vec<JobDigest>,
    /// True when there are more than one answer holds.
    pub is_cut: bool,
}
