//! How output looks to who reads it: as text, or an object for each line.

use rekindle_wire::v1::{OutputLine, worker_label};

use super::reader::StreamKey;

/// Puts pieces of several streams one behind the other: the worker before each line, if there are several, and none amid
/// the parts of a long one.
#[derive(Debug)]
pub(super) struct Writer {
    /// Of the job, over all slices.
    pub(super) workers: u32,
    /// Workers are named with their slice.
    pub(super) has_slices: bool,
    /// Lines of text begin with their worker.
    pub(super) has_prefix: bool,
    /// Objects ([`OutputLine`]), not text.
    pub(super) has_objects: bool,
    /// The stream whose last line of text is not at its end.
    pub(super) open: Option<StreamKey>,
}

impl Writer {
    /// The output of an attempt begins.
    pub(super) fn heading(&self, attempt: u32) -> Vec<u8> {
        if self.has_objects {
            return object(&OutputLine { attempt, workers: self.workers, ..OutputLine::default() });
        }
        format!("== attempt {attempt} ==\n").into_bytes()
    }

    /// Whole lines of a stream, or a part of a long one.
    pub(super) fn piece(&mut self, attempt: u32, of: &StreamKey, text: &[u8]) -> Vec<u8> {
        if !self.has_objects {
            return self.join(of, text);
        }
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        lines.flat_map(|line| self.line(attempt, of, line.strip_suffix(b"\n").unwrap_or(line), false)).collect()
    }

    /// One line, or the state of a bar (`is_open`).
    pub(super) fn state(&self, attempt: u32, of: &StreamKey, state: &[u8], is_open: bool) -> Vec<u8> {
        if self.has_objects {
            return self.line(attempt, of, state, is_open);
        }
        [self.prefix(of).as_bytes(), state, b"\n"].concat()
    }

    fn line(&self, attempt: u32, of: &StreamKey, line: &[u8], is_open: bool) -> Vec<u8> {
        let worker = worker_label(of.0, self.has_slices);
        let line = Some(String::from_utf8_lossy(line).into_owned());
        object(&OutputLine { attempt, workers: self.workers, worker, line, is_open })
    }

    fn prefix(&self, of: &StreamKey) -> String {
        if self.has_prefix { format!("[{}] ", worker_label(of.0, self.has_slices)) } else { String::new() }
    }

    fn join(&mut self, of: &StreamKey, text: &[u8]) -> Vec<u8> {
        let goes_on = self.open.as_ref() == Some(of);
        let mut out = Vec::with_capacity(text.len() + 64);
        if self.open.is_some() && !goes_on {
            out.push(b'\n');
        }
        let prefix = self.prefix(of);
        for (at, line) in text.split_inclusive(|b| *b == b'\n').enumerate() {
            if at > 0 || !goes_on {
                out.extend_from_slice(prefix.as_bytes());
            }
            out.extend_from_slice(line);
        }
        self.open = (!text.ends_with(b"\n")).then(|| of.clone());
        out
    }
}

fn object(line: &OutputLine) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// The lines of a piece as a terminal would show them: of a progress bar, which goes back to the beginning of its line
/// for each state, the newest that says something. And whether that may be replaced by what comes.
pub(super) fn newest(text: &[u8]) -> Vec<(&[u8], bool)> {
    let mut lines = Vec::new();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let whole = line.strip_suffix(b"\n");
        let line = whole.map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
        let says = |state: &&[u8]| !state.trim_ascii().is_empty();
        let state = line.split(|byte| *byte == b'\r').rfind(says);
        let is_open = whole.is_none() && line.ends_with(b"\r");
        // A bar may begin with a carriage return, or be wiped away: nothing is to be seen then.
        match (state, is_open) {
            (Some(state), _) => lines.push((state, is_open)),
            (None, true) => {}
            (None, false) => lines.push((line.rsplit(|byte| *byte == b'\r').next().unwrap_or_default(), false)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_progress_bar_the_newest_state_is_seen() {
        for (text, want) in [
            ("a\nb\n", &[("a", false), ("b", false)][..]),
            ("a\r\n\r\n\n", &[("a", false), ("", false), ("", false)]),
            ("\r 1%\r 2%\r", &[(" 2%", true)]),
            ("\r 1%\r100%\nnext\r\n\rx\r", &[("100%", false), ("next", false), ("x", true)]),
            ("\r", &[]),
            (" 9%\r    \r", &[(" 9%", true)]),
            ("a long part", &[("a long part", false)]),
        ] {
            let want: Vec<(&[u8], bool)> = want.iter().map(|(line, is_open)| (line.as_bytes(), *is_open)).collect();
            assert_eq!(newest(text.as_bytes()), want, "{text:?}");
        }
    }
}
