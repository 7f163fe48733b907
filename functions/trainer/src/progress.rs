//! Progress lines for the agent: `step=1200 loss=2.31`, `checkpoint=1200` behind it when saved, `resumed_from=1200`.

use std::fmt::Arguments;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use crate::talk::complain;

/// The progress file, opened for appending. A file that cannot be written is said once and never ends the run.
#[derive(Debug)]
pub(crate) struct Progress {
    file: Option<File>,
}

impl Progress {
    /// Opens the file, if one is named.
    pub(crate) fn open(path: Option<&Path>) -> Self {
        let file = path.and_then(|path| match OpenOptions::new().create(true).append(true).open(path) {
            Ok(file) => Some(file),
            Err(error) => {
                complain(format_args!("progress file {}: {error}; going on without it", path.display()));
                None
            }
        });
        Self { file }
    }

    /// A completed step, with the loss, and the step of a checkpoint that has just been saved.
    pub(crate) fn step(&mut self, step: u64, loss: f64, checkpoint: Option<u64>) {
        match checkpoint {
            Some(saved) => self.line(format_args!("step={step} loss={loss:.6} checkpoint={saved}")),
            None => self.line(format_args!("step={step} loss={loss:.6}")),
        }
    }

    /// Where a resume begins.
    pub(crate) fn resumed(&mut self, from: u64) {
        self.line(format_args!("resumed_from={from}"));
    }

    fn line(&mut self, line: Arguments<'_>) {
        // One write for each line: a reader of the file sees whole lines.
        if let Some(file) = &mut self.file
            && let Err(error) = file.write_all(format!("{line}\n").as_bytes())
        {
            complain(format_args!("progress file: {error}; going on without it"));
            self.file = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_over_attempts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        let mut first = Progress::open(Some(&path));
        first.step(24, 2.313_000_1, None);
        first.step(25, 2.3, Some(25));
        Progress::open(Some(&path)).resumed(25);
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written, "step=24 loss=2.313000\nstep=25 loss=2.300000 checkpoint=25\nresumed_from=25\n");
    }

    #[test]
    fn a_file_that_cannot_be_opened_does_not_end_the_run() {
        let folder = tempfile::tempdir().unwrap();
        Progress::open(Some(&folder.path().join("absent").join("progress"))).step(1, 1.0, None);
    }
}
