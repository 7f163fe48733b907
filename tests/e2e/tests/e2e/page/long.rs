//! A job that went on for long: what its view leaves out is told, and work that was lost is drawn.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::browser::Browser;

/// Where each stretch of 100 seconds is: 9.3 units a second, from 60 on, a row for each TPU.
fn to_scale(drawn: &Value) -> Result<()> {
    let x = |second: f64| 60.0 + 9.3 * second;
    let due = [
        ("runs", 0.0, 40.0, 1),
        ("again", 40.0, 50.0, 1),
        ("runs", 50.0, 60.0, 2),
        ("again", 60.0, 70.0, 2),
        ("runs", 70.0, 100.0, 3),
        // Attempt 3 began with step 21, at second 80, and had made 19 of its 30 steps until second 95 when it passed step 40;
        // after step 20, at second 20, nothing was kept.
        ("repeats", 70.0, 89.5, 3),
        ("lost", 20.0, 40.0, 1),
    ];
    let drawn: Vec<(String, f64, f64, f64)> = serde_json::from_value(drawn.clone())?;
    ensure!(drawn.len() == due.len(), "{drawn:?}");
    for ((kind, left, top, width), (due_kind, from, to, tpu)) in drawn.into_iter().zip(due) {
        let is_there = (left - x(from)).abs() < 0.1 && (width - (x(to) - x(from))).abs() < 0.1;
        let is_in_row = (top - (14.0 + 24.0 * f64::from(tpu - 1))).abs() < 0.1;
        ensure!(
            kind == due_kind && is_there && is_in_row,
            "{due_kind} from {from} s to {to} s of TPU {tpu}: {kind} {left} {top} {width}"
        );
    }
    Ok(())
}

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
    to_scale(&few["drawn"])?;
    let losses = json!(["0.038480", "1.235e6", "-1.235e-5", "2.31", "nan of it all"]);
    ensure!(found["losses"] == losses, "losses as the command line shows them: {found}");
    let said = json!(["run ", "<code>rekindle up dev</code>", ", or `"]);
    ensure!(found["said"] == said, "a command is set as such: {found}");
    ensure!(found["times"] == json!(["preempted", "preempted twice", "preempted 3 times"]), "how often: {found}");
    Ok(())
}
