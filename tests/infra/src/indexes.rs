//! The index file against the queries that the typed store sends, in the shape in which the Firestore adapter sends them.
//!
//! The emulator enforces no index, so this comparison is all that stands between a new query and FAILED_PRECONDITION in the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use jiff::Timestamp;
use rekindle_core::ids::JobId;
use rekindle_core::job::Phase;
use rekindle_ports::docs::{Doc, Docs, DocsError, Op, Page, Query, Revision, Write};
use rekindle_ports::store::{JobFilter, Store};
use serde::Deserialize;

use crate::files::{sources, text};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    indexes: Vec<Index>,
    field_overrides: Vec<Override>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Index {
    collection_group: String,
    query_scope: String,
    fields: Vec<Part>,
}

/// A field of an index: its path, and `ASCENDING`, `DESCENDING` or `CONTAINS`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Part {
    field_path: String,
    order: Option<String>,
    array_config: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Override {
    collection_group: String,
    field_path: String,
    #[serde(default)]
    ttl: bool,
    indexes: Vec<Single>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Single {
    order: String,
    query_scope: String,
}

fn file() -> File {
    serde_json::from_str(&text("infra/firestore.indexes.json")).unwrap()
}

/// What a query needs: equality and containment fields in any order, then the field it is ordered by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    collection: String,
    equal: BTreeSet<(String, String)>,
    ordered: Option<(String, String)>,
}

impl Shape {
    fn of(query: &Query) -> Self {
        let collection = query.collection.rsplit('/').next().unwrap().to_owned();
        let direction = if query.descending { "DESCENDING" } else { "ASCENDING" };
        let mut equal = BTreeSet::new();
        for (field, op, _) in &query.filters {
            let field = format!("i_{field}");
            match op {
                Op::Eq => equal.insert((field, "ASCENDING".into())),
                Op::Contains => equal.insert((field, "CONTAINS".into())),
                // On the ordered field, by the port's own rule.
                Op::Le | Op::Ge => {
                    assert_eq!(query.order_by.as_deref(), Some(field.trim_start_matches("i_")));
                    continue;
                }
            };
        }
        let ordered = query.order_by.as_ref().map(|f| (format!("i_{f}"), direction.to_owned()));
        Self { collection, equal, ordered }
    }

    /// Ordered by name alone: every collection has that. Ordered by one field: its own index. Else a composite one.
    fn need(&self) -> Need {
        match (&self.ordered, self.equal.is_empty()) {
            (None, true) => Need::Nothing,
            (Some(_), true) => Need::Single,
            _ => Need::Composite,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Single,
    Composite,
}

fn composites(file: &File) -> BTreeSet<Shape> {
    let part = |p: &Part| (p.field_path.clone(), p.order.clone().or_else(|| p.array_config.clone()).unwrap());
    let shape = |index: &Index| {
        assert_eq!(index.query_scope, "COLLECTION");
        let (last, before) = index.fields.split_last().unwrap();
        Shape {
            collection: index.collection_group.clone(),
            equal: before.iter().map(part).collect(),
            ordered: Some(part(last)),
        }
    };
    file.indexes.iter().map(shape).collect()
}

/// Keeps the queries and answers that there is nothing.
#[derive(Default)]
struct Recorder(Mutex<Vec<Query>>);

#[async_trait]
impl Docs for Recorder {
    async fn get(&self, _: &str) -> Result<Option<Doc>, DocsError> {
        Ok(None)
    }
    async fn get_many(&self, paths: &[String]) -> Result<(Vec<Option<Doc>>, Revision), DocsError> {
        Ok((vec![None; paths.len()], Revision(0)))
    }
    async fn query(&self, query: &Query) -> Result<Page, DocsError> {
        self.0.lock().unwrap().push(query.clone());
        Ok(Page { docs: Vec::new(), read_through: Revision(0) })
    }
    async fn commit(&self, _: Vec<Write>) -> Result<Revision, DocsError> {
        Ok(Revision(0))
    }
}

/// Nothing here ever waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the recorder never waits"),
    }
}

/// Every query that the typed store can send, in every combination of its filters.
fn sent() -> Vec<Query> {
    let recorder = Arc::new(Recorder::default());
    let store = Store::new(recorder.clone());
    for bits in 0..8u8 {
        let filter = JobFilter {
            phase: (bits & 1 != 0).then_some(Phase::Running),
            owner: (bits & 2 != 0).then(|| "research".into()),
            tag: (bits & 4 != 0).then(|| "ablation".into()),
        };
        now(store.jobs(&filter, None, 10)).unwrap();
    }
    now(store.due_jobs(Timestamp::UNIX_EPOCH, None, 10)).unwrap();
    now(store.changed_jobs(Timestamp::UNIX_EPOCH, None, 10)).unwrap();
    now(store.live_jobs(None, 10)).unwrap();
    now(store.history(&JobId::parse("a").unwrap(), 0, 10)).unwrap();
    recorder.0.lock().unwrap().clone()
}

#[test]
fn every_query_has_its_index_and_every_index_its_query() {
    let file = file();
    let composites = composites(&file);
    let singles: BTreeMap<(&str, &str), &Vec<Single>> = file
        .field_overrides
        .iter()
        .map(|o| ((o.collection_group.as_str(), o.field_path.as_str()), &o.indexes))
        .collect();
    let mut needed = BTreeSet::new();
    for query in sent() {
        let shape = Shape::of(&query);
        match shape.need() {
            Need::Nothing => {}
            Need::Single => {
                let (field, direction) = shape.ordered.clone().unwrap();
                // Without an override every field has both directions.
                if let Some(indexes) = singles.get(&(shape.collection.as_str(), field.as_str())) {
                    let is_there = indexes.iter().any(|i| i.order == direction && i.query_scope == "COLLECTION");
                    assert!(is_there, "no index of {field} {direction} for {shape:?}");
                }
            }
            Need::Composite => {
                assert!(composites.contains(&shape), "no index for {shape:?}");
                needed.insert(shape);
            }
        }
    }
    let idle: Vec<&Shape> = composites.difference(&needed).collect();
    assert!(idle.is_empty(), "no query needs {idle:#?}");
    assert_eq!(composites.len(), file.indexes.len(), "an index stands twice");
}

#[test]
fn the_typed_store_sends_no_query_that_is_not_recorded_here() {
    // Each way to a query in the typed store is one of these calls; a new one must be added to `sent`.
    let store = text("shared/ports/src/store.rs");
    let direct = store.matches("docs.query(").count();
    let pages = store.matches("self.job_page(").count();
    assert_eq!((direct, pages), (2, 4), "add the new query to `sent`");
    // Nobody else builds queries.
    let elsewhere = sources(&["functions", "shared/engine", "shared/web", "shared/core"]);
    let import = regex::Regex::new(r"rekindle_ports::docs::[^;]*\bQuery\b").unwrap();
    assert!(!import.is_match(&elsewhere), "a query is built outside of the typed store: add it to `sent`");
}

#[test]
fn what_is_never_queried_has_no_index() {
    let file = file();
    let off = |collection: &str, field: &str| {
        let found = file.field_overrides.iter().find(|o| o.collection_group == collection && o.field_path == field);
        found.is_some_and(|o| o.indexes.is_empty())
    };
    let kinds = text("shared/ports/src/kinds.rs");
    let paths = regex::Regex::new(r#"=> (?:format!\()?"([a-z]+)/|of_job\(id, "(?:/([a-z]+)/)?"\)"#).unwrap();
    let of_jobs = |c: &regex::Captures<'_>| c.get(2).map_or("jobs", |sub| sub.as_str()).to_owned();
    let collections: BTreeSet<String> = paths
        .captures_iter(&kinds)
        .map(|c| c.get(1).map_or_else(|| of_jobs(&c), |own| own.as_str().to_owned()))
        .collect();
    assert!(collections.len() >= 8, "{collections:?}");
    for collection in &collections {
        // One text of up to 900 kB, and a random number.
        for field in ["body", "rev"] {
            assert!(off(collection, field), "{collection}.{field} is indexed for nothing");
        }
    }
    let listed: BTreeSet<String> = file.field_overrides.iter().map(|o| o.collection_group.clone()).collect();
    assert_eq!(listed, collections, "the file names other collections than there are");
}

#[test]
fn documents_with_a_lifetime_are_deleted_and_no_others() {
    let file = file();
    let mut ending = BTreeSet::new();
    for o in file.field_overrides.iter().filter(|o| o.ttl) {
        let at = format!("{}.{}", o.collection_group, o.field_path);
        assert!(o.indexes.is_empty(), "{at}: a field that only grows caps the collection's writes");
        let adapter = text("shared/gcp/src/firestore/shape.rs");
        assert!(adapter.contains(&format!("\"{}\"", o.field_path)), "{at}: the adapter writes no such field");
        ending.insert(o.collection_group.clone());
    }
    let paths = [
        "meta/x",
        "jobs/x",
        "jobs/x/history/x",
        "jobs/x/commands/x",
        "jobs/x/workers/x",
        "jobs/x/progress/x",
        "orphans/x",
        "instances/x",
        "zones/x",
        "limits/x",
        "dead/x",
    ];
    let collection = |path: &str| path.rsplit('/').nth(1).unwrap().to_owned();
    let all: BTreeSet<String> = paths.iter().map(|p| collection(p)).collect();
    let listed: BTreeSet<String> = file.field_overrides.iter().map(|o| o.collection_group.clone()).collect();
    assert_eq!(all, listed, "a kind is missing here");
    let with_lifetime: BTreeSet<String> =
        paths.into_iter().filter(|p| rekindle_ports::kinds::lifetime(p).is_some()).map(collection).collect();
    assert_eq!(ending, with_lifetime);
}
