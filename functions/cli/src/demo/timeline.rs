//! The timeline of the demonstration on stderr: a line for each decision and fault, and below them, on a terminal,
//! where the program is.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use owo_colors::OwoColorize as _;
use rekindle_core::effect::Effect;
use rekindle_core::history::HistoryEntry;
use rekindle_core::job::Phase;
use rekindle_wire::v1::JobView;

use crate::human;
use crate::printer::Printer;

const TEMPLATE: &str = "        {bar:36.cyan/blue} step {pos}/{len}  {msg}";
const REDRAWS_A_SECOND: u8 = 15;

/// Where the lines go.
pub(crate) struct Timeline {
    printer: Printer,
    begin: Instant,
    bar: ProgressBar,
    /// The phase and the sentence of the last decision.
    said: RefCell<(Phase, String)>,
}

impl Timeline {
    /// A timeline that counts from `begin`.
    pub(crate) fn new(printer: Printer, begin: Instant, steps: u64) -> Self {
        // Hidden by itself where stderr is no terminal.
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(REDRAWS_A_SECOND));
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self { printer, begin, bar, said: RefCell::new((Phase::Pending, String::new())) }
    }

    /// A line without a time.
    pub(crate) fn say(&self, text: &str) {
        self.bar.suspend(|| self.printer.talk(text));
    }

    fn line(&self, what: &str, text: &str) {
        let at = format!("{:6.1} s", self.begin.elapsed().as_secs_f64());
        self.say(&format!("{} {what} {text}", at.dimmed()));
    }

    /// A decision: its sentence, or what is new where the sentence is still the same; below it what was found out.
    pub(crate) fn decision(&self, entry: &HistoryEntry) {
        let phase = human::paint(entry.to, &format!("{:<12}", entry.to.as_str()));
        let before = self.said.replace((entry.to, human::tame(&entry.message)));
        let Some((mut text, news)) = told(&before, entry) else { return };
        for effect in &entry.effects {
            match effect {
                Effect::CreateGeneration { generation } => {
                    let _ = write!(text, "  {}", format!("+ TPU {generation}").green());
                }
                Effect::DeleteGeneration { generation } => {
                    let _ = write!(text, "  {}", format!("- TPU {generation}").red());
                }
                Effect::PublishEvents => {}
            }
        }
        self.line(&phase, &text);
        for note in news.iter().filter(|note| is_worth_a_line(note)) {
            self.say(&format!("{:22}{}", "", shortened(note).dimmed()));
        }
    }

    /// A fault that was just injected.
    pub(crate) fn fault(&self, text: &str) {
        self.line(&format!("{:<12}", "FAULT").red().bold().to_string(), text);
    }

    /// Something that was measured.
    pub(crate) fn measured(&self, what: &str, took: Duration) {
        self.line(&format!("{:<12}", "measured").bold().to_string(), &format!("{what}: {}", millis(took)));
    }

    /// Where the program is.
    pub(crate) fn progress(&self, job: &JobView) {
        self.bar.set_position(job.progress.step.unwrap_or(0));
        let loss = job.progress.loss.as_deref().unwrap_or("-");
        let checkpoint = job.progress.checkpoint.map_or_else(|| "-".to_owned(), |step| step.to_string());
        self.bar.set_message(format!(
            "loss {}  checkpoint {checkpoint}  attempt {} on TPU {}",
            human::loss(loss),
            job.attempt,
            job.generation
        ));
    }

    /// Takes the bar away; the lines stay.
    pub(crate) fn close(&self) {
        self.bar.finish_and_clear();
    }
}

/// What is said of a decision behind the phase and sentence of the one before: its own sentence, or what is new where that is the same; and
/// what else was found out. `None`: nothing that was not said.
fn told(before: &(Phase, String), entry: &HistoryEntry) -> Option<(String, Vec<String>)> {
    let mut news = human::news(entry);
    let text = human::tame(&entry.message);
    if before.1 != text {
        return Some((text, news));
    }
    if !news.is_empty() {
        return Some((news.remove(0), news));
    }
    let acts = entry.effects.iter().any(|effect| !matches!(effect, Effect::PublishEvents));
    (before.0 != entry.to || acts).then_some((text, news))
}

/// Causes and resumes; the rest stands in the line above, or in `rekindle history`. Only a matter of taste: a note that
/// is worded otherwise one day is shown less.
fn is_worth_a_line(note: &str) -> bool {
    [" ended (", " resumed from ", " is explained by "].iter().any(|words| note.contains(words))
}

/// Notes may quote whole lines of a program's output.
fn shortened(note: &str) -> String {
    const LONGEST: usize = 160;
    if note.chars().count() <= LONGEST {
        return note.to_owned();
    }
    note.chars().take(LONGEST - 1).chain(['…']).collect()
}

/// `38 ms`, `4.1 s`.
pub(crate) fn millis(took: Duration) -> String {
    if took < Duration::from_secs(1) {
        format!("{} ms", took.as_millis())
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_decision_is_said_twice() {
        let entry = |notes: &[&str], effects: &[Effect]| -> HistoryEntry {
            let value = serde_json::json!({
                "revision": 1, "at": "2026-03-01T12:00:00Z", "cause": "tick", "actor": "rekindle", "from": "recovering",
                "to": "recovering", "reason": "settling", "message": "It waits.", "notes": notes, "effects": effects,
                "attempt": 1, "generation": 1,
            });
            serde_json::from_value(value).unwrap()
        };
        let said = (Phase::Recovering, "It waits.".to_owned());
        let words = |before: &(Phase, String), entry: &HistoryEntry| told(before, entry).map(|(text, _)| text);
        assert_eq!(words(&said, &entry(&[], &[Effect::PublishEvents])), None);
        assert_eq!(words(&said, &entry(&["a note"], &[])).as_deref(), Some("a note"));
        let makes = Effect::CreateGeneration { generation: 2 };
        for (before, effect) in [(said.clone(), makes), ((Phase::Running, said.1.clone()), Effect::PublishEvents)] {
            assert_eq!(words(&before, &entry(&[], &[effect])).as_deref(), Some("It waits."), "{before:?}");
        }
    }
}
