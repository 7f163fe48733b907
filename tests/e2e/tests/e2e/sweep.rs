//! What is ours and owned by nobody is deleted by the tick; what is not ours is never touched.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::{Dev, LONG, Options, holds, scenario, until};
use reqwest::Method;
use serde_json::{Value, json};

use super::jobs::counting;

/// Divides the orphan's grace of 10 minutes to 10 s, and the tick's minute to 1 s.
const SPEED: f64 = 60.0;
const GRACE: Duration = Duration::from_secs(10);
const ZONE: &str = "us-west4-a";

pub(crate) async fn installation(dev: &Dev) -> Result<String> {
    let version = dev.get("/version").await?;
    Ok(version["installation"].as_str().context("no installation")?.to_owned())
}

pub(crate) fn labels(installation: &str, job: &str) -> Value {
    json!({
        "rekindle-installation": installation, "rekindle-job": job, "rekindle-generation": "1",
        "rekindle-spec": "0123456789abcdef",
    })
}

/// A node that some client of the Cloud TPU API makes.
pub(crate) async fn make(dev: &Dev, name: &str, labels: &Value) -> Result<()> {
    let parent = format!("v2/projects/rekindle-dev/locations/{ZONE}/nodes");
    let node = json!({
        "acceleratorType": "v5litepod-4", "runtimeVersion": "v2-alpha-tpuv5-lite", "labels": labels,
        "schedulingConfig": {"spot": true},
    });
    dev.cloud.call(Method::POST, &format!("{parent}?nodeId={name}"), Some(&node)).await.map(drop)
}

async fn unmake(dev: &Dev, name: &str) -> Result<()> {
    let node = dev.cloud.node(&format!("/{name}")).await?.with_context(|| format!("{name} is gone"))?;
    let path = node["name"].as_str().context("no name")?;
    dev.cloud.call(Method::DELETE, &format!("v2/{path}"), None).await.map(drop)
}

/// Paths of the resources that anybody but this test has deleted.
async fn deleted(dev: &Dev) -> Result<Vec<String>> {
    let calls = dev.cloud.calls(&["DeleteNode", "DeleteQueuedResource"]).await?;
    Ok(calls.into_iter().filter_map(|call| call.path.rsplit('/').next().map(str::to_owned)).collect())
}

/// Waits for the sweep of an orphan, and sees to it that nothing else is deleted until then and for some ticks after.
async fn only_the_orphan_goes(dev: &Dev, orphan: &str, made: Instant) -> Result<()> {
    let only = async || -> Result<bool> {
        let gone = deleted(dev).await?;
        ensure!(gone.iter().all(|name| name == orphan), "deleted: {gone:?}");
        Ok(!gone.is_empty())
    };
    until("the orphan is swept", LONG, async || Ok(only().await?.then_some(()))).await?;
    let age = made.elapsed();
    ensure!(age >= GRACE, "it was deleted at the age of {age:?}");
    // Some ticks more.
    holds(Duration::from_secs(4), async || only().await.map(drop)).await
}

/// What is not ours, under names that look as if it were.
async fn strangers(dev: &Dev, ours: &str) -> Result<Vec<String>> {
    let other = if ours == "zzzzzz" { "yyyyyy" } else { "zzzzzz" };
    let strangers = [
        // Another installation of Rekindle in the same project.
        (format!("rk-{other}-neighbour-g1"), labels(other, "neighbour")),
        // The name of an orphan of ours, made by somebody else.
        (format!("rk-{ours}-looksour-g1"), json!({})),
        (format!("rk-{ours}-halfours-g1"), labels(other, "halfours")),
        // Our label on a name that we never give.
        ("my-own-node".to_owned(), labels(ours, "my")),
        // The very name that the next job needs.
        (format!("rk-{ours}-taken-g1"), json!({"team": "vision"})),
    ];
    for (name, labels) in &strangers {
        make(dev, name, labels).await?;
    }
    Ok(strangers.into_iter().map(|(name, _)| name).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_are_swept_and_strangers_are_not() -> Result<()> {
    scenario("sweep", Options::speed(SPEED), async |dev| {
        let ours = installation(dev).await?;
        dev.submit(&counting(dev, "owner", 1)?).await?;
        let strangers = strangers(dev, &ours).await?;
        let mut taken = counting(dev, "taken", 1)?;
        taken["tpu"]["zones"] = json!([ZONE]);
        dev.submit(&taken).await?;
        dev.step("owner", 1, 1).await?;
        let orphan = format!("rk-{ours}-ghost-g1");
        let made = Instant::now();
        make(dev, &orphan, &labels(&ours, "ghost")).await?;
        let fleet = dev.get("/v1/fleet").await?;
        let owner = |name: &str| {
            let found = fleet["resources"].as_array().and_then(|all| all.iter().find(|entry| entry["name"] == name));
            found.map(|entry| entry["owner"].clone()).unwrap_or_default()
        };
        ensure!(owner(&orphan) == "ORPHAN" && owner(&format!("rk-{ours}-owner-g1")) == "owner", "{fleet}");
        ensure!(strangers.iter().all(|name| owner(name) == "FOREIGN"), "{fleet}");
        only_the_orphan_goes(dev, &orphan, made).await?;
        // Under its next name, beside the stranger that has the first one.
        let job = dev.phase("taken", "running").await?;
        ensure!(job["resources"][0]["name"] == format!("rk-{ours}-taken-g2").as_str(), "{job}");
        dev.command("taken", "cancel", &json!({})).await?;
        dev.phase("taken", "cancelled").await?;
        dev.ledger("owner")?.finish(0)?;
        dev.phase("owner", "succeeded").await?;
        for name in &strangers {
            unmake(dev, name).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_was_lost_deletes_nothing() -> Result<()> {
    scenario("empty store", Options::speed(SPEED), async |dev| {
        let before = installation(dev).await?;
        for id in ["alive-1", "alive-2"] {
            dev.submit(&counting(dev, id, 1)?).await?;
        }
        for id in ["alive-1", "alive-2"] {
            dev.step(id, 1, 1).await?;
        }
        let live = dev.cloud.resources().await?;
        dev.stop().await?;
        // One that is gone is refused beside what belongs to it: somebody has put another's in its place.
        let mut other = Dev::start(Options::speed(SPEED)).await?;
        other.stop().await?;
        std::fs::copy(other.state().join("store.redb"), dev.state().join("store.redb"))?;
        dev.launch().await?;
        let after = installation(dev).await?;
        ensure!(before != after, "the same installation, {before}, on another store");
        let orphan = format!("rk-{after}-ghost-g1");
        let made = Instant::now();
        make(dev, &orphan, &labels(&after, "ghost")).await?;
        only_the_orphan_goes(dev, &orphan, made).await?;
        let left = dev.cloud.resources().await?;
        ensure!(live.len() == 2 && live.iter().all(|name| left.contains(name)), "{live:?}, then {left:?}");
        for name in &live {
            unmake(dev, name).await?;
        }
        Ok(())
    })
    .await
}
