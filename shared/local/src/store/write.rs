//! Commits: preconditions, documents and index entries, in one transaction for a group.

use jiff::Timestamp;
use redb::{Database, Durability, ReadableTable, Table, WriteTransaction};
use rekindle_ports::docs::{Precondition, Revision, Write};

use super::layout::{self, DOCS, INDEX, META};

/// Why a group was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum GroupError {
    /// Nothing of it was written.
    #[error("nothing was written: {0}")]
    Nothing(String),
    /// The disk has no room; nothing of it was written.
    #[error("{0}")]
    Full(String),
    /// The flush failed.
    #[error("the flush failed: {0}")]
    Unclear(String),
}

/// For each commit its revision, or the path whose precondition did not hold.
pub(super) type Results = Vec<Result<Revision, String>>;

/// Makes the tables. Answers the layout's version and the last revision.
pub(super) fn prepare(db: &Database) -> Result<(u64, i64), redb::Error> {
    let txn = db.begin_write()?;
    let found = {
        let mut meta = txn.open_table(META)?;
        let schema = meta.get(layout::SCHEMA)?.map(|v| v.value());
        let schema = if let Some(schema) = schema {
            schema
        } else {
            meta.insert(layout::SCHEMA, super::FILE_SCHEMA as i64)?;
            super::FILE_SCHEMA as i64
        };
        if schema == super::FILE_SCHEMA as i64 {
            let _docs = txn.open_table(DOCS)?;
            let _index = txn.open_table(INDEX)?;
        }
        let last = meta.get(layout::REVISION)?.map_or(0, |v| v.value());
        (schema as u64, last)
    };
    txn.commit()?;
    Ok(found)
}

/// Writes a group. `last` is the last revision given, and is moved on.
pub(super) fn group(
    db: &Database,
    commits: Vec<(Vec<Write>, Vec<String>)>,
    last: &mut i64,
) -> Result<Results, GroupError> {
    let nothing = |e: redb::Error| GroupError::Nothing(e.to_string());
    let mut txn = db.begin_write().map_err(|e| nothing(e.into()))?;
    txn.set_durability(Durability::Immediate).map_err(|e| nothing(e.into()))?;
    let mut newest = *last;
    let results = fill(&txn, commits, &mut newest).map_err(nothing)?;
    if newest == *last {
        // Every commit met a precondition: nothing to flush.
        return Ok(results);
    }
    *last = newest;
    txn.commit().map_err(|e| GroupError::Unclear(e.to_string()))?;
    Ok(results)
}

fn fill(
    txn: &WriteTransaction,
    commits: Vec<(Vec<Write>, Vec<String>)>,
    newest: &mut i64,
) -> Result<Results, redb::Error> {
    let mut docs = txn.open_table(DOCS)?;
    let mut index = txn.open_table(INDEX)?;
    let mut results = Vec::with_capacity(commits.len());
    for (writes, bodies) in commits {
        if let Some(path) = broken_precondition(&docs, &writes)? {
            results.push(Err(path));
            continue;
        }
        *newest = Timestamp::now().as_microsecond().max(*newest + 1);
        let revision = Revision(*newest);
        for (write, body) in writes.iter().zip(&bodies) {
            apply(&mut docs, &mut index, write, body, revision)?;
        }
        results.push(Ok(revision));
    }
    txn.open_table(META)?.insert(layout::REVISION, *newest)?;
    Ok(results)
}

fn broken_precondition(docs: &Table<'_, &[u8], &[u8]>, writes: &[Write]) -> Result<Option<String>, redb::Error> {
    for write in writes {
        let (Write::Put { path, when, .. } | Write::Delete { path, when }) = write;
        if *when == Precondition::None {
            continue;
        }
        let at = docs.get(layout::doc_key(path).as_slice())?.and_then(|v| layout::revision(v.value()));
        let holds = match when {
            Precondition::None => true,
            Precondition::Absent => at.is_none(),
            Precondition::At(revision) => at == Some(*revision),
        };
        if !holds {
            return Ok(Some(path.clone()));
        }
    }
    Ok(None)
}

fn apply(
    docs: &mut Table<'_, &[u8], &[u8]>,
    index: &mut Table<'_, &[u8], ()>,
    write: &Write,
    body: &str,
    revision: Revision,
) -> Result<(), redb::Error> {
    let path = write.path();
    let key = layout::doc_key(path);
    let before = docs.get(key.as_slice())?.and_then(|v| layout::index(v.value())).unwrap_or_default();
    let empty = std::collections::BTreeMap::new();
    let after = match write {
        Write::Put { content, .. } => &content.index,
        Write::Delete { .. } => &empty,
    };
    let (old, new) = (layout::index_keys(path, &before), layout::index_keys(path, after));
    for entry in old.iter().filter(|e| !new.contains(e)) {
        index.remove(entry.as_slice())?;
    }
    for entry in new.iter().filter(|e| !old.contains(e)) {
        index.insert(entry.as_slice(), ())?;
    }
    match write {
        Write::Put { content, .. } => {
            let bytes = layout::encode(revision, &content.index, body).map_err(redb::Error::Corrupted)?;
            docs.insert(key.as_slice(), bytes.as_slice())?;
        }
        Write::Delete { .. } => {
            docs.remove(key.as_slice())?;
        }
    }
    Ok(())
}
