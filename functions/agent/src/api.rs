//! The calls to `api`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use reqwest::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use rekindle_wire::agent::{Hello, Order, OutputAddress, OutputPlace, Report, Welcome};

use crate::files;
use crate::metadata::{Metadata, Node};

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const CALL_LIMIT: Duration = Duration::from_secs(15);
/// An upload that brings fewer bytes a second than this hangs: the largest file takes two minutes.
const UPLOAD_MIN: u64 = 4 << 20;
/// Identity tokens live an hour; one is used for less, so that none ends under way.
const IDENTITY_AGE_MAX: Duration = Duration::from_mins(45);

/// Why a call brought nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The token is not known (any more).
    #[error("api does not know our token: {0}")]
    Unauthorized(String),
    /// It will say the same again, until something changes on its side.
    #[error("api refuses with {1}")]
    Refused(StatusCode, String),
    /// It is there already, as sent before.
    #[error("api has it already")]
    Conflict,
    /// Try again.
    #[error("cannot reach api")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// An answer, and how far the clock of `api` is ahead of ours.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    /// What it says.
    pub(crate) body: T,
    /// Its clock minus ours; zero if it does not tell the time.
    pub(crate) ahead: SignedDuration,
}

impl CallError {
    /// What was asked for has no place there, and will have none: the fault is in itself.
    // Not so with every refusal: 403 comes while there is no identity token, 404 while a new revision is rolled out.
    pub(crate) fn is_final(&self) -> bool {
        use StatusCode as S;

        matches!(self, Self::Refused(S::BAD_REQUEST | S::PAYLOAD_TOO_LARGE | S::URI_TOO_LONG, _))
    }
}

/// Which chunk of what an order brought.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExecChunk<'a> {
    /// Whose.
    pub(crate) node: &'a Node,
    /// The order.
    pub(crate) id: u64,
    /// `stdout`, `stderr`, or `exit`.
    pub(crate) stream: &'a str,
    /// From 0.
    pub(crate) number: u64,
}

/// A client of `api`.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    http: reqwest::Client,
    base: String,
    metadata: Metadata,
    identity: Arc<Mutex<Option<(Instant, String)>>>,
    is_away: Arc<AtomicBool>,
    /// An upload of nothing takes no longer.
    upload_limit: Duration,
}

impl Api {
    /// A client of the `api` that the node's metadata names.
    pub(crate) fn new(node: &Node, metadata: Metadata) -> anyhow::Result<Self> {
        let url = reqwest::Url::parse(&node.api)?;
        let mut http = reqwest::Client::builder()
            .connect_timeout(CONNECT_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("rekindle-agent/", env!("CARGO_PKG_VERSION")));
        if url.scheme() == "http" {
            // Plain HTTP is the local mode: a proxy of the person's shell would not find its way back.
            http = http.no_proxy();
        }
        Ok(Self {
            http: http.build()?,
            base: format!("{}/agent/v1", node.api),
            metadata,
            identity: Arc::default(),
            is_away: Arc::default(),
            upload_limit: CALL_LIMIT,
        })
    }

    /// Whether it was out of reach or out of order lately, so that it cannot be told an exit either.
    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Says hello.
    pub(crate) async fn hello(&self, hello: &Hello) -> Result<Answer<Welcome>, CallError> {
        self.post("hello", None, hello).await
    }

    /// Reports, and gets the order.
    pub(crate) async fn report(&self, token: &str, report: &Report) -> Result<Answer<Order>, CallError> {
        self.post("report", Some(token), report).await
    }

    /// Puts one chunk of output.
    pub(crate) async fn put_log(&self, token: &str, chunk: ChunkName<'_>, bytes: Vec<u8>) -> Result<(), CallError> {
        let node = chunk.node;
        let url = format!(
            "{}/logs/{}/{}/{}-{}/{}/{}",
            self.base, node.job, chunk.attempt, node.key.slice, node.key.worker, chunk.stream, chunk.number
        );
        let request = self
            .http
            .put(url)
            .query(&[("generation", node.generation.to_string()), ("instance", node.instance.clone())])
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(bytes)
            .timeout(CALL_LIMIT * 2);
        self.call(request, Some(token)).await.map(|_| ())
    }

    /// Puts one chunk of what an order brought.
    pub(crate) async fn put_exec(&self, token: &str, chunk: ExecChunk<'_>, bytes: Vec<u8>) -> Result<(), CallError> {
        let node = chunk.node;
        let key = node.key;
        let place = format!("{}/{}/{}-{}/{}/{}", node.job, chunk.id, key.slice, key.worker, chunk.stream, chunk.number);
        let request = self
            .http
            .put(format!("{}/exec/{place}", self.base))
            .query(&[("generation", node.generation.to_string()), ("instance", node.instance.clone())])
            .header(CONTENT_TYPE, "application/octet-stream")
            .body(bytes)
            .timeout(CALL_LIMIT * 2);
        self.call(request, Some(token)).await.map(|_| ())
    }

    /// Puts a file where `api` says.
    pub(crate) async fn put_output(
        &self,
        token: &str,
        node: &Node,
        attempt: u32,
        path: &str,
        file: &std::path::Path,
    ) -> anyhow::Result<()> {
        use anyhow::Context as _;

        let (generation, instance, attempt) = (node.generation, node.instance.clone(), Some(attempt));
        let (job, path) = (node.job.clone(), path.to_owned());
        let place = OutputPlace { job, generation, key: node.key, instance, attempt, path };
        let address: Answer<OutputAddress> = self.post("outputs", Some(token), &place).await?;
        let file = file.to_owned();
        // The program may put a pipe in its place meanwhile.
        let opened = tokio::task::spawn_blocking(move || files::open_file(std::fs::File::options().read(true), &file));
        let file = opened.await.context("the opening ended")?.context("cannot open it")?;
        let size = file.metadata().context("cannot look at it")?.len();
        // A file that grows meanwhile is sent as it was: the length is told before.
        let body = reqwest::Body::from(tokio::fs::File::from_std(file));
        let request = self.http.put(&address.body.upload).header(CONTENT_LENGTH, size).body(body);
        // One that hangs must leave the others some of the time in which a machine is kept for them.
        let request = request.timeout(self.upload_limit + Duration::from_secs(size / UPLOAD_MIN));
        let answer = request.send().await.context("the upload broke off")?;
        let status = answer.status();
        anyhow::ensure!(status.is_success(), "the upload was answered {status}");
        Ok(())
    }

    async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        token: Option<&str>,
        body: &B,
    ) -> Result<Answer<T>, CallError> {
        let request = self.http.post(format!("{}/{path}", self.base)).json(body).timeout(CALL_LIMIT);
        let answer = self.call(request, token).await;
        // Also one that answers that it is out of order: it takes no exit. What it says to chunks alone is about them.
        self.is_away.store(matches!(answer, Err(CallError::Unreachable(_))), Ordering::Relaxed);
        let answer = answer?;
        let told = answer.headers().get(DATE).and_then(|v| v.to_str().ok());
        let ahead = told
            .and_then(|text| jiff::fmt::rfc2822::parse(text).ok())
            .map_or(SignedDuration::ZERO, |time| time.timestamp().duration_since(Timestamp::now()));
        let body = answer.json().await.map_err(|error| CallError::Unreachable(Box::new(error)))?;
        Ok(Answer { body, ahead })
    }

    async fn call(
        &self,
        mut request: reqwest::RequestBuilder,
        token: Option<&str>,
    ) -> Result<reqwest::Response, CallError> {
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(identity) = self.identity().await {
            // Cloud Run takes this header for its own check and leaves `Authorization` to us.
            request = request.header("X-Serverless-Authorization", format!("Bearer {identity}"));
        }
        let answer = request.send().await.map_err(|error| CallError::Unreachable(Box::new(error)));
        if answer.is_err() {
            self.is_away.store(true, Ordering::Relaxed);
        }
        let answer = answer?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        if status == StatusCode::UNAUTHORIZED {
            // Perhaps it is the machine's token that is not taken (any more): the next call brings a new one.
            *self.identity.lock().await = None;
        }
        let told = format!("{status}: {}", sentence(&answer.text().await.unwrap_or_default()));
        Err(match status {
            StatusCode::UNAUTHORIZED => CallError::Unauthorized(told),
            StatusCode::CONFLICT if token.is_some() => CallError::Conflict,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => CallError::Unreachable(told.into()),
            _ if status.is_client_error() => CallError::Refused(status, told),
            _ => CallError::Unreachable(told.into()),
        })
    }

    /// The worker's identity token, in the cloud.
    async fn identity(&self) -> Option<String> {
        if !self.base.starts_with("https:") {
            return None;
        }
        let mut kept = self.identity.lock().await;
        if let Some((since, token)) = kept.as_ref()
            && since.elapsed() < IDENTITY_AGE_MAX
        {
            return Some(token.clone());
        }
        let audience = self.base.trim_end_matches("/agent/v1");
        match self.metadata.identity_token(audience).await {
            Ok(token) => {
                *kept = token.clone().map(|t| (Instant::now(), t));
                token
            }
            Err(error) => {
                tracing::warn!(error = format!("{error:#}"), "no identity token");
                None
            }
        }
    }
}

/// What an answer says for people: the detail of a problem, or the begin of whatever else it is.
fn sentence(text: &str) -> String {
    let problem = serde_json::from_str::<serde_json::Value>(text).ok();
    let detail = problem.as_ref().and_then(|problem| problem["detail"].as_str());
    detail.unwrap_or(text).chars().take(500).collect()
}

/// Which chunk of output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkName<'a> {
    /// Whose.
    pub(crate) node: &'a Node,
    /// Of which attempt.
    pub(crate) attempt: u32,
    /// `stdout` or `stderr`.
    pub(crate) stream: &'a str,
    /// From 0.
    pub(crate) number: u64,
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::routing::{post, put};

    use super::*;

    #[tokio::test]
    async fn an_upload_that_hangs_ends() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let upload = format!("{base}/hangs");
        let app = axum::Router::new()
            .route("/agent/v1/outputs", post(async move || Json(OutputAddress { upload })))
            .route("/hangs", put(async || std::future::pending::<()>().await));
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let node = Node::of(base);
        let mut api = Api::new(&node, Metadata::new("127.0.0.1:9").unwrap()).unwrap();
        api.upload_limit = Duration::from_millis(100);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "a").unwrap();
        let sent = tokio::time::timeout(Duration::from_secs(20), api.put_output("token", &node, 1, "a", &file)).await;
        let error = format!("{:#}", sent.expect("it does not hang").unwrap_err());
        assert!(error.contains("the upload broke off"), "{error}");
    }
}
