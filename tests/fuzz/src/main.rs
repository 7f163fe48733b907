//! `rekindle-fuzz`: mutates the corpus of a target for a while.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Parser;
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest as _, Sha256};

use rekindle_fuzz::{Ground, Target, corpus, corpus_folder, mutate};

/// Inputs that are kept in a run, beside the corpus.
const KEPT_MAX: usize = 20_000;
/// New files that one run adds to the corpus: what CI replays must stay quick.
const ADDED_MAX: usize = 40;
/// Only inputs of at most so many bytes are added.
const ADDED_BYTES_MAX: usize = 4096;

/// Inputs between two looks at the meter.
const LOOK_EACH: u64 = 64;

/// Time of a CPU that this process took: everything runs in one thread. Without Linux's figures, time of the clock.
struct Meter {
    began: Instant,
    used: Duration,
}

impl Meter {
    fn new() -> Self {
        Self { began: Instant::now(), used: thread_time().unwrap_or_default() }
    }

    fn used(&self) -> Duration {
        thread_time().map_or_else(|| self.began.elapsed(), |now| now.saturating_sub(self.used))
    }
}

/// The first figure of Linux's `schedstat`: nanoseconds on a CPU.
fn thread_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Fuzzes one target.
#[derive(Debug, Parser)]
struct Args {
    /// Its name.
    #[arg(value_parser = |name: &str| Target::parse(name).ok_or_else(|| {
        format!("one of {}", Target::ALL.map(Target::name).join(", "))
    }))]
    target: Target,
    /// For so many minutes of a CPU, which on a busy machine are more of the clock.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// Seed of the mutations.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Commit, for the ledger's line on stdout.
    #[arg(long, default_value = "unknown")]
    commit: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let ground = Ground::new()?;
    let mut pool: Vec<Vec<u8>> = corpus(args.target)?.into_iter().map(|(_, bytes)| bytes).collect();
    if pool.is_empty() {
        bail!("{} has no corpus", args.target.name());
    }
    let mut words: BTreeSet<String> = pool.iter().map(|input| ground.run(args.target, input)).collect();
    let mut random = ChaCha8Rng::seed_from_u64(args.seed);
    let meter = Meter::new();
    let limit = Duration::from_secs_f64(args.minutes * 60.0);
    let (mut runs, mut added) = (0_u64, 0);
    while runs % LOOK_EACH != 0 || meter.used() < limit {
        let [one, other] = [0; 2].map(|_: usize| random.random_range(0..pool.len()));
        let input = mutate::mutate(&pool[one], &pool[other], &mut random);
        runs += 1;
        let Ok(word) = catch_unwind(AssertUnwindSafe(|| ground.run(args.target, &input))) else {
            let path = keep(args.target, "panic", &input)?;
            bail!("{} panics on {path}", args.target.name());
        };
        if words.insert(word) && pool.len() < KEPT_MAX {
            if added < ADDED_MAX && input.len() <= ADDED_BYTES_MAX {
                keep(args.target, "found", &input)?;
                added += 1;
            }
            pool.push(input);
        }
    }
    let result = format!("{} answers, no panic", words.len());
    let minutes = meter.used().as_secs_f64() / 60.0;
    let (name, commit) = (args.target.name(), &args.commit);
    writeln!(std::io::stdout(), "{name}\t{commit}\t{minutes:.1}\t{runs}\t{result}").context("stdout")?;
    Ok(())
}

/// Writes an input into the corpus, under its digest.
fn keep(target: Target, why: &str, input: &[u8]) -> anyhow::Result<String> {
    let name = format!("{why}-{}", &hex::encode(Sha256::digest(input))[..16]);
    let path = corpus_folder(target).join(name);
    std::fs::write(&path, input)?;
    Ok(path.display().to_string())
}
