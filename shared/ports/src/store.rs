//! The typed store: jobs and their documents, over any [`Docs`].
//!
//! **Invariant:** a job document is only ever written at the revision it was read at, with its history entry in the same commit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use rekindle_core::account::Meter;
use rekindle_core::decide::Command;
use rekindle_core::exec::ExecOrder;
use rekindle_core::history::HistoryEntry;
use rekindle_core::ids::{InstallationId, JobId, WorkerKey};
use rekindle_core::job::{Job, Phase, Placement};
use rekindle_core::observation::{WorkerReport, ZoneReport};
use rekindle_core::series::Series;
use rekindle_core::shared::Shared;

use crate::body::Body;
pub use crate::creates::{Before, CreatesDoc, Uses, begin_of, half_of};
pub use crate::dead::DeadDoc;
use crate::docs::{Content, Cursor, Doc, Docs, DocsError, Index, IndexValue, Op, Precondition, Query, Revision, Write};
use crate::kinds::{Kind, SCHEMA};
use crate::pages::{Read, job_query, next_of, readable};

/// So many jobs are read with one call. A job has some kilobytes, and an answer of the store ten megabytes at most.
const NAMED_MAX: usize = 300;

/// Why a typed call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote first; read again.
    #[error("lost a race at {0}")]
    Conflict(String),
    /// Not known whether it was written; read again.
    #[error("outcome unknown: {0}")]
    Unclear(String),
    /// Not available now.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// Its disk has no room. It tells which disk, and what to do.
    #[error("{0}")]
    Full(String),
    /// The store will never accept this.
    #[error("the store refused: {0}")]
    Refused(String),
    /// A stored document cannot be read by this version.
    #[error("the document {path} cannot be read: {why}")]
    Unreadable {
        /// Its path.
        path: String,
        /// Why.
        why: String,
    },
}

impl From<DocsError> for StoreError {
    fn from(error: DocsError) -> Self {
        match error {
            DocsError::Conflict { path } => Self::Conflict(path),
            DocsError::Unclear(why) => Self::Unclear(why),
            DocsError::Unavailable(why) => Self::Unavailable(why),
            DocsError::Full(why) => Self::Full(why),
            DocsError::Refused(why) => Self::Refused(why),
        }
    }
}

/// A thing with the revision it was read at.
#[derive(Debug, Clone, PartialEq)]
pub struct At<T> {
    /// The thing.
    pub value: T,
    /// Its revision.
    pub revision: Revision,
}

/// Entries of a history that are read at once.
const HISTORY_PAGE: usize = 500;

/// `meta/installation`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Installation {
    /// The id that is in every name and label.
    pub id: InstallationId,
    /// Key of nonces and tokens: 64 hex digits.
    pub secret: String,
    /// When it was made.
    pub born_at: Timestamp,
}

/// `meta/liveness`. All times are the store's: the clocks of those that write it may differ by minutes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LivenessDoc {
    /// Last tick.
    pub tick_at: Option<Timestamp>,
    /// Start of the unbroken run of ticks.
    pub tick_since: Option<Timestamp>,
    /// Start of the stretch in which this store is known to have been in charge: a longer gap between ticks, as between the time of a copy and
    /// that of its return, begins another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched_since: Option<Timestamp>,
    /// Last call that `api` took from an agent (or the tick's probe).
    pub api_at: Option<Timestamp>,
    /// Start of the unbroken run of such calls.
    pub api_since: Option<Timestamp>,
    /// What a sweep said last of what it left alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldTold>,
    /// What it said last of the orphans that it may not delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<HeldTold>,
    /// When a tick said last that the list of TPUs fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<HeldTold>,
}

/// That a sweep has told of something, which the next one finds again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTold {
    /// A digest of what was told.
    pub what: String,
    /// When, by the clock of the instance.
    pub at: Timestamp,
}

/// Without a tick for so long something is wrong: one comes each minute.
const TICK_LATE: Duration = Duration::from_mins(5);

impl LivenessDoc {
    /// Says in the log that ticks do not come any more, if so at `now` by the store's clock. An alert waits for this line: whatever runs without
    /// a tick says it, since nothing says anything by itself.
    pub fn tell_late_tick(&self, now: Timestamp) {
        if let Some(last) = self.tick_at
            && now >= last + TICK_LATE
        {
            tracing::error!(last_tick = %last, "no tick has run for five minutes");
        }
    }
}

/// `meta/freeze`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FreezeDoc {
    /// True: no creates.
    pub frozen: bool,
    /// Who said so.
    pub by: String,
    /// When.
    pub at: Option<Timestamp>,
}

/// `jobs/{job}/commands/{hash}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// Message id or Idempotency-Key.
    pub key: String,
    /// `submit`, `cancel`, …
    pub command: String,
    /// Who.
    pub actor: String,
    /// When.
    pub at: Timestamp,
    /// Of `exec`: what was ordered, to give the same answer again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<ExecOrder>,
    /// Of a command on a job: what was asked for, since the same key with another body is a mistake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// Of a key that came with an id of its own: the job that it was used for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
}

/// The body of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// The command with what belongs to it.
    pub command: Command,
    /// The attempt that the caller meant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub if_attempt: Option<u32>,
}

/// `orphans/{monday}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct OrphansDoc {
    /// By the job that they were made for.
    pub jobs: BTreeMap<JobId, Meter>,
}

/// `instances/{hash}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceDoc {
    /// VM name.
    pub name: String,
    /// Its job.
    pub job: JobId,
    /// Its generation.
    pub generation: u32,
    /// Which worker.
    pub key: WorkerKey,
}

/// `told/{hash}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToldDoc {
    /// Webhooks that are done with the event, by the digest of their address; with why, where one refused it for good.
    pub hooks: BTreeMap<String, Option<String>>,
}

/// Filters of a job list.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobFilter {
    /// Only this phase.
    pub phase: Option<Phase>,
    /// Only this owner.
    pub owner: Option<String>,
    /// Only with this tag.
    pub tag: Option<String>,
}

/// Bounds of what is stored: written and read as JSON, or handed on within the process.
pub trait Stored: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Stored for T {}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    schema: u32,
    data: T,
}

/// What a body is made of.
struct Source<T>(Arc<T>);

impl<T: Serialize> Serialize for Source<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Versioned { schema: SCHEMA, data: &*self.0 }.serialize(serializer)
    }
}

/// The typed store.
#[derive(Clone)]
pub struct Store {
    docs: Arc<dyn Docs>,
}

/// The body of a document that holds this.
pub fn encode<T: Stored>(data: Arc<T>) -> Body {
    Body::of(Arc::new(Source(data)))
}

/// What the body of the document at `path` holds.
pub fn decode<T: Stored>(path: &str, body: &Body) -> Result<Arc<T>, StoreError> {
    if let Some(source) = body.made_of::<Source<T>>() {
        return Ok(source.0.clone());
    }
    if let Some(value) = body.kept::<T>() {
        return Ok(value);
    }
    let unreadable = |why: String| StoreError::Unreadable { path: path.to_owned(), why };
    let too_new = |schema: Option<u64>| unreadable(format!("schema {schema:?}; this version reads up to {SCHEMA}"));
    match body.read::<Versioned<T>>() {
        Ok(versioned) if versioned.schema <= SCHEMA => {
            let value = Arc::new(versioned.data);
            body.keep(&value);
            Ok(value)
        }
        Ok(versioned) => Err(too_new(Some(versioned.schema.into()))),
        Err(why) => {
            let schema = body.get("schema").and_then(serde_json::Value::as_u64);
            Err(if schema.is_none_or(|v| v > u64::from(SCHEMA)) { too_new(schema) } else { unreadable(why) })
        }
    }
}

pub(crate) fn read<T: Stored>(doc: &Doc) -> Result<At<Arc<T>>, StoreError> {
    Ok(At { value: decode(&doc.path, &doc.content.body)?, revision: doc.revision })
}

fn owned<T: Stored>(doc: &Doc) -> Result<At<T>, StoreError> {
    let At { value, revision } = read(doc)?;
    Ok(At { value: Arc::unwrap_or_clone(value), revision })
}

fn job_content(job: &Arc<Job>) -> Content {
    let mut index = Index::from([
        ("created_us".into(), IndexValue::Int(job.created_at.as_microsecond())),
        ("changed_us".into(), IndexValue::Int(job.changed_at.as_microsecond())),
        ("phase".into(), IndexValue::Text(job.phase.as_str().to_owned())),
        ("owner".into(), IndexValue::Text(job.spec.owner.clone())),
        ("tags".into(), IndexValue::Texts(job.spec.tags.clone())),
        ("live".into(), IndexValue::Bool(!job.phase.is_terminal())),
    ]);
    if let Some(at) = job.wake_at {
        index.insert("wake_us".into(), IndexValue::Int(at.as_microsecond()));
    }
    Content { body: encode(job.clone()), index: Arc::new(index) }
}

/// A write of a plain document, for commits that carry more than the job.
pub fn put<T: Stored>(kind: &Kind, data: &T, when: Precondition) -> Write {
    put_shared(kind, Arc::new(data.clone()), when)
}

/// The same of what need not be copied.
pub fn put_shared<T: Stored>(kind: &Kind, data: Arc<T>, when: Precondition) -> Write {
    Write::Put { path: kind.path(), content: Content { body: encode(data), index: Arc::default() }, when }
}

impl Store {
    /// A typed store over `docs`.
    pub fn new(docs: Arc<dyn Docs>) -> Self {
        Self { docs }
    }

    /// The document store below.
    pub fn docs(&self) -> &Arc<dyn Docs> {
        &self.docs
    }

    /// Reads any plain document.
    pub async fn read<T: Stored>(&self, kind: &Kind) -> Result<Option<At<T>>, StoreError> {
        self.docs.get(&kind.path()).await?.as_ref().map(owned).transpose()
    }

    /// Reads any plain document, with the store's own time: no earlier than the last commit before the read.
    pub async fn read_timed<T: Stored>(&self, kind: &Kind) -> Result<(Option<At<T>>, Timestamp), StoreError> {
        let (docs, through) = self.docs.get_many(&[kind.path()]).await?;
        Ok((docs.iter().flatten().next().map(owned).transpose()?, through.time()))
    }

    /// Writes any plain document.
    pub async fn write<T: Stored>(&self, kind: &Kind, data: &T, when: Precondition) -> Result<Revision, StoreError> {
        Ok(self.docs.commit(vec![put(kind, data, when)]).await?)
    }

    /// The same of what need not be copied.
    pub async fn write_shared<T: Stored>(
        &self,
        kind: &Kind,
        data: Arc<T>,
        when: Precondition,
    ) -> Result<Revision, StoreError> {
        Ok(self.docs.commit(vec![put_shared(kind, data, when)]).await?)
    }

    /// Reads a job.
    pub async fn job(&self, id: &JobId) -> Result<Option<At<Arc<Job>>>, StoreError> {
        self.docs.get(&Kind::Job(id.clone()).path()).await?.as_ref().map(read).transpose()
    }

    /// These jobs, as far as they exist, with one call for many.
    pub async fn jobs_named(&self, ids: &BTreeSet<JobId>) -> Result<Vec<Arc<Job>>, StoreError> {
        let paths: Vec<String> = ids.iter().map(|id| Kind::Job(id.clone()).path()).collect();
        let mut jobs = Vec::new();
        for some in paths.chunks(NAMED_MAX) {
            let (docs, _) = self.docs.get_many(some).await?;
            for doc in docs.iter().flatten() {
                jobs.push(read(doc)?.value);
            }
        }
        Ok(jobs)
    }

    /// Writes a new job with its first history entry and further writes; `Conflict` if the id is taken.
    pub async fn create_job(
        &self,
        job: &Arc<Job>,
        entry: &HistoryEntry,
        mut more: Vec<Write>,
    ) -> Result<Revision, StoreError> {
        let path = Kind::Job(job.id.clone()).path();
        let mut writes = vec![Write::Put { path, content: job_content(job), when: Precondition::Absent }];
        writes.push(put(&Kind::History(job.id.clone(), entry.revision), entry, Precondition::Absent));
        writes.append(&mut more);
        Ok(self.docs.commit(writes).await?)
    }

    /// Writes a job at the revision it was read at, with its history entry and further writes, in one commit.
    pub async fn commit_job(
        &self,
        at: Revision,
        job: &Arc<Job>,
        entry: Option<&HistoryEntry>,
        mut more: Vec<Write>,
    ) -> Result<Revision, StoreError> {
        let path = Kind::Job(job.id.clone()).path();
        let mut writes = vec![Write::Put { path, content: job_content(job), when: Precondition::At(at) }];
        if let Some(entry) = entry {
            writes.push(put(&Kind::History(job.id.clone(), entry.revision), entry, Precondition::Absent));
        }
        writes.append(&mut more);
        Ok(self.docs.commit(writes).await?)
    }

    /// Jobs, newest first: `limit` of them, or fewer where they are large; another page follows then.
    pub async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<At<Arc<Job>>>, Option<Cursor>), StoreError> {
        let mut filters = Vec::new();
        if let Some(phase) = filter.phase {
            filters.push(("phase".to_owned(), Op::Eq, IndexValue::Text(phase.as_str().to_owned())));
        }
        if let Some(owner) = &filter.owner {
            filters.push(("owner".to_owned(), Op::Eq, IndexValue::Text(owner.clone())));
        }
        if let Some(tag) = &filter.tag {
            filters.push(("tags".to_owned(), Op::Contains, IndexValue::Text(tag.clone())));
        }
        let (mut jobs, mut next, mut read) = (Vec::new(), after, Read::default());
        while let Some(step) = read.step(limit) {
            let query = job_query(filters.clone(), "created_us", true, next, step);
            let page = self.docs.query(&query).await?;
            next = next_of(&page.docs, &query);
            read.add(&page.docs);
            jobs.extend(readable(&page.docs));
            if next.is_none() {
                break;
            }
        }
        Ok((jobs, next))
    }

    /// Jobs whose wake-up is due at `now`, the longest due first.
    pub async fn due_jobs(
        &self,
        now: Timestamp,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<At<Arc<Job>>>, Option<Cursor>), StoreError> {
        let due = ("wake_us".to_owned(), Op::Le, IndexValue::Int(now.as_microsecond()));
        self.job_page(vec![due], "wake_us", false, after, limit).await
    }

    /// Jobs that changed at or after `since`, the longest ago first.
    pub async fn changed_jobs(
        &self,
        since: Timestamp,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<At<Arc<Job>>>, Option<Cursor>), StoreError> {
        let later = ("changed_us".to_owned(), Op::Ge, IndexValue::Int(since.as_microsecond()));
        self.job_page(vec![later], "changed_us", false, after, limit).await
    }

    /// Jobs that are not terminal, by creation.
    pub async fn live_jobs(
        &self,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<At<Arc<Job>>>, Option<Cursor>), StoreError> {
        let live = ("live".to_owned(), Op::Eq, IndexValue::Bool(true));
        self.job_page(vec![live], "created_us", false, after, limit).await
    }

    async fn job_page(
        &self,
        filters: Vec<(String, Op, IndexValue)>,
        order_by: &str,
        descending: bool,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<(Vec<At<Arc<Job>>>, Option<Cursor>), StoreError> {
        let query = job_query(filters, order_by, descending, after, limit);
        let page = self.docs.query(&query).await?;
        Ok((readable(&page.docs), next_of(&page.docs, &query)))
    }

    /// History entries of a job after `after`, oldest first.
    pub async fn history(&self, id: &JobId, after: u64, limit: usize) -> Result<Vec<HistoryEntry>, StoreError> {
        let query = Query {
            collection: format!("jobs/{id}/history"),
            filters: Vec::new(),
            order_by: None,
            descending: false,
            after: (after > 0).then(|| Cursor { value: None, path: Kind::History(id.clone(), after).path() }),
            limit,
        };
        let page = self.docs.query(&query).await?;
        page.docs.iter().map(|d| owned(d).map(|at| at.value)).collect()
    }

    /// The reports of these workers of these attempts that exist, and the commit time up to which they were read.
    pub async fn workers(
        &self,
        id: &JobId,
        of: &[(u32, WorkerKey)],
    ) -> Result<(Vec<At<Shared<WorkerReport>>>, Revision), StoreError> {
        let paths: Vec<String> = of.iter().map(|(a, k)| Kind::Worker(id.clone(), *a, *k).path()).collect();
        let (docs, through) = self.docs.get_many(&paths).await?;
        let shared = |at: At<Arc<WorkerReport>>| At { value: at.value.into(), revision: at.revision };
        let reports = docs.iter().flatten().map(|doc| read(doc).map(shared)).collect::<Result<Vec<_>, _>>()?;
        Ok((reports, through))
    }

    /// What the first worker of each of these attempts reported last, as far as it is stored; read for many jobs at once.
    pub async fn first_workers(&self, of: &[(JobId, u32)]) -> Result<BTreeMap<JobId, Arc<WorkerReport>>, StoreError> {
        let mut found = BTreeMap::new();
        for some in of.chunks(NAMED_MAX) {
            let path = |(id, a): &(JobId, u32)| Kind::Worker(id.clone(), *a, WorkerKey { slice: 0, worker: 0 }).path();
            let (docs, _) = self.docs.get_many(&some.iter().map(path).collect::<Vec<_>>()).await?;
            for ((id, _), doc) in some.iter().zip(&docs) {
                if let Some(doc) = doc {
                    found.insert(id.clone(), read(doc)?.value);
                }
            }
        }
        Ok(found)
    }

    /// The progress of these attempts, as far as it is stored.
    pub async fn progress(&self, id: &JobId, attempts: &[u32]) -> Result<Vec<(u32, Series)>, StoreError> {
        let paths: Vec<String> = attempts.iter().map(|a| Kind::Progress(id.clone(), *a).path()).collect();
        let (docs, _) = self.docs.get_many(&paths).await?;
        let found = attempts.iter().zip(docs).filter_map(|(attempt, doc)| Some((*attempt, doc?)));
        found.map(|(attempt, doc)| owned(&doc).map(|at| (attempt, at.value))).collect()
    }

    /// History entries of a job from `since` on, oldest first, with the last one before it. Reads from the newest back.
    pub async fn history_since(
        &self,
        job: &Job,
        since: Timestamp,
    ) -> Result<(Option<HistoryEntry>, Vec<HistoryEntry>), StoreError> {
        let mut window = 64_u64;
        loop {
            let after = job.revision.saturating_sub(window);
            let mut entries = Vec::new();
            let mut from = after;
            loop {
                let page = self.history(&job.id, from, HISTORY_PAGE).await?;
                let is_last = page.len() < HISTORY_PAGE;
                from = page.last().map_or(from, |entry| entry.revision);
                entries.extend(page);
                if is_last {
                    break;
                }
            }
            if after == 0 || entries.first().is_some_and(|entry| entry.at < since) {
                let old = entries.iter().take_while(|entry| entry.at < since).count();
                let news = entries.split_off(old);
                return Ok((entries.pop(), news));
            }
            window *= 8;
        }
    }

    /// What others met at these candidates.
    pub async fn zones(&self, placements: &[Placement]) -> Result<Vec<ZoneReport>, StoreError> {
        let paths: Vec<String> = placements.iter().map(|p| Kind::Zone(p.clone()).path()).collect();
        let (docs, _) = self.docs.get_many(&paths).await?;
        docs.iter().flatten().map(|d| owned(d).map(|at| at.value)).collect()
    }

    /// Commits anything.
    pub async fn commit(&self, writes: Vec<Write>) -> Result<Revision, StoreError> {
        Ok(self.docs.commit(writes).await?)
    }
}

/// Where a page that ends with this document goes on.
pub(crate) fn cursor(doc: &Doc, order_by: &str) -> Cursor {
    Cursor { value: doc.content.index.get(order_by).cloned(), path: doc.path.clone() }
}
