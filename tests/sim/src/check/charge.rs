//! Failures are charged to the right budget: never more to the user than the user's programs did, never a preemption that was none.

use rekindle_core::job::Job;

use super::Broken;
use crate::exec::lock;
use crate::world::World;

/// From one commit of a job to the next.
pub(super) fn step(world: &World, before: &Job, after: &Job) -> Broken {
    let truth = lock(&world.truth);
    let facts = truth.jobs.get(&after.id).cloned().unwrap_or_default();
    drop(truth);
    if after.counters.user_failures > before.counters.user_failures && after.counters.user_failures > facts.user_ends {
        return Some((
            "charge",
            format!(
                "{} is charged {} failures of the user; its programs failed {} times by themselves",
                after.id, after.counters.user_failures, facts.user_ends
            ),
        ));
    }
    if after.counters.preemptions > before.counters.preemptions && after.counters.preemptions > facts.losses {
        return Some((
            "charge",
            format!(
                "{} is charged {} preemptions; {} slices were lost",
                after.id, after.counters.preemptions, facts.losses
            ),
        ));
    }
    None
}
