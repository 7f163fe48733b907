//! Every live resource is explained by a job, or dies within the grace period.
//!
//! Minutes in which the sweep cannot do its work (an outage, a denied credential, a zone that cannot be read, a sweep that was held for a
//! person) do not count.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_ports::tpu::SliceRef;

use super::Broken;
use crate::exec::lock;
use crate::fault::Fault;
use crate::world::World;

/// The grace period of 10 minutes, some ticks that failed, and deletes that had to be sent again.
const MINUTES: u32 = 45;

/// How long resources have been unexplained, in minutes that count.
#[derive(Default)]
pub(super) struct Leaks {
    minutes: BTreeMap<SliceRef, u32>,
    /// The last sweep was held.
    pub(super) held: bool,
}

/// Whether a job that is not over has this resource among its generations.
pub(super) fn owner<'a>(jobs: &'a BTreeMap<JobId, Arc<Job>>, slice: &SliceRef, job: &str) -> Option<&'a Job> {
    let id = JobId::parse(job).ok()?;
    jobs.get(&id).map(Arc::as_ref).filter(|j| {
        !j.phase.is_terminal() && j.generations.iter().any(|g| g.name == slice.name && g.placement.zone == slice.zone)
    })
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
    ];
    let blocked = !world.is_calm() && away.iter().any(|f| world.in_window(*f, None));
    let cloud = lock(&world.cloud);
    let mut minutes = BTreeMap::new();
    for (slice, r) in cloud.resources.iter().filter(|(_, r)| !r.foreign) {
        if owner(jobs, slice, &r.labels.job).is_some() {
            continue;
        }
        let before = leaks.minutes.get(slice).copied().unwrap_or(0);
        minutes.insert(slice.clone(), before + if blocked || leaks.held { 0 } else { super::AUDIT_MINUTES });
    }
    leaks.minutes = minutes;
    let worst = leaks.minutes.iter().max_by_key(|(_, m)| **m)?;
    (*worst.1 > MINUTES).then(|| {
        let state = cloud.resources.get(worst.0).map(|r| format!("{:?}", r.state)).unwrap_or_default();
        ("leak", format!("{} in {} ({state}) belongs to no job for {} minutes", worst.0.name, worst.0.zone, worst.1))
    })
}
