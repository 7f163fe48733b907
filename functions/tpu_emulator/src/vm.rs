//! What the emulator and the supervisor of one VM agree on: files of a boot, and the control calls.
//!
//! A VM has a folder `vms/<vm>/` with `home` and `tmp`, kept over reboots, and one folder `boot-<n>` for each boot.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Variable that marks every process of a VM, with the VM's name and boot as value: what is left of a VM whose
/// supervisor was killed is found by it.
pub(crate) const MARKER: &str = "TPU_EMULATOR_VM";

/// Header that carries the control token.
pub(crate) const TOKEN_HEADER: &str = "rekindle-supervisor-token";

/// Everything a supervisor needs to know (`spec.json`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct VmSpec {
    /// VM name: `t1v-n-…-w-0`.
    pub vm: String,
    /// Proves control calls.
    pub token: String,
    /// Own address.
    pub ip: Ipv4Addr,
    /// Port of the metadata server in an earlier boot, taken again where it is free.
    pub port: Option<u16>,
    /// Marks the processes.
    pub marker: String,
    /// The metadata server's tree.
    pub tree: Value,
    /// Claims of identity tokens but for audience and times.
    pub identity: Value,
    /// PEM file of the key that signs them.
    pub key_file: PathBuf,
    /// Run under bash at the start.
    pub startup_script: Option<String>,
    /// That is started again when it ends with an error.
    #[serde(default)]
    pub restarts_script: bool,
    /// More environment for the startup script.
    pub env: BTreeMap<String, String>,
    /// Working folder and HOME.
    pub home: PathBuf,
    /// TMPDIR.
    pub tmp: PathBuf,
    /// Touched by the emulator while it lives.
    pub alive_file: PathBuf,
    /// When the emulator has been away for so long, the VM ends. Milliseconds.
    pub away_limit_ms: u64,
}

/// What a supervisor tells about itself (`supervisor.json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VmRecord {
    /// Process id.
    pub pid: i32,
    /// Start time of the process, in clock ticks since the machine's boot.
    pub start_time: u64,
    /// Boot id of the machine: process ids mean nothing after another boot.
    pub machine_boot: String,
    /// Address of the metadata server.
    pub address: SocketAddr,
}

/// The startup script's process (`program.json`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VmProgram {
    /// Process id.
    pub pid: i32,
    /// When it ended.
    pub exit: Option<VmExit>,
}

/// How the startup script ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VmExit {
    /// Exit code.
    pub code: Option<i32>,
    /// Signal.
    pub signal: Option<i32>,
    /// When.
    pub at: jiff::Timestamp,
}

/// One TCP connection of a VM's processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Connection {
    /// This end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
}

/// Answer to a cut.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CutReport {
    /// Connections that were shut down.
    pub cut: usize,
    /// Why others could not be, when the kernel refused.
    pub refused: Option<String>,
}

/// The folder of one boot.
#[derive(Debug, Clone)]
pub(crate) struct BootDir(pub PathBuf);

impl BootDir {
    /// The folder of a VM's boot within `vms`.
    pub(crate) fn new(vms: &Path, vm: &str, boot: u32) -> Self {
        Self(vms.join(vm).join(format!("boot-{boot}")))
    }

    /// [`VmSpec`].
    pub(crate) fn spec(&self) -> PathBuf {
        self.0.join("spec.json")
    }

    /// [`VmRecord`].
    pub(crate) fn record(&self) -> PathBuf {
        self.0.join("supervisor.json")
    }

    /// [`VmProgram`].
    pub(crate) fn program(&self) -> PathBuf {
        self.0.join("program.json")
    }

    /// Why the supervisor ended.
    pub(crate) fn end(&self) -> PathBuf {
        self.0.join("end.txt")
    }

    /// Written by the emulator when the VM is to go off: also a supervisor that is only starting obeys.
    pub(crate) fn off(&self) -> PathBuf {
        self.0.join("off")
    }

    /// Held by the supervisor while it lives.
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Guest attributes that the VM wrote.
    pub(crate) fn guest_attributes(&self) -> PathBuf {
        self.0.join("guest-attributes.json")
    }

    /// Output of the startup script.
    pub(crate) fn stdout(&self) -> PathBuf {
        self.0.join("stdout.log")
    }

    /// Errors of the startup script.
    pub(crate) fn stderr(&self) -> PathBuf {
        self.0.join("stderr.log")
    }

    /// Log of the supervisor itself.
    pub(crate) fn log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }
}

/// Reads a JSON file; `None` when it is not there or not complete.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

/// Writes a JSON file so that a reader sees the old or the new content, never a part.
pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(value).map_err(io::Error::other)?;
    write_atomically(path, &text)
}

/// Writes a file beside its place, then renames it there.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, bytes)?;
    std::fs::rename(&beside, path)
}
