//! What ticks find again each minute until a person has looked, and tell once an hour.

use std::time::Duration;

use jiff::Timestamp;

use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::{Kind, short_hash};
use rekindle_ports::store::{HeldTold, LivenessDoc};
use rekindle_ports::tpu::{Listed, TpuError};

use crate::{Engine, PassError};

/// What stays as it is, is told again after so long.
const TOLD_EVERY: Duration = Duration::from_hours(1);

/// For so long the list of TPUs may fail before somebody must know.
const UNLISTED_MAX: Duration = Duration::from_mins(30);

/// Where it is noted that something was told: one place for each kind, so that none makes the other be told again.
type Place = fn(&mut LivenessDoc) -> &mut Option<HeldTold>;

/// A finding of a sweep: what it is, and which resources it is about.
pub(crate) fn named(what: &str, resources: &[&Listed]) -> String {
    let mut names: Vec<String> = resources.iter().map(|r| format!("{} {}", r.slice.zone, r.slice.name)).collect();
    names.sort_unstable();
    format!("{what}: {}", names.join(", "))
}

impl Engine {
    /// Whether what a sweep leaves alone is to be told now.
    pub(crate) async fn is_held_to_be_told(&self, what: &str, now: Timestamp) -> bool {
        self.is_to_be_told(|doc| &mut doc.held, what, now).await
    }

    /// Orphans that may not be deleted: somebody pays for them until a person gives the right back.
    pub(crate) async fn tell_refused(&self, refused: &[(&Listed, TpuError)], now: Timestamp) {
        let all: Vec<&Listed> = refused.iter().map(|(orphan, _)| *orphan).collect();
        if all.is_empty() || !self.is_to_be_told(|doc| &mut doc.refused, &named("refused", &all), now).await {
            return;
        }
        for (orphan, why) in refused {
            let (name, zone) = (&orphan.slice.name, &orphan.slice.zone);
            tracing::error!(name, zone, "a delete is not allowed, and its TPU is paid for: {name} in {zone}: {why}");
        }
    }

    /// Without a list nothing is swept, and a slice that nobody tells of is found out late.
    pub(crate) async fn tell_unlisted(&self, error: &PassError, now: Timestamp) {
        let Ok(seen) = self.fleet_seen().await else { return };
        let listed_at = seen.map_or(self.installation.born_at, |seen| seen.listed_at);
        if now < listed_at + UNLISTED_MAX || !self.is_to_be_told(|doc| &mut doc.unlisted, "list", now).await {
            return;
        }
        let minutes = now.duration_since(listed_at).as_mins();
        tracing::error!(
            minutes,
            "the list of TPUs has failed for {minutes} minutes; no orphan is found meanwhile: {error}"
        );
    }

    async fn is_to_be_told(&self, place: Place, what: &str, now: Timestamp) -> bool {
        let Ok(at) = self.ports.store.read::<LivenessDoc>(&Kind::Liveness).await else { return true };
        let mut doc = at.as_ref().map(|at| at.value.clone()).unwrap_or_default();
        let what = short_hash(what);
        let told = place(&mut doc);
        if told.as_ref().is_some_and(|told| told.what == what && now < told.at + TOLD_EVERY) {
            return false;
        }
        *told = Some(HeldTold { what, at: now });
        let when = at.map_or(Precondition::Absent, |at| Precondition::At(at.revision));
        if let Err(error) = self.ports.store.write(&Kind::Liveness, &doc, when).await {
            tracing::debug!(%error, "what a tick tells could not be noted; the next one tells it again");
        }
        true
    }
}
