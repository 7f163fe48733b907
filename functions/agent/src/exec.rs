//! Orders of people to a workspace: a command whose output and exit go back to them, or files that are unpacked.
//!
//! **Invariant:** an order is begun at most once, also when the agent restarts: its number is written down before. A
//! command carries the mark of the attempt's programs, and ends with them; one that is told to end takes with it all that it
//! started. What it leaves in the background when it ends by itself stays, as after a shell: what that says is read and
//! thrown away, as long as this agent is there.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use rekindle_core::classify::Exit;
use rekindle_core::exec::{ExecAction, ExecExit, ExecOrder};
use rekindle_core::spec::CommandLine;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;

use crate::api::{Api, CallError, ExecChunk};
use crate::backoff;
use crate::bundle;
use crate::closing::LAST_WORD;
use crate::devices::Devices;
use crate::files::{self, Layout};
use crate::logs::Patience;
use crate::metadata::{Metadata, Node};
use crate::procs::{self, Birth};
use crate::program::Reaped;
use crate::secrets::Secrets;
use crate::shim;

/// Most bytes in one call; what a command says faster than this goes through waits for it in the pipe.
const CHUNK_MAX: usize = 1 << 20;
/// Output is gathered for so long before it is sent.
const GATHER: Duration = Duration::from_millis(100);
/// A command that has ended may have left processes that hold its output open; they are read for so long.
const LEFT_OPEN: Duration = Duration::from_millis(500);
/// What is left in the background says as much as a pipe holds in this time; more waits in there.
const THROW_AWAY_EACH: Duration = Duration::from_millis(10);
/// Between two looks for the end of a command.
const LOOK_EACH: Duration = Duration::from_millis(20);
/// Beginning of the name of the file that stands for an order under way, in its attempt's folder.
const PAPER: &str = "exec-";
/// Beginning of the name of the file, beside it, that says which process leads the group of an order's command. It stays.
const LEADER: &str = "leader-";
/// Exit code of an order whose end nobody saw, and why.
const EXIT_LOST: i32 = 125;
const LOST: &str =
    "the worker's agent was started anew while it ran: what it said since then is lost, and it may still run";
/// Why an order was not begun.
const ENDED: &str = "the workspace gave its TPU back before this was begun";
/// Between two looks whether somebody works on the machine.
const LOOK_FOR_PEOPLE: Duration = Duration::from_secs(20);

/// When the workspace was last used.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activity {
    last_ms: Arc<AtomicI64>,
    /// Orders that are being carried out, until their ends are told.
    running: Arc<watch::Sender<usize>>,
    looked: Option<Instant>,
}

impl Activity {
    /// Now, while an order is carried out.
    pub(crate) fn at(&self) -> Option<Timestamp> {
        if *self.running.borrow() > 0 {
            self.touch();
        }
        let last = self.last_ms.load(Ordering::Relaxed);
        (last > 0).then(|| Timestamp::from_millisecond(last).ok()).flatten()
    }

    /// Beside what is waited for, waits until the ends of all orders are told, too: but not for long.
    pub(crate) async fn with<T>(&self, patience: Patience, other: impl Future<Output = T>) -> T {
        let mut running = self.running.subscribe();
        let all_told = async { drop(running.wait_for(|count| *count == 0).await) };
        let told = tokio::time::timeout(patience.left.min(LAST_WORD), all_told);
        tokio::join!(other, told).0
    }

    fn touch(&self) {
        self.last_ms.fetch_max(Timestamp::now().as_millisecond(), Ordering::Relaxed);
    }

    /// Looks now and then whether a terminal was used, or a program holds a chip.
    pub(crate) fn look(&mut self, dev: &Path, devices: &Devices) {
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_FOR_PEOPLE) {
            return;
        }
        self.looked = Some(Instant::now());
        let (last, me, devices, terminals) =
            (Arc::clone(&self.last_ms), self.clone(), devices.clone(), dev.join("pts"));
        tokio::task::spawn_blocking(move || {
            if let Some(at) = used_at(&terminals) {
                last.fetch_max(at.as_millisecond(), Ordering::Relaxed);
            }
            if !devices.holders().is_empty() {
                me.touch();
            }
        });
    }
}

/// When any of the terminals was last written to or read from.
fn used_at(terminals: &Path) -> Option<Timestamp> {
    let times = std::fs::read_dir(terminals).ok()?.flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        let meta = entry.metadata().ok()?;
        meta.modified().ok().max(meta.accessed().ok())
    });
    times.max().and_then(|time| Timestamp::try_from(time).ok())
}

/// In the paper about it: who leads the group of a command.
#[derive(Debug, Serialize, Deserialize)]
struct Leader {
    /// In another boot the numbers are others'.
    boot_id: String,
    birth: Birth,
}

/// Who leads the groups of the commands that were begun on this slice, by this agent or an earlier one, in this boot.
pub(crate) fn leaders(layout: &Layout, boot_id: &str) -> Vec<Birth> {
    let folders = layout.attempts().into_iter().map(|attempt| layout.attempt(attempt));
    let entries = folders.flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    let is_leader = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with(LEADER));
    let papers = entries.filter(|entry| is_leader(&entry.file_name())).map(|entry| entry.path());
    let leaders = papers.filter_map(|paper| files::read_json::<Leader>(&paper));
    leaders.filter(|leader| leader.boot_id == boot_id).map(|leader| leader.birth).collect()
}

/// What carries out orders.
#[derive(Debug, Clone)]
pub(crate) struct Exec {
    /// Calls.
    pub(crate) api: Api,
    /// Who this is.
    pub(crate) node: Arc<Node>,
    /// The token.
    pub(crate) token: watch::Receiver<Option<String>>,
    /// For bundles.
    pub(crate) metadata: Metadata,
    /// Of the job.
    pub(crate) secrets: Secrets,
    /// Folders.
    pub(crate) layout: Layout,
    /// This boot.
    pub(crate) boot_id: String,
    /// Ends of children.
    pub(crate) reaped: Reaped,
    /// Orders whose commands somebody told to end.
    pub(crate) stops: Arc<watch::Sender<BTreeSet<u64>>>,
    /// When it was last used.
    pub(crate) activity: Activity,
    /// The last attempt whose end has begun. Held over each start.
    pub(crate) closed: Arc<Mutex<Closed>>,
}

/// An attempt whose end has begun, and all before it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Closed {
    attempt: u32,
    /// Since the machine is about to be taken away.
    is_taken: bool,
}

impl Exec {
    /// Starts nothing for this attempt any more: what its end looks for was started before this returns.
    pub(crate) fn close(&self, attempt: u32, is_taken: bool) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if attempt >= closed.attempt {
            *closed = Closed { attempt, is_taken };
        }
    }

    /// Why a signal ended the command of an order, where it was neither the command's own nor a person's.
    fn cut(&self, order: &ExecOrder, code: i32) -> Option<String> {
        let closed = *self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if code <= 128 || closed.attempt < order.attempt || self.stops.borrow().contains(&order.id) {
            return None;
        }
        let why = if closed.is_taken {
            "its TPU is being taken away"
        } else {
            "it is being paused, restarted, moved or deleted"
        };
        Some(format!("ended with {code}, as all that ran in the workspace: {why}"))
    }

    /// Where it stands that an order of an attempt is under way.
    fn paper(&self, attempt: u32, id: u64) -> PathBuf {
        self.layout.attempt(attempt).join(format!("{PAPER}{id}"))
    }

    /// Writes down that an order is about to be begun.
    pub(crate) fn note(&self, order: &ExecOrder) {
        if let Err(error) = files::make_anew(&self.paper(order.attempt, order.id)) {
            tracing::warn!(%error, "cannot write down an order");
        }
    }

    /// Writes down who leads a command's group: one without our mark (`env -i`) is found by it when this agent is no more.
    fn write_leader(&self, order: &ExecOrder, leader: Option<Birth>) {
        let path = self.layout.attempt(order.attempt).join(format!("{LEADER}{}", order.id));
        let leader = leader.map(|birth| Leader { boot_id: self.boot_id.clone(), birth });
        if let Some(Err(error)) = leader.map(|leader| files::replace_json(&path, &leader)) {
            tracing::warn!(order = order.id, %error, "cannot write down the process of an order");
        }
    }

    /// Ends the commands of those orders that somebody told to end.
    pub(crate) fn told_to_stop(&self, orders: &[ExecOrder]) {
        let told = || orders.iter().filter(|order| order.stop_at.is_some()).map(|order| order.id);
        self.stops.send_if_modified(|known| {
            let before = known.len();
            known.extend(told());
            known.len() > before
        });
    }

    /// Waits until an order is told to end.
    async fn stopped(&self, id: u64) {
        let told = self.stops.subscribe().wait_for(|ids| ids.contains(&id)).await.map(drop);
        // Nobody is left who could tell.
        if told.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Tells of the orders that an earlier agent began and did not bring to their end: up to `last` they were begun.
    pub(crate) fn tell_lost(&self, attempt: u32, last: u64) {
        let entries = std::fs::read_dir(self.layout.attempt(attempt)).into_iter().flatten().flatten();
        let ids = entries.filter_map(|entry| entry.file_name().to_str()?.strip_prefix(PAPER)?.parse::<u64>().ok());
        for id in ids {
            if id > last {
                self.done_with(attempt, id);
                continue;
            }
            let exec = self.clone();
            tokio::spawn(async move {
                exec.put_exit(id, &ExecExit { code: EXIT_LOST, error: Some(LOST.to_owned()) }).await;
                exec.done_with(attempt, id);
            });
        }
    }

    fn done_with(&self, attempt: u32, id: u64) {
        let _ = std::fs::remove_file(self.paper(attempt, id));
    }

    async fn put_exit(&self, id: u64, exit: &ExecExit) {
        match serde_json::to_vec(exit) {
            Ok(bytes) => self.put(id, "exit", 0, bytes).await,
            Err(error) => tracing::error!(%error, "no JSON"),
        }
    }

    /// Carries out an order and tells how. A command that is told to end has the grace for it.
    pub(crate) async fn carry_out(
        self,
        order: ExecOrder,
        mut env: BTreeMap<String, String>,
        secrets: BTreeMap<String, String>,
        grace: Duration,
    ) {
        self.activity.running.send_modify(|count| *count += 1);
        let done = match &order.action {
            ExecAction::Run(command) => match self.secrets.values(&secrets).await {
                // Whoever gave it has changed their mind before it was begun: it is never begun.
                Ok(_) if self.stops.borrow().contains(&order.id) => Ok(128 + Signal::TERM.as_raw()),
                Ok(values) => {
                    env.extend(values);
                    self.run(&order, command, env, grace).await
                }
                Err(error) => Err(error),
            },
            ExecAction::Unpack { code, to } => self.unpack(order.attempt, code, to).await.map(|()| 0),
        };
        let exit = match done {
            Ok(code) => ExecExit { code, error: self.cut(&order, code) },
            Err(error) => ExecExit { code: 126, error: Some(format!("{error:#}")) },
        };
        tracing::info!(order = order.id, code = exit.code, error = exit.error, "an order was carried out");
        self.put_exit(order.id, &exit).await;
        self.done_with(order.attempt, order.id);
        self.activity.touch();
        self.activity.running.send_modify(|count| *count -= 1);
    }

    async fn run(
        &self,
        order: &ExecOrder,
        command: &CommandLine,
        mut env: BTreeMap<String, String>,
        grace: Duration,
    ) -> anyhow::Result<i32> {
        let id = order.id;
        // Its own mark, which is also one of the attempt: by it what left its group is found.
        let mark = format!("{}/{PAPER}{id}", env.get(procs::MARK).map_or("", String::as_str));
        env.insert(procs::MARK.to_owned(), mark.clone());
        let words = match command {
            CommandLine::Shell(text) => vec!["bash".to_owned(), "-c".to_owned(), text.clone()],
            CommandLine::Argv(words) => words.clone(),
        };
        let (program, arguments) = words.split_first().context("there is no command")?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs(env)
            .current_dir(self.layout.work())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let (mut child, leader) = {
            let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
            anyhow::ensure!(closed.attempt < order.attempt, ENDED);
            let child =
                self.reaped.spawn(|| shim::spawn(&mut command)).with_context(|| format!("cannot start {program:?}"))?;
            // Until it is reaped the number is its own.
            let leader = Birth::of(child.id().cast_signed());
            self.write_leader(order, leader);
            (child, leader)
        };
        let pid = child.id().cast_signed();
        let out = tokio::process::ChildStdout::from_std(child.stdout.take().context("no pipe")?)?;
        let err = tokio::process::ChildStderr::from_std(child.stderr.take().context("no pipe")?)?;
        let (ended, is_over) = watch::channel(None);
        let out = self.clone().pump(id, "stdout", out, is_over.clone());
        let err = self.clone().pump(id, "stderr", err, is_over);
        let end = async {
            let exit = async {
                loop {
                    if let Some(exit) = self.reaped.get(pid) {
                        return exit;
                    }
                    tokio::time::sleep(LOOK_EACH).await;
                }
            };
            let mut exit = std::pin::pin!(exit);
            let exit = tokio::select! {
                biased;
                exit = &mut exit => exit,
                () = self.stopped(id) => {
                    if let Some(leader) = leader {
                        procs::end_command(mark, leader, grace).await;
                    }
                    exit.await
                }
            };
            ended.send_replace(Some(Instant::now() + LEFT_OPEN));
            exit
        };
        let (exit, (), ()) = tokio::join!(end, out, err);
        Ok(match exit {
            Exit::Code(code) => code,
            Exit::Signal(signal) => 128 + signal,
            Exit::Silent => 125,
        })
    }

    /// Sends what comes through a pipe, until it is closed or the command has ended.
    ///
    /// Then only what is in the pipe is sent, for a moment: what a command leaves in the background may write for ever.
    async fn pump(
        self,
        id: u64,
        stream: &str,
        mut pipe: impl AsyncRead + Unpin + Send + 'static,
        mut is_over: watch::Receiver<Option<Instant>>,
    ) {
        let mut number = 0;
        let mut late = 0;
        let mut is_open = true;
        while is_open {
            let mut bytes = Vec::new();
            let mut until: Option<Instant> = None;
            while bytes.len() < CHUNK_MAX {
                let mut piece = vec![0; 64 << 10];
                let limit = until.unwrap_or_else(|| Instant::now() + Duration::from_hours(1));
                let is_late = is_over.borrow().is_some_and(|until| until <= Instant::now());
                let over = async {
                    let until = is_over.wait_for(Option::is_some).await.ok().and_then(|until| *until);
                    tokio::time::sleep_until(until.unwrap_or_else(Instant::now).into()).await;
                };
                tokio::select! {
                    biased;
                    read = pipe.read(&mut piece) => match read {
                        Ok(0) | Err(_) => {
                            is_open = false;
                            break;
                        }
                        Ok(read) => {
                            bytes.extend_from_slice(&piece[..read]);
                            late += if is_late { read } else { 0 };
                            if late >= CHUNK_MAX {
                                is_open = false;
                                break;
                            }
                        }
                    },
                    () = tokio::time::sleep_until(limit.into()) => break,
                    () = over => {
                        is_open = false;
                        break;
                    }
                }
                until.get_or_insert_with(|| Instant::now() + GATHER);
            }
            if !bytes.is_empty() {
                self.put(id, stream, number, bytes).await;
                number += 1;
            }
        }
        tokio::spawn(throw_away(pipe));
    }

    /// Sends one chunk, however long that takes. Nobody waits for an order that is not known any more.
    async fn put(&self, id: u64, stream: &str, number: u64, bytes: Vec<u8>) {
        let mut failures = 0;
        loop {
            let token = self.token.borrow().clone();
            if let Some(token) = token {
                let chunk = ExecChunk { node: &self.node, id, stream, number };
                match self.api.put_exec(&token, chunk, bytes.clone()).await {
                    Ok(()) | Err(CallError::Conflict) => return,
                    Err(CallError::Refused(_, told)) => {
                        tracing::warn!(order = id, told, "the output of an order is not wanted");
                        return;
                    }
                    Err(CallError::Unauthorized(_) | CallError::Unreachable(_)) => {}
                }
            }
            failures += 1;
            tokio::time::sleep(backoff::after(failures, Duration::from_millis(200), Duration::from_secs(10))).await;
        }
    }

    async fn unpack(&self, attempt: u32, code: &str, to: &str) -> anyhow::Result<()> {
        let closed = *self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        anyhow::ensure!(closed.attempt < attempt, ENDED);
        let work = self.layout.work();
        let target: PathBuf = if to.is_empty() { work } else { work.join(to) };
        bundle::unpack_over(&self.layout, &self.metadata, code, &target).await
    }
}

/// Reads a pipe to its end: who writes to one that nobody reads is ended by it.
async fn throw_away(mut pipe: impl AsyncRead + Unpin) {
    let mut piece = vec![0; 64 << 10];
    while pipe.read(&mut piece).await.is_ok_and(|read| read > 0) {
        tokio::time::sleep(THROW_AWAY_EACH).await;
    }
}

#[cfg(test)]
mod tests {
    use rekindle_core::ids::JobId;

    use super::*;

    #[test]
    fn a_commands_leader_of_another_boot_is_nobody() {
        let home = tempfile::tempdir().unwrap();
        let layout = Layout::new(home.path(), home.path(), &JobId::parse("a").unwrap(), 1);
        let folder = layout.attempt(1);
        std::fs::create_dir_all(&folder).unwrap();
        let birth = |pid| Birth { pid, start: 7 };
        for (order, boot_id) in [(1, "boot-1"), (2, "boot-2")] {
            let leader = Leader { boot_id: boot_id.to_owned(), birth: birth(order) };
            files::replace_json(&folder.join(format!("{LEADER}{order}")), &leader).unwrap();
        }
        assert_eq!(leaders(&layout, "boot-2"), [birth(2)]);
    }

    #[test]
    fn a_terminal_that_is_used_is_activity() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(used_at(&folder.path().join("pts")), None);
        std::fs::write(folder.path().join("ptmx"), "").unwrap();
        assert_eq!(used_at(folder.path()), None, "not a terminal of anybody");
        std::fs::write(folder.path().join("3"), "x").unwrap();
        let age = Timestamp::now().duration_since(used_at(folder.path()).unwrap());
        assert!(age.as_secs() < 3600, "{age}");
        let activity = Activity::default();
        assert_eq!(activity.at(), None);
        activity.running.send_modify(|count| *count += 1);
        assert!(activity.at().is_some(), "while an order is carried out");
    }
}
