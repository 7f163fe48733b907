//! `dead-letters`: what could not be used, and what webhooks were not told.

use jiff::Timestamp;
use rekindle_wire::v1::{DeadLetterList, DeadLetterView};
use serde_json::Value;

use super::Context;
use crate::api::{segment, typed};
use crate::args::DeadLetters;
use crate::fault::{Fault, Result};
use crate::human;
use crate::table::{Table, number, text};

/// Letters of one question.
const PAGE: usize = 500;

/// Lists them, newest first.
pub(crate) async fn run(context: &Context, options: &DeadLetters) -> Result<()> {
    let job = options.job.as_deref().map(segment).transpose()?;
    let mut letters: Vec<DeadLetterView> = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let size = (options.limit - letters.len()).clamp(1, PAGE);
        let query =
            [("job", job.map(str::to_owned)), ("page_size", Some(size.to_string())), ("page_token", token.take())];
        let page: Value = context.api.get("/v1/dead-letters", &query).await.map_err(|fault| of_no_job(fault, job))?;
        let page: DeadLetterList = typed(page)?;
        letters.extend(page.letters);
        token = page.next_page_token;
        if token.is_none() || letters.len() >= options.limit {
            break;
        }
    }
    letters.truncate(options.limit);
    if context.printer.is_json {
        return context.printer.json(&DeadLetterList { letters, next_page_token: token });
    }
    if letters.is_empty() {
        context.printer.talk("none: every message could be used, and no webhook waits or was given up (one that fails is shown after half a minute)");
        return Ok(());
    }
    context.printer.data(&table(&letters, Timestamp::now(), context.printer.width()))?;
    if let Some(told) = only_the_newest(letters.len(), token.as_deref()) {
        context.printer.talk(&told);
    }
    if letters.iter().any(|letter| letter.tried_until.is_none()) {
        context.printer.talk(
            "what is given up is not sent again, and is listed for 40 days: mend a message and publish it anew; \
             of a webhook, NOT TOLD is the phase it was not told of, and `rekindle history JOB` tells what happened then",
        );
    }
    Ok(())
}

/// That there are more, where the server says so: they are in no count.
fn only_the_newest(shown: usize, token: Option<&str>) -> Option<String> {
    token.map(|_| format!("only the newest {shown} are shown and counted; --limit {} shows more", shown * 2))
}

/// Those that are alike as one.
fn table(letters: &[DeadLetterView], now: Timestamp, width: Option<usize>) -> String {
    let mut table =
        Table::new(&[number("AGO", 0), text("JOB", 0), text("FROM", 2), text("NOT TOLD", 1), text("WHY", 0)]);
    for group in groups(letters) {
        let letter = group[0];
        // Of several webhooks each has a line of its own.
        let lines: Vec<&str> = letter.reason.lines().collect();
        let head = if lines.len() > 1 { format!("{} webhooks:", lines.len()) } else { human::tame(&letter.reason) };
        let more = more(&group, now);
        let head = head.strip_suffix(':').map_or_else(|| format!("{head}{more}"), |head| format!("{head}{more}:"));
        table.row(vec![
            human::age(letter.at, now),
            letter.job.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            human::tame(&letter.function),
            phases(&group),
            until(&head, letter.tried_until, now),
        ]);
        for line in lines.iter().filter(|_| lines.len() > 1) {
            let blank = String::new;
            table.row(vec![blank(), blank(), blank(), blank(), human::tame(&format!("  {line}"))]);
        }
    }
    table.render(width)
}

/// Letters that differ in nothing but when they came and which phase they tell of, newest first: a webhook that is wrong is wrong for each event.
fn groups(letters: &[DeadLetterView]) -> Vec<Vec<&DeadLetterView>> {
    let is_like = |one: &DeadLetterView, other: &DeadLetterView| {
        (&one.job, &one.function, &one.reason) == (&other.job, &other.function, &other.reason)
            && one.mended_by == other.mended_by
            && one.tried_until.is_some() == other.tried_until.is_some()
    };
    let mut groups: Vec<Vec<&DeadLetterView>> = Vec::new();
    for letter in letters {
        match groups.iter_mut().find(|group| is_like(group[0], letter)) {
            Some(group) => group.push(letter),
            None => groups.push(vec![letter]),
        }
    }
    groups
}

/// The phases of a group, oldest first, each once.
fn phases(group: &[&DeadLetterView]) -> String {
    let mut told: Vec<&str> = Vec::new();
    for phase in group.iter().rev().filter_map(|letter| letter.phase) {
        if !told.contains(&phase.as_str()) {
            told.push(phase.as_str());
        }
    }
    if told.is_empty() { "-".to_owned() } else { told.join(", ") }
}

/// How many there are of a group, since when, and what became of it.
fn more(group: &[&DeadLetterView], now: Timestamp) -> String {
    let mended = group[0].mended_by.as_ref().map(|job| format!("; mended since: it is job {job}")).unwrap_or_default();
    match group.split_last() {
        Some((first, rest)) if !rest.is_empty() => {
            format!(" ({} times, first {} ago){mended}", group.len(), human::age(first.at, now))
        }
        _ => mended,
    }
}

/// The list itself is always there: what was not found is the job.
fn of_no_job(fault: Fault, job: Option<&str>) -> Fault {
    match job {
        // What answers with a page of its own has its next step already.
        Some(job) if fault.status() == Some(404) && fault.names(job) => {
            fault.for_lack_of(job).next("`rekindle ps` lists the jobs")
        }
        Some(_) | None => fault,
    }
}

/// Why it failed, in one line, and until when it is tried again.
pub(super) fn why(letter: &DeadLetterView, now: Timestamp) -> String {
    until(&human::tame(&letter.brief()), letter.tried_until, now)
}

fn until(reason: &str, tried_until: Option<Timestamp>, now: Timestamp) -> String {
    let (reason, end) = reason.strip_suffix(':').map_or((reason, ""), |reason| (reason, ":"));
    match tried_until {
        Some(until) if until > now => {
            format!("{reason}; tried again for another {}{end}", human::duration(until.as_second() - now.as_second()))
        }
        Some(_) => format!("{reason}; tried once more{end}"),
        None => format!("{reason}{end}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn letter(at: i64, phase: Option<&str>, reason: &str, mended_by: Option<&str>) -> DeadLetterView {
        let at = Timestamp::from_second(at).unwrap();
        let function = if phase.is_some() { "notify" } else { "jobs" };
        serde_json::from_value(json!({
            "at": at, "function": function, "reason": reason, "job": phase.map(|_| "train"), "phase": phase,
            "tried_until": null, "mended_by": mended_by,
        }))
        .unwrap()
    }

    #[test]
    fn letters_that_are_alike_are_one_line() {
        let letters = [
            letter(500, Some("running"), "h: 404", None),
            letter(400, None, "no `run`", Some("mended")),
            letter(300, Some("starting"), "h: 404", None),
            letter(200, Some("running"), "h: 404", None),
            letter(100, Some("running"), "h: 503", None),
        ];
        let now = Timestamp::from_second(560).unwrap();
        let told: Vec<_> = groups(&letters).iter().map(|group| (phases(group), more(group, now))).collect();
        let want = [
            ("running, starting", " (3 times, first 6m ago)"),
            ("-", "; mended since: it is job mended"),
            ("running", ""),
        ];
        assert_eq!(told, want.map(|(phases, more)| (phases.to_owned(), more.to_owned())));
    }
}
