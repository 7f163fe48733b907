//! What `top` knows and shows, and what its keys do. Nothing here reads or writes anything.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use rekindle_core::job::Phase;
use rekindle_wire::seeing::ProgressList;
use rekindle_wire::v1::{Fleet, FleetEntry, JobView, OutputLine, Owner};

use super::super::explain::wrapped;
use crate::human;

/// Events that are kept.
const EVENTS_MAX: usize = 200;
/// Lines of output that are kept while somebody looks.
const LINES_MAX: usize = 5000;
/// Rows that a page key moves by.
const PAGE: usize = 10;
/// Workers that a key scrolls by: not more than the least room for them.
const WORKERS: isize = 5;

/// A change of a job.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Event {
    pub(super) at: Timestamp,
    pub(super) job: String,
    pub(super) phase: Phase,
    pub(super) message: String,
}

/// A line of a text. `is_ours`: nothing that a program said, however it looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) text: String,
    pub(super) is_ours: bool,
}

/// Text to scroll in.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Pane {
    pub(super) title: String,
    pub(super) lines: VecDeque<Shown>,
    /// Lines below the window: 0 follows what comes.
    pub(super) from_end: usize,
    /// The worker whose progress bar is the last line: its next line takes that place.
    bar: Option<String>,
}

impl Pane {
    /// Adds a line of ours.
    pub(super) fn push(&mut self, line: &str) {
        self.bar = None;
        self.add(line, true);
    }

    /// Adds a line of output, or the heading of an attempt. Only where the server says so it is one: a program may print
    /// what looks like it.
    pub(super) fn output(&mut self, line: &OutputLine) {
        let Some(said) = &line.line else { return self.push(&format!("== attempt {} ==", line.attempt)) };
        let text = if line.workers > 1 { &format!("[{}] {said}", line.worker) } else { said };
        let is_same = self.bar.take().is_some_and(|of| of == line.worker);
        match self.lines.back_mut().filter(|_| is_same) {
            Some(bar) => bar.text = human::tame(text),
            None => self.add(text, false),
        }
        self.bar = line.is_open.then(|| line.worker.clone());
    }

    /// Adds a line, and forgets the oldest of too many.
    fn add(&mut self, line: &str, is_ours: bool) {
        self.lines.push_back(Shown { text: human::tame(line), is_ours });
        if self.from_end > 0 {
            self.from_end += 1;
        }
        while self.lines.len() > LINES_MAX {
            self.lines.pop_front();
        }
        self.from_end = self.from_end.min(self.lines.len());
    }

    /// `room`: lines that the window has.
    #[expect(clippy::wildcard_enum_match_arm, reason = "keyboards have many keys")]
    fn scroll(&mut self, code: KeyCode, room: usize) {
        let most = self.lines.len().saturating_sub(room);
        self.from_end = match code {
            KeyCode::Up | KeyCode::Char('k') => (self.from_end + 1).min(most),
            KeyCode::PageUp => (self.from_end + PAGE).min(most),
            KeyCode::Down | KeyCode::Char('j') => self.from_end.saturating_sub(1),
            KeyCode::PageDown => self.from_end.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => most,
            KeyCode::End | KeyCode::Char('G') => 0,
            _ => self.from_end,
        };
    }
}

/// What fills the screen.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum View {
    Main,
    Logs(Pane),
    Explain(Pane),
    Help,
    /// Cancel this job at this attempt?
    Ask {
        job: String,
        attempt: u32,
    },
}

/// The pane below the list that is shown where not all have room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lower {
    Attempts,
    Workers,
    Fleet,
    Events,
}

impl Lower {
    const fn next(self) -> Self {
        match self {
            Self::Attempts => Self::Workers,
            Self::Workers => Self::Fleet,
            Self::Fleet => Self::Events,
            Self::Events => Self::Attempts,
        }
    }

    const fn before(self) -> Self {
        match self {
            Self::Attempts => Self::Events,
            Self::Workers => Self::Attempts,
            Self::Fleet => Self::Workers,
            Self::Events => Self::Fleet,
        }
    }
}

/// What a key asks the world for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Another job is selected.
    Select(String),
    Logs(String),
    Explain(String),
    Cancel {
        job: String,
        attempt: u32,
    },
    /// The logs were closed.
    Close,
}

/// Everything that is drawn.
#[derive(Debug)]
pub(super) struct State {
    pub(super) server: String,
    pub(super) has_colours: bool,
    pub(super) now: Timestamp,
    /// Columns of the screen.
    width: usize,
    /// Lines that a text to scroll in has.
    room: usize,
    pub(super) jobs: BTreeMap<String, JobView>,
    /// The server has answered: no jobs are none.
    pub(super) is_known: bool,
    pub(super) selected: Option<String>,
    pub(super) progress: Option<ProgressList>,
    pub(super) fleet: Option<Fleet>,
    /// When it was as it is shown.
    pub(super) fleet_at: Timestamp,
    /// Workers of the selected job above the first that is shown.
    pub(super) workers_from: usize,
    pub(super) events: VecDeque<Event>,
    pub(super) view: View,
    pub(super) lower: Lower,
    /// The last answer or fault, in words.
    pub(super) said: Option<String>,
    /// Why nothing is known now.
    pub(super) down: Option<String>,
}

impl State {
    /// Nothing is known yet.
    pub(super) fn new(server: &str, has_colours: bool, now: Timestamp) -> Self {
        Self {
            server: server.to_owned(),
            has_colours,
            now,
            width: 80,
            room: 21,
            jobs: BTreeMap::new(),
            is_known: false,
            selected: None,
            progress: None,
            fleet: None,
            fleet_at: now,
            workers_from: 0,
            events: VecDeque::new(),
            view: View::Main,
            lower: Lower::Attempts,
            said: None,
            down: None,
        }
    }

    /// The screen has this size now, in columns and lines.
    pub(super) fn sized(&mut self, width: u16, height: u16) {
        // Beside the text there are the first line, the last, and its title.
        (self.width, self.room) = (width.into(), usize::from(height.saturating_sub(3)));
    }

    /// The job of which is shown why it is where it is.
    pub(super) fn explaining(&self) -> Option<&str> {
        let View::Explain(pane) = &self.view else { return None };
        self.selected.as_deref().filter(|job| pane.title == why(job))
    }

    /// Shows why a job is where it is: first from the beginning, and then what is new of it in the same place. Not where another was asked for since.
    pub(super) fn explained(&mut self, job: &str, lines: &[String]) {
        let (width, room) = (self.width, self.room);
        let View::Explain(pane) = &mut self.view else { return };
        if pane.title != why(job) {
            return;
        }
        let above = pane.lines.len().saturating_sub(room + pane.from_end);
        (pane.lines, pane.from_end) = (VecDeque::new(), 0);
        for line in lines {
            wrapped(line, width).lines().for_each(|line| pane.push(line));
        }
        pane.from_end = pane.lines.len().saturating_sub(room + above);
    }

    /// Says why that is not known, unless it was known before.
    pub(super) fn unexplained(&mut self, job: &str, why: &str) {
        if matches!(&self.view, View::Explain(pane) if pane.lines.is_empty()) {
            self.explained(job, &[why.to_owned()]);
        }
    }

    /// The jobs as they are listed: those that are not over first, each the newest first.
    pub(super) fn order(&self) -> Vec<&JobView> {
        let mut jobs: Vec<&JobView> = self.jobs.values().collect();
        jobs.sort_by_key(|job| (job.phase.is_terminal(), Reverse(job.created_at), job.id.clone()));
        jobs
    }

    /// What the fleet has, as far as is known now: the list is asked for seldom, and the jobs tell at once when a slice of theirs is gone.
    pub(super) fn resources(&self) -> Vec<&FleetEntry> {
        let is_there = |entry: &&FleetEntry| match self.owner_of(entry) {
            Some(job) => job.resources.iter().any(|resource| Some(resource.generation) == entry.generation),
            None => true,
        };
        self.fleet.iter().flat_map(|fleet| &fleet.resources).filter(is_there).collect()
    }

    /// What all of it costs an hour; `None` before the first list. Of the jobs that are listed it is what they hold themselves, which is as fresh as
    /// they are; of others, of orphans and of what is foreign only the fleet tells.
    pub(super) fn usd_per_hour(&self) -> Option<f64> {
        let fleet = self.fleet.as_ref()?;
        let others = fleet.resources.iter().filter(|entry| self.owner_of(entry).is_none());
        // What is only asked for costs nothing yet.
        let held = self.jobs.values().flat_map(|job| &job.resources).filter(|resource| resource.ready_at.is_some());
        let others: f64 = others.filter_map(|entry| entry.usd_per_hour).sum();
        Some(others + held.map(|resource| resource.usd_per_hour).sum::<f64>())
    }

    /// The job in the list that holds this.
    fn owner_of(&self, entry: &FleetEntry) -> Option<&JobView> {
        match &entry.owner {
            Some(Owner::Job(job)) => self.jobs.get(job.as_str()),
            Some(Owner::Orphan | Owner::Foreign) | None => None,
        }
    }

    /// The job that is selected, if it is still there.
    pub(super) fn job(&self) -> Option<&JobView> {
        self.jobs.get(self.selected.as_ref()?)
    }

    /// Takes all jobs anew. The first time, what they are at is the news.
    pub(super) fn all(&mut self, jobs: Vec<JobView>) {
        (self.down, self.is_known) = (None, true);
        if self.events.is_empty() {
            let mut events: Vec<Event> = jobs.iter().map(|job| event(job, job.phase_since)).collect();
            events.sort_by_key(|event| Reverse(event.at));
            self.events = events.into_iter().take(EVENTS_MAX).collect();
        }
        let known = std::mem::take(&mut self.jobs);
        for job in jobs {
            if known.get(job.id.as_str()).is_some_and(|known| is_news(known, &job)) {
                self.tell(&job);
            }
            self.jobs.insert(job.id.to_string(), job);
        }
        self.select_something();
    }

    /// Takes one job that changed.
    pub(super) fn one(&mut self, job: JobView, is_wanted: bool) {
        self.down = None;
        let known = self.jobs.get(job.id.as_str());
        if known.is_some_and(|known| known.revision > job.revision) {
            return;
        }
        if known.map_or(is_wanted, |known| is_news(known, &job)) {
            self.tell(&job);
        }
        if is_wanted {
            self.jobs.insert(job.id.to_string(), job);
        } else {
            self.jobs.remove(job.id.as_str());
        }
        self.select_something();
    }

    fn tell(&mut self, job: &JobView) {
        self.events.push_front(event(job, job.changed_at.unwrap_or(self.now)));
        self.events.truncate(EVENTS_MAX);
    }

    fn select_something(&mut self) {
        if self.job().is_none() {
            // What runs is what is looked at; else the newest.
            let order = self.order();
            let runs = order.iter().find(|job| job.phase == Phase::Running).or(order.first());
            self.selected = runs.map(|job| job.id.to_string());
            (self.progress, self.workers_from) = (None, 0);
        }
    }

    fn step(&mut self, by: isize) -> Option<Action> {
        let order = self.order();
        let last = order.len().checked_sub(1)?;
        let at = order.iter().position(|job| Some(job.id.as_str()) == self.selected.as_deref()).unwrap_or(0);
        let to = at.saturating_add_signed(by).min(last);
        let id = order[to].id.to_string();
        if self.selected.as_ref() == Some(&id) {
            return None;
        }
        self.selected = Some(id.clone());
        (self.progress, self.workers_from) = (None, 0);
        Some(Action::Select(id))
    }

    /// Scrolls the selected job's workers.
    fn scroll_workers(&mut self, by: isize) {
        let last = self.progress.as_ref().map_or(0, |list| list.workers.len().saturating_sub(1));
        self.workers_from = self.workers_from.saturating_add_signed(by).min(last);
    }

    /// What a key does.
    pub(super) fn key(&mut self, key: KeyEvent) -> Option<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Some(Action::Quit);
        }
        let room = self.room;
        match &mut self.view {
            View::Main => self.main_key(key.code),
            View::Help => {
                self.view = View::Main;
                None
            }
            View::Logs(pane) => {
                if is_back(key.code) {
                    self.view = View::Main;
                    return Some(Action::Close);
                }
                pane.scroll(key.code, room);
                None
            }
            View::Explain(pane) => {
                if is_back(key.code) {
                    self.view = View::Main;
                } else {
                    pane.scroll(key.code, room);
                }
                None
            }
            View::Ask { job, attempt } => {
                // Only a clear yes destroys something.
                let action = matches!(key.code, KeyCode::Char('y' | 'Y'))
                    .then(|| Action::Cancel { job: job.clone(), attempt: *attempt });
                self.view = View::Main;
                action
            }
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "keyboards have many keys")]
    fn main_key(&mut self, code: KeyCode) -> Option<Action> {
        self.said = None;
        match code {
            KeyCode::Char('q') => Some(Action::Quit),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(PAGE as isize),
            KeyCode::PageUp => self.step(-(PAGE as isize)),
            KeyCode::Home | KeyCode::Char('g') => self.step(isize::MIN),
            KeyCode::Tab | KeyCode::BackTab => {
                self.lower = if code == KeyCode::Tab { self.lower.next() } else { self.lower.before() };
                None
            }
            KeyCode::Right => {
                self.scroll_workers(WORKERS);
                None
            }
            KeyCode::Left => {
                self.scroll_workers(-WORKERS);
                None
            }
            KeyCode::End | KeyCode::Char('G') => self.step(isize::MAX),
            KeyCode::Enter | KeyCode::Char('l') => {
                let job = self.selected.clone()?;
                self.view = View::Logs(Pane { title: format!("output of {job}"), ..Pane::default() });
                Some(Action::Logs(job))
            }
            KeyCode::Char('e') => {
                let job = self.selected.clone()?;
                self.view = View::Explain(Pane { title: why(&job), ..Pane::default() });
                Some(Action::Explain(job))
            }
            KeyCode::Char('c') => {
                let (job, attempt, is_over) = self.job().map(|job| (job.id.to_string(), job.attempt, job.outcome))?;
                if let Some(outcome) = is_over {
                    self.said = Some(format!("{job} has its end already: {}", outcome.phase().as_str()));
                } else {
                    self.view = View::Ask { job, attempt };
                }
                None
            }
            KeyCode::Char('?' | 'h') => {
                self.view = View::Help;
                None
            }
            _ => None,
        }
    }
}

/// The title of what `explain` tells.
fn why(job: &str) -> String {
    format!("why {job} is where it is")
}

fn is_back(code: KeyCode) -> bool {
    matches!(code, KeyCode::Esc | KeyCode::Char('q') | KeyCode::Enter)
}

fn is_news(known: &JobView, job: &JobView) -> bool {
    (known.phase, &known.message, known.attempt) != (job.phase, &job.message, job.attempt)
}

fn event(job: &JobView, at: Timestamp) -> Event {
    Event { at, job: job.id.to_string(), phase: job.phase, message: human::tame(&job.message) }
}
