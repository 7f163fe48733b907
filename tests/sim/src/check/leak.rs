//! Every live resource is explained by a job, or dies within the grace period. A job that has ended explains none, nor one that it has decided
//! to delete.
//!
//! Minutes in which the sweep cannot do its work (an outage, a denied credential, a zone that cannot be read, a sweep that was held for a
//! person) do not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::{Generation, Job};
use rekindle_ports::tpu::SliceRef;

use super::Broken;
use crate::exec::lock;
use crate::fault::Fault;
use crate::world::World;

/// The grace period of 10 minutes and the next tick; or the last output of a program that ended, which is sent within 5 minutes, and a delete.
const MINUTES: u32 = 20;

/// The same where ticks fail, and where deletes do and have to be sent again.
const MINUTES_LATE: u32 = 45;

/// What keeps a sweep, or a delete, from doing its work for a while.
const LATE: [Fault; 10] = [
    Fault::DeleteLies,
    Fault::DeleteRefused,
    Fault::DeleteRefusedLate,
    Fault::DeleteSlow,
    Fault::DeleteFails,
    Fault::TickSkipped,
    Fault::TickOutage,
    Fault::StoreSlow,
    Fault::StoreUnavailable,
    Fault::TpuUnclearBefore,
];

/// How long resources have been unexplained, in minutes that count.
#[derive(Default)]
pub(super) struct Leaks {
    minutes: BTreeMap<SliceRef, u32>,
    /// The last sweep was held.
    pub(super) held: bool,
}

/// Whether a job that goes on has this resource among its generations, and has not decided to delete it.
fn is_explained(jobs: &BTreeMap<JobId, Arc<Job>>, slice: &SliceRef, job: &str) -> bool {
    let job = JobId::parse(job).ok().and_then(|id| jobs.get(&id)).filter(|job| job.outcome.is_none());
    let is_it = |g: &Generation| g.name == slice.name && g.placement.zone == slice.zone && g.delete.is_none();
    job.is_some_and(|job| job.generations.iter().any(is_it))
}

/// Whether deletes may have to be sent again, or a sweep may fail.
pub(super) fn is_late(world: &World) -> bool {
    LATE.iter().any(|f| world.has(*f))
}

/// Looks at every resource.
pub(super) fn audit(world: &World, jobs: &BTreeMap<JobId, Arc<Job>>, leaks: &mut Leaks) -> Broken {
    let away = [
        Fault::StoreOutage,
        Fault::TpuOutage,
        Fault::TpuDenied,
        Fault::ZoneUnreachable,
        Fault::ZoneForbidden,
        Fault::TickOutage,
        // What a worker cannot be told to end is not taken away under it.
        Fault::ApiOutage,
    ];
    let blocked = !world.is_calm() && away.iter().any(|f| world.in_window(*f, None));
    let cloud = lock(&world.cloud);
    let mut minutes = BTreeMap::new();
    for (slice, r) in cloud.resources.iter().filter(|(_, r)| !r.foreign) {
        if is_explained(jobs, slice, &r.labels.job) {
            continue;
        }
        let before = leaks.minutes.get(slice).copied().unwrap_or(0);
        minutes.insert(slice.clone(), before + if blocked || leaks.held { 0 } else { super::AUDIT_MINUTES });
    }
    leaks.minutes = minutes;
    let worst = leaks.minutes.iter().max_by_key(|(_, m)| **m)?;
    let most = if is_late(world) { MINUTES_LATE } else { MINUTES };
    (*worst.1 > most).then(|| {
        let state = cloud.resources.get(worst.0).map(|r| format!("{:?}", r.state)).unwrap_or_default();
        ("leak", format!("no job wants {} in {} ({state}) for {} minutes", worst.0.name, worst.0.zone, worst.1))
    })
}
