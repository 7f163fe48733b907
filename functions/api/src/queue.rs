//! Reads of many jobs: so many at the same time, and one at a time for each person.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use rekindle_web::{Problem, problem};

/// Each may take some ten megabytes, and agents are served by the same process.
pub(crate) const AT_ONCE: usize = 4;

/// Nobody waits longer for a place: calls go on to their end also when their caller has left.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// With more people than this those who read nothing now are forgotten.
const KNOWN_MAX: usize = 256;

/// Who reads many jobs, and who waits.
#[derive(Debug)]
pub(crate) struct Queue {
    all: Semaphore,
    /// A place for each person, as long as one of theirs reads or waits.
    own: Mutex<BTreeMap<String, Weak<Semaphore>>>,
    wait_max: Duration,
}

/// A read may go on, until this is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    _all: SemaphorePermit<'a>,
    _own: OwnedSemaphorePermit,
}

impl Default for Queue {
    fn default() -> Self {
        Self { all: Semaphore::new(AT_ONCE), own: Mutex::default(), wait_max: WAIT_MAX }
    }
}

impl Queue {
    /// Waits for a place: behind the person's own earlier reads first, which hold up nobody else. 503 when that takes too long.
    pub(crate) async fn place(&self, who: &str) -> Result<Place<'_>, Problem> {
        let own = self.own(who);
        let places = async {
            // Neither is ever closed.
            let own = own.acquire_owned().await.ok()?;
            Some(Place { _own: own, _all: self.all.acquire().await.ok()? })
        };
        tokio::time::timeout(self.wait_max, places).await.ok().flatten().ok_or_else(|| {
            let why = "as many lists are being read as this service can read at once; try again in some seconds";
            problem(StatusCode::SERVICE_UNAVAILABLE, "busy", why)
        })
    }

    fn own(&self, who: &str) -> Arc<Semaphore> {
        let mut known = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KNOWN_MAX {
            known.retain(|_, own| own.strong_count() > 0);
        }
        if let Some(own) = known.get(who).and_then(Weak::upgrade) {
            return own;
        }
        let own = Arc::new(Semaphore::new(1));
        known.insert(who.to_owned(), Arc::downgrade(&own));
        own
    }

    /// How many places are free.
    #[cfg(test)]
    pub(crate) fn free(&self) -> usize {
        self.all.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_person_holds_up_nobody_else_and_nobody_waits_for_long() {
        // A place that is free is taken at once.
        let queue = Queue { wait_max: Duration::ZERO, ..Queue::default() };
        let first = queue.place("ann").await.unwrap();
        // Ann's other reads wait for the first, and take no place of others.
        let second = queue.place("ann").await.unwrap_err();
        assert_eq!((second.status(), queue.free()), (StatusCode::SERVICE_UNAVAILABLE, AT_ONCE - 1));
        let others = [queue.place("bob").await.unwrap(), queue.place("eve").await.unwrap()];
        drop(first);
        let again = queue.place("ann").await.unwrap();
        let last = queue.place("tom").await.unwrap();
        assert_eq!(queue.place("kim").await.unwrap_err().status(), StatusCode::SERVICE_UNAVAILABLE, "all are taken");
        drop((others, again, last));
        assert_eq!(queue.free(), AT_ONCE);
        for n in 0..2 * KNOWN_MAX {
            queue.place(&n.to_string()).await.unwrap();
        }
        assert!(queue.own.lock().unwrap().len() <= KNOWN_MAX);
    }
}
