//! What an agent says: hello, and reports, which are levels.

use rekindle_core::observation::{ExitReport, Notice, WorkerState};
use rekindle_wire::agent::{Hello, Report};

use crate::fault::Fault;
use crate::machine::{Fleet, OnWorker, Step, Vm};
use crate::roll::MIN;
use crate::world::{World, stamp};

/// What is news: a change here is reported at once.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct News {
    attempt: u32,
    state: WorkerState,
    notice: Option<Notice>,
    exited: bool,
    stepped: bool,
    left: (bool, bool),
}

/// What of a worker is news.
pub(crate) fn news(world: &World, vm: &Vm) -> News {
    let attempt = vm.attempt.as_ref();
    let beats = world.has(Fault::Heartbeats);
    let long = |a: &OnWorker| a.step == Step::Running && a.started_at.is_some_and(|at| world.now() > at + 4 * MIN);
    let stepped = beats && attempt.is_some_and(long);
    News {
        attempt: attempt.map_or(0, |a| a.number),
        state: state(vm, world.now()),
        notice: vm.notice.clone(),
        exited: attempt.is_some_and(|a| told_exit(a, world.now()).is_some()),
        stepped,
        left: left(vm, world.now()),
    }
}

/// The end of a program, once it is told.
fn told_exit(a: &OnWorker, now: i64) -> Option<&ExitReport> {
    a.exit.as_ref().filter(|_| now >= a.told_from)
}

/// Whether outputs are being collected, and whether output waits to be sent.
fn left(vm: &Vm, now: i64) -> (bool, bool) {
    let is_told = vm.attempt.as_ref().is_some_and(|a| told_exit(a, now).is_some());
    (is_told && vm.collecting_until > 0, vm.unsent_until > 0 && vm.collecting_until == 0)
}

/// What the agent says it does.
pub(crate) fn state(vm: &Vm, now: i64) -> WorkerState {
    let Some(a) = &vm.attempt else { return WorkerState::Preparing };
    match a.step {
        Step::Ready | Step::Starting(_) => WorkerState::Ready,
        Step::Running => WorkerState::Running,
        Step::Exited if told_exit(a, now).is_some() => WorkerState::Exited,
        Step::Exited if a.started_at.is_some() => WorkerState::Running,
        Step::Fresh | Step::Preparing(_) | Step::Exited => WorkerState::Preparing,
    }
}

/// Its hello.
pub(crate) fn hello_of(vm: &Vm) -> Hello {
    Hello {
        job: vm.job.clone(),
        generation: vm.generation,
        key: vm.key,
        nonce: vm.nonce.clone(),
        instance: vm.instance.clone(),
        boot_id: format!("boot-{}-{}", vm.instance, vm.boot),
        address: format!("10.{}.0.{}", vm.key.slice, vm.key.worker + 1),
        version: "1".into(),
    }
}

/// Its report; `store`: it is to be written down.
pub(crate) fn report_of(world: &World, fleet: &Fleet, vm: &Vm, store: bool) -> Report {
    let attempt = vm.attempt.as_ref();
    Report {
        job: vm.job.clone(),
        generation: vm.generation,
        key: vm.key,
        instance: vm.instance.clone(),
        boot_id: format!("boot-{}-{}", vm.instance, vm.boot),
        attempt: attempt.map_or(0, |a| a.number),
        store,
        state: state(vm, world.now()),
        started_at: attempt.and_then(|a| a.started_at).map(stamp),
        progress: crate::pulse::progress(world, fleet, vm, world.now()),
        output_at: crate::pulse::output_at(world, fleet, vm, world.now()),
        disk_free_bytes: Some(free(vm, world.now(), 38)),
        memory_free_bytes: Some(free(vm, world.now(), 36)),
        notice: vm.notice.clone(),
        exit: attempt.and_then(|a| told_exit(a, world.now()).cloned()),
        has_work: attempt.is_some_and(|a| a.work.is_some()),
        has_bell: vm.has_bell,
        is_collecting: left(vm, world.now()).0,
        has_unsent: left(vm, world.now()).1,
    }
}

/// What is free of disk or memory: it goes up and down with every minute.
fn free(vm: &Vm, now: i64, bits: u32) -> u64 {
    let minute = u64::try_from(now / MIN).unwrap_or(0) + u64::from(vm.key.worker);
    (1_u64 << bits) + minute % 61 * (1 << 20)
}
