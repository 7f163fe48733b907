//! The issuer's public keys: fetched when first needed, kept as long as their server says, refreshed by one caller
//! for all.
//!
//! **Invariant:** tokens whose key is known never wait for, and are never refused because of, a fetch that some other
//! token caused; and no sender of bad tokens can make us fetch more often than [`REFRESH_MIN`].

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::DecodingKey;
use serde::Deserialize;
use tokio::sync::Mutex;

use rekindle_ports::world::Clock;

use crate::http::Http;

/// Keys are used without a look for at least and at most so long, whatever their server says.
const FRESH_MIN: SignedDuration = SignedDuration::from_mins(5);
const FRESH_MAX: SignedDuration = SignedDuration::from_hours(24);
/// When their server says nothing.
const FRESH_DEFAULT: SignedDuration = SignedDuration::from_hours(1);

/// So long after they stopped being fresh they still count, when new ones cannot be had. Google announces keys days
/// ahead.
const STALE_MAX: SignedDuration = SignedDuration::from_hours(24);

/// An unknown key leads to a fetch at most so often. A new key is published hours before it signs.
const REFRESH_MIN: SignedDuration = SignedDuration::from_secs(60);

/// After a failed fetch the next is tried no sooner. Callers without any key get an answer at once meanwhile.
const RETRY_MIN: SignedDuration = SignedDuration::from_secs(5);

/// So long a key that a fresh set did not hold leads to no further fetch, and so many of them are remembered.
const ABSENT_FOR: SignedDuration = SignedDuration::from_mins(5);
const ABSENT_KEPT: usize = 1000;

/// Largest set of keys that is read, in bytes; Google's has 2 kB.
const BODY_MAX: usize = 256 * 1024;

/// Why there is no key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyError {
    /// The issuer has none of that name.
    Unknown,
    /// The issuer's keys cannot be had.
    Unavailable(String),
}

/// The keys as they were fetched once.
struct Snapshot {
    by_kid: HashMap<String, Arc<DecodingKey>>,
    fetched_at: Timestamp,
    fresh_until: Timestamp,
}

/// What the one who fetches needs to know. Behind the lock that makes fetches single.
#[derive(Default)]
struct Fetching {
    failed: Option<(Timestamp, String)>,
    absent: HashMap<String, Timestamp>,
}

pub(super) struct Keys {
    http: Http,
    url: String,
    clock: Arc<dyn Clock>,
    snapshot: RwLock<Option<Arc<Snapshot>>>,
    fetching: Mutex<Fetching>,
}

impl Keys {
    pub(super) fn new(http: Http, url: String, clock: Arc<dyn Clock>) -> Self {
        Self { http, url, clock, snapshot: RwLock::default(), fetching: Mutex::default() }
    }

    /// The key of that name.
    pub(super) async fn find(&self, kid: &str) -> Result<Arc<DecodingKey>, KeyError> {
        let now = self.clock.now();
        let Some(known) = self.current() else {
            return self.first(kid).await;
        };
        if now >= known.fresh_until + STALE_MAX {
            return self.first(kid).await;
        }
        match known.by_kid.get(kid) {
            Some(key) if now < known.fresh_until => Ok(Arc::clone(key)),
            // One caller looks for newer keys; those who come meanwhile go on with the old ones.
            Some(key) => match self.fetching.try_lock() {
                Ok(mut fetching) => {
                    if !self.is_fresh() {
                        self.refresh(&mut fetching).await;
                    }
                    // A set without this key withdraws it; a failed fetch does not.
                    self.known(kid).map_err(|_| KeyError::Unknown)
                }
                Err(_) => Ok(Arc::clone(key)),
            },
            None if now < known.fetched_at + REFRESH_MIN => Err(KeyError::Unknown),
            None => self.unknown(kid).await,
        }
    }

    fn current(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The key as it is known now, if the set that holds it still counts.
    fn known(&self, kid: &str) -> Result<Arc<DecodingKey>, Option<KeyError>> {
        let known = self.current().filter(|known| self.clock.now() < known.fresh_until + STALE_MAX).ok_or(None)?;
        known.by_kid.get(kid).cloned().ok_or(Some(KeyError::Unknown))
    }

    /// There is no key at all, or none that still counts: everyone waits for the one fetch.
    async fn first(&self, kid: &str) -> Result<Arc<DecodingKey>, KeyError> {
        let mut fetching = self.fetching.lock().await;
        if !self.is_fresh() {
            self.refresh(&mut fetching).await;
        }
        self.known(kid).map_err(|error| {
            let why = fetching.failed.as_ref().map_or_else(|| "no keys".to_owned(), |(_, why)| why.clone());
            error.unwrap_or(KeyError::Unavailable(why))
        })
    }

    /// The issuer may have a new key: those who carry its name wait for the one fetch, nobody else does.
    async fn unknown(&self, kid: &str) -> Result<Arc<DecodingKey>, KeyError> {
        let mut fetching = self.fetching.lock().await;
        let now = self.clock.now();
        let just_fetched = self.current().is_some_and(|known| now < known.fetched_at + REFRESH_MIN);
        let absent = fetching.absent.get(kid).is_some_and(|since| now < *since + ABSENT_FOR);
        if !just_fetched && !absent {
            self.refresh(&mut fetching).await;
        }
        let found = self.known(kid).map_err(|_| KeyError::Unknown);
        // Only a set that was fetched for it proves that it is absent.
        if found.is_err() && self.current().is_some_and(|known| known.fetched_at == now) {
            fetching.absent.retain(|_, since| now < *since + ABSENT_FOR);
            if fetching.absent.len() < ABSENT_KEPT {
                fetching.absent.insert(kid.to_owned(), now);
            }
        }
        found
    }

    fn is_fresh(&self) -> bool {
        self.current().is_some_and(|known| self.clock.now() < known.fresh_until)
    }

    /// Fetches, unless a fetch failed a moment ago. A failure leaves what is known as it is.
    async fn refresh(&self, fetching: &mut Fetching) {
        let now = self.clock.now();
        if fetching.failed.as_ref().is_some_and(|(at, _)| now < *at + RETRY_MIN) {
            return;
        }
        match self.fetch(now).await {
            Ok(snapshot) => {
                *self.snapshot.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(snapshot));
                fetching.failed = None;
            }
            Err(why) => {
                tracing::warn!(url = self.url, why, "the keys of the token issuer cannot be fetched");
                // Those who waited meanwhile are not to wait again: a fetch may take as long as the next is kept off.
                fetching.failed = Some((self.clock.now(), why));
            }
        }
    }

    async fn fetch(&self, now: Timestamp) -> Result<Snapshot, String> {
        let answer = self.http.client()?.get(&self.url).send().await.map_err(|error| error.to_string())?;
        let mut answer = answer.error_for_status().map_err(|error| error.to_string())?;
        let fresh = freshness(answer.headers());
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| error.to_string())? {
            if body.len() + chunk.len() > BODY_MAX {
                return Err("the set of keys is too large".into());
            }
            body.extend_from_slice(&chunk);
        }
        let by_kid = parse(&body)?;
        Ok(Snapshot { by_kid, fetched_at: now, fresh_until: now + fresh })
    }
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<RawKey>,
}

/// The fields of an RSA key; keys of other kinds lack some, and are passed over.
#[derive(Deserialize)]
struct RawKey {
    kty: Option<String>,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    n: Option<String>,
    e: Option<String>,
}

fn parse(body: &[u8]) -> Result<HashMap<String, Arc<DecodingKey>>, String> {
    let set: KeySet = serde_json::from_slice(body).map_err(|error| format!("not a set of keys: {error}"))?;
    let mut by_kid = HashMap::new();
    for key in set.keys {
        let is = |field: &Option<String>, wanted: &str| field.as_deref().is_none_or(|value| value == wanted);
        if key.kty.as_deref() != Some("RSA") || !is(&key.alg, "RS256") || !is(&key.usage, "sig") {
            continue;
        }
        if let (Some(kid), Some(n), Some(e)) = (key.kid, key.n, key.e)
            && let Ok(key) = DecodingKey::from_rsa_components(&n, &e)
        {
            by_kid.insert(kid, Arc::new(key));
        }
    }
    // A page without a usable key is more likely a fault of its server than the end of all keys.
    if by_kid.is_empty() { Err("the set holds no usable key".into()) } else { Ok(by_kid) }
}

/// `Cache-Control: max-age` less `Age`, within our bounds.
fn freshness(headers: &http::HeaderMap) -> SignedDuration {
    let text = |name: http::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let directives = text(http::header::CACHE_CONTROL).unwrap_or_default().to_ascii_lowercase();
    let max_age = directives.split(',').find_map(|part| part.trim().strip_prefix("max-age=")?.parse::<i64>().ok());
    let age = text(http::header::AGE).and_then(|age| age.trim().parse::<i64>().ok()).unwrap_or(0).max(0);
    let told = max_age.map(|secs| SignedDuration::from_secs(secs.saturating_sub(age)));
    told.unwrap_or(FRESH_DEFAULT).clamp(FRESH_MIN, FRESH_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freshness_follows_the_server_within_bounds() {
        let rows: [(&[(&str, &str)], SignedDuration); 6] = [
            (&[], FRESH_DEFAULT),
            (&[("cache-control", "public, max-age=20000, must-revalidate")], SignedDuration::from_secs(20_000)),
            (&[("cache-control", "Max-Age=20000"), ("age", "8000")], SignedDuration::from_secs(12_000)),
            (&[("cache-control", "no-cache, max-age=0")], FRESH_MIN),
            (&[("cache-control", "max-age=99999999999")], FRESH_MAX),
            (&[("cache-control", "max-age=never")], FRESH_DEFAULT),
        ];
        for (pairs, expected) in rows {
            let mut headers = http::HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(http::HeaderName::from_static(name), http::HeaderValue::from_static(value));
            }
            assert_eq!(freshness(&headers), expected, "{pairs:?}");
        }
    }

    #[test]
    fn only_signing_rsa_keys_with_a_name_count() {
        let good = r#"{"kty":"RSA","kid":"a","use":"sig","alg":"RS256","n":"sXch","e":"AQAB"}"#;
        let others = [
            r#"{"kty":"EC","kid":"b","crv":"P-256","x":"x","y":"y"}"#,
            r#"{"kty":"RSA","kid":"c","use":"enc","n":"sXch","e":"AQAB"}"#,
            r#"{"kty":"RSA","kid":"d","alg":"RS512","n":"sXch","e":"AQAB"}"#,
            r#"{"kty":"RSA","n":"sXch","e":"AQAB"}"#,
            r#"{"kty":"oct","kid":"e","k":"c2VjcmV0"}"#,
            r#"{"kty":"RSA","kid":"f","n":"not base64!","e":"AQAB"}"#,
        ];
        let set = format!(r#"{{"keys":[{good},{}]}}"#, others.join(","));
        let keys = parse(set.as_bytes()).unwrap();
        assert_eq!(keys.keys().collect::<Vec<_>>(), ["a"]);
        assert!(parse(format!(r#"{{"keys":[{}]}}"#, others.join(",")).as_bytes()).is_err());
        assert!(parse(b"<html>").is_err());
    }
}
