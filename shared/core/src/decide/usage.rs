//! Chip time and money, counted from pass to pass.

use jiff::Timestamp;

use super::Pass;
use crate::job::{Job, Usage};

impl Pass<'_> {
    /// Adds the time since the last count. The state before this pass holds for all of it.
    pub(super) fn count_usage(&mut self) {
        self.job.usage = usage_at(&self.job, self.now);
    }
}

/// The job's usage counted up to `now`, by the state that it is in: what a person is shown between two passes.
pub fn usage_at(job: &Job, now: Timestamp) -> Usage {
    let from = job.usage.through.unwrap_or(job.created_at);
    let mut usage = job.usage.clone();
    // Parts of a second are left for the next count, so that many short passes lose nothing.
    let Some(secs) = u64::try_from(now.duration_since(from).as_secs()).ok().filter(|secs| *secs > 0) else {
        return usage;
    };
    for g in &job.generations {
        let Some(ready) = g.ready_at else { continue };
        if g.lost.is_some() || ready >= now {
            continue;
        }
        let chip_secs = secs * u64::from(g.chips);
        usage.paid_chip_secs += chip_secs;
        usage.cost_usd_micros += g.usd_micros_per_hour * secs / 3600;
        let running = job.attempts.iter().find(|a| a.generation == g.number && a.started_at.is_some());
        match running {
            Some(a) if a.stop.is_none() && a.ended.is_none() => {
                let repeats = a.resumed_from.is_some() && !a.progressed;
                *(if repeats { &mut usage.repeated_chip_secs } else { &mut usage.useful_chip_secs }) += chip_secs;
            }
            _ => usage.waiting_chip_secs += chip_secs,
        }
    }
    usage.through = Some(from + std::time::Duration::from_secs(secs));
    usage
}
