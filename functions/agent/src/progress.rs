//! Progress lines: what the program writes to its progress file, read as it grows.
//!
//! The file is the program's, so nothing in it is trusted: garbage is skipped, huge lines are never held in memory,
//! and a file that is written anew is read anew. A step far above the last one counts only once the next line bears it
//! out (see [`Steps`]).

use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use rekindle_wire::agent::{LOSS_MAX, Progress};

/// A longer line is no progress line.
const LINE_MAX: usize = 4096;
/// What a line may tell; whatever else stands there is the program's own.
const KEYS: [&str; 4] = ["step", "loss", "checkpoint", "resumed_from"];
/// As much of a line that cannot be read is repeated, in characters.
const UNREAD_MAX: usize = 80;
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
    #[serde(default)]
    steps: Steps,
    /// The highest step of the job before this attempt.
    #[serde(default)]
    known: Option<u64>,
    /// The checkpoint of a step that does not count yet.
    #[serde(default)]
    waiting_saved: Option<u64>,
    #[serde(default)]
    unread: Unread,
}

/// The first line of a program in which nothing, or not all that it should, can be read: who wrote it wonders why no step comes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Unread {
    #[default]
    None,
    Untold(String),
    Told,
}

/// Which steps count.
///
/// The highest step that counts is what people see, what the limit `stall` waits for, and what a later attempt must
/// pass to get its budgets back. One number out of the blue (an overflow, a buffer that was never set) would stop all
/// three for as long as the job lives. The rule:
///
/// 1. A number above [`STEP_MAX`] is no step.
/// 2. A step counts if it goes beyond the last one that does by no more than ten times the largest stride so far, or by
///    a thousand. Before there is a stride it may double; and the very first may be a million beyond where it begins
///    (`resumed_from`, else the highest step of the job, else 0), or twice as far.
/// 3. Any other step above that waits, and counts if the next line has it or a higher one; else it is forgotten. So does a
///    checkpoint up to it. At the end of the program, where no next line comes, it counts up to a million beyond the last.
///
/// So a line that stands alone never counts if it is far off, and if it is not, the true steps have soon passed it. A
/// program that does jump (other data, a longer interval) is told of one line later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Steps {
    /// The highest that counts.
    reached: Option<u64>,
    /// The largest distance between two that count.
    stride: u64,
    /// The last line's, if it does not count yet.
    waiting: Option<u64>,
}

/// The largest number that JSON's readers agree on: no program counts so far.
const STEP_MAX: u64 = 1 << 53;
/// Strides from one counted step to the next that need no second word.
const STRIDES: u64 = 10;
/// However short the strides were.
const NEAR: u64 = 1000;
/// The first step: nothing says yet how a program counts.
const FIRST: u64 = 1_000_000;

impl Steps {
    /// Takes the step of the next line. True if the highest that counts has grown.
    fn take(&mut self, step: u64, resumed_from: Option<u64>) -> bool {
        let waiting = self.waiting.take();
        if step > STEP_MAX || self.reached.is_some_and(|reached| step <= reached) {
            return false;
        }
        let before = self.reached;
        let from = before.or(resumed_from);
        if let Some(waiting) = waiting.filter(|waiting| step >= *waiting) {
            // Of the ways to it and on from it the shorter is a stride, the other may be a jump.
            self.stride = self.stride.max((step - waiting).min(waiting.saturating_sub(from.unwrap_or(0))));
            self.reached = Some(waiting);
        }
        let from = self.reached.or(from);
        if step.saturating_sub(from.unwrap_or(0)) > self.near(from) {
            self.waiting = Some(step);
        } else {
            // The way from the beginning to the first step is none.
            self.stride = self.stride.max(self.reached.map_or(0, |reached| step - reached));
            self.reached = Some(step);
        }
        self.reached > before
    }

    /// How far beyond `from` the next one may be.
    fn near(&self, from: Option<u64>) -> u64 {
        match (self.stride, from) {
            (0, from) if self.reached.is_none() => FIRST.max(from.unwrap_or(0)),
            (0, from) => NEAR.max(from.unwrap_or(0)),
            (stride, _) => NEAR.max(stride.saturating_mul(STRIDES)),
        }
    }

    /// A program saves what it has done, so no checkpoint is far beyond its steps.
    fn may_save(&self, checkpoint: u64) -> bool {
        let near = |reached: u64| reached.saturating_add(self.near(self.reached)).min(STEP_MAX);
        match (self.reached, self.waiting) {
            // It is of the step that waits.
            (None, Some(_)) => false,
            (reached, _) => checkpoint <= reached.map_or(STEP_MAX, near),
        }
    }
}

impl Tail {
    /// Reads what is new. With `is_last`, a last line without an end counts too. True if anything was read.
    /// `known` is the highest step of the job before this attempt.
    pub(crate) fn read(&mut self, path: &Path, known: Option<u64>, now: Timestamp, is_last: bool) -> bool {
        self.known = known;
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
        if is_last {
            self.end(now);
        }
        is_new
    }

    /// The program has ended: what its last line said is borne out by no other.
    fn end(&mut self, now: Timestamp) {
        let from = self.steps.reached.or(self.said.resumed_from).or(self.known).unwrap_or(0);
        let (step, saved) = (self.steps.waiting.take(), self.waiting_saved.take());
        if let Some(step) = step.filter(|step| step.saturating_sub(from) <= FIRST) {
            self.steps.reached = Some(step);
            (self.said.step, self.said.step_at) = (Some(step), Some(now));
            self.said.checkpoint = saved.or(self.said.checkpoint);
        }
    }

    fn next(&mut self, path: &Path) -> Option<Vec<u8>> {
        // A program may have put a pipe in its place, which would be waited for without end.
        let mut file =
            OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path).ok()?;
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
                if self.is_skipping {
                    let line = String::from_utf8_lossy(&self.rest).into_owned();
                    self.pass_over(&line, &format!(" (of more than {LINE_MAX} bytes)"));
                }
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

    fn step(&mut self, step: u64, now: Timestamp) {
        let waiting = self.steps.waiting;
        if self.steps.take(step, self.said.resumed_from.or(self.known)) {
            (self.said.step, self.said.step_at) = (self.steps.reached, Some(now));
        }
        let saved = self.waiting_saved.take();
        if waiting.is_some_and(|waiting| self.steps.reached >= Some(waiting)) {
            self.said.checkpoint = saved.or(self.said.checkpoint);
        }
    }

    fn line(&mut self, line: &[u8], now: Timestamp) {
        let line = String::from_utf8_lossy(line);
        let pair = |token| str::split_once(token, '=').filter(|(key, _)| !key.is_empty());
        let tokens = || line.split_whitespace().filter_map(pair);
        let mut is_read = tokens().next().is_some() || line.trim().is_empty();
        for (key, value) in tokens() {
            is_read &= self.token(key, value, now);
        }
        if !is_read {
            self.pass_over(&line, "");
        }
    }

    fn pass_over(&mut self, line: &str, why: &str) {
        if self.unread == Unread::None {
            let shown: String = line.trim().chars().take(UNREAD_MAX).collect();
            self.unread = Unread::Untold(format!("{shown:?}{why}"));
        }
    }

    /// False for a value that is none of its key.
    fn token(&mut self, key: &str, value: &str, now: Timestamp) -> bool {
        match (key, value.parse::<u64>().ok()) {
            ("step", Some(step)) => self.step(step, now),
            ("loss", _) if value.len() <= LOSS_MAX && !value.is_empty() => self.said.loss = Some(value.to_owned()),
            // The newest, not the highest: what a program says of it last is what it would resume from.
            ("checkpoint", saved) => {
                if saved.is_some_and(|saved| self.steps.may_save(saved)) {
                    self.said.checkpoint = saved;
                } else {
                    self.waiting_saved = saved.filter(|saved| self.steps.waiting.is_some_and(|step| *saved <= step));
                }
                return saved.is_some();
            }
            ("resumed_from", Some(from)) => {
                self.said.resumed_from = Some(from).filter(|from| *from <= STEP_MAX).or(self.said.resumed_from);
            }
            _ => return !KEYS.into_iter().any(|known| key.eq_ignore_ascii_case(known)),
        }
        true
    }

    /// What to tell, once, whoever wrote a line that cannot be read.
    pub(crate) fn complaint(&mut self) -> Option<String> {
        let Unread::Untold(line) = &self.unread else { return None };
        let why = format!(
            "rekindle: a line of the progress file cannot be read: {line}; it takes lines such as `step=1200 loss=2.31` and \
             `checkpoint=1200`, with whole numbers"
        );
        self.unread = Unread::Told;
        Some(why)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1).unwrap()
    }

    fn read(path: &Path, tail: &mut Tail, is_last: bool) -> Progress {
        tail.read(path, None, now(), is_last);
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
    fn a_pipe_in_its_place_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        assert_eq!(read(&path, &mut Tail::default(), true), Progress::default());
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

    fn told(lines: &str) -> Progress {
        let mut tail = Tail::default();
        tail.take(lines.as_bytes(), now());
        tail.said
    }

    #[test]
    fn a_step_out_of_the_blue_does_not_keep_true_ones_from_counting() {
        for bogus in ["9223372036854775807", "18446744073709551615", "4294967295", "100000"] {
            let told = told(&format!("step=100\nstep=101\nstep={bogus} checkpoint={bogus}\nstep=102\n"));
            assert_eq!((told.step, told.checkpoint), (Some(102), None), "{bogus}");
        }
        for bogus in ["9223372036854775807", "4294967295"] {
            assert_eq!(told(&format!("step={bogus}\nstep=1\n")).step, Some(1), "the first line: {bogus}");
            assert_eq!(told(&format!("step=1\nstep={bogus}\n")).step, Some(1), "the last line: {bogus}");
            assert_eq!(told(&format!("resumed_from={bogus}\nstep=1\n")).step, Some(1), "where it began: {bogus}");
        }
    }

    #[test]
    fn the_last_step_of_a_program_counts_though_no_line_follows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        for (lines, step, checkpoint) in [
            ("step=1\nstep=2000 checkpoint=2000 loss=1.5\n", Some(2000), Some(2000)),
            ("step=1 checkpoint=1\nstep=4294967295 checkpoint=4294967295\n", Some(1), Some(1)),
            ("step=1500000 checkpoint=1500000\n", None, None),
        ] {
            std::fs::write(&path, lines).unwrap();
            let mut tail = Tail::default();
            let before = read(&path, &mut tail, false);
            assert!(before.step <= Some(1) && before.checkpoint <= Some(1), "{lines:?}: {before:?}");
            let said = read(&path, &mut tail, true);
            assert_eq!((said.step, said.checkpoint), (step, checkpoint), "{lines:?}");
        }
    }

    #[test]
    fn a_jump_that_the_next_line_bears_out_counts() {
        assert_eq!(told("step=1\nstep=2\nstep=90000\nstep=90001\nstep=90002\n").step, Some(90002));
        assert_eq!(told("step=4194304\n").step, None);
        assert_eq!(told("step=1200 loss=2.31\n").step, Some(1200), "the first");
        assert_eq!(told("step=4194304\nstep=8388608\n").step, Some(8_388_608), "tokens instead of steps");
        assert_eq!(told("resumed_from=524288\nstep=1048576\n").step, Some(1_048_576));
        assert_eq!(told("step=1\nstep=300\nstep=600\nstep=3590\n").step, Some(3590), "ten strides");
    }

    #[test]
    fn a_checkpoint_counts_with_its_step() {
        let jump = "step=99\nstep=100\nstep=5000 checkpoint=5000\n";
        assert_eq!(told(jump).checkpoint, None);
        assert_eq!(told(&format!("{jump}step=5001\n")).checkpoint, Some(5000));
        assert_eq!(told(&format!("{jump}step=5001 checkpoint=5001\n")).checkpoint, Some(5001));
        assert_eq!(told(&format!("{jump}step=101\nstep=5002\nstep=5003\n")).checkpoint, None, "it was not borne out");
    }

    #[test]
    fn one_line_of_an_attempt_counts_if_it_is_not_far_beyond_the_job() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        std::fs::write(&path, "step=52000000 checkpoint=52000000\n").unwrap();
        for (known, step) in [(None, None), (Some(50_000_000), Some(52_000_000))] {
            let mut tail = Tail::default();
            tail.read(&path, known, now(), true);
            assert_eq!(tail.said.step, step, "{known:?}");
        }
    }

    #[test]
    fn the_newest_checkpoint_counts() {
        let told = told("step=9 checkpoint=9\nstep=10 checkpoint=10\nstep=7 checkpoint=7\n");
        assert_eq!((told.step, told.checkpoint), (Some(10), Some(7)));
    }

    proptest::proptest! {
        /// Whatever stands alone between true steps, and wherever: they count to the last one.
        #[test]
        fn single_bogus_lines_hold_up_no_true_step(
            first in 0_u64..5000,
            strides in proptest::collection::vec(1_u64..50, 3..60),
            bogus in proptest::collection::btree_map(0_usize..60, proptest::num::u64::ANY, 0..5),
        ) {
            let mut steps = Steps::default();
            let largest = *strides.iter().max().unwrap();
            let mut step = first;
            let mut far = Vec::new();
            for (index, stride) in strides.iter().enumerate() {
                step += stride;
                steps.take(step, None);
                let close = step + (NEAR + largest * STRIDES) * (1 + STRIDES);
                // The first steps may be anything: nothing is known yet.
                if let Some(bogus) = bogus.get(&index).filter(|bogus| index > 1 && **bogus > close) {
                    steps.take(*bogus, None);
                    far.push(*bogus);
                }
            }
            // The one after the last bogus line bears that line out or is forgotten with it: one more is certain.
            steps.take(step + 1, None);
            proptest::prop_assert_eq!(steps.reached, Some(step + 1), "not {:?}", far);
        }

        /// A program that only counts up is believed at once, in whatever regular stride.
        #[test]
        fn regular_steps_count_at_once(from in 0_u64..1 << 40, stride in 1_u64..1000, count in 1_u64..50) {
            let mut steps = Steps::default();
            for index in 1..=count {
                proptest::prop_assert!(steps.take(from + index * stride, Some(from)));
            }
            proptest::prop_assert_eq!(steps.reached, Some(from + count * stride));
        }

        /// What counts never goes back, and is always something that was written.
        #[test]
        fn what_counts_grows(lines in proptest::collection::vec(proptest::num::u64::ANY, 0..40)) {
            let (mut steps, mut known) = (Steps::default(), None);
            for line in &lines {
                let grew = steps.take(*line, None);
                proptest::prop_assert_eq!(grew, steps.reached > known);
                proptest::prop_assert!(steps.reached >= known);
                proptest::prop_assert!(steps.reached.is_none_or(|step| lines.contains(&step)));
                known = steps.reached;
            }
        }
    }

    #[test]
    fn the_first_line_that_cannot_be_read_is_told_once() {
        for (lines, what) in [
            ("\nstep=1 lr=0.1\nlr=0.1\nresumed_from=1 checkpoint=7 loss=nan\nstep=18446744073709551615\n", None),
            ("step=1\n{\"step\": 2}\nstep=3.0\n", Some(r#""{\"step\": 2}""#)),
            ("step=1.0 loss=2\n", Some(r#""step=1.0 loss=2""#)),
            ("checkpoint=last\n", Some("checkpoint=last")),
            ("resumed_from=\n", Some("resumed_from=")),
            ("loss=\n", Some("loss=")),
            ("\x1b[2Jstep 5\n", Some(r"\u{1b}[2Jstep 5")),
            ("step = 5\n", Some("step = 5")),
            ("Step=5 LOSS=2\n", Some("Step=5 LOSS=2")),
            (&format!("step=5 {}\n", "x".repeat(LINE_MAX)), Some("xxx\" (of more than 4096 bytes)")),
        ] {
            let mut tail = Tail::default();
            tail.take(lines.as_bytes(), now());
            let told = tail.complaint();
            assert_eq!(told.is_some(), what.is_some(), "{lines:?}: {told:?}");
            assert!(what.is_none_or(|what| told.unwrap().contains(what)), "{lines:?}");
            tail.take(b"step=x\n", now());
            assert_eq!(tail.complaint().is_some(), what.is_none(), "once for each attempt: {lines:?}");
        }
    }
}
