//! Pages of jobs: how many are read with one call, and what is read of them.

use std::sync::Arc;

use rekindle_core::job::Job;

use crate::docs::{Cursor, Doc, IndexValue, Op, Query};
use crate::store::{At, cursor, read};

/// So many jobs are read with the first call of a list: how large they are is not known before.
const FIRST: usize = 50;
/// About so many bytes of jobs are read for one page of a list. A job has some kilobytes as a rule, but its spec may have 256 KiB, and
/// a page of 500 such jobs would take more memory than the service has.
const BYTES: usize = 8 << 20;

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
        Some(left.min(fits.max(1)))
    }

    /// Takes account of documents.
    pub(crate) fn add(&mut self, docs: &[Doc]) {
        self.jobs += docs.len();
        self.bytes += docs.iter().map(|doc| doc.content.body.written_len()).sum::<usize>();
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
    use super::*;

    #[test]
    fn a_page_ends_with_so_many_jobs_or_so_many_bytes() {
        let step = |jobs, bytes, limit| Read { jobs, bytes }.step(limit);
        assert_eq!((step(0, 0, 500), step(0, 0, 20)), (Some(50), Some(20)));
        assert_eq!(step(50, 50 * 4_000, 500), Some(450), "the rest, where they are small");
        assert_eq!(step(50, 50 * 100_000, 500), Some(33), "no more than fit");
        assert_eq!((step(500, 500 * 4_000, 500), step(50, 50 * 250_000, 500)), (None, None));
        assert_eq!(step(50, 0, 500), Some(450), "a store that cannot say");
        assert_eq!(step(9, BYTES - 1, 500), Some(1), "it ends");
    }
}
