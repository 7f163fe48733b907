//! Heartbeats and progress of healthy workers as one fact: when they were last heard, and what they had done by then.
//!
//! Seeds with the fault `heartbeats` send each one through `api` instead, and nothing here applies.

use serde_json::Value;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_wire::agent::Progress;

use crate::exec::lock;
use crate::fault::Fault;
use crate::machine::{Fleet, Step, Vm, VmId};
use crate::roll::SEC;
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

/// When a healthy worker was last heard of, if it is one.
fn beat(world: &World, vm: &Vm, number: u32) -> Option<i64> {
    let now = world.now();
    let a = vm.attempt.as_ref().filter(|a| a.number == number && a.step == Step::Running)?;
    if vm.agent_dead || vm.order.is_none() || vm.token.is_none() || now < vm.cut_until {
        return None;
    }
    let started = a.started_at?;
    let every = i64::try_from(vm.order.as_ref()?.heartbeat_ms).unwrap_or(20_000) * 1000;
    let at = now - (now - started).rem_euclid(every.max(SEC));
    let away = world.plan.windows.iter().find(|w| {
        matches!(w.fault, Fault::ApiOutage | Fault::StoreOutage) && w.from <= at && at < w.to && !world.is_calm()
    });
    Some(away.map_or(at, |w| w.from))
}

fn write(body: &mut Value, at: i64, told: &Progress) {
    let Some(data) = body.get_mut("data").and_then(Value::as_object_mut) else { return };
    if data.get("state").and_then(Value::as_str) != Some("running") {
        return;
    }
    let heard = stamp(at).to_string();
    let older = |v: &Value| v.as_str().and_then(|t| t.parse::<jiff::Timestamp>().ok()).is_none_or(|t| t < stamp(at));
    if data.get("heard_at").is_none_or(older) {
        data.insert("heard_at".into(), heard.into());
    }
    let known = data.get("step").and_then(Value::as_u64);
    if told.step > known {
        data.insert("step".into(), told.step.into());
        data.insert("step_at".into(), told.step_at.map(|t| t.to_string()).into());
    }
    let more = |key: &str, value: Option<u64>, data: &mut serde_json::Map<String, Value>| {
        if value > data.get(key).and_then(Value::as_u64) {
            data.insert(key.into(), value.into());
        }
    };
    more("checkpoint", told.checkpoint, data);
    more("resumed_from", told.resumed_from, data);
}

fn applies(world: &World) -> bool {
    !world.plan.on.contains_key(&Fault::Heartbeats)
}

/// Puts the newest heartbeat of a healthy worker into its document, as a reader gets it.
pub(crate) fn freshen(world: &World, path: &str, body: &mut Value) {
    if !applies(world) {
        return;
    }
    let Some((job, number, key)) = parse(path) else { return };
    let fleet = lock(&world.fleet);
    let Some(group) = fleet.groups.get(&(job, number)) else { return };
    let vm = group.running.iter().filter_map(|id| fleet.vms.get(id)).find(|vm| vm.key == key);
    let Some(vm) = vm else { return };
    let Some(at) = beat(world, vm, number) else { return };
    write(body, at, &progress(world, &fleet, vm, at));
}

/// Writes the last heartbeat of a worker down, before it falls silent.
pub(crate) fn settle(world: &World, id: VmId) {
    if !applies(world) {
        return;
    }
    let known = {
        let fleet = lock(&world.fleet);
        fleet.vms.get(&id).and_then(|vm| {
            let number = vm.attempt.as_ref()?.number;
            let at = beat(world, vm, number)?;
            let path = format!("jobs/{}/workers/{number:06}-{:04}-{:04}", vm.job, vm.key.slice, vm.key.worker);
            Some((path, at, progress(world, &fleet, vm, at)))
        })
    };
    if let Some((path, at, told)) = known {
        lock(&world.shelf).change(&path, world.now(), |body| write(body, at, &told));
    }
}

/// `jobs/<job>/workers/<attempt>-<slice>-<worker>`.
fn parse(path: &str) -> Option<(JobId, u32, WorkerKey)> {
    let mut parts = path.split('/');
    let (_, job, _, id) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let mut numbers = id.split('-').map(str::parse::<u32>);
    let attempt = numbers.next()?.ok()?;
    let key = WorkerKey { slice: numbers.next()?.ok()?, worker: numbers.next()?.ok()? };
    Some((JobId::parse(job).ok()?, attempt, key))
}
