//! A job that has ended, or is paused, owns nothing.

use rekindle_core::job::{Job, Phase};
use rekindle_ports::tpu::CreateRequest;

use super::Broken;
use super::intent::IN_FLIGHT;
use crate::cloud::Resource;
use crate::exec::lock;
use crate::fault::Fault;
use crate::world::{World, micros};

/// A job was committed: if it has ended or is paused from here on, nothing of it exists in the cloud.
pub(super) fn step(world: &World, before: Option<&Job>, after: &Job) -> Broken {
    let owns_nothing = |phase: Phase| phase.is_terminal() || phase == Phase::Paused;
    if !owns_nothing(after.phase) || before.is_some_and(|b| owns_nothing(b.phase)) {
        return None;
    }
    let cloud = lock(&world.cloud);
    // With clocks that differ by minutes a create that is still on its way cannot be told from one that never was sent; the sweep takes it.
    let young = if world.has(Fault::ClockSkew) { world.plan.skew_us * 2 + IN_FLIGHT } else { 0 };
    let is_left =
        |r: &&Resource| !r.foreign && r.labels.job == after.id.as_str() && r.created_at <= world.now() - young;
    let left = cloud.resources.values().find(is_left)?;
    Some((
        "terminal-owns-nothing",
        format!("{} is {} while {} exists ({:?})", after.id, after.phase.as_str(), left.slice.name, left.state),
    ))
}

/// A create was accepted: a job that has ended gets nothing any more.
pub(super) fn create(world: &World, job: Option<&Job>, request: &CreateRequest) -> Broken {
    let ended = job.filter(|j| j.phase.is_terminal()).map(|j| micros(j.phase_since))?;
    // As above; and the end itself is told by one of these clocks.
    let late = if world.has(Fault::ClockSkew) { world.plan.skew_us + IN_FLIGHT } else { i64::MIN };
    (world.now() - ended > late)
        .then(|| ("terminal-owns-nothing", format!("{} was created after its job had ended", request.name)))
}
