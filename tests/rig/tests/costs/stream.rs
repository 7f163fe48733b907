//! A page's streams.

use axum::Router;
use jiff::{SignedDuration, Timestamp};

use rekindle_rig::get;

use super::bill::Book;
use super::play::call;

/// A stream of server-sent events that a page comes back to.
pub(crate) struct Stream {
    path: &'static str,
    last_id: Option<String>,
    next_at: Timestamp,
    told: usize,
}

impl Stream {
    pub(crate) fn new(path: &'static str, now: Timestamp) -> Self {
        Self { path, last_id: None, next_at: now, told: 0 }
    }

    /// Lines that were told behind those of the first look.
    pub(crate) fn told(&self) -> usize {
        self.told
    }

    /// Looks, if it is time to.
    pub(crate) async fn look(&mut self, router: &Router, book: &Book, now: Timestamp) {
        if now < self.next_at {
            return;
        }
        let mut request = get(self.path);
        if let Some(id) = &self.last_id {
            request.headers_mut().insert("last-event-id", id.parse().unwrap());
        }
        let answer = call(router, book, request).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        if self.last_id.is_some() {
            self.told += answer.text().lines().filter(|line| line.starts_with("data: {")).count();
        }
        let last = |field: &str| {
            let lines: Vec<&str> = answer.text().lines().filter_map(|line| line.strip_prefix(field)).collect();
            lines.last().map(|text| (*text).to_owned())
        };
        self.last_id = last("id: ").or(self.last_id.take());
        let wait = last("retry: ").expect("when to come back").parse::<i64>().unwrap();
        assert!(wait >= 5000);
        self.next_at = now + SignedDuration::from_millis(wait);
    }
}
