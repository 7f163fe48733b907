//! Every kind of stored document: path, owner, mutability, lifetime. Nothing is stored that is not listed here.

use std::time::Duration;

use jiff::civil::Date;
use sha2::{Digest, Sha256};

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Placement;

/// Version of the stored shapes. There was none before the first; from the second on readers have to accept the previous one, too.
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
    /// `instances/{hash}`: VM name to job. Written by `api` at the first hello; 400 days.
    Instance(String),
    /// `zones/{zone}-{accelerator}-{capacity}`: what recent creates met there. Advisory; may be lost.
    Zone(Placement),
    /// `limits/creates`: create permits of the last half minutes, chips and money committed. Written with the job that takes a permit, and by `tick`.
    Creates,
    /// `orphans/{monday}`: what chips cost in that week that nobody owned. Written by `tick`; kept.
    Orphans(Date),
    /// `dead/{hash}`: a message that could not be used, with its reason. Written once; 40 days. Also an event that `notify` tries
    /// again: overwritten, and deleted with its last try.
    Dead(String),
    /// `told/{hash}`: which webhooks are done with an event that others did not take. Written by `notify`; overwritten; 40 days.
    Told(String),
}

impl Kind {
    /// The document's path.
    pub fn path(&self) -> String {
        match self {
            Self::Installation => "meta/installation".into(),
            Self::Liveness => "meta/liveness".into(),
            Self::Fleet => "meta/fleet".into(),
            Self::Freeze => "meta/freeze".into(),
            Self::Job(id) => of_job(id, ""),
            Self::History(id, revision) => numbered(of_job(id, "/history/"), *revision, 10),
            Self::Command(id, key) => of_job(id, "/commands/") + &short_hash(key),
            Self::Worker(id, attempt, key) => {
                let attempt = numbered(of_job(id, "/workers/"), u64::from(*attempt), 6) + "-";
                let slice = numbered(attempt, u64::from(key.slice), 4) + "-";
                numbered(slice, u64::from(key.worker), 4)
            }
            Self::Progress(id, attempt) => numbered(of_job(id, "/progress/"), u64::from(*attempt), 6),
            Self::Instance(name) => format!("instances/{}", short_hash(name)),
            Self::Zone(p) => format!("zones/{}-{}-{}", p.zone, p.accelerator, p.capacity.as_str()),
            Self::Creates => "limits/creates".into(),
            Self::Orphans(week) => format!("orphans/{week}"),
            Self::Dead(key) => format!("dead/{}", short_hash(key)),
            Self::Told(event) => format!("told/{}", short_hash(event)),
        }
    }
}

/// The longest path that begins with a job's id, in bytes: that of a command.
const PATH_OF_JOB_MAX: usize = "jobs/".len() + JobId::LEN_MAX + "/commands/".len() + 32;

/// `jobs/{id}{rest}`, with room for what may follow.
// Paths are made for every read; formatting would be a tenth of a pass's own time.
fn of_job(id: &JobId, rest: &str) -> String {
    let mut path = String::with_capacity(PATH_OF_JOB_MAX);
    path.push_str("jobs/");
    path.push_str(id.as_str());
    path.push_str(rest);
    path
}

/// With a number of at least so many digits behind it.
fn numbered(mut path: String, number: u64, width: usize) -> String {
    let mut digits = [b'0'; 20];
    let (mut first, mut rest) = (digits.len(), number);
    while rest > 0 || digits.len() - first < width {
        first -= 1;
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    path.push_str(str::from_utf8(&digits[first..]).unwrap_or_default());
    path
}

/// How long after its last write a document may go by itself; `None`: it stays until something deletes it.
///
/// A store that can drops it some time after that, never before; readers must not count on either.
// Deliveries come again for at most 31 days, so a command or a dead letter older than that is asked for no more. A VM is named once for
// its whole life, and no TPU has been kept for a year.
pub fn lifetime(path: &str) -> Option<Duration> {
    const DAY: Duration = Duration::from_hours(24);
    match path.split('/').collect::<Vec<_>>().as_slice() {
        ["jobs", _, "commands", _] | ["dead" | "told", _] => Some(DAY * 40),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_paths_have_so_many_digits_at_least() {
        let job = JobId::parse("train").unwrap();
        for (kind, path) in [
            (Kind::Job(job.clone()), "jobs/train"),
            (Kind::History(job.clone(), 0), "jobs/train/history/0000000000"),
            (Kind::History(job.clone(), 1_234_567), "jobs/train/history/0001234567"),
            (Kind::History(job.clone(), u64::MAX), "jobs/train/history/18446744073709551615"),
            (Kind::Progress(job.clone(), 10), "jobs/train/progress/000010"),
            (Kind::Worker(job, 7, WorkerKey { slice: 12, worker: 20_345 }), "jobs/train/workers/000007-0012-20345"),
        ] {
            assert_eq!(kind.path(), path, "{kind:?}");
        }
    }
}
