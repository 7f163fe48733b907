//! A process that is killed while it commits: every answered commit is there, and each commit is whole.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rekindle_local::RedbDocs;
use rekindle_ports::docs::{Docs, Query};

const KILLS: usize = 12;

/// Runs the writer until it has told of `commits` more, kills it, and answers what it told in all.
fn write_and_kill(path: &Path, first: i64, commits: usize) -> Vec<i64> {
    let mut writer = Command::new(env!("CARGO_BIN_EXE_rekindle-contract-writer"))
        .arg(path)
        .arg(first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let mut told: Vec<i64> = (0..commits).map(|_| lines.next().unwrap().unwrap().parse().unwrap()).collect();
    // SIGKILL on Unix.
    writer.kill().unwrap();
    writer.wait().unwrap();
    // What it told before it died counts as well. A line that the kill cut short has no end, and may be half a number.
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    told.extend(rest.iter().take(rest.len().saturating_sub(1)).map(|line| line.parse::<i64>().unwrap()));
    told
}

async fn stored(docs: &RedbDocs, side: &str, order_by: Option<&str>) -> BTreeSet<i64> {
    let query = Query {
        collection: side.into(),
        filters: Vec::new(),
        order_by: order_by.map(str::to_owned),
        descending: false,
        after: None,
        limit: 1_000_000,
    };
    let docs = docs.query(&query).await.unwrap().docs;
    docs.iter().map(|d| d.content.body["n"].as_i64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answered_commit_survives_kill_9() {
    let seed: u64 = rand::random();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    let mut told = BTreeSet::new();
    let mut next = 0;
    for kill in 0..KILLS {
        told.extend(write_and_kill(&path, next, rng.random_range(1..60)));
        let docs = RedbDocs::open(&path).unwrap();
        let left = stored(&docs, "left", None).await;
        let missing: Vec<_> = told.difference(&left).collect();
        assert!(missing.is_empty(), "seed {seed}, kill {kill}: answered, and lost: {missing:?}");
        for (side, order) in [("right", None), ("left", Some("n")), ("right", Some("n"))] {
            assert_eq!(stored(&docs, side, order).await, left, "seed {seed}, kill {kill}: {side} by {order:?}");
        }
        next = left.last().unwrap() + 1;
    }
    assert!(told.len() >= KILLS);
}
