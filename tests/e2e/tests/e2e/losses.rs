//! Every way a slice can be lost is recovered, and the run ends with the parameters of an undisturbed one.

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::{Dev, Options, all, scenario};
use serde_json::{Value, json};

const STEPS: u64 = 120;
const SEED: u64 = 3;
const WORKERS: u32 = 4;

/// A training job of four workers.
fn training(dev: &Dev, id: &str) -> Result<Value> {
    let run = dev.ledger(id)?.run(&dev.trainer(STEPS, 20, 10, SEED));
    Ok(json!({"id": id, "run": run, "tpu": {"accelerator": "v5litepod-16", "capacity": "spot"}}))
}

/// The node of the job's newest generation.
fn node_of(job: &Value) -> Result<String> {
    let resources = job["resources"].as_array().context("no resources")?;
    Ok(resources.last().context("no resource")?["name"].as_str().context("no name")?.to_owned())
}

/// The job succeeds on a second generation, with the parameters of an undisturbed run and the charge that is due.
async fn recovers(dev: &Dev, id: &str, charge: &str) -> Result<()> {
    let job = dev.phase(id, "succeeded").await?;
    ensure!(job["generation"] == 2, "{} generations", job["generation"]);
    ensure!(job["counters"][charge] == 1, "not charged to {charge}: {}", job["counters"]);
    ensure!(dev.final_digest(id)? == rekindle_trainer::run_reference(SEED, WORKERS, STEPS), "other parameters");
    Ok(())
}

async fn preempted(dev: &Dev, leave: &str, notice: &str) -> Result<()> {
    let id = format!("{}-{notice}", leave.to_lowercase());
    dev.submit(&training(dev, &id)?).await?;
    let job = dev.step(&id, 1, 12).await?;
    dev.cloud.preempt(&node_of(&job)?, notice, leave).await?;
    recovers(dev, &id, "preemptions").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preempted_slice_is_replaced_whatever_is_left_of_it() -> Result<()> {
    scenario("preemptions", Options::speed(20.0), async |dev| {
        let dev = &*dev;
        for leave in ["PREEMPTED", "TERMINATED", "STOPPED", "GONE"] {
            let parts = ["30s", "0s"].map(|notice| (format!("{leave} {notice}"), preempted(dev, leave, notice)));
            all(parts.into_iter().collect()).await?;
        }
        Ok(())
    })
    .await
}
