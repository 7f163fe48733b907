//! What the tests with real JAX need beside the end-to-end harness: the Python environment, the training job, a memory
//! limit, and what was captured of each worker.
//!
//! `tests/jax/setup` makes the environment. What is missing on a machine skips the tests that need it, by name; with
//! CI=true that is a failure.

mod capture;
mod limit;
mod training;

use anyhow::{Result, bail};
use rekindle_e2e::{is_ci, say};
pub use rekindle_e2e::{is_root, unmount_below};

pub use capture::case_of;
pub use limit::MemoryLimit;
pub use training::{ENVIRONMENT, Training, WORKERS, python, undisturbed};

/// A test that cannot run here: said by name, and with CI=true a failure.
pub fn skipped(test: &str, why: &str) -> Result<()> {
    if is_ci() {
        bail!("{test} must not be skipped in CI: {why}");
    }
    say(&format!("skipped: {test}: {why}"));
    Ok(())
}
