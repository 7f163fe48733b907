//! What every document store accepts and refuses, so that all of them refuse the same.
//!
//! The figures are Firestore's (quotas page): 1 MiB a document, indexed values cut at 1,500 bytes, ids without `/`,
//! `.`, `..`, `__x__`.

use std::collections::BTreeSet;

use crate::docs::{Content, DocsError, IndexValue, Op, Query, Write};

/// Longest body, in bytes of JSON text.
// Firestore allows 1,048,487 bytes for one field and 1 MiB for the document; the rest is for index fields and names.
pub const BODY_BYTES_MAX: usize = 900_000;

/// Longest indexed text, in bytes. Firestore cuts longer ones, and would compare them wrongly.
pub const TEXT_BYTES_MAX: usize = 1_500;

/// Longest path, in bytes.
// Firestore takes 6 KiB; ours are under 200.
pub const PATH_BYTES_MAX: usize = 1_000;

/// Most writes in one commit. Firestore's limit is 10 MiB a request; ours hold a handful.
pub const WRITES_MAX: usize = 500;

/// Refuses what no store would take; answers the body of each put as JSON text (empty for deletes).
pub fn check_commit(writes: &[Write]) -> Result<Vec<String>, DocsError> {
    if writes.is_empty() || writes.len() > WRITES_MAX {
        return refuse(format!("a commit has 1 to {WRITES_MAX} writes, not {}", writes.len()));
    }
    let mut seen = BTreeSet::new();
    let mut bodies = Vec::with_capacity(writes.len());
    for write in writes {
        check_path(write.path())?;
        if !seen.insert(write.path()) {
            return refuse(format!("{} is written twice in one commit", write.path()));
        }
        bodies.push(match write {
            Write::Put { path, content, .. } => check_content(path, content)?,
            Write::Delete { .. } => String::new(),
        });
    }
    Ok(bodies)
}

/// Refuses a query that the stores would answer differently or not at all.
pub fn check_query(query: &Query) -> Result<(), DocsError> {
    check_segments(&query.collection, 1)?;
    if query.limit == 0 {
        return refuse("a page has at least one document".to_owned());
    }
    if query.descending && query.order_by.is_none() {
        // Firestore: "does not support descending key scans".
        return refuse("descending needs an order by a field".to_owned());
    }
    for (name, op, value) in &query.filters {
        check_name(name)?;
        let fits = match op {
            Op::Eq => !matches!(value, IndexValue::Texts(_)),
            Op::Le | Op::Ge => matches!(value, IndexValue::Int(_) | IndexValue::Text(_)),
            Op::Contains => matches!(value, IndexValue::Text(_)),
        };
        if !fits {
            return refuse(format!("{op:?} does not take {value:?}"));
        }
        if matches!(op, Op::Le | Op::Ge) && query.order_by.as_deref() != Some(name) {
            return refuse(format!("{op:?} on {name} needs the order by {name}"));
        }
    }
    if let Some(name) = &query.order_by {
        check_name(name)?;
    }
    if let Some(after) = &query.after {
        check_path(&after.path)?;
        if split(&after.path).0 != query.collection {
            return refuse(format!("{} is not in {}", after.path, query.collection));
        }
        if after.value.is_some() != query.order_by.is_some() {
            return refuse("a cursor has a value exactly when the query has an order".to_owned());
        }
        if matches!(after.value, Some(IndexValue::Texts(_))) {
            return refuse("a set has no order".to_owned());
        }
    }
    Ok(())
}

/// Refuses what is no document path: an even number of segments of `[A-Za-z0-9._-]`.
pub fn check_path(path: &str) -> Result<(), DocsError> {
    check_segments(path, 0)
}

/// The collection and the id of a document path.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn check_segments(path: &str, odd: usize) -> Result<(), DocsError> {
    let mut count = 0;
    let reserved = |s: &str| matches!(s, "" | "." | "..") || (s.starts_with("__") && s.ends_with("__"));
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    let well = path.split('/').inspect(|_| count += 1).all(|s| plain(s) && !reserved(s));
    if path.len() > PATH_BYTES_MAX || count % 2 != odd || !well {
        return refuse(format!("{path:?} is no path of a {}", if odd == 1 { "collection" } else { "document" }));
    }
    Ok(())
}

fn check_content(path: &str, content: &Content) -> Result<String, DocsError> {
    let Ok(body) = content.body.text() else { return refuse(format!("the body of {path} is no JSON")) };
    if body.len() > BODY_BYTES_MAX {
        return refuse(format!("the body of {path} has {} bytes; at most {BODY_BYTES_MAX}", body.len()));
    }
    for (name, value) in content.index.iter() {
        check_name(name)?;
        let long = |t: &String| t.len() > TEXT_BYTES_MAX;
        let too_long = match value {
            IndexValue::Bool(_) | IndexValue::Int(_) => false,
            IndexValue::Text(text) => long(text),
            IndexValue::Texts(texts) => texts.iter().any(long),
        };
        if too_long {
            return refuse(format!("the indexed field {name} of {path} is longer than {TEXT_BYTES_MAX} bytes"));
        }
    }
    Ok(body)
}

fn check_name(name: &str) -> Result<(), DocsError> {
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
        return refuse(format!("{name:?} is no name of an indexed field ([a-z_]+)"));
    }
    Ok(())
}

fn refuse<T>(why: String) -> Result<T, DocsError> {
    Err(DocsError::Refused(why))
}
