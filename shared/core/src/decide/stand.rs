//! Says where the job stands: phase, reason, events, wake-up, effects.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::limits::waits_since;
use super::workers::keys;
use super::{Decision, Pass};
use crate::effect::Effect;
use crate::job::{Attempt, Counters, Create, Desired, Generation, Job, OutEvent, Outcome, Phase};
use crate::limits::{Share, Vacated};
use crate::observation::{Look, SliceState, SliceView, WorkerState};
use crate::reason::Reason;

/// In the message of a job whose machines took outputs with them.
pub const OUTPUTS_MISSING: &str = "are missing: the machine was gone before all were sent";

/// In the message of a job that runs, where a worker is silent.
pub(crate) const LAST_HEARD: &str = "was last heard of at";

/// So many events wait to be published, with so many bytes of messages. A reader of the topic sees by the sequence that some are missing;
/// the history has all of them.
// Far below what a document holds: once it is full nothing of the job can be committed any more, not even a cancel or a delete.
const OUTBOX_MAX: usize = 200;
const OUTBOX_BYTES_MAX: usize = 200_000;

/// So many workers are named of those whose outputs are missing.
const LOST_SHOWN: usize = 4;

impl Pass<'_> {
    pub(super) fn stand(mut self) -> Decision {
        if self.before.phase.is_terminal() {
            return self.finish();
        }
        let (phase, reason, mut message) = self.where_it_stands();
        let same = phase == self.job.phase;
        if let Some(lost) = self.lost_outputs().filter(|_| !same && phase.is_terminal()) {
            message = format!("{}; {lost}", message.trim_end_matches('.'));
        }
        if !same {
            self.job.phase = phase;
            self.job.phase_since = self.now;
            self.job.sequence += 1;
            let event = OutEvent {
                sequence: self.job.sequence,
                at: self.now,
                phase,
                reason,
                message: message.clone(),
                attempt: self.job.last_attempt,
                generation: self.job.last_generation,
            };
            self.note(format!("{} → {}: {message}", self.before.phase.as_str(), phase.as_str()));
            self.send_later(event);
        }
        if self.before.phase.has_slice() && !phase.has_slice() {
            self.job.queued_since = self.now;
        }
        self.job.reason = reason;
        self.job.message = message;
        self.finish()
    }

    /// Puts an event into the outbox; the oldest give way where it is full.
    fn send_later(&mut self, event: OutEvent) {
        self.job.outbox.push(event);
        let mut bytes: usize = self.job.outbox.iter().map(|event| event.message.len()).sum();
        let (mut dropped, mut left) = (0, self.job.outbox.len());
        // Never the newest: the end of a job is told, whatever became of its way there.
        while left > 1 && (left > OUTBOX_MAX || bytes > OUTBOX_BYTES_MAX) {
            bytes -= self.job.outbox[dropped].message.len();
            (dropped, left) = (dropped + 1, left - 1);
        }
        for event in self.job.outbox.drain(..dropped).collect::<Vec<_>>() {
            self.note(format!(
                "event {} is dropped unpublished: {left} newer ones wait; look at the topic of events and the right to publish there",
                event.sequence
            ));
        }
    }

    /// Whose outputs were being collected when their machine went: nobody has them now.
    fn lost_outputs(&self) -> Option<String> {
        if !matches!(self.job.outcome, Some(Outcome::Succeeded | Outcome::Failed)) || self.job.spec.outputs.is_empty() {
            return None;
        }
        let has_slices = self.job.spec.tpu.slices > 1;
        let reports = self.reports_of(self.job.last_attempt);
        let names: Vec<String> = reports.iter().filter(|r| r.is_collecting).map(|r| r.key.label(has_slices)).collect();
        let shown = names.get(..LOST_SHOWN.min(names.len()))?.join(", ");
        let more = match names.len().saturating_sub(LOST_SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let whose = format!("{shown}{more}");
        (!names.is_empty()).then(|| format!("outputs of {whose} {OUTPUTS_MISSING}"))
    }

    fn where_it_stands(&self) -> (Phase, Reason, String) {
        let job = &self.job;
        let all_gone = job.generations.is_empty();
        if let Some(outcome) = job.outcome {
            if all_gone {
                return (outcome.phase(), job.reason, job.message.clone());
            }
            return (Phase::Stopping, job.reason, job.message.clone());
        }
        if job.desired == Desired::Pause {
            let phase = if all_gone { Phase::Paused } else { Phase::Stopping };
            return (phase, job.reason, job.message.clone());
        }
        let ran = job.first_started_at.is_some();
        let waiting_phase = if ran || job.counters.preemptions > 0 { Phase::Recovering } else { Phase::Pending };
        if let Some(settling) = &job.settling {
            return (
                Phase::Recovering,
                Reason::Settling,
                format!(
                    "{}; waits up to {} s to see whether the slice was lost: if so the job goes on, else it fails",
                    settling.summary.trim_end_matches('.'),
                    self.settings().settle.as_secs().max(1)
                ),
            );
        }
        let Some(g) = self.usable_generation() else {
            let (reason, message) = self.why_waiting();
            return (waiting_phase, reason, message);
        };
        if job.next.as_ref().is_some_and(|n| n.new_generation) {
            let (reason, message) = self.why_waiting();
            return (waiting_phase, reason, message);
        }
        if g.ready_at.is_none() {
            let (reason, message) = self.why_provisioning(g);
            return (Phase::Provisioning, reason, message);
        }
        let Some(a) = job.attempts.last() else {
            return (Phase::Starting, Reason::WorkersPreparing, "workers prepare".into());
        };
        if a.ended.is_some() || a.stop.is_some() || job.next.is_some() {
            let (reason, message) = self.why_waiting();
            return (Phase::Recovering, reason, message);
        }
        let silent = self.unheard_worker(a, g).map_or_else(String::new, |told| format!("; {told}"));
        if a.started_at.is_some() {
            // Not the step: it moves between two looks, and lists show it beside this.
            return (
                Phase::Running,
                Reason::Running,
                format!("attempt {} runs on generation {}{silent}", a.number, g.number),
            );
        }
        if a.released_at.is_some() {
            let message = format!("attempt {} is being started on its workers{silent}", a.number);
            return (Phase::Starting, Reason::Released, message);
        }
        let prepare = || (Reason::WorkersPreparing, "the TPU is READY; workers prepare".into());
        let (reason, message) = self.waiting.clone().unwrap_or_else(prepare);
        (Phase::Starting, reason, format!("{message}{silent}"))
    }

    /// That a worker is silent beyond the limit, since when, and until when that is borne. The same at each look.
    fn unheard_worker(&self, a: &Attempt, g: &Generation) -> Option<String> {
        let Some((silent, report)) = self.silent_worker(a) else { return self.wordless_worker(a, g) };
        // An outage of ours since then does not count.
        let counts_from = self.seen.liveness.through? - silent;
        let until = counts_from + self.settings().silence_hard.max(self.silence_limit(g));
        let (worker, heard) = (report.key.worker, report.heard_at);
        Some(format!(
            "worker {worker} {LAST_HEARD} {heard:.0}; if it stays silent, its slice is given up by {until:.0}"
        ))
    }

    /// That a worker has never given word for longer than silence is borne, and until when that is borne.
    fn wordless_worker(&self, a: &Attempt, g: &Generation) -> Option<String> {
        let limit = self.silence_limit(g);
        let since = waits_since(a, g)?;
        let silent = self.silent_for(since).filter(|silent| *silent >= limit && self.seen.workers.is_some())?;
        let reports = self.reports_of(a.number);
        let key = keys(g).find(|key| !reports.iter().any(|report| report.key == *key))?;
        let hard = self.settings().silence_hard.max(limit).min(self.job.spec.limits.start);
        let until = self.seen.liveness.through? - silent + hard;
        Some(format!("worker {} gave no word yet; if none comes, its slice is given up by {until:.0}", key.worker))
    }

    fn why_waiting(&self) -> (Reason, String) {
        if let Some(waiting) = &self.waiting {
            return waiting.clone();
        }
        if let Some(next) = &self.job.next {
            let what = self.job.last_end.as_ref().map_or_else(String::new, |e| e.ended.summary.clone());
            return (next.why, what);
        }
        if let Some(end) = self.job.attempts.last().and_then(|a| a.stop.as_ref().map(|_| a)) {
            return (Reason::WorkerExited, format!("attempt {} is being ended", end.number));
        }
        (self.job.reason, self.job.message.clone())
    }

    fn why_provisioning(&self, g: &Generation) -> (Reason, String) {
        let view = self.look_of(g);
        let place = format!("{} in {} ({})", g.placement.accelerator, g.placement.zone, g.placement.capacity.as_str());
        match view.map(|l| &l.slice) {
            Some(Look::Seen(v)) if v.state == SliceState::Queued => {
                (Reason::InProviderQueue, format!("{place} waits in the provider's queue"))
            }
            Some(Look::Unknown) if g.create != Create::Intended => {
                (Reason::ApiUnknown, format!("{place} was asked for; the TPU API does not answer now"))
            }
            _ if g.create == Create::Intended && self.waiting.is_some() => {
                self.waiting.clone().unwrap_or((Reason::CreateRequested, format!("{place} is asked for")))
            }
            _ if g.create == Create::Intended => (Reason::CreateRequested, format!("{place} is asked for")),
            _ => (Reason::Creating, format!("{place} is being made")),
        }
    }

    fn finish(mut self) -> Decision {
        self.generation_wakes();
        let effects = self.effects();
        let (wake_at, wake_precise) = self.wake_times();
        self.job.wake_at = wake_at;
        let given_back = self.remember_what_was_given_back();
        let changed = is_significant(self.before, &self.job);
        if changed {
            self.job.revision += 1;
            self.job.changed_at = self.now;
        } else {
            self.job.usage = self.before.usage.clone();
        }
        Decision {
            job: Arc::new(self.job),
            effects,
            notes: self.notes,
            zone_reports: self.zone_reports,
            takes_permit: self.takes_permit,
            given_back,
            fenced: self.fenced,
            wake_precise,
            changed,
        }
    }

    /// Until the next count; a create takes it off the count with its own commit.
    fn remember_what_was_given_back(&mut self) -> Vec<Share> {
        let shares = self.given_back();
        if self.takes_permit {
            self.job.vacated = None;
            return shares;
        }
        let is_new = self.before.vacated.as_ref().is_none_or(|v| v.shares != shares);
        if !shares.is_empty() && is_new {
            self.job.vacated = Some(Vacated { survey: self.seen.used.survey, shares });
        }
        Vec::new()
    }

    fn effects(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        // Deletes first: they free what the creates need.
        for index in 0..self.job.generations.len() {
            let g = &self.job.generations[index];
            let (generation, due) = (g.number, self.delete_due_at(g));
            match due {
                Some(at) if self.now >= at => effects.push(Effect::DeleteGeneration { generation }),
                Some(at) => self.wake(at),
                None => {}
            }
        }
        for index in 0..self.job.generations.len() {
            if self.create_is_due(&self.job.generations[index]) {
                let g = &mut self.job.generations[index];
                g.asked_at = Some(self.now);
                effects.push(Effect::CreateGeneration { generation: g.number });
            }
        }
        if !self.job.outbox.is_empty() {
            effects.push(Effect::PublishEvents);
        }
        effects
    }

    /// Sent once, and again when no answer was recorded. A repeat is refused by name, so it makes nothing twice.
    fn create_is_due(&self, g: &Generation) -> bool {
        let over = self.job.outcome.is_some() || self.job.desired != Desired::Run;
        if over || g.create != Create::Intended || g.delete.is_some() || g.seen_at.is_some() {
            return false;
        }
        match g.asked_at {
            None => true,
            Some(at) => at == self.now || self.asks_again,
        }
    }

    /// When its delete is sent: once, and again when it shows no effect. `None`: there is none to be sent.
    fn delete_due_at(&self, g: &Generation) -> Option<Timestamp> {
        let delete = g.delete.as_ref().filter(|_| !g.is_somebody_elses())?;
        let look = self.look_of(g);
        // Nothing is there to delete; whether something may still come is `look`'s question. What may be there in spite of a 404 is deleted by name.
        let is_doubted = g.absent_since.is_some() && delete.sent_at.is_none() && self.saves_until(g).is_none();
        if look.is_some_and(|l| l.slice == Look::Absent) && !is_doubted {
            return None;
        }
        let Some(sent) = delete.sent_at else { return Some(self.now) };
        let deleting = look.is_some_and(|l| l.slice.seen().is_some_and(|v| v.state == SliceState::Deleting));
        let wait = if deleting { self.settings().delete_retry * 10 } else { self.settings().delete_retry };
        // A refused delete is tried again soon at first.
        let wait = if delete.last_error.is_some() {
            (self.settings().poll_busy * 2_u32.saturating_pow(delete.tries.min(10))).min(wait)
        } else {
            wait
        };
        Some(sent + wait)
    }

    /// Looks at what is on its way as often as it is worth.
    fn generation_wakes(&mut self) {
        // Its own delete may be what makes room.
        let waits_for_room = |r: Reason| matches!(r, Reason::OwnDelete | Reason::MaxChips | Reason::MaxUsd);
        let hand_over = self.waiting.as_ref().is_some_and(|(r, _)| waits_for_room(*r));
        for index in 0..self.job.generations.len() {
            let g = &self.job.generations[index];
            if g.delete.is_none() && g.ready_at.is_some() {
                // While all is well the tick's list shows what becomes of it, and workers tell what becomes of them: silence alone is told by
                // nobody. Everything else about a READY slice is looked at with each tick.
                match self.look_again_at(g) {
                    Some(at) => self.wake(at),
                    None => self.lazy = true,
                }
                continue;
            }
            let after = match (&g.delete, g.ready_at) {
                // The next create waits for this 404.
                (Some(d), _) if hand_over => self.look_for_404_after(d.intended_at),
                (Some(d), _) => self.poll_after(d.intended_at),
                // Its machines are up before the API says so: the start waits for its word alone.
                (None, None) if self.seen.workers.iter().flatten().any(|r| r.generation == g.number) => {
                    Some(self.settings().poll_busy * 5)
                }
                (None, None) => self.poll_after(g.intended_at),
                (None, Some(_)) => continue,
            };
            // As long as the tick's list shows it on its way, it has nothing to tell.
            let is_on_its_way = |view: &SliceView| match g.delete {
                Some(_) => view.state == SliceState::Deleting,
                None => matches!(view.state, SliceState::Creating | SliceState::Queued),
            };
            if !self.look_of(g).and_then(|look| look.slice.seen()).is_some_and(is_on_its_way) {
                self.lazy = true;
            }
            if let Some(after) = after {
                self.wake(self.now + after.max(Duration::from_millis(20)));
            }
        }
    }

    /// Long before the silence of a worker would be the end of this generation, if it runs and nothing is wrong with it; else `None`.
    fn look_again_at(&self, g: &Generation) -> Option<Timestamp> {
        let job = &self.job;
        let a = job.attempts.last().filter(|a| a.generation == g.number)?;
        let runs = a.started_at.is_some() && a.stop.is_none() && a.ended.is_none() && a.first_exit_at.is_none();
        let alone = job.generations.len() == 1 && job.attempts.len() == 1;
        let wanted = job.next.is_none() && job.settling.is_none() && job.restart.is_none() && job.outcome.is_none();
        // Money is counted by passes.
        let counted = job.spec.limits.cost_usd.is_some();
        let well = g.notice.is_none() && g.lost.is_none() && g.unhealthy_since.is_none();
        let ready = self.look_of(g)?.slice.seen().is_some_and(SliceView::is_well);
        if !(runs && alone && wanted && well && ready) || counted || job.desired != Desired::Run {
            return None;
        }
        let reports = self.reports_of(a.number);
        let live = reports.iter().all(|r| r.state == WorkerState::Running && r.exit.is_none() && r.notice.is_none());
        let unheard = self.unheard(a.number, g).filter(|_| live)?;
        Some(self.now + (self.settings().silence_hard / 2).max(self.silence_limit(g)) - unheard)
    }

    /// When the next pass is due, and the same if it is worth a wake-up of its own: what the next tick is soon enough for is not.
    fn wake_times(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let unpublished = || (!self.job.outbox.is_empty()).then(|| self.now + self.settings().poll_busy);
        if self.job.phase.is_terminal() || self.job.phase == Phase::Paused {
            return (unpublished(), None);
        }
        let precise = self.wakes.iter().min().copied().map(|at| at.max(self.now));
        // Due at the next tick whenever that comes.
        let lazy = self.lazy.then_some(self.now + self.settings().poll_busy * 2);
        // A job that is neither ended nor paused is looked at now and then whatever happens.
        let ceiling = self.now + self.settings().heartbeat * 15;
        let at = [precise, lazy, Some(ceiling)].into_iter().flatten().min();
        (at, precise)
    }
}

/// Whether anything but the clockwork has changed: what makes a history entry due.
// Each field by name, so that a new one is not forgotten.
fn is_significant(before: &Job, after: &Job) -> bool {
    let Job {
        wake_at: _,
        usage: _,
        revision: _,
        observed_through_us: _,
        outbox: _,
        // Steps move with every look; they are progress, not decisions.
        highest_step: _,
        line_step: _,
        saved: _,
        savers: _,
        last_loss: _,
        id,
        spec,
        spec_hash,
        run_id,
        created_at,
        submitted_by,
        desired,
        restart,
        phase,
        phase_since,
        outcome,
        reason,
        message,
        last_generation,
        last_attempt,
        line,
        generations,
        attempts,
        next,
        settling,
        last_end,
        counters,
        spent,
        first_started_at,
        queued_since,
        barred,
        unqueueable,
        vacated,
        sequence,
        changed_at,
        execs: _,
        last_exec: _,
    } = before;
    let same_state = *phase == after.phase
        && *reason == after.reason
        && *message == after.message
        && *desired == after.desired
        && *outcome == after.outcome
        && *restart == after.restart
        && *next == after.next
        && *settling == after.settling;
    let same_resources = all_alike(generations, &after.generations, is_like_generation)
        && all_alike(attempts, &after.attempts, is_like_attempt);
    let same_counts = (*last_generation, *last_attempt, *line, *sequence)
        == (after.last_generation, after.last_attempt, after.line, after.sequence)
        && is_like_count(counters, &after.counters)
        && *spent == after.spent
        && (barred, unqueueable) == (&after.barred, &after.unqueueable)
        && *vacated == after.vacated
        && *last_end == after.last_end;
    let times = (*created_at, *phase_since, *first_started_at, *queued_since, *changed_at);
    let same_times =
        times == (after.created_at, after.phase_since, after.first_started_at, after.queued_since, after.changed_at);
    let same_job = (id, spec, spec_hash) == (&after.id, &after.spec, &after.spec_hash)
        && (run_id, submitted_by) == (&after.run_id, &after.submitted_by);
    !(same_state && same_resources && same_counts && same_times && same_job)
}

fn all_alike<T>(known: &[T], now: &[T], is_like: impl Fn(&T, &T) -> bool) -> bool {
    known.len() == now.len() && known.iter().zip(now).all(|(known, now)| is_like(known, now))
}

/// The same but for what goes on with each step: of the attempt that makes them it is known again from the workers.
fn is_like_count(known: &Counters, now: &Counters) -> bool {
    *known == Counters { steps_repeated: known.steps_repeated, ..now.clone() }
}

/// The same but for the clockwork.
fn is_like_generation(known: &Generation, g: &Generation) -> bool {
    let clock = |g: &Generation| (g.asked_at, g.queued_until);
    if clock(known) == clock(g) {
        return known == g;
    }
    let (asked_at, queued_until) = clock(known);
    Generation { asked_at, queued_until, ..g.clone() } == *known
}

/// The same but for progress and the clockwork.
fn is_like_attempt(known: &Attempt, a: &Attempt) -> bool {
    let moves = |a: &Attempt| (a.held_until, a.step, a.step_at);
    if moves(known) == moves(a) {
        return known == a;
    }
    let (held_until, step, step_at) = moves(known);
    Attempt { held_until, step, step_at, ..a.clone() } == *known
}
