//! What things cost, as ratios to something simple measured in the same run on the same machine.
//!
//! `cargo run --release -p rekindle-bench`, or with the word `cli` only the command line. Of times only those that are
//! promised of the command line are asserted. One ratio is promised, and asserted.

mod any;
mod cli;
mod load;
mod tokens;

use std::hint::black_box;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::Context;

use rekindle_core::classify::{self, Evidence, Exit, WorkerEvidence};
use rekindle_rig::Rig;

/// Runs `work` for at least this long.
const AT_LEAST: Duration = Duration::from_secs(1);

fn main() -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    let is_whole = std::env::args().nth(1).is_none_or(|word| word != "cli");
    if is_whole {
        classify_tails(&mut out)?;
        load::events(&mut out)?;
        any::bytes(&mut out)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(passes(&mut out))?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(cli::measure(&mut out))
}

/// How often `work` runs in a second.
fn per_second(mut work: impl FnMut()) -> f64 {
    let began = Instant::now();
    let mut times = 0_u32;
    while began.elapsed() < AT_LEAST {
        work();
        times += 1;
    }
    f64::from(times) / began.elapsed().as_secs_f64()
}

/// Attempts of 8 workers with tails of 64 KiB, made of the labelled cases' own outputs; beside it a scan for line ends.
fn classify_tails(out: &mut impl Write) -> anyhow::Result<()> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../cases/failures");
    let mut tails = Vec::new();
    for entry in std::fs::read_dir(folder).context("tests/cases/failures")? {
        let case: serde_json::Value = serde_json::from_slice(&std::fs::read(entry?.path())?)?;
        for worker in case["workers"].as_array().into_iter().flatten() {
            tails.push(worker["tail"].as_str().unwrap_or_default().to_owned());
        }
    }
    tails.sort();
    let attempts: Vec<Evidence> = (0..32).map(|n| attempt(&tails, n)).collect();
    let bytes: usize = attempts.iter().flat_map(|a| &a.workers).map(|w| w.tail.len()).sum();
    let classified = per_second(|| {
        for attempt in &attempts {
            black_box(classify::classify(attempt));
        }
    });
    let scanned = per_second(|| {
        for worker in attempts.iter().flat_map(|a| &a.workers) {
            black_box(memchr::memchr_iter(b'\n', worker.tail.as_bytes()).count());
        }
    });
    let rate = classified * bytes as f64 / 1e6;
    writeln!(out, "classify: {rate:.0} MB/s; {:.4} of a scan for line ends", classified / scanned)?;
    Ok(())
}

fn attempt(tails: &[String], number: usize) -> Evidence {
    const TAIL: usize = 64 << 10;
    let worker = |index: usize| {
        // Steps as a training program prints them, and one case's last words.
        let last = &tails[(number * 8 + index) % tails.len()];
        let mut tail = String::with_capacity(TAIL + 128);
        let mut step = 0_u32;
        while tail.len() + last.len() < TAIL {
            tail.push_str("I1127 10:00:00.123456 train.py:88] step=");
            tail.push_str(&step.to_string());
            tail.push_str(" loss=2.31 tokens/s=81234 lr=0.0001\n");
            step += 1;
        }
        tail.push_str(last);
        let index = u32::try_from(index).unwrap_or(0);
        WorkerEvidence { index, exit: Exit::Code(1), tail, ..WorkerEvidence::default() }
    };
    Evidence { workers: (0..8).map(worker).collect(), ..Evidence::default() }
}

/// Whole passes of a running job over memory ports; beside it only reading and writing the job's JSON, which any pass must do.
async fn passes(out: &mut impl Write) -> anyhow::Result<()> {
    let rig = Rig::new().await;
    let submit = rekindle_core::spec::parse(
        &rekindle_rig::spec("bench"),
        &rekindle_core::spec::ParseContext {
            deployment: &rig.engine.deployment,
            caller: rekindle_rig::CALLER,
            caller_is_admin: false,
        },
    );
    let submit = submit.map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
    rig.engine.submit(submit, rekindle_rig::CALLER, "bench").await?;
    rig.pass("bench").await;
    let job = rig.job("bench").await.context("the job is stored")?;
    let json = per_second(|| {
        let text = serde_json::to_vec(&job).unwrap_or_default();
        black_box(serde_json::from_slice::<rekindle_core::job::Job>(&text).ok());
    });
    let began = Instant::now();
    let mut times = 0_u32;
    while began.elapsed() < AT_LEAST {
        rig.advance(2);
        rig.pass("bench").await;
        times += 1;
    }
    let passes = f64::from(times) / began.elapsed().as_secs_f64();
    writeln!(
        out,
        "pass: {passes:.0} a second over memory ports; {:.2} of writing and reading the job as JSON",
        passes / json
    )?;
    Ok(())
}
