//! The index file against the queries that the typed store sends, as the requests that this adapter makes of them.
//!
//! The emulator enforces no index, so this comparison is all that stands between a new query and FAILED_PRECONDITION in the cloud.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use firestore::gcloud_sdk::google::firestore::v1::run_query_request::QueryType;
use firestore::gcloud_sdk::google::firestore::v1::structured_query::field_filter::Operator;
use firestore::gcloud_sdk::google::firestore::v1::structured_query::filter::FilterType;
use firestore::gcloud_sdk::google::firestore::v1::structured_query::{FieldFilter, Filter};
use jiff::Timestamp;
use rekindle_core::ids::JobId;
use rekindle_core::job::Phase;
use rekindle_ports::docs::{Doc, Docs, DocsError, Page, Query, Revision, Write};
use rekindle_ports::store::{JobFilter, Store};
use serde::Deserialize;

use super::shape;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

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
#[serde(rename_all = "camelCase")]
struct Override {
    collection_group: String,
    field_path: String,
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

/// The conditions on fields, all of which must hold.
fn filters(of: Option<Filter>) -> Vec<FieldFilter> {
    match of.and_then(|filter| filter.filter_type) {
        None => Vec::new(),
        Some(FilterType::FieldFilter(filter)) => vec![filter],
        Some(FilterType::CompositeFilter(all)) => all.filters.into_iter().flat_map(|one| filters(Some(one))).collect(),
        Some(FilterType::UnaryFilter(filter)) => panic!("no index is known to serve {filter:?}"),
    }
}

/// What a query needs: equality and containment fields in any order, then the field it is ordered by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    collection: String,
    equal: BTreeSet<(String, String)>,
    ordered: Option<(String, String)>,
}

impl Shape {
    /// What the request that the adapter makes of it asks of Firestore.
    fn of(query: &Query) -> Self {
        let request = shape::query("root", query);
        let Some(QueryType::StructuredQuery(asked)) = request.query_type else { panic!("no structured query") };
        let [from] = asked.from.as_slice() else { panic!("{:?}", asked.from) };
        assert!(!from.all_descendants, "collection groups take indexes of their own");
        let mut orders: Vec<(String, String)> = asked
            .order_by
            .iter()
            .map(|order| (order.field.as_ref().unwrap().field_path.clone(), order.direction().as_str_name().to_owned()))
            .collect();
        // Every index ends with the name, in the direction of the field before it.
        let (name, direction) = orders.pop().unwrap();
        assert_eq!(name, "__name__");
        assert!(orders.len() <= 1 && orders.iter().all(|(_, of)| *of == direction), "{orders:?}");
        let ordered = orders.pop();
        let mut equal = BTreeSet::new();
        for filter in filters(asked.r#where) {
            let op = filter.op();
            let field = filter.field.unwrap().field_path;
            if op == Operator::Equal {
                equal.insert((field, "ASCENDING".into()));
            } else if op == Operator::ArrayContains {
                equal.insert((field, "CONTAINS".into()));
            } else {
                // Of the ordered field alone, whose index serves it.
                assert!(
                    [Operator::LessThanOrEqual, Operator::GreaterThanOrEqual].contains(&op),
                    "what index serves {op:?}?"
                );
                assert_eq!(ordered.as_ref().map(|(of, _)| of), Some(&field));
            }
        }
        Self { collection: from.collection_id.clone(), equal, ordered }
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
    now(store.dead_letters(None, None, 10)).unwrap();
    now(store.dead_letters(Some(&JobId::parse("a").unwrap()), None, 10)).unwrap();
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
    let store = text("shared/ports/src/store.rs") + &text("shared/ports/src/dead.rs");
    let direct = store.matches("docs.query(").count() + store.matches("docs().query(").count();
    let pages = store.matches("self.job_page(").count();
    assert_eq!((direct, pages), (4, 3), "add the new query to `sent`");
    // Nobody else builds queries.
    let mut folders: Vec<PathBuf> =
        ["functions", "shared/engine", "shared/web", "shared/core"].iter().map(|folder| root().join(folder)).collect();
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let source = std::fs::read_to_string(&path).unwrap();
                let imports = source.split("use rekindle_ports::docs::").skip(1);
                let mut names =
                    imports.filter_map(|rest| rest.split(';').next()).flat_map(|list| list.split([',', '{', '}']));
                assert!(
                    names.all(|name| name.trim() != "Query"),
                    "{} builds a query outside of the typed store: add it to `sent`",
                    path.display()
                );
                files += 1;
            }
        }
    }
    assert!(files > 100, "{files}");
}
