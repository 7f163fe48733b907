//! The page in a real Chromium, driven by its own chromedriver: clicks, live updates, hostile text, thousands of jobs;
//! keyboard, colours and names of what is shown.
//!
//! `REKINDLE_E2E_SHOTS=FOLDER` keeps screenshots.

mod answers;
mod browser;
mod letters;
mod long;
mod people;
mod since;
mod sleeps;
mod views;
pub(super) mod walk;

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use fantoccini::Locator;
use futures::stream::{self, StreamExt as _};
use rekindle_e2e::{Dev, LONG, Options, say, scenario, until};
use serde_json::json;

use super::jobs::node_of;
use browser::Browser;

/// So many jobs the page must bear.
const MANY: usize = 5000;
/// Ends a script and runs one, wherever it would be taken for markup.
const HOSTILE: &str = "</script><script>window.pwned=1</script><img src=x onerror=window.pwned=1>";

/// A preemption is seen in the list and on the job's own view without a reload.
async fn lives(dev: &Dev, page: &Browser) -> Result<()> {
    // Longer than the test: a person ends it.
    let run = dev.ledger("live")?.run(&dev.trainer(20_000, "100", 10, 3));
    let tpu = json!({"accelerator": "v5litepod-16", "capacity": "spot"});
    dev.submit(&json!({"id": "live", "run": run, "tpu": tpu, "tags": ["blue", "experiment-42", "lr-1e-4", "z"]}))
        .await?;
    page.client.goto(&dev.url).await?;
    // A view whose first answer has not come counts nothing.
    let empty = "const { jobsView } = await import('/site/views.js');
        const main = document.createElement('main');
        jobsView(main, { jobs: new Map(), isWhole: false }).close();
        const older = main.querySelector('.bar > button');
        return `${main.querySelector('[role=status]').textContent} ${older.hidden}`";
    let counted = page.wait_for(empty).await?;
    ensure!(counted == "…loading true", "older jobs are not offered before there are any: {counted}");
    let row = |column: usize| format!("tr[data-job=live] td:nth-child({column})");
    page.sees(&row(2), "that it runs", |text| text.contains("running")).await?;
    page.script("window.unreloaded = true").await?;
    let job = dev.step("live", 1, 3).await?;
    dev.cloud.preempt(&node_of(&job)?, "3s", "PREEMPTED").await?;
    page.sees(&row(7), "one preemption", |text| text == "1").await?;
    page.sees(&row(9), "its loss", |text| text.parse::<f64>().is_ok()).await?;
    page.sees(&row(12), "its tags", |text| text.replace('\n', "") == "blue,experiment-42,lr-1e-4+1").await?;
    let tall = format!("return document.querySelector('{}').getBoundingClientRect().height", row(12));
    let tall = page.script(&tall).await?.as_f64().context("no height")?;
    ensure!(tall < 100.0, "tags take {tall} pixels");
    page.shot("jobs").await?;
    page.click("tr[data-job=live] a").await?;
    page.sees("h2", "the job", |text| text.starts_with("live")).await?;
    dev.job_until("live", "attempt 2 runs", |job| job["phase"] == "running" && job["attempt"] == 2).await?;
    page.sees("h2", "that it runs again", |text| text.contains("running")).await?;
    page.sees("#log", "both attempts", |text| text.contains("== attempt 2 ==")).await?;
    // The page draws it anew as the job goes on: found and read in one go.
    let label = page.script("return document.querySelector('#timeline').getAttribute('aria-label')").await?;
    ensure!(label.as_str().is_some_and(|label| label.starts_with("2 TPUs and 2 attempts")), "the timeline: {label}");
    until("the plot of both attempts", LONG, async || {
        let Ok(plot) = page.client.find(Locator::Css("#plot")).await else { return Ok(None) };
        let label = plot.attr("aria-label").await.unwrap_or_default().unwrap_or_default();
        Ok(label.starts_with("loss over steps of 2 attempts").then_some(()))
    })
    .await?;
    page.sees("#workers", "the workers", |text| text.contains("w3")).await?;
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
    page.sees("#cost", "this week's cost", |text| {
        ["$", "useful", "Week of", "Owner", "Wasted"].iter().all(|word| text.contains(word))
    })
    .await?;
    page.script("const by = document.getElementById('by'); by.value = 'job'; by.dispatchEvent(new Event('change'))")
        .await?;
    page.sees("#cost tbody", "the job's cost", |text| text.contains("live")).await?;
    page.shot("cost").await?;
    page.click("nav a[href='#/events']").await?;
    page.sees("#digest", "what happened", |text| {
        text.contains("preempted, cancel by ") && text.contains(" step") && text.contains("; cancelled")
    })
    .await?;
    page.shot("events").await
}

/// Turns around what is shown behind it.
const TURN: char = '\u{202e}';

/// Text of a job is text, wherever it is shown, and turns no other text around.
async fn tames(dev: &Dev, page: &Browser) -> Result<()> {
    let run = format!("echo '{HOSTILE}{TURN}'; echo \"step=1 loss={HOSTILE}\" >> $REKINDLE_PROGRESS_FILE; exit 3");
    dev.submit(&json!({
        "id": "hostile", "run": run, "notes": format!("{HOSTILE}{TURN}"), "tags": [HOSTILE], "env": {"A": HOSTILE},
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
    page.sees("#log", "the output", |text| text.contains(&format!("{HOSTILE}\u{fffd}"))).await?;
    page.sees("main", "the notes", |text| text.contains("onerror=window.pwned=1>\u{fffd}")).await?;
    let is_turned = page.script(&format!("return document.body.textContent.includes('{TURN}')")).await?;
    ensure!(is_turned == false, "a control of the direction is shown");
    answers::nothing_ran(page, "text of a job").await
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
    // A filter finds what was not loaded yet.
    let find = page.client.find(Locator::Css("#find")).await?;
    find.send_keys("many-17").await?;
    page.sees("tr[data-job=many-17] td", "one of the oldest", |text| text == "many-17").await?;
    find.clear().await?;
    let load = "const { more, known } = await import('/site/page.js'); while (!known.isWhole) await more(); return known.jobs.size";
    let loaded = page.wait_for(load).await?;
    ensure!(loaded.as_u64().is_some_and(|count| count >= MANY as u64), "{loaded} jobs are known");
    let began = Instant::now();
    find.send_keys("many-4321").await?;
    page.sees(".bar [role=status]", "one match", |text| text.starts_with("1 of ")).await?;
    page.shot("many").await?;
    let found = began.elapsed();
    say(&format!("{MANY} jobs: the newest after {} ms, found by name in {} ms", first.as_millis(), found.as_millis()));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_works_in_a_browser() -> Result<()> {
    let Some(page) = Browser::start().await? else { return Ok(()) };
    let result = scenario("the page", Options::speed(5.0), async |dev| {
        lives(dev, &page).await.context("live updates")?;
        sleeps::hidden(&page).await.context("a hidden tab")?;
        asks(dev, &page).await.context("questions")?;
        tames(dev, &page).await.context("hostile text")?;
        bears(dev, &page).await.context("many jobs")
    })
    .await;
    page.client.close().await?;
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_for_everyone_and_shows_what_the_server_tells() -> Result<()> {
    let Some(page) = Browser::start().await? else { return Ok(()) };
    let result = scenario("the page for everyone", Options::speed(5.0), async |dev| {
        views::logs_of_any_worker(dev, &page).await.context("logs of any worker")?;
        views::notes_and_outputs(dev, &page).await.context("notes and outputs")?;
        views::a_bar_of_the_program(dev, &page).await.context("a progress bar")?;
        let stage = views::Stage::set(dev).await.context("the stage")?;
        views::fleet(dev, &page, &stage).await.context("fleet")?;
        letters::shown(dev, &page).await.context("dead letters")?;
        views::unknown_addresses(dev, &page).await.context("unknown addresses")?;
        long::told(&page).await.context("a long job")?;
        since::opened(dev, &page).await.context("what changed since")?;
        people::keyboard(dev, &page).await.context("keyboard")?;
        people::questions(&page).await.context("questions")?;
        people::refused(dev, &page).await.context("a refusal")?;
        people::names(dev, &page).await.context("names")?;
        people::colours(dev, &page).await.context("colours")?;
        answers::all_fields(dev, &page).await.context("fields")?;
        stage.clear(dev).await
    })
    .await;
    page.client.close().await?;
    result
}
