//! Scenarios that begin in a phase: a job is brought into it, then something is taken away, and it must come out of it.

use std::sync::Arc;

use rekindle_core::job::{Generation, Job, Phase};
use rekindle_ports::tpu::SliceRef;

use super::crowds::{begin, small_job};
use super::{Special, Wrong, verdict};
use crate::cloud;
use crate::disaster;
use crate::exec::lock;
use crate::fault::Fault;
use crate::people;
use crate::plan::{JobPlan, Moment, Plan, START_US, Told, Window};
use crate::roll::{HOUR, MIN, SEC};
use crate::run::ending;
use crate::stage::Stage;
use crate::truth;
use crate::world::World;

/// All of them.
pub(super) fn all() -> Vec<Special> {
    vec![
        ("E10-ticks-alone", "kueue#3322: stuck after a retry: from every phase ticks alone lead on", ticks_alone),
        ("C23-gone-in-every-phase", "ray#29698: a 404 in the middle of anything stopped the loop", gone_in_every_phase),
        ("A31-gone-before-the-delete", "ml-auto-solutions PR177: 404 on delete failed the whole run", gone_at_delete),
    ]
}

/// When what leads into a phase happens.
const EVENT_AT: i64 = START_US + 40 * MIN;

/// From any phase to `running`, or to the end, if only ticks come: each step waits for the next minute, and there are no more than ten of them
/// besides the making of a slice and its `setup`.
const BOUND: i64 = 20 * MIN;

/// What leads into a phase.
#[derive(Clone, Copy)]
enum Way {
    /// The job's own course.
    Course,
    /// Something befalls its slice.
    Fault(Fault),
    /// A person tells it something.
    Told(Told),
    /// No capacity for so long from the start.
    Stockout(i64),
    /// A freeze of so long from the start.
    Frozen(i64),
}

/// A phase, and how a job comes into it.
struct Begin {
    name: &'static str,
    phase: Phase,
    way: Way,
}

const BEGINS: &[Begin] = &[
    Begin { name: "pending", phase: Phase::Pending, way: Way::Course },
    Begin { name: "frozen", phase: Phase::Pending, way: Way::Frozen(HOUR) },
    Begin { name: "in a stockout", phase: Phase::Provisioning, way: Way::Stockout(HOUR) },
    Begin { name: "provisioning", phase: Phase::Provisioning, way: Way::Course },
    Begin { name: "starting", phase: Phase::Starting, way: Way::Course },
    Begin { name: "running", phase: Phase::Running, way: Way::Course },
    Begin { name: "preempted", phase: Phase::Recovering, way: Way::Fault(Fault::PreemptSilent) },
    Begin { name: "unhealthy", phase: Phase::Recovering, way: Way::Fault(Fault::UnhealthyForGood) },
    Begin { name: "restarted", phase: Phase::Recovering, way: Way::Told(RESTART) },
    Begin { name: "pausing", phase: Phase::Stopping, way: Way::Told(Told::Pause) },
    Begin { name: "paused", phase: Phase::Paused, way: Way::Told(Told::Pause) },
];

const RESTART: Told = Told::Restart { new_slice: true, from_scratch: false };

impl Begin {
    /// A job with minutes of `setup`, and another one elsewhere that nothing befalls.
    fn plan(&self, seed: u64, queued: &'static str) -> Plan {
        // Room for one slice in each zone: the next one waits until the earlier one is gone.
        let mut plan = Plan { chips: 8, quota: Some(8), ..Plan::calm(seed) };
        let job = |n: usize| JobPlan { setup_us: 3 * MIN, queued, ..small_job(n, 2 * HOUR) };
        plan.jobs = (0..2).map(job).collect();
        let mut over = |fault, from: i64, to| {
            plan.windows.push(Window { fault, from: START_US + from, to: START_US + to, zone: 0 });
        };
        match self.way {
            Way::Course | Way::Fault(_) | Way::Told(_) => {}
            Way::Stockout(time) => over(Fault::Stockout, 0, time),
            Way::Frozen(time) => over(Fault::Freeze, 0, time),
        }
        plan
    }

    /// Brings the first job into the phase. False: it did not come there.
    fn reach(&self, world: &Arc<World>, stage: &Arc<Stage>) -> bool {
        match self.way {
            Way::Course | Way::Frozen(_) => {}
            // By then it has been refused more than once.
            Way::Stockout(_) => run_until(world, START_US + 20 * MIN, |_| false),
            Way::Fault(fault) => {
                run_until(world, EVENT_AT, |_| false);
                disaster::strike(stage, &Moment { at: EVENT_AT, fault, pick: 0 });
            }
            Way::Told(told) => {
                run_until(world, EVENT_AT, |_| false);
                people::tell(stage, &world.plan.jobs[0].id, told, "way");
            }
        }
        let until = world.now() + HOUR;
        run_until(world, until, |job| job.phase == self.phase || matches!(self.way, Way::Stockout(_)));
        first(world).is_some_and(|job| {
            job.phase == self.phase || (matches!(self.way, Way::Stockout(_)) && !job.phase.is_terminal())
        })
    }

    /// When the way out of the phase is free.
    fn free_at(&self, world: &World) -> i64 {
        match self.way {
            Way::Course | Way::Fault(_) | Way::Told(_) => world.now(),
            // Two refusals may have made the next one wait.
            Way::Stockout(time) | Way::Frozen(time) => world.now().max(START_US + time + 5 * MIN),
        }
    }
}

/// The job that everything befalls.
fn first(world: &World) -> Option<Arc<Job>> {
    let id = &world.plan.jobs[0].id;
    lock(&world.checks).jobs.values().find(|job| job.id.as_str() == id).cloned()
}

/// Goes on until a time, or until the first job is so.
fn run_until(world: &Arc<World>, until: i64, is_so: impl Fn(&Job) -> bool) {
    world.exec.run_until(until, || world.is_broken() || first(world).is_some_and(|job| is_so(&job)));
}

/// What is wrong with the two jobs at the end: the second one should have noticed nothing.
fn unlike(world: &World, last: Phase) -> Option<String> {
    let checks = lock(&world.checks);
    let told = |job: &Job| {
        let (id, phase, why) = (&job.id, job.phase.as_str(), job.reason.name());
        format!("{id} is {phase} ({why}) g{} a{}: {}", job.last_generation, job.last_attempt, job.message)
    };
    let is_first = |job: &Job| job.id.as_str() == world.plan.jobs[0].id;
    let well = |job: &Job| {
        let wanted = if is_first(job) { last } else { Phase::Succeeded };
        let is_untouched = (job.last_generation, job.last_attempt) == (1, 1);
        job.phase == wanted && job.counters.user_failures == 0 && (is_first(job) || is_untouched)
    };
    let wrong: Vec<String> = checks.jobs.values().filter(|job| !well(job)).map(|job| told(job)).collect();
    (!wrong.is_empty()).then(|| wrong.join("; "))
}

/// Plays every beginning, by nodes and by queued resources.
fn play(begins: &[Begin], what: impl Fn(&Begin, &Arc<World>, &Arc<Stage>) -> Option<String>) -> Option<Wrong> {
    for (n, one) in begins.iter().enumerate() {
        for queued in ["never", "always"] {
            let (world, stage) = begin(one.plan(1 + n as u64, queued));
            let mut told = None;
            let end = ending(&world, || told = what(one, &world, &stage));
            let wrong = verdict(&end, || told);
            world.exec.clear();
            if let Some(wrong) = wrong {
                return Some(Wrong { text: format!("({}, queued {queued}) {}", one.name, wrong.text), ..wrong });
            }
        }
    }
    None
}

/// From every phase ticks alone lead to `running` or to the end; and so they do once more after a preemption that nobody tells of.
fn ticks_alone() -> Option<Wrong> {
    let cancelled = Begin { name: "cancelled", phase: Phase::Stopping, way: Way::Told(Told::Cancel) };
    play(BEGINS, lead_on).or_else(|| play(&[cancelled], lead_on))
}

fn lead_on(from: &Begin, world: &Arc<World>, stage: &Arc<Stage>) -> Option<String> {
    let is_over = |job: &Job| job.phase == Phase::Running || job.phase.is_terminal();
    let late = |what: &str| {
        let (job, since) = (first(world)?, world.now() - START_US);
        Some(format!(
            "{what}: after {} s it is {} ({}): {}",
            since / SEC,
            job.phase.as_str(),
            job.reason.name(),
            job.message
        ))
    };
    if !from.reach(world, stage) {
        return late("the phase was not reached");
    }
    world.deafen();
    if matches!(from.way, Way::Told(Told::Pause)) {
        run_until(world, world.now() + BOUND, |job| job.phase == Phase::Paused);
        if first(world)?.phase != Phase::Paused {
            return late("not paused in time");
        }
        people::tell(stage, &world.plan.jobs[0].id, Told::Unpause, "on");
        run_until(world, world.now() + MIN, |job| job.phase != Phase::Paused);
    }
    run_until(world, from.free_at(world) + BOUND, is_over);
    let job = first(world)?;
    if !is_over(&job) {
        return late("not running in time");
    }
    if job.phase.is_terminal() {
        world.exec.run_until(START_US + 4 * HOUR, || world.is_broken());
        return unlike(world, Phase::Cancelled);
    }
    // Programs that have just begun have kept nothing: a loss now costs little, and is seen by the tick alone.
    let generation = job.last_generation;
    world.exec.run_until(world.now() + 15 * MIN, || world.is_broken());
    disaster::strike(stage, &Moment { at: world.now(), fault: Fault::Storm, pick: 0 });
    run_until(world, world.now() + BOUND, |job| job.phase == Phase::Running && job.last_generation > generation);
    if first(world)?.last_generation == generation || first(world)?.phase != Phase::Running {
        return late("not running again in time");
    }
    world.exec.run_until(world.now() + 4 * HOUR, || world.is_broken());
    unlike(world, Phase::Succeeded)
}

/// What the first job has in the cloud.
fn slice_of_first(world: &World) -> Option<SliceRef> {
    let cloud = lock(&world.cloud);
    let mut own = cloud.resources.values().filter(|r| r.labels.job == world.plan.jobs[0].id);
    own.next().map(|r| r.slice.clone())
}

/// The slice of the first job is gone from one moment to the next, as if it had been deleted by hand. False: it has none.
fn vanish(world: &Arc<World>, stage: &Arc<Stage>) -> bool {
    let Some(slice) = slice_of_first(world) else { return false };
    if let Some((job, generation)) = cloud::with(world, &slice, |r| r.made_for()).flatten() {
        truth::on_loss(world, &job, generation, Fault::Vanish);
    }
    cloud::remove(stage, &slice);
    true
}

/// Whatever a job does, its slice may be gone when it looks: it goes on, and no other job notices.
fn gone_in_every_phase() -> Option<Wrong> {
    let cancelled = Begin { name: "cancelled", phase: Phase::Stopping, way: Way::Told(Told::Cancel) };
    let lost = |from: &Begin, world: &Arc<World>, stage: &Arc<Stage>| {
        if !from.reach(world, stage) {
            return Some("the phase was not reached".into());
        }
        // What was asked for a moment ago is on its way.
        world.exec.run_until(world.now() + 2 * SEC, || world.is_broken());
        if !vanish(world, stage) {
            return Some("there is nothing that could be gone".into());
        }
        world.exec.run_until(world.now() + 6 * HOUR, || world.is_broken());
        let is_cancelled = matches!(from.way, Way::Told(Told::Cancel));
        unlike(world, if is_cancelled { Phase::Cancelled } else { Phase::Succeeded })
    };
    let owning = [Phase::Provisioning, Phase::Starting, Phase::Running, Phase::Recovering];
    let has_slice = |one: &&Begin| owning.contains(&one.phase) && !matches!(one.way, Way::Stockout(_));
    let begins: Vec<&Begin> = BEGINS.iter().filter(has_slice).collect();
    begins.into_iter().chain([&cancelled]).find_map(|one| play(std::slice::from_ref(one), lost))
}

/// A delete is decided and on its way when its slice vanishes: it meets 404, which is as good.
fn gone_at_delete() -> Option<Wrong> {
    let cancelled = Begin { name: "cancelled", phase: Phase::Stopping, way: Way::Told(Told::Cancel) };
    play(&[cancelled], |from, world, stage| {
        if !from.reach(world, stage) {
            return Some("the phase was not reached".into());
        }
        let is_sent = |g: &Generation| g.delete.is_some();
        run_until(world, world.now() + 10 * MIN, |job| job.generations.iter().any(is_sent));
        let is_gone = vanish(world, stage);
        world.exec.run_until(world.now() + 3 * HOUR, || world.is_broken());
        let met = lock(&world.counts).others.get("deletes of what is gone").copied().unwrap_or(0);
        let unmet = (!is_gone || met == 0).then(|| format!("gone {is_gone}, {met} deletes met a 404"));
        unmet.or_else(|| unlike(world, Phase::Cancelled))
    })
}
