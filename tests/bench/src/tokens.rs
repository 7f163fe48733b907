//! Identity tokens as the two modes get them, and the keys for one of them.

use anyhow::{Context, Result};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// Who pushes.
pub(crate) const PUSH: &str = "rekindle-push@p.iam.gserviceaccount.com";
/// The service.
pub(crate) const AUDIENCE: &str = "https://rekindle-events-1.us-central1.run.app";

/// A key of the bench's own.
pub(crate) struct Key(KeyPair);

fn part(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn unsigned(now: i64) -> String {
    let header = json!({"alg": "RS256", "kid": "k1", "typ": "JWT"});
    let claims = json!({
        "aud": AUDIENCE, "azp": "112233445566778899000", "email": PUSH, "email_verified": true,
        "exp": now + 3600, "iat": now, "iss": "https://accounts.google.com", "sub": "112233445566778899000",
    });
    format!("{}.{}", part(header.to_string()), part(claims.to_string()))
}

/// The token as Cloud Run hands it on.
pub(crate) fn stripped(now: i64) -> String {
    format!("{}.SIGNATURE_REMOVED_BY_GOOGLE", unsigned(now))
}

impl Key {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(KeyPair::generate(KeySize::Rsa2048).context("a key")?))
    }

    /// The token as the issuer signs it.
    pub(crate) fn signed(&self, now: i64) -> Result<String> {
        let message = unsigned(now);
        let mut signature = vec![0; self.0.public_modulus_len()];
        let random = aws_lc_rs::rand::SystemRandom::new();
        self.0.sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature).context("a signature")?;
        Ok(format!("{message}.{}", part(signature)))
    }

    /// The route of its key set.
    pub(crate) fn router(&self) -> Router {
        let public = self.0.public_key();
        let n = part(public.modulus().big_endian_without_leading_zero());
        let e = part(public.exponent().big_endian_without_leading_zero());
        let set: Value = json!({"keys": [{"kty": "RSA", "kid": "k1", "use": "sig", "alg": "RS256", "n": n, "e": e}]});
        Router::new().route("/keys", get(async move || axum::Json(set)))
    }
}
