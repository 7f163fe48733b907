//! Signs that the work was done: the last step reached, and the final checkpoint written.
//!
//! **Invariant:** both are needed to call a run done that did not leave with 0. A progress bar that is full, a loop
//! that ended or a checkpoint in the middle is not enough.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::lines::{Level, Line, fixed, level};
use super::worker::{number, shown};

/// Signs that the work was done.
#[derive(Debug, Clone)]
pub(super) struct Completion {
    /// The number of the line that completed it.
    pub(super) number: usize,
    /// That line.
    pub(super) line: String,
    /// True if the last step is proven.
    pub(super) last_step: bool,
    /// True if the final checkpoint is proven.
    pub(super) final_checkpoint: bool,
}

/// A word of the trade, that must stand before a count of steps.
static STEPS: LazyLock<Regex> = LazyLock::new(|| fixed(r"(?i)(?:step|train|iter|progress|it\b).{0,60}$"));

/// Words without which no line says that the work was done.
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(?i)finish|complete|\bdone\b|ended success|reached|max_steps|final|saved|committed|wrote|written|uploaded")
});

static FINISHED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)\b(?:training|train loop|training loop|run|job|fit|finetuning|fine-tuning)\b(?: is| has| was)?",
        r"(?: now)? (?:finished|completed?|done|ended successfully)\b|\b(?:finished|completed",
        r"|done)(?: with)? (?:the )?",
        r"(?:training|train loop|fine-?tuning|all steps)\b|\btraining (?:finished|completed?|done)",
        r"|\ball (?:\d+ )?steps (?:done|completed?|finished)|\breached (?:max_steps|the last step|final step",
        r"|last step)",
        r"|`Trainer\.fit` stopped: `max_(?:steps|epochs)",
    ))
});

static NOT_FINISHED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(?i)marked as finished|pre-?empt|stopp?ed (?:at|early|by|because|after)|not |fail|error|epoch|incomplete")
});

static FINAL: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)\b(?:saved|finished saving|wrote|written|committed|finalized|uploaded)\b.{0,60}\bfinal\b.{0,40}",
        r"|\bfinal\b.{0,40}(?:checkpoint|model|weights|params|state).{0,80}(?:saved|written|committed",
        r"|finalized|done)",
        r"|\bsaved (?:the )?(?:last|final)\b",
    ))
});

static SAVED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)\b(?:saved|committed|finished saving|finalized|wrote|written|save (?:is )?(?:done|complete",
        r"|finished))\b",
        r".{0,200}?(?:\bstep[-_ =/]{0,2}|[-_/]|ckpt[-_]|checkpoint[-_ ]|at )(\d{2,})\b",
    ))
});

/// What was seen so far.
#[derive(Default)]
struct Seen {
    /// The line of the last step, and the number of steps if it was named.
    last_step: Option<(usize, String, Option<u64>)>,
    /// The line of a checkpoint called final.
    checkpoint: Option<(usize, String)>,
    /// Checkpoints with their step.
    saved: Vec<(usize, u64, String)>,
}

impl Seen {
    /// Looks at one line.
    fn look(&mut self, line: &Line<'_>) {
        let head = &line.text[..line.text.len().min(600)];
        let (counted, worded) = (count(head), WORDS.is_match(head));
        if (counted.is_none() && !worded) || (!line.progress && level(head) > Level::Unsaid) {
            return;
        }
        if let Some((step, total)) = counted {
            if step == total && !NOT_FINISHED.is_match(head) {
                self.last_step = Some((line.number, shown(line.raw), Some(step)));
            } else if step < total {
                // A later, lower count takes an earlier claim back: another loop runs.
                self.last_step = self.last_step.take().filter(|(_, _, of)| of.is_some_and(|of| of != total));
            }
        }
        if !worded {
            return;
        }
        if FINISHED.is_match(head) && !NOT_FINISHED.is_match(head) {
            self.last_step.get_or_insert((line.number, shown(line.raw), None));
        }
        if FINAL.is_match(head) {
            self.checkpoint = Some((line.number, shown(line.raw)));
        } else if let Some(step) = SAVED.captures(head).and_then(|found| number(&found[1])) {
            self.saved.push((line.number, step, shown(line.raw)));
        }
    }

    /// A checkpoint of the last step is the final one, whatever it is called. Steps are counted from 0 or from 1.
    fn checkpoint(&mut self) -> Option<(usize, String)> {
        let total = self.last_step.as_ref().and_then(|(_, _, total)| *total);
        let saved = std::mem::take(&mut self.saved);
        self.checkpoint.take().or_else(|| {
            let total = total?;
            let found = saved.into_iter().find(|(_, step, _)| *step == total || step + 1 == total)?;
            Some((found.0, found.2))
        })
    }
}

/// A count of steps in a line: `step 17/1000`, `17it/1000it`, `step 1200 of 100000`. Both numbers have two digits or
/// more, so that parts and epochs are not taken for steps. By hand, because most lines of a log hold one.
fn count(head: &[u8]) -> Option<(u64, u64)> {
    static OF: LazyLock<memchr::memmem::Finder<'static>> = LazyLock::new(|| memchr::memmem::Finder::new(" of "));
    let slashes = memchr::memchr_iter(b'/', head).map(|at| (at, at + 1));
    let words = OF.find_iter(head).map(|at| (at, at + 4));
    slashes.chain(words).find_map(|(end, start)| {
        let before = head[..end].trim_ascii_end();
        let before = before.strip_suffix(b"it").unwrap_or(before);
        let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let after = head[start..].trim_ascii_start();
        let following = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let named = |at: usize| STEPS.is_match(&head[at.saturating_sub(80)..at]);
        let first = before.len() - digits;
        if digits < 2 || following < 2 || !named(first) {
            return None;
        }
        Some((number(&before[first..])?, number(&after[..following])?))
    })
}

/// Looks for the last step and the final checkpoint.
pub(super) fn completion(streams: &[Vec<Line<'_>>]) -> Option<Completion> {
    let mut seen = Seen::default();
    for line in streams.iter().flatten() {
        seen.look(line);
    }
    let checkpoint = seen.checkpoint();
    let (number, line) = match (&seen.last_step, &checkpoint) {
        (Some(step), Some(saved)) => (step.0.max(saved.0), saved.1.clone()),
        (Some(step), None) => (step.0, step.1.clone()),
        (None, Some(saved)) => saved.clone(),
        (None, None) => return None,
    };
    Some(Completion { number, line, last_step: seen.last_step.is_some(), final_checkpoint: checkpoint.is_some() })
}
