//! Checkpoint lines of a job: each begins with nothing.

use super::Job;

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

    /// Begins a new line: checkpoints of earlier lines are never offered again, and their steps are to be done again.
    pub(crate) fn begin_line(&mut self) {
        self.counters.steps_repeated += self.step().unwrap_or(0);
        self.line += 1;
        (self.saved, self.savers, self.line_step, self.last_loss) = (None, 0, None, None);
    }
}
