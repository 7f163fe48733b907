//! Chip time and money, counted from pass to pass.

use jiff::Timestamp;

use super::Pass;
use crate::account::{Sort, by_week, meter};
use crate::job::{Attempt, Generation, Job, Usage};
use crate::observation::{Look, NoticeKind};

impl Pass<'_> {
    /// Adds the time since the last count. The state before this pass holds for all of it.
    pub(super) fn count_usage(&mut self) {
        self.job.usage = counted(&self.job, self.now, |g| self.last_word(g));
    }

    /// The last word of a slice that is seen to be gone for the first time: nobody knows when in between it went, and nobody is
    /// charged for what a machine did that was silent.
    fn last_word(&self, g: &Generation) -> Option<Timestamp> {
        let is_over = match &self.look_of(g)?.slice {
            Look::Seen(view) => view.ended,
            Look::Absent => true,
            Look::Unknown => false,
        };
        let of_it = self.seen.workers.iter().flatten().filter(|report| report.generation == g.number);
        of_it.map(|report| report.heard_at).max().filter(|_| is_over && g.ended_since.is_none() && g.delete.is_none())
    }
}

/// The job's usage counted up to `now`, by the state that it is in: what a person is shown between two passes.
pub fn usage_at(job: &Job, now: Timestamp) -> Usage {
    counted(job, now, |_| None)
}

/// `last_word`: until when a generation counts at most.
fn counted(job: &Job, now: Timestamp, last_word: impl Fn(&Generation) -> Option<Timestamp>) -> Usage {
    let from = job.usage.through.unwrap_or(job.created_at);
    let mut usage = job.usage.clone();
    // Parts of a second are left for the next count, so that many short passes lose nothing.
    let Some(secs) = u64::try_from(now.duration_since(from).as_secs()).ok().filter(|secs| *secs > 0) else {
        return usage;
    };
    let through = from + std::time::Duration::from_secs(secs);
    for g in &job.generations {
        let Some(ready) = g.ready_at else { continue };
        if g.lost.is_some() || ready >= now {
            continue;
        }
        let until = taken_away_at(g).into_iter().chain(last_word(g)).fold(through, Timestamp::min);
        let secs = u64::try_from(until.duration_since(from).as_secs()).unwrap_or(0);
        count(&mut usage, g, sort(job, g), from, secs);
    }
    usage.through = Some(through);
    usage
}

/// When the provider ended the slice, as far as it is known: from then on it costs nothing, whenever a pass sees it.
fn taken_away_at(g: &Generation) -> Option<Timestamp> {
    // Windows of maintenance are moved; a preemption is not called off.
    let notice = g.notice.as_ref().filter(|notice| notice.kind == NoticeKind::Preemption);
    notice.map(|notice| notice.deadline).into_iter().chain(g.ended_since).min()
}

/// What the chips of a generation do.
fn sort(job: &Job, g: &Generation) -> Sort {
    let newest = job.attempts.iter().rev().find(|a| a.generation == g.number);
    match newest {
        Some(a) if a.stop.is_some() || a.ended.is_some() => Sort::Idle,
        _ if g.delete.is_some() => Sort::Idle,
        Some(a) if a.started_at.is_none() => Sort::Waiting,
        Some(a) if repeats(job, a) => Sort::Repeated,
        Some(_) => Sort::Useful,
        None => Sort::Waiting,
    }
}

/// Whether an attempt that runs does again what an earlier one has done. Where it resumed is told only with its first steps;
/// until then it is where the job was saved last.
fn repeats(job: &Job, a: &Attempt) -> bool {
    let from = a.resumed_from.or_else(|| a.saved_before.filter(|_| a.resume));
    let is_behind = match job.highest_step {
        Some(highest) => from.is_none_or(|from| from < highest),
        None => a.resumed_from.is_some(),
    };
    is_behind && !a.progressed
}

fn count(usage: &mut Usage, g: &Generation, sort: Sort, from: Timestamp, secs: u64) {
    for (week, secs) in by_week(from, secs) {
        let meter = meter(g.chips, g.usd_micros_per_hour, secs);
        usage.weeks.entry(week).or_default().add(sort, meter);
        usage.paid_chip_secs += meter.chip_secs;
        usage.cost_usd_micros += meter.usd_micros;
        *match sort {
            Sort::Useful => &mut usage.useful_chip_secs,
            Sort::Repeated => &mut usage.repeated_chip_secs,
            Sort::Waiting => &mut usage.waiting_chip_secs,
            // An orphan is no job's.
            Sort::Idle | Sort::Orphan => &mut usage.idle_chip_secs,
        } += meter.chip_secs;
    }
}
