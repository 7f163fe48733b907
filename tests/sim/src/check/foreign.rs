//! A foreign resource is never touched.

use rekindle_ports::tpu::SliceRef;

use super::Broken;
use crate::world::World;

/// A delete was accepted.
pub(super) fn delete(world: &World, slice: &SliceRef) -> Broken {
    let foreign = crate::cloud::with(world, slice, |r| r.foreign)?;
    foreign.then(|| ("foreign", format!("the foreign {} in {} was deleted", slice.name, slice.zone)))
}
