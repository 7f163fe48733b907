//! Many seeds, on every core: one seed on one thread at a time, told in the order of the seeds whichever thread was faster.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use crate::cli::{EXIT_COVERAGE, code, explain, sentence};
use crate::coverage;
use crate::meter::Clock;
use crate::plan::Plan;
use crate::run::{Outcome, run};
use crate::world::Counts;

/// So many seeds have a median that says something.
const ENOUGH: u64 = 500;

/// How a swarm is to go.
pub(crate) struct Wish {
    /// The first seed.
    pub(crate) from: u64,
    /// How many.
    pub(crate) seeds: u64,
    /// Threads; `None`: one for each core.
    pub(crate) threads: Option<usize>,
    /// Go on after a failure.
    pub(crate) keep_going: bool,
    /// Stop at a failure without looking for a smaller plan.
    pub(crate) no_shrink: bool,
    /// Something that must occur and never did is a failure.
    pub(crate) coverage: bool,
    /// Where range, commit and counts are written down.
    pub(crate) ledger: Option<PathBuf>,
}

/// What became of all seeds so far.
#[derive(Default)]
struct Sum {
    counts: Counts,
    done: u64,
    failed: u64,
    job_days: f64,
    calls: u64,
    sizes: Vec<Size>,
}

/// How large a seed was.
struct Size {
    job_days: f64,
    faults_a_day: f64,
    calls_an_hour: f64,
}

impl Size {
    fn of(outcome: &Outcome) -> Self {
        let faults: u64 = outcome.counts.faults.values().sum();
        Self {
            job_days: outcome.job_days,
            faults_a_day: faults as f64 / outcome.job_days.max(f64::MIN_POSITIVE),
            calls_an_hour: outcome.calls as f64 / outcome.running_hours.max(f64::MIN_POSITIVE),
        }
    }
}

/// Runs the seeds.
pub(crate) fn swarm(out: &mut impl Write, wish: &Wish) -> std::io::Result<ExitCode> {
    let clock = Clock::start();
    // Before the first seed: the tree may move on while the swarm runs.
    let commit = commit();
    let (mut sum, mut last) = (Sum::default(), ExitCode::SUCCESS);
    let (next, stop) = (AtomicU64::new(wish.from), AtomicBool::new(false));
    let threads = wish.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    std::thread::scope(|scope| -> std::io::Result<()> {
        let (sender, outcomes) = mpsc::channel();
        for _ in 0..threads {
            let sender = sender.clone();
            let (next, stop) = (&next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= wish.from + wish.seeds || sender.send((seed, run(&Plan::draw(seed), false))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let mut due = wish.from;
        for (seed, outcome) in outcomes {
            early.insert(seed, outcome);
            while let Some(outcome) = early.remove(&due) {
                due += 1;
                if !take(out, &mut sum, due - 1, &outcome, wish)? {
                    last = code(&outcome.ending);
                    if !wish.keep_going {
                        stop.store(true, Ordering::Relaxed);
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    })?;
    let sizes = Sizes::of(&mut sum);
    tell(out, &sum, &sizes, wish, &clock)?;
    if let Some(path) = &wish.ledger {
        note(path, &commit, wish.from, &sum)?;
    }
    if sum.failed > 0 {
        return Ok(last);
    }
    let mut missing = if wish.coverage { coverage::missing(&sum.counts) } else { coverage::idle(&sum.counts) };
    if wish.coverage {
        missing.extend(sizes.too_small(sum.done));
    }
    if !missing.is_empty() {
        writeln!(out, "never occurred: {}", missing.join(", "))?;
        return Ok(ExitCode::from(EXIT_COVERAGE));
    }
    Ok(last)
}

/// Takes the outcome of a seed. False: it failed.
fn take(out: &mut impl Write, sum: &mut Sum, seed: u64, outcome: &Outcome, wish: &Wish) -> std::io::Result<bool> {
    sum.done += 1;
    sum.counts.add(&outcome.counts);
    sum.job_days += outcome.job_days;
    sum.calls += outcome.calls;
    sum.sizes.push(Size::of(outcome));
    if outcome.ending.checker().is_none() {
        return Ok(true);
    }
    sum.failed += 1;
    writeln!(out, "seed {seed}: {}", sentence(&outcome.ending))?;
    out.flush()?;
    if !wish.keep_going && !wish.no_shrink {
        explain(out, &Plan::draw(seed), outcome)?;
    }
    Ok(false)
}

/// What the hundredth part and half of the seeds do not reach.
struct Sizes {
    job_days: (f64, f64),
    faults_a_day: (f64, f64),
    calls_an_hour: (f64, f64),
}

impl Sizes {
    fn of(sum: &mut Sum) -> Self {
        let mut middle = |of: fn(&Size) -> f64| {
            sum.sizes.sort_by(|a, b| of(a).total_cmp(&of(b)));
            let at = |part: usize| sum.sizes.get(sum.sizes.len() * part / 100).map_or(0.0, of);
            (at(1), at(50))
        };
        Self {
            job_days: middle(|s| s.job_days),
            faults_a_day: middle(|s| s.faults_a_day),
            calls_an_hour: middle(|s| s.calls_an_hour),
        }
    }

    /// Which seeds are too small to find much, as soon as there are enough of them to say so.
    fn too_small(&self, seeds: u64) -> Vec<String> {
        let asked = [
            (self.job_days.1 >= 4.5, "seeds of 4.5 job-days at the median"),
            (self.faults_a_day.0 >= 1.0, "seeds with a fault each job-day, but for a hundredth part"),
            (self.calls_an_hour.0 >= 50.0, "seeds with 50 port calls a running job-hour, but for a hundredth part"),
        ];
        let lacks = asked.into_iter().filter(|(holds, _)| seeds >= ENOUGH && !holds);
        lacks.map(|(_, what)| what.to_owned()).collect()
    }
}

fn tell(out: &mut impl Write, sum: &Sum, sizes: &Sizes, wish: &Wish, clock: &Clock) -> std::io::Result<()> {
    coverage::report(out, &sum.counts)?;
    let (days, faults, calls) = (sizes.job_days, sizes.faults_a_day, sizes.calls_an_hour);
    writeln!(
        out,
        "a seed, hundredth part and median: {:.1} and {:.1} job-days, {:.1} and {:.1} faults a job-day, {:.0} and {:.0} port calls a running job-hour",
        days.0, days.1, faults.0, faults.1, calls.0, calls.1
    )?;
    writeln!(
        out,
        "{} seeds from {}: {} failed; {:.1} job-days, {} calls, {}: {:.2} seeds and {:.1} job-days a second of one core",
        sum.done,
        wish.from,
        sum.failed,
        sum.job_days,
        sum.calls,
        clock.told(),
        sum.done as f64 / clock.core_seconds(),
        sum.job_days / clock.core_seconds()
    )
}

/// The commit whose code this is, with `-dirty` where files differ from it: seeds are only comparable on one. `unknown` outside a checkout.
pub(crate) fn commit() -> String {
    let asked = std::process::Command::new("git").args(["describe", "--always", "--dirty", "--exclude=*"]).output();
    asked
        .ok()
        .filter(|o| o.status.success())
        .map_or_else(|| "unknown".into(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

/// A line of the ledger: first and last seed, commit, failures, job-days, preemptions, crashes, lost messages.
fn note(path: &std::path::Path, commit: &str, from: u64, sum: &Sum) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    let of = |what: &str| sum.counts.others.get(what).copied().unwrap_or(0);
    writeln!(
        file,
        "{from}\t{}\t{commit}\t{}\t{:.0}\t{}\t{}\t{}",
        from + sum.done.max(1) - 1,
        sum.failed,
        sum.job_days,
        of("preemptions"),
        of("crashes"),
        of("messages lost")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_that_are_too_small_are_told_once_there_are_enough() {
        let size = |job_days| Size { job_days, faults_a_day: 3.0, calls_an_hour: 80.0 };
        let mut sum = Sum { sizes: (0..1000).map(|n| size(f64::from(n) / 250.0)).collect(), ..Sum::default() };
        let small = Sizes::of(&mut sum);
        assert!(small.too_small(ENOUGH - 1).is_empty());
        assert_eq!(small.too_small(1000), ["seeds of 4.5 job-days at the median"]);
        sum.sizes = (0..1000).map(|_| size(5.0)).collect();
        assert!(Sizes::of(&mut sum).too_small(1000).is_empty());
        sum.sizes[..20].fill_with(|| Size { job_days: 9.0, faults_a_day: 0.5, calls_an_hour: 40.0 });
        assert_eq!(Sizes::of(&mut sum).too_small(1000).len(), 2);
    }
}
