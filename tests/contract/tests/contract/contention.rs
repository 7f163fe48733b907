//! Many writers of one document: none of their writes is lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_ports::docs::{Content, Docs, DocsError, Precondition, Query, Write};
use serde_json::json;
use tokio::sync::Barrier;

use crate::stores::Store;

const TASKS: usize = 8;
const EACH: usize = 25;

fn put(path: String, n: u64, when: Precondition) -> Write {
    Write::Put { path, content: Content { body: json!(n).into(), index: BTreeMap::new().into() }, when }
}

/// Reads, adds one, and commits with a second document of its own that tells what was read, until it is done. Answers
/// how often it lost the race. Only the revision stands between the writers.
async fn increment(docs: &dyn Docs, round: &Barrier, name: &str) -> usize {
    let mut lost = 0;
    loop {
        let counter = docs.get("meta/counter").await.unwrap();
        if lost == 0 {
            // Every writer has read before any commits: all but one must lose.
            round.wait().await;
        }
        let (n, when) = match &counter {
            Some(doc) => (doc.content.body.as_u64().unwrap(), Precondition::At(doc.revision)),
            None => (0, Precondition::Absent),
        };
        let step = put(format!("meta/counter/steps/{name}"), n, Precondition::None);
        match docs.commit(vec![put("meta/counter".into(), n + 1, when), step]).await {
            Ok(_) => return lost,
            Err(DocsError::Conflict { .. } | DocsError::Unavailable(_)) => {
                lost += 1;
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn many_writers(store: Store) {
    let docs = store.docs();
    let round = Arc::new(Barrier::new(TASKS));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (docs, round) = (Arc::clone(&docs), Arc::clone(&round));
            tokio::spawn(async move {
                let mut lost = 0;
                for n in 0..EACH {
                    lost += increment(docs.as_ref(), &round, &format!("{task}-{n}")).await;
                }
                lost
            })
        })
        .collect();
    let mut lost = 0;
    for task in tasks {
        lost += task.await.unwrap();
    }
    let counter = docs.get("meta/counter").await.unwrap().unwrap();
    assert_eq!(*counter.content.body, json!(TASKS * EACH), "{}", store.name());
    let steps = Query {
        collection: "meta/counter/steps".into(),
        filters: Vec::new(),
        order_by: None,
        descending: false,
        after: None,
        limit: 1_000,
    };
    let steps = docs.query(&steps).await.unwrap().docs;
    let mut numbers: Vec<_> = steps.iter().map(|d| d.content.body.as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.iter().copied().eq(0..(TASKS * EACH) as u64), "{}: {numbers:?}", store.name());
    assert!(lost >= (TASKS - 1) * EACH, "{}: {lost} lost races", store.name());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_write_is_lost_in_memory() {
    many_writers(Store::memory()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_write_is_lost_in_the_embedded_store() {
    many_writers(Store::redb()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_write_is_lost_in_firestore() {
    if let Some(store) = Store::firestore().await {
        many_writers(store).await;
    }
}
