//! Progress lines: what the program writes to its progress file, read as it grows.
//!
//! The file is the program's, so nothing in it is trusted: garbage is skipped, huge lines are never held in memory,
//! and a file that is written anew is read anew.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_wire::agent::Progress;

/// A longer line is no progress line.
const LINE_MAX: usize = 4096;
/// The longest loss that is passed on.
const LOSS_MAX: usize = 64;
/// Most bytes read in one go, so that a program that floods the file does not keep the agent from its other work.
const READ_MAX: u64 = 1 << 20;

/// How far a progress file was read, and what it said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Tail {
    offset: u64,
    /// The beginning of a line whose end is not written yet.
    rest: Vec<u8>,
    /// The line under way is too long, and skipped to its end.
    is_skipping: bool,
    /// What was said.
    pub(crate) said: Progress,
}

impl Tail {
    /// Reads what is new. With `is_last`, a last line without an end counts too. True if anything was read.
    pub(crate) fn read(&mut self, path: &Path, now: Timestamp, is_last: bool) -> bool {
        let mut is_new = false;
        while let Some(bytes) = self.next(path) {
            is_new = true;
            let is_full = bytes.len() as u64 == READ_MAX;
            self.take(&bytes, now);
            if !is_full || !is_last {
                break;
            }
        }
        if is_last && !self.rest.is_empty() {
            let line = std::mem::take(&mut self.rest);
            self.line(&line, now);
        }
        is_new
    }

    fn next(&mut self, path: &Path) -> Option<Vec<u8>> {
        let mut file = File::open(path).ok()?;
        let size = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
        if size < self.offset {
            (self.offset, self.is_skipping) = (0, false);
            self.rest.clear();
        }
        if size == self.offset {
            return None;
        }
        file.seek(SeekFrom::Start(self.offset)).ok()?;
        let mut bytes = Vec::new();
        file.take(READ_MAX).read_to_end(&mut bytes).ok()?;
        self.offset += bytes.len() as u64;
        (!bytes.is_empty()).then_some(bytes)
    }

    fn take(&mut self, bytes: &[u8], now: Timestamp) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let is_end = piece.ends_with(b"\n");
            if !self.is_skipping {
                self.rest.extend_from_slice(&piece[..piece.len().min(LINE_MAX + 1)]);
                self.is_skipping = self.rest.len() > LINE_MAX;
            }
            if is_end {
                let line = std::mem::take(&mut self.rest);
                if !std::mem::take(&mut self.is_skipping) {
                    self.line(&line, now);
                }
            } else if self.is_skipping {
                self.rest.clear();
            }
        }
    }

    fn line(&mut self, line: &[u8], now: Timestamp) {
        for token in String::from_utf8_lossy(line).split_whitespace() {
            let Some((key, value)) = token.split_once('=') else { continue };
            match key {
                "step" => {
                    if let Some(step) = value.parse().ok().filter(|step| self.said.step.is_none_or(|s| *step > s)) {
                        self.said.step = Some(step);
                        self.said.step_at = Some(now);
                    }
                }
                "loss" if value.len() <= LOSS_MAX && !value.is_empty() => self.said.loss = Some(value.to_owned()),
                "checkpoint" => {
                    if let Ok(step) = value.parse::<u64>() {
                        self.said.checkpoint = Some(self.said.checkpoint.map_or(step, |c| c.max(step)));
                    }
                }
                "resumed_from" => self.said.resumed_from = value.parse().ok().or(self.said.resumed_from),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1).unwrap()
    }

    fn read(path: &Path, tail: &mut Tail, is_last: bool) -> Progress {
        tail.read(path, now(), is_last);
        tail.said.clone()
    }

    #[test]
    fn reads_lines_as_they_are_completed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        let mut tail = Tail::default();
        assert_eq!(read(&path, &mut tail, false), Progress::default());
        let mut file = File::create(&path).unwrap();
        write!(file, "resumed_from=3\nstep=12").unwrap();
        let said = read(&path, &mut tail, false);
        assert_eq!((said.step, said.resumed_from), (None, Some(3)), "12 may be the beginning of 1200");
        write!(file, "00 loss=2.31\nstep=900 checkpoint=1100\n").unwrap();
        let said = read(&path, &mut tail, false);
        assert_eq!((said.step, said.checkpoint, said.loss.as_deref()), (Some(1200), Some(1100), Some("2.31")));
        assert_eq!(said.step_at, Some(now()));
        write!(file, "step=1300").unwrap();
        assert_eq!(read(&path, &mut tail, true).step, Some(1300));
    }

    #[test]
    fn survives_garbage_and_huge_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        let mut bytes = b"\xff\xfe step=-1 step=99999999999999999999999 step=nan loss= =\n".to_vec();
        bytes.extend(std::iter::repeat_n(b'x', 3 << 20));
        bytes.extend(b" step=77\nstep=5\n");
        std::fs::write(&path, &bytes).unwrap();
        let mut tail = Tail::default();
        let said = read(&path, &mut tail, true);
        assert_eq!((said.step, said.loss), (Some(5), None), "what ends a line that is too long is not read");
        std::fs::write(&path, "step=6\n").unwrap();
        assert_eq!(read(&path, &mut tail, false).step, Some(6), "a file written anew is read anew");
        assert!(tail.rest.len() <= LINE_MAX);
    }
}
