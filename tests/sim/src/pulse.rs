//! Heartbeats and progress of workers that have nothing new to tell as one fact: when they were last heard, and what they had done by then.
//!
//! Seeds with the fault `heartbeats` send each one through `api` instead, and nothing here applies.

use std::sync::Arc;

use jiff::Timestamp;
use rekindle_core::observation::{WorkerReport, WorkerState};
use rekindle_ports::body::Body;
use rekindle_ports::store::{decode, encode};
use rekindle_wire::agent::Progress;

use crate::exec::lock;
use crate::fault::Fault;
use crate::machine::{Fleet, Step, Vm, VmId};
use crate::plan::JobPlan;
use crate::report::state;
use crate::roll::{MIN, SEC};
use crate::world::{World, stamp};

/// What the program of a VM has told of its progress by then.
pub(crate) fn progress(world: &World, fleet: &Fleet, vm: &Vm, at: i64) -> Progress {
    let told = || {
        let plan = world.job_plan(&vm.job).filter(|j| j.writes_progress)?;
        let a = vm.attempt.as_ref().filter(|a| a.started_at.is_some())?;
        let group = fleet.groups.get(&(vm.job.clone(), a.number))?;
        let step = group.step(plan, at);
        let moved = group.began_at.is_some() && step > group.base;
        Some(Progress {
            step: moved.then_some(step),
            step_at: moved.then(|| stamp(group.broken_at.unwrap_or(at).min(at))),
            loss: None,
            checkpoint: group.saved(plan, at),
            resumed_from: group.began_at.filter(|began| *began <= at && group.resumed).map(|_| group.base),
        })
    };
    told().unwrap_or_default()
}

/// Whether a program writes output that its agent tells of: half of those that were drawn, and none that were written down.
pub(crate) fn writes_output(plan: &JobPlan) -> bool {
    plan.checkpoint_us % 2 == 1
}

/// When the program of a VM had last written output by then: a line each minute, as long as it moves on.
pub(crate) fn output_at(world: &World, fleet: &Fleet, vm: &Vm, at: i64) -> Option<Timestamp> {
    world.job_plan(&vm.job).filter(|plan| writes_output(plan))?;
    let a = vm.attempt.as_ref()?;
    let started = a.started_at?;
    let group = fleet.groups.get(&(vm.job.clone(), a.number))?;
    let until = group.broken_at.unwrap_or(at).min(at);
    Some(stamp((until - until.rem_euclid(MIN)).max(started)))
}

/// When a worker that has nothing new to tell was last heard of, if it is one.
fn beat(world: &World, vm: &Vm, report: &WorkerReport) -> Option<i64> {
    let now = world.now();
    let a = vm.attempt.as_ref().filter(|a| a.number == report.attempt)?;
    if vm.agent_dead || vm.order.is_none() || vm.token.is_none() || now < vm.cut_until {
        return None;
    }
    let is_known = match a.step {
        Step::Running => report.state == WorkerState::Running,
        // What is stored of a worker that has booted may be what it did before.
        _ => vm.told == Some((a.number, state(vm, now))),
    };
    if !is_known {
        return None;
    }
    let since = a.started_at.filter(|_| a.step == Step::Running).unwrap_or(vm.stored_at);
    let every = i64::try_from(vm.order.as_ref()?.heartbeat_ms).unwrap_or(20_000) * 1000;
    let at = now - (now - since).rem_euclid(every.max(SEC));
    let away = world.outages().iter().find(|w| w.from <= at && at < w.to && !world.is_calm());
    Some(away.map_or(at, |w| w.from))
}

fn write(report: &mut WorkerReport, at: i64, told: &Progress, output_at: Option<Timestamp>) {
    report.heard_at = report.heard_at.max(stamp(at));
    if report.state != WorkerState::Running {
        return;
    }
    report.output_at = report.output_at.max(output_at);
    if told.step > report.step {
        report.step = told.step;
        report.step_at = told.step_at;
    }
    report.checkpoint = report.checkpoint.max(told.checkpoint);
    report.resumed_from = report.resumed_from.max(told.resumed_from);
}

fn applies(world: &World) -> bool {
    !world.has(Fault::Heartbeats)
}

/// The newest heartbeat of a worker of a job put into its document, and when it came; `None`: nothing came since `known`.
pub(crate) fn fresh(world: &World, job: &str, path: &str, body: &Body, known: i64) -> Option<(Body, i64)> {
    if !applies(world) {
        return None;
    }
    let report = decode::<WorkerReport>(path, body).ok()?;
    let fleet = lock(&world.fleet);
    // A machine of an earlier generation may have been told of the same attempt: its end.
    let is_of = |vm: &Vm| vm.generation == report.generation && vm.key == report.key;
    let runs = |vm: &&Vm| is_of(vm) && vm.attempt.as_ref().is_some_and(|a| a.number == report.attempt);
    let vm = fleet.of_job(job).find(runs)?;
    let at = beat(world, vm, &report).filter(|at| *at > known)?;
    let told = progress(world, &fleet, vm, at);
    let mut report = Arc::unwrap_or_clone(report);
    write(&mut report, at, &told, output_at(world, &fleet, vm, at));
    Some((encode(Arc::new(report)), at))
}

/// Writes the last heartbeat of a worker down, before it falls silent.
pub(crate) fn settle(world: &World, id: VmId) {
    if !applies(world) {
        return;
    }
    let place = lock(&world.fleet).vms.get(&id).and_then(|vm| {
        let number = vm.attempt.as_ref()?.number;
        let name = format!("{number:06}-{:04}-{:04}", vm.key.slice, vm.key.worker);
        Some((vm.job.to_string(), name))
    });
    if let Some((job, name)) = place {
        lock(&world.shelf).hear(world, &job, &format!("jobs/{job}/workers/{name}"));
    }
}
