//! How soon things happen, at real speed: from a notice to the next create, and from any reason to end a program to
//! SIGTERM on all workers of its slice. The numbers are told, not judged: what else the machine does is in them.
//!
//! `cargo nextest run -p rekindle-e2e --no-capture -E 'test(reaction) + test(quota_for_one)'` prints them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use rekindle_e2e::measure::Spans;
use rekindle_e2e::{Dev, LONG, Ledger, Mark, Options, say, scenario, until};
use serde_json::{Value, json};

use super::jobs::{WORKERS, counting, node_of};

const PREEMPTIONS: u32 = 8;
/// Exits of one worker; the first is resumed on the same slice.
const EXITS: u32 = 4;
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
    /// Highest step so far: each attempt goes further, so that no back-off is measured.
    step: u64,
    create: Spans,
    notice: Spans,
    exit: Spans,
    cancel: Spans,
}

/// Waits until an attempt has gone further than all before it.
async fn further(dev: &Dev, attempt: u32, measured: &mut Measured) -> Result<Value> {
    let job = dev.step(ID, attempt, measured.step + 2).await?;
    measured.step = job["progress"]["step"].as_u64().context("a step")?;
    Ok(job)
}

async fn preempt(dev: &Dev, attempt: u32, measured: &mut Measured) -> Result<()> {
    let ledger = dev.ledger(ID)?;
    let job = further(dev, attempt, measured).await?;
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
    further(dev, attempt, measured).await?;
    ledger.exit(1, 1)?;
    let told = all_told(&ledger, attempt, WORKERS as usize - 1).await?;
    let ends = ledger.of(attempt, Mark::Stop)?;
    let left = ends.iter().find(|stop| stop.worker == 1).context("no exit of worker 1")?;
    measured.exit.add(since(left.at, told));
    Ok(())
}

async fn cancel(dev: &Dev, attempt: u32, measured: &mut Measured) -> Result<()> {
    further(dev, attempt, measured).await?;
    let asked = Timestamp::now();
    dev.command(ID, "cancel", &json!({})).await?;
    measured.cancel.add(since(asked, all_told(&dev.ledger(ID)?, attempt, WORKERS as usize).await?));
    dev.phase(ID, "cancelled").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn notices_exits_and_cancels_reach_every_worker() -> Result<()> {
    let fast = json!({"defaults": {"create_latency": "200ms", "delete_latency": "200ms"}});
    scenario("reaction", Options::speed(1.0).scenario(fast), async |dev| {
        let spans = Spans::default;
        let mut measured = Measured { step: 0, create: spans(), notice: spans(), exit: spans(), cancel: spans() };
        dev.submit(&counting(dev, ID, WORKERS)?).await?;
        for attempt in 1..=PREEMPTIONS {
            preempt(dev, attempt, &mut measured).await?;
        }
        for attempt in PREEMPTIONS + 1..=PREEMPTIONS + EXITS {
            exit(dev, attempt, &mut measured).await?;
        }
        cancel(dev, PREEMPTIONS + EXITS + 1, &mut measured).await?;
        say(&format!("reaction: notice to CreateNode {}", measured.create.told()));
        for (what, spans) in [("notice", &measured.notice), ("exit", &measured.exit), ("cancel", &measured.cancel)] {
            say(&format!("reaction: {what} to SIGTERM on all workers {}", spans.told()));
        }
        Ok(())
    })
    .await
}
