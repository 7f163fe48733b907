//! `history`: every decision about a job, oldest first.

use std::fmt::Write as _;

use jiff::Timestamp;
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
    let mut run = Repeats::default();
    while let Some(entries) = pages.next(context).await? {
        for entry in entries {
            if context.printer.is_json {
                context.printer.json_line(&entry)?;
            } else {
                context.printer.data(&run.text(typed(entry)?, options.verbose))?;
            }
        }
    }
    context.printer.data(&run.end())
}

/// Entries that say nothing but what the one above them said: a phase that goes on is recorded anew with each look that changed
/// something within.
#[derive(Default)]
struct Repeats {
    shown: Option<HistoryEntry>,
    count: u64,
    last: Option<Timestamp>,
}

impl Repeats {
    /// What is shown of the next entry; nothing, if it repeats the one that is shown.
    fn text(&mut self, entry: HistoryEntry, is_verbose: bool) -> String {
        if self.shown.as_ref().is_some_and(|shown| repeats(shown, &entry, is_verbose)) {
            self.count += 1;
            self.last = Some(entry.at);
            return String::new();
        }
        let above = self.end();
        let own = text(&entry, is_verbose);
        self.shown = Some(entry);
        above + &own
    }

    /// How often the entry that is shown was repeated.
    fn end(&mut self) -> String {
        let (shown, count, last) = (self.shown.take(), std::mem::take(&mut self.count), self.last.take());
        let (Some(shown), Some(last)) = (shown, last) else { return String::new() };
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        let day = |at: Timestamp| at.strftime("%Y-%m-%d").to_string();
        // The entry that is shown tells its own day.
        let format = if day(shown.at) == day(last) { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
        let told = format!("the same {times} more, until {}", last.strftime(format));
        format!("{:20}{}\n", "", told.dimmed())
    }
}

/// Whether an entry adds nothing to the one that is shown.
fn repeats(shown: &HistoryEntry, entry: &HistoryEntry, is_verbose: bool) -> bool {
    let place = |entry: &HistoryEntry| (entry.to, entry.attempt, entry.generation);
    let is_news = entry.from != entry.to || place(shown) != place(entry) || shown.message != entry.message;
    let details = details(entry, is_verbose);
    !is_news && (details.is_empty() || details == self::details(shown, is_verbose))
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
    out += &details(entry, is_verbose);
    out
}

/// The lines below an entry: what was done, and what else was seen.
fn details(entry: &HistoryEntry, is_verbose: bool) -> String {
    let mut out = String::new();
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(at: u32, from: &str, message: &str, effects: &Value, notes: &[&str]) -> HistoryEntry {
        let entry = json!({
            "revision": at, "at": format!("2026-01-01T10:00:0{at}Z"), "cause": "hint", "actor": "rekindle", "from": from,
            "to": "provisioning", "reason": "creating", "message": message, "notes": notes, "effects": effects, "attempt": 1,
            "generation": 1,
        });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn what_only_repeats_is_counted_and_what_differs_is_shown() {
        let create = json!([{"effect": "create_generation", "generation": 1}]);
        let none = json!([]);
        let all = [
            entry(1, "pending", "asked for", &create, &[]),
            entry(2, "provisioning", "asked for", &none, &[]),
            entry(3, "provisioning", "asked for", &none, &[]),
            entry(4, "provisioning", "asked for", &none, &["node seen CREATING"]),
            entry(5, "provisioning", "asked for", &none, &["node seen CREATING"]),
            entry(6, "provisioning", "is made", &none, &[]),
        ];
        let shown = |is_verbose: bool| {
            let mut run = Repeats::default();
            let text: String = all.iter().map(|entry| run.text(entry.clone(), is_verbose)).collect();
            anstream::adapter::strip_str(&(text + &run.end())).to_string()
        };
        let want = "\
2026-01-01 10:00:01 a1 g1   pending -> provisioning: asked for
                    creates generation 1
                    the same 2 times more, until 10:00:03
2026-01-01 10:00:04 a1 g1   provisioning: asked for
                    node seen CREATING
                    the same once more, until 10:00:05
2026-01-01 10:00:06 a1 g1   provisioning: is made
";
        assert_eq!(shown(false), want);
        // There each has its cause.
        assert_eq!(shown(true).matches("because of hint").count(), 4, "{}", shown(true));
    }

    #[test]
    fn the_last_of_what_repeats_has_a_day_where_it_is_another() {
        let none = json!([]);
        let until = |last: &str| {
            let mut run = Repeats::default();
            drop(run.text(entry(1, "pending", "asked for", &none, &[]), false));
            let mut again = entry(2, "provisioning", "asked for", &none, &[]);
            again.at = last.parse().unwrap();
            assert_eq!(run.text(again, false), "");
            anstream::adapter::strip_str(&run.end()).to_string()
        };
        assert!(until("2026-01-01T23:59:59Z").ends_with(" more, until 23:59:59\n"));
        assert!(until("2026-01-03T09:12:03Z").ends_with(" more, until 2026-01-03 09:12:03\n"));
    }
}
