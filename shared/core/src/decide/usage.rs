//! Chip time and money, counted from pass to pass.

use super::Pass;

impl Pass<'_> {
    /// Adds the time since the last count. The state before this pass holds for all of it.
    pub(super) fn count_usage(&mut self) {
        let now = self.now;
        let from = self.job.usage.through.unwrap_or(self.job.created_at);
        if now <= from {
            return;
        }
        let secs = u64::try_from(now.duration_since(from).as_millis()).unwrap_or(0);
        let mut usage = self.job.usage.clone();
        for g in &self.job.generations {
            let Some(ready) = g.ready_at else { continue };
            if g.lost.is_some() || ready >= now {
                continue;
            }
            // Milliseconds are rounded once a pass; short passes carry the rest by not moving `through`.
            let chip_secs = secs * u64::from(g.chips) / 1000;
            usage.paid_chip_secs += chip_secs;
            usage.cost_usd_micros += g.usd_micros_per_hour * secs / 3_600_000;
            let running = self.job.attempts.iter().find(|a| a.generation == g.number && a.started_at.is_some());
            match running {
                Some(a) if a.stop.is_none() && a.ended.is_none() => {
                    let repeats = a.resumed_from.is_some() && !a.progressed;
                    *(if repeats { &mut usage.repeated_chip_secs } else { &mut usage.useful_chip_secs }) += chip_secs;
                }
                _ => usage.waiting_chip_secs += chip_secs,
            }
        }
        usage.through = Some(now);
        self.job.usage = usage;
    }
}
