//! `ps`: the list of jobs, once or as it changes.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use rekindle_wire::v1::JobView;
use serde_json::Value;

use super::list::{self, Listed};
use super::live::{self, News};
use super::{Context, job_path};
use crate::answers::Jobs;
use crate::api::typed;
use crate::args::Ps;
use crate::fault::Result;
use crate::human;
use crate::table::{Table, number, text};

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
        number("FOR", 1),
        number("ATTEMPT", 3),
        text("TPU", 2),
        text("ZONE", 5),
        number("STEP", 2),
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
    is_down: bool,
}

impl<'a> Screen<'a> {
    fn new(context: &'a Context, options: &'a Ps) -> Self {
        Self { context, options, jobs: BTreeMap::new(), is_down: false }
    }

    fn is_drawn(&self) -> bool {
        !self.context.printer.is_json && self.context.printer.is_terminal()
    }

    fn take(&mut self, news: News) -> Result<()> {
        if let News::Down(what) = news {
            if !std::mem::replace(&mut self.is_down, true) {
                self.context.printer.warn(&format!("{what}; going on as soon as it is back"));
            }
            return Ok(());
        }
        self.is_down = false;
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
        let text = table(&jobs.into_iter().map(typed).collect::<Result<Vec<_>>>()?, Timestamp::now())
            .render(self.context.printer.width());
        self.context.printer.bytes(format!("{REDRAW}{}", crate::printer::coloured(&text)).as_bytes())
    }
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
        job.phase.as_str(),
        job.attempt,
        step,
        human::tame(&job.message)
    ))
}
