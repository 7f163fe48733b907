//! The timeline of the demonstration on stderr: a line for each decision and fault, and below them, on a terminal,
//! where the program is.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use owo_colors::OwoColorize as _;
use rekindle_core::effect::Effect;
use rekindle_core::history::HistoryEntry;
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
    /// The sentence of the last decision.
    said: RefCell<String>,
}

impl Timeline {
    /// A timeline that counts from `begin`.
    pub(crate) fn new(printer: Printer, begin: Instant, steps: u64) -> Self {
        // Hidden by itself where stderr is no terminal.
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(REDRAWS_A_SECOND));
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self { printer, begin, bar, said: RefCell::default() }
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
        let mut news = human::news(entry).into_iter();
        let mut text = human::tame(&entry.message);
        if self.said.borrow().as_str() == text
            && let Some(first) = news.next()
        {
            text = first;
        }
        self.said.replace(human::tame(&entry.message));
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
        for note in news.filter(|note| is_worth_a_line(note)) {
            self.say(&format!("{:22}{}", "", shortened(&note).dimmed()));
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
