//! Counts, and their prices.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;

use bytes::Bytes;
use rekindle_ports::docs::{Doc, Docs, DocsError, Page, Query, Revision, Write};
use rekindle_ports::world::{Objects, WorldError};

/// Hours of a month, as prices count them.
pub(crate) const HOURS_A_MONTH: u64 = 730;
/// One job of Cloud Scheduler for a month, without the three that are free.
pub(crate) const SCHEDULER: f64 = 0.10;

/// A request on Cloud Run with 1 vCPU and 512 MiB, billed by request: for the request itself, and for each second.
const REQUEST: f64 = 0.40 / 1e6;
pub(crate) const SECOND: f64 = 0.000_024 + 0.5 * 0.000_002_5;
/// Time is rounded up to this. Handlers without a call of the TPU API are taken to answer within it: a test measures them in the local
/// system, and in a real project Cloud Run's own `request_latencies` tells.
pub(crate) const QUANTUM: f64 = 0.1;
/// What a call of the TPU API, or some side by side, add to their handler. Assumed: only a real project can show it.
const TPU_CALL: f64 = 0.3;
/// Firestore, one region.
const READ: f64 = 0.03 / 1e5;
const WRITE: f64 = 0.09 / 1e5;
const DELETE: f64 = 0.01 / 1e5;
/// Pub/Sub: 1000 bytes at least for the publish and for the push, at 40 dollars a tebibyte.
const MESSAGE: f64 = 2000.0 * 40.0 / 1_099_511_627_776.0;
/// Cloud Tasks, above the million that is free.
const TASK: f64 = 0.40 / 1e6;
/// Cloud Storage in one region, operations of class A: a list, and the write of an object. In two regions they cost twice as much.
pub(crate) const OBJECT_CALL: f64 = 0.005 / 1000.0;
/// The same of class B: the read of an object.
pub(crate) const OBJECT_READ: f64 = 0.0004 / 1000.0;

/// An alert condition's reference to a metric for a month, and each point that its query returns, one each 30 s: from September 2027 on.
/// Until then alerting is free, and conditions on log lines stay so.
const REFERENCE: f64 = 0.35;
const POINT: f64 = 0.50 / 1e6;
const POINTS_AN_HOUR: u64 = 120;
/// Log-based metrics: 8 bytes a point and minute. Of ours, ticks alone are counted when nothing happens.
const POINT_MIB: f64 = 8.0 / (1024.0 * 1024.0);
/// That many MiB of metrics are free each month.
const FREE_METRIC_MIB: f64 = 150.0;
/// What is written to Cloud Logging for a request: two lines of our own and Cloud Run's. Assumed, rather high.
const LOG_GIB: f64 = 3.0 * 1024.0 / (1024.0 * 1024.0 * 1024.0);
/// That many GiB of a project are free each month.
const FREE_LOG_GIB: f64 = 50.0;
/// Images that are kept, and the GB that are free.
const IMAGES: f64 = 10.0;
const FREE_IMAGES: f64 = 0.5;

/// An instance of each service is taken to live all month: probes of the process are billed for their time as requests are.
const SERVICES: u64 = 3;
/// A start of an instance is billed, too: taken to last a second, with the second vCPU that the boost adds.
pub(crate) const COLD_START: f64 = 2.0 * 0.000_024 + 0.5 * 0.000_002_5;
/// How many of them are taken. Only a real project can show it: an instance that is called each minute is kept, as a rule.
const COLD_STARTS_AN_HOUR: u64 = 1;

/// What an idle month costs beside calls, images of that size in it and a probe of each service each so many seconds, as rows of the table; and the sums
/// in US dollars, until August 2027 and after it.
pub(crate) fn standing(month: &Bill, references: u64, image_gb: f64, probe_secs: u64) -> (Vec<String>, [f64; 2]) {
    let probes = SERVICES * HOURS_A_MONTH * 3600 / probe_secs;
    let probing = probes as f64 * QUANTUM * SECOND;
    let starts = HOURS_A_MONTH * COLD_STARTS_AN_HOUR;
    let starting = starts as f64 * COLD_START;
    let points = references * HOURS_A_MONTH * POINTS_AN_HOUR;
    let alerts = references as f64 * REFERENCE + points as f64 * POINT;
    let metrics = (HOURS_A_MONTH * 60) as f64 * POINT_MIB;
    let logs = month.requests as f64 * LOG_GIB;
    let images = image_gb * IMAGES;
    let is_free = logs < FREE_LOG_GIB && images < FREE_IMAGES && metrics < FREE_METRIC_MIB;
    assert!(is_free, "what is free is not enough any more: {logs} {images} {metrics}");
    let rows = vec![
        format!("| probes of the process | {probes} | {probing:.2} | {probing:.2} |"),
        format!("| cold starts | {starts} | {starting:.2} | {starting:.2} |"),
        format!("| alert conditions on metrics | {references}, and {points} points | 0.00 | {alerts:.2} |"),
        format!("| log-based metrics | {metrics:.2} MiB | 0.00 | 0.00 |"),
        format!("| log writes | {logs:.2} GiB | 0.00 | 0.00 |"),
        format!("| image registry | {images:.2} GB | 0.00 | 0.00 |"),
        "| Cloud NAT | 0 VMs, 0 addresses | 0.00 | 0.00 |".into(),
    ];
    let both = probing + starting;
    (rows, [both, both + alerts])
}

/// What a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A job's life: submit, passes, hello, reports with news.
    Life,
    /// Reports that say nothing new, during the setup and during the run.
    Heartbeat,
    /// The tick.
    Tick,
    /// People.
    Page,
    /// What programs print.
    Output,
}

/// Counted calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bill {
    /// Documents read; a query counts one at least.
    pub(crate) reads: u64,
    /// Documents written.
    pub(crate) writes: u64,
    /// Documents deleted.
    pub(crate) deletes: u64,
    /// Calls of the TPU API, which are free, but take time.
    pub(crate) tpu_calls: u64,
    /// How many of these are waited for one after the other: those that go side by side take the time of one.
    pub(crate) tpu_waits: u64,
    /// Messages published, each of which is pushed once.
    pub(crate) messages: u64,
    /// Tasks made.
    pub(crate) tasks: u64,
    /// Requests to our services.
    pub(crate) requests: u64,
    /// Lists of objects.
    pub(crate) lists: u64,
    /// Objects read, or asked for.
    pub(crate) gets: u64,
    /// Objects written.
    pub(crate) puts: u64,
}

impl Bill {
    fn each(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            reads: with(self.reads, other.reads),
            writes: with(self.writes, other.writes),
            deletes: with(self.deletes, other.deletes),
            tpu_calls: with(self.tpu_calls, other.tpu_calls),
            tpu_waits: with(self.tpu_waits, other.tpu_waits),
            messages: with(self.messages, other.messages),
            tasks: with(self.tasks, other.tasks),
            requests: with(self.requests, other.requests),
            lists: with(self.lists, other.lists),
            gets: with(self.gets, other.gets),
            puts: with(self.puts, other.puts),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.each(other, |a, b| a + b)
    }

    pub(crate) fn without(self, other: &Self) -> Self {
        self.each(*other, |a, b| a - b)
    }

    pub(crate) fn times(self, count: u64) -> Self {
        self.each(self, |a, _| a * count)
    }

    /// Seconds of instances.
    pub(crate) fn seconds(&self) -> f64 {
        self.requests as f64 * QUANTUM + self.tpu_wait_seconds()
    }

    /// Seconds of them that calls of the TPU API take.
    fn tpu_wait_seconds(&self) -> f64 {
        self.tpu_waits as f64 * TPU_CALL
    }

    /// The share of the dollars that goes with these.
    pub(crate) fn tpu_share(&self) -> f64 {
        self.tpu_wait_seconds() * SECOND / self.usd()
    }

    /// US dollars of what was counted, without the time that is assumed for these.
    pub(crate) fn usd_counted(&self) -> f64 {
        self.usd() - self.tpu_wait_seconds() * SECOND
    }

    /// US dollars.
    pub(crate) fn usd(&self) -> f64 {
        self.requests as f64 * REQUEST
            + self.seconds() * SECOND
            + self.reads as f64 * READ
            + self.writes as f64 * WRITE
            + self.deletes as f64 * DELETE
            + self.messages as f64 * MESSAGE
            + self.tasks as f64 * TASK
            + (self.lists + self.puts) as f64 * OBJECT_CALL
            + self.gets as f64 * OBJECT_READ
    }
}

/// Bills by what they belong to.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    now: Option<Kind>,
    bills: BTreeMap<Kind, Bill>,
    times: Vec<Duration>,
}

/// A ledger in many hands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Book(Arc<Mutex<Ledger>>);

impl Book {
    /// What follows belongs to that.
    pub(crate) fn turn(&self, kind: Kind) {
        self.0.lock().unwrap().now = Some(kind);
    }

    pub(crate) fn add(&self, bill: Bill) {
        let mut ledger = self.0.lock().unwrap();
        let kind = ledger.now.expect("somebody began to count");
        let sum = ledger.bills.entry(kind).or_default();
        *sum = sum.plus(bill);
    }

    /// A request took so long.
    pub(crate) fn took(&self, time: Duration) {
        self.0.lock().unwrap().times.push(time);
    }

    pub(crate) fn times(&self) -> Vec<Duration> {
        self.0.lock().unwrap().times.clone()
    }

    pub(crate) fn of(&self, kinds: &[Kind]) -> Bill {
        let ledger = self.0.lock().unwrap();
        kinds.iter().filter_map(|kind| ledger.bills.get(kind)).fold(Bill::default(), |sum, bill| sum.plus(*bill))
    }
}

/// A document store that counts as Firestore does.
pub(crate) struct Counting {
    pub(crate) inner: Arc<dyn Docs>,
    pub(crate) book: Book,
}

impl Counting {
    fn read(&self, count: usize) {
        self.book.add(Bill { reads: count.max(1) as u64, ..Bill::default() });
    }
}

#[async_trait]
impl Docs for Counting {
    async fn get(&self, path: &str) -> Result<Option<Doc>, DocsError> {
        self.read(1);
        self.inner.get(path).await
    }

    async fn get_many(&self, paths: &[String]) -> Result<(Vec<Option<Doc>>, Revision), DocsError> {
        self.read(paths.len());
        self.inner.get_many(paths).await
    }

    async fn query(&self, query: &Query) -> Result<Page, DocsError> {
        let page = self.inner.query(query).await?;
        self.read(page.docs.len());
        Ok(page)
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, DocsError> {
        for write in &writes {
            self.book.add(match write {
                Write::Put { .. } => Bill { writes: 1, ..Bill::default() },
                Write::Delete { .. } => Bill { deletes: 1, ..Bill::default() },
            });
        }
        self.inner.commit(writes).await
    }
}

/// An object store that counts as Cloud Storage does.
pub(crate) struct CountingObjects {
    pub(crate) inner: Arc<dyn Objects>,
    pub(crate) book: Book,
}

#[async_trait]
impl Objects for CountingObjects {
    async fn put(&self, name: &str, body: Bytes) -> Result<(), WorldError> {
        self.book.add(Bill { puts: 1, ..Bill::default() });
        self.inner.put(name, body).await
    }

    async fn get(&self, name: &str, from: u64, len: u64) -> Result<Option<Bytes>, WorldError> {
        self.book.add(Bill { gets: 1, ..Bill::default() });
        self.inner.get(name, from, len).await
    }

    async fn size(&self, name: &str) -> Result<Option<u64>, WorldError> {
        self.book.add(Bill { gets: 1, ..Bill::default() });
        self.inner.size(name).await
    }

    async fn list(&self, prefix: &str, after: Option<&str>, limit: usize) -> Result<Vec<String>, WorldError> {
        self.book.add(Bill { lists: 1, ..Bill::default() });
        self.inner.list(prefix, after, limit).await
    }

    async fn upload_address(&self, name: &str) -> Result<String, WorldError> {
        self.inner.upload_address(name).await
    }
}
