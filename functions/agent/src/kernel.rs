//! What the kernel did about memory: limits and counters of cgroups v1 and v2, and the lines of its log.
//!
//! Everything is read below one root, `/` on a machine. What cannot be read is not known, and never an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use rekindle_core::classify::Exit;

const SIGKILL: i32 = 9;
/// As a shell tells of a child that was killed.
const CODE_OF_SIGKILL: i32 = 128 + SIGKILL;
/// One record of the kernel's log is never longer.
const RECORD_MAX: usize = 8 << 10;
/// A cgroup is at most so deep.
const DEPTH_MAX: usize = 64;

/// The kernel's files.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    root: PathBuf,
}

/// Counters of the kernel's out-of-memory kills, and the place in its log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OomKills {
    /// In our memory cgroup and below.
    pub(crate) cgroup: Option<u64>,
    /// On the machine.
    pub(crate) machine: Option<u64>,
    /// The newest record of the kernel's log.
    #[serde(default)]
    pub(crate) record: Option<u64>,
}

impl OomKills {
    /// True if the kernel killed something of this program between `self` and `after`.
    ///
    /// The cgroup's counter speaks of us and whoever shares the cgroup. The machine's speaks of everybody, so it
    /// counts only where the cgroup has none and the program's own end looks like it.
    pub(crate) fn explains(self, after: Self, exit: Exit) -> bool {
        let grew = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| b > a);
        match (self.cgroup, after.cgroup) {
            (Some(_), Some(_)) => grew(self.cgroup, after.cgroup) && exit != Exit::Code(0),
            _ => grew(self.machine, after.machine) && is_killed(exit),
        }
    }
}

fn is_killed(exit: Exit) -> bool {
    matches!(exit, Exit::Signal(SIGKILL) | Exit::Code(CODE_OF_SIGKILL))
}

/// A memory cgroup.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct MemoryCgroup {
    folder: PathBuf,
    /// Where its hierarchy begins.
    top: PathBuf,
    is_v2: bool,
}

/// The number in a cgroup's file. `max`, and the huge number of v1, mean no limit.
fn number(folder: &Path, name: &str) -> Option<u64> {
    std::fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok().filter(|n| *n < 1 << 60)
}

impl MemoryCgroup {
    fn oom_kills(&self) -> Option<u64> {
        let file = if self.is_v2 { "memory.events" } else { "memory.oom_control" };
        field(&std::fs::read_to_string(self.folder.join(file)).ok()?, "oom_kill")
    }

    /// Bytes that are free under the tightest limit of the cgroup and those above it.
    fn free(&self) -> Option<u64> {
        let above = self.folder.ancestors().take_while(|folder| folder.starts_with(&self.top)).take(DEPTH_MAX);
        above.filter_map(|folder| self.free_of(folder)).min()
    }

    fn free_of(&self, folder: &Path) -> Option<u64> {
        let (limit, used) = if self.is_v2 {
            (number(folder, "memory.max")?, number(folder, "memory.current")?)
        } else {
            (number(folder, "memory.limit_in_bytes")?, number(folder, "memory.usage_in_bytes")?)
        };
        // What the file cache holds can be had back.
        let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
        let cache = field(&stat, if self.is_v2 { "inactive_file" } else { "total_inactive_file" }).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cache)))
    }
}

/// The number after `key` in lines of the form `key number`.
fn field(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.trim_start_matches(':').split_whitespace().next()?.parse().ok())
}

impl Kernel {
    /// The kernel whose files lie below this folder.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn text(&self, path: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(path)).ok()
    }

    /// The counters now.
    pub(crate) fn oom_kills(&self) -> OomKills {
        let machine = field(&self.text("proc/vmstat").unwrap_or_default(), "oom_kill");
        let record = self.log_after(None).last().map(|(number, _)| *number);
        OomKills { cgroup: self.cgroup_of("self").and_then(|c| c.oom_kills()), machine, record }
    }

    /// Bytes of memory that can still be had, under the limit that binds this process.
    pub(crate) fn memory_free(&self) -> Option<u64> {
        let machine = field(&self.text("proc/meminfo")?, "MemAvailable").map(|kib| kib * 1024);
        let cgroup = self.cgroup_of("self").and_then(|c| c.free());
        machine.into_iter().chain(cgroup).min()
    }

    /// The memory cgroup of a process; v1 where both versions are mounted and v1 has the memory.
    fn cgroup_of(&self, process: &str) -> Option<MemoryCgroup> {
        let text = self.text(&format!("proc/{process}/cgroup"))?;
        let at = |top: PathBuf, path: &str, is_v2| MemoryCgroup {
            folder: top.join(path.trim_start_matches('/')),
            top,
            is_v2,
        };
        let mut v2 = None;
        for line in text.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
            if controllers.split(',').any(|c| c == "memory") {
                return Some(at(self.root.join("sys/fs/cgroup/memory"), path, false));
            }
            if controllers.is_empty() {
                v2 = Some(at(self.root.join("sys/fs/cgroup"), path, true));
            }
        }
        v2
    }

    /// The records of the kernel's log after one, each with its number. None where the log may not be read.
    fn log_after(&self, known: Option<u64>) -> Vec<(u64, String)> {
        let nonblock = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(nonblock).open(self.root.join("dev/kmsg"));
        let Ok(mut file) = opened else { return Vec::new() };
        let mut buffer = vec![0_u8; RECORD_MAX];
        let mut text = String::new();
        loop {
            // The device gives one record for each read, and says with an error that there are no more, or that some
            // were overwritten meanwhile.
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => text.push_str(&String::from_utf8_lossy(&buffer[..n])),
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                Err(_) => break,
            }
        }
        let record = |line: &str| {
            // `priority,number,time,flags;text`; further lines of a record begin with a space.
            let (head, said) = line.split_once(';')?;
            let number = head.split(',').nth(1)?.parse().ok()?;
            known.is_none_or(|known| number > known).then(|| (number, said.to_owned()))
        };
        text.lines().filter(|line| !line.starts_with(' ')).filter_map(record).collect()
    }

    /// The line by which the kernel says that it killed one of these processes for want of memory.
    pub(crate) fn oom_line(&self, since: OomKills, pids: &BTreeSet<i32>) -> Option<String> {
        let killed = |said: &str| {
            let (_, rest) = said.split_once("Killed process ").or_else(|| said.split_once("Kill process "))?;
            rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<i32>().ok()
        };
        let lines = self.log_after(since.record);
        let is_it = |said: &str| {
            said.to_ascii_lowercase().contains("out of memory") && killed(said).is_some_and(|pid| pids.contains(&pid))
        };
        lines.into_iter().map(|(_, said)| said).find(|said| is_it(said))
    }
}

/// The processes of a program while it lives, and the memory cgroups that they were seen in.
///
/// Once a process is dead nobody can tell its cgroup any more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Watch {
    /// Every process of the program so far.
    pub(crate) pids: BTreeSet<i32>,
    /// The kills in each cgroup when it was first seen; our own is not among them.
    cgroups: BTreeMap<MemoryCgroup, u64>,
    at: Option<Instant>,
}

/// Between two looks: short against the life of a process that is put under a limit of its own.
const LOOK_EACH: Duration = Duration::from_millis(500);
/// So many processes are looked at; a program with more (data loaders) has them in the same cgroups.
const PIDS_MAX: usize = 512;

impl Watch {
    /// Looks at the processes of a session, if a look is due.
    pub(crate) fn look(&mut self, kernel: &Kernel, session: i32) {
        if self.at.is_some_and(|at| at.elapsed() < LOOK_EACH) {
            return;
        }
        self.at = Some(Instant::now());
        let all = procfs::process::all_processes().into_iter().flatten().flatten();
        let members: Vec<i32> =
            all.filter_map(|p| p.stat().ok()).filter(|s| s.session == session).map(|s| s.pid).take(PIDS_MAX).collect();
        self.see(kernel, &members);
    }

    fn see(&mut self, kernel: &Kernel, members: &[i32]) {
        let own = kernel.cgroup_of("self");
        for pid in members {
            // Numbers of dead processes are kept: it is the dead that are asked for. Bounded against endless forks.
            if self.pids.len() < 8 * PIDS_MAX {
                self.pids.insert(*pid);
            }
            if let Some(cgroup) = kernel.cgroup_of(&pid.to_string()).filter(|c| Some(c) != own.as_ref()) {
                let kills = cgroup.oom_kills().unwrap_or(0);
                self.cgroups.entry(cgroup).or_insert(kills);
            }
        }
    }

    /// True if the kernel killed somebody in a cgroup of the program, and the program did not end well.
    pub(crate) fn has_seen_kill(&self, exit: Exit) -> bool {
        exit != Exit::Code(0) && self.cgroups.iter().any(|(c, before)| c.oom_kills().is_some_and(|now| now > *before))
    }

    /// Free bytes under the tightest limit of the program's own cgroups.
    pub(crate) fn memory_free(&self) -> Option<u64> {
        self.cgroups.keys().filter_map(MemoryCgroup::free).min()
    }
}

#[cfg(test)]
mod tests;
