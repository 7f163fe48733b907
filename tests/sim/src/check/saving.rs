//! A slice with a notice is not deleted while its program saves: only when every worker has ended, the notice is over, or the API says that it
//! is lost.

use rekindle_core::classify::Exit;
use rekindle_core::observation::{Notice, SliceState};
use rekindle_ports::tpu::SliceRef;

use super::Broken;
use crate::exec::lock;
use crate::fault::Fault;
use crate::machine::{OnWorker, Step};
use crate::roll::SEC;
use crate::world::{World, micros};

/// Between a notice and the delete of a pass that has read the reports before it: its own calls.
const UNTOLD: i64 = 5 * SEC;

/// A delete was accepted.
pub(super) fn delete(world: &World, slice: &SliceRef) -> Broken {
    let (notice, state) = crate::cloud::with(world, slice, |r| (r.notice.clone(), r.state.clone()))?;
    let notice = notice.filter(Notice::takes_away)?;
    // The API's word for it that nothing is left to wait for; here its machines may go on for some seconds more.
    let is_lost = matches!(state, SliceState::Preempted | SliceState::Terminated | SliceState::Stopped);
    // One that is sent again changes nothing.
    if is_lost || state == SliceState::Deleting {
        return None;
    }
    let left = micros(notice.deadline) - world.now();
    // A person's cancel gives `stop_grace`, which may end before a notice an hour away.
    // An instance whose clock is minutes fast takes a notice of seconds for over: nothing can be promised then.
    if left <= SEC || left > 46 * SEC || world.has(Fault::ClockSkew) {
        return None;
    }
    let fleet = lock(&world.fleet);
    // Nobody could tell of the notice: what has been silent for long is given up.
    if fleet.vms.values().filter(|vm| vm.slice == *slice).all(|vm| vm.cut_until > world.now()) {
        return None;
    }
    // What a boot took is not saving any more.
    let is_lost = |a: &OnWorker| a.death.as_ref().is_some_and(|d| d.exit == Exit::Silent);
    // A worker that was not told yet has more to save than those that were; but the delete was decided in knowledge of the notice.
    let knows = knows(world, slice);
    // A pass that read what the workers tell before the notice was told gives up for another reason what was long silent, and cannot know.
    if !knows && micros(notice.seen_at) > world.now() - UNTOLD {
        return None;
    }
    let saves = |a: &OnWorker| a.step == Step::Running && (a.stopping || knows) && !is_lost(a);
    let saving = fleet.vms.values().find(|vm| vm.slice == *slice && vm.attempt.as_ref().is_some_and(saves))?;
    Some((
        "saving",
        format!(
            "{} was deleted {} s before its notice is over, while {} saves",
            slice.name,
            left / SEC,
            saving.instance
        ),
    ))
}

/// Whether its job knew of the notice when it decided the delete.
fn knows(world: &World, slice: &SliceRef) -> bool {
    let Some((job, number)) = crate::cloud::with(world, slice, |r| r.made_for()).flatten() else { return false };
    let checks = lock(&world.checks);
    let job = checks.jobs.get(&job);
    let Some(g) = job.and_then(|job| job.generation(number)).filter(|g| g.name == slice.name) else { return false };
    let seen = g.notice.as_ref().filter(|n| n.takes_away()).map(|n| n.seen_at);
    seen.zip(g.delete.as_ref()).is_some_and(|(seen, delete)| seen < delete.intended_at)
}
