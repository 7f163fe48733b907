//! The one table of answers to triggers: what a handler found out, and the HTTP status that makes the sender do the
//! right thing.

use axum::response::{IntoResponse, Response};
use http::StatusCode;

use crate::about;
use crate::problem::problem;

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done, or nothing to do: 204.
    Done,
    /// Somebody else did it, or a later event was seen already: 204.
    Superseded,
    /// It speaks of a job that does not exist: 204.
    NoSuchJob,
    /// It speaks of something that is not ours: 204.
    NotOurs,
    /// A readable envelope with a payload that cannot be used; recorded and forwarded before this answer: 204.
    Recorded,
    /// It should come again: 503.
    Transient(String),
    /// A bug: nothing was committed: 500.
    Invariant(String),
}

impl Answer {
    /// The worse of two, for a batch: one that should come again brings all of it again.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let rank = |a: &Self| match a {
            Self::Invariant(_) => 3,
            Self::Transient(_) => 2,
            Self::Recorded => 1,
            Self::Done | Self::Superseded | Self::NoSuchJob | Self::NotOurs => 0,
        };
        if rank(&other) > rank(&self) { other } else { self }
    }

    /// Its HTTP status.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Done | Self::Superseded | Self::NoSuchJob | Self::NotOurs | Self::Recorded => StatusCode::NO_CONTENT,
            Self::Transient(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Invariant(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = self.status();
        match self {
            Self::Done | Self::Superseded | Self::NoSuchJob | Self::NotOurs => {
                tracing::debug!(answer = ?self, "handled");
                status.into_response()
            }
            Self::Recorded => {
                tracing::info!(
                    job = about::known(),
                    "a message was recorded as unusable and forwarded to the dead-letter topic"
                );
                status.into_response()
            }
            Self::Transient(why) => {
                tracing::warn!(job = about::known(), "a message is to be delivered again: {why}");
                problem(status, "transient", why).into_response()
            }
            Self::Invariant(why) => {
                tracing::error!(job = about::known(), "an invariant does not hold; nothing was committed: {why}");
                problem(status, "invariant", why).into_response()
            }
        }
    }
}
