//! Walks of one job through random troubles: slices that are taken, notices that are moved, creates that are refused,
//! people that change their minds. Then all is well, and stays so: whatever has befallen the job, it runs again, and
//! ends with its program.
//!
//! At each step no two of its attempts run, and once it has ended or is paused it owns nothing; and it ends as it
//! should. A walk follows from its seed alone, and where it goes wrong it tells the seed and what happened, in order.
//! `REKINDLE_WALKS=100000` takes so many, and `REKINDLE_SEED=7` takes that one.

mod draws;
mod troubles;
mod world;

use self::world::World;
use super::{Command, apply_command};
use crate::fixture::at;
use crate::job::{Desired, Outcome, Phase};
use crate::reason::Reason;

/// The first walk of a usual run, and how many there are: they take some seconds. Without `is_left` the job of walk
/// 3139 waits for ever.
const FIRST: u64 = 3001;
const WALKS: u64 = 300;

/// The seeds of this run, from the environment or the usual ones.
fn seeds() -> impl Iterator<Item = u64> {
    let given = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = given("REKINDLE_SEED");
    let walks = given("REKINDLE_WALKS").unwrap_or(if seed.is_some() { 1 } else { WALKS });
    let first = seed.unwrap_or(FIRST);
    first..first + walks
}

/// Troubles for some minutes; the job may end in them.
fn through_troubles(world: &mut World) {
    let often = world.draws.one_of(&[10, 25, 50]);
    for _ in 0..20 + world.draws.below(100) {
        world.now += 1 + world.draws.below(12);
        if world.draws.happens(often) {
            world.befall();
        }
        world.step();
        if world.job.phase.is_terminal() {
            return;
        }
    }
}

/// No wait of a job is longer: an hour between two slices, and the making of the next.
const LONGEST_WAIT: i64 = 2 * 3600;

/// All is well: a job that goes on runs for two minutes without a break, and then its program ends well.
fn on_its_way(world: &mut World) {
    let calm_since = world.now;
    let mut running_since = None;
    while !world.job.phase.is_terminal() {
        world.now += 7;
        if world.job.phase == Phase::Paused && world.job.desired == Desired::Pause {
            world.job = apply_command(&world.job, Command::Unpause, at(world.now)).unwrap().unwrap();
        }
        world.step();
        running_since = running_since.filter(|_| world.job.phase == Phase::Running);
        if world.job.phase == Phase::Running && world.now - *running_since.get_or_insert(world.now) > 120 {
            world.is_done();
        }
        assert!(world.now - calm_since < LONGEST_WAIT, "it does not go on: {}", world.told());
    }
}

/// Its outcome is that of its program, of a person or of its own spec.
fn ended_rightly(world: &World) {
    let (limits, told) = (&world.job.spec.limits, world.told());
    let is_right = match world.job.outcome {
        Some(Outcome::Succeeded) => world.has_ended_well(),
        Some(Outcome::Cancelled) => world.job.desired == Desired::Cancel,
        Some(Outcome::Failed) if world.job.reason == Reason::QueueTimeout => limits.queue.is_some(),
        Some(Outcome::Failed) if world.job.reason == Reason::TotalTimeout => limits.total.is_some(),
        Some(Outcome::Failed) if world.job.reason == Reason::CostLimit => limits.cost_usd.is_some(),
        // By the policy, or by a budget that is used up.
        Some(Outcome::Failed) => world.job.last_end.as_ref().is_some_and(|e| e.ended.kind.is_some()),
        None => false,
    };
    assert!(is_right, "it ends wrongly: {told}");
}

#[test]
fn a_job_goes_on_once_its_troubles_are_over() {
    for seed in seeds() {
        walk(seed);
    }
}

fn walk(seed: u64) {
    let mut world = World::of(seed);
    through_troubles(&mut world);
    if !world.job.phase.is_terminal() {
        world.calm();
        on_its_way(&mut world);
    }
    ended_rightly(&world);
}
