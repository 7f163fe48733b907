//! `top`: jobs, attempts, workers, fleet and events on the whole screen, as they change.

mod draw;
mod state;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal as _, Stdout, stdout};
use std::pin::{Pin, pin};
use std::time::Duration;

use futures::future::LocalBoxFuture;
use futures::stream::{FuturesUnordered, Stream, StreamExt as _};
use jiff::Timestamp;
use ratatui_core::layout::Rect;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::{self, Event as Input, KeyCode, KeyEventKind, KeyModifiers};
use ratatui_crossterm::crossterm::{cursor, execute, terminal};
use rekindle_wire::seeing::ProgressList;
use rekindle_wire::v1::{CommandBody, ExplainView, Fleet, OutputLine};
use rustix::process::{Signal, getpgrp, getpid, getsid, kill_current_process_group, kill_process};
use rustix::termios::tcgetpgrp;
use serde_json::Value;
use tokio::signal::unix::{Signal as Listened, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};

use super::live::{self, News};
use super::{Context, job_path, ps};
use crate::answers;
use crate::api::{Events, typed};
use crate::args::{Ps, Top};
use crate::exit::Exit;
use crate::fault::{Fault, Result};
use crate::printer;
use state::{Action, State, View};

/// Newest jobs that are listed.
const JOBS: usize = 500;
/// Changes and keys that may wait to be taken.
const WAITING: usize = 256;
/// Between two looks at the selected job's workers and at why it is where it is, and at the fleet, in seconds.
const WORKERS_SECS: u64 = 2;
const FLEET_SECS: u64 = 15;
/// Output is shown from so many bytes before its end on: more than the lines that are kept.
const TAIL_BYTES: u64 = 1 << 20;
/// Before a stream of output that broke off is opened again.
const AGAIN: Duration = Duration::from_secs(1);

/// Shows the screen until it is left; with `--json` what would be on it, once.
pub(crate) async fn run(context: &Context, options: Top) -> Result<()> {
    let wanted = Ps { owner: options.owner, tag: options.tag, limit: JOBS, ..Ps::default() };
    if context.printer.is_json {
        let (jobs, _) = ps::list::<Value>(context, &wanted).await?;
        let fleet = context.api.get("/v1/fleet", &[]).await?;
        return context.printer.json(&answers::Screen { jobs, fleet });
    }
    if !context.printer.is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Fault::input("`rekindle top` draws on a terminal, and this is none")
            .next("`rekindle ps --watch` tells each change as a line; `rekindle top --json` shows all once"));
    }
    // Fails in plain words when there is no server, before the screen is taken.
    ps::list::<Value>(context, &Ps { limit: 1, ..Ps::default() }).await?;
    // Before the screen is taken, so that none of them leaves it as it is.
    let mut signals = Signals::listen()?;
    let mut screen = Screen::open()?;
    let mut top = World {
        context,
        wanted: &wanted,
        state: State::new(context.api.url(), printer::has_colours(), Timestamp::now()),
        looks: FuturesUnordered::new(),
        output: None,
    };
    top.show(&mut screen, &mut signals).await
}

/// The terminal while it is ours: raw, on its other screen. Given back when this ends, also by a panic, and while it is stopped.
struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    /// Given back until it is continued.
    is_away: bool,
}

impl Screen {
    fn open() -> Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        let terminal = take().and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        if terminal.is_err() {
            give_back();
        }
        Ok(Self { terminal: terminal?, is_away: false })
    }

    /// Gives the terminal back, and stops as every program does. Where no shell has given us a group of our own none would continue us, and the
    /// system stops nobody there either.
    fn stop(&mut self) -> std::io::Result<()> {
        if getsid(None)? == getpgrp() {
            return Ok(());
        }
        if !std::mem::replace(&mut self.is_away, true) {
            give_back();
        }
        Ok(kill_process(getpid(), Signal::STOP)?)
    }

    /// Takes the terminal again: who had it meanwhile has set it as it was, and has written on it. In the background it is another's,
    /// and this waits until it is brought back, as every program that wants it.
    fn go_on(&mut self) -> std::io::Result<()> {
        if tcgetpgrp(stdout()).is_ok_and(|front| front != getpgrp()) {
            return Ok(kill_process(getpid(), Signal::STOP)?);
        }
        if !std::mem::take(&mut self.is_away) {
            give_back();
        }
        take()?;
        // All of it is drawn anew by that. `clear` would ask the terminal for its cursor, and the answer goes to who reads the keys.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }
}

fn take() -> std::io::Result<()> {
    terminal::enable_raw_mode()?;
    execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide)
}

impl Drop for Screen {
    fn drop(&mut self) {
        if !self.is_away {
            give_back();
        }
    }
}

fn give_back() {
    let _gone = terminal::disable_raw_mode();
    let _gone = execute!(stdout(), terminal::LeaveAlternateScreen, cursor::Show);
}

/// Keys and changes of the size. The thread ends with the process: a read of a terminal cannot be ended.
fn inputs() -> Receiver<Input> {
    let (tell, told) = channel(WAITING);
    std::thread::spawn(move || {
        while let Ok(input) = event::read() {
            if tell.blocking_send(input).is_err() {
                return;
            }
        }
    });
    told
}

/// An answer that was asked for.
enum Got {
    Progress(String, Result<ProgressList>),
    Fleet(Result<Fleet>),
    Explain(String, Result<ExplainView>),
    Cancel(String, Result<()>),
}

/// What is to be shown below each other in the output of a job.
enum Said {
    Output(OutputLine),
    /// A word of our own.
    Ours(String),
}

type Output<'a> = Pin<Box<dyn Stream<Item = Vec<Said>> + 'a>>;

struct World<'a> {
    context: &'a Context,
    wanted: &'a Ps,
    state: State,
    looks: FuturesUnordered<LocalBoxFuture<'a, Got>>,
    output: Option<Output<'a>>,
}

impl World<'_> {
    async fn show(&mut self, screen: &mut Screen, signals: &mut Signals) -> Result<()> {
        let (tell, mut news) = channel(WAITING);
        let mut feed = pin!(live::feed(self.context, self.wanted, &tell));
        let mut inputs = inputs();
        let mut clock = tokio::time::interval(Duration::from_secs(1));
        let mut second = 0_u64;
        loop {
            self.state.now = Timestamp::now();
            if !screen.is_away {
                let size = screen.terminal.size()?;
                self.state.sized(size.width, size.height);
                screen.terminal.draw(|frame| draw::draw(frame, &self.state))?;
            }
            tokio::select! {
                failed = &mut feed => return failed.map(|never| match never {}),
                Some(one) = news.recv() => {
                    self.take(one)?;
                    // A storm of changes is drawn once.
                    while let Ok(one) = news.try_recv() {
                        self.take(one)?;
                    }
                }
                input = inputs.recv() => match input {
                    None => return Err(Fault::unexpected("the terminal is gone")),
                    Some(input) => if self.input(&input) { return Ok(()) },
                },
                Some(got) = self.looks.next(), if !self.looks.is_empty() => self.got(got),
                lines = next(&mut self.output) => self.lines(&lines),
                _ = clock.tick() => {
                    if second.is_multiple_of(WORKERS_SECS) {
                        self.ask_progress();
                        if let Some(job) = self.state.explaining().map(str::to_owned) {
                            self.looks.push(Box::pin(explain(self.context, job)));
                        }
                    }
                    if second.is_multiple_of(FLEET_SECS) {
                        self.looks.push(Box::pin(fleet(self.context)));
                    }
                    second += 1;
                }
                told = signals.recv() => match told {
                    Told::End => return Ok(()),
                    Told::Stop => screen.stop()?,
                    Told::GoOn => screen.go_on()?,
                },
            }
        }
    }

    fn take(&mut self, news: News) -> Result<()> {
        match news {
            News::All(jobs) => self.state.all(jobs.into_iter().map(typed).collect::<Result<_>>()?),
            News::One(job) => {
                let is_wanted = live::is_wanted(&job, self.wanted);
                self.state.one(typed(job)?, is_wanted);
            }
            News::Down(what) => self.state.down = Some(what),
        }
        if self.state.progress.is_none() {
            self.ask_progress();
        }
        Ok(())
    }

    fn ask_progress(&mut self) {
        if let Some(job) = self.state.selected.clone() {
            self.looks.push(Box::pin(progress(self.context, job)));
        }
    }

    /// True when that was all.
    fn input(&mut self, input: &Input) -> bool {
        // Another size is drawn by itself.
        let Some(key) = input.as_key_event().filter(|key| key.kind != KeyEventKind::Release) else { return false };
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('z') {
            // As the terminal does it while it is not raw: for all of the pipeline, this program among them.
            let _none = kill_current_process_group(Signal::TSTP);
            return false;
        }
        match self.state.key(key) {
            None => {}
            Some(Action::Quit) => return true,
            Some(Action::Select(_)) => self.ask_progress(),
            Some(Action::Close) => self.output = None,
            Some(Action::Logs(job)) => self.output = Some(output(self.context, job)),
            Some(Action::Explain(job)) => self.looks.push(Box::pin(explain(self.context, job))),
            Some(Action::Cancel { job, attempt }) => self.looks.push(Box::pin(cancel(self.context, job, attempt))),
        }
        false
    }

    fn got(&mut self, got: Got) {
        match got {
            Got::Progress(job, Ok(list)) if self.state.selected.as_ref() == Some(&job) => {
                self.state.progress = Some(list);
            }
            // The stream of changes tells when the server is away.
            Got::Progress(..) | Got::Fleet(Err(_)) => {}
            Got::Fleet(Ok(fleet)) => {
                (self.state.fleet, self.state.fleet_at) = (Some(fleet), Timestamp::now());
            }
            Got::Explain(job, Ok(view)) => {
                let facts = view.facts.iter().map(|fact| format!("- {fact}"));
                let lines: Vec<String> = [view.paragraph, String::new()].into_iter().chain(facts).collect();
                self.state.explained(&job, &lines);
            }
            Got::Explain(job, Err(fault)) => self.state.unexplained(&job, fault.what()),
            Got::Cancel(job, Ok(())) => self.state.said = Some(format!("{job} will be cancelled")),
            Got::Cancel(job, Err(fault)) => self.state.said = Some(format!("{job} is not cancelled: {}", fault.what())),
        }
    }

    fn lines(&mut self, lines: &[Said]) {
        if let View::Logs(pane) = &mut self.state.view {
            for line in lines {
                match line {
                    Said::Output(line) => pane.output(line),
                    Said::Ours(text) => pane.push(text),
                }
            }
        }
    }
}

/// What a signal asks for.
enum Told {
    End,
    Stop,
    GoOn,
}

/// SIGTERM and SIGHUP end it in order, SIGTSTP stops it and SIGCONT brings it back; Ctrl-C and Ctrl-Z are keys while the terminal is raw.
struct Signals {
    term: Listened,
    hup: Listened,
    stop: Listened,
    go_on: Listened,
}

impl Signals {
    fn listen() -> Result<Self> {
        let on = |of: Signal| signal(SignalKind::from_raw(of.as_raw()));
        Ok(Self { term: on(Signal::TERM)?, hup: on(Signal::HUP)?, stop: on(Signal::TSTP)?, go_on: on(Signal::CONT)? })
    }

    async fn recv(&mut self) -> Told {
        tokio::select! {
            // Who ends what is stopped lets it go on, too.
            biased;
            _ = self.term.recv() => Told::End,
            _ = self.hup.recv() => Told::End,
            _ = self.stop.recv() => Told::Stop,
            _ = self.go_on.recv() => Told::GoOn,
        }
    }
}

/// The next lines of the output, if one is followed. A stream that has ended is not asked again.
async fn next(output: &mut Option<Output<'_>>) -> Vec<Said> {
    if let Some(stream) = output {
        if let Some(lines) = stream.next().await {
            return lines;
        }
        *output = None;
    }
    std::future::pending().await
}

async fn progress(context: &Context, job: String) -> Got {
    let look = async {
        let path = job_path(&job, "/progress")?;
        typed(context.api.get(&path, &[]).await?)
    };
    let list = look.await;
    Got::Progress(job, list)
}

async fn fleet(context: &Context) -> Got {
    Got::Fleet(context.api.get("/v1/fleet", &[]).await.and_then(typed))
}

async fn explain(context: &Context, job: String) -> Got {
    let look = async {
        let path = job_path(&job, "/explain")?;
        typed(context.api.get(&path, &[]).await?)
    };
    let told = look.await;
    Got::Explain(job, told)
}

/// A line as the server tells it, which is an object; of an older server it is the text itself.
fn said(line: &str) -> Said {
    match serde_json::from_str(line) {
        Ok(line) => Said::Output(line),
        Err(_text) => Said::Output(OutputLine { workers: 1, line: Some(line.to_owned()), ..OutputLine::default() }),
    }
}

/// Only what was seen is acted on: another attempt by now is refused.
async fn cancel(context: &Context, job: String, attempt: u32) -> Got {
    let body = CommandBody { if_attempt: Some(attempt), ..CommandBody::default() };
    let done: Result<(Value, bool)> = context.api.command(&job, "cancel", &body).await;
    Got::Cancel(job, done.map(drop))
}

/// The end of a job's output, and what comes, over attempts and over breaks, to its end.
fn output(context: &Context, job: String) -> Output<'_> {
    struct Place {
        job: String,
        events: Option<Events>,
        last_id: Option<String>,
        is_over: bool,
    }
    let place = Place { job, events: None, last_id: None, is_over: false };
    Box::pin(futures::stream::unfold(place, move |mut place| async move {
        loop {
            if place.is_over {
                return None;
            }
            let Some(events) = &mut place.events else {
                let query = [
                    ("follow", Some("true".to_owned())),
                    ("form", Some("lines".to_owned())),
                    ("tail", Some(TAIL_BYTES.to_string())),
                ];
                let path = format!("/v1/jobs/{}/logs", place.job);
                match context.api.events(&path, &query, place.last_id.as_deref()).await {
                    Ok(events) => place.events = Some(events),
                    Err(fault) if fault.exit() != Exit::Unexpected => {
                        place.is_over = true;
                        return Some((vec![Said::Ours(fault.what().to_owned())], place));
                    }
                    Err(_away) => tokio::time::sleep(AGAIN).await,
                }
                continue;
            };
            match events.next().await {
                Ok(Some(event)) if event.kind == "end" => {
                    place.is_over = true;
                    return Some((vec![Said::Ours(format!("== the job has ended: {} ==", event.data))], place));
                }
                Ok(Some(event)) => {
                    let lines = event.data.lines().map(said).collect();
                    place.last_id = Some(event.id).filter(|id| !id.is_empty());
                    return Some((lines, place));
                }
                Ok(None) | Err(_) => {
                    place.events = None;
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }))
}
