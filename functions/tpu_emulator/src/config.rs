//! How an emulator is started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::scenario::Scenario;

/// How long VMs go on without their emulator.
pub const AWAY_LIMIT: Duration = Duration::from_mins(10);

/// Settings of an emulator.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the API listens; loopback only. Port 0 takes a free one.
    pub addr: SocketAddr,
    /// Folder of everything that survives a restart: state, VMs, keys. Made if absent. One emulator at a time.
    pub state_dir: PathBuf,
    /// `None`: the stored one, or (in a new folder) unlimited capacity and quota everywhere.
    pub scenario: Option<Scenario>,
    /// Seed of addresses, ids and jitter. `None`: random. A folder with state keeps the seed it has.
    pub seed: Option<u64>,
    /// Every wait is divided by this: latencies, notices, windows. Default 1.
    pub speed: f64,
    /// Command that supervises one VM: program and arguments; the folder of the boot is added as last argument. It
    /// must call [`crate::supervisor_main`] with the arguments after its own.
    pub supervisor: Vec<OsString>,
    /// Where audit entries are delivered as Pub/Sub push requests. `None`: nowhere.
    pub event_push_url: Option<String>,
    /// More environment for startup scripts (they get PATH of the emulator, and nothing else of its environment).
    pub worker_env: BTreeMap<String, String>,
    /// A startup script that ends with an error, and was not killed, is started again, each time after a longer wait, as systemd does it with what such a script
    /// leaves to it on a real VM. Default: not before the next boot, as the script itself there.
    pub restarts_scripts: bool,
    /// How long VMs go on without an emulator on their state folder. Default 10 minutes, in real time.
    pub away_limit: Duration,
}

impl Config {
    /// Defaults: a free port of 127.0.0.1, unlimited zones, real speed.
    pub fn new(state_dir: impl Into<PathBuf>, supervisor: Vec<OsString>) -> Self {
        Self {
            addr: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            state_dir: state_dir.into(),
            scenario: None,
            seed: None,
            speed: 1.0,
            supervisor,
            event_push_url: None,
            worker_env: BTreeMap::new(),
            restarts_scripts: false,
            away_limit: AWAY_LIMIT,
        }
    }
}
