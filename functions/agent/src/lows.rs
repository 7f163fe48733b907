//! The lowest free memory of the last seconds: once a program is dead its memory is free again, so the end itself
//! tells nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::kernel::{Kernel, Watch};

/// Between two samples.
const EACH: Duration = Duration::from_millis(500);
/// How many are kept: what was short ten seconds before the end may well have been its cause, a minute before hardly.
const KEPT: usize = 20;

/// The last samples of free memory.
#[derive(Debug, Default)]
pub(crate) struct Lows {
    samples: VecDeque<u64>,
    at: Option<Instant>,
}

impl Lows {
    /// Takes a sample, if one is due.
    pub(crate) fn sample(&mut self, kernel: &Kernel, watch: &Watch) {
        if self.at.is_some_and(|at| at.elapsed() < EACH) {
            return;
        }
        self.at = Some(Instant::now());
        if let Some(free) = kernel.memory_free().into_iter().chain(watch.memory_free()).min() {
            self.samples.push_back(free);
            if self.samples.len() > KEPT {
                self.samples.pop_front();
            }
        }
    }

    /// The lowest of them.
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.samples.iter().copied().min()
    }
}
