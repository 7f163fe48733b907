//! The document store of the world: Firestore's rules, its conflicts, its unclear answers, its outages.
//!
//! Each commit that takes effect is shown to the checkers. Heartbeats of healthy workers are one fact, "last heard", and are written into
//! what a reader gets.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use rekindle_ports::docs::{Content, Doc, Docs, DocsError, IndexValue, Op, Page, Precondition, Query, Revision, Write};
use rekindle_ports::limits;

use crate::exec::lock;
use crate::fault::Fault;
use crate::roll::For;
use crate::world::{STORE_HOP, World};

/// What is stored.
#[derive(Default, Clone)]
pub(crate) struct Shelf {
    collections: BTreeMap<String, BTreeMap<String, Stored>>,
    revision: i64,
    /// While set, every read and commit meets this shelf instead (a wrong or empty database).
    pub(crate) instead: Option<Box<Shelf>>,
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

impl Shelf {
    fn stored(&self, path: &str) -> Option<&Stored> {
        let (collection, id) = limits::split(path);
        self.collections.get(collection)?.get(id)
    }

    /// The body of a document.
    pub(crate) fn body(&self, path: &str) -> Option<&serde_json::Value> {
        self.stored(path).map(|s| &s.content.body)
    }

    /// Changes the body of a document in place, at a new revision. For the world, not for handlers.
    pub(crate) fn change(&mut self, path: &str, now: i64, change: impl FnOnce(&mut serde_json::Value)) {
        let (collection, id) = limits::split(path);
        let revision = now.max(self.revision + 1);
        if let Some(stored) = self.collections.get_mut(collection).and_then(|c| c.get_mut(id)) {
            change(&mut stored.content.body);
            stored.revision = Revision(revision);
            self.revision = revision;
        }
    }

    /// Writes without anybody looking, as before the run.
    pub(crate) fn insert(&mut self, writes: Vec<Write>) {
        let done = self.apply(writes, 0, |_| ());
        debug_assert!(done.is_ok(), "a write before the run is refused");
    }

    /// Liveness and worker reports, for the trace of what did not end.
    pub(crate) fn small(&self) -> Vec<(String, &serde_json::Value)> {
        let wanted = self.collections.iter().filter(|(name, _)| *name == "meta" || name.ends_with("/workers"));
        let docs = |(name, docs): (&String, &BTreeMap<String, Stored>)| -> Vec<String> {
            docs.keys().map(|id| format!("{name}/{id}")).collect()
        };
        let paths: Vec<String> = wanted.flat_map(docs).collect();
        paths.into_iter().filter_map(|path| self.body(&path).map(|b| (path.clone(), b))).collect()
    }

    /// Forgets a collection and what is below it.
    pub(crate) fn forget(&mut self, collection: &str) {
        let below = format!("{collection}/");
        self.collections.retain(|name, _| name != collection && !name.starts_with(&below));
    }

    fn check(&self, writes: &[Write]) -> Result<(), DocsError> {
        for write in writes {
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
            let (collection, id) = limits::split(write.path());
            let before = self.collections.get(collection).and_then(|c| c.get(id));
            let before = before.map(|s| &s.content);
            match &write {
                Write::Put { path, content, .. } => seen(&Changed { path, before, after: Some(content) }),
                Write::Delete { path, .. } => seen(&Changed { path, before, after: None }),
            }
            let (collection, id) = (collection.to_owned(), id.to_owned());
            match write {
                Write::Put { content, .. } => {
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

    fn page(&self, query: &Query) -> Vec<Doc> {
        let Some(all) = self.collections.get(&query.collection) else { return Vec::new() };
        let mut found: Vec<(&String, &Stored)> =
            all.iter().filter(|(_, stored)| matches(query, &stored.content.index)).collect();
        let value = |s: &Stored| query.order_by.as_ref().and_then(|name| s.content.index.get(name)).cloned();
        if query.order_by.is_some() {
            found.sort_by(|a, b| (value(a.1), a.0).cmp(&(value(b.1), b.0)));
        }
        if query.descending {
            found.reverse();
        }
        let after = query.after.as_ref().map(|a| (a.value.clone(), limits::split(&a.path).1.to_owned()));
        let past = |(id, stored): &(&String, &Stored)| {
            after.as_ref().is_none_or(|(v, last)| {
                let here = (value(stored), (*id).clone());
                let end = (v.clone(), last.clone());
                if query.descending { here < end } else { here > end }
            })
        };
        found
            .into_iter()
            .filter(past)
            .take(query.limit)
            .map(|(id, stored)| doc(&query.collection, id, stored))
            .collect()
    }
}

fn doc(collection: &str, id: &str, stored: &Stored) -> Doc {
    Doc { path: format!("{collection}/{id}"), content: stored.content.clone(), revision: stored.revision }
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

    /// The document as it is read now: with the newest heartbeat of a healthy worker.
    fn read(&self, shelf: &Shelf, path: &str) -> Option<Doc> {
        let (collection, id) = limits::split(path);
        let mut doc = shelf.stored(path).map(|stored| doc(collection, id, stored))?;
        if collection.ends_with("/workers") {
            crate::pulse::freshen(&self.0, path, &mut doc.content.body);
        }
        Some(doc)
    }
}

#[async_trait]
impl Docs for SimDocs {
    async fn get(&self, path: &str) -> Result<Option<Doc>, DocsError> {
        limits::check_path(path)?;
        self.begin().await?;
        let shelf = lock(&self.0.shelf);
        let shelf = shelf.instead.as_deref().unwrap_or(&shelf);
        Ok(self.read(shelf, path))
    }

    async fn get_many(&self, paths: &[String]) -> Result<(Vec<Option<Doc>>, Revision), DocsError> {
        self.begin().await?;
        let shelf = lock(&self.0.shelf);
        let shelf = shelf.instead.as_deref().unwrap_or(&shelf);
        Ok((paths.iter().map(|path| self.read(shelf, path)).collect(), Revision(shelf.revision)))
    }

    async fn query(&self, query: &Query) -> Result<Page, DocsError> {
        limits::check_query(query)?;
        self.begin().await?;
        let shelf = lock(&self.0.shelf);
        let shelf = shelf.instead.as_deref().unwrap_or(&shelf);
        Ok(Page { docs: shelf.page(query), read_through: Revision(shelf.revision) })
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, DocsError> {
        // Measuring every body costs as much as all the rest: some are enough to see that documents stay small.
        if self.0.rolls.index(For::Latency, 16) == 0 {
            limits::check_commit(&writes)?;
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
