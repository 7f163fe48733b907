//! The processes of a VM: found by descent, or by the mark in their environment, and signalled without mistaking a
//! reused process id.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::time::{Duration, Instant};

use procfs::process::{Process, all_processes};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Killing a tree that does not end (a process in uninterruptible sleep) is given up after so long.
const KILL_DEADLINE: Duration = Duration::from_secs(20);

/// A process that is alive, told from a later one with the same id by its start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Live {
    /// Process id.
    pub(crate) pid: i32,
    /// Start, in clock ticks since the machine's boot.
    pub(crate) start_time: u64,
}

/// Whether a process ended and only waits to be taken in.
fn is_dead(state: char) -> bool {
    matches!(state, 'Z' | 'X' | 'x')
}

/// The processes below `root`, at any depth and in any session; not `root` itself.
pub(crate) fn descendants(root: i32) -> Vec<Live> {
    let Ok(processes) = all_processes() else { return Vec::new() };
    let mut children: BTreeMap<i32, Vec<(i32, u64, bool)>> = BTreeMap::new();
    for stat in processes.filter_map(Result::ok).filter_map(|process| process.stat().ok()) {
        children.entry(stat.ppid).or_default().push((stat.pid, stat.starttime, is_dead(stat.state)));
    }
    let (mut found, mut open, mut seen) = (Vec::new(), vec![root], BTreeSet::new());
    while let Some(parent) = open.pop() {
        for (pid, start_time, dead) in children.get(&parent).into_iter().flatten() {
            if seen.insert(*pid) {
                open.push(*pid);
                if !dead {
                    found.push(Live { pid: *pid, start_time: *start_time });
                }
            }
        }
    }
    found
}

/// The processes whose environment carries `key=value`.
pub(crate) fn marked(key: &str, value: &str) -> Vec<Live> {
    let Ok(processes) = all_processes() else { return Vec::new() };
    let mut found = Vec::new();
    for process in processes.filter_map(Result::ok) {
        let Ok(environment) = process.environ() else { continue };
        if environment.get(OsStr::new(key)).is_none_or(|found| found != value) {
            continue;
        }
        if let Ok(stat) = process.stat()
            && !is_dead(stat.state)
        {
            found.push(Live { pid: stat.pid, start_time: stat.starttime });
        }
    }
    found
}

/// Whether this very process is alive.
pub(crate) fn is_alive(live: &Live) -> bool {
    let stat = Process::new(live.pid).and_then(|process| process.stat());
    stat.is_ok_and(|stat| stat.starttime == live.start_time && !is_dead(stat.state))
}

/// Sends a signal to this very process; one that is gone is no error.
pub(crate) fn signal(live: &Live, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(live.pid) else { return Ok(()) };
    let handle = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // The handle is of whoever has the id now; from here on it cannot become another.
    if !is_alive(live) {
        return Ok(());
    }
    match pidfd_send_signal(&handle, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Kills every descendant of this process until none is left; `reap` takes in the dead between rounds.
pub(crate) async fn kill_descendants(mut reap: impl FnMut()) -> io::Result<()> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    kill_all(|| {
        reap();
        descendants(own)
    })
    .await
}

/// Kills every process marked with `key=value` until none is left.
pub(crate) async fn kill_marked(key: &str, value: &str) -> io::Result<()> {
    kill_all(|| marked(key, value)).await
}

async fn kill_all(mut find: impl FnMut() -> Vec<Live>) -> io::Result<()> {
    let started_at = Instant::now();
    loop {
        let live = find();
        if live.is_empty() {
            return Ok(());
        }
        for process in &live {
            signal(process, Signal::KILL)?;
        }
        if started_at.elapsed() > KILL_DEADLINE {
            return Err(io::Error::other(format!("{} processes do not end", live.len())));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Stops every descendant of this process, also those made meanwhile.
pub(crate) fn freeze_descendants() -> io::Result<Vec<Live>> {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    let mut frozen = BTreeSet::new();
    loop {
        let fresh: Vec<Live> = descendants(own).into_iter().filter(|live| !frozen.contains(live)).collect();
        if fresh.is_empty() {
            return Ok(frozen.into_iter().collect());
        }
        for live in fresh {
            signal(&live, Signal::STOP)?;
            frozen.insert(live);
        }
    }
}

/// Lets frozen processes go on.
pub(crate) fn thaw(frozen: &[Live]) {
    for live in frozen {
        if let Err(error) = signal(live, Signal::CONT) {
            tracing::warn!("cannot continue process {}: {error}", live.pid);
        }
    }
}
