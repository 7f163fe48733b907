//! `history`: every decision about a job, oldest first.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use owo_colors::OwoColorize as _;
use rekindle_core::effect::Effect;
use rekindle_core::history::{AttemptEnd, HistoryEntry};
use serde_json::Value;

use super::{Context, job_path};
use crate::api::typed;
use crate::args::History;
use crate::fault::Result;
use crate::human;

const PAGE: &str = "500";

/// Shows the history, page by page, as it comes.
pub(crate) async fn run(context: &Context, options: &History) -> Result<()> {
    let path = job_path(&options.job, "/history")?;
    let mut token: Option<String> = None;
    loop {
        let query = [("page_size", Some(PAGE.to_owned())), ("page_token", token)];
        let mut value = context.api.get(&path, &query).await?;
        let entries: Vec<Value> = typed(value.get_mut("entries").map(Value::take).unwrap_or_default())?;
        for entry in entries {
            if context.printer.is_json {
                context.printer.json_line(&entry)?;
            } else {
                context.printer.data(&text(&typed::<HistoryEntry>(entry)?, options.verbose))?;
            }
        }
        token = value.get("next_page_token").and_then(Value::as_str).map(str::to_owned);
        if token.is_none() {
            return Ok(());
        }
    }
}

/// The ends of a job's attempts, read on from where the last question ended.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    /// The revision up to which it was read: what the next page begins behind.
    read_to: Option<u64>,
    known: BTreeMap<u32, AttemptEnd>,
}

impl Ends {
    /// How an attempt ended. `None`: it has not, or not for a reason that was judged.
    pub(crate) async fn of(&mut self, context: &Context, job: &str, attempt: u32) -> Result<Option<AttemptEnd>> {
        let path = job_path(job, "/history")?;
        loop {
            if let Some(end) = self.known.get(&attempt) {
                return Ok(Some(end.clone()));
            }
            let query = [("page_size", Some(PAGE.to_owned())), ("page_token", self.read_to.map(|n| n.to_string()))];
            let mut value = context.api.get(&path, &query).await?;
            let entries: Vec<HistoryEntry> = typed(value.get_mut("entries").map(Value::take).unwrap_or_default())?;
            // Also where that was all there is: the end of a later attempt stands behind it.
            self.read_to = entries.last().map(|entry| entry.revision).or(self.read_to);
            self.known.extend(entries.into_iter().filter_map(|entry| entry.ended).map(|end| (end.attempt, end)));
            if value.get("next_page_token").is_none_or(Value::is_null) {
                return Ok(self.known.get(&attempt).cloned());
            }
        }
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
    let cause = format!("by {} because of {}", entry.actor, entry.cause);
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
