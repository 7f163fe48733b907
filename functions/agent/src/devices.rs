//! The TPU devices of the machine: who holds them, and the runtime's lock file.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use procfs::process::FDTarget;

/// Where devices and lock are.
#[derive(Debug, Clone)]
pub(crate) struct Devices {
    /// Usually `/dev`.
    pub(crate) folder: PathBuf,
    /// Usually `/tmp/libtpu_lockfile`.
    pub(crate) lock: PathBuf,
}

/// A process that holds a device or the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    /// Its number.
    pub(crate) pid: i32,
    /// What it holds.
    pub(crate) path: PathBuf,
    /// Its name.
    pub(crate) name: String,
}

impl Devices {
    fn is_device(&self, path: &Path) -> bool {
        let Ok(rest) = path.strip_prefix(&self.folder) else { return false };
        let first = rest.components().next().and_then(|c| c.as_os_str().to_str()).unwrap_or_default();
        // `/dev/vfio/vfio` is the container device; the numbered ones beside it are the chips, and whoever holds one
        // holds both.
        first == "vfio" || first.starts_with("accel")
    }

    /// Everybody who holds a device, or the lock of the runtime.
    pub(crate) fn holders(&self) -> Vec<Holder> {
        let me = std::process::id() as i32;
        let mut found = Vec::new();
        for process in procfs::process::all_processes().into_iter().flatten().flatten().filter(|p| p.pid() != me) {
            let Ok(fds) = process.fd() else { continue };
            let held = fds.flatten().find_map(|fd| {
                let FDTarget::Path(path) = fd.target else { return None };
                (self.is_device(&path) || path == self.lock).then_some(path)
            });
            if let Some(path) = held {
                let name = process.stat().map(|s| s.comm).unwrap_or_default();
                found.push(Holder { pid: process.pid(), path, name });
            }
        }
        for pid in self.lockers() {
            if pid != me && !found.iter().any(|h| h.pid == pid) {
                found.push(Holder { pid, path: self.lock.clone(), name: String::new() });
            }
        }
        found
    }

    /// Processes that hold a kernel lock on the lock file, also where their descriptors cannot be read.
    fn lockers(&self) -> Vec<i32> {
        let Ok(inode) = std::fs::metadata(&self.lock).map(|m| m.ino()) else { return Vec::new() };
        let Ok(locks) = procfs::locks() else { return Vec::new() };
        locks.iter().filter(|l| l.inode == inode).filter_map(|l| l.pid).filter(|pid| alive(*pid)).collect()
    }

    /// Removes the lock file if nobody holds it any more: a program that was killed leaves it, and the next one
    /// refuses to start. True if there was such a file.
    pub(crate) fn remove_stale_lock(&self, holders: &[Holder]) -> bool {
        let is_stale = self.lock.exists() && !holders.iter().any(|h| h.path == self.lock);
        if is_stale {
            match std::fs::remove_file(&self.lock) {
                Ok(()) => tracing::info!(path = %self.lock.display(), "removed a lock whose owner is dead"),
                Err(error) => {
                    tracing::warn!(path = %self.lock.display(), %error, "cannot remove a lock whose owner is dead");
                }
            }
        }
        is_stale
    }
}

fn alive(pid: i32) -> bool {
    procfs::process::Process::new(pid).is_ok_and(|p| p.is_alive())
}

/// Holders in words, for people: one line for each process.
pub(crate) fn describe(holders: &[Holder]) -> Vec<String> {
    let lines: BTreeMap<i32, String> = holders
        .iter()
        .map(|h| (h.pid, format!("rekindle: {} is held by process {} ({})", h.path.display(), h.pid, h.name)))
        .collect();
    lines.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_removed_only_when_nobody_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let devices = Devices { folder: folder.join("dev"), lock: folder.join("libtpu_lockfile") };
        std::fs::create_dir_all(&devices.folder).unwrap();
        std::fs::write(&devices.lock, "").unwrap();
        std::fs::write(devices.folder.join("accel0"), "").unwrap();
        let hold = |path: &Path| {
            // `cat` of a pipe that never ends, with the file as another descriptor.
            std::process::Command::new("cat")
                .stdin(std::process::Stdio::piped())
                .stdout(std::fs::OpenOptions::new().append(true).open(path).unwrap())
                .spawn()
                .unwrap()
        };
        let mut holder = hold(&devices.lock);
        let mut user = hold(&devices.folder.join("accel0"));
        let holders = devices.holders();
        let pids: Vec<u32> = holders.iter().map(|h| h.pid as u32).collect();
        assert!(pids.contains(&holder.id()) && pids.contains(&user.id()), "{holders:?}");
        assert!(describe(&holders).iter().any(|line| line.contains("accel0 is held by process")));
        assert!(!devices.remove_stale_lock(&holders));
        assert!(devices.lock.exists(), "its owner lives");
        for child in [&mut holder, &mut user] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let holders = devices.holders();
        assert_eq!(holders, []);
        assert!(devices.remove_stale_lock(&holders));
        assert!(!devices.lock.exists());
        assert!(!devices.remove_stale_lock(&holders), "there is none");
    }
}
