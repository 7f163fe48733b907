//! One `rekindle dev` on a state folder of its own, and its HTTP interface.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use reqwest::{Method, StatusCode};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cloud::Cloud;
use crate::ledger::Ledger;
use crate::processes;
use crate::wait::{LONG, until};

/// How a `dev` is started.
#[derive(Debug, Clone)]
pub struct Options {
    /// Divides all waits.
    pub speed: f64,
    /// The emulator's scenario.
    pub scenario: Value,
    /// Address of the Firestore emulator.
    pub firestore: Option<String>,
    /// Address of the Pub/Sub emulator.
    pub pubsub: Option<String>,
    /// Most bytes of output that wait on a worker, where it is not the agent's own bound.
    pub log_backlog: Option<u64>,
}

impl Options {
    /// At this speed, with capacity everywhere.
    pub fn speed(speed: f64) -> Self {
        Self { speed, scenario: json!({}), firestore: None, pubsub: None, log_backlog: None }
    }

    /// With this scenario.
    #[must_use]
    pub fn scenario(self, scenario: Value) -> Self {
        Self { scenario, ..self }
    }

    /// With this bound of what waits on a worker for its upload.
    #[must_use]
    pub fn log_backlog(self, bytes: u64) -> Self {
        Self { log_backlog: Some(bytes), ..self }
    }
}

/// An HTTP answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Status.
    pub status: StatusCode,
    /// Body, as JSON where it is.
    pub body: Value,
}

/// A running `rekindle dev`. Everything of it ends with this value, also when the test panics.
#[derive(Debug)]
pub struct Dev {
    /// Address of the functions.
    pub url: String,
    /// The emulated cloud.
    pub cloud: Cloud,
    child: Option<Child>,
    options: Options,
    seed: u64,
    binary: PathBuf,
    http: reqwest::Client,
    ledgers: RefCell<Vec<(String, Ledger)>>,
    root: TempDir,
}

/// A program that was built beside the tests.
fn built(package: &str, name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("current_exe")?;
    let folder = own.parent().context("the test is in no target folder")?;
    // Tests lie in a folder of their own below the programs, a benchmark beside them.
    let profile = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    let found = profile.join(name);
    ensure!(found.is_file(), "{} is not built; `cargo build -p {package}` builds it", found.display());
    Ok(found)
}

/// The `rekindle` under test: `REKINDLE_E2E_BINARY`, or the one that was built beside the tests.
pub fn binary() -> Result<PathBuf> {
    match std::env::var_os("REKINDLE_E2E_BINARY") {
        Some(given) => Ok(given.into()),
        None => built("rekindle", "rekindle"),
    }
}

impl Dev {
    /// Starts it and waits until it answers.
    pub async fn start(options: Options) -> Result<Self> {
        let root = tempfile::Builder::new().prefix("rekindle-e2e-").tempdir().context("a folder for the state")?;
        let http = reqwest::Client::builder().no_proxy().timeout(LONG).build()?;
        let mut dev = Self {
            url: String::new(),
            cloud: Cloud::new("", http.clone()),
            child: None,
            options,
            seed: crate::random_seed(),
            binary: binary()?,
            http,
            ledgers: RefCell::default(),
            root,
        };
        std::fs::write(dev.root.path().join("scenario.json"), dev.options.scenario.to_string())?;
        dev.launch().await?;
        Ok(dev)
    }

    /// Starts the process on the state folder, as it is, and waits until it answers.
    pub async fn launch(&mut self) -> Result<()> {
        self.launch_at(0).await
    }

    /// The same, with the functions at that port; 0: where they were if that is free, else anywhere.
    pub async fn launch_at(&mut self, port: u16) -> Result<()> {
        let said = self.spawn(port)?;
        let told = until("`rekindle dev` says where it is", LONG, async || {
            let text = std::fs::read_to_string(&said)?;
            if text.ends_with('\n') {
                return Ok(Some(serde_json::from_str::<Value>(&text).with_context(|| text.clone())?));
            }
            match self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                Some(status) => bail!("`rekindle dev` ended with {status}:\n{}", self.log_tail()),
                None => Ok(None),
            }
        })
        .await?;
        let text = |name: &str| told[name].as_str().map(str::to_owned).with_context(|| format!("no {name} in {told}"));
        self.url = text("url")?;
        self.cloud = Cloud::new(&text("tpu_url")?, self.http.clone());
        Ok(())
    }

    /// Starts the process, and kills it again after so long, wherever it is then. It must not have ended by itself.
    pub async fn launch_and_kill(&mut self, after: Duration) -> Result<()> {
        self.spawn(0)?;
        let deadline = Instant::now() + after;
        until("the moment of the kill", LONG, async || Ok((Instant::now() >= deadline).then_some(()))).await?;
        let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
        ensure!(ended.is_none(), "`rekindle dev` ended with {ended:?}:\n{}", self.log_tail());
        self.kill()
    }

    /// Starts the process; the file where it will say where it is.
    fn spawn(&mut self, port: u16) -> Result<PathBuf> {
        ensure!(self.child.is_none(), "it runs already");
        let root = self.root.path();
        let said = root.join("said.json");
        let log = File::options().create(true).append(true).open(root.join("dev.log"))?;
        let mut command = Command::new(&self.binary);
        command
            .args(["dev", "--json", "--port", &port.to_string(), "--tpu-port", "0"])
            .arg("--state")
            .arg(self.state())
            .arg("--scenario")
            .arg(root.join("scenario.json"))
            .args(["--seed", &self.seed.to_string(), "--speed", &self.options.speed.to_string()])
            .env("REKINDLE_LOG", "info")
            .env_remove("FIRESTORE_EMULATOR_HOST")
            .env_remove("PUBSUB_EMULATOR_HOST")
            .stdin(Stdio::null())
            .stdout(File::create(&said)?)
            .stderr(log);
        for (option, value) in [("--firestore", &self.options.firestore), ("--pubsub", &self.options.pubsub)] {
            if let Some(value) = value {
                command.args([option, value]);
            }
        }
        if let Some(bytes) = self.options.log_backlog {
            command.args(["--log-backlog", &bytes.to_string()]);
        }
        self.child = Some(command.spawn().with_context(|| format!("start {}", self.binary.display()))?);
        Ok(said)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.as_ref().and_then(|child| Pid::from_raw(child.id() as i32)) {
            let _ended = kill_process(pid, signal);
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL);
        self.child.take().context("it does not run")?.wait()?;
        Ok(())
    }

    /// Cuts the network between the workers and everything else: connections are made, and nobody answers on them. Nothing
    /// of this value answers either until [`Dev::thaw`].
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// The network is back.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// SIGTERM, and the wait for its end, which must be 0.
    pub async fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM);
        let mut child = self.child.take().context("it does not run")?;
        let status = until("`rekindle dev` ends at SIGTERM", LONG, async || Ok(child.try_wait()?)).await;
        if status.is_err() {
            self.child = Some(child);
        }
        let status = status?;
        ensure!(status.success(), "`rekindle dev` ended with {status} at SIGTERM:\n{}", self.log_tail());
        Ok(())
    }

    /// The folder that all processes of this test have to do with.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// Port of the functions.
    pub fn port(&self) -> Result<u16> {
        let port = self.url.rsplit(':').next().context("no port")?;
        port.parse().with_context(|| self.url.clone())
    }

    /// Process id of `dev`.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// `--state`.
    pub fn state(&self) -> PathBuf {
        self.root.path().join("state")
    }

    /// The speed.
    pub fn speed(&self) -> f64 {
        self.options.speed
    }

    /// All living processes of this test but `dev` itself: supervisors, agents, programs.
    pub fn workers(&self) -> Vec<processes::Process> {
        let own = self.child.as_ref().map(|child| child.id() as i32);
        processes::below(self.root()).into_iter().filter(|process| Some(process.pid) != own).collect()
    }

    /// The end of the log of `dev`.
    pub fn log_tail(&self) -> String {
        let text = std::fs::read_to_string(self.root().join("dev.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// The record of a job's programs; the same for the same job. Checked at the end of the test.
    pub fn ledger(&self, job: &str) -> Result<Ledger> {
        let known = self.ledgers.borrow().iter().find(|(name, _)| name == job).map(|(_, ledger)| ledger.clone());
        if let Some(ledger) = known {
            return Ok(ledger);
        }
        let ledger = Ledger::new(self.root(), job, built("rekindle-e2e", "rekindle-e2e-program")?)?;
        self.ledgers.borrow_mut().push((job.to_owned(), ledger.clone()));
        Ok(ledger)
    }

    pub(crate) fn ledgers(&self) -> Vec<(String, Ledger)> {
        self.ledgers.borrow().clone()
    }

    /// The words of the built-in training program. `step_ms` may be an expression of the shell.
    pub fn trainer(&self, steps: u64, step_ms: &str, checkpoint_every: u64, seed: u64) -> Vec<String> {
        vec![
            self.binary.display().to_string(),
            "__train".to_owned(),
            format!("--steps={steps}"),
            format!("--step-ms={step_ms}"),
            format!("--checkpoint-every={checkpoint_every}"),
            format!("--seed={seed}"),
        ]
    }

    /// The digest of the final parameters that the training program of a job wrote.
    pub fn final_digest(&self, job: &str) -> Result<String> {
        let file = self.state().join("bucket/jobs").join(job).join("checkpoints/final.json");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let value: Value = serde_json::from_str(&text)?;
        Ok(value["digest"].as_str().context("no digest")?.to_owned())
    }

    /// Any request; the body is sent as it is.
    pub async fn request(
        &self,
        method: Method,
        path: &str,
        content_type: Option<&str>,
        body: Vec<u8>,
    ) -> Result<Answer> {
        let mut request = self.http.request(method, format!("{}{path}", self.url)).body(body);
        if let Some(content_type) = content_type {
            request = request.header("content-type", content_type);
        }
        let answer = request.send().await.with_context(|| path.to_owned())?;
        let status = answer.status();
        let bytes = answer.bytes().await?;
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_no_json| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok(Answer { status, body })
    }

    /// A POST of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer> {
        self.request(Method::POST, path, Some("application/json"), body.to_string().into_bytes()).await
    }

    /// A GET whose answer must be 200.
    pub async fn get(&self, path: &str) -> Result<Value> {
        let answer = self.request(Method::GET, path, None, Vec::new()).await?;
        ensure!(answer.status == StatusCode::OK, "GET {path}: {}: {}", answer.status, answer.body);
        Ok(answer.body)
    }

    /// The bytes of a GET whose answer must be 200.
    pub async fn bytes(&self, path: &str) -> Result<Vec<u8>> {
        let answer = self.http.get(format!("{}{path}", self.url)).send().await?;
        ensure!(answer.status() == StatusCode::OK, "GET {path}: {}", answer.status());
        Ok(answer.bytes().await?.to_vec())
    }

    /// Submits a job that is new.
    pub async fn submit(&self, spec: &Value) -> Result<()> {
        let answer = self.post("/v1/jobs", spec).await?;
        ensure!(answer.status == StatusCode::CREATED, "submit {spec}: {}: {}", answer.status, answer.body);
        Ok(())
    }

    /// A job.
    pub async fn job(&self, id: &str) -> Result<Value> {
        self.get(&format!("/v1/jobs/{id}")).await
    }

    /// Every decision about a job.
    pub async fn history(&self, id: &str) -> Result<Vec<Value>> {
        let list = self.get(&format!("/v1/jobs/{id}/history?page_size=500")).await?;
        Ok(list["entries"].as_array().cloned().unwrap_or_default())
    }

    /// A command that must be accepted.
    pub async fn command(&self, id: &str, command: &str, body: &Value) -> Result<()> {
        let answer = self.post(&format!("/v1/jobs/{id}/{command}"), body).await?;
        ensure!(answer.status == StatusCode::ACCEPTED, "{command} {id}: {}: {}", answer.status, answer.body);
        Ok(())
    }

    /// Waits until the job fulfils a condition; an end that does not is a failure at once.
    pub async fn job_until(&self, id: &str, what: &str, mut is: impl FnMut(&Value) -> bool) -> Result<Value> {
        until(&format!("{id}: {what}"), LONG, async || {
            let job = self.job(id).await?;
            if is(&job) {
                return Ok(Some(job));
            }
            let phase = job["phase"].as_str().unwrap_or_default();
            ensure!(!["succeeded", "failed", "cancelled"].contains(&phase), "{id} ended {phase} before: {what}");
            Ok(None)
        })
        .await
    }

    /// Waits for a phase.
    pub async fn phase(&self, id: &str, phase: &str) -> Result<Value> {
        self.job_until(id, phase, |job| job["phase"] == phase).await
    }

    /// Waits until this attempt runs and has done so many steps of the job.
    pub async fn step(&self, id: &str, attempt: u32, step: u64) -> Result<Value> {
        let what = format!("step {step} in attempt {attempt}");
        let is_there = |job: &Value| {
            let done = job["progress"]["step"].as_u64().unwrap_or(0);
            job["phase"] == "running" && job["attempt"] == attempt && done >= step
        };
        let is_past = |job: &Value| job["attempt"].as_u64() > Some(attempt.into());
        let job = self.job_until(id, &what, |job| is_there(job) || is_past(job)).await?;
        ensure!(is_there(&job), "{id} is past it: {what}; the last end is {}", job["last_end"]);
        Ok(job)
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ended = child.kill().and_then(|()| child.wait());
        }
        processes::end_all(self.root.path());
    }
}
