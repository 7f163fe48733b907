//! The document store of the world: Firestore's rules, its conflicts, its unclear answers, its outages.
//!
//! Each commit that takes effect is shown to the checkers. Heartbeats of healthy workers are one fact, "last heard", and are written into
//! what a reader gets.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use async_trait::async_trait;
use rekindle_core::job::Job;
use rekindle_core::observation::WorkerReport;
use rekindle_ports::body::Body;
use rekindle_ports::docs::{Content, Doc, Docs, DocsError, IndexValue, Op, Page, Precondition, Query, Revision, Write};
use rekindle_ports::limits;
use rekindle_ports::store::{Stored as Kept, decode, encode};

use crate::exec::lock;
use crate::fault::Fault;
use crate::roll::For;
use crate::world::{STORE_HOP, World};

/// One commit of so many is written as text and read back, so that what documents hold survives it, and stays small.
// Encoding and decoding every body costs as much as all the rest.
const AS_TEXT: usize = 64;

/// Entries of one job's history that are kept: nothing that runs here reads them, and a long run must not grow.
const HISTORY_KEPT: usize = 64;

/// What is stored.
#[derive(Default, Clone)]
pub(crate) struct Shelf {
    docs: HashMap<String, Stored, BuildHasherDefault<DefaultHasher>>,
    collections: BTreeMap<String, Collection>,
    revision: i64,
    /// While set, every read and commit meets this shelf instead (a wrong or empty database).
    pub(crate) instead: Option<Box<Shelf>>,
}

/// The ids of a collection, and the same in the order of each indexed number.
#[derive(Default, Clone)]
struct Collection {
    ids: BTreeSet<String>,
    ordered: BTreeMap<String, BTreeSet<(IndexValue, String)>>,
}

#[derive(Clone)]
struct Stored {
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

impl Collection {
    /// Moves a document from its old place in the orders to its new one.
    fn order(&mut self, id: &str, before: Option<&Content>, after: Option<&Content>) {
        for (name, value) in before.into_iter().flat_map(|c| c.index.iter()) {
            if after.and_then(|c| c.index.get(name)) != Some(value)
                && let Some(order) = self.ordered.get_mut(name)
            {
                order.remove(&(value.clone(), id.to_owned()));
            }
        }
        for (name, value) in after.into_iter().flat_map(|c| c.index.iter()) {
            if matches!(value, IndexValue::Int(_)) && before.and_then(|c| c.index.get(name)) != Some(value) {
                self.ordered.entry(name.clone()).or_default().insert((value.clone(), id.to_owned()));
            }
        }
    }
}

impl Shelf {
    fn stored(&self, path: &str) -> Option<&Stored> {
        self.docs.get(path)
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

    /// Changes the body of a document in place, as of a time at which nobody has read it yet. For the world, not for handlers.
    pub(crate) fn change(&mut self, path: &str, at: i64, change: impl FnOnce(&mut Body)) {
        if let Some(stored) = self.docs.get_mut(path) {
            change(&mut stored.content.body);
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
    pub(crate) fn small(&self) -> Vec<(String, &Body)> {
        let wanted = self.collections.iter().filter(|(name, _)| *name == "meta" || name.ends_with("/workers"));
        let paths = wanted.flat_map(|(name, all)| all.ids.iter().map(move |id| format!("{name}/{id}")));
        paths.filter_map(|path| self.body(&path).map(|b| (path.clone(), b))).collect()
    }

    /// Forgets a collection and what is below it.
    pub(crate) fn forget(&mut self, collection: &str) {
        let below = format!("{collection}/");
        self.collections.retain(|name, _| name != collection && !name.starts_with(&below));
        self.docs.retain(|path, _| !path.starts_with(&below));
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
            let before = self.docs.get(&path).map(|s| &s.content);
            seen(&Changed { path: &path, before, after: after.as_ref() });
            let (collection, id) = limits::split(&path);
            if !self.collections.contains_key(collection) {
                self.collections.insert(collection.to_owned(), Collection::default());
            }
            let Some(all) = self.collections.get_mut(collection) else { continue };
            all.order(id, before, after.as_ref());
            let Some(content) = after else {
                all.ids.remove(id);
                self.docs.remove(&path);
                continue;
            };
            if before.is_none() {
                all.ids.insert(id.to_owned());
            }
            let is_long = collection.ends_with("/history") && all.ids.len() > HISTORY_KEPT;
            let old = if is_long { all.ids.pop_first().map(|id| format!("{collection}/{id}")) } else { None };
            self.docs.insert(path, Stored { content, revision });
            if let Some(old) = old {
                self.docs.remove(&old);
            }
        }
        Ok(revision)
    }

    fn page(&self, query: &Query) -> Vec<Doc> {
        let Some(all) = self.collections.get(&query.collection) else { return Vec::new() };
        let after = query.after.as_ref().map(|a| (a.value.clone(), limits::split(&a.path).1.to_owned()));
        let found = |id: &String| -> Option<Doc> {
            let path = format!("{}/{id}", query.collection);
            let stored = self.stored(&path).filter(|s| matches(query, &s.content.index))?;
            Some(doc(path, stored))
        };
        let order = query.order_by.as_ref().and_then(|name| all.ordered.get(name));
        let (Some(order), false) = (order, query.descending) else { return self.sorted(query, all, after.as_ref()) };
        // In the order of the index, from the cursor on; a bound from above ends it.
        let first = match after {
            Some((Some(value), id)) => std::ops::Bound::Excluded((value, id)),
            _ => std::ops::Bound::Unbounded,
        };
        let most = query.filters.iter().find(|(n, op, _)| *op == Op::Le && Some(n) == query.order_by.as_ref());
        order
            .range((first, std::ops::Bound::Unbounded))
            .take_while(|(value, _)| most.is_none_or(|(.., most)| value <= most))
            .filter_map(|(_, id)| found(id))
            .take(query.limit)
            .collect()
    }

    /// A page of a query that no order is kept for.
    fn sorted(&self, query: &Query, all: &Collection, after: Option<&(Option<IndexValue>, String)>) -> Vec<Doc> {
        let value = |d: &Doc| query.order_by.as_ref().and_then(|name| d.content.index.get(name)).cloned();
        let mut found: Vec<(Option<IndexValue>, &String, Doc)> = Vec::new();
        for id in &all.ids {
            let path = format!("{}/{id}", query.collection);
            if let Some(stored) = self.stored(&path).filter(|s| matches(query, &s.content.index)) {
                let doc = doc(path, stored);
                found.push((value(&doc), id, doc));
            }
        }
        found.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        if query.descending {
            found.reverse();
        }
        let past = |(value, id, _): &(Option<IndexValue>, &String, Doc)| {
            after.is_none_or(|(v, last)| {
                let (here, end) = ((value, *id), (v, last));
                if query.descending { here < end } else { here > end }
            })
        };
        found.into_iter().filter(past).take(query.limit).map(|(.., doc)| doc).collect()
    }
}

fn doc(path: String, stored: &Stored) -> Doc {
    Doc { path, content: stored.content.clone(), revision: stored.revision }
}

fn matches(query: &Query, index: &BTreeMap<String, IndexValue>) -> bool {
    query.order_by.as_ref().is_none_or(|name| index.contains_key(name))
        && query.filters.iter().all(|(name, op, wanted)| index.get(name).is_some_and(|have| holds(have, *op, wanted)))
}

fn holds(have: &IndexValue, op: Op, wanted: &IndexValue) -> bool {
    let same_type = std::mem::discriminant(have) == std::mem::discriminant(wanted);
    match op {
        Op::Eq => have == wanted,
        Op::Le => same_type && have <= wanted,
        Op::Ge => same_type && have >= wanted,
        Op::Contains => match (have, wanted) {
            (IndexValue::Texts(texts), IndexValue::Text(text)) => texts.contains(text),
            _ => false,
        },
    }
}

/// What is read back has been JSON.
fn as_text(write: &mut Write) {
    fn again<T: Kept>(path: &str, body: &Body) -> Body {
        // What cannot be read back stays as it is: its readers say so.
        decode::<T>(path, body).map_or_else(|_| body.clone(), encode)
    }
    let Write::Put { path, content, .. } = write else { return };
    let json: Body = (*content.body).clone().into();
    content.body = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["jobs", _] => again::<Job>(path, &json),
        ["jobs", _, "workers", _] => again::<WorkerReport>(path, &json),
        _ => json,
    };
}

/// The store as handlers see it.
pub(crate) struct SimDocs(pub(crate) Arc<World>);

impl SimDocs {
    async fn begin(&self) -> Result<(), DocsError> {
        self.0.hop(STORE_HOP).await;
        if self.0.goes_on(Fault::StoreOutage, None) || self.0.strikes(Fault::StoreUnavailable, For::Fault) {
            return Err(DocsError::Unavailable("503".into()));
        }
        Ok(())
    }

    /// The document as it is read now: with the newest heartbeat of a healthy worker, committed when it came.
    fn read(&self, shelf: &mut Shelf, path: &str) -> Option<Doc> {
        if limits::split(path).0.ends_with("/workers") {
            let stored = shelf.stored(path)?;
            let fresh = crate::pulse::fresh(&self.0, path, &stored.content.body, stored.revision.0);
            if let Some((body, at)) = fresh {
                shelf.change(path, at, |old| *old = body);
            }
        }
        Some(doc(path.to_owned(), shelf.stored(path)?))
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
            limits::check_commit(&writes)?;
            writes.iter_mut().for_each(as_text);
        }
        self.begin().await?;
        if self.0.strikes(Fault::StoreConflict, For::Fault) {
            return Err(DocsError::Conflict { path: writes[0].path().to_owned() });
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
        // The answer takes its way back: a crash here leaves a commit that its handler does not know of.
        self.0.exec.sleep(self.0.rolls.about(For::Latency, STORE_HOP / 2)).await;
        if self.0.strikes(Fault::StoreUnclearAfter, For::Fault) {
            return Err(DocsError::Unclear("cut after".into()));
        }
        done
    }
}
