//! The agent's heart: from the order, the notices and what the processes do to the next step, again and again.
//!
//! Everything is a level: at each event the machine compares what is wanted with what is, and starts at most one piece
//! of work. Pieces of work run beside it and end in an [`Event`], so that a notice is never kept waiting by a download,
//! by `api` or by a disk: what is to be written down on the disk is brought to a [`Keeper`], and what must not be done before
//! it stands there waits beside the machine.
//!
//! **Invariants:** a program is started once for an attempt. An exit is told only when no process of the attempt
//! lives. A stop that was begun is carried through, also by the next agent. Nothing but an order, an urgent notice or
//! its own end ends a program.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use rekindle_core::orders::notice_is_urgent;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use rekindle_core::classify::Exit;
use rekindle_core::spec::STOP_GRACE_MAX;
use rekindle_wire::agent::{ExitReport, Notice, Order, Want};

use crate::config::AgentConfig;
use crate::devices::Devices;
use crate::ending::{Ending, Told};
use crate::exec::{self, Exec};
use crate::files::{self, Layout};
use crate::keep::{Keeper, OnItsWay};
use crate::kernel::{Kernel, Watch};
use crate::lows::Lows;
use crate::metadata::{Metadata, Node};
use crate::notice::{Word, Words};
use crate::program::{self, Reaped, Standing};
use crate::reporter::{FromApi, Snapshot};
use crate::secrets::Secrets;
use crate::shim::{Ended, Papers, Started};
use crate::state::{Attempt, State, Step};
use crate::steps::flush;
use crate::stream::TakenOver;
use crate::{logs, procs};

/// Between looks at files that grow (progress, output).
const TICK: Duration = Duration::from_millis(100);
/// An exit of an older attempt is told before the next one is begun, but the next one does not wait longer for `api`
/// than this.
const HANDED_OVER: Duration = Duration::from_secs(5);
/// Before it leaves, the disk has so long to take what it knows.
const LAST_SAVE: Duration = Duration::from_secs(2);
/// Output that is left at the end is sent for at most this long before the agent leaves.
const LAST_FLUSH: Duration = Duration::from_secs(10);

/// A smaller difference between our clock and that of `api` is none.
const CLOCKS_AGREE: SignedDuration = SignedDuration::from_secs(3);

/// Why the agent ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leave {
    /// The generation is of no use any more.
    Retired,
    /// Somebody told the agent to end; the program lives on, and another agent will adopt it.
    Told,
}

/// One of the two programs of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// The job's setup commands.
    Setup,
    /// The job's program.
    Run,
}

impl Name {
    /// As in file names.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Run => "run",
        }
    }
}

/// Why an attempt could not be prepared.
#[derive(Debug)]
pub(crate) struct Unprepared {
    /// For people and the classifier.
    pub(crate) message: String,
}

/// A piece of work has ended, or a process has.
#[derive(Debug)]
pub(crate) enum Event {
    /// Everything older has ended and the code is there, or it cannot be had.
    Prepared(Result<(), Unprepared>),
    /// `setup` was done before, or just now; or it is to be.
    SetUp(bool),
    /// A program was started, or not.
    Started(Name, anyhow::Result<Standing>),
    /// A program was not started: it was called off before.
    CalledOff(Name),
    /// A program ended by itself or by us; what it left behind may still live.
    Ended { attempt: u32, name: Name, ended: Ended },
    /// Nothing lives any more. Without an attempt there is no exit.
    Closed(Option<Closed>),
    /// What this attempt's program left is collected, as far as it can be; with `true` all that was said of it is sent.
    Collected(u32, bool),
    /// What was unsent at the end of a program is sent.
    Sent,
    /// The answer to the question whether a SIGTERM to us means the end of the machine.
    Asked(bool),
}

/// An attempt of which nothing lives any more.
#[derive(Debug)]
pub(crate) struct Closed {
    /// How its program ended.
    pub(crate) exit: Box<ExitReport>,
    /// Outputs are still collected.
    pub(crate) is_collecting: bool,
    /// Some of its output waits to be sent.
    pub(crate) has_unsent: bool,
}

/// The piece of work under way.
#[derive(Debug)]
pub(crate) enum Doing {
    /// None.
    Nothing,
    /// Ending older things, fetching code.
    Preparing(JoinHandle<()>),
    /// Waiting for what a start needs, which can be called off, or for a shim.
    Starting(Option<oneshot::Sender<()>>),
    /// Ending everything.
    Ending(Ending),
}

/// A program that lives.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Live {
    /// Which.
    pub(crate) name: Name,
    /// Its processes.
    pub(crate) started: Started,
}

/// What is to be brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// What goes on goes on.
    Nothing,
    /// End everything.
    Stop(Timestamp),
    /// Get ready, and with `true` run.
    Go(bool),
    /// Begin with this attempt.
    Begin(u32),
}

/// The parts that the machine works with.
pub(crate) struct Parts {
    /// Configuration.
    pub(crate) config: Arc<AgentConfig>,
    /// Who this is.
    pub(crate) node: Arc<Node>,
    /// For bundles.
    pub(crate) metadata: Metadata,
    /// Of the job.
    pub(crate) secrets: Secrets,
    /// Folders.
    pub(crate) layout: Layout,
    /// To the reporter.
    pub(crate) snapshots: watch::Sender<Snapshot>,
    /// To the shipper.
    pub(crate) flushes: logs::Flushes,
    /// For orders of people.
    pub(crate) exec: Exec,
}

/// The machine.
pub(crate) struct Machine {
    pub(crate) parts: Parts,
    pub(crate) devices: Devices,
    pub(crate) state: State,
    pub(crate) order: Option<Order>,
    pub(crate) ahead: SignedDuration,
    pub(crate) words: Words,
    pub(crate) doing: Doing,
    pub(crate) live: Option<Live>,
    /// The shim of the last program that lived, and its attempt.
    pub(crate) last_shim: Option<(u32, procs::Birth)>,
    pub(crate) reaped: Reaped,
    pub(crate) taken_over: TakenOver,
    /// The end of a program of which the state knew nothing: the first order tells what it was to leave.
    pub(crate) forgotten: Option<(Name, Ended)>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) lows: Lows,
    pub(crate) kernel: Kernel,
    pub(crate) watch: Watch,
    pub(crate) closed_at: Option<Instant>,
    /// Nothing of ours lives, though there is no attempt.
    pub(crate) is_clean: bool,
    pub(crate) noticed: Option<(PathBuf, Notice)>,
    /// Ends of programs whose output is still waited for.
    pub(crate) sending: u32,
    pub(crate) is_dirty: bool,
    /// On its way to where the program looks for a notice.
    pub(crate) telling: Option<OnItsWay>,
    keeper: Keeper,
    notices: Keeper,
    /// The collecting of what the last program left. Who sees to it is told by when it is to be over.
    pub(crate) gathering: Option<watch::Sender<Option<Instant>>>,
    inbox: mpsc::Receiver<Event>,
    saved_at: Instant,
}

impl Machine {
    /// A machine that goes on where the last agent stopped.
    pub(crate) fn new(parts: Parts) -> Self {
        let (events, inbox) = mpsc::channel(64);
        let devices = Devices { folder: parts.config.dev_dir.clone(), lock: parts.config.libtpu_lock.clone() };
        let kernel = Kernel::new(&parts.config.kernel_root);
        let reaped = parts.exec.reaped.clone();
        let state = State::load(&parts.layout);
        let mut machine = Self {
            taken_over: TakenOver::new(parts.layout.root().to_owned()),
            parts,
            devices,
            state,
            order: None,
            ahead: SignedDuration::ZERO,
            words: Words::default(),
            doing: Doing::Nothing,
            live: None,
            last_shim: None,
            reaped,
            forgotten: None,
            events,
            lows: Lows::default(),
            kernel,
            watch: Watch::default(),
            closed_at: None,
            is_clean: false,
            noticed: None,
            sending: 0,
            is_dirty: false,
            telling: None,
            gathering: None,
            keeper: Keeper::begin(),
            notices: Keeper::begin(),
            inbox,
            saved_at: Instant::now(),
        };
        machine.resume();
        machine.publish();
        machine
    }

    /// Works until the agent is to leave.
    pub(crate) async fn run(
        mut self,
        mut from_api: mpsc::Receiver<FromApi>,
        mut words: mpsc::Receiver<Word>,
    ) -> anyhow::Result<Leave> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.publish();
            tokio::select! {
                Some(said) = from_api.recv() => self.on_api(said),
                Some(word) = words.recv() => self.on_word(&word),
                Some(event) = self.inbox.recv() => {
                    if matches!(event, Event::Asked(false)) {
                        let _ = tokio::time::timeout(LAST_SAVE, self.save().answered()).await;
                        return Ok(Leave::Told);
                    }
                    self.on_event(event);
                }
                _ = ticks.tick() => self.on_tick(),
                _ = terminate.recv() => self.ask(),
                _ = interrupt.recv() => self.ask(),
            }
            // What was heard is told before anything is done about it.
            self.publish();
            self.tell_program();
            self.step();
            self.obey();
            if self.is_dirty {
                self.save();
            }
            if self.is_retired() {
                self.publish();
                self.last_flush().await;
                return Ok(Leave::Retired);
            }
        }
    }

    /// Writes the state down, beside the machine. A disk that is full must not stop the agent: it goes on, and only a restart would
    /// then know less.
    pub(crate) fn save(&mut self) -> OnItsWay {
        (self.is_dirty, self.saved_at) = (false, Instant::now());
        self.keeper.put_json(self.parts.layout.state(), &self.state)
    }

    fn on_api(&mut self, said: FromApi) {
        match said {
            FromApi::Order(order, ahead) => {
                if let Some(attempt) = self.state.attempt.as_mut().filter(|a| a.number == order.attempt)
                    && attempt.work.is_none()
                    && order.work.is_some()
                {
                    attempt.work.clone_from(&order.work);
                    self.is_dirty = true;
                }
                self.order = Some(*order);
                // The `Date` header has whole seconds and the answer took some time: what is told by it must not waver.
                if (ahead - self.ahead).abs() > CLOCKS_AGREE {
                    self.ahead = ahead;
                }
            }
            FromApi::ExitAccepted(number) => {
                if let Some(attempt) = self.state.attempt.as_mut().filter(|a| a.number == number && !a.is_accepted) {
                    attempt.is_accepted = true;
                    self.is_dirty = true;
                }
            }
        }
    }

    fn on_word(&mut self, word: &Word) {
        tracing::info!(?word, "the metadata server says");
        let was_urgent = self.is_urgent();
        self.words.hear(word, Timestamp::now());
        if self.is_urgent() && !was_urgent {
            flush(&self.parts.flushes);
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Prepared(done) => self.on_prepared(done),
            Event::SetUp(is_done) => self.on_set_up(is_done),
            Event::Started(name, standing) => self.on_started(name, standing),
            Event::CalledOff(name) => self.on_called_off(name),
            // Of an attempt that was ended meanwhile all is told: it is not the end of the one after it.
            Event::Ended { attempt, name, ended } => {
                if self.state.attempt.as_ref().is_some_and(|current| current.number == attempt) {
                    self.on_ended(name, ended);
                }
            }
            Event::Closed(closed) => self.on_closed(closed),
            Event::Collected(number, is_sent) => self.on_collected(number, is_sent),
            Event::Sent => self.on_sent(),
            Event::Asked(_) => tracing::info!("the machine is going down; staying for the program's last words"),
        }
    }

    fn on_tick(&mut self) {
        self.reaped.reap();
        if self.is_workspace() {
            let dev = &self.parts.config.dev_dir;
            self.parts.exec.activity.look(dev, &self.devices);
        }
        if let Some(live) = self.live {
            self.watch.look(&self.kernel, live.started.family.shim.pid);
        }
        self.lows.sample(&self.kernel, &self.watch);
        let Some(attempt) = self.state.attempt.as_mut().filter(|a| a.exit.is_none()) else { return };
        let folder = self.parts.layout.attempt(attempt.number);
        if attempt.read_progress(&folder, false) && self.saved_at.elapsed() > Duration::from_secs(1) {
            self.is_dirty = true;
        }
        self.complain();
    }

    /// SIGTERM to us: the end of the machine, or only of this agent?
    fn ask(&self) {
        let (metadata, events) = (self.parts.metadata.clone(), self.events.clone());
        let is_known = self.is_urgent();
        tokio::spawn(async move {
            let is_preempted = is_known
                || metadata.get("preempted").await.ok().flatten().is_some_and(|v| v.eq_ignore_ascii_case("true"));
            // Made by systemd while the machine goes down.
            let is_going_down = PathBuf::from("/run/nologin").exists();
            let _ = events.send(Event::Asked(is_preempted || is_going_down)).await;
        });
    }

    pub(crate) fn is_urgent(&self) -> bool {
        self.own_notice().is_some_and(|n| notice_is_urgent(&n, Timestamp::now()))
    }

    /// The notice that this worker itself was given.
    pub(crate) fn own_notice(&self) -> Option<Notice> {
        self.words.notice(self.parts.config.preemption_notice, Timestamp::now(), |at| at)
    }

    /// Puts the notice, ours or the slice's, where the program looks for it.
    fn tell_program(&mut self) {
        let Some(attempt) = self.state.attempt.as_ref().filter(|a| a.exit.is_none()) else { return };
        let notice = self.own_notice().or_else(|| self.order.as_ref()?.notice.clone()).filter(Notice::takes_away);
        let path = self.parts.layout.attempt(attempt.number).join("notice");
        let told = notice.map(|notice| (path.clone(), notice));
        if told == self.noticed {
            return;
        }
        self.telling = Some(match &told {
            Some((path, notice)) => self.notices.put_json(path.clone(), notice),
            None => self.notices.put(path, None),
        });
        self.noticed = told;
    }

    fn wanted(&self, now: Timestamp) -> Wanted {
        let notice = self.goes_at(now);
        let attempt = self.state.attempt.as_ref();
        if let Some(stop) = attempt.filter(|a| a.exit.is_none()).and_then(|a| a.stop) {
            return Wanted::Stop(self.order_kill_at(now).unwrap_or(stop.kill_at));
        }
        let grace = now + self.stop_grace();
        let by_notice = notice.map(|_| self.before_it_goes(grace, now));
        let Some(order) = &self.order else {
            return by_notice.filter(|_| attempt.is_some()).map_or(Wanted::Nothing, Wanted::Stop);
        };
        if order.want == Want::Retire {
            return Wanted::Stop(self.order_kill_at(now).unwrap_or(grace));
        }
        // A stop without work speaks of no attempt of this generation: nothing must be told in that attempt's name.
        let is_ours = order.want != Want::Stop || order.work.is_some();
        let Some(attempt) = attempt else {
            return if is_ours && order.attempt > 0 { Wanted::Begin(order.attempt) } else { Wanted::Nothing };
        };
        match order.attempt.cmp(&attempt.number) {
            std::cmp::Ordering::Greater if attempt.exit.is_none() => Wanted::Stop(grace),
            std::cmp::Ordering::Greater if is_ours && self.is_handed_over(attempt) => Wanted::Begin(order.attempt),
            std::cmp::Ordering::Less | std::cmp::Ordering::Greater => Wanted::Nothing,
            std::cmp::Ordering::Equal => match (order.want, by_notice) {
                (Want::Stop | Want::Retire, _) => Wanted::Stop(self.order_kill_at(now).unwrap_or(grace)),
                (Want::Prepare | Want::Run, Some(kill_at)) => Wanted::Stop(kill_at),
                (Want::Prepare, None) => Wanted::Go(false),
                (Want::Run, None) => Wanted::Go(true),
            },
        }
    }

    /// When an order to stop kills, by our clock.
    fn order_kill_at(&self, now: Timestamp) -> Option<Timestamp> {
        let kill_at = self.told(now).order?;
        Some(kill_at.checked_sub(self.ahead).unwrap_or(kill_at).max(now))
    }

    /// When the machine goes, where that is urgent.
    fn goes_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.own_notice().filter(|notice| notice_is_urgent(notice, now)).map(|notice| notice.deadline)
    }

    /// That moment, or the last one before the machine goes. Where that has passed and the machine is still here, the program
    /// gets its usual time.
    pub(crate) fn before_it_goes(&self, at: Timestamp, now: Timestamp) -> Timestamp {
        let latest = self.goes_at(now).map(|goes_at| goes_at - LAST_WORDS).filter(|latest| *latest > now);
        latest.map_or(at, |latest| at.min(latest))
    }

    /// What bounds the time of a program that is ended.
    pub(crate) fn told(&self, now: Timestamp) -> Told {
        let order = self.order.as_ref().filter(|o| matches!(o.want, Want::Stop | Want::Retire));
        let attempt = self.state.attempt.as_ref();
        let order = order.filter(|order| attempt.is_some_and(|attempt| order.attempt >= attempt.number));
        Told { order: order.and_then(|order| order.kill_at), notice: self.goes_at(now) }
    }

    /// From SIGTERM to SIGKILL where nobody says otherwise.
    pub(crate) fn stop_grace(&self) -> Duration {
        let work = self.state.attempt.as_ref().and_then(|a| a.work.as_ref());
        work.map_or(Duration::from_secs(30), |w| Duration::from_millis(w.stop_grace_ms).min(STOP_GRACE_MAX))
    }

    fn is_handed_over(&self, attempt: &Attempt) -> bool {
        attempt.is_accepted || self.closed_at.is_none_or(|at| at.elapsed() > HANDED_OVER)
    }

    fn step(&mut self) {
        if self.order.is_some()
            && let Some((name, ended)) = self.forgotten.take()
        {
            self.on_ended(name, ended);
        }
        let now = Timestamp::now();
        match self.wanted(now) {
            Wanted::Nothing => {}
            Wanted::Stop(kill_at) => self.stop(now, kill_at),
            Wanted::Go(run) => self.go(run),
            // They share one working directory.
            Wanted::Begin(_) if self.is_gathering() => {}
            Wanted::Begin(number) => {
                self.begin(number);
                self.step();
            }
        }
    }

    /// Begins with an attempt.
    fn begin(&mut self, number: u32) {
        let order = self.order.as_ref().filter(|o| o.attempt == number);
        // `run` comes only after every worker said that it is ready for this attempt. One that has never heard of it was, and has lost its
        // disk or its state since: it must not begin the program again beside the others' (architecture section 7).
        let is_lost = self.state.attempt.is_none() && order.is_some_and(|o| o.want == Want::Run);
        if let Some(before) = self.state.attempt.as_ref().filter(|a| a.is_collecting) {
            // Nobody is told any more when that ends.
            self.close_output(before.number);
        }
        self.state.attempt = Some(Attempt { number, work: order.and_then(|o| o.work.clone()), ..Attempt::default() });
        self.state.boot_id.clone_from(&self.parts.config.boot_id);
        self.closed_at = None;
        (self.noticed, self.telling) = (None, None);
        self.watch = Watch::default();
        self.is_dirty = true;
        files::make_folder(&self.parts.layout.attempt(number));
        let layout = self.parts.layout.clone();
        tokio::task::spawn_blocking(move || logs::tidy(&layout, number));
        // Its papers are made before its program can fill the disk, by who is told that it is the current one.
        self.publish();
        flush(&self.parts.flushes);
        tracing::info!(attempt = number, "begins");
        self.tell_program();
        if is_lost && let Some(attempt) = self.state.attempt.as_mut() {
            tracing::warn!("told to run what this machine knows nothing of any more; the program is lost");
            attempt.step = Step::Run;
            attempt.rebooted = true;
            self.close(Some(Ended { exit: Exit::Silent, at: Timestamp::now() }), Instant::now());
        }
    }

    fn is_retired(&self) -> bool {
        if self.order.as_ref().is_none_or(|o| o.want != Want::Retire) || !matches!(self.doing, Doing::Nothing) {
            return false;
        }
        match &self.state.attempt {
            Some(attempt) => attempt.exit.is_some() && self.is_handed_over(attempt),
            None => self.is_clean,
        }
    }

    async fn last_flush(&self) {
        let (done, is_done) = oneshot::channel();
        if self.parts.flushes.ask.send(done).await.is_ok() && tokio::time::timeout(LAST_FLUSH, is_done).await.is_err() {
            tracing::warn!("some output could not be sent");
        }
    }

    /// The files of a program of the attempt.
    pub(crate) fn papers(&self, name: Name) -> Papers {
        let number = self.state.attempt.as_ref().map_or(0, |a| a.number);
        Papers::new(&self.parts.layout.attempt(number), name.as_str())
    }

    /// The shim of the last program, where that is of this attempt.
    pub(crate) fn shim_of(&self, attempt: u32) -> Option<procs::Birth> {
        self.last_shim.filter(|(of, _)| *of == attempt).map(|(_, shim)| shim)
    }

    /// The processes of the program that lives.
    pub(crate) fn family(&self) -> Option<procs::Family> {
        self.live.map(|live| live.started.family)
    }

    /// What is to be ended with that program: people's commands, too.
    pub(crate) fn programs(&self, family: Option<procs::Family>) -> procs::Programs {
        let (layout, boot_id) = (&self.parts.layout, &self.parts.config.boot_id);
        let (commands, shims) = (exec::leaders(layout, boot_id), program::shims(layout));
        procs::Programs { home: self.parts.config.home.clone(), family, commands, shims }
    }
}

/// A program that ignores SIGTERM is killed so long before the machine goes, so that its end can still be told.
const LAST_WORDS: Duration = Duration::from_secs(2);
