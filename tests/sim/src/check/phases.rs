//! Phases follow each other as the machine of phases says: what it does not know never happens, and over the seeds of CI all that it demands
//! does.

use rekindle_core::job::{Desired, Job, Phase};

use super::Broken;
use crate::exec::lock;
use crate::plan::Told;
use crate::world::World;

/// Whether one phase follows another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follows {
    /// It does, and a swarm in which it never did says too little.
    Must,
    /// It may: a pass that comes late finds two steps done, as when the slice is gone by the time that its job is cancelled.
    May,
    /// Never.
    Never,
}

/// The machine: whether `to` follows `from`.
pub(crate) const fn follows(from: Phase, to: Phase) -> Follows {
    use Follows::{May, Must, Never};
    use Phase as P;
    match (from, to) {
        (P::Succeeded | P::Failed | P::Cancelled, _)
        | (P::Pending, P::Pending | P::Starting | P::Running | P::Succeeded)
        | (P::Provisioning, P::Provisioning | P::Running | P::Succeeded)
        | (P::Starting, P::Starting)
        | (P::Running, P::Pending | P::Running)
        | (P::Recovering, P::Recovering)
        | (P::Stopping, P::Pending | P::Provisioning | P::Starting | P::Running | P::Recovering | P::Stopping)
        | (P::Paused, P::Paused | P::Starting | P::Running | P::Succeeded) => Never,
        (P::Pending, P::Provisioning | P::Paused | P::Failed)
        | (P::Provisioning, P::Pending | P::Starting | P::Recovering | P::Stopping)
        | (P::Starting, P::Provisioning | P::Running | P::Recovering | P::Stopping)
        | (P::Running, P::Provisioning | P::Starting | P::Recovering | P::Stopping)
        | (P::Recovering, P::Provisioning | P::Starting | P::Stopping)
        | (P::Stopping, P::Paused | P::Succeeded | P::Failed | P::Cancelled)
        | (P::Paused, P::Provisioning) => Must,
        (P::Pending, P::Recovering | P::Stopping | P::Cancelled)
        | (P::Provisioning, P::Paused | P::Failed | P::Cancelled)
        | (P::Starting, P::Pending | P::Paused | P::Succeeded | P::Failed | P::Cancelled)
        | (P::Running, P::Paused | P::Succeeded | P::Failed | P::Cancelled)
        | (P::Recovering, P::Pending | P::Running | P::Paused | P::Succeeded | P::Failed | P::Cancelled)
        | (P::Paused, P::Pending | P::Recovering | P::Stopping | P::Failed | P::Cancelled) => May,
    }
}

/// As reports name a change.
pub(crate) fn name(from: Phase, to: Phase) -> String {
    format!("{} → {}", from.as_str(), to.as_str())
}

/// Every change that a swarm must have met.
pub(crate) fn demanded() -> impl Iterator<Item = String> {
    let pairs = Phase::ALL.into_iter().flat_map(|from| Phase::ALL.into_iter().map(move |to| (from, to)));
    pairs.filter(|(from, to)| follows(*from, *to) == Follows::Must).map(|(from, to)| name(from, to))
}

/// From one commit of a job to the next.
pub(super) fn step(world: &World, before: &Job, after: &Job) -> Broken {
    if after.desired == Desired::Pause && before.desired != Desired::Pause {
        lock(&world.truth).of(&after.id).was_barren = is_barren(after);
    }
    if after.phase == Phase::Paused && before.phase != Phase::Paused && !is_paused_rightly(world, after) {
        return Some(("phases", format!("{} is paused, and nothing explains it: {}", after.id, after.message)));
    }
    let unknown = before.phase != after.phase && follows(before.phase, after.phase) == Follows::Never;
    unknown.then(|| ("phases", format!("{}: {} never happens", after.id, name(before.phase, after.phase))))
}

/// Whether somebody told a job to pause, or so many slices in a row brought nothing as its spec allows.
fn is_paused_rightly(world: &World, job: &Job) -> bool {
    let truth = lock(&world.truth);
    let facts = truth.jobs.get(&job.id);
    // A worker may tell of a step a moment after its slice was lost and the job was told to pause: it stays so, and a person looks.
    facts.is_some_and(|facts| facts.told.contains(&Told::Pause) || facts.was_barren)
}

/// As many generations in a row have brought no step as the job has a budget for.
fn is_barren(job: &Job) -> bool {
    let barren = job.spent.generations_without_progress;
    job.spec.budgets.no_progress.is_some_and(|max| barren >= max)
}
