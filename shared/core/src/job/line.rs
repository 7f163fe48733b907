//! Checkpoint lines of a job: each begins with nothing.

use super::{Attempt, Job};
use crate::observation::WorkerReport;

impl Attempt {
    /// Where it begins: where its workers say, and until they do where the job was saved last. `None`: nobody knows.
    pub fn begins_at(&self) -> Option<u64> {
        let told = self.resumed_from.or_else(|| self.saved_before.filter(|_| self.resume));
        told.or_else(|| (!self.resume).then_some(0))
    }
}

impl Job {
    /// Highest step of the current line: what its next attempt goes on from, and what people are shown.
    pub fn step(&self) -> Option<u64> {
        // Documents of earlier versions know the highest step alone.
        self.line_step.or_else(|| self.highest_step.filter(|_| self.line == 0))
    }

    /// True while its attempts go on from what another job has left: a line of its own begins with nothing.
    pub(crate) fn continues_another(&self) -> bool {
        self.spec.resume && self.line == 0
    }

    /// True if an attempt of its line may have left something to go on from: also where no pass heard of all of its workers that the program
    /// began. Who was told to run it may do so until its slice is gone.
    pub(crate) fn may_have_run(&self) -> bool {
        // The newest attempt is kept. One that resumes may be lost before it is released: its predecessors may have run.
        let of_line = |a: &Attempt| a.line == self.line && (a.released_at.is_some() || (a.resume && a.stage > 0));
        self.attempts.last().map_or(self.first_started_at.is_some(), of_line)
    }

    /// Begins a new line: checkpoints of earlier lines are never offered again. Their steps count as repeated when they are done again.
    pub(crate) fn begin_line(&mut self) {
        self.line += 1;
        (self.saved, self.savers, self.line_step, self.last_loss) = (None, 0, None, None);
    }

    /// Steps that an attempt has done again, beyond those that are counted of it, when it has come to `step` and its workers
    /// say that it began at `from`: those up to the highest that the job had come to. Only what was done counts, not what is to
    /// be done.
    pub fn repeats_more(&self, a: &Attempt, from: Option<u64>, step: Option<u64>) -> u64 {
        let (Some(highest), Some(step)) = (self.highest_step, step.max(a.step)) else { return 0 };
        let known = a.begins_at();
        let Some(counted) = a.step else {
            // Where nobody knows its begin, it is the first step that a pass sees.
            return step.min(highest).saturating_sub(from.or(known).unwrap_or(step));
        };
        // Beyond the highest step all is new. A worker that is slower to tell may have begun further back than the first.
        let again = if a.progressed { 0 } else { step.min(highest).saturating_sub(counted) };
        let before = known.zip(from).map_or(0, |(known, from)| known.min(highest).saturating_sub(from));
        again + before
    }

    /// The steps repeated so far, with what the workers of the current attempt have told since the last pass.
    pub fn steps_repeated(&self, workers: &[WorkerReport]) -> u64 {
        let Some(a) = self.attempt() else { return self.counters.steps_repeated };
        let of = || workers.iter().filter(|report| report.attempt == a.number);
        let from = of().filter_map(|report| report.resumed_from).min();
        let step = of().filter_map(|report| report.step).max();
        self.counters.steps_repeated + self.repeats_more(a, from, step)
    }
}
