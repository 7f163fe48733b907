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

/// A word that must stand before a count of epochs.
static EPOCHS: LazyLock<Regex> = LazyLock::new(|| fixed(r"(?i)\bepochs?[\s:=\[#(]{0,4}$"));

/// Words without which no line says that the work was done.
static WORDS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)finish|complete|\bdone\b|ended success|reached|max_steps|final|saved|committed|wrote|written|uploaded",
        r"|saving|\beta: \d",
    ))
});

/// No time left, as loops print it that count down to the end of all training.
static NO_TIME_LEFT: LazyLock<Regex> = LazyLock::new(|| fixed(r"(?i)\beta: 0+:00:00\b"));

/// Some time left.
static TIME_LEFT: LazyLock<Regex> = LazyLock::new(|| fixed(r"(?i)\beta: (?:\d+ days?, )?\d+:\d\d:\d\d\b"));

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
        r"|\bsaved (?:the )?(?:last|final)\b|\b(?:saved|wrote|written|dumped)\b.{0,160}[_/.-]final(?:\b|[_.-])",
    ))
});

/// A save that begins, of a file whose name says that it is the last, or of the model of an epoch.
static SAVING: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)\bsav(?:e|ing)\b.{0,40}\b(?:model|checkpoint|weights|params|parameters|state)\b.{0,160}[_/.-]final",
        r"(?:\b|[_.-])",
        r"|\bepoch[ :=#]{1,2}0*(\d+)\b.{0,120}\bsaving (?:model|checkpoint|weights)\b",
    ))
});

/// Words of a line that does not show that the program went on.
static FAILS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(?i)error|exception|fail|abort|fault|kill|terminat|core dumped|traceback|errno|fatal|interrupt|signal")
});

static SAVED: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)\b(?:saved|committed|finished (?:async\w*[ _-]?)?(?:sav\w*|committing|writing|uploading)|finalized",
        r"|wrote|written",
        r"|save (?:is )?(?:done|complete|finished))\b",
        r".{0,200}?(?:\bstep[-_ =/]{0,2}|\biter(?:ation)?[-_ =]{1,2}|[-_/]|ckpt[-_]|checkpoint[-_ ]|at )(\d{2,})\b",
    ))
});

/// A save of the model, whichever it is.
static SAVED_MODEL: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)\b(?:saved|wrote|written|uploaded|committed)\b.{0,80}\b(?:model|checkpoint|weights|params|parameters",
        r"|state)\b",
        r"|\b(?:model|checkpoint|weights|parameters)\b(?: \w+){0,2} (?:saved|written|uploaded)\b",
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
    /// The line of the last epoch, or of the last one of a countdown, and the number of epochs if it was named. By
    /// itself it proves nothing: many programs print it when the epoch begins.
    last_round: Option<(usize, String, Option<u64>)>,
    /// True once the program said that the training is over.
    finished: bool,
    /// A save that began, and its epoch, if it names one; a later line of the program shows that it ended.
    saving: Option<(usize, String, Option<u64>)>,
}

impl Seen {
    /// Looks at one line.
    fn look(&mut self, line: &Line<'_>) {
        let head = &line.text[..line.text.len().min(600)];
        self.went_on(line, head);
        let (counted, worded) = (count(head, &STEPS, 2), WORDS.is_match(head));
        self.look_at_rounds(line, head, worded);
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
            self.finished = true;
            self.last_step.get_or_insert((line.number, shown(line.raw), None));
        }
        // What is saved once the program has said that the training is over is the last of it.
        if FINAL.is_match(head) || (self.finished && SAVED_MODEL.is_match(head) && !FAILS.is_match(head)) {
            self.checkpoint = Some((line.number, shown(line.raw)));
        } else if let Some(step) = SAVED.captures(head).and_then(|found| number(&found[1])) {
            self.saved.push((line.number, step, shown(line.raw)));
        }
    }

    /// A line of the program itself, after a save began, shows that the save came to its end.
    fn went_on(&mut self, line: &Line<'_>, head: &[u8]) {
        if self.saving.is_none() || line.code || line.native_frame || line.exception || level(head) > Level::Unsaid {
            return;
        }
        if FAILS.is_match(head) {
            self.saving = None;
        } else if let Some((number, shown, epoch)) = self.saving.take() {
            let is_last =
                epoch.is_none_or(|epoch| self.last_round.as_ref().is_some_and(|(_, _, of)| *of == Some(epoch)));
            if is_last {
                self.checkpoint = Some((number, shown));
            }
        }
    }

    /// Looks for the last epoch, the end of a countdown, and saves that begin.
    fn look_at_rounds(&mut self, line: &Line<'_>, head: &[u8], worded: bool) {
        static EPOCH: LazyLock<memchr::memmem::Finder<'static>> = LazyLock::new(|| memchr::memmem::Finder::new("poch"));
        if let Some((epoch, total)) = EPOCH.find(head).and_then(|_| count(head, &EPOCHS, 1)) {
            self.last_round = (epoch == total).then(|| (line.number, shown(line.raw), Some(total)));
        }
        if !worded || line.exception || level(head) > Level::Unsaid {
            return;
        }
        if NO_TIME_LEFT.is_match(head) {
            self.last_round.get_or_insert((line.number, shown(line.raw), None));
        } else if TIME_LEFT.is_match(head) {
            self.last_round = None;
        }
        if let Some(found) = SAVING.captures(head) {
            let epoch = found.get(1).and_then(|digits| number(digits.as_bytes()));
            self.saving = Some((line.number, shown(line.raw), epoch));
        }
    }

    /// A final checkpoint after the last epoch is the end of the work, without a word about its last step.
    fn settle(&mut self) {
        let saved_at = self.checkpoint.as_ref().map_or(0, |(number, _)| *number);
        if let Some(round) = self.last_round.take().filter(|(number, _, _)| *number < saved_at) {
            self.last_step.get_or_insert((round.0, round.1, None));
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

/// A count of steps in a line: `step 17/1000`, `17it/1000it`, `step 1200 of 100000`. Both numbers of a count of steps
/// have two digits or more, so that parts are not taken for steps. By hand, because most lines of a log hold one.
fn count(head: &[u8], names: &Regex, digits_min: usize) -> Option<(u64, u64)> {
    static OF: LazyLock<memchr::memmem::Finder<'static>> = LazyLock::new(|| memchr::memmem::Finder::new(" of "));
    let slashes = memchr::memchr_iter(b'/', head).map(|at| (at, at + 1));
    let words = OF.find_iter(head).map(|at| (at, at + 4));
    slashes.chain(words).find_map(|(end, start)| {
        let before = head[..end].trim_ascii_end();
        let before = before.strip_suffix(b"it").unwrap_or(before);
        let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let after = head[start..].trim_ascii_start();
        let following = after.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let named = |at: usize| names.is_match(&head[at.saturating_sub(80)..at]);
        let first = before.len() - digits;
        if digits < digits_min || following < digits_min || !named(first) {
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
    seen.settle();
    let checkpoint = seen.checkpoint();
    let (number, line) = match (&seen.last_step, &checkpoint) {
        (Some(step), Some(saved)) => (step.0.max(saved.0), saved.1.clone()),
        (Some(step), None) => (step.0, step.1.clone()),
        (None, Some(saved)) => saved.clone(),
        (None, None) => return None,
    };
    Some(Completion { number, line, last_step: seen.last_step.is_some(), final_checkpoint: checkpoint.is_some() })
}
