//! Signatures of webhooks, in the form of Standard Webhooks (standardwebhooks.com), for which receivers have libraries:
//! `webhook-id`, `webhook-timestamp` (seconds since 1970) and `webhook-signature` (`v1,` and the base64 of the
//! HMAC-SHA256 of `id.timestamp.body`).
//!
//! Each owner has a secret of their own, made of the installation's: nothing is stored, and nobody can sign for others.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Name of the header with the id: the same for each try of one event.
pub const ID: &str = "webhook-id";
/// Name of the header with the time of the try, in seconds since 1970.
pub const TIMESTAMP: &str = "webhook-timestamp";
/// Name of the header with the signature.
pub const SIGNATURE: &str = "webhook-signature";

/// An owner's secret.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// The secret of an owner in the installation with that secret.
    pub fn of(installation: &str, owner: &str) -> Self {
        Self(mac(installation.as_bytes(), &[b"rekindle webhooks of ", owner.as_bytes()]))
    }

    /// As receivers get it: `whsec_` and base64.
    pub fn to_text(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.0))
    }

    /// The signature of a body.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let timestamp = timestamp.to_string();
        let signed = mac(&self.0, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
        format!("v1,{}", STANDARD.encode(signed))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC takes keys of every length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_standard() {
        // The example of the Standard Webhooks reference libraries.
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed =
            mac(&key, &[b"msg_p5jXN8AQM9LWM0D4loKWxJek", b".", b"1614265330", b".", br#"{"test": 2432232314}"#]);
        assert_eq!(STANDARD.encode(signed), "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_owner_has_a_secret_that_shows_nothing_of_the_installations() {
        let (a, b) = (Secret::of("s", "ann"), Secret::of("s", "bob"));
        assert_ne!(a.to_text(), b.to_text());
        assert_ne!(a.sign("i", 1, b"x"), b.sign("i", 1, b"x"));
        assert_ne!(a.sign("i", 1, b"x"), a.sign("i", 2, b"x"));
        assert!(a.to_text().starts_with("whsec_") && format!("{a:?}") == "Secret(…)");
    }
}
