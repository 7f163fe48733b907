//! The pass: the whole loop on one screen.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use rekindle_core::check;
use rekindle_core::decide::{self, Decision, EffectOutcome, decide};
use rekindle_core::exec::ExecOrder;
use rekindle_core::history::{AttemptEnd, HistoryEntry};
use rekindle_core::ids::JobId;
use rekindle_core::job::{Generation, Job};
use rekindle_core::orders::{attempt_of, order_to_all};
use rekindle_ports::docs::{Precondition, Revision};
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{At, StoreError, put};
use rekindle_ports::world::Hint;

use crate::observe::Seen;
use crate::{Engine, PassError};

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassOutcome {
    /// Decided, committed, acted.
    Done,
    /// Nothing was due, or the fact that caused the hint was seen already.
    NothingToDo,
    /// Another pass (or a command) wrote first and carries on.
    Superseded,
    /// No such job.
    NoSuchJob,
}

/// A refused create is answered in the same pass: the next place is tried at once, up to so many times.
// Five candidates, four of them refused, is one pass (a job must not wait a minute for each zone).
const ROUNDS_MAX: u32 = 12;
/// Passes ring for an order of a person so long after it was given: the hint at it may be late or lost, and a tick comes each minute.
const RUNG_FOR: Duration = Duration::from_secs(90);

/// So often a pass tries to store what acting has shown while others write the same job.
const RACES_MAX: u32 = 10;

enum Round {
    End(PassOutcome),
    /// Something was refused: the next place is tried.
    Again,
    /// Another pass or a command wrote first; this one had read the workers' reports as of this commit time.
    Lost {
        read_through_us: i64,
    },
}

impl Engine {
    /// One pass of one job.
    ///
    /// `after` is the commit time of the stored fact that caused the hint: a job that was observed past it has nothing to do.
    pub async fn pass(&self, id: &JobId, cause: &str, after: Option<Revision>) -> Result<PassOutcome, PassError> {
        let hint = Hint { job: id.clone(), after, news: None, cause: cause.to_owned(), traceparent: None };
        self.pass_for(&hint).await
    }

    /// The pass that a hint asks for. A job that was observed past its fact, or knows its news, has nothing to do.
    pub async fn pass_for(&self, hint: &Hint) -> Result<PassOutcome, PassError> {
        // What is logged meanwhile is of this job: its labels are the span's.
        let span = tracing::info_span!("pass", job = %hint.job, attempt = Empty, generation = Empty);
        self.rounds(hint).instrument(span).await
    }

    async fn rounds(&self, hint: &Hint) -> Result<PassOutcome, PassError> {
        let Hint { job: id, after, news, cause, traceparent: _ } = hint;
        let began = self.ports.clock.now();
        let mut result = PassOutcome::NothingToDo;
        let mut lost: Option<(Revision, i64)> = None;
        for round in 0..ROUNDS_MAX {
            let Some(loaded) = self.ports.store.job(id).await? else { return Ok(PassOutcome::NoSuchJob) };
            // Not every store tells which document of a commit had moved: if it was not the job's, nobody has won anything.
            let beaten = lost.filter(|(revision, _)| *revision != loaded.revision);
            if round == 0 || beaten.is_some() {
                let fact_seen = after.is_some_and(|r| loaded.value.observed_through_us >= r.0)
                    || news.is_some_and(|news| news.is_known(&loaded.value));
                let answered = beaten.is_some_and(|(_, through)| self.is_answered(&loaded.value, through));
                if fact_seen || (answered && after.is_none()) {
                    return Ok(if beaten.is_some() { PassOutcome::Superseded } else { PassOutcome::NothingToDo });
                }
            }
            if self.past_deadline(began) {
                break;
            }
            lost = None;
            let revision = loaded.revision;
            match self.round(loaded, cause, began).await? {
                Round::End(PassOutcome::NothingToDo) => return Ok(result),
                Round::End(outcome) => return Ok(outcome),
                Round::Again => result = PassOutcome::Done,
                Round::Lost { read_through_us } => lost = Some((revision, read_through_us)),
            }
        }
        match lost {
            // It has seen what nobody who won is known to have seen, and has stored nothing of it: acknowledged, it would wait for a tick.
            Some(_) => Err(PassError::Transient(format!("every try to store what job {id} is due lost a race"))),
            None => Ok(result),
        }
    }

    /// Whether what caused a pass without a fact (a tick, an event of the cloud) was answered by who wrote first: by a pass that looked no earlier.
    /// Labels, and what acting has shown, are written without a look; and after a command the job is due.
    fn is_answered(&self, job: &Job, read_through_us: i64) -> bool {
        let due = job.wake_at.is_some_and(|at| at <= self.ports.clock.now());
        !due && job.observed_through_us >= read_through_us
    }

    /// Workers rely on their bell once they have heard it: those that wait to be released get to know it.
    async fn greet(&self, job: &Job) {
        let waits =
            |g: &Generation| attempt_of(job, g.number).is_some_and(|a| a.released_at.is_none() && a.stop.is_none());
        let addresses = addresses(job, waits);
        if !addresses.is_empty() {
            self.ports.bells.greet(&addresses).await;
        }
    }

    /// Rings those that were told to stop and have not all reported their end: a first ring may be lost.
    async fn ring_again(&self, job: &Job) {
        let stops =
            |g: &Generation| attempt_of(job, g.number).is_some_and(|a| a.stop.is_some() && a.fenced_at.is_none());
        self.ring(&addresses(job, stops)).await;
    }

    /// Rings the workers of a workspace that was given an order: by a commit of `api`, which does not reach them.
    async fn ring_ordered(&self, job: &Job, now: Timestamp) {
        let is_new = |order: &ExecOrder| order.attempt == job.last_attempt && now < order.told_at() + RUNG_FOR;
        if job.execs.iter().any(is_new) {
            let runs = |g: &Generation| attempt_of(job, g.number).is_some_and(|a| a.number == job.last_attempt);
            self.ring(&addresses(job, runs)).await;
        }
    }

    /// Rings the workers whose orders a commit has changed.
    async fn ring_changed(&self, before: &Job, after: &Job) {
        let told = |job: &Job, generation: u32| {
            let order = order_to_all(job, generation, &self.settings);
            (order.attempt, order.want, order.kill_at, order.cause, order.notice)
        };
        let changed = |g: &Generation| told(before, g.number) != told(after, g.number);
        // What this commit has let go of is told by its older addresses.
        let mut all = addresses(after, |g| before.generation(g.number).is_some() && changed(g));
        all.extend(addresses(before, |g| after.generation(g.number).is_none() && changed(g)));
        self.ring(&all).await;
    }

    async fn ring(&self, addresses: &[String]) {
        if !addresses.is_empty() {
            self.ports.bells.ring(addresses).await;
        }
    }

    /// No call is sent after the handler's deadline: proofs of absence rest on it.
    pub(crate) fn past_deadline(&self, began: Timestamp) -> bool {
        self.ports.clock.now() >= began + self.settings.handler_deadline
    }

    async fn round(&self, loaded: At<Arc<Job>>, cause: &str, began: Timestamp) -> Result<Round, PassError> {
        let before = loaded.value;
        let span = Span::current();
        span.record("attempt", before.last_attempt).record("generation", before.last_generation);
        if before.phase.is_terminal() && before.outbox.is_empty() {
            return Ok(Round::End(PassOutcome::NothingToDo));
        }
        let mut seen = self.observe(&before).await;
        let mut now = self.ports.clock.now();
        let mut decision = decide(&before, &seen.observation, now, &self.rules());
        // Most looks at a job that runs show that it runs; only what follows from another one may need a place.
        if !seen.places && (decision.changed || !decision.effects.is_empty()) {
            self.see_places(&before, &mut seen).await;
            now = self.ports.clock.now();
            decision = decide(&before, &seen.observation, now, &self.rules());
        }
        let faults = check::check(&before, &decision.job, &decision.effects, &decision.fenced);
        if !faults.is_empty() {
            tracing::error!(job = %before.id, faults = faults.join("; "), "a decision broke a rule; nothing was committed");
            return Err(PassError::Invariant(faults.join("; ")));
        }
        self.greet(&decision.job).await;
        self.ring_again(&before).await;
        self.ring_ordered(&before, now).await;
        if !decision.changed && decision.effects.is_empty() && still_due_later(&before, &decision, now) {
            return Ok(Round::End(PassOutcome::NothingToDo));
        }
        let revision = match self.commit(loaded.revision, &before, &decision, &seen, cause, now).await {
            Ok(revision) => revision,
            // Another job took a permit at the same moment: look again. Or somebody wrote this job: the next round looks whether the winner had
            // seen what caused this pass; else the last of four exits that come together would wait for the tick.
            Err(StoreError::Conflict(_)) => {
                return Ok(Round::Lost { read_through_us: seen.observation.read_through_us });
            }
            Err(error) => {
                if let StoreError::Refused(why) = &error {
                    tracing::error!(job = %before.id, error = why, "the document of a job is full; nothing was committed");
                }
                return Err(error.into());
            }
        };
        self.ring_changed(&before, &decision.job).await;
        let outcomes = self.act(&decision.job, &decision.effects, began).await;
        let refused = outcomes.iter().any(|o| matches!(o, EffectOutcome::CreateRefused { .. }));
        let job = self.record(revision, decision.job.clone(), &outcomes, cause).await?;
        if refused {
            return Ok(Round::Again);
        }
        self.schedule(&job, decision.wake_precise).await;
        Ok(Round::End(PassOutcome::Done))
    }

    async fn commit(
        &self,
        at: Revision,
        before: &Job,
        decision: &Decision,
        seen: &Seen,
        cause: &str,
        now: Timestamp,
    ) -> Result<Revision, StoreError> {
        let job = &decision.job;
        let mut more = Vec::new();
        for report in &decision.zone_reports {
            more.push(put(&Kind::Zone(report.placement.clone()), report, Precondition::None));
        }
        if decision.takes_permit
            && let Some(g) = job.generations.last()
        {
            more.push(Self::take_permit(job, g, &decision.given_back, seen.creates.as_ref(), seen.half));
        }
        let entry = decision.changed.then(|| HistoryEntry {
            effects: decision.effects.clone(),
            ..entry_of(before, job, decision.notes.clone(), cause, now)
        });
        log_decision(job, before, decision, cause);
        self.ports.store.commit_job(at, job, entry.as_ref(), more).await
    }

    /// Stores what no later look can show: above all the operation's name, without which nobody learns why a create brought nothing. When another
    /// pass wrote in between, the outcomes are folded into what it wrote.
    async fn record(
        &self,
        at: Revision,
        acted: Arc<Job>,
        outcomes: &[EffectOutcome],
        cause: &str,
    ) -> Result<Arc<Job>, PassError> {
        if outcomes.is_empty() {
            return Ok(acted);
        }
        let (mut at, mut job) = (at, acted.clone());
        for _ in 0..RACES_MAX {
            let now = self.ports.clock.now();
            let still: Vec<EffectOutcome> = outcomes.iter().filter(|o| o.is_of(&acted, &job)).cloned().collect();
            let (mut after, notes) = decide::record(&job, &still, now);
            if after == *job {
                return Ok(job);
            }
            after.revision += 1;
            after.changed_at = now;
            let entry = (!notes.is_empty()).then(|| entry_of(&job, &after, notes, cause, now));
            let after = Arc::new(after);
            match self.ports.store.commit_job(at, &after, entry.as_ref(), Vec::new()).await {
                Ok(_) => return Ok(after),
                Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
            let Some(current) = self.ports.store.job(&acted.id).await? else { return Ok(acted) };
            (at, job) = (current.revision, current.value);
        }
        // The create is found by its name; only the operation's own words are lost.
        tracing::warn!(job = %acted.id, "lost every race to store what acting has shown");
        Ok(job)
    }

    /// Asks for a wake-up that is nearer than the next tick is sure to be; later ones are the tick's.
    async fn schedule(&self, job: &Job, at: Option<Timestamp>) {
        let Some(at) = at else { return };
        if at > self.ports.clock.now() + Duration::from_secs(90) {
            return;
        }
        // On a grid and named by its time: passes that run side by side ask for one and the same wake-up, so doubled deliveries never multiply.
        let grid = i64::try_from(self.settings.poll_busy.as_micros() / 4).unwrap_or(250_000).max(1);
        let slot = at.as_microsecond().div_euclid(grid) + 1;
        let Ok(at) = Timestamp::from_microsecond(slot * grid) else { return };
        let key = format!("{}-{slot}", job.id);
        if let Err(error) = self.ports.wakeups.schedule(&job.id, at, &key).await {
            tracing::warn!(job = %job.id, %error, "a wake-up could not be scheduled; the tick will do it");
        }
    }
}

fn entry_of(before: &Job, after: &Job, notes: Vec<String>, cause: &str, now: Timestamp) -> HistoryEntry {
    HistoryEntry {
        revision: after.revision,
        at: now,
        cause: cause.to_owned(),
        actor: "rekindle".into(),
        from: before.phase,
        to: after.phase,
        reason: after.reason,
        message: after.message.clone(),
        notes,
        effects: Vec::new(),
        attempt: after.last_attempt,
        generation: after.last_generation,
        ended: AttemptEnd::between(before, after),
    }
}

/// True when the stored wake-up will come and is not later than wanted.
fn still_due_later(before: &Job, decision: &Decision, now: Timestamp) -> bool {
    match (before.wake_at, decision.job.wake_at) {
        (Some(stored), Some(wanted)) => stored > now && stored <= wanted,
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

fn log_decision(job: &Job, before: &Job, decision: &Decision, cause: &str) {
    if !decision.changed {
        return;
    }
    let told = match decision.notes.as_slice() {
        [] => format!("what is known of it changed; it is {}: {}", job.phase.as_str(), job.message),
        notes => notes.join("; "),
    };
    tracing::info!(
        job = %job.id,
        attempt = job.last_attempt,
        generation = job.last_generation,
        phase = job.phase.as_str(),
        from = before.phase.as_str(),
        reason = job.reason.name(),
        cause,
        effects = decision.effects.len(),
        "job {}: {told}", job.id
    );
}

/// Addresses of the workers of those generations.
fn addresses(job: &Job, of: impl Fn(&Generation) -> bool) -> Vec<String> {
    job.generations.iter().filter(|g| of(g)).flat_map(|g| g.addresses.iter().flatten().cloned()).collect()
}
