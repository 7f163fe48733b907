//! Who calls: checks the OIDC identity tokens that Pub/Sub, Eventarc, Cloud Scheduler, Cloud Tasks and people send.
//! Owns the rules for the claims; `keys` owns the issuer's keys, `seen` what was read of tokens that come again.
//!
//! An own verifier, since the one of Google's client library refuses good tokens while it fetches keys, and accepts
//! tokens without audience or issuer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, Validation};
use serde::Deserialize;

use rekindle_ports::world::Clock;

use crate::http::Http;
use keys::{KeyError, Keys};
use seen::{Read, Seen};

pub mod audience;
mod keys;
mod seen;
#[cfg(test)]
mod tests;

/// Google's keys, as a JSON Web Key Set.
pub const GOOGLE_JWKS: &str = "https://www.googleapis.com/oauth2/v3/certs";

/// Both forms that Google's tokens carry.
pub const GOOGLE_ISSUERS: [&str; 2] = ["https://accounts.google.com", "accounts.google.com"];

/// What Cloud Run puts in place of the signature once it has checked a token itself.
const SIGNATURE_REMOVED: &str = "SIGNATURE_REMOVED_BY_GOOGLE";

/// A token without an email is the usual slip of a service account, so it says how to get one with it.
const NO_EMAIL: &str = "it carries no e-mail address; ask for one with `gcloud auth print-identity-token --include-email \
                        --audiences=URL` (a service account), or with `format=full` (a metadata server)";

/// How far the clocks of issuer and us may be apart.
const LEEWAY_SECS: i64 = 60;

/// Longest token that is looked at, in bytes; Google's have about 1 kB.
const TOKEN_MAX: usize = 16 * 1024;

/// Who checks the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// We do. For services that anyone may reach.
    Verify,
    /// Cloud Run did, before the request came here, and took it off: claims are checked here all the same. Only on
    /// Cloud Run, in a service that demands the invoker's right. A token that still has its signature is verified in
    /// full.
    Platform,
    /// Nobody, and no token is needed: on a person's own machine. Refused on Cloud Run.
    None,
}

impl Mode {
    /// The mode of that name: `verify`, `platform` or `none`.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "verify" => Some(Self::Verify),
            "platform" => Some(Self::Platform),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}

/// Settings of a [`Verifier`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OidcSettings {
    /// Who checks the signature.
    pub mode: Mode,
    /// Address of the keys.
    pub jwks_url: String,
    /// Issuers whose tokens are taken.
    pub issuers: Vec<String>,
    /// True on Cloud Run (`K_SERVICE` is set).
    pub on_cloud_run: bool,
    /// After so long a fetch of the keys has failed.
    pub fetch_timeout: Duration,
}

impl OidcSettings {
    /// Google's issuer and keys.
    pub fn google(mode: Mode, on_cloud_run: bool) -> Self {
        Self {
            mode,
            jwks_url: GOOGLE_JWKS.to_owned(),
            issuers: GOOGLE_ISSUERS.map(str::to_owned).to_vec(),
            on_cloud_run,
            fetch_timeout: Duration::from_secs(5),
        }
    }
}

/// Settings that would let anyone in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadOidcSettings {
    /// `none` on Cloud Run.
    #[error("callers are not checked at all (mode none), and this is Cloud Run")]
    NoneOnCloudRun,
    /// `platform` elsewhere.
    #[error("the platform is to check callers (mode platform), and this is not Cloud Run")]
    PlatformElsewhere,
    /// An audience with an open part, and nobody before us who tells this service from others of its name.
    #[error(
        "the audience {0} holds *, which only the mode platform takes; name the whole address in REKINDLE_AUDIENCES"
    )]
    OpenAudience(String),
}

/// What a route demands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// Audiences of which the token must carry one: exactly, or as [`audience::takes`] says.
    pub audiences: Vec<String>,
    /// Who may call.
    pub emails: Emails,
}

/// Who may call a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Emails {
    /// Anyone whose token is good; somebody else decides what they may do.
    Any,
    /// These, whole addresses.
    Only(Vec<String>),
}

/// A caller whose token is good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The verified e-mail address, in lower case.
    pub email: String,
    /// The issuer's own name of the account; never changes.
    pub sub: String,
    /// The VM that got the token from its metadata server, if it asked with `format=full`.
    pub machine: Option<ComputeEngine>,
}

/// The claim `google.compute_engine`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ComputeEngine {
    /// Name of the VM.
    #[serde(default)]
    pub instance_name: String,
    /// Its zone.
    #[serde(default)]
    pub zone: String,
    /// When it was made, in seconds since 1970.
    #[serde(default)]
    pub instance_creation_timestamp: Option<i64>,
}

impl Identity {
    /// The caller in mode `none`.
    pub fn local() -> Self {
        Self { email: "local@localhost".into(), sub: "local".into(), machine: None }
    }
}

/// Why a caller is turned away.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// 401: no token.
    #[error("no identity token")]
    Missing,
    /// 401: the token is not good, for this reason.
    #[error("the identity token is not good: {0}")]
    Bad(String),
    /// 403: a good token of somebody who may not call here.
    #[error("{0} may not call this")]
    WrongPrincipal(String),
    /// 503: the issuer's keys cannot be had now; says nothing of the token.
    #[error("identity tokens cannot be checked now: {0}")]
    Unavailable(String),
}

impl AuthError {
    /// The HTTP status of the answer.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Missing | Self::Bad(_) => 401,
            Self::WrongPrincipal(_) => 403,
            Self::Unavailable(_) => 503,
        }
    }
}

const CHECKED_BY_PLATFORM: http::HeaderName = http::HeaderName::from_static("x-serverless-authorization");

/// The token of a request: `X-Serverless-Authorization` if it is there, else `Authorization`.
// In this order, since Cloud Run checks the former only when both are there, and passes the latter on as it came.
pub fn bearer(headers: &http::HeaderMap) -> Option<&str> {
    let value = headers.get(CHECKED_BY_PLATFORM).or_else(|| headers.get(http::header::AUTHORIZATION))?;
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    /// Google's tokens have one; a list is refused.
    aud: String,
    sub: String,
    exp: i64,
    iat: i64,
    nbf: Option<i64>,
    email: Option<String>,
    #[serde(default)]
    email_verified: bool,
    google: Option<GoogleClaims>,
}

#[derive(Debug, Deserialize)]
struct GoogleClaims {
    compute_engine: Option<ComputeEngine>,
}

/// Checks identity tokens. One for a process; calls may run at the same time.
pub struct Verifier {
    mode: Mode,
    issuers: Vec<String>,
    keys: Keys,
    seen: Seen,
    /// Whether a token was told of: without signature, with it.
    told: [AtomicBool; 2],
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verifier").field("mode", &self.mode).field("issuers", &self.issuers).finish_non_exhaustive()
    }
}

impl Verifier {
    /// Refuses settings that would let anyone in. Keys are fetched at the first token.
    pub fn new(settings: OidcSettings, clock: Arc<dyn Clock>) -> Result<Self, BadOidcSettings> {
        match (settings.mode, settings.on_cloud_run) {
            (Mode::None, true) => return Err(BadOidcSettings::NoneOnCloudRun),
            (Mode::Platform, false) => return Err(BadOidcSettings::PlatformElsewhere),
            _ => {}
        }
        let keys = Keys::new(Http::new(settings.fetch_timeout), settings.jwks_url, Arc::clone(&clock));
        Ok(Self {
            mode: settings.mode,
            issuers: settings.issuers,
            keys,
            seen: Seen::default(),
            told: Default::default(),
            clock,
        })
    }

    /// Checks the token of a request (see [`bearer`]) against what the route expects.
    ///
    /// May fetch the issuer's keys: at most once for all callers that wait, and seldom.
    pub async fn verify(&self, token: Option<&str>, expect: &Expect) -> Result<Identity, AuthError> {
        if self.mode == Mode::None {
            return Ok(Identity::local());
        }
        let token = token.filter(|token| !token.is_empty()).ok_or(AuthError::Missing)?;
        if token.len() > TOKEN_MAX {
            return Err(bad("it is too long"));
        }
        if let Some(read) = self.seen.get(token)
            && self.is_still_signed(&read).await?
        {
            return check(&read.claims, &self.issuers, expect, self.clock.now());
        }
        let read = match token.rsplit_once('.') {
            Some((unsigned, SIGNATURE_REMOVED)) if self.mode == Mode::Platform => {
                Read { claims: unsigned_claims(unsigned)?, key: None }
            }
            Some((_, SIGNATURE_REMOVED)) => {
                return Err(bad("Cloud Run took its signature off; this service must run with the mode platform"));
            }
            _ => self.signed_claims(token).await?,
        };
        self.tell_kind(&read);
        let now = self.clock.now();
        let identity = check(&read.claims, &self.issuers, expect, now)?;
        self.seen.keep(token, Arc::new(read), now);
        Ok(identity)
    }

    /// Says once of each kind how tokens come from the platform: its documents and reports differ, and `infra/certify.sh` asks.
    fn tell_kind(&self, read: &Read) {
        let is_signed = read.key.is_some();
        if self.mode == Mode::Platform && !self.told[usize::from(is_signed)].swap(true, Ordering::Relaxed) {
            let how = if is_signed { "with their signatures" } else { "with their signatures taken off" };
            tracing::info!("identity tokens come {how}");
        }
    }

    /// Whether the key with which a token was verified is the one that counts now. Keys that were fetched again are others, also
    /// under the same name: then the signature is looked at again.
    async fn is_still_signed(&self, read: &Read) -> Result<bool, AuthError> {
        let Some((kid, key)) = &read.key else { return Ok(true) };
        Ok(Arc::ptr_eq(key, &self.key(kid).await?))
    }

    async fn key(&self, kid: &str) -> Result<Arc<jsonwebtoken::DecodingKey>, AuthError> {
        self.keys.find(kid).await.map_err(|error| match error {
            KeyError::Unknown => bad("it is signed with an unknown key"),
            KeyError::Unavailable(why) => AuthError::Unavailable(why),
        })
    }

    async fn signed_claims(&self, token: &str) -> Result<Read, AuthError> {
        let header = jsonwebtoken::decode_header(token).map_err(|_| bad("it cannot be read"))?;
        if header.alg != Algorithm::RS256 {
            return Err(bad("its algorithm is not RS256"));
        }
        if header.crit.is_some() {
            return Err(bad("it demands extensions"));
        }
        let kid = header.kid.ok_or_else(|| bad("it names no key"))?;
        let key = self.key(&kid).await?;
        // The claims are checked by `check`, with our clock, and in the same way for both modes.
        let mut validation = Validation::new(Algorithm::RS256);
        validation.validate_exp = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        let decoded = jsonwebtoken::decode::<Claims>(token, &key, &validation).map_err(|error| {
            let malformed = matches!(error.kind(), jsonwebtoken::errors::ErrorKind::Json(_));
            bad(if malformed { "a claim is missing or malformed" } else { "its signature is wrong" })
        })?;
        Ok(Read { claims: decoded.claims, key: Some((kid, key)) })
    }
}

/// Claims of `header.payload`, whose signature the platform has checked.
fn unsigned_claims(unsigned: &str) -> Result<Claims, AuthError> {
    let payload = unsigned.split_once('.').filter(|(_, payload)| !payload.contains('.')).map(|(_, payload)| payload);
    let json =
        payload.and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok()).ok_or_else(|| bad("it cannot be read"))?;
    serde_json::from_slice(&json).map_err(|_| bad("a claim is missing or malformed"))
}

fn check(claims: &Claims, issuers: &[String], expect: &Expect, now: Timestamp) -> Result<Identity, AuthError> {
    let now = now.as_second();
    if !issuers.contains(&claims.iss) {
        return Err(bad("it is of another issuer"));
    }
    if !expect.audiences.iter().any(|taken| audience::takes(taken, &claims.aud)) {
        return Err(bad("its audience is not this service"));
    }
    if claims.exp <= now.saturating_sub(LEEWAY_SECS) {
        return Err(bad("it has expired"));
    }
    if claims.iat.max(claims.nbf.unwrap_or(claims.iat)) > now.saturating_add(LEEWAY_SECS) {
        return Err(bad("it is not valid yet"));
    }
    let email = claims.email.as_deref().filter(|email| !email.is_empty()).ok_or_else(|| bad(NO_EMAIL))?;
    if !claims.email_verified {
        return Err(bad("its e-mail address is not verified"));
    }
    let email = email.to_ascii_lowercase();
    if let Emails::Only(allowed) = &expect.emails
        && !allowed.iter().any(|one| one.eq_ignore_ascii_case(&email))
    {
        return Err(AuthError::WrongPrincipal(email));
    }
    // Half a machine is none; what a token says beside what was asked for never makes it a bad one.
    let machine = claims.google.as_ref().and_then(|google| google.compute_engine.as_ref());
    let machine = machine.filter(|machine| !machine.instance_name.is_empty() && !machine.zone.is_empty()).cloned();
    Ok(Identity { email, sub: claims.sub.clone(), machine })
}

fn bad(why: &str) -> AuthError {
    AuthError::Bad(why.to_owned())
}
