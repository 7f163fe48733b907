//! One call at a time for each chunk.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The chunks that are being stored by this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<BTreeSet<String>>>);

/// A chunk that is being stored, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    all: Turns,
    chunk: String,
}

impl Turns {
    /// Begins with a chunk; `None` while somebody else is at it.
    pub(crate) fn begin(&self, chunk: String) -> Option<Turn> {
        let is_new = self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(chunk.clone());
        is_new.then(|| Turn { all: self.clone(), chunk })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.all.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.chunk);
    }
}
