//! A job that went on for long: what its view leaves out is told, and work that was lost is drawn.

use anyhow::{Result, ensure};
use serde_json::json;

use super::browser::Browser;

/// Draws made-up jobs by the page's own code, in any of its views.
pub(super) async fn told(page: &Browser) -> Result<()> {
    let found = page.wait_for(include_str!("long.js")).await?;
    let (many, few, none) = (&found["many"], &found["few"], &found["none_kept"]);
    ensure!(many["rows"] == 200 && many["newest"] == "TPU 340" && many["marks"] == 200, "the newest TPUs: {found}");
    ensure!(many["are_inside"] == true, "a TPU outside of the picture: {many}");
    ensure!(
        many["label"].as_str().is_some_and(|label| label.starts_with("the newest 200 of 340 TPUs, in ")),
        "the picture's words: {many}"
    );
    let notes =
        ["The newest 200 of 340 TPUs.", "41 earlier decisions left out: rekindle history many shows every one."];
    ensure!(many["notes"] == json!(notes), "what is left out: {many}");
    ensure!(many["caption"] == "The newest 300 of 341 decisions" && many["decisions"] == 300, "the caption: {many}");
    ensure!(few["notes"] == json!([]) && few["caption"] == "Every decision, newest first", "nothing left out: {few}");
    ensure!(
        few["label"].as_str().is_some_and(|label| label == "3 TPUs and 3 attempts in 100s"),
        "the picture's words: {few}"
    );
    let lost = |secs: u32| json!([format!("what attempt 1 did in its last {secs}s is lost: no checkpoint held it")]);
    ensure!(few["lost"] == lost(20), "lost, though the next attempt made no step: {few}");
    ensure!(none["lost"] == lost(40), "all is lost where nothing was kept: {none}");
    let losses = json!(["0.038480", "1.235e6", "-1.235e-5", "2.31", "nan of it all"]);
    ensure!(found["losses"] == losses, "losses as the command line shows them: {found}");
    let said = json!(["run ", "<code>rekindle up dev</code>", ", or `"]);
    ensure!(found["said"] == said, "a command is set as such: {found}");
    ensure!(found["times"] == json!(["preempted", "preempted twice", "preempted 3 times"]), "how often: {found}");
    Ok(())
}
