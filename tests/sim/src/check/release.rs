//! A program starts on a slice that is READY and what was asked for, when all its workers are prepared, and they all meet at
//! worker 0 of that slice.

use std::collections::{BTreeMap, BTreeSet};

use rekindle_core::ids::{JobId, WorkerKey};

use super::Broken;
use crate::machine::Vm;
use crate::world::World;

/// Where the workers of each job's newest attempt meet.
#[derive(Default)]
pub(super) struct Meetings {
    newest: BTreeMap<JobId, (u32, String)>,
    /// The workers on which each job's newest attempt was unpacked and `setup` done.
    prepared: BTreeMap<JobId, (u32, BTreeSet<WorkerKey>)>,
}

impl Meetings {
    /// A worker has done all that comes before the program of an attempt.
    pub(super) fn prepared(&mut self, at: &Vm, attempt: u32) {
        let (newest, workers) = self.prepared.entry(at.job.clone()).or_default();
        if *newest < attempt {
            (*newest, *workers) = (attempt, BTreeSet::new());
        }
        if *newest == attempt {
            workers.insert(at.key);
        }
    }

    /// The program of an attempt starts on a worker, and is told to meet the others there.
    pub(super) fn start(&mut self, world: &World, at: &Vm, attempt: u32, coordinator: &str) -> Broken {
        let broken = |text| Some(("release", text));
        // What is gone from the cloud was there when the program was released.
        let (is_made, first, made, all) = crate::cloud::with(world, &at.slice, |r| {
            let first = r.addresses.first().and_then(|slice| slice.first()).cloned();
            let all: usize = r.addresses.iter().map(Vec::len).sum();
            (r.ready_at.is_some(), first.unwrap_or_default(), r.made.clone(), all)
        })?;
        if !is_made {
            return broken(format!("attempt {attempt} of {} starts on {} before it was READY", at.job, at.slice.name));
        }
        if let Some(made) = made {
            let text = format!("attempt {attempt} of {} starts on {}, which is {made:?}", at.job, at.slice.name);
            return broken(text);
        }
        let prepared = self.prepared.get(&at.job).filter(|(newest, _)| *newest == attempt);
        let prepared = prepared.map_or(0, |(_, workers)| workers.len());
        if prepared < all {
            let text = format!("attempt {attempt} of {} starts when {prepared} of {all} workers are prepared", at.job);
            return broken(text);
        }
        let Some((host, port)) = coordinator.rsplit_once(':').filter(|(host, _)| *host == first) else {
            let text = format!("attempt {attempt} of {} is to meet at {coordinator}, and worker 0 is {first}", at.job);
            return broken(text);
        };
        let before = self.newest.insert(at.job.clone(), (attempt, coordinator.to_owned()));
        match before {
            Some((same, there)) if same == attempt && there != coordinator => broken(format!(
                "workers of attempt {attempt} of {} are to meet at {there} and at {host}:{port}",
                at.job
            )),
            // Whatever is left of an earlier attempt keeps its port.
            Some((older, there)) if older < attempt && there.ends_with(&format!(":{port}")) => {
                broken(format!("attempts {older} and {attempt} of {} use the same port {port}", at.job))
            }
            _ => None,
        }
    }
}
