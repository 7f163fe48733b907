//! The tail of one worker cut so that it tells the same: for slices of so many workers that all tails together are too much.

use std::ops::Range;

use super::evidence::{Exit, WorkerEvidence};
use super::exit::is_bare_sigterm;
use super::lines::{Line, plain, streams};
use super::worker::{Account, account, strength, waiting};

/// The tail of a worker in at most `max` bytes, or `None` if it has no more: its end, and before that the lines that its causes, the moment at
/// which it failed and its last steps are read from, each with what stands around it.
///
/// Between them a line says how much is left out. Escape sequences of terminals are left out, too.
pub fn shorten(worker: &WorkerEvidence, max: usize) -> Option<String> {
    if worker.tail.len() <= max {
        return None;
    }
    let text = plain(&worker.tail);
    let streams = streams(&text);
    let mut lines: Vec<&Line<'_>> = streams.iter().flatten().collect();
    lines.sort_unstable_by_key(|line| line.number);
    let mut kept = Kept { ranges: Vec::new(), left: max / 2 };
    for (number, around) in keys(&account(worker, false), &streams, max / 32) {
        if let Ok(place) = lines.binary_search_by_key(&number, |line| line.number) {
            kept.keep(&lines, place, around);
        }
    }
    // Marks of what is left out take their part, one before each range.
    let marks = (kept.ranges.len() + 1) * MARK_BYTES;
    let used: usize = kept.ranges.iter().map(Range::len).sum();
    let end = text.len() - max.saturating_sub(used + marks).min(text.len());
    // From the beginning of a line on, unless the last one is longer than all that may stay.
    let after = memchr::memchr(b'\n', &text[end..]).map_or(text.len(), |at| end + at + 1);
    let end = if after < text.len() { after } else { end };
    kept.ranges.push(end..text.len());
    Some(joined(&text, kept.ranges))
}

/// A line that says what is left out has no more bytes.
const MARK_BYTES: usize = 64;

/// Of one line so much stays at most.
const LINE_BYTES_MAX: usize = 1024;

struct Kept {
    ranges: Vec<Range<usize>>,
    /// Bytes that may still be kept.
    left: usize,
}

impl Kept {
    /// Keeps a line, and as many whole lines before and after it as there are within so many bytes; nothing if there is no room for it.
    fn keep(&mut self, lines: &[&Line<'_>], place: usize, around: usize) {
        let line = lines[place];
        let end_of = |line: &Line<'_>| line.start + line.raw.len().min(LINE_BYTES_MAX) + 1;
        let before = lines[..place].iter().rev().map(|l| l.start).take_while(|start| start + around >= line.start);
        let after = lines[place + 1..].iter().map(|l| end_of(l)).take_while(|end| *end <= end_of(line) + around);
        let range = before.last().unwrap_or(line.start)..after.last().unwrap_or_else(|| end_of(line));
        let costs = range.len() + MARK_BYTES;
        if costs <= self.left {
            self.left -= costs;
            self.ranges.push(range);
        }
    }
}

/// The numbers of the lines that matter, those that matter most first, each with the bytes around it that do.
fn keys(account: &Account<'_>, streams: &[Vec<Line<'_>>], around: usize) -> Vec<(usize, usize)> {
    let told = || account.causes.iter().filter(|cause| cause.number < usize::MAX);
    let failed = told().filter(|c| c.strength >= strength::ECHO && !is_bare_sigterm(c)).map(|c| c.number).min();
    let terminated = told().filter(|c| is_bare_sigterm(c)).map(|c| c.number).min();
    // What was overcome would not be without the steps after it.
    let steps = streams.iter().flat_map(|lines| lines.iter().rev().filter(|line| line.progress).take(2));
    let steps = steps.take(STEPS).map(|line| (line.number, 0));
    let first = told().next().map(|cause| (cause.number, 4 * around));
    let waits = streams.iter().find_map(|lines| waiting(lines)).filter(|_| account.exit == Exit::Silent);
    let waits = waits.map(|line| line.number);
    let moments = [failed, terminated, account.completed.as_ref().map(|done| done.number), waits];
    let moments = moments.into_iter().flatten().map(|number| (number, around));
    let others = told().skip(1).take(OTHERS).map(|cause| (cause.number, around));
    steps.chain(first).chain(moments).chain(others).collect()
}

/// So many steps are kept, of all streams together.
const STEPS: usize = 4;

/// So many causes beside the strongest are kept: those that a verdict shows.
const OTHERS: usize = 3;

/// The ranges in their order, with a line between those that do not touch.
fn joined(text: &[u8], mut ranges: Vec<Range<usize>>) -> String {
    ranges.sort_unstable_by_key(|range| range.start);
    let (mut told, mut through) = (Vec::new(), 0);
    for range in ranges {
        let range = range.start.max(through)..range.end.min(text.len());
        if range.is_empty() {
            continue;
        }
        if range.start > through {
            if told.last().is_some_and(|last| *last != b'\n') {
                told.push(b'\n');
            }
            // Read as a new speaker, which ends what an exception before it says.
            told.extend_from_slice(
                format!("*** rekindle: {} bytes are left out ***\n", range.start - through).as_bytes(),
            );
        }
        told.extend_from_slice(&text[range.clone()]);
        through = range.end;
    }
    String::from_utf8_lossy(&told).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::{Evidence, classify};

    const MAX: usize = 8 << 10;

    fn buried(said: &str) -> WorkerEvidence {
        let talk = |n: usize| format!("I0827 11:58:{:02}.{n:06} 77 transport.cc:11] a call took {n} us\n", n % 60);
        let talk: String = (0..600).map(talk).collect();
        WorkerEvidence { exit: Exit::Code(1), tail: format!("{talk}{said}\n{talk}"), ..WorkerEvidence::default() }
    }

    #[test]
    fn what_is_short_is_left_as_it_is() {
        let worker = WorkerEvidence { tail: "x".repeat(MAX), ..WorkerEvidence::default() };
        assert_eq!(shorten(&worker, MAX), None);
    }

    #[test]
    fn the_cause_is_kept_with_what_stands_around_it_and_so_is_the_end() {
        let said = "step 17 loss=2.5\nTraceback (most recent call last):\n  File \"train.py\", line 7, in <module>\n    f(x)\nValueError: shapes differ";
        let worker = buried(said);
        let short = shorten(&worker, MAX).unwrap();
        assert!(short.len() <= MAX && short.contains(said), "{} bytes: {short}", short.len());
        assert!(worker.tail.ends_with(&short[short.len() - 2000..]), "the end is the end");
        assert_eq!(short.matches("bytes are left out ***\n").count(), 2, "{short}");
        assert!(short.starts_with("*** rekindle: "));
    }

    #[test]
    fn one_endless_line_and_letters_of_several_bytes_are_cut_too() {
        for tail in ["é".repeat(40_000), format!("{}\n{}", "é".repeat(40_000), "o".repeat(40_000)), "\n".repeat(40_000)]
        {
            let worker = WorkerEvidence { tail, ..WorkerEvidence::default() };
            let short = shorten(&worker, MAX).unwrap();
            assert!(!short.is_empty() && short.len() <= MAX + 8, "{} bytes", short.len());
        }
    }

    #[test]
    fn what_was_overcome_stays_overcome() {
        let worker = buried("ConnectionError: connection reset\nstep 18 loss=2.4\nstep 19 loss=2.3\nstep 20 loss=2.2");
        let verdict = |worker: WorkerEvidence| classify(&Evidence { workers: vec![worker], ..Evidence::default() });
        let short = WorkerEvidence { tail: shorten(&worker, MAX).unwrap(), ..worker.clone() };
        assert_eq!(verdict(short), verdict(worker));
    }
}
