//! Folds the workers' reports into the attempts: notices, progress, started, exits, fence.

use jiff::Timestamp;

use super::Pass;
use crate::failure::FailureKind;
use crate::ids::WorkerKey;
use crate::job::{Attempt, Generation, Job, Repeat, StopCause};
use crate::observation::{Notice, NoticeKind, WorkerReport, WorkerState};
use crate::orders::notice_is_urgent;
use crate::shared::Shared;

/// Every worker of a generation.
pub(super) fn keys(g: &Generation) -> impl Iterator<Item = WorkerKey> + '_ {
    (0..g.slices).flat_map(|slice| (0..g.workers).map(move |worker| WorkerKey { slice, worker }))
}

/// The newest checkpoint that the whole job can go on from, with the newest reports of its running attempt.
///
/// One worker may save for all of them, or each for itself. Who saves for itself resumes from its own step, so the job's
/// checkpoint is the smallest of what each has saved last. Until all that save on this line have saved in this attempt,
/// what was saved before it holds: they would go on from there.
pub fn saved_by_all<'a>(job: &Job, reports: impl IntoIterator<Item = &'a WorkerReport>) -> Option<u64> {
    let (mut told, mut savers, mut smallest) = (0_u32, 0_u32, None);
    for report in reports {
        told += 1;
        if let Some(saved) = report.checkpoint {
            savers += 1;
            smallest = Some(smallest.map_or(saved, |known: u64| known.min(saved)));
        }
    }
    // On a smaller slice there are fewer.
    smallest.filter(|_| savers >= job.savers.min(told)).or(job.saved)
}

impl Pass<'_> {
    pub(super) fn workers(&mut self) {
        let Some(reports) = &self.seen.workers else { return };
        self.job.observed_through_us = self.job.observed_through_us.max(self.seen.read_through_us);
        self.fold_notices(reports);
        self.withdraw_notices(reports);
        let numbers: Vec<u32> = self.job.attempts.iter().map(|a| a.number).collect();
        for number in numbers {
            self.fold_attempt(number, reports);
        }
    }

    fn fold_notices(&mut self, reports: &[Shared<WorkerReport>]) {
        for report in reports {
            let Some(notice) = &report.notice else { continue };
            // The hosts of a slice are told each of its own: that one is moved says nothing of another that goes.
            let goes = |r: &Shared<WorkerReport>| r.exit.is_none() && r.notice.as_ref().is_some_and(Notice::takes_away);
            let of = |r: &&Shared<WorkerReport>| (r.attempt, r.generation) == (report.attempt, report.generation);
            if !notice.takes_away() && reports.iter().filter(of).any(goes) {
                continue;
            }
            let Some(g) = self.generation_mut(report.generation) else { continue };
            if g.notice.as_ref().is_none_or(|known| notice.says_more(known)) {
                let text = format!(
                    "worker {} of generation {} has a notice of {}, deadline {:.0}",
                    report.key.worker,
                    report.generation,
                    match notice.kind {
                        NoticeKind::Preemption => "preemption",
                        NoticeKind::Maintenance => "maintenance",
                        NoticeKind::Migration => "a migration, which ends nothing",
                    },
                    notice.deadline
                );
                g.notice = Some(notice.clone());
                self.note(text);
            }
        }
    }

    /// Maintenance that was called off: the worker that told of it does not any more, and nobody else does. What was acted on already stands.
    fn withdraw_notices(&mut self, reports: &[Shared<WorkerReport>]) {
        let numbers: Vec<u32> = self.job.generations.iter().map(|g| g.number).collect();
        for number in numbers {
            let Some(g) = self.job.generation(number) else { continue };
            let Some(known) = &g.notice else { continue };
            let acted_on = self
                .job
                .attempts
                .iter()
                .any(|a| a.generation == number && a.stop.as_ref().is_some_and(|s| s.cause == StopCause::Notice));
            // A program that ended after a notice ended by it, whatever became of that.
            let acted_on = acted_on || reports.iter().any(|r| r.generation == number && r.exit.is_some());
            let newest = self.job.attempts.iter().rev().find(|a| a.generation == number).map(|a| a.number);
            let told = |r: &&Shared<WorkerReport>| r.generation == number && r.notice.is_some();
            let silent_on_it = |key: WorkerKey| {
                let of =
                    |r: &&Shared<WorkerReport>| Some(r.attempt) == newest && r.generation == number && r.key == key;
                reports.iter().find(of).is_some_and(|r| known.is_over_without(r.heard_at))
            };
            if acted_on
                || notice_is_urgent(known, self.now)
                || reports.iter().filter(told).any(|r| r.notice == g.notice)
            {
                continue;
            }
            if !keys(g).all(silent_on_it) {
                continue;
            }
            let others = reports.iter().filter(told).filter_map(|r| r.notice.clone());
            let best = others.reduce(|best, other| if other.says_more(&best) { other } else { best });
            let text = format!("the notice of generation {number}, deadline {:.0}, was called off", known.deadline);
            if let Some(g) = self.generation_mut(number) {
                g.notice = best;
            }
            self.note(text);
        }
    }

    fn fold_attempt(&mut self, number: u32, reports: &[Shared<WorkerReport>]) {
        let Some(attempt) = self.job.attempts.iter().find(|a| a.number == number) else { return };
        let mut a = attempt.clone();
        let of: Vec<&WorkerReport> = reports.iter().map(|r| &**r).filter(|r| r.attempt == number).collect();
        let expected: Vec<WorkerKey> = match self.job.generation(a.generation) {
            Some(g) => keys(g).collect(),
            None => Vec::new(),
        };
        self.fold_progress(&mut a, &of);
        if a.started_at.is_none()
            && a.released_at.is_some()
            && !expected.is_empty()
            && expected.iter().all(|k| {
                of.iter().any(|r| r.key == *k && matches!(r.state, WorkerState::Running | WorkerState::Exited))
            })
        {
            a.started_at = Some(self.now);
            self.job.first_started_at.get_or_insert(self.now);
            self.note(crate::history::begun(number, expected.len()));
        }
        // By our clock: the others' grace must not hang on the clock of one machine.
        if a.first_exit_at.is_none() && of.iter().any(|r| r.exit.is_some()) {
            a.first_exit_at = Some(self.now);
        }
        let over = a.fenced_at.is_none() && is_fenced(&a, &expected, reports);
        if let Some(slot) = self.attempt_mut(number) {
            *slot = a;
        }
        if over {
            self.fence(number);
        }
    }

    fn fold_progress(&mut self, a: &mut Attempt, of: &[&WorkerReport]) {
        let from = of.iter().filter_map(|r| r.resumed_from).min();
        let newest = of.iter().filter_map(|r| r.step).max();
        // Before they are taken over: what they add to what is known.
        self.job.counters.steps_repeated += self.job.repeats_more(a, from, newest);
        self.fold_resume(a, from);
        let best = of.iter().filter_map(|r| r.step.map(|s| (s, *r))).max_by_key(|(s, _)| *s);
        if let Some((step, report)) = best {
            if a.step.is_none_or(|known| step > known) {
                a.step = Some(step);
                // By the machine's clock, which may be off: it was not before the last look, which did not show it. Then when it was heard.
                let looked = Timestamp::from_microsecond(self.before.observed_through_us).ok();
                let is_behind = report.step_at.zip(looked).is_some_and(|(at, looked)| at < looked);
                let at = if is_behind { Some(report.heard_at) } else { report.step_at };
                let at = [at, looked, a.started_at].into_iter().flatten().max().unwrap_or(self.now);
                a.step_at = Some(at.min(self.now));
            }
            if a.line == self.job.line && self.job.step().is_none_or(|known| step > known) {
                self.job.line_step = Some(step);
                self.job.last_loss.clone_from(&report.loss);
            }
            if self.job.highest_step.is_none_or(|known| step > known) {
                self.job.highest_step = Some(step);
                if !a.progressed {
                    a.progressed = true;
                    if let Some(g) = self.generation_mut(a.generation) {
                        g.progressed = true;
                    }
                    self.reset_budgets(a.number);
                }
            }
        }
        // What an attempt saved on a line that was given up is not offered to the next one.
        if a.line == self.job.line {
            self.job.saved = saved_by_all(&self.job, of.iter().copied());
            let savers = of.iter().filter(|r| r.checkpoint.is_some()).count();
            self.job.savers = self.job.savers.max(u32::try_from(savers).unwrap_or(u32::MAX));
        }
    }

    /// Where the attempt began, by the words of its workers: of several the smallest, since the steps above it come
    /// again.
    fn fold_resume(&mut self, a: &mut Attempt, from: Option<u64>) {
        let Some(from) = from else { return };
        if a.resumed_from.is_some_and(|known| known <= from) {
            return;
        }
        // A worker that is slower to tell may have begun further back than the first.
        let first = a.resumed_from.replace(from);
        let known = first.or(self.job.highest_step).unwrap_or(0);
        let repeated = known.saturating_sub(from);
        let repeats = match repeated {
            1 => "1 step is repeated".to_owned(),
            count => format!("{count} steps are repeated"),
        };
        self.note(match first {
            None => format!("attempt {} resumed from step {from}; {repeats}", a.number),
            // What was noted before stays in the history, and was all that was known.
            Some(first) => {
                let more = if repeated == 1 { "1 more step is" } else { &format!("{repeated} more steps are") };
                format!(
                    "attempt {} resumed from step {from} on another worker, and not {first}: {more} repeated",
                    a.number
                )
            }
        });
        if let Some(saved) = a.saved_before.filter(|saved| from < *saved) {
            self.note(format!("WorkLost: attempt {} resumed from {from}, below the checkpoint {saved}", a.number));
        }
    }

    /// Only a step above the job's highest resets the budgets, once an attempt.
    ///
    /// A broken transport that comes back within its window is the slice's, however far the program came in between: its last time is kept.
    fn reset_budgets(&mut self, attempt: u32) {
        let windowed = self.job.spec.recovery.rule(FailureKind::InfraGrpc).within.is_some();
        let grpc = self.job.spent.kinds.get(&FailureKind::InfraGrpc).filter(|r| windowed && r.count > 0).cloned();
        let mut fresh = crate::job::Spent::default();
        if let Some(last) = grpc {
            fresh.kinds.insert(FailureKind::InfraGrpc, Repeat { count: 1, ..last });
        }
        if self.job.spent != fresh {
            self.note(format!("attempt {attempt} passed the highest step; budgets start again"));
        }
        self.job.spent = fresh;
    }

    /// What is waited for before another attempt may run: where the earlier one is not known to have ended.
    pub(super) fn fencing(&self, waits_for: &str) -> String {
        let open = self.job.attempts.iter().find(|a| a.fenced_at.is_none());
        let known = open.and_then(|a| Some((a, self.job.generation(a.generation)?, self.seen.workers.as_deref()?)));
        let Some((a, g, reports)) = known else { return waits_for.to_owned() };
        let name = |key: WorkerKey| match g.slices {
            1 => key.worker.to_string(),
            _ => format!("{} of slice {}", key.worker, key.slice),
        };
        let left: Vec<String> = keys(g).filter(|key| !is_over(a, *key, reports)).map(name).collect();
        match left.as_slice() {
            [] => waits_for.to_owned(),
            [one] => format!("{waits_for}: attempt {} may still run on worker {one}", a.number),
            some => format!("{waits_for}: attempt {} may still run on workers {}", a.number, some.join(", ")),
        }
    }

    /// The newest report of each worker of an attempt.
    pub(super) fn reports_of(&self, attempt: u32) -> Vec<&WorkerReport> {
        self.seen.workers.iter().flatten().map(|r| &**r).filter(|r| r.attempt == attempt).collect()
    }

    /// How long ago the quietest worker of an attempt was heard of, if each of them was heard of within the silence limit. A
    /// read that failed, or an outage of ours, says nothing of anybody. By the store's clock, as silence is.
    pub(super) fn unheard(&self, attempt: u32, g: &Generation) -> Option<std::time::Duration> {
        let reports = self.reports_of(attempt);
        let read_at = Timestamp::from_microsecond(self.seen.read_through_us).ok()?;
        let heard = reports.iter().map(|r| r.heard_at).min()?;
        let unheard = std::time::Duration::try_from(read_at.duration_since(heard)).unwrap_or_default();
        (reports.len() == (g.slices * g.workers) as usize && unheard <= self.silence_limit(g)).then_some(unheard)
    }

    /// For how long silence has counted against a worker that was last heard of then, or `None` if it does not count now.
    ///
    /// Every time in it is the store's: the clocks of those that took the reports, that ticked and that decide may differ by minutes.
    pub(super) fn silent_for(&self, heard_at: Timestamp) -> Option<std::time::Duration> {
        let live = &self.seen.liveness;
        let from = heard_at.max(live.since?);
        Some(std::time::Duration::try_from(live.through?.duration_since(from)).unwrap_or_default())
    }

    /// `over`, for a word that is awaited: only time in which it could have been heard counts, and after an outage of ours all of it begins
    /// again. `since` is by our clock and the stretch by the store's, so that both must say so.
    pub(super) fn over_unheard(&mut self, since: Timestamp, wait: std::time::Duration) -> bool {
        self.over(since, wait) && self.silent_for(since).is_some_and(|unheard| unheard >= wait)
    }

    /// Silence that counts on this slice.
    pub(super) fn silence_limit(&self, g: &Generation) -> std::time::Duration {
        self.settings().silence_for(g.chips_per_worker())
    }

    /// True while a worker may have had a notice, or have ended, and could not tell us: the reports were not read, or an outage of ours is all
    /// that hides it. A new slice is of no use before that is over, since nothing could be released on it.
    pub(super) fn is_deaf(&mut self, a: &Attempt) -> bool {
        if self.seen.workers.is_none() {
            self.wake(self.now + self.settings().poll_busy * 5);
            return true;
        }
        let Some(limit) = self.job.generation(a.generation).map(|g| self.silence_limit(g)) else { return false };
        let Ok(read_at) = Timestamp::from_microsecond(self.seen.read_through_us) else { return false };
        let is_hidden = |r: &&WorkerReport| {
            r.exit.is_none()
                && read_at > r.heard_at + limit
                && self.silent_for(r.heard_at).is_none_or(|silent| silent < limit)
        };
        a.released_at.is_some() && self.reports_of(a.number).iter().any(is_hidden)
    }

    /// The worker without an exit that has been silent longest, and for how long that counts.
    pub(super) fn most_silent(&self, a: &Attempt) -> Option<(std::time::Duration, &WorkerReport)> {
        let open = self.reports_of(a.number).into_iter().filter(|r| r.exit.is_none());
        let quietest = open.min_by_key(|r| r.heard_at)?;
        Some((self.silent_for(quietest.heard_at).unwrap_or_default(), quietest))
    }

    /// That worker, if it has been silent beyond the limit.
    pub(super) fn silent_worker(&self, a: &Attempt) -> Option<(std::time::Duration, &WorkerReport)> {
        let limit = self.silence_limit(self.job.generation(a.generation)?);
        self.most_silent(a).filter(|(silent, _)| *silent >= limit)
    }
}

/// No worker can be running this attempt: each has reported its end (or serves a later attempt, which it may only after that), or never got `run`.
fn is_fenced(a: &Attempt, expected: &[WorkerKey], reports: &[Shared<WorkerReport>]) -> bool {
    let over = |key: &WorkerKey| is_over(a, *key, reports);
    let stopping = a.stop.is_some() || a.ended.is_some();
    if a.released_at.is_none() {
        // Workers that have not said hello cannot have begun anything of it, and are told to leave when they do.
        let begun = |key: &WorkerKey| reports.iter().any(|r| r.key == *key && r.attempt == a.number);
        return stopping && expected.iter().all(|k| over(k) || !begun(k));
    }
    !expected.is_empty() && expected.iter().all(over)
}

fn is_over(a: &Attempt, key: WorkerKey, reports: &[Shared<WorkerReport>]) -> bool {
    reports.iter().any(|r| {
        r.key == key
            && r.generation == a.generation
            && (r.attempt > a.number || (r.attempt == a.number && r.exit.is_some()))
    })
}
