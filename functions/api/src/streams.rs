//! What all streams of server-sent events share: how often they look, how they stay open, where they begin and go on.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::Stream;
use http::HeaderMap;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, de};

use rekindle_web::{Problem, faulty_query};

use crate::Api;

/// Comments keep proxies from closing a quiet connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bounds of the pause between two looks.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MAX: Duration = Duration::from_secs(2);

/// A moment in a query, as RFC 3339 writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment(pub(crate) Timestamp);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let forms = "write it as RFC 3339 does, such as 2026-11-27T18:00:00Z";
        text.parse().map(Self).map_err(|_| de::Error::custom(format_args!("{text:?} is no moment; {forms}")))
    }
}

/// Whether a stream ends as soon as it has nothing to tell. Asked for by pages that stay open, and done where a held stream
/// is paid for.
pub(crate) fn is_brief(api: &Api, asked: Option<bool>) -> bool {
    api.is_surveyed && asked == Some(true)
}

/// Between two looks for something new.
pub(crate) fn pause(api: &Api) -> Duration {
    api.engine.settings.poll_busy.clamp(LOOK_MIN, LOOK_MAX)
}

/// Between two looks for new output: where lists of objects are paid for, no more often than agents send it.
pub(crate) fn pause_of_output(api: &Api) -> Duration {
    if api.is_surveyed { LOOK_MAX } else { pause(api) }
}

/// Where the client that comes back was; `None`: it is new. 400 for an id that was not given out here.
pub(crate) fn last_id<T>(headers: &HeaderMap, parse: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, Problem> {
    let given = headers.get("last-event-id").and_then(|value| value.to_str().ok()).filter(|text| !text.is_empty());
    let Some(text) = given else { return Ok(None) };
    let known =
        parse(text).ok_or_else(|| faulty_query("Last-Event-ID", &format!("{text:?} was not given out here")))?;
    Ok(Some(known))
}

/// The events as an answer.
pub(crate) fn answer(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}
