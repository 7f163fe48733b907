//! Wake-ups and the tick in process, over real HTTP: requests as Cloud Tasks and Cloud Scheduler send them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use rekindle_core::ids::JobId;
use rekindle_ports::world::{Clock, Hint, Wakeups, WorldError};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use tokio::sync::Notify;

use crate::post::{BACKOFF_MAX, BACKOFF_MIN, Hand, Request, Sender, pause};

/// Wake-ups that may wait; further ones are refused, and left to the tick.
const WAITING_MAX: usize = 20_000;

/// Longest sleep without a look at the clock, since it may be set while we sleep.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A pass may take so long to answer.
const ANSWER: Duration = Duration::from_mins(2);

/// Wake-ups that wait: by time, and by key.
#[derive(Default)]
struct Waiting {
    by_key: BTreeMap<String, Timestamp>,
    by_time: BTreeMap<(Timestamp, String), JobId>,
}

/// Wake-ups in process: one for each key, the earliest time given for it. Dropping it ends them.
pub struct LocalWakeups {
    waiting: Arc<Mutex<Waiting>>,
    changed: Arc<Notify>,
    sender: Sender,
}

impl LocalWakeups {
    /// Posts to `endpoint` (`…/functions/reconcile`) when `clock` says so. `speed`: how many times faster than the
    /// machine's the clock runs.
    ///
    /// Must be called inside a tokio runtime.
    pub fn start(endpoint: impl Into<String>, clock: Arc<dyn Clock>, speed: f64) -> Result<Self, WorldError> {
        let sender = Sender::new(16, ANSWER);
        let sender = sender.map_err(|e| WorldError { what: "start wake-ups", why: e.to_string() })?;
        let (waiting, changed) = (Arc::<Mutex<Waiting>>::default(), Arc::<Notify>::default());
        let timer = Timer {
            endpoint: endpoint.into(),
            clock,
            speed,
            waiting: Arc::clone(&waiting),
            changed: Arc::clone(&changed),
            hand: sender.hand(),
        };
        sender.spawn(timer.run());
        Ok(Self { waiting, changed, sender })
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        lock(&self.waiting).by_key.len()
    }

    /// Ends the timer; what still waits is forgotten, and left to the tick. Ends requests that are still out after
    /// `grace`.
    pub async fn close(&self, grace: Duration) {
        self.sender.close(grace).await;
    }
}

#[async_trait]
impl Wakeups for LocalWakeups {
    async fn schedule(&self, job: &JobId, at: Timestamp, key: &str) -> Result<(), WorldError> {
        {
            let mut waiting = lock(&self.waiting);
            match waiting.by_key.get(key).copied() {
                Some(known) if known <= at => return Ok(()),
                Some(later) => {
                    waiting.by_time.remove(&(later, key.to_owned()));
                }
                None if waiting.by_key.len() >= WAITING_MAX => {
                    return Err(WorldError { what: "schedule a wake-up", why: format!("{WAITING_MAX} wait already") });
                }
                None => {}
            }
            waiting.by_key.insert(key.to_owned(), at);
            waiting.by_time.insert((at, key.to_owned()), job.clone());
        }
        self.changed.notify_one();
        Ok(())
    }
}

struct Timer {
    endpoint: String,
    clock: Arc<dyn Clock>,
    speed: f64,
    waiting: Arc<Mutex<Waiting>>,
    changed: Arc<Notify>,
    hand: Hand,
}

impl Timer {
    async fn run(self) {
        let mut posts = tokio::task::JoinSet::new();
        loop {
            let now = self.clock.now();
            while let Some((at, key, job)) = self.take_due(now) {
                posts.spawn(wake(self.hand.clone(), self.endpoint.clone(), at, key, job));
            }
            while posts.try_join_next().is_some() {}
            let next = lock(&self.waiting).by_time.keys().next().map(|(at, _)| *at);
            let sleep = next.map_or(LOOK_EVERY, |at| real(now, at, self.speed).min(LOOK_EVERY));
            tokio::select! {
                () = self.hand.closing().cancelled() => break,
                () = self.changed.notified() => {}
                () = tokio::time::sleep(sleep) => {}
            }
        }
        while posts.join_next().await.is_some() {}
    }

    fn take_due(&self, now: Timestamp) -> Option<(Timestamp, String, JobId)> {
        let mut waiting = lock(&self.waiting);
        let first = waiting.by_time.first_entry().filter(|first| first.key().0 <= now)?;
        let ((at, key), job) = first.remove_entry();
        waiting.by_key.remove(&key);
        Some((at, key, job))
    }
}

/// One task: posts the hint until it is taken.
async fn wake(hand: Hand, url: String, at: Timestamp, key: String, job: JobId) {
    let hint = Hint { job, after: None, news: None, cause: "wake-up".into(), traceparent: None };
    let Ok(body) = serde_json::to_vec(&hint) else { return };
    let eta = format!("{}.{:06}", at.as_second(), at.subsec_microsecond());
    let mut retry = 0_u32;
    loop {
        let headers = [
            ("x-cloudtasks-queuename", "rekindle-wakeups".to_owned()),
            ("x-cloudtasks-taskname", key.clone()),
            ("x-cloudtasks-taskretrycount", retry.to_string()),
            ("x-cloudtasks-taskexecutioncount", retry.to_string()),
            ("x-cloudtasks-tasketa", eta.clone()),
        ];
        let request =
            Request { url: url.clone(), headers: trigger_headers("Google-Cloud-Tasks", headers), body: body.clone() };
        let Err(why) = hand.once(&request).await else { return };
        tracing::debug!(key, retry, why, "a wake-up was not taken");
        retry = retry.saturating_add(1);
        tokio::time::sleep(pause(retry + 1, BACKOFF_MIN, BACKOFF_MAX)).await;
    }
}

/// The tick in process. Never two at a time; a tick that fails is tried again until the next one is due. Dropping it
/// ends it.
pub struct LocalTicker {
    sender: Sender,
}

impl LocalTicker {
    /// Posts to `endpoint` (`…/functions/tick`) now, and then every `period` of the machine's time. `clock` gives the
    /// schedule time.
    ///
    /// Must be called inside a tokio runtime.
    pub fn start(endpoint: impl Into<String>, period: Duration, clock: Arc<dyn Clock>) -> Result<Self, WorldError> {
        let sender = Sender::new(1, ANSWER);
        let sender = sender.map_err(|e| WorldError { what: "start the ticker", why: e.to_string() })?;
        sender.spawn(tick(sender.hand(), endpoint.into(), period, clock));
        Ok(Self { sender })
    }

    /// Ends it; a tick that is still out after `grace` is given up.
    pub async fn close(&self, grace: Duration) {
        self.sender.close(grace).await;
    }
}

async fn tick(hand: Hand, url: String, period: Duration, clock: Arc<dyn Clock>) {
    let mut due = tokio::time::interval(period);
    // As in Cloud Scheduler a slow tick swallows those that would have come meanwhile.
    due.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        let scheduled = tokio::select! {
            () = hand.closing().cancelled() => return,
            scheduled = due.tick() => scheduled,
        };
        let headers = [
            ("x-cloudscheduler", "true".to_owned()),
            ("x-cloudscheduler-jobname", "rekindle-tick".to_owned()),
            ("x-cloudscheduler-scheduletime", clock.now().to_string()),
        ];
        let headers = trigger_headers("Google-Cloud-Scheduler", headers);
        let request = Request { url: url.clone(), headers, body: Vec::new() };
        let mut next = 1_u32;
        while let Err(why) = hand.once(&request).await {
            tracing::debug!(why, "a tick was not taken");
            next = next.saturating_add(1);
            let wait = pause(next, BACKOFF_MIN, BACKOFF_MAX);
            if scheduled.elapsed() + wait >= period {
                break;
            }
            tokio::time::sleep(wait).await;
        }
    }
}

fn trigger_headers<const N: usize>(agent: &'static str, more: [(&'static str, String); N]) -> HeaderMap {
    let mut headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(agent))]);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in more {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    headers
}

/// The machine's time until `at`.
fn real(now: Timestamp, at: Timestamp, speed: f64) -> Duration {
    let left = at.duration_since(now).as_secs_f64() / speed;
    Duration::try_from_secs_f64(left.max(0.001)).unwrap_or(LOOK_EVERY)
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}
