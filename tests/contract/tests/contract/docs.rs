//! The same random operations on the model and on another store: every answer equal, and the final dumps too.
//!
//! Revisions are compared by what they name: the number of the commit that made them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rekindle_ports::docs::{Content, Cursor, Doc, DocsError, IndexValue, Op, Precondition, Query, Revision, Write};
use serde_json::{Value, json};

use crate::stores::Store;

/// Everything that must have happened before a run counts.
const MUST_HAPPEN: &[&str] = &[
    "commit put",
    "commit delete of one that was there",
    "commit delete of one that was not there",
    "commit of several",
    "commit with the content it had",
    "conflict by Absent",
    "conflict by At: stale",
    "conflict by At: not there",
    "conflict of a delete",
    "refused",
    "get some",
    "get none",
    "get_many of some and none",
    "query: full page",
    "query: last page",
    "query: nothing",
    "query: went on after a page",
    "query: after a document that is not there",
    "query: by path",
    "query: by field",
    "query: descending",
    "query: equal values in order",
    "query: Eq",
    "query: Contains",
    "query: Le",
    "query: Ge",
    "query: Le and Ge",
    "query: two equalities",
    "query: a collection below a document",
    "reopened",
];

const COLLECTIONS: [&str; 4] = ["jobs", "meta", "jobs/a/history", "jobs/a-b/history"];
const IDS: [&str; 12] = ["a", "a-b", "b", "0000000001", "0000000010", "z_z", "Z", "a.b", "aa", "ab", "9", "q-"];
const TEXTS: [&str; 8] = ["", "a", "a b", "ab", "b", "é", "日本", "\u{10000}"];
/// A precondition by number of commit, so that it can be said in every store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    None,
    Absent,
    At(usize),
}

/// A write as the stores are told it: path, precondition, and the content unless it is a delete.
type Told = (String, When, Option<Content>);

/// Far more than a run ever needs: only a generator that cannot reach something gets there.
const OPERATIONS_MAX: usize = 20_000;

/// A run of the model and another store.
struct Run {
    rng: ChaCha8Rng,
    model: Store,
    other: Store,
    /// Revisions of the commits so far, in the model and in the other store.
    commits: Vec<(Revision, Revision)>,
    /// What was written where, with the number of the commit; `None` after a delete.
    known: BTreeMap<String, Option<(usize, Content)>>,
    happened: BTreeSet<&'static str>,
}

async fn compare(seed: u64, other: Store, operations: usize) {
    let name = other.name();
    let rng = ChaCha8Rng::seed_from_u64(seed);
    let mut run = Run {
        rng,
        model: Store::memory(),
        other,
        commits: Vec::new(),
        known: BTreeMap::new(),
        happened: BTreeSet::new(),
    };
    let mut done = 0;
    while done < operations || run.missing().next().is_some() {
        let missing: Vec<_> = run.missing().collect();
        assert!(done < OPERATIONS_MAX, "{name}, seed {seed}: never happened: {missing:?}");
        match run.rng.random_range(0..100) {
            0..45 => run.commit().await,
            45..55 => run.get().await,
            55..65 => run.get_many().await,
            65..90 => run.query().await,
            90..99 => run.walk().await,
            _ => {
                run.other.reopen().await;
                run.happened.insert("reopened");
            }
        }
        done += 1;
    }
    run.dump().await;
}

impl Run {
    fn missing(&self) -> impl Iterator<Item = &'static str> {
        MUST_HAPPEN.iter().copied().filter(|name| !self.happened.contains(name))
    }

    fn path(&mut self) -> String {
        let collection = COLLECTIONS.choose(&mut self.rng).unwrap();
        format!("{collection}/{}", IDS.choose(&mut self.rng).unwrap())
    }

    fn text(&mut self) -> String {
        (*TEXTS.choose(&mut self.rng).unwrap()).to_owned()
    }

    fn value(&mut self) -> IndexValue {
        match self.rng.random_range(0..8) {
            0 => IndexValue::Bool(self.rng.random()),
            1..6 => IndexValue::Int(*[i64::MIN, -7, -1, 0, 1, 2, 3, i64::MAX].choose(&mut self.rng).unwrap()),
            _ => IndexValue::Text(self.text()),
        }
    }

    fn content(&mut self) -> Content {
        let mut index = BTreeMap::new();
        // `mixed` has values of every type that has an order.
        for name in ["n", "t", "b", "tags", "mixed"] {
            if self.rng.random_bool(0.8) {
                let value = match name {
                    "n" => IndexValue::Int(self.rng.random_range(-2..4)),
                    "t" => IndexValue::Text(self.text()),
                    "b" => IndexValue::Bool(self.rng.random()),
                    "tags" => {
                        let mut texts: Vec<String> = TEXTS.iter().map(|t| (*t).to_owned()).collect();
                        texts.shuffle(&mut self.rng);
                        texts.truncate(self.rng.random_range(0..4));
                        IndexValue::Texts(texts)
                    }
                    _ => self.value(),
                };
                index.insert(name.into(), value);
            }
        }
        let bodies = [
            json!(null),
            json!([null, {"": []}, {}, [[1, [2]]]]),
            json!({"f": self.rng.random::<f64>(), "max": u64::MAX, "min": i64::MIN, "text": "a\0\u{7f}\"\\日"}),
            json!({"schema": 1, "data": {"deep": {"deeper": [true, false, 1e300, -0.0]}}, "long": "x".repeat(3_000)}),
        ];
        Content { body: bodies.choose(&mut self.rng).unwrap().clone().into(), index: index.into() }
    }

    /// A precondition, mostly one that holds.
    fn precondition(&mut self, path: &str) -> When {
        let at = self.known.get(path).and_then(Option::as_ref).map(|(commit, _)| *commit);
        match self.rng.random_range(0..10) {
            0..3 => When::None,
            3..5 => When::Absent,
            5..9 => at.map_or(When::Absent, When::At),
            _ if self.commits.is_empty() => When::None,
            // Not later than the document's own: Firestore takes that for a mistake, not for a lost race.
            _ => When::At(self.rng.random_range(0..=at.unwrap_or(self.commits.len() - 1))),
        }
    }

    async fn commit(&mut self) {
        if self.rng.random_bool(0.04) {
            return self.refused().await;
        }
        let mut paths = BTreeSet::new();
        for _ in 0..*[1, 1, 1, 2, 3, 8].choose(&mut self.rng).unwrap() {
            paths.insert(self.path());
        }
        let (mut for_model, mut for_other, mut effects) = (Vec::new(), Vec::new(), Vec::new());
        let several = paths.len() > 1;
        for path in paths {
            let when = self.precondition(&path);
            let in_store = |of: fn(&(Revision, Revision)) -> Revision| match when {
                When::None => Precondition::None,
                When::Absent => Precondition::Absent,
                When::At(commit) => Precondition::At(of(&self.commits[commit])),
            };
            let (in_model, in_other) = (in_store(|c| c.0), in_store(|c| c.1));
            if self.rng.random_bool(0.25) {
                for_model.push(Write::Delete { path: path.clone(), when: in_model });
                for_other.push(Write::Delete { path: path.clone(), when: in_other });
                effects.push((path, when, None));
            } else {
                let before = self.known.get(&path).and_then(Option::as_ref).map(|(_, content)| content.clone());
                let content = match before {
                    Some(before) if self.rng.random_bool(0.3) => before,
                    _ => self.content(),
                };
                for_model.push(Write::Put { path: path.clone(), content: content.clone(), when: in_model });
                for_other.push(Write::Put { path: path.clone(), content: content.clone(), when: in_other });
                effects.push((path, when, Some(content)));
            }
        }
        let said = (self.model.docs().commit(for_model).await, self.other.docs().commit(for_other).await);
        match said {
            (Ok(a), Ok(b)) => {
                if let Some(last) = self.commits.last() {
                    assert!(last.0 < a && last.1 < b, "revisions grow: {last:?}, {:?}", (a, b));
                }
                self.happened.extend(several.then_some("commit of several"));
                for (path, _, content) in effects {
                    self.note(&path, content.as_ref());
                    self.known.insert(path, content.map(|content| (self.commits.len(), content)));
                }
                self.commits.push((a, b));
            }
            (Err(DocsError::Conflict { .. }), Err(DocsError::Conflict { path })) => {
                assert!(
                    effects.iter().any(|(p, when, _)| *p == path && *when != When::None),
                    "{path} has no precondition"
                );
                self.note_conflict(&effects);
            }
            (a, b) => {
                let told: Vec<_> =
                    effects.iter().map(|(path, when, content)| (path, when, content.is_some())).collect();
                panic!("{told:?}: the model says {a:?}, {} says {b:?}", self.other.name())
            }
        }
    }

    fn note(&mut self, path: &str, content: Option<&Content>) {
        let before = self.known.get(path).and_then(Option::as_ref);
        self.happened.insert(match (content, before) {
            (None, Some(_)) => "commit delete of one that was there",
            (None, None) => "commit delete of one that was not there",
            (Some(now), Some((_, before))) if now == before => "commit with the content it had",
            (Some(_), _) => "commit put",
        });
    }

    fn note_conflict(&mut self, effects: &[Told]) {
        // With several writes it is not known which one was refused.
        let [(path, when, content)] = effects else { return };
        let there = self.known.get(path).is_some_and(Option::is_some);
        self.happened.insert(match (when, there) {
            (When::At(_), true) => "conflict by At: stale",
            (When::At(_), false) => "conflict by At: not there",
            (When::Absent | When::None, _) => "conflict by Absent",
        });
        if content.is_none() {
            self.happened.insert("conflict of a delete");
        }
    }

    async fn refused(&mut self) {
        let content = self.content();
        let put = |path: &str| Write::Put { path: path.into(), content: content.clone(), when: Precondition::None };
        let mut long = content.clone();
        long.body = json!("x".repeat(1_000_000)).into();
        let mut field = content.clone();
        Arc::make_mut(&mut field.index).insert("Bad".into(), IndexValue::Int(1));
        let cases = [
            vec![],
            vec![put("jobs/a"), put("jobs/a")],
            vec![put("jobs")],
            vec![put("jobs/a/b")],
            vec![put("jobs/..")],
            vec![put("jobs/__a__")],
            vec![put("jobs//a/b")],
            vec![put("jobs/a b")],
            vec![Write::Put { path: "jobs/a".into(), content: long, when: Precondition::None }],
            vec![Write::Put { path: "jobs/a".into(), content: field, when: Precondition::None }],
        ];
        let case = cases.choose(&mut self.rng).unwrap();
        let said = (self.model.docs().commit(case.clone()).await, self.other.docs().commit(case.clone()).await);
        assert!(matches!(said, (Err(DocsError::Refused(_)), Err(DocsError::Refused(_)))), "{case:?}: {said:?}");
        self.happened.insert("refused");
    }

    async fn get(&mut self) {
        let path = self.path();
        let (a, b) = (self.model.docs().get(&path).await.unwrap(), self.other.docs().get(&path).await.unwrap());
        self.equal(a.as_slice(), b.as_slice(), &path);
        self.happened.insert(if a.is_some() { "get some" } else { "get none" });
    }

    async fn get_many(&mut self) {
        let paths: Vec<String> = (0..self.rng.random_range(0..6)).map(|_| self.path()).collect();
        let (a, a_through) = self.model.docs().get_many(&paths).await.unwrap();
        let (b, b_through) = self.other.docs().get_many(&paths).await.unwrap();
        assert_eq!(a.len(), b.len());
        for (path, (a, b)) in paths.iter().zip(a.iter().zip(&b)) {
            self.equal(a.as_slice(), b.as_slice(), path);
        }
        self.through(a_through, b_through);
        if a.iter().any(Option::is_some) && a.iter().any(Option::is_none) {
            self.happened.insert("get_many of some and none");
        }
    }

    /// A query without a cursor.
    fn random_query(&mut self) -> Query {
        let collection = (*COLLECTIONS.choose(&mut self.rng).unwrap()).to_owned();
        let order_by =
            self.rng.random_bool(0.75).then(|| (*["n", "t", "b", "mixed"].choose(&mut self.rng).unwrap()).to_owned());
        let mut filters = Vec::new();
        if self.rng.random_bool(0.3) {
            filters.push(("b".to_owned(), Op::Eq, IndexValue::Bool(self.rng.random())));
        }
        if self.rng.random_bool(0.2) {
            filters.push(("tags".to_owned(), Op::Contains, IndexValue::Text(self.text())));
        }
        if self.rng.random_bool(0.2) {
            filters.push(("n".to_owned(), Op::Eq, IndexValue::Int(self.rng.random_range(-2..4))));
        }
        if let Some(field) = order_by.clone().filter(|f| f != "b") {
            for op in [Op::Le, Op::Ge] {
                if self.rng.random_bool(0.3) {
                    let value = match field.as_str() {
                        "n" => IndexValue::Int(self.rng.random_range(-2..4)),
                        "t" => IndexValue::Text(self.text()),
                        _ => IndexValue::Int(self.rng.random_range(-7..4)),
                    };
                    filters.push((field.clone(), op, value));
                }
            }
        }
        let limit = *[1, 2, 3, 5, 100].choose(&mut self.rng).unwrap();
        let descending = order_by.is_some() && self.rng.random();
        Query { collection, filters, order_by, descending, after: None, limit }
    }

    /// A query, mostly from the start, sometimes after any place.
    async fn query(&mut self) {
        let mut query = self.random_query();
        if self.rng.random_bool(0.3) {
            let path = format!("{}/{}", query.collection, IDS.choose(&mut self.rng).unwrap());
            let value = match query.order_by.as_deref() {
                None => None,
                Some("n") => Some(IndexValue::Int(self.rng.random_range(-2..4))),
                Some("t") => Some(IndexValue::Text(self.text())),
                Some("b") => Some(IndexValue::Bool(self.rng.random())),
                Some(_) => Some(self.value()),
            };
            if !self.known.get(&path).is_some_and(Option::is_some) {
                self.happened.insert("query: after a document that is not there");
            }
            query.after = Some(Cursor { value, path });
        }
        self.page(&query).await;
    }

    /// A query, page by page to its end: together the pages are the whole.
    async fn walk(&mut self) {
        let mut query = self.random_query();
        query.limit = self.rng.random_range(1..4);
        let mut walked = Vec::new();
        loop {
            let page = self.page(&query).await;
            let full = page.len() == query.limit;
            walked.extend(page);
            let Some(last) = walked.last().filter(|_| full) else { break };
            let value = query.order_by.as_ref().and_then(|field| last.content.index.get(field.as_str())).cloned();
            query.after = Some(Cursor { value, path: last.path.clone() });
            self.happened.insert("query: went on after a page");
        }
        query.after = None;
        query.limit = 1_000;
        assert_eq!(self.page(&query).await, walked, "{query:?}");
    }

    async fn page(&mut self, query: &Query) -> Vec<Doc> {
        let a = self.model.docs().query(query).await.unwrap();
        let b = self.other.docs().query(query).await;
        let b = b.unwrap_or_else(|e| panic!("{}: {e}: {query:?}", self.other.name()));
        self.equal(&a.docs, &b.docs, &format!("{query:?}"));
        self.through(a.read_through, b.read_through);
        self.note_page(query, &a.docs);
        a.docs
    }

    fn note_page(&mut self, query: &Query, docs: &[Doc]) {
        let found = !docs.is_empty();
        let has = |op: Op| query.filters.iter().filter(|(_, o, _)| *o == op).count();
        let order_value = |doc: &Doc| query.order_by.as_ref().and_then(|f| doc.content.index.get(f.as_str())).cloned();
        let tie = docs.windows(2).any(|w| query.order_by.is_some() && order_value(&w[0]) == order_value(&w[1]));
        let seen = [
            (docs.len() == query.limit, "query: full page"),
            (found && docs.len() < query.limit, "query: last page"),
            (!found, "query: nothing"),
            (found && query.order_by.is_none(), "query: by path"),
            (found && query.order_by.is_some(), "query: by field"),
            (docs.len() > 1 && query.descending, "query: descending"),
            (tie, "query: equal values in order"),
            (found && has(Op::Eq) == 1, "query: Eq"),
            (found && has(Op::Eq) == 2, "query: two equalities"),
            (found && has(Op::Contains) > 0, "query: Contains"),
            (found && has(Op::Le) > 0, "query: Le"),
            (found && has(Op::Ge) > 0, "query: Ge"),
            (found && has(Op::Le) > 0 && has(Op::Ge) > 0, "query: Le and Ge"),
            (found && query.collection.contains('/'), "query: a collection below a document"),
        ];
        self.happened.extend(seen.into_iter().filter(|(is, _)| *is).map(|(_, name)| name));
    }

    /// Same paths, contents and commits, in the same order.
    fn equal(&self, model: &[Doc], other: &[Doc], what: &str) {
        let numbers = |docs: &[Doc],
                       of: fn(&(Revision, Revision)) -> Revision|
         -> Vec<(String, Value, BTreeMap<_, _>, Option<usize>)> {
            docs.iter()
                .map(|d| {
                    let commit = self.commits.iter().position(|c| of(c) == d.revision);
                    (d.path.clone(), (*d.content.body).clone(), (*d.content.index).clone(), commit)
                })
                .collect()
        };
        let (a, b) = (numbers(model, |c| c.0), numbers(other, |c| c.1));
        assert_eq!(a, b, "the model and {}: {what}", self.other.name());
        assert!(a.iter().all(|(.., commit)| commit.is_some()), "a revision that no commit answered: {what}");
    }

    /// Every commit that was answered before a read was seen by it.
    fn through(&self, model: Revision, other: Revision) {
        if let Some(last) = self.commits.last() {
            assert!(model >= last.0 && other >= last.1, "read through {:?}, after {last:?}", (model, other));
        }
    }

    /// Every document of every collection is what was last written.
    async fn dump(&mut self) {
        for collection in COLLECTIONS {
            let query = Query {
                collection: collection.into(),
                filters: Vec::new(),
                order_by: None,
                descending: false,
                after: None,
                limit: 1_000,
            };
            let docs = self.page(&query).await;
            let expected =
                self.known.iter().filter(|(path, _)| path.rsplit_once('/').is_some_and(|p| p.0 == collection));
            let expected: Vec<_> = expected.filter_map(|(path, known)| known.as_ref().map(|k| (path, &k.1))).collect();
            assert_eq!(docs.iter().map(|d| (&d.path, &d.content)).collect::<Vec<_>>(), expected);
        }
    }
}

/// A seed from the environment replays a failure.
fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("REKINDLE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (0..count).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_store_does_as_the_model() {
    for seed in seeds(6) {
        compare(seed, Store::redb(), 600).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn firestore_does_as_the_model() {
    for seed in seeds(3) {
        let Some(store) = Store::firestore().await else { return };
        compare(seed, store, 500).await;
    }
}

#[tokio::test]
async fn queries_that_stores_would_answer_differently_are_refused() {
    let query = |filters: Vec<(&str, Op, IndexValue)>, order_by: Option<&str>, after: Option<Cursor>| Query {
        collection: "jobs".into(),
        filters: filters.into_iter().map(|(f, op, v)| (f.to_owned(), op, v)).collect(),
        order_by: order_by.map(str::to_owned),
        descending: false,
        after,
        limit: 1,
    };
    let at = |value, path: &str| Some(Cursor { value, path: path.into() });
    let mut bad = vec![
        query(vec![("n", Op::Le, IndexValue::Int(1))], None, None),
        query(vec![("n", Op::Ge, IndexValue::Bool(true))], Some("n"), None),
        query(vec![("n", Op::Contains, IndexValue::Int(1))], None, None),
        query(vec![("n", Op::Eq, IndexValue::Texts(vec![]))], None, None),
        query(vec![], Some("i n"), None),
        query(vec![], None, at(None, "meta/a")),
        query(vec![], None, at(Some(IndexValue::Int(1)), "jobs/a")),
        query(vec![], Some("n"), at(None, "jobs/a")),
        query(vec![], Some("n"), at(Some(IndexValue::Texts(vec![])), "jobs/a")),
    ];
    bad.push(Query { descending: true, ..query(vec![], None, None) });
    bad.push(Query { limit: 0, ..query(vec![], None, None) });
    bad.push(Query { collection: "jobs/a".into(), ..query(vec![], None, None) });
    let mut stores = vec![Store::memory(), Store::redb()];
    stores.extend(Store::firestore().await);
    for store in stores {
        for query in &bad {
            let said = store.docs().query(query).await;
            assert!(matches!(said, Err(DocsError::Refused(_))), "{}: {query:?}: {said:?}", store.name());
        }
    }
}
