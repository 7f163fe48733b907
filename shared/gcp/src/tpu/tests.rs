//! The adapter against a server that replays captured and synthetic answers of the API (`tests/samples/tpu`).

mod calls;
mod errors;
mod lists;
mod states;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use rekindle_core::job::{Placement, Via};
use rekindle_core::observation::SliceLabels;
use rekindle_core::spec::CapacityKind;
use rekindle_ports::tpu::{CreateRequest, SliceRef};

use super::GoogleTpu;
use crate::auth::Service;

const ZONE: &str = "us-central2-b";

/// A sample by its file name without `.json`.
fn sample(name: &str) -> Value {
    let path = format!("{}/tests/samples/tpu/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// A request as the server saw it.
#[derive(Debug, Clone)]
struct Seen {
    /// Path and query.
    target: String,
    body: Value,
    authorization: bool,
}

#[derive(Debug, Clone)]
struct Answer {
    status: u16,
    body: String,
    content_type: &'static str,
}

/// A server with one answer for each `METHOD /path`; `?pageToken=…` is part of the path where it is not empty. What
/// has no answer is a 404 in the API's form.
#[derive(Clone, Default)]
struct Fake {
    answers: Arc<Mutex<BTreeMap<String, Answer>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Fake {
    fn on(&self, call: &str, status: u16, body: &Value) -> &Self {
        self.on_text(call, status, &body.to_string(), "application/json")
    }

    fn on_text(&self, call: &str, status: u16, body: &str, content_type: &'static str) -> &Self {
        let answer = Answer { status, body: body.to_owned(), content_type };
        self.answers.lock().unwrap().insert(call.to_owned(), answer);
        self
    }

    /// Answers with an `http-*.json` sample.
    fn on_sample(&self, call: &str, name: &str) -> &Self {
        let sample = sample(name);
        let status = u16::try_from(sample["_http_status"].as_u64().unwrap()).unwrap();
        self.on(call, status, &sample["body"])
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Serves on a free port and gives a client of it.
    async fn client(&self) -> GoogleTpu {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let service = Service::emulator(&address.to_string()).with_timeout(Duration::from_secs(5));
        GoogleTpu::new("demo-proj", service)
    }
}

async fn answer(
    State(fake): State<Fake>,
    method: Method,
    uri: Uri,
    headers: axum::http::HeaderMap,
    body: Bytes,
) -> Response {
    let token = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("pageToken="));
    let suffix = token.filter(|token| !token.is_empty()).map(|token| format!("?pageToken={token}"));
    let call = format!("{method} {}{}", uri.path(), suffix.unwrap_or_default());
    fake.seen.lock().unwrap().push(Seen {
        target: uri.to_string(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        authorization: headers.contains_key(header::AUTHORIZATION),
    });
    let found = fake.answers.lock().unwrap().get(&call).cloned();
    let answer = found.unwrap_or_else(|| Answer {
        status: 404,
        body: sample("http-404-node")["body"].to_string(),
        content_type: "application/json",
    });
    let status = StatusCode::from_u16(answer.status).unwrap();
    (status, [(header::CONTENT_TYPE, answer.content_type)], answer.body).into_response()
}

fn slice(name: &str, via: Via) -> SliceRef {
    SliceRef { zone: ZONE.into(), name: name.into(), via }
}

fn node_path(id: &str) -> String {
    format!("/v2/projects/demo-proj/locations/{ZONE}/nodes/{id}")
}

fn queued_path(id: &str) -> String {
    format!("/v2/projects/demo-proj/locations/{ZONE}/queuedResources/{id}")
}

/// A node's sample with another state.
fn node_in(state: &Value) -> Value {
    let mut node = sample("node-ready");
    node["state"] = state.clone();
    node
}

/// A spot node as the engine asks for it.
fn create_request() -> CreateRequest {
    CreateRequest {
        name: "rk-abc123-llama-g1-7f3a".into(),
        placement: Placement { accelerator: "v4-32".into(), zone: ZONE.into(), capacity: CapacityKind::Spot },
        via: Via::Node,
        slices: 1,
        runtime_version: "tpu-ubuntu2204-base".into(),
        topology: None,
        reservation: None,
        network: "default".into(),
        subnetwork: None,
        external_ips: true,
        service_account: None,
        tags: vec!["tpu".into()],
        labels: SliceLabels {
            installation: "abc123".into(),
            job: "llama".into(),
            generation: "1".into(),
            spec: "0123456789ab".into(),
        },
        extra_labels: BTreeMap::from([("team".into(), "research".into()), ("rekindle-job".into(), "forged".into())]),
        metadata: BTreeMap::from([("startup-script".into(), "#!/bin/bash\n".into())]),
        request_id: "6f0d7e1e-3f0a-4a0e-9a86-0a7c6a2f1b11".into(),
    }
}

fn operation(name: &str) -> Value {
    json!({ "name": format!("projects/demo-proj/locations/{ZONE}/operations/{name}") })
}
