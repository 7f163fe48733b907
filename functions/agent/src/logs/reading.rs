//! Looks at the files of the streams, and what comes of it where that fails.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::io::Errno;

use super::Stop;
use super::cursor::Cursor;
use crate::files;

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

/// Reads so many bytes of a file from a place on.
pub(crate) fn read_at(path: &Path, offset: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let file = files::open_file(File::options().read(true), path)?;
    let mut bytes = vec![0_u8; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
