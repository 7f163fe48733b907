//! What the process takes: processor time and memory, as Linux tells them. Elsewhere time is the wall's, and memory is not told.

use std::time::Instant;

/// Measures time from a moment on.
pub(crate) struct Clock {
    began: Instant,
    ticks: Option<u64>,
}

/// Clock ticks a second in `/proc`: `USER_HZ`, which is 100 on every platform that Rust's Linux targets know.
const TICKS_A_SECOND: f64 = 100.0;

impl Clock {
    /// From now on.
    pub(crate) fn start() -> Self {
        Self { began: Instant::now(), ticks: ticks() }
    }

    /// Seconds of one core since.
    pub(crate) fn core_seconds(&self) -> f64 {
        let used = self.ticks.zip(ticks()).map(|(from, to)| to.saturating_sub(from) as f64 / TICKS_A_SECOND);
        used.unwrap_or_else(|| self.wall_seconds()).max(1.0 / TICKS_A_SECOND)
    }

    /// Seconds since.
    pub(crate) fn wall_seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Both, in words.
    pub(crate) fn told(&self) -> String {
        format!("{:.1} s, {:.1} of one core", self.wall_seconds(), self.core_seconds())
    }
}

/// User and system time of all threads.
fn ticks() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may hold anything; fields are counted behind it.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

/// Resident memory, in bytes; 0: not told.
pub(crate) fn resident() -> u64 {
    status("VmRSS:")
}

/// Most resident memory so far, in bytes; 0: not told.
pub(crate) fn most_resident() -> u64 {
    status("VmHWM:")
}

fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix(field));
    line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}
