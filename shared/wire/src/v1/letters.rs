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
    /// Why. Of a webhook only its host is told: the rest of the address is often a token.
    pub reason: String,
    /// The job that it is about, if it is one's.
    pub job: Option<JobId>,
    /// The phase that a webhook was not told.
    pub phase: Option<Phase>,
    /// It is tried again, at least until then; null: it is given up.
    #[serde(default)]
    pub tried_until: Option<Timestamp>,
}

/// Answer of `GET /v1/dead-letters`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterList {
    /// Newest first. They are kept for 40 days.
    pub letters: Vec<DeadLetterView>,
    /// Where the next page begins, if there is one.
    pub next_page_token: Option<String>,
}
