//! What becomes of queued resources by themselves, and of their nodes: SUSPENDING, SUSPENDED, FAILED.

use std::sync::Arc;

use rekindle_core::observation::{CreateErrorKind, SliceState};
use rekindle_ports::tpu::SliceRef;

use crate::cloud;
use crate::disaster;
use crate::exec::lock;
use crate::fault::Fault;
use crate::roll::{For, MIN, SEC};
use crate::stage::Stage;
use crate::world::World;

/// The machines go off within so long of each other.
const STAGGER: i64 = 20 * SEC;

/// PROVISIONING, SUSPENDING, and then FAILED with an internal error (in practice: no capacity) or SUSPENDED for good.
pub(crate) async fn suspended_creating(stage: &Arc<Stage>, slice: &SliceRef) {
    let world = &stage.world;
    world.trace(|| format!("cloud: {} is SUSPENDING before it was ACTIVE", slice.name));
    if let Some((job, generation)) = cloud::with(world, slice, |r| r.made_for()).flatten() {
        crate::truth::on_loss(world, &job, generation, Fault::SuspendedCreating);
    }
    disaster::show(world, slice, SliceState::Preempted, true);
    disaster::go_dark(world, slice, STAGGER).await;
    world.exec.sleep(world.rolls.between(For::Later, SEC, 2 * MIN)).await;
    let error = cloud::error(CreateErrorKind::HiddenStockout, "an internal error has occurred");
    let fails = world.rolls.chance(For::Later, 0.6);
    let operation = cloud::with(world, slice, |r| r.operation.clone()).unwrap_or_default();
    lock(&world.cloud).end_operation(&operation, fails.then(|| error.clone()));
    if !fails {
        disaster::show(world, slice, SliceState::Preempted, false);
        return;
    }
    cloud::with(world, slice, |r| {
        if r.state != SliceState::Deleting {
            (r.state, r.lingers, r.error) = (SliceState::Failed, false, Some(error));
        }
    });
}

/// ACTIVE, and what it should have is not there.
fn lose_nodes(world: &World, slice: &SliceRef) {
    cloud::with(world, slice, |r| r.has_nodes = false);
    disaster::show(world, slice, SliceState::InTransition("ACTIVE, and the node of slice 0 is absent".into()), false);
}

/// Preempted: its node is 404 for some minutes before the queued resource says anything.
pub(crate) async fn active_without_node(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    disaster::tell_instances(&stage, &slice, "compute.instances.preempted");
    let goes_first = world.rolls.chance(For::Later, 0.5);
    if goes_first {
        disaster::go_dark(world, &slice, STAGGER).await;
    }
    lose_nodes(world, &slice);
    if !goes_first {
        disaster::go_dark(world, &slice, STAGGER).await;
    }
    world.exec.sleep(world.rolls.between(For::Later, SEC, 6 * MIN)).await;
    disaster::taken(world, &slice);
    disaster::suspended(world, &slice).await;
}

/// A person deletes its node: the queued resource is SUSPENDED by USER after a while.
pub(crate) async fn node_deleted_by_hand(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    disaster::go_dark(world, &slice, STAGGER).await;
    lose_nodes(world, &slice);
    world.exec.sleep(world.rolls.between(For::Later, SEC, 6 * MIN)).await;
    disaster::show(world, &slice, SliceState::Stopped, true);
    world.exec.sleep(world.rolls.between(For::Later, 0, MIN)).await;
    disaster::show(world, &slice, SliceState::Stopped, false);
}
