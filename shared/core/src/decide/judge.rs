//! Judges ends: a notice, a loss, the workers' exits, silence, stalls and limits. Charges the right budget and says what comes next.

use std::time::Duration;

use jiff::Timestamp;

use super::Pass;
use super::charge::End;
use super::look::kind_of_taking;
use crate::classify::{self, Evidence, Exit, NodeFact, NoticeFact, WorkerEvidence};
use crate::failure::FailureKind;
use crate::job::{Attempt, Desired, Ended, LastEnd, Outcome, StopCause};
use crate::observation::{ExitReport, Health, Look, Notice, NoticeKind, SliceState, WorkerReport, WorkerState};
use crate::orders::notice_is_urgent;
use crate::policy::{self, Action, Charge};
use crate::reason::Reason;

impl Pass<'_> {
    /// Judges what workers tell: notices first, since exit 0 after a notice is no success.
    pub(super) fn judge_told(&mut self) {
        if self.job.outcome.is_none() {
            self.judge_notice();
            self.judge_exits();
        }
    }

    pub(super) fn judge(&mut self) {
        self.judge_settling();
        if self.job.outcome.is_some() {
            return;
        }
        self.judge_silence();
        self.judge_generation();
        self.judge_limits();
    }

    /// The attempt that is neither judged nor only waiting to be fenced.
    pub(super) fn live_attempt(&self) -> Option<Attempt> {
        self.job.attempts.last().filter(|a| a.ended.is_none()).cloned()
    }

    /// A failure whose answer is `fail` becomes final when the settle window ends without a loss that explains it.
    fn judge_settling(&mut self) {
        let Some(settling) = self.job.settling.clone() else { return };
        if self.job.outcome.is_some() {
            self.job.settling = None;
            return;
        }
        // What somebody said before the end is final is obeyed, however late it is looked at.
        if self.job.desired != Desired::Run || self.job.restart.is_some() {
            return;
        }
        if self.now < settling.until {
            self.wake(settling.until);
            return;
        }
        // Whether its slice is there must be known: a look that failed says nothing, and nothing is lost by waiting for the next.
        let ended = self.job.last_end.as_ref().map(|end| end.generation);
        if ended.is_some_and(|g| self.job.generation(g).is_some() && self.waits_for_a_look(g, settling.until)) {
            return;
        }
        self.job.settling = None;
        self.job.outcome = Some(Outcome::Failed);
        self.job.reason = Reason::ProgramFailed;
        self.job.message.clone_from(&settling.summary);
        self.note(format!("the job fails: {}", settling.summary));
    }

    fn judge_notice(&mut self) {
        let Some(g) = self.job.generations.last() else { return };
        let (number, Some(notice)) = (g.number, g.notice.clone().filter(Notice::takes_away)) else { return };
        if !notice_is_urgent(&notice, self.now) {
            self.wake((notice.deadline - Duration::from_mins(1)).max(self.now));
            return;
        }
        let kind = match notice.kind {
            NoticeKind::Preemption => FailureKind::Preempted,
            NoticeKind::Maintenance | NoticeKind::Migration => FailureKind::Maintenance,
        };
        if self.live_attempt().is_some_and(|a| self.ended_well_before(&a, urgent_from(&notice))) {
            return;
        }
        // It is read before that time and long after it, so it says only what is past in both.
        let what =
            format!("the provider announced that it takes generation {number} away at {:.0} ({kind})", notice.deadline);
        let Some(a) = self.live_attempt().filter(|a| a.generation == number) else {
            // Judged already: an exit shortly before the notice was its first sign.
            self.take_back(number, kind, &what);
            return;
        };
        let free = self.take_back(number, kind, &what);
        // Which may be one too many: the job fails by it, and what is left of it is told to stop.
        if self.job.outcome.is_some() {
            return;
        }
        let end = End {
            kind,
            summary: what,
            verdict: None,
            stop: StopCause::Notice,
            why: Reason::PreemptionNotice,
            at_least: Some(Action::Recreate),
            free,
        };
        self.end(a.number, end, notice.deadline);
    }

    /// Every worker left with 0 by itself before its slice was to go at once: that is success, whenever the two are told.
    fn ended_well_before(&self, a: &Attempt, urgent_from: Timestamp) -> bool {
        let Some(g) = self.job.generation(a.generation) else { return false };
        let reports = self.reports_of(a.number);
        let well = |e: &ExitReport| e.evidence.exit == Exit::Code(0) && !e.ordered && e.at < urgent_from;
        reports.len() == (g.slices * g.workers) as usize && reports.iter().all(|r| r.exit.as_ref().is_some_and(well))
    }

    /// Called by `look` when a slice is lost: ends its attempt, or takes back what an exit shortly before was charged to.
    pub(super) fn end_by_loss(&mut self, generation: u32, kind: FailureKind, fact: &str) {
        if self.job.outcome.is_some() {
            return;
        }
        let what = format!("generation {generation} was lost: {fact}");
        let taken = self.take_back(generation, kind, &what);
        if self.job.outcome.is_some() {
            return;
        }
        let unmade = self.job.generation(generation).is_some_and(|g| g.ready_at.is_none());
        let end = End {
            kind,
            summary: what,
            verdict: None,
            stop: StopCause::Lost,
            why: if unmade && kind == FailureKind::Preempted {
                Reason::PreemptedWhileCreating
            } else {
                reason_of_loss(kind)
            },
            at_least: Some(Action::Recreate),
            free: false,
        };
        let now = self.now;
        if let Some(a) = self.live_attempt().filter(|a| a.generation == generation) {
            // One loss is one charge, also when the answer in place was running again by then.
            self.end(a.number, End { free: taken, ..end }, now);
        }
    }

    /// A slice that we gave up is known to be lost: its end shortly before is charged to that.
    pub(super) fn explain_by_loss(&mut self, generation: u32, kind: FailureKind, fact: &str) {
        if self.job.outcome.is_none() {
            self.take_back(generation, kind, &format!("generation {generation} was lost: {fact}"));
        }
    }

    /// An exit first and the loss of its slice shortly after is that loss: its charge moves to what explains it, and so does its answer.
    fn take_back(&mut self, generation: u32, kind: FailureKind, what: &str) -> bool {
        let Some(last) = self.job.last_end.clone() else { return false };
        // A failure that is not final yet is explained however late its slice was looked at.
        let recent = self.job.settling.is_some() || last.ended.at + self.settings().settle >= self.now;
        // A slice on which the next attempt made progress was well when the earlier one ended.
        let well = self.job.attempts.last().is_some_and(|a| a.number > last.attempt && a.progressed);
        let chargeable = matches!(last.ended.charge, Some(Charge::Infra | Charge::User));
        if last.generation != generation || !recent || well || !chargeable {
            return false;
        }
        let charged = last.ended.kind.unwrap_or(FailureKind::Unknown);
        if charged == kind {
            return true;
        }
        let (counters, spent) = (&mut self.job.counters, &mut self.job.spent);
        match last.ended.charge {
            Some(Charge::Infra) => {
                counters.infra_failures = counters.infra_failures.saturating_sub(1);
                spent.infra_failures = spent.infra_failures.saturating_sub(1);
            }
            Some(Charge::User) => {
                counters.user_failures = counters.user_failures.saturating_sub(1);
                spent.user_failures = spent.user_failures.saturating_sub(1);
            }
            Some(Charge::Preemptions) | None => {}
        }
        if let Some(repeat) = spent.kinds.get_mut(&charged) {
            repeat.count = repeat.count.saturating_sub(1);
        }
        self.note(format!("the end of attempt {} as {charged} is explained and charged to it: {what}", last.attempt));
        self.explain_last_end(kind, what, &last);
        true
    }

    /// The rest of `take_back`: the last end is of this kind now.
    fn explain_last_end(&mut self, kind: FailureKind, what: &str, last: &LastEnd) {
        let answer = policy::answer(&self.job.spec.recovery, kind, self.job.spent.kinds.get(&kind), self.now);
        let exhausted = self.spend(kind, policy::charge(kind));
        let was_settling = self.job.settling.take().is_some();
        let is_open = was_settling || self.is_answer_open(last);
        let action = if exhausted { Action::Fail } else { answer };
        if let Some(end) = self.job.last_end.as_mut() {
            end.ended.kind = Some(kind);
            end.ended.charge = Some(policy::charge(kind));
            end.ended.summary = format!("{what}; shortly before: {}", last.ended.summary);
            if is_open || exhausted {
                end.ended.action = Some(action);
            }
        }
        if exhausted || (is_open && action == Action::Fail) {
            let budget = exhausted.then(|| format!("; {}", self.used_up(policy::charge(kind))));
            self.fail(kind, format!("{what}{}", budget.unwrap_or_default()));
        } else if is_open {
            let scratch = matches!(action, Action::RecreateFromScratch | Action::RestartInPlace);
            let counted = matches!(last.ended.action, Some(Action::Recreate | Action::RecreateFromScratch));
            self.answer_anew(!scratch, reason_of_loss(kind), counted && !was_settling);
        }
    }

    /// Nothing has begun yet of what was to follow that end, and no person wants something else.
    fn is_answer_open(&self, last: &LastEnd) -> bool {
        let by_policy = |why| !matches!(why, Reason::RestartRequested | Reason::UnpauseRequested);
        self.job.next.as_ref().is_some_and(|next| by_policy(next.why))
            && self.job.attempts.last().is_some_and(|a| a.number == last.attempt)
    }

    fn judge_exits(&mut self) {
        let Some(a) = self.live_attempt() else { return };
        // With a create that took too long its attempt was given up, before anything of the program began: that agents which were up
        // early have left says nothing of it.
        let is_given_up = a.released_at.is_none() && a.stop.as_ref().is_some_and(|s| s.cause == StopCause::Limit);
        if is_given_up || self.is_ended_by_people(&a) {
            return;
        }
        if self.judge_reboot(&a) {
            return;
        }
        let reports_exit: Vec<WorkerEvidence> =
            self.reports_of(a.number).iter().filter_map(|r| r.exit.as_ref().map(|e| e.evidence.clone())).collect();
        if reports_exit.is_empty() {
            return;
        }
        let Some(g) = self.job.generation(a.generation) else { return };
        let total = (g.slices * g.workers) as usize;
        let first = a.first_exit_at.unwrap_or(self.now);
        let failed = reports_exit.iter().any(|e| e.exit != Exit::Code(0));
        if reports_exit.len() < total {
            if failed && a.stop.is_none() {
                // From when the first failure was seen: others may have ended well long before.
                // Where its agent ended it for a notice, urgent by its own clock, that is why the others are to end, too.
                let is_ordered = |r: &&WorkerReport| r.exit.as_ref().is_some_and(|exit| exit.ordered);
                let by_notice = self.reports_of(a.number).iter().any(is_ordered);
                let cause = if by_notice { StopCause::Notice } else { StopCause::PeerExit };
                self.order_stop(a.number, cause, self.now + self.settings().exit_grace_failure);
                self.note(format!("a worker of attempt {} ended; the others are told to stop", a.number));
            } else if !failed && a.stop.is_none() && self.over(first, self.settings().exit_grace_success) {
                // They may save, as at any other stop.
                self.order_stop(a.number, StopCause::Limit, self.now + self.job.spec.limits.stop_grace);
                self.note(format!("attempt {}: workers still run long after another's exit 0", a.number));
            }
            let deadline = self.job.attempts.last().and_then(|a| a.stop.as_ref()).map(|s| s.deadline);
            // With nobody left to wait for, the end is judged without the missing reports. What could not be heard is waited for.
            match deadline {
                Some(deadline) if self.over_unheard(deadline, self.settings().exits_wait) => {}
                _ => return,
            }
            // Whether the missing ones were taken away is the slice's to tell.
            if self.waits_for_a_look(a.generation, first) {
                return;
            }
        }
        self.classify_end(&a, reports_exit, total);
    }

    /// True if the look at a slice failed, or showed no state, and what follows from it waits for the next one. What has no state for long
    /// since then is there, and that is all that there is to know.
    fn waits_for_a_look(&mut self, generation: u32, since: Timestamp) -> bool {
        let look = self.job.generation(generation).and_then(|g| self.look_of(g));
        let unknown = look.is_none_or(|l| match &l.slice {
            Look::Unknown => true,
            Look::Seen(view) => {
                view.state == SliceState::Unspecified && self.now < since + self.settings().transition_grace
            }
            Look::Absent => false,
        });
        if unknown {
            self.wake(self.now + self.settings().poll_busy * 5);
        }
        unknown
    }

    /// A wish that this pass is about to carry out has ended the program already: exit 0 of a program that saves and leaves when it is told
    /// to is no success. A cancel holds even against a program that ended well by itself in the same moment.
    fn is_ended_by_people(&self, a: &Attempt) -> bool {
        let told = self.reports_of(a.number).iter().any(|r| r.exit.as_ref().is_some_and(|e| e.ordered));
        match self.job.desired {
            Desired::Cancel => true,
            Desired::Pause => told,
            Desired::Run => self.job.restart.is_some() && told,
        }
    }

    fn classify_end(&mut self, a: &Attempt, mut workers: Vec<WorkerEvidence>, total: usize) {
        workers.sort_by_key(|w| (w.slice, w.index));
        let evidence = Evidence {
            workers,
            node: self.node_fact(a.generation),
            notice: self.notice_of_end(a),
            multi_worker_expected: Some(total),
            is_end_assumed: false,
        };
        let complete = evidence.workers.len() == total;
        // The order may have come too late to end anything: all had ended by themselves, and could not tell.
        let ordered = self.reports_of(a.number).iter().any(|r| r.exit.as_ref().is_some_and(|e| e.ordered));
        let killed_after_success = a.stop.as_ref().is_some_and(|s| s.cause == StopCause::Limit)
            && (ordered || !complete)
            && evidence.workers.iter().any(|w| w.exit == Exit::Code(0));
        let silent = self.silent_worker(a).map(|(silent, report)| (report.key.worker, silent));
        let verdict = classify::classify(&evidence);
        // A program that somebody kills ends like one whose machine is taken away, until the slice tells which it was.
        let is_taken_away = verdict.outcome == classify::Outcome::Failure(FailureKind::Preempted);
        let since = a.first_exit_at.unwrap_or(self.now);
        if is_taken_away && evidence.notice.is_none() && self.waits_for_a_look(a.generation, since) {
            return;
        }
        if complete && self.holds_again(a, &verdict) {
            return;
        }
        let kind = match verdict.outcome {
            classify::Outcome::Success if complete && !killed_after_success && a.started_or_released() => {
                self.succeed(a, verdict);
                return;
            }
            classify::Outcome::Success if killed_after_success => FailureKind::Stalled,
            // The others ended well, and one is gone without a word.
            classify::Outcome::Success | classify::Outcome::Failure(FailureKind::Unknown)
                if !complete && silent.is_some() =>
            {
                FailureKind::Lost
            }
            // `setup` never ends a job well, and a missing worker is no success.
            classify::Outcome::Success => FailureKind::Unknown,
            classify::Outcome::Failure(FailureKind::Preempted) if evidence.notice.is_none() => {
                self.kind_without_notice(a.generation, evidence.node, &verdict)
            }
            classify::Outcome::Failure(kind) => kind,
        };
        let summary = match silent {
            Some((worker, silent)) if kind == FailureKind::Lost && !complete => {
                format!("worker {worker} has been silent for {} s and never told its end", silent.as_secs())
            }
            _ => verdict.summary.clone(),
        };
        let rebooted = kind == FailureKind::Lost && verdict.evidence.first().is_some_and(|e| e.signature == "rebooted");
        let end = End {
            kind,
            summary,
            verdict: Some(verdict),
            stop: StopCause::PeerExit,
            why: if rebooted { Reason::WorkerRebooted } else { Reason::WorkerExited },
            // A worker that has not reported its end may still run: only a new slice is safe. A machine that is back can go on.
            at_least: if complete { rebooted.then_some(Action::ResumeInPlace) } else { Some(Action::Recreate) },
            free: false,
        };
        self.end(a.number, end, self.now);
    }

    /// What took a slice away of which no notice spoke.
    fn kind_without_notice(&self, generation: u32, node: NodeFact, verdict: &classify::Verdict) -> FailureKind {
        let Some(g) = self.job.generation(generation) else { return FailureKind::Lost };
        let state = self.look_of(g).and_then(|look| look.slice.seen()).map(|view| &view.state);
        let preemptible = g.placement.capacity.is_preemptible();
        let is_silence = verdict.evidence.first().is_some_and(|line| line.signature == "silent");
        match node {
            NodeFact::GoneOrPreempted if !preemptible && state == Some(&SliceState::Stopped) => FailureKind::Lost,
            NodeFact::GoneOrPreempted => kind_of_taking(g),
            // Silence alone is no preemption: nobody said why. Nor is what cannot be preempted.
            NodeFact::Ready | NodeFact::Unhealthy | NodeFact::Gone | NodeFact::Unknown => {
                if preemptible && !is_silence { FailureKind::Preempted } else { FailureKind::Lost }
            }
        }
    }

    /// The notice that may have ended an attempt. Maintenance of next week has not, nor what came after a good end. An agent that
    /// ended its program without our order did so for a notice that was urgent by its own clock.
    fn notice_of_end(&self, a: &Attempt) -> Option<NoticeFact> {
        let told = a.stop.as_ref().is_some_and(|stop| stop.cause == StopCause::Notice);
        let by_itself = (a.stop.is_none() || told)
            && self.reports_of(a.number).iter().any(|r| r.exit.as_ref().is_some_and(|exit| exit.ordered));
        // One that nobody here has heard of, since it was called off before it was told, was maintenance: a preemption is not called off.
        let unheard = by_itself.then_some(NoticeFact::Maintenance);
        let Some(notice) = self.job.generation(a.generation)?.notice.as_ref() else { return unheard };
        if !(told || by_itself || notice_is_urgent(notice, self.now)) || self.ended_well_before(a, urgent_from(notice))
        {
            return None;
        }
        match notice.kind {
            NoticeKind::Preemption => Some(NoticeFact::Preemption),
            NoticeKind::Maintenance => Some(NoticeFact::Maintenance),
            NoticeKind::Migration => unheard,
        }
    }

    fn succeed(&mut self, a: &Attempt, verdict: classify::Verdict) {
        let now = self.now;
        self.job.outcome = Some(Outcome::Succeeded);
        self.job.reason = Reason::Succeeded;
        self.job.message = "all workers ended well".into();
        let ended = Ended {
            at: now,
            kind: None,
            action: None,
            charge: None,
            summary: verdict.summary.clone(),
            verdict: Some(verdict),
        };
        if let Some(slot) = self.attempt_mut(a.number) {
            slot.ended = Some(ended.clone());
        }
        self.job.last_end = Some(LastEnd { attempt: a.number, generation: a.generation, ended });
        self.note(format!("attempt {} succeeded on all workers", a.number));
    }

    /// A worker that prepares again in an attempt that had started, or that has booted since it was released, has lost its program: new
    /// attempt, same slice.
    fn judge_reboot(&mut self, a: &Attempt) -> bool {
        let prepares = |r: &WorkerReport| matches!(r.state, WorkerState::Preparing | WorkerState::Ready);
        let has_lost = |r: &WorkerReport| r.has_rebooted || (a.started_at.is_some() && prepares(r));
        let lost: Option<u32> =
            self.reports_of(a.number).into_iter().find(|r| r.exit.is_none() && has_lost(r)).map(|r| r.key.worker);
        let Some(worker) = lost else { return false };
        let end = End {
            kind: FailureKind::Lost,
            summary: format!("worker {worker} rebooted and lost its program"),
            verdict: None,
            stop: StopCause::PeerExit,
            why: Reason::WorkerRebooted,
            at_least: Some(Action::ResumeInPlace),
            free: false,
        };
        let deadline = self.now + self.settings().exit_grace_failure;
        self.end(a.number, end, deadline);
        true
    }

    fn node_fact(&self, generation: u32) -> NodeFact {
        let Some(look) = self.seen.generations.iter().find(|l| l.number == generation) else {
            return NodeFact::Unknown;
        };
        match &look.slice {
            Look::Unknown => NodeFact::Unknown,
            Look::Absent => NodeFact::Gone,
            Look::Seen(view) => match view.state {
                SliceState::Ready if view.health == Health::Healthy => NodeFact::Ready,
                SliceState::Ready => NodeFact::Unhealthy,
                SliceState::Preempted | SliceState::Terminated | SliceState::Stopped => NodeFact::GoneOrPreempted,
                SliceState::Queued
                | SliceState::Creating
                | SliceState::InTransition(_)
                | SliceState::Unspecified
                | SliceState::Failed
                | SliceState::Deleting
                | SliceState::Unrecognized(_) => NodeFact::Unknown,
            },
        }
    }

    /// Looked at with each tick, like the slice itself. Silence is a loss with a second witness (a fresh look that is not READY and healthy), or past the hard limit.
    ///
    /// Also of a worker that prepares itself: `limits.start` may be hours, for a long `setup`. Of a slice that is deleted already it is no news.
    fn judge_silence(&mut self) {
        let Some(a) = self.live_attempt().filter(|a| a.stop.is_none()) else { return };
        let Some(g) = self.job.generation(a.generation) else { return };
        if self.seen.workers.is_none() || g.delete.is_some() || g.lost.is_some() {
            return;
        }
        let limit = self.silence_limit(g);
        // By ticks alone the 404 after a delete is seen a minute later. The delete goes out so much before the limit that the next create is
        // sent about when it passes.
        let hard = self.settings().silence_hard.max(limit);
        let hard = (hard / 16 * 15).max(limit);
        let Some((silent, report)) = self.most_silent(&a) else { return };
        let worker = report.key.worker;
        if silent < limit {
            return;
        }
        let witness = match self.node_fact(a.generation) {
            NodeFact::Unhealthy | NodeFact::GoneOrPreempted | NodeFact::Gone => true,
            NodeFact::Ready | NodeFact::Unknown => false,
        } || self.slice_in_transition(a.generation);
        if !witness && silent < hard {
            return;
        }
        // It may have been taken away, and a read would tell so: one that failed does not, and without an API nothing would follow.
        if silent < hard * 2 && self.is_unread(g) {
            return self.wake(self.now + self.settings().poll_busy * 5);
        }
        let fact = format!("worker {worker} has been silent for {} s", silent.as_secs());
        let now = self.now;
        self.note(format!("generation {} is given up: {fact}", a.generation));
        let end = End {
            kind: FailureKind::Lost,
            summary: fact,
            verdict: None,
            stop: StopCause::Lost,
            why: if witness { Reason::Silent } else { Reason::SilentTooLong },
            at_least: Some(Action::Recreate),
            free: false,
        };
        self.end(a.number, end, now);
    }

    fn slice_in_transition(&self, generation: u32) -> bool {
        self.job.generation(generation).and_then(|g| self.look_of(g)).is_some_and(|l| match &l.slice {
            Look::Seen(view) => {
                matches!(view.state, SliceState::InTransition(_) | SliceState::Deleting | SliceState::Failed)
            }
            Look::Absent | Look::Unknown => false,
        })
    }

    /// READY but unhealthy, or in a transition, for too long: the slice is replaced.
    fn judge_generation(&mut self) {
        let Some(a) = self.live_attempt() else { return };
        let Some(g) = self.job.generation(a.generation) else { return };
        if g.delete.is_some() || g.lost.is_some() {
            return;
        }
        // Only what is seen to be bad now is held against it: a look that failed says nothing.
        let looked =
            self.look_of(g).and_then(|l| l.slice.seen()).is_some_and(|view| view.state != SliceState::Unspecified);
        if let Some(since) = g.unhealthy_since.filter(|_| looked) {
            let wait = if self.slice_in_transition(a.generation) {
                self.settings().transition_grace
            } else {
                self.settings().unhealthy_grace
            };
            if self.over(since, wait) && !self.is_deaf(&a) {
                self.give_up_unhealthy(&a);
            }
        }
    }

    /// An end on it shortly before is this loss, as in `end_by_loss`: nothing is released on an unhealthy slice, so the answer in place never ran.
    fn give_up_unhealthy(&mut self, a: &Attempt) {
        let what = "the node stayed unhealthy too long";
        let free = self.take_back(a.generation, FailureKind::Lost, what);
        if self.job.outcome.is_some() {
            return;
        }
        let end = End {
            kind: FailureKind::Lost,
            summary: what.to_owned(),
            verdict: None,
            stop: StopCause::Lost,
            why: Reason::Unhealthy,
            at_least: Some(Action::Recreate),
            free,
        };
        self.end(a.number, end, self.now);
    }

    pub(super) fn end_with(
        &mut self,
        a: &Attempt,
        kind: FailureKind,
        text: &str,
        stop: StopCause,
        why: Reason,
        deadline: Timestamp,
    ) {
        let at_least = (why == Reason::StartTimeout).then_some(Action::Recreate);
        let end = End { kind, summary: text.to_owned(), verdict: None, stop, why, at_least, free: false };
        self.end(a.number, end, deadline);
    }
}

/// Since when programs are ended by a notice.
fn urgent_from(notice: &Notice) -> Timestamp {
    match notice.kind {
        NoticeKind::Preemption | NoticeKind::Migration => notice.seen_at,
        NoticeKind::Maintenance => {
            notice.seen_at.max(notice.deadline.saturating_sub(Duration::from_mins(1)).unwrap_or(notice.seen_at))
        }
    }
}

fn reason_of_loss(kind: FailureKind) -> Reason {
    if kind == FailureKind::Preempted {
        Reason::Preempted
    } else if kind == FailureKind::Maintenance {
        Reason::Maintenance
    } else {
        Reason::Lost
    }
}

impl Attempt {
    /// True once `run` was released: before that, only `setup` can have ended.
    fn started_or_released(&self) -> bool {
        self.released_at.is_some()
    }
}
