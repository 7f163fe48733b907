//! Nonces and tokens of agents: keyed hashes, so that every instance can make and check them without a read.
//!
//! The nonce of a generation stands in its node's metadata and admits a first hello. The token that hello answers is bound to one VM by name;
//! every later call carries it. Both are HMAC-SHA256 under the installation's secret.

use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use rekindle_core::ids::{JobId, WorkerKey};

fn keyed(secret: &str, text: &str) -> String {
    // HMAC takes keys of any length, so this cannot fail; an empty key would still only weaken, not panic.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return String::new() };
    mac.update(text.as_bytes());
    hex::encode(mac.finalize().into_bytes())
}

/// The nonce of a generation.
pub fn nonce(secret: &str, job: &JobId, generation: u32) -> String {
    keyed(secret, &format!("nonce/1/{job}/{generation}"))
}

/// The token of one worker's VM.
pub fn token(secret: &str, job: &JobId, generation: u32, key: WorkerKey, instance: &str) -> String {
    keyed(secret, &format!("token/1/{job}/{generation}/{}/{}/{instance}", key.slice, key.worker))
}

/// Compares in constant time.
pub fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && !a.is_empty() && bool::from(a.as_bytes().ct_eq(b.as_bytes()))
}
