//! The command line as a person feels it: its help, and a list of thousands of jobs in the local mode.
//!
//! It takes the `rekindle` that `REKINDLE_E2E_BINARY` names: `target/release/rekindle` after `cargo build --release`.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt as _};
use rekindle_e2e::{Dev, Options, binary};
use serde_json::json;

/// So many jobs are listed.
const JOBS: usize = 5000;
/// Runs of which the middle one counts.
const RUNS: usize = 15;

/// Measures both; says so when the program is not built.
pub(crate) async fn measure(out: &mut impl Write) -> Result<()> {
    let Ok(binary) = binary() else {
        writeln!(out, "command line: skipped; REKINDLE_E2E_BINARY names no rekindle")?;
        return Ok(());
    };
    let run = |arguments: &[&str], url: &str| -> Result<Duration> {
        let began = Instant::now();
        let mut command = Command::new(&binary);
        let output = command.args(arguments).env("REKINDLE_SERVER", url).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(began.elapsed())
    };
    // Something simple on the same machine: a process that does nothing.
    let nothing = middle(|| {
        let began = Instant::now();
        Command::new("true").status().context("true")?;
        Ok(began.elapsed())
    })?;
    let help = middle(|| run(&["--help"], ""))?;
    writeln!(out, "help: {} ms; a process that does nothing takes {} ms", millis(help), millis(nothing))?;

    let dev = Dev::start(Options::speed(1.0)).await?;
    dev.post("/v1/freeze", &json!({})).await?;
    let dev = &dev;
    let submits = stream::iter(0..JOBS).map(|n| async move {
        dev.submit(&json!({"id": format!("many-{n}"), "run": ["true"], "tpu": {"accelerator": "v5litepod-8"}})).await
    });
    let submitted: Vec<Result<()>> = submits.buffer_unordered(16).collect().await;
    submitted.into_iter().collect::<Result<Vec<()>>>()?;
    let list = middle(|| run(&["ps", "--all"], &dev.url))?;
    let newest = middle(|| run(&["ps"], &dev.url))?;
    writeln!(out, "ps of {JOBS} jobs: {} ms; of the newest 50 of them: {} ms", millis(list), millis(newest))?;
    Ok(())
}

fn middle(mut run: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let mut times = (0..RUNS).map(|_| run()).collect::<Result<Vec<Duration>>>()?;
    times.sort();
    Ok(times[RUNS / 2])
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}
