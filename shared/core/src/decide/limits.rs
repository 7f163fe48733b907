//! The limits that a job sets itself: `start`, `attempt`, `total`, `stall`, `idle` and `cost_usd`.

use std::time::Duration;

use jiff::Timestamp;

use super::Pass;
use crate::account::usd_digits;
use crate::failure::FailureKind;
use crate::job::{Attempt, Desired, Generation, Outcome, StopCause};
use crate::observation::WorkerState;
use crate::reason::Reason;
use crate::spec::Limits;

impl Pass<'_> {
    /// `start`: from READY, or in place from the beginning of the attempt, to the start of the program on all workers. A wait for
    /// the end of an earlier attempt alone, such as for a delete that keeps failing, is not held against them, nor is an outage of ours: in
    /// one they can neither say hello nor tell that they have started. After one all of the limit begins again.
    ///
    /// Judged when all that can be released is: passes may have been away for longer than the limit.
    // No cap on that: while nobody is heard another slice would cost as much and start no sooner, and once they are heard again nothing tells
    // how much of their `setup` is done. What bounds the cost is `total`, `cost_usd` and people, whose commands need no worker.
    pub(super) fn judge_start(&mut self) {
        let Some(a) = self.live_attempt().filter(|a| a.started_at.is_none()) else { return };
        let Some(g) = self.job.generation(a.generation).filter(|g| g.delete.is_none() && g.lost.is_none()) else {
            return;
        };
        let Some(since) = waits_since(&a, g) else { return };
        let silence = self.silence_limit(g);
        // A read that failed says nothing of anybody: they may all have given word.
        if self.seen.workers.is_none() {
            return;
        }
        let start = self.job.spec.limits.start;
        // Who has never given word is as lost as who fell silent: the limit may be hours, for a long `setup`.
        let hard = self.settings().silence_hard.max(silence);
        if hard < start && self.without_word(&a) > 0 && self.over_unheard(since, hard) {
            let text = format!("{} within {} min of READY", self.no_word(&a), hard.as_secs() / 60);
            return self.end_with(&a, FailureKind::Lost, &text, StopCause::Limit, Reason::StartTimeout, self.now);
        }
        if !self.over_unheard(since, start) {
            return;
        }
        // Those that were released late have the time to say that they run.
        if a.released_at.is_some_and(|released| !self.over(released, silence)) {
            return;
        }
        let (kind, text) = self.why_not_started(&a);
        let deadline = self.now + self.job.spec.limits.stop_grace;
        self.end_with(&a, kind, &text, StopCause::Limit, Reason::StartTimeout, deadline);
    }

    /// A worker that prepares itself for too long is slow by the job's own limit; one that gives no word at all is lost.
    fn why_not_started(&self, a: &Attempt) -> (FailureKind, String) {
        let text = "the program did not start within the limit `start`";
        if self.without_word(a) > 0 {
            return (FailureKind::Lost, format!("{text}: {}", self.no_word(a)));
        }
        let (reports, all) = (self.reports_of(a.number), self.workers_of(a));
        let preparing = reports.iter().filter(|r| r.state == WorkerState::Preparing);
        match preparing.clone().next() {
            Some(first) => {
                let count = preparing.count();
                let who = format!("{count} of {all} workers (the first is {})", first.key.worker);
                (FailureKind::Timeout, format!("{text}: {who} still unpacked or ran `setup`"))
            }
            None => (FailureKind::Lost, text.to_owned()),
        }
    }

    fn workers_of(&self, a: &Attempt) -> usize {
        self.job.generation(a.generation).map_or(0, |g| (g.slices * g.workers) as usize)
    }

    /// Workers that have never said anything of this attempt.
    fn without_word(&self, a: &Attempt) -> usize {
        self.workers_of(a).saturating_sub(self.reports_of(a.number).len())
    }

    fn no_word(&self, a: &Attempt) -> String {
        format!("{} of {} workers gave no word", self.without_word(a), self.workers_of(a))
    }

    pub(super) fn judge_limits(&mut self) {
        let limits = self.job.spec.limits.clone();
        let grace = self.now + limits.stop_grace;
        // Also while nothing runs: a limit that passes in a wait must not wait for the next slice.
        let passed = self.job_limit_passed(&limits);
        let live = self.live_attempt();
        if let Some((why, text)) = passed {
            if let Some(a) = &live {
                self.order_stop(a.number, StopCause::Limit, grace);
            }
            self.fail_by_limit(why, text);
            return;
        }
        let Some(a) = live else { return };
        let Some(started) = a.started_at else { return };
        self.judge_idle(&a, started, limits.idle);
        if let Some(limit) = limits.attempt
            && self.over(started, limit)
        {
            self.end_with(
                &a,
                FailureKind::Timeout,
                "the limit `attempt` passed",
                StopCause::Limit,
                Reason::AttemptTimeout,
                grace,
            );
            return;
        }
        if let Some(stall) = limits.stall
            && self.has_stalled(&a, started, stall, limits.stall_by_hand)
        {
            let text = format!("no progress for {} s", stall.as_secs());
            self.end_with(&a, FailureKind::Stalled, &text, StopCause::Limit, Reason::Stalled, grace);
            return;
        }
        if a.step.is_none() && self.job.highest_step.is_none() && self.over(started, self.settings().long_run) {
            self.job.spent.infra_failures = 0;
            self.job.spent.kinds.clear();
            self.job.spent.generations_without_progress = 0;
        }
    }

    /// No new step for so long; of a program that tells of none, and by the person's own wish, no output.
    fn has_stalled(&mut self, a: &Attempt, started: Timestamp, stall: Duration, by_hand: bool) -> bool {
        let output = self.reports_of(a.number).iter().filter_map(|r| r.output_at).max();
        let since = match (a.step_at, by_hand) {
            (Some(at), _) => Some(at),
            (None, true) => Some(output.unwrap_or(started).max(started)),
            // Progress seen in an earlier attempt shows that this program writes it.
            (None, false) => self.job.highest_step.map(|_| started),
        };
        let Some(since) = since else { return false };
        if !self.over(since, stall) || self.seen.workers.is_none() {
            return false;
        }
        // What was last heard must be as old as that without a step: a report that is only late is no stall, and one that could not
        // be read is none either.
        let heard = self.reports_of(a.number).iter().map(|r| r.heard_at).max();
        if heard.is_none_or(|heard| heard >= since + stall) {
            return true;
        }
        // The next heartbeat tells, and a pass of its own is to see it: of all that a report may bring, this one is no news.
        if let Some(g) = self.job.generation(a.generation) {
            let next = self.settings().heartbeat_told(g.chips_per_worker());
            self.wake(self.now + next);
        }
        false
    }

    /// `total` and `cost_usd`, which end the job.
    fn job_limit_passed(&mut self, limits: &Limits) -> Option<(Reason, String)> {
        if let (Some(total), Some(first)) = (limits.total, self.job.first_started_at)
            && self.over(first, total)
        {
            return Some((Reason::TotalTimeout, format!("the limit `total` of {} s passed", total.as_secs())));
        }
        let usd = limits.cost_usd?;
        let spent = self.job.usage.cost_usd_micros as f64 / 1e6;
        (spent > usd).then(|| {
            let limit = exact(usd);
            let spent = usd_above(spent, usd, limit.split_once('.').map_or(0, |(_, digits)| digits.len()));
            (Reason::CostLimit, format!("the job has cost {spent} US dollars, its limit is {limit}"))
        })
    }

    pub(super) fn fail_by_limit(&mut self, why: Reason, message: String) {
        // A cancel that was acknowledged is how the job ends, whatever passes in the same moment.
        if self.job.outcome.is_some() || self.job.desired == Desired::Cancel {
            return;
        }
        self.note(format!("the job fails: {message}"));
        self.job.outcome = Some(Outcome::Failed);
        self.job.reason = why;
        self.job.message = message;
        self.job.next = None;
        self.job.settling = None;
    }
}

/// An amount that a person wrote, with all of its digits.
fn exact(usd: f64) -> String {
    let cents = format!("{usd:.2}");
    if cents.parse() == Ok(usd) { cents } else { usd.to_string() }
}

/// An amount as people are shown it, with as many digits as its limit has, and as show that it is above the limit.
fn usd_above(spent: f64, limit: f64, digits: usize) -> String {
    let enough = (usd_digits(spent).max(digits)..6)
        .find(|digits| format!("{spent:.digits$}").parse().is_ok_and(|told: f64| told > limit));
    format!("{spent:.*}", enough.unwrap_or(6))
}

/// Since when an attempt waits for its workers: its slice is READY, and nothing else holds them back.
pub(super) fn waits_since(a: &Attempt, g: &Generation) -> Option<Timestamp> {
    let ready = g.ready_at?;
    Some(ready.max(a.created_at).max(a.held_until.unwrap_or(ready)))
}

#[cfg(test)]
mod tests {
    use super::super::cases::{decided, report, running, seen, view};
    use crate::fixture::at;
    use crate::job::Outcome;
    use crate::observation::{Look, SliceState, WorkerState};
    use crate::reason::Reason;

    #[test]
    fn a_cost_above_its_limit_is_told_with_digits_that_show_it() {
        for (micros, limit, told) in [
            (1_600, 0.001, "the job has cost 0.0016 US dollars, its limit is 0.001"),
            (15_400, 0.015, "the job has cost 0.0154 US dollars, its limit is 0.015"),
            (10_002, 0.01, "the job has cost 0.010002 US dollars, its limit is 0.01"),
            (260_000_000, 250.5, "the job has cost 260.00 US dollars, its limit is 250.50"),
        ] {
            let mut job = running();
            job.usage.cost_usd_micros = micros;
            job.usage.through = Some(at(100));
            job.spec.limits.cost_usd = Some(limit);
            let workers = (0..4).map(|n| report(n, WorkerState::Running, None)).collect();
            let ready = Look::Seen(view(&job, SliceState::Ready, true));
            let job = decided(&job, &seen(&job, &ready, Some(workers), 100), 100).job;
            assert_eq!((job.outcome, job.reason), (Some(Outcome::Failed), Reason::CostLimit));
            assert_eq!(job.message, told);
        }
    }
}
