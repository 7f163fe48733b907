//! Every way a slice can be lost is recovered, and the run ends with the parameters of an undisturbed one.

use anyhow::{Result, ensure};
use rekindle_e2e::{Dev, Mark, Options, all, part, scenario, until};
use serde_json::{Value, json};

use super::jobs::{self, SEED, node_of, training};

/// Attempt 1 runs and has saved a checkpoint.
async fn running(dev: &Dev, id: &str) -> Result<Value> {
    dev.submit(&training(dev, id)?).await?;
    dev.step(id, 1, jobs::CHECKPOINT_EVERY + 2).await
}

/// The job succeeds after one loss, with the parameters of an undisturbed run and the charge that is due.
async fn recovers(dev: &Dev, id: &str, generations: u32, charge: &str) -> Result<Value> {
    let job = dev.phase(id, "succeeded").await?;
    ensure!(job["generation"] == generations, "{} generations, not {generations}", job["generation"]);
    ensure!(job["attempt"] == 2, "{} attempts, not 2", job["attempt"]);
    let sum = ["preemptions", "infra_failures", "user_failures"].map(|name| job["counters"][name].as_u64());
    ensure!(job["counters"][charge] == 1 && sum.iter().flatten().sum::<u64>() == 1, "charged {}", job["counters"]);
    let resumed = dev.ledger(id)?.of(2, Mark::Start)?;
    ensure!(resumed.iter().all(|start| start.detail.contains("resume=1")), "did not resume: {resumed:?}");
    jobs::same_end(dev, id)?;
    Ok(job)
}

async fn preempted(dev: &Dev, leave: &str, notice: &str) -> Result<()> {
    let id = format!("{}-{notice}", leave.to_lowercase());
    let job = running(dev, &id).await?;
    dev.cloud.preempt(&node_of(&job)?, notice, leave).await?;
    recovers(dev, &id, 2, "preemptions").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preempted_slice_is_replaced_whatever_is_left_of_it() -> Result<()> {
    scenario("losses: preemptions", Options::speed(20.0), async |dev| {
        let dev = &*dev;
        for leave in ["PREEMPTED", "TERMINATED", "STOPPED", "GONE"] {
            all(vec![
                part(&format!("{leave} with notice"), preempted(dev, leave, "30s")),
                part(&format!("{leave} at once"), preempted(dev, leave, "0s")),
            ])
            .await?;
        }
        // It still says READY, but the notice was heard.
        preempted(dev, "READY", "30s").await
    })
    .await
}

/// Nothing lives on any VM and the API says READY: the hard limit of silence.
async fn ready_though_dead(dev: &Dev) -> Result<()> {
    let job = running(dev, "dead").await?;
    let node = node_of(&job)?;
    let orders: Vec<Value> = (0..jobs::WORKERS).map(|worker| json!({"worker": worker})).collect();
    let kills = orders.iter().map(|order| dev.cloud.act(&node, "kill-worker", order));
    futures::future::try_join_all(kills).await?;
    recovers(dev, "dead", 2, "infra_failures").await.map(drop)
}

/// The VMs go without a word, and the API goes on saying READY.
async fn ready_though_gone(dev: &Dev) -> Result<()> {
    let job = running(dev, "gone").await?;
    let node = node_of(&job)?;
    dev.cloud.preempt(&node, "0s", "READY").await?;
    let shown = dev.cloud.node(&node).await?;
    ensure!(shown.is_some_and(|node| node["state"] == "READY"), "{node} does not read READY");
    let job = dev.phase("gone", "succeeded").await?;
    ensure!(job["generation"] == 2 && job["attempt"] == 2, "{job}");
    // Whether a worker could still tell of its notice is a race that nobody has to win.
    let counters = &job["counters"];
    ensure!(counters["preemptions"].as_u64() <= Some(1) && counters["user_failures"] == 0, "{counters}");
    jobs::same_end(dev, "gone")
}

/// A worker whose processes all vanish, its VM staying; the others fail for want of it.
async fn worker_killed(dev: &Dev, worker: u32) -> Result<()> {
    let id = format!("killed-{worker}");
    let job = running(dev, &id).await?;
    dev.cloud.act(&node_of(&job)?, "kill-worker", &json!({"worker": worker})).await?;
    recovers(dev, &id, 2, "infra_failures").await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_a_loss_although_the_api_says_ready() -> Result<()> {
    // The hard limit of silence is 15 s at this speed.
    scenario("losses: silence", Options::speed(60.0), async |dev| {
        let dev = &*dev;
        all(vec![
            part("all dead", ready_though_dead(dev)),
            part("all gone", ready_though_gone(dev)),
            part("worker 0 killed", worker_killed(dev, 0)),
            part("worker 2 killed", worker_killed(dev, 2)),
        ])
        .await
    })
    .await
}

/// All VMs go off at once and come back with new boot ids.
async fn host_error(dev: &Dev, recovers_there: bool) -> Result<()> {
    let id = if recovers_there { "repaired" } else { "broken" };
    let job = running(dev, id).await?;
    let order = json!({"worker": 1, "repair": "10s", "recovers": recovers_there});
    dev.cloud.act(&node_of(&job)?, "host-error", &order).await?;
    let job = dev.phase(id, "succeeded").await?;
    let generations = job["generation"].as_u64();
    // A repair may be over before the silence is long enough, or not.
    ensure!(generations == Some(2) || (recovers_there && generations == Some(1)), "{generations:?} generations");
    ensure!(job["attempt"] == 2, "{} attempts", job["attempt"]);
    jobs::same_end(dev, id)
}

async fn maintenance(dev: &Dev) -> Result<()> {
    let job = running(dev, "maintenance").await?;
    dev.cloud.act(&node_of(&job)?, "maintenance", &json!({"in": "20s", "notice": "60s"})).await?;
    recovers(dev, "maintenance", 2, "preemptions").await.map(drop)
}

/// The machines are moved while they run: shown, and nothing else.
async fn migration(dev: &Dev) -> Result<()> {
    let id = "moved";
    dev.submit(&jobs::counting(dev, id, jobs::WORKERS)?).await?;
    let node = node_of(&dev.step(id, 1, 3).await?)?;
    let order = json!({"in": "30s", "duration": "40s", "event": "MIGRATE_ON_HOST_MAINTENANCE"});
    dev.cloud.act(&node, "maintenance", &order).await?;
    let health = async || Ok::<_, anyhow::Error>(dev.cloud.node(&node).await?.map(|node| node["health"].clone()));
    for (what, due) in [("the window begins", "UNHEALTHY_MAINTENANCE"), ("the window is over", "HEALTHY")] {
        until(what, rekindle_e2e::LONG, async || Ok((health().await? == Some(json!(due))).then_some(()))).await?;
    }
    until("it is told", rekindle_e2e::LONG, async || {
        let history = dev.history(id).await?;
        Ok(history.iter().any(|entry| entry.to_string().contains("migration")).then_some(()))
    })
    .await?;
    let step = dev.job(id).await?["progress"]["step"].as_u64().unwrap_or(0);
    dev.step(id, 1, step + 5).await?;
    dev.ledger(id)?.finish(0)?;
    let job = dev.phase(id, "succeeded").await?;
    ensure!(job["generation"] == 1 && job["attempt"] == 1, "{job}");
    let sum = ["preemptions", "infra_failures", "user_failures"].map(|name| job["counters"][name].as_u64());
    ensure!(sum.iter().flatten().sum::<u64>() == 0, "charged {}", job["counters"]);
    ensure!(dev.ledger(id)?.of(1, Mark::Term)?.is_empty(), "its program was told to end");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_hosts_and_maintenance_are_survived() -> Result<()> {
    scenario("losses: hosts", Options::speed(20.0), async |dev| {
        let dev = &*dev;
        all(vec![
            part("a host that is repaired", host_error(dev, true)),
            part("a host that is not", host_error(dev, false)),
            part("maintenance", maintenance(dev)),
            part("a migration", migration(dev)),
        ])
        .await
    })
    .await
}

/// The provider takes the node of a queued resource and suspends the request.
async fn suspended(dev: &Dev, notice: &str) -> Result<()> {
    let id = format!("suspended-{notice}");
    let mut spec = training(dev, &id)?;
    spec["tpu"]["queued"] = json!("always");
    dev.submit(&spec).await?;
    let job = dev.step(&id, 1, jobs::CHECKPOINT_EVERY + 2).await?;
    ensure!(job["resources"][0]["kind"] == "queued_resource", "{}", job["resources"]);
    let resource = node_of(&job)?;
    let nodes = dev.cloud.nodes().await?;
    let name = |node: &Value| node["name"].as_str().and_then(|name| name.rsplit('/').next()).map(str::to_owned);
    let node = nodes.iter().filter_map(name).find(|name| name.starts_with(&resource));
    let Some(node) = node else { anyhow::bail!("no node of {resource} among {nodes:?}") };
    dev.cloud.preempt(&node, notice, "PREEMPTED").await?;
    recovers(dev, &id, 2, "preemptions").await.map(drop)
}

/// Taken away before it was ever READY.
async fn preempted_while_creating(dev: &Dev) -> Result<()> {
    let zone = "us-south1-a";
    dev.cloud.zone(zone, &json!({"create_latency": "10m"})).await?;
    let mut spec = training(dev, "early")?;
    spec["tpu"]["zones"] = json!([zone]);
    dev.submit(&spec).await?;
    let job = dev.job_until("early", "the create is on its way", |job| job["reason"] == "creating").await?;
    dev.cloud.zone(zone, &json!({"create_latency": "2s"})).await?;
    dev.cloud.preempt(&node_of(&job)?, "0s", "PREEMPTED").await?;
    let job = dev.phase("early", "succeeded").await?;
    ensure!(job["counters"]["preemptions"] == 1, "{}", job["counters"]);
    jobs::same_end(dev, "early")
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_slices_and_slices_in_the_making_are_replaced() -> Result<()> {
    scenario("losses: queued, creating", Options::speed(20.0), async |dev| {
        let dev = &*dev;
        all(vec![
            part("suspended with notice", suspended(dev, "30s")),
            part("suspended at once", suspended(dev, "0s")),
            part("preempted while creating", preempted_while_creating(dev)),
        ])
        .await
    })
    .await
}

/// A short job of one worker that may go to one zone, then to another.
fn short(dev: &Dev, id: &str, zones: &[&str]) -> Result<Value> {
    let run = dev.ledger(id)?.run(&dev.trainer(5, "1", 5, SEED));
    let accelerator = if zones.contains(&"us-east1-d") { "v6e-4" } else { "v5litepod-4" };
    let tpu = json!({"accelerator": accelerator, "capacity": "spot", "zones": zones});
    Ok(json!({"id": id, "run": run, "tpu": tpu}))
}

/// The first zone does not make it; the second one does.
async fn elsewhere(dev: &Dev, id: &str, zones: [&str; 2], fault: Value) -> Result<()> {
    if let Some(settings) = fault.get("zone_settings") {
        dev.cloud.zone(zones[0], settings).await?;
    } else {
        dev.cloud.fault(&fault).await?;
    }
    dev.submit(&short(dev, id, &zones)?).await?;
    let job = dev.phase(id, "succeeded").await?;
    let name = format!("{id}-g1");
    let mut tried: Vec<String> = dev.cloud.creates_of(&name).await?.into_iter().map(|call| call.path).collect();
    // One whose answer takes long is sent again, and refused by name.
    tried.dedup();
    let is_in = |path: &String, zone: &str| path.contains(&format!("/{zone}/"));
    let as_due = tried.len() == 2 && is_in(&tried[0], zones[0]) && is_in(&tried[1], zones[1]);
    ensure!(as_due, "creates went to {tried:?}");
    let failures = ["preemptions", "infra_failures", "user_failures"];
    ensure!(failures.iter().all(|name| job["counters"][name] == 0), "charged for it: {}", job["counters"]);
    Ok(())
}

/// The first zone is asked again, since nothing speaks against it.
async fn there_again(dev: &Dev, id: &str, zones: [&str; 2], fault: Value) -> Result<()> {
    dev.cloud.fault(&fault).await?;
    dev.submit(&short(dev, id, &zones)?).await?;
    dev.phase(id, "succeeded").await?;
    let calls = dev.cloud.creates_of(&format!("{id}-g1")).await?;
    let elsewhere = calls.iter().filter(|call| !call.path.contains(&format!("/{}/", zones[0]))).count();
    // Where the lost answer hid a success, a look may show it before the next create is refused by name.
    ensure!(elsewhere == 0 && !calls.is_empty() && calls[0].status != 200, "creates: {calls:?}");
    ensure!(dev.ledger(id)?.attempts()?.len() == 1, "more than one attempt");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_fails_goes_elsewhere_or_comes_again() -> Result<()> {
    scenario("losses: creates", Options::speed(20.0), async |dev| {
        let dev = &*dev;
        let there = "us-central1-a";
        let rate = "Quota exceeded for quota metric 'Create requests' and limit 'Create requests per minute' of service \
                    'tpu.googleapis.com' for consumer 'project_number:1'.";
        let fault = |zone: &str, status: u16, when: &str| {
            json!({"method": "CreateNode", "zone": zone, "status": status, "when": when})
        };
        let mut limited = fault("us-west4-a", 429, "before");
        limited["message"] = json!(rate);
        let mut hidden = fault("us-south1-a", 503, "operation");
        hidden["code"] = json!(13);
        let none = json!({"zone_settings": {"capacity": {"v5litepod": 0}}});
        let quota = json!({"zone_settings": {"quota": {"v5litepod": 0}}});
        let denied = json!({"zone_settings": {"denied": true}});
        all(vec![
            part("stockout", elsewhere(dev, "stockout", ["us-west1-c", there], none)),
            part("quota", elsewhere(dev, "quota", ["asia-southeast1-b", there], quota)),
            part("hidden", elsewhere(dev, "hidden", ["us-south1-a", there], hidden)),
            part("denied", elsewhere(dev, "denied", ["us-east1-d", "us-central1-b"], denied)),
            part("rate", there_again(dev, "rate", ["us-west4-a", there], limited)),
            part("before", there_again(dev, "before", ["europe-west4-a", there], fault("europe-west4-a", 503, "before"))),
            part("after", there_again(dev, "after", ["europe-west4-b", there], fault("europe-west4-b", 503, "after"))),
        ])
        .await?;
        until("all faults have struck", rekindle_e2e::LONG, async || {
            Ok((dev.cloud.faults_left().await? == 0).then_some(()))
        })
        .await
    })
    .await
}
