//! Output: read from the program's files as they grow, and put to `api` in numbered chunks.
//!
//! The program writes to plain files and never waits for us. **Invariant:** what a chunk holds is written down before
//! it is sent, so a number always stands for the same bytes, also after a restart in between. What was sent is freed
//! on the disk (a hole in the file), except for its end, which is evidence; what waits for longer than the backlog
//! allows is dropped with a line that says so.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::FallocateFlags;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::api::{Api, CallError, ChunkName};
use crate::backoff;
use crate::evidence::TAIL_MAX;
use crate::files::{self, CLOSED, Layout};
use crate::metadata::Node;

/// Most bytes in one chunk.
// One request must fit into the body limit of `api` and be quick to repeat; a chattier program gets several chunks in
// one flush.
const CHUNK_MAX: u64 = 256 << 10;
/// Freed on the disk in pieces of at least this, so that the file system is not asked for each line.
const HOLE_STEP: u64 = 1 << 20;
/// Names of the streams, of their files and in addresses.
pub(crate) const STREAMS: [&str; 2] = ["stdout", "stderr"];

/// How far one stream was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    /// Everything before this was accepted, or dropped.
    offset: u64,
    /// Number of the next chunk.
    number: u64,
    /// The chunk under way.
    pending: Option<Pending>,
    /// Freed on the disk up to here.
    freed: u64,
}

/// A chunk whose content is fixed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pending {
    /// Bytes of the file that were dropped before it.
    dropped: u64,
    /// Length in the file.
    len: u64,
}

/// How far the streams of one attempt were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Cursors {
    streams: [Cursor; 2],
    is_complete: bool,
}

/// What the shipper needs.
#[derive(Debug, Clone)]
pub(crate) struct Shipper {
    /// Calls.
    pub(crate) api: Api,
    /// Whose output.
    pub(crate) node: Arc<Node>,
    /// Where it is.
    pub(crate) layout: Layout,
    /// Between two looks.
    pub(crate) flush: Duration,
    /// Most bytes that wait, for each stream.
    pub(crate) backlog_max: u64,
}

/// A request to send everything now; answered when that is done.
pub(crate) type Flush = oneshot::Sender<()>;

enum Stop {
    /// Nothing can be sent without a token, or with this one.
    NoToken,
    /// Try again later.
    Later,
}

impl Shipper {
    /// Ships for ever.
    pub(crate) async fn run(self, token: watch::Receiver<Option<String>>, mut flushes: mpsc::Receiver<Flush>) {
        let mut failures = 0;
        let mut due = Instant::now();
        let mut waiting: Vec<Flush> = Vec::new();
        loop {
            tokio::select! {
                flush = flushes.recv() => match flush {
                    Some(flush) => waiting.push(flush),
                    None => return,
                },
                () = tokio::time::sleep_until(due.into()) => {}
            }
            while let Ok(flush) = flushes.try_recv() {
                waiting.push(flush);
            }
            let is_asked = !waiting.is_empty();
            match self.ship_all(&token, is_asked).await {
                Ok(()) => {
                    failures = 0;
                    due = Instant::now() + self.flush;
                    for flush in waiting.drain(..) {
                        let _ = flush.send(());
                    }
                }
                Err(Stop::NoToken) => due = Instant::now() + self.flush.min(Duration::from_millis(200)),
                Err(Stop::Later) => {
                    failures += 1;
                    due =
                        Instant::now() + backoff::after(failures, Duration::from_millis(200), Duration::from_secs(10));
                }
            }
        }
    }

    async fn ship_all(&self, token: &watch::Receiver<Option<String>>, is_asked: bool) -> Result<(), Stop> {
        for attempt in self.layout.attempts() {
            let folder = self.layout.attempt(attempt);
            let paper = folder.join("logs.json");
            let mut cursors: Cursors = files::read_json(&paper).unwrap_or_default();
            if cursors.is_complete {
                continue;
            }
            // Looked at before the sizes: nothing is written after it.
            let is_closed = folder.join(CLOSED).exists();
            for (index, stream) in STREAMS.iter().enumerate() {
                let path = folder.join(stream);
                while let Some(pending) = plan(&path, &cursors.streams[index], is_closed || is_asked, self.backlog_max)
                {
                    cursors.streams[index].pending = Some(pending.clone());
                    save(&paper, &cursors)?;
                    self.send(token, attempt, stream, &path, &cursors.streams[index], &pending).await?;
                    let cursor = &mut cursors.streams[index];
                    cursor.offset += pending.dropped + pending.len;
                    cursor.number += 1;
                    cursor.pending = None;
                    free(&path, cursor);
                    save(&paper, &cursors)?;
                }
            }
            if is_closed {
                cursors.is_complete = true;
                save(&paper, &cursors)?;
            }
        }
        Ok(())
    }

    async fn send(
        &self,
        token: &watch::Receiver<Option<String>>,
        attempt: u32,
        stream: &str,
        path: &Path,
        cursor: &Cursor,
        pending: &Pending,
    ) -> Result<(), Stop> {
        let Some(token) = token.borrow().clone() else { return Err(Stop::NoToken) };
        let mut bytes = read_at(path, cursor.offset + pending.dropped, pending.len).map_err(|error| {
            tracing::warn!(path = %path.display(), %error, "cannot read output");
            Stop::Later
        })?;
        if pending.dropped > 0 {
            let told =
                format!("\nrekindle: {} bytes of output were dropped here: api was out of reach\n", pending.dropped);
            bytes.splice(0..0, told.into_bytes());
        }
        let name = ChunkName { node: &self.node, attempt, stream, number: cursor.number };
        match self.api.put_log(&token, name, bytes).await {
            Ok(()) | Err(CallError::Conflict) => Ok(()),
            Err(CallError::Unauthorized(_)) => Err(Stop::NoToken),
            Err(error) => {
                tracing::warn!(error = %crate::chain(&error), stream, number = cursor.number, "cannot send output");
                Err(Stop::Later)
            }
        }
    }
}

/// The next chunk of a stream. Without `is_whole`, it ends after a line where it can.
fn plan(path: &Path, cursor: &Cursor, is_whole: bool, backlog_max: u64) -> Option<Pending> {
    if cursor.pending.is_some() {
        return cursor.pending.clone();
    }
    let size = std::fs::metadata(path).ok()?.len();
    let waiting = size.saturating_sub(cursor.offset);
    let dropped = if waiting > backlog_max { waiting - backlog_max / 2 } else { 0 };
    let len = (waiting - dropped).min(CHUNK_MAX);
    if len == 0 {
        return None;
    }
    if is_whole && len < CHUNK_MAX {
        return Some(Pending { dropped, len });
    }
    let bytes = read_at(path, cursor.offset + dropped, len).ok()?;
    let line_end = bytes.iter().rposition(|b| *b == b'\n').map(|i| i as u64 + 1);
    Some(Pending { dropped, len: line_end.unwrap_or(len) })
}

fn save(paper: &Path, cursors: &Cursors) -> Result<(), Stop> {
    files::replace_json(paper, cursors).map_err(|error| {
        tracing::warn!(path = %paper.display(), %error, "cannot write down how far output was sent");
        Stop::Later
    })
}

fn read_at(path: &Path, offset: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = vec![0_u8; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Gives back the disk space of what was sent. The program goes on appending: offsets stay as they are.
fn free(path: &Path, cursor: &mut Cursor) {
    let until = cursor.offset.saturating_sub(TAIL_MAX as u64);
    if until < cursor.freed + HOLE_STEP {
        return;
    }
    let punch = || -> std::io::Result<()> {
        let file = File::options().write(true).open(path)?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, hole, cursor.freed, until - cursor.freed)?;
        Ok(())
    };
    match punch() {
        Ok(()) => cursor.freed = until,
        Err(error) => tracing::debug!(path = %path.display(), %error, "cannot give back the disk space of sent output"),
    }
}

/// Removes folders of older attempts whose output is sent, and all but the newest few whatever they hold.
pub(crate) fn tidy(layout: &Layout, current: u32) {
    // A person who looks at the machine after a failure wants the last few; a job of a thousand attempts must not fill
    // the disk.
    const KEPT: usize = 3;
    let older: Vec<u32> = layout.attempts().into_iter().filter(|a| *a < current).collect();
    for (age, attempt) in older.iter().rev().enumerate() {
        let folder: PathBuf = layout.attempt(*attempt);
        let is_sent = files::read_json::<Cursors>(&folder.join("logs.json")).is_some_and(|c| c.is_complete);
        if age >= KEPT
            && (is_sent || age >= 2 * KEPT)
            && let Err(error) = std::fs::remove_dir_all(&folder)
        {
            tracing::warn!(path = %folder.display(), %error, "cannot remove an old attempt's folder");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    const MANY: u64 = 1 << 40;

    #[test]
    fn a_chunk_ends_after_a_line_unless_all_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout");
        let mut cursor = Cursor::default();
        assert_eq!(plan(&path, &cursor, true, MANY), None, "nothing was written yet");
        std::fs::write(&path, "one\ntwo\nthr").unwrap();
        assert_eq!(plan(&path, &cursor, false, MANY), Some(Pending { dropped: 0, len: 8 }));
        assert_eq!(plan(&path, &cursor, true, MANY), Some(Pending { dropped: 0, len: 11 }));
        cursor.offset = 8;
        assert_eq!(plan(&path, &cursor, false, MANY), Some(Pending { dropped: 0, len: 3 }), "a bar without an end");
        cursor.pending = Some(Pending { dropped: 0, len: 2 });
        assert_eq!(plan(&path, &cursor, true, MANY), cursor.pending, "what was begun stays the same");
    }

    #[test]
    fn a_backlog_is_bounded_and_what_was_sent_is_freed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout");
        std::fs::write(&path, "0123456\n".repeat(1 << 20)).unwrap();
        let mut cursor = Cursor::default();
        let pending = plan(&path, &cursor, false, 1 << 20).unwrap();
        assert_eq!(pending, Pending { dropped: (8 << 20) - (1 << 19), len: CHUNK_MAX });
        cursor.offset = 6 << 20;
        let before = std::fs::metadata(&path).unwrap();
        free(&path, &mut cursor);
        let after = std::fs::metadata(&path).unwrap();
        assert_eq!(after.len(), before.len(), "offsets stay as they are");
        if cursor.freed > 0 {
            assert!(after.blocks() < before.blocks() / 2, "{} of {} blocks", after.blocks(), before.blocks());
        }
        assert_eq!(read_at(&path, 6 << 20, 8).unwrap(), b"0123456\n");
    }
}
