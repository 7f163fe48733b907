//! Output on its way to a file: held in memory while the disk takes nothing, and written by a thread of its own.
//!
//! **Invariants:** whoever brings output never waits for the disk longer than [`STUCK`]. What was brought stands in the
//! file in order, or a line with the count of the bytes that are missing stands where they would: in = out + marked.
//! The folder is open to the program: a file that it removes or moves is made anew, with the same bytes at the same places.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::files;

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
/// The same, where there was no disk.
const GONE: &str = "what the worker's folders lie in was gone";

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
    root: PathBuf,
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
    /// Bytes that the mark counts that is being written.
    marking: u64,
    /// When the write under way was begun.
    writes_since: Option<Instant>,
    /// Why the disk refused the last write, if it did.
    refused: Option<&'static str>,
    /// Bytes that were written, so that a wait can tell a slow disk from a full one.
    written: u64,
    /// It is to be looked whether the file is still there.
    is_look_due: bool,
    /// Where it was is nothing any more that could hold it. What comes is counted, for when it is there again.
    is_lost: bool,
    /// Nothing comes any more.
    is_over: bool,
}

impl Held {
    fn is_stuck(&self) -> bool {
        self.refused.is_some() || self.writes_since.is_some_and(|at| at.elapsed() > STUCK)
    }

    fn is_empty(&self) -> bool {
        // Where all is gone nobody reads how much is missing.
        let is_said = self.dropped == 0 || self.is_lost;
        self.pieces.is_empty() && is_said && self.writes_since.is_none() && !self.is_look_due
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.is_lost {
            self.dropped += bytes.len() as u64;
            self.is_look_due = true;
            return;
        }
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
        if self.dropped > 0 && !self.is_lost {
            self.marking = std::mem::take(&mut self.dropped);
            return Some(mark(self.marking, self.why).into_bytes());
        }
        if let Some(piece) = self.pieces.pop_front() {
            self.len -= piece.len();
            return Some(piece);
        }
        std::mem::take(&mut self.is_look_due).then(Vec::new)
    }
}

impl Spool {
    /// Appends to the file at `path`, which is made when the disk lets it be, and made [`again`] below `root` when it is removed.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn open(path: PathBuf, root: &Path) -> std::io::Result<Self> {
        let (root, held) = (root.to_owned(), Mutex::default());
        let shared = Arc::new(Shared { path, root, held, changed: Condvar::new() });
        let writer = Arc::clone(&shared);
        std::thread::Builder::new().name("output".into()).stack_size(STACK).spawn(move || writer.write_all())?;
        Ok(Self { shared })
    }

    /// Takes bytes, at once and whatever the disk does.
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.shared.lock().push(bytes);
        self.shared.changed.notify_one();
    }

    /// Asks for a look whether the file is still there.
    pub(crate) fn look(&self) {
        self.shared.lock().is_look_due = true;
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

    /// Waits until everything is written, and is where it is looked for; gives up when the disk has taken nothing for `patience`. True
    /// if it is written.
    pub(crate) async fn settled(&self, patience: Duration) -> bool {
        self.look();
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
        let mut file = self.open(None).ok();
        while let Some(piece) = self.next() {
            let mut rest = piece.as_slice();
            while !self.write_some(&mut file, &mut rest) {}
            self.lock().writes_since = None;
        }
    }

    /// Writes some of what is left. True when nothing is.
    fn write_some(&self, file: &mut Option<File>, rest: &mut &[u8]) -> bool {
        match self.append(file, rest) {
            Ok(written) => {
                *rest = &rest[written..];
                let mut held = self.lock();
                held.written += written as u64;
                (held.refused, held.writes_since, held.is_lost) = (None, Some(Instant::now()), false);
                if rest.is_empty() {
                    held.marking = 0;
                }
                rest.is_empty()
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => false,
            Err(error) if is_nowhere(&error, &self.root) => {
                let mut held = self.lock();
                if !std::mem::replace(&mut held.is_lost, true) {
                    tracing::warn!(path = %self.path.display(), "what output is written to is gone");
                }
                let under_way = match std::mem::take(&mut held.marking) {
                    0 => rest.len() as u64,
                    marking => marking,
                };
                held.dropped += under_way + held.len as u64;
                (held.len, held.why) = (0, GONE);
                held.pieces.clear();
                true
            }
            Err(error) => {
                self.lock().refused = Some(why(&error));
                std::thread::sleep(RETRY);
                false
            }
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

    /// Opens the file. With one that was removed, or moved, all that it holds comes first.
    fn open(&self, removed: Option<&File>) -> std::io::Result<File> {
        if let Some(folder) = self.path.parent() {
            again(folder, &self.root)?;
        }
        if std::fs::symlink_metadata(&self.path).is_ok_and(|there| !there.is_file()) {
            files::put_aside(&self.path, Metadata::is_file)?;
        }
        // Two shims may have it: of `setup`, as long as what that left lives, and of the program. One makes it again.
        let here = files::file_at(&self.path).map_or(0, |meta| meta.len());
        if let Some(removed) = removed.filter(|file| file.metadata().is_ok_and(|meta| meta.len() > here)) {
            // Whole at once: who reads it knows how far it has come in what it held.
            let whole = files::beside(&self.path, "again");
            let file = files::make_anew(&whole)?;
            let done = copy(removed, &file).and_then(|()| std::fs::rename(&whole, &self.path));
            done.inspect_err(|_| drop(std::fs::remove_file(&whole)))?;
        }
        files::append_to(&self.path)
    }

    fn append(&self, file: &mut Option<File>, bytes: &[u8]) -> std::io::Result<usize> {
        let mut open = match file.take() {
            Some(open) if is_at(&open, &self.path) => open,
            // What it holds is nowhere else, so it is not let go before that is where it is looked for.
            removed => self.open(removed.as_ref()).inspect_err(|_| *file = removed)?,
        };
        let written = open.write(bytes);
        *file = Some(open);
        match written {
            Ok(0) if !bytes.is_empty() => Err(ErrorKind::WriteZero.into()),
            written => written,
        }
    }
}

/// True if the open file is the one at this path, where it is looked for.
fn is_at(file: &File, path: &Path) -> bool {
    let is_same = |open: Metadata, there: Metadata| (open.dev(), open.ino()) == (there.dev(), there.ino());
    file.metadata().is_ok_and(|open| files::file_at(path).is_some_and(|there| is_same(open, there)))
}

/// Makes a folder that somebody removed, and what it was in below `root`. Where that is gone too, it went as the disk of a machine
/// goes in an emulator, and nothing must come back.
pub(crate) fn again(folder: &Path, root: &Path) -> std::io::Result<()> {
    // Only their owner may look into what is made: in `/dev/shm` there are others.
    let make = || std::fs::DirBuilder::new().mode(0o700).create(folder);
    let made = match (make(), folder.parent()) {
        (Err(error), Some(above))
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
                && above != root
                && above.starts_with(root) =>
        {
            again(above, root)?;
            make()
        }
        (made, _) => made,
    };
    let is_there = |error: &std::io::Error| error.kind() == ErrorKind::AlreadyExists && folder.is_dir();
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && !folder.is_dir() => {
            // What else is there the program put there.
            files::put_aside(folder, Metadata::is_dir)?;
            make()
        }
        made => made,
    }
    .or_else(|error| if is_there(&error) { Ok(()) } else { Err(error) })
}

/// True if something could not be written since nothing can be made [`again`]. While a folder is removed, it may be missing for a
/// moment in which it can.
pub(crate) fn is_nowhere(error: &std::io::Error, root: &Path) -> bool {
    let is_missing = |error: &std::io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
    is_missing(error) && std::fs::metadata(root).map_or_else(|error| is_missing(&error), |root| !root.is_dir())
}

/// Copies a file into an empty one, holes as holes: what was sent is one.
fn copy(mut from: &File, to: &File) -> std::io::Result<()> {
    let len = from.metadata()?.len();
    let (mut bytes, mut at) = (vec![0; PIECE], 0);
    to.set_len(len)?;
    while at < len {
        match rustix::fs::seek(from, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) => at = data,
            // Only a hole is left.
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            // The file system knows of none.
            Err(_) => drop(from.seek(SeekFrom::Start(at))?),
        }
        let end = rustix::fs::seek(from, rustix::fs::SeekFrom::Hole(at)).unwrap_or(len);
        while at < end {
            let part = usize::try_from(end - at).unwrap_or(PIECE).min(PIECE);
            from.read_exact_at(&mut bytes[..part], at)?;
            to.write_all_at(&bytes[..part], at)?;
            at += part as u64;
        }
    }
    Ok(())
}

fn why(error: &std::io::Error) -> &'static str {
    if matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded) {
        "the worker's disk was full"
    } else {
        SILENT
    }
}

#[cfg(test)]
mod tests;
