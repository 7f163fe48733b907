//! Waits on conditions, with a deadline and short looks.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Longest wait for anything that takes seconds. A busy machine may take many times what an idle one does: with eight
/// processes waiting for each processor, a job that takes 20 s took 200 s.
pub const LONG: Duration = Duration::from_mins(5);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Looks until there is an answer. Fails with `what` when there is none in time, and with the error of a look.
pub async fn until<T>(what: &str, within: Duration, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + within;
    loop {
        if let Some(answer) = look().await? {
            return Ok(answer);
        }
        if Instant::now() >= deadline {
            bail!("not within {within:?}: {what}");
        }
        tokio::time::sleep(LOOK_EVERY).await; // between two looks
    }
}

/// Looks for as long as `length`, and fails at the first look that fails: what must never happen does not happen.
pub async fn holds(length: Duration, mut look: impl AsyncFnMut() -> Result<()>) -> Result<()> {
    let end = Instant::now() + length;
    while Instant::now() < end {
        look().await?;
        tokio::time::sleep(LOOK_EVERY).await; // between two looks
    }
    Ok(())
}
