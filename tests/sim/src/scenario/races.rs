//! Scenarios of moments: many passes at once over one loss, a loss at any minute, one id of two owners.

use std::sync::Arc;

use rekindle_core::job::{Job, Phase};

use rekindle_ports::world::Hint;

use super::crowds::{begin, small_job};
use super::{Special, Wrong, verdict};
use crate::deliver::{self, Parcel};
use crate::disaster;
use crate::exec::lock;
use crate::fault::Fault;
use crate::people;
use crate::plan::{Moment, Plan, START_US};
use crate::roll::{HOUR, MIN};
use crate::run::ending;
use crate::world::World;

/// All of them.
pub(super) fn all() -> Vec<Special> {
    vec![
        ("B02-twenty-passes-at-once", "skypilot#10327: one recovery was begun many times", || at_once(20)),
        ("J07-fifty-ticks-at-once", "concurrent ticks: one of them acts", || at_once(50)),
        ("I10-lost-at-any-minute", "dstack#1397: a TPU interrupted at minute 16 was not retried", || {
            at_any_minute(Fault::PreemptSilent)
        }),
        ("C23-gone-at-any-minute", "ray#29698: a 404 put the loop into an exception", || at_any_minute(Fault::Vanish)),
        ("B05-one-id-of-two-owners", "skypilot#577: the same name of two users hijacked the other's TPU", two_owners),
    ]
}

fn only(world: &World) -> Option<Arc<Job>> {
    lock(&world.checks).jobs.values().next().cloned()
}

/// What is wrong with the end of the only job: it should have run twice, for one preemption.
fn not_twice(world: &World) -> Option<String> {
    let Some(job) = only(world) else { return Some("there is no job".into()) };
    let have = (job.last_generation, job.last_attempt, job.counters.preemptions);
    let well = job.phase == Phase::Succeeded && have == (2, 2, 1);
    (!well).then(|| format!("{} with {have:?}: {}", job.phase.as_str(), job.message))
}

/// A slice is lost, and so many ticks and as many passes over its job come in the same moment.
fn at_once(count: usize) -> Option<Wrong> {
    for seed in 1..=8 {
        let mut plan = Plan::calm(seed);
        plan.jobs = vec![small_job(0, 2 * HOUR)];
        plan.by_http = seed % 2 == 0;
        let (world, stage) = begin(plan);
        let end = ending(&world, || {
            world.exec.run_until(START_US + HOUR, || world.is_broken());
            disaster::strike(&stage, &Moment { at: world.now(), fault: Fault::PreemptSilent, pick: 0 });
            // By then the API says so.
            world.exec.run_until(world.now() + MIN / 2, || world.is_broken());
            let Some(job) = only(&world).map(|job| job.id.clone()) else { return };
            for _ in 0..count {
                deliver::send(&stage, Parcel::Tick, 0);
                let hint =
                    Hint { job: job.clone(), after: None, news: None, cause: "at once".into(), traceparent: None };
                deliver::send(&stage, Parcel::Hint(hint), 0);
            }
            world.exec.run_until(START_US + 8 * HOUR, || world.is_broken());
        });
        let wrong = verdict(&end, || not_twice(&world));
        world.exec.clear();
        if let Some(wrong) = wrong {
            return Some(Wrong { text: format!("(schedule {seed}) {}", wrong.text), ..wrong });
        }
    }
    None
}

/// One loss, at another minute of the job's life each time.
fn at_any_minute(fault: Fault) -> Option<Wrong> {
    for minute in (4..120).step_by(4) {
        let mut plan = Plan::calm(minute);
        plan.jobs = vec![small_job(0, 2 * HOUR)];
        let at = START_US + i64::try_from(minute).unwrap_or(0) * MIN;
        let (world, stage) = begin(plan);
        let end = ending(&world, || {
            world.exec.run_until(at, || world.is_broken());
            disaster::strike(&stage, &Moment { at, fault, pick: 0 });
            world.exec.run_until(START_US + 8 * HOUR, || world.is_broken());
        });
        let wrong = verdict(&end, || not_twice(&world));
        world.exec.clear();
        if let Some(wrong) = wrong {
            return Some(Wrong { text: format!("(minute {minute}) {}", wrong.text), ..wrong });
        }
    }
    None
}

/// Ids are global: the second owner's message is recorded as unusable, and the first one's job does not notice.
fn two_owners() -> Option<Wrong> {
    let mut plan = Plan::calm(9);
    plan.jobs = vec![small_job(0, HOUR)];
    let (world, stage) = begin(plan);
    let end = ending(&world, || {
        let mut spec = people::spec(&world.plan.jobs[0]);
        spec["owner"] = "somebody-else".into();
        let data = serde_json::to_vec(&spec).unwrap_or_default();
        deliver::send(&stage, Parcel::message("of-another", "submit", data, world.now()), 10 * MIN);
        world.exec.run_until(START_US + 6 * HOUR, || world.is_broken());
    });
    let dead = lock(&world.counts).others.get("dead letters").copied().unwrap_or(0);
    let job = only(&world);
    world.exec.clear();
    let well = job.is_some_and(|j| {
        j.phase == Phase::Succeeded && j.spec.owner == "research" && (j.last_generation, j.last_attempt) == (1, 1)
    });
    verdict(&end, || (!well || dead != 1).then(|| format!("well {well}, {dead} dead letters")))
}
