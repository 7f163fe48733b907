//! The facts that an explanation rests on, one a line, newest things last.

use jiff::Timestamp;

use super::{charged, evidence, look_at, plural, since, slice};
use crate::account::{hours_text, usd_digits};
use crate::job::{Attempt, Create, Generation, Job, Phase};
use crate::placement::describe;
use crate::policy::Charge;

/// Every fact of the job document that a person may want to check.
pub(super) fn facts(job: &Job, now: Timestamp) -> Vec<String> {
    let mut facts = vec![
        format!(
            "phase {} since {:.0} (for {}), reason {}",
            job.phase.as_str(),
            job.phase_since,
            since(job.phase_since, now),
            job.reason.name()
        ),
        format!("submitted at {:.0} by {}, owner {}", job.created_at, job.submitted_by, job.spec.owner),
    ];
    facts.extend(job.generations.iter().map(generation));
    facts.extend(job.attempts.iter().map(|a| attempt(job, a)));
    if let Some(end) = &job.last_end {
        let kind = end.ended.kind.map(|kind| format!("{}, ", kind.as_str())).unwrap_or_default();
        facts.push(format!("attempt {} ended at {:.0}: {kind}{}", end.attempt, end.ended.at, end.ended.summary));
        facts.extend(evidence(&end.ended));
    }
    facts.extend(progress(job));
    facts.push(counters(job));
    for barred in &job.barred {
        let until = barred.until.map_or_else(|| "for good".to_owned(), |until| format!("until {until:.0}"));
        let place = describe(&barred.placement);
        facts.push(format!("{place} is not tried {until} (refused {}): {}", times(barred.times), barred.error.message));
    }
    // What was planned before a pause or an end is void; a person or nobody begins anew.
    let is_at_rest = matches!(job.phase, Phase::Paused | Phase::Stopping) || job.phase.is_terminal();
    if let Some(next) = job.next.as_ref().filter(|_| !is_at_rest) {
        facts.push(format!(
            "next attempt: {}, not before {:.0}, RESUME={}, because of {}",
            if next.new_generation { "on a new slice" } else { "on the same slice" },
            next.not_before,
            u8::from(next.resume),
            next.why.name()
        ));
    }
    if let Some(at) = look_at(job).filter(|_| !job.phase.is_terminal()) {
        // What is due comes with the next tick.
        facts.push(if at > now {
            let latest = if job.settling.is_some() { " at the latest" } else { "" };
            format!("next look at {at:.0}{latest}")
        } else {
            format!("next look due now, since {at:.0}")
        });
    }
    facts.push(usage(job));
    facts
}

fn generation(g: &Generation) -> String {
    let state = match (&g.delete, &g.lost, g.ready_at, &g.create) {
        (Some(delete), ..) => {
            let error = delete.last_error.as_ref().map_or_else(String::new, |error| format!(", refused: {error}"));
            let sent =
                if delete.tries == 0 { "not sent yet".to_owned() } else { format!("sent {}", times(delete.tries)) };
            format!("being deleted since {:.0} ({sent}{error})", delete.intended_at)
        }
        (None, Some(lost), ..) => format!("lost at {:.0} ({}: {})", lost.at, lost.kind, lost.fact),
        (None, None, Some(ready), _) => format!("READY since {ready:.0}"),
        (None, None, None, Create::Failed { error, .. }) => format!("could not be made: {}", error.message),
        (None, None, None, Create::Intended | Create::Sent { .. } | Create::Done) => {
            format!("asked for at {:.0}", g.intended_at)
        }
    };
    let unhealthy = g.unhealthy_since.map_or_else(String::new, |at| format!(", not healthy since {at:.0}"));
    let notice = g.notice.as_ref().map_or_else(String::new, |n| {
        format!(", notice: {} at {:.0}", if n.takes_away() { "goes" } else { "is moved to another host" }, n.deadline)
    });
    format!("{}, {}: {state}{unhealthy}{notice}", slice(g), g.name)
}

fn attempt(job: &Job, a: &Attempt) -> String {
    let has_tpu = job.generation(a.generation).is_none_or(|g| g.ready_at.is_some());
    let state = if let Some(at) = a.fenced_at {
        format!("ended everywhere at {at:.0}")
    } else if let Some(stop) = &a.stop {
        format!("being ended since {:.0}, killed at {:.0}", stop.at, stop.deadline)
    } else if let Some(at) = a.started_at {
        format!("running since {at:.0}")
    } else if let Some(at) = a.released_at {
        format!("being started since {at:.0}")
    } else if has_tpu {
        format!("preparing since {:.0}", a.created_at)
    } else {
        "waits for its TPU".to_owned()
    };
    let (step, resumed) = (
        a.step.map_or_else(String::new, |step| format!(", step {step}")),
        a.resumed_from.map_or_else(String::new, |step| format!(", resumed from step {step}")),
    );
    format!(
        "attempt {} on generation {}: {state}, RESUME={}{resumed}{step}",
        a.number,
        a.generation,
        u8::from(a.resume)
    )
}

fn progress(job: &Job) -> Option<String> {
    let highest = job.highest_step?;
    let saved = job.saved.map_or_else(|| "none reported".to_owned(), |step| format!("at step {step}"));
    let (step, line) = match job.step() {
        Some(step) if job.line == 0 => (format!("highest step {step}"), String::new()),
        Some(step) => (format!("highest step {step}"), format!(", checkpoint line {}", job.line)),
        None => (format!("highest step {highest}"), format!(", no step yet on checkpoint line {}", job.line)),
    };
    Some(format!("{step}, last checkpoint {saved}, {} repeated{line}", steps(job.counters.steps_repeated)))
}

fn counters(job: &Job) -> String {
    let charges = [Charge::Preemptions, Charge::Infra, Charge::User].map(|charge| charged(job, charge));
    let stockouts = plural(job.counters.stockouts, "stockout");
    format!("budgets: {}; {stockouts}, {}", charges.join(", "), plural(job.counters.resumes, "resume"))
}

fn usage(job: &Job) -> String {
    let hours = |seconds: u64| hours_text(seconds as f64 / 3600.0);
    let usage = &job.usage;
    let usd = usage.cost_usd_micros as f64 / 1e6;
    let digits = usd_digits(usd);
    format!(
        "cost so far {usd:.digits$} US dollars for {} chip hours ({} useful, {} repeated, {} waiting, {} idle)",
        hours(usage.paid_chip_secs),
        hours(usage.useful_chip_secs),
        hours(usage.repeated_chip_secs),
        hours(usage.waiting_chip_secs),
        hours(usage.idle_chip_secs)
    )
}

fn steps(count: u64) -> String {
    if count == 1 { "1 step".into() } else { format!("{count} steps") }
}

fn times(count: u32) -> String {
    if count == 1 { "once".into() } else { format!("{count} times") }
}
