//! Tokens that were good a moment ago: Google's triggers send the same one for up to an hour, and reading it again each
//! time is most of what a check costs.
//!
//! **Invariant:** kept is only what the bytes of a token say and which key has signed them. Issuer, audience, times, account and
//! key are checked at every call, as of a token that was never seen.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use foldhash::fast::RandomState;
use jiff::Timestamp;
use jsonwebtoken::DecodingKey;

use super::Claims;

/// So many tokens are kept. A service has a handful of callers in any hour, and `api` a worker's machine for each.
pub(super) const KEPT_MAX: usize = 1024;
/// Longer ones are not kept, in bytes; Google's have about 1 kB. With the number above a bound of a few megabytes.
pub(super) const LEN_MAX: usize = 4096;

/// What a token says.
pub(super) struct Read {
    pub(super) claims: Claims,
    /// The key of its signature, and that key's name; `None`: the platform has checked it.
    pub(super) key: Option<(String, Arc<DecodingKey>)>,
}

/// Only tokens that were let in come here, so nobody else can fill it.
#[derive(Default)]
pub(super) struct Seen(RwLock<HashMap<Box<str>, Arc<Read>, RandomState>>);

impl Seen {
    pub(super) fn get(&self, token: &str) -> Option<Arc<Read>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    pub(super) fn keep(&self, token: &str, read: Arc<Read>, now: Timestamp) {
        if token.len() > LEN_MAX {
            return;
        }
        let mut kept = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT_MAX {
            kept.retain(|_, one| one.claims.exp > now.as_second());
        }
        if kept.len() >= KEPT_MAX {
            kept.clear();
        }
        kept.insert(token.into(), read);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
