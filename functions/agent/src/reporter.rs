//! Talk with `api`: hello once, then reports for ever.
//!
//! Each report carries all that is known, so a report that is dropped in flight because something newer happened loses
//! nothing but its answer. Two in a row are not: the answer is the order.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use rekindle_wire::agent::{ExitReport, Hello, Notice, Order, Progress, Report, WorkerState};

use crate::api::{Answer, Api, CallError};
use crate::bell::{self, Bell, Cause};
use crate::keep::Keeper;
use crate::kernel::Kernel;
use crate::metadata::Node;
use crate::{backoff, evidence, files};

/// Bounds of what `api` may ask for as the wait until the next call.
const POLL_MIN: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_mins(2);
/// The longest wait of who is refused.
const REFUSED_MAX: Duration = Duration::from_mins(1);
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// News (an exit, a notice) must not wait long once `api` is back, and 10 s hurt nobody when it is not.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// A report does not wait longer for a figure.
const GAUGE_MAX: Duration = Duration::from_millis(300);

/// What the machine knows, for reports.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot {
    /// The attempt it speaks of.
    pub(crate) attempt: u32,
    /// What goes on.
    pub(crate) state: WorkerState,
    /// Start of the program.
    pub(crate) started_at: Option<Timestamp>,
    /// Progress lines.
    pub(crate) progress: Progress,
    /// Last output.
    pub(crate) output_at: Option<Timestamp>,
    /// A notice seen here.
    pub(crate) notice: Option<Notice>,
    /// The end of the attempt's program.
    pub(crate) exit: Option<ExitReport>,
    /// The work of the attempt is here.
    pub(crate) has_work: bool,
    /// It has ended, and its outputs are being collected.
    pub(crate) is_collecting: bool,
    /// Output of an ended program waits to be sent.
    pub(crate) has_unsent: bool,
}

/// What is news: a change here is reported at once, and stored.
#[derive(Debug, Clone, PartialEq)]
struct News {
    attempt: u32,
    state: WorkerState,
    notice: Option<Notice>,
    is_exited: bool,
    is_collecting: bool,
    has_unsent: bool,
    has_stepped: bool,
    checkpoint: Option<u64>,
}

impl News {
    /// It cannot wait until `known`, which is in flight, is answered. What a program says of itself can, or one that says more
    /// than `api` answers would keep the agent from ever hearing an order.
    fn overtakes(&self, known: &Self) -> bool {
        (self.attempt, &self.notice, self.is_exited) != (known.attempt, &known.notice, known.is_exited)
    }
}

impl Snapshot {
    fn news(&self) -> News {
        News {
            attempt: self.attempt,
            state: self.state,
            notice: self.notice.clone(),
            is_exited: self.exit.is_some(),
            is_collecting: self.is_collecting,
            has_unsent: self.has_unsent,
            has_stepped: self.progress.step.is_some(),
            checkpoint: self.progress.checkpoint,
        }
    }
}

/// What comes back.
#[derive(Debug)]
pub(crate) enum FromApi {
    /// What to do, and how far the clock of `api` is ahead.
    Order(Box<Order>, SignedDuration),
    /// The exit of this attempt is stored.
    ExitAccepted(u32),
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptToken {
    instance: String,
    boot_id: String,
    token: String,
}

/// Everything that a reporter needs.
pub(crate) struct Reporter {
    /// Calls.
    pub(crate) api: Api,
    /// Who this is.
    pub(crate) node: Arc<Node>,
    /// Boot id of the machine.
    pub(crate) boot_id: String,
    /// Where the token is kept.
    pub(crate) token_file: PathBuf,
    /// Keeps it.
    pub(crate) keeper: Keeper,
    /// For figures.
    pub(crate) kernel: Kernel,
    /// A folder on the disk that the program writes to.
    pub(crate) disk: PathBuf,
    /// The token, for others.
    pub(crate) token: watch::Sender<Option<String>>,
    /// To the machine.
    pub(crate) out: mpsc::Sender<FromApi>,
    /// Rung when there are other orders.
    pub(crate) bell: Bell,
}

impl Reporter {
    /// Talks until the machine leaves.
    pub(crate) async fn run(self, mut snapshots: watch::Receiver<Snapshot>) {
        self.find_token();
        let mut stored: Option<News> = None;
        let mut exit_stored: Option<u32> = None;
        let mut stored_at = Instant::now();
        let mut heartbeat = Duration::ZERO;
        let mut failures = 0;
        let (mut told, mut cause, mut was_dropped) = (None, Cause::News, false);
        let mut disk = self.disk();
        loop {
            let token = self.token.borrow().clone();
            let Some(token) = token else {
                self.hello().await;
                continue;
            };
            let snapshot = snapshots.borrow_and_update().clone();
            let news = snapshot.news();
            let store = stored.as_ref() != Some(&news) || stored_at.elapsed() >= heartbeat;
            let report = self.report(&snapshot, store, exit_stored != Some(snapshot.attempt), disk.read().await);
            let answer = tokio::select! {
                answer = self.api.report(&token, &report) => Some(answer),
                is_new = newer(&mut snapshots, |now| now.overtakes(&news)), if !was_dropped =>
                    if is_new { None } else { return },
            };
            was_dropped = answer.is_none();
            let Some(answer) = answer else { continue };
            let wait = match answer {
                Ok(Answer { body: order, ahead }) => {
                    failures = 0;
                    if store {
                        (stored, stored_at) = (Some(news.clone()), Instant::now());
                        exit_stored = snapshot.exit.as_ref().map(|_| snapshot.attempt).or(exit_stored);
                        if snapshot.exit.is_some()
                            && self.out.send(FromApi::ExitAccepted(snapshot.attempt)).await.is_err()
                        {
                            return;
                        }
                    }
                    let now = bell::told(&order);
                    self.bell.judge(told.replace(now), now, cause);
                    heartbeat = Duration::from_millis(order.heartbeat_ms);
                    let wait = Duration::from_millis(order.poll_after_ms).clamp(POLL_MIN, POLL_MAX);
                    // Not past the time of the next report that is stored, which a call in between would else put off.
                    let wait = wait.min(heartbeat.saturating_sub(stored_at.elapsed()).max(POLL_MIN));
                    if self.out.send(FromApi::Order(Box::new(order), ahead)).await.is_err() {
                        return;
                    }
                    wait
                }
                Err(CallError::Unauthorized(told)) => {
                    self.forget_token(&told);
                    failures += 1;
                    if failures == 1 {
                        continue;
                    }
                    // The token that hello just gave is not taken either: no hurry.
                    backoff::after(failures, RETRY_FIRST, RETRY_MAX)
                }
                Err(error) => {
                    failures += 1;
                    self.unheard(&error, failures)
                }
            };
            cause = tokio::select! {
                () = tokio::time::sleep(wait) => Cause::Time,
                () = self.bell.rung() => Cause::Bell,
                is_open = newer(&mut snapshots, |now| *now != news) => if is_open { Cause::News } else { return },
            };
        }
    }

    fn disk(&self) -> Gauge<impl Fn() -> Option<u64> + Clone + Send + 'static> {
        let folder = self.disk.clone();
        Gauge::new(move || evidence::disk_free(&folder))
    }

    /// Goes on with the token that an earlier agent had in this boot.
    fn find_token(&self) {
        let kept: Option<KeptToken> = files::read_json(&self.token_file);
        let kept = kept.filter(|k| k.boot_id == self.boot_id && k.instance == self.node.instance);
        self.token.send_replace(kept.map(|k| k.token));
    }

    fn forget_token(&self, told: &str) {
        tracing::warn!(told, "the token is lost; saying hello again");
        self.token.send_replace(None);
        self.keeper.put(self.token_file.clone(), None);
    }

    /// After a report that was not taken: how long to wait.
    fn unheard(&self, error: &CallError, failures: u32) -> Duration {
        if matches!(error, CallError::Refused(..)) {
            // An older `api` may not know that field of the report.
            self.bell.doubt();
        }
        tracing::warn!(error = %crate::chain(error), failures, "cannot report");
        backoff::after(failures, RETRY_FIRST, RETRY_MAX)
    }

    /// Says hello until it is answered.
    async fn hello(&self) {
        let hello = Hello {
            job: self.node.job.clone(),
            generation: self.node.generation,
            key: self.node.key,
            nonce: self.node.nonce.clone(),
            instance: self.node.instance.clone(),
            boot_id: self.boot_id.clone(),
            address: self.node.address.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let mut failures = 0;
        loop {
            match self.api.hello(&hello).await {
                Ok(Answer { body: welcome, ahead }) => {
                    let kept = KeptToken {
                        instance: self.node.instance.clone(),
                        boot_id: self.boot_id.clone(),
                        token: welcome.token.clone(),
                    };
                    self.keeper.put_json(self.token_file.clone(), &kept);
                    self.token.send_replace(Some(welcome.token));
                    let _ = self.out.send(FromApi::Order(Box::new(welcome.order), ahead)).await;
                    return;
                }
                Err(error) => {
                    failures += 1;
                    tracing::warn!(error = %crate::chain(&error), failures, "hello was not answered");
                    let most = match error {
                        // Somebody else speaks for this worker, or the job is gone: only a person changes that.
                        CallError::Refused(..) | CallError::Unauthorized(_) | CallError::Conflict => REFUSED_MAX,
                        CallError::Unreachable(_) => RETRY_MAX,
                    };
                    tokio::time::sleep(backoff::after(failures, RETRY_FIRST, most)).await;
                }
            }
        }
    }

    fn report(&self, snapshot: &Snapshot, store: bool, is_exit_due: bool, disk_free: Option<u64>) -> Report {
        Report {
            job: self.node.job.clone(),
            generation: self.node.generation,
            key: self.node.key,
            instance: self.node.instance.clone(),
            boot_id: self.boot_id.clone(),
            attempt: snapshot.attempt,
            store,
            state: snapshot.state,
            started_at: snapshot.started_at,
            progress: snapshot.progress.clone(),
            output_at: snapshot.output_at,
            disk_free_bytes: disk_free,
            memory_free_bytes: self.kernel.memory_free(),
            notice: snapshot.notice.clone(),
            // Its 128 KiB travel until they are stored, and not with every call after that.
            exit: snapshot.exit.clone().filter(|_| is_exit_due),
            has_work: snapshot.has_work,
            has_bell: self.bell.is_heard(),
            is_collecting: snapshot.is_collecting,
            has_unsent: snapshot.has_unsent,
        }
    }
}

/// A figure that a disk may keep for itself: who asks waits for a moment, and for one answer at a time.
struct Gauge<F> {
    ask: F,
    asked: Option<JoinHandle<Option<u64>>>,
}

impl<F: Fn() -> Option<u64> + Clone + Send + 'static> Gauge<F> {
    fn new(ask: F) -> Self {
        Self { ask, asked: None }
    }

    /// The figure, if it is told in time.
    async fn read(&mut self) -> Option<u64> {
        let asked = self.asked.get_or_insert_with(|| tokio::task::spawn_blocking(self.ask.clone()));
        let told = tokio::time::timeout(GAUGE_MAX, asked).await.ok()?;
        self.asked = None;
        told.ok().flatten()
    }
}

/// Waits until the news are such, or are such already; false if there will be none any more.
async fn newer(snapshots: &mut watch::Receiver<Snapshot>, is_wanted: impl Fn(&News) -> bool) -> bool {
    loop {
        if is_wanted(&snapshots.borrow_and_update().news()) {
            return true;
        }
        if snapshots.changed().await.is_err() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_disk_that_hangs_is_asked_once_and_holds_no_report_up() {
        let (answer, answers) = std::sync::mpsc::channel();
        let answers = Arc::new(std::sync::Mutex::new(answers));
        let mut gauge = Gauge::new(move || answers.lock().unwrap().recv().ok());
        assert_eq!(gauge.read().await, None);
        assert_eq!(gauge.read().await, None);
        answer.send(7).unwrap();
        assert_eq!(gauge.read().await, Some(7), "the one that was asked says it");
        answer.send(8).unwrap();
        assert_eq!(gauge.read().await, Some(8));
    }
}
