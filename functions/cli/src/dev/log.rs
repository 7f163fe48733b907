//! Where the functions' own log goes: to stderr in `dev`, to a file in `demo`, whose terminal shows the timeline.

use std::path::Path;
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;

/// As in `RUST_LOG`.
const FILTER: &str = "REKINDLE_LOG";

fn filter(usual: &str) -> EnvFilter {
    let given = std::env::var(FILTER).ok().filter(|text| !text.is_empty());
    EnvFilter::try_new(given.as_deref().unwrap_or(usual)).unwrap_or_else(|_| EnvFilter::new(usual))
}

/// Warnings on stderr; `REKINDLE_LOG=debug` shows more.
pub(crate) fn to_stderr() {
    use std::io::IsTerminal as _;
    let is_terminal = std::io::stderr().is_terminal();
    let log =
        tracing_subscriber::fmt().compact().with_target(false).with_ansi(is_terminal).with_writer(std::io::stderr);
    // A line that cannot be written is told on stderr otherwise, and where that takes nothing, by a panic in whoever
    // said it.
    let log = log.log_internal_errors(false);
    // Only fails when there is one already.
    let _ = log.with_env_filter(filter("warn,rekindle_server::installation=error")).try_init();
}

/// Everything of interest into a file.
pub(crate) fn to_file(path: &Path) -> std::io::Result<()> {
    let file = std::fs::File::options().create(true).append(true).open(path)?;
    let log = tracing_subscriber::fmt().compact().with_target(false).with_ansi(false).with_writer(Mutex::new(file));
    let _ = log.log_internal_errors(false).with_env_filter(filter("info")).try_init();
    Ok(())
}
