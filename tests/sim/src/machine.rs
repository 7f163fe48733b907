//! Worker VMs: power, network, boots, and what is on their disks. The agent's steps are in `agent`, programs in `program`.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;

use rekindle_core::classify::{Exit, Stage as During};
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::observation::{ExitReport, Notice, NoticeKind, WorkerState};
use rekindle_core::orders::{Order, Work};
use rekindle_engine::act::metadata;
use rekindle_ports::tpu::SliceRef;

use crate::exec::{Signal, TaskId, lock};
use crate::program::{self, Group};
use crate::roll::{For, MIN, SEC};
use crate::stage::Stage;
use crate::world::World;

/// Names a VM over the whole run.
pub(crate) type VmId = u64;

/// How a program ends.
#[derive(Debug, Clone)]
pub(crate) struct Death {
    /// When.
    pub(crate) at: i64,
    /// How.
    pub(crate) exit: Exit,
    /// Its last words.
    pub(crate) tail: String,
    /// Which part of the attempt.
    pub(crate) during: During,
    /// Ended by the agent.
    pub(crate) ordered: bool,
    /// The kernel says that memory ran out.
    pub(crate) oom: bool,
    /// Somebody else holds the device.
    pub(crate) busy: bool,
}

/// How far an attempt has come on one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing was done.
    Fresh,
    /// Unpacking and `setup`, until then.
    Preparing(i64),
    /// Waits for the release.
    Ready,
    /// The program is being started, and runs from then on.
    Starting(i64),
    /// The program runs.
    Running,
    /// It ended.
    Exited,
}

/// An attempt on one worker: what the agent keeps on its disk.
#[derive(Debug, Clone)]
pub(crate) struct OnWorker {
    /// Its number.
    pub(crate) number: u32,
    /// How far.
    pub(crate) step: Step,
    /// When the program started.
    pub(crate) started_at: Option<i64>,
    /// The end that is coming: by itself, or by the agent.
    pub(crate) death: Option<Death>,
    /// True once the agent has begun to end it.
    pub(crate) stopping: bool,
    /// The end, as told.
    pub(crate) exit: Option<ExitReport>,
    /// When nothing of it lived any more.
    pub(crate) closed_at: Option<i64>,
    /// The end is told from then on: what was said last is sent first.
    pub(crate) told_from: i64,
    /// `api` has stored the end.
    pub(crate) accepted: bool,
    /// What to run, once it was told.
    pub(crate) work: Option<Work>,
}

/// A worker VM.
pub(crate) struct Vm {
    /// The node or queued resource that it belongs to.
    pub(crate) slice: SliceRef,
    /// From node metadata.
    pub(crate) job: JobId,
    /// From node metadata.
    pub(crate) generation: u32,
    /// From node metadata.
    pub(crate) nonce: String,
    /// Which worker.
    pub(crate) key: WorkerKey,
    /// VM name.
    pub(crate) instance: String,
    /// Its address in the workers' network.
    pub(crate) address: String,
    /// Number of its boot.
    pub(crate) boot: u32,
    /// Cut off from `api` until then.
    pub(crate) cut_until: i64,
    /// The agent's task.
    pub(crate) agent: Option<TaskId>,
    /// The agent is gone for good.
    pub(crate) agent_dead: bool,
    /// Something happened that the agent should look at.
    pub(crate) signal: Arc<Signal>,
    /// When the next call is due because of news elsewhere.
    pub(crate) poke_at: i64,
    /// The agent has heard its bell, and relies on it.
    pub(crate) has_bell: bool,
    /// It was rung since its last call.
    pub(crate) is_rung: bool,
    /// On its disk: the token.
    pub(crate) token: Option<String>,
    /// On its disk: `setup` was done.
    pub(crate) setup_done: bool,
    /// On its disk: the attempt.
    pub(crate) attempt: Option<OnWorker>,
    /// The last order, as the agent has it.
    pub(crate) order: Option<Order>,
    /// What the metadata server says.
    pub(crate) notice: Option<Notice>,
    /// When `api` last took a report of it that was stored.
    pub(crate) stored_at: i64,
    /// The attempt and the state of that report.
    pub(crate) told: Option<(u32, WorkerState)>,
    /// Output that waits on its disk is sent by then; 0: all is sent.
    pub(crate) unsent_until: i64,
    /// Outputs are collected by then; 0: there are none to collect.
    pub(crate) collecting_until: i64,
    /// `api` was last told, and knows, that one of the two goes on.
    pub(crate) told_left: bool,
}

/// All VMs and programs.
#[derive(Default)]
pub(crate) struct Fleet {
    /// VMs with power.
    pub(crate) vms: BTreeMap<VmId, Vm>,
    /// The same by job, and by slice.
    of: HashMap<String, BTreeSet<VmId>, FixedState>,
    /// Programs of an attempt on all its workers.
    pub(crate) groups: HashMap<(JobId, u32), Group, FixedState>,
    /// Checkpoints: the step that a line of a job can resume from.
    pub(crate) checkpoints: BTreeMap<(JobId, u32), u64>,
    next: VmId,
}

impl Fleet {
    fn add(&mut self, id: VmId, vm: Vm) {
        self.of.entry(vm.job.to_string()).or_default().insert(id);
        self.of.entry(vm.slice.name.clone()).or_default().insert(id);
        self.vms.insert(id, vm);
    }

    fn remove(&mut self, id: VmId) -> Option<Vm> {
        let vm = self.vms.remove(&id)?;
        for key in [vm.job.as_str(), &vm.slice.name] {
            if let Some(ids) = self.of.get_mut(key) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.of.remove(key);
                }
            }
        }
        Some(vm)
    }

    /// The VMs of a job.
    pub(crate) fn of_job(&self, job: &str) -> impl Iterator<Item = &Vm> {
        self.ids(job).filter_map(|id| self.vms.get(&id)).filter(move |vm| vm.job.as_str() == job)
    }

    fn of_slice(&self, slice: &SliceRef) -> Vec<VmId> {
        self.ids(&slice.name).filter(|id| self.vms.get(id).is_some_and(|vm| vm.slice == *slice)).collect()
    }

    fn ids(&self, key: &str) -> impl Iterator<Item = VmId> {
        self.of.get(key).into_iter().flatten().copied()
    }
}

/// Powers on all VMs of a slice that is there.
pub(crate) fn boot_all(stage: &Arc<Stage>, slice: &SliceRef) {
    let world = &stage.world;
    let facts = crate::cloud::with(world, slice, |r| {
        (r.metadata.clone(), r.slices, r.workers, r.foreign, r.powered, r.addresses.clone())
    });
    let Some((metadata, slices, workers, foreign, powered, addresses)) = facts else { return };
    let text = |key: &str| metadata.get(key).cloned().unwrap_or_default();
    let (Ok(job), Ok(generation)) = (JobId::parse(&text(metadata::JOB)), text(metadata::GENERATION).parse::<u32>())
    else {
        return;
    };
    if foreign || !powered {
        return;
    }
    for s in 0..slices {
        for worker in 0..workers {
            let mut fleet = lock(&world.fleet);
            let id = fleet.next;
            fleet.next += 1;
            let vm = Vm {
                slice: slice.clone(),
                job: job.clone(),
                generation,
                nonce: text(metadata::NONCE),
                key: WorkerKey { slice: s, worker },
                instance: format!("t1v-n-{id:08x}-w-{worker}"),
                address: addresses
                    .get(s as usize)
                    .and_then(|all| all.get(worker as usize))
                    .cloned()
                    .unwrap_or_default(),
                boot: 1,
                cut_until: 0,
                agent: None,
                agent_dead: false,
                signal: Arc::default(),
                poke_at: i64::MAX,
                has_bell: false,
                is_rung: false,
                token: None,
                setup_done: false,
                attempt: None,
                order: None,
                notice: None,
                stored_at: 0,
                told: None,
                unsent_until: 0,
                collecting_until: 0,
                told_left: false,
            };
            fleet.add(id, vm);
            drop(fleet);
            start_agent(stage, id, world.rolls.between(For::Worker, 3 * SEC, 45 * SEC));
        }
    }
}

/// Starts the agent of a VM after a while.
pub(crate) fn start_agent(stage: &Arc<Stage>, id: VmId, after: i64) {
    let stage2 = stage.clone();
    let task = stage.world.exec.spawn(async move {
        stage2.world.exec.sleep(after).await;
        crate::agent::run(stage2.clone(), id).await;
    });
    if let Some(vm) = lock(&stage.world.fleet).vms.get_mut(&id) {
        vm.agent = Some(task);
    }
}

/// The VMs of a slice lose power: what runs there is dead.
pub(crate) fn power_off(world: &World, slice: &SliceRef) {
    let ids = lock(&world.fleet).of_slice(slice);
    for id in ids {
        switch_off(world, id);
    }
}

/// A VM loses power, if it has any.
pub(crate) fn switch_off(world: &World, id: VmId) {
    crate::pulse::settle(world, id);
    program::leave(world, id);
    let gone = lock(&world.fleet).remove(id);
    if let Some(task) = gone.and_then(|vm| vm.agent) {
        world.exec.kill(task);
    }
}

/// The VMs of a slice lose power one after the other, the last of them `within` so long.
pub(crate) async fn go_dark(world: &World, slice: &SliceRef, within: i64) {
    let ids = lock(&world.fleet).of_slice(slice);
    dim(world, ids, within).await;
}

/// The same for one slice of a multislice.
pub(crate) async fn go_dark_in_part(world: &World, slice: &SliceRef, part: u32, within: i64) {
    let ids = {
        let fleet = lock(&world.fleet);
        let mut ids = fleet.of_slice(slice);
        ids.retain(|id| fleet.vms.get(id).is_some_and(|vm| vm.key.slice == part));
        ids
    };
    dim(world, ids, within).await;
}

async fn dim(world: &World, ids: Vec<VmId>, within: i64) {
    let now = world.now();
    let mut ends: Vec<(i64, VmId)> =
        ids.into_iter().map(|id| (now + world.rolls.between(For::Cloud, 0, within), id)).collect();
    ends.sort_unstable();
    for (at, id) in ends {
        world.exec.sleep_until(at).await;
        switch_off(world, id);
    }
}

/// A notice reaches the first `most` VMs of a slice.
pub(crate) fn notify(world: &World, slice: &SliceRef, notice: &Notice, most: usize) {
    let mut fleet = lock(&world.fleet);
    for id in fleet.of_slice(slice).into_iter().take(most) {
        let Some(vm) = fleet.vms.get_mut(&id) else { continue };
        vm.notice = Some(notice.clone());
        vm.signal.raise();
    }
}

/// What was announced to a slice, but for a preemption, will not be.
pub(crate) fn call_off(world: &World, slice: &SliceRef) {
    crate::cloud::with(world, slice, |r| r.notice = None);
    let mut fleet = lock(&world.fleet);
    for id in fleet.of_slice(slice) {
        let Some(vm) = fleet.vms.get_mut(&id) else { continue };
        if vm.notice.as_ref().is_some_and(|n| n.kind != NoticeKind::Preemption) {
            vm.notice = None;
            vm.signal.raise();
        }
    }
}

/// The agents of a job learn, at their next poll, that its document changed.
pub(crate) fn poke(world: &World, job: &JobId) {
    let now = world.now();
    let mut fleet = lock(&world.fleet);
    let ids: Vec<VmId> = fleet.ids(job.as_str()).collect();
    for id in ids {
        let Some(vm) = fleet.vms.get_mut(&id).filter(|vm| vm.job == *job) else { continue };
        let told = vm.order.as_ref().map(|order| i64::try_from(order.poll_after_ms).unwrap_or(1000) * 1000);
        let poll = told.unwrap_or(SEC).max(SEC / 10);
        let at = now + world.rolls.between(For::Worker, SEC / 20, poll);
        if at < vm.poke_at {
            vm.poke_at = at;
            vm.signal.raise();
        }
    }
}

/// Cuts a slice off from `api` for a while.
pub(crate) fn cut(world: &World, slice: &SliceRef, until: i64) {
    let ids = lock(&world.fleet).of_slice(slice);
    for id in ids {
        crate::pulse::settle(world, id);
        if let Some(vm) = lock(&world.fleet).vms.get_mut(&id) {
            vm.cut_until = vm.cut_until.max(until);
            vm.poke_at = vm.poke_at.min(until + SEC);
            vm.signal.raise();
        }
    }
}

/// One agent ends; with `for_good` it stays away, and its program lives on.
pub(crate) fn end_agent(stage: &Arc<Stage>, id: VmId, for_good: bool) {
    let world = &stage.world;
    crate::pulse::settle(world, id);
    let task = lock(&world.fleet).vms.get_mut(&id).and_then(|vm| {
        vm.agent_dead |= for_good;
        vm.order = None;
        vm.has_bell = false;
        vm.agent.take()
    });
    if let Some(task) = task {
        world.exec.kill(task);
    }
    if !for_good {
        start_agent(stage, id, world.rolls.between(For::Worker, SEC, 20 * SEC));
    }
}

/// One worker boots anew: its program is lost.
pub(crate) fn reboot(stage: &Arc<Stage>, id: VmId) {
    // A host repaired may come back with a boot disk made anew.
    let is_new_disk = stage.world.rolls.chance(For::Worker, 0.2);
    let time = stage.world.rolls.between(For::Worker, 30 * SEC, 3 * MIN);
    boot_anew(stage, id, is_new_disk, time);
}

/// Every worker of a slice boots anew.
pub(crate) fn reboot_all(stage: &Arc<Stage>, slice: &SliceRef, is_new_disk: bool) {
    let ids = lock(&stage.world.fleet).of_slice(slice);
    for id in ids {
        let time = stage.world.rolls.between(For::Worker, 30 * SEC, 3 * MIN);
        boot_anew(stage, id, is_new_disk, time);
    }
}

/// What runs on a machine is lost; it is up again after so long.
pub(crate) fn boot_anew(stage: &Arc<Stage>, id: VmId, is_new_disk: bool, after: i64) {
    let world = &stage.world;
    crate::pulse::settle(world, id);
    program::leave(world, id);
    let task = lock(&world.fleet).vms.get_mut(&id).and_then(|vm| {
        vm.boot += 1;
        if is_new_disk {
            (vm.token, vm.setup_done, vm.attempt) = (None, false, None);
            (vm.unsent_until, vm.told_left, vm.collecting_until) = (0, false, 0);
        }
        vm.order = None;
        vm.has_bell = false;
        vm.agent_dead = false;
        crate::agent::wake_up(vm);
        vm.agent.take()
    });
    if let Some(task) = task {
        world.exec.kill(task);
    }
    start_agent(stage, id, after);
}

/// A worker of a slice whose program runs.
pub(crate) fn running_on(world: &World, slice: &SliceRef) -> Option<VmId> {
    let fleet = lock(&world.fleet);
    let runs = |vm: &Vm| vm.attempt.as_ref().is_some_and(|a| a.step == Step::Running && !a.stopping);
    fleet.of_slice(slice).into_iter().find(|id| fleet.vms.get(id).is_some_and(runs))
}

/// Faults are over: networks are whole again.
pub(crate) fn heal(world: &World) {
    let now = world.now();
    let mut fleet = lock(&world.fleet);
    for vm in fleet.vms.values_mut().filter(|vm| vm.cut_until > now) {
        vm.cut_until = now;
        vm.poke_at = now;
        vm.signal.raise();
    }
}
