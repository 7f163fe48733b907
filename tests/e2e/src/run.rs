//! Runs one test against one `dev`, and checks what must hold after every test.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::future::{FutureExt as _, LocalBoxFuture};
use rand::RngCore as _;
use serde_json::Value;

use crate::dev::{Dev, Options};
use crate::wait::until;

/// The cloud and the process table are looked at for so long after the last job has ended.
const AFTERMATH: Duration = Duration::from_mins(1);

/// With CI, a part that is missing is a failure, never a skip.
pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|ci| ci == "true")
}

/// A line for people that is seen also when the test passes.
pub fn say(text: &str) {
    let _closed = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// `REKINDLE_E2E_SEED`, or another one each time. It chooses the workers' addresses, so that tests beside each other do
/// not meet, and the moments of the tests that draw some.
pub fn random_seed() -> u64 {
    let given = std::env::var("REKINDLE_E2E_SEED").ok().and_then(|text| text.parse().ok());
    given.unwrap_or_else(|| u64::from(rand::rng().next_u32()))
}

/// Starts a `dev`, runs the test, checks the aftermath, stops the `dev`. Tells everything there is to know on failure.
pub async fn scenario(name: &str, options: Options, test: impl AsyncFnOnce(&mut Dev) -> Result<()>) -> Result<()> {
    let began = Instant::now();
    let mut dev = Dev::start(options).await?;
    let mut result = test(&mut dev).await;
    if result.is_ok() {
        result = aftermath(&mut dev).await.context("after the test");
    }
    if let Err(error) = &result {
        say(&format!("== {name} failed: {error:#}\n{}", story(&dev).await));
    } else {
        say(&format!("{name}: {:.1} s", began.elapsed().as_secs_f64()));
    }
    result
}

/// A named part of a test.
pub type Part<'a> = (String, LocalBoxFuture<'a, Result<()>>);

/// Names a part of a test.
pub fn part<'a>(name: &str, work: impl Future<Output = Result<()>> + 'a) -> Part<'a> {
    (name.to_owned(), work.boxed_local())
}

/// Runs parts of a test beside each other, all to their end, and names those that failed.
pub async fn all(parts: Vec<Part<'_>>) -> Result<()> {
    let named = parts.into_iter().map(|(name, work)| async { work.await.with_context(|| name) });
    let mut failed = String::new();
    for result in futures::future::join_all(named).await {
        if let Err(error) = result {
            let _never = writeln!(failed, "{error:#}");
        }
    }
    ensure!(failed.is_empty(), "{failed}");
    Ok(())
}

/// What must hold after every test.
async fn aftermath(dev: &mut Dev) -> Result<()> {
    until("the cloud holds nothing", AFTERMATH, async || Ok(dev.cloud.resources().await?.is_empty().then_some(())))
        .await
        .with_context(|| "resources are left")?;
    for (job, ledger) in dev.ledgers() {
        ledger.check().with_context(|| format!("job {job}"))?;
    }
    until("no worker process is left", AFTERMATH, async || Ok(dev.workers().is_empty().then_some(())))
        .await
        .with_context(|| format!("{:#?}", dev.workers()))?;
    dev.stop().await?;
    let left = crate::processes::below(dev.root());
    ensure!(left.is_empty(), "processes are left: {left:#?}");
    Ok(())
}

/// Every job's history, the cloud, the programs' records and the end of the log.
async fn story(dev: &Dev) -> String {
    let mut text = String::new();
    let list = dev.get("/v1/jobs?page_size=100").await.unwrap_or_default();
    for job in list["jobs"].as_array().into_iter().flatten() {
        let id = job["id"].as_str().unwrap_or_default();
        let _never = writeln!(text, "-- job {id}: {} {}: {}", job["phase"], job["reason"], job["message"]);
        for entry in dev.history(id).await.unwrap_or_default() {
            let at = entry["at"].as_str().unwrap_or_default();
            let _never = writeln!(
                text,
                "   {} a{} g{} {} -> {} {} [{}] {}",
                at.get(11..23).unwrap_or(at),
                entry["attempt"],
                entry["generation"],
                entry["from"].as_str().unwrap_or_default(),
                entry["to"].as_str().unwrap_or_default(),
                entry["message"],
                entry["cause"].as_str().unwrap_or_default(),
                entry["notes"],
            );
        }
        let _never = writeln!(text, "   its last end: {}", job["last_end"]);
    }
    for (job, ledger) in dev.ledgers() {
        let _never = writeln!(text, "-- programs of {job}");
        for event in ledger.events().unwrap_or_default() {
            let _never = writeln!(text, "   {event:?}");
        }
    }
    let show = |value: &Value| format!("{} {}", value["name"], value["state"]);
    for node in dev.cloud.nodes().await.unwrap_or_default() {
        let _never = writeln!(text, "-- node {}", show(&node));
    }
    let _never = writeln!(text, "-- log\n{}", dev.log_tail());
    text
}
