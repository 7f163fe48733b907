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
    /// `maintenance-event`.
    Event(HostEvent),
    /// `upcoming-maintenance`, and whether the machine is one that is moved then.
    Upcoming(Option<Window>, bool),
}

/// What the host is about to do to this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum HostEvent {
    /// Nothing, or nothing that we know.
    #[default]
    None,
    /// `MIGRATE_ON_HOST_MAINTENANCE`: it is moved while it runs.
    Migrate,
    /// `TERMINATE_ON_HOST_MAINTENANCE`: it is switched off.
    Terminate,
}

impl HostEvent {
    fn of(text: Option<&str>) -> Self {
        match text {
            Some("MIGRATE_ON_HOST_MAINTENANCE") => Self::Migrate,
            Some("TERMINATE_ON_HOST_MAINTENANCE") => Self::Terminate,
            _ => Self::None,
        }
    }
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
    migrate: Option<Timestamp>,
    upcoming: Option<Upcoming>,
}

/// An announced window, with the time at which it was first told as it is.
#[derive(Debug, Clone, Copy)]
struct Upcoming {
    seen_at: Timestamp,
    window: Window,
    /// The machine is moved then, not switched off.
    is_migration: bool,
}

impl Words {
    /// Takes in a word heard at `now`.
    pub(crate) fn hear(&mut self, word: &Word, now: Timestamp) {
        match word {
            // Nobody is un-preempted; a server that says so was asked for the wrong machine.
            Word::Preempted(yes) => self.preempted = self.preempted.or(yes.then_some(now)),
            Word::Event(event) => {
                self.terminate = self.terminate.or(Some(now)).filter(|_| *event == HostEvent::Terminate);
                self.migrate = self.migrate.or(Some(now)).filter(|_| *event == HostEvent::Migrate);
                // Stays known of the window when the event is over before it.
                if let Some(known) = self.upcoming.as_mut().filter(|u| !u.is_migration && self.migrate.is_some()) {
                    (known.is_migration, known.seen_at) = (true, now);
                }
            }
            Word::Upcoming(window, is_migration) => {
                self.upcoming = window.map(|window| match self.upcoming {
                    Some(known) if known.window == window && known.is_migration == *is_migration => known,
                    _ => Upcoming { seen_at: now, window, is_migration: *is_migration },
                });
            }
        }
    }

    /// The gravest notice at `now`. `grace` is from `preempted` to the end of the machine; `by` tells a time of ours by
    /// another clock. Windows have the provider's own times.
    pub(crate) fn notice(
        &self,
        grace: Duration,
        now: Timestamp,
        by: impl Fn(Timestamp) -> Timestamp,
    ) -> Option<Notice> {
        if let Some(seen_at) = self.preempted.map(&by) {
            return Some(Notice { kind: NoticeKind::Preemption, seen_at, deadline: seen_at + grace });
        }
        // A window that is over, and still told of, threatens nobody.
        let upcoming = self.upcoming.filter(|upcoming| upcoming.window.end.is_none_or(|end| end > by(now)));
        let start = upcoming.map(|upcoming| upcoming.window.start);
        if let Some(seen_at) = self.terminate.map(&by) {
            let deadline = start.filter(|start| *start > seen_at).unwrap_or(seen_at + TERMINATE_NOTICE);
            return Some(Notice { kind: NoticeKind::Maintenance, seen_at, deadline });
        }
        if let Some(seen_at) = self.migrate.map(&by) {
            return Some(Notice { kind: NoticeKind::Migration, seen_at, deadline: start.unwrap_or(seen_at) });
        }
        upcoming.map(|Upcoming { seen_at, window, is_migration }| Notice {
            kind: if is_migration { NoticeKind::Migration } else { NoticeKind::Maintenance },
            seen_at: by(seen_at),
            deadline: window.start,
        })
    }
}

/// Watches the three values and sends each change; returns when nobody listens.
pub(crate) fn watch(metadata: &Metadata, words: &mpsc::Sender<Word>) {
    for key in [Key::Preempted, Key::Event, Key::Upcoming] {
        tokio::spawn(watch_one(metadata.clone(), words.clone(), key));
    }
}

/// A value that is watched.
#[derive(Debug, Clone, Copy)]
enum Key {
    Preempted,
    Event,
    Upcoming,
}

impl Key {
    const fn path(self) -> &'static str {
        match self {
            Self::Preempted => "preempted",
            Self::Event => "maintenance-event",
            Self::Upcoming => "upcoming-maintenance",
        }
    }

    /// What its value says.
    async fn read(self, metadata: &Metadata, value: Option<&str>) -> anyhow::Result<Word> {
        Ok(match self {
            Self::Preempted => Word::Preempted(value.is_some_and(|value| value.eq_ignore_ascii_case("true"))),
            Self::Event => Word::Event(HostEvent::of(value)),
            Self::Upcoming => {
                let window = value.and_then(window);
                // Together with the window, so that no program is ended by a window whose sort is not known yet.
                Word::Upcoming(window, window.is_some() && migrates(metadata).await?)
            }
        })
    }
}

/// True if host maintenance moves this machine. TPU VMs are switched off today.
async fn migrates(metadata: &Metadata) -> anyhow::Result<bool> {
    match HostEvent::of(metadata.get("maintenance-event").await?.as_deref()) {
        HostEvent::Migrate => Ok(true),
        HostEvent::Terminate => Ok(false),
        HostEvent::None => Ok(metadata.get("scheduling/on-host-maintenance").await?.as_deref() == Some("MIGRATE")),
    }
}

/// The window in `upcoming-maintenance`; without one the value is an error in JSON.
fn window(text: &str) -> Option<Window> {
    serde_json::from_str(text).ok()
}

async fn watch_one(metadata: Metadata, words: mpsc::Sender<Word>, key: Key) {
    let path = key.path();
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
        let word = match answer {
            Ok(tagged) => key.read(&metadata, tagged.value.as_deref()).await.map(|word| (tagged, word)),
            Err(error) => Err(error),
        };
        match word {
            Ok((tagged, word)) => {
                failures = 0;
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
        words.hear(&Word::Upcoming(Some(Window { start: at(9000), end: None }), false), at(0));
        words.hear(&Word::Preempted(true), at(5));
        words.hear(&Word::Preempted(true), at(9));
        words.hear(&Word::Preempted(false), at(10));
        let notice = words.notice(GRACE, at(11), |at| at).unwrap();
        assert_eq!((notice.kind, notice.deadline), (NoticeKind::Preemption, at(35)));
    }

    #[test]
    fn termination_waits_for_an_announced_window() {
        let mut words = Words::default();
        words.hear(&Word::Event(HostEvent::Terminate), at(0));
        let deadline = |words: &Words, now| words.notice(GRACE, now, |at| at).map(|n| n.deadline);
        assert_eq!(deadline(&words, at(0)), Some(at(60)));
        words.hear(&Word::Upcoming(Some(Window { start: at(3600), end: Some(at(7200)) }), false), at(1));
        assert_eq!(deadline(&words, at(1)), Some(at(3600)));
        words.hear(&Word::Event(HostEvent::None), at(2));
        assert_eq!(deadline(&words, at(7199)), Some(at(3600)));
        assert_eq!(deadline(&words, at(7200)), None, "the window is over");
        words.hear(&Word::Upcoming(None, false), at(3));
        assert_eq!(deadline(&words, at(3)), None);
    }

    /// What others read, they compare with their own clock.
    #[test]
    fn what_we_heard_is_told_by_another_clock_and_windows_as_they_are() {
        let told = |words: &Words| {
            let notice = words.notice(GRACE, at(300), |at| at - Duration::from_mins(5)).unwrap();
            (notice.seen_at, notice.deadline)
        };
        let mut words = Words::default();
        words.hear(&Word::Upcoming(Some(Window { start: at(70), end: Some(at(80)) }), false), at(300));
        assert_eq!(told(&words), (at(0), at(70)));
        words.hear(&Word::Upcoming(None, false), at(300));
        words.hear(&Word::Event(HostEvent::Terminate), at(300));
        assert_eq!(told(&words), (at(0), at(60)));
        words.hear(&Word::Preempted(true), at(310));
        assert_eq!(told(&words), (at(10), at(40)));
    }

    #[test]
    fn a_migration_is_no_reason_to_leave_whether_it_is_told_before_or_at_its_start() {
        let window = Some(Window { start: at(100), end: Some(at(900)) });
        let told = |words: &Words, now| {
            let notice = words.notice(GRACE, now, |at| at).unwrap();
            (notice.kind, rekindle_core::orders::notice_is_urgent(&notice, now))
        };
        let mut words = Words::default();
        words.hear(&Word::Upcoming(window, true), at(0));
        assert_eq!(told(&words, at(99)), (NoticeKind::Migration, false), "told before");
        words.hear(&Word::Event(HostEvent::Migrate), at(100));
        assert_eq!(told(&words, at(200)), (NoticeKind::Migration, false), "begun");
        words.hear(&Word::Preempted(true), at(201));
        assert_eq!(told(&words, at(201)), (NoticeKind::Preemption, true), "a preemption outweighs it");

        let mut words = Words::default();
        words.hear(&Word::Upcoming(window, false), at(0));
        assert_eq!(told(&words, at(0)), (NoticeKind::Maintenance, false));
        assert_eq!(told(&words, at(100)), (NoticeKind::Maintenance, true), "a window that has begun");
        words.hear(&Word::Event(HostEvent::Migrate), at(101));
        assert_eq!(told(&words, at(101)), (NoticeKind::Migration, false), "told at its start");
        words.hear(&Word::Event(HostEvent::None), at(102));
        assert_eq!(told(&words, at(102)), (NoticeKind::Migration, false), "it was moved; the window is still told of");
        words.hear(&Word::Event(HostEvent::Terminate), at(103));
        assert_eq!(told(&words, at(103)), (NoticeKind::Maintenance, true), "it is switched off after all");
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
