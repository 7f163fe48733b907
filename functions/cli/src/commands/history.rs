//! `history`: every decision about a job, oldest first.

use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use rekindle_core::effect::Effect;
use rekindle_core::history::HistoryEntry;
use serde_json::Value;

use super::{Context, job_path, workspace};
use crate::api::typed;
use crate::args::History;
use crate::fault::Result;
use crate::human;

/// Entries of one page.
pub(super) const PAGE: &str = "500";

/// Shows the history, page by page, as it comes.
pub(crate) async fn run(context: &Context, options: &History) -> Result<()> {
    let mut pages = Pages::of(&options.job)?;
    workspace::tell_follower_of(context, &options.job).await;
    while let Some(entries) = pages.next(context).await? {
        for entry in entries {
            if context.printer.is_json {
                context.printer.json_line(&entry)?;
            } else {
                context.printer.data(&text(&typed::<HistoryEntry>(entry)?, options.verbose))?;
            }
        }
    }
    Ok(())
}

/// The whole history of a job, oldest first, page by page.
pub(super) struct Pages {
    path: String,
    token: Option<String>,
    is_over: bool,
}

impl Pages {
    /// Of that job.
    pub(super) fn of(job: &str) -> Result<Self> {
        Ok(Self { path: job_path(job, "/history")?, token: None, is_over: false })
    }

    /// The next page; `None` after the last.
    pub(super) async fn next(&mut self, context: &Context) -> Result<Option<Vec<Value>>> {
        if self.is_over {
            return Ok(None);
        }
        let query = [("page_size", Some(PAGE.to_owned())), ("page_token", self.token.take())];
        let mut value = context.api.get(&self.path, &query).await?;
        self.token = value.get("next_page_token").and_then(Value::as_str).map(str::to_owned);
        self.is_over = self.token.is_none();
        typed(value.get_mut("entries").map(Value::take).unwrap_or_default()).map(Some)
    }
}

fn text(entry: &HistoryEntry, is_verbose: bool) -> String {
    let at = entry.at.strftime("%Y-%m-%d %H:%M:%S");
    let change = if entry.from == entry.to {
        human::phase(entry.to)
    } else {
        format!("{} -> {}", human::phase(entry.from), human::phase(entry.to))
    };
    let place = format!("a{} g{}", entry.attempt, entry.generation);
    let mut out = format!("{} {:<7} {change}: {}\n", at.dimmed(), place.dimmed(), human::tame(&entry.message));
    let effects: Vec<String> = entry.effects.iter().filter_map(effect).collect();
    if !effects.is_empty() {
        let _ = writeln!(out, "{:20}{}", "", effects.join(", ").cyan());
    }
    let cause = human::tame(&format!("by {} because of {}", entry.actor, entry.cause));
    for note in is_verbose.then_some(cause).into_iter().chain(human::news(entry)) {
        let _ = writeln!(out, "{:20}{}", "", note.dimmed());
    }
    out
}

/// What was done to the world; telling others of it is not worth a line.
fn effect(of: &Effect) -> Option<String> {
    match of {
        Effect::CreateGeneration { generation } => Some(format!("creates generation {generation}")),
        Effect::DeleteGeneration { generation } => Some(format!("deletes generation {generation}")),
        Effect::PublishEvents => None,
    }
}
