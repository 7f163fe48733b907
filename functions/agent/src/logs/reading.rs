//! Looks at the files of the streams, at what is freed in them, and what comes of it where that fails.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::Stop;
use super::cursor::Cursor;
use crate::files;

/// Smallest piece that is freed.
const PAGE: u64 = 4096;

/// What comes of output that could not be read. What passes costs no byte.
pub(super) fn unread(path: &Path, error: &std::io::Error) -> Stop {
    use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied, UnexpectedEof};
    let is_gone = matches!(error.kind(), NotFound | NotADirectory | IsADirectory | PermissionDenied | UnexpectedEof);
    if is_gone || size_at(path) == Ok(None) { Stop::Unreadable } else { Stop::Held }
}

/// Bytes of the regular file at a path itself, if there is one: that it cannot be looked at for a moment is another thing.
fn size_at(path: &Path) -> Result<Option<u64>, Stop> {
    match std::fs::symlink_metadata(path) {
        Ok(meta) => Ok(meta.is_file().then_some(meta.len())),
        Err(error) if passes(&error) => Err(Stop::Held),
        Err(_) => Ok(None),
    }
}

/// True of what says nothing of a file: too many that are open, no memory, a disk that errs.
pub(super) fn passes(error: &std::io::Error) -> bool {
    let of_the_moment = [Errno::IO, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|errno| of_the_moment.contains(&errno))
}

/// [`size_at`] of a stream. What cannot be looked at is not waited for in ever more rounds, where nothing comes any more.
pub(super) fn size_to_send(path: &Path, cursor: &Cursor, is_closed: bool) -> Result<Option<u64>, Stop> {
    size_at(path).or_else(|stop| if is_closed && cursor.is_given_up() { Ok(None) } else { Err(stop) })
}

/// The same where it does not matter which it is.
pub(super) fn size_of(path: &Path) -> u64 {
    files::file_at(path).map_or(0, |meta| meta.len())
}

/// Where a file holds anything, from a place on: what was freed is a hole. It is the place itself where the file system knows of none.
pub(super) fn data_from(path: &Path, at: u64) -> u64 {
    let find = || -> std::io::Result<u64> {
        let file = files::open_file(File::options().read(true), path)?;
        let len = file.metadata()?.len();
        let mut place = at;
        loop {
            let data = match seek(&file, SeekFrom::Data(place)) {
                Err(Errno::NXIO) => return Ok(len.max(at)),
                data => data?,
            };
            let next = seek(&file, SeekFrom::Hole(data))?;
            // Where a hole begins or ends within a page, and between two, the rest of the page is zeros.
            let until = if data > at { data.saturating_add(PAGE) } else { next };
            let is_edge = data > at || (next < len && next - data <= PAGE);
            let zeros = if is_edge { zeros(&file, data, until.min(len))? } else { 0 };
            if !is_edge || data + zeros < until.min(len) {
                return Ok(if data > at { data + zeros } else { at });
            }
            place = until.min(len);
        }
    };
    find().unwrap_or(at)
}

/// Where the next hole is, from a place on that holds something; far away, if there is none.
pub(super) fn hole_from(path: &Path, at: u64) -> u64 {
    let find = || -> std::io::Result<u64> {
        let file = files::open_file(File::options().read(true), path)?;
        let hole = seek(&file, SeekFrom::Hole(at))?;
        if hole >= file.metadata()?.len() {
            return Ok(u64::MAX);
        }
        let last = PAGE.min(hole - at);
        let mut bytes = vec![0; usize::try_from(last).unwrap_or_default()];
        file.read_exact_at(&mut bytes, hole - last)?;
        Ok(hole - bytes.iter().rev().take_while(|byte| **byte == 0).count() as u64)
    };
    find().unwrap_or(u64::MAX)
}

/// Zeros in a file from one place on, up to another, which is at most a page behind.
fn zeros(file: &File, from: u64, until: u64) -> std::io::Result<u64> {
    let mut bytes = vec![0; usize::try_from(until - from).unwrap_or_default()];
    file.read_exact_at(&mut bytes, from)?;
    Ok(bytes.iter().take_while(|byte| **byte == 0).count() as u64)
}

/// Reads so many bytes of a file from a place on.
pub(crate) fn read_at(path: &Path, offset: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let file = files::open_file(File::options().read(true), path)?;
    let mut bytes = vec![0_u8; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
