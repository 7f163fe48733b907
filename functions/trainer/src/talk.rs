//! What the program says: one writer for stdout and one for stderr.
//!
//! A closed pipe must not end a training run, so a line that cannot be written is dropped.

use std::fmt::Arguments;
use std::io::Write as _;

/// Writes one line to stdout.
pub(crate) fn say(line: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    // One write for each line: the agent reads the same file while we append.
    let _ = out.write_all(format!("{line}\n").as_bytes());
    let _ = out.flush();
}

/// Writes one line to stderr.
pub(crate) fn complain(line: Arguments<'_>) {
    let _ = std::io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}
