//! An acknowledged message is never lost, and the same message again changes nothing.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use serde_json::Value;

use rekindle_core::history::HistoryEntry;
use rekindle_core::ids::JobId;
use rekindle_core::job::{Attempt, Desired};
use rekindle_core::observation::{Notice, WorkerReport};
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::decode;
use rekindle_wire::agent::Report;

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
    /// When a restart was last carried out: a message may come hours late, and the work begins again.
    restarted: BTreeMap<String, i64>,
}

impl Messages {
    /// Whether a cancel of this job was acknowledged before its end.
    pub(super) fn must_be_cancelled(&self, job: &JobId) -> bool {
        self.cancelled.contains(job)
    }

    /// When a restart of this job was last carried out.
    pub(super) fn restarted_at(&self, job: &JobId) -> Option<i64> {
        self.restarted.get(job.as_str()).copied()
    }
}

/// A history entry was written.
pub(super) fn entry(world: &World, messages: &mut Messages, job: &str, entry: &HistoryEntry) -> Broken {
    let cause = entry.cause.as_str();
    // A pass tells what it was hinted for.
    if entry.actor == "rekindle" {
        return None;
    }
    if !matches!(cause, "cancel" | "pause" | "unpause" | "restart" | "wake" | "submit") {
        return None;
    }
    if cause == "restart" {
        messages.restarted.insert(job.to_owned(), world.now());
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

/// A message was acknowledged: its effect is stored, with what makes the same again change nothing, or why it cannot be used.
pub(super) fn acknowledged(world: &World, checks: &mut Checks, message: &str, command: &str, data: &[u8]) -> Broken {
    let has = |kind: Kind| lock(&world.shelf).body(&kind.path()).is_some();
    let is_recorded = has(Kind::Dead(format!("jobs/pubsub\n{message}")));
    let payload: Value = serde_json::from_slice(data).unwrap_or_default();
    let job = payload["id"].as_str().and_then(|id| JobId::parse(id).ok());
    let is_done = |id: JobId| match command {
        "submit" => has(Kind::Job(id)),
        _ => has(Kind::Command(id, format!("{command}/message {message}"))),
    };
    if !is_recorded && !job.is_some_and(is_done) {
        let text = format!("the {command} {message} was acknowledged, and neither done nor recorded as unusable");
        return Some(("messages", text));
    }
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

/// A command by HTTP was answered: what was accepted is stored under the caller's key, and nothing is answered that should not be.
pub(super) fn answered(
    world: &World,
    checks: &mut Checks,
    (job, command, key): (&JobId, &str, &str),
    (status, text): (StatusCode, &str),
) -> Broken {
    let retried = [StatusCode::CONFLICT, StatusCode::NOT_FOUND, StatusCode::SERVICE_UNAVAILABLE];
    if retried.contains(&status) {
        return None;
    }
    if !status.is_success() {
        return Some(("messages", format!("the {command} of {job} is answered {status}: {text}")));
    }
    let kind = Kind::Command(job.clone(), format!("{command}/http ann@example.com {key}"));
    if lock(&world.shelf).body(&kind.path()).is_none() {
        return Some(("messages", format!("the {command} {key} of {job} was accepted and is lost")));
    }
    let of = checks.jobs.get(job).filter(|_| command == "cancel")?;
    if of.desired == Desired::Cancel && of.outcome.is_none() {
        checks.messages.cancelled.insert(job.clone());
    }
    None
}

/// An agent's report was accepted: an exit and a notice in it are stored, unless its job has let go of the attempt.
pub(super) fn reported(world: &World, checks: &Checks, report: &Report) -> Broken {
    let of = |a: &&Attempt| a.number == report.attempt && a.generation == report.generation;
    checks.jobs.get(&report.job)?.attempts.iter().find(of)?;
    let path = Kind::Worker(report.job.clone(), report.attempt, report.key).path();
    let stored = {
        let shelf = lock(&world.shelf);
        shelf.body(&path).and_then(|body| decode::<WorkerReport>(&path, body).ok())
    };
    let lacks = |what| Some(("messages", format!("{what} of {} was accepted and is not in {path}", report.instance)));
    if report.exit.is_some() && stored.as_ref().is_none_or(|stored| stored.exit.is_none()) {
        return lacks("an exit");
    }
    // What was announced and takes nothing away may be called off.
    let is_told = report.notice.as_ref().is_some_and(Notice::takes_away);
    if is_told && stored.is_none_or(|stored| stored.notice.is_none()) {
        return lacks("a notice");
    }
    None
}
