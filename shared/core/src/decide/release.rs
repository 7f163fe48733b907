//! Starts: the next attempt in place, and the release of `run` to all workers together.

use super::Pass;
use super::workers::keys;
use crate::failure::FailureKind;
use crate::job::Attempt;
use crate::observation::WorkerState;
use crate::reason::Reason;

impl Pass<'_> {
    pub(super) fn release(&mut self) {
        if self.job.outcome.is_some() || self.job.desired != crate::job::Desired::Run {
            return;
        }
        self.next_in_place();
        self.release_run();
    }

    /// A new attempt on the same slice, once the earlier one is fenced.
    fn next_in_place(&mut self) {
        let Some(next) = self.job.next.clone().filter(|n| !n.new_generation) else { return };
        let Some(g) = self.usable_generation() else { return };
        if g.ready_at.is_none() {
            return;
        }
        let number = g.number;
        if self.now < next.not_before {
            self.wake(next.not_before);
            let failures = self.job.last_end.as_ref().and_then(|end| {
                let kind = end.ended.kind?;
                Some((kind, self.job.spent.kinds.get(&kind)?.count))
            });
            let why = match failures {
                Some((kind, 1)) => format!(", after {kind}"),
                Some((kind, count)) => format!(", after {kind} {count} times without progress in between"),
                None => String::new(),
            };
            let how = if next.from_scratch { "begins from scratch" } else { "resumes" };
            let text = format!("waits until {:.0} before it {how} in place{why}", next.not_before);
            self.waiting = Some((Reason::BackOff, text));
            return;
        }
        if self.job.attempts.iter().any(|a| a.fenced_at.is_none()) {
            self.waiting =
                Some((Reason::Fencing, self.fencing("waits until every worker has ended the earlier attempt")));
            return;
        }
        self.job.next = None;
        if next.from_scratch {
            self.new_line();
        }
        self.new_attempt(number, next.resume);
        self.note(format!("attempt {} is prepared on generation {number}", self.job.last_attempt));
    }

    /// Makes the next attempt on a generation.
    pub(super) fn new_attempt(&mut self, generation: u32, resume: bool) {
        self.job.last_attempt += 1;
        // Before its program ever ran there is nothing to go on from, whatever became of a create.
        let resume = resume && self.job.may_have_run();
        if resume {
            self.job.counters.resumes += 1;
        }
        // What another job has left is no resume of this one's, and is offered until something is begun from scratch.
        let resume = resume || self.job.continues_another();
        let idle = self.idle_so_far();
        // Ended and fenced attempts are history.
        self.job.attempts.retain(|a| a.fenced_at.is_none());
        self.job.attempts.push(Attempt {
            number: self.job.last_attempt,
            generation,
            resume,
            stage: self.job.counters.resumes,
            line: self.job.line,
            is_clean: self.begins_clean(generation),
            created_at: self.now,
            held_until: None,
            released_at: None,
            started_at: None,
            stop: None,
            first_exit_at: None,
            ended: None,
            fenced_at: None,
            gone_since: None,
            progressed: false,
            step: None,
            step_at: None,
            saved_before: None,
            resumed_from: None,
            idle,
        });
    }

    /// True if the next attempt on this generation must not find what the last one left in its working directory.
    fn begins_clean(&self, generation: u32) -> bool {
        // Marks of an older end say nothing: a person's restart comes after an end of its own.
        let ended = self.job.last_end.as_ref().filter(|end| end.generation == generation);
        let newest = ended.filter(|end| end.attempt + 1 == self.job.last_attempt);
        newest.and_then(|end| end.ended.kind).is_some_and(FailureKind::soils)
    }

    fn release_run(&mut self) {
        let Some(g) = self.usable_generation() else { return };
        if g.ready_at.is_none() || g.unhealthy_since.is_some() || g.addresses.is_empty() {
            return;
        }
        let (generation, expected) = (g.number, keys(g).collect::<Vec<_>>());
        let Some(a) = self.job.attempts.last() else { return };
        if a.generation != generation || a.stop.is_some() || a.ended.is_some() || a.released_at.is_some() {
            return;
        }
        let number = a.number;
        let reports = self.reports_of(number);
        let ready = |k| reports.iter().any(|r| r.key == k && r.state == WorkerState::Ready && r.exit.is_none());
        let count = expected.iter().filter(|k| ready(**k)).count();
        if count < expected.len() {
            let text = match expected.len() {
                1 => "its worker is not ready yet".to_owned(),
                all => format!("{count} of {all} workers are ready"),
            };
            self.waiting = Some((Reason::WorkersPreparing, text));
            return;
        }
        let (now, saved) = (self.now, self.job.saved);
        if self.job.attempts.iter().any(|other| other.number < number && other.fenced_at.is_none()) {
            // Its workers have done their part: the limit `start` begins when they may go on.
            if let Some(a) = self.attempt_mut(number) {
                a.held_until = Some(now);
            }
            let text = self.fencing("waits until no worker of the earlier slice can be running");
            self.waiting = Some((Reason::Fencing, text));
            return;
        }
        if let Some(a) = self.attempt_mut(number) {
            (a.released_at, a.saved_before) = (Some(now), saved);
        }
        let to = match expected.len() {
            1 => "its worker".to_owned(),
            all => format!("{all} workers"),
        };
        self.note(format!("attempt {number} may start on {to}"));
    }
}
