//! Scenarios that need more than a plan: a wrong database, a thousand losses in one second, a thousand submits, a tick over ten thousand jobs.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::job::Phase;

use crate::deliver::{self, Parcel};
use crate::disaster;
use crate::exec::lock;
use crate::fault::Fault;
use crate::people;
use crate::plan::{Fate, JobPlan, Moment, Plan, START_US};
use crate::roll::{HOUR, MIN, SEC};
use crate::run::{Ending, ending};
use crate::stage::Stage;
use crate::store::Shelf;
use crate::world::World;

type Special = (&'static str, &'static str, fn() -> Option<String>);

/// All of them: id, why, and what went wrong.
pub(super) fn all() -> Vec<Special> {
    vec![
        ("S01-empty-database", "a store that is empty makes the sweep delete nothing", empty_database),
        (
            "S02-database-of-another-time",
            "a store that was rolled back makes the sweep delete no live fleet",
            rolled_back,
        ),
        ("F02-a-thousand-lost-at-once", "marin PR6198: a burst of creates over the quota of a minute", thousand_lost),
        ("G02-a-thousand-submits", "skypilot#5031: a hundred jobs broke the controller", thousand_submits),
    ]
}

fn small_job(n: usize, work: i64) -> JobPlan {
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

fn begin(plan: Plan) -> (Arc<World>, Arc<Stage>) {
    let world = World::new(plan, false);
    let stage = Stage::new(&world);
    people::begin(&stage);
    world.exec.spawn(deliver::schedule(stage.clone()));
    world.exec.spawn(crate::check::audit(world.clone()));
    (world, stage)
}

fn sentence(end: &Ending) -> Option<String> {
    match end {
        Ending::Well => None,
        Ending::Broken(f) => Some(format!("{}: {}", f.checker, f.text)),
        Ending::Panic(text) => Some(format!("panic: {text}")),
    }
}

/// Deletes that the cloud took while another database stood in for ours.
fn deletes_with(instead: impl FnOnce(&World) -> Shelf) -> Option<String> {
    let mut plan = Plan::calm(3);
    plan.jobs = (0..12).map(|n| small_job(n, 20 * HOUR)).collect();
    let (world, _stage) = begin(plan);
    let mut deleted = 0;
    let end = ending(&world, || {
        world.exec.run_until(START_US + 2 * HOUR, || world.is_broken());
        let other = instead(&world);
        let before = count(&world, "deletes");
        lock(&world.shelf).instead = Some(Box::new(other));
        world.exec.run_until(world.now() + 2 * HOUR, || world.is_broken());
        deleted = count(&world, "deletes") - before;
    });
    world.exec.clear();
    sentence(&end).or_else(|| (deleted > 0).then(|| format!("{deleted} live slices were deleted")))
}

fn count(world: &World, what: &'static str) -> u64 {
    lock(&world.counts).others.get(what).copied().unwrap_or(0)
}

fn empty_database() -> Option<String> {
    deletes_with(|_| Shelf::default())
}

/// A database as it was before the jobs were submitted, with its installation document.
fn rolled_back() -> Option<String> {
    deletes_with(|world| {
        let mut old = lock(&world.shelf).clone();
        old.forget("jobs");
        old
    })
}

/// A thousand slices are lost in one second: every create waits for its permit, the important ones first.
fn thousand_lost() -> Option<String> {
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
    sentence(&end).or(wrong)
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
fn thousand_submits() -> Option<String> {
    let mut plan = Plan::calm(6);
    plan.chips = 1_000_000;
    let (world, stage) = begin(plan);
    let end = ending(&world, || {
        for n in 0..1000 {
            let job = small_job(n, HOUR);
            let data = serde_json::to_vec(&people::spec(&job)).unwrap_or_default();
            let parcel = Parcel::Message { id: format!("m-{n}"), command: "submit".into(), data };
            deliver::send(&stage, parcel, i64::try_from(n).unwrap_or(0) * SEC / 100);
        }
        world.exec.run_until(START_US + MIN, || world.is_broken());
    });
    let accepted = lock(&world.checks).jobs.len();
    world.exec.clear();
    sentence(&end).or_else(|| (accepted != 1000).then(|| format!("{accepted} of 1000 submits were accepted")))
}
