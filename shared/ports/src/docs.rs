//! The document store: what Firestore, the embedded store and the simulated store have in common.
//!
//! A document has a path, a JSON body that the store never looks into, and a few indexed fields for queries. Every
//! write of a commit carries its own precondition; a commit is atomic. There are no read-write transactions: they
//! collapse under contention.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::body::Body;

/// Commit time of the store, in microseconds. Later commits of one document have greater revisions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Revision(pub i64);

impl Revision {
    /// That moment, by the store's clock.
    pub fn time(self) -> Timestamp {
        Timestamp::from_microsecond(self.0).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// An indexed value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum IndexValue {
    /// True or false.
    Bool(bool),
    /// A whole number; times are microseconds since 1970.
    Int(i64),
    /// Text.
    Text(String),
    /// A set of texts, for [`Op::Contains`]. Sets have no order: a query ordered by such a field need not show it.
    Texts(Vec<String>),
}

/// Indexed fields by name. The names of this program's own documents are written into it, and cost nothing to copy.
pub type Index = BTreeMap<Cow<'static, str>, IndexValue>;

/// What is written: body and indexed fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// JSON, at most 900 kB as text.
    pub body: Body,
    /// Indexed fields. Names are `[a-z_]+`.
    pub index: Arc<Index>,
}

/// A stored document.
#[derive(Debug, Clone, PartialEq)]
pub struct Doc {
    /// Its path, such as `jobs/x` or `jobs/x/history/00000001`.
    pub path: String,
    /// Body and indexed fields.
    pub content: Content,
    /// Commit time of its last change.
    pub revision: Revision,
}

/// What must hold for a write, else the whole commit is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    None,
    /// The document must not exist.
    Absent,
    /// The document must exist with this revision. One later than its own was never read from this store, and may be
    /// `Refused`.
    At(Revision),
}

/// One write of a commit.
#[derive(Debug, Clone, PartialEq)]
pub enum Write {
    /// Create or replace.
    Put {
        /// Path.
        path: String,
        /// New content.
        content: Content,
        /// Precondition.
        when: Precondition,
    },
    /// Delete; deleting what is not there is no error unless the precondition says so.
    Delete {
        /// Path.
        path: String,
        /// Precondition.
        when: Precondition,
    },
}

impl Write {
    /// The path it writes.
    pub fn path(&self) -> &str {
        match self {
            Self::Put { path, .. } | Self::Delete { path, .. } => path,
        }
    }
}

/// A comparison of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Equal.
    Eq,
    /// Less than or equal; `Int` or `Text`, on the field of `order_by`. Values of another type do not match.
    Le,
    /// Greater than or equal; as [`Op::Le`].
    Ge,
    /// The field is a set that has this text.
    Contains,
}

/// A query over one collection (the documents whose path is `<collection>/<id>`).
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Path of the collection, such as `jobs` or `jobs/x/history`.
    pub collection: String,
    /// All must hold. Documents without the field do not match.
    pub filters: Vec<(String, Op, IndexValue)>,
    /// Order by this field, then by path; `None`: by path. Documents without the field are left out.
    pub order_by: Option<String>,
    /// Order from the greatest to the least (field and path); needs `order_by`.
    pub descending: bool,
    /// Go on after this document: the last one of the page before, with its order value.
    pub after: Option<Cursor>,
    /// At most so many.
    pub limit: usize,
}

impl Query {
    /// True if a document with these indexed fields is one of its answers, on whatever page.
    pub fn matches(&self, index: &Index) -> bool {
        let have = |name: &str| index.get(name);
        self.order_by.as_ref().is_none_or(|name| have(name).is_some())
            && self.filters.iter().all(|(name, op, wanted)| have(name).is_some_and(|have| op.holds(have, wanted)))
    }
}

impl Op {
    // Values of different types never compare: as in Firestore, a range holds only values of its bound's type.
    fn holds(self, have: &IndexValue, wanted: &IndexValue) -> bool {
        let same_type = std::mem::discriminant(have) == std::mem::discriminant(wanted);
        match self {
            Self::Eq => have == wanted,
            Self::Le => same_type && have <= wanted,
            Self::Ge => same_type && have >= wanted,
            Self::Contains => match (have, wanted) {
                (IndexValue::Texts(texts), IndexValue::Text(text)) => texts.contains(text),
                _ => false,
            },
        }
    }
}

/// Where a page ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cursor {
    /// The order field's value of the last document, when the query has an order.
    pub value: Option<IndexValue>,
    /// Its path.
    pub path: String,
}

/// The answer to a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The documents, in order.
    pub docs: Vec<Doc>,
    /// Every commit up to this time was seen by the read.
    pub read_through: Revision,
}

/// Why a store call failed.
#[derive(Debug, thiserror::Error)]
pub enum DocsError {
    /// A precondition did not hold; nothing was written.
    #[error("a precondition did not hold at {path}")]
    Conflict {
        /// The path, when the store tells it; else the first one with a precondition.
        path: String,
    },
    /// It is not known whether the commit happened: read again.
    #[error("outcome unknown: {0}")]
    Unclear(String),
    /// The store could not be reached or is overloaded; nothing was written.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The store's disk has no room; nothing was written, and reads go on. It tells which disk, and what to do.
    #[error("{0}")]
    Full(String),
    /// The request cannot be carried out as it is (too large, no permission, bad path).
    #[error("the store refused: {0}")]
    Refused(String),
}

/// The document store.
#[async_trait]
pub trait Docs: Send + Sync {
    /// Reads one document. `Ok(None)`: it does not exist.
    async fn get(&self, path: &str) -> Result<Option<Doc>, DocsError>;

    /// Reads several, in the order of the paths, as of one moment: every commit up to the revision that comes with them was seen. It is the
    /// store's own time of the read, or that of the last commit before it.
    async fn get_many(&self, paths: &[String]) -> Result<(Vec<Option<Doc>>, Revision), DocsError>;

    /// Reads a page of a collection.
    async fn query(&self, query: &Query) -> Result<Page, DocsError>;

    /// Writes all or nothing. Answers the commit time, which is the new revision of every document put.
    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, DocsError>;

    /// Whether commits can be taken, as far as is known without one. What is known only by a call is not asked for.
    fn writes(&self) -> Result<(), DocsError> {
        Ok(())
    }
}
