//! The command line as a person feels it: its help, and a list of thousands of jobs in the local mode.
//!
//! It takes the `rekindle` beside it, or that `REKINDLE_E2E_BINARY` names: `target/release/rekindle` after
//! `cargo build --release`. What is promised of it is asserted of the best of the runs, since a machine with other work
//! makes some of them slower, and none faster.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt as _};
use rekindle_e2e::{Dev, Options, binary};
use serde_json::json;

/// So many jobs are listed.
const JOBS: usize = 5000;
/// Runs of which the middle one is told, and the best one is held against what is promised.
const RUNS: usize = 15;
/// What is promised of a release build: help, and the list of all [`JOBS`].
const HELP_MAX: Duration = Duration::from_millis(15);
const LIST_MAX: Duration = Duration::from_millis(300);

/// Measures both.
///
/// # Errors
///
/// A program that is not built, or slower than is promised.
pub(crate) async fn measure(out: &mut impl Write) -> Result<()> {
    let binary = binary().context("`cargo build --release` makes the rekindle that is measured")?;
    let run = |arguments: &[&str], url: &str| -> Result<Duration> {
        let began = Instant::now();
        let mut command = Command::new(&binary);
        let output = command.args(arguments).env("REKINDLE_SERVER", url).stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(began.elapsed())
    };
    // Something simple on the same machine: a process that does nothing.
    let (nothing, _) = middle_and_best(|| {
        let began = Instant::now();
        Command::new("true").status().context("true")?;
        Ok(began.elapsed())
    })?;
    let (help, best) = middle_and_best(|| run(&["--help"], ""))?;
    writeln!(out, "help: {} ms; a process that does nothing takes {} ms", millis(help), millis(nothing))?;
    within("help", best, HELP_MAX)?;

    let dev = Dev::start(Options::speed(1.0)).await?;
    dev.post("/v1/freeze", &json!({})).await?;
    let dev = &dev;
    let submits = stream::iter(0..JOBS).map(|n| async move {
        dev.submit(&json!({"id": format!("many-{n}"), "run": ["true"], "tpu": {"accelerator": "v5litepod-8"}})).await
    });
    let submitted: Vec<Result<()>> = submits.buffer_unordered(16).collect().await;
    submitted.into_iter().collect::<Result<Vec<()>>>()?;
    let (list, best) = middle_and_best(|| run(&["ps", "--all"], &dev.url))?;
    let (newest, _) = middle_and_best(|| run(&["ps"], &dev.url))?;
    writeln!(out, "ps of {JOBS} jobs: {} ms; of the newest 50 of them: {} ms", millis(list), millis(newest))?;
    within("ps of all jobs", best, LIST_MAX)
}

fn middle_and_best(mut run: impl FnMut() -> Result<Duration>) -> Result<(Duration, Duration)> {
    let mut times = (0..RUNS).map(|_| run()).collect::<Result<Vec<Duration>>>()?;
    times.sort();
    Ok((times[RUNS / 2], times[0]))
}

fn within(what: &str, best: Duration, most: Duration) -> Result<()> {
    ensure!(best <= most, "{what} takes {} ms at best; {} are promised", millis(best), millis(most));
    Ok(())
}

fn millis(time: Duration) -> String {
    format!("{:.1}", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slower_than_promised_fails() {
        assert!(within("help", HELP_MAX, HELP_MAX).is_ok());
        let fault = within("help", HELP_MAX + Duration::from_millis(1), HELP_MAX).unwrap_err().to_string();
        assert_eq!(fault, "help takes 16.0 ms at best; 15.0 are promised");
    }
}
