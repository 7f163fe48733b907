//! How much memory a process gives to large bodies at once.
//!
//! **Invariant:** a request holds the room of its body until it is answered: what is decoded from a body lives as long, and has about its
//! size again. What finds no room gets 503 at once and comes again.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::HttpBody;
use axum::extract::Request;
use http::{Extensions, StatusCode};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::problem::{Problem, problem};

/// Bodies of at most so many bytes need no room: as many as are worked on at once
/// ([`AT_ONCE_MAX`](crate::layers::AT_ONCE_MAX)) have 16 MiB together.
pub const SMALL_MAX: usize = 64 * 1024;

/// Bytes that the larger bodies of a process may have together.
// Four of the largest pushes. Body, payload, its copy for the dead letters and the text of that call are at most four
// times as much, half of the 512 MiB that a service has.
pub const ROOM: usize = 64 * 1024 * 1024;

/// The room of a process.
#[derive(Debug, Clone)]
pub(crate) struct Rooms(Arc<Semaphore>);

/// What one request holds of it; nothing until its body turns out to be large.
#[derive(Debug, Clone)]
struct Room {
    all: Arc<Semaphore>,
    held: Arc<Mutex<Option<OwnedSemaphorePermit>>>,
}

/// Keeps a request's room; dropped with the answer.
#[derive(Debug)]
pub(crate) struct Held {
    _room: Option<Room>,
}

impl Rooms {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ROOM)))
    }

    /// Gives the request, whose body may be large, a place in which its reader writes down the room it takes.
    pub(crate) fn offer(&self, request: &mut Request) -> Held {
        let is_small = request.body().size_hint().upper().is_some_and(|size| size <= SMALL_MAX as u64);
        if is_small {
            return Held { _room: None };
        }
        let room = Room { all: Arc::clone(&self.0), held: Arc::default() };
        request.extensions_mut().insert(room.clone());
        Held { _room: Some(room) }
    }
}

/// Takes room for a body of `size` bytes, for as long as the request is worked on. A body above all the room takes all of it. Errors: 503, there is none left.
///
/// A router without the common layers has no such limit.
pub(crate) fn take(extensions: &Extensions, size: usize) -> Result<(), Problem> {
    let Some(room) = extensions.get::<Room>().filter(|_| size > SMALL_MAX) else { return Ok(()) };
    let bytes = u32::try_from(size.min(ROOM)).unwrap_or(u32::MAX);
    let Ok(permit) = Arc::clone(&room.all).try_acquire_many_owned(bytes) else {
        tracing::warn!(bytes = size, room_max = ROOM, "too many large bodies at once");
        let why = "too many large bodies at once; try again";
        return Err(problem(StatusCode::SERVICE_UNAVAILABLE, "overloaded", why));
    };
    *room.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(permit);
    Ok(())
}
