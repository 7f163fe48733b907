//! No effect without a committed intent, and no call after its handler's deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_ports::store::decode;
use rekindle_ports::tpu::{CreateRequest, SliceRef};

use super::Broken;
use crate::exec::lock;
use crate::fault::Fault;
use crate::roll::{MIN, SEC};
use crate::world::World;

/// A call sent at the handler's deadline (25 s) may be on its way for a request's time-out (10 s).
const IN_FLIGHT: i64 = 36 * SEC;

/// What was committed.
#[derive(Default)]
pub(super) struct Intents {
    creates: BTreeMap<(String, String), i64>,
    asked: BTreeMap<(String, String), i64>,
    deletes: BTreeSet<(String, String)>,
}

impl Intents {
    /// A job was committed.
    pub(super) fn step(&mut self, job: &Job, now: i64) {
        for g in &job.generations {
            let key = (g.placement.zone.clone(), g.name.clone());
            if g.delete.is_some() {
                self.deletes.insert(key.clone());
            }
            let asked = g.asked_at.map_or(0, rekindle_asked);
            if asked != self.asked.insert(key.clone(), asked).unwrap_or_default() {
                self.creates.insert(key, now);
            }
        }
    }

    /// A create was accepted.
    pub(super) fn create(&self, world: &World, request: &CreateRequest) -> Broken {
        let key = (request.placement.zone.clone(), request.name.clone());
        let Some(at) = self.creates.get(&key) else {
            return Some(("intent", format!("{} was created in {} without a committed intent", key.1, key.0)));
        };
        let late = world.now() - at;
        // A repeat moves `asked_at` alone, which is clockwork; it is measured from the document itself.
        (late > IN_FLIGHT && !world.has(Fault::ClockSkew) && !asked_again(world, request, *at))
            .then(|| ("intent", format!("{} was created {} s after its intent", key.1, late / SEC)))
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
    let age = world.now() - created;
    let young = age < 10 * MIN && !world.has(Fault::ClockSkew);
    young.then(|| ("intent", format!("{} was swept when it was {} s old", slice.name, age / SEC)))
}

fn rekindle_asked(at: jiff::Timestamp) -> i64 {
    at.as_microsecond()
}

/// Whether the stored job says that this create was sent again since.
fn asked_again(world: &World, request: &CreateRequest, at: i64) -> bool {
    let shelf = lock(&world.shelf);
    let path = format!("jobs/{}", request.labels.job);
    let Some(job) = shelf.body(&path).and_then(|body| decode::<Job>(&path, body).ok()) else { return false };
    job.generations.iter().any(|g| g.name == request.name && g.asked_at.map_or(0, rekindle_asked) > at + SEC)
}
