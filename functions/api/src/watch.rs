//! `GET /v1/watch`: jobs as they change, as server-sent events. One read of an index each time it looks, whatever the
//! number of jobs.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

use axum::extract::State;
use axum::response::Response;
use axum::response::sse::Event;
use futures::stream;
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use tokio::time::Instant;

use rekindle_core::access::Right;
use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_ports::docs::Cursor;
use rekindle_web::{Caller, Problem, Query};
use rekindle_wire::v1::JobView;

use crate::access::{may, may_all};
use crate::streams::Moment;
use crate::{Api, jobs, streams};

/// Commits become visible a little out of order: instances have clocks of their own.
const OVERLAP: SignedDuration = SignedDuration::from_secs(10);
/// The clocks of two instances differ by less.
const AHEAD_MAX: SignedDuration = SignedDuration::from_mins(5);
/// When a brief stream comes back: 5,760 looks a day cost two cents, a held stream two dollars.
const BRIEF_RETRY: std::time::Duration = std::time::Duration::from_secs(15);
/// Jobs that are read at once, and events that wait for a client that is slow to read: of large ones more would not fit into the
/// service's memory.
const PAGE: usize = 32;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchQuery {
    /// Changes from here on; absent: from now on.
    since: Option<Moment>,
    /// For pages that stay open: where a held stream is paid for, one that has nothing to tell ends at once and says when
    /// to come back.
    brief: Option<bool>,
}

/// Events `job` with a job as lists show it. The id of an event is the moment of the change, in microseconds.
pub(crate) async fn watch(
    State(api): State<Api>,
    caller: Caller,
    Query(query): Query<WatchQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let from_id = |text: &str| Timestamp::from_microsecond(text.parse().ok()?).ok();
    let now = api.engine.ports.clock.now();
    // No id of ours is far ahead: the store is an older one, or a clock was wrong. Who waited from there on would be told
    // nothing until then, so all jobs are told anew.
    let since = match streams::last_id(&headers, from_id)? {
        Some(last) if last.duration_since(now) > AHEAD_MAX => Timestamp::UNIX_EPOCH,
        Some(last) => last,
        None => query.since.map_or(now, |Moment(since)| since),
    };
    // The id of a moment, so that a client that was told nothing goes on from here.
    let mut hello = Event::default().id(since.as_microsecond().to_string());
    let is_brief = streams::is_brief(&api, query.brief);
    if is_brief {
        hello = hello.retry(BRIEF_RETRY);
    }
    let sees_all = may_all(&api, &caller, Right::See);
    let watch = Watch {
        api,
        caller,
        sees_all,
        since,
        is_brief,
        told: BTreeMap::new(),
        page: None,
        ready: VecDeque::from([hello]),
        heard: Instant::now(),
    };
    let events = stream::unfold(watch, |mut watch| async move {
        watch.next().await.map(|event| (Ok::<_, Infallible>(event), watch))
    });
    Ok(streams::answer(events))
}

/// State of one watcher.
struct Watch {
    api: Api,
    caller: Caller,
    sees_all: bool,
    /// There was no news yet, and none is waited for.
    is_brief: bool,
    since: Timestamp,
    /// Revisions within the overlap that were told already.
    told: BTreeMap<JobId, (Timestamp, u64)>,
    /// The page that comes next in a look that is not over, with the moment from which that looks.
    page: Option<(Timestamp, Cursor)>,
    ready: VecDeque<Event>,
    heard: Instant,
}

impl Watch {
    /// The next event; `None` ends the stream after a minute of silence, or when the store cannot be read. Clients come
    /// back with the last id.
    async fn next(&mut self) -> Option<Event> {
        let pause = streams::pause(&self.api);
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.heard = Instant::now();
                return Some(event);
            }
            self.look().await?;
            if !self.ready.is_empty() || self.page.is_some() {
                continue;
            }
            if self.is_brief {
                return None;
            }
            if self.heard.elapsed() >= self.api.silence_max {
                return None;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Reads the next page of what changed: the one after it once the client has taken the events of this one.
    async fn look(&mut self) -> Option<()> {
        let (from, after) = match self.page.take() {
            Some((from, after)) => (from, Some(after)),
            None => (self.since.saturating_sub(OVERLAP).unwrap_or(self.since), None),
        };
        let api = self.api.clone();
        let who = self.caller.identity.clone();
        let _place = api.queue.place(&who).await.ok()?;
        let page = api.engine.ports.store.changed_jobs(from, after, PAGE).await;
        let (jobs, next) = page.inspect_err(|error| tracing::warn!(%error, "changes cannot be read")).ok()?;
        let is_told = |job: &Job| self.told.get(&job.id).is_some_and(|(_, revision)| *revision >= job.revision);
        let news = jobs.iter().map(|at| &*at.value).filter(|job| !is_told(job));
        let steps = jobs::first_reports(&api, news).await;
        for job in jobs {
            let job = job.value;
            if self.told.get(&job.id).is_some_and(|(_, revision)| *revision >= job.revision) {
                continue;
            }
            self.told.insert(job.id.clone(), (job.changed_at, job.revision));
            let is_news = job.changed_at > self.since;
            self.since = self.since.max(job.changed_at);
            if !self.sees_all && !may(&api, &self.caller, Right::See, &job.spec.owner) {
                continue;
            }
            // What is told again because of the overlap is no news.
            self.is_brief &= !is_news;
            let mut view = JobView::in_list(&job, &jobs::usage(&api, &job));
            if let Some(report) = steps.get(&job.id) {
                view = view.with_newer_step(report);
            }
            let event = Event::default().event("job").id(self.since.as_microsecond().to_string());
            self.ready.extend(event.json_data(&view));
        }
        self.page = next.map(|next| (from, next));
        let kept = self.since.saturating_sub(OVERLAP).unwrap_or(self.since);
        self.told.retain(|_, (at, _)| *at >= kept);
        Some(())
    }
}
