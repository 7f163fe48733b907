//! What really happened to jobs, as only the world knows it: what ends and charges are measured against.

use std::collections::{BTreeMap, BTreeSet};

use rekindle_core::classify::{Exit, Stage as During};
use rekindle_core::ids::{JobId, WorkerKey};

use crate::cloud::Resource;
use crate::exec::lock;
use crate::fault::Fault;
use crate::machine::Death;
use crate::plan::Told;
use crate::program;
use crate::world::World;

/// What happened to one job.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// What befell each generation: faults of its slice and of its workers, in their order.
    pub(crate) befell: BTreeMap<u32, Vec<Fault>>,
    /// Generations of which the API has shown what was no sign of anything.
    pub(crate) doubted: BTreeSet<u32>,
    /// Attempts that ended by themselves or by a fault of one worker, and whose fault it was.
    pub(crate) ends: BTreeMap<u32, Whose>,
    /// Workers of each attempt that exited 0.
    pub(crate) well: BTreeMap<u32, BTreeSet<WorkerKey>>,
    /// Commands that were given, accepted or not.
    pub(crate) told: Vec<Told>,
    /// It was told to pause when too many generations had brought no step, as far as that was known.
    pub(crate) was_barren: bool,
    /// What goes wrong in the next `setup`.
    pub(crate) setup_fault: Option<Fault>,
}

/// Whose fault the end of a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The user's: the program or `setup` is wrong, or takes too much memory.
    User,
    /// Anybody else's.
    Other,
    /// Anybody else's, and a worker names the cause: storage, a disk, a device.
    Elsewhere,
    /// The user's on one worker, and on another one, by itself, anybody else's: which was first nobody can tell by the clocks of machines.
    Both,
}

/// All jobs.
#[derive(Debug, Default)]
pub(crate) struct Truth {
    /// By job.
    pub(crate) jobs: BTreeMap<JobId, Facts>,
    /// Whether moments are written down.
    pub(crate) keeps_marks: bool,
    /// Moments of losses and recoveries: `lost`, `off`, `seen`, `decided`, `gone`, `asked`, `ready`, `started`, `moving`.
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

/// A slice of a job has lost its power.
pub(crate) fn mark_off(world: &World, resource: &Resource) {
    if let Some((job, _)) = resource.made_for() {
        mark(world, &job, "off", world.now());
    }
}

/// A program (or `setup`) ended on a worker.
pub(crate) fn on_exit(world: &World, job: &JobId, attempt: u32, worker: WorkerKey, death: &Death) {
    let mut truth = lock(&world.truth);
    let facts = truth.of(job);
    if death.exit == Exit::Code(0) {
        facts.well.entry(attempt).or_default().insert(worker);
    }
    if death.ordered || death.exit == Exit::Code(0) || death.exit == Exit::Silent {
        return;
    }
    let user = death.oom || death.during == During::Setup || death.tail == program::TRACEBACK;
    let now = match &*death.tail {
        _ if user => Whose::User,
        "" | program::GRPC => Whose::Other,
        _ => Whose::Elsewhere,
    };
    // One attempt counts once: what the user did is the cause, the others' ends are its echo, unless they name a cause of their own.
    let whose = facts.ends.entry(attempt).or_insert(now);
    *whose = match (*whose, now) {
        (Whose::Both, _) | (Whose::User, Whose::Elsewhere) | (Whose::Elsewhere, Whose::User) => Whose::Both,
        (Whose::User, _) | (_, Whose::User) => Whose::User,
        (Whose::Elsewhere, _) | (_, Whose::Elsewhere) => Whose::Elsewhere,
        (Whose::Other, Whose::Other | Whose::Both) => Whose::Other,
    };
}

/// What goes wrong in the next `setup` of a job, if anything. Asked once for each.
pub(crate) fn takes_setup_fault(world: &World, job: &JobId, setup_done: bool) -> Option<Fault> {
    if setup_done {
        return None;
    }
    lock(&world.truth).of(job).setup_fault.take()
}

/// A fault befalls a generation, or one of its workers.
pub(crate) fn befalls(world: &World, job: &JobId, generation: u32, fault: Fault) {
    lock(&world.truth).of(job).befell.entry(generation).or_default().push(fault);
}

/// The API shows of a slice what is no sign of anything: nothing may be charged to it. Of two such stretches the moment between them may be
/// seen by nobody, so that the second counts like a state that lasts.
pub(crate) fn doubt(world: &World, job: &JobId, generation: u32, fault: Fault) {
    let is_first = lock(&world.truth).of(job).doubted.insert(generation);
    if !is_first {
        befalls(world, job, generation, fault);
    }
}

/// A slice of a job is lost, or will be.
pub(crate) fn on_loss(world: &World, job: &JobId, generation: u32, fault: Fault) {
    crate::check::on_loss(world, job, generation, fault);
    befalls(world, job, generation, fault);
    mark(world, job, "lost", world.now());
    let preempts = matches!(
        fault,
        Fault::PreemptNotice
            | Fault::PreemptSilent
            | Fault::PreemptLag
            | Fault::NoticePartial
            | Fault::NoticeShort
            | Fault::PreemptExitFirst
            | Fault::SliceOfManyLost
            | Fault::Vanish
            | Fault::Storm
            | Fault::PreemptedCreating
            | Fault::ActiveWithoutNode
    );
    if preempts {
        world.count("preemptions");
    }
}
