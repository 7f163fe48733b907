//! `ps`: the list of jobs, once or as it changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use owo_colors::OwoColorize as _;
use rekindle_wire::v1::JobView;
use serde_json::Value;

use super::list::{self, Listed};
use super::live::{self, News};
use super::{Context, job_path, workspace};
use crate::answers::Jobs;
use crate::api::typed;
use crate::args::Ps;
use crate::fault::Result;
use crate::human;
use crate::table::{Table, cut, number, text};

/// The list of `--watch` is drawn at least so often: ages grow.
const REDRAW_EVERY: Duration = Duration::from_secs(1);
/// Changes that may wait to be drawn.
const NEWS: usize = 256;
/// To the top left, clear to the end: the list is drawn over itself without flicker.
const REDRAW: &str = "\u{1b}[H\u{1b}[J";

/// Lists jobs.
pub(crate) async fn run(context: &Context, options: &Ps) -> Result<()> {
    if options.watch {
        return watch(context, options).await;
    }
    if context.printer.is_json {
        let (jobs, _) = list::<Value>(context, options).await?;
        return context.printer.json(&Jobs { jobs });
    }
    let (jobs, is_cut) = list::<JobView>(context, options).await?;
    if jobs.is_empty() {
        let has_filter = options.live
            || options.within.is_some()
            || options.owner.is_some()
            || options.tag.is_some()
            || !options.phase.is_empty();
        context.printer.talk(if has_filter {
            "no job is like that; `rekindle ps` without options shows the newest"
        } else {
            "no jobs; `rekindle run --tpu v5litepod-8 -- COMMAND` submits one"
        });
        return Ok(());
    }
    context.printer.data(&table(&jobs, Timestamp::now()).render(context.printer.width()))?;
    if is_cut {
        context.printer.talk(&format!("only the newest {}; --all shows more", jobs.len()));
    }
    Ok(())
}

/// The jobs in the form that is needed, and whether there are more.
pub(super) async fn list<T: Listed>(context: &Context, options: &Ps) -> Result<(Vec<T>, bool)> {
    if options.jobs.is_empty() {
        return list::jobs(context, options).await;
    }
    let mut jobs: Vec<T> = Vec::new();
    for job in &options.jobs {
        jobs.push(typed(context.api.get(&job_path(job, "")?, &[]).await?)?);
    }
    jobs.retain(|job| list::is_like(job, options));
    Ok((jobs, false))
}

/// The table of jobs.
fn table(jobs: &[JobView], now: Timestamp) -> Table {
    let mut table = Table::new(&[
        text("JOB", 0),
        text("PHASE", 0),
        number("FOR", 2),
        number("ATTEMPT", 3),
        text("TPU", 2),
        text("ZONE", 5),
        number("STEP", 1),
        text("LOSS", 6),
        number("PREEMPTED", 7),
        number("COST", 6),
        text("OWNER", 8),
        number("AGE", 4),
        text("WHY", 0),
    ]);
    for job in jobs {
        table.row(row(job, now));
    }
    table
}

fn row(job: &JobView, now: Timestamp) -> Vec<String> {
    let dash = || "-".to_owned();
    let resource = job.resources.last();
    let asked = job.spec.pointer("/tpu/accelerator");
    let asked = asked.and_then(|wanted| wanted.as_array().map_or(Some(wanted), |list| list.first()));
    let asked = asked.and_then(Value::as_str).map(str::to_owned);
    vec![
        job.id.to_string(),
        human::phase_of(job),
        human::age(job.phase_since, now),
        if job.attempt == 0 { dash() } else { job.attempt.to_string() },
        resource.map(|r| r.accelerator.clone()).or(asked).unwrap_or_else(dash),
        resource.map_or_else(dash, |r| r.zone.clone()),
        human::step(job.progress.step, job.phase, job.phase_since, now),
        job.progress.loss.as_deref().map_or_else(dash, human::loss),
        job.counters.preemptions.to_string(),
        human::usd(job.cost_usd),
        human::tame(&job.owner),
        human::age(job.created_at, now),
        short(&human::tame(&job.message)),
    ]
}

/// What stands in the last column: a provider's errors may be pages long. `explain` tells all of it.
fn short(text: &str) -> String {
    const MOST: usize = 120;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST - 1).chain(['…']).collect()
}

/// On a terminal the list is drawn over itself; else each change of a job is a line, as in `kubectl get -w`.
async fn watch(context: &Context, options: &Ps) -> Result<()> {
    let (tell, mut news) = tokio::sync::mpsc::channel(NEWS);
    let draw = async {
        let mut screen = Screen::new(context, options);
        loop {
            // Ages grow also when nothing happens.
            match tokio::time::timeout(REDRAW_EVERY, news.recv()).await {
                Ok(Some(one)) => screen.take(one)?,
                Ok(None) => return Ok::<(), crate::fault::Fault>(()),
                Err(_nothing) => {}
            }
            // A storm of changes is drawn once.
            while let Ok(one) = news.try_recv() {
                screen.take(one)?;
            }
            screen.draw()?;
        }
    };
    tokio::select! {
        ended = live::feed(context, options, &tell) => ended.map(|never| match never {}),
        ended = draw => ended,
    }
}

/// What is known of the jobs, and what of it was told.
struct Screen<'a> {
    context: &'a Context,
    options: &'a Ps,
    jobs: BTreeMap<String, Value>,
    /// Why nothing is known now.
    down: Option<String>,
}

impl<'a> Screen<'a> {
    fn new(context: &'a Context, options: &'a Ps) -> Self {
        Self { context, options, jobs: BTreeMap::new(), down: None }
    }

    fn is_drawn(&self) -> bool {
        !self.context.printer.is_json && self.context.printer.is_terminal()
    }

    fn take(&mut self, news: News) -> Result<()> {
        if let News::Down(what) = news {
            let warning = away(&what);
            // What is drawn over itself would take a line beside it away.
            if self.down.replace(what).is_none() && !self.is_drawn() {
                self.context.printer.warn(&warning);
            }
            return Ok(());
        }
        self.down = None;
        match news {
            News::All(jobs) => {
                let ids: Vec<&str> = jobs.iter().filter_map(|job| job.get("id")?.as_str()).collect();
                self.jobs.retain(|id, _| ids.contains(&id.as_str()));
                // Oldest first, so that the newest line is the last.
                jobs.into_iter().rev().try_for_each(|job| self.one(job))
            }
            News::One(job) => self.one(job),
            News::Down(_) => Ok(()),
        }
    }

    fn one(&mut self, job: Value) -> Result<()> {
        let id = job.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let known = self.jobs.insert(id.clone(), job.clone());
        let is_wanted = live::is_wanted(&job, self.options);
        if !is_wanted {
            self.jobs.remove(&id);
        }
        // The last that is told of a job is why it is not in the list any more.
        if self.is_drawn() || (!is_wanted && known.is_none()) || known.as_ref() == Some(&job) {
            return Ok(());
        }
        line(self.context, known, job)
    }

    fn draw(&self) -> Result<()> {
        if !self.is_drawn() {
            return Ok(());
        }
        let created = |job: &Value| job.get("created_at").and_then(Value::as_str).map(str::to_owned);
        let mut jobs: Vec<Value> = self.jobs.values().cloned().collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(created(job)));
        if !self.options.all {
            jobs.truncate(self.options.limit);
        }
        let jobs = jobs.into_iter().map(typed).collect::<Result<Vec<_>>>()?;
        let printer = self.context.printer;
        let text = frame(&jobs, self.down.as_deref(), (printer.width(), printer.height()), Timestamp::now());
        printer.bytes(format!("{REDRAW}{}", crate::printer::coloured(&text)).as_bytes())
    }
}

fn away(what: &str) -> String {
    format!("{what}; going on as soon as it is back")
}

/// The list as a screen of that many columns and lines has room for it: a longer one would scroll away, each second anew.
fn frame(
    jobs: &[JobView],
    down: Option<&str>,
    (width, height): (Option<usize>, Option<usize>),
    now: Timestamp,
) -> String {
    // Below the heading, and above the line where the cursor stands.
    let room = height.map_or(usize::MAX, |height| height.saturating_sub(2 + usize::from(down.is_some())).max(2));
    let shown = if jobs.len() <= room { jobs } else { &jobs[..room - 1] };
    let mut text = table(shown, now).render(width);
    let more = jobs.len() - shown.len();
    if more > 0 {
        let _ = writeln!(text, "and {more} older; `rekindle ps` lists them");
    }
    if let Some(what) = down {
        let _ = writeln!(text, "{}", cut(&away(what), width.unwrap_or(usize::MAX)).yellow());
    }
    text
}

/// One change as a line.
fn line(context: &Context, known: Option<Value>, value: Value) -> Result<()> {
    if context.printer.is_json {
        return context.printer.json_line(&value);
    }
    let job: JobView = typed(value)?;
    let known = known.map(typed::<JobView>).transpose()?;
    let shown = |job: &JobView| (job.phase, job.attempt, job.progress.step, job.message.clone());
    if known.is_some_and(|old| shown(&old) == shown(&job)) {
        return Ok(());
    }
    let step = job.progress.step.map_or_else(|| "-".to_owned(), |step| step.to_string());
    context.printer.line(&format!(
        "{}  {:<24} {:<13} attempt {:<3} step {:<8} {}",
        Timestamp::now().strftime("%H:%M:%S"),
        job.id.as_str(),
        human::phase_word(job.phase, workspace::is_workspace(&job)),
        job.attempt,
        step,
        human::tame(&job.message)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(count: usize) -> Vec<JobView> {
        let job = |n: usize| {
            serde_json::json!({
                "id": format!("job-{n}"), "phase": "pending", "phase_since": "2026-03-01T12:00:00Z", "outcome": null,
                "reason": "stockout", "message": "It waits.", "desired": "run", "attempt": 0, "generation": 0,
                "waiting_for": null, "next_wake_at": null, "resources": [],
                "counters": {
                    "preemptions": 0, "infra_failures": 0, "user_failures": 0, "stockouts": 0, "resumes": 0,
                    "steps_repeated": 0,
                },
                "progress": {"step": null, "step_at": null, "loss": null, "checkpoint": null}, "cost_usd": 0.0,
                "chip_hours": {"total": 0.0, "useful": 0.0, "repeated": 0.0, "waiting": 0.0}, "last_end": null,
                "created_at": "2026-03-01T12:00:00Z", "first_started_at": null, "submitted_by": "ada",
                "owner": "research", "tags": [], "run_id": "r1", "line": 0, "revision": 1, "spec": {},
            })
        };
        (0..count).map(|n| serde_json::from_value(job(n)).unwrap()).collect()
    }

    #[test]
    fn a_list_that_is_watched_fits_the_screen_and_says_that_its_server_is_away() {
        let frame = |count, down: Option<&str>, height| {
            let text = frame(&jobs(count), down, (Some(60), height), "2026-03-01T12:01:00Z".parse().unwrap());
            anstream::adapter::strip_str(&text).to_string().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(frame(40, None, None).len(), 41);
        // The line below the last one is the cursor's.
        assert_eq!(frame(8, None, Some(10)).len(), 9);
        let longer = frame(9, None, Some(10));
        assert_eq!((longer.len(), longer[8].as_str()), (9, "and 2 older; `rekindle ps` lists them"), "{longer:?}");
        assert!(longer[7].starts_with("job-6 "), "{longer:?}");
        // Where a job has got to says more than how long it is what it is.
        let narrow = table(&jobs(1), Timestamp::UNIX_EPOCH).render(Some(32));
        let heads: Vec<&str> = narrow.lines().next().unwrap_or_default().split_whitespace().collect();
        assert_eq!(heads, ["JOB", "PHASE", "STEP", "WHY"], "{narrow}");
        let away = frame(9, Some("cannot reach http://here"), Some(10));
        assert_eq!(away.len(), 9, "{away:?}");
        assert_eq!(away[7], "and 3 older; `rekindle ps` lists them");
        assert_eq!(away[8], "cannot reach http://here; going on as soon as it is back");
        assert_eq!(frame(9, Some(&"x".repeat(99)), Some(10))[8].chars().count(), 60, "one line of it");
        assert_eq!(frame(9, None, Some(1)).len(), 3, "what is no screen is no screen");
    }
}
