//! The checkers: each in a file of its own, told of what happened, asked by nobody. The first broken promise ends the run.
//!
//! What a checker is told is what took effect: commits, calls that the cloud accepted, programs that started.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use rekindle_core::effect::Effect;
use rekindle_core::history::HistoryEntry;
use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, OutEvent, Phase};
use rekindle_core::observation::SliceView;
use rekindle_engine::TickReport;
use rekindle_ports::body::Body;
use rekindle_ports::store::{CreatesDoc, Stored, decode};
use rekindle_ports::tpu::{CreateRequest, SliceRef};
use rekindle_wire::agent::Report;

use crate::exec::lock;
use crate::fault::Fault;
use crate::machine::{self, Fleet, Vm};
use crate::plan::Plan;
use crate::store::Changed;
use crate::world::{Promise, World, micros};

mod amounts;
mod asked;
mod billing;
mod budget;
mod charge;
mod double_run;
pub(crate) mod ends;
mod events;
mod foreign;
mod intent;
mod leak;
mod messages;
mod monotone;
pub(crate) mod phases;
mod release;
mod saving;
mod sending;
mod terminal;
mod waits;
mod witness;

/// What the checkers remember.
#[derive(Default)]
pub(crate) struct Checks {
    /// Every job as it was last committed.
    pub(crate) jobs: BTreeMap<JobId, Arc<Job>>,
    /// Jobs of this commit, each with whether its history must tell of it.
    changed: Vec<(JobId, bool)>,
    running_us: i64,
    intents: intent::Intents,
    running: double_run::Running,
    meetings: release::Meetings,
    leaks: leak::Leaks,
    billing: billing::Billing,
    messages: messages::Messages,
    sure: charge::Sure,
    histories: monotone::Histories,
    permits: budget::Permits,
    witnesses: witness::Witnesses,
    waits: waits::Waits,
    commit: budget::Commit,
    events: events::Events,
}

impl Checks {
    /// Nothing has happened.
    pub(crate) fn new(_: &Plan) -> Self {
        Self::default()
    }

    /// For how long jobs have been running, all together.
    pub(crate) fn running_us(&self) -> i64 {
        self.running_us
    }
}

/// A broken rule: the checker and its sentence.
type Broken = Option<(&'static str, String)>;

fn tell(world: &World, broken: Broken) {
    if let Some((checker, text)) = broken {
        world.broken(Promise::Safety, checker, text);
    }
}

/// A document was written. Called while the store is locked.
pub(crate) fn on_commit(world: &World, changed: &Changed<'_>) {
    let Some(after) = changed.after else {
        tell(world, monotone::deleted(changed.path));
        return;
    };
    if changed.path == "limits/creates" {
        if let Some(creates) = held::<CreatesDoc>(world, changed.path, &after.body) {
            let before = changed.before.and_then(|before| held::<CreatesDoc>(world, changed.path, &before.body));
            lock(&world.checks).commit.permits(before, creates);
        }
        return;
    }
    let Some(rest) = changed.path.strip_prefix("jobs/") else { return };
    if let Some((id, sub)) = rest.split_once('/') {
        if sub.starts_with("history/") {
            tell(world, monotone::history(changed));
            let Some(entry) = held::<HistoryEntry>(world, changed.path, &after.body) else { return };
            count_entry(world, &entry);
            let mut checks = lock(&world.checks);
            checks.histories.note(id, entry.revision);
            let broken = messages::entry(world, &mut checks.messages, id, &entry);
            drop(checks);
            tell(world, broken);
        }
        return;
    }
    on_job_document(world, changed);
}

fn on_job_document(world: &World, changed: &Changed<'_>) {
    let Some(after) = changed.after else { return };
    let Some(job) = held::<Job>(world, changed.path, &after.body) else { return };
    let mut checks = lock(&world.checks);
    let checks = &mut *checks;
    let stored = changed.before.and_then(|before| held::<Job>(world, changed.path, &before.body));
    if let Some(stored) = &stored {
        checks.commit.job(stored, &job);
    }
    checks.intents.step(stored.as_deref(), &job, world.now());
    let before = checks.jobs.get(&job.id);
    // Only the clockwork moved: no checker looks at it.
    if before.is_some_and(|b| b.revision == job.revision) {
        return;
    }
    let before = before.map(Arc::as_ref);
    if let Some(before) = before.filter(|b| b.phase == Phase::Running && b.phase_since != job.phase_since) {
        checks.running_us += micros(job.phase_since) - micros(before.phase_since);
    }
    if let Some(before) = before {
        tell(world, monotone::step(before, &job));
        tell(world, phases::step(world, before, &job));
        tell(world, amounts::step(before, &job));
        tell(world, charge::step(world, before, &job, &mut checks.sure));
        tell(world, checks.witnesses.step(before, &job, world.now()));
    }
    tell(world, terminal::step(world, before, &job));
    tell(world, checks.waits.step(world, before, &job));
    tell(world, checks.events.step(&job));
    count_job(world, before, &job);
    world.trace(|| {
        let phase = job.phase.as_str();
        format!("job: {} r{} {phase} {} — {}", job.id, job.revision, job.reason.name(), job.message)
    });
    let known = |j: &Job| j.generations.iter().filter(|g| g.lost.is_some() || g.notice.is_some()).count();
    if before.is_some_and(|b| known(b) < known(&job)) {
        crate::truth::mark(world, &job.id, "seen", world.now());
    }
    if before.is_some_and(|b| b.last_end != job.last_end) {
        crate::truth::mark(world, &job.id, "decided", world.now());
    }
    checks.changed.push((job.id.clone(), before.is_none_or(|b| monotone::is_history(b, &job))));
    checks.jobs.insert(job.id.clone(), job);
}

fn count_job(world: &World, before: Option<&Job>, job: &Job) {
    let mut counts = lock(&world.counts);
    if before.is_none_or(|b| b.reason != job.reason) {
        *counts.reasons.entry(job.reason).or_default() += 1;
    }
    let why = |j: &Job| j.next.as_ref().map(|n| n.why);
    if let Some(why) = why(job).filter(|w| before.and_then(why) != Some(*w)) {
        *counts.reasons.entry(why).or_default() += 1;
    }
    if let Some(before) = before.filter(|b| b.phase != job.phase) {
        let change = phases::name(before.phase, job.phase);
        *counts.phases.entry(change).or_default() += 1;
    }
}

fn count_entry(world: &World, entry: &HistoryEntry) {
    let mut counts = lock(&world.counts);
    for effect in &entry.effects {
        let name = match effect {
            Effect::CreateGeneration { .. } => "create_generation",
            Effect::DeleteGeneration { .. } => "delete_generation",
            Effect::PublishEvents => "publish_events",
        };
        *counts.effects.entry(name).or_default() += 1;
    }
    drop(counts);
    if !entry.notes.is_empty() {
        world.trace(|| format!("  note: {}", entry.notes.join("; ")));
    }
}

/// What a document holds; that it cannot be read is a broken promise.
fn held<T: Stored>(world: &World, path: &str, body: &Body) -> Option<Arc<T>> {
    decode(path, body).inspect_err(|error| world.broken(Promise::Safety, "readable", error.to_string())).ok()
}

/// After a commit, with nothing locked: agents learn of it at their next poll.
pub(crate) fn after_commit(world: &World) {
    let mut checks = lock(&world.checks);
    let changed = std::mem::take(&mut checks.changed);
    let told = changed.iter().filter(|(_, is_history)| *is_history);
    let broken = told.filter_map(|(id, _)| checks.jobs.get(id)).find_map(|job| checks.histories.lacks(job));
    let commit = std::mem::take(&mut checks.commit);
    let over = checks.permits.commit(commit, world.now());
    drop(checks);
    tell(world, broken.or(over));
    for (job, _) in changed {
        machine::poke(world, &job);
    }
}

/// A create was accepted.
pub(crate) fn on_create(world: &World, request: &CreateRequest) {
    let broken = lock(&world.checks).intents.create(world.now(), request);
    tell(world, broken.or_else(|| asked::create(request)));
    if let Ok(job) = JobId::parse(&request.labels.job) {
        let broken = terminal::create(world, lock(&world.checks).jobs.get(&job).map(Arc::as_ref), request);
        tell(world, broken);
        crate::truth::mark(world, &job, "asked", world.now());
    }
    let broken = billing::create(world, &lock(&world.checks).jobs, request);
    tell(world, broken);
}

/// A create request arrived, the so-many-th of the minute.
pub(crate) fn on_post(world: &World, request: &CreateRequest, in_minute: usize) {
    tell(world, budget::posts(in_minute).or_else(|| lock(&world.checks).permits.used(&request.name, world.now())));
}

/// A slice is about to be lost.
pub(crate) fn on_loss(world: &World, job: &JobId, generation: u32, fault: Fault) {
    let mut checks = lock(&world.checks);
    let checks = &mut *checks;
    if let Some(job) = checks.jobs.get(job) {
        charge::lost(world, job, generation, fault, &mut checks.sure);
    }
}

/// The API says from here on that a slice is taken away.
pub(crate) fn on_taken(world: &World, slice: &SliceRef) {
    if let Some((job, generation)) = crate::cloud::with(world, slice, |r| r.made_for()).flatten() {
        lock(&world.checks).sure.said(&job, generation, world.now());
    }
}

/// A delete was accepted.
pub(crate) fn on_delete(world: &World, slice: &SliceRef) {
    tell(world, foreign::delete(world, slice));
    if crate::cloud::with(world, slice, |r| r.labels.job == "orphan") == Some(true) {
        world.count("orphans deleted");
    }
    tell(world, saving::delete(world, slice));
    let broken = {
        let checks = lock(&world.checks);
        let sends = sending::delete(world, &checks.jobs, slice);
        sends.or_else(|| checks.intents.delete(world, &checks.jobs, slice))
    };
    tell(world, broken);
}

/// A read of a slice was answered.
pub(crate) fn on_read(world: &World, slice: &SliceRef, view: Option<&SliceView>) {
    lock(&world.checks).witnesses.read(slice, view, world.now());
}

/// A slice became READY.
pub(crate) fn on_ready(world: &World, slice: &SliceRef) {
    world.count("slices made");
    let job = crate::cloud::with(world, slice, |r| r.labels.job.clone());
    if let Some(job) = job.and_then(|id| JobId::parse(&id).ok()) {
        crate::truth::mark(world, &job, "ready", world.now());
    }
}

/// A worker has done all that comes before the program of an attempt.
pub(crate) fn on_prepared(world: &World, at: &Vm, attempt: u32) {
    lock(&world.checks).meetings.prepared(at, attempt);
}

/// A program starts on a worker.
pub(crate) fn on_program_start(world: &World, fleet: &Fleet, at: &Vm, attempt: u32, coordinator: &str) {
    let mut checks = lock(&world.checks);
    let checks = &mut *checks;
    let double = checks.running.start(fleet, at, attempt);
    tell(world, double.or_else(|| checks.meetings.start(world, at, attempt, coordinator)));
    crate::truth::mark(world, &at.job, "started", world.now());
    world.count("programs started");
}

/// A program ended on a worker.
pub(crate) fn on_program_end(world: &World, _: &JobId, _: u32) {
    world.count("programs ended");
}

/// An event was published.
pub(crate) fn on_event(world: &World, job: &JobId, event: &OutEvent) {
    // What is committed to a database that stands in for ours is not seen here.
    if lock(&world.shelf).instead.is_none() {
        let broken = lock(&world.checks).events.told(job, event);
        tell(world, broken);
    }
}

/// A tick came to its end.
pub(crate) fn on_tick(world: &World, report: &TickReport) {
    let held = report.sweep.as_ref().is_some_and(|s| s.held > 0);
    if held {
        world.count("sweeps held");
    }
    let mut checks = lock(&world.checks);
    checks.leaks.held = held;
    drop(checks);
    if report.sweep.as_ref().is_some_and(|s| !s.deleted.is_empty()) {
        world.count("orphans swept");
    }
}

/// A message was acknowledged.
pub(crate) fn on_message_ack(world: &World, id: &str, command: &str, data: &[u8]) {
    if lock(&world.shelf).instead.is_none() {
        let broken = messages::acknowledged(world, &mut lock(&world.checks), id, command, data);
        tell(world, broken);
    }
}

/// A command by HTTP was answered.
pub(crate) fn on_answer(world: &World, job: &JobId, command: &str, key: &str, status: StatusCode, text: &str) {
    let broken = messages::answered(world, &mut lock(&world.checks), (job, command, key), (status, text));
    tell(world, broken);
}

/// An agent's report was accepted.
pub(crate) fn on_report(world: &World, report: &Report) {
    if lock(&world.shelf).instead.is_none() {
        let broken = messages::reported(world, &lock(&world.checks), report);
        tell(world, broken);
    }
}

/// Minutes between two looks at the fleet; what goes on for less breaks no promise.
pub(crate) const AUDIT_MINUTES: u32 = 5;

/// Looks at the fleet each few minutes.
pub(crate) async fn audit(world: Arc<World>) {
    loop {
        world.exec.sleep(i64::from(AUDIT_MINUTES) * crate::roll::MIN).await;
        let broken = {
            let mut checks = lock(&world.checks);
            let checks = &mut *checks;
            leak::audit(&world, &checks.jobs, &mut checks.leaks)
                .or_else(|| billing::audit(&world, &checks.jobs, &mut checks.billing))
        };
        tell(&world, broken);
    }
}

/// Whether everything that was promised to be told was told: every event of every job.
pub(crate) fn untold_events(checks: &Checks) -> Broken {
    checks.jobs.values().find_map(|job| checks.events.untold(job))
}
