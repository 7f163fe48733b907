//! A slice whose job has ended is kept while its workers collect outputs or send what the program said last: within the limit for that, and
//! unless the slice goes anyhow or a person ended the job.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, Outcome};
use rekindle_core::observation::SliceState;
use rekindle_ports::tpu::SliceRef;

use super::Broken;
use crate::exec::lock;
use crate::fault::Fault;
use crate::roll::{MIN, SEC};
use crate::world::{World, micros};

/// For so long after the last end was told nobody may delete it: the limit is five minutes.
const KEPT: i64 = 4 * MIN;

/// A delete was accepted.
pub(super) fn delete(world: &World, jobs: &BTreeMap<JobId, Arc<Job>>, slice: &SliceRef) -> Broken {
    let (labels, state) = crate::cloud::with(world, slice, |r| (r.labels.clone(), r.state.clone()))?;
    let job = jobs.get(&JobId::parse(&labels.job).ok()?)?;
    let has_ended = matches!(job.outcome, Some(Outcome::Succeeded | Outcome::Failed));
    let g = job.generations.iter().find(|g| g.name == slice.name && g.placement.zone == slice.zone)?;
    // A slice that looks bad may be deleted as lost in the very pass that is told of the end; and one that is being deleted loses nothing more.
    // The limit is of minutes: between instances whose clocks differ by as much, it may be over at once.
    let goes = g.lost.is_some() || g.notice.is_some() || state != SliceState::Ready || world.has(Fault::ClockSkew);
    let by_people = lock(&world.truth).jobs.get(&job.id).is_some_and(|facts| !facts.told.is_empty());
    if !has_ended || goes || by_people {
        return None;
    }
    let fleet = lock(&world.fleet);
    let vms: Vec<_> = fleet.vms.values().filter(|vm| vm.slice == *slice).collect();
    let told = |vm: &&&crate::machine::Vm| vm.attempt.as_ref().is_some_and(|a| a.accepted);
    // A host that has died tells nothing, and only the end of its slice is proof of its program's.
    if vms.iter().filter(told).count() < (g.slices * g.workers) as usize {
        return None;
    }
    let last = vms.iter().filter_map(|vm| vm.attempt.as_ref()).map(|a| a.told_from).max()?;
    // The limit begins when the job knows of all ends: a machine that boots anew after that tells its end once more.
    let attempt = job.attempts.iter().rev().find(|a| a.generation == g.number);
    let known = attempt.and_then(|a| a.fenced_at);
    let last = known.map_or(last, |known| last.min(micros(known)));
    // Ordered before that, as when the time to end is over, or before the job knew of all ends: sent again, or late.
    let is_unknown = |at| attempt.is_some_and(|a| a.fenced_at.is_none_or(|known| at < known));
    if g.delete.as_ref().is_some_and(|d| micros(d.intended_at) < last || is_unknown(d.intended_at)) {
        return None;
    }
    let sends = |vm: &&&crate::machine::Vm| {
        let goes_on = vm.unsent_until.max(vm.collecting_until) > world.now() + SEC;
        vm.told_left && goes_on && !vm.agent_dead && vm.cut_until <= world.now()
    };
    let sender = vms.iter().find(sends).filter(|_| world.now() < last + KEPT)?;
    let text = format!(
        "{} was deleted {} s after the last end was told, while {} still sends",
        slice.name,
        (world.now() - last) / SEC,
        sender.instance
    );
    Some(("sending", text))
}
