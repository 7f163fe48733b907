//! Reads of one snapshot. A query walks the index of its order and looks each further filter up, so that a page costs
//! what it passes over, never a decoded document that is not on it.

use std::ops::Bound;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use redb::{Database, ReadOnlyTable, ReadableDatabase};
use rekindle_ports::docs::{Doc, IndexValue, Op, Page, Query, Revision};
use rekindle_ports::limits;

use super::layout::{self, AFTER_IDS, DOCS, INDEX, META, Tag};

/// Most bytes of documents that are kept decoded. Their values take about three times as much.
const CACHE_BYTES: u64 = 24 << 20;
/// A guess at how many documents that is.
const CACHE_DOCS: usize = 8192;

/// Documents that were read before, by path. One counts only for a read of the same revision, so that nothing must be
/// thrown out when a document is written.
pub(super) type Seen = Cache<String, Doc, Bytes>;

/// What a document takes in the cache.
#[derive(Debug, Clone)]
pub(super) struct Bytes;

impl Weighter<String, Doc> for Bytes {
    fn weight(&self, path: &String, doc: &Doc) -> u64 {
        (path.len() + doc.content.body.written_len()) as u64
    }
}

/// Nothing was read yet.
pub(super) fn nothing_seen() -> Seen {
    Cache::with_weighter(CACHE_DOCS, CACHE_BYTES, Bytes)
}

/// The store as of one moment.
pub(super) struct Snapshot<'a> {
    seen: &'a Seen,
    docs: ReadOnlyTable<&'static [u8], &'static [u8]>,
    index: ReadOnlyTable<&'static [u8], ()>,
    meta: ReadOnlyTable<&'static str, i64>,
}

/// A range of keys, and what they begin with.
struct Walk {
    prefix: Vec<u8>,
    lower: Bound<Vec<u8>>,
    upper: Bound<Vec<u8>>,
}

impl<'a> Snapshot<'a> {
    /// The store as of now.
    pub(super) fn take(db: &Database, seen: &'a Seen) -> Result<Self, redb::Error> {
        let txn = db.begin_read()?;
        Ok(Self { seen, docs: txn.open_table(DOCS)?, index: txn.open_table(INDEX)?, meta: txn.open_table(META)? })
    }

    /// The last revision in it.
    pub(super) fn through(&self) -> Result<Revision, redb::Error> {
        Ok(Revision(self.meta.get(layout::REVISION)?.map_or(0, |v| v.value())))
    }

    /// One document.
    pub(super) fn get(&self, path: &str) -> Result<Option<Doc>, redb::Error> {
        let Some(value) = self.docs.get(layout::doc_key(path).as_slice())? else { return Ok(None) };
        let bytes = value.value();
        let known = self.seen.get(path).filter(|doc| layout::revision(bytes) == Some(doc.revision));
        if known.is_some() {
            return Ok(known);
        }
        let doc = layout::decode(path.to_owned(), bytes)
            .ok_or_else(|| redb::Error::Corrupted(format!("the document {path} cannot be read")))?;
        self.seen.insert(path.to_owned(), doc.clone());
        Ok(Some(doc))
    }

    /// A page.
    pub(super) fn query(&self, query: &Query) -> Result<Page, redb::Error> {
        let mut docs = Vec::new();
        for id in self.ids(query)? {
            let path = format!("{}/{id}", query.collection);
            let doc = self.get(&path)?;
            docs.push(
                doc.ok_or_else(|| redb::Error::Corrupted(format!("the index names {path}, which is not there")))?,
            );
        }
        Ok(Page { docs, read_through: self.through()? })
    }

    fn ids(&self, query: &Query) -> Result<Vec<String>, redb::Error> {
        let mut ids = Vec::new();
        let walk = walk(query);
        let (lower, upper) = (walk.lower.as_ref().map(Vec::as_slice), walk.upper.as_ref().map(Vec::as_slice));
        if is_empty(lower, upper) {
            return Ok(ids);
        }
        let mut take = |key: &[u8]| -> Result<bool, redb::Error> {
            let Some(id) = id_of(query, &walk.prefix, key) else {
                return Err(redb::Error::Corrupted("an index entry cannot be read".into()));
            };
            if self.passes(query, &id)? {
                ids.push(id);
            }
            Ok(ids.len() == query.limit)
        };
        // Two tables, two directions: the four walks have four types.
        if query.order_by.is_some() {
            let mut range = self.index.range::<&[u8]>((lower, upper))?;
            while let Some(entry) = if query.descending { range.next_back() } else { range.next() } {
                if take(entry?.0.value())? {
                    break;
                }
            }
        } else {
            let mut range = self.docs.range::<&[u8]>((lower, upper))?;
            while let Some(entry) = if query.descending { range.next_back() } else { range.next() } {
                if take(entry?.0.value())? {
                    break;
                }
            }
        }
        Ok(ids)
    }

    /// Whether every equality and membership holds for the document. Ranges are bounds of the walk.
    fn passes(&self, query: &Query, id: &str) -> Result<bool, redb::Error> {
        for (field, op, value) in &query.filters {
            let mut key = layout::field_key(&query.collection, field);
            match (op, value) {
                (Op::Le | Op::Ge, _) => continue,
                (Op::Contains, IndexValue::Text(text)) => layout::push_member(&mut key, text),
                (Op::Eq | Op::Contains, value) => layout::push_value(&mut key, value),
            }
            key.extend_from_slice(id.as_bytes());
            if self.index.get(key.as_slice())?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The keys that a query passes over.
fn walk(query: &Query) -> Walk {
    let (prefix, mut lower, mut upper) = match &query.order_by {
        None => {
            let prefix = layout::collection_key(&query.collection);
            let upper = with(&prefix, &[AFTER_IDS]);
            (prefix.clone(), prefix, upper)
        }
        Some(field) => {
            let prefix = layout::field_key(&query.collection, field);
            // A set has no order: its entries are passed by.
            let upper = with(&prefix, &[Tag::OfSet as u8]);
            (prefix.clone(), prefix, upper)
        }
    };
    for (_, op, value) in query.filters.iter().filter(|(_, op, _)| matches!(op, Op::Le | Op::Ge)) {
        let mut at = prefix.clone();
        layout::push_value(&mut at, value);
        let (from, to) = match op {
            Op::Le => (with(&prefix, &[layout::tag(value)]), with(&at, &[AFTER_IDS])),
            Op::Ge | Op::Eq | Op::Contains => (at, with(&prefix, &[layout::tag(value) + 1])),
        };
        lower = lower.max(from);
        upper = upper.min(to);
    }
    let mut lower = Bound::Included(lower);
    if let Some(after) = &query.after {
        let mut at = prefix.clone();
        if let Some(value) = &after.value {
            layout::push_value(&mut at, value);
        }
        at.extend_from_slice(limits::split(&after.path).1.as_bytes());
        if query.descending {
            upper = upper.min(at);
        } else if matches!(&lower, Bound::Included(start) if *start <= at) {
            lower = Bound::Excluded(at);
        }
    }
    Walk { prefix, lower, upper: Bound::Excluded(upper) }
}

fn with(prefix: &[u8], more: &[u8]) -> Vec<u8> {
    [prefix, more].concat()
}

/// redb takes no range whose start is past its end.
fn is_empty(lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> bool {
    match (lower, upper) {
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => from >= to,
        _ => false,
    }
}

/// The id at the end of a key of the walk.
fn id_of(query: &Query, prefix: &[u8], key: &[u8]) -> Option<String> {
    let rest = key.strip_prefix(prefix)?;
    let id = if query.order_by.is_none() { rest } else { after_value(rest)? };
    String::from_utf8(id.to_vec()).ok()
}

/// What follows the encoded value.
fn after_value(bytes: &[u8]) -> Option<&[u8]> {
    let (tag, rest) = bytes.split_first()?;
    match *tag {
        t if t == Tag::Bool as u8 => rest.get(1..),
        t if t == Tag::Int as u8 => rest.get(8..),
        _ => {
            let end = rest.windows(2).position(|pair| pair == [0, 1])?;
            rest.get(end + 2..)
        }
    }
}
