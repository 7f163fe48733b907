//! The page for who uses no mouse, sees no screen, or works in the dark.

use anyhow::{Result, ensure};
use fantoccini::key::Key;
use rekindle_e2e::{Dev, LONG, until};
use reqwest::Method;
use serde_json::{Value, json};

use super::browser::Browser;

/// Every view, with words that it shows once it is drawn.
const VIEWS: [(&str, &str, &str); 6] = [
    ("jobs", "#/", "pair"),
    ("fleet", "#/fleet", "FOREIGN"),
    ("cost", "#/cost", "useful"),
    ("events", "#/events", "What happened"),
    ("job", "#/job/runs", "runs on generation 1"),
    ("ended", "#/job/pair", "this is slice 1"),
];

/// Presses Tab until something has the focus; what had it on the way.
async fn tab_to(page: &Browser, wanted: &str) -> Result<Vec<String>> {
    let mut way = Vec::new();
    for _ in 0..40 {
        page.press(Key::Tab).await?;
        way.push(page.focus().await?);
        if way.last().is_some_and(|at| at == wanted) {
            return Ok(way);
        }
    }
    anyhow::bail!("Tab never comes to {wanted}: {way:?}")
}

async fn focus_is(page: &Browser, wanted: &str, when: &str) -> Result<()> {
    let at = page.focus().await?;
    ensure!(at == wanted, "{when} the focus is on {at:?}, not on {wanted:?}");
    Ok(())
}

async fn is_asked(page: &Browser) -> Result<bool> {
    Ok(page.script("return document.getElementById('ask').open").await? == true)
}

/// From the first Tab to a job that is ended, without a mouse.
pub(super) async fn keyboard(dev: &Dev, page: &Browser) -> Result<()> {
    page.client.goto("about:blank").await?;
    page.client.goto(&dev.url).await?;
    page.sees("tr[data-job=sets-up]", "the job", |text| text.contains("starting")).await?;
    let way = tab_to(page, "#/job/sets-up").await?;
    let due =
        ["#main", "#/", "#/", "#/fleet", "#/cost", "#/events", "find", "#/job/hooked", "#/job/fails", "#/job/sets-up"];
    ensure!(way == due, "the order of Tab: {way:?}");
    // Changes draw the list anew, and take nobody's place away.
    let relabel = async |tag: &str| {
        let body = json!({"add_tags": [tag]}).to_string().into_bytes();
        let answer = dev.request(Method::PATCH, "/v1/jobs/sets-up", Some("application/json"), body).await?;
        ensure!(answer.status.is_success(), "{}: {}", answer.status, answer.body);
        Ok(())
    };
    let drawn = "document.querySelector('tr[data-job=sets-up]').dataset.isOld = true";
    page.script(drawn).await?;
    relabel("first-tag").await?;
    let anew = "return document.querySelector('tr[data-job=sets-up]').dataset.isOld ?? null";
    until("the row is drawn anew", LONG, async || Ok(page.script(anew).await?.is_null().then_some(()))).await?;
    focus_is(page, "#/job/sets-up", "after a change").await?;

    page.press(Key::Enter).await?;
    page.sees("h2", "the job", |text| text.starts_with("sets-up")).await?;
    focus_is(page, "main", "in a new view").await?;
    let may = "return document.querySelector('[data-action=cancel]').disabled";
    until("it may be cancelled", LONG, async || Ok((page.script(may).await? == false).then_some(()))).await?;
    tab_to(page, "cancel").await?;
    relabel("second-tag").await?;
    page.sees("main", "the new tag", |text| text.contains("second-tag")).await?;
    focus_is(page, "cancel", "after a change").await?;

    for (opens, closes) in [(Key::Enter, Key::Escape), (Key::Space, Key::Space)] {
        page.press(opens).await?;
        ensure!(is_asked(page).await?, "the question is there");
        focus_is(page, "No, go back", "in the question").await?;
        page.press(closes).await?;
        ensure!(!is_asked(page).await?, "the question is gone");
        focus_is(page, "cancel", "after a no").await?;
    }
    ensure!(dev.job("sets-up").await?["desired"] == "run", "a no is a no");
    page.press(Key::Enter).await?;
    tab_to(page, "ask-yes").await?;
    page.press(Key::Enter).await?;
    page.sees("h2", "the end", |text| text.contains("cancelled") && !text.contains("stopping")).await?;
    focus_is(page, "main", "when nothing can be cancelled any more").await?;
    let news = "return document.getElementById('news').textContent";
    until("the end is told", LONG, async || {
        Ok(page.script(news).await?.as_str().is_some_and(|text| text.contains("sets-up is cancelled")).then_some(()))
    })
    .await
}

/// Who asks again at once answers the new question, and not the old one.
pub(super) async fn questions(page: &Browser) -> Result<()> {
    let told = page
        .wait_for(
            r#"
            const { ask } = await import("/site/parts.js");
            const dialog = document.getElementById("ask");
            const first = ask("First?", "", "Yes");
            const told = new Promise((closed) => dialog.addEventListener("close", closed, { once: true }));
            dialog.close("no");
            const second = ask("Second?", "", "Yes");
            await told;
            await new Promise(requestAnimationFrame);
            const isOpen = dialog.open;
            dialog.close("yes");
            return [await first, isOpen, await second];"#,
        )
        .await?;
    ensure!(told == json!([false, true, true]), "a question was answered by another: {told}");
    Ok(())
}

/// Every command is answered as one is who may see a job and no more. What the API says then its own tests hold.
const MAY_NOT: &str = "const real = window.fetch;
    window.asked = [];
    window.fetch = async (path, options = {}) => {
        if (options.method !== 'POST') return real(path, options);
        window.asked.push(path);
        const detail = 'the policy does not let eve do this to jobs of ada';
        return new Response(JSON.stringify({ title: 'Forbidden', status: 403, detail }), { status: 403 });
    }";

/// Who may not end a job is told so, and can go on looking.
pub(super) async fn refused(dev: &Dev, page: &Browser) -> Result<()> {
    page.client.goto("about:blank").await?;
    page.client.goto(&dev.url).await?;
    page.view("#/job/runs", "runs on generation 1").await?;
    page.script(MAY_NOT).await?;
    for action in ["cancel", "pause", "restart"] {
        page.click(&format!("[data-action={action}]")).await?;
        page.sees("#ask-title", "the question", |text| text.to_lowercase().contains(&format!("{action} runs?")))
            .await?;
        page.click("#ask-yes").await?;
        let told = format!("{action}: 403: the policy does not let eve do this to jobs of ada");
        page.sees("#live", "the refusal", |text| text == told).await?;
        let may = format!("return !document.querySelector('[data-action={action}]').disabled");
        ensure!(page.script(&may).await? == true, "{action} can be tried again, when the policy has changed");
    }
    let asked = page.script("return window.asked").await?;
    ensure!(asked == json!(["/v1/jobs/runs/cancel", "/v1/jobs/runs/pause", "/v1/jobs/runs/restart"]), "{asked}");
    page.reads("the job as it was", |text| text.contains("runs on generation 1")).await?;
    page.client.goto("about:blank").await?;
    Ok(())
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|one| one.as_str().unwrap_or_default().to_owned()).collect()
}

/// Controls, tables and pictures have names, and the page has its landmarks.
pub(super) async fn names(dev: &Dev, page: &Browser) -> Result<()> {
    page.client.goto(&dev.url).await?;
    for (name, view, what) in VIEWS {
        page.view(view, what).await?;
        named(page, name).await?;
    }
    page.view("#/job/runs", "runs on generation 1").await?;
    page.click("[data-action=cancel]").await?;
    named(page, "the question").await?;
    page.press(Key::Escape).await
}

async fn named(page: &Browser, name: &str) -> Result<()> {
    let faults = words(&page.script(include_str!("names.js")).await?);
    ensure!(faults.is_empty(), "{name}: {faults:#?}");
    Ok(())
}

/// All text can be read, light and dark, and on a screen as narrow as a phone nothing is beside it.
pub(super) async fn colours(dev: &Dev, page: &Browser) -> Result<()> {
    page.client.goto(&dev.url).await?;
    for (scheme, is_light) in [("light", true), ("dark", false)] {
        page.prefers(scheme).await?;
        for (width, height) in [(1280, 900), (360, 800)] {
            let screen = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
            page.devtools("Emulation.setDeviceMetricsOverride", &screen).await?;
            for (name, view, what) in VIEWS {
                page.view(view, what).await?;
                readable(page, &format!("{name}-{scheme}-{width}"), is_light).await?;
                if width < 400 {
                    whole(page, name).await?;
                }
            }
            page.view("#/job/runs", "runs on generation 1").await?;
            page.click("[data-action=cancel]").await?;
            readable(page, &format!("question-{scheme}-{width}"), is_light).await?;
            page.press(Key::Escape).await?;
        }
    }
    page.devtools("Emulation.clearDeviceMetricsOverride", &json!({})).await
}

/// On a phone jobs and decisions are read without pushing them aside, numbers with their names.
async fn whole(page: &Browser, name: &str) -> Result<()> {
    let aside = "return [...document.querySelectorAll('#jobs, #history')].map((table) =>
        table.parentElement.scrollWidth - table.parentElement.clientWidth)";
    let aside = page.script(aside).await?;
    ensure!(aside.as_array().into_iter().flatten().all(|px| px == 0), "{name}: {aside} px are beside the screen");
    let unnamed = "return [...document.querySelectorAll('#jobs td.num, #history td.num')].filter((cell) =>
        cell.textContent && !getComputedStyle(cell, '::before').content.includes(cell.dataset.title)).length";
    let unnamed = page.script(unnamed).await?;
    ensure!(unnamed == 0, "{name}: {unnamed} numbers have no name");
    Ok(())
}

async fn readable(page: &Browser, name: &str, is_light: bool) -> Result<()> {
    page.shot(name).await?;
    let found = page.script(include_str!("colours.js")).await?;
    let faults = words(&found["faults"]);
    ensure!(faults.is_empty(), "{name}: {faults:#?}");
    ensure!(found["seen"].as_u64() > Some(10), "{name}: hardly any text: {found}");
    let light = found["light"].as_f64().unwrap_or(0.5);
    ensure!(if is_light { light > 0.8 } else { light < 0.05 }, "{name}: the page is {light} light");
    ensure!(found["wide"] == 0, "{name}: {} px are beside the screen", found["wide"]);
    Ok(())
}
