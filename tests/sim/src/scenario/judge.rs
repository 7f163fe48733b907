//! What a scenario expects of its end: of every job, of one of them, and of what the world counts.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use rekindle_core::effect::Effect;
use rekindle_core::history::HistoryEntry;
use rekindle_core::job::Job;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::decode;

use super::{Written, fault, time};
use crate::exec::lock;
use crate::roll::SEC;
use crate::world::World;

/// What must be true of every job at the end. What is not said is not asked.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Expect {
    phase: Option<String>,
    phases: Option<Vec<String>>,
    generations: Option<(u32, u32)>,
    attempts: Option<(u32, u32)>,
    preemptions: Option<(u32, u32)>,
    infra_failures: Option<(u32, u32)>,
    user_failures: Option<(u32, u32)>,
    stockouts: Option<(u32, u32)>,
    /// Its last phase begins no later than so long after its submit.
    within: Option<String>,
    /// And no sooner.
    after: Option<String>,
    /// The create that brought its first slice is decided no later than so long after its submit.
    asked: Option<String>,
    /// Parts of notes, each of which stands in the history.
    notes: Vec<String>,
    /// Commands, each with the phase in which it met its job.
    met: BTreeMap<String, String>,
    /// Reasons that some job had.
    reasons: Vec<String>,
    /// What the world counts.
    counts: BTreeMap<String, Amount>,
    /// What must be true of one job besides, by its id.
    of: BTreeMap<String, Expect>,
}

/// How much of something there is.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Amount {
    /// At least so much.
    Least(u64),
    /// From so much to so much.
    Between(u64, u64),
}

impl Expect {
    /// Why it cannot be asked at all.
    #[cfg(test)]
    pub(super) fn fault(&self) -> Option<String> {
        let times = self.within.iter().chain(&self.after).chain(&self.asked).find_map(|t| time(t).err());
        let of = self.of.iter().find_map(|(id, of)| {
            let is_of_world = !of.reasons.is_empty() || !of.counts.is_empty() || !of.of.is_empty();
            if is_of_world { Some(format!("{id}: this is asked of the world, not of one job")) } else { of.fault() }
        });
        times.or(of)
    }
}

/// What is wrong with the end of a scenario.
pub(super) fn judge(world: &World, written: &Written) -> Option<String> {
    uncounted(world, written).or_else(|| {
        let checks = lock(&world.checks);
        let expect = &written.expect;
        let missing = expect.of.keys().find(|id| !checks.jobs.keys().any(|job| job.as_str() == *id));
        missing.map(|id| format!("there is no job {id}")).or_else(|| {
            checks.jobs.values().find_map(|job| {
                let own = expect.of.get(job.id.as_str());
                wrong(world, job, expect).or_else(|| own.and_then(|own| wrong(world, job, own)))
            })
        })
    })
}

/// What did not happen at all, or too often.
fn uncounted(world: &World, written: &Written) -> Option<String> {
    let named =
        written.moments.iter().map(|m| &m.1).chain(written.windows.iter().map(|w| &w.0)).chain(written.on.keys());
    let counts = lock(&world.counts);
    for name in named.filter(|n| !written.quiet.contains(n)) {
        let struck = fault(name).is_ok_and(|f| counts.faults.get(&f).is_some_and(|n| *n > 0));
        if !struck {
            return Some(format!("the fault {name} never struck"));
        }
    }
    for reason in &written.expect.reasons {
        if !counts.reasons.keys().any(|r| r.name() == reason) {
            return Some(format!("no job ever had the reason {reason}"));
        }
    }
    written.expect.counts.iter().find_map(|(what, amount)| {
        let count = counts.others.iter().find(|(name, _)| **name == what.as_str()).map_or(0, |(_, n)| *n);
        let fits = match *amount {
            Amount::Least(least) => least <= count,
            Amount::Between(least, most) => (least..=most).contains(&count),
        };
        (!fits).then(|| format!("{what} {count}, not {amount:?}"))
    })
}

fn wrong(world: &World, job: &Job, expect: &Expect) -> Option<String> {
    let (id, phase) = (&job.id, job.phase.as_str());
    let is_other = expect.phase.as_deref().is_some_and(|p| p != phase)
        || expect.phases.as_ref().is_some_and(|all| !all.iter().any(|p| p == phase));
    if is_other {
        return Some(format!("{id} is {phase} ({}): {}", job.reason.name(), job.message));
    }
    let numbers = [
        ("generations", job.last_generation, expect.generations),
        ("attempts", job.last_attempt, expect.attempts),
        ("preemptions", job.counters.preemptions, expect.preemptions),
        ("infra failures", job.counters.infra_failures, expect.infra_failures),
        ("user failures", job.counters.user_failures, expect.user_failures),
        ("stockouts", job.counters.stockouts, expect.stockouts),
    ];
    for (what, have, wanted) in numbers {
        if wanted.is_some_and(|(from, to)| have < from || have > to) {
            return Some(format!("{id} has {have} {what}, not {wanted:?}"));
        }
    }
    let took = job.phase_since.as_microsecond() - job.created_at.as_microsecond();
    let limit = |text: &Option<String>| text.as_deref().and_then(|t| time(t).ok());
    let is_untimely =
        limit(&expect.within).is_some_and(|most| took > most) || limit(&expect.after).is_some_and(|least| took < least);
    if is_untimely {
        return Some(format!("{id} took {} s", took / SEC));
    }
    if let Some(most) = limit(&expect.asked) {
        let asked = first_asked(world, job).map(|at| at - job.created_at.as_microsecond());
        if asked.is_none_or(|asked| asked > most) {
            return Some(format!("the first slice of {id} was asked for after {:?} s", asked.map(|us| us / SEC)));
        }
    }
    if !expect.notes.is_empty() {
        let notes: Vec<String> = history(world, job).iter().flat_map(|entry| entry.notes.clone()).collect();
        if let Some(part) = expect.notes.iter().find(|part| !notes.iter().any(|note| note.contains(*part))) {
            return Some(format!("no note of {id} says {part:?}"));
        }
    }
    expect.met.iter().find_map(|(command, wanted)| {
        let met = phase_met(world, job, command);
        (met.as_deref() != Some(wanted)).then(|| format!("{command} met {id} as {met:?}, not as {wanted}"))
    })
}

/// What is kept of a job's history.
fn history(world: &World, job: &Job) -> Vec<Arc<HistoryEntry>> {
    let shelf = lock(&world.shelf);
    let paths = (1..=job.revision).map(|revision| Kind::History(job.id.clone(), revision).path());
    paths.filter_map(|path| decode::<HistoryEntry>(&path, shelf.body(&path)?).ok()).collect()
}

/// The phase in which a command met its job.
fn phase_met(world: &World, job: &Job, command: &str) -> Option<String> {
    let all = history(world, job);
    all.iter().find(|entry| entry.cause == command).map(|entry| entry.from.as_str().to_owned())
}

/// When the create of the first generation was decided last: earlier ones were refused.
fn first_asked(world: &World, job: &Job) -> Option<i64> {
    let asks = |entry: &&Arc<HistoryEntry>| {
        entry.effects.iter().any(|e| matches!(e, Effect::CreateGeneration { generation, .. } if *generation == 1))
    };
    history(world, job).iter().filter(asks).map(|entry| entry.at.as_microsecond()).max()
}
