//! Exit codes: all that this program ends with by itself. `exec` and `ssh` hand on those of other programs.

use std::process::ExitCode;

/// Why it ends. `JSON.md` and the help tell these words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done. Of `wait`, `run --wait` and `run --follow`: every job succeeded.
    Done = 0,
    /// What was given is at fault, or the server refused it. Of `wait` and its like: a job failed; of `doctor`: something
    /// is bad.
    Fault = 1,
    /// The command line cannot be read; or something unexpected: no server, an answer that cannot be read, a full disk.
    Unexpected = 2,
    /// Of `wait` and its like: a job was cancelled.
    Cancelled = 3,
    /// Of `wait` and its like: a job is not there, or its end is not known in time.
    NotKnown = 4,
    /// Ctrl-C, SIGTERM or a closed terminal cut `dev` or `demo` short; Ctrl-C ended `logs -f`, `wait` or its like, and the
    /// jobs go on; or Ctrl-C ended `sync`, or twice `exec`.
    Interrupted = 130,
    /// Whoever read the output has left.
    NobodyReads = 141,
}

impl Exit {
    /// The number.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
