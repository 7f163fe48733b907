//! The document store of the world: Firestore's rules, its conflicts, its unclear answers, its outages.
//!
//! Each commit that takes effect is shown to the checkers. Heartbeats of healthy workers are one fact, "last heard", and are written into
//! what a reader gets.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use async_trait::async_trait;
use foldhash::fast::FixedState;
use rekindle_core::job::Job;
use rekindle_core::observation::WorkerReport;
use rekindle_ports::body::Body;
use rekindle_ports::docs::{Content, Doc, Docs, DocsError, IndexValue, Op, Page, Precondition, Query, Revision, Write};
use rekindle_ports::limits;
use rekindle_ports::store::{Stored as Kept, decode, encode};

use crate::exec::lock;
use crate::fault::Fault;
use crate::flight::{self, Caller};
use crate::roll::{For, SEC};
use crate::world::{STORE_HOP, World};

/// One commit of so many is written as text and read back, so that what documents hold survives it, and stays small.
// Encoding and decoding every body costs as much as all the rest.
const AS_TEXT: usize = 64;

/// The longest that a slow call takes.
const SLOW: i64 = 3 * SEC;

/// Entries of one job's history that are kept: scenarios ask for the phase that a command met, and a long run must not grow.
const HISTORY_KEPT: usize = 64;

/// What is stored.
#[derive(Default, Clone)]
pub(crate) struct Shelf {
    docs: Vec<Stored>,
    free: Vec<usize>,
    at: HashMap<String, usize, FixedState>,
    collections: HashMap<String, Collection, FixedState>,
    revision: i64,
    /// While set, every read and commit meets this shelf instead (a wrong or empty database).
    pub(crate) instead: Option<Box<Shelf>>,
}

/// By an indexed number and the id.
type Order = BTreeMap<(i64, Arc<str>), usize>;

/// The ids of a collection, and the same in the order of each indexed number, each with the place of its document.
#[derive(Default, Clone)]
struct Collection {
    ids: BTreeMap<Arc<str>, usize>,
    ordered: Vec<(String, Order)>,
}

#[derive(Clone)]
struct Stored {
    path: String,
    content: Content,
    revision: Revision,
}

/// A document that a commit changed.
pub(crate) struct Changed<'a> {
    /// Its path.
    pub(crate) path: &'a str,
    /// Before; `None`: it was not there.
    pub(crate) before: Option<&'a Content>,
    /// After; `None`: it was deleted.
    pub(crate) after: Option<&'a Content>,
}

/// The indexed numbers of a document, in the order of their names.
fn numbers(content: Option<&Content>) -> impl Iterator<Item = (&str, i64)> {
    content.into_iter().flat_map(|c| c.index.iter()).filter_map(|(name, value)| match value {
        IndexValue::Int(number) => Some((&**name, *number)),
        IndexValue::Bool(_) | IndexValue::Text(_) | IndexValue::Texts(_) => None,
    })
}

fn number(content: Option<&Content>, name: &str) -> Option<i64> {
    match content?.index.get(name) {
        Some(IndexValue::Int(number)) => Some(*number),
        _ => None,
    }
}

impl Collection {
    fn order_by(&mut self, name: &str) -> &mut Order {
        let known = self.ordered.iter().position(|(known, _)| known == name);
        let place = known.unwrap_or_else(|| {
            self.ordered.push((name.to_owned(), Order::new()));
            self.ordered.len() - 1
        });
        &mut self.ordered[place].1
    }

    /// Moves a document from its old place in the orders to its new one.
    fn order(&mut self, id: &Arc<str>, at: usize, before: Option<&Content>, after: Option<&Content>) {
        for (name, value) in numbers(before) {
            if number(after, name) != Some(value) {
                self.order_by(name).remove(&(value, id.clone()));
            }
        }
        for (name, value) in numbers(after) {
            if number(before, name) != Some(value) {
                self.order_by(name).insert((value, id.clone()), at);
            }
        }
    }
}

impl Shelf {
    fn stored(&self, path: &str) -> Option<&Stored> {
        self.at.get(path).map(|at| &self.docs[*at])
    }

    /// The body of a document.
    pub(crate) fn body(&self, path: &str) -> Option<&Body> {
        self.stored(path).map(|s| &s.content.body)
    }

    /// What handlers read and write.
    fn at_hand(&mut self) -> &mut Self {
        match self.instead {
            Some(ref mut other) => other,
            None => self,
        }
    }

    /// Puts the newest heartbeat of a worker that has nothing new to tell into its document, committed when it came.
    pub(crate) fn hear(&mut self, world: &World, job: &str, path: &str) {
        let Some(place) = self.at.get(path) else { return };
        let stored = &mut self.docs[*place];
        let fresh = crate::pulse::fresh(world, job, path, &stored.content.body, stored.revision.0);
        if let Some((body, at)) = fresh {
            stored.content.body = body;
            stored.revision = Revision(at.max(stored.revision.0 + 1));
            self.revision = self.revision.max(stored.revision.0);
        }
    }

    /// Writes without anybody looking, as before the run.
    pub(crate) fn insert(&mut self, writes: Vec<Write>) {
        let done = self.apply(writes, 0, |_| ());
        debug_assert!(done.is_ok(), "a write before the run is refused");
    }

    /// Liveness and worker reports, for the trace of what did not end.
    pub(crate) fn small(&self) -> Vec<(&str, &Body)> {
        let wanted = |path: &str| {
            let collection = limits::split(path).0;
            collection == "meta" || collection.ends_with("/workers")
        };
        let mut small: Vec<_> = self.at.iter().filter(|(path, _)| wanted(path)).collect();
        small.sort();
        small.into_iter().map(|(path, at)| (path.as_str(), &self.docs[*at].content.body)).collect()
    }

    /// Forgets a collection and what is below it.
    pub(crate) fn forget(&mut self, collection: &str) {
        let below = format!("{collection}/");
        self.collections.retain(|name, _| name != collection && !name.starts_with(&below));
        let mut left = Vec::new();
        self.at.retain(|path, at| {
            let stays = !path.starts_with(&below);
            left.extend((!stays).then_some(*at));
            stays
        });
        left.sort_unstable();
        self.free.append(&mut left);
    }

    fn check(&self, writes: &[Write]) -> Result<(), DocsError> {
        for write in writes {
            let (Write::Put { path, when, .. } | Write::Delete { path, when }) = write;
            let holds = match when {
                Precondition::None => true,
                Precondition::Absent => self.stored(path).is_none(),
                Precondition::At(revision) => self.stored(path).is_some_and(|s| s.revision == *revision),
            };
            if !holds {
                return Err(DocsError::Conflict { path: path.clone() });
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        writes: Vec<Write>,
        now: i64,
        mut seen: impl FnMut(&Changed<'_>),
    ) -> Result<Revision, DocsError> {
        self.check(&writes)?;
        self.revision = now.max(self.revision + 1);
        let revision = Revision(self.revision);
        for write in writes {
            let (path, after) = match write {
                Write::Put { path, content, .. } => (path, Some(content)),
                Write::Delete { path, .. } => (path, None),
            };
            let at = self.at.get(&path).copied();
            let before = at.map(|at| &self.docs[at].content);
            seen(&Changed { path: &path, before, after: after.as_ref() });
            match (at, after) {
                (Some(at), Some(content)) => self.replace(at, content, revision),
                (None, Some(content)) => self.add(path, content, revision),
                (Some(_), None) => self.remove(&path),
                (None, None) => {}
            }
        }
        Ok(revision)
    }

    fn replace(&mut self, at: usize, content: Content, revision: Revision) {
        let stored = &mut self.docs[at];
        let (collection, id) = limits::split(&stored.path);
        // What has no number has no place in an order.
        if !(stored.content.index.is_empty() && content.index.is_empty())
            && let Some(all) = self.collections.get_mut(collection)
            && let Some((id, _)) = all.ids.get_key_value(id)
        {
            let id = id.clone();
            all.order(&id, at, Some(&stored.content), Some(&content));
        }
        (stored.content, stored.revision) = (content, revision);
    }

    fn add(&mut self, path: String, content: Content, revision: Revision) {
        let at = self.free.pop().unwrap_or(self.docs.len());
        let (collection, id) = limits::split(&path);
        if !self.collections.contains_key(collection) {
            self.collections.insert(collection.to_owned(), Collection::default());
        }
        let mut old = None;
        if let Some(all) = self.collections.get_mut(collection) {
            let id: Arc<str> = id.into();
            all.order(&id, at, None, Some(&content));
            all.ids.insert(id, at);
            if collection.ends_with("/history") && all.ids.len() > HISTORY_KEPT {
                old = all.ids.pop_first().map(|(_, at)| at);
            }
        }
        self.at.insert(path.clone(), at);
        let stored = Stored { path, content, revision };
        match self.docs.get_mut(at) {
            Some(slot) => *slot = stored,
            None => self.docs.push(stored),
        }
        if let Some(old) = old {
            self.at.remove(&self.docs[old].path);
            self.free.push(old);
        }
    }

    fn remove(&mut self, path: &str) {
        let Some(at) = self.at.remove(path) else { return };
        let (collection, id) = limits::split(path);
        if let Some(all) = self.collections.get_mut(collection)
            && let Some((id, _)) = all.ids.remove_entry(id)
        {
            all.order(&id, at, Some(&self.docs[at].content), None);
        }
        self.free.push(at);
    }

    fn page(&self, query: &Query) -> Vec<Doc> {
        let Some(all) = self.collections.get(&query.collection) else { return Vec::new() };
        let after = query.after.as_ref().map(|a| (a.value.clone(), limits::split(&a.path).1.to_owned()));
        let order = query.order_by.as_ref().and_then(|name| all.ordered.iter().find(|(known, _)| known == name));
        let (Some((_, order)), false) = (order, query.descending) else {
            return self.sorted(query, all, after.as_ref());
        };
        // In the order of the index, from the cursor on; a bound from above ends it.
        let first = match after {
            Some((Some(IndexValue::Int(value)), id)) => Bound::Excluded((value, id.into())),
            _ => Bound::Unbounded,
        };
        let bound = query.filters.iter().find(|(n, op, _)| *op == Op::Le && Some(n) == query.order_by.as_ref());
        let most = match bound {
            Some((.., IndexValue::Int(most))) => Some(*most),
            _ => None,
        };
        order
            .range((first, Bound::Unbounded))
            .take_while(|((value, _), _)| most.is_none_or(|most| *value <= most))
            .map(|(_, at)| &self.docs[*at])
            .filter(|stored| query.matches(&stored.content.index))
            .map(doc)
            .take(query.limit)
            .collect()
    }

    /// A page of a query that no order is kept for.
    fn sorted(&self, query: &Query, all: &Collection, after: Option<&(Option<IndexValue>, String)>) -> Vec<Doc> {
        let value = |s: &Stored| query.order_by.as_ref().and_then(|name| s.content.index.get(name.as_str())).cloned();
        let found = all.ids.iter().map(|(id, at)| (id, &self.docs[*at]));
        let found = found.filter(|(_, stored)| query.matches(&stored.content.index));
        let mut found: Vec<(Option<IndexValue>, &str, &Stored)> = found.map(|(id, s)| (value(s), &**id, s)).collect();
        found.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        if query.descending {
            found.reverse();
        }
        let past = |(value, id, _): &(Option<IndexValue>, &str, &Stored)| {
            after.is_none_or(|(v, last)| {
                let (here, end) = ((value, *id), (v, last.as_str()));
                if query.descending { here < end } else { here > end }
            })
        };
        found.into_iter().filter(past).take(query.limit).map(|(.., stored)| doc(stored)).collect()
    }
}

fn doc(stored: &Stored) -> Doc {
    Doc { path: stored.path.clone(), content: stored.content.clone(), revision: stored.revision }
}

/// What is read back has been text.
fn as_text(write: &mut Write, text: String) {
    fn again<T: Kept>(path: &str, body: &Body) -> Body {
        // What cannot be read back stays as it is: its readers say so.
        decode::<T>(path, body).map_or_else(|_| body.clone(), encode)
    }
    let Write::Put { path, content, .. } = write else { return };
    let Ok(text) = Body::written(text) else { return };
    content.body = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["jobs", _] => again::<Job>(path, &text),
        ["jobs", _, "workers", _] => again::<WorkerReport>(path, &text),
        _ => text,
    };
}

/// The store as handlers see it.
pub(crate) struct SimDocs(pub(crate) Arc<World>);

impl SimDocs {
    /// How long a call is on its way.
    fn way(&self) -> i64 {
        let slow = self.0.strikes(Fault::StoreSlow, For::Fault);
        self.0.way(STORE_HOP) + if slow { self.0.rolls.between(For::Latency, SEC, SLOW) } else { 0 }
    }

    async fn begin(&self) -> Result<(), DocsError> {
        self.0.exec.sleep(self.way()).await;
        self.arrive()
    }

    fn arrive(&self) -> Result<(), DocsError> {
        if self.0.goes_on(Fault::StoreOutage, None) || self.0.strikes(Fault::StoreUnavailable, For::Fault) {
            return Err(DocsError::Unavailable("503".into()));
        }
        Ok(())
    }

    /// A commit has arrived.
    fn commit_now(&self, writes: Vec<Write>) -> Result<Revision, DocsError> {
        self.arrive()?;
        if self.0.strikes(Fault::StoreConflict, For::Fault) {
            // A document that was not there is not there: contention alone is told otherwise, and whoever hears of a conflict may believe it.
            let is_at = |write: &&Write| {
                let (Write::Put { when, .. } | Write::Delete { when, .. }) = write;
                matches!(when, Precondition::At(_))
            };
            return Err(match writes.iter().find(is_at) {
                Some(write) => DocsError::Conflict { path: write.path().to_owned() },
                None => DocsError::Unavailable("ABORTED: too much contention".into()),
            });
        }
        if self.0.strikes(Fault::StoreUnclearBefore, For::Fault) {
            return Err(DocsError::Unclear("cut before".into()));
        }
        let done = {
            let mut shelf = lock(&self.0.shelf);
            let now = self.0.now();
            if let Some(instead) = shelf.instead.as_mut() {
                instead.apply(writes, now, |_| ())
            } else {
                let world = &self.0;
                shelf.apply(writes, now, |changed| crate::check::on_commit(world, changed))
            }
        };
        if done.is_ok() {
            crate::check::after_commit(&self.0);
        }
        done
    }

    /// The document as it is read now: with the newest heartbeat of a worker.
    fn read(&self, shelf: &mut Shelf, path: &str) -> Option<Doc> {
        let of = limits::split(path).0.strip_suffix("/workers").and_then(|job| job.strip_prefix("jobs/"));
        if let Some(job) = of {
            shelf.hear(&self.0, job, path);
        }
        Some(doc(&shelf.docs[*shelf.at.get(path)?]))
    }
}

#[async_trait]
impl Docs for SimDocs {
    async fn get(&self, path: &str) -> Result<Option<Doc>, DocsError> {
        limits::check_path(path)?;
        self.begin().await?;
        Ok(self.read(lock(&self.0.shelf).at_hand(), path))
    }

    async fn get_many(&self, paths: &[String]) -> Result<(Vec<Option<Doc>>, Revision), DocsError> {
        self.begin().await?;
        let mut shelf = lock(&self.0.shelf);
        let shelf = shelf.at_hand();
        let docs = paths.iter().map(|path| self.read(shelf, path)).collect();
        // A commit that comes in the same microsecond is not seen.
        Ok((docs, Revision(shelf.revision.max(self.0.now() - 1))))
    }

    async fn query(&self, query: &Query) -> Result<Page, DocsError> {
        limits::check_query(query)?;
        self.begin().await?;
        let mut shelf = lock(&self.0.shelf);
        let shelf = shelf.at_hand();
        Ok(Page { docs: shelf.page(query), read_through: Revision(shelf.revision) })
    }

    async fn commit(&self, mut writes: Vec<Write>) -> Result<Revision, DocsError> {
        if self.0.rolls.index(For::Latency, AS_TEXT) == 0 {
            let texts = limits::check_commit(&writes)?;
            writes.iter_mut().zip(texts).for_each(|(write, text)| as_text(write, text));
        }
        let there = Self(self.0.clone());
        let request = async move { there.commit_now(writes) };
        let way = self.way();
        let done = flight::send(&self.0, Caller::Handler, way, request).await;
        let done = done.ok_or_else(|| DocsError::Unclear("deadline exceeded".into()))?;
        // The answer takes its way back: a crash here leaves a commit that its handler does not know of.
        self.0.exec.sleep(self.0.rolls.about(For::Latency, STORE_HOP / 2)).await;
        if self.0.strikes(Fault::StoreUnclearAfter, For::Fault) {
            return Err(DocsError::Unclear("cut after".into()));
        }
        done
    }
}
