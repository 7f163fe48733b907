//! States of a node that should end by themselves: repairs, restarts, new disks, hiding, none; and the repair that fails.

use std::sync::Arc;

use rekindle_core::observation::SliceState;
use rekindle_ports::tpu::SliceRef;

use crate::cloud;
use crate::machine;
use crate::roll::{For, MIN, SEC};
use crate::stage::Stage;
use crate::world::World;

/// The API shows this state, unless the slice is on its way out.
fn shown(world: &World, slice: &SliceRef, state: SliceState) {
    cloud::with(world, slice, |r| {
        if matches!(r.state, SliceState::Ready | SliceState::InTransition(_) | SliceState::Unspecified) {
            r.state = state;
        }
    });
}

fn in_transition(name: &str) -> SliceState {
    SliceState::InTransition(name.into())
}

/// REPAIRING for a while. Some of its machines are not to be reached meanwhile.
pub(crate) async fn repairing(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    shown(world, &slice, in_transition("REPAIRING"));
    let time = world.rolls.between(For::Cloud, MIN, 25 * MIN);
    if world.rolls.chance(For::Cloud, 0.3) {
        machine::cut(world, &slice, world.now() + time);
    }
    world.exec.sleep(time).await;
    shown(world, &slice, SliceState::Ready);
}

/// REPAIRING, and then UNKNOWN for good: its machines are off.
pub(crate) async fn repair_fails(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    shown(world, &slice, in_transition("REPAIRING"));
    world.exec.sleep(world.rolls.between(For::Cloud, MIN, 10 * MIN)).await;
    machine::power_off(world, &slice);
    cloud::unpower(world, &slice);
    shown(world, &slice, in_transition("UNKNOWN"));
}

/// No state for a while. Its machines run on.
pub(crate) async fn unspecified(stage: Arc<Stage>, slice: SliceRef) {
    shown_for(&stage.world, &slice, SliceState::Unspecified, 25 * MIN).await;
}

/// UNKNOWN for a while, and it was nothing: its machines run on.
pub(crate) async fn unknown_taken_back(stage: Arc<Stage>, slice: SliceRef) {
    shown_for(&stage.world, &slice, in_transition("UNKNOWN"), 12 * MIN).await;
}

/// The API shows this state for so long at most, and then what it showed before, unless that has become of it which it shows then.
async fn shown_for(world: &World, slice: &SliceRef, state: SliceState, longest: i64) {
    let Some(before) = cloud::with(world, slice, |r| std::mem::replace(&mut r.state, state.clone())) else { return };
    world.exec.sleep(world.rolls.between(For::Later, SEC, longest)).await;
    cloud::with(world, slice, |r| {
        if r.state == state {
            r.state = before;
        }
    });
}

/// RESTARTING for some minutes: every machine boots anew, and what ran there is lost.
pub(crate) async fn restarting(stage: Arc<Stage>, slice: SliceRef) {
    boots_all(stage, slice, "RESTARTING", false).await;
}

/// REIMAGING for some minutes: every machine boots anew, with an empty disk.
pub(crate) async fn reimaging(stage: Arc<Stage>, slice: SliceRef) {
    boots_all(stage, slice, "REIMAGING", true).await;
}

async fn boots_all(stage: Arc<Stage>, slice: SliceRef, name: &str, is_new_disk: bool) {
    let world = &stage.world;
    shown(world, &slice, in_transition(name));
    machine::reboot_all(&stage, &slice, is_new_disk);
    world.exec.sleep(world.rolls.between(For::Cloud, MIN, 10 * MIN)).await;
    shown(world, &slice, SliceState::Ready);
}

/// HIDDEN for a while: its machines run on.
pub(crate) async fn hidden(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    shown(world, &slice, in_transition("HIDDEN"));
    world.exec.sleep(world.rolls.between(For::Cloud, MIN, 25 * MIN)).await;
    shown(world, &slice, SliceState::Ready);
}
