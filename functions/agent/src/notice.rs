//! Notices: what the metadata server says about the end of this machine.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use tokio::sync::mpsc;

use rekindle_wire::agent::{Notice, NoticeKind};

use crate::backoff;
use crate::metadata::{Metadata, Tagged};

/// From `maintenance-event` = TERMINATE_ON_HOST_MAINTENANCE to the end of the machine, where no window is announced.
// Compute Engine gives 60 s on most machine types; where it gives more, `upcoming-maintenance` tells.
const TERMINATE_NOTICE: Duration = Duration::from_mins(1);

/// One value of the metadata server has changed, or was read for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// `preempted`.
    Preempted(bool),
    /// `maintenance-event` is TERMINATE_ON_HOST_MAINTENANCE.
    Terminate(bool),
    /// `upcoming-maintenance`.
    Upcoming(Option<Window>),
}

/// A window in which the host goes into maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Window {
    /// Its start.
    #[serde(rename = "window_start_time")]
    start: Timestamp,
    /// Its end.
    #[serde(default, rename = "window_end_time")]
    end: Option<Timestamp>,
}

/// Everything that was said, with the time of each.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words {
    preempted: Option<Timestamp>,
    terminate: Option<Timestamp>,
    upcoming: Option<(Timestamp, Window)>,
}

impl Words {
    /// Takes in a word heard at `now`.
    pub(crate) fn hear(&mut self, word: &Word, now: Timestamp) {
        match word {
            // Nobody is un-preempted; a server that says so was asked for the wrong machine.
            Word::Preempted(yes) => self.preempted = self.preempted.or(yes.then_some(now)),
            Word::Terminate(yes) => self.terminate = if *yes { self.terminate.or(Some(now)) } else { None },
            Word::Upcoming(window) => {
                self.upcoming = window.map(|window| match self.upcoming {
                    Some((seen_at, known)) if known == window => (seen_at, known),
                    _ => (now, window),
                });
            }
        }
    }

    /// The gravest notice at `now`. `grace` is from `preempted` to the end of the machine.
    pub(crate) fn notice(&self, grace: Duration, now: Timestamp) -> Option<Notice> {
        if let Some(seen_at) = self.preempted {
            return Some(Notice { kind: NoticeKind::Preemption, seen_at, deadline: seen_at + grace });
        }
        // A window that is over, and still told of, threatens nobody.
        let upcoming = self.upcoming.filter(|(_, window)| window.end.is_none_or(|end| end > now));
        if let Some(seen_at) = self.terminate {
            let start = upcoming.map(|(_, window)| window.start).filter(|start| *start > seen_at);
            let deadline = start.unwrap_or(seen_at + TERMINATE_NOTICE);
            return Some(Notice { kind: NoticeKind::Maintenance, seen_at, deadline });
        }
        upcoming.map(|(seen_at, window)| Notice { kind: NoticeKind::Maintenance, seen_at, deadline: window.start })
    }
}

/// Watches the three values and sends each change; returns when nobody listens.
pub(crate) fn watch(metadata: &Metadata, words: &mpsc::Sender<Word>) {
    let one = |path: &'static str, read: fn(Option<&str>) -> Word| {
        tokio::spawn(watch_one(metadata.clone(), words.clone(), path, read));
    };
    one("preempted", |v| Word::Preempted(v.is_some_and(|v| v.eq_ignore_ascii_case("true"))));
    one("maintenance-event", |v| Word::Terminate(v == Some("TERMINATE_ON_HOST_MAINTENANCE")));
    one("upcoming-maintenance", |v| Word::Upcoming(v.and_then(window)));
}

/// The window in `upcoming-maintenance`; without one the value is an error in JSON.
fn window(text: &str) -> Option<Window> {
    serde_json::from_str(text).ok()
}

async fn watch_one(metadata: Metadata, words: mpsc::Sender<Word>, path: &'static str, read: fn(Option<&str>) -> Word) {
    let mut failures = 0;
    let mut known: Option<Tagged> = None;
    let mut told: Option<Word> = None;
    loop {
        let answer = match &known {
            Some(Tagged { etag, value: Some(_) }) if !etag.is_empty() => metadata.wait(path, etag).await,
            // Without a tag, or without the key, nothing can be waited for.
            Some(_) => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                metadata.get_tagged(path).await
            }
            None => metadata.get_tagged(path).await,
        };
        match answer {
            Ok(tagged) => {
                failures = 0;
                let word = read(tagged.value.as_deref());
                known = Some(tagged);
                if told.as_ref() != Some(&word) {
                    told = Some(word.clone());
                    if words.send(word).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) => {
                failures += 1;
                known = None;
                tracing::debug!(path, error = format!("{error:#}"), "the metadata server gave nothing");
                tokio::time::sleep(backoff::after(failures, Duration::from_millis(200), Duration::from_secs(5))).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    #[test]
    fn preemption_outweighs_all_and_keeps_its_first_deadline() {
        let mut words = Words::default();
        words.hear(&Word::Upcoming(Some(Window { start: at(9000), end: None })), at(0));
        words.hear(&Word::Preempted(true), at(5));
        words.hear(&Word::Preempted(true), at(9));
        words.hear(&Word::Preempted(false), at(10));
        let notice = words.notice(GRACE, at(11)).unwrap();
        assert_eq!((notice.kind, notice.deadline), (NoticeKind::Preemption, at(35)));
    }

    #[test]
    fn termination_waits_for_an_announced_window() {
        let mut words = Words::default();
        words.hear(&Word::Terminate(true), at(0));
        let deadline = |words: &Words, now| words.notice(GRACE, now).map(|n| n.deadline);
        assert_eq!(deadline(&words, at(0)), Some(at(60)));
        words.hear(&Word::Upcoming(Some(Window { start: at(3600), end: Some(at(7200)) })), at(1));
        assert_eq!(deadline(&words, at(1)), Some(at(3600)));
        words.hear(&Word::Terminate(false), at(2));
        assert_eq!(deadline(&words, at(7199)), Some(at(3600)));
        assert_eq!(deadline(&words, at(7200)), None, "the window is over");
        words.hear(&Word::Upcoming(None), at(3));
        assert_eq!(deadline(&words, at(3)), None);
    }

    #[test]
    fn reads_a_window_and_its_absence() {
        let text = r#"{"can_reschedule":"false","maintenance_status":"PENDING","type":"SCHEDULED",
            "window_end_time":"2026-07-01T12:00:00-07:00","window_start_time":"2026-07-01T08:00:00-07:00"}"#;
        let at = |text: &str| text.parse().unwrap();
        let expected = Window { start: at("2026-07-01T15:00:00Z"), end: Some(at("2026-07-01T19:00:00Z")) };
        assert_eq!(window(text), Some(expected));
        assert_eq!(window(r#"{"error": "no notifications have been received yet"}"#), None);
        assert_eq!(window("NONE"), None);
    }
}
