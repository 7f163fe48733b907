//! What could not be used, and what webhooks were not told, among the events and with the job.

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rekindle_e2e::Dev;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::browser::Browser;
use super::{HOSTILE, answers};

/// Pushes a message to a function, as Pub/Sub does.
async fn push(dev: &Dev, function: &str, id: &str, data: &Value, attributes: &Value) -> Result<StatusCode> {
    let message = json!({"data": STANDARD.encode(data.to_string()), "messageId": id, "attributes": attributes});
    let body = json!({"message": message, "subscription": format!("projects/local/subscriptions/{function}")});
    let answer = dev.post(&format!("/functions/{function}"), &body).await?;
    Ok(answer.status)
}

/// The rows of the table, their cells apart.
const ROWS: &str = "return [...document.querySelectorAll('#letters tbody tr')].map((row) =>
    [...row.cells].slice(1).map((cell) => cell.textContent))";

/// None at first; then a message of a stranger, whose words stay words, and an event that was too old to be told again.
pub(super) async fn shown(dev: &Dev, page: &Browser) -> Result<()> {
    page.client.goto("about:blank").await?;
    page.client.goto(&format!("{}/#/events", dev.url)).await?;
    page.reads("that nothing failed", |text| text.contains("no webhook waits or was given up")).await?;

    // Nobody listens there, and its own events are none that it wants.
    let hook = json!({"webhook": "https://127.0.0.1:1/T0/secret", "events": ["paused"]});
    let tpu = json!({"accelerator": "v5litepod-4"});
    dev.submit(&json!({"id": "hooked", "run": "true", "tpu": tpu, "notify": [hook]})).await?;
    dev.phase("hooked", "succeeded").await?;
    ensure!(push(dev, "jobs", "letter-1", &json!({"id": "x"}), &json!({"command": HOSTILE})).await?.is_success());
    let event = json!({
        "job": "hooked", "phase": "paused", "reason": "paused", "message": "It is paused.", "attempt": 1,
        "generation": 1, "sequence": 99,
    });
    let attributes = json!({
        "ce-id": "hooked-99", "ce-source": "/rekindle/x", "ce-type": "dev.rekindle.job.paused.v1",
        "ce-time": "2026-01-01T00:00:00Z",
    });
    ensure!(push(dev, "notify", "letter-2", &event, &attributes).await?.is_success());
    // Another is a minute old: it is to come again.
    let (mut young, minute) = (attributes.clone(), jiff::SignedDuration::from_mins(1));
    (young["ce-id"], young["ce-time"]) = (json!("hooked-100"), json!((jiff::Timestamp::now() - minute).to_string()));
    ensure!(push(dev, "notify", "letter-3", &event, &young).await? == StatusCode::SERVICE_UNAVAILABLE);

    page.view("#/fleet", "Owner").await?;
    page.script("location.hash = '#/events'").await?;
    page.sees("#letters tbody", "both letters", |text| text.contains("hooked") && text.contains("jobs")).await?;
    let rows = page.script(ROWS).await?;
    let why = |row: usize| rows[row][3].as_str().unwrap_or_default();
    for (row, waits) in [(0, true), (1, false)] {
        let cells = [&rows[row][0], &rows[row][1], &rows[row][2]];
        ensure!(cells == ["hooked", "notify", "paused"], "the newest first: {rows}");
        let is_host = why(row).starts_with("127.0.0.1:1: ") && !why(row).contains("secret");
        ensure!(is_host && why(row).contains("; tried again until ") == waits, "only the host is told: {rows}");
    }
    ensure!(rows[2][0] == "-" && rows[2][1] == "jobs" && rows[2][2] == "-", "{rows}");
    ensure!(why(2).contains(HOSTILE), "words stay words: {rows}");
    answers::nothing_ran(page, "dead letters").await?;
    page.reads("what to do about them", |text| text.contains("mend a message and publish it anew")).await?;
    page.shot("letters").await?;

    page.click("#letters a").await?;
    page.sees("main dl", "that its webhook is not told", |text| {
        text.contains("paused is not told yet, tried again until")
    })
    .await?;
    answers::nothing_ran(page, "a job with a dead letter").await
}
