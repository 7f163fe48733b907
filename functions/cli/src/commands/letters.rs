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
    let mut table =
        Table::new(&[number("AGO", 0), text("JOB", 0), text("FROM", 2), text("NOT TOLD", 1), text("WHY", 0)]);
    let now = Timestamp::now();
    let is_given_up = letters.iter().any(|letter| letter.tried_until.is_none());
    for letter in letters {
        // Of several webhooks each has a line of its own.
        let lines: Vec<&str> = letter.reason.lines().collect();
        let head = if lines.len() > 1 { format!("{} webhooks:", lines.len()) } else { human::tame(&letter.reason) };
        table.row(vec![
            human::age(letter.at, now),
            letter.job.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string),
            human::tame(&letter.function),
            letter.phase.map_or_else(|| "-".to_owned(), |phase| phase.as_str().to_owned()),
            until(&head, letter.tried_until, now),
        ]);
        for line in lines.iter().filter(|_| lines.len() > 1) {
            let blank = String::new;
            table.row(vec![blank(), blank(), blank(), blank(), human::tame(&format!("  {line}"))]);
        }
    }
    context.printer.data(&table.render(context.printer.width()))?;
    if is_given_up {
        context.printer.talk(
            "what is given up is not sent again: mend a message and publish it anew; \
             of a webhook, NOT TOLD is the phase it was not told of, and `rekindle history JOB` tells what happened then",
        );
    }
    Ok(())
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
