//! Failures are charged to the right budget: never more to the user than the user's programs did, never a preemption that was none.

use rekindle_core::job::Job;

use super::Broken;
use crate::exec::lock;
use crate::world::World;

/// From one commit of a job to the next.
pub(super) fn step(world: &World, before: &Job, after: &Job) -> Broken {
    let (user_ends, losses) = {
        let truth = lock(&world.truth);
        truth.jobs.get(&after.id).map(|f| (f.user_ends, f.losses)).unwrap_or_default()
    };
    // A limit of the job's own that passes is the user's.
    let limited = world.job_plan(&after.id).is_some_and(|j| j.more.get("limits").is_some());
    if after.counters.user_failures > before.counters.user_failures
        && after.counters.user_failures > user_ends
        && !limited
    {
        return Some((
            "charge",
            format!(
                "{} is charged {} failures of the user; its programs failed {} times by themselves",
                after.id, after.counters.user_failures, user_ends
            ),
        ));
    }
    if after.counters.preemptions > before.counters.preemptions && after.counters.preemptions > losses {
        return Some((
            "charge",
            format!("{} is charged {} preemptions; {} slices were lost", after.id, after.counters.preemptions, losses),
        ));
    }
    None
}
