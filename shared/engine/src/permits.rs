//! Create permits: a budget of creates a minute for the project, and what is in use of the limits, in one small document.

use std::collections::BTreeMap;

use rekindle_core::job::{Generation, Job};
use rekindle_core::limits::{Amount, InUse, Share};
use rekindle_core::observation::Permit;
use rekindle_ports::docs::{Precondition, Write};
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{At, CreatesDoc, FreezeDoc, Uses, half_of, put};

use crate::Engine;

/// A create permit, and what it rests on.
pub(crate) struct Permits {
    /// The half minute that it counts in, by the store's clock: those of instances differ, and each would begin one of its own.
    pub(crate) half: i64,
    pub(crate) permit: Permit,
    pub(crate) used: InUse,
    pub(crate) creates: Option<At<CreatesDoc>>,
}

/// What the document says of a job's limits.
fn in_use(doc: &CreatesDoc, owner: &str) -> InUse {
    let of = |map: &BTreeMap<String, u64>| map.get(owner).copied().unwrap_or_default();
    let all = |map: &BTreeMap<String, u64>| map.values().fold(0, |sum: u64, one| sum.saturating_add(*one));
    InUse {
        survey: doc.survey,
        all: Amount { chips: all(&doc.uses.chips), usd_micros_per_hour: all(&doc.uses.usd_micros_per_hour) },
        owner: Amount { chips: of(&doc.uses.chips), usd_micros_per_hour: of(&doc.uses.usd_micros_per_hour) },
        entries: doc.uses.entries.clone(),
    }
}

impl Engine {
    /// Whether a create of this job is allowed now, and what is in use.
    pub(crate) async fn permit(&self, job: &Job) -> Permits {
        let (creates, freeze) = futures::join!(
            self.ports.store.read_timed::<CreatesDoc>(&Kind::Creates),
            self.ports.store.read::<FreezeDoc>(&Kind::Freeze)
        );
        let (Ok((creates, now)), Ok(freeze)) = (creates, freeze) else {
            return Permits { half: 0, permit: Permit::Wait, used: InUse::default(), creates: None };
        };
        let half = half_of(now);
        let none = CreatesDoc::default();
        let doc = creates.as_ref().map_or(&none, |at| &at.value);
        let used = in_use(doc, &job.spec.owner);
        let permit = match doc.grants.get(&job.id) {
            _ if freeze.is_some_and(|f| f.value.frozen) => Permit::Frozen,
            // What was granted for long ago counts when it is taken.
            Some(granted) if CreatesDoc::is_counted(*granted, half) => Permit::Granted,
            Some(granted) if *granted < half && doc.used_in(half) < self.settings.creates_per_half() => Permit::Granted,
            // While some wait, a half minute near this one is full: nobody is before them.
            None if doc.used_near(half) < self.settings.creates_free_per_minute => Permit::Free,
            Some(_) | None => Permit::Wait,
        };
        Permits { half, permit, used, creates }
    }

    /// The write that takes a permit of this half minute for a generation, to go into the job's own commit. `given_back` is taken off.
    pub(crate) fn take_permit(
        job: &Job,
        g: &Generation,
        given_back: &[Share],
        creates: Option<&At<CreatesDoc>>,
        half: i64,
    ) -> Write {
        let mut doc = creates.map(|c| c.value.clone()).unwrap_or_default();
        if !doc.grants.remove(&job.id).is_some_and(|granted| CreatesDoc::is_counted(granted, half)) {
            doc.count(half);
        }
        doc.forget(half);
        for share in given_back {
            count(&mut doc.uses, &job.spec.owner, &share.entry, share.amount(), u64::saturating_sub);
        }
        // A request that is sent again asks for nothing more.
        if let Some((entry, amount)) = g.used().filter(|_| g.asked_at == Some(g.intended_at)) {
            for uses in [&mut doc.uses, &mut doc.added] {
                count(uses, &job.spec.owner, entry, amount, u64::saturating_add);
            }
        }
        let when = creates.map_or(Precondition::Absent, |c| Precondition::At(c.revision));
        put(&Kind::Creates, &doc, when)
    }
}

/// Adds a share to what is in use, or takes it off.
pub(crate) fn count(uses: &mut Uses, owner: &str, entry: &str, share: Amount, by: impl Fn(u64, u64) -> u64) {
    let slot = |map: &mut BTreeMap<String, u64>, key: &str, amount: u64| match map.get_mut(key) {
        Some(slot) => *slot = by(*slot, amount),
        None => drop(map.insert(key.to_owned(), by(0, amount))),
    };
    slot(&mut uses.chips, owner, share.chips);
    slot(&mut uses.usd_micros_per_hour, owner, share.usd_micros_per_hour);
    slot(&mut uses.entries, entry, share.chips);
}
