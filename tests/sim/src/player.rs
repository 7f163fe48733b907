//! The trace player: jobs live through days of measured spot availability, under the engine and under other managers' habits.
//!
//! Each zone of the world follows one availability series: while it says 0, every slice of the zone is taken and none can be had.

use std::sync::Arc;

use serde::Deserialize;

use rekindle_core::ids::JobId;

use crate::exec::lock;
use crate::fault::Fault;
use crate::plan::{Fate, JobPlan, Moment, Plan, START_US, Window};
use crate::roll::{DAY, MIN, SEC};
use crate::run::{Ending, ending};
use crate::stage::Stage;
use crate::world::World;
use crate::{check, deliver, disaster, people};

/// Time of a create.
pub(crate) const CREATE: i64 = 180 * SEC;
/// Time of `setup`.
pub(crate) const SETUP: i64 = 90 * SEC;
/// Time of compiling.
pub(crate) const COMPILE: i64 = 120 * SEC;
/// Between checkpoints.
pub(crate) const CHECKPOINT: i64 = 10 * MIN;
/// Time of a delete.
const DELETE: i64 = 40 * SEC;
/// Chips of each job's slice.
const CHIPS: i64 = 16;
const STEP: i64 = 10 * SEC;

const SERIES: [&str; 3] = [
    include_str!("../../traces/availability_1-node_aws-02-15-2023_us-east-1a_v100_1.json"),
    include_str!("../../traces/availability_1-node_aws-02-15-2023_us-east-2a_v100_1.json"),
    include_str!("../../traces/availability_1-node_aws-02-15-2023_us-west-2a_v100_1.json"),
];

#[derive(Debug, Deserialize)]
struct Metadata {
    gap_seconds: i64,
}

/// One series.
#[derive(Debug, Deserialize)]
struct Series {
    metadata: Metadata,
    data: Vec<u32>,
}

impl Series {
    /// The stretches, from the start, in which nothing can be had.
    fn gaps(&self, until: i64) -> Vec<(i64, i64)> {
        let gap = self.metadata.gap_seconds * SEC;
        let mut gaps: Vec<(i64, i64)> = Vec::new();
        for (n, _) in self.data.iter().enumerate().filter(|(_, have)| **have == 0) {
            let from = i64::try_from(n).unwrap_or(0) * gap;
            if from >= until {
                break;
            }
            match gaps.last_mut().filter(|last| last.1 == from) {
                Some(last) => last.1 = from + gap,
                None => gaps.push((from, from + gap)),
            }
        }
        gaps
    }
}

/// The parts of the time from a loss to the first new step, in their order, as reports name them.
pub(crate) const PARTS: [&str; 9] =
    ["save", "detect", "decide", "delete", "wait", "create", "setup", "compile", "repeat"];

/// Seconds of each part.
type Split = [i64; PARTS.len()];

/// What a manager made of the days.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    /// Who.
    pub(crate) name: String,
    /// Chip-seconds that were paid.
    pub(crate) paid: i64,
    /// Chip-seconds of steps that stayed.
    pub(crate) useful: i64,
    /// Losses of slices.
    pub(crate) losses: i64,
    /// Seconds of all losses.
    pub(crate) took: Split,
    /// Of these, seconds in which a slice was paid for.
    pub(crate) paid_of: Split,
}

impl Account {
    /// A mean of all losses.
    pub(crate) fn mean(&self, sum: i64) -> f64 {
        sum as f64 / self.losses.max(1) as f64
    }

    /// Chip-seconds that were paid for a loss, part by part.
    pub(crate) fn paid_split(&self) -> [f64; PARTS.len()] {
        self.paid_of.map(|seconds| self.mean(seconds * CHIPS))
    }
}

fn series() -> Result<Vec<Series>, String> {
    SERIES.iter().map(|text| serde_json::from_str(text).map_err(|e| e.to_string())).collect()
}

/// Plays so many days with so many jobs: the engine first, then the habits of others.
pub(crate) fn play(days: i64, jobs: usize) -> Result<Vec<Account>, String> {
    let series = series()?;
    let gaps: Vec<Vec<(i64, i64)>> = series.iter().map(|s| s.gaps(days * DAY)).collect();
    let mut accounts = vec![engine(days, jobs, &gaps)?];
    for (name, poll, fails_over) in [
        ("polls each 15 s, stays in its zone", 15 * SEC, false),
        ("polls each 30 s, stays in its zone", 30 * SEC, false),
        ("looks at one after the other in 600 s, stays in its zone", 600 * SEC, false),
        ("polls each 30 s, goes to other zones", 30 * SEC, true),
    ] {
        accounts.push(habit(name, days, jobs, &gaps, &Habit { poll, fails_over }));
    }
    Ok(accounts)
}

fn plan(days: i64, jobs: usize, gaps: &[Vec<(i64, i64)>]) -> Plan {
    let mut plan = Plan::calm(11);
    plan.by_http = false;
    plan.chaos_us = days * DAY;
    plan.chips = 1_000_000;
    plan.create_us = CREATE;
    plan.delete_us = DELETE;
    for (zone, gaps) in gaps.iter().enumerate() {
        for (from, to) in gaps {
            let (from, to) = (START_US + from, START_US + to);
            plan.windows.push(Window { fault: Fault::Stockout, from, to, zone });
            plan.moments.push(Moment { at: from + 1, fault: Fault::Storm, pick: zone as u64 });
        }
    }
    for n in 0..jobs {
        plan.jobs.push(JobPlan {
            id: format!("trace-{n}"),
            accelerator: "v5litepod-16",
            slices: 1,
            queued: "never",
            capacity: vec!["spot"],
            zones: (0..3).map(|z| (n + z) % 3).collect(),
            priority: 50,
            submit_at: START_US + SEC,
            // Longer than any series.
            steps: 10_000_000,
            step_us: STEP,
            checkpoint_us: CHECKPOINT,
            setup_us: SETUP,
            writes_progress: true,
            fate: Fate::Succeeds,
            more: serde_json::json!({"budgets": {"no_progress": "unlimited"}}),
        });
    }
    plan
}

fn engine(days: i64, jobs: usize, gaps: &[Vec<(i64, i64)>]) -> Result<Account, String> {
    let world = World::new(plan(days, jobs, gaps), false);
    lock(&world.truth).keeps_marks = true;
    let stage = Stage::new(&world);
    let mut paid = 0;
    let end = ending(&world, || paid = live(&world, &stage));
    let account = match end {
        Ending::Well => Ok(reckon(&world, paid)),
        Ending::Broken(f) => Err(format!("{}: {}", f.checker, f.text)),
        Ending::Panic(text) => Err(text),
    };
    world.exec.clear();
    account
}

/// Lives through the days. Answers the chip-seconds paid, looked at each minute.
fn live(world: &Arc<World>, stage: &Arc<Stage>) -> i64 {
    people::begin(stage);
    world.exec.spawn(deliver::schedule(stage.clone()));
    world.exec.spawn(disaster::befall(stage.clone()));
    world.exec.spawn(check::audit(world.clone()));
    let mut paid = 0;
    while world.now() < world.plan.calm_from() && !world.is_broken() {
        world.exec.run_until(world.now() + MIN, || world.is_broken());
        let chips: u32 = lock(&world.cloud).resources.values().filter(|r| r.bills()).map(|r| r.chips).sum();
        paid += i64::from(chips) * 60;
    }
    paid
}

fn reckon(world: &World, paid: i64) -> Account {
    let now = world.now();
    let fleet = lock(&world.fleet);
    let mut useful = 0;
    for plan in &world.plan.jobs {
        let groups = fleet.groups.iter().filter(|((id, _), _)| id.as_str() == plan.id);
        let best = groups.map(|(_, g)| g.step(plan, now)).max().unwrap_or(0);
        useful += i64::try_from(best).unwrap_or(0) * STEP / SEC * CHIPS;
    }
    let truth = lock(&world.truth);
    let checks = lock(&world.checks);
    let mut account = Account { name: "this engine".into(), paid, useful, ..Account::default() };
    for plan in &world.plan.jobs {
        let of = |m: &&(JobId, &'static str, i64)| m.0.as_str() == plan.id;
        let marks: Vec<(&'static str, i64)> = truth.marks.iter().filter(of).map(|m| (m.1, m.2)).collect();
        add_losses(&mut account, &marks, now);
    }
    let repeated: u64 = checks.jobs.values().map(|j| j.counters.steps_repeated).sum();
    let repeated = i64::try_from(repeated).unwrap_or(0) * STEP / SEC;
    (account.took[8], account.paid_of[8]) = (repeated, repeated);
    account
}

/// The losses of one job, by its marks in their order. A loss before the last one was made good ends that one's account.
fn add_losses(account: &mut Account, marks: &[(&'static str, i64)], end: i64) {
    let paid = paid_stretches(marks, end);
    for (n, (_, lost)) in marks.iter().enumerate().filter(|(_, m)| m.0 == "lost") {
        let later = &marks[n + 1..];
        let until = later.iter().find(|m| m.0 == "lost").map_or(end, |m| m.1);
        let next = |what: &str| later.iter().find(|m| m.0 == what && m.1 < until).map_or(until, |m| m.1);
        let (seen, decided, ready) = (next("seen"), next("decided"), next("ready"));
        let asked = later.iter().rfind(|m| m.0 == "asked" && m.1 <= ready && m.1 < until).map_or(until, |m| m.1);
        // A create that went out before the earlier slice was gone has not waited for it.
        let gone = Some(next("gone")).filter(|gone| *gone <= asked).unwrap_or(decided);
        let bounds = [next("off").min(seen), seen, decided, gone, asked, ready, next("started"), next("moving")];
        account.losses += 1;
        let mut from = *lost;
        for (part, to) in bounds.into_iter().enumerate() {
            let to = to.clamp(from, until.max(from));
            account.took[part] += (to - from) / SEC;
            account.paid_of[part] += paid.iter().map(|(a, b)| (to.min(*b) - from.max(*a)).max(0)).sum::<i64>() / SEC;
            from = to;
        }
    }
}

/// From READY to the end of its power, for each slice of a job.
fn paid_stretches(marks: &[(&'static str, i64)], end: i64) -> Vec<(i64, i64)> {
    let mut stretches: Vec<(i64, i64)> = Vec::new();
    for (what, at) in marks {
        let open = stretches.iter_mut().find(|s| s.1 == end);
        match (*what, open) {
            ("ready", _) => stretches.push((*at, end)),
            ("off", Some(open)) => open.1 = *at,
            _ => {}
        }
    }
    stretches
}

/// Another manager: when it looks, and whether it asks elsewhere.
struct Habit {
    poll: i64,
    fails_over: bool,
}

/// What a job of such a manager lives through from one create to the next.
fn habit(name: &str, days: i64, jobs: usize, gaps: &[Vec<(i64, i64)>], habit: &Habit) -> Account {
    let end = days * DAY;
    let mut account = Account { name: name.into(), ..Account::default() };
    let free_at =
        |zone: usize, at: i64| gaps[zone].iter().find(|(from, to)| *from <= at && at < *to).map_or(at, |g| g.1);
    let lost_at = |zone: usize, at: i64| gaps[zone].iter().map(|g| g.0).find(|from| *from >= at).unwrap_or(end);
    for n in 0..jobs {
        // Each job is looked at at its own moment of the round.
        let phase = habit.poll * i64::try_from(n).unwrap_or(0) / i64::try_from(jobs.max(1)).unwrap_or(1);
        let look = |at: i64| at + (phase - at).rem_euclid(habit.poll);
        // Where a slice is to be had first; without fail-over the job waits where it was.
        let choose = |zone: usize, at: i64| {
            let found = |zone: usize| look(free_at(zone, at));
            let first = (0..3).map(|k| (zone + k) % 3).min_by_key(|z| found(*z)).filter(|_| habit.fails_over);
            let zone = first.unwrap_or(zone);
            (zone, found(zone))
        };
        let (mut zone, mut asked) = choose(n % 3, look(0));
        let mut is_first = true;
        while asked < end {
            let lost = lost_at(zone, asked).min(end);
            let bounds = [asked, asked + CREATE, asked + CREATE + SETUP, asked + CREATE + SETUP + COMPILE];
            let [_, ready, _, moving] = bounds;
            account.paid += (lost - ready).max(0) / SEC * CHIPS;
            let ran = (lost - moving).max(0);
            let kept = if lost == end { ran } else { ran / CHECKPOINT * CHECKPOINT };
            account.useful += kept / SEC * CHIPS;
            // The first start makes no loss good.
            if !is_first {
                for part in 0..3 {
                    let took = (bounds[part + 1].min(lost) - bounds[part].min(lost)) / SEC;
                    account.took[5 + part] += took;
                    account.paid_of[5 + part] += if part == 0 { 0 } else { took };
                }
            }
            is_first = false;
            if lost == end {
                break;
            }
            account.losses += 1;
            let repeated = (ran - kept) / SEC;
            (account.took[8], account.paid_of[8]) = (account.took[8] + repeated, account.paid_of[8] + repeated);
            let decided = look(lost);
            account.took[1] += (decided - lost) / SEC;
            account.took[3] += DELETE / SEC;
            (zone, asked) = choose(zone, decided + DELETE);
            account.took[4] += (asked - decided - DELETE) / SEC;
        }
    }
    account
}
