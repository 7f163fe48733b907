//! A failure of the transport between healthy workers: the same slice first, another one when it repeats.

use anyhow::{Result, ensure};
use rekindle_e2e::{Dev, Mark, Options, scenario};
use serde_json::Value;

use super::jobs::{self, node_of, training_slow};

/// Workers stand still for so long where connections cannot be cut: longer than the others wait, whatever the speed.
const FREEZE: &str = "140s";

/// Breaks the transport of an attempt that has made progress; answers the job on the attempt after it.
async fn break_off(dev: &Dev, id: &str, attempt: u32, step: u64) -> Result<Value> {
    let job = dev.step(id, attempt, step).await?;
    dev.cloud.break_transport(&node_of(&job)?, 1, FREEZE).await?;
    dev.job_until(id, "the next attempt runs", |job| job["phase"] == "running" && job["attempt"] == attempt + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_transport_resumes_on_the_same_slice_and_moves_when_it_repeats() -> Result<()> {
    scenario("gRPC failures", Options::speed(10.0), async |dev| {
        dev.submit(&training_slow(dev, "grpc", 2)?).await?;
        let second = break_off(dev, "grpc", 1, 12).await?;
        ensure!(second["generation"] == 1, "not in place: generation {}", second["generation"]);
        ensure!(second["last_end"]["kind"] == "infra_grpc", "judged as {}", second["last_end"]);
        let third = break_off(dev, "grpc", 2, 25).await?;
        ensure!(third["generation"] == 2, "it repeated, and is on generation {}", third["generation"]);
        let job = dev.phase("grpc", "succeeded").await?;
        let counters = &job["counters"];
        ensure!(counters["infra_failures"] == 2 && counters["preemptions"] == 0, "{counters}");
        // Nothing was created for the resume in place.
        let creates = dev.cloud.calls(&["CreateNode"]).await?;
        ensure!(creates.len() == 2, "{creates:?}");
        for attempt in [2, 3] {
            let starts = dev.ledger("grpc")?.of(attempt, Mark::Start)?;
            ensure!(starts.len() == 4 && starts.iter().all(|s| s.detail.contains("resume=1")), "{starts:?}");
        }
        jobs::same_end(dev, "grpc")
    })
    .await
}
