//! Identity tokens as the two modes get them, and the keys for one of them.

use axum::Router;
use axum::routing::get;
use rekindle_fakes::tokens::{KEY, unsigned};
use serde_json::{Value, json};

/// Who pushes.
pub(crate) const PUSH: &str = "rekindle-push@p.iam.gserviceaccount.com";
/// The service.
pub(crate) const AUDIENCE: &str = "https://rekindle-events-1.us-central1.run.app";

const KID: &str = "k1";

/// Header and claims of a token of Google's.
fn token(now: i64) -> (Value, Value) {
    let header = json!({"alg": "RS256", "kid": KID, "typ": "JWT"});
    let claims = json!({
        "aud": AUDIENCE, "azp": "112233445566778899000", "email": PUSH, "email_verified": true,
        "exp": now + 3600, "iat": now, "iss": "https://accounts.google.com", "sub": "112233445566778899000",
    });
    (header, claims)
}

/// The token as Cloud Run hands it on.
pub(crate) fn stripped(now: i64) -> String {
    let (header, claims) = token(now);
    format!("{}.SIGNATURE_REMOVED_BY_GOOGLE", unsigned(&header, &claims))
}

/// The token as the issuer signs it.
pub(crate) fn signed(now: i64) -> String {
    let (header, claims) = token(now);
    KEY.sign(&header, &claims)
}

/// The route of the key set.
pub(crate) fn router() -> Router {
    Router::new().route("/keys", get(async || axum::Json(KEY.key_set(&[KID]))))
}
