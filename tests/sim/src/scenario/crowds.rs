//! Scenarios of many: a thousand losses in one second, a thousand submits.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::Phase;
use rekindle_ports::kinds::Kind;

use super::{Special, Wrong, verdict};
use crate::deliver::{self, Parcel};
use crate::disaster;
use crate::exec::lock;
use crate::fault::Fault;
use crate::people;
use crate::plan::{Fate, JobPlan, Moment, Plan, START_US};
use crate::roll::{DAY, HOUR, MIN, SEC};
use crate::run::ending;
use crate::stage::Stage;
use crate::world::World;

/// All of them.
pub(super) fn all() -> Vec<Special> {
    vec![
        ("F02-a-thousand-lost-at-once", "marin PR6198: a burst of creates over the quota of a minute", thousand_lost),
        ("G02-a-thousand-submits", "skypilot#5031: a hundred jobs broke the controller", thousand_submits),
        ("G04-every-message-is-found", "marin#3204: jobs vanish", every_message),
    ]
}

/// A job of one worker in a zone by its number.
pub(super) fn small_job(n: usize, work: i64) -> JobPlan {
    let step_us = 10 * SEC;
    JobPlan {
        id: format!("many-{n:05}"),
        accelerator: "v5litepod-8",
        slices: 1,
        queued: "never",
        capacity: vec!["spot"],
        zones: vec![n % 3],
        priority: u8::try_from(n % 101).unwrap_or(0),
        submit_at: START_US + SEC,
        steps: u64::try_from(work / step_us).unwrap_or(1),
        step_us,
        checkpoint_us: 10 * MIN,
        setup_us: 0,
        writes_progress: true,
        fate: Fate::Succeeds,
        more: serde_json::json!({}),
    }
}

/// The world of a plan, with people and ticks.
pub(super) fn begin(plan: Plan) -> (Arc<World>, Arc<Stage>) {
    let world = World::new(plan, false);
    let stage = Stage::new(&world);
    people::begin(&stage);
    world.exec.spawn(deliver::schedule(stage.clone()));
    world.exec.spawn(crate::check::audit(world.clone()));
    (world, stage)
}

/// A thousand slices are lost in one second: every create waits for its permit, the important ones first.
fn thousand_lost() -> Option<Wrong> {
    let mut plan = Plan::calm(5);
    plan.chips = 1_000_000;
    plan.by_http = false;
    plan.jobs = (0..1000).map(|n| small_job(n, 12 * HOUR)).collect();
    let (world, stage) = begin(plan);
    let mut wrong = None;
    let end = ending(&world, || {
        wrong = lose_all(&world, &stage);
    });
    world.exec.clear();
    verdict(&end, || wrong)
}

fn lose_all(world: &Arc<World>, stage: &Arc<Stage>) -> Option<String> {
    world.exec.run_until(START_US + HOUR, || world.is_broken());
    let running = |world: &World| lock(&world.checks).jobs.values().filter(|j| j.phase == Phase::Running).count();
    let before = running(world);
    if before < 1000 {
        return Some(format!("{before} of 1000 jobs run after an hour"));
    }
    for zone in 0..3 {
        disaster::strike(stage, &Moment { at: world.now(), fault: Fault::Storm, pick: zone });
    }
    let lost_at = world.now();
    let mut asked: BTreeMap<i64, usize> = BTreeMap::new();
    let mut seen = 0;
    for minute in 0..40 {
        world.exec.run_until(lost_at + (minute + 1) * MIN, || world.is_broken());
        let second = lock(&world.checks).jobs.values().filter(|j| j.last_generation >= 2).count();
        asked.insert(minute, second - seen);
        seen = second;
    }
    if seen < 1000 {
        return Some(format!("{seen} of 1000 slices were asked for again in 40 minutes: {asked:?}"));
    }
    let most = asked.values().copied().max().unwrap_or(0);
    // A minute of ours may straddle two of the budget's.
    if most > 61 + 30 {
        return Some(format!("{most} creates in one minute: {asked:?}"));
    }
    order(world)
}

/// Important jobs came back before unimportant ones: compared by halves, since passes may take some permits freely.
fn order(world: &World) -> Option<String> {
    let checks = lock(&world.checks);
    let mean = |important: bool| {
        let times: Vec<i64> = checks
            .jobs
            .values()
            .filter(|j| (j.spec.priority >= 50) == important)
            .filter_map(|j| j.generations.last().map(|g| g.intended_at.as_second()))
            .collect();
        times.iter().sum::<i64>() / i64::try_from(times.len().max(1)).unwrap_or(1)
    };
    let (important, rest) = (mean(true), mean(false));
    (important >= rest).then(|| format!("important jobs waited {} s longer than the others", important - rest))
}

/// A thousand submits in ten seconds: all are accepted.
fn thousand_submits() -> Option<Wrong> {
    let mut plan = Plan::calm(6);
    plan.chips = 1_000_000;
    let (world, stage) = begin(plan);
    let end = ending(&world, || {
        for n in 0..1000 {
            let job = small_job(n, HOUR);
            let data = serde_json::to_vec(&people::spec(&job)).unwrap_or_default();
            let parcel = Parcel::message(format!("m-{n}"), "submit", data, world.now());
            deliver::send(&stage, parcel, i64::try_from(n).unwrap_or(0) * SEC / 100);
        }
        world.exec.run_until(START_US + MIN, || world.is_broken());
    });
    let accepted = lock(&world.checks).jobs.len();
    world.exec.clear();
    verdict(&end, || (accepted != 1000).then(|| format!("{accepted} of 1000 submits were accepted")))
}

/// Weeks after a job's end its record is there, and the message that made it changes nothing.
fn every_message() -> Option<Wrong> {
    let mut plan = Plan::calm(7);
    plan.jobs = (0..20).map(|n| small_job(n, HOUR)).collect();
    let (world, stage) = begin(plan);
    let again = |world: &World| {
        for job in &world.plan.jobs {
            let data = serde_json::to_vec(&people::spec(job)).unwrap_or_default();
            let parcel = Parcel::message(format!("submit-{}", job.id), "submit", data, START_US);
            deliver::send(&stage, parcel, SEC);
        }
    };
    let end = ending(&world, || {
        world.exec.run_until(START_US + 21 * DAY, || world.is_broken());
        again(&world);
        world.exec.run_until(world.now() + HOUR, || world.is_broken());
    });
    let lost = {
        let (checks, shelf) = (lock(&world.checks), lock(&world.shelf));
        let is_kept = |job: &JobPlan| {
            let id = JobId::parse(&job.id).ok()?;
            let record = Kind::Command(id.clone(), format!("message submit-{}", job.id)).path();
            let known = checks.jobs.get(&id).is_some_and(|j| j.phase == Phase::Succeeded && j.last_generation == 1);
            (known && shelf.body(&record).is_some()).then_some(())
        };
        world.plan.jobs.iter().find(|job| is_kept(job).is_none()).map(|job| job.id.clone())
    };
    world.exec.clear();
    verdict(&end, || lost.map(|id| format!("the message of {id} cannot be found, or was carried out again")))
}
