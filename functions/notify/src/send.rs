//! One call of one webhook.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::{HeaderMap, StatusCode, header};
use jiff::Timestamp;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url, redirect};

use rekindle_core::address::{is_public, may_be_public};
use rekindle_core::spec::Notify as Hook;
use rekindle_wire::event::JobEvent;
use rekindle_wire::webhook::{self, Secret};

use crate::{GIVE_UP, TIMEOUT, shape};

/// A webhook that asks not to be called for some time (`Retry-After`) is left alone for so many seconds at most.
// Half of what an event is tried for: none is given up without a call after the pause.
const PAUSE_MAX: i64 = GIVE_UP.as_secs() / 2;

/// Webhooks that are left alone at once; what is above is called as if it had not asked.
const PAUSED_MAX: usize = 10_000;

/// Why a webhook was not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Telling it again cannot help.
    Permanent(String),
    /// It may be told later.
    Transient(String),
}

impl Failure {
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Transient(_))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permanent(why) | Self::Transient(why) => f.write_str(why),
        }
    }
}

/// Calls webhooks.
pub struct Sender {
    /// Made at the first event: it reads the roots of trust, and most processes never send one.
    client: OnceLock<Client>,
    allow_private: bool,
    /// Webhooks that asked for a pause: until when, in seconds since 1970, and with which answer. Of this process alone: another one
    /// learns it by one call of its own.
    paused: Mutex<BTreeMap<String, (i64, String)>>,
}

impl Sender {
    /// `allow_private`: also plain http and addresses that are not public, for local runs and tests alone.
    pub const fn new(allow_private: bool) -> Self {
        Self { client: OnceLock::new(), allow_private, paused: Mutex::new(BTreeMap::new()) }
    }

    fn client(&self) -> Result<&Client, reqwest::Error> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let builder = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .timeout(TIMEOUT)
            .user_agent(concat!("rekindle/", env!("CARGO_PKG_VERSION")));
        let builder = if self.allow_private { builder } else { builder.dns_resolver(Arc::new(PublicOnly)) };
        let made = builder.build()?;
        Ok(self.client.get_or_init(|| made))
    }

    /// Posts the event, signed at `now` (seconds since 1970); any 2xx is success. The answer's body is not read. A webhook that asked
    /// for a pause is not called before its end.
    pub(crate) async fn send(&self, hook: &Hook, event: &JobEvent, secret: &Secret, now: i64) -> Result<(), Failure> {
        let url = self.check(&hook.webhook).map_err(Failure::Permanent)?;
        if let Some(why) = self.pause_of(&hook.webhook, now) {
            return Err(Failure::Transient(why));
        }
        let (content_type, body) = shape::of(&url, hook.shape, event).map_err(|e| Failure::Permanent(e.to_string()))?;
        let signature = secret.sign(&event.id, now, &body);
        let client = self.client().map_err(|error| Failure::Transient(chain(&error)))?;
        let sent = client
            .post(url)
            .header(header::CONTENT_TYPE, content_type)
            .header(webhook::ID, &event.id)
            .header(webhook::TIMESTAMP, now)
            .header(webhook::SIGNATURE, signature)
            .body(body)
            .send()
            .await;
        let (status, pause) = match sent {
            Ok(response) => (response.status(), pause(response.headers(), now)),
            Err(error) if is_refused(&error) => return Err(Failure::Permanent(NOT_PUBLIC.into())),
            Err(error) => return Err(Failure::Transient(words(&error.without_url()))),
        };
        let why = format!("it answered {status}");
        let may_pass =
            matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS)
                || status.is_server_error();
        match (status.is_success(), pause) {
            (true, _) => Ok(()),
            (false, _) if !may_pass => Err(Failure::Permanent(why)),
            (false, Some(pause)) => Err(Failure::Transient(self.leave_alone(&hook.webhook, now, pause, &why))),
            (false, None) => Err(Failure::Transient(why)),
        }
    }

    /// Why a webhook is not called now, if it asked for a pause.
    fn pause_of(&self, webhook: &str, now: i64) -> Option<String> {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.get(webhook).filter(|(until, _)| *until > now).map(|(_, why)| why.clone())
    }

    /// Keeps that a webhook asked for a pause of so many seconds; what is told of it.
    fn leave_alone(&self, webhook: &str, now: i64, pause: i64, why: &str) -> String {
        let until = now + pause;
        let told = Timestamp::from_second(until).map_or_else(
            |_| why.to_owned(),
            |until| format!("{why} with a Retry-After, and is called again at {until} or later"),
        );
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.retain(|_, (until, _)| *until > now);
        if paused.len() < PAUSED_MAX {
            paused.insert(webhook.to_owned(), (until, told.clone()));
        }
        told
    }

    /// The scheme, and an address that stands in the URL itself: those are never resolved.
    fn check(&self, webhook: &str) -> Result<Url, String> {
        let url = Url::parse(webhook).map_err(|e| format!("not an address: {e}"))?;
        if self.allow_private {
            return Ok(url);
        }
        if url.scheme() != "https" {
            return Err("webhooks are told over https only".into());
        }
        if url.host().is_some_and(|host| !may_be_public(&host)) {
            return Err(NOT_PUBLIC.into());
        }
        Ok(url)
    }
}

/// The pause that an answer asks for (`Retry-After`, in seconds or as a date), bounded; in seconds from `now`.
fn pause(headers: &HeaderMap, now: i64) -> Option<i64> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    let secs = match text.parse::<u64>() {
        Ok(secs) => i64::try_from(secs).unwrap_or(i64::MAX),
        Err(_) => jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_second() - now,
    };
    (secs > 0).then(|| secs.min(PAUSE_MAX))
}

/// What of a webhook's address may be told to others: the host, and the port where one is given.
// The rest is often the right to write there: Slack, Discord and mail relays keep their token in the path or the query.
pub(crate) fn host(webhook: &str) -> String {
    let url = Url::parse(webhook).ok();
    let host = url.as_ref().and_then(Url::host_str).unwrap_or("a webhook without a host");
    url.as_ref().and_then(Url::port).map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

const NOT_PUBLIC: &str = "its address is not public";

/// Resolves names to public addresses alone, at each connection: a name that changes its mind after a check gains
/// nothing.
struct PublicOnly;

#[derive(Debug)]
struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NOT_PUBLIC)
    }
}

impl Error for NotPublic {}

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|a| is_public(a.ip())).collect();
            if public.is_empty() {
                return Err(Box::new(NotPublic) as Box<dyn Error + Send + Sync>);
            }
            Ok(Box::new(public.into_iter()) as Addrs)
        })
    }
}

fn is_refused(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<NotPublic>() {
            return true;
        }
        next = error.source();
    }
    false
}

/// What went wrong, for who has the webhook: the layers above the innermost cause only say that a request was made.
fn words(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no answer within {} s", TIMEOUT.as_secs());
    }
    if !error.is_connect() {
        return chain(error);
    }
    let mut inner: &dyn Error = error;
    while let Some(below) = inner.source() {
        inner = below;
    }
    format!("cannot connect: {inner}")
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        text.push_str(": ");
        text.push_str(&error.to_string());
        next = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_name_leads_to_public_addresses_alone_when_it_connects() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // Past the check of what stands in the URL, as with a name whose address changes after it.
        let sender = Sender::new(false);
        let error = sender.client().unwrap().get(format!("https://localhost:{port}/")).send().await.unwrap_err();
        assert!(is_refused(&error), "{}", chain(&error));
        let error = Sender::new(true).client().unwrap().get(format!("https://localhost:{port}/")).send();
        // Nobody speaks TLS there: it got as far as that.
        let (error, accepted) = tokio::join!(error, async { drop(listener.accept().await.unwrap()) });
        assert!(!is_refused(&error.unwrap_err()), "{accepted:?}");
    }
}
