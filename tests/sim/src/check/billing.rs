//! No two generations of one job bill at the same time outside the hand-over window.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_core::observation::Notice;
use rekindle_core::orders::notice_is_urgent;
use rekindle_ports::tpu::CreateRequest;

use super::Broken;
use crate::exec::lock;
use crate::fault::Fault;
use crate::roll::MIN;
use crate::world::{World, stamp};

/// A notice, its deadline and the delete: two that bill longer than this are no hand-over.
const MINUTES: u32 = 15;

/// The same where deletes fail, take long, or are sent late, and are sent again.
const MINUTES_LATE: u32 = 45;

/// What no job knows is swept within so long: its grace, two ticks, and clocks that differ.
const GRACE: i64 = 25 * MIN;

/// For how many minutes a job has had two generations that bill.
#[derive(Default)]
pub(super) struct Billing {
    minutes: BTreeMap<JobId, u32>,
}

/// A create was accepted: an older slice that bills must have a notice, or be known as lost.
pub(super) fn create(world: &World, jobs: &BTreeMap<JobId, Arc<Job>>, request: &CreateRequest) -> Broken {
    let id = JobId::parse(&request.labels.job).ok()?;
    let job = jobs.get(&id)?;
    let cloud = lock(&world.cloud);
    let others = cloud
        .resources
        .values()
        .filter(|r| !r.foreign && r.labels.job == request.labels.job && r.slice.name != request.name && r.bills());
    for other in others {
        let Some(g) = job.generations.iter().find(|g| g.name == other.slice.name) else { continue };
        // By the clock of the instance, which may be minutes fast.
        let skew = if world.has(Fault::ClockSkew) { world.plan.skew_us } else { 0 };
        let begun = |n: &Notice| notice_is_urgent(n, stamp(world.now() + skew));
        if !g.notice.as_ref().is_some_and(begun) && g.lost.is_none() {
            return Some(("double-bill", format!("{} is created while {} bills", request.name, other.slice.name)));
        }
    }
    None
}

/// Looks at every job.
pub(super) fn audit(world: &World, jobs: &BTreeMap<JobId, Arc<Job>>, billing: &mut Billing) -> Broken {
    let cloud = lock(&world.cloud);
    let mut count: BTreeMap<&str, u32> = BTreeMap::new();
    for r in cloud.resources.values().filter(|r| !r.foreign && r.bills()) {
        let job = r.labels.job.as_str();
        *count.entry(job).or_default() += 1;
        let job = JobId::parse(job).ok().and_then(|id| jobs.get(&id));
        // Between instances whose clocks differ, a create that is on its way may be taken for one that never was sent: the sweep's, after its
        // grace.
        let young = world.has(Fault::ClockSkew) && r.created_at > world.now() - GRACE;
        let job = job.filter(|_| !young);
        if job.is_some_and(|j| j.generations.iter().all(|g| g.name != r.slice.name)) {
            return Some(("double-bill", format!("{} bills, and its job does not know of it", r.slice.name)));
        }
    }
    if let Some((job, n)) = count.iter().find(|(job, n)| **n > 2 && **job != "orphan") {
        return Some(("double-bill", format!("{n} generations of {job} bill at once")));
    }
    // Nobody can delete anything while the API refuses everybody.
    let shuts = |fault| {
        matches!(
            fault,
            Fault::TpuDenied | Fault::TpuOutage | Fault::StoreOutage | Fault::TickOutage | Fault::ZoneForbidden
        )
    };
    let is_shut = world.plan.windows.iter().any(|w| shuts(w.fault) && w.has(world.now(), None));
    let passed = if is_shut { 0 } else { super::AUDIT_MINUTES };
    let mut minutes = BTreeMap::new();
    for id in jobs.keys().filter(|id| count.get(id.as_str()).is_some_and(|n| *n > 1)) {
        let before = billing.minutes.get(id).copied().unwrap_or(0);
        minutes.insert(id.clone(), before + passed);
    }
    billing.minutes = minutes;
    let (id, worst) = billing.minutes.iter().max_by_key(|(_, m)| **m)?;
    let most = if super::leak::is_late(world) { MINUTES_LATE } else { MINUTES };
    (*worst > most).then(|| ("double-bill", format!("two generations of {id} bill for {worst} minutes")))
}
