//! One HTTP request of a trigger, and the retries around it. Shared by topic, wake-ups and ticker.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use reqwest::header::HeaderMap;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Pause before the second try of a delivery.
// The figures of Pub/Sub's push back-off: 100 ms to 60 s.
pub(crate) const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two tries.
pub(crate) const BACKOFF_MAX: Duration = Duration::from_mins(1);

/// A request that is repeated until it is taken.
pub(crate) struct Request {
    /// Where to.
    pub(crate) url: String,
    /// Headers of the first try.
    pub(crate) headers: HeaderMap,
    /// Body.
    pub(crate) body: Vec<u8>,
}

/// Sends requests; owns the tasks that do, and ends them when dropped.
pub(crate) struct Sender {
    client: reqwest::Client,
    permits: Arc<Semaphore>,
    timeout: Duration,
    tracker: TaskTracker,
    closing: CancellationToken,
    ending: CancellationToken,
}

impl Sender {
    /// At most `concurrency` requests at a time, each given up after `timeout`.
    pub(crate) fn new(concurrency: usize, timeout: Duration) -> Result<Self, reqwest::Error> {
        // Redirects are answers, not detours: the platform takes them as a refusal.
        let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().build()?;
        Ok(Self {
            client,
            permits: Arc::new(Semaphore::new(concurrency)),
            timeout,
            tracker: TaskTracker::new(),
            closing: CancellationToken::new(),
            ending: CancellationToken::new(),
        })
    }

    /// A view of it for tasks, which does not keep it alive.
    pub(crate) fn hand(&self) -> Hand {
        Hand {
            client: self.client.clone(),
            permits: Arc::clone(&self.permits),
            timeout: self.timeout,
            closing: self.closing.clone(),
        }
    }

    /// Runs a task until it ends by itself or the sender is dropped.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let ending = self.ending.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                () = ending.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// How many tasks have not ended.
    pub(crate) fn pending(&self) -> usize {
        self.tracker.len()
    }

    /// Waits until every task has ended, at most `grace`, then ends the rest. Answers how many it ended.
    pub(crate) async fn close(&self, grace: Duration) -> usize {
        self.closing.cancel();
        self.tracker.close();
        let left = match tokio::time::timeout(grace, self.tracker.wait()).await {
            Ok(()) => 0,
            Err(_) => self.tracker.len(),
        };
        self.ending.cancel();
        self.tracker.wait().await;
        left
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.ending.cancel();
    }
}

/// What a task sends with.
#[derive(Clone)]
pub(crate) struct Hand {
    client: reqwest::Client,
    permits: Arc<Semaphore>,
    timeout: Duration,
    closing: CancellationToken,
}

impl Hand {
    /// Ends when the sender is being closed: tasks that never end by themselves take nothing new from then on.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// One try. `Err` says why it was not taken.
    pub(crate) async fn once(&self, request: &Request) -> Result<(), String> {
        // The semaphore is never closed; without a permit the request would only go out unbounded.
        let _permit = self.permits.acquire().await;
        let sent = self
            .client
            .post(&request.url)
            .headers(request.headers.clone())
            .body(request.body.clone())
            .timeout(self.timeout)
            .send()
            .await;
        match sent {
            // What Pub/Sub takes as an acknowledgement; Tasks and Scheduler take every 2xx, and our functions send no
            // others.
            Ok(answer) if matches!(answer.status().as_u16(), 102 | 200 | 201 | 202 | 204) => Ok(()),
            Ok(answer) => Err(format!("answered {}", answer.status())),
            Err(error) => Err(error.without_url().to_string()),
        }
    }
}

/// The pause before try number `next` (from 2), with a random tenth so that many do not come back together.
pub(crate) fn pause(next: u32, min: Duration, max: Duration) -> Duration {
    let doubled = min.saturating_mul(1_u32.checked_shl(next.saturating_sub(2)).unwrap_or(u32::MAX)).min(max);
    doubled.mul_f64(rand::rng().random_range(0.9..1.0))
}
