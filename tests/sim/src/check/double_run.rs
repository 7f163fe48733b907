//! At most one attempt of a job runs user code.

use std::collections::BTreeMap;

use rekindle_core::ids::JobId;

use super::Broken;
use crate::machine::{Fleet, Step};

/// The newest attempt that ever ran, by job.
#[derive(Default)]
pub(super) struct Running {
    newest: BTreeMap<JobId, u32>,
}

impl Running {
    /// An attempt runs.
    pub(super) fn note(&mut self, job: &JobId, attempt: u32) {
        let newest = self.newest.entry(job.clone()).or_default();
        *newest = attempt.max(*newest);
    }
}

/// The program of an attempt starts: no other attempt of the job may be alive on any VM that has power.
pub(super) fn start(fleet: &Fleet, job: &JobId, attempt: u32) -> Broken {
    let other = fleet
        .of_job(job.as_str())
        .find(|vm| vm.attempt.as_ref().is_some_and(|a| a.number != attempt && a.step == Step::Running));
    other.map(|vm| {
        let old = vm.attempt.as_ref().map_or(0, |a| a.number);
        let text = format!(
            "attempt {attempt} of {job} starts while attempt {old} runs on {} (generation {})",
            vm.instance, vm.generation
        );
        ("double-run", text)
    })
}
