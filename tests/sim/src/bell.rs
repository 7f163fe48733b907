//! The bell of the agents: a datagram to a worker's address, which says only that it should ask now. In half of the worlds none arrives, as
//! behind a firewall; in the others some are lost.

use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::orders::Order;
use rekindle_ports::world::Bells;

use crate::exec::lock;
use crate::machine::Vm;
use crate::roll::{For, SEC};
use crate::world::World;

/// However often it is rung, an agent asks no more often.
const REST: i64 = SEC / 5;

/// The bells as passes ring them.
pub(crate) struct SimBells(pub(crate) Arc<World>);

#[async_trait]
impl Bells for SimBells {
    async fn ring(&self, addresses: &[String]) {
        reach(&self.0, addresses, true);
    }

    async fn greet(&self, addresses: &[String]) {
        reach(&self.0, addresses, false);
    }
}

/// Datagrams to workers: to ask now (`rings`), or only to be heard.
fn reach(world: &World, addresses: &[String], rings: bool) {
    if !world.has_bells {
        return;
    }
    let now = world.now();
    let mut fleet = lock(&world.fleet);
    for vm in fleet.vms.values_mut().filter(|vm| addresses.contains(&vm.address)) {
        if vm.agent_dead || vm.agent.is_none() || now < vm.cut_until || world.rolls.chance(For::Form, 0.1) {
            world.count("rings lost");
            continue;
        }
        vm.has_bell = true;
        if rings {
            world.count("rings heard");
            vm.is_rung = true;
            vm.poke_at = vm.poke_at.min(now + world.rolls.between(For::Form, SEC / 1000, REST));
            vm.signal.raise();
        }
    }
}

/// An agent that finds other orders though nobody rang relies on its bell no longer.
pub(crate) fn judge(world: &World, vm: &mut Vm, order: &Order, was_rung: bool) {
    let told = |order: &Order| (order.attempt, order.want, order.kill_at);
    let is_other = vm.order.as_ref().is_some_and(|known| told(known) != told(order));
    if is_other && !was_rung && vm.has_bell {
        world.count("bells given up");
        vm.has_bell = false;
    }
}
