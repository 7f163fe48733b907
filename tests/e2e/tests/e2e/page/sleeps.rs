//! A page that nobody looks at costs nothing.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::browser::Browser;

/// On the view of a job that runs: both streams end when the tab is hidden, and neither a draw that is under way then nor one
/// that fails brings anything back.
pub(super) async fn hidden(page: &Browser) -> Result<()> {
    let found = page.wait_for(include_str!("sleeps.js")).await?;
    let text = found.as_str().context("no word of the script")?;
    let found: Value = serde_json::from_str(text).with_context(|| text.to_owned())?;
    for how in ["ends", "fails"] {
        let found = &found[how];
        ensure!(found["awake"] == json!(["/v1/jobs/live/logs", "/v1/watch"]), "while it is looked at: {found}");
        for what in ["streams", "timers", "asked"] {
            ensure!(found[what] == 0, "hidden while a draw {how}: {what}: {found}");
        }
    }
    Ok(())
}
