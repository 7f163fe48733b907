//! The timeline of the demonstration on stderr: a line for each decision and fault, and below them, on a terminal, where
//! the program is.

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
}

impl Timeline {
    /// A timeline that counts from `begin`.
    pub(crate) fn new(printer: Printer, begin: Instant, steps: u64) -> Self {
        // Hidden by itself where stderr is no terminal.
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(REDRAWS_A_SECOND));
        if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
            bar.set_style(style.progress_chars("━━─"));
        }
        Self { printer, begin, bar }
    }

    /// A line without a time.
    pub(crate) fn say(&self, text: &str) {
        self.bar.suspend(|| self.printer.talk(text));
    }

    fn line(&self, what: &str, text: &str) {
        let at = format!("{:6.1} s", self.begin.elapsed().as_secs_f64());
        self.say(&format!("{} {what} {text}", at.dimmed()));
    }

    /// A decision.
    pub(crate) fn decision(&self, entry: &HistoryEntry) {
        let phase = human::paint(entry.to, &format!("{:<12}", entry.to.as_str()));
        let mut text = human::tame(&entry.message);
        for effect in &entry.effects {
            match effect {
                Effect::CreateGeneration { generation } => {
                    text.push_str(&format!("  {}", format!("+ generation {generation}").green()));
                }
                Effect::DeleteGeneration { generation } => {
                    text.push_str(&format!("  {}", format!("- generation {generation}").red()));
                }
                Effect::PublishEvents => {}
            }
        }
        self.line(&phase, &text);
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
            human::tame(loss),
            job.attempt,
            job.generation
        ));
    }

    /// Takes the bar away; the lines stay.
    pub(crate) fn close(&self) {
        self.bar.finish_and_clear();
    }
}

/// `38 ms`, `4.1 s`.
pub(crate) fn millis(took: Duration) -> String {
    if took < Duration::from_secs(1) {
        format!("{} ms", took.as_millis())
    } else {
        format!("{:.1} s", took.as_secs_f64())
    }
}
