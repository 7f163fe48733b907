//! The adapters for Google's services, against Google's own emulators, with the real `gcloud` as the person.

use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rekindle_e2e::{Dev, LONG, Options, is_ci, random_seed, say, scenario, until};
use rekindle_fakes::Emulators;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::jobs::{self, node_of, training};

const PROJECT: &str = "rekindle-dev";

/// `gcloud` against the Pub/Sub emulator, with a configuration of its own.
struct Gcloud {
    pubsub: String,
    configuration: tempfile::TempDir,
}

impl Gcloud {
    fn is_there() -> bool {
        let found = Command::new("gcloud").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    }

    async fn run(&self, words: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new("gcloud")
            .args(words)
            .env("CLOUDSDK_CONFIG", self.configuration.path())
            .env("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "true")
            .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB", format!("http://{}/", self.pubsub))
            .env("CLOUDSDK_CORE_PROJECT", PROJECT)
            .env("CLOUDSDK_CORE_DISABLE_PROMPTS", "1")
            .env("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true")
            .env("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true")
            .output()
            .await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "gcloud {words:?}: {}", text(&output.stderr));
        Ok(text(&output.stdout))
    }

    /// Publishes a job message, as a person does; `attributes` may be empty.
    async fn publish(&self, message: &str, attributes: &str) -> Result<()> {
        let (message, attribute) = (format!("--message={message}"), format!("--attribute={attributes}"));
        let mut words = vec!["pubsub", "topics", "publish", "rekindle-jobs", &message];
        if !attributes.is_empty() {
            words.push(&attribute);
        }
        self.run(&words).await.map(drop)
    }

    /// Takes everything out of the dead-letter topic: reasons and payloads.
    async fn dead_letters(&self, http: &reqwest::Client, into: &mut Vec<(Value, String)>) -> Result<()> {
        let name = format!("http://{}/v1/projects/{PROJECT}/subscriptions/rekindle-dead-letter-pull", self.pubsub);
        let answer = http.post(format!("{name}:pull")).json(&json!({"maxMessages": 100, "returnImmediately": true}));
        let answer: Value = answer.send().await?.error_for_status()?.json().await?;
        let received = answer["receivedMessages"].as_array().cloned().unwrap_or_default();
        for message in &received {
            let data = STANDARD.decode(message["message"]["data"].as_str().unwrap_or_default())?;
            let attributes = message["message"]["attributes"].clone();
            into.push((attributes, String::from_utf8_lossy(&data).into_owned()));
        }
        if !received.is_empty() {
            let acks: Vec<&Value> = received.iter().map(|message| &message["ackId"]).collect();
            let ack = http.post(format!("{name}:acknowledge")).json(&json!({"ackIds": acks}));
            ack.send().await?.error_for_status()?;
        }
        Ok(())
    }
}

/// A message of `gcloud` becomes a job that survives a preemption.
async fn a_published_job(dev: &Dev, gcloud: &Gcloud, id: &str) -> Result<()> {
    gcloud.publish(&training(dev, id)?.to_string(), "").await?;
    until("the message becomes a job", LONG, async || {
        let answer = dev.request(Method::GET, &format!("/v1/jobs/{id}"), None, Vec::new()).await?;
        Ok((answer.status == StatusCode::OK).then_some(()))
    })
    .await?;
    let job = dev.step(id, 1, 12).await?;
    dev.cloud.preempt(&node_of(&job)?, "30s", "PREEMPTED").await?;
    let job = dev.phase(id, "succeeded").await?;
    ensure!(job["generation"] == 2 && job["counters"]["preemptions"] == 1, "{}", job["counters"]);
    jobs::same_end(dev, id)
}

/// One message, delivered five times at the same moment: one job, one TPU.
async fn five_deliveries(dev: &Dev, tag: &str) -> Result<()> {
    let spec = json!({
        "run": "sleep 1", "tags": [tag], "tpu": {"accelerator": "v5litepod-4", "zones": ["us-south1-a"]},
    });
    let (id, at) = (format!("{tag}-77"), "2026-11-20T10:00:00.5Z");
    let push = json!({
        "message": {
            "data": STANDARD.encode(spec.to_string()), "messageId": id, "message_id": id,
            "publishTime": at, "publish_time": at,
        },
        "subscription": format!("projects/{PROJECT}/subscriptions/rekindle-jobs-push"),
    });
    let answers = futures::future::join_all((0..5).map(|_| dev.post("/functions/jobs", &push))).await;
    for answer in answers {
        let answer = answer?;
        // One that lost the race may be asked for again.
        ensure!([204, 503].contains(&answer.status.as_u16()), "{}: {}", answer.status, answer.body);
    }
    let once_more = dev.post("/functions/jobs", &push).await?;
    ensure!(once_more.status == StatusCode::NO_CONTENT, "{}: {}", once_more.status, once_more.body);
    let list = dev.get(&format!("/v1/jobs?tag={tag}")).await?;
    let made = list["jobs"].as_array().context("no list")?;
    ensure!(made.len() == 1, "{} jobs: {list}", made.len());
    let id = made[0]["id"].as_str().context("no id")?;
    dev.phase(id, "succeeded").await?;
    let creates = dev.cloud.calls(&["CreateNode"]).await?;
    let of_it = creates.iter().filter(|call| call.path.contains("/us-south1-a/") && call.status == 200).count();
    ensure!(of_it == 1, "{of_it} TPUs");
    Ok(())
}

/// Messages that can never be carried out end in the dead-letter topic, once each, and those behind them go on.
async fn poison(dev: &Dev, gcloud: &Gcloud, suffix: &str) -> Result<()> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut dead = Vec::new();
    gcloud.dead_letters(&http, &mut dead).await?;
    dead.clear();
    let wrong = json!({"id": format!("wrong-{suffix}"), "run": [], "tpu": {"accelerator": "v0-8"}}).to_string();
    let no_json = format!("no JSON {suffix}");
    let unknown = json!({"id": format!("unknown-{suffix}")}).to_string();
    let after = format!("after-{suffix}");
    let good = json!({"id": after, "run": "true", "tpu": {"accelerator": "v5litepod-4"}}).to_string();
    let (a, b, c, d) = futures::join!(
        gcloud.publish(&no_json, ""),
        gcloud.publish(&wrong, ""),
        gcloud.publish(&unknown, "command=explode"),
        gcloud.publish(&good, ""),
    );
    a.and(b).and(c).and(d)?;
    until("the good message behind them is carried out", LONG, async || {
        let answer = dev.request(Method::GET, &format!("/v1/jobs/{after}"), None, Vec::new()).await?;
        Ok((answer.status == StatusCode::OK && answer.body["phase"] == "succeeded").then_some(()))
    })
    .await?;
    let due = [no_json, wrong, unknown];
    let count = |dead: &[(Value, String)], payload: &str| dead.iter().filter(|(_, data)| data == payload).count();
    let deadline = std::time::Instant::now() + LONG;
    while !due.iter().all(|payload| count(&dead, payload) > 0) {
        if std::time::Instant::now() > deadline {
            bail!("dead letters: {dead:#?}");
        }
        gcloud.dead_letters(&http, &mut dead).await?;
    }
    gcloud.dead_letters(&http, &mut dead).await?;
    for payload in &due {
        ensure!(count(&dead, payload) == 1, "{payload} came {} times: {dead:#?}", count(&dead, payload));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn googles_emulators_and_gcloud_bring_a_job_to_its_end() -> Result<()> {
    if !Gcloud::is_there() {
        ensure!(!is_ci(), "gcloud is needed, and absent");
        say("NOTICE: skipped the test with Google's emulators: gcloud is not installed");
        return Ok(());
    }
    let (Some(firestore), Some(pubsub)) = (Emulators::firestore(), Emulators::pubsub()) else { return Ok(()) };
    let options = Options {
        firestore: Some(firestore.address().to_owned()),
        pubsub: Some(pubsub.address().to_owned()),
        ..Options::speed(10.0)
    };
    scenario("Google's emulators", options, async |dev| {
        let gcloud = Gcloud { pubsub: pubsub.address().to_owned(), configuration: tempfile::tempdir()? };
        let suffix = (random_seed() % 1_000_000).to_string();
        let id = format!("published-{suffix}");
        let tag = format!("five-{suffix}");
        let (a, b, c) = futures::join!(
            a_published_job(dev, &gcloud, &id),
            five_deliveries(dev, &tag),
            poison(dev, &gcloud, &suffix)
        );
        a.context("a published job").and(b.context("five deliveries")).and(c.context("poison"))
    })
    .await
}
