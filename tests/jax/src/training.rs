//! The training job: four workers of a v5litepod-16, each one JAX process on one thread.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use rekindle_e2e::processes::{self, Process};
use rekindle_e2e::{Dev, LONG, until};
use serde_json::{Value, json};

/// Workers of a v5litepod-16.
pub const WORKERS: u32 = 4;
const STEPS: u32 = 45;
const CHECKPOINT_EVERY: u32 = 5;
/// After this step the workers wait for [`Training::go`]: past three checkpoints, far from the end.
pub(crate) const HOLD: u32 = 16;
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/train.py");

/// What JAX finds: one thread for each process, since four of them share two cores, and the order of additions is fixed.
pub const ENVIRONMENT: [(&str, &str); 6] = [
    ("JAX_PLATFORMS", "cpu"),
    ("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "gloo"),
    ("JAX_ENABLE_PREEMPTION_SERVICE", "1"),
    ("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false"),
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
];

/// The target folder that holds this test and the Python environment.
fn target() -> Result<PathBuf> {
    let own = std::env::current_exe().context("current_exe")?;
    // target/PROFILE/deps/TEST
    Ok(own.ancestors().nth(3).context("the test is in no target folder")?.to_owned())
}

/// The interpreter of the environment that `tests/jax/setup` makes. `None`: it was not made, or of other versions.
///
/// # Errors
/// If this test lies in no target folder.
pub fn python() -> Result<Option<PathBuf>> {
    let place = target()?.join("jax");
    let wanted = include_str!("../requirements.txt");
    let made = fs::read_to_string(place.join("requirements.txt")).is_ok_and(|text| text == wanted);
    Ok(made.then(|| place.join("bin/python3")))
}

fn arguments(orders: &Path) -> Vec<String> {
    let numbers = [STEPS, CHECKPOINT_EVERY, HOLD].map(|number| number.to_string());
    let orders = orders.display().to_string();
    std::iter::once(PROGRAM.to_owned()).chain(numbers).chain([orders]).collect()
}

/// A training job in a `dev`.
#[derive(Debug)]
pub struct Training<'a> {
    dev: &'a Dev,
    /// Its id.
    pub id: String,
    orders: PathBuf,
}

impl<'a> Training<'a> {
    /// Submits one; `more` is added to its spec.
    ///
    /// # Errors
    /// If it is refused.
    pub async fn submit(dev: &'a Dev, id: &str, python: &Path, more: &Value) -> Result<Self> {
        let orders = dev.root().join(format!("orders-{id}"));
        fs::create_dir(&orders)?;
        let mut run = vec![python.display().to_string()];
        run.extend(arguments(&orders));
        let mut spec = json!({
            "id": id,
            "run": run,
            "env": serde_json::Map::from_iter(ENVIRONMENT.map(|(name, value)| (name.to_owned(), json!(value)))),
            "tpu": {"accelerator": "v5litepod-16", "capacity": "spot"},
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            spec[name] = value.clone();
        }
        dev.submit(&spec).await?;
        Ok(Self { dev, id: id.to_owned(), orders })
    }

    /// Lets a worker do something to itself at its next step: `fail`, `memory`, `disk`.
    ///
    /// # Errors
    /// If the order cannot be written.
    pub fn order(&self, what: &str, worker: u32) -> Result<()> {
        Ok(File::create(self.orders.join(format!("{what}-{worker}"))).map(drop)?)
    }

    /// Waits until all workers stand at the step after which they wait.
    ///
    /// # Errors
    /// If the job ends before.
    pub async fn holds(&self) -> Result<()> {
        self.dev.step(&self.id, 1, u64::from(HOLD)).await.map(drop)
    }

    /// Lets the workers of the first attempt go on.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn go(&self) -> Result<()> {
        Ok(File::create(self.orders.join("go-1")).map(drop)?)
    }

    /// The JAX process of a worker.
    ///
    /// # Errors
    /// If there is none, or more than one.
    pub fn process(&self, worker: u32) -> Result<Process> {
        let is_it = |process: &Process| {
            process.arguments.contains(PROGRAM)
                && process.variable("REKINDLE_JOB") == Some(&self.id)
                && process.variable("REKINDLE_WORKER") == Some(&worker.to_string())
        };
        let mut found: Vec<Process> = processes::below(self.dev.root()).into_iter().filter(is_it).collect();
        ensure!(found.len() == 1, "worker {worker} of {} has {} programs", self.id, found.len());
        found.pop().context("no program")
    }

    /// The job on the attempt after its first, once that runs.
    ///
    /// # Errors
    /// If the job ends before.
    pub async fn second_attempt(&self) -> Result<Value> {
        let is_it = |job: &Value| job["attempt"] == 2 && job["phase"] == "running";
        self.dev.job_until(&self.id, "attempt 2 runs", is_it).await
    }

    /// Lets the second attempt go on, which stands at the same step.
    ///
    /// Waits for the good end, and compares the parameters with those of an undisturbed run.
    ///
    /// # Errors
    /// If the job does not succeed, or ends with other parameters.
    pub async fn same_end(&self, due: &str) -> Result<Value> {
        File::create(self.orders.join("go-2"))?;
        let job = self.dev.phase(&self.id, "succeeded").await?;
        let found = self.dev.final_digest(&self.id)?;
        ensure!(found == due, "{} ended with {found}, an undisturbed run with {due}", self.id);
        ensure!(job["progress"]["step"] == STEPS, "{}", job["progress"]);
        Ok(job)
    }
}

/// Ends its children with itself.
struct Gang(Vec<Child>);

impl Drop for Gang {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ended = child.kill().and_then(|()| child.wait());
        }
    }
}

/// The digest of the parameters after a run that nothing of ours has to do with: the same program, four times by hand.
/// Made once for each run of the tests, by the first that asks.
///
/// # Errors
/// If one of them fails.
pub async fn undisturbed(python: &Path) -> Result<String> {
    let place = target()?.join("jax");
    // Held until the end of this function, by one test at a time; the kernel gives it back however a test ends.
    let turn = File::create(place.join("undisturbed.lock"))?;
    turn.lock().context("wait for the undisturbed run of another test")?;
    let own = std::process::id().to_string();
    let run = std::env::var("NEXTEST_RUN_ID").unwrap_or(own);
    let known = place.join("undisturbed.json");
    let made: Option<Value> = fs::read(&known).ok().and_then(|text| serde_json::from_slice(&text).ok());
    if let Some(digest) =
        made.filter(|made| made["run"] == *run).and_then(|made| made["digest"].as_str().map(str::to_owned))
    {
        return Ok(digest);
    }
    let digest = by_hand(python).await?;
    fs::write(known, json!({"run": run, "digest": digest}).to_string())?;
    Ok(digest)
}

async fn by_hand(python: &Path) -> Result<String> {
    let root = tempfile::Builder::new().prefix("rekindle-jax-").tempdir()?;
    let folder = root.path();
    File::create(folder.join("go-1"))?;
    // A free port: the kernel's, given back at once.
    let coordinator = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let mut gang = Gang(Vec::new());
    for worker in 0..WORKERS {
        let mut command = Command::new(python);
        command
            .args(arguments(folder))
            .envs(ENVIRONMENT)
            .env("REKINDLE_WORKER", worker.to_string())
            .env("REKINDLE_WORKERS", WORKERS.to_string())
            .env("REKINDLE_COORDINATOR", &coordinator)
            .env("REKINDLE_ATTEMPT", "1")
            .env("REKINDLE_RESUME", "0")
            .env("REKINDLE_CHECKPOINT_DIR", folder.join("checkpoints"))
            .env("REKINDLE_PROGRESS_FILE", folder.join(format!("progress-{worker}")))
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(File::create(folder.join(format!("stdout-{worker}")))?)
            .stderr(File::create(folder.join(format!("stderr-{worker}")))?);
        gang.0.push(command.spawn().with_context(|| format!("start {}", python.display()))?);
    }
    for worker in 0..gang.0.len() {
        let status = until("the undisturbed run ends", LONG, async || Ok(gang.0[worker].try_wait()?)).await?;
        if !status.success() {
            let said = fs::read_to_string(folder.join(format!("stderr-{worker}"))).unwrap_or_default();
            bail!("worker {worker} of the undisturbed run: {status}\n{said}");
        }
    }
    let text = fs::read_to_string(folder.join("checkpoints/final.json"))?;
    let value: Value = serde_json::from_str(&text)?;
    Ok(value["digest"].as_str().context("no digest")?.to_owned())
}
