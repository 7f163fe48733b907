//! The worker that a real agent runs on, and looks at its processes.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::cloud::Cloud;

/// No condition takes longer, unless something is broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A machine on which agents run, one after the other.
pub(crate) struct Worker {
    home: tempfile::TempDir,
    agent: Option<Child>,
    address: String,
    boot: u32,
    settings: Vec<(&'static str, String)>,
    is_mounted: bool,
}

impl Worker {
    /// A machine with a running agent.
    pub(crate) fn start(cloud: &Cloud) -> Self {
        Self::start_with(cloud, Vec::new())
    }

    /// A machine with a running agent and these variables.
    pub(crate) fn start_with(cloud: &Cloud, settings: Vec<(&'static str, String)>) -> Self {
        let mut worker = Self::bare(cloud);
        worker.settings = settings;
        worker.start_agent();
        worker
    }

    /// A machine without an agent.
    pub(crate) fn bare(cloud: &Cloud) -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            agent: None,
            address: cloud.address.clone(),
            boot: 1,
            settings: Vec::new(),
            is_mounted: false,
        }
    }

    /// A machine whose disk holds 8 MiB, and whose output is buffered there or elsewhere; `None` where nothing may be
    /// mounted, which root may.
    pub(crate) fn with_small_disk(
        cloud: &Cloud,
        buffer: Option<&Path>,
        settings: Vec<(&'static str, String)>,
    ) -> Option<Self> {
        let mut worker = Self::bare(cloud);
        worker.settings = settings;
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(worker.home()).status();
        worker.is_mounted = mount.is_ok_and(|status| status.success());
        worker.settings.extend(buffer.map(|buffer| ("REKINDLE_BUFFER_DIR", buffer.display().to_string())));
        assert!(worker.is_mounted || !rustix::process::geteuid().is_root(), "root may mount a disk of its own");
        worker.is_mounted.then(|| {
            worker.start_agent();
            worker
        })
    }

    /// Environment of everything on this machine.
    pub(crate) fn environment(&self, command: &mut Command) {
        let home = self.home();
        command
            .env("REKINDLE_HOME", &home)
            .env("SECRET_MANAGER_EMULATOR_HOST", &self.address)
            .env("GCE_METADATA_HOST", &self.address)
            .env("REKINDLE_BOOT_ID", format!("boot-{}", self.boot))
            .env("REKINDLE_DEV_DIR", home.join("dev"))
            .env("REKINDLE_LIBTPU_LOCK", home.join("libtpu_lockfile"))
            .env("REKINDLE_KERNEL_ROOT", Some(home.join("kernel")).filter(|k| k.is_dir()).unwrap_or("/".into()))
            .env("REKINDLE_LOG_FLUSH_MS", "50")
            .env("RUST_LOG", "debug,hyper=info,reqwest=info,hyper_util=info")
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            // A worker has none of its own, whatever the machine of the test has.
            .env_remove("PYTHONUNBUFFERED")
            .stdin(Stdio::null());
    }

    /// Starts an agent.
    pub(crate) fn start_agent(&mut self) {
        self.start_agent_at(Path::new(env!("CARGO_BIN_EXE_rekindle-agent")));
    }

    /// Starts an agent whose file lies there.
    pub(crate) fn start_agent_at(&mut self, binary: &Path) {
        assert!(self.agent.is_none());
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.home().join("agent.log")).unwrap();
        let mut command = Command::new(binary);
        self.environment(&mut command);
        self.agent = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    /// The agent's process.
    pub(crate) fn agent_pid(&self) -> u32 {
        self.agent.as_ref().unwrap().id()
    }

    /// Kills the agent, and nothing else.
    pub(crate) fn kill_agent(&mut self) {
        let mut agent = self.agent.take().unwrap();
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    /// Sends SIGTERM to the agent and waits for its end.
    pub(crate) async fn terminate_agent(&mut self) -> i32 {
        let pid = self.agent.as_ref().unwrap().id();
        rustix::process::kill_process(pid_of(pid), rustix::process::Signal::TERM).unwrap();
        self.agent_exit().await
    }

    /// Waits for the agent's own end.
    pub(crate) async fn agent_exit(&mut self) -> i32 {
        let mut agent = self.agent.take().unwrap();
        let wait = tokio::task::spawn_blocking(move || agent.wait().unwrap());
        let status = tokio::time::timeout(PATIENCE, wait).await.expect("the agent ends").unwrap();
        status.code().unwrap()
    }

    /// The machine is started anew: everything on it is gone.
    pub(crate) fn reboot(&mut self) {
        self.kill_agent();
        self.kill_everything();
        self.boot += 1;
    }

    /// The home folder.
    pub(crate) fn home(&self) -> PathBuf {
        self.home.path().canonicalize().unwrap()
    }

    /// The program's working directory.
    pub(crate) fn work(&self) -> PathBuf {
        self.home().join("jobs/train/g2/work")
    }

    /// Waits until a file of the working directory has a full line, and gives its text.
    pub(crate) async fn line(&self, name: &str) -> String {
        self.lines(name, 1).await.join("\n")
    }

    /// Waits until a file of the working directory has so many full lines, and gives all.
    pub(crate) async fn lines(&self, name: &str, count: usize) -> Vec<String> {
        let path = self.work().join(name);
        poll(&format!("{count} lines in {name}"), || {
            let text = std::fs::read_to_string(&path).ok().filter(|text| text.ends_with('\n'))?;
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        })
        .await
    }

    fn kill_everything(&self) {
        let home = self.home().display().to_string().into_bytes();
        let names = |path: PathBuf| {
            let bytes = std::fs::read(path).unwrap_or_default();
            bytes.windows(home.len()).any(|w| w == home)
        };
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
            if names(entry.path().join("environ")) || names(entry.path().join("cmdline")) {
                let _ = rustix::process::kill_process(pid_of(pid), rustix::process::Signal::KILL);
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        self.kill_everything();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.home().join("agent.log")).unwrap_or_default();
            eprintln!("{log}");
        }
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(self.home.path()).status();
        }
    }
}

fn pid_of(pid: u32) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(pid as i32).unwrap()
}

/// Looks again and again, for what tells nobody that it has happened.
pub(crate) async fn poll<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await; // between two looks
    }
}

/// Waits for the end of a process.
pub(crate) async fn until_dead(pid: &str) {
    poll("a process ends", || (!is_alive(pid)).then_some(())).await;
}

/// True while a process lives; a zombie does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim().starts_with('Z'))
}
