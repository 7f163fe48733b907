//! An acknowledged message is never lost, and the same message again changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use rekindle_core::ids::JobId;
use rekindle_core::job::Desired;

use super::{Broken, Checks};
use crate::exec::lock;
use crate::plan::Told;
use crate::world::World;

/// How often each command was carried out.
#[derive(Default)]
pub(super) struct Messages {
    done: BTreeMap<(String, String), u32>,
    /// Jobs whose cancel was acknowledged before their end.
    cancelled: BTreeSet<JobId>,
}

impl Messages {
    /// Whether a cancel of this job was acknowledged before its end.
    pub(super) fn must_be_cancelled(&self, job: &JobId) -> bool {
        self.cancelled.contains(job)
    }
}

/// A history entry was written.
pub(super) fn entry(world: &World, messages: &mut Messages, job: &str, cause: &str) -> Broken {
    if !matches!(cause, "cancel" | "pause" | "unpause" | "restart" | "wake" | "submit") {
        return None;
    }
    let done = messages.done.entry((job.to_owned(), cause.to_owned())).or_default();
    *done += 1;
    let told = if cause == "submit" { 1 } else { times_told(world, job, cause) };
    (*done > told)
        .then(|| ("messages", format!("{cause} of {job} was carried out {done} times; it was told {told} times")))
}

fn times_told(world: &World, job: &str, cause: &str) -> u32 {
    let Ok(id) = JobId::parse(job) else { return 0 };
    let truth = lock(&world.truth);
    let told = truth.jobs.get(&id).map(|f| f.told.as_slice()).unwrap_or_default();
    let is = |t: &&Told| match t {
        Told::Cancel => cause == "cancel",
        Told::Pause => cause == "pause",
        Told::Unpause => cause == "unpause",
        Told::Wake => cause == "wake",
        Told::Restart { .. } => cause == "restart",
    };
    u32::try_from(told.iter().filter(is).count()).unwrap_or(u32::MAX)
}

/// A message was acknowledged: its effect is stored.
pub(super) fn acknowledged(checks: &mut Checks, command: &str, data: &[u8]) -> Broken {
    let payload: Value = serde_json::from_slice(data).ok()?;
    let id = payload["id"].as_str()?;
    let job = JobId::parse(id).ok().and_then(|id| checks.jobs.get(&id));
    if let Some(job) = job.filter(|j| command == "cancel" && j.desired == Desired::Cancel && j.outcome.is_none()) {
        checks.messages.cancelled.insert(job.id.clone());
    }
    match (command, job) {
        ("submit", None) if payload["tpu"]["accelerator"] != "v9-1" => {
            Some(("messages", format!("the submit of {id} was acknowledged and is lost")))
        }
        ("cancel", Some(job))
            if job.desired != Desired::Cancel && !job.phase.is_terminal() && job.outcome.is_none() =>
        {
            Some(("messages", format!("the cancel of {id} was acknowledged and is lost")))
        }
        _ => None,
    }
}
