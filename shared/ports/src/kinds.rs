//! Every kind of stored document: path, owner, mutability, lifetime. Nothing is stored that is not listed here.

use std::time::Duration;

use jiff::civil::Date;
use sha2::{Digest, Sha256};

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Placement;

/// Version of the stored shapes. Readers accept the previous one.
pub const SCHEMA: u32 = 1;

/// The kinds, each with its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// `meta/installation`: id, secret, birth. Written once by the first start; for ever.
    Installation,
    /// `meta/liveness`: times of ticks and of `api`'s answers. Written by `tick` and `api`; overwritten.
    Liveness,
    /// `meta/fleet`: what the last tick saw of all TPUs. Written by `tick`; overwritten.
    Fleet,
    /// `meta/freeze`: whether creates are held back. Written by `api`; overwritten.
    Freeze,
    /// `jobs/{job}`: the job. Written by passes and commands, always at a revision; kept until archived.
    Job(JobId),
    /// `jobs/{job}/history/{revision}`: one entry for each commit. Append-only.
    History(JobId, u64),
    /// `jobs/{job}/commands/{hash}`: a command that was carried out. Written once, in the command's own commit; 40 days.
    Command(JobId, String),
    /// `jobs/{job}/workers/{attempt}-{slice}-{index}`: hello, heartbeat, progress, exit. Written by `api`, fenced by attempt.
    Worker(JobId, u32, WorkerKey),
    /// `jobs/{job}/progress/{attempt}`: thinned points of an attempt's progress. Written by `api`; overwritten; may lack some.
    Progress(JobId, u32),
    /// `instances/{hash}`: VM name to job. Written by `api` at hello; overwritten; 400 days.
    Instance(String),
    /// `zones/{zone}-{accelerator}-{capacity}`: what recent creates met there. Advisory; may be lost.
    Zone(Placement),
    /// `limits/creates`: permits of this minute, chips and money committed. Written with the job that takes a permit, and by `tick`.
    Creates,
    /// `orphans/{monday}`: what chips cost in that week that nobody owned. Written by `tick`; kept.
    Orphans(Date),
    /// `dead/{hash}`: a message that could not be used, with its reason. Written once; 40 days.
    Dead(String),
}

impl Kind {
    /// The document's path.
    pub fn path(&self) -> String {
        match self {
            Self::Installation => "meta/installation".into(),
            Self::Liveness => "meta/liveness".into(),
            Self::Fleet => "meta/fleet".into(),
            Self::Freeze => "meta/freeze".into(),
            Self::Job(id) => format!("jobs/{id}"),
            Self::History(id, revision) => format!("jobs/{id}/history/{revision:010}"),
            Self::Command(id, key) => format!("jobs/{id}/commands/{}", short_hash(key)),
            Self::Worker(id, attempt, key) => {
                format!("jobs/{id}/workers/{attempt:06}-{:04}-{:04}", key.slice, key.worker)
            }
            Self::Progress(id, attempt) => format!("jobs/{id}/progress/{attempt:06}"),
            Self::Instance(name) => format!("instances/{}", short_hash(name)),
            Self::Zone(p) => format!("zones/{}-{}-{}", p.zone, p.accelerator, p.capacity.as_str()),
            Self::Creates => "limits/creates".into(),
            Self::Orphans(week) => format!("orphans/{week}"),
            Self::Dead(key) => format!("dead/{}", short_hash(key)),
        }
    }
}

/// How long after its last write a document may go by itself; `None`: it stays until something deletes it.
///
/// A store that can drops it some time after that, never before; readers must not count on either.
// Deliveries come again for at most 31 days, so a command or a dead letter older than that is asked for no more. A VM is named once for
// its whole life, and no TPU has been kept for a year.
pub fn lifetime(path: &str) -> Option<Duration> {
    const DAY: Duration = Duration::from_hours(24);
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["jobs", _, "commands", _] | ["dead", _] => Some(DAY * 40),
        ["instances", _] => Some(DAY * 400),
        _ => None,
    }
}

/// The first 32 hex digits of the sha256: spreads ids over the store's key space.
pub fn short_hash(text: &str) -> String {
    let mut hash = hex::encode(Sha256::digest(text.as_bytes()));
    hash.truncate(32);
    hash
}
