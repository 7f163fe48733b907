//! Submits and commands: each recorded in the same commit as its effect, so that a second delivery changes nothing.

use std::sync::Arc;

use jiff::Timestamp;

use rekindle_core::decide::{Command, NoSense, SOMEBODY, apply_command};
use rekindle_core::exec::{ExecAction, ExecOrder, with_order, with_stop};
use rekindle_core::history::{AttemptEnd, HistoryEntry};
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::{Counters, Desired, Job, OutEvent, Phase, Spent, Usage};
use rekindle_core::names;
use rekindle_core::reason::Reason;
use rekindle_core::spec;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::{Kind, short_hash};
use rekindle_ports::store::{Asked, CommandRecord, StoreError, put};

use crate::Engine;

/// The answer to a submit.
#[derive(Debug, Clone, PartialEq)]
pub enum Submitted {
    /// A new job.
    Created(Box<Job>),
    /// The same id with the same spec, or the same message again.
    Same(Box<Job>),
    /// The id is taken: by another spec, by an ended job, or by another owner (whose job is not shown).
    Conflict {
        /// The phase of the job that has the id, if the caller may know it.
        phase: Option<Phase>,
    },
}

/// The answer to a command.
#[derive(Debug, Clone, PartialEq)]
pub enum Commanded {
    /// Recorded; the next pass carries it out.
    Accepted(Box<Job>),
    /// It holds already, or was carried out before under the same key.
    AlreadyHolds(Box<Job>),
    /// It makes no sense in this phase.
    NoSense(NoSense),
    /// No such job.
    NoSuchJob,
    /// The job is at another attempt than the caller named.
    WrongAttempt(u32),
    /// The key was used before, for this: the same command with another body.
    OtherUnderKey(Asked),
}

/// A command that loses a race is tried again so often.
// Passes of a busy job commit a few times a second; a command needs one gap.
const RACES_MAX: u32 = 20;

impl Engine {
    /// Stores a new job. `key` is the message id or Idempotency-Key. The caller publishes the hint.
    pub async fn submit(&self, submit: spec::Submit, actor: &str, key: &str) -> Result<Submitted, StoreError> {
        let id = submit.id.clone().unwrap_or_else(|| names::generated_job_id(key));
        let now = self.ports.clock.now();
        let job = Arc::new(new_job(id.clone(), submit.spec, actor, now));
        let entry = submit_entry(&job, actor, now);
        let record = record_of("submit", actor, key, now);
        // With an id that is made of the key, a record is there if the key was bound to another one.
        let when = if id == names::generated_job_id(key) { Precondition::Absent } else { Precondition::None };
        let more = vec![put(&Kind::Command(id.clone(), key.to_owned()), &record, when)];
        match self.ports.store.create_job(&job, &entry, more).await {
            Ok(_) => Ok(Submitted::Created(boxed(job))),
            Err(StoreError::Conflict(_)) => self.existing(&id, &job, key).await,
            Err(error) => Err(error),
        }
    }

    /// Binds the caller's key to the id that came with it: the same key is for one job. Answers the job that it was used
    /// for before, if it is another one.
    ///
    /// Written before the submit, so that of two that come at once with two ids one is refused. After a submit that was
    /// refused the key stays bound.
    pub async fn bind_key(&self, id: &JobId, actor: &str, key: &str) -> Result<Option<JobId>, StoreError> {
        let own = names::generated_job_id(key);
        if own == *id {
            // The record of the submit itself binds it.
            return Ok(None);
        }
        let kind = Kind::Command(own, key.to_owned());
        let record = CommandRecord { job: Some(id.clone()), ..record_of("submit", actor, key, self.ports.clock.now()) };
        match self.ports.store.write(&kind, &record, Precondition::Absent).await {
            Ok(_) => Ok(None),
            Err(StoreError::Conflict(_)) => Ok(self.bound_to(key).await?.filter(|used_for| used_for != id)),
            Err(error) => Err(error),
        }
    }

    /// The job that a key was used for to submit, whether its id came with it or was made of it.
    pub async fn bound_to(&self, key: &str) -> Result<Option<JobId>, StoreError> {
        let own = names::generated_job_id(key);
        // Where a submit with this key and no id keeps its record.
        let known = self.ports.store.read::<CommandRecord>(&Kind::Command(own.clone(), key.to_owned())).await?;
        Ok(known.map(|at| at.value.job.unwrap_or(own)))
    }

    async fn existing(&self, id: &JobId, wanted: &Job, key: &str) -> Result<Submitted, StoreError> {
        let Some(at) = self.ports.store.job(id).await? else {
            let record = self.ports.store.read::<CommandRecord>(&Kind::Command(id.clone(), key.to_owned())).await?;
            // No job in the way, but a key that was used for one with another id.
            return match record.and_then(|record| record.value.job) {
                Some(_) => Ok(Submitted::Conflict { phase: None }),
                None => Err(StoreError::Unavailable("the job was there and is not any more".into())),
            };
        };
        let job = at.value;
        if job.spec.owner != wanted.spec.owner {
            return Ok(Submitted::Conflict { phase: None });
        }
        let again = self.ports.store.read::<CommandRecord>(&Kind::Command(id.clone(), key.to_owned())).await?;
        if again.is_some_and(|r| r.value.command == "submit") && job.spec_hash == wanted.spec_hash {
            return Ok(Submitted::Same(boxed(job)));
        }
        if job.spec_hash == wanted.spec_hash && !job.phase.is_terminal() {
            return Ok(Submitted::Same(boxed(job)));
        }
        Ok(Submitted::Conflict { phase: Some(job.phase) })
    }

    /// Records a command with its effect on the job. The caller publishes the hint.
    pub async fn command(
        &self,
        id: &JobId,
        command: Command,
        actor: &str,
        key: &str,
        if_attempt: Option<u32>,
    ) -> Result<Commanded, StoreError> {
        let asked = Asked { command, if_attempt };
        let applied = |job: &Job, now| {
            let after = apply_command(job, command, now)?;
            Ok(after.map(|after| match after.message.strip_suffix(SOMEBODY) {
                Some(what) if matches!(command, Command::Pause | Command::Cancel) => {
                    Job { message: format!("{what}{actor}"), ..after }
                }
                _ => after,
            }))
        };
        self.change(id, command.name(), actor, key, Some(asked), applied).await
    }

    /// Records an order to the workers of a workspace; the job that comes back names it last. Under the same key it is
    /// given once.
    pub async fn exec(
        &self,
        id: &JobId,
        worker: Option<WorkerKey>,
        action: &ExecAction,
        actor: &str,
        key: &str,
    ) -> Result<Commanded, StoreError> {
        self.change(id, "exec", actor, key, None, |job, now| with_order(job, worker, action, now).map(Some)).await
    }

    /// Records that the command of an order is to end. Nothing is to be done where it was told so or its attempt is over.
    /// The key is that order's: under it another one can be told too.
    pub async fn stop_exec(
        &self,
        id: &JobId,
        order: &ExecOrder,
        actor: &str,
        key: &str,
    ) -> Result<Commanded, StoreError> {
        let key = format!("{}/{key}", order.id);
        self.change(id, "exec-stop", actor, &key, None, |job, now| Ok(with_stop(job, order, now))).await
    }

    /// The order that was given under a key.
    pub async fn exec_given(&self, id: &JobId, key: &str) -> Result<Option<ExecOrder>, StoreError> {
        let kind = Kind::Command(id.clone(), format!("exec/{key}"));
        Ok(self.ports.store.read::<CommandRecord>(&kind).await?.and_then(|record| record.value.order))
    }

    async fn change(
        &self,
        id: &JobId,
        command: &'static str,
        actor: &str,
        key: &str,
        asked: Option<Asked>,
        apply: impl Fn(&Job, Timestamp) -> Result<Option<Job>, NoSense>,
    ) -> Result<Commanded, StoreError> {
        let mut lost = None;
        for _ in 0..RACES_MAX {
            let Some(at) = self.ports.store.job(id).await? else { return Ok(Commanded::NoSuchJob) };
            let kind = Kind::Command(id.clone(), format!("{command}/{key}"));
            if let Some(known) = self.ports.store.read::<CommandRecord>(&kind).await? {
                // What an earlier version recorded does not say what was asked.
                return Ok(match known.value.asked.filter(|known| asked.is_some_and(|asked| asked != *known)) {
                    Some(other) => Commanded::OtherUnderKey(other),
                    None => Commanded::AlreadyHolds(boxed(at.value)),
                });
            }
            if let Some(wanted) = asked.and_then(|asked| asked.if_attempt)
                && wanted != at.value.last_attempt
            {
                return Ok(Commanded::WrongAttempt(at.value.last_attempt));
            }
            let now = self.ports.clock.now();
            let mut job = match apply(&at.value, now) {
                Err(no) => return Ok(Commanded::NoSense(no)),
                Ok(None) => {
                    // Carried out, and so a second delivery must not act later, when it holds no more.
                    let record = CommandRecord { asked, ..record_of(command, actor, key, now) };
                    match self.ports.store.write(&kind, &record, Precondition::Absent).await {
                        Ok(_) => return Ok(Commanded::AlreadyHolds(boxed(at.value))),
                        // The same key at the same time: whether for the same thing is in its record.
                        Err(error @ StoreError::Conflict(_)) => {
                            lost = Some(error);
                            continue;
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(Some(job)) => job,
            };
            job.revision += 1;
            job.changed_at = now;
            job.wake_at = Some(now);
            let job = Arc::new(job);
            let entry = command_entry(&at.value, &job, command, actor, now);
            let order = job.execs.last().filter(|_| job.last_exec > at.value.last_exec).cloned();
            let record = CommandRecord { order, asked, ..record_of(command, actor, key, now) };
            let more = vec![put(&kind, &record, Precondition::Absent)];
            match self.ports.store.commit_job(at.revision, &job, Some(&entry), more).await {
                Ok(_) => return Ok(Commanded::Accepted(boxed(job))),
                Err(error @ StoreError::Conflict(_)) => lost = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(lost.unwrap_or_else(|| StoreError::Unavailable("lost every race".into())))
    }
}

fn boxed(job: Arc<Job>) -> Box<Job> {
    Box::new(Arc::unwrap_or_clone(job))
}

fn record_of(command: &str, actor: &str, key: &str, now: Timestamp) -> CommandRecord {
    CommandRecord {
        key: key.to_owned(),
        command: command.into(),
        actor: actor.to_owned(),
        at: now,
        order: None,
        asked: None,
        job: None,
    }
}

fn submit_entry(job: &Job, actor: &str, now: Timestamp) -> HistoryEntry {
    HistoryEntry {
        revision: job.revision,
        at: now,
        cause: "submit".into(),
        actor: actor.to_owned(),
        from: Phase::Pending,
        to: Phase::Pending,
        reason: Reason::Submitted,
        message: job.message.clone(),
        notes: Vec::new(),
        effects: Vec::new(),
        attempt: 0,
        generation: 0,
        ended: None,
    }
}

/// The command in a person's words: an order is of `exec` or of `sync`.
fn said<'a>(before: &Job, after: &Job, command: &'a str) -> &'a str {
    let order = after.execs.last().filter(|_| after.last_exec > before.last_exec);
    order.map_or(command, |order| order.action.command())
}

fn command_entry(before: &Job, after: &Job, command: &str, actor: &str, now: Timestamp) -> HistoryEntry {
    HistoryEntry {
        revision: after.revision,
        at: now,
        cause: command.into(),
        actor: actor.to_owned(),
        from: before.phase,
        to: after.phase,
        reason: after.reason,
        message: format!("{} by {actor}", said(before, after, command)),
        notes: Vec::new(),
        effects: Vec::new(),
        attempt: after.last_attempt,
        generation: after.last_generation,
        ended: AttemptEnd::between(before, after),
    }
}

fn new_job(id: JobId, spec: spec::JobSpec, actor: &str, now: Timestamp) -> Job {
    let spec_hash = spec::hash(&spec);
    let run_id = short_hash(&format!("run/{id}/{now}"))[..16].to_owned();
    let message = "accepted";
    // To be pending is the first change of phase that others hear of.
    let submitted = OutEvent {
        sequence: 1,
        at: now,
        phase: Phase::Pending,
        reason: Reason::Submitted,
        message: message.into(),
        attempt: 0,
        generation: 0,
    };
    Job {
        id,
        spec: spec.into(),
        spec_hash,
        run_id,
        created_at: now,
        submitted_by: actor.to_owned(),
        desired: Desired::Run,
        restart: None,
        phase: Phase::Pending,
        phase_since: now,
        outcome: None,
        reason: Reason::Submitted,
        message: message.into(),
        last_generation: 0,
        last_attempt: 0,
        line: 0,
        generations: Vec::new(),
        attempts: Vec::new(),
        next: None,
        settling: None,
        last_end: None,
        counters: Counters::default(),
        spent: Spent::default(),
        highest_step: None,
        line_step: None,
        saved: None,
        savers: 0,
        last_loss: None,
        first_started_at: None,
        queued_since: now,
        barred: Vec::new(),
        unqueueable: Vec::new(),
        execs: Vec::new(),
        last_exec: 0,
        vacated: None,
        // Due at once: if the hint is lost, the next tick finds it.
        wake_at: Some(now),
        sequence: submitted.sequence,
        outbox: vec![submitted],
        revision: 1,
        changed_at: now,
        observed_through_us: 0,
        usage: Usage::default(),
    }
}
