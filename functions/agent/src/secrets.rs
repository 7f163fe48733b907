//! Secrets of the job, read from Secret Manager by the machine's own account.
//!
//! **Invariant:** a value is in memory and in the environment of the job's programs; it is never written to the disk by the agent,
//! nor into a log or an error.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use reqwest::StatusCode;
use serde::Deserialize;

use rekindle_wire::pubsub::decode_base64;

use crate::backoff;
use crate::metadata::Metadata;

/// Tries of one version. With the waits between them about half a minute: longer outages are for the manager to judge.
const TRIES: u32 = 6;
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// Most of an error's text that is told, in bytes.
const WHY_MAX: usize = 300;

/// Reads secrets, and keeps them while the agent lives.
#[derive(Clone)]
pub(crate) struct Secrets {
    metadata: Metadata,
    /// Values by version.
    known: Arc<Mutex<BTreeMap<String, String>>>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

/// Why a version was not read.
enum Unread {
    Later(anyhow::Error),
    Never(anyhow::Error),
}

#[derive(Deserialize)]
struct Accessed {
    payload: Payload,
}

#[derive(Deserialize)]
struct Payload {
    #[serde(default)]
    data: String,
}

#[derive(Deserialize)]
struct Refusal {
    error: Why,
}

#[derive(Deserialize)]
struct Why {
    message: String,
}

/// Shorter ones may be words of the language.
const MASKED_MIN: usize = 8;

/// A text without these values, nor single lines of them: what is told of a program's end goes further than its output, to whoever hears
/// of the job.
pub(crate) fn masked(mut text: String, values: &[String]) -> String {
    let lines = values.iter().flat_map(|value| value.lines());
    let parts = values.iter().map(String::as_str).chain(lines).map(str::trim);
    let mut parts: Vec<&str> = parts.filter(|part| part.len() >= MASKED_MIN).collect();
    // The whole before its lines, so that one mark stands for it.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
    for part in parts {
        if text.contains(part) {
            text = text.replace(part, "***");
        }
    }
    text
}

impl Secrets {
    pub(crate) fn new(metadata: Metadata) -> Self {
        Self { metadata, known: Arc::default() }
    }

    /// Reads all of them anew, as each attempt does: `latest` may be another one by now.
    pub(crate) async fn renew(&self, wanted: &BTreeMap<String, String>) -> anyhow::Result<()> {
        self.lock().clear();
        self.values(wanted).await.map(drop)
    }

    /// Values by variable: as they were read before, or else read now.
    pub(crate) async fn values(&self, wanted: &BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, String>> {
        let mut values = BTreeMap::new();
        for (variable, version) in wanted {
            let known = self.lock().get(version).cloned();
            let value = match known {
                Some(value) => value,
                None => self
                    .read(version)
                    .await
                    .with_context(|| format!("cannot read the secret {version} for the variable {variable}"))?,
            };
            values.insert(variable.clone(), value);
        }
        Ok(values)
    }

    /// The values of these secrets; none, if they are not known and cannot be read within `limit`.
    pub(crate) async fn values_within(&self, wanted: &BTreeMap<String, String>, limit: Duration) -> Vec<String> {
        let values = tokio::time::timeout(limit, self.values(wanted)).await;
        values.ok().and_then(Result::ok).unwrap_or_default().into_values().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(&self, version: &str) -> anyhow::Result<String> {
        let mut failures = 0;
        loop {
            let error = match self.access(version).await {
                Ok(value) => {
                    self.lock().insert(version.to_owned(), value.clone());
                    return Ok(value);
                }
                Err(Unread::Never(error)) => return Err(error),
                Err(Unread::Later(error)) => error,
            };
            failures += 1;
            if failures == TRIES {
                return Err(error);
            }
            tracing::warn!(version, error = format!("{error:#}"), "cannot read a secret; will try again");
            tokio::time::sleep(backoff::after(failures, Duration::from_millis(500), Duration::from_secs(10))).await;
        }
    }

    async fn access(&self, version: &str) -> Result<String, Unread> {
        let token = self.metadata.access_token().await.map_err(Unread::Later)?;
        let url = url(version).map_err(Unread::Never)?;
        let mut http = reqwest::Client::builder().timeout(REQUEST_LIMIT);
        if url.scheme() == "http" {
            http = http.no_proxy();
        }
        let later = |error: reqwest::Error| Unread::Later(anyhow!(error).context("Secret Manager does not answer"));
        let answer = http.build().map_err(later)?.get(url).bearer_auth(token).send().await.map_err(later)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(later)?;
        if status.is_success() {
            return value_of(&body).map_err(Unread::Never);
        }
        let told = serde_json::from_slice::<Refusal>(&body).map(|refusal| refusal.error.message).unwrap_or_default();
        let told = &told[..told.floor_char_boundary(WHY_MAX)];
        let error = anyhow!("Secret Manager answers {status}: {told}{}", advice(status));
        let may_pass = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
        Err(if may_pass { Unread::Later(error) } else { Unread::Never(error) })
    }
}

/// What a person can do about an answer.
fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::FORBIDDEN => {
            " (give the worker's account the role roles/secretmanager.secretAccessor on it: `worker_secrets` in Terraform)"
        }
        StatusCode::NOT_FOUND => " (is there such a secret, with such a version?)",
        _ => "",
    }
}

/// The value in an answer. An environment holds text without NUL.
fn value_of(body: &[u8]) -> anyhow::Result<String> {
    // What is wrong is not told by the reader: its words quote what it read.
    let accessed = serde_json::from_slice::<Accessed>(body).map_err(|_| anyhow!("the answer cannot be read"))?;
    let bytes = decode_base64(&accessed.payload.data).map_err(|_| anyhow!("the answer cannot be read"))?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.context("it is no text in UTF-8 without NUL, which is all that a variable can hold")
}

/// The address that gives a version's value.
fn url(version: &str) -> anyhow::Result<reqwest::Url> {
    let base = std::env::var("SECRET_MANAGER_EMULATOR_HOST").ok().filter(|host| !host.is_empty());
    let base = base.map_or_else(|| "https://secretmanager.googleapis.com".to_owned(), |host| format!("http://{host}"));
    Ok(reqwest::Url::parse(&format!("{base}/v1/{version}:access"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_text_and_is_told_in_no_error() {
        let answer = |data: &str| format!(r#"{{"name":"n","payload":{{"data":"{data}","dataCrc32c":"1"}}}}"#);
        assert_eq!(value_of(answer("aHVzaA==").as_bytes()).unwrap(), "hush");
        assert_eq!(value_of(br#"{"payload":{}}"#).unwrap(), "");
        for bad in [answer("/w=="), answer("AA=="), answer("hush!"), r#"{"payload":{"data":7}}"#.into(), "hush".into()]
        {
            let told = format!("{:?}", value_of(bad.as_bytes()).unwrap_err());
            assert!(!told.contains("hush"), "{told}");
        }
    }
}
