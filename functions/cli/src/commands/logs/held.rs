//! `logs --tail`: the last lines of each worker, held back until it is known that they are the last.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rekindle_wire::v1::OutputLine;

/// Of the newest output the server is asked for so much for each line, within these bounds. A log of days is not read
/// whole for its end.
const LINE_BYTES: u64 = 4096;
const BYTES_MIN: u64 = 4 << 20;
const BYTES_MAX: u64 = 16 << 20;

/// How much of the newest output is asked for to find so many lines of each worker in it.
pub(super) fn bytes(lines: usize) -> u64 {
    (lines as u64).saturating_mul(LINE_BYTES).clamp(BYTES_MIN, BYTES_MAX)
}

/// The last lines of each worker so far.
pub(super) struct Held {
    most: usize,
    /// Each with its place in what came.
    lines: BTreeMap<String, VecDeque<(u64, OutputLine)>>,
    /// Attempts whose headings came.
    headings: BTreeSet<u32>,
    count: u64,
}

impl Held {
    pub(super) fn new(most: usize) -> Self {
        Self { most, lines: BTreeMap::new(), headings: BTreeSet::new(), count: 0 }
    }

    /// Takes a line, in place of the oldest of its worker where that has enough.
    pub(super) fn take(&mut self, line: OutputLine) {
        if line.line.is_none() {
            self.headings.insert(line.attempt);
            return;
        }
        let lines = self.lines.entry(line.worker.clone()).or_default();
        // The state of a bar is no line of its own.
        if lines.back().is_some_and(|(_, last)| last.is_open) {
            lines.pop_back();
        }
        lines.push_back((self.count, line));
        self.count += 1;
        if lines.len() > self.most {
            lines.pop_front();
        }
    }

    /// All of them in the order in which they came, the headings of their attempts between them.
    pub(super) fn into_lines(self) -> Vec<OutputLine> {
        let heading = |attempt| OutputLine { attempt, ..OutputLine::default() };
        let mut lines: Vec<(u64, OutputLine)> = self.lines.into_values().flatten().collect();
        lines.sort_by_key(|(place, _)| *place);
        let mut headings = self.headings.into_iter().peekable();
        let mut all = Vec::new();
        for (_, line) in lines {
            let mut due = None;
            while let Some(attempt) = headings.next_if(|attempt| *attempt <= line.attempt) {
                due = Some(attempt);
            }
            all.extend(due.map(heading));
            all.push(line);
        }
        // Its first line is still to come.
        all.extend(headings.last().map(heading));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(most: usize, given: &[(u32, &str, &str, bool)]) -> Vec<String> {
        let mut held = Held::new(most);
        for (attempt, worker, said, is_open) in given {
            let line = (!worker.is_empty()).then(|| (*said).to_owned());
            held.take(OutputLine { attempt: *attempt, workers: 2, worker: (*worker).into(), line, is_open: *is_open });
        }
        let of = |line: OutputLine| match line.line {
            Some(said) => format!("{} {said}", line.worker),
            None => format!("attempt {}", line.attempt),
        };
        held.into_lines().into_iter().map(of).collect()
    }

    #[test]
    fn the_last_lines_of_each_worker_come_in_their_order_below_their_attempts() {
        let given = [
            (1, "", "", false),
            (1, "w0", "a", false),
            (1, "w1", "quiet", false),
            (1, "w0", "b", false),
            (2, "", "", false),
            (2, "w0", "c", false),
            (2, "w0", "d", false),
        ];
        assert_eq!(told(1, &given), ["attempt 1", "w1 quiet", "attempt 2", "w0 d"]);
        assert_eq!(told(2, &given), ["attempt 1", "w1 quiet", "attempt 2", "w0 c", "w0 d"]);
        assert_eq!(told(9, &given).len(), 7);
        assert_eq!(told(0, &given), ["attempt 2"], "what comes is of it");
    }

    #[test]
    fn a_bar_is_one_line_in_its_newest_state() {
        let given = [(1, "w0", "a", false), (1, "w0", "10%", true), (1, "w0", "20%", true)];
        assert_eq!(told(2, &given), ["w0 a", "w0 20%"]);
    }

    #[test]
    fn more_lines_ask_for_more_of_the_output_within_bounds() {
        assert_eq!([1, 2000, usize::MAX].map(bytes), [4 << 20, 8_192_000, 16 << 20]);
    }
}
