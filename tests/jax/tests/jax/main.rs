//! Real JAX on four workers, the programs of the README, and six ways to die: each must be told apart from what JAX and the kernel really print,
//! answered right, and end with the parameters of an undisturbed run, digest for digest.
//!
//! JAX's heartbeats time out after 10 s and its initialisation after 30 s (`train.py`). `REKINDLE_JAX_KEEP=FOLDER`
//! keeps what was captured as cases for `tests/cases`.

mod readme;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::{Dev, Options, binary, scenario};
use rekindle_jax::{MemoryLimit, Training, case_of, is_root, python, skipped, undisturbed, unmount_below};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The manager's waits are divided by this. Its 60 s for the others after a failure must stay longer than JAX's 10 s.
const SPEED: f64 = 4.0;
/// Room for a worker once it trains. What it holds by then is not counted.
const MEMORY: u64 = 96 << 20;

/// What must be true of an end.
struct Due<'a> {
    kind: &'a str,
    /// What the captured output alone may say as well: it has no figures of the machine.
    by_output: &'a [&'a str],
    /// The worker that the sentence must name.
    worker: Option<u32>,
    /// A piece of the line that must prove it; empty: there is none.
    proof: &'a str,
}

/// Runs a test, unless there is no Python environment for it.
async fn with_jax(name: &str, test: impl AsyncFnOnce(&mut Dev, &Path) -> Result<()>) -> Result<()> {
    let Some(python) = python()? else {
        return skipped(name, "`bash tests/jax/setup` has not made the Python environment");
    };
    scenario(name, Options::speed(SPEED), async |dev| test(dev, &python).await).await
}

/// What the command line says about a job.
fn told(dev: &Dev, command: &str, id: &str) -> Result<String> {
    let output = Command::new(binary()?)
        .args([command, id])
        .env("REKINDLE_SERVER", &dev.url)
        .env("NO_COLOR", "1")
        .output()
        .with_context(|| command.to_owned())?;
    ensure!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    // Long sentences are broken at the width of a terminal.
    Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Checks the judged end of attempt 1: for the manager, for people, and for whoever has nothing but the output.
fn check(dev: &Dev, job: &Value, python: &Path, due: &Due<'_>) -> Result<()> {
    let id = job["id"].as_str().context("no id")?;
    let case = case_of(&dev.state(), id, python, due.kind, due.by_output)?;
    if let Some(folder) = std::env::var_os("REKINDLE_JAX_KEEP") {
        let text = format!("{}\n", serde_json::to_string_pretty(&case)?);
        std::fs::write(PathBuf::from(folder).join(format!("{id}.json")), text)?;
    }
    let end = &job["last_end"];
    ensure!(end["attempt"] == 1 && end["kind"] == due.kind, "judged as {end}; its workers left {case:#}");
    for command in ["explain", "show"] {
        let text = told(dev, command, id)?;
        let names = due.worker.is_none_or(|worker| text.contains(&format!("On worker {worker}, ")));
        let words = [format!("({})", due.kind), due.proof.to_owned()];
        ensure!(names && words.iter().all(|word| text.contains(word)), "{command} of {id} says: {text}");
    }
    let file = dev.root().join("case.json");
    std::fs::write(&file, case.to_string())?;
    let output = Command::new(binary()?).args(["classify", "--json"]).arg(&file).output()?;
    let verdict: Value = serde_json::from_slice(&output.stdout)?;
    let kind = verdict["kind"].as_str().unwrap_or_default();
    // Our stop reaches the others within a tenth of a second: by the output alone their SIGTERM may as well be the provider's.
    let may_be_stopped = kind == "preempted" && verdict["action"] == "retry";
    ensure!(kind == due.kind || may_be_stopped || due.by_output.contains(&kind), "by its output alone: {verdict:#}");
    Ok(())
}

/// True if the next attempt began on the same slice, from a checkpoint.
fn resumed_in_place(job: &Value) -> Result<()> {
    ensure!(job["generation"] == 1 && job["counters"]["resumes"] == 1, "not resumed in place: {job:#}");
    Ok(())
}

async fn killed(name: &str, id: &str, worker: u32) -> Result<()> {
    with_jax(name, async |dev, python| {
        let due = undisturbed(python).await?;
        let training = Training::submit(dev, id, python, &json!({})).await?;
        training.holds().await?;
        training.process(worker)?.signal(Signal::KILL);
        training.go()?;
        let job = training.second_attempt().await?;
        // Killed by nobody knows whom, with memory to spare and a healthy slice.
        let end = Due {
            kind: "unknown",
            by_output: &["oom_host", "preempted"],
            worker: Some(worker),
            proof: "memory was not short",
        };
        check(dev, &job, python, &end)?;
        resumed_in_place(&job)?;
        training.same_end(&due).await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_without_a_word() -> Result<()> {
    killed("a worker killed", "kill-one", 2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coordinator_killed() -> Result<()> {
    killed("the coordinator killed", "kill-coordinator", 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_stands_still() -> Result<()> {
    with_jax("a worker frozen", async |dev, python| {
        let due = undisturbed(python).await?;
        let training = Training::submit(dev, "freeze", python, &json!({})).await?;
        training.holds().await?;
        training.process(2)?.signal(Signal::STOP);
        training.go()?;
        let job = training.second_attempt().await?;
        // Our own stop wakes the frozen one a tenth of a second after the others have died: by the output alone that SIGTERM may as well be
        // the provider's.
        let end = Due { kind: "infra_grpc", by_output: &["preempted"], worker: None, proof: "heartbeat" };
        check(dev, &job, python, &end)?;
        resumed_in_place(&job)?;
        training.same_end(&due).await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exception_in_one_worker() -> Result<()> {
    with_jax("an exception", async |dev, python| {
        let due = undisturbed(python).await?;
        let end = Due { kind: "user_error", by_output: &[], worker: Some(1), proof: "ValueError: the labels of step" };

        // By default it is told to the person, and nothing is tried again.
        let told = Training::submit(dev, "exception", python, &json!({})).await?;
        told.holds().await?;
        told.order("fail", 1)?;
        told.go()?;
        let is_judged = |job: &Value| job["last_end"]["attempt"] == 1;
        let job = dev.job_until("exception", "attempt 1 is judged", is_judged).await?;
        check(dev, &job, python, &end)?;

        let allowed = json!({"budgets": {"user_failures": 1}});
        let training = Training::submit(dev, "exception-allowed", python, &allowed).await?;
        training.holds().await?;
        training.order("fail", 1)?;
        training.go()?;
        let job = training.second_attempt().await?;
        ensure!(job["last_end"]["kind"] == "user_error", "{}", job["last_end"]);
        resumed_in_place(&job)?;
        training.same_end(&due).await?;
        let job = dev.phase("exception", "failed").await?;
        ensure!(job["attempt"] == 1 && job["counters"]["user_failures"] == 1, "{job:#}");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_memory_exhausted() -> Result<()> {
    let name = "memory exhausted";
    if !is_root() {
        return skipped(name, "a memory limit needs root");
    }
    let limit = match MemoryLimit::new(MEMORY) {
        Ok(limit) => limit,
        Err(error) => return skipped(name, &format!("{error:#}")),
    };
    with_jax(name, async |dev, python| {
        let due = undisturbed(python).await?;
        let once = json!({"recovery": {"overrides": {"oom_host": {"action": "resume_in_place", "max": 1}}}});
        let training = Training::submit(dev, "memory", python, &once).await?;
        training.holds().await?;
        limit.hold(training.process(3)?.pid)?;
        training.order("memory", 3)?;
        training.go()?;
        let job = training.second_attempt().await?;
        let end = Due { kind: "oom_host", by_output: &[], worker: Some(3), proof: "Killed process" };
        check(dev, &job, python, &end)?;
        resumed_in_place(&job)?;
        ensure!(job["counters"]["user_failures"] == 1, "{}", job["counters"]);
        training.same_end(&due).await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workers_disk_full() -> Result<()> {
    let name = "a disk full";
    if !is_root() {
        return skipped(name, "a small file system needs root");
    }
    with_jax(name, async |dev, python| {
        let due = undisturbed(python).await?;
        // Each worker's working directory is a disk of its own. Set up once: the resume finds the same one, emptied.
        let setup = r#"mountpoint -q "$PWD" || mount -t tmpfs -o size=8m rekindle-jax "$PWD"; echo x >> ../setups"#;
        let training = Training::submit(dev, "disk", python, &json!({"setup": setup})).await?;
        training.holds().await?;
        training.order("disk", 3)?;
        training.go()?;
        let result = after_full_disk(dev, python, &training).await;
        // Also after a failure: the folder of the test cannot be removed otherwise.
        let unmounted = unmount_below(dev.root())?;
        result?;
        ensure!(unmounted == 4, "{unmounted} workers had a disk of their own");
        training.same_end(&due).await.map(drop)
    })
    .await
}

async fn after_full_disk(dev: &Dev, python: &Path, training: &Training<'_>) -> Result<()> {
    let job = training.second_attempt().await?;
    let end = Due { kind: "disk_full", by_output: &[], worker: Some(3), proof: "No space left on device" };
    check(dev, &job, python, &end)?;
    resumed_in_place(&job)?;
    // Cleared, so that it does not fill again at once; and set up again.
    let folder = |name: &str| training.process(3).map(|process| Path::new(first_line(&process.folder)).join(name));
    ensure!(!folder("shuffle-cache.bin")?.exists(), "what filled the disk is still there");
    let setups = std::fs::read_to_string(folder("../setups")?).context("setups")?;
    ensure!(setups == "x\nx\n", "set up {} times", setups.lines().count());
    Ok(())
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
