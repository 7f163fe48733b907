//! Waits between tries: doubled each time up to a limit, with jitter, so that the workers of a big slice do not call
//! in step.

use std::time::Duration;

/// The wait after `failures` failures in a row.
pub(crate) fn after(failures: u32, first: Duration, most: Duration) -> Duration {
    let full = first.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(most);
    full.mul_f64(rand::random_range(0.5..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_to_its_limit_and_never_over_it() {
        let first = Duration::from_millis(100);
        let most = Duration::from_secs(5);
        for failures in 0..100 {
            let wait = after(failures, first, most);
            assert!(wait >= first / 2 && wait <= most, "{failures}: {wait:?}");
        }
        assert!(after(50, first, most) >= most / 2);
        assert!(after(1, first, most) <= first);
    }
}
