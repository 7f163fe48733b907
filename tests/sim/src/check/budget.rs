//! Creates never exceed the budget of a minute.

use std::collections::BTreeSet;

use rekindle_ports::store::CreatesDoc;

use super::Broken;

/// The budget of the default settings.
const PERMITS: u32 = 60;

/// Requests in any 60 s. A permit taken at the end of one minute may be used for a handler's deadline longer, and one of the next minute at
/// its very beginning; the platform refuses from 91 on.
const POSTS: usize = 90;

/// Permits that were given, and the creates that they were given for.
#[derive(Default)]
pub(super) struct Permits {
    minute: i64,
    in_minute: u32,
    given: u64,
    /// Names that a create request has arrived for.
    posted: BTreeSet<String>,
}

impl Permits {
    /// The permits were written.
    pub(super) fn given(&mut self, doc: &CreatesDoc) -> Broken {
        let before = if doc.minute == self.minute { self.in_minute } else { 0 };
        self.given += u64::from(doc.used.saturating_sub(before));
        (self.minute, self.in_minute) = (doc.minute, doc.used);
        let used = doc.used;
        (used > PERMITS).then(|| ("create-budget", format!("{used} create permits were given in one minute")))
    }

    /// A create request arrived: each slice has a permit of its own.
    pub(super) fn used(&mut self, name: &str) -> Broken {
        self.posted.insert(name.to_owned());
        let (posted, given) = (self.posted.len() as u64, self.given);
        (posted > given).then(|| ("create-budget", format!("{posted} slices were asked for with {given} permits")))
    }
}

/// A request arrived.
pub(super) fn posts(in_minute: usize) -> Broken {
    (in_minute > POSTS).then(|| ("create-budget", format!("{in_minute} create requests in 60 s")))
}
