//! The embedded document store: one redb file.
//!
//! Reads run on the blocking pool, each on a snapshot of its own. Writes go through one thread that puts every commit
//! that waits into one transaction (group commit), so that a burst costs one flush, and answers only after the flush:
//! an answered commit survives `kill -9`.
//! What was read stays in memory, within bounds, until it is read at another revision.
//! **Invariant:** revisions only grow, also when the wall clock steps back or the process restarts.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use rekindle_ports::docs::{Doc, Docs, DocsError, Page, Query, Revision, Write};
use rekindle_ports::limits;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

mod layout;
mod read;
mod slot;
#[cfg(test)]
mod tests;
mod write;

pub use slot::ROOM_MIN;
use slot::Slot;

/// Version of the file's layout.
pub const FILE_SCHEMA: u64 = 1;

/// Commits that may wait for the writer before callers wait themselves.
const QUEUE: usize = 256;

/// Most commits in one transaction: bounds what one failed flush makes unclear, and the time to the first answer.
const GROUP_MAX: usize = 64;

/// Between two tries to open the file anew, where the first did not do.
const REOPEN_EACH: Duration = Duration::from_millis(500);

/// Why the file could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process holds it.
    #[error("{0} is in use by another process; stop it, or choose another state folder")]
    InUse(String),
    /// A later version wrote it.
    #[error(
        "{path} has layout {found}; this version reads {FILE_SCHEMA}: use the newer version, or another state folder"
    )]
    Newer {
        /// The file.
        path: String,
        /// Its version.
        found: u64,
    },
    /// It cannot be read or made.
    #[error("cannot open {path}: {why}")]
    Broken {
        /// The file.
        path: String,
        /// Why.
        why: String,
    },
}

/// One commit on its way to the writer, with the bodies as text.
struct Request {
    writes: Vec<Write>,
    bodies: Vec<String>,
    answer: oneshot::Sender<Result<Revision, DocsError>>,
}

/// Documents in one file. Needs a tokio runtime around every call.
///
/// On a full disk commits answer `Unavailable`, and reads go on. After an error of the disk redb neither takes nor gives
/// anything: the writer then opens the file anew, and until that is done everything answers `Unavailable`.
pub struct RedbDocs {
    slot: Arc<Slot>,
    seen: Arc<read::Seen>,
    requests: Option<mpsc::Sender<Request>>,
    writer: Option<JoinHandle<()>>,
}

impl RedbDocs {
    /// Opens the file, or makes it. Its folder must exist. Blocks; a file that was not closed is checked first.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let (slot, last) = Slot::open(path)?;
        let slot = Arc::new(slot);
        let (requests, queue) = mpsc::channel(QUEUE);
        let writer = std::thread::Builder::new()
            .name("rekindle-store".into())
            .spawn({
                let slot = Arc::clone(&slot);
                move || write_groups(&slot, queue, last)
            })
            .map_err(|e| OpenError::Broken { path: path.display().to_string(), why: e.to_string() })?;
        Ok(Self { slot, seen: Arc::new(read::nothing_seen()), requests: Some(requests), writer: Some(writer) })
    }

    async fn read<T: Send + 'static>(
        &self,
        of: impl FnOnce(&read::Snapshot<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, DocsError> {
        let (db, seen) = (self.slot.get().map_err(DocsError::Unavailable)?, Arc::clone(&self.seen));
        let read = tokio::task::spawn_blocking(move || of(&read::Snapshot::take(&db, &seen)?)).await;
        match read {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(DocsError::Unavailable(error.to_string())),
            Err(ended) => Err(DocsError::Unavailable(ended.to_string())),
        }
    }
}

impl Drop for RedbDocs {
    /// Waits until the writer has answered what it took, so that the file can be opened again at once.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("the store's writer ended in a panic");
        }
    }
}

fn write_groups(slot: &Slot, mut queue: mpsc::Receiver<Request>, mut last: i64) {
    loop {
        if let Err(why) = slot.get() {
            match queue.try_recv() {
                Ok(request) => drop(request.answer.send(Err(DocsError::Unavailable(why)))),
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {
                    std::thread::sleep(REOPEN_EACH);
                    reopen(slot, &mut last);
                }
            }
            continue;
        }
        let Some(first) = queue.blocking_recv() else { return };
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Ok(more) = queue.try_recv()
        {
            group.push(more);
        }
        if write_group(slot, group, &mut last).is_err() {
            reopen(slot, &mut last);
        }
    }
}

/// Writes a group and answers each of it. An error tells that the file must be opened anew.
fn write_group(slot: &Slot, group: Vec<Request>, last: &mut i64) -> Result<(), ()> {
    let mut answers = Vec::with_capacity(group.len());
    let mut commits = Vec::with_capacity(group.len());
    for request in group {
        answers.push(request.answer);
        commits.push((request.writes, request.bodies));
    }
    let room = slot.room().map_err(write::GroupError::Full);
    let (outcome, done) = match room.and_then(|()| slot.get().map_err(write::GroupError::Nothing)) {
        Err(error) => (Err(error), Ok(())),
        Ok(db) => {
            let outcome = write::group(&db, commits, last);
            let done = if outcome.is_ok() { Ok(()) } else { Err(()) };
            (outcome, done)
        }
    };
    if let Err(error) = &outcome {
        tracing::error!(%error, "the store did not write");
    }
    for (at, answer) in answers.into_iter().enumerate() {
        let result = match &outcome {
            Ok(results) => results[at].clone().map_err(|path| DocsError::Conflict { path }),
            Err(write::GroupError::Nothing(why)) => Err(DocsError::Unavailable(why.clone())),
            Err(write::GroupError::Full(why)) => Err(DocsError::Full(why.clone())),
            Err(write::GroupError::Unclear(why)) => Err(DocsError::Unclear(why.clone())),
        };
        // A caller that has gone away does not want the answer; its commit stands.
        let _gone = answer.send(result);
    }
    done
}

/// Opens the file anew. Revisions go on from where they were.
fn reopen(slot: &Slot, last: &mut i64) {
    match slot.reopen() {
        Ok(found) => {
            tracing::warn!("the store was opened anew");
            *last = found.max(*last);
        }
        Err(error) => tracing::error!(%error, "the store cannot be opened anew; it is tried again"),
    }
}

fn writer_ended() -> DocsError {
    DocsError::Unavailable("the store's writer has ended: restart the process".into())
}

#[async_trait]
impl Docs for RedbDocs {
    async fn get(&self, path: &str) -> Result<Option<Doc>, DocsError> {
        limits::check_path(path)?;
        let path = path.to_owned();
        self.read(move |snapshot| snapshot.get(&path)).await
    }

    async fn get_many(&self, paths: &[String]) -> Result<(Vec<Option<Doc>>, Revision), DocsError> {
        for path in paths {
            limits::check_path(path)?;
        }
        let paths = paths.to_vec();
        self.read(move |snapshot| {
            let docs = paths.iter().map(|path| snapshot.get(path)).collect::<Result<Vec<_>, _>>()?;
            Ok((docs, snapshot.through()?))
        })
        .await
    }

    async fn query(&self, query: &Query) -> Result<Page, DocsError> {
        limits::check_query(query)?;
        let query = query.clone();
        self.read(move |snapshot| snapshot.query(&query)).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, DocsError> {
        let bodies = limits::check_commit(&writes)?;
        let (answer, answered) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or_else(writer_ended)?;
        requests.send(Request { writes, bodies, answer }).await.map_err(|_| writer_ended())?;
        answered.await.unwrap_or_else(|_| Err(DocsError::Unclear("the store's writer ended".into())))
    }

    fn writes(&self) -> Result<(), DocsError> {
        match &self.requests {
            Some(requests) if !requests.is_closed() => self.slot.room().map_err(DocsError::Full),
            Some(_) | None => Err(writer_ended()),
        }
    }
}
