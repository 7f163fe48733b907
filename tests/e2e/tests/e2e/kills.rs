//! `kill -9` of everything that is not a worker, at seeded moments: every job goes on, none is doubled, nothing leaks.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rekindle_e2e::{Dev, LONG, Options, holds, random_seed, say, scenario, until};
use serde_json::{Value, json};

use super::jobs::{self, counting, node_of, training_slow};

/// Kills where nobody asks for more.
const KILLS: u32 = 8;
/// Jobs at the same time.
const JOBS: usize = 2;
/// Longest time between two kills, in milliseconds.
const PAUSE_MAX: u64 = 3_000;
/// Share of starts that are killed before they are over, and longest time until then, in milliseconds.
const KILLED_WHILE_STARTING: f64 = 0.2;
const STARTING_MAX: u64 = 600;

/// What the test has submitted and not yet seen ending.
#[derive(Default)]
struct Jobs {
    count: u32,
    live: Vec<String>,
}

impl Jobs {
    /// Ends those that have ended, and submits others for them.
    async fn refill(&mut self, dev: &Dev) -> Result<()> {
        let mut live = Vec::new();
        for id in std::mem::take(&mut self.live) {
            if !ended(dev, &id).await? {
                live.push(id);
            }
        }
        self.live = live;
        while self.live.len() < JOBS {
            self.count += 1;
            let id =
                if self.count % 4 == 2 { format!("leaver-{}", self.count) } else { format!("trainer-{}", self.count) };
            let spec = if id.starts_with("leaver") { leaver(dev, &id)? } else { training_slow(dev, &id, 0)? };
            dev.submit(&spec).await?;
            self.live.push(id);
        }
        Ok(())
    }

    /// No second copy of any of them runs.
    fn check(&self, dev: &Dev) -> Result<()> {
        self.live.iter().try_for_each(|id| dev.ledger(id)?.check())
    }

    /// Preempts the slice of one of them, if it is READY.
    async fn preempt(&self, dev: &Dev, random: &mut ChaCha8Rng) -> Result<bool> {
        let job = dev.job(&self.live[random.random_range(0..self.live.len())]).await?;
        if job["phase"] != "running" {
            return Ok(false);
        }
        let notice = ["0s", "20s", "30s"][random.random_range(0..3)];
        let leave = ["PREEMPTED", "GONE"][random.random_range(0..2)];
        let order = json!({"notice": notice, "leave": leave});
        // It may be lost or leaving already.
        Ok(dev.cloud.act(&node_of(&job)?, "preempt", &order).await.is_ok())
    }
}

/// A program with a grandchild in a session of its own, let go at once: it runs until the next look.
fn leaver(dev: &Dev, id: &str) -> Result<Value> {
    let mut spec = counting(dev, id, 1)?;
    spec["env"] = json!({"GRANDCHILD": "1"});
    Ok(spec)
}

/// True once it has ended, as it should.
async fn ended(dev: &Dev, id: &str) -> Result<bool> {
    let job = dev.job(id).await?;
    let ledger = dev.ledger(id)?;
    ledger.check()?;
    if id.starts_with("leaver") && job["phase"] == "running" && job["progress"]["step"].as_u64() > Some(30) {
        ledger.finish(0)?;
    }
    if !["succeeded", "failed", "cancelled"].contains(&job["phase"].as_str().unwrap_or_default()) {
        return Ok(false);
    }
    ensure!(job["phase"] == "succeeded", "{id} {}: {}", job["phase"], job["message"]);
    if id.starts_with("trainer") {
        jobs::same_end(dev, id)?;
    }
    Ok(true)
}

/// No generation was ever made twice.
async fn made_once(dev: &Dev, made: &mut BTreeMap<String, u32>) -> Result<()> {
    for call in dev.cloud.calls(&["CreateNode"]).await? {
        if call.status == 200 {
            *made.entry(call.query.clone()).or_default() += 1;
        }
    }
    let twice: Vec<_> = made.iter().filter(|(_, times)| **times > 1).collect();
    ensure!(twice.is_empty(), "made more than once: {twice:?}");
    Ok(())
}

async fn survive(dev: &mut Dev, kills: u32, seed: u64) -> Result<()> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let (mut jobs, mut made) = (Jobs::default(), BTreeMap::new());
    let (mut preemptions, mut cut_short) = (0, 0);
    for kill in 1..=kills {
        jobs.refill(dev).await?;
        let pause = random.random_range(0..PAUSE_MAX);
        if random.random_bool(0.3) && jobs.preempt(dev, &mut random).await? {
            preemptions += 1;
        }
        holds(Duration::from_millis(pause), async || jobs.check(dev)).await?;
        made_once(dev, &mut made).await?;
        dev.kill()?;
        // Workers go on without their manager.
        let away = random.random_range(0..500);
        holds(Duration::from_millis(away), async || jobs.check(dev)).await?;
        // Now and then it does not even come up.
        while random.random_bool(KILLED_WHILE_STARTING) {
            let after = Duration::from_millis(random.random_range(0..STARTING_MAX));
            dev.launch_and_kill(after).await.with_context(|| format!("a start cut short after kill {kill}"))?;
            cut_short += 1;
        }
        dev.launch().await.with_context(|| format!("after kill {kill}"))?;
    }
    until("the last jobs end", LONG * 3, async || {
        for id in &jobs.live {
            if !ended(dev, id).await? {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await?;
    say(&format!(
        "kills: {kills} kills, {cut_short} more while it was starting, {preemptions} preemptions, {} jobs, all ended well \
         (seed {seed})",
        jobs.count
    ));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_survive_kill_nine_of_their_manager() -> Result<()> {
    let kills = match std::env::var("REKINDLE_E2E_KILLS") {
        Ok(text) => text.parse().context("REKINDLE_E2E_KILLS")?,
        Err(_) => KILLS,
    };
    let seed = random_seed();
    let run = scenario("kills", Options::speed(20.0), async |dev| survive(dev, kills, seed).await).await;
    run.with_context(|| format!("seed {seed}"))
}

/// Stopped, and started on another port while a stranger has the old one; the program ends well on the slice that it has.
async fn move_away(dev: &mut Dev) -> Result<()> {
    let ledger = dev.ledger("stays")?;
    let tpu = json!({"accelerator": "v5litepod-8", "capacity": "spot"});
    dev.submit(&json!({"id": "stays", "run": ledger.steps(), "tpu": tpu})).await?;
    dev.phase("stays", "running").await?;
    let (first, port) = (dev.url.clone(), dev.port()?);
    dev.stop().await?;
    let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).context("the port of one that has ended")?;
    dev.launch().await?;
    ensure!(dev.url != first, "the port was taken");
    until("the port is named", LONG, async || {
        Ok(dev.log_tail().contains(&format!("port {port}, where")).then_some(()))
    })
    .await?;
    ledger.finish(0)?;
    drop(stranger);
    let job = dev.phase("stays", "succeeded").await?;
    ensure!(job["attempt"] == 1 && job["generation"] == 1, "begun anew: {job}");
    // Without the stranger its workers are heard from the first moment; the others at the port of the second start.
    let second = dev.port()?;
    let ledger = dev.ledger("too")?;
    dev.submit(&json!({"id": "too", "run": ledger.steps(), "tpu": {"accelerator": "v5litepod-8"}})).await?;
    dev.phase("too", "running").await?;
    dev.stop().await?;
    dev.launch_at(port).await?;
    ensure!(dev.port()? == port && second != port, "where it was asked to be");
    ledger.finish(0)?;
    let job = dev.phase("too", "succeeded").await?;
    ensure!(job["attempt"] == 1 && job["generation"] == 1, "begun anew: {job}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_when_its_manager_comes_back_on_another_port() -> Result<()> {
    scenario("another port", Options::speed(10.0), async |dev| move_away(dev).await).await
}
