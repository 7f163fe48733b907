//! Pages of jobs: how many are read with one call, and what is read of them.

use std::sync::Arc;

use serde_json::Value;

use rekindle_core::job::Job;

use crate::body::Body;
use crate::docs::{Cursor, Doc, IndexValue, Op, Query};
use crate::store::{At, cursor, read};

/// So many jobs are read with the first call of a list, and with each further one at most as many as were read so far: how large the next ones
/// are is not known before, and they are in memory at once.
const FIRST: usize = 32;
/// No call reads more: each job may have some 260 KB.
const AT_ONCE: usize = 64;
/// About so many bytes of jobs are read for one page of a list. A job has some kilobytes as a rule, but its spec may have 256 KiB, and
/// a page of 500 such jobs would take more memory than the service has.
const BYTES: usize = 4 << 20;
/// What each value of a body takes beside its text.
const VALUE_BYTES: usize = 32;

/// What was read for a page so far.
#[derive(Debug, Default)]
pub(crate) struct Read {
    jobs: usize,
    bytes: usize,
}

impl Read {
    /// How many to read next for a page of `limit` jobs; `None`: it is full.
    pub(crate) fn step(&self, limit: usize) -> Option<usize> {
        let left = limit.saturating_sub(self.jobs);
        if left == 0 || self.bytes >= BYTES {
            return None;
        }
        // As large as those before.
        let fits = self.bytes.checked_div(self.jobs).map_or(FIRST, |each| (BYTES - self.bytes) / each.max(1));
        Some(left.min(fits.clamp(1, self.jobs.clamp(FIRST, AT_ONCE))))
    }

    /// Takes account of documents.
    pub(crate) fn add(&mut self, docs: &[Doc]) {
        self.jobs += docs.len();
        self.bytes += docs.iter().map(|doc| size(&doc.content.body)).sum::<usize>();
    }
}

/// About the bytes of a body, from whatever store: not all hand out the text that they keep.
fn size(body: &Body) -> usize {
    match body.written_len() {
        0 => value_size(body),
        len => len,
    }
}

fn value_size(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(value_size).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + value_size(value)).sum(),
        }
}

/// A query for jobs.
pub(crate) fn job_query(
    filters: Vec<(String, Op, IndexValue)>,
    order_by: &str,
    descending: bool,
    after: Option<Cursor>,
    limit: usize,
) -> Query {
    Query { collection: "jobs".into(), filters, order_by: Some(order_by.into()), descending, after, limit }
}

/// Where the page after these documents begins; `None`: they are the last.
pub(crate) fn next_of(docs: &[Doc], query: &Query) -> Option<Cursor> {
    let is_full = docs.len() == query.limit;
    docs.last().filter(|_| is_full).map(|last| cursor(last, query.order_by.as_deref().unwrap_or_default()))
}

/// The jobs of documents. One that this version cannot read must not hide all others; it is told where somebody looks.
pub(crate) fn readable(docs: &[Doc]) -> Vec<At<Arc<Job>>> {
    let job = |doc: &Doc| read(doc).inspect_err(|error| tracing::error!(%error, "a job is left out of a list")).ok();
    docs.iter().filter_map(job).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::docs::{Content, Revision};

    use super::*;

    #[test]
    fn a_page_ends_with_so_many_jobs_or_so_many_bytes() {
        let step = |jobs, bytes, limit| Read { jobs, bytes }.step(limit);
        assert_eq!((step(0, 0, 500), step(0, 0, 12)), (Some(32), Some(12)));
        assert_eq!(step(50, 50 * 4_000, 500), Some(50), "as many as before");
        assert_eq!(step(200, 200 * 4_000, 500), Some(64), "however small the first are, the next may be large");
        assert_eq!(step(490, 490 * 4_000, 500), Some(10), "the rest");
        assert_eq!(step(32, 32 * 100_000, 500), Some(9), "no more than fit");
        assert_eq!((step(500, 500 * 4_000, 500), step(17, 17 * 250_000, 500)), (None, None));
        assert_eq!(step(9, BYTES - 1, 500), Some(1), "it ends");
    }

    #[test]
    fn documents_are_measured_from_whatever_store_they_come() {
        let json = json!({"schema": 1, "data": {"spec": {"run": ["x".repeat(120_000), "y".repeat(120_000)]}}});
        for body in [
            Body::written(json.to_string()).unwrap(),
            Body::cached(json.to_string()).unwrap(),
            Body::of(Arc::new(json.clone())),
            Body::from(json.clone()),
        ] {
            let doc = Doc {
                path: "jobs/a".into(),
                content: Content { body, index: Arc::default() },
                revision: Revision::default(),
            };
            let mut read = Read::default();
            read.add(&vec![doc; 18]);
            assert_eq!(read.step(500), None, "{} bytes", read.bytes);
        }
        let many = json!(vec!["x"; 60_000]);
        assert!(size(&Body::from(many)) > 1 << 20, "in memory many short words take more than their text");
    }
}
