//! Size and speed: a thousand jobs under ten thousand preemptions, one tick over ten thousand stored jobs, and how fast a quiet world goes by.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use jiff::Timestamp;

use rekindle_core::history::HistoryEntry;
use rekindle_core::ids::JobId;
use rekindle_core::job::{Job, Phase};
use rekindle_core::names;

use crate::cli::{EXIT_SAFETY, code, sentence};
use crate::exec::lock;
use crate::fault::Fault;
use crate::meter;
use crate::plan::{Fate, JobPlan, Moment, Plan, START_US};
use crate::roll::{DAY, HOUR, MIN, SEC, stream};
use crate::run::{Ending, ending, run};
use crate::stage::Stage;
use crate::world::{World, stamp};
use crate::{check, deliver, people};

/// The bound of memory of a tick over ten thousand jobs, the stored jobs included.
const TICK_BYTES_MAX: u64 = 256 << 20;

/// How much more memory the second half of a long run may take than the first: allocators round up.
const GROWTH_MAX: f64 = 1.10;

/// A job on one slice of four workers.
fn job(n: usize, work: i64) -> JobPlan {
    let step_us = 30 * SEC;
    JobPlan {
        id: format!("load-{n:05}"),
        accelerator: "v5litepod-16",
        slices: 1,
        queued: "never",
        capacity: vec!["spot"],
        zones: vec![n % 3, (n + 1) % 3],
        priority: u8::try_from(n % 101).unwrap_or(0),
        submit_at: START_US + SEC + i64::try_from(n).unwrap_or(0) * SEC / 50,
        steps: u64::try_from(work / step_us).unwrap_or(1),
        step_us,
        checkpoint_us: 10 * MIN,
        setup_us: 0,
        writes_progress: true,
        fate: Fate::Succeeds,
        more: serde_json::json!({}),
    }
}

fn quiet(seed: u64) -> Plan {
    let mut plan = Plan::calm(seed);
    plan.by_http = false;
    plan.chips = 1_000_000;
    plan
}

/// So many preemptions at random over so many jobs, and what they left.
pub(crate) fn storm(out: &mut impl Write, jobs: usize, preemptions: usize, seed: u64) -> std::io::Result<ExitCode> {
    use rand::Rng;
    let mut plan = quiet(seed);
    plan.chaos_us = 2 * DAY;
    plan.jobs = (0..jobs).map(|n| job(n, 40 * HOUR)).collect();
    let mut rng = stream(seed, 77);
    // Some meet a slice that is on its way out already.
    for _ in 0..preemptions * 9 / 8 {
        let fault = [Fault::PreemptNotice, Fault::PreemptSilent, Fault::PreemptLag][rng.random_range(0..3)];
        let at = START_US + rng.random_range(HOUR..plan.chaos_us);
        plan.moments.push(Moment { at, fault, pick: rng.random() });
    }
    let clock = meter::Clock::start();
    let outcome = run(&plan, false);
    let of = |what: &str| outcome.counts.others.get(what).copied().unwrap_or(0);
    writeln!(
        out,
        "storm: {} preemptions over {jobs} jobs: {} — {:.0} job-days, {} slices made, {}",
        of("preemptions"),
        sentence(&outcome.ending),
        outcome.job_days,
        of("slices made"),
        clock.told()
    )?;
    if !matches!(outcome.ending, Ending::Well) {
        return Ok(code(&outcome.ending));
    }
    let enough = of("preemptions") >= preemptions as u64;
    Ok(if enough { ExitCode::SUCCESS } else { ExitCode::from(EXIT_SAFETY) })
}

/// One tick over so many stored jobs, all due at once.
pub(crate) fn tick(out: &mut impl Write, jobs: usize) -> std::io::Result<ExitCode> {
    let mut plan = quiet(1);
    plan.jobs = vec![job(0, 40 * HOUR)];
    let world = World::new(plan, false);
    let stage = Stage::new(&world);
    people::begin(&stage);
    // No scheduler: the one tick is the one below.
    let mut wrong = String::new();
    let end = ending(&world, || {
        world.exec.run_until(START_US + HOUR, || world.is_broken());
        let template = lock(&world.checks).jobs.values().next().cloned();
        match template.filter(|j| j.phase == Phase::Running) {
            Some(template) => fill(&world, &stage, &template, jobs),
            None => wrong = "the first job does not run after an hour".into(),
        }
    });
    let clock = meter::Clock::start();
    let before = meter::resident();
    let engine = stage.any().engine.clone();
    let done: Arc<std::sync::Mutex<Option<usize>>> = Arc::default();
    let slot = done.clone();
    world.exec.spawn(async move {
        let now = engine.ports.clock.now();
        if let Ok(report) = engine.tick(now).await {
            *lock(&slot) = Some(report.due);
        }
    });
    let until = world.now() + MIN;
    world.exec.run_until(until, || lock(&done).is_some());
    let (due, after, most) = (lock(&done).take(), meter::resident(), meter::most_resident());
    world.exec.clear();
    writeln!(
        out,
        "tick: {} of {jobs} stored jobs were due and hinted; resident {} MiB before, {} after, {} at most; {}",
        due.unwrap_or(0),
        before >> 20,
        after >> 20,
        most >> 20,
        clock.told()
    )?;
    if !wrong.is_empty() || !matches!(end, Ending::Well) {
        writeln!(out, "tick: {wrong} {}", sentence(&end))?;
        return Ok(ExitCode::from(EXIT_SAFETY));
    }
    let well = due.is_some_and(|due| due >= jobs) && most < TICK_BYTES_MAX;
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::from(EXIT_SAFETY) })
}

/// Stores copies of a job that runs, each with its slice.
fn fill(world: &Arc<World>, stage: &Arc<Stage>, template: &Arc<Job>, jobs: usize) {
    let store = stage.any().engine.ports.store.clone();
    let (world2, template) = (world.clone(), template.clone());
    world.exec.spawn(async move {
        for n in 1..=jobs {
            let Ok(id) = JobId::parse(&format!("stored-{n:05}")) else { return };
            let mut copy = Job::clone(&template);
            copy.id = id.clone();
            copy.created_at = stamp(world2.now());
            copy.wake_at = Some(stamp(world2.now()));
            for g in &mut copy.generations {
                let name = names::generation_name(&world2.installation, &id, g.number);
                crate::cloud::copy(&world2, &g.placement.zone, &g.name, &name, &id);
                g.name = name;
            }
            let entry = HistoryEntry {
                revision: copy.revision,
                at: Timestamp::UNIX_EPOCH,
                cause: "copy".into(),
                actor: "load".into(),
                from: copy.phase,
                to: copy.phase,
                reason: copy.reason,
                message: String::new(),
                notes: Vec::new(),
                effects: Vec::new(),
                attempt: copy.last_attempt,
                generation: copy.last_generation,
                ended: None,
            };
            let stored = store.create_job(&Arc::new(copy), &entry, Vec::new()).await;
            debug_assert!(stored.is_ok(), "{stored:?}");
        }
    });
    let count = |world: &World| lock(&world.checks).jobs.len();
    world.exec.run_until(world.now() + DAY, || count(world) > jobs || world.is_broken());
}

/// A quiet world of so many jobs for so many days: job-days for each second of one core, and memory at half time and at the end.
pub(crate) fn speed(out: &mut impl Write, jobs: usize, days: i64) -> std::io::Result<ExitCode> {
    let mut plan = quiet(1);
    plan.jobs = (0..jobs).map(|n| job(n, days * DAY * 2)).collect();
    let world = World::new(plan, false);
    let stage = Stage::new(&world);
    people::begin(&stage);
    world.exec.spawn(deliver::schedule(stage.clone()));
    world.exec.spawn(check::audit(world.clone()));
    let mut told = (0, 0, 0.0, 0);
    let end = ending(&world, || {
        // All run before the clock does.
        world.exec.run_until(START_US + HOUR, || world.is_broken());
        let clock = meter::Clock::start();
        let calls = world.calls.load(std::sync::atomic::Ordering::Relaxed);
        let from = world.now();
        world.exec.run_until(from + days * DAY / 2, || world.is_broken());
        let half = meter::resident();
        world.exec.run_until(from + days * DAY, || world.is_broken());
        let calls = world.calls.load(std::sync::atomic::Ordering::Relaxed) - calls;
        told = (half, meter::resident(), clock.core_seconds(), calls);
    });
    let running = lock(&world.checks).jobs.values().filter(|j| j.phase == Phase::Running).count();
    world.exec.clear();
    let (half, whole, secs, calls) = told;
    let job_days = (jobs as i64 * days) as f64;
    writeln!(
        out,
        "speed: {running} of {jobs} jobs run; {job_days:.0} job-days in {secs:.1} s of one core: {:.0} a second; {:.0} port calls a job-hour; resident {} MiB at half time, {} at the end",
        job_days / secs,
        calls as f64 / (job_days * 24.0),
        half >> 20,
        whole >> 20
    )?;
    if !matches!(end, Ending::Well) {
        writeln!(out, "speed: {}", sentence(&end))?;
        return Ok(code(&end));
    }
    let flat = whole as f64 <= half as f64 * GROWTH_MAX;
    Ok(if running == jobs && flat { ExitCode::SUCCESS } else { ExitCode::from(EXIT_SAFETY) })
}
