//! The shim: the parent of one program. It starts it, keeps its output (see `stream`), waits for it and writes down how it
//! ended, so that exit status and output survive a restart of the agent.
//!
//! It has a session of its own and is the subreaper of everything the program starts, so that nothing escapes the
//! process tree. It leaves when no descendant is left and the output is in its files, whoever else holds the pipes. It
//! must stay small: no network, one thread beside the two that write, no dependence on the agent.
//!
//! It can be killed. Its program goes on then: it holds both ends of its pipes, so no signal ends it, and the agent takes
//! them over within a second (`stream::TakenOver`) and says in the output that some of it may be missing.
//!
//! **Invariants:** for one folder and name, at most one program is ever started: the claim file is made exclusively
//! before the start. What the program wrote is in its files before its end is told, unless the disk takes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use procfs::process::Process;
use rustix::fs::FallocateFlags;
use rustix::process::{WaitOptions, set_child_subreaper, setsid, wait};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use rekindle_core::classify::Exit;

use crate::files;
use crate::machine::Name;
use crate::procs::{Birth, Family};
use crate::program::NOBODY;
use crate::spool;
use crate::stream::{KEPT, Stream};

/// Before the name of a variable that the shim hands on to its program.
// Under their own names they would be the shim's too: `LD_PRELOAD`, say.
pub(crate) const SECRET: &str = "REKINDLE_SECRET_";

/// Kept free on the disk for the program's last words.
// At least half of it goes to one stream: 128 KiB more than the agent keeps of what it sent, so that what it sends makes
// room for the rest, however much that is.
const RESERVE: u64 = 512 << 10;
/// Bytes of the paper that is made beforehand for how it ended: on a disk that its output has filled there is no room for
/// another.
const BLANK: usize = 512;
/// The end of a program is told so long after it at most, where the disk does not take its last words.
const MOMENT: Duration = Duration::from_millis(500);
/// Where nobody knows whether its end can be told, that is waited for so much longer: a machine may be loaded.
// With it the others of a failed worker still know within 5 s.
const SPARE: Duration = Duration::from_secs(2);
/// Its disks have so long to take what `setup` made: one that is out of reach holds nobody up for ever.
const SYNC_MAX: Duration = Duration::from_secs(20);
/// Between two looks whether what was made for the program is still there.
pub(crate) const LOOK_EACH: Duration = Duration::from_secs(1);
/// Between two tries to write down how a program ended.
const RETRY: Duration = Duration::from_millis(200);

/// End of the name of the file that says what to start.
pub(crate) const SPEC: &str = ".spec.json";

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
    /// The boot in which it is started.
    #[serde(default)]
    pub(crate) boot_id: String,
    /// What it made is brought to the disks before its end is told.
    #[serde(default)]
    pub(crate) syncs: bool,
    /// Below this its folders are made again, where they are removed ([`spool::again`]).
    #[serde(default)]
    pub(crate) root: PathBuf,
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

impl Spec {
    /// What stands in a file. One of the former form has no root.
    fn read(path: &Path) -> Option<Self> {
        let mut spec: Self = files::read_json(path)?;
        if spec.root.as_os_str().is_empty() {
            spec.root = spec.stdout.parent()?.parent()?.to_owned();
        }
        Some(spec)
    }
}

impl Papers {
    /// Those of the program `name` in an attempt's folder.
    pub(crate) fn new(folder: &Path, name: &'static str) -> Self {
        Self { folder: folder.to_owned(), name }
    }

    /// The attempt's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A [`Spec`], by the agent.
    pub(crate) fn spec(&self) -> PathBuf {
        self.folder.join(format!("{}{SPEC}", self.name))
    }

    /// The shim's [`Birth`], before it starts anything.
    pub(crate) fn claim(&self) -> PathBuf {
        self.folder.join(format!("{}.claim.json", self.name))
    }

    /// [`Started`], once the program runs.
    pub(crate) fn started(&self) -> PathBuf {
        self.folder.join(format!("{}.started.json", self.name))
    }

    /// How it ended, by the word of this shim.
    pub(crate) fn end(&self, shim: Birth) -> Option<Ended> {
        let is_of_it = |word: &Word| word.shim.map_or_else(|| self.is_of_former_form(), |by| by == shim);
        self.read::<Word>(&self.ended()).filter(is_of_it).map(|word| word.ended)
    }

    /// The shim that has claimed the program.
    pub(crate) fn claimed(&self) -> Option<Birth> {
        self.read(&self.claim())
    }

    /// What was told of its start.
    pub(crate) fn begun(&self) -> Option<Started> {
        self.read(&self.started())
    }

    /// True if the program has copied the claim of another attempt here.
    pub(crate) fn is_of_another(&self) -> bool {
        files::read_json::<Paper<Birth>>(&self.claim()).is_some_and(|claim| !claim.is_of(self.attempt()))
    }

    /// True if the shim is one that said neither whose its papers are nor by whom.
    fn is_of_former_form(&self) -> bool {
        files::read_json::<Paper<Birth>>(&self.claim()).is_some_and(|claim| claim.attempt.is_none())
    }

    /// What is written down for this attempt.
    pub(crate) fn paper<T>(&self, said: T) -> Paper<T> {
        Paper { attempt: Some(self.attempt()), said }
    }

    fn read<T: DeserializeOwned>(&self, path: &Path) -> Option<T> {
        files::read_json::<Paper<T>>(path).filter(|paper| paper.is_of(self.attempt())).map(|paper| paper.said)
    }

    fn attempt(&self) -> u32 {
        let name = self.folder.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.strip_prefix('a')?.parse().ok()).unwrap_or_default()
    }

    /// A [`Word`], once it has ended.
    pub(crate) fn ended(&self) -> PathBuf {
        self.folder.join(format!("{}.ended.json", self.name))
    }

    /// After the program has ended, its shim has so long to say so.
    pub(crate) fn told_within(&self) -> Duration {
        // Only what `setup` made is brought to the disks before.
        let syncs = if self.name == Name::Setup.as_str() { SYNC_MAX } else { Duration::ZERO };
        MOMENT + syncs + SPARE
    }

    /// Room on the disk for its end.
    fn reserve(&self) -> PathBuf {
        self.folder.join(format!("{}.reserve", self.name))
    }

    /// What becomes [`Papers::ended`].
    fn blank(&self) -> PathBuf {
        self.folder.join(format!("{}.blank", self.name))
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
    /// The kernel's numbers of the pipes of its standard output and error.
    #[serde(default)]
    pub(crate) pipes: [u64; 2],
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Exit code or signal; [`Exit::Silent`] if nobody could tell.
    pub(crate) exit: Exit,
    /// When.
    pub(crate) at: Timestamp,
}

/// What a shim writes down, and of which attempt that is: a paper of another, which the program copied, says nothing.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Paper<T> {
    /// Those of the former form lie where they were made.
    #[serde(default)]
    attempt: Option<u32>,
    #[serde(flatten)]
    said: T,
}

impl<T> Paper<T> {
    fn is_of(&self, attempt: u32) -> bool {
        self.attempt.is_none_or(|of| of == attempt)
    }
}

/// [`Ended`] as its shim writes it down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Word {
    /// How.
    #[serde(flatten)]
    ended: Ended,
    /// Who says so; the former form does not tell. It is no proof: a program that wants to lie finds it out. What it copied from
    /// elsewhere or wrote by chance says nothing.
    #[serde(default)]
    shim: Option<Birth>,
}

/// Runs the shim of one program to its end.
///
/// # Errors
/// If it cannot write its files; the agent then sees a shim that died without a word.
pub(crate) fn run(spec_path: &Path) -> anyhow::Result<ExitCode> {
    let papers = Papers::of_spec(spec_path).context("this is no file of the agent")?;
    let spec = Spec::read(spec_path).context("cannot read what to start")?;
    let me = Birth::of(std::process::id() as i32).context("cannot find this process in /proc")?;
    if !files::create_json(&papers.claim(), &papers.paper(me)).context("cannot claim the program")? {
        // Another shim has this program: an agent that was killed between two steps started it.
        return Ok(ExitCode::SUCCESS);
    }
    setsid().context("cannot make a session")?;
    set_child_subreaper(Some(rustix::process::getpid())).context("cannot become a subreaper")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(keep(&spec, me, &papers))?;
    Ok(ExitCode::SUCCESS)
}

/// Starts the program and keeps it to its end.
async fn keep(spec: &Spec, me: Birth, papers: &Papers) -> anyhow::Result<()> {
    // Signals to the shim are taken and dropped: only the program's group is ever told to stop, and a shim that dies
    // early takes the exit status with it. Handlers, unlike ignored signals, are not inherited by the program.
    let _held = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?];
    let mut ends = signal(SignalKind::child())?;
    let (stdout, out) = Stream::new(spec.stdout.clone(), &spec.root).context("cannot make a pipe")?;
    let (stderr, err) = Stream::new(spec.stderr.clone(), &spec.root).context("cannot make a pipe")?;
    let pipes = [stdout.number(), stderr.number()];
    let kept = Kept { streams: [Arc::new(stdout), Arc::new(stderr)], papers, me, spec };
    kept.make_room();
    let started = match start(spec, out, err) {
        Ok(program) => Ok(Started { family: Family { shim: me, program }, at: Timestamp::now(), pipes }),
        Err(error) => {
            kept.streams[1].say(complaint(spec, &error).as_bytes());
            Err(Exit::Code(if error.kind() == ErrorKind::NotFound { 127 } else { 126 }))
        }
    };
    let mut ended = None;
    match started {
        Ok(started) => {
            // It may have filled the disk by now.
            let write =
                || kept.stand_again(None).and_then(|()| files::replace_json(&papers.started(), &papers.paper(started)));
            let written = write().or_else(|_| {
                kept.give_room();
                write()
            });
            match written {
                // It removes the folder just now, and is told of with the next look.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                written => written.context("cannot write down the start")?,
            }
            let pumps = kept.streams.clone().map(|stream| tokio::spawn(async move { stream.pump().await }));
            kept.reap(&started, &mut ends, &mut ended).await?;
            for pump in pumps {
                pump.abort();
            }
        }
        Err(exit) => kept.on_end(exit, &mut ended).await,
    }
    kept.leave(ended).await;
    Ok(())
}

fn start(spec: &Spec, out: OwnedFd, err: OwnedFd) -> std::io::Result<Birth> {
    let (program, arguments) = spec.argv.split_first().ok_or(std::io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(&spec.env)
        .envs(spec.secrets.iter().filter_map(|name| Some((name, std::env::var_os(format!("{SECRET}{name}"))?))))
        .current_dir(&spec.cwd)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .process_group(0);
    let pid = spawn(&mut command)?.id().cast_signed();
    // It is a child that nobody has waited for, so its entry is there even if it has ended already.
    Birth::of(pid).ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// Held while a child is started: it inherits what the process is in that moment.
static STARTING: Mutex<()> = Mutex::new(());

/// Starts a child that is kept from the kernel's out-of-memory killer as this process is.
pub(crate) fn spawn_kept(command: &mut Command) -> std::io::Result<Child> {
    let _one = STARTING.lock().map_err(|_| std::io::Error::other("a lock is broken"))?;
    command.spawn()
}

/// Starts a program of the job. The agent and its shims are kept from the kernel's out-of-memory killer; it must not inherit that.
pub(crate) fn spawn(command: &mut Command) -> std::io::Result<Child> {
    let _one = STARTING.lock().map_err(|_| std::io::Error::other("a lock is broken"))?;
    let me = Process::myself().ok();
    let kept = me.as_ref().and_then(|p| p.oom_score_adj().ok()).filter(|score| *score < 0);
    if let (Some(me), Some(_)) = (&me, kept) {
        let _ = me.set_oom_score_adj(0);
    }
    let child = command.spawn();
    if let (Some(me), Some(score)) = (&me, kept) {
        let _ = me.set_oom_score_adj(score);
    }
    child
}

/// Tells the person what a shell would, where they look for it.
fn complaint(spec: &Spec, error: &std::io::Error) -> String {
    let what =
        if spec.cwd.is_dir() { spec.argv.first().cloned().unwrap_or_default() } else { spec.cwd.display().to_string() };
    format!("rekindle: cannot start {what:?}: {error}\n")
}

/// What is kept of a program.
struct Kept<'a> {
    streams: [Arc<Stream>; 2],
    papers: &'a Papers,
    me: Birth,
    spec: &'a Spec,
}

impl Kept<'_> {
    /// Makes the reserve. A disk that has no room for it has none for much else: the program is started all the same.
    fn make_room(&self) {
        let make = || -> std::io::Result<()> {
            // `setup` had the folder, too.
            let file = files::make_anew(&self.papers.reserve())?;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVE)?;
            Ok(())
        };
        if make().is_err() {
            self.give_room();
        }
        let make = || -> std::io::Result<()> { files::make_anew(&self.papers.blank())?.write_all(&[b' '; BLANK]) };
        let _ = make();
    }

    fn give_room(&self) {
        let _ = fs::remove_file(self.papers.reserve());
    }

    /// Sees to it that the papers are there. The folder is open to the program, which may have removed it.
    fn stand_again(&self, started: Option<&Started>) -> std::io::Result<()> {
        // By what they say: it may have written others in their place, too.
        let is_claimed = self.papers.claimed().is_some_and(|claim| claim == self.me || claim == NOBODY);
        let is_told = started.is_none_or(|started| self.papers.begun() == Some(*started));
        if is_claimed && is_told {
            return Ok(());
        }
        spool::again(&self.papers.folder, &self.spec.root)?;
        if !is_claimed {
            // Also on a full disk: by these the next agent knows that this one lives.
            files::rewrite_json(&self.papers.spec(), self.spec)?;
            files::rewrite_json(&self.papers.claim(), &self.papers.paper(self.me))?;
        }
        started.map_or(Ok(()), |started| files::replace_json(&self.papers.started(), &self.papers.paper(started)))
    }

    /// Writes down how the program ended, over the blank if there is one.
    fn write_end(&self, ended: &Ended) -> std::io::Result<()> {
        self.stand_again(None)?;
        let word = self.papers.paper(Word { ended: *ended, shim: Some(self.me) });
        let over_blank = || -> std::io::Result<()> {
            // The program may have put something else there: a link, or a pipe, which would be waited for.
            let is_ours = files::file_at(&self.papers.blank()).is_some_and(|there| there.len() == BLANK as u64);
            if !is_ours {
                return Err(ErrorKind::NotFound.into());
            }
            let mut bytes = serde_json::to_vec(&word)?;
            bytes.resize(bytes.len().max(BLANK), b' ');
            files::open_file(fs::OpenOptions::new().write(true), &self.papers.blank())?.write_all(&bytes)?;
            fs::rename(self.papers.blank(), self.papers.ended())?;
            // As it is read: what was there may have changed meanwhile.
            let is_told = self.papers.end(self.me) == Some(*ended);
            if is_told { Ok(()) } else { Err(ErrorKind::InvalidData.into()) }
        };
        over_blank().or_else(|_| files::replace_json(&self.papers.ended(), &word))
    }

    /// Waits until no descendant is left.
    async fn reap(
        &self,
        started: &Started,
        ends: &mut tokio::signal::unix::Signal,
        untold: &mut Option<Ended>,
    ) -> anyhow::Result<()> {
        let (program, mut looked) = (started.family.program.pid, Instant::now());
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == program => {
                    self.on_end(exit_of(status), untold).await;
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) if untold.is_some() => {
                    let _ = tokio::time::timeout(RETRY, ends.recv()).await;
                    self.tell(untold);
                }
                Ok(None) => {
                    let _ = tokio::time::timeout(LOOK_EACH.saturating_sub(looked.elapsed()), ends.recv()).await;
                    // Also where something ends all the time.
                    if looked.elapsed() < LOOK_EACH {
                        continue;
                    }
                    looked = Instant::now();
                    if self.stand_again(Some(started)).is_ok() {
                        self.streams.iter().for_each(|stream| stream.look());
                    }
                }
                Err(rustix::io::Errno::CHILD) => return Ok(()),
                Err(error) => return Err(error).context("cannot wait"),
            }
        }
    }

    /// The program has ended: its last words come first, then the word of its end.
    async fn on_end(&self, exit: Exit, untold: &mut Option<Ended>) {
        *untold = Some(Ended { exit, at: Timestamp::now() });
        self.give_room();
        let [out, err] = &self.streams;
        out.catch_up();
        err.catch_up();
        tokio::join!(out.settled(MOMENT), err.settled(MOMENT));
        if self.spec.syncs && exit == Exit::Code(0) {
            // It is not run again after a machine has lost power, so what it made, wherever that is, must be there then.
            let synced = tokio::task::spawn_blocking(rustix::fs::sync);
            let _ = tokio::time::timeout(SYNC_MAX, synced).await;
        }
        self.tell(untold);
    }

    fn tell(&self, untold: &mut Option<Ended>) {
        let Some(ended) = untold else { return };
        // Where all that could hold it is gone nobody looks for it.
        let written = self.write_end(ended);
        if written.map_or_else(|error| spool::is_nowhere(&error, &self.spec.root), |()| true) {
            *untold = None;
        }
    }

    /// Nothing of the program is left: what is still in the pipes is the last.
    async fn leave(&self, mut untold: Option<Ended>) {
        let [out, err] = &self.streams;
        out.catch_up();
        err.catch_up();
        let told = async {
            self.tell(&mut untold);
            while untold.is_some() {
                tokio::time::sleep(RETRY).await;
                self.tell(&mut untold);
            }
        };
        let _ = tokio::join!(tokio::time::timeout(KEPT, told), out.settled(KEPT), err.settled(KEPT));
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

#[cfg(test)]
mod tests;
