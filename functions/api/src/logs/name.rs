//! Names of chunks in the object store: `jobs/<id>/logs/<attempt>/<slice>-<worker>/<stream>/<number>@<time>`, sortable
//! as text. The time is when it came in, in milliseconds since 1970: streams are shown by it.

use http::StatusCode;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_web::{Problem, problem};

/// The last number of a chunk. Names have ten digits for it: with more they would not be sorted by it.
pub(crate) const NUMBER_MAX: u64 = 9_999_999_999;

/// 400 for a number that no chunk has.
pub(crate) fn check(number: u64) -> Result<(), Problem> {
    if number <= NUMBER_MAX {
        return Ok(());
    }
    Err(problem(StatusCode::BAD_REQUEST, "chunk", format!("the last number of a chunk is {NUMBER_MAX}")))
}

/// Reads a number back; `None`: no chunk has it. Who goes on behind it counts one further.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number <= NUMBER_MAX)
}

/// One chunk of one stream of one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Attempt.
    pub(crate) attempt: u32,
    /// Worker.
    pub(crate) key: WorkerKey,
    /// Stream: `stdout`, `stderr`.
    pub(crate) stream: String,
    /// From 0 to [`NUMBER_MAX`], without gaps unless chunks were lost.
    pub(crate) number: u64,
    /// When it came in, in milliseconds since 1970; 0: not known.
    pub(crate) at_ms: i64,
}

/// Folder of an attempt.
pub(crate) fn attempt_folder(job: &JobId, attempt: u32) -> String {
    format!("jobs/{job}/logs/{attempt:06}/")
}

impl Chunk {
    /// The object's name; `None`: the stream's name cannot be part of one.
    pub(crate) fn object(&self, job: &JobId) -> Option<String> {
        let ok = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        if self.stream.is_empty() || self.stream.len() > 16 || !self.stream.bytes().all(ok) {
            return None;
        }
        let folder = stream_folder(job, self.attempt, self.key, &self.stream);
        Some(format!("{folder}{:010}@{}", self.number, self.at_ms))
    }

    /// Reads an object's name back; `None`: it is no chunk's.
    pub(crate) fn parse(job: &JobId, name: &str) -> Option<Self> {
        let rest = name.strip_prefix(&format!("jobs/{job}/logs/"))?;
        let parts: Vec<&str> = rest.split('/').collect();
        let [attempt, worker, stream, number] = parts.as_slice() else { return None };
        let (slice, worker) = worker.split_once('-')?;
        let (number, at_ms) = number.split_once('@').unwrap_or((number, "0"));
        Some(Self {
            attempt: attempt.parse().ok()?,
            key: WorkerKey { slice: slice.parse().ok()?, worker: worker.parse().ok()? },
            stream: (*stream).to_owned(),
            number: self::number(number)?,
            at_ms: at_ms.parse().ok()?,
        })
    }
}

/// Folder of a stream.
pub(crate) fn stream_folder(job: &JobId, attempt: u32, key: WorkerKey, stream: &str) -> String {
    format!("{}{stream}/", worker_folder(job, attempt, key))
}

/// Folder of a worker.
pub(crate) fn worker_folder(job: &JobId, attempt: u32, key: WorkerKey) -> String {
    format!("{}{:04}-{:04}/", attempt_folder(job, attempt), key.slice, key.worker)
}

/// What a list begins behind, so that nothing of that folder is in it.
pub(crate) fn behind(folder: &str) -> String {
    // Digits and `@` sort before the tilde.
    format!("{folder}~")
}

/// What a list begins behind, so that the chunk with that number is its first.
pub(crate) fn before(folder: &str, number: u64) -> String {
    match number.checked_sub(1) {
        // Its name would stand before those of smaller numbers.
        Some(last) if last > NUMBER_MAX => behind(folder),
        // Digits and `@` sort before the tilde.
        Some(last) => format!("{folder}{last:010}~"),
        None => folder.to_owned(),
    }
}
