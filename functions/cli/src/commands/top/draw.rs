//! The screen from the state: pure, so that tests draw on a buffer.

use std::fmt::Write as _;

use ratatui_core::layout::{Constraint, Layout, Rect};
use ratatui_core::style::{Color, Modifier, Style};
use ratatui_core::terminal::Frame;
use ratatui_core::text::{Line, Span};
use ratatui_widgets::block::Block;
use ratatui_widgets::borders::Borders;
use ratatui_widgets::clear::Clear;
use ratatui_widgets::paragraph::{Paragraph, Wrap};
use ratatui_widgets::sparkline::Sparkline;
use ratatui_widgets::table::{Row, Table, TableState};
use rekindle_core::job::Phase;
use rekindle_wire::seeing::ProgressList;
use rekindle_wire::v1::{FleetEntry, JobView, Owner};
use unicode_width::UnicodeWidthStr as _;

use super::super::workspace;
use super::JOBS;
use super::state::{Lower, Pane, State, View};
use crate::{human, table};

/// Below this nothing useful fits.
const WIDTH_MIN: u16 = 30;
const HEIGHT_MIN: u16 = 6;
/// From this height on, the selected job's details are below the list, or fleet and events; from the next on, both.
const HEIGHT_DETAIL: u16 = 16;
const HEIGHT_ALL: u16 = 26;
/// From this width on, panes stand side by side; below, one of two is shown.
const WIDTH_WIDE: u16 = 90;
/// Levels of a sparkline's bars.
const LEVELS: u64 = 64;

/// What the keys do, with how soon each is left out where it is narrow: `?` tells them all.
const KEYS: [(&str, usize); 8] = [
    ("↑↓ select", 2),
    ("Tab panes", 1),
    ("←→ workers", 0),
    ("l logs", 5),
    ("e explain", 4),
    ("c cancel", 3),
    ("? keys", 7),
    ("q quit", 6),
];
const HELP: [&str; 12] = [
    "↑ ↓ k j      select a job; in a text: scroll",
    "PgUp PgDn    ten at once",
    "g G          the first, the last",
    "Tab          attempts, workers, fleet, events: what has no room",
    "← →          the job's other workers",
    "l, Enter     output of the job, as it comes",
    "e            why it is where it is, and what happens next",
    "c            cancel it; asks first",
    "Esc          back",
    "q, Ctrl-C    quit",
    "a larger terminal shows more columns and panes",
    "any key closes this",
];

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let area = frame.area();
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        let words = format!("too small: {WIDTH_MIN} by {HEIGHT_MIN} at least");
        frame.render_widget(Paragraph::new(words).wrap(Wrap { trim: true }), area);
        return;
    }
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    frame.render_widget(header(state, usize::from(head.width)), head);
    match &state.view {
        View::Logs(pane) | View::Explain(pane) => text(frame, body, pane, matches!(state.view, View::Logs(_))),
        View::Main | View::Help | View::Ask { .. } => main(frame, body, state),
    }
    match &state.view {
        View::Help => dialog(frame, body, "keys", &HELP.map(str::to_owned)),
        View::Ask { job, .. } => {
            let question = format!("Cancel {job}?");
            let what = "It is ended for good, and its TPU is given back.".to_owned();
            dialog(frame, body, &question, &[what, String::new(), "y yes   any other key: no".to_owned()]);
        }
        View::Main | View::Logs(_) | View::Explain(_) => {}
    }
    frame.render_widget(footer(state, usize::from(foot.width)), foot);
}

fn header(state: &State, width: usize) -> Paragraph<'_> {
    let count = |phases: &[Phase]| state.jobs.values().filter(|job| phases.contains(&job.phase)).count();
    let waits = count(&[Phase::Pending, Phase::Provisioning, Phase::Starting]);
    // Older ones are not asked for.
    let newest = if state.jobs.len() < JOBS { "" } else { "the newest " };
    let jobs = if state.is_known { human::count(state.jobs.len() as u64, "job") } else { "…loading".to_owned() };
    let mut text = format!("{newest}{jobs}");
    for (number, word) in [
        (count(&[Phase::Running]), "running"),
        (waits, "waiting"),
        (count(&[Phase::Recovering]), "recovering"),
        (count(&[Phase::Paused]), "paused"),
        (count(&[Phase::Failed]), "failed"),
    ] {
        if number > 0 {
            let _ = write!(text, ", {number} {word}");
        }
    }
    if let Some(usd) = state.usd_per_hour() {
        let _ = write!(text, "  {} an hour", human::usd(usd));
    }
    // Whose jobs these are is known; how they are is the news.
    let heads = [format!("rekindle {}  ", state.server), "rekindle  ".to_owned(), String::new()];
    let fits = |head: &&String| head.width() + text.width() <= width;
    let head = heads.iter().find(fits).map_or("", String::as_str);
    Paragraph::new(format!("{head}{text}")).style(Style::new().add_modifier(Modifier::BOLD))
}

/// As many keys as there is room for, the most useful ones.
fn keys(width: usize) -> String {
    let told = |from: usize| {
        let shown = KEYS.iter().filter(|(_, rank)| *rank >= from).map(|(text, _)| *text);
        shown.collect::<Vec<_>>().join("  ")
    };
    (0..KEYS.len()).map(told).find(|text| text.width() <= width).unwrap_or_default()
}

fn footer(state: &State, width: usize) -> Paragraph<'_> {
    let warn = Style::new().add_modifier(Modifier::REVERSED);
    match (&state.down, &state.said, &state.view) {
        (Some(down), _, _) => {
            Paragraph::new(format!("{}; going on as soon as it is back", human::tame(down))).style(warn)
        }
        (None, Some(said), _) => Paragraph::new(human::tame(said)).style(warn),
        (None, None, View::Logs(_) | View::Explain(_)) => Paragraph::new("↑↓ scroll  G newest  Esc back"),
        (None, None, View::Main | View::Help | View::Ask { .. }) => Paragraph::new(keys(width)),
    }
}

fn main(frame: &mut Frame<'_>, area: Rect, state: &State) {
    if area.height < HEIGHT_DETAIL {
        return jobs(frame, area, state);
    }
    if area.height < HEIGHT_ALL {
        let [top, below] = Layout::vertical([Constraint::Min(5), Constraint::Length(8)]).areas(area);
        jobs(frame, top, state);
        return match state.lower {
            Lower::Attempts | Lower::Workers => detail(frame, below, state),
            Lower::Fleet | Lower::Events => world(frame, below, state),
        };
    }
    let [top, middle, below] =
        Layout::vertical([Constraint::Min(6), Constraint::Length(9), Constraint::Length(8)]).areas(area);
    jobs(frame, top, state);
    detail(frame, middle, state);
    world(frame, below, state);
}

/// What there is beside the selected job.
fn world(frame: &mut Frame<'_>, area: Rect, state: &State) {
    if area.width < WIDTH_WIDE {
        return match state.lower {
            Lower::Fleet => fleet(frame, area, state),
            Lower::Attempts | Lower::Workers | Lower::Events => events(frame, area, state),
        };
    }
    let [left, right] = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(area);
    fleet(frame, left, state);
    events(frame, right, state);
}

fn titled(title: &str) -> Block<'static> {
    Block::new().borders(Borders::TOP).title(format!(" {} ", human::tame(title)))
}

/// Widths of the columns that every terminal shows; the last takes what is left.
const PHASE: u16 = 12;
const WHY_MIN: u16 = 8;

/// A column: title, width, the width of the screen from which on it is shown, cell.
type Column = (&'static str, u16, u16, fn(&JobView, &State) -> String);

const COLUMNS: [Column; 9] = [
    ("FOR", 7, 50, |job, state| human::age(job.phase_since, state.now)),
    ("ATT", 4, 64, |job, _| job.attempt.to_string()),
    ("STEP", 9, 56, |job, state| human::step(step(job, state), job.phase, job.phase_since, state.now)),
    ("LOSS", 9, 74, |job, state| loss(job, state).unwrap_or_else(dash)),
    ("TPU", 14, 90, |job, _| job.resources.last().map_or_else(dash, |resource| resource.accelerator.clone())),
    ("ZONE", 15, 126, |job, _| job.resources.last().map_or_else(dash, |resource| resource.zone.clone())),
    ("PREEMPTED", 9, 110, |job, _| job.counters.preemptions.to_string()),
    ("COST", 9, 104, |job, _| human::usd(job.cost_usd)),
    ("OWNER", 18, 150, |job, _| human::tame(&job.owner)),
];

fn dash() -> String {
    "-".to_owned()
}

/// The list's step is that of the last pass; of the selected job the workers' own is known.
fn step(job: &JobView, state: &State) -> Option<u64> {
    let told = progress_of(job, state).and_then(|list| list.workers.iter().filter_map(|worker| worker.step).max());
    told.max(job.progress.step)
}

fn loss(job: &JobView, state: &State) -> Option<String> {
    let list = progress_of(job, state);
    let newest =
        list.and_then(|list| list.workers.iter().filter(|worker| worker.step.is_some()).max_by_key(|w| w.step));
    newest.and_then(|worker| worker.loss.clone()).or_else(|| job.progress.loss.clone()).map(|loss| human::loss(&loss))
}

fn progress_of<'a>(job: &JobView, state: &'a State) -> Option<&'a ProgressList> {
    state.progress.as_ref().filter(|list| list.id == job.id)
}

fn jobs(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let order = state.order();
    if order.is_empty() {
        let words = if state.is_known {
            "no jobs; `rekindle run --tpu v5litepod-8 -- COMMAND` submits one"
        } else {
            "…loading"
        };
        frame.render_widget(Paragraph::new(words).wrap(Wrap { trim: true }), area);
        return;
    }
    // Below the heading; the last line tells of those that have no room.
    let room = usize::from(area.height.saturating_sub(1));
    let (area, rest) = if order.len() > room && area.height > 3 {
        let [list, rest] = Layout::vertical([Constraint::Min(1), Constraint::Length(1)]).areas(area);
        (list, Some(rest))
    } else {
        (area, None)
    };
    if let Some(rest) = rest {
        let words = format!("{} of {} jobs; ↑↓ PgDn for the others", room - 1, order.len());
        frame.render_widget(Paragraph::new(words).style(Style::new().add_modifier(Modifier::DIM)), rest);
    }
    let columns: Vec<&Column> = COLUMNS.iter().filter(|(_, _, from, _)| area.width >= *from).collect();
    let longest = order.iter().map(|job| job.id.as_str().len()).max().unwrap_or(3);
    let name = u16::try_from(longest.clamp(3, usize::from(area.width / 3))).unwrap_or(20);
    // Between two columns is one blank.
    let before = columns.iter().fold(name + 1 + PHASE + 1, |sum, (_, width, ..)| sum + width + 1);
    let why = area.width.saturating_sub(before);
    let widths = [Constraint::Length(name), Constraint::Length(PHASE)]
        .into_iter()
        .chain(columns.iter().map(|(_, width, _, _)| Constraint::Length(*width)))
        .chain([Constraint::Min(WHY_MIN)]);
    let head = ["JOB", "PHASE"].into_iter().chain(columns.iter().map(|(title, ..)| *title)).chain(["WHY"]);
    let rows = order.iter().map(|job| {
        let word = if workspace::is_deleted(job) { "deleted" } else { job.phase.as_str() };
        let phase = Span::styled(word, colour(job.phase, state));
        let cells = [Line::from(job.id.to_string()), Line::from(phase)]
            .into_iter()
            .chain(columns.iter().map(|(.., cell)| Line::from(cell(job, state))))
            .chain([Line::from(table::cut(&human::one_line(&job.message), usize::from(why)).into_owned())]);
        Row::new(cells.collect::<Vec<_>>())
    });
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let at = order.iter().position(|job| Some(job.id.as_str()) == state.selected.as_deref());
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(at));
}

fn colour(phase: Phase, state: &State) -> Style {
    if !state.has_colours {
        return Style::new();
    }
    Style::new().fg(match phase {
        Phase::Pending | Phase::Provisioning | Phase::Starting => Color::Blue,
        Phase::Running => Color::Cyan,
        Phase::Recovering | Phase::Stopping => Color::Yellow,
        Phase::Paused => Color::Magenta,
        Phase::Succeeded => Color::Green,
        Phase::Failed => Color::Red,
        Phase::Cancelled => Color::DarkGray,
    })
}

/// The selected job: its loss, its attempts, its workers.
fn detail(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let Some(job) = state.job() else { return };
    let list = progress_of(job, state);
    if area.width < WIDTH_WIDE {
        return match state.lower {
            Lower::Workers => workers(frame, area, list, state),
            Lower::Attempts | Lower::Fleet | Lower::Events => attempts(frame, area, job, list, state),
        };
    }
    let [left, right] = Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)]).areas(area);
    attempts(frame, left, job, list, state);
    workers(frame, right, list, state);
}

fn attempts(frame: &mut Frame<'_>, area: Rect, job: &JobView, list: Option<&ProgressList>, state: &State) {
    let block = titled(&format!("{}: attempts", job.id));
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let [plot, told] = Layout::vertical([Constraint::Length(2), Constraint::Min(1)]).areas(inner);
    let losses = list.map(losses).unwrap_or_default();
    if losses.len() < 2 {
        let words = match (list, losses.as_slice()) {
            (None, _) => "…",
            (Some(_), []) => "no loss was reported",
            (Some(_), _) => "one loss so far",
        };
        frame.render_widget(Paragraph::new(words), plot);
    } else {
        let bars = bars(&losses, usize::from(plot.width));
        let mut line = Sparkline::default().data(bars).max(LEVELS);
        if state.has_colours {
            line = line.style(Style::new().fg(Color::Cyan));
        }
        frame.render_widget(line, plot);
    }
    let mut lines: Vec<Line<'_>> = Vec::new();
    match losses.as_slice() {
        [] => {}
        [one] => lines.push(Line::from(format!("loss {}", number(*one)))),
        [first, .., last] => lines.push(Line::from(format!("loss {} → {}", number(*first), number(*last)))),
    }
    for attempt in list.map(|list| list.attempts.as_slice()).unwrap_or_default().iter().rev() {
        let (Some(first), Some(last)) = (attempt.points.first(), attempt.points.last()) else { continue };
        let secs = last.at.duration_since(first.at).as_secs();
        let (number, from, to) = (attempt.attempt, first.step, last.step);
        lines.push(Line::from(format!("attempt {number}: steps {from} to {to} in {}", human::duration(secs))));
    }
    if let Some(end) = &job.last_end {
        // A good end has no kind, and its summary says all.
        let kind = end.kind.map_or_else(String::new, |kind| format!("{}: ", kind.as_str()));
        lines.insert(
            lines.len().min(2),
            Line::from(format!("attempt {} ended: {kind}{}", end.attempt, human::tame(&end.summary))),
        );
    }
    frame.render_widget(Paragraph::new(lines), told);
}

/// A loss as a program would write it: in the shorter form, as beside it in the lists.
fn number(loss: f64) -> String {
    let (plain, scientific) = (loss.to_string(), format!("{loss:e}"));
    human::loss(if scientific.len() < plain.len() { &scientific } else { &plain })
}

/// Every loss that was reported, in time.
fn losses(list: &ProgressList) -> Vec<f64> {
    list.attempts.iter().flat_map(|attempt| &attempt.points).filter_map(|point| point.loss).collect()
}

/// As many bars as there is room for, the lowest loss one level high.
fn bars(losses: &[f64], room: usize) -> Vec<u64> {
    let (low, high) = losses.iter().fold((f64::MAX, f64::MIN), |(low, high), loss| (low.min(*loss), high.max(*loss)));
    let scale = |loss: f64| 1 + ((loss - low) / (high - low).max(f64::MIN_POSITIVE) * (LEVELS - 1) as f64) as u64;
    let count = losses.len().min(room);
    (0..count).map(|bar| scale(losses[bar * (losses.len() - 1) / count.saturating_sub(1).max(1)])).collect()
}

fn workers(frame: &mut Frame<'_>, area: Rect, list: Option<&ProgressList>, state: &State) {
    let workers = list.map(|list| list.workers.as_slice()).unwrap_or_default();
    let slices = workers.iter().map(|worker| worker.slice).max().unwrap_or(0);
    // A line of the border, and the heading.
    let room = usize::from(area.height.saturating_sub(2));
    let from = state.workers_from.min(workers.len().saturating_sub(room));
    let shown = &workers[from..workers.len().min(from + room)];
    let title = if shown.len() < workers.len() {
        format!("workers {} to {} of {}, ← → for more", from + 1, from + shown.len(), workers.len())
    } else {
        "workers".to_owned()
    };
    let rows = shown.iter().map(|worker| {
        let name =
            if slices > 0 { format!("s{}w{}", worker.slice, worker.worker) } else { format!("w{}", worker.worker) };
        let notice = worker.notice_deadline.map(|at| format!("taken away {}", human::until(at, state.now)));
        Row::new(vec![
            name,
            format!("{:?}", worker.state).to_lowercase(),
            worker.step.map_or_else(dash, |step| step.to_string()),
            worker.loss.as_deref().map_or_else(dash, human::loss),
            human::age(worker.heard_at, state.now),
            notice.unwrap_or_else(|| worker.memory_free_bytes.map_or_else(dash, human::bytes)),
        ])
    });
    let widths = [6, 10, 10, 10, 7, 20].map(Constraint::Length);
    let head = Row::new(["WORKER", "STATE", "STEP", "LOSS", "HEARD", "MEMORY FREE"]);
    let table = Table::new(rows, widths).header(head.style(Style::new().add_modifier(Modifier::BOLD)));
    frame.render_widget(table.block(titled(&title)), area);
}

fn fleet(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let entries = state.resources();
    let whose = |entry: &FleetEntry| match &entry.owner {
        Some(Owner::Job(job)) => job.to_string(),
        Some(Owner::Orphan) => "ORPHAN".to_owned(),
        Some(Owner::Foreign) => "FOREIGN".to_owned(),
        // The policy does not show whose.
        None => "a job".to_owned(),
    };
    // Below the title. What costs money for nothing must be seen, however many there are.
    let room = usize::from(area.height.saturating_sub(1));
    let mut order = entries.clone();
    order.sort_by_key(|entry| (!matches!(entry.owner, Some(Owner::Orphan)), entry.idle.is_none()));
    let more = if order.len() > room { order.len() - room.saturating_sub(1) } else { 0 };
    order.truncate(order.len() - more);
    let rows = order.into_iter().map(|entry| {
        let usd = entry.usd_per_hour.map_or_else(dash, |usd| format!("{usd:.2}"));
        let does = entry.idle.map_or_else(
            || entry.state.clone(),
            |idle| format!("{} {}", idle.cause.account(), human::duration(idle.secs)),
        );
        let row = Row::new(vec![whose(entry), does, entry.accelerator.clone(), entry.zone.clone(), usd]);
        match entry.owner {
            Some(Owner::Orphan) => row.style(Style::new().add_modifier(Modifier::REVERSED)),
            Some(Owner::Job(_) | Owner::Foreign) | None => row,
        }
    });
    let widths = [
        Constraint::Min(10),
        Constraint::Length(11),
        Constraint::Length(13),
        Constraint::Length(15),
        Constraint::Length(7),
    ];
    let silent = state.fleet.as_ref().map_or(0, |fleet| fleet.unreachable.len());
    // It is asked for seldom: each look asks the provider about every zone.
    let age = human::age(state.fleet_at, state.now);
    let title = match (&state.fleet, silent) {
        (None, _) => "fleet: …".to_owned(),
        (Some(_), 0) => format!("fleet {age} ago: {}", entries.len()),
        (Some(_), silent) => {
            format!("fleet {age} ago: {}, no answer of {}", entries.len(), human::count(silent as u64, "zone"))
        }
    };
    frame.render_widget(Table::new(rows, widths).block(titled(&title)), area);
    if more > 0 && area.height > 1 {
        let last = Rect { y: area.y + area.height - 1, height: 1, ..area };
        frame.render_widget(Paragraph::new(format!("and {more} more: `rekindle fleet`")), last);
    }
}

fn events(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let room = usize::from(area.height.saturating_sub(1));
    let lines = state.events.iter().take(room).map(|event| {
        Line::from(vec![
            Span::raw(format!("{:>5} ", human::age(event.at, state.now))),
            Span::raw(format!("{} ", event.job)),
            Span::styled(format!("{} ", event.phase.as_str()), colour(event.phase, state)),
            Span::raw(event.message.as_str()),
        ])
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(titled("events")), area);
}

/// The end of a text, or as far above it as it was scrolled.
fn text(frame: &mut Frame<'_>, area: Rect, pane: &Pane, is_cut: bool) {
    let block = titled(&pane.title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    if pane.lines.is_empty() {
        frame.render_widget(Paragraph::new("nothing yet"), inner);
        return;
    }
    let room = usize::from(inner.height);
    let last = pane.lines.len() - pane.from_end.min(pane.lines.len().saturating_sub(room));
    let lines = pane.lines.range(last.saturating_sub(room)..last).map(|line| {
        // In output ours stand out, so that no program can speak for us.
        let style = if line.is_ours && is_cut { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() };
        Line::styled(line.text.as_str(), style)
    });
    let paragraph = Paragraph::new(lines.collect::<Vec<_>>());
    // Output is cut at the edge, so that a line is a row; a paragraph of words is broken.
    frame.render_widget(if is_cut { paragraph } else { paragraph.wrap(Wrap { trim: false }) }, inner);
}

fn dialog(frame: &mut Frame<'_>, area: Rect, title: &str, lines: &[String]) {
    let longest = lines.iter().map(|line| line.chars().count()).chain([title.chars().count()]).max().unwrap_or(0);
    let width = u16::try_from(longest + 4).unwrap_or(area.width).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(area.height).min(area.height);
    let place = Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    let block = Block::new().borders(Borders::ALL).title(format!(" {title} "));
    let lines: Vec<Line<'_>> = lines.iter().map(|line| Line::from(format!(" {line}"))).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(block), place);
}
