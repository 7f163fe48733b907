//! `MemoryDocs`: the model of the document store. Every other store is compared with it.
//!
//! Owns the exact meaning of commits, queries and revisions; faults are scripted by the test.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rekindle_ports::docs::{Content, Doc, Docs, DocsError, IndexValue, Page, Precondition, Query, Revision, Write};
use rekindle_ports::limits;
use rekindle_ports::world::Clock;

/// A fault of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFault {
    /// Nothing is written; the caller is told so.
    Unavailable,
    /// Nothing is written: the disk has no room.
    Full,
    /// Nothing is written; the caller does not know.
    UnclearBefore,
    /// All is written; the caller does not know.
    UnclearAfter,
    /// Nothing is written; the caller is told that it lost a race.
    Conflict,
}

#[derive(Default)]
struct State {
    collections: BTreeMap<String, BTreeMap<String, Stored>>,
    revision: i64,
    commits: u64,
    reads: u64,
    commit_faults: VecDeque<CommitFault>,
    races: VecDeque<Vec<Write>>,
    failing_reads: u32,
    has_no_writer: bool,
    down: bool,
}

#[derive(Clone)]
struct Stored {
    content: Content,
    revision: Revision,
}

/// The document store in memory.
#[derive(Default)]
pub struct MemoryDocs {
    state: Mutex<State>,
    clock: Option<Arc<dyn Clock>>,
}

impl MemoryDocs {
    /// An empty store whose revisions count commits from 1.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store whose revisions are the clock's microseconds, and never less than one more than the one before.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), clock: Some(clock) }
    }

    /// Every document, by path.
    pub fn dump(&self) -> Vec<Doc> {
        let state = self.lock();
        let mut docs: Vec<Doc> = state
            .collections
            .iter()
            .flat_map(|(collection, docs)| docs.iter().map(move |(id, stored)| doc(collection, id, stored)))
            .collect();
        docs.sort_by(|a, b| a.path.cmp(&b.path));
        docs
    }

    /// How many commits have been carried out.
    pub fn commits(&self) -> u64 {
        self.lock().commits
    }

    /// How many calls have read, whatever they found.
    pub fn reads(&self) -> u64 {
        self.lock().reads
    }

    /// The next commit meets this fault; several are met one after the other.
    pub fn fail_commit(&self, fault: CommitFault) {
        self.lock().commit_faults.push_back(fault);
    }

    /// These writes are carried out just before the next commit, as by a racing writer; they must be well-formed.
    pub fn race(&self, writes: Vec<Write>) {
        self.lock().races.push_back(writes);
    }

    /// The next `count` reads are answered `Unavailable`.
    pub fn fail_reads(&self, count: u32) {
        self.lock().failing_reads = count;
    }

    /// From now on it says that it takes no commits.
    pub fn end_writer(&self) {
        self.lock().has_no_writer = true;
    }

    /// While it is down every call is answered `Unavailable`.
    pub fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_to_read(&self) -> Result<MutexGuard<'_, State>, DocsError> {
        let mut state = self.lock();
        state.reads += 1;
        if state.down || state.failing_reads > 0 {
            state.failing_reads = state.failing_reads.saturating_sub(1);
            return Err(DocsError::Unavailable("scripted".into()));
        }
        Ok(state)
    }
}

impl State {
    fn stored(&self, path: &str) -> Option<&Stored> {
        let (collection, id) = limits::split(path);
        self.collections.get(collection)?.get(id)
    }

    fn apply(&mut self, writes: Vec<Write>, now: Option<i64>) -> Result<Revision, DocsError> {
        for write in &writes {
            let (Write::Put { path, when, .. } | Write::Delete { path, when }) = write;
            let at = self.stored(path).map(|s| s.revision);
            let holds = match when {
                Precondition::None => true,
                Precondition::Absent => at.is_none(),
                Precondition::At(revision) => at == Some(*revision),
            };
            if !holds {
                return Err(DocsError::Conflict { path: path.clone() });
            }
        }
        self.revision = now.unwrap_or_default().max(self.revision + 1);
        self.commits += 1;
        let revision = Revision(self.revision);
        for write in writes {
            let (collection, id) = limits::split(write.path());
            let (collection, id) = (collection.to_owned(), id.to_owned());
            match write {
                Write::Put { mut content, .. } => {
                    // Only the JSON is kept: what is read back has been written and read as text, as with every real store.
                    content.body = (*content.body).clone().into();
                    self.collections.entry(collection).or_default().insert(id, Stored { content, revision });
                }
                Write::Delete { .. } => {
                    if let Some(docs) = self.collections.get_mut(&collection) {
                        docs.remove(&id);
                    }
                }
            }
        }
        Ok(revision)
    }
}

#[async_trait]
impl Docs for MemoryDocs {
    async fn get(&self, path: &str) -> Result<Option<Doc>, DocsError> {
        limits::check_path(path)?;
        let state = self.lock_to_read()?;
        let (collection, id) = limits::split(path);
        Ok(state.stored(path).map(|stored| doc(collection, id, stored)))
    }

    async fn get_many(&self, paths: &[String]) -> Result<(Vec<Option<Doc>>, Revision), DocsError> {
        for path in paths {
            limits::check_path(path)?;
        }
        let state = self.lock_to_read()?;
        let docs = paths
            .iter()
            .map(|path| {
                let (collection, id) = limits::split(path);
                state.stored(path).map(|stored| doc(collection, id, stored))
            })
            .collect();
        // A commit that comes in the same microsecond is not seen.
        let now = self.clock.as_ref().map_or(0, |clock| clock.now().as_microsecond() - 1);
        Ok((docs, Revision(state.revision.max(now))))
    }

    async fn query(&self, query: &Query) -> Result<Page, DocsError> {
        limits::check_query(query)?;
        let state = self.lock_to_read()?;
        let mut docs: Vec<Doc> = state
            .collections
            .get(&query.collection)
            .into_iter()
            .flatten()
            .filter(|(_, stored)| query.matches(&stored.content.index))
            .map(|(id, stored)| doc(&query.collection, id, stored))
            .collect();
        docs.sort_by(|a, b| position(query, a).cmp(&position(query, b)));
        if query.descending {
            docs.reverse();
        }
        if let Some(after) = &query.after {
            let end = (after.value.as_ref(), after.path.as_str());
            docs.retain(|d| if query.descending { position(query, d) < end } else { position(query, d) > end });
        }
        docs.truncate(query.limit);
        Ok(Page { docs, read_through: Revision(state.revision) })
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, DocsError> {
        limits::check_commit(&writes)?;
        let now = self.clock.as_ref().map(|clock| clock.now().as_microsecond());
        let mut state = self.lock();
        if state.down {
            return Err(DocsError::Unavailable("scripted".into()));
        }
        if let Some(race) = state.races.pop_front() {
            state.apply(race, now)?;
        }
        match state.commit_faults.pop_front() {
            None => state.apply(writes, now),
            Some(CommitFault::Unavailable) => Err(DocsError::Unavailable("scripted".into())),
            Some(CommitFault::UnclearBefore) => Err(DocsError::Unclear("scripted".into())),
            Some(CommitFault::Full) => Err(DocsError::Full("scripted: the disk of DISK is full".into())),
            Some(CommitFault::Conflict) => Err(DocsError::Conflict { path: writes[0].path().to_owned() }),
            Some(CommitFault::UnclearAfter) => {
                // A refused precondition stays hidden as well: the caller learns nothing.
                let _hidden = state.apply(writes, now);
                Err(DocsError::Unclear("scripted".into()))
            }
        }
    }

    fn writes(&self) -> Result<(), DocsError> {
        if self.lock().has_no_writer {
            return Err(DocsError::Unavailable("scripted: the writer has ended".into()));
        }
        Ok(())
    }
}

fn doc(collection: &str, id: &str, stored: &Stored) -> Doc {
    Doc { path: format!("{collection}/{id}"), content: stored.content.clone(), revision: stored.revision }
}

/// Where a document stands in the order of a query.
fn position<'a>(query: &Query, doc: &'a Doc) -> (Option<&'a IndexValue>, &'a str) {
    (query.order_by.as_ref().and_then(|name| doc.content.index.get(name.as_str())), &doc.path)
}
