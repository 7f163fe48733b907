//! Output on its way to a file: held in memory while the disk takes nothing, and written by a thread of its own.
//!
//! **Invariants:** whoever brings output never waits for the disk longer than [`STUCK`]. What was brought stands in the
//! file in order, or a line with the count of the bytes that are missing stands where they would: in = out + marked.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Most bytes of one stream that are held while the disk takes nothing. Above it the oldest half is dropped.
// The stack traces of all threads of a program that dies of a full disk are some 100 KiB; with two streams, 32 MiB on a
// machine that has at least 16 GiB. Too small loses what a chatty program says while a disk is cleaned up.
pub(crate) const HELD_MAX: usize = 16 << 20;
/// A disk that has taken nothing for so long is not waited for any more.
// A disk that takes bytes, however it is loaded, slows a program down as a file would. One that takes less than a piece
// in this time (0.5 MB/s) is as good as full.
const STUCK: Duration = Duration::from_millis(500);
/// Bytes in one piece of memory, and in one write.
pub(crate) const PIECE: usize = 256 << 10;
/// Between two tries on a disk that refuses.
const RETRY: Duration = Duration::from_millis(100);
/// Between two looks whether there is room again.
const LOOK_EACH: Duration = Duration::from_millis(2);
/// The stack of the thread that writes.
const STACK: usize = 128 << 10;

/// Why bytes are missing, where the disk did not say that it is full.
const SILENT: &str = "the worker's disk took nothing";

/// The line that stands where bytes are missing.
pub(crate) fn mark(bytes: u64, why: &str) -> String {
    format!("\nrekindle: {bytes} bytes of output were dropped here: {why}\n")
}

/// The way of one stream to its file. When the last one who brings output is gone, what is held is still written.
#[derive(Debug)]
pub(crate) struct Spool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    held: Mutex<Held>,
    changed: Condvar,
}

/// What is not written yet.
#[derive(Debug, Default)]
struct Held {
    pieces: VecDeque<Vec<u8>>,
    /// Bytes in the pieces.
    len: usize,
    /// Bytes that were dropped before them, and why.
    dropped: u64,
    why: &'static str,
    /// When the write under way was begun.
    writes_since: Option<Instant>,
    /// Why the disk refused the last write, if it did.
    refused: Option<&'static str>,
    /// Bytes that were written, so that a wait can tell a slow disk from a full one.
    written: u64,
    /// Nothing comes any more.
    is_over: bool,
}

impl Held {
    fn is_stuck(&self) -> bool {
        self.refused.is_some() || self.writes_since.is_some_and(|at| at.elapsed() > STUCK)
    }

    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.dropped == 0 && self.writes_since.is_none()
    }

    fn push(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(PIECE) {
            match self.pieces.back_mut().filter(|piece| piece.len() + part.len() <= PIECE) {
                Some(piece) => piece.extend_from_slice(part),
                None => self.pieces.push_back(part.to_vec()),
            }
            self.len += part.len();
        }
        if self.len > HELD_MAX && self.is_stuck() {
            while self.len > HELD_MAX / 2
                && let Some(piece) = self.pieces.pop_front()
            {
                self.len -= piece.len();
                self.dropped += piece.len() as u64;
                self.why = self.refused.unwrap_or(SILENT);
            }
        }
    }

    /// What is to be written next.
    fn next(&mut self) -> Option<Vec<u8>> {
        if self.dropped > 0 {
            return Some(mark(std::mem::take(&mut self.dropped), self.why).into_bytes());
        }
        let piece = self.pieces.pop_front()?;
        self.len -= piece.len();
        Some(piece)
    }
}

impl Spool {
    /// Appends to the file at `path`, which is made when the disk lets it be.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn open(path: PathBuf) -> std::io::Result<Self> {
        let shared = Arc::new(Shared { path, held: Mutex::default(), changed: Condvar::new() });
        let writer = Arc::clone(&shared);
        std::thread::Builder::new().name("output".into()).stack_size(STACK).spawn(move || writer.write_all())?;
        Ok(Self { shared })
    }

    /// Takes bytes, at once and whatever the disk does.
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.shared.lock().push(bytes);
        self.shared.changed.notify_one();
    }

    /// Waits until there is room for more, or the disk is stuck.
    pub(crate) async fn room(&self) {
        while !self.has_room() {
            tokio::time::sleep(LOOK_EACH).await;
        }
    }

    fn has_room(&self) -> bool {
        let held = self.shared.lock();
        held.len < HELD_MAX || held.is_stuck()
    }

    /// Waits until everything is written; gives up when the disk has taken nothing for `patience`. True if it is written.
    pub(crate) async fn settled(&self, patience: Duration) -> bool {
        let mut last = (0, Instant::now());
        loop {
            let (is_empty, written) = {
                let held = self.shared.lock();
                (held.is_empty(), held.written)
            };
            if is_empty {
                return true;
            }
            if written != last.0 {
                last = (written, Instant::now());
            }
            if last.1.elapsed() >= patience {
                return false;
            }
            tokio::time::sleep(LOOK_EACH).await;
        }
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_all(&self) {
        // A program that says nothing has said nothing: an empty file, not none.
        let mut file = self.file().ok();
        while let Some(piece) = self.next() {
            let mut rest = piece.as_slice();
            while !rest.is_empty() {
                match self.append(&mut file, rest) {
                    Ok(written) => {
                        rest = &rest[written..];
                        let mut held = self.lock();
                        held.written += written as u64;
                        (held.refused, held.writes_since) = (None, Some(Instant::now()));
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.lock().refused = Some(why(&error));
                        std::thread::sleep(RETRY);
                    }
                }
            }
            self.lock().writes_since = None;
        }
    }

    /// Waits for the next piece; `None` at the end.
    fn next(&self) -> Option<Vec<u8>> {
        let mut held = self.lock();
        loop {
            if let Some(piece) = held.next() {
                held.writes_since = Some(Instant::now());
                return Some(piece);
            }
            if held.is_over {
                return None;
            }
            held = self.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn file(&self) -> std::io::Result<File> {
        OpenOptions::new().append(true).create(true).open(&self.path)
    }

    fn append(&self, file: &mut Option<File>, bytes: &[u8]) -> std::io::Result<usize> {
        let mut open = match file.take() {
            Some(open) => open,
            None => self.file()?,
        };
        let written = open.write(bytes);
        *file = Some(open);
        match written {
            Ok(0) => Err(std::io::ErrorKind::WriteZero.into()),
            written => written,
        }
    }
}

fn why(error: &std::io::Error) -> &'static str {
    if matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) {
        "the worker's disk was full"
    } else {
        SILENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_the_oldest_and_is_counted_where_it_would_stand() {
        let mut held = Held { refused: Some("the worker's disk was full"), ..Held::default() };
        let piece = vec![b'x'; PIECE];
        for _ in 0..HELD_MAX / PIECE {
            held.push(&piece);
        }
        assert_eq!((held.len, held.dropped), (HELD_MAX, 0), "up to the bound nothing is");
        held.push(b"the end");
        held.refused = None;
        let dropped = HELD_MAX as u64 / 2 + PIECE as u64;
        let due = mark(dropped, "the worker's disk was full");
        assert_eq!(held.next().unwrap(), due.into_bytes(), "also when the disk takes bytes again");
        let rest: Vec<u8> = std::iter::from_fn(|| held.next()).flatten().collect();
        assert_eq!((rest.len() as u64 + dropped, held.len), (HELD_MAX as u64 + 7, 0), "in = out + marked");
        assert!(rest.ends_with(b"xthe end"));
    }

    #[test]
    fn a_disk_that_takes_bytes_is_waited_for() {
        let mut held = Held::default();
        held.push(&vec![0; 2 * HELD_MAX]);
        assert_eq!((held.len, held.dropped), (2 * HELD_MAX, 0));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_made_yet_gets_everything_once_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("later/stdout");
        let spool = Spool::open(path.clone()).unwrap();
        spool.push(b"one\n");
        assert!(!spool.settled(Duration::from_millis(1)).await, "there is no folder");
        spool.push(b"two");
        std::fs::create_dir(folder.path().join("later")).unwrap();
        assert!(spool.settled(Duration::from_mins(1)).await);
        assert_eq!(std::fs::read(path).unwrap(), b"one\ntwo");
    }
}
