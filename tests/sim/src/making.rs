//! Brings up what was asked for: capacity, the time of a create, READY; or what it comes to instead.

use std::sync::Arc;

use rekindle_core::job::Via;
use rekindle_core::observation::{CreateErrorKind, SliceState};
use rekindle_ports::tpu::SliceRef;

use crate::cloud::{error, remove, with};
use crate::deliver::{self, Part};
use crate::exec::lock;
use crate::fault::Fault;
use crate::machine;
use crate::queued;
use crate::roll::{For, HOUR, MIN, SEC};
use crate::stage::Stage;
use crate::world::World;

/// Brings up what was asked for, or fails to.
pub(crate) async fn bring_up(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    let reserved = with(world, &slice, |r| r.reserved).unwrap_or(false);
    loop {
        // Shortage shows early; the queue of a queued resource waits instead.
        world.exec.sleep(world.rolls.between(For::Cloud, 3 * SEC, 20 * SEC)).await;
        let Shortage { hidden, no_address, none } = shortage(world, &slice);
        if !(hidden || no_address || none) {
            break;
        }
        world.count("stockouts met");
        world.trace(|| format!("cloud: no room for {} (hidden {hidden})", slice.name));
        if reserved && !no_address && world.rolls.chance(For::Later, 0.3) {
            fail_create(&stage, &slice, CreateErrorKind::Reservation);
            return;
        }
        if slice.via == Via::Node || no_address || (hidden && world.rolls.chance(For::Cloud, 0.3)) {
            let kind = match (hidden, no_address) {
                (true, _) => CreateErrorKind::HiddenStockout,
                (false, true) => CreateErrorKind::AddressQuota,
                (false, false) => CreateErrorKind::Stockout,
            };
            fail_create(&stage, &slice, kind);
            return;
        }
        world.exec.sleep(world.rolls.between(For::Cloud, 20 * SEC, 3 * MIN)).await;
    }
    // Capacity is taken from here on.
    with(world, &slice, |r| {
        r.powered = true;
        r.state = SliceState::Creating;
    });
    if world.strikes(Fault::CreateErrs, For::Cloud) {
        let error = error(CreateErrorKind::Other, "an internal error has occurred while the node was configured");
        let operation = with(world, &slice, |r| r.operation.clone()).unwrap_or_default();
        lock(&world.cloud).end_operation(&operation, Some(error));
    }
    let slow = world.strikes(Fault::CreateSlow, For::Cloud);
    let time = if slow { world.rolls.between(For::Cloud, 9 * MIN, HOUR) } else { world.plan.create_us };
    let minutes_early = world.strikes(Fault::BootedEarly, For::Cloud);
    let early = minutes_early || world.rolls.chance(For::Cloud, 0.2);
    let preemptible = with(world, &slice, |r| r.preemptible).unwrap_or(false);
    let taken = preemptible && world.strikes(Fault::PreemptedCreating, For::Cloud);
    world.exec.sleep(world.rolls.between(For::Cloud, time / 2, time + time / 2)).await;
    if taken {
        if let Some((job, generation)) = with(world, &slice, |r| r.made_for()).flatten() {
            crate::truth::on_loss(world, &job, generation, Fault::PreemptedCreating);
        }
        preempted_creating(world, &slice);
        return;
    }
    if early {
        machine::boot_all(&stage, &slice);
        let (least, most) = if minutes_early { (MIN, 5 * MIN) } else { (SEC, 30 * SEC) };
        world.exec.sleep(world.rolls.between(For::Cloud, least, most)).await;
    }
    if slice.via == Via::QueuedResource && world.strikes(Fault::SuspendedCreating, For::Later) {
        queued::suspended_creating(&stage, &slice).await;
        return;
    }
    ready(&stage, &slice);
    if !early {
        machine::boot_all(&stage, &slice);
    }
}

/// The slice is READY from here on.
fn ready(stage: &Arc<Stage>, slice: &SliceRef) {
    let world = &stage.world;
    let now = world.now();
    let is_late = world.strikes(Fault::AddressesLate, For::Later);
    let operation = with(world, slice, |r| {
        r.state = SliceState::Ready;
        r.ready_at = Some(now);
        r.has_addresses = !is_late;
        r.operation.clone()
    });
    if let Some(operation) = operation {
        lock(&world.cloud).end_operation(&operation, None);
    }
    world.trace(|| format!("cloud: {} is READY", slice.name));
    if is_late {
        let (world2, slice2) = (world.clone(), slice.clone());
        world.exec.spawn(async move {
            world2.exec.sleep(world2.rolls.between(For::Later, SEC, 3 * MIN)).await;
            with(&world2, &slice2, |r| r.has_addresses = true);
        });
    }
    crate::check::on_ready(world, slice);
    deliver::cloud_event(stage, slice, "Create", Part::Last);
}

/// What is short where a slice is to be made.
struct Shortage {
    /// Capacity, and the API says code 13.
    hidden: bool,
    /// External addresses.
    no_address: bool,
    /// Capacity; of a reservation, its own.
    none: bool,
}

fn shortage(world: &World, slice: &SliceRef) -> Shortage {
    let zone = Some(slice.zone.as_str());
    let (reserved, has_room) = {
        let cloud = lock(&world.cloud);
        cloud.resources.get(slice).map_or((false, true), |r| (r.reserved, cloud.has_room(r)))
    };
    let no_address = world.goes_on(Fault::AddressQuota, zone);
    if reserved {
        let none = world.goes_on(Fault::ReservationFull, zone) || !has_room;
        return Shortage { hidden: false, no_address, none };
    }
    let hidden = world.goes_on(Fault::HiddenStockout, zone);
    let none = hidden || no_address || world.goes_on(Fault::Stockout, zone) || !has_room;
    Shortage { hidden, no_address, none }
}

/// A slice is taken away while it is being made: the API's word comes with it.
pub(crate) fn preempted_creating(world: &World, slice: &SliceRef) {
    let text = "Cloud TPU received a bad request. update is not supported while in state PREEMPTED";
    let mut cloud = lock(&world.cloud);
    let Some(r) = cloud.get_mut(slice) else { return };
    r.powered = false;
    world.count("slices lost while they were made");
    crate::truth::mark_off(world, r);
    r.state = SliceState::Preempted;
    let (operation, life) = (r.operation.clone(), std::mem::take(&mut r.life));
    cloud.end_operation(&operation, Some(error(CreateErrorKind::PreemptedWhileCreating, text)));
    drop(cloud);
    for task in life {
        world.exec.kill(task);
    }
    machine::power_off(world, slice);
}

fn fail_create(stage: &Arc<Stage>, slice: &SliceRef, kind: CreateErrorKind) {
    let world = &stage.world;
    let error = if kind == CreateErrorKind::HiddenStockout {
        error(kind, "an internal error has occurred")
    } else if kind == CreateErrorKind::AddressQuota {
        error(kind, "You have reached IN_USE_ADDRESSES limit.")
    } else if kind == CreateErrorKind::Reservation {
        error(kind, "Insufficient reserved capacity. Contact customer support to increase your reservation.")
    } else {
        error(kind, &format!("There is no more capacity in the zone \"{}\"", slice.zone))
    };
    let mut cloud = lock(&world.cloud);
    let Some(r) = cloud.get_mut(slice) else { return };
    let operation = r.operation.clone();
    if slice.via == Via::QueuedResource {
        r.state = SliceState::Failed;
        r.error = Some(error.clone());
        cloud.end_operation(&operation, Some(error));
        return;
    }
    // Normally nothing is left; users have seen leftovers.
    cloud.end_operation(&operation, Some(error));
    drop(cloud);
    if world.strikes(Fault::LeftoverStays, For::Later) {
        let unknown = || SliceState::InTransition("UNKNOWN".into());
        let state = if world.rolls.chance(For::Later, 0.5) { SliceState::Creating } else { unknown() };
        world.trace(|| format!("cloud: {} is left, {state:?}", slice.name));
        with(world, slice, |r| r.state = state);
        return;
    }
    if world.rolls.chance(For::Cloud, 0.8) {
        remove(stage, slice);
    } else {
        let later = world.rolls.between(For::Cloud, 10 * SEC, 5 * MIN);
        let (stage, slice) = (stage.clone(), slice.clone());
        let exec = stage.world.exec.clone();
        exec.spawn(async move {
            stage.world.exec.sleep(later).await;
            remove(&stage, &slice);
        });
    }
}
