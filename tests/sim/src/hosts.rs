//! What befalls hosts, of whatever capacity: errors, maintenance that ends a slice or is called off, moves to other hosts.

use std::sync::Arc;

use rekindle_core::job::Via;
use rekindle_core::observation::{Health, Notice, NoticeKind, SliceState};
use rekindle_ports::tpu::SliceRef;

use crate::cloud;
use crate::deliver;
use crate::disaster;
use crate::exec::lock;
use crate::machine::{self, VmId};
use crate::roll::{For, MIN, SEC};
use crate::stage::Stage;
use crate::world::{World, stamp};

/// The machines of a slice go off within so long of each other.
const STAGGER: i64 = 45 * SEC;

/// One host fails: what ran there is lost, and the machine boots on another host minutes later.
pub(crate) async fn fail(stage: Arc<Stage>, id: VmId) {
    let world = &stage.world;
    let of = lock(&world.fleet).vms.get(&id).map(|vm| (vm.slice.clone(), vm.instance.clone()));
    let Some((slice, instance)) = of else { return };
    let time = world.rolls.between(For::Later, 2 * MIN, 12 * MIN);
    let is_new_disk = world.rolls.chance(For::Later, 0.3);
    machine::boot_anew(&stage, id, is_new_disk, time);
    deliver::instance_event(&stage, &slice.zone, &instance, "compute.instances.hostError");
    let shows = world.rolls.index(For::Later, 3);
    let set = |is_ill: bool| {
        cloud::with(world, &slice, |r| match (shows, is_ill, &r.state) {
            (0, true, SliceState::Ready) => r.state = SliceState::InTransition("REPAIRING".into()),
            (0, false, SliceState::InTransition(name)) if name == "REPAIRING" => r.state = SliceState::Ready,
            (1, true, _) => r.health = Health::Unhealthy("TIMEOUT".into()),
            (1, false, _) => r.health = Health::Healthy,
            // Nobody says anything.
            _ => {}
        });
    };
    set(true);
    world.exec.sleep(time).await;
    set(false);
}

/// Capacity that is not preemptible is taken, with a notice of maintenance or without.
pub(crate) async fn take_on_demand(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    if world.rolls.chance(For::Later, 0.5) {
        disaster::give_notice(world, &slice, NoticeKind::Maintenance, MIN);
        world.exec.sleep(world.rolls.between(For::Later, MIN / 2, MIN)).await;
    }
    disaster::tell_instances(&stage, &slice, "compute.instances.terminateOnHostMaintenance");
    if slice.via == Via::Node {
        let state = [SliceState::Terminated, SliceState::Preempted, SliceState::Stopped];
        let state = state[world.rolls.index(For::Later, 3)].clone();
        disaster::end_as(stage, slice, state).await;
        return;
    }
    if world.rolls.chance(For::Later, 0.5) {
        disaster::taken(world, &slice);
        disaster::go_dark(world, &slice, STAGGER).await;
    } else {
        disaster::go_dark(world, &slice, STAGGER).await;
        disaster::taken(world, &slice);
    }
    disaster::suspended(world, &slice).await;
}

/// The machines are moved while they run: announced, and over some minutes later.
pub(crate) async fn migrate(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    let after = world.rolls.between(For::Later, MIN, 10 * MIN);
    disaster::give_notice(world, &slice, NoticeKind::Migration, after);
    world.exec.sleep(after).await;
    disaster::tell_instances(&stage, &slice, "compute.instances.migrateOnHostMaintenance");
    // Nobody is heard while a machine is moved.
    let pause = world.rolls.between(For::Later, SEC, MIN / 2);
    machine::cut(world, &slice, world.now() + pause);
    world.exec.sleep(pause).await;
    machine::call_off(world, &slice);
}

/// Maintenance is announced, and then called off, or put off and called off later.
pub(crate) async fn maintenance_moved(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    let after = world.rolls.between(For::Later, 20 * MIN, 90 * MIN);
    disaster::give_notice(world, &slice, NoticeKind::Maintenance, after);
    world.exec.sleep(world.rolls.between(For::Later, MIN, after - 10 * MIN)).await;
    if world.rolls.chance(For::Later, 0.5) {
        put_off(world, &slice);
        world.exec.sleep(world.rolls.between(For::Later, MIN, 40 * MIN)).await;
    }
    machine::call_off(world, &slice);
}

/// The window begins an hour from now instead.
fn put_off(world: &World, slice: &SliceRef) {
    let now = world.now();
    let deadline = stamp(now + 60 * MIN);
    machine::notify(world, slice, &Notice { kind: NoticeKind::Maintenance, seen_at: stamp(now), deadline }, usize::MAX);
}
