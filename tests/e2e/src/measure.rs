//! Measured times, and how they are told.

use std::time::Duration;

/// Measured spans of one kind.
#[derive(Debug, Clone, Default)]
pub struct Spans(Vec<Duration>);

impl Spans {
    /// Adds one.
    pub fn add(&mut self, span: Duration) {
        self.0.push(span);
        self.0.sort_unstable();
    }

    /// The middle one; zero if there is none.
    pub fn median(&self) -> Duration {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    /// The longest; zero if there is none.
    pub fn longest(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// `median 41 ms, longest 63 ms of 9 (35 38 …)`.
    pub fn told(&self) -> String {
        let millis = |span: &Duration| span.as_millis().to_string();
        let all: Vec<String> = self.0.iter().map(millis).collect();
        format!(
            "median {} ms, longest {} ms of {} ({})",
            self.median().as_millis(),
            self.longest().as_millis(),
            self.count(),
            all.join(" ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_longest_are_told() {
        let mut spans = Spans::default();
        for millis in [30, 10, 20] {
            spans.add(Duration::from_millis(millis));
        }
        assert_eq!(spans.told(), "median 20 ms, longest 30 ms of 3 (10 20 30)");
    }
}
