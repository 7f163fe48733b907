//! Evidence at the end of a program: everything on the machine that tells why it ended.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use rekindle_core::classify::{Exit, SignalSender};

/// Most bytes of output that travel with an exit, both streams together.
pub(crate) const TAIL_MAX: usize = 64 << 10;

const SIGKILL: i32 = 9;
/// As a shell tells of a child that was killed.
const CODE_OF_SIGKILL: i32 = 128 + SIGKILL;

/// Where the two streams of a program begin in their files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Since {
    /// In the file of standard output.
    pub(crate) stdout: u64,
    /// In the file of standard error.
    pub(crate) stderr: u64,
}

/// Counters of the kernel's out-of-memory kills.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OomKills {
    /// In our memory cgroup and below.
    pub(crate) cgroup: Option<u64>,
    /// On the machine.
    pub(crate) machine: Option<u64>,
}

impl OomKills {
    /// Reads them.
    pub(crate) fn read() -> Self {
        let machine = field(&std::fs::read_to_string("/proc/vmstat").unwrap_or_default(), "oom_kill");
        Self { cgroup: memory_cgroup().and_then(|c| c.oom_kills()), machine }
    }

    /// True if the kernel killed something of this program between `self` and `after`.
    ///
    /// The cgroup's counter speaks of us and whoever shares the cgroup. The machine's speaks of everybody, so it
    /// counts only where the cgroup has none and the program's own end looks like it.
    pub(crate) fn explains(self, after: Self, exit: Exit) -> bool {
        let grew = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| b > a);
        let is_killed = matches!(exit, Exit::Signal(SIGKILL) | Exit::Code(CODE_OF_SIGKILL));
        match (self.cgroup, after.cgroup) {
            (Some(_), Some(_)) => grew(self.cgroup, after.cgroup) && exit != Exit::Code(0),
            _ => grew(self.machine, after.machine) && is_killed,
        }
    }
}

/// The memory cgroup of this process.
struct MemoryCgroup {
    folder: PathBuf,
    is_v2: bool,
}

impl MemoryCgroup {
    fn number(&self, name: &str) -> Option<u64> {
        // `max`, and the huge number of v1, mean no limit.
        std::fs::read_to_string(self.folder.join(name)).ok()?.trim().parse().ok().filter(|n| *n < 1 << 60)
    }

    fn oom_kills(&self) -> Option<u64> {
        let file = if self.is_v2 { "memory.events" } else { "memory.oom_control" };
        field(&std::fs::read_to_string(self.folder.join(file)).ok()?, "oom_kill")
    }

    fn free(&self) -> Option<u64> {
        let (limit, used) = if self.is_v2 {
            (self.number("memory.max")?, self.number("memory.current")?)
        } else {
            (self.number("memory.limit_in_bytes")?, self.number("memory.usage_in_bytes")?)
        };
        // What the file cache holds can be had back.
        let stat = std::fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let cache = field(&stat, if self.is_v2 { "inactive_file" } else { "total_inactive_file" }).unwrap_or(0);
        Some(limit.saturating_sub(used.saturating_sub(cache)))
    }
}

fn memory_cgroup() -> Option<MemoryCgroup> {
    let text = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut v2 = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let below = |root: &str| Path::new(root).join(path.trim_start_matches('/'));
        if controllers.split(',').any(|c| c == "memory") {
            return Some(MemoryCgroup { folder: below("/sys/fs/cgroup/memory"), is_v2: false });
        }
        if controllers.is_empty() {
            v2 = Some(MemoryCgroup { folder: below("/sys/fs/cgroup"), is_v2: true });
        }
    }
    v2
}

/// The number after `key` in lines of the form `key number`.
fn field(text: &str, key: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(key)?.trim_start_matches(':').split_whitespace().next()?.parse().ok())
}

/// Bytes of memory that can still be had, under the limit that binds.
pub(crate) fn memory_free() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let machine = field(&text, "MemAvailable").map(|kib| kib * 1024);
    let cgroup = memory_cgroup().and_then(|c| c.free());
    machine.into_iter().chain(cgroup).min()
}

/// Free bytes of the file system of a folder.
pub(crate) fn disk_free(folder: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(folder).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The end of both streams: standard output, then standard error, which is where programs say what they died of.
///
/// Each gets half of [`TAIL_MAX`], and what the other leaves.
pub(crate) fn tail(stdout: &Path, stderr: &Path, since: Since) -> String {
    let mut out = end_of(stdout, since.stdout);
    let mut err = end_of(stderr, since.stderr);
    let half = TAIL_MAX / 2;
    let room_for_err = TAIL_MAX - 1 - out.len().min(half.max((TAIL_MAX - 1).saturating_sub(err.len())));
    keep_end(&mut err, room_for_err);
    keep_end(&mut out, TAIL_MAX - 1 - err.len());
    let mut text = String::from_utf8_lossy(&out).into_owned();
    if !text.is_empty() && !text.ends_with('\n') && !err.is_empty() {
        text.push('\n');
    }
    text.push_str(&String::from_utf8_lossy(&err));
    // Bytes that are no UTF-8 grow when they are replaced.
    if text.len() > TAIL_MAX {
        let cut = (text.len() - TAIL_MAX..text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
        text.drain(..cut);
    }
    text
}

fn keep_end(bytes: &mut Vec<u8>, most: usize) {
    if bytes.len() > most {
        bytes.drain(..bytes.len() - most);
    }
}

fn end_of(path: &Path, since: u64) -> Vec<u8> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(since.max(size.saturating_sub(TAIL_MAX as u64))))?;
        let mut bytes = Vec::new();
        file.take(TAIL_MAX as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().unwrap_or_default()
}

/// Who sent the signal, if the output tells it as absl's handler does: `*** SIGTERM received by PID 12 (TID 12) on cpu
/// 3 from PID 1; ***`.
pub(crate) fn sender_in(tail: &str, ours: &[i32]) -> Option<SignalSender> {
    tail.lines().rev().find_map(|line| {
        let (_, rest) = line.split_once(" received by PID ")?;
        let (_, from) = rest.split_once(" from PID ")?;
        let pid: i32 = from.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()?;
        Some(match pid {
            1 => SignalSender::Init,
            _ if ours.contains(&pid) => SignalSender::Ourselves,
            _ => SignalSender::Other(pid),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_shares_its_room() {
        let folder = tempfile::tempdir().unwrap();
        let (out, err) = (folder.path().join("out"), folder.path().join("err"));
        std::fs::write(&out, "setup said\nstep 1").unwrap();
        std::fs::write(&err, "boom\n").unwrap();
        assert_eq!(tail(&out, &err, Since { stdout: 11, stderr: 0 }), "step 1\nboom\n");
        std::fs::write(&out, "o".repeat(200_000)).unwrap();
        let text = tail(&out, &err, Since::default());
        assert!(text.len() <= TAIL_MAX && text.ends_with("o\nboom\n") && text.len() > TAIL_MAX - 10);
        std::fs::write(&err, [vec![0xff_u8; 100_000], b"end".to_vec()].concat()).unwrap();
        let text = tail(&out, &err, Since::default());
        assert!(text.len() <= TAIL_MAX && text.ends_with("end"));
        std::fs::write(&err, "e".repeat(200_000)).unwrap();
        let text = tail(&out, &err, Since::default());
        assert!(text.matches('o').count() >= TAIL_MAX / 2 - 2 && text.matches('e').count() >= TAIL_MAX / 2 - 2);
        assert_eq!(tail(&folder.path().join("none"), &folder.path().join("none"), Since::default()), "");
    }

    #[test]
    fn finds_the_sender_of_a_signal() {
        let line =
            |pid| format!("x\n*** SIGTERM received by PID 55 (TID 55) on cpu 3 from PID {pid}; stack trace: ***\ny");
        assert_eq!(sender_in(&line(1), &[7]), Some(SignalSender::Init));
        assert_eq!(sender_in(&line(7), &[7]), Some(SignalSender::Ourselves));
        assert_eq!(sender_in(&line(9), &[7]), Some(SignalSender::Other(9)));
        assert_eq!(sender_in("received by PID 1", &[]), None);
    }

    #[test]
    fn an_oom_kill_of_strangers_is_no_evidence() {
        let with = |cgroup, machine| OomKills { cgroup, machine };
        let killed = Exit::Signal(9);
        assert!(with(Some(1), Some(5)).explains(with(Some(2), Some(6)), Exit::Code(1)));
        assert!(!with(Some(1), Some(5)).explains(with(Some(1), Some(6)), killed));
        assert!(with(None, Some(5)).explains(with(None, Some(6)), killed));
        assert!(!with(None, Some(5)).explains(with(None, Some(6)), Exit::Code(1)));
        assert!(!with(None, None).explains(with(None, None), killed));
    }

    #[test]
    fn reads_the_machine() {
        assert!(memory_free().is_some_and(|free| free > 0));
        assert!(disk_free(Path::new("/")).is_some_and(|free| free > 0));
        assert_eq!(field("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", "oom_kill"), Some(3));
    }
}
