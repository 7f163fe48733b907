//! `show`: one job for a person.

use std::fmt::Write as _;

use jiff::Timestamp;
use owo_colors::OwoColorize as _;
use rekindle_core::account::hours_text;
use rekindle_core::job::Phase;
use rekindle_wire::v1::{JobView, ResourceView};
use serde_json::Value;

use super::{Context, job_path, letters, timeline, workspace};
use crate::api::typed;
use crate::args::Show;
use crate::fault::Result;
use crate::human;

/// Shows a job.
pub(crate) async fn run(context: &Context, options: &Show) -> Result<()> {
    let value = context.api.get(&job_path(&options.job, "")?, &[]).await?;
    if context.printer.is_json {
        return context.printer.json(&value);
    }
    let job: JobView = typed(value)?;
    workspace::tell_follower(context, &job).await;
    let now = Timestamp::now();
    context.printer.data(&text(&job, now, context.printer.width()))?;
    context.printer.data(&timeline::of(context, &job, now).await?)?;
    if options.spec {
        context.printer.line(&format!("\n{}", human::json(&job.spec)))?;
        context.printer.data(&defaults(&job))?;
    }
    Ok(())
}

/// What the spec leaves to the deployment.
fn defaults(job: &JobView) -> String {
    let mut out = String::new();
    for (field, value) in &job.defaults {
        let value = match value {
            Value::Array(items) => items.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            Value::String(text) => text.clone(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => value.to_string(),
        };
        let _ = writeln!(out, "  {field}: {}", human::tame(&value));
    }
    if out.is_empty() { out } else { format!("\nnot in the spec, and so by this deployment:\n{out}") }
}

/// Columns before a value.
const INDENT: usize = 13;

/// The job in lines of `name  value`, on a terminal of so many columns.
pub(crate) fn text(job: &JobView, now: Timestamp, width: Option<usize>) -> String {
    let mut out = String::new();
    let since = match now.as_second() - job.phase_since.as_second() {
        ..1 => "just now".to_owned(),
        secs => format!("for {}", human::duration(secs)),
    };
    let _ = writeln!(out, "{}  {} {since}", job.id.bold(), human::phase_of(job));
    let mut line = |name: &str, value: String| {
        let value = width.map_or_else(|| value.clone(), |width| human::hung(&value, INDENT, width));
        let _ = writeln!(out, "  {:<10} {value}", name.dimmed());
    };
    line("why", format!("{} ({})", human::tame(&job.message), job.reason.name()));
    if let Some(what) = &job.waiting_for {
        let look = job.next_wake_at.map(|at| human::until(at, now));
        // Why it is there may be what it waits for.
        match (repeats(&job.message, what), look) {
            (false, Some(look)) => line("waits for", format!("{}, next look {look}", human::tame(what))),
            (false, None) => line("waits for", human::tame(what)),
            (true, Some(look)) => line("next look", look),
            (true, None) => {}
        }
    }
    for resource in &job.resources {
        line("tpu", self::resource(resource, now));
    }
    line(
        "attempt",
        match job.attempt {
            0 => "none yet".to_owned(),
            attempt => format!("{attempt} on generation {}", job.generation),
        },
    );
    if let Some(progress) = progress(job, now) {
        line("progress", progress);
    }
    line("so far", counters(job));
    line("cost", cost(job));
    if let Some(end) = &job.last_end {
        let kind = end.kind.map_or("ended", rekindle_core::failure::FailureKind::as_str);
        let (attempt, ago) = (end.attempt, human::age(end.at, now));
        let summary = if repeats(&job.message, &end.summary) {
            String::new()
        } else {
            format!(": {}", human::tame(&end.summary))
        };
        line("last end", format!("attempt {attempt}, {ago} ago: {kind}{summary}"));
    }
    if let Some(untold) = &job.untold {
        let (ago, reason) = (human::age(untold.at, now), letters::why(untold, now));
        let what = untold.phase.map_or("an event", |phase| phase.as_str());
        let when = if untold.tried_until.is_some() {
            "is not told yet".to_owned()
        } else {
            format!("was not told, {ago} ago")
        };
        let why = format!("{what} {when}: {reason} (rekindle dead-letters {})", job.id);
        line("webhook", why.yellow().to_string());
    }
    if let Some(code) = code(job) {
        line("code", code);
    }
    if let Some(notes) = job.spec.get("notes").and_then(Value::as_str) {
        line("notes", human::one_line(notes));
    }
    line("owner", owner(job));
    line("submitted", format!("{} ago by {}", human::age(job.created_at, now), human::tame(&job.submitted_by)));
    out
}

/// True when a text is said already at the beginning of another.
fn repeats(said: &str, text: &str) -> bool {
    let text = text.trim().trim_end_matches('.');
    !text.is_empty() && said.trim().starts_with(text)
}

fn resource(resource: &ResourceView, now: Timestamp) -> String {
    let mut text = format!(
        "{} {} in {}, {} ({}, generation {})",
        resource.accelerator,
        resource.capacity.as_str(),
        resource.zone,
        resource.name,
        resource.state,
        resource.generation
    );
    if let Some(deadline) = resource.notice_deadline {
        let _ = write!(text, ", {}", format!("taken away {}", human::until(deadline, now)).yellow());
    }
    text
}

/// What the program last told; `None` when it tells nothing.
fn progress(job: &JobView, now: Timestamp) -> Option<String> {
    let step = job.progress.step?;
    let mut text = format!("step {step}");
    // Workers tell it now and then; lists ask one of them alone, and may be older.
    if let Some(at) = job.progress.step_at.filter(|_| job.phase == Phase::Running) {
        let _ = write!(text, " {} ago", human::age(at, now));
    }
    if let Some(loss) = &job.progress.loss {
        let _ = write!(text, ", loss {}", human::loss(loss));
    }
    if let Some(checkpoint) = job.progress.checkpoint {
        let _ = write!(text, ", checkpoint {checkpoint}");
    }
    Some(text)
}

fn counters(job: &JobView) -> String {
    let counters = &job.counters;
    let named = [
        (u64::from(counters.preemptions), "preemption"),
        (u64::from(counters.infra_failures), "infra failure"),
        (u64::from(counters.user_failures), "user failure"),
        (u64::from(counters.stockouts), "stockout"),
        (u64::from(counters.resumes), "resume"),
    ];
    let mut parts: Vec<String> = named.iter().filter(|(n, _)| *n > 0).map(|(n, word)| human::count(*n, word)).collect();
    if counters.steps_repeated > 0 {
        parts.push(format!("{} repeated", human::count(counters.steps_repeated, "step")));
    }
    if parts.is_empty() { "nothing happened to it".to_owned() } else { parts.join(", ") }
}

fn cost(job: &JobView) -> String {
    let hours = &job.chip_hours;
    format!(
        "{} for {} chip hours: {} useful, {} repeated, {} waiting, {} idle",
        human::usd(job.cost_usd),
        hours_text(hours.total),
        hours_text(hours.useful),
        hours_text(hours.repeated),
        hours_text(hours.waiting),
        hours_text(hours.idle)
    )
}

/// Which bytes run, and where they come from.
fn code(job: &JobView) -> Option<String> {
    let address = job.spec.get("code")?.as_str()?;
    let name = address.rsplit('/').next().unwrap_or(address).trim_end_matches(".tar.zst");
    let mut text = format!("bundle {}", name.chars().take(12).collect::<String>());
    if let Some(source) = job.spec.get("source") {
        let field = |name: &str| source.get(name).and_then(Value::as_str);
        let _ = write!(text, " of {}", field("folder").unwrap_or("a folder"));
        if let Some(commit) = field("commit") {
            let _ = write!(text, ", commit {}", commit.chars().take(10).collect::<String>());
        }
        if let Some(branch) = field("branch") {
            let _ = write!(text, " on {branch}");
        }
        if source.get("dirty") == Some(&Value::Bool(true)) {
            text.push_str(", with changes");
        }
    }
    Some(human::tame(&text))
}

fn owner(job: &JobView) -> String {
    if job.tags.is_empty() {
        return human::tame(&job.owner);
    }
    human::tame(&format!("{}, tags {}", job.owner, job.tags.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_a_program_that_runs_says_when_it_was_told() {
        let job = |phase: &str| -> JobView {
            let value = serde_json::json!({
                "id": "a", "phase": phase, "phase_since": "2026-03-01T12:00:00Z", "outcome": null, "reason": "running",
                "message": "It runs.", "desired": "run", "attempt": 1, "generation": 1, "waiting_for": null,
                "next_wake_at": null, "resources": [], "counters": {
                    "preemptions": 0, "infra_failures": 0, "user_failures": 0, "stockouts": 0, "resumes": 0,
                    "steps_repeated": 0,
                },
                "progress": {"step": 1200, "step_at": "2026-03-01T12:00:30Z", "loss": "2.31", "checkpoint": null},
                "cost_usd": 0.0, "chip_hours": {"total": 0.0, "useful": 0.0, "repeated": 0.0, "waiting": 0.0},
                "last_end": null, "created_at": "2026-03-01T12:00:00Z", "first_started_at": null, "submitted_by": "ada",
                "owner": "research", "tags": [], "run_id": "r1", "line": 0, "revision": 1, "spec": {},
            });
            serde_json::from_value(value).unwrap()
        };
        let told = |phase: &str| progress(&job(phase), "2026-03-01T12:00:54Z".parse().unwrap()).unwrap();
        assert_eq!(told("running"), "step 1200 24s ago, loss 2.31");
        assert_eq!(told("succeeded"), "step 1200, loss 2.31", "its last one");
    }
}
