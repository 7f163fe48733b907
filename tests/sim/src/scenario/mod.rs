//! Named scenarios: each case of the catalogue of faults that speaks about the engine, as data, with its right outcome.
//!
//! A scenario is a plan written by hand. Every checker watches it; what it expects comes on top. A fault that it names must have struck,
//! else the scenario proves nothing and fails.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::cli::{EXIT_SAFETY, number};
use crate::fault::Fault;
use crate::plan::{Act, Fate, JobPlan, Moment, Plan, START_US, Told, Window};
use crate::roll::{DAY, HOUR, MIN, SEC};
use crate::run::{self, Ending};

use self::judge::{Expect, judge};

mod crowds;
mod doors;
mod judge;
mod phases;
mod races;
mod stores;
#[cfg(test)]
mod table;

/// The files, by topic.
const FILES: [&str; 4] = [
    include_str!("../../scenarios/leaks_and_races.json"),
    include_str!("../../scenarios/verdicts.json"),
    include_str!("../../scenarios/stuck_and_stockout.json"),
    include_str!("../../scenarios/delivery.json"),
];

/// Seeds that found a bug once, with why.
const SEEDS: &str = include_str!("../../scenarios/seeds.tsv");

/// A scenario as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    id: String,
    why: String,
    #[serde(default)]
    jobs: Vec<WrittenJob>,
    #[serde(default)]
    copies: Option<usize>,
    #[serde(default)]
    moments: Vec<(String, String, u64)>,
    #[serde(default)]
    windows: Vec<(String, String, String, usize)>,
    #[serde(default)]
    on: BTreeMap<String, f64>,
    #[serde(default)]
    acts: Vec<(String, usize, String)>,
    #[serde(default)]
    faults_for: Option<String>,
    #[serde(default)]
    chips: Option<u32>,
    /// Chips of the quota of each zone.
    #[serde(default)]
    quota: Option<u32>,
    /// Index of the job whose creates are never answered.
    #[serde(default)]
    unanswered: Option<usize>,
    /// True: while faults go on, only ticks wake anybody.
    #[serde(default)]
    deaf: bool,
    #[serde(default)]
    create: Option<String>,
    #[serde(default)]
    quiet: Vec<String>,
    #[serde(default)]
    seeds: Option<u64>,
    expect: Expect,
}

/// A job, with defaults for what is not said.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct WrittenJob {
    id: Option<String>,
    accelerator: Option<String>,
    slices: Option<u32>,
    queued: Option<String>,
    capacity: Option<Vec<String>>,
    zones: Option<Vec<usize>>,
    work: Option<String>,
    setup: Option<String>,
    submit: Option<String>,
    fails_at: Option<u64>,
    one_fails: Option<u32>,
    silent: bool,
    more: Option<Value>,
}

/// What went wrong in a scenario.
#[derive(Debug, Clone)]
pub(crate) struct Wrong {
    /// In words.
    pub(crate) text: String,
    /// The exit code of the promise that was broken.
    pub(crate) code: u8,
}

impl Wrong {
    /// What went wrong in a run, if anything.
    fn of(ending: &Ending) -> Option<Self> {
        let text = match ending {
            Ending::Well => return None,
            Ending::Panic(text) => format!("panic: {text}"),
            Ending::Broken(f) => format!("{}: {}", f.checker, f.text),
        };
        Some(Self { text, code: number(ending) })
    }
}

/// An outcome that is not the right one is a broken promise of safety.
impl From<String> for Wrong {
    fn from(text: String) -> Self {
        Self { text, code: EXIT_SAFETY }
    }
}

/// How a scenario ended.
pub(crate) struct Played {
    /// Its id.
    pub(crate) id: String,
    /// Why it is there.
    pub(crate) why: String,
    /// What went wrong; `None`: nothing.
    pub(crate) wrong: Option<Wrong>,
    /// All that happened in the schedule that went wrong.
    pub(crate) trace: String,
}

/// Plays every scenario whose id begins so; all, if `None`.
pub(crate) fn play(wanted: Option<&str>) -> Vec<Played> {
    let is = |id: &str| wanted.is_none_or(|w| id.starts_with(w));
    let mut played = Vec::new();
    for file in FILES {
        let all: Vec<Written> = match serde_json::from_str(file) {
            Ok(all) => all,
            Err(error) => {
                let wrong = Some(format!("the file cannot be read: {error}").into());
                played.push(Played { id: "file".into(), why: String::new(), wrong, trace: String::new() });
                continue;
            }
        };
        played.extend(all.iter().filter(|w| is(&w.id)).map(play_one));
    }
    for (seed, draw, why) in seeds() {
        let id = format!("seed-{seed}");
        if is(&id) {
            let mut outcome = run::run(&draw(seed), false);
            let wrong = Wrong::of(&outcome.ending);
            if wrong.is_some() {
                outcome = run::run(&draw(seed), true);
            }
            played.push(Played { id, why: why.to_owned(), wrong, trace: outcome.trace });
        }
    }
    played.extend(specials().into_iter().filter(|s| is(s.0)).map(|(id, why, play)| Played {
        id: id.into(),
        why: why.into(),
        wrong: play(),
        trace: String::new(),
    }));
    played
}

/// A scenario that needs more than a plan: id, why, and what went wrong.
type Special = (&'static str, &'static str, fn() -> Option<Wrong>);

/// The promise that a run broke; else what else is wrong with it.
fn verdict(ending: &Ending, told: impl FnOnce() -> Option<String>) -> Option<Wrong> {
    Wrong::of(ending).or_else(|| told().map(Wrong::from))
}

fn specials() -> Vec<Special> {
    [stores::all(), crowds::all(), races::all(), phases::all(), doors::all()].concat()
}

/// A seed that found a bug: how its plan is drawn, and one line of why.
type Found = (u64, fn(u64) -> Plan, &'static str);

/// Seeds that found a bug. One that was found before some faults came keeps the plan that found it.
fn seeds() -> Vec<Found> {
    let line = |l: &'static str| {
        let mut parts = l.splitn(3, '\t');
        let (seed, faults, why) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
        let draw: fn(u64) -> Plan = match faults {
            "first" => Plan::draw_first,
            "days" => Plan::draw_days,
            "rough" => Plan::draw_rough,
            _ => Plan::draw,
        };
        Some((seed, draw, why))
    };
    SEEDS.lines().filter(|l| !l.starts_with('#')).filter_map(line).collect()
}

fn play_one(written: &Written) -> Played {
    let (mut wrong, mut trace) = (None, String::new());
    // One schedule is not enough for a race: each scenario is played under several.
    for seed in 1..=written.seeds.unwrap_or(4) {
        let done = plan(written, seed).map(|plan| {
            let (ending, told) = run::run_with(&plan, |world| judge(world, written));
            verdict(&ending, || told)
        });
        let went_wrong = done.unwrap_or_else(|why: String| Some(why.into()));
        if let Some(Wrong { text, code }) = went_wrong {
            wrong = Some(Wrong { text: format!("(schedule {seed}) {text}"), code });
            trace = plan(written, seed).map(|plan| run::run(&plan, true).trace).unwrap_or_default();
            break;
        }
    }
    Played { id: written.id.clone(), why: written.why.clone(), wrong, trace }
}

/// `90s`, `30m`, `2h`, `1d`, in microseconds.
fn time(text: &str) -> Result<i64, String> {
    let bad = || format!("{text:?} is no time");
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let unit = match unit {
        "s" => SEC,
        "m" => MIN,
        "h" => HOUR,
        "d" => DAY,
        _ => return Err(bad()),
    };
    number.parse::<i64>().map(|n| n * unit).map_err(|_| bad())
}

fn fault(name: &str) -> Result<Fault, String> {
    Fault::ALL.iter().copied().find(|f| f.name() == name).ok_or_else(|| format!("no fault {name:?}"))
}

fn told(name: &str) -> Result<Told, String> {
    Ok(match name {
        "cancel" => Told::Cancel,
        "pause" => Told::Pause,
        "unpause" => Told::Unpause,
        "wake" => Told::Wake,
        "restart" => Told::Restart { new_slice: false, from_scratch: false },
        "restart new slice" => Told::Restart { new_slice: true, from_scratch: false },
        "restart from scratch" => Told::Restart { new_slice: false, from_scratch: true },
        _ => return Err(format!("no command {name:?}")),
    })
}

fn plan(written: &Written, seed: u64) -> Result<Plan, String> {
    let mut plan = Plan::calm(seed);
    plan.chaos_us = time(written.faults_for.as_deref().unwrap_or("6h"))?;
    plan.chips = written.chips.unwrap_or(plan.chips);
    (plan.quota, plan.unanswered, plan.deaf) = (written.quota, written.unanswered, written.deaf);
    if let Some(create) = &written.create {
        plan.create_us = time(create)?;
    }
    let one = [WrittenJob::default()];
    let jobs = if written.jobs.is_empty() { &one[..] } else { &written.jobs };
    for n in 0..written.copies.unwrap_or(jobs.len()) {
        plan.jobs.push(job(&jobs[n % jobs.len()], n)?);
    }
    for (at, name, pick) in &written.moments {
        plan.moments.push(Moment { at: START_US + time(at)?, fault: fault(name)?, pick: *pick });
    }
    for (name, from, to, zone) in &written.windows {
        let (from, to) = (START_US + time(from)?, START_US + time(to)?);
        plan.windows.push(Window { fault: fault(name)?, from, to, zone: *zone });
    }
    for (name, p) in &written.on {
        plan.on.insert(fault(name)?, *p);
    }
    for (at, job, what) in &written.acts {
        plan.acts.push(Act { at: START_US + time(at)?, job: *job, told: told(what)? });
    }
    plan.acts.sort_by_key(|a| a.at);
    Ok(plan)
}

fn job(written: &WrittenJob, n: usize) -> Result<JobPlan, String> {
    let step_us = 10 * SEC;
    let work = time(written.work.as_deref().unwrap_or("2h"))?;
    Ok(JobPlan {
        id: written.id.clone().unwrap_or_else(|| format!("case-{n:04}")),
        accelerator: leaked(written.accelerator.as_deref().unwrap_or("v5litepod-16")),
        slices: written.slices.unwrap_or(1),
        queued: leaked(written.queued.as_deref().unwrap_or("auto")),
        capacity: written
            .capacity
            .as_ref()
            .map_or_else(|| vec!["spot"], |kinds| kinds.iter().map(|k| leaked(k)).collect()),
        zones: written.zones.clone().unwrap_or_default(),
        priority: 50,
        submit_at: START_US + time(written.submit.as_deref().unwrap_or("1s"))?,
        steps: u64::try_from(work / step_us).unwrap_or(1),
        step_us,
        checkpoint_us: 10 * MIN,
        setup_us: time(written.setup.as_deref().unwrap_or("30s"))?,
        writes_progress: !written.silent,
        fate: match (written.fails_at, written.one_fails) {
            (Some(percent), _) => Fate::Fails { percent },
            (None, Some(worker)) => Fate::OneFails { worker },
            (None, None) => Fate::Succeeds,
        },
        more: written.more.clone().unwrap_or_else(|| serde_json::json!({})),
    })
}

/// Names of the few accelerators and kinds that plans know.
fn leaked(name: &str) -> &'static str {
    const KNOWN: [&str; 10] = [
        "v5litepod-16",
        "v5litepod-8",
        "v5litepod-1",
        "v5litepod-32",
        "auto",
        "always",
        "never",
        "spot",
        "on_demand",
        "reserved",
    ];
    KNOWN.into_iter().find(|k| *k == name).unwrap_or("v5litepod-16")
}
