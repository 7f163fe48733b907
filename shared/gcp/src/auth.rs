//! How the adapters reach Google and prove who they are. Owns addresses, credentials and access tokens; nothing above
//! this crate sees a Google type.

use std::time::Duration;

use google_cloud_auth::credentials::{self, CacheableResource, Credentials};

use crate::renewed::Renewed;

/// The one scope that every client asks for; IAM roles do the rest.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// How long one request may take before it counts as not answered.
// Real creates and deletes answer within a few seconds; the handlers' own deadline (a minute and more) must leave room
// for several calls, and a 404 counts as gone only this long after an intent, so a longer wait delays every recovery.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Why a client could not be made.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot set up the client of {what}: {why}")]
pub struct ConnectError {
    /// Which client.
    pub what: &'static str,
    /// Why.
    pub why: String,
}

impl ConnectError {
    pub(crate) fn new(what: &'static str, why: impl std::fmt::Display) -> Self {
        Self { what, why: why.to_string() }
    }
}

/// As whom a client calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Application default credentials: the identity of the Cloud Run service, or the one of `gcloud auth`.
    #[default]
    ApplicationDefault,
    /// Nobody: emulators.
    Anonymous,
}

impl Access {
    /// Credentials for Google's clients.
    pub(crate) fn credentials(self, what: &'static str) -> Result<Credentials, ConnectError> {
        match self {
            Self::Anonymous => Ok(credentials::anonymous::Builder::new().build()),
            Self::ApplicationDefault => {
                let make =
                    || credentials::Builder::default().with_scopes([SCOPE]).build().map_err(|error| error.to_string());
                Ok(Renewed::new(make).map_err(|why| ConnectError::new(what, why))?.into())
            }
        }
    }
}

/// Where a service is and how it is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Base address such as `http://127.0.0.1:8470`; `None`: Google's.
    pub endpoint: Option<String>,
    /// As whom.
    pub access: Access,
    /// After so long a request counts as not answered.
    pub timeout: Duration,
}

impl Service {
    /// Google's own service, with application default credentials.
    pub fn google() -> Self {
        Self { endpoint: None, access: Access::ApplicationDefault, timeout: REQUEST_TIMEOUT }
    }

    /// An emulator at `HOST:PORT` or at an `http://` address, without credentials.
    pub fn emulator(address: &str) -> Self {
        let endpoint = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        Self { endpoint: Some(endpoint), access: Access::Anonymous, timeout: REQUEST_TIMEOUT }
    }

    /// The emulator if an address is given (not empty), else Google.
    pub fn emulator_or_google(address: Option<&str>) -> Self {
        match address {
            Some(address) if !address.is_empty() => Self::emulator(address),
            _ => Self::google(),
        }
    }

    /// The same with another request timeout.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }
}

/// Authorization headers for calls that are made without Google's clients.
#[derive(Debug, Clone)]
pub(crate) struct Tokens(Credentials);

impl Tokens {
    pub(crate) fn new(what: &'static str, access: Access) -> Result<Self, ConnectError> {
        Ok(Self(access.credentials(what)?))
    }

    /// The headers of one request; empty for emulators. The credentials keep their token until it nears its end.
    pub(crate) async fn headers(&self) -> Result<http::HeaderMap, String> {
        match self.0.headers(http::Extensions::new()).await {
            Ok(CacheableResource::New { data, .. }) => Ok(data),
            // Only answered to a caller that named an entity tag; we name none.
            Ok(CacheableResource::NotModified) => Ok(http::HeaderMap::new()),
            Err(error) => Err(format!("no access token: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulator_address_may_be_host_and_port_or_a_url() {
        for address in ["127.0.0.1:8470", "http://127.0.0.1:8470", "http://127.0.0.1:8470/"] {
            assert_eq!(Service::emulator(address).endpoint.as_deref(), Some("http://127.0.0.1:8470"), "{address}");
        }
        assert_eq!(Service::emulator_or_google(Some("")), Service::google());
        assert_eq!(Service::emulator_or_google(None), Service::google());
        assert_eq!(Service::emulator_or_google(Some("h:1")).access, Access::Anonymous);
    }

    #[tokio::test]
    async fn anonymous_calls_carry_no_authorization() {
        let tokens = Tokens::new("a test", Access::Anonymous).unwrap();
        assert!(tokens.headers().await.unwrap().is_empty());
    }
}
