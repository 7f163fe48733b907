//! Create permits: a budget of creates a minute for the project, and the limits of the deployment, in one small document.

use jiff::Timestamp;

use rekindle_core::job::{Generation, Job};
use rekindle_core::observation::Permit;
use rekindle_core::placement;
use rekindle_ports::docs::{Precondition, Write};
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{At, CreatesDoc, FreezeDoc, put};

use crate::Engine;

/// The minute of a time.
pub(crate) fn minute_of(now: Timestamp) -> i64 {
    now.as_second().div_euclid(60)
}

impl Engine {
    /// Whether a create of this job is allowed now.
    pub(crate) async fn permit(&self, job: &Job, now: Timestamp) -> (Permit, Option<At<CreatesDoc>>) {
        let (creates, freeze) = futures::join!(
            self.ports.store.read::<CreatesDoc>(&Kind::Creates),
            self.ports.store.read::<FreezeDoc>(&Kind::Freeze)
        );
        let (Ok(creates), Ok(freeze)) = (creates, freeze) else { return (Permit::Wait, None) };
        if freeze.is_some_and(|f| f.value.frozen) {
            return (Permit::Frozen, creates);
        }
        let doc = creates.as_ref().map(|c| c.value.clone()).unwrap_or_default();
        if let Some(limit) = self.over_limit(job, &doc) {
            return (limit, creates);
        }
        if doc.granted.contains_key(&job.id) {
            return (Permit::Granted, creates);
        }
        let used = if doc.minute == minute_of(now) { doc.used } else { 0 };
        let permit = if used < self.settings.creates_free_per_minute { Permit::Free } else { Permit::Wait };
        (permit, creates)
    }

    fn over_limit(&self, job: &Job, doc: &CreatesDoc) -> Option<Permit> {
        let first = placement::candidates(&job.spec, &self.deployment).into_iter().next()?;
        if let Some(max) = self.deployment.max_chips {
            let chips: u64 = doc.chips.values().sum();
            if chips + u64::from(first.chips) > u64::from(max) {
                return Some(Permit::MaxChips);
            }
        }
        if let Some(max) = self.deployment.max_usd_per_day {
            let hourly: u64 = doc.usd_micros_per_hour.values().sum();
            let daily = (hourly + first.usd_micros_per_hour) as f64 * 24.0 / 1e6;
            if daily > max {
                return Some(Permit::MaxUsd);
            }
        }
        None
    }

    /// The write that takes a permit for a generation, to go into the job's own commit.
    pub(crate) fn take_permit(job: &Job, g: &Generation, creates: Option<&At<CreatesDoc>>, now: Timestamp) -> Write {
        let mut doc = creates.map(|c| c.value.clone()).unwrap_or_default();
        let minute = minute_of(now);
        if doc.minute != minute {
            doc.minute = minute;
            doc.used = 0;
        }
        // A granted permit was counted when it was granted.
        if doc.granted.remove(&job.id).is_none() {
            doc.used += 1;
        }
        *doc.chips.entry(job.spec.owner.clone()).or_default() += u64::from(g.chips);
        *doc.usd_micros_per_hour.entry(job.spec.owner.clone()).or_default() += g.usd_micros_per_hour;
        let when = creates.map_or(Precondition::Absent, |c| Precondition::At(c.revision));
        put(&Kind::Creates, &doc, when)
    }
}
