//! An engine over memory ports, and requests through a router: what the tests of all functions share.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tower::ServiceExt;

use rekindle_core::ids::{InstallationId, JobId};
use rekindle_core::job::Job;
use rekindle_core::settings::Settings;
use rekindle_engine::Engine;
use rekindle_fakes::Fakes;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::Installation;
use rekindle_web::caller::{Loopback, guard};
use rekindle_web::{Door, layers};

pub use rekindle_fakes::deployment;

mod log;

pub use log::Log;

/// Who calls.
pub const CALLER: &str = "ann@example.com";

/// The engine, and the memory parts below it.
#[derive(Clone)]
pub struct Rig {
    /// The memory parts.
    pub fakes: Fakes,
    /// The engine over them.
    pub engine: Engine,
}

impl Rig {
    /// A new installation, an hour old; everything may be bought everywhere at 0.3 dollars a chip-hour.
    pub async fn new() -> Self {
        let start: Timestamp = "2026-11-20T10:00:00Z".parse().expect("a time");
        let fakes = Fakes::new(start, 7);
        fakes.tpu.set_instant(true);
        let installation = Installation {
            id: InstallationId::parse("abcdef").expect("an id"),
            secret: "secret".into(),
            born_at: start - SignedDuration::from_hours(1),
        };
        let written = fakes.store().write(&Kind::Installation, &installation, Precondition::Absent).await;
        written.expect("the store is in memory");
        let engine = Engine {
            ports: fakes.ports(),
            settings: Arc::new(Settings::default()),
            deployment: Arc::new(deployment()),
            installation: Arc::new(installation),
        };
        Self { fakes, engine }
    }

    /// A router as the server mounts it: behind a door that lets [`CALLER`] in, with all common layers.
    pub fn mount(&self, router: Router, door: Door) -> Router {
        layers::common(
            guard(router, Arc::new(Loopback { identity: CALLER.into() }), door),
            self.engine.settings.handler_deadline,
        )
    }

    /// The job with that id.
    pub async fn job(&self, id: &str) -> Option<Job> {
        let id = JobId::parse(id).expect("a job id");
        self.fakes.store().job(&id).await.expect("the store is in memory").map(|at| Job::clone(&at.value))
    }

    /// One pass of a job.
    pub async fn pass(&self, id: &str) {
        let id = JobId::parse(id).expect("a job id");
        Box::pin(self.engine.pass(&id, "test", None)).await.expect("a pass");
    }

    /// Lets time go by.
    pub fn advance(&self, secs: i64) {
        self.fakes.clock.advance(SignedDuration::from_secs(secs));
    }

    /// Reasons in the dead-letter topic.
    pub fn dead_reasons(&self) -> Vec<String> {
        self.fakes.dead_letters.all().into_iter().map(|letter| letter.reason).collect()
    }

    /// Jobs and causes of the hints so far.
    pub fn hints(&self) -> Vec<(String, String)> {
        self.fakes.hints.all().into_iter().map(|hint| (hint.job.to_string(), hint.cause)).collect()
    }

    /// Takes the hints so far; their causes.
    pub fn take_causes(&self) -> Vec<String> {
        self.fakes.hints.take().into_iter().map(|hint| hint.cause).collect()
    }
}

/// A small job spec with that id: four workers.
pub fn spec(id: &str) -> Value {
    json!({"id": id, "run": ["python3", "train.py"], "tpu": {"accelerator": "v5litepod-16"}})
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Headers.
    pub headers: HeaderMap,
    /// Body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {:?}", self.body))
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

/// Sends a request through a router.
pub async fn send(router: &Router, request: Request<Body>) -> Answer {
    let Ok(response) = router.clone().oneshot(request).await;
    let (parts, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    Answer { status: parts.status, headers: parts.headers, body }
}

/// A POST of JSON.
pub fn post(path: &str, body: &Value) -> Request<Body> {
    raw(path, "application/json", body.to_string())
}

/// A POST of anything.
pub fn raw(path: &str, content_type: &str, body: impl Into<Body>) -> Request<Body> {
    Request::post(path).header(header::CONTENT_TYPE, content_type).body(body.into()).expect("a request")
}

/// A GET.
pub fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).expect("a request")
}

/// A Pub/Sub push, wrapped, as the service sends it.
pub fn push(path: &str, id: &str, attributes: &[(&str, &str)], data: &[u8]) -> Request<Body> {
    let attributes: BTreeMap<&str, &str> = attributes.iter().copied().collect();
    let at = "2026-11-20T10:00:00.5Z";
    post(
        path,
        &json!({
            "message": {
                "data": STANDARD.encode(data), "attributes": attributes,
                "messageId": id, "message_id": id, "publishTime": at, "publish_time": at,
            },
            "subscription": "projects/p/subscriptions/s",
        }),
    )
}
