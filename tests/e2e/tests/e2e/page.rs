//! The page in a real Chromium, driven by its own chromedriver: clicks, live updates, hostile text, thousands of jobs.
//!
//! `REKINDLE_E2E_SHOTS=FOLDER` keeps screenshots.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use fantoccini::{Client, ClientBuilder, Locator};
use futures::stream::{self, StreamExt as _};
use rekindle_e2e::{Dev, LONG, Options, is_ci, say, scenario, until};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::jobs::node_of;

/// So many jobs the page must bear.
const MANY: usize = 5000;
/// Ends a script and runs one, wherever it would be taken for markup.
const HOSTILE: &str = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>";

/// A browser, and the driver that ends with it.
struct Browser {
    client: Client,
    _driver: Child,
}

/// `None` where Chromium is not installed; with CI that is a failure.
async fn browser() -> Result<Option<Browser>> {
    let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).kill_on_drop(true).spawn();
    let mut driver = match driver {
        Ok(driver) => driver,
        Err(error) if !is_ci() => {
            say(&format!("skipped: no chromedriver ({error}); Debian's package is chromium-driver"));
            return Ok(None);
        }
        Err(error) => return Err(error).context("chromedriver (Debian's package chromium-driver)"),
    };
    let mut lines = BufReader::new(driver.stdout.take().context("no output")?).lines();
    let port = loop {
        let line = lines.next_line().await?.context("chromedriver ended")?;
        if let Some((_, port)) = line.rsplit_once("started successfully on port ") {
            break port.trim_end_matches('.').parse::<u16>()?;
        }
    };
    let options = json!({"args": [
        "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1280,900",
    ]});
    let capabilities = [("goog:chromeOptions".to_owned(), options)].into_iter().collect();
    let connector = hyper_util::client::legacy::connect::HttpConnector::new();
    let client =
        ClientBuilder::new(connector).capabilities(capabilities).connect(&format!("http://127.0.0.1:{port}")).await;
    Ok(Some(Browser { client: client?, _driver: driver }))
}

impl Browser {
    async fn text(&self, css: &str) -> Result<String> {
        Ok(self.client.find(Locator::Css(css)).await?.text().await?)
    }

    /// Waits until an element's text is as wanted. The page redraws under us, so a lost element is looked for again.
    async fn sees(&self, css: &str, what: &str, mut is: impl FnMut(&str) -> bool) -> Result<()> {
        until(&format!("the page shows {what} at {css}"), LONG, async || {
            let text = self.text(css).await.unwrap_or_default();
            Ok(is(&text).then_some(()))
        })
        .await
    }

    async fn click(&self, css: &str) -> Result<()> {
        until(&format!("{css} can be clicked"), LONG, async || {
            let Ok(element) = self.client.find(Locator::Css(css)).await else { return Ok(None) };
            Ok(element.click().await.ok())
        })
        .await
    }

    async fn script(&self, text: &str) -> Result<Value> {
        Ok(self.client.execute(text, Vec::new()).await?)
    }

    async fn shot(&self, name: &str) -> Result<()> {
        if let Some(folder) = std::env::var_os("REKINDLE_E2E_SHOTS") {
            std::fs::write(PathBuf::from(folder).join(format!("{name}.png")), self.client.screenshot().await?)?;
        }
        Ok(())
    }
}

/// A preemption is seen in the list and on the job's own view without a reload.
async fn lives(dev: &Dev, page: &Browser) -> Result<()> {
    // Longer than the test: a person ends it.
    let run = dev.ledger("live")?.run(&dev.trainer(20_000, "100", 10, 3));
    let tpu = json!({"accelerator": "v5litepod-16", "capacity": "spot"});
    dev.submit(&json!({"id": "live", "run": run, "tpu": tpu, "tags": ["blue"]})).await?;
    page.client.goto(&dev.url).await?;
    let row = |column: usize| format!("tr[data-job=live] td:nth-child({column})");
    page.sees(&row(2), "that it runs", |text| text.contains("running")).await?;
    page.script("window.unreloaded = true").await?;
    let job = dev.step("live", 1, 3).await?;
    dev.cloud.preempt(&node_of(&job)?, "3s", "PREEMPTED").await?;
    page.sees(&row(7), "one preemption", |text| text == "1").await?;
    page.shot("jobs").await?;
    page.click("tr[data-job=live] a").await?;
    page.sees("h2", "the job", |text| text.starts_with("live")).await?;
    dev.job_until("live", "attempt 2 runs", |job| job["phase"] == "running" && job["attempt"] == 2).await?;
    page.sees("h2", "that it runs again", |text| text.contains("running")).await?;
    page.sees("#log", "both attempts", |text| text.contains("== attempt 2 ==")).await?;
    let label = page.client.find(Locator::Css("#timeline")).await?.attr("aria-label").await?;
    ensure!(label.is_some_and(|label| label.starts_with("2 TPUs and 2 attempts")), "the timeline");
    until("the plot of both attempts", LONG, async || {
        let Ok(plot) = page.client.find(Locator::Css("#plot")).await else { return Ok(None) };
        let label = plot.attr("aria-label").await.unwrap_or_default().unwrap_or_default();
        Ok(label.starts_with("loss over steps of 2 attempts").then_some(()))
    })
    .await?;
    page.sees("#workers", "the workers", |text| text.contains("0-3")).await?;
    page.shot("job").await?;
    page.script("document.getElementById('plot').scrollIntoView()").await?;
    page.shot("plot").await?;
    page.script("window.scrollTo(0, 0)").await?;
    ensure!(page.script("return window.unreloaded").await? == true, "the page was loaded again");
    Ok(())
}

/// A no changes nothing; a yes cancels.
async fn asks(dev: &Dev, page: &Browser) -> Result<()> {
    page.click("[data-action=cancel]").await?;
    page.sees("#ask-title", "the question", |text| text.contains("Cancel live?")).await?;
    page.shot("question").await?;
    page.click("#ask button[value=no]").await?;
    ensure!(dev.job("live").await?["desired"] == "run", "a no is a no");
    page.click("[data-action=cancel]").await?;
    page.click("#ask-yes").await?;
    page.sees("h2", "the end", |text| text.contains("cancelled") && !text.contains("stopping")).await?;
    ensure!(dev.job("live").await?["phase"] == "cancelled", "it is cancelled");
    page.client.find(Locator::Css("nav a[href='#/fleet']")).await?.click().await?;
    page.sees("main", "an empty fleet", |text| text.contains("No TPU")).await?;
    page.click("nav a[href='#/cost']").await?;
    page.sees("#cost", "this week's cost", |text| text.contains('$') && text.contains("useful")).await?;
    page.script("const by = document.getElementById('by'); by.value = 'job'; by.dispatchEvent(new Event('change'))")
        .await?;
    page.sees("#cost tbody", "the job's cost", |text| text.contains("live")).await?;
    page.shot("cost").await?;
    page.click("nav a[href='#/events']").await?;
    page.sees("#digest", "what happened", |text| text.contains("preempted") && text.contains("cancel by")).await?;
    page.shot("events").await
}

/// Text of a job is text, wherever it is shown.
async fn tames(dev: &Dev, page: &Browser) -> Result<()> {
    let run = format!("echo '{HOSTILE}'; echo \"step=1 loss={HOSTILE}\" >> $REKINDLE_PROGRESS_FILE; exit 3");
    dev.submit(&json!({
        "id": "hostile", "run": run, "notes": HOSTILE, "tags": [HOSTILE], "env": {"A": HOSTILE},
        "tpu": {"accelerator": "v5litepod-8"}, "recovery": {"preset": "pass"},
    }))
    .await?;
    dev.phase("hostile", "failed").await?;
    page.client.goto(&format!("{}/#/job/hostile", dev.url)).await?;
    page.sees("#log", "the output as text", |text| text.contains(HOSTILE)).await?;
    for view in ["#/", "#/fleet", "#/cost", "#/events", "#/job/hostile"] {
        page.script(&format!("location.hash = '{view}'")).await?;
        page.sees("main", view, |text| !text.is_empty()).await?;
    }
    page.sees("main", "the spec", |text| text.contains("onerror=window.pwned")).await?;
    ensure!(page.script("return window.pwned ?? null").await?.is_null(), "text of a job ran as a script");
    ensure!(page.script("return document.querySelectorAll('main img, main script').length").await? == 0, "markup");
    Ok(())
}

/// Thousands of jobs are listed, filtered and counted.
async fn bears(dev: &Dev, page: &Browser) -> Result<()> {
    dev.post("/v1/freeze", &json!({})).await?;
    let submits = stream::iter(0..MANY).map(|n| async move {
        dev.submit(&json!({"id": format!("many-{n}"), "run": ["true"], "tpu": {"accelerator": "v5litepod-8"}})).await
    });
    let results: Vec<Result<()>> = submits.buffer_unordered(16).collect().await;
    results.into_iter().collect::<Result<Vec<()>>>()?;
    page.client.goto("about:blank").await?;
    let began = Instant::now();
    page.client.goto(&dev.url).await?;
    page.sees("#jobs tbody", "the newest jobs", |text| text.contains("many-")).await?;
    let first = began.elapsed();
    let load = "const { more, known } = await import('/site/page.js'); while (!known.isWhole) await more(); return known.jobs.size";
    let loaded = page.client.execute_async(&asynchronous(load), Vec::new()).await?;
    ensure!(loaded.as_u64().is_some_and(|count| count >= MANY as u64), "{loaded} jobs are known");
    let find = page.client.find(Locator::Css("#find")).await?;
    let began = Instant::now();
    find.send_keys("many-4321").await?;
    page.sees(".bar [role=status]", "one match", |text| text.starts_with("1 of ")).await?;
    page.shot("many").await?;
    let found = began.elapsed();
    say(&format!("{MANY} jobs: the newest after {} ms, found by name in {} ms", first.as_millis(), found.as_millis()));
    Ok(())
}

/// A script that answers by WebDriver's callback, or with its error's words.
fn asynchronous(body: &str) -> String {
    format!("const done = arguments[0]; (async () => {{ {body} }})().then(done, (error) => done(String(error)));")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_works_in_a_browser() -> Result<()> {
    let Some(page) = browser().await? else { return Ok(()) };
    page.client
        .update_timeouts(fantoccini::wd::TimeoutConfiguration::new(
            Some(Duration::from_mins(2)),
            Some(Duration::from_mins(1)),
            Some(Duration::ZERO),
        ))
        .await?;
    let result = scenario("the page", Options::speed(5.0), async |dev| {
        lives(dev, &page).await.context("live updates")?;
        asks(dev, &page).await.context("questions")?;
        tames(dev, &page).await.context("hostile text")?;
        bears(dev, &page).await.context("many jobs")
    })
    .await;
    page.client.close().await?;
    result
}
