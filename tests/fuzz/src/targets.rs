//! Every decoder that takes bytes from outside, as a function from bytes to a word for what became of them.
//!
//! The word (which error, how many parts, which kind) stands in for coverage: an input that brings a new word is kept and
//! mutated further. Nothing may panic, whatever the bytes.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tokio::runtime::Runtime;

use rekindle_core::classify::{case, classify};
use rekindle_core::job::Via;
use rekindle_core::spec::{ParseContext, parse};
use rekindle_gcp::auth::Service;
use rekindle_gcp::oidc::{Emails, Expect, Mode, OidcSettings, Verifier};
use rekindle_gcp::tpu::GoogleTpu;
use rekindle_local::SystemClock;
use rekindle_ports::tpu::{SliceRef, TpuApi};
use rekindle_wire::audit::{self, Subject};
use rekindle_wire::delivery::{self, Delivery};
use rekindle_wire::event;

use rekindle_fakes::deployment;

/// One decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A Pub/Sub push, wrapped.
    PushEnvelope,
    /// Headers and body of a CloudEvent, in any mode.
    CloudEvents,
    /// An entry of Cloud Logging.
    LogEntries,
    /// A job spec.
    JobSpec,
    /// Answers of the Cloud TPU API, through the client library.
    TpuAnswers,
    /// The ends of programs' outputs.
    FailureTails,
    /// Headers with tokens.
    TokenHeader,
}

impl Target {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::PushEnvelope,
        Self::CloudEvents,
        Self::LogEntries,
        Self::JobSpec,
        Self::TpuAnswers,
        Self::FailureTails,
        Self::TokenHeader,
    ];

    /// Name of the target and of its folder in `corpus/`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PushEnvelope => "push_envelope",
            Self::CloudEvents => "cloudevents",
            Self::LogEntries => "log_entries",
            Self::JobSpec => "job_spec",
            Self::TpuAnswers => "tpu_answers",
            Self::FailureTails => "failure_tails",
            Self::TokenHeader => "token_header",
        }
    }

    /// The target of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name)
    }
}

/// What the targets run on.
pub struct Ground {
    runtime: Runtime,
    tpu: GoogleTpu,
    answer: Arc<Mutex<Vec<u8>>>,
    platform: Verifier,
    verify: Verifier,
}

async fn answered(State(answer): State<Arc<Mutex<Vec<u8>>>>) -> ([(http::HeaderName, &'static str); 1], Vec<u8>) {
    ([(CONTENT_TYPE, "application/json")], lock(&answer).clone())
}

fn lock(bytes: &Mutex<Vec<u8>>) -> std::sync::MutexGuard<'_, Vec<u8>> {
    bytes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ground {
    /// A Cloud TPU API on loopback that answers what a target wants, and verifiers whose keys nobody serves.
    pub fn new() -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = Arc::new(Mutex::new(Vec::new()));
        let router = Router::new().fallback(answered).with_state(Arc::clone(&answer));
        let (at, tpu) = runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
            let at = listener.local_addr()?;
            tokio::spawn(async move { axum::serve(listener, router).await });
            let service = Service::emulator_or_google(Some(&at.to_string()));
            anyhow::Ok((at, GoogleTpu::new("p", service)))
        })?;
        Ok(Self { runtime, tpu, answer, platform: verifier(at, Mode::Platform)?, verify: verifier(at, Mode::Verify)? })
    }

    /// Runs a target on some bytes.
    pub fn run(&self, target: Target, input: &[u8]) -> String {
        match target {
            Target::PushEnvelope => {
                let mut headers = HeaderMap::new();
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                deliveries(&headers, input)
            }
            Target::CloudEvents => {
                let (headers, body) = split(input);
                deliveries(&headers, body)
            }
            Target::LogEntries => match serde_json::from_slice::<Value>(input) {
                Ok(value) if audit::is_log_entry(&value) => {
                    let mut headers = HeaderMap::new();
                    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                    deliveries(&headers, input)
                }
                Ok(_) => "no entry".into(),
                Err(error) => format!("{:?}", error.classify()),
            },
            Target::JobSpec => spec(input),
            Target::TpuAnswers => self.tpu(input),
            Target::FailureTails => tail(input),
            Target::TokenHeader => self.token(input),
        }
    }

    fn tpu(&self, input: &[u8]) -> String {
        let (head, body) = input.split_first().map_or((0, input), |(head, body)| (*head, body));
        body.clone_into(&mut lock(&self.answer));
        let via = if head & 1 == 0 { Via::Node } else { Via::QueuedResource };
        let slice = SliceRef { zone: "us-central1-a".into(), name: "rk-abcdef-train-g1".into(), via };
        let told = self.runtime.block_on(async {
            match head % 4 {
                0 | 1 => format!("{:?}", self.tpu.get(&slice).await),
                2 => format!("{:?}", self.tpu.list().await),
                _ => format!("{:?}", self.tpu.operation("projects/p/locations/us-central1-a/operations/o").await),
            }
        });
        shape(&told)
    }

    fn token(&self, input: &[u8]) -> String {
        let (headers, _) = split(input);
        let expect = Expect { audiences: vec!["https://svc".into()], emails: Emails::Any };
        let token = rekindle_gcp::oidc::bearer(&headers);
        self.runtime.block_on(async {
            let platform = self.platform.verify(token, &expect).await;
            let verify = self.verify.verify(token, &expect).await;
            shape(&format!("{platform:?} {verify:?}"))
        })
    }
}

fn verifier(at: SocketAddr, mode: Mode) -> anyhow::Result<Verifier> {
    let settings = OidcSettings::google(mode, mode == Mode::Platform);
    // What is served there is no set of keys.
    let settings = OidcSettings { jwks_url: format!("http://{at}/keys"), ..settings };
    Ok(Verifier::new(settings, Arc::new(SystemClock))?)
}

/// Lines `name: value`, an empty line, and the body.
fn split(input: &[u8]) -> (HeaderMap, &[u8]) {
    let mut headers = HeaderMap::new();
    let mut rest = input;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = &rest[..end];
        rest = &rest[end + 1..];
        if line.is_empty() {
            break;
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    (headers, rest)
}

fn deliveries(headers: &HeaderMap, body: &[u8]) -> String {
    match delivery::decode(headers, body) {
        Ok(all) => {
            let told: Vec<String> = all.iter().take(4).map(read).collect();
            format!("{} {}", all.len().min(4), told.join(","))
        }
        Err(error) => shape(&error.to_string()),
    }
}

/// Everything that a function makes of a delivery.
fn read(delivery: &Delivery) -> String {
    let subject = match audit::subject(delivery) {
        Ok(Some(Subject { resource, method, fact, is_begin })) => {
            shape(&format!("{resource:?} {method} {} {is_begin}", fact.is_some()))
        }
        Ok(None) => "foreign".into(),
        Err(why) => shape(&why),
    };
    let own = event::JobEvent::from_delivery(delivery).map_or_else(|why| shape(&why), |_| "event".into());
    let data = delivery.data.as_ref().map_or_else(|_| "unreadable".to_owned(), |data| spec(data));
    format!("{:?} {subject} {own} {data}", delivery.via)
}

fn spec(input: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(input) else { return "no JSON".into() };
    let deployment = deployment();
    match parse(&value, &ParseContext { deployment: &deployment, caller: "ann@example.com", caller_is_admin: false }) {
        Ok(_) => "a job".into(),
        Err(faults) => {
            let mut fields: Vec<String> = faults.iter().map(|fault| shape(&fault.message)).collect();
            fields.sort();
            fields.dedup();
            fields.truncate(3);
            fields.join(";")
        }
    }
}

fn tail(input: &[u8]) -> String {
    let text = String::from_utf8_lossy(input);
    let evidence = case::from_case_json(&text).unwrap_or_else(|_| case::from_plain_log(&text));
    let verdict = classify(&evidence);
    format!("{:?} {:?}", verdict.outcome, verdict.action)
}

/// A text without what is taken from the input: its words of letters, the first twelve.
fn shape(text: &str) -> String {
    let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| (3..14).contains(&word.len()));
    words.take(12).collect::<Vec<_>>().join(" ")
}
