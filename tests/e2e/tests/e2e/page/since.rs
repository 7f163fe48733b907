//! What changed since the page was opened.

use anyhow::{Result, ensure};
use rekindle_e2e::Dev;
use serde_json::json;

use super::browser::Browser;

/// Only what came since is an event, at its own time; and no traceback fills a list.
pub(super) async fn opened(dev: &Dev, page: &Browser) -> Result<()> {
    page.client.goto("about:blank").await?;
    page.client.goto(&dev.url).await?;
    page.sees("#jobs tbody", "the jobs, and so an answer of the server", |text| !text.is_empty()).await?;
    let found = page.wait_for(include_str!("since.js")).await?;
    let ids = json!(["latest", "later", "timeless", "listed", "brought"]);
    ensure!(found["ids"] == ids, "what was before it was opened is no event, and what came since is one: {found}");
    ensure!(found["are_their_own_times"] == true, "an event has the time of the change: {found}");
    ensure!(found["lines"].as_f64().is_some_and(|lines| lines < 4.0), "a traceback takes three lines: {found}");
    ensure!(found["has_all"] == true, "and is there for who hears the page: {found}");
    page.client.goto("about:blank").await?;
    Ok(())
}
