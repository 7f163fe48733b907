//! The index file against the kinds of documents: what is never queried has no index, what ends is deleted.
//!
//! Whether each query that is sent has its index, the adapter's own tests ask, of the requests that it makes.

use std::collections::BTreeSet;

use serde::Deserialize;

use crate::files::text;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    field_overrides: Vec<Override>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Override {
    collection_group: String,
    field_path: String,
    #[serde(default)]
    ttl: bool,
    indexes: Vec<serde_json::Value>,
}

fn file() -> File {
    serde_json::from_str(&text("infra/firestore.indexes.json")).unwrap()
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
        "told/x",
    ];
    let collection = |path: &str| path.rsplit('/').nth(1).unwrap().to_owned();
    let all: BTreeSet<String> = paths.iter().map(|p| collection(p)).collect();
    let listed: BTreeSet<String> = file.field_overrides.iter().map(|o| o.collection_group.clone()).collect();
    assert_eq!(all, listed, "a kind is missing here");
    let with_lifetime: BTreeSet<String> =
        paths.into_iter().filter(|p| rekindle_ports::kinds::lifetime(p).is_some()).map(collection).collect();
    assert_eq!(ending, with_lifetime);
}
