//! The end of an attempt: what its exit report is made of, and the outputs that are collected after it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use rekindle_core::classify::{Exit, SignalSender, Stage, WorkerEvidence, without_escapes};
use rekindle_wire::agent::ExitReport;

use crate::devices::{self, Devices, Holder};
use crate::evidence;
use crate::kernel::{Kernel, Watch};
use crate::logs;
use crate::machine::{Event, Machine};
use crate::outputs;
use crate::procs;
use crate::program::{self, Standing};
use crate::secrets::{self, Secrets};
use crate::shim::{Ended, Papers};
use crate::state::{Attempt, Step};
use crate::steps::TPU_LOG_DIR;
use crate::stream::TakenOver;

/// After everything is dead, the shim gets so long to write down how the program ended and what it said last.
pub(crate) const LAST_WORD: Duration = Duration::from_secs(2);
/// What lies on a disk that hangs is not told with an exit: it is waited for so long, which is half of what is left after SIGKILL until
/// the machine goes.
const DISKS_SAY: Duration = Duration::from_secs(1);
/// After the outputs are collected, what was said about them gets so long to be sent.
const SAID_WAIT: Duration = Duration::from_secs(2);
/// Secrets that a new agent has to read before it can mask them are waited for so long: a machine that is taken away goes soon.
const SECRETS_WAIT: Duration = Duration::from_secs(1);

/// An attempt begins in the working directory of the one before, and what that one left there is collected before: but it does
/// not wait longer for it than this.
const GATHERED: Duration = Duration::from_secs(10);

/// Between two rounds of sending, a shim gets so long to fill the room that was made.
const SHIM_WAIT: Duration = Duration::from_millis(50);

/// What waited in memory is gone with it.
const REBOOTED: &str = "rekindle: output may be missing here: the machine was started anew before all of it was sent";

const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

impl Machine {
    /// The collecting of what an attempt's program left.
    pub(crate) fn collecting(&self, attempt: &Attempt) -> outputs::Collecting {
        outputs::Collecting {
            exec: self.parts.exec.clone(),
            attempt: attempt.number,
            work: self.parts.layout.work(),
            stderr: self.parts.layout.attempt(attempt.number).join("stderr"),
            // `setup` makes no outputs, and a workspace has its own ways.
            patterns: match &attempt.work {
                Some(work) if attempt.step == Step::Run && !work.is_workspace() => work.outputs.clone(),
                _ => Vec::new(),
            },
        }
    }

    /// Goes on with what the last agent collected, also after a reboot: the working directory is on the disk.
    pub(crate) fn resume_collecting(&mut self) {
        let Some(attempt) = self.state.attempt.as_ref().filter(|a| a.is_collecting) else { return };
        let number = attempt.number;
        let Some(exit) = attempt.exit.as_ref() else {
            self.on_collected(number, true);
            return;
        };
        let limit = outputs::left_after(self.parts.config.outputs_max, exit.at, Timestamp::now());
        let (flushes, events) = (self.parts.flushes.clone(), self.events.clone());
        let (give_up, given_up) = watch::channel(None);
        tokio::spawn(collect(self.collecting(attempt), limit, number, (flushes, given_up), events));
        self.gathering = Some(give_up);
    }

    /// True while what the last program left is still collected, which is not waited for much longer then.
    pub(crate) fn is_gathering(&self) -> bool {
        let Some(give_up) = self.gathering.as_ref().filter(|give_up| !give_up.is_closed()) else { return false };
        give_up.send_if_modified(|until| until.replace(until.unwrap_or(Instant::now() + GATHERED)).is_none());
        true
    }

    /// What an attempt left is collected, and what was left out is said.
    pub(crate) fn on_collected(&mut self, number: u32, is_sent: bool) {
        if !is_sent {
            self.await_sent(number);
        }
        if let Some(attempt) = self.state.attempt.as_mut().filter(|a| a.number == number) {
            attempt.is_collecting = false;
            self.is_dirty = true;
            self.close_output(number);
        }
    }

    /// The exit of an attempt is told before all of its output is sent, which the manager is to know: with the machine goes what
    /// waits here.
    pub(crate) fn await_sent(&mut self, number: u32) {
        self.state.has_unsent = true;
        self.is_dirty = true;
        self.sending += 1;
        let (folder, taken_over) = (self.parts.layout.attempt(number), self.taken_over.clone());
        let shim = self.shim_of(number);
        let (flushes, events) = (self.parts.flushes.clone(), self.events.clone());
        tokio::spawn(async move {
            program::is_written(&folder, shim, &taken_over, None).await;
            logs::all_sent(&flushes, logs::Patience::absolute(Duration::MAX)).await;
            let _ = events.send(Event::Sent).await;
        });
    }

    /// What one end waited for is sent.
    pub(crate) fn on_sent(&mut self) {
        self.sending = self.sending.saturating_sub(1);
        if self.sending == 0 {
            self.state.has_unsent = false;
            self.is_dirty = true;
        }
    }

    /// Says in the output that some of it may have gone with the memory in which it waited.
    pub(crate) fn say_rebooted(&self) {
        if self.parts.layout.has_buffer() {
            self.say_missing(REBOOTED);
        }
    }

    /// Goes on with what the last agent had not sent. A buffer in memory is empty after a reboot, which is said.
    pub(crate) fn resume_sending(&mut self, is_same_boot: bool) {
        let Some(number) = self.state.attempt.as_ref().map(|a| a.number).filter(|_| self.state.has_unsent) else {
            return;
        };
        if !is_same_boot {
            self.say_rebooted();
        }
        self.await_sent(number);
    }

    /// Closes the output of an attempt: once what its shim still holds, where the disk is full, is written.
    pub(crate) fn close_output(&self, number: u32) {
        let (folder, taken_over) = (self.parts.layout.attempt(number), self.taken_over.clone());
        let shim = self.shim_of(number);
        let layout = self.parts.layout.clone();
        tokio::spawn(async move {
            program::is_written(&folder, shim, &taken_over, None).await;
            if let Err(error) = layout.close(number) {
                tracing::warn!(%error, "cannot close the attempt's output");
            }
        });
    }

    /// Closes what the last agent has not closed.
    pub(crate) fn resume_closing(&self) {
        let Some(attempt) = &self.state.attempt else { return };
        let is_current_over = attempt.exit.is_some() && !attempt.is_collecting;
        let last = if is_current_over { attempt.number + 1 } else { attempt.number };
        let layout = &self.parts.layout;
        for number in layout.attempts().into_iter().filter(|number| *number < last) {
            if !layout.is_closed(number) {
                self.close_output(number);
            }
        }
    }
}

/// Collects what a program left, after its end was told.
pub(crate) async fn collect(
    collecting: outputs::Collecting,
    limit: Duration,
    number: u32,
    (flushes, given_up): (logs::Flushes, watch::Receiver<Option<Instant>>),
    events: mpsc::Sender<Event>,
) {
    let is_over = async {
        tokio::select! {
            () = tokio::time::sleep(limit) => "",
            () = given_up_at(given_up.clone()) => ", and the next attempt begins",
        }
    };
    collecting.before(limit, is_over).await;
    // Seen by who waits for that.
    drop(given_up);
    // What was left out is said in the output, and once this is told the machine may be gone within the second.
    let patience = logs::all_sent(&flushes, logs::Patience::of_reach(SAID_WAIT)).await;
    let _ = events.send(Event::Collected(number, !patience.left.is_zero())).await;
}

/// Waits until it is said by when something is to be given up, and then until that.
async fn given_up_at(mut given_up: watch::Receiver<Option<Instant>>) {
    match given_up.wait_for(Option::is_some).await.map(|until| *until) {
        Ok(Some(until)) => tokio::time::sleep_until(until.into()).await,
        Ok(None) | Err(_) => std::future::pending().await,
    }
}

/// Waits until everything that the program said is sent, also what its shim still holds for want of room on the disk: what
/// is sent makes some. Gives up after `patience`, and then it is sent when it can be. True if all of it is sent.
pub(crate) async fn all_told(
    flushes: &logs::Flushes,
    (folder, shim): (&Path, Option<procs::Birth>),
    taken_over: &TakenOver,
    mut patience: logs::Patience,
) -> bool {
    loop {
        let began = Instant::now();
        // Looked at before: what is written until then is sent by this.
        let is_written = program::is_written(folder, shim, taken_over, Some(SHIM_WAIT)).await;
        patience = patience.after(began.elapsed(), false);
        patience = logs::all_sent(flushes, patience).await;
        if is_written || patience.left.is_zero() {
            return is_written && !patience.left.is_zero();
        }
    }
}

/// Everything that an exit report is made of.
pub(crate) struct Closing {
    /// What is known of it.
    pub(crate) attempt: Attempt,
    /// Of its program, if that was started.
    pub(crate) papers: Option<Papers>,
    /// Where its output lies.
    pub(crate) folder: std::path::PathBuf,
    /// Where the TPU runtime logged.
    pub(crate) tpu_logs: std::path::PathBuf,
    /// Which worker.
    pub(crate) key: rekindle_core::ids::WorkerKey,
    /// The home folder.
    pub(crate) home: std::path::PathBuf,
    /// The working directory.
    pub(crate) work: std::path::PathBuf,
    /// The devices.
    pub(crate) devices: Devices,
    /// The least free memory that was seen, in bytes.
    pub(crate) memory_free: Option<u64>,
    /// The kernel, for evidence.
    pub(crate) kernel: Kernel,
    /// What was seen while it ran.
    pub(crate) watch: Watch,
    /// Its processes.
    pub(crate) family: Option<procs::Family>,
    /// Values that are not told.
    pub(crate) secrets: Secrets,
}

impl Closing {
    /// How the program ended, once nothing of it lives: the shim's word, for which it gets a moment.
    pub(crate) async fn last_word(&self) -> Ended {
        let Some(papers) = &self.papers else {
            // It was never started; we ended it before.
            return Ended { exit: Exit::Signal(SIGTERM), at: Timestamp::now() };
        };
        let limit = Instant::now() + LAST_WORD;
        loop {
            // Looked at before: it writes before it leaves, also where its papers were removed.
            let is_kept = self.family.is_some_and(|family| family.shim.is_alive());
            if let Some(ended) = self.family.and_then(|family| papers.end(family.shim)) {
                return ended;
            }
            let standing = program::standing(papers);
            let is_coming = is_kept || matches!(standing, Standing::Running(_) | Standing::Starting);
            match standing {
                Standing::Ended(_)
                | Standing::Running(_)
                | Standing::Starting
                | Standing::NotStarted
                | Standing::Lost
                    if is_coming && Instant::now() < limit =>
                {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                // Its shim is dead, or cannot write. We sent SIGKILL to everything that was left.
                Standing::Ended(_)
                | Standing::Running(_)
                | Standing::Starting
                | Standing::NotStarted
                | Standing::Lost => {
                    return Ended { exit: Exit::Signal(SIGKILL), at: Timestamp::now() };
                }
            }
        }
    }

    /// The report, without what a disk that hangs would tell.
    pub(crate) async fn report(self, ended: Ended) -> Option<ExitReport> {
        let wanted = self.attempt.work.as_ref().map(|work| work.secrets.clone()).unwrap_or_default();
        let (said, values) = tokio::join!(self.disks(), self.secrets.given(&wanted, SECRETS_WAIT));
        tokio::task::spawn_blocking(move || self.report_with(ended, said, &values)).await.ok()
    }

    /// Asks everything that may wait for a disk, at the same time.
    async fn disks(&self) -> Disks {
        let folders = [self.work.clone(), self.home.clone(), std::env::temp_dir()];
        let folders = folders.into_iter().chain(self.checkpoints());
        let free: Vec<_> = folders.map(|folder| tokio::spawn(in_time(move || evidence::disk_free(&folder)))).collect();
        let logs = self.tpu_logs_of();
        let logs = in_time(move || logs.map(|(folder, since)| evidence::tpu_logs(&folder, since)).unwrap_or_default());
        let devices = self.devices.clone();
        let held = in_time(move || {
            let found = devices.holders();
            let is_stale = devices.remove_stale_lock(&found);
            (found, is_stale)
        });
        let (tpu_logs, (holders, had_stale_lock)) = tokio::join!(logs, held);
        let mut least = None;
        for one in free {
            let free = one.await.ok().flatten();
            least = least.into_iter().chain(free).min();
        }
        Disks { free: least, tpu_logs, holders, had_stale_lock }
    }

    fn report_with(mut self, ended: Ended, disks: Disks, secrets: &BTreeSet<String>) -> ExitReport {
        let attempt = &self.attempt;
        let ordered = attempt.stop.is_some();
        let mut said = evidence::tail(&self.folder.join("stdout"), &self.folder.join("stderr"), attempt.since);
        if !self.folder.is_dir() {
            said.push_str(&gone(&self.folder));
        }
        let ours: Vec<i32> = self.family.map(|f| f.shim.pid).into_iter().chain([std::process::id() as i32]).collect();
        let sender = if ordered { Some(SignalSender::Ourselves) } else { evidence::sender_in(&said, &ours) };
        self.watch.pids.extend(self.family.map(|f| f.program.pid));
        let oom_line = self.kernel.oom_line(attempt.oom_kills, &self.watch.pids);
        let oom_kill = oom_line.is_some()
            || self.watch.has_seen_kill(ended.exit)
            || attempt.oom_kills.explains(self.kernel.oom_kills(), ended.exit);
        let mut holders = devices::describe(&disks.holders);
        if disks.had_stale_lock {
            holders.push(format!("rekindle: {} was left by a process that is dead", self.devices.lock.display()));
        }
        ExitReport {
            at: ended.at,
            ordered,
            evidence: WorkerEvidence {
                index: self.key.worker,
                slice: self.key.slice,
                exit: ended.exit,
                signal_sender: sender,
                oom_kill,
                oom_line: oom_line.unwrap_or_default(),
                disk_free_bytes: disks.free,
                memory_free_bytes: self.memory_free,
                device_busy: !disks.holders.is_empty(),
                holders,
                rebooted: attempt.rebooted,
                exited_at_ms: u64::try_from(ended.at.as_millisecond()).ok(),
                last_step: attempt.progress.said.step,
                during: if attempt.step == Step::Run { Stage::Run } else { Stage::Setup },
                // What a terminal obeys may stand within a value.
                tail: evidence::bounded(secrets::masked(without_escapes(&(disks.tpu_logs + &said)), secrets)),
            },
        }
    }

    /// The checkpoint folder, where it lies on a disk of this machine.
    fn checkpoints(&self) -> Option<std::path::PathBuf> {
        let folder = self.attempt.work.as_ref()?.env.get("REKINDLE_CHECKPOINT_DIR")?;
        let folder = folder.strip_prefix("file://").unwrap_or(folder);
        folder.starts_with('/').then(|| folder.into())
    }

    /// Where the TPU runtime wrote for this program, and since when.
    fn tpu_logs_of(&self) -> Option<(std::path::PathBuf, SystemTime)> {
        let started = self.attempt.started_at?;
        let own = self.attempt.work.as_ref().and_then(|w| w.env.get(TPU_LOG_DIR)).map(std::path::PathBuf::from);
        // The clock of file times goes in steps of up to 10 ms, behind the one that told the start.
        let since = started.checked_sub(Duration::from_millis(100)).unwrap_or(started);
        Some((own.unwrap_or_else(|| self.tpu_logs.clone()), since.into()))
    }
}

/// Where what held the output of a program is gone, and perhaps its end with it.
fn gone(folder: &Path) -> String {
    let folder = folder.display();
    format!("rekindle: {folder} is gone: the program, or somebody else, has removed it\n")
}

/// What the disks of the machine tell at an end.
struct Disks {
    /// Free bytes of the fullest.
    free: Option<u64>,
    /// What the TPU runtime wrote.
    tpu_logs: String,
    /// Who holds a device, or the lock of the runtime, which lies on a disk, too.
    holders: Vec<Holder>,
    /// That lock was left by a process that is dead.
    had_stale_lock: bool,
}

/// Asks beside whoever waits for it, and no longer than a moment: then nothing is known.
async fn in_time<T: Default + Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> T {
    let asked = tokio::task::spawn_blocking(ask);
    tokio::time::timeout(DISKS_SAY, asked).await.map(Result::unwrap_or_default).unwrap_or_default()
}
