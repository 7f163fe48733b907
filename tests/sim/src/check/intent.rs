//! No effect without a committed intent, and no call after its handler's deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_ports::tpu::{CreateRequest, SliceRef};

use super::Broken;
use crate::fault::Fault;
use crate::roll::{MIN, SEC};
use crate::world::World;

/// A call sent at the handler's deadline (25 s) may be on its way for a request's time-out (10 s).
pub(super) const IN_FLIGHT: i64 = 36 * SEC;

/// What was committed.
#[derive(Default)]
pub(super) struct Intents {
    /// When each create was last committed to be sent.
    creates: BTreeMap<(String, String), i64>,
    deletes: BTreeSet<(String, String)>,
}

impl Intents {
    /// A job was committed.
    pub(super) fn step(&mut self, before: Option<&Job>, after: &Job, now: i64) {
        for g in &after.generations {
            let known =
                before.and_then(|b| b.generations.iter().find(|b| b.name == g.name && b.placement == g.placement));
            let key = || (g.placement.zone.clone(), g.name.clone());
            if g.delete.is_some() && known.is_none_or(|known| known.delete.is_none()) {
                self.deletes.insert(key());
            }
            if g.asked_at.is_some() && known.is_none_or(|known| known.asked_at != g.asked_at) {
                self.creates.insert(key(), now);
            }
        }
    }

    /// A create was accepted.
    pub(super) fn create(&self, now: i64, request: &CreateRequest) -> Broken {
        let key = (request.placement.zone.clone(), request.name.clone());
        let Some(at) = self.creates.get(&key) else {
            return Some(("intent", format!("{} was created in {} without a committed intent", key.1, key.0)));
        };
        let late = now - at;
        (late > IN_FLIGHT).then(|| ("intent", format!("{} was created {} s after its intent", key.1, late / SEC)))
    }

    /// A delete was accepted.
    pub(super) fn delete(&self, world: &World, jobs: &BTreeMap<JobId, Arc<Job>>, slice: &SliceRef) -> Broken {
        let key = (slice.zone.clone(), slice.name.clone());
        if self.deletes.contains(&key) {
            return None;
        }
        let owner = jobs.values().find(|j| {
            !j.phase.is_terminal()
                && j.generations.iter().any(|g| g.name == slice.name && g.placement.zone == slice.zone)
        });
        let Some(owner) = owner else { return swept_too_young(world, slice) };
        world.trace(|| format!("delete of {} of {}", slice.name, owner.id));
        Some(("intent", format!("{} of {} was deleted without a committed intent", slice.name, owner.id)))
    }
}

/// The sweep leaves what is younger than the grace period of 10 minutes alone.
fn swept_too_young(world: &World, slice: &SliceRef) -> Broken {
    let created = crate::cloud::with(world, slice, |r| r.created_at)?;
    // By the clock of the instance, which may be minutes fast.
    let skew = if world.has(Fault::ClockSkew) { world.plan.skew_us } else { 0 };
    let age = world.now() - created;
    let young = age < 10 * MIN - skew;
    young.then(|| ("intent", format!("{} was swept when it was {} s old", slice.name, age / SEC)))
}
