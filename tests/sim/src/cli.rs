//! Commands: run, swarm, replay, meta.

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};

use crate::load;
use crate::plan::Plan;
use crate::run::{Ending, Outcome, run};
use crate::shrink::shrink;
use crate::swarm::{Wish, swarm};
use crate::world::{Promise, clock};

/// A safety promise was broken.
pub(crate) const EXIT_SAFETY: u8 = 10;
/// A liveness promise was broken.
const EXIT_LIVENESS: u8 = 11;
/// The code panicked.
const EXIT_PANIC: u8 = 12;
/// Something that must occur never did.
pub(crate) const EXIT_COVERAGE: u8 = 13;

/// Simulates a cloud that misbehaves around the production code.
#[derive(Debug, Parser)]
#[command(name = "rekindle-sim")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One seed.
    Run {
        /// The seed.
        #[arg(long)]
        seed: u64,
    },
    /// Many seeds.
    Swarm {
        /// How many.
        #[arg(long)]
        seeds: u64,
        /// The first.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Threads; one for each core, if absent.
        #[arg(long)]
        threads: Option<usize>,
        /// Go on after a failure, and list all.
        #[arg(long)]
        keep_going: bool,
        /// Stop at a failure without looking for a smaller plan.
        #[arg(long)]
        no_shrink: bool,
        /// Fail if a reason, an effect, a phase change or a fault never occurred.
        #[arg(long)]
        coverage: bool,
        /// Append the range, the commit and the counts to this file.
        #[arg(long)]
        ledger: Option<std::path::PathBuf>,
    },
    /// One seed again, with its history.
    Replay {
        /// The seed.
        #[arg(long)]
        seed: u64,
        /// Print all that happened.
        #[arg(long)]
        trace: bool,
    },
    /// Named scenarios.
    Scenario {
        /// The beginning of their names; all, if absent.
        name: Option<String>,
        /// Print all that happened in what went wrong.
        #[arg(long)]
        trace: bool,
    },
    /// Days of measured spot availability, under the engine and under other managers' habits.
    Trace {
        /// How many days.
        #[arg(long, default_value_t = 10)]
        days: i64,
        /// How many jobs.
        #[arg(long, default_value_t = 6)]
        jobs: usize,
    },
    /// Size: one tick over ten thousand stored jobs, ten thousand preemptions over a thousand jobs, and a thousand slices lost in one second.
    Storm {
        /// Jobs of the storm.
        #[arg(long, default_value_t = 1000)]
        jobs: usize,
        /// Preemptions of the storm.
        #[arg(long, default_value_t = 10_000)]
        preemptions: usize,
        /// Its seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Stored jobs of the tick.
        #[arg(long, default_value_t = 10_000)]
        stored: usize,
    },
    /// Speed and memory of a quiet world.
    Speed {
        /// How many jobs, each on four workers.
        #[arg(long, default_value_t = 100)]
        jobs: usize,
        /// How many days.
        #[arg(long, default_value_t = 6)]
        days: i64,
    },
    /// Each of some seeds twice: the traces must be the same, byte for byte.
    Meta {
        /// How many.
        #[arg(long, default_value_t = 20)]
        seeds: u64,
    },
}

/// The program.
pub fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let done = match Args::parse().command {
        Command::Run { seed } => one(&mut out, seed, false),
        Command::Replay { seed, trace } => one(&mut out, seed, trace),
        Command::Swarm { seeds, from, threads, keep_going, no_shrink, coverage, ledger } => {
            swarm(&mut out, &Wish { from, seeds, threads, keep_going, no_shrink, coverage, ledger })
        }
        Command::Trace { days, jobs } => trace(&mut out, days, jobs),
        Command::Storm { jobs, preemptions, seed, stored } => storm(&mut out, jobs, preemptions, seed, stored),
        Command::Speed { jobs, days } => load::speed(&mut out, jobs, days),
        Command::Meta { seeds } => meta(&mut out, seeds),
        Command::Scenario { name, trace } => scenarios(&mut out, name.as_deref(), trace),
    };
    done.unwrap_or(ExitCode::FAILURE)
}

/// What a run's end exits with.
pub(crate) fn code(ending: &Ending) -> ExitCode {
    ExitCode::from(number(ending))
}

/// The same as a number.
pub(crate) fn number(ending: &Ending) -> u8 {
    match ending {
        Ending::Well => 0,
        Ending::Panic(_) => EXIT_PANIC,
        Ending::Broken(failure) if failure.promise == Promise::Safety => EXIT_SAFETY,
        Ending::Broken(_) => EXIT_LIVENESS,
    }
}

/// A run's end in one sentence.
pub(crate) fn sentence(ending: &Ending) -> String {
    match ending {
        Ending::Well => "every promise was kept".into(),
        Ending::Panic(text) => format!("panic: {text}"),
        Ending::Broken(f) => format!("{}: {} (at {})", f.checker, f.text, clock(f.at - crate::plan::START_US)),
    }
}

fn one(out: &mut impl Write, seed: u64, trace: bool) -> std::io::Result<ExitCode> {
    let plan = Plan::draw(seed);
    let began = Instant::now();
    let outcome = run(&plan, trace);
    if trace {
        writeln!(out, "{}", outcome.trace)?;
    }
    let secs = began.elapsed().as_secs_f64();
    writeln!(
        out,
        "seed {seed}: {} — {:.2} job-days, {} calls, {secs:.2} s",
        sentence(&outcome.ending),
        outcome.job_days,
        outcome.calls
    )?;
    let of = |what: &str| outcome.counts.others.get(what).copied().unwrap_or(0);
    writeln!(
        out,
        "{} preemptions, {} crashes, {} messages lost",
        of("preemptions"),
        of("crashes"),
        of("messages lost")
    )?;
    if !trace && outcome.ending.checker().is_some() {
        explain(out, &plan, &outcome)?;
    }
    Ok(code(&outcome.ending))
}

/// The shortest history of a failure that can be found.
pub(crate) fn explain(out: &mut impl Write, plan: &Plan, outcome: &Outcome) -> std::io::Result<()> {
    let Some(checker) = outcome.ending.checker() else { return Ok(()) };
    let small = shrink(plan, checker, 150);
    let again = run(&small, true);
    writeln!(
        out,
        "smallest plan found of seed {} on commit {}: {}",
        plan.seed,
        crate::swarm::commit(),
        describe(&small)
    )?;
    writeln!(out, "{}", sentence(&again.ending))?;
    let lines: Vec<&str> = again.trace.lines().collect();
    let from = lines.len().saturating_sub(120);
    for line in &lines[from..] {
        writeln!(out, "  {line}")?;
    }
    Ok(())
}

fn describe(plan: &Plan) -> String {
    let on: Vec<String> = plan.on.iter().map(|(f, p)| format!("{} {p:.3}", f.name())).collect();
    let windows: Vec<&str> = plan.windows.iter().map(|w| w.fault.name()).collect();
    let moments: Vec<&str> = plan.moments.iter().map(|m| m.fault.name()).collect();
    let acts: Vec<String> = plan.acts.iter().map(|a| format!("{:?}", a.told)).collect();
    let jobs: Vec<String> =
        plan.jobs.iter().map(|j| format!("{} {}x{} {:?}", j.id, j.slices, j.accelerator, j.fate)).collect();
    format!(
        "jobs [{}]; calls [{}]; windows [{}]; moments [{}]; people [{}]; http {}",
        jobs.join(", "),
        on.join(", "),
        windows.join(", "),
        moments.join(", "),
        acts.join(", "),
        plan.by_http
    )
}

fn scenarios(out: &mut impl Write, name: Option<&str>, trace: bool) -> std::io::Result<ExitCode> {
    let played = crate::scenario::play(name);
    let failed = played.iter().filter(|p| p.wrong.is_some()).count();
    for one in &played {
        match &one.wrong {
            None => writeln!(out, "ok    {}", one.id)?,
            Some(wrong) => {
                if trace {
                    writeln!(out, "{}", one.trace)?;
                }
                writeln!(out, "WRONG {} ({}): {}", one.id, one.why, wrong.text)?;
            }
        }
    }
    writeln!(out, "{} scenarios, {failed} wrong", played.len())?;
    // No scenario of that name proves nothing.
    let none = played.is_empty().then_some(EXIT_SAFETY);
    let code = played.iter().find_map(|p| p.wrong.as_ref()).map(|wrong| wrong.code).or(none);
    Ok(code.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn storm(out: &mut impl Write, jobs: usize, preemptions: usize, seed: u64, stored: usize) -> std::io::Result<ExitCode> {
    // First: what the storm takes must not count for the tick.
    for done in [load::tick(out, stored)?, load::storm(out, jobs, preemptions, seed)?] {
        if done != ExitCode::SUCCESS {
            return Ok(done);
        }
    }
    scenarios(out, Some("F02-a-thousand"), false)
}

fn trace(out: &mut impl Write, days: i64, jobs: usize) -> std::io::Result<ExitCode> {
    let accounts = match crate::player::play(days, jobs) {
        Ok(accounts) => accounts,
        Err(why) => {
            writeln!(out, "{why}")?;
            return Ok(ExitCode::from(EXIT_SAFETY));
        }
    };
    let parts = crate::player::PARTS.join("\t");
    writeln!(out, "seconds of a loss\ngoodput\tlosses\t{parts}\tmanager")?;
    for a in &accounts {
        let goodput = a.useful as f64 / a.paid.max(1) as f64;
        let split: Vec<String> = a.took.iter().map(|s| format!("{:.1}", a.mean(*s))).collect();
        writeln!(out, "{goodput:.4}\t{}\t{}\t{}", a.losses, split.join("\t"), a.name)?;
    }
    writeln!(out, "paid chip-seconds of a loss without a new step\nall\t{parts}\tmanager")?;
    for a in &accounts {
        let split: Vec<String> = a.paid_split().iter().map(|s| format!("{s:.0}")).collect();
        writeln!(out, "{:.0}\t{}\t{}", a.paid_split().iter().sum::<f64>(), split.join("\t"), a.name)?;
    }
    if accounts.iter().any(|a| a.losses == 0) {
        writeln!(out, "a manager has met no loss: this says nothing")?;
        return Ok(ExitCode::from(EXIT_COVERAGE));
    }
    Ok(ExitCode::SUCCESS)
}

fn meta(out: &mut impl Write, seeds: u64) -> std::io::Result<ExitCode> {
    for seed in 1..=seeds {
        let plan = Plan::draw(seed);
        let (one, two) = (run(&plan, true), run(&plan, true));
        if one.trace != two.trace || one.counts != two.counts {
            let at = one.trace.lines().zip(two.trace.lines()).find(|(a, b)| a != b);
            writeln!(out, "seed {seed} differs: {at:?}")?;
            return Ok(ExitCode::from(EXIT_SAFETY));
        }
    }
    writeln!(out, "{seeds} seeds: the same twice, byte for byte")?;
    Ok(ExitCode::SUCCESS)
}
