//! Scenarios of many: a thousand losses in one second, a thousand submits.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, Phase};
use rekindle_core::settings::Settings;
use rekindle_ports::kinds::Kind;

use super::{Special, Wrong, verdict};
use crate::deliver::{self, Parcel};
use crate::disaster;
use crate::exec::lock;
use crate::fault::Fault;
use crate::people;
use crate::plan::{Fate, JobPlan, Moment, Plan, START_US, Told};
use crate::roll::{DAY, HOUR, MIN, SEC};
use crate::run::ending;
use crate::stage::Stage;
use crate::world::World;

/// All of them.
pub(super) fn all() -> Vec<Special> {
    vec![
        ("F02-a-thousand-lost-at-once", "marin PR6198: a burst of creates over the quota of a minute", thousand_lost),
        ("E02-a-thousand-cancels", "skypilot#4296: cancelling many was one by one and slow", thousand_cancels),
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
    // The creates of one job are not answered: no other one may wait for it.
    plan.unanswered = Some(100);
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
    world.exec.run_until(lost_at + WHOLE, || world.is_broken());
    let checks = lock(&world.checks);
    let again: Vec<Asked> = checks.jobs.values().filter_map(|job| Asked::of(job)).collect();
    let minutes = per_minute(&again, |_| true);
    if again.len() < 1000 {
        return Some(format!("{} of 1000 slices were asked for again in time: {minutes:?}", again.len()));
    }
    let settings = Settings::default();
    let over = |counts: &BTreeMap<i64, u32>, most: u32| counts.values().any(|n| *n > most);
    if over(&minutes, settings.creates_per_minute) {
        return Some(format!("too many creates in one minute: {minutes:?}"));
    }
    // Those that passes take by themselves come in any order, and no others.
    let early = per_minute(&again, |one| again.iter().any(|other| one.is_before_its_turn(other)));
    over(&early, settings.creates_free_per_minute).then(|| format!("out of turn: {early:?} of {minutes:?}"))
}

/// A thousand creates at sixty a minute: thirty of each half minute, so that no sixty seconds pass the platform's limit of ninety-one.
const WHOLE: i64 = 18 * MIN;

/// So long may pass from a grant to its create, and from a loss to the job's waiting for a grant.
const APART: i64 = 3;

/// The create that followed on a loss.
struct Asked {
    minute: i64,
    priority: u8,
}

impl Asked {
    fn of(job: &Job) -> Option<Self> {
        let second = job.generations.iter().find(|g| g.number == 2)?;
        Some(Self { minute: second.intended_at.as_second().div_euclid(60), priority: job.spec.priority })
    }

    /// Whether another one that is more important has waited for minutes longer.
    fn is_before_its_turn(&self, other: &Self) -> bool {
        other.priority > self.priority && other.minute > self.minute + APART
    }
}

fn per_minute(all: &[Asked], of: impl Fn(&Asked) -> bool) -> BTreeMap<i64, u32> {
    let mut counts = BTreeMap::new();
    for one in all.iter().filter(|one| of(one)) {
        *counts.entry(one.minute).or_default() += 1;
    }
    counts
}

/// A thousand jobs wait for the chips of one; all are cancelled in one moment.
fn thousand_cancels() -> Option<Wrong> {
    let mut plan = Plan::calm(10);
    plan.max_chips = Some(8);
    plan.jobs = (0..=1000).map(|n| small_job(n, 12 * HOUR)).collect();
    let (world, stage) = begin(plan);
    let mut left = Vec::new();
    let end = ending(&world, || {
        world.exec.run_until(START_US + 10 * MIN, || world.is_broken());
        let queued: Vec<JobId> = {
            let checks = lock(&world.checks);
            checks.jobs.values().filter(|j| j.phase == Phase::Pending).map(|j| j.id.clone()).collect()
        };
        for id in &queued {
            people::tell(&stage, id.as_str(), Told::Cancel, "all");
        }
        let told_at = world.now();
        world.exec.run_until(told_at + 10 * SEC, || world.is_broken());
        let checks = lock(&world.checks);
        let is_left = |id: &&JobId| checks.jobs.get(*id).is_none_or(|job| job.phase != Phase::Cancelled);
        left = queued.iter().filter(is_left).map(ToString::to_string).collect();
        if queued.len() != 1000 {
            left.push(format!("{} jobs were queued", queued.len()));
        }
    });
    world.exec.clear();
    verdict(&end, || (!left.is_empty()).then(|| format!("{} after ten seconds: {:?}", left.len(), left.first())))
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
