//! What the page makes of answers: text is text in every field, and every field that it reads is one that there is.

use anyhow::{Result, ensure};
use rekindle_e2e::Dev;
use serde_json::{Value, json};

use super::HOSTILE;
use super::browser::Browser;

/// Every view, with fields whose text it shows.
const VIEWS: [(&str, &[&str]); 6] = [
    ("#/", &["id", "phase", "message", "owner", "zone", "accelerator"]),
    ("#/fleet", &["name", "owner", "job_owner", "state", "accelerator", "zone", "kind", "capacity"]),
    ("#/cost", &["owner"]),
    ("#/events", &["id", "phase", "message", "owner", "by_people", "function", "reason", "job"]),
    (
        "#/job/sets-up",
        &[
            "message",
            "phase",
            "paragraph",
            "facts",
            "owner",
            "tags",
            "submitted_by",
            "notes",
            "setup",
            "branch",
            "cause",
        ],
    ),
    ("#/job/fails", &["summary"]),
];

/// Poisons every text of every answer, and looks at every view.
pub(super) async fn all_fields(dev: &Dev, page: &Browser) -> Result<()> {
    page.client.goto("about:blank").await?;
    page.client.goto(&dev.url).await?;
    page.sees("#jobs tbody", "the jobs", |text| text.contains("runs")).await?;
    page.client.execute(include_str!("answers.js"), vec![json!(HOSTILE)]).await?;
    // The list once more, and something that happened, as the poisoned answers tell it.
    let again = "const { known, more } = await import('/site/page.js');
        known.jobs.clear(); known.next = null; await more();
        for (const job of known.jobs.values()) known.events.push({ at: new Date().toISOString(), ...job });
        return known.jobs.size";
    ensure!(page.wait_for(again).await?.as_u64() > Some(2), "the jobs are known");
    for (view, fields) in VIEWS {
        page.script(&format!("location.hash = '{view}'")).await?;
        for field in fields {
            let begun = format!("{field}:");
            page.reads(&format!("the text of {field} in {view}"), |text| {
                text.split(&begun).skip(1).any(|rest| rest.contains(HOSTILE) || rest.contains("onerror=window.pwned"))
            })
            .await?;
        }
        nothing_ran(page, view).await?;
    }
    let missing = page.script("return [...window.missing]").await?;
    ensure!(missing == json!([]), "the page reads fields that no answer has: {missing}");
    Ok(())
}

/// No text has become markup, let alone a script.
pub(super) async fn nothing_ran(page: &Browser, view: &str) -> Result<()> {
    ensure!(page.script("return window.pwned ?? null").await?.is_null(), "{view}: text ran as a script");
    let markup = "return [...document.querySelectorAll('main img, main script, main iframe, main style')].length
        + [...document.querySelectorAll('main *')].filter((node) =>
            node.getAttributeNames().some((name) => name.startsWith('on'))
            || /^\\s*(javascript|data):/i.test(node.getAttribute('href') ?? '')).length";
    let count: Value = page.script(markup).await?;
    ensure!(count == 0, "{view}: text became markup, {count} times");
    Ok(())
}
