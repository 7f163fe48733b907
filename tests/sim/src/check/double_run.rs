//! At most one attempt of a job runs user code, each at most once on each of its workers, and never an older one after a newer one.

use std::collections::{BTreeMap, HashSet};

use rekindle_core::ids::{JobId, WorkerKey};

use super::Broken;
use crate::machine::{Fleet, Step, Vm};

/// What ever ran, by job.
#[derive(Default)]
pub(super) struct Running {
    newest: BTreeMap<JobId, (u32, u32)>,
    started: HashSet<(JobId, u32, WorkerKey)>,
}

impl Running {
    /// The program of an attempt starts on a worker: no other attempt of the job, nor the same one on another slice, may be alive on any
    /// VM that has power, none may be newer, and this worker has not run it before.
    pub(super) fn start(&mut self, fleet: &Fleet, at: &Vm, attempt: u32) -> Broken {
        let (job, generation) = (&at.job, at.generation);
        let broken = |text| Some(("double-run", text));
        let other = fleet.of_job(job.as_str()).find(|vm| {
            let is_other = |number| (number, vm.generation) != (attempt, generation);
            vm.attempt.as_ref().is_some_and(|a| is_other(a.number) && a.step == Step::Running)
        });
        if let Some(vm) = other {
            let old = vm.attempt.as_ref().map_or(0, |a| a.number);
            return broken(format!(
                "attempt {attempt} of {job} starts on generation {generation} while attempt {old} runs on {} (generation {})",
                vm.instance, vm.generation
            ));
        }
        let newest = self.newest.entry(job.clone()).or_default();
        if (attempt, generation) < *newest || (attempt == newest.0 && generation != newest.1) {
            return broken(format!(
                "attempt {attempt} of {job} starts on generation {generation} after attempt {} ran on generation {}",
                newest.0, newest.1
            ));
        }
        *newest = (attempt, generation);
        if !self.started.insert((job.clone(), attempt, at.key)) {
            return broken(format!("attempt {attempt} of {job} starts a second time on {}", at.instance));
        }
        None
    }
}
