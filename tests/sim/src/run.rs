//! One run of one plan: phase one under faults, phase two without them, in which everything must come to its end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rekindle_core::job::Phase;

use crate::check::{self, ends};
use crate::exec::lock;
use crate::plan::{Plan, Told};
use crate::roll::{DAY, HOUR, MIN};
use crate::stage::Stage;
use crate::world::{Counts, Failure, Promise, World};
use crate::{deliver, disaster, people};

/// How a run ended.
#[derive(Debug, Clone)]
pub(crate) enum Ending {
    /// Every promise was kept.
    Well,
    /// A promise was broken.
    Broken(Failure),
    /// The code panicked.
    Panic(String),
}

impl Ending {
    /// The checker that spoke, or `panic`.
    pub(crate) fn checker(&self) -> Option<&str> {
        match self {
            Self::Well => None,
            Self::Broken(failure) => Some(failure.checker),
            Self::Panic(_) => Some("panic"),
        }
    }
}

/// What a run brought.
pub(crate) struct Outcome {
    /// How it ended.
    pub(crate) ending: Ending,
    /// What happened.
    pub(crate) counts: Counts,
    /// Its trace, if it was kept.
    pub(crate) trace: String,
    /// Job-days: the time from each job's submit to its end.
    pub(crate) job_days: f64,
    /// Calls of ports.
    pub(crate) calls: u64,
    /// Hours that jobs spent in the phase `running`.
    pub(crate) running_hours: f64,
}

/// Without faults, so long is enough for any job to come to its end: its work once more, and an hour for waits of each kind.
fn patience(plan: &Plan) -> i64 {
    let longest = plan.jobs.iter().map(|j| i64::try_from(j.steps).unwrap_or(0) * j.step_us).max().unwrap_or(0);
    // Under a limit of the deployment's own, jobs wait for each other.
    let rounds = if plan.max_chips.is_some() || plan.max_usd.is_some() { plan.jobs.len().max(1) } else { 1 };
    (longest * 2 + 8 * HOUR) * i64::try_from(rounds).unwrap_or(1)
}

/// Runs a plan.
pub(crate) fn run(plan: &Plan, traced: bool) -> Outcome {
    let world = World::new(plan.clone(), traced);
    let ending = ending(&world, || drive(&world));
    world.exec.clear();
    Outcome {
        ending,
        counts: lock(&world.counts).clone(),
        trace: world.taken_trace(),
        job_days: job_days(&world),
        calls: world.calls.load(Ordering::Relaxed),
        running_hours: lock(&world.checks).running_us() as f64 / HOUR as f64,
    }
}

/// Runs a plan, and asks at its end, if all went well.
pub(crate) fn run_with(plan: &Plan, ask: impl FnOnce(&World) -> Option<String>) -> (Ending, Option<String>) {
    let world = World::new(plan.clone(), false);
    let ending = ending(&world, || drive(&world));
    let told = matches!(ending, Ending::Well).then(|| ask(&world)).flatten();
    world.exec.clear();
    (ending, told)
}

/// How it ends when this is done in a world.
pub(crate) fn ending(world: &Arc<World>, what: impl FnOnce()) -> Ending {
    match catch_unwind(AssertUnwindSafe(what)) {
        Err(panic) => Ending::Panic(words(panic.as_ref())),
        Ok(()) => world.failure().map_or(Ending::Well, Ending::Broken),
    }
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no text)".into())
}

fn job_days(world: &World) -> f64 {
    let checks = lock(&world.checks);
    let now = world.now();
    let each = checks.jobs.values().map(|j| {
        let end = if j.phase.is_terminal() { j.phase_since.as_microsecond() } else { now };
        (end - j.created_at.as_microsecond()).max(0)
    });
    each.sum::<i64>() as f64 / DAY as f64
}

fn drive(world: &Arc<World>) {
    let stage = Stage::new(world);
    people::begin(&stage);
    world.exec.spawn(deliver::schedule(stage.clone()));
    world.exec.spawn(disaster::befall(stage.clone()));
    world.exec.spawn(check::audit(world.clone()));
    world.exec.run_until(world.plan.calm_from(), || world.is_broken());
    if world.is_broken() {
        return;
    }
    calm(&stage);
}

/// Phase two: no faults, capacity for all, and a person who lets paused jobs go on.
fn calm(stage: &Arc<Stage>) {
    let world = &stage.world;
    world.set_calm();
    lock(&world.cloud).open();
    crate::machine::heal(world);
    let stage2 = stage.clone();
    world.exec.spawn(async move {
        people::insist(&stage2, "/v1/thaw").await;
        watch(stage2).await;
    });
    let until = world.now() + patience(&world.plan);
    while world.now() < until && !world.is_broken() && !(ends::all_over(world) && ends::fleet_is_empty(world)) {
        world.exec.run_until((world.now() + MIN).min(until), || world.is_broken());
        if let Some(late) = ends::overdue(world) {
            world.broken(Promise::Liveness, "every-job-ends", late);
        }
    }
    // What is left of messages may still come: nothing may follow from it.
    world.exec.run_until(world.now() + HOUR, || world.is_broken());
    if !world.is_broken() {
        judge(world);
    }
}

/// A person looks at paused jobs every half hour and lets them go on.
async fn watch(stage: Arc<Stage>) {
    for n in 0.. {
        let paused: Vec<String> = {
            let checks = lock(&stage.world.checks);
            checks.jobs.values().filter(|j| j.phase == Phase::Paused).map(|j| j.id.to_string()).collect()
        };
        for job in paused {
            people::tell(&stage, &job, Told::Unpause, &format!("watch-{n}"));
        }
        stage.world.exec.sleep(HOUR / 2).await;
    }
}

fn judge(world: &World) {
    if !ends::all_over(world) {
        let shelf = lock(&world.shelf);
        for (path, body) in shelf.small() {
            world.trace(|| format!("stored: {path} {}", **body));
        }
        drop(shelf);
        world.broken(Promise::Liveness, "every-job-ends", ends::unfinished(world).join("; "));
    } else if !ends::fleet_is_empty(world) {
        let left: Vec<String> =
            lock(&world.cloud).resources.values().filter(|r| !r.foreign).map(|r| r.slice.name.clone()).collect();
        world.broken(Promise::Liveness, "fleet-empty", format!("{} are left", left.join(", ")));
    } else if let Some(text) = ends::wrong_end(world) {
        world.broken(Promise::Safety, "right-end", text);
    } else if let Some((checker, text)) = check::untold_events(&lock(&world.checks)) {
        world.broken(Promise::Liveness, checker, text);
    }
}
