//! Where the local mode keeps its things, so that a restart finds them: folders, ports, its own binary.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rekindle_wire::v1::VersionView;
use serde::{Deserialize, Serialize};

use crate::api::{Api, typed};
use crate::config::{Origin, Server};
use crate::fault::{Fault, Result};

/// Beginning of the name of a copy that is not whole yet; the process that makes it follows.
const COPY: &str = ".new-";

/// The state folder.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    root: PathBuf,
}

/// Ports of the last start. Workers that live know them, so that they are taken again where nobody asks for others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ports {
    /// Every function.
    pub(crate) api: u16,
    /// The Cloud TPU API.
    pub(crate) tpu: u16,
    /// Where workers hear their bells.
    #[serde(default)]
    pub(crate) bell: u16,
    /// Every function, at earlier starts whose workers may live.
    #[serde(default)]
    pub(crate) former: Vec<u16>,
}

impl Ports {
    /// The ports of a start at `api` and `tpu` after this one. Workers that live keep what their machines were made with.
    pub(crate) fn then(&self, api: u16, tpu: u16, has_machines: bool) -> Self {
        if !has_machines || self.api == 0 {
            return Self { api, tpu, bell: api, former: Vec::new() };
        }
        let bell = if self.bell == 0 { self.api } else { self.bell };
        let known = self.former.iter().copied().chain([self.api]);
        let mut former: Vec<u16> = known.filter(|port| *port != api).collect();
        former.sort_unstable();
        former.dedup();
        Self { api, tpu, bell, former }
    }
}

impl Places {
    /// Makes the folder, for this user alone: it holds secrets and runs what is in it.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let fault = |error: &std::io::Error| {
            Fault::input(format!("cannot use the state folder {}", root.display()))
                .caused_by(error)
                .next("name another with --state")
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(|error| fault(&error))?;
        let root = root.canonicalize().map_err(|error| fault(&error))?;
        let places = Self { root };
        for folder in [places.bucket(), places.tpu(), places.bin()] {
            fs::create_dir_all(folder).map_err(|error| fault(&error))?;
        }
        Ok(places)
    }

    /// The usual folder of this user: `$XDG_STATE_HOME/rekindle/dev`, else below `~/.local/state`.
    pub(crate) fn usual() -> Result<PathBuf> {
        let folder = crate::state::folder(|name| std::env::var_os(name));
        folder
            .map(|folder| folder.join("dev"))
            .ok_or_else(|| Fault::input("there is no home folder").next("name a state folder with --state"))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.root.join("store.redb")
    }

    /// What an earlier start has left here beside a store that is gone, or empty: of its jobs nobody knows any more then.
    pub(crate) fn left_without_store(&self) -> Option<PathBuf> {
        let has_store = fs::metadata(self.store()).is_ok_and(|found| found.len() > 0);
        if has_store { None } else { self.left() }
    }

    /// What is made here once there is a store: our own program for the workers, what jobs have saved, and machines.
    pub(crate) fn left(&self) -> Option<PathBuf> {
        let holds = |folder: &PathBuf| fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
        [self.bucket().join("agent"), self.bucket().join("jobs"), self.tpu().join("vms")].into_iter().find(holds)
    }

    /// Objects, and by default checkpoints: as one bucket in the cloud.
    pub(crate) fn bucket(&self) -> PathBuf {
        self.root.join("bucket")
    }

    pub(crate) fn tpu(&self) -> PathBuf {
        self.root.join("tpu")
    }

    /// Events that `notify` has not taken yet.
    pub(crate) fn events(&self) -> PathBuf {
        self.root.join("events")
    }

    pub(crate) fn dead_letters(&self) -> PathBuf {
        self.root.join("dead-letters.jsonl")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.root.join("rekindle.log")
    }

    fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    fn ports(&self) -> PathBuf {
        self.root.join("ports.json")
    }

    /// The ports of the last start; zeros if there was none.
    pub(crate) fn last_ports(&self) -> Ports {
        // A pipe would be waited for; it is replaced with what is remembered.
        let is_file = fs::metadata(self.ports()).is_ok_and(|there| there.is_file());
        let read = is_file.then(|| fs::read(self.ports()).ok()).flatten();
        read.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
    }

    /// Remembers the ports for the next start.
    pub(crate) fn remember(&self, ports: &Ports) -> Result<()> {
        let fault = |error: &dyn std::fmt::Display| {
            Fault::unexpected(format!("cannot write {}", self.ports().display()))
                .because(error.to_string())
                .next("name a folder on a disk with room with --state")
        };
        let bytes = serde_json::to_vec(ports).map_err(|error| fault(&error))?;
        let beside = self.root.join("ports.json.new");
        // What a start that was killed left there, or a pipe, which would be waited for.
        let _ = fs::remove_file(&beside);
        fs::write(&beside, bytes).and_then(|()| fs::rename(&beside, self.ports())).map_err(|error| fault(&error))
    }

    /// Removes the halves of copies whose makers were killed.
    fn remove_left_copies(&self) {
        for entry in fs::read_dir(self.bin()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let maker = name.to_str().and_then(|name| name.strip_prefix(COPY));
            if maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// A copy of this binary under its digest: supervisors, agents and programs go on with it, whatever becomes of
    /// the file that was started.
    pub(crate) fn own_binary(&self) -> Result<Binary> {
        let fault = |error: &std::io::Error| {
            Fault::unexpected("cannot copy this program")
                .caused_by(error)
                .next("name a folder on a disk with room with --state")
        };
        // Also right when the file was replaced meanwhile.
        let bytes = fs::read("/proc/self/exe").map_err(|error| fault(&error))?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
        let sha256 = hex::encode(digest.as_ref());
        let path = self.bin().join(format!("rekindle-{}", &sha256[..16]));
        if fs::metadata(&path).is_ok_and(|found| found.len() == bytes.len() as u64) {
            return Ok(Binary { path, sha256, bytes });
        }
        self.remove_left_copies();
        let beside = self.bin().join(format!("{COPY}{}", std::process::id()));
        let write = || {
            fs::write(&beside, &bytes)?;
            fs::set_permissions(&beside, fs::Permissions::from_mode(0o755))?;
            fs::rename(&beside, &path)
        };
        write().map_err(|error| {
            // A full disk is not made fuller.
            let _ = fs::remove_file(&beside);
            fault(&error)
        })?;
        Ok(Binary { path, sha256, bytes })
    }
}

/// This program, where it stays.
pub(crate) struct Binary {
    /// The copy.
    pub(crate) path: PathBuf,
    /// Its digest, in hex.
    pub(crate) sha256: String,
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
}

/// A listener on loopback: the port that was asked for, else the one of the last start if it is free, else any.
pub(crate) async fn listen(asked: u16, last: u16) -> Result<tokio::net::TcpListener> {
    let bind = |port: u16| tokio::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    if asked == 0
        && last != 0
        && let Ok(listener) = bind(last).await
    {
        return Ok(listener);
    }
    match bind(asked).await {
        Ok(listener) => Ok(listener),
        Err(error) => {
            let fault = Fault::input(format!("cannot listen at 127.0.0.1:{asked}")).caused_by(&error);
            Err(if error.kind() == ErrorKind::AddrInUse { in_use(asked, fault).await } else { fault })
        }
    }
}

/// Whoever has a port is asked for so long what it is.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// The fault of a port that is taken, with what answers there.
async fn in_use(port: u16, fault: Fault) -> Fault {
    let url = format!("http://127.0.0.1:{port}");
    let server = Server { url: url.clone(), origin: Origin::Given, token_command: None };
    let asked = async { typed::<VersionView>(Api::new(server, None)?.get("/version", &[]).await?) };
    let beside = "start this one beside it: rekindle dev --port 0 --tpu-port 0 --state FOLDER";
    match tokio::time::timeout(ANSWER_WITHIN, asked).await {
        Ok(Ok(_)) => {
            return fault
                .because(format!("another `rekindle dev` answers at {url}"))
                .next(format!("use that one (`rekindle --server {url} ps`), or {beside}"));
        }
        Ok(Err(told)) if told.status() == Some(503) => {
            return fault
                .because(format!("another `rekindle dev` at {url} is stopping"))
                .next(format!("start this one again in a few seconds, or {beside}"));
        }
        Ok(Err(_)) | Err(_) => {}
    }
    let why = format!("what has port {port} is no `rekindle dev`");
    fault.because(why).next(format!("end what uses port {port}, or take another with --port (0 takes a free one)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_live_are_served_where_their_machines_were_told() {
        let first = Ports::default().then(9001, 9002, false);
        assert_eq!(first, Ports { api: 9001, tpu: 9002, bell: 9001, former: vec![] });
        let moved = first.then(9003, 9002, true);
        assert_eq!(moved, Ports { api: 9003, tpu: 9002, bell: 9001, former: vec![9001] });
        let again = moved.then(9004, 9005, true);
        assert_eq!(again, Ports { api: 9004, tpu: 9005, bell: 9001, former: vec![9001, 9003] });
        assert_eq!(again.then(9001, 9005, true).former, [9003, 9004], "it is the first again");
        assert_eq!(again.then(9004, 9005, false), Ports { api: 9004, tpu: 9005, bell: 9004, former: vec![] });
        // As an earlier version wrote them.
        let old: Ports = serde_json::from_str(r#"{"api": 9001, "tpu": 9002}"#).unwrap();
        assert_eq!(old.then(9003, 9002, true).bell, 9001);
    }
}
