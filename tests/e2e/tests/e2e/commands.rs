//! What people tell a job: cancel in every phase, pause, unpause, restart.

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::{Dev, LONG, Mark, Options, all, part, scenario, until};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::jobs::{counting, node_of};

const ONE: &str = "v5litepod-4";

/// A counting job of one worker in a zone of its own.
async fn submit(dev: &Dev, id: &str, zone: &str, more: &Value) -> Result<()> {
    let mut spec = counting(dev, id, 1)?;
    spec["tpu"] = json!({"accelerator": ONE, "capacity": "spot", "zones": [zone]});
    for (name, value) in more.as_object().into_iter().flatten() {
        if let (Some(fields), Some(known)) = (value.as_object(), spec[name].as_object_mut()) {
            known.extend(fields.clone());
        } else {
            spec[name] = value.clone();
        }
    }
    dev.submit(&spec).await
}

/// Cancels, and sees to it that `Cancelled` comes after the last resource is gone, and not before.
async fn cancels(dev: &Dev, id: &str) -> Result<()> {
    dev.command(id, "cancel", &json!({})).await?;
    let again = dev.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).await?;
    ensure!(again.status == StatusCode::OK, "a second cancel: {}", again.status);
    until(&format!("{id} is cancelled"), LONG, async || {
        let job = dev.job(id).await?;
        let known = job["outcome"] == "cancelled" || job["outcome"].is_null();
        ensure!(job["desired"] == "cancel" && known, "{id}: outcome {} of phase {}", job["outcome"], job["phase"]);
        let left: Vec<String> = dev.cloud.resources().await?.into_iter().filter(|r| r.contains(id)).collect();
        // The job was read first: what is left now was left then.
        ensure!(job["phase"] != "cancelled" || left.is_empty(), "{id} is cancelled and has {left:?}");
        Ok((job["phase"] == "cancelled").then_some(()))
    })
    .await?;
    let job = dev.job(id).await?;
    ensure!(job["resources"] == json!([]), "{}", job["resources"]);
    Ok(())
}

async fn pending(dev: &Dev) -> Result<()> {
    let zone = "us-west1-c";
    dev.cloud.zone(zone, &json!({"capacity": {"v5litepod": 0}})).await?;
    submit(dev, "pending", zone, &json!({})).await?;
    dev.job_until("pending", "no capacity", |job| job["phase"] == "pending" && job["reason"] == "stockout").await?;
    cancels(dev, "pending").await
}

/// In the provider's queue, with a queued resource to be deleted.
async fn queued(dev: &Dev) -> Result<()> {
    submit(dev, "queued", "us-west1-c", &json!({"tpu": {"queued": "always"}})).await?;
    dev.job_until("queued", "waits in the queue", |job| job["reason"] == "in_provider_queue").await?;
    cancels(dev, "queued").await
}

async fn provisioning(dev: &Dev) -> Result<()> {
    let zone = "us-south1-a";
    dev.cloud.zone(zone, &json!({"create_latency": "30m"})).await?;
    submit(dev, "making", zone, &json!({})).await?;
    dev.job_until("making", "is being made", |job| job["reason"] == "creating").await?;
    cancels(dev, "making").await
}

/// The create is on the wire: its answer comes late, and says nothing of the success.
async fn in_flight(dev: &Dev) -> Result<()> {
    let zone = "us-west4-a";
    let fault = json!({"method": "CreateNode", "zone": zone, "status": 503, "when": "after", "delay": "60s"});
    dev.cloud.fault(&fault).await?;
    submit(dev, "flying", zone, &json!({})).await?;
    until("the create has arrived", LONG, async || {
        Ok(dev.cloud.resources().await?.iter().any(|name| name.contains("flying")).then_some(()))
    })
    .await?;
    cancels(dev, "flying").await?;
    ensure!(dev.ledger("flying")?.attempts()?.is_empty(), "its program was started");
    Ok(())
}

async fn starting(dev: &Dev) -> Result<()> {
    submit(dev, "preparing", "us-central1-a", &json!({"setup": "sleep 100000"})).await?;
    dev.job_until("preparing", "prepares", |job| job["phase"] == "starting" && job["reason"] == "workers_preparing")
        .await?;
    cancels(dev, "preparing").await
}

async fn running(dev: &Dev) -> Result<()> {
    submit(dev, "running", "us-central1-a", &json!({})).await?;
    dev.step("running", 1, 3).await?;
    cancels(dev, "running").await?;
    let (terms, stops) = (dev.ledger("running")?.of(1, Mark::Term)?, dev.ledger("running")?.of(1, Mark::Stop)?);
    ensure!(terms.len() == 1 && stops.iter().all(|stop| stop.detail == "143"), "{terms:?} {stops:?}");
    Ok(())
}

/// A program that does not end by itself is killed when `stop_grace` is over, also when a pause came first.
async fn stubborn(dev: &Dev, pause_first: bool) -> Result<()> {
    let id = if pause_first { "pausing" } else { "stubborn" };
    let more = json!({"env": {"STAY": "1"}, "limits": {"stop_grace": "2s"}});
    submit(dev, id, "us-central1-a", &more).await?;
    dev.step(id, 1, 3).await?;
    if pause_first {
        dev.command(id, "pause", &json!({})).await?;
        dev.phase(id, "stopping").await?;
    }
    cancels(dev, id).await
}

async fn recovering(dev: &Dev) -> Result<()> {
    let zone = "europe-west4-a";
    submit(dev, "recovering", zone, &json!({})).await?;
    let job = dev.step("recovering", 1, 3).await?;
    dev.cloud.zone(zone, &json!({"capacity": {"v5litepod": 0}})).await?;
    dev.cloud.preempt(&node_of(&job)?, "0s", "PREEMPTED").await?;
    dev.job_until("recovering", "waits for capacity", |job| {
        job["phase"] == "recovering" && job["reason"] == "stockout"
    })
    .await?;
    cancels(dev, "recovering").await
}

async fn paused(dev: &Dev) -> Result<()> {
    submit(dev, "paused", "us-central1-a", &json!({})).await?;
    dev.step("paused", 1, 3).await?;
    dev.command("paused", "pause", &json!({})).await?;
    dev.phase("paused", "paused").await?;
    cancels(dev, "paused").await
}

async fn deletes_fail(dev: &Dev) -> Result<()> {
    let zone = "europe-west4-b";
    submit(dev, "clinging", zone, &json!({})).await?;
    dev.step("clinging", 1, 3).await?;
    dev.cloud.fault(&json!({"method": "DeleteNode", "zone": zone, "status": 503, "times": 3})).await?;
    dev.cloud.fault(&json!({"method": "DeleteNode", "zone": zone, "status": 429, "times": 1})).await?;
    cancels(dev, "clinging").await?;
    let deletes = dev.cloud.calls(&["DeleteNode"]).await?;
    let failed = deletes.iter().filter(|call| call.names("clinging-g1") && call.status != 200).count();
    ensure!(failed >= 4, "{failed} deletes failed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_ends_a_job_in_every_phase_once_its_last_resource_is_gone() -> Result<()> {
    let slow = json!({"defaults": {"delete_latency": "20s"}});
    scenario("cancel", Options::speed(20.0).scenario(slow), async |dev| {
        let dev = &*dev;
        let others = async {
            all(vec![
                part("pending", pending(dev)),
                part("provisioning", provisioning(dev)),
                part("starting", starting(dev)),
                part("running", running(dev)),
            ])
            .await?;
            all(vec![
                part("queued", queued(dev)),
                part("stubborn", stubborn(dev, false)),
                part("stubborn, while it pauses", stubborn(dev, true)),
            ])
            .await?;
            all(vec![
                part("recovering", recovering(dev)),
                part("paused", paused(dev)),
                part("deletes fail", deletes_fail(dev)),
            ])
            .await
        };
        // A create whose answer was lost may be on its way for 35 s: the others go on beside it.
        all(vec![part("a create in flight", in_flight(dev)), part("the others", others)]).await
    })
    .await
}

/// The starts of one attempt say all of this.
fn started(dev: &Dev, id: &str, attempt: u32, said: &[&str]) -> Result<()> {
    let starts = dev.ledger(id)?.of(attempt, Mark::Start)?;
    let as_due = starts.iter().all(|start| said.iter().all(|word| start.detail.split(' ').any(|had| had == *word)));
    ensure!(starts.len() == 4 && as_due, "attempt {attempt}: {starts:?}, not {said:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pause_unpause_and_restart_keep_what_they_promise() -> Result<()> {
    scenario("pause and restart", Options::speed(20.0), async |dev| {
        let id = "steered";
        dev.submit(&counting(dev, id, 4)?).await?;
        let before = dev.step(id, 1, 5).await?["progress"]["step"].as_u64().context("a step")?;
        dev.command(id, "pause", &json!({})).await?;
        let job = dev.phase(id, "paused").await?;
        ensure!(job["resources"] == json!([]) && dev.cloud.resources().await?.is_empty(), "paused, and owns something");
        let no = dev.post(&format!("/v1/jobs/{id}/unpause"), &json!({"if_attempt": 7})).await?;
        ensure!(no.status == StatusCode::CONFLICT, "another attempt was meant: {}", no.status);
        dev.command(id, "unpause", &json!({})).await?;
        dev.step(id, 2, before + 5).await?;
        started(dev, id, 2, &["generation=2", "resume=1", "stage=1", "line=0"])?;

        dev.command(id, "restart", &json!({})).await?;
        dev.step(id, 3, before + 10).await?;
        started(dev, id, 3, &["generation=2", "resume=1", "line=0"])?;

        dev.command(id, "restart", &json!({"new_slice": true})).await?;
        dev.step(id, 4, before + 15).await?;
        started(dev, id, 4, &["generation=3", "resume=1", "line=0"])?;

        dev.command(id, "restart", &json!({"from_scratch": true})).await?;
        dev.job_until(id, "attempt 5 runs", |job| job["attempt"] == 5 && job["phase"] == "running").await?;
        started(dev, id, 5, &["generation=3", "resume=0", "line=1"])?;
        dev.ledger(id)?.finish(0)?;
        let job = dev.phase(id, "succeeded").await?;
        let failures = ["preemptions", "infra_failures", "user_failures"];
        ensure!(failures.iter().all(|name| job["counters"][name] == 0), "charged for it: {}", job["counters"]);
        let late = dev.post(&format!("/v1/jobs/{id}/cancel"), &json!({})).await?;
        ensure!(late.status == StatusCode::CONFLICT, "a cancel after the end: {}", late.status);
        Ok(())
    })
    .await
}
