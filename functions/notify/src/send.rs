//! One call of one webhook.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::num::IntErrorKind;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::{HeaderMap, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, Url, redirect};

use rekindle_core::address::{is_public, may_be_public};
use rekindle_core::spec::Notify as Hook;
use rekindle_wire::event::JobEvent;
use rekindle_wire::webhook::{self, Secret};

use crate::{GIVE_UP, TIMEOUT, shape};

/// A webhook that asks not to be called for some time (`Retry-After`) is left alone for so many seconds at most.
// A pause is no failure that gives an event up, however old that is (see [`Failure::tries`]): what came late, or grew old in the pause, is
// called after it.
const PAUSE_MAX: i64 = GIVE_UP.as_secs() / 2;

/// A pause that is asked for within so many seconds after the end of another goes on with that one.
// The longest back-off of the subscription: so long it may take until an event is there to be called with.
const PAUSE_GAP: i64 = 60;

/// Webhooks that are left alone at once; what is above is called as if it had not asked.
const PAUSED_MAX: usize = 10_000;

/// Why a webhook was not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Telling it again cannot help.
    Permanent(String),
    /// It may be told later.
    Transient(String),
    /// It asked not to be called for now: by its answer to this event, or to another one.
    Paused(Pause),
}

/// A time in which a webhook is not called, in seconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pause {
    /// Since when it asks for pauses, one after the other.
    begun: i64,
    until: i64,
    why: String,
}

/// For how long an event is tried, from its own time on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tries {
    /// Longer, and it is given up.
    pub(crate) last: SignedDuration,
    /// It is tried so long at least, however the next calls fail.
    pub(crate) sure: SignedDuration,
}

impl Tries {
    /// What both ask for.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { last: self.last.max(other.last), sure: self.sure.max(other.sure) }
    }
}

impl Failure {
    /// How long an event of this time is tried after it; `None`: it is not tried again.
    ///
    /// A pause adds its longest time, from where the event would be given up, or from where the webhook began to ask for pauses if that is
    /// later: an event that was old before it could be told is not given up uncalled, nor kept for ever by a webhook that asks each time.
    pub(crate) fn tries(&self, event: Timestamp) -> Option<Tries> {
        match self {
            Self::Permanent(_) => None,
            Self::Transient(_) => Some(Tries { last: GIVE_UP, sure: GIVE_UP }),
            Self::Paused(Pause { begun, until, .. }) => {
                let age_at = |time: i64| SignedDuration::from_secs(time - event.as_second());
                let last = GIVE_UP.max(age_at(*begun)) + SignedDuration::from_secs(PAUSE_MAX);
                Some(Tries { last, sure: GIVE_UP.max(age_at(*until)).min(last) })
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Permanent(why) | Self::Transient(why) | Self::Paused(Pause { why, .. }) => f.write_str(why),
        }
    }
}

/// Calls webhooks.
pub struct Sender {
    /// Made at the first event: it reads the roots of trust, and most processes never send one.
    client: OnceLock<Client>,
    allow_private: bool,
    /// Webhooks that asked for a pause. Of this process alone: another one learns it by one call of its own.
    paused: Mutex<BTreeMap<String, Pause>>,
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
        if let Some(pause) = self.pause_of(&hook.webhook, now) {
            return Err(Failure::Paused(pause));
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
            (false, Some(pause)) => Err(Failure::Paused(self.leave_alone(&hook.webhook, now, pause, &why))),
            (false, None) => Err(Failure::Transient(why)),
        }
    }

    /// The pause in which a webhook is not called now.
    fn pause_of(&self, webhook: &str, now: i64) -> Option<Pause> {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.get(webhook).filter(|pause| pause.until > now).cloned()
    }

    /// Keeps that a webhook asked for a pause of so many seconds.
    fn leave_alone(&self, webhook: &str, now: i64, pause: i64, why: &str) -> Pause {
        let until = now + pause;
        let told = Timestamp::from_second(until).map_or_else(
            |_| why.to_owned(),
            |until| format!("{why} with a Retry-After, and is called again at {until} or later"),
        );
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.retain(|_, pause| pause.until + PAUSE_GAP >= now);
        let begun = paused.get(webhook).map_or(now, |pause| pause.begun);
        let pause = Pause { begun, until, why: told };
        if paused.len() < PAUSED_MAX || paused.contains_key(webhook) {
            paused.insert(webhook.to_owned(), pause.clone());
        }
        pause
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
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => i64::MAX,
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
