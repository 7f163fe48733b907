//! An emulator with a folder of its own, and short ways to call it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rekindle_tpu_emulator::{Config, Emulator, Scenario, Vms};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A condition that does not come true by then fails the test.
const DEADLINE: Duration = Duration::from_secs(30);

/// Waits are this much shorter than nominal.
pub(crate) const SPEED: f64 = 10.0;

pub(crate) const ZONE: &str = "us-central1-a";

pub(crate) struct Bench {
    pub(crate) emulator: Option<Emulator>,
    pub(crate) folder: TempDir,
    client: reqwest::Client,
}

/// The binary of this crate, supervising a VM.
pub(crate) fn supervisor() -> Vec<std::ffi::OsString> {
    vec![env!("CARGO_BIN_EXE_rekindle-tpu-emulator").into(), "supervise-vm".into()]
}

impl Bench {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let folder = TempDir::new().unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut bench = Self { emulator: None, folder, client };
        bench.start(change).await;
        bench
    }

    pub(crate) async fn scenario(yaml: &str) -> Self {
        let scenario = Scenario::parse(yaml).unwrap();
        Self::with(|config| config.scenario = Some(scenario)).await
    }

    /// Starts an emulator on the folder.
    pub(crate) async fn start(&mut self, change: impl FnOnce(&mut Config)) {
        let mut config = Config::new(self.folder.path(), supervisor());
        config.speed = SPEED;
        change(&mut config);
        self.emulator = Some(Emulator::start(config).await.unwrap());
    }

    /// Stops the emulator and leaves the VMs.
    pub(crate) async fn stop(&mut self) {
        self.emulator.take().unwrap().shutdown(Vms::Leave).await;
    }

    /// Ends everything.
    pub(crate) async fn end(mut self) {
        self.emulator.take().unwrap().shutdown(Vms::End).await;
    }

    pub(crate) fn endpoint(&self) -> String {
        self.emulator.as_ref().unwrap().endpoint()
    }

    pub(crate) fn vms(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join("vms")
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let url = format!("{}{path}", self.endpoint());
        let mut request = self.client.request(method.parse().unwrap(), url);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    pub(crate) async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, None).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("POST", path, Some(&body)).await
    }

    /// A call of the emulator's own paths that must succeed.
    pub(crate) async fn admin(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.post(&format!("emulator/v1/{path}"), body).await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }

    pub(crate) async fn set_zone(&self, zone: &str, body: Value) {
        let (status, answer) = self.call("PUT", &format!("emulator/v1/zones/{zone}"), Some(&body)).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// Asks to create a node: status and answer.
    pub(crate) async fn create(&self, id: &str, node: Value) -> (u16, Value) {
        self.post(&format!("{}?nodeId={id}", nodes()), node).await
    }

    /// A node that is READY, with its VMs running.
    pub(crate) async fn ready(&self, id: &str, node: Value) -> Value {
        let (status, operation) = self.create(id, node).await;
        assert_eq!(status, 200, "{operation}");
        self.until_state(id, "READY").await;
        self.until("the VMs run", || async {
            let node = self.state_of(id).await;
            node["workers"].as_array().unwrap().iter().all(|worker| worker["alive"] == true)
        })
        .await;
        self.state_of(id).await
    }

    /// What the emulator's own state says of a node, workers included.
    pub(crate) async fn state_of(&self, id: &str) -> Value {
        let (_, state) = self.get("emulator/v1/state").await;
        let nodes = state["nodes"].as_array().unwrap();
        nodes
            .iter()
            .find(|node| node["name"].as_str().unwrap().ends_with(&format!("/{id}")))
            .cloned()
            .unwrap_or_default()
    }

    pub(crate) async fn node(&self, id: &str) -> (u16, Value) {
        self.get(&format!("{}/{id}", nodes())).await
    }

    pub(crate) async fn until_state(&self, id: &str, state: &str) {
        self.until(&format!("{id} is {state}"), || async { self.node(id).await.1["state"] == state }).await;
    }

    pub(crate) async fn until_gone(&self, id: &str) {
        self.until(&format!("{id} is gone"), || async { self.node(id).await.0 == 404 }).await;
    }

    /// The end of an operation.
    pub(crate) async fn done(&self, operation: &Value) -> Value {
        let path = format!("v2/{}", operation["name"].as_str().unwrap());
        self.until(&format!("{path} is done"), || async { self.get(&path).await.1["done"] == true }).await;
        self.get(&path).await.1
    }

    /// Waits for a condition.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, condition: impl Fn() -> F) {
        until(what, condition).await;
    }

    /// A value of a worker's metadata server.
    pub(crate) async fn metadata(&self, worker: &Value, path: &str) -> (u16, String) {
        let url = format!("http://{}/computeMetadata/v1/{path}", worker["metadata"].as_str().unwrap());
        let answer = self.client.get(url).header("Metadata-Flavor", "Google").send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub(crate) fn client(&self) -> &reqwest::Client {
        &self.client
    }
}

/// Waits for a condition.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let started_at = Instant::now();
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    while !condition().await {
        assert!(started_at.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        looks.tick().await;
    }
}

/// `v2/projects/p/locations/us-central1-a/nodes`.
pub(crate) fn nodes() -> String {
    format!("v2/projects/p/locations/{ZONE}/nodes")
}

/// `v2/projects/p/locations/us-central1-a/queuedResources`.
pub(crate) fn queued() -> String {
    format!("v2/projects/p/locations/{ZONE}/queuedResources")
}

/// The body of a spot node.
pub(crate) fn spot(accelerator: &str, script: &str) -> Value {
    json!({
        "acceleratorType": accelerator,
        "runtimeVersion": "v2-alpha-tpuv5-lite",
        "schedulingConfig": {"spot": true},
        "metadata": {"startup-script": script, "generation": "7"},
    })
}

/// A file that a startup script wrote in the home of a worker.
pub(crate) fn home(worker: &Value) -> PathBuf {
    PathBuf::from(worker["folder"].as_str().unwrap()).parent().unwrap().join("home")
}

/// Process ids that carry a mark in their environment or command line.
pub(crate) fn processes_with(text: &str) -> Vec<i32> {
    let has = |path: String| std::fs::read(path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(text));
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let is_zombie = std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "));
        if !is_zombie && has(format!("/proc/{pid}/cmdline")) {
            found.push(pid);
        }
    }
    found
}
