//! Dead letters: what could not be used, and what webhooks were not told.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use rekindle_core::ids::JobId;
use rekindle_core::job::Phase;

/// A message that could not be used, or an event that a webhook was not told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterView {
    /// When it was given up; of one that is tried again, the last time that it failed.
    pub at: Timestamp,
    /// Who gave it up: `notify` for webhooks, `jobs` for job messages, `tpu-events`, `reconcile`.
    pub function: String,
    /// Why. Of a webhook only its host is told: the rest of the address is often a token. Of several webhooks one a line.
    pub reason: String,
    /// The job that it is about, if it is one's.
    pub job: Option<JobId>,
    /// The phase that a webhook was not told.
    pub phase: Option<Phase>,
    /// It is tried again, at least until then; null: it is given up.
    #[serde(default)]
    pub tried_until: Option<Timestamp>,
    /// Of a job message: the job that was submitted since under the id that stands in it. It was mended, then.
    #[serde(default)]
    pub mended_by: Option<JobId>,
}

/// Webhooks that a sentence names; the others are counted.
const NAMED: usize = 3;

impl DeadLetterView {
    /// Why, in one line: of many webhooks how many, and the first of them.
    pub fn brief(&self) -> String {
        let lines: Vec<&str> = self.reason.lines().collect();
        match lines.len() {
            0..=1 => self.reason.trim_end().to_owned(),
            count @ 2..=NAMED => format!("{count} webhooks: {}", lines.join("; ")),
            count => format!("{count} webhooks: {}; and {} more", lines[..NAMED].join("; "), count - NAMED),
        }
    }
}

/// Answer of `GET /v1/dead-letters`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterList {
    /// Newest first. They are kept for 40 days.
    pub letters: Vec<DeadLetterView>,
    /// Where the next page begins, if there is one.
    pub next_page_token: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_webhooks_are_counted_and_the_first_of_them_named() {
        let letter = |reason: &str| DeadLetterView {
            at: Timestamp::UNIX_EPOCH,
            function: "notify".into(),
            reason: reason.into(),
            job: None,
            phase: None,
            tried_until: None,
            mended_by: None,
        };
        for (reason, want) in [
            ("a: it answered 404", "a: it answered 404"),
            ("a: 404\nb: 503", "2 webhooks: a: 404; b: 503"),
            ("a: 1\nb: 2\nc: 3", "3 webhooks: a: 1; b: 2; c: 3"),
            ("a: 1\nb: 2\nc: 3\nd: 4\ne: 5", "5 webhooks: a: 1; b: 2; c: 3; and 2 more"),
        ] {
            assert_eq!(letter(reason).brief(), want);
        }
    }
}
