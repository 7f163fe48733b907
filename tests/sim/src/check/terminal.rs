//! A terminal job owns nothing.

use rekindle_core::job::Job;
use rekindle_ports::tpu::CreateRequest;

use super::Broken;
use crate::exec::lock;
use crate::fault::Fault;
use crate::world::World;

/// A job was committed: if it is terminal now, nothing of it exists in the cloud.
pub(super) fn step(world: &World, before: Option<&Job>, after: &Job) -> Broken {
    if !after.phase.is_terminal() || before.is_some_and(|b| b.phase.is_terminal()) {
        return None;
    }
    let cloud = lock(&world.cloud);
    let left = cloud.resources.values().find(|r| !r.foreign && r.labels.job == after.id.as_str())?;
    // With clocks that differ by minutes a create that is still on its way cannot be told from one that never was sent; the sweep takes it.
    if world.has(Fault::ClockSkew) {
        return None;
    }
    Some((
        "terminal-owns-nothing",
        format!("{} is {} while {} exists ({:?})", after.id, after.phase.as_str(), left.slice.name, left.state),
    ))
}

/// A create was accepted: a job that has ended gets nothing any more.
pub(super) fn create(world: &World, job: Option<&Job>, request: &CreateRequest) -> Broken {
    let over = job.is_some_and(|j| j.phase.is_terminal()) && !world.has(Fault::ClockSkew);
    over.then(|| ("terminal-owns-nothing", format!("{} was created after its job had ended", request.name)))
}
