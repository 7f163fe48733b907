//! What really happened to jobs, as only the world knows it: what ends and charges are measured against.

use std::collections::BTreeMap;

use rekindle_core::classify::{Exit, Stage as During};
use rekindle_core::ids::JobId;

use crate::exec::lock;
use crate::fault::Fault;
use crate::machine::Death;
use crate::plan::{Fate, Told};
use crate::program;
use crate::world::World;

/// What happened to one job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// Losses of slices: preemption, maintenance, lies, vanished nodes, notices (also false ones).
    pub(crate) losses: u32,
    /// Ends of programs that are the user's fault.
    pub(crate) user_ends: u32,
    /// Ends of programs by anything else, setup included.
    pub(crate) other_ends: u32,
    /// Attempts that ended by the program itself.
    pub(crate) ends: BTreeMap<u32, &'static str>,
    /// Commands that were given, accepted or not.
    pub(crate) told: Vec<Told>,
    /// `setup` is to fail next time.
    pub(crate) setup_fails: bool,
    /// Disturbances of any kind.
    pub(crate) disturbed: u32,
}

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// By job.
    pub(crate) jobs: BTreeMap<JobId, Facts>,
    /// Whether moments are written down.
    pub(crate) keeps_marks: bool,
    /// Moments of losses and recoveries: `lost`, `decided`, `asked`, `ready`, `started`, `moving`.
    pub(crate) marks: Vec<(JobId, &'static str, i64)>,
}

impl Truth {
    /// The facts of a job.
    pub(crate) fn of(&mut self, job: &JobId) -> &mut Facts {
        self.jobs.entry(job.clone()).or_default()
    }
}

/// Writes a moment down, if that is wanted.
pub(crate) fn mark(world: &World, job: &JobId, what: &'static str, at: i64) {
    let mut truth = lock(&world.truth);
    if truth.keeps_marks {
        truth.marks.push((job.clone(), what, at));
    }
}

/// A program (or `setup`) ended on a worker.
pub(crate) fn on_exit(world: &World, job: &JobId, attempt: u32, death: &Death) {
    if death.ordered || death.exit == Exit::Code(0) || death.exit == Exit::Silent {
        return;
    }
    let mut truth = lock(&world.truth);
    let facts = truth.of(job);
    let fails = world.job_plan(job).is_some_and(|j| matches!(j.fate, Fate::Fails { .. }));
    let user = death.oom || death.during == During::Setup || death.tail == program::TRACEBACK;
    let word = if user || fails { "user" } else { "other" };
    // The first worker's end is the cause, the others' its echo; one attempt counts once, as the worse.
    let before = facts.ends.get(&attempt).copied();
    match (before, word) {
        (None, "user") => facts.user_ends += 1,
        (None, _) => facts.other_ends += 1,
        (Some("other"), "user") => {
            facts.user_ends += 1;
        }
        (Some(_), _) => return,
    }
    facts.ends.insert(attempt, word);
}

/// Whether the next `setup` of a job fails. Asked once for each.
pub(crate) fn takes_setup_failure(world: &World, job: &JobId, setup_done: bool) -> bool {
    if setup_done {
        return false;
    }
    std::mem::take(&mut lock(&world.truth).of(job).setup_fails)
}

/// A slice of a job is lost, or will be.
pub(crate) fn on_loss(world: &World, job: &JobId, fault: Fault) {
    let mut truth = lock(&world.truth);
    let facts = truth.of(job);
    facts.losses += 1;
    facts.disturbed += 1;
    drop(truth);
    mark(world, job, "lost", world.now());
    let preempts = matches!(
        fault,
        Fault::PreemptNotice
            | Fault::PreemptSilent
            | Fault::PreemptLag
            | Fault::NoticePartial
            | Fault::NoticeShort
            | Fault::SliceOfManyLost
            | Fault::Vanish
            | Fault::Storm
            | Fault::PreemptedCreating
    );
    if preempts {
        world.count("preemptions");
    }
}
