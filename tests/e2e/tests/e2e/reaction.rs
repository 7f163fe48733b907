//! How soon things happen, at real speed: from a notice to the next create, and from any reason to end a program to
//! SIGTERM on all workers of its slice.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use rekindle_e2e::measure::Spans;
use rekindle_e2e::{Dev, LONG, Ledger, Mark, Options, say, scenario, until};
use serde_json::json;

use super::jobs::{WORKERS, counting, node_of};

/// From one worker's notice, exit or a cancel to SIGTERM on all workers of a slice (contract).
const SIGTERM_WITHIN: Duration = Duration::from_secs(5);
const PREEMPTIONS: u32 = 5;
const ID: &str = "measured";

fn since(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

/// When the last of so many workers of an attempt got its SIGTERM.
async fn all_told(ledger: &Ledger, attempt: u32, workers: usize) -> Result<Timestamp> {
    until("SIGTERM on all workers", LONG, async || {
        let terms = ledger.of(attempt, Mark::Term)?;
        Ok((terms.len() >= workers).then(|| terms.iter().map(|term| term.at).max()).flatten())
    })
    .await
}

struct Measured {
    create: Spans,
    notice: Spans,
    exit: Spans,
    cancel: Spans,
}

async fn preempt(dev: &Dev, attempt: u32, measured: &mut Measured) -> Result<()> {
    let ledger = dev.ledger(ID)?;
    let job = dev.step(ID, attempt, 1).await?;
    let (noticed, _) = dev.cloud.preempt(&node_of(&job)?, "30s", "PREEMPTED").await?;
    let created = until("the next create", LONG, async || {
        let calls = dev.cloud.calls(&["CreateNode"]).await?;
        Ok(calls.into_iter().find(|call| call.at >= noticed))
    })
    .await?;
    measured.create.add(since(noticed, created.at));
    measured.notice.add(since(noticed, all_told(&ledger, attempt, WORKERS as usize).await?));
    Ok(())
}

async fn exit(dev: &Dev, attempt: u32, measured: &mut Measured) -> Result<()> {
    let ledger = dev.ledger(ID)?;
    dev.step(ID, attempt, 1).await?;
    ledger.exit(1, 1)?;
    let told = all_told(&ledger, attempt, WORKERS as usize - 1).await?;
    let ends = ledger.of(attempt, Mark::Stop)?;
    let left = ends.iter().find(|stop| stop.worker == 1).context("no exit of worker 1")?;
    measured.exit.add(since(left.at, told));
    Ok(())
}

async fn cancel(dev: &Dev, attempt: u32, measured: &mut Measured) -> Result<()> {
    dev.step(ID, attempt, 1).await?;
    let asked = Timestamp::now();
    dev.command(ID, "cancel", &json!({})).await?;
    measured.cancel.add(since(asked, all_told(&dev.ledger(ID)?, attempt, WORKERS as usize).await?));
    dev.phase(ID, "cancelled").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_exits_and_cancels_reach_every_worker_in_time() -> Result<()> {
    let fast = json!({"defaults": {"create_latency": "200ms", "delete_latency": "200ms"}});
    scenario("reaction", Options::speed(1.0).scenario(fast), async |dev| {
        let spans = Spans::default;
        let mut measured = Measured { create: spans(), notice: spans(), exit: spans(), cancel: spans() };
        dev.submit(&counting(dev, ID, WORKERS)?).await?;
        for attempt in 1..=PREEMPTIONS {
            preempt(dev, attempt, &mut measured).await?;
        }
        exit(dev, PREEMPTIONS + 1, &mut measured).await?;
        exit(dev, PREEMPTIONS + 2, &mut measured).await?;
        cancel(dev, PREEMPTIONS + 3, &mut measured).await?;
        say(&format!("reaction: notice to CreateNode {}", measured.create.told()));
        for (what, spans) in [("notice", &measured.notice), ("exit", &measured.exit), ("cancel", &measured.cancel)] {
            say(&format!("reaction: {what} to SIGTERM on all workers {}", spans.told()));
            ensure!(spans.longest() <= SIGTERM_WITHIN, "{what} to SIGTERM: {}", spans.told());
        }
        Ok(())
    })
    .await
}
