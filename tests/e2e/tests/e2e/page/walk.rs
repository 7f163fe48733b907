//! What a new user sees of a finished run.

use anyhow::{Result, ensure};
use rekindle_e2e::Dev;

use super::browser::Browser;

/// The page of a job that has succeeded over two preemptions tells both, and draws its three attempts.
pub(crate) async fn ended(dev: &Dev, job: &str) -> Result<()> {
    let Some(page) = Browser::start().await? else { return Ok(()) };
    let result = async {
        page.client.goto(&format!("{}/#/job/{job}", dev.url)).await?;
        page.sees("h2", "how it ended", |text| text == format!("{job} succeeded")).await?;
        page.reads("two preemptions", |text| text.contains("Preempted\n2\n")).await?;
        let drawn =
            "return [...document.querySelectorAll('#timeline title')].map((one) => one.textContent).join('\\n')";
        let drawn = page.script(drawn).await?;
        let is_drawn =
            |attempt: u32| drawn.as_str().is_some_and(|all| all.contains(&format!("running, attempt {attempt},")));
        ensure!((1..=3).all(is_drawn), "the timeline: {drawn}");
        page.sees("#log", "the output to its end", |text| {
            text.contains("== attempt 3 ==") && text.contains("done at 250")
        })
        .await?;
        page.shot("walk").await
    }
    .await;
    page.client.close().await?;
    result
}
