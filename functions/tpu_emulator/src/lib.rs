//! An emulator of the Cloud TPU API (v2 and v2alpha1) with real processes as worker VMs.
//!
//! [`Emulator::start`] serves the API on loopback; `gcloud`, Google's client libraries and Rekindle's manager work
//! against it unchanged. Each VM of a node is a supervisor process of its own ([`supervisor_main`]) that outlives the
//! emulator and is found again after a restart on the same state folder.
//!
//! The library knows nothing of Rekindle's jobs. It must not be reachable from outside the machine: it runs the
//! startup scripts it is given.

use futures::future::BoxFuture;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rand::Rng as _;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

mod config;
mod disk;
mod duration;
mod events;
mod fleet;
mod http;
mod identity;
mod model;
mod scenario;
mod shared;
mod supervisor;
mod vm;
mod wire;
mod world;

pub use config::{AWAY_LIMIT, Config};
pub use duration::Span;
pub use scenario::{Scenario, ScenarioError, ZoneSettings};
pub use supervisor::supervisor_main;

use crate::fleet::{Fleet, Template};
use crate::model::{AfterOff, NodeKey, Power, World};
use crate::shared::Shared;

/// How often the emulator shows the supervisors that it lives.
const ALIVE_PERIOD: Duration = Duration::from_secs(5);

/// An emulator that could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address is not a loopback address: whoever reaches the emulator runs programs on this machine.
    #[error("{0} is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The speed is not a positive number.
    #[error("speed {0} is not a positive number")]
    Speed(f64),
    /// The scenario names what does not exist.
    #[error("the scenario cannot be used")]
    Scenario(#[source] ScenarioError),
    /// Another emulator runs on this folder.
    #[error("another emulator uses the state folder {0}")]
    InUse(PathBuf),
    /// The stored state is of another version, damaged, or gone from beside its machines.
    #[error("the state in {} cannot be read: {why}; without its folder everything begins anew", file.display())]
    State {
        /// The file.
        file: PathBuf,
        /// Why not.
        why: String,
    },
    /// A file or socket could not be made.
    #[error("cannot set up {what}")]
    Io {
        /// What was to be set up.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The signing key or the HTTP client could not be made.
    #[error("cannot set up {what}: {reason}")]
    Other {
        /// What was to be set up.
        what: &'static str,
        /// Why not.
        reason: String,
    },
}

/// What happens to the VMs when an emulator shuts down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vms {
    /// They go on; an emulator started on the same folder within [`Config::away_limit`] finds them again.
    Leave,
    /// Every VM is switched off, with all its processes.
    End,
}

/// A running emulator. Dropped without [`Emulator::shutdown`], it stops serving at once and leaves the VMs alone.
#[derive(Debug)]
pub struct Emulator {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
    tasks: Vec<JoinHandle<()>>,
    _lock: File,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Emulator {
    /// Starts serving, and takes back the VMs that an earlier emulator left on the same state folder.
    pub fn start(config: Config) -> BoxFuture<'static, Result<Self, StartError>> {
        Box::pin(async move {
            if !config.addr.ip().is_loopback() {
                return Err(StartError::NotLoopback(config.addr));
            }
            if !(config.speed.is_finite() && config.speed > 0.0) {
                return Err(StartError::Speed(config.speed));
            }
            let vms = config.state_dir.join("vms");
            std::fs::create_dir_all(&vms).map_err(|source| io("the state folder", source))?;
            let state_dir = config.state_dir.canonicalize().map_err(|source| io("the state folder", source))?;
            let vms = state_dir.join("vms");
            let lock = lock(&state_dir).await?;
            let key_file = state_dir.join("identity-key.pem");
            identity::ensure_key(&key_file)
                .map_err(|error| StartError::Other { what: "the signing key", reason: error.to_string() })?;
            let world = load(&state_dir, &config)?;
            // Neither proxies of this machine's environment nor kept connections to VMs that come and go.
            let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build();
            let client =
                client.map_err(|error| StartError::Other { what: "the HTTP client", reason: error.to_string() })?;
            let template = Template {
                key_file: key_file.clone(),
                alive_file: state_dir.join("alive"),
                away_limit: config.away_limit,
                restarts_scripts: config.restarts_scripts,
                env: config.worker_env.clone(),
            };
            touch(&template.alive_file).map_err(|source| io("the sign of life", source))?;
            let alive_file = template.alive_file.clone();
            let fleet = Fleet::new(vms, config.supervisor.clone(), client.clone(), template);
            let events = events::Events::new(config.event_push_url.clone(), client);
            let file = state_dir.join("world.json");
            let shared = Arc::new(Shared::new(world, file, config.speed, fleet, events, key_file));
            let listener = tokio::net::TcpListener::bind(config.addr).await;
            let listener = listener.map_err(|source| io(&format!("the listener at {}", config.addr), source))?;
            let addr = listener.local_addr().map_err(|source| io("the listener", source))?;
            adopt(&shared).await;
            let (stop, stopped) = oneshot::channel();
            let router = http::router(shared.clone());
            let server = tokio::spawn(rekindle_web::serve_here(listener, router, async { drop(stopped.await) }));
            let tasks = vec![tokio::spawn(shared.clone().run_timers()), tokio::spawn(show_life(alive_file))];
            Ok(Self { addr, shared, stop: Some(stop), server, tasks, _lock: lock })
        })
    }

    /// Where the API listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// The endpoint for clients, with the trailing slash that gcloud needs: `http://127.0.0.1:8470/`.
    pub fn endpoint(&self) -> String {
        format!("http://{}/", self.addr)
    }

    /// The seed in force.
    pub fn seed(&self) -> u64 {
        self.shared.read(|world| world.seed)
    }

    /// Workers of all nodes that there are, whatever their state.
    pub fn machines(&self) -> usize {
        self.shared.read(|world| world.nodes.values().map(|node| node.workers.len()).sum())
    }

    /// Stops serving. Requests under way are answered first, for a second at most.
    pub async fn shutdown(mut self, vms: Vms) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), &mut self.server).await;
        for task in &self.tasks {
            task.abort();
        }
        self.shared.close();
        if vms == Vms::End {
            let nodes: Vec<_> = self.shared.read(|world| world.nodes.values().cloned().collect());
            let workers = |node: &model::Node| node.workers.iter().map(|worker| worker.index).collect::<Vec<_>>();
            let off: Vec<_> = nodes.iter().map(|node| self.shared.fleet.power_off(node, &workers(node))).collect();
            for done in off {
                let _ = done.await;
            }
        }
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.shared.close();
        self.server.abort();
        for task in &self.tasks {
            task.abort();
        }
    }
}

fn io(what: &str, source: std::io::Error) -> StartError {
    StartError::Io { what: what.to_owned(), source }
}

/// A process that an emulator was about to start as it was killed holds its lock for a moment more, until it is another program.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

async fn lock(state_dir: &Path) -> Result<File, StartError> {
    let lock = File::create(state_dir.join("lock")).map_err(|source| io("the lock of the state folder", source))?;
    let taken = async {
        while rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(LOCK_PATIENCE, taken).await;
    in_time.map_err(|_| StartError::InUse(state_dir.to_owned()))?;
    Ok(lock)
}

/// The stored world, or a new one.
fn load(state_dir: &Path, config: &Config) -> Result<World, StartError> {
    if let Some(scenario) = &config.scenario {
        scenario.check().map_err(StartError::Scenario)?;
    }
    let file = state_dir.join("world.json");
    if !file.exists() {
        let vms = state_dir.join("vms");
        let mut left = std::fs::read_dir(&vms).map_err(|source| io("the state folder", source))?;
        if left.next().is_some() {
            // Begun anew it would end these.
            return Err(StartError::State {
                file,
                why: format!("it is gone, and {} holds its machines", vms.display()),
            });
        }
        let seed = config.seed.unwrap_or_else(|| rand::rng().random());
        return Ok(World::new(seed, config.scenario.clone().unwrap_or_default()));
    }
    let damaged = |why: String| StartError::State { file: file.clone(), why };
    // A pipe would be waited for.
    if std::fs::metadata(&file).is_ok_and(|there| !there.is_file()) {
        return Err(damaged("it is no regular file".to_owned()));
    }
    let bytes = std::fs::read(&file).map_err(|error| damaged(error.to_string()))?;
    let mut world: World = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
    if !world.is_current() {
        return Err(damaged("it is of another version".to_owned()));
    }
    if let Some(scenario) = &config.scenario
        && *scenario != world.scenario
    {
        world.scenario = scenario.clone();
        world.zones.clear();
    }
    Ok(world)
}

/// Takes back the VMs: those that run are left alone, boots and power-offs that were cut short begin again, and a
/// node whose VMs ended meanwhile is shown as lost.
async fn adopt(shared: &Arc<Shared>) {
    let nodes: Vec<model::Node> = shared.read(|world| world.nodes.values().cloned().collect());
    let vms =
        |node: &model::Node| node.workers.iter().map(|worker| fleet::vm_of(node, worker.index)).collect::<Vec<_>>();
    let known: Vec<fleet::Vm> = nodes.iter().flat_map(vms).collect();
    let machine = shared.fleet.machine();
    machine.sweep(&known).await;
    let (mut off, mut lost): (Vec<NodeKey>, Vec<NodeKey>) = (Vec::new(), Vec::new());
    for node in &nodes {
        match node.power {
            Power::Off => {}
            Power::TurningOff => off.push(node.key()),
            Power::On => {
                let vms = node.workers.iter().map(|worker| (worker.index, fleet::vm_of(node, worker.index)));
                let (unborn, born): (Vec<_>, Vec<_>) = vms.partition(|(_, vm)| machine.record(vm).is_none());
                if born.iter().any(|(_, vm)| machine.alive(vm).is_none()) {
                    lost.push(node.key());
                } else if !unborn.is_empty() {
                    shared.resume_boot(&node.key(), unborn.into_iter().map(|(index, _)| index).collect());
                }
            }
        }
    }
    for key in &off {
        shared.resume_power_off(key);
    }
    // Also persists the world for the first time.
    shared.change(|world, moment| {
        for key in &lost {
            let node = world.nodes.get(&key.name);
            let after_off: Option<AfterOff> = node.and_then(|node| node.after_off.clone());
            if after_off.is_none() {
                world.vms_lost(moment, key);
            }
        }
    });
}

fn touch(file: &Path) -> std::io::Result<()> {
    std::fs::write(file, jiff::Timestamp::now().to_string())
}

async fn show_life(file: PathBuf) {
    let mut period = tokio::time::interval(ALIVE_PERIOD);
    loop {
        period.tick().await;
        if let Err(error) = touch(&file) {
            tracing::warn!("cannot show that the emulator lives: {error}");
        }
    }
}
