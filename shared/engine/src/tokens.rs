//! Nonces and tokens of agents: keyed hashes, so that every instance can make and check them without a read.
//!
//! The nonce of a generation stands in its node's metadata and admits a first hello. The token that hello answers is bound to one VM by name;
//! every later call carries it. Both are HMAC-SHA256 under the installation's secret.
//!
//! Page tokens are sealed under the same secret: where a page ends may be the job of somebody whom the caller is not to know of.

use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use rekindle_core::ids::{JobId, WorkerKey};

fn keyed(secret: &str, text: &str) -> String {
    hex::encode(digest(secret, &[text.as_bytes()]))
}

fn digest(secret: &str, parts: &[&[u8]]) -> [u8; 32] {
    // HMAC takes keys of any length, so this cannot fail; an empty key would still only weaken, not panic.
    let Ok(mut mac) = <Hmac<Sha256> as Mac>::new_from_slice(secret.as_bytes()) else { return [0; 32] };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// Length of the nonce before what is sealed.
const NONCE: usize = 24;

/// Hides what is handed to a caller to be brought back, and only with the same `bound`: whose it is and for what. The same text is
/// sealed the same way, so that an answer with it is the same, too.
pub fn seal(secret: &str, bound: &str, text: &[u8]) -> Option<Vec<u8>> {
    let length = (bound.len() as u64).to_be_bytes();
    let nonce = &digest(secret, &[b"seal/1/nonce/", &length, bound.as_bytes(), text])[..NONCE];
    let payload = Payload { msg: text, aad: bound.as_bytes() };
    let sealed = cipher(secret).encrypt(XNonce::from_slice(nonce), payload).ok()?;
    Some([nonce, &sealed].concat())
}

/// What was sealed here with the same `bound`; `None`: it was not.
pub fn unseal(secret: &str, bound: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    let (nonce, sealed) = sealed.split_at_checked(NONCE)?;
    cipher(secret).decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad: bound.as_bytes() }).ok()
}

fn cipher(secret: &str) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(&digest(secret, &[b"seal/1/key"]).into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_is_read_by_its_secret_alone_and_hides_what_it_holds() {
        let sealed = seal("secret", "ann", b"jobs/merger-2027").unwrap();
        assert_eq!(unseal("secret", "ann", &sealed).unwrap(), b"jobs/merger-2027");
        assert_eq!(seal("secret", "ann", b"jobs/merger-2027").unwrap(), sealed, "an answer with it stays the same");
        assert!(!sealed.windows(6).any(|part| part == b"merger"));
        assert_eq!(unseal("other", "ann", &sealed), None);
        assert_eq!(unseal("secret", "bob", &sealed), None);
        for at in 0..sealed.len() {
            let mut bent = sealed.clone();
            bent[at] ^= 1;
            assert_eq!(unseal("secret", "ann", &bent), None, "byte {at}");
            assert_eq!(unseal("secret", "ann", &sealed[..at]), None, "cut at {at}");
        }
    }
}
