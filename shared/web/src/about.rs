//! Which job a request is about, for lines that are written outside of its handler: of the answer, of a panic.

use std::cell::RefCell;
use std::future::Future;

use rekindle_core::ids::JobId;

tokio::task_local! {
    static JOBS: RefCell<Vec<JobId>>;
}

/// Says that the request is about this job. Outside of the common layers nobody hears it.
pub fn job(id: &JobId) {
    // Without a layer there is no line either.
    let _ = JOBS.try_with(|jobs| {
        let mut jobs = jobs.borrow_mut();
        if jobs.last() != Some(id) {
            jobs.push(id.clone());
        }
    });
}

/// The job that the request is about, for the field `job` of a line; `None` for none and for several.
pub(crate) fn known() -> Option<String> {
    let jobs = JOBS.try_with(|jobs| match jobs.borrow().as_slice() {
        [one] => Some(one.to_string()),
        _ => None,
    });
    jobs.ok().flatten()
}

/// Hears what is said of the request that `work` answers.
pub(crate) fn scope<W: Future>(work: W) -> impl Future<Output = W::Output> {
    JOBS.scope(RefCell::default(), work)
}
