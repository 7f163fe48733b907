//! Charges an end to its budget and says what comes next: the policy's answer, back-off, the pause without progress, the settle window.

use std::time::Duration;

use jiff::Timestamp;

use super::Pass;
use crate::classify;
use crate::failure::FailureKind;
use crate::job::{Desired, Ended, LastEnd, Next, Repeat, Settling, Stop, StopCause};
use crate::policy::{self, Action, Charge};
use crate::reason::Reason;

/// One end, before the policy has spoken.
pub(super) struct End {
    pub(super) kind: FailureKind,
    pub(super) summary: String,
    pub(super) verdict: Option<classify::Verdict>,
    pub(super) stop: StopCause,
    pub(super) why: Reason,
    /// An action that the facts force, whatever the policy says about it being in place.
    pub(super) at_least: Option<Action>,
    /// True if this loss was charged already, in place of an exit shortly before it.
    pub(super) free: bool,
}

impl Pass<'_> {
    /// The first order says why. A person's later one may end it sooner (a cancel during the long grace of a pause), never later, and not where
    /// nobody could be told.
    pub(super) fn order_stop(&mut self, attempt: u32, cause: StopCause, deadline: Timestamp) {
        let now = self.now;
        let Some(a) = self.attempt_mut(attempt) else { return };
        match &mut a.stop {
            Some(stop)
                if !stop.put_off && matches!(cause, StopCause::Cancel | StopCause::Pause | StopCause::Restart) =>
            {
                stop.deadline = stop.deadline.min(deadline.max(now));
            }
            Some(_) => {}
            none => *none = Some(Stop { cause, at: now, deadline: deadline.max(now), put_off: false }),
        }
    }

    /// Charges an end and says what comes next.
    pub(super) fn end(&mut self, attempt: u32, end: End, kill_at: Timestamp) {
        let (now, kind) = (self.now, end.kind);
        let Some(generation) = self.job.attempts.iter().find(|a| a.number == attempt).map(|a| a.generation) else {
            return;
        };
        let charge = policy::charge(kind);
        let repeat = self.job.spent.kinds.get(&kind).cloned();
        let answer = policy::answer(&self.job.spec.recovery, kind, repeat.as_ref(), now);
        let exhausted = !end.free && self.spend(kind, charge);
        let action = match (answer, end.at_least) {
            _ if exhausted => Action::Fail,
            (Action::ResumeInPlace, Some(Action::Recreate)) => Action::Recreate,
            (Action::RestartInPlace, Some(Action::Recreate)) => Action::RecreateFromScratch,
            (Action::Recreate, Some(Action::ResumeInPlace)) => Action::ResumeInPlace,
            (answer, _) => answer,
        };
        let ended = Ended {
            at: now,
            kind: Some(kind),
            action: Some(action),
            charge: Some(charge),
            summary: end.summary.clone(),
            verdict: end.verdict,
        };
        self.order_stop(attempt, end.stop, kill_at);
        self.count_idle(attempt);
        self.count_run(attempt, generation);
        if let Some(a) = self.attempt_mut(attempt) {
            a.ended = Some(ended.clone());
        }
        self.job.last_end = Some(LastEnd { attempt, generation, ended });
        let summary = end.summary.trim_end_matches('.');
        self.note(format!("attempt {attempt} ended ({kind}): {summary}; {}", describe(action)));
        match action {
            Action::Fail => {
                let why = if exhausted { format!("{summary}; {}", self.used_up(charge)) } else { end.summary };
                self.fail(kind, why);
            }
            Action::ResumeInPlace => {
                // The program's end was judged; a reboot took it.
                let why = if end.why == Reason::WorkerRebooted { end.why } else { Reason::ResumeInPlace };
                self.set_next(false, true, why, self.in_place_wait(kind));
            }
            Action::RestartInPlace => {
                // What is thrown away does not come back: a loss that explains the end is waited for, as before a job fails.
                let wait = self.in_place_wait(kind).max(self.settings().settle);
                self.set_next(false, false, Reason::RestartInPlace, wait);
            }
            Action::Recreate => self.set_next(true, true, end.why, Duration::ZERO),
            // Likewise, unless it is known: the slice stays for as long, since one that we delete shows no loss any more.
            Action::RecreateFromScratch => {
                let is_known = matches!(end.stop, StopCause::Notice | StopCause::Lost)
                    || self.job.generation(generation).is_none_or(|g| g.lost.is_some());
                let wait = if is_known { Duration::ZERO } else { self.settings().settle };
                self.set_next(true, false, end.why, wait);
            }
        }
    }

    /// How long the program of an attempt that ends now has run counts for its generation.
    fn count_run(&mut self, attempt: u32, generation: u32) {
        let now = self.now;
        let started = self.job.attempts.iter().find(|a| a.number == attempt).and_then(|a| a.started_at);
        if let Some((started, g)) = started.zip(self.generation_mut(generation)) {
            g.ran += Duration::try_from(now.duration_since(started)).unwrap_or_default();
        }
    }

    /// Final at once for what the cloud cannot explain any more; else after the settle window. A loss that nobody explained may be a preemption
    /// that the API does not show yet.
    pub(super) fn fail(&mut self, kind: FailureKind, summary: String) {
        let explained = policy::charge(kind) == Charge::Preemptions || kind == FailureKind::Timeout;
        let attempt = self.job.attempts.last().map_or(self.job.last_attempt, |a| a.number);
        if explained {
            self.fail_by_limit(Reason::ProgramFailed, summary);
            return;
        }
        let until = self.now + self.settings().settle;
        self.wake(until);
        self.job.settling = Some(Settling { attempt, until, kind, summary });
    }

    /// Begins a new checkpoint line: those of earlier lines are never offered again.
    pub(super) fn new_line(&mut self) {
        self.job.begin_line();
    }

    /// Charges the budget; true when that was one too many.
    pub(super) fn spend(&mut self, kind: FailureKind, charge: Charge) -> bool {
        let now = self.now;
        let repeat = self.job.spent.kinds.entry(kind).or_insert(Repeat { count: 0, last_at: now });
        repeat.count += 1;
        repeat.last_at = now;
        let (counters, spent, budgets) = (&mut self.job.counters, &mut self.job.spent, &self.job.spec.budgets);
        match charge {
            Charge::Preemptions => {
                counters.preemptions += 1;
                budgets.preemptions.is_some_and(|max| counters.preemptions > max)
            }
            Charge::Infra => {
                counters.infra_failures += 1;
                spent.infra_failures += 1;
                budgets.infra_failures.is_some_and(|max| spent.infra_failures > max)
            }
            Charge::User => {
                counters.user_failures += 1;
                spent.user_failures += 1;
                policy::budget_decides(&self.job.spec.recovery, kind)
                    && budgets.user_failures.is_some_and(|max| spent.user_failures > max)
            }
        }
    }

    /// Why an end is not answered whose budget is exceeded.
    pub(super) fn used_up(&self, charge: Charge) -> String {
        let budgets = &self.job.spec.budgets;
        let (name, most) = match charge {
            Charge::Preemptions => ("preemptions", budgets.preemptions),
            Charge::Infra => ("infra_failures", budgets.infra_failures),
            Charge::User => ("user_failures", budgets.user_failures),
        };
        match most {
            Some(0) => format!("it is not tried again: the job's budgets.{name} is 0"),
            Some(most) => format!("the budget {name} ({most}) is used up"),
            None => "the budget is used up".to_owned(),
        }
    }

    /// Object stores and hubs get a growing pause before the next try.
    fn in_place_wait(&self, kind: FailureKind) -> Duration {
        if kind != FailureKind::StorageNetwork {
            return Duration::ZERO;
        }
        let count = self.job.spent.kinds.get(&kind).map_or(1, |r| r.count);
        self.back_off(count)
    }

    /// `backoff_first`, doubled each time, up to `backoff_max`, with a spread of a quarter that depends on job and attempt alone.
    pub(super) fn back_off(&self, count: u32) -> Duration {
        let s = self.settings();
        let base =
            s.backoff_first.saturating_mul(2_u32.saturating_pow(count.saturating_sub(1).min(16))).min(s.backoff_max);
        let seed = self
            .job
            .id
            .as_str()
            .bytes()
            .fold(self.job.last_attempt, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
        base.mul_f64(0.75 + f64::from(seed % 1000) / 2000.0)
    }

    /// What follows an end: from its checkpoint line, or without `resume` from scratch on a new line, which begins with the next attempt. Until
    /// then a loss of the slice may explain the end, and be answered otherwise.
    pub(super) fn set_next(&mut self, new_generation: bool, resume: bool, why: Reason, wait: Duration) {
        let from_scratch = !resume;
        let resume = resume && self.job.may_have_run();
        let mut not_before = self.now + wait;
        if new_generation {
            let barren = self.count_barren_generation();
            if barren > 1 {
                not_before = not_before.max(self.now + self.back_off(barren - 1));
            }
        }
        self.job.next = Some(Next { not_before, resume, from_scratch, new_generation, why });
    }

    /// Another answer to an end whose slice is lost. With `counted` its generation was counted with the first one.
    pub(super) fn answer_anew(&mut self, resume: bool, why: Reason, counted: bool) {
        let Some(next) = self.job.next.clone().filter(|_| counted) else {
            self.set_next(true, resume, why, Duration::ZERO);
            return;
        };
        let from_scratch = !resume;
        let resume = resume && self.job.may_have_run();
        // What was waited for is known; that slices bring no step is a reason of its own.
        let is_barren = self.job.spent.generations_without_progress > 1;
        let not_before = if is_barren { next.not_before } else { next.not_before.min(self.now) };
        self.job.next = Some(Next { not_before, resume, from_scratch, why, ..next });
    }

    /// Counts generations in a row without progress; too many pause the job.
    fn count_barren_generation(&mut self) -> u32 {
        let long = self.settings().short_run;
        let progressed = self.job.attempts.last().is_some_and(|a| {
            // Whatever became of it since, in later attempts on the same slice.
            let g = self.job.generation(a.generation);
            let ran = g.map_or(Duration::ZERO, |g| g.ran);
            // Without progress lines, half an hour of running is progress enough.
            a.progressed || g.is_some_and(|g| g.progressed) || (self.job.highest_step.is_none() && ran >= long)
        });
        if progressed {
            self.job.spent.generations_without_progress = 0;
            return 0;
        }
        self.job.spent.generations_without_progress += 1;
        let barren = self.job.spent.generations_without_progress;
        // What a person wants instead was accepted, and is carried out; and a job that is to fail does not pause.
        let goes_on = self.job.desired == Desired::Run && self.job.settling.is_none() && self.job.restart.is_none();
        if goes_on && self.job.spec.budgets.no_progress.is_some_and(|max| barren >= max) {
            self.job.desired = Desired::Pause;
            self.job.reason = Reason::NoNetProgress;
            self.job.message =
                format!("{barren} generations in a row brought no step above the highest; look at it, then unpause");
            let message = self.job.message.clone();
            self.note(format!("the job pauses: {message}"));
        }
        barren
    }
}

fn describe(action: Action) -> &'static str {
    match action {
        Action::ResumeInPlace => "it resumes on the same slice",
        Action::RestartInPlace => "it restarts on the same slice from scratch",
        Action::Recreate => "a new slice is asked for, and it resumes there",
        Action::RecreateFromScratch => "a new slice is asked for, and it begins from scratch there",
        Action::Fail => "the policy says fail",
    }
}
