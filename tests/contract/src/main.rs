//! A writer that the crash test kills: commits without end, and says each commit that was answered.
//!
//! Commit `n` writes `left/<n>` and `right/<n>`; a line `n` on standard output says that it was answered.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rekindle_local::RedbDocs;
use rekindle_ports::docs::{Content, Docs, IndexValue, Precondition, Write};

/// Commits that are under way at a time, so that a kill meets a group of them.
const WRITERS: usize = 4;

fn write(side: &str, n: i64) -> Write {
    let index = BTreeMap::from([("n".into(), IndexValue::Int(n))]);
    let content = Content { body: serde_json::json!({"n": n, "pad": "x".repeat(2_000)}).into(), index: index.into() };
    Write::Put { path: format!("{side}/{n:08}"), content, when: Precondition::Absent }
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(first)) = (arguments.next(), arguments.next().and_then(|n| n.parse().ok())) else {
        return ExitCode::from(2);
    };
    let docs = match RedbDocs::open(path) {
        Ok(docs) => Arc::new(docs),
        Err(error) => {
            let _closed = writeln!(std::io::stderr(), "{error}");
            return ExitCode::FAILURE;
        }
    };
    let next = Arc::new(AtomicI64::new(first));
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..WRITERS {
        let (docs, next) = (Arc::clone(&docs), Arc::clone(&next));
        writers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if docs.commit(vec![write("left", n), write("right", n)]).await.is_err() {
                    return;
                }
                if writeln!(std::io::stdout(), "{n}").is_err() {
                    return;
                }
            }
        });
    }
    while writers.join_next().await.is_some() {}
    ExitCode::FAILURE
}
