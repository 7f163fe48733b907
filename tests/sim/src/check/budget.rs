//! Creates never exceed the budget of a minute.

use rekindle_ports::store::CreatesDoc;

use super::Broken;

/// The budget of the default settings.
const PERMITS: u32 = 60;

/// Requests in any 60 s. A permit taken at the end of one minute may be used for a handler's deadline longer, and one of the next minute at
/// its very beginning; the platform refuses from 91 on.
const POSTS: usize = 90;

/// The permits were written.
pub(super) fn permits(doc: &CreatesDoc) -> Broken {
    let used = doc.used;
    (used > PERMITS).then(|| ("create-budget", format!("{used} create permits were given in one minute")))
}

/// A request arrived.
pub(super) fn posts(in_minute: usize) -> Broken {
    (in_minute > POSTS).then(|| ("create-budget", format!("{in_minute} create requests in 60 s")))
}
