//! The steps of the machine: prepare, start, end, and what their ends mean.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use tokio::sync::{oneshot, watch};

use rekindle_core::classify::Exit;
use rekindle_core::spec::CommandLine;
use rekindle_wire::agent::Work;

use crate::devices::{self, Devices};
use crate::evidence::Since;
use crate::files::{self, Layout};
use crate::keep::OnItsWay;
use crate::machine::{Doing, Event, Live, Machine, Name, Unprepared};
use crate::metadata::Metadata;
use crate::outputs;
use crate::program::{self, Standing};
use crate::shim::{Ended, Spec, Started};
use crate::state::Step;
use crate::stream::CUT;
use crate::{bundle, logs, procs, spool};

/// What an older attempt left alive gets so long between SIGTERM and SIGKILL.
const STALE_GRACE: Duration = Duration::from_secs(5);
/// A device that somebody else holds is waited for so long.
const DEVICE_WAIT: Duration = Duration::from_mins(1);

/// Of a program that lives, and of which no paper says so any more: it is not begun a second time.
const KEEPER_LOST: &str =
    "rekindle: the program is ended: what kept it and what was written down of it is gone or was replaced";

/// The variable that tells the TPU runtime where to log; the job may set it itself.
pub(crate) const TPU_LOG_DIR: &str = "TPU_LOG_DIR";

impl Machine {
    /// Brings the attempt to its next step towards running.
    pub(crate) fn go(&mut self, run: bool) {
        if !matches!(self.doing, Doing::Nothing) || self.live.is_some() {
            return;
        }
        let Some(attempt) = self.state.attempt.as_mut().filter(|a| a.exit.is_none()) else { return };
        let Some(work) = &attempt.work else { return };
        match attempt.step {
            Step::Fresh => self.prepare(),
            Step::Prepared => {
                let setup = work.setup.clone();
                self.beside(move |done| setup.is_none() || files::read_json(done) == setup);
            }
            Step::Ready if run => self.start(Name::Run),
            // A step whose program is neither being started nor alive has been closed, or will be by its event.
            Step::Ready | Step::Setup | Step::Run => {}
        }
    }

    /// Reads or writes that `setup` was done, beside the machine: true if it was.
    fn beside(&mut self, with: impl FnOnce(&Path) -> bool + Send + 'static) {
        let (setup_done, events) = (self.parts.layout.setup_done(), self.events.clone());
        self.doing = Doing::Preparing(tokio::spawn(async move {
            let is_done = tokio::task::spawn_blocking(move || with(&setup_done)).await.unwrap_or(false);
            let _ = events.send(Event::SetUp(is_done)).await;
        }));
    }

    /// It is known whether `setup` was done.
    pub(crate) fn on_set_up(&mut self, is_done: bool) {
        if !matches!(self.doing, Doing::Preparing(_)) {
            return;
        }
        self.doing = Doing::Nothing;
        let Some(attempt) = self.state.attempt.as_mut() else { return };
        if is_done {
            attempt.step = Step::Ready;
            self.is_dirty = true;
        } else {
            self.start(Name::Setup);
        }
    }

    fn prepare(&mut self) {
        let Some(attempt) = &self.state.attempt else { return };
        let Some(work) = attempt.work.clone() else { return };
        let (is_to_clean, tpu_logs) = (work.clean && !attempt.is_cleaned, self.parts.layout.tpu_logs(attempt.number));
        let (programs, layout) = (self.programs(None), self.parts.layout.clone());
        let (metadata, devices, events) = (self.parts.metadata.clone(), self.devices.clone(), self.events.clone());
        let secrets = self.parts.secrets.clone();
        self.doing = Doing::Preparing(tokio::spawn(async move {
            let (_hold, kill_at) = watch::channel(Instant::now() + STALE_GRACE);
            procs::end(programs, false, kill_at, Some(procs::LEFTOVER_GRACE)).await;
            let _ = tokio::task::spawn_blocking(move || files::make_folder(&tpu_logs)).await;
            let done = match free_devices(devices).await {
                Ok(()) => match secrets.renew(&work.secrets).await {
                    Ok(()) => lay_out(&layout, &metadata, &work, is_to_clean).await,
                    Err(error) => Err(error),
                }
                .map_err(|error| Unprepared { message: format!("rekindle: {error:#}") }),
                Err(held) => Err(held),
            };
            let _ = events.send(Event::Prepared(done)).await;
        }));
    }

    /// The machine is prepared, or cannot be.
    pub(crate) fn on_prepared(&mut self, done: Result<(), Unprepared>) {
        if !matches!(self.doing, Doing::Preparing(_)) {
            return;
        }
        self.doing = Doing::Nothing;
        let Some(attempt) = self.state.attempt.as_mut() else { return };
        match done {
            Ok(()) => {
                attempt.step = Step::Prepared;
                // The emptying is done once: what `setup` puts there afterwards must stay.
                attempt.is_cleaned = attempt.work.as_ref().is_some_and(|work| work.clean);
                self.is_dirty = true;
            }
            Err(Unprepared { message }) => {
                tracing::warn!(message, "cannot prepare");
                self.say(&message);
                self.close(Some(Ended { exit: Exit::Code(1), at: Timestamp::now() }), Instant::now());
            }
        }
    }

    /// Adds a line of ours to the program's standard error, where people and the classifier look.
    pub(crate) fn say(&self, message: &str) {
        let Some(attempt) = &self.state.attempt else { return };
        let folder = self.parts.layout.attempt(attempt.number);
        say_in(&folder, self.parts.layout.root(), "stderr", message);
    }

    /// Says in both streams that some of them may be missing: each has readers who see no other.
    pub(crate) fn say_missing(&self, message: &str) {
        let Some(attempt) = &self.state.attempt else { return };
        let folder = self.parts.layout.attempt(attempt.number);
        for stream in logs::STREAMS {
            say_in(&folder, self.parts.layout.root(), stream, message);
        }
    }

    /// Tells whoever looks at the output of a progress line that could not be read.
    pub(crate) fn complain(&mut self) {
        let complaint = self.state.attempt.as_mut().and_then(|attempt| attempt.progress.complaint());
        if let Some(complaint) = complaint {
            self.say(&complaint);
            self.is_dirty = true;
        }
    }

    fn start(&mut self, name: Name) {
        let mark = self.fence(name).map(|fence| procs::mark_of(&fence.home, &fence.folder, name));
        let layout = self.parts.layout.clone();
        let Some(attempt) = self.state.attempt.as_mut() else { return };
        let Some(work) = &attempt.work else { return };
        let folder = layout.attempt(attempt.number);
        let command = match name {
            Name::Run => Some(&work.run),
            Name::Setup => work.setup.as_ref(),
        };
        let Some(command) = command else { return };
        let mut env = environment(work, &layout, attempt.number, &self.parts.config.home);
        env.extend(mark.map(|mark| (procs::MARK.to_owned(), mark)));
        let spec = Spec {
            argv: match command {
                CommandLine::Shell(text) => vec!["bash".to_owned(), "-c".to_owned(), text.clone()],
                // It holds the attempt, as a program does, until it is told to stop.
                CommandLine::Argv(words) if words.is_empty() => {
                    ["bash", "-c", "exec -a rekindle-workspace sleep infinity"].map(str::to_owned).to_vec()
                }
                CommandLine::Argv(words) => words.clone(),
            },
            env,
            secrets: work.secrets.keys().cloned().collect(),
            cwd: layout.work(),
            boot_id: self.parts.config.boot_id.clone(),
            syncs: name == Name::Setup && layout.has_buffer(),
            root: layout.root().to_owned(),
            stdout: folder.join("stdout"),
            stderr: folder.join("stderr"),
        };
        let size = |path: &Path| std::fs::metadata(path).map_or(0, |m| m.len());
        attempt.since = Since { stdout: size(&spec.stdout), stderr: size(&spec.stderr) };
        attempt.oom_kills = self.kernel.oom_kills();
        attempt.step = match name {
            Name::Run => Step::Run,
            Name::Setup => Step::Setup,
        };
        // Written down before the start, so that an agent that dies in between looks for the program, also in another boot.
        let saved = self.save();
        self.await_start(name, Some((spec, saved)));
    }

    /// Starts a program once that is written down, or with no `new` waits for one that was started before.
    pub(crate) fn await_start(&mut self, name: Name, new: Option<(Spec, OnItsWay)>) {
        let Some(attempt) = &self.state.attempt else { return };
        let folder = self.parts.layout.attempt(attempt.number);
        let papers = self.papers(name);
        let Some(fence) = self.fence(name) else { return };
        let root = self.parts.layout.root().to_owned();
        let (shim, events) = (self.parts.config.shim.clone(), self.events.clone());
        let wanted = attempt.work.as_ref().map(|work| work.secrets.clone()).unwrap_or_default();
        let secrets = self.parts.secrets.clone();
        let (call_off, called_off) = oneshot::channel();
        self.doing = Doing::Starting(new.is_some().then_some(call_off));
        tokio::spawn(async move {
            let log = folder.join("shim.log");
            let standing = match new {
                Some((spec, saved)) => {
                    let needed = async {
                        // A disk that is full says so and holds nothing up; the program would wait for one that hangs, too.
                        saved.answered().await;
                        // They were read when the machine was prepared: only an agent that is new since then asks here.
                        let values = secrets.values(&wanted).await;
                        // Also where the papers say nothing of what was begun.
                        (values, fence.is_begun().await)
                    };
                    let (values, is_begun) = tokio::select! {
                        biased;
                        Ok(()) = called_off => {
                            let _ = events.send(Event::CalledOff(name)).await;
                            return;
                        }
                        values = needed => values,
                    };
                    match values {
                        _ if is_begun => {
                            say_in(&folder, &root, "stderr", KEEPER_LOST);
                            Ok(Standing::Lost)
                        }
                        Ok(values) => program::start_new(&shim, &papers, &spec, &values, &log).await,
                        Err(error) => Err(error),
                    }
                }
                // What has been started needs nothing any more, and is not started twice.
                None => program::begun(&papers).await,
            };
            let _ = events.send(Event::Started(name, standing)).await;
        });
    }

    /// Waits for what becomes of the program of which no paper says any more that it runs: a shim that lives keeps it, and puts its papers
    /// there again; else it is lost.
    pub(crate) fn await_unkept(&mut self) {
        let (Some(attempt), Some(fence)) = (&self.state.attempt, self.fence(Name::Run)) else { return };
        let (folder, root) = (self.parts.layout.attempt(attempt.number), self.parts.layout.root().to_owned());
        let (papers, events) = (self.papers(Name::Run), self.events.clone());
        self.doing = Doing::Starting(None);
        tokio::spawn(async move {
            fence.is_begun().await;
            // Between two looks a shim may have put them there, told the end, and left: it tells before it leaves.
            let is_told = || matches!(program::standing(&papers), Standing::Ended(_));
            let standing = if fence.is_kept() || is_told() {
                program::begun(&papers).await
            } else {
                say_in(&folder, &root, "stderr", KEEPER_LOST);
                Ok(Standing::Lost)
            };
            let _ = events.send(Event::Started(Name::Run, standing)).await;
        });
    }

    /// What must not live when a program of the attempt is started.
    fn fence(&self, name: Name) -> Option<procs::Fence> {
        let folder = self.parts.layout.attempt(self.state.attempt.as_ref()?.number);
        Some(procs::Fence { home: self.parts.config.home.clone(), folder, name })
    }

    /// True where no program runs, but what people order.
    pub(crate) fn is_workspace(&self) -> bool {
        self.state.attempt.as_ref().and_then(|a| a.work.as_ref()).is_some_and(Work::is_workspace)
    }

    /// Begins with the orders that are new.
    pub(crate) fn obey(&mut self) {
        let Some(order) = &self.order else { return };
        self.parts.exec.told_to_stop(&order.exec);
        let is_up = self.live.is_some_and(|live| live.name == Name::Run) && matches!(self.doing, Doing::Nothing);
        let Some(attempt) = self.state.attempt.as_ref().filter(|a| is_up && a.number == order.attempt) else { return };
        let Some(work) = attempt.work.as_ref().filter(|_| attempt.stop.is_none()) else { return };
        let last = self.state.last_exec;
        let new: Vec<_> = order.exec.iter().filter(|e| e.attempt == attempt.number && e.id > last).cloned().collect();
        let Some(newest) = new.iter().map(|order| order.id).max() else { return };
        let env = environment(work, &self.parts.layout, attempt.number, &self.parts.config.home);
        let (secrets, grace) = (work.secrets.clone(), self.stop_grace());
        self.state.last_exec = newest;
        for order in &new {
            self.parts.exec.note(order);
        }
        // Written down before they are begun: an agent that dies in between does not do them twice. Where they cannot be, they wait.
        let (saved, exec) = (self.save(), self.parts.exec.clone());
        tokio::spawn(async move {
            if !saved.kept().await {
                return;
            }
            for order in new {
                tracing::info!(order = order.id, "a person orders");
                tokio::spawn(exec.clone().carry_out(order, env.clone(), secrets.clone(), grace));
            }
        });
    }

    /// A program is not started: the attempt is to end before.
    pub(crate) fn on_called_off(&mut self, name: Name) {
        self.doing = Doing::Nothing;
        if let Some(attempt) = self.state.attempt.as_mut() {
            attempt.step = if name == Name::Run { Step::Ready } else { Step::Prepared };
            self.is_dirty = true;
        }
    }

    /// A program was started, or found.
    pub(crate) fn on_started(&mut self, name: Name, standing: anyhow::Result<Standing>) {
        self.doing = Doing::Nothing;
        self.is_dirty = true;
        let papers = self.papers(name);
        // The program may have removed its papers since they were looked at.
        let started: Option<Started> = match &standing {
            Ok(Standing::Running(started)) => Some(*started),
            Ok(Standing::Ended(_) | Standing::Lost | Standing::NotStarted | Standing::Starting) | Err(_) => {
                papers.begun()
            }
        };
        if let (Name::Run, Some(started), Some(attempt)) = (name, started, self.state.attempt.as_mut()) {
            attempt.started_at = Some(started.at);
        }
        // One that has outlived both its shim and the last agent runs on: its output is taken over.
        let outlives = started.filter(|started| started.family.program.is_alive());
        match (standing, outlives) {
            (Ok(Standing::Running(started)), _) | (Ok(Standing::Lost), Some(started)) => {
                tracing::info!(program = name.as_str(), pid = started.family.program.pid, "runs");
                self.live = Some(Live { name, started });
                let work = self.state.attempt.as_ref().and_then(|attempt| attempt.work.as_ref());
                if let Some(work) = work {
                    self.parts.secrets.learn(started.family.program.pid, &work.secrets);
                }
                let attempt = self.state.attempt.as_ref().map_or(0, |attempt| attempt.number);
                let (events, reaped, taken_over) = (self.events.clone(), self.reaped.clone(), self.taken_over.clone());
                tokio::spawn(async move {
                    let ended = program::end_of(papers, started, reaped, taken_over).await;
                    let _ = events.send(Event::Ended { attempt, name, ended }).await;
                });
            }
            (Ok(Standing::Ended(ended)), _) => {
                self.live = started.map(|started| Live { name, started });
                self.on_ended(name, ended);
            }
            (Ok(Standing::Lost | Standing::NotStarted | Standing::Starting), _) => {
                self.live = started.map(|started| Live { name, started });
                if started.is_some() {
                    // What it said last went with the pipes that only it and its shim had open.
                    self.say_missing(CUT.trim_matches('\n'));
                }
                self.on_ended(name, Ended { exit: Exit::Silent, at: Timestamp::now() });
            }
            (Err(error), _) => {
                self.say(&format!("rekindle: {error:#}"));
                self.on_ended(name, Ended { exit: Exit::Code(126), at: Timestamp::now() });
            }
        }
    }

    /// A program ended.
    pub(crate) fn on_ended(&mut self, name: Name, ended: Ended) {
        tracing::info!(program = name.as_str(), exit = ?ended.exit, "ended");
        let Some(attempt) = self.state.attempt.as_mut().filter(|a| a.exit.is_none()) else { return };
        if matches!(self.doing, Doing::Ending(..)) {
            return;
        }
        if attempt.work.is_none() && self.order.is_none() {
            // An order brings it, and before the first one nobody can be told of the end anyhow.
            self.forgotten = Some((name, ended));
            return;
        }
        if name == Name::Setup && ended.exit == Exit::Code(0) && attempt.stop.is_none() {
            let setup = attempt.work.as_ref().and_then(|w| w.setup.clone());
            self.live = None;
            self.beside(move |done| {
                let written = serde_json::to_vec(&setup).map_err(std::io::Error::other);
                if let Err(error) = written.and_then(|json| files::rewrite_slowly(done, &json)) {
                    tracing::warn!(%error, "cannot write down that setup was done");
                }
                true
            });
            return;
        }
        match attempt.stop {
            // The last agent began to end it: what it left has the time that it was given then.
            Some(stop) => {
                let left = outputs::left_until(stop.kill_at);
                self.close_with(Some(ended), Instant::now() + left, true);
            }
            None => self.close(Some(ended), Instant::now() + STALE_GRACE),
        }
    }
}

/// Adds a line of ours to a stream of the attempt in this folder, which lies below `root`.
fn say_in(folder: &Path, root: &Path, stream: &str, message: &str) {
    // The program may have removed it.
    let _ = spool::again(folder, root);
    if let Ok(mut file) = files::append_to(&folder.join(stream)) {
        // A bar of progress is such a line without an end.
        let begin = if ends_within_a_line(&mut file) { "\n" } else { "" };
        let _ = writeln!(file, "{begin}{message}");
    }
}

fn ends_within_a_line(file: &mut fs::File) -> bool {
    let mut last = [0];
    file.seek(SeekFrom::End(-1)).is_ok() && file.read_exact(&mut last).is_ok() && last[0] != b'\n'
}

/// Asks for what is left of the output to be sent now.
pub(crate) fn flush(flushes: &logs::Flushes) {
    let (done, _) = oneshot::channel();
    let _ = flushes.ask.try_send(done);
}

/// Brings the working directory to what the attempt is to find there.
async fn lay_out(layout: &Layout, metadata: &Metadata, work: &Work, is_to_clean: bool) -> anyhow::Result<()> {
    // An earlier program may have removed them.
    let made = layout.clone();
    tokio::task::spawn_blocking(move || made.make()).await?.context("cannot make the folders of the job")?;
    if is_to_clean {
        bundle::empty(layout).await?;
        tracing::info!("the working directory was emptied");
    }
    bundle::prepare(layout, metadata, work.code.as_deref()).await
}

/// Waits until nobody holds a device; tells who does.
async fn free_devices(devices: Devices) -> Result<(), Unprepared> {
    let limit = Instant::now() + DEVICE_WAIT;
    loop {
        let look = devices.clone();
        let holders = tokio::task::spawn_blocking(move || {
            let holders = look.holders();
            look.remove_stale_lock(&holders);
            holders
        });
        match holders.await {
            Ok(holders) if holders.is_empty() => return Ok(()),
            Ok(holders) if Instant::now() > limit => {
                return Err(Unprepared { message: devices::describe(&holders).join("\n") });
            }
            Ok(_) => tokio::time::sleep(Duration::from_millis(250)).await,
            Err(error) => return Err(Unprepared { message: format!("rekindle: cannot look at the devices: {error}") }),
        }
    }
}

/// The program's environment: the machine's, the job's and ours.
fn environment(work: &Work, layout: &Layout, attempt: u32, home: &Path) -> BTreeMap<String, String> {
    let folder = layout.attempt(attempt);
    // What speaks of the agent itself says nothing to the program.
    let is_agents = |key: &str| {
        key.starts_with("REKINDLE_") || matches!(key, "INVOCATION_ID" | "JOURNAL_STREAM" | "SYSTEMD_EXEC_PID")
    };
    let inherited = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    let mut env: BTreeMap<String, String> = inherited.filter(|(key, _)| !is_agents(key)).collect();
    let path = |name: &str| folder.join(name).display().to_string();
    let fallback = [
        ("HOME", if rustix::process::geteuid().is_root() { "/root".to_owned() } else { home.display().to_string() }),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        // Python holds back 8 KiB of what it says to a file, and loses them with the machine.
        ("PYTHONUNBUFFERED", "1".to_owned()),
    ];
    for (key, value) in fallback {
        env.entry(key.to_owned()).or_insert(value);
    }
    env.insert(TPU_LOG_DIR.to_owned(), layout.tpu_logs(attempt).display().to_string());
    env.extend(work.env.clone());
    env.insert("REKINDLE_PROGRESS_FILE".to_owned(), path("progress"));
    env.insert("REKINDLE_NOTICE_FILE".to_owned(), path("notice"));
    env.insert(procs::MARK.to_owned(), procs::mark(home, &folder));
    env
}
