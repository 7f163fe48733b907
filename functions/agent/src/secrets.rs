//! Secrets of the job, read from Secret Manager by the machine's own account.
//!
//! **Invariant:** a value is in memory and in the environment of the job's programs; it is never written to the disk by the agent,
//! nor into a log or an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

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
    /// Every value that was given to a program.
    given: Arc<Mutex<BTreeSet<String>>>,
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

/// A text without these values, in the forms in which programs print them: what is told of a program's end goes further than its output, to
/// whoever hears of the job.
pub(crate) fn masked(mut text: String, values: &BTreeSet<String>) -> String {
    let mut forms: Vec<String> = values.iter().flat_map(|value| forms(value)).collect();
    forms.retain(|form| form.len() >= MASKED_MIN);
    // The whole before its parts, so that one mark stands for it.
    forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
    for form in &forms {
        if text.contains(form.as_str()) {
            text = text.replace(form.as_str(), "***");
        }
    }
    text
}

/// A value and its lines, and what is secret by its name in a value of JSON or of lines `NAME=VALUE`; each as it is, as in an address, and
/// as in quotes.
fn forms(value: &str) -> Vec<String> {
    let mut parts: Vec<String> =
        std::iter::once(value).chain(value.lines()).map(|part| part.trim().to_owned()).collect();
    if let Ok(json) = serde_json::from_str(value) {
        leaves("", &json, &mut parts);
    }
    for (name, text) in value.lines().filter_map(|line| line.split_once('=')) {
        leaves(name, &Value::String(text.trim().trim_matches(['"', '\'']).to_owned()), &mut parts);
    }
    let in_address = |part: &String| utf8_percent_encode(part, ADDRESS).to_string();
    let in_quotes = |part: &String| serde_json::to_string(part).unwrap_or_default().trim_matches('"').to_owned();
    parts.iter().flat_map(|part| [part.clone(), in_address(part), in_quotes(part)]).collect()
}

/// Texts whose name says that they are secret, and their lines.
fn leaves(name: &str, value: &Value, parts: &mut Vec<String>) {
    let name = name.to_ascii_lowercase();
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| leaves(name, value, parts)),
        Value::Array(values) => values.iter().for_each(|value| leaves(&name, value, parts)),
        Value::String(text) if ["key", "token", "secret", "pass", "pwd"].iter().any(|word| name.contains(word)) => {
            parts.push(text.clone());
            parts.extend(text.lines().map(str::to_owned));
        }
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// What stays as it is in an address.
const ADDRESS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

impl Secrets {
    pub(crate) fn new(metadata: Metadata) -> Self {
        Self { metadata, known: Arc::default(), given: Arc::default() }
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
            self.given.lock().unwrap_or_else(PoisonError::into_inner).insert(value.clone());
            values.insert(variable.clone(), value);
        }
        Ok(values)
    }

    /// Every value that a program was given, as far as this agent knows; what another agent gave is read now, for `limit` at most.
    pub(crate) async fn given(&self, wanted: &BTreeMap<String, String>, limit: Duration) -> BTreeSet<String> {
        let known = || self.given.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if known().is_empty() && !wanted.is_empty() {
            let _ = tokio::time::timeout(limit, self.values(wanted)).await;
        }
        known()
    }

    /// Takes the values of these variables from a process that an earlier agent has begun: a secret may have another by now.
    pub(crate) fn learn(&self, pid: i32, wanted: &BTreeMap<String, String>) {
        if wanted.is_empty() {
            return;
        }
        let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else { return };
        let variables =
            environ.split(|byte| *byte == 0).filter_map(|one| std::str::from_utf8(one).ok()?.split_once('='));
        let values = variables.filter(|(name, _)| wanted.contains_key(*name)).map(|(_, value)| value.to_owned());
        self.given.lock().unwrap_or_else(PoisonError::into_inner).extend(values);
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

    #[test]
    fn values_are_masked_in_the_forms_in_which_programs_print_them_and_words_are_not() {
        let given = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect::<BTreeSet<_>>();
        let values = given(&["sk-12345678\n", "p@ss/w0rd+long==", "DB=x\nDB_PASS='hunter2-long'\n", "yes"]);
        let text = "yes: sk-12345678 refused, https://u:p%40ss%2Fw0rd%2Blong%3D%3D@h/, db refuses hunter2-long";
        assert_eq!(masked(text.to_owned(), &values), "yes: *** refused, https://u:***@h/, db refuses ***");
        let account =
            r#"{"type": "service_account", "private_key": "-----BEGIN KEY-----\nMIIEvQIBADAN\n-----END KEY-----\n"}"#;
        let values = given(&[account]);
        for (text, want) in [
            (format!("KeyError: {account}"), "KeyError: ***"),
            (format!("KeyError: {account:?}"), "KeyError: \"***\""),
            ("bad line MIIEvQIBADAN".to_owned(), "bad line ***"),
            ("a service_account is needed".to_owned(), "a service_account is needed"),
        ] {
            assert_eq!(masked(text, &values), want);
        }
        assert_eq!(masked("as it is".to_owned(), &given(&[])), "as it is");
    }

    #[tokio::test]
    async fn what_an_earlier_agent_gave_is_learnt_from_the_program() {
        let secrets = Secrets::new(Metadata::new("127.0.0.1:1").unwrap());
        let wanted = [("REKINDLE_TEST_KEY".to_owned(), "projects/p/secrets/k/versions/latest".to_owned())].into();
        let mut program =
            std::process::Command::new("sleep").arg("100").env("REKINDLE_TEST_KEY", "older-value").spawn().unwrap();
        // The kernel has its environment a moment after it has let go of who spawned it.
        let environment = format!("/proc/{}/environ", program.id());
        while std::fs::read(&environment).is_ok_and(|bytes| bytes.is_empty()) {
            std::thread::yield_now();
        }
        secrets.learn(program.id() as i32, &wanted);
        program.kill().unwrap();
        program.wait().unwrap();
        assert_eq!(secrets.given(&wanted, Duration::ZERO).await, ["older-value".to_owned()].into());
    }
}
