//! Programs: one attempt's program on all its workers moves on together, saves, breaks and ends.

use std::collections::BTreeSet;

use rekindle_core::classify::{Exit, Stage as During};
use rekindle_core::ids::JobId;

use crate::exec::lock;
use crate::fault::Fault;
use crate::machine::{Death, Fleet, Step, VmId};
use crate::plan::{Fate, JobPlan};
use crate::roll::{For, MIN, SEC};
use crate::world::World;

/// What a program says when its peers are gone.
pub(crate) const GRPC: &str =
    "Error: all-reduce at step 77 failed: gRPC status UNAVAILABLE: connection reset by peer\n";
/// What a program says when it is wrong.
pub(crate) const TRACEBACK: &str = "Traceback (most recent call last):\n  File \"train.py\", line 12, in <module>\n    main()\nValueError: bad learning rate\n";

/// What a program says when its disk is full.
pub(crate) const DISK_FULL: &str = "OSError: [Errno 28] No space left on device: '/tmp/cache/shard-17'\n";
/// What the TPU runtime says when it aborts the program.
const ABORTED: &str = "F0312 10:22:17.123456 1234 tpu_driver.cc:812] Check failed: libtpu.so: TPU core halted unexpectedly\n*** Check failure stack trace: ***\nFatal Python error: Aborted\n";

/// The program of one attempt on all its workers.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Workers on which it runs.
    pub(crate) running: BTreeSet<VmId>,
    /// Checkpoint line.
    pub(crate) line: u32,
    /// The step that it began at.
    pub(crate) base: u64,
    /// Resumed from a checkpoint.
    pub(crate) resumed: bool,
    /// When all workers ran it.
    pub(crate) began_at: Option<i64>,
    /// When it stopped moving on.
    pub(crate) broken_at: Option<i64>,
    /// Its steps were all done.
    pub(crate) finished: bool,
}

impl Group {
    /// The step that it has done by then.
    pub(crate) fn step(&self, job: &JobPlan, now: i64) -> u64 {
        let Some(began) = self.began_at else { return self.base };
        let until = self.broken_at.unwrap_or(now).min(now);
        let done = u64::try_from((until - began).max(0) / job.step_us).unwrap_or(0);
        (self.base + done).min(last_step(job))
    }

    /// The newest checkpoint by then.
    pub(crate) fn saved(&self, job: &JobPlan, now: i64) -> Option<u64> {
        let began = self.began_at?;
        let until = self.broken_at.unwrap_or(now).min(now);
        let rounds = (until - began).max(0) / job.checkpoint_us;
        let steps = u64::try_from(rounds * job.checkpoint_us / job.step_us).unwrap_or(0);
        if rounds > 0 && steps > 0 {
            Some((self.base + steps).min(last_step(job)))
        } else {
            self.resumed.then_some(self.base)
        }
    }
}

/// The step at which it ends by itself.
fn last_step(job: &JobPlan) -> u64 {
    match job.fate {
        Fate::Succeeds | Fate::OneFails { .. } => job.steps,
        Fate::Fails { percent } => (job.steps * percent / 100).max(1).min(job.steps),
    }
}

/// A program starts on a worker. Answers whether this was the last one that it waited for.
pub(crate) fn join(world: &World, fleet: &mut Fleet, id: VmId, resume: bool, line: u32, expected: usize) {
    let now = world.now();
    let Some(vm) = fleet.vms.get(&id) else { return };
    let job = vm.job.clone();
    let Some(number) = vm.attempt.as_ref().map(|a| a.number) else { return };
    let Some(plan) = world.job_plan(&job) else { return };
    let saved = fleet.checkpoints.get(&(job.clone(), line)).copied().filter(|_| resume);
    let group = fleet.groups.entry((job.clone(), number)).or_insert_with(|| Group {
        running: BTreeSet::new(),
        line,
        base: saved.unwrap_or(0),
        resumed: saved.is_some(),
        began_at: None,
        broken_at: None,
        finished: false,
    });
    group.running.insert(id);
    let complete = group.running.len() == expected && group.began_at.is_none() && group.broken_at.is_none();
    if complete {
        // Compiling takes a while before the first step.
        let began = now + world.rolls.between(For::Worker, MIN, 3 * MIN);
        crate::truth::mark(world, &job, "moving", began);
        group.began_at = Some(began);
        let left = last_step(plan).saturating_sub(group.base);
        let ends = began + i64::try_from(left).unwrap_or(0) * plan.step_us;
        let members: Vec<VmId> = group.running.iter().copied().collect();
        for member in members {
            let key = |id: VmId| fleet.vms.get(&id).map(|vm| vm.key.worker);
            let (exit, tail) = match plan.fate {
                Fate::Fails { .. } => (Exit::Code(1), TRACEBACK.to_owned()),
                Fate::OneFails { worker } if key(member) == Some(worker) => (Exit::Code(1), TRACEBACK.to_owned()),
                Fate::Succeeds | Fate::OneFails { .. } => (Exit::Code(0), String::new()),
            };
            let at = ends + world.rolls.between(For::Worker, 0, 3 * SEC);
            die(fleet, member, Death { at, exit, tail, during: During::Run, ordered: false, oom: false, busy: false });
        }
    }
}

/// The program of a worker is to end so, if it has no end yet.
pub(crate) fn die(fleet: &mut Fleet, id: VmId, death: Death) {
    let Some(vm) = fleet.vms.get_mut(&id) else { return };
    if let Some(a) = vm.attempt.as_mut().filter(|a| a.step == Step::Running && !a.stopping) {
        let sooner = a.death.as_ref().is_none_or(|known| death.at < known.at);
        if sooner {
            a.death = Some(death);
            vm.signal.raise();
        }
    }
}

/// The program of a worker is over, in whatever way: its group stands still, and the others notice.
pub(crate) fn leave(world: &World, id: VmId) {
    let mut fleet = lock(&world.fleet);
    let Some(vm) = fleet.vms.get(&id) else { return };
    let Some(number) = vm.attempt.as_ref().map(|a| a.number) else { return };
    let key = (vm.job.clone(), number);
    let now = world.now();
    let Some(group) = fleet.groups.get_mut(&key) else { return };
    if !group.running.remove(&id) {
        return;
    }
    let plan = world.job_plan(&key.0);
    if let Some(plan) = plan
        && group.began_at.is_some()
        && group.step(plan, now) >= plan.steps
    {
        group.finished = true;
    }
    if group.broken_at.is_none() {
        group.broken_at = Some(now);
        save(world, &mut fleet, &key, now);
        break_others(world, &mut fleet, &key, now);
    }
    crate::check::on_program_end(world, &key.0, number);
}

/// Keeps what the program has saved by then.
pub(crate) fn save(world: &World, fleet: &mut Fleet, key: &(JobId, u32), now: i64) {
    let Some(plan) = world.job_plan(&key.0) else { return };
    let Some(group) = fleet.groups.get(key) else { return };
    if let Some(saved) = group.saved(plan, now) {
        let slot = fleet.checkpoints.entry((key.0.clone(), group.line)).or_default();
        *slot = saved.max(*slot);
    }
}

/// A last checkpoint on SIGTERM, if all workers still run.
pub(crate) fn save_last(world: &World, fleet: &mut Fleet, key: &(JobId, u32), now: i64) {
    let Some(plan) = world.job_plan(&key.0) else { return };
    let Some(group) = fleet.groups.get(key).filter(|g| g.broken_at.is_none() && g.began_at.is_some()) else { return };
    let step = group.step(plan, now);
    let slot = fleet.checkpoints.entry((key.0.clone(), group.line)).or_default();
    *slot = step.max(*slot);
}

/// The others of a program that lost a member: they finish if all was done, else fail or hang.
fn break_others(world: &World, fleet: &mut Fleet, key: &(JobId, u32), now: i64) {
    let Some(group) = fleet.groups.get(key) else { return };
    if group.finished {
        return;
    }
    let members: Vec<VmId> = group.running.iter().copied().collect();
    for member in members {
        let hangs = world.rolls.chance(For::Worker, 0.5);
        let at = now + world.rolls.between(For::Worker, SEC, 40 * SEC);
        if let Some(a) = fleet.vms.get_mut(&member).and_then(|vm| vm.attempt.as_mut()).filter(|a| !a.stopping) {
            // What it was going to end with will not come.
            a.death = None;
        }
        if !hangs {
            let death = Death {
                at,
                exit: Exit::Code(1),
                tail: GRPC.to_owned(),
                during: During::Run,
                ordered: false,
                oom: false,
                busy: false,
            };
            die(fleet, member, death);
        }
    }
}

/// The whole program hangs: it lives and does not move on. Only one whose job has told of a step is watched.
pub(crate) fn hang(world: &World, key: &(JobId, u32)) -> bool {
    let has_told = lock(&world.checks).jobs.get(&key.0).is_some_and(|job| job.highest_step.is_some());
    let mut fleet = lock(&world.fleet);
    let now = world.now();
    let Some(plan) = world.job_plan(&key.0) else { return false };
    let moves = |g: &&mut Group| g.broken_at.is_none() && g.began_at.is_some();
    let Some(group) = fleet.groups.get_mut(key).filter(moves).filter(|g| has_told || g.step(plan, now) > g.base) else {
        return false;
    };
    group.broken_at = Some(now);
    let members: Vec<VmId> = group.running.iter().copied().collect();
    save(world, &mut fleet, key, now);
    for member in members {
        if let Some(a) = fleet.vms.get_mut(&member).and_then(|vm| vm.attempt.as_mut()).filter(|a| !a.stopping) {
            a.death = None;
        }
    }
    true
}

/// An end of one worker's program that a fault brings about.
pub(crate) fn death_of(fault: Fault, at: i64) -> Death {
    let plain = |exit, tail: &str| Death {
        at,
        exit,
        tail: tail.into(),
        during: During::Run,
        ordered: false,
        oom: false,
        busy: false,
    };
    match fault {
        Fault::ExitGrpc => plain(Exit::Code(1), GRPC),
        Fault::ExitKilled => plain(Exit::Signal(9), ""),
        Fault::ExitDevice => Death {
            busy: true,
            ..plain(
                Exit::Code(1),
                "RuntimeError: TPU initialization failed: open(/dev/vfio/0): Device or resource busy\n",
            )
        },
        Fault::ExitStorage => plain(
            Exit::Code(1),
            "google.api_core.exceptions.ServiceUnavailable: 503 GET https://storage.googleapis.com/b/x: We encountered an internal error. Please try again.\n",
        ),
        Fault::PreemptExitFirst => plain(Exit::Code(143), ""),
        Fault::ExitAbort => plain(Exit::Code(134), ABORTED),
        Fault::ExitDisk => plain(Exit::Code(1), DISK_FULL),
        Fault::ExitOom => Death { oom: true, ..plain(Exit::Signal(9), "") },
        _ => plain(Exit::Code(2), TRACEBACK),
    }
}
