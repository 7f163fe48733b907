//! Everything in one process: the emulated cloud, the functions, and what triggers them. `dev` leaves it running,
//! `demo` puts a job on it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rekindle_core::settings::Settings;
use rekindle_engine::Engine;
use rekindle_local::{
    FileObjects, HttpProbe, LocalDeadLetters, LocalEvents, LocalHints, LocalTicker, LocalTopic, LocalWakeups,
    OpenError, RandomIds, RedbDocs, Subscription, SystemClock, UdpBells,
};
use rekindle_ports::docs::Docs;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{Installation, Store};
use rekindle_ports::world::{Clock, DeadLetters, Events, Hints, Objects as _};
use rekindle_tpu_emulator::{Config, Emulator, Scenario, StartError, Vms};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::former::{self, Former};
use super::places::{Binary, Places, listen};
use super::world::{self, PROJECT};
use super::{cloud, routes};
use crate::embedded;
use crate::exit::Exit;
use crate::fault::{Fault, Result};

/// Between two ticks, as Cloud Scheduler sends them; divided by the speed.
const TICK: Duration = Duration::from_mins(1);
/// What is on its way at the end may still arrive.
const GRACE: Duration = Duration::from_secs(2);

/// How a stack is started.
pub(crate) struct Options {
    /// The state folder.
    pub(crate) places: Places,
    /// Port of the functions; 0 is a free one.
    pub(crate) port: u16,
    /// Port of the Cloud TPU API; 0 is a free one.
    pub(crate) tpu_port: u16,
    /// Capacity, quota and latencies.
    pub(crate) scenario: Option<Scenario>,
    /// Seed of the emulator.
    pub(crate) seed: u64,
    /// Divides the waits of emulator, agents and ticker.
    pub(crate) speed: f64,
    /// The manager's waits, divided already.
    pub(crate) settings: Settings,
    /// How long emulated machines go on without us.
    pub(crate) away_limit: Duration,
    /// Address of the Firestore emulator.
    pub(crate) firestore: Option<String>,
    /// Address of the Pub/Sub emulator.
    pub(crate) pubsub: Option<String>,
    /// Most bytes of output that wait on a worker, if it is not the agent's own bound.
    pub(crate) log_backlog: Option<u64>,
}

/// A running stack.
pub(crate) struct Stack {
    /// Address of every function.
    pub(crate) url: String,
    /// Address of the Cloud TPU API, with a slash at its end.
    pub(crate) tpu_url: String,
    /// Ports of earlier starts that another program has, so that workers that live do not reach us.
    pub(crate) unreached: Vec<u16>,
    /// This program, where jobs and supervisors find it.
    pub(crate) binary: std::path::PathBuf,
    emulator: Emulator,
    topics: Vec<Arc<LocalTopic>>,
    wakeups: Arc<LocalWakeups>,
    ticker: LocalTicker,
    stopping: Arc<AtomicBool>,
    stop: watch::Sender<()>,
    server: JoinSet<()>,
}

/// Hints, events and dead letters, and the topics behind them that are ours to close.
pub(super) struct Messages {
    pub(super) hints: Arc<dyn Hints>,
    pub(super) events: Arc<dyn Events>,
    pub(super) dead_letters: Arc<dyn DeadLetters>,
    pub(super) topics: Vec<Arc<LocalTopic>>,
}

impl Stack {
    /// Starts everything; returns once it answers. State of an earlier start on the same folder goes on.
    pub(crate) async fn start(options: Options) -> Result<Self> {
        let places = &options.places;
        remembers(&options)?;
        let last = places.last_ports();
        let listener = listen(options.port, last.api).await?;
        let address = listener.local_addr().map_err(Fault::from)?;
        let url = format!("http://{address}");
        let binary = places.own_binary()?;
        let emulator = emulator(&options, &binary.path, &url, last.tpu).await?;
        let tpu_url = emulator.endpoint();
        let ports = last.then(address.port(), emulator.local_addr().port(), emulator.machines() > 0);
        places.remember(&ports)?;

        let store = store(&options).await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let installation = rekindle_server::installation::load(&store, clock.as_ref(), &RandomIds).await;
        let installation = installation.map_err(|error| broken("the store", &error))?;
        let objects = FileObjects::open(places.bucket(), &url).map_err(|error| broken("the object store", &error))?;
        let mut metadata = agent_artefact(&objects, &binary, &url).await?;
        // Workers have an address each, so that the number of one of our own ports is free on theirs.
        let bell_port = ports.bell;
        metadata.insert("rekindle-bell-port".to_owned(), bell_port.to_string());
        let messages = match &options.pubsub {
            Some(address) => cloud::messages(address, &url, &installation.id).await?,
            None => local_messages(&url, places, &installation.id)?,
        };
        // Waits are divided in the settings; the clock is the machine's.
        let wakeups = LocalWakeups::start(format!("{url}/functions/reconcile"), Arc::clone(&clock), 1.0);
        let wakeups = Arc::new(wakeups.map_err(|error| broken("wake-ups", &error))?);
        let engine = Engine {
            ports: rekindle_ports::Ports {
                store,
                tpu: cloud::tpu(&tpu_url),
                hints: messages.hints,
                wakeups: Arc::clone(&wakeups) as _,
                bells: Arc::new(UdpBells::new(Ipv4Addr::LOCALHOST.into(), bell_port)),
                events: messages.events,
                dead_letters: messages.dead_letters,
                objects: Arc::new(objects.clone()),
                clock: Arc::clone(&clock),
                ids: Arc::new(RandomIds),
                probe: Arc::new(HttpProbe::new(format!("{url}/live")).map_err(|error| broken("the probe", &error))?),
            },
            settings: Arc::new(options.settings),
            deployment: Arc::new(world::deployment(&options.places, &url, metadata)),
            installation: Arc::new(installation),
        };
        let stopping = Arc::new(AtomicBool::new(false));
        let router = routes::all(engine.clone(), &objects, Arc::clone(&stopping));
        let (stop, stopped) = watch::channel(());
        let former = Former::listen(&ports.former).await;
        let unreached = former.unreached();
        let mut server = former.serve(&router, &stopped);
        server.spawn(rekindle_web::serve_here(listener, router, former::end(stopped)));
        // What workers told just before is stored; the hints of it were in memory, and a tick takes only what is due.
        if let Err(error) = engine.hint_live("start of rekindle dev").await {
            tracing::warn!(%error, "jobs could not be looked at; each is when it is due");
        }
        let period = TICK.div_f64(options.speed).max(Duration::from_millis(100));
        let ticker = LocalTicker::start(format!("{url}/functions/tick"), period, clock);
        let ticker = ticker.map_err(|error| broken("the ticker", &error))?;
        let (binary, topics) = (binary.path, messages.topics);
        Ok(Self { url, tpu_url, unreached, binary, emulator, topics, wakeups, ticker, stopping, stop, server })
    }

    /// Emulated machines that there are.
    pub(crate) fn machines(&self) -> usize {
        self.emulator.machines()
    }

    /// Stops everything; `vms` says what becomes of the emulated machines.
    pub(crate) async fn stop(self, vms: Vms) {
        self.stopping.store(true, Ordering::Relaxed);
        self.ticker.close(GRACE).await;
        self.wakeups.close(GRACE).await;
        for topic in &self.topics {
            topic.close(GRACE).await;
        }
        drop(self.stop);
        let mut server = self.server;
        // Answers are taken as slowly as their reader likes.
        let ended = async { while server.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, ended).await.is_err() {
            server.abort_all();
        }
        self.emulator.shutdown(vms).await;
    }
}

pub(super) fn broken(what: &str, error: &(dyn std::error::Error + 'static)) -> Fault {
    Fault::unexpected(format!("cannot start {what}"))
        .caused_by(error)
        .next("`rekindle doctor` checks this machine; a new folder for --state starts from nothing")
}

/// A store that forgot what is still here: begun anew, it would take the TPUs for somebody else's, and leave them to run.
fn forgotten(places: &Places, left: &Path) -> Fault {
    Fault::input(format!("the store {} is gone, or empty", places.store().display()))
        .because(format!("{} holds what belongs to it", left.display()))
        .next(format!(
            "put it back there; or remove all of {} to begin anew, without its jobs",
            places.root().display()
        ))
}

/// What is stored here cannot be read.
fn damaged(what: &str, error: &(dyn std::error::Error + 'static), places: &Places) -> Fault {
    broken(what, error).next(format!(
        "put a good copy of the file in its place; or remove all of {} to begin anew, or name another folder with --state",
        places.root().display()
    ))
}

async fn emulator(options: &Options, binary: &Path, url: &str, last_port: u16) -> Result<Emulator> {
    let supervisor = vec![binary.as_os_str().to_owned(), OsString::from(embedded::SUPERVISE)];
    let config = |port: u16| Config {
        addr: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        scenario: options.scenario.clone(),
        seed: Some(options.seed),
        speed: options.speed,
        event_push_url: Some(format!("{url}/functions/tpu-events")),
        worker_env: worker_env(options.speed, options.log_backlog, world::secret_manager()),
        // The agent has nobody else, and a program that sends SIGTERM to every process of its user ends both.
        restarts_scripts: true,
        away_limit: options.away_limit,
        ..Config::new(options.places.tpu(), supervisor.clone())
    };
    if options.tpu_port == 0
        && last_port != 0
        && let Ok(emulator) = Emulator::start(config(last_port)).await
    {
        return Ok(emulator);
    }
    Emulator::start(config(options.tpu_port)).await.map_err(|error| {
        let fault = broken("the Cloud TPU emulator", &error);
        if matches!(&error, StartError::Io { source, .. } if source.kind() == ErrorKind::AddrInUse) {
            let asked = options.tpu_port;
            return fault
                .exits(Exit::Fault)
                .next(format!("end what uses port {asked}, or take another with --tpu-port (0 takes a free one)"));
        }
        if matches!(error, StartError::InUse(_)) {
            return fault
                .exits(Exit::Fault)
                .next("another `rekindle dev` runs on this state folder; name another with --state and --tpu-port");
        }
        if matches!(error, StartError::State { .. }) {
            return damaged("the Cloud TPU emulator", &error, &options.places);
        }
        fault
    })
}

/// The agent's own waits, divided as all others, its bound, and where it reads secrets.
fn worker_env(speed: f64, log_backlog: Option<u64>, secret_manager: Option<String>) -> BTreeMap<String, String> {
    let millis = |normal: f64, least: f64| format!("{:.0}", (normal / speed).max(least));
    let bound = log_backlog.map(|bytes| ("REKINDLE_LOG_BACKLOG_BYTES".to_owned(), bytes.to_string()));
    let waits = [
        ("REKINDLE_LOG_FLUSH_MS".to_owned(), millis(2_000.0, 100.0)),
        ("REKINDLE_PREEMPTION_NOTICE_MS".to_owned(), millis(30_000.0, 100.0)),
        // Less than `Settings::outputs_wait` at any speed: else a machine goes while its agent still collects.
        ("REKINDLE_OUTPUTS_MS".to_owned(), millis(240_000.0, 0.0)),
    ];
    let secrets = secret_manager.map(|host| (world::SECRET_MANAGER.to_owned(), host));
    waits.into_iter().chain(bound).chain(secrets).collect()
}

/// Refuses a store file that is gone, or empty, before another is made in its place. With the emulator of Firestore the store is
/// elsewhere.
fn remembers(options: &Options) -> Result<()> {
    match options.places.left_without_store().filter(|_| options.firestore.is_none()) {
        Some(left) => Err(forgotten(&options.places, &left)),
        None => Ok(()),
    }
}

async fn store(options: &Options) -> Result<Store> {
    let store = Store::new(docs(options).await?);
    let known = store.read::<Installation>(&Kind::Installation).await;
    let is_new = known.map_err(|error| broken("the store", &error))?.is_none();
    // Also where the file is whole, and holds nothing.
    match options.places.left().filter(|_| is_new && options.firestore.is_none()) {
        Some(left) => Err(forgotten(&options.places, &left)),
        None => Ok(store),
    }
}

async fn docs(options: &Options) -> Result<Arc<dyn Docs>> {
    if let Some(address) = &options.firestore {
        return cloud::docs(address).await;
    }
    let path = options.places.store();
    let opened = tokio::task::spawn_blocking(move || RedbDocs::open(path)).await;
    // What is no store at all may be more than its reader can bear.
    let opened = opened.map_err(|error| {
        damaged("the store", &error, &options.places).because(options.places.store().display().to_string())
    })?;
    Ok(Arc::new(opened.map_err(|error| not_open(&error, &options.places))?))
}

fn not_open(error: &OpenError, places: &Places) -> Fault {
    match error {
        // What was given is taken, as a port can be.
        OpenError::InUse(_) => broken("the store", error)
            .exits(Exit::Fault)
            .next("another `rekindle dev` runs on this state folder; name another with --state"),
        OpenError::Newer { .. } => {
            broken("the store", error).next("start the version that wrote it, or name another folder with --state")
        }
        OpenError::Broken { .. } => damaged("the store", error, places),
    }
}

/// Puts this program into the object store under its digest; answers the node metadata by which workers find it.
async fn agent_artefact(objects: &FileObjects, binary: &Binary, url: &str) -> Result<BTreeMap<String, String>> {
    let name = format!("agent/{}", binary.sha256);
    let fault = |error: &rekindle_ports::world::WorldError| broken("the agent's artefact", error);
    let size = objects.size(&name).await.map_err(|error| fault(&error))?;
    if size != Some(binary.bytes.len() as u64) {
        objects.put(&name, binary.bytes.clone().into()).await.map_err(|error| fault(&error))?;
    }
    Ok(BTreeMap::from([
        ("rekindle-agent-url".to_owned(), format!("{url}/objects/{name}")),
        ("rekindle-agent-sha256".to_owned(), binary.sha256.clone()),
        ("rekindle-agent-args".to_owned(), embedded::AGENT.to_owned()),
    ]))
}

fn local_messages(url: &str, places: &Places, installation: &rekindle_core::ids::InstallationId) -> Result<Messages> {
    let dead_letters: Arc<dyn DeadLetters> = Arc::new(LocalDeadLetters::new(places.dead_letters()));
    let push = |name: &str| Subscription::new(name, format!("{url}/functions/{name}"));
    let topic = |name: &str, subscriptions: Vec<Subscription>| {
        LocalTopic::new(PROJECT, name, subscriptions).map(Arc::new).map_err(|error| broken("a topic", &error))
    };
    let hints = topic("rekindle-hints", vec![push("reconcile")])?;
    // A webhook that is tried again and again must outlive this process; hints the tick repairs.
    let events = LocalTopic::new(PROJECT, "rekindle-events", vec![push("notify")])
        .and_then(|topic| topic.kept_in(places.events()))
        .map(Arc::new)
        .map_err(|error| broken("the topic of events", &error))?;
    Ok(Messages {
        hints: Arc::new(LocalHints::new(Arc::clone(&hints))),
        events: Arc::new(LocalEvents::new(Arc::clone(&events), installation.clone())),
        dead_letters,
        topics: vec![hints, events],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_start_is_named_with_its_cause_and_the_next_step() {
        let text = broken("the ticker", &std::io::Error::other("no timer")).text();
        let said = [
            "cannot start the ticker",
            "no timer",
            "`rekindle doctor` checks this machine; a new folder for --state starts from nothing",
        ];
        assert!(said.iter().all(|word| text.contains(word)), "{text}");
    }

    #[test]
    fn of_a_store_that_is_not_opened_nobody_is_blamed_but_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        let places = Places::open(folder.path()).unwrap();
        let path = || places.store().display().to_string();
        for (error, cause, next) in [
            (OpenError::InUse(path()), "is in use by another process", "another `rekindle dev` runs on"),
            (
                OpenError::Newer { path: path(), found: 9 },
                "has layout 9",
                "start the version that wrote it, or name another folder with --state",
            ),
            (
                OpenError::Broken { path: path(), why: "odd".into() },
                "store.redb: odd",
                "put a good copy of the file in",
            ),
        ] {
            let fault = not_open(&error, &places);
            let text = fault.text();
            assert!(text.contains(cause) && text.contains(next), "{text}");
            assert_eq!(text.contains("another `rekindle dev`"), matches!(error, OpenError::InUse(_)), "{text}");
            assert_eq!(fault.exit() == Exit::Fault, matches!(error, OpenError::InUse(_)), "{text}");
        }
    }

    #[test]
    fn workers_read_secrets_where_they_are_lent_from() {
        let env = |host: Option<&str>| worker_env(1.0, None, host.map(str::to_owned));
        assert_eq!(env(Some("127.0.0.1:9"))["SECRET_MANAGER_EMULATOR_HOST"], "127.0.0.1:9");
        assert!(!env(None).contains_key("SECRET_MANAGER_EMULATOR_HOST"));
    }

    #[test]
    fn agents_give_up_their_outputs_before_their_machine_goes_at_any_speed() {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            agent: rekindle_agent::AgentArgs,
        }
        let given = |speed: f64| worker_env(speed, None, None)["REKINDLE_OUTPUTS_MS"].parse::<u64>().unwrap();
        for speed in [0.01, 1.0, 10.0, 1000.0] {
            let kept = rekindle_core::settings::Settings::local().scaled(speed).outputs_wait;
            assert!(std::time::Duration::from_millis(given(speed)) < kept, "{speed}");
        }
        let alone: Alone = clap::Parser::parse_from(["agent"]);
        assert_eq!(given(1.0), alone.agent.outputs_ms, "as in the cloud");
    }
}
