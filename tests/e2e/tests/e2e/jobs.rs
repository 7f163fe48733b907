//! The jobs that the tests submit.

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::Dev;
use serde_json::{Value, json};

pub(crate) const STEPS: u64 = 130;
pub(crate) const CHECKPOINT_EVERY: u64 = 10;
pub(crate) const SEED: u64 = 3;
/// Workers of a v5litepod-16.
pub(crate) const WORKERS: u32 = 4;

/// Least time of a step, in milliseconds: of an attempt that something is to befall, and of the others.
const SLOW: &str = "250";
const FAST: &str = "20";

/// A training job of four workers. Its first attempt takes half a minute, so that what is to befall it does so before it
/// has ended by itself, however late a busy machine tells how far it is.
pub(crate) fn training(dev: &Dev, id: &str) -> Result<Value> {
    training_slow(dev, id, 1)
}

/// A training job of four workers whose first attempts are slow, so many of them.
pub(crate) fn training_slow(dev: &Dev, id: &str, attempts: u32) -> Result<Value> {
    let pace = format!("$((REKINDLE_ATTEMPT > {attempts} ? {FAST} : {SLOW}))");
    let script = format!("exec {}", dev.trainer(STEPS, &pace, CHECKPOINT_EVERY, SEED).join(" "));
    let run = dev.ledger(id)?.run(&["bash".to_owned(), "-c".to_owned(), script]);
    Ok(json!({"id": id, "run": run, "tpu": {"accelerator": "v5litepod-16", "capacity": "spot"}}))
}

/// A program that counts steps until the test ends it, on four workers or on one.
pub(crate) fn counting(dev: &Dev, id: &str, workers: u32) -> Result<Value> {
    let run = dev.ledger(id)?.steps();
    let accelerator = if workers == 1 { "v5litepod-4" } else { "v5litepod-16" };
    Ok(json!({"id": id, "run": run, "tpu": {"accelerator": accelerator, "capacity": "spot"}}))
}

/// The parameters at the end are those of an undisturbed run.
pub(crate) fn same_end(dev: &Dev, id: &str) -> Result<()> {
    let (found, due) = (dev.final_digest(id)?, rekindle_trainer::run_reference(SEED, WORKERS, STEPS));
    ensure!(found == due, "{id} ended with {found}, an undisturbed run with {due}");
    Ok(())
}

/// The node (or queued resource) of the job's newest generation.
pub(crate) fn node_of(job: &Value) -> Result<String> {
    let resources = job["resources"].as_array().context("no resources")?;
    Ok(resources.last().context("no resource")?["name"].as_str().context("no name")?.to_owned())
}
