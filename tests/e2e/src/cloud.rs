//! The emulated cloud: what it holds, what it was asked, and what a provider does to it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use jiff::Timestamp;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

/// A client of the emulator.
#[derive(Debug, Clone)]
pub struct Cloud {
    /// Address of the Cloud TPU API, with a slash at its end.
    pub url: String,
    http: reqwest::Client,
}

/// A call of the Cloud TPU API, as the emulator logged it.
#[derive(Debug, Clone, Deserialize)]
pub struct Call {
    /// Its number.
    pub seq: u64,
    /// Name of the call.
    pub method: String,
    /// `GET`, `POST`, …
    pub http_method: String,
    /// Path.
    pub path: String,
    /// Query.
    pub query: String,
    /// When it arrived.
    pub at: Timestamp,
    /// Status of the answer.
    pub status: u16,
    /// Milliseconds until the answer was ready.
    pub duration_ms: f64,
}

impl Call {
    /// True if the path or the query names this resource.
    pub fn names(&self, resource: &str) -> bool {
        let ends = |text: &str| text.ends_with(resource) || text.contains(&format!("{resource}&"));
        ends(&self.path) || ends(&self.query)
    }

    /// When it was answered.
    pub fn answered_at(&self) -> Timestamp {
        self.at + Duration::from_secs_f64(self.duration_ms / 1e3)
    }
}

impl Cloud {
    pub(crate) fn new(url: &str, http: reqwest::Client) -> Self {
        Self { url: url.to_owned(), http }
    }

    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, Value)> {
        let url = format!("{}{path}", self.url);
        let mut request = self.http.request(method, &url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.with_context(|| url.clone())?;
        let status = answer.status();
        let text = answer.text().await.with_context(|| url.clone())?;
        let value =
            if text.is_empty() { Value::Null } else { serde_json::from_str(&text).with_context(|| text.clone())? };
        Ok((status, value))
    }

    /// A call of the Cloud TPU API itself or of the emulator's own paths, without a slash in front; it must succeed.
    pub async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let (status, value) = self.send(method.clone(), path, body).await?;
        ensure!(status.is_success(), "{method} {path}: {status}: {value}");
        Ok(value)
    }

    /// `GET /emulator/v1/state`.
    pub async fn state(&self) -> Result<Value> {
        self.call(Method::GET, "emulator/v1/state", None).await
    }

    /// The nodes, as the state shows them.
    pub async fn nodes(&self) -> Result<Vec<Value>> {
        Ok(self.state().await?["nodes"].as_array().cloned().unwrap_or_default())
    }

    /// The node whose name ends so.
    pub async fn node(&self, name: &str) -> Result<Option<Value>> {
        let nodes = self.nodes().await?;
        Ok(nodes.into_iter().find(|node| node["name"].as_str().is_some_and(|full| full.ends_with(name))))
    }

    /// Short names of all nodes and queued resources.
    pub async fn resources(&self) -> Result<Vec<String>> {
        let state = self.state().await?;
        let lists = ["nodes", "queued_resources"].map(|kind| state[kind].as_array().cloned().unwrap_or_default());
        let short = |of: &Value| of["name"].as_str().and_then(|name| name.rsplit('/').next()).map(str::to_owned);
        Ok(lists.iter().flatten().filter_map(short).collect())
    }

    /// Does something to a node: `preempt`, `host-error`, `kill-worker`, …; the order must be accepted.
    pub async fn act(&self, node: &str, action: &str, order: &Value) -> Result<Value> {
        self.call(Method::POST, &format!("emulator/v1/nodes/{node}/{action}"), Some(order)).await
    }

    /// Takes a node away. Answers the time of the notice and that of the power-off.
    pub async fn preempt(&self, node: &str, notice: &str, leave: &str) -> Result<(Timestamp, Timestamp)> {
        let noticed = Timestamp::now();
        let answer = self.act(node, "preempt", &json!({"notice": notice, "leave": leave})).await?;
        let off = answer["power_off_at"].as_str().context("no power_off_at")?.parse()?;
        Ok((noticed, off))
    }

    /// Breaks the transport between one worker and the others: cuts its connections, or, where the kernel does not let
    /// the emulator do so, makes the worker stand still for `freeze`.
    pub async fn break_transport(&self, node: &str, worker: u32, freeze: &str) -> Result<()> {
        let path = format!("emulator/v1/nodes/{node}/cut-connections");
        crate::until("a connection between the workers to cut", crate::LONG, async || {
            let (status, answer) = self.send(Method::POST, &path, Some(&json!({"worker": worker}))).await?;
            if status == StatusCode::OK {
                return Ok((answer["cut"].as_u64() > Some(0)).then_some(()));
            }
            if status != StatusCode::NOT_IMPLEMENTED {
                bail!("cut-connections: {status}: {answer}");
            }
            self.act(node, "freeze", &json!({"worker": worker, "for": freeze})).await?;
            Ok(Some(()))
        })
        .await
    }

    /// Changes a zone's settings.
    pub async fn zone(&self, zone: &str, settings: &Value) -> Result<()> {
        self.call(Method::PUT, &format!("emulator/v1/zones/{zone}"), Some(settings)).await.map(drop)
    }

    /// Injects a fault.
    pub async fn fault(&self, fault: &Value) -> Result<()> {
        self.call(Method::POST, "emulator/v1/faults", Some(fault)).await.map(drop)
    }

    /// Faults that have not struck yet.
    pub async fn faults_left(&self) -> Result<usize> {
        let answer = self.call(Method::GET, "emulator/v1/faults", None).await?;
        Ok(answer["faults"].as_array().map_or(0, Vec::len))
    }

    /// Every call of these methods so far, oldest first.
    pub async fn calls(&self, methods: &[&str]) -> Result<Vec<Call>> {
        let answer = self.call(Method::GET, "emulator/v1/requests", None).await?;
        let calls: Vec<Call> = serde_json::from_value(answer["requests"].clone())?;
        Ok(calls.into_iter().filter(|call| methods.contains(&call.method.as_str())).collect())
    }

    /// The creates of one resource.
    pub async fn creates_of(&self, name: &str) -> Result<Vec<Call>> {
        let calls = self.calls(&["CreateNode", "CreateQueuedResource"]).await?;
        Ok(calls.into_iter().filter(|call| call.names(name)).collect())
    }
}
