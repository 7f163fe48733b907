//! The shim: the parent of one program. It starts it, waits for it and writes down how it ended, so that the exit
//! status survives a restart of the agent.
//!
//! It has a session of its own and is the subreaper of everything the program starts, so that nothing escapes the
//! process tree; it leaves when no descendant is left. It must stay tiny: no network, no threads, no dependence on the
//! agent.
//!
//! **Invariant:** for one folder and name, at most one program is ever started: the claim file is made exclusively
//! before the start.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context as _;
use jiff::Timestamp;
use procfs::process::Process;
use rustix::process::{WaitOptions, set_child_subreaper, setsid, wait};
use serde::{Deserialize, Serialize};

use rekindle_core::classify::Exit;

use crate::files;
use crate::procs::{Birth, Family};

/// Before the name of a variable that the shim hands on to its program.
// Under their own names they would be the shim's too: `LD_PRELOAD`, say.
pub(crate) const SECRET: &str = "REKINDLE_SECRET_";

/// What to start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Program and arguments; not empty.
    pub(crate) argv: Vec<String>,
    /// Its whole environment but for its secrets.
    pub(crate) env: BTreeMap<String, String>,
    /// Variables with secrets. Their values are never on the disk: the shim has each in its own environment, behind
    /// [`SECRET`].
    #[serde(default)]
    pub(crate) secrets: Vec<String>,
    /// Its working directory.
    pub(crate) cwd: PathBuf,
    /// Standard output is appended here.
    pub(crate) stdout: PathBuf,
    /// Standard error is appended here.
    pub(crate) stderr: PathBuf,
}

/// The files by which shim and agent talk, for one program.
#[derive(Debug, Clone)]
pub(crate) struct Papers {
    folder: PathBuf,
    name: &'static str,
}

impl Papers {
    /// Those of the program `name` in an attempt's folder.
    pub(crate) fn new(folder: &Path, name: &'static str) -> Self {
        Self { folder: folder.to_owned(), name }
    }

    /// A [`Spec`], by the agent.
    pub(crate) fn spec(&self) -> PathBuf {
        self.folder.join(format!("{}.spec.json", self.name))
    }

    /// The shim's [`Birth`], before it starts anything.
    pub(crate) fn claim(&self) -> PathBuf {
        self.folder.join(format!("{}.claim.json", self.name))
    }

    /// [`Started`], once the program runs.
    pub(crate) fn started(&self) -> PathBuf {
        self.folder.join(format!("{}.started.json", self.name))
    }

    /// [`Ended`], once it has ended.
    pub(crate) fn ended(&self) -> PathBuf {
        self.folder.join(format!("{}.ended.json", self.name))
    }

    /// Forgets the program, so that it can be started again.
    pub(crate) fn remove(&self) {
        for path in [self.ended(), self.started(), self.claim()] {
            let _ = fs::remove_file(path);
        }
    }

    fn of_spec(spec: &Path) -> Option<Self> {
        let folder = spec.parent()?.to_owned();
        match spec.file_name()?.to_str()? {
            "run.spec.json" => Some(Self { folder, name: "run" }),
            "setup.spec.json" => Some(Self { folder, name: "setup" }),
            _ => None,
        }
    }
}

/// A program that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Started {
    /// The processes.
    pub(crate) family: Family,
    /// When.
    pub(crate) at: Timestamp,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Exit code or signal; [`Exit::Silent`] if nobody could tell.
    pub(crate) exit: Exit,
    /// When.
    pub(crate) at: Timestamp,
}

/// Runs the shim of one program to its end.
///
/// # Errors
/// If it cannot write its files; the agent then sees a shim that died without a word.
pub(crate) fn run(spec_path: &Path) -> anyhow::Result<ExitCode> {
    let papers = Papers::of_spec(spec_path).context("this is no file of the agent")?;
    let spec: Spec = files::read_json(spec_path).context("cannot read what to start")?;
    let me = Birth::of(std::process::id() as i32).context("cannot find this process in /proc")?;
    if !files::create_json(&papers.claim(), &me).context("cannot claim the program")? {
        // Another shim has this program: an agent that was killed between two steps started it.
        return Ok(ExitCode::SUCCESS);
    }
    setsid().context("cannot make a session")?;
    set_child_subreaper(Some(rustix::process::getpid())).context("cannot become a subreaper")?;
    // Signals to the shim are taken and dropped: only the program's group is ever told to stop, and a shim that dies
    // early takes the exit status with it. Handlers, unlike ignored signals, are not inherited by the program.
    let signals = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let _entered = signals.enter();
    let _held = [
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?,
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?,
        tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup())?,
    ];
    let program = match start(&spec) {
        Ok(program) => program,
        Err(error) => {
            complain(&spec, &error);
            let code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
            files::replace_json(&papers.ended(), &Ended { exit: Exit::Code(code), at: Timestamp::now() })?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    files::replace_json(&papers.started(), &Started { family: Family { shim: me, program }, at: Timestamp::now() })?;
    reap(program.pid, &papers)?;
    Ok(ExitCode::SUCCESS)
}

fn start(spec: &Spec) -> std::io::Result<Birth> {
    let append = |path: &Path| fs::OpenOptions::new().append(true).create(true).open(path);
    let (program, arguments) = spec.argv.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&spec.env)
        .envs(spec.secrets.iter().filter_map(|name| Some((name, std::env::var_os(format!("{SECRET}{name}"))?))))
        .current_dir(&spec.cwd)
        .stdin(Stdio::null())
        .stdout(append(&spec.stdout)?)
        .stderr(append(&spec.stderr)?)
        .process_group(0);
    // The agent and its shims are kept from the kernel's out-of-memory killer; the program must not inherit that.
    let me = Process::myself().ok();
    let kept = me.as_ref().and_then(|p| p.oom_score_adj().ok()).filter(|score| *score < 0);
    if let (Some(me), Some(_)) = (&me, kept) {
        let _ = me.set_oom_score_adj(0);
    }
    let child = command.spawn();
    if let (Some(me), Some(score)) = (&me, kept) {
        let _ = me.set_oom_score_adj(score);
    }
    let pid = child?.id() as i32;
    // It is a child that nobody has waited for, so its entry is there even if it has ended already.
    Birth::of(pid).ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// Tells the person what a shell would, where they look for it.
fn complain(spec: &Spec, error: &std::io::Error) {
    let what =
        if spec.cwd.is_dir() { spec.argv.first().cloned().unwrap_or_default() } else { spec.cwd.display().to_string() };
    if let Ok(mut file) = fs::OpenOptions::new().append(true).create(true).open(&spec.stderr) {
        let _ = writeln!(file, "rekindle: cannot start {what:?}: {error}");
    }
}

fn reap(program: i32, papers: &Papers) -> anyhow::Result<()> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == program => {
                files::replace_json(&papers.ended(), &Ended { exit: exit_of(status), at: Timestamp::now() })?;
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(error) => return Err(error).context("cannot wait"),
        }
    }
}

/// A wait status in our words.
pub(crate) fn exit_of(status: rustix::process::WaitStatus) -> Exit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Silent,
    }
}
