//! The processes of one test: all that name its folder in their program, arguments, working folder or environment.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// A process, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its arguments.
    pub arguments: String,
    /// Its environment, entries apart by a line end.
    pub environment: String,
    /// Its working folder, where it can be read.
    pub folder: String,
}

impl Process {
    /// Sends it a signal. One that has ended meanwhile is no error.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ended = kill_process(pid, signal);
        }
    }

    /// The value of a variable of its environment.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }
}

fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).replace('\0', "\n"))
}

fn read(pid: i32) -> Option<Process> {
    let folder = Path::new("/proc").join(pid.to_string());
    let stat = text(&folder.join("stat"))?;
    // Behind the name, which may hold anything, comes the state. The dead are waited for by somebody else.
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    if matches!(state, 'Z' | 'X') {
        return None;
    }
    let link = |name: &str| fs::read_link(folder.join(name)).map(|path| path.display().to_string());
    Some(Process {
        pid,
        arguments: text(&folder.join("cmdline"))?.trim_end().replace('\n', " "),
        environment: text(&folder.join("environ"))?,
        folder: format!("{}\n{}", link("cwd").unwrap_or_default(), link("exe").unwrap_or_default()),
    })
}

/// All living processes of the folder. It must be one that no other test uses.
pub fn below(root: &Path) -> Vec<Process> {
    let root = root.display().to_string();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let all = pids.filter_map(read);
    let is_of = |process: &Process| {
        [&process.arguments, &process.environment, &process.folder].iter().any(|text| text.contains(&root))
    };
    all.filter(is_of).collect()
}

/// Ends all processes of the folder, also those that start while others are ended.
pub fn end_all(root: &Path) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while Instant::now() < deadline {
        let found = below(root);
        if found.is_empty() {
            return;
        }
        for process in found {
            process.signal(Signal::KILL);
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
