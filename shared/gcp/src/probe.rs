//! Asks the service `api` as an agent would: through Cloud Run's own check of callers, so that an answer proves the whole
//! path that heartbeats take.

use std::time::Duration;

use async_trait::async_trait;
use google_cloud_auth::credentials::idtoken::{self, IDTokenCredentials};

use rekindle_ports::world::{Probe, WorldError};

use crate::auth::{Access, ConnectError};
use crate::http::Http;
use crate::renewed::Renewed;

/// An answer that takes longer counts as none: agents give up earlier.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Asks an address of `api`.
pub struct ApiProbe {
    http: Http,
    url: String,
    identity: Option<IDTokenCredentials>,
}

impl ApiProbe {
    /// A probe of `url`, whose service root is `audience`; anonymous for a service without a check.
    ///
    /// Errors: there are no application default credentials that identity tokens can be made from.
    pub fn new(url: String, audience: &str, access: Access) -> Result<Self, ConnectError> {
        let identity = match access {
            Access::Anonymous => None,
            Access::ApplicationDefault => {
                let audience = audience.to_owned();
                let make = move || idtoken::Builder::new(audience.clone()).build().map_err(|error| error.to_string());
                let identity = Renewed::new(make).map_err(|why| ConnectError::new("the probe of api", why))?;
                Some(identity.into())
            }
        };
        Ok(Self::with_identity(url, identity))
    }

    const fn with_identity(url: String, identity: Option<IDTokenCredentials>) -> Self {
        Self { http: Http::new(TIMEOUT), url, identity }
    }

    async fn ask(&self) -> Result<(), String> {
        let mut request = self.http.client()?.get(&self.url);
        if let Some(identity) = &self.identity {
            let token = identity.id_token().await.map_err(|error| format!("no identity token: {error}"))?;
            // The header that agents use: `Authorization` is theirs, for the attempt's token.
            request = request.header("X-Serverless-Authorization", format!("Bearer {token}"));
        }
        let answer = request.send().await.map_err(|error| error.to_string())?;
        if answer.status().is_success() { Ok(()) } else { Err(format!("answered {}", answer.status())) }
    }
}

#[async_trait]
impl Probe for ApiProbe {
    async fn ping(&self) -> Result<(), WorldError> {
        self.ask().await.map_err(|why| WorldError { what: "ask api", why })
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::{HeaderMap, StatusCode};
    use google_cloud_auth::credentials::idtoken::IDTokenCredentialsProvider;

    use super::*;

    #[derive(Debug)]
    struct Given;

    impl IDTokenCredentialsProvider for Given {
        async fn id_token(&self) -> Result<String, google_cloud_auth::errors::CredentialsError> {
            Ok("given".into())
        }
    }

    /// A service that lets in who carries the token, and has moved elsewhere for `/moved`.
    async fn service() -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let check = |headers: HeaderMap| async move {
            let told = headers.get("x-serverless-authorization").and_then(|v| v.to_str().ok());
            if told == Some("Bearer given") { StatusCode::NO_CONTENT } else { StatusCode::FORBIDDEN }
        };
        let moved = || async { (StatusCode::FOUND, [("location", "/ping")]) };
        let router = Router::new().route("/ping", axum::routing::get(check)).route("/moved", axum::routing::get(moved));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        url
    }

    #[tokio::test]
    async fn it_proves_who_it_is_and_only_a_success_counts() {
        let url = service().await;
        let known = |path: &str| ApiProbe::with_identity(format!("{url}{path}"), Some(Given.into()));
        known("/ping").ping().await.unwrap();
        let nobody = ApiProbe::new(format!("{url}/ping"), &url, Access::Anonymous).unwrap();
        assert!(nobody.ping().await.unwrap_err().to_string().contains("403"));
        assert!(known("/moved").ping().await.unwrap_err().to_string().contains("302"));
        assert!(known("/nothing").ping().await.unwrap_err().to_string().contains("404"));
    }

    #[tokio::test]
    async fn a_service_that_is_away_is_told() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/ping", listener.local_addr().unwrap());
        drop(listener);
        let probe = ApiProbe::new(url.clone(), &url, Access::Anonymous).unwrap();
        assert!(probe.ping().await.is_err());
    }
}
