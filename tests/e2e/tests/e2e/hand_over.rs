//! The hand-over of one slice to the next, at real speed, and the rule that no second copy runs before the first one's
//! slice is proved gone.

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use rekindle_e2e::{Call, Dev, Mark, Options, all, part, scenario};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::jobs::{WORKERS, counting, node_of};

/// A counting job of four workers that may go to one of two zones.
async fn submit(dev: &Dev, id: &str, zones: [&str; 2], env: &Value) -> Result<Value> {
    let mut spec = counting(dev, id, WORKERS)?;
    spec["tpu"]["zones"] = json!(zones);
    spec["env"] = env.clone();
    dev.submit(&spec).await?;
    dev.step(id, 1, 5).await
}

async fn calls_of(dev: &Dev, method: &str, resource: &str) -> Result<Vec<Call>> {
    Ok(dev.cloud.calls(&[method]).await?.into_iter().filter(|call| call.names(resource)).collect())
}

/// The first look after the delete that found nothing.
async fn proved_gone(dev: &Dev, resource: &str) -> Result<Timestamp> {
    let looks = calls_of(dev, "GetNode", resource).await?;
    let deletes = calls_of(dev, "DeleteNode", resource).await?;
    let deleted = deletes.first().context("no delete")?;
    let gone = looks.iter().find(|look| look.seq > deleted.seq && look.status == 404);
    Ok(gone.context("no look found nothing")?.answered_at())
}

/// With quota for one slice alone: the delete waits for the workers, the create for the 404, and nothing is held against
/// the zone.
async fn with_quota_for_one(dev: &Dev, id: &str, zones: [&str; 2], stays: bool) -> Result<()> {
    dev.cloud.zone(zones[0], &json!({"quota": {"v5litepod": 16}})).await?;
    let env = if stays { json!({"STAY": "1"}) } else { json!({}) };
    let job = submit(dev, id, zones, &env).await?;
    let (noticed, off) = dev.cloud.preempt(&node_of(&job)?, if stays { "5s" } else { "30s" }, "PREEMPTED").await?;
    let job = dev.step(id, 2, 1).await?;
    ensure!(job["resources"][0]["zone"] == zones[0] && job["generation"] == 2, "{}", job["resources"]);
    let counters = &job["counters"];
    ensure!(counters["stockouts"] == 0 && counters["preemptions"] == 1, "{counters}");

    let (first, second) = (format!("{id}-g1"), format!("{id}-g2"));
    let deleted = calls_of(dev, "DeleteNode", &first).await?.first().context("no delete")?.at;
    let ended = dev.ledger(id)?.of(1, Mark::Stop)?;
    if stays {
        ensure!(ended.is_empty() && deleted >= off, "deleted at {deleted}, before the notice was over at {off}");
    } else {
        let last = ended.iter().map(|stop| stop.at).max().context("no end")?;
        ensure!(ended.len() == WORKERS as usize && deleted >= last, "deleted at {deleted}, while saving until {last}");
        ensure!(deleted < off, "the delete waited for the notice, which ends at {off}");
    }
    let gone = proved_gone(dev, &first).await?;
    let creates = calls_of(dev, "CreateNode", &second).await?;
    let accepted = creates.iter().find(|call| call.status == 200).context("no create was accepted")?;
    let after = accepted.at.duration_since(gone);
    let elsewhere = creates.iter().filter(|call| !call.path.contains(&format!("/{}/", zones[0]))).count();
    ensure!(elsewhere == 0, "another zone was tried: {creates:?}");
    let refused = creates.len() - 1;
    rekindle_e2e::say(&format!(
        "hand-over {id}: notice to DELETE {} ms, 404 to CreateNode {} ms, refused by quota before {refused}",
        deleted.duration_since(noticed).as_millis(),
        after.as_millis(),
    ));
    dev.ledger(id)?.finish(0)?;
    dev.phase(id, "succeeded").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_quota_for_one_slice_the_next_follows_at_once_in_the_same_zone() -> Result<()> {
    scenario("hand-over", Options::speed(1.0), async |dev| {
        let dev = &*dev;
        all(vec![
            part("workers that leave", with_quota_for_one(dev, "leaving", ["us-central1-a", "us-west4-a"], false)),
            part("workers that stay", with_quota_for_one(dev, "staying", ["us-west1-c", "us-south1-a"], true)),
        ])
        .await
    })
    .await
}

/// Its agent stands still and reports nothing, its program runs on, and the API says READY.
#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_is_cut_off_is_never_doubled() -> Result<()> {
    // The hard limit of silence is 15 s at this speed.
    scenario("cut off", Options::speed(60.0), async |dev| {
        let id = "alone";
        let job = submit(dev, id, ["us-central1-a", "us-west4-a"], &json!({})).await?;
        let node = dev.cloud.node(&node_of(&job)?).await?.context("no node")?;
        let address = node["workers"][2]["ip"].as_str().context("no address")?.to_owned();
        let is_agent = |process: &&rekindle_e2e::processes::Process| {
            let host = process.variable("GCE_METADATA_HOST").unwrap_or_default();
            process.arguments.contains("__agent") && host.starts_with(&format!("{address}:"))
        };
        let agents: Vec<_> = dev.workers().into_iter().filter(|process| is_agent(&process)).collect();
        ensure!(!agents.is_empty(), "no agent of {address}");
        for agent in &agents {
            agent.signal(Signal::STOP);
        }
        let job = dev.step(id, 2, 1).await?;
        ensure!(job["generation"] == 2, "generation {}", job["generation"]);
        let gone = proved_gone(dev, &format!("{id}-g1")).await?;
        let again = dev.ledger(id)?.of(2, Mark::Start)?;
        let first = again.iter().map(|start| start.at).min().context("no start")?;
        ensure!(first >= gone, "attempt 2 began at {first}, the slice was proved gone at {gone}");
        // Nobody could tell it to stop, and it was not: its machine was taken from under it.
        let told = dev.ledger(id)?.of(1, Mark::Term)?;
        ensure!(told.iter().all(|term| term.worker != 2), "{told:?}");
        dev.ledger(id)?.finish(0)?;
        dev.phase(id, "succeeded").await.map(drop)
    })
    .await
}

/// Two slices exist only while the first one is on its way out.
#[tokio::test(flavor = "multi_thread")]
async fn with_quota_to_spare_the_next_slice_is_made_during_the_notice() -> Result<()> {
    scenario("overlap", Options::speed(2.0), async |dev| {
        let id = "overlap";
        // The programs save until they are killed.
        let job = submit(dev, id, ["us-central1-a", "us-west4-a"], &json!({"STAY": "1"})).await?;
        dev.cloud.preempt(&node_of(&job)?, "30s", "PREEMPTED").await?;
        // That the next attempt began only after them is in the record.
        dev.step(id, 2, 1).await?;
        let created = calls_of(dev, "CreateNode", &format!("{id}-g2")).await?;
        let deleted = calls_of(dev, "DeleteNode", &format!("{id}-g1")).await?;
        let (created, deleted) = (created.first().context("no create")?, deleted.first().context("no delete")?);
        ensure!(created.at < deleted.at, "created at {}, deleted at {}: one after the other", created.at, deleted.at);
        dev.ledger(id)?.finish(0)?;
        dev.phase(id, "succeeded").await.map(drop)
    })
    .await
}
