//! The HTTP API (v1) as its client sees it. Knows addresses, tokens and problems; nothing of how answers are shown.

mod next;
mod sse;
mod stranger;
mod token;
mod upload;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use reqwest::{Method, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use rekindle_wire::v1::{CommandBody, Problem};

pub(crate) use sse::Event;
pub(crate) use token::Tokens;
pub(crate) use upload::Uploaded;

use stranger::{begin, is_page};

use crate::config::{Origin, Server};
use crate::exit::Exit;
use crate::fault::{Fault, Result};

/// A call that brings one answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Until a connection is there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The server ends a silent stream after 60 s; with its keep-alives a longer silence is a dead connection.
const STREAM_SILENCE_MAX: Duration = Duration::from_secs(90);

/// Bytes of a problem that are read.
const PROBLEM_MAX: usize = 1 << 20;

/// What to do about a stream that ended.
const AGAIN: &str = "run the command again; it goes on from where the server is then";

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Api {
    server: Server,
    http: reqwest::Client,
    tokens: token::Tokens,
    /// It is known to be a server of an earlier version, whose answers do not say that they are ours.
    is_earlier: AtomicBool,
}

/// A query: names and values, absent values left out.
pub(crate) type Query<'a> = &'a [(&'a str, Option<String>)];

impl Api {
    /// A client; nothing is sent yet.
    pub(crate) fn new(server: Server, token: Option<String>) -> Result<Self> {
        let mut builder = reqwest::Client::builder();
        if is_loopback(&server.url) {
            // Proxies of this machine's environment do not know what runs on it.
            builder = builder.no_proxy();
        }
        let http = builder
            .user_agent(concat!("rekindle/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| Fault::unexpected("cannot set up HTTP").caused_by(&error))?;
        let tokens = token::Tokens::new(&server, token);
        Ok(Self { server, http, tokens, is_earlier: AtomicBool::new(false) })
    }

    /// Address of the server.
    pub(crate) fn url(&self) -> &str {
        &self.server.url
    }

    /// The server for a person who may not know which one was configured.
    pub(crate) fn place(&self) -> String {
        if self.is_on_loopback() { format!("this machine ({})", self.url()) } else { self.url().to_owned() }
    }

    /// True when it runs on this machine, and asks for no token.
    pub(crate) fn is_on_loopback(&self) -> bool {
        is_loopback(&self.server.url)
    }

    /// Any request as it is, with the token; the answer as it comes, whatever its status.
    pub(crate) async fn forward(
        &self,
        method: Method,
        path: &str,
        headers: header::HeaderMap,
        body: bytes::Bytes,
    ) -> Result<reqwest::Response> {
        let mut fresh = false;
        loop {
            let request = self.request(method.clone(), path, &[], &Body::None, None, fresh).await?;
            let request = request.headers(headers.clone()).body(body.clone());
            let response = request.send().await.map_err(|error| self.unreachable(&error))?;
            if response.status() == StatusCode::UNAUTHORIZED && !fresh && self.tokens.can_refresh() {
                fresh = true;
                continue;
            }
            return Ok(response);
        }
    }

    /// True when nothing was configured and the usual local address is used.
    pub(crate) fn is_default(&self) -> bool {
        self.server.origin == Origin::Default
    }

    /// How far the server's clock is ahead of this one, to the second; `None`: it does not tell.
    pub(crate) async fn clock_ahead(&self) -> Option<jiff::SignedDuration> {
        let response = self.send(Method::GET, "/version", &[], &Body::None, Some(CALL_TIMEOUT)).await.ok()?;
        let told = response.headers().get(header::DATE)?.to_str().ok()?;
        let time = jiff::fmt::rfc2822::parse(told).ok()?.timestamp();
        Some(time.duration_since(jiff::Timestamp::now()))
    }

    /// GET, as JSON.
    pub(crate) async fn get(&self, path: &str, query: Query<'_>) -> Result<Value> {
        let response = self.send(Method::GET, path, query, &Body::None, Some(CALL_TIMEOUT)).await?;
        self.json(path, response).await
    }

    /// GET, as it comes; [`read`] reads it.
    pub(crate) async fn get_bytes(&self, path: &str, query: Query<'_>) -> Result<bytes::Bytes> {
        let response = self.send(Method::GET, path, query, &Body::None, Some(CALL_TIMEOUT)).await?;
        response.bytes().await.map_err(|error| self.broken(path, &error))
    }

    /// GET, as JSON, unless it is what the ETag names: then `None`. Gives the new ETag.
    pub(crate) async fn get_if_changed(&self, path: &str, etag: &mut Option<String>) -> Result<Option<Value>> {
        let body = Body::IfNoneMatch(etag.clone());
        let response = self.send(Method::GET, path, &[], &body, Some(CALL_TIMEOUT)).await?;
        if response.status() == StatusCode::NOT_MODIFIED {
            return Ok(None);
        }
        *etag = response.headers().get(header::ETAG).and_then(|value| value.to_str().ok()).map(str::to_owned);
        self.json(path, response).await.map(Some)
    }

    /// GET, its text handed on piece by piece.
    pub(crate) async fn get_text(
        &self,
        path: &str,
        query: Query<'_>,
        mut piece: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let response = self.send(Method::GET, path, query, &Body::None, None).await?;
        let mut stream = response.bytes_stream();
        while let Some(bytes) = stream.next().await {
            piece(&bytes.map_err(|error| self.broken(path, &error))?)?;
        }
        Ok(())
    }

    /// Opens a stream of server-sent events, from the event after `last_id` on.
    pub(crate) async fn events(&self, path: &str, query: Query<'_>, last_id: Option<&str>) -> Result<Events> {
        let body = Body::LastEventId(last_id.map(str::to_owned));
        let response = self.send(Method::GET, path, query, &body, None).await?;
        let url = self.url().to_owned();
        Ok(Events {
            url,
            bytes: Box::pin(response.bytes_stream()),
            parser: sse::Parser::default(),
            ready: VecDeque::new(),
            silence_max: STREAM_SILENCE_MAX,
        })
    }

    /// POST of a JSON body; says whether it made something new (201).
    pub(crate) async fn post(&self, path: &str, body: &Value, key: &str) -> Result<(Value, bool)> {
        self.post_with(path, &[], body, key).await
    }

    /// The same with a query.
    pub(crate) async fn post_with(
        &self,
        path: &str,
        query: Query<'_>,
        body: &Value,
        key: &str,
    ) -> Result<(Value, bool)> {
        let body = Body::Json { value: body.clone(), key: key.to_owned() };
        let response = self.send(Method::POST, path, query, &body, Some(CALL_TIMEOUT)).await?;
        let is_new = response.status() == StatusCode::CREATED;
        Ok((self.json(path, response).await?, is_new))
    }

    /// PATCH of a JSON body.
    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Result<Value> {
        let body = Body::Json { value: body.clone(), key: new_key() };
        let response = self.send(Method::PATCH, path, &[], &body, Some(CALL_TIMEOUT)).await?;
        self.json(path, response).await
    }

    /// A command on a job; says whether it changed anything (202; 200 is that it held already).
    pub(crate) async fn command(&self, job: &str, command: &str, body: &CommandBody) -> Result<(Value, bool)> {
        let path = format!("/v1/jobs/{}/{command}", segment(job)?);
        let value = serde_json::to_value(body).map_err(|error| Fault::unexpected("no JSON").caused_by(&error))?;
        let body = Body::Json { value, key: new_key() };
        let response = self.send(Method::POST, &path, &[], &body, Some(CALL_TIMEOUT)).await?;
        let is_change = response.status() == StatusCode::ACCEPTED;
        Ok((self.json(&path, response).await?, is_change))
    }

    /// A request and its answer, which is a success of a server of ours.
    async fn send(
        &self,
        method: Method,
        path: &str,
        query: Query<'_>,
        body: &Body,
        timeout: Option<Duration>,
    ) -> Result<reqwest::Response> {
        let mut is_second = false;
        loop {
            let request = self.request(method.clone(), path, query, body, timeout, is_second).await?;
            let response = request.send().await.map_err(|error| self.unreachable(&error))?;
            let status = response.status();
            if status == StatusCode::UNAUTHORIZED && !is_second && self.tokens.can_refresh() {
                is_second = true;
                continue;
            }
            if status.is_success() || status == StatusCode::NOT_MODIFIED {
                return self.ours(path, response).await;
            }
            return Err(self.problem(path, response).await);
        }
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        query: Query<'_>,
        body: &Body,
        timeout: Option<Duration>,
        fresh_token: bool,
    ) -> Result<reqwest::RequestBuilder> {
        let mut request = self.http.request(method, format!("{}{path}", self.server.url));
        let pairs: Vec<(&str, &String)> =
            query.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?))).collect();
        if !pairs.is_empty() {
            request = request.query(&pairs);
        }
        if let Some(timeout) = timeout {
            request = request.timeout(timeout);
        }
        if let Some(token) = self.tokens.get(fresh_token).await? {
            request = request.bearer_auth(token);
        }
        Ok(match body {
            Body::None | Body::IfNoneMatch(None) => request,
            Body::IfNoneMatch(Some(etag)) => request.header(header::IF_NONE_MATCH, etag),
            Body::LastEventId(id) => {
                let request = request.header(header::ACCEPT, "text/event-stream");
                match id {
                    Some(id) => request.header("Last-Event-ID", id),
                    None => request,
                }
            }
            Body::Json { value, key } => request.header("Idempotency-Key", key).json(value),
        })
    }

    async fn json(&self, path: &str, response: reqwest::Response) -> Result<Value> {
        let bytes = response.bytes().await.map_err(|error| self.broken(path, &error))?;
        read(&format!("{}{path}", self.url()), &bytes)
    }

    async fn problem(&self, path: &str, response: reqwest::Response) -> Fault {
        let status = response.status();
        // Also of a stream, which has no time-out of its own.
        let text = begin(response, PROBLEM_MAX, CALL_TIMEOUT).await;
        let text = String::from_utf8_lossy(&text);
        let problem = serde_json::from_str::<Problem>(&text).ok();
        let step = next::step(status, path, problem.as_ref());
        let is_gateway = problem.is_none() && status.is_server_error();
        // A page of a proxy says nothing about a job or its rights, and that nobody is free for it will pass.
        let is_stranger = problem.is_none() && matches!(status, StatusCode::NOT_FOUND | StatusCode::FORBIDDEN);
        let may_pass = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS || is_stranger;
        let fault = match problem {
            Some(problem) => {
                let what = if problem.detail.is_empty() { problem.title } else { problem.detail };
                let told = problem.errors.into_iter().map(|error| match error.field.as_str() {
                    "" => error.message,
                    field => format!("{field}: {}", error.message),
                });
                // One fault alone may be the whole of what is said above.
                let causes: Vec<String> = told.filter(|cause| *cause != what).collect();
                causes.into_iter().fold(Fault::input(what), Fault::because)
            }
            None => Fault::input(format!("{}{path} answered {status}", self.url())).because(excerpt(&text)),
        };
        let fault = fault.with_status(status.as_u16());
        let fault = match next::job_of(path) {
            Some(job) if status == StatusCode::NOT_FOUND && !is_stranger => fault.for_lack_of(job),
            Some(_) | None => fault,
        };
        let fault = if may_pass { fault.exits(Exit::Unexpected) } else { fault };
        // What stands before the server gave up on its answer, or lost it: what was asked for may be done.
        let fault = if is_gateway { fault.after_sending() } else { fault };
        match step {
            Some(step) => fault.next(step),
            None => fault,
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> Fault {
        let url = self.url();
        let next = match &self.server.origin {
            Origin::Default => {
                "start `rekindle dev` in another terminal, or name a server with --server, REKINDLE_SERVER or the \
                 configuration file"
                    .to_owned()
            }
            Origin::Given => "check the address in --server or REKINDLE_SERVER, and that the server runs".to_owned(),
            Origin::File(path) => format!("check `server` in {}, and that the server runs", path.display()),
        };
        let what = if error.is_timeout() { format!("no answer from {url}") } else { format!("cannot reach {url}") };
        let fault = Fault::unexpected(what).caused_by(&bare(error)).next(next);
        if error.is_connect() { fault } else { fault.after_sending() }
    }

    fn broken(&self, path: &str, error: &reqwest::Error) -> Fault {
        Fault::unexpected(format!("the answer of {}{path} broke off", self.url()))
            .caused_by(&bare(error))
            .next("run the command again; `rekindle doctor` checks the server")
            .after_sending()
    }
}

/// A stream of server-sent events.
pub(crate) struct Events {
    url: String,
    bytes: Pin<Box<dyn Stream<Item = reqwest::Result<bytes::Bytes>> + Send>>,
    parser: sse::Parser,
    ready: VecDeque<Event>,
    silence_max: Duration,
}

impl Events {
    /// The next event; `None`: the server ended the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let silent = |_| Fault::unexpected(format!("{} went silent", self.url)).next(AGAIN);
            match tokio::time::timeout(self.silence_max, self.bytes.next()).await.map_err(silent)? {
                None => return Ok(None),
                Some(Ok(bytes)) => self.ready.extend(self.parser.push(&bytes)),
                Some(Err(error)) => {
                    let fault = Fault::unexpected(format!("the stream of {} broke off", self.url));
                    return Err(fault.caused_by(&bare(&error)).next(AGAIN));
                }
            }
        }
    }
}

/// What a request carries beside its address.
enum Body {
    None,
    IfNoneMatch(Option<String>),
    LastEventId(Option<String>),
    Json { value: Value, key: String },
}

/// Reads an answer into a shape.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| not_understood(&error))
}

/// Reads the bytes of an answer into a shape; `place` is the whole address that gave them.
pub(crate) fn read<T: DeserializeOwned>(place: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| match error.classify() {
        Category::Data => not_understood(&error),
        Category::Io | Category::Syntax | Category::Eof => {
            Fault::unexpected(format!("{place} answered something that is no JSON"))
                .caused_by(&error)
                .next("is this the address of Rekindle's api? `rekindle doctor` tells more")
        }
    })
}

fn not_understood(error: &serde_json::Error) -> Fault {
    Fault::unexpected("the server answers in a way that this version does not understand")
        .caused_by(error)
        .next("compare `rekindle version` on both sides; --json shows the answer as it is")
}

/// A key of a new command: the same command sent twice by a network is carried out once.
pub(crate) fn new_key() -> String {
    uuid::Uuid::now_v7().to_string()
}

/// A job id as a segment of a path. The server checks the pattern; here only what would change the path is refused.
pub(crate) fn segment(job: &str) -> Result<&str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '.';
    if !job.is_empty() && job != "." && job != ".." && job.chars().all(plain) {
        return Ok(job);
    }
    Err(Fault::input(format!("{job:?} is no job id"))
        .because("ids have 1 to 40 of a-z, 0-9 and '-', and begin with a letter")
        .next("`rekindle ps` lists the jobs"))
}

/// The innermost error: the layers above only say that a request was made.
fn bare(error: &reqwest::Error) -> std::io::Error {
    let mut inner: &dyn std::error::Error = error;
    while let Some(below) = inner.source() {
        inner = below;
    }
    std::io::Error::other(inner.to_string())
}

fn is_loopback(url: &str) -> bool {
    let host = url.strip_prefix("http://").unwrap_or_default();
    host.starts_with("127.") || host.starts_with("localhost") || host.starts_with("[::1]")
}

fn excerpt(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("(no text)");
    crate::human::tame(&line.chars().take(200).collect::<String>())
}

#[cfg(test)]
mod tests;
