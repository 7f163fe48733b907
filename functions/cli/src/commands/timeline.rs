//! The timeline of `show`: a row for each attempt, drawn to scale, from the history.

use std::fmt::Write as _;

use jiff::Timestamp;
use owo_colors::OwoColorize as _;
use rekindle_core::history::HistoryEntry;
use rekindle_core::job::Phase;
use rekindle_wire::v1::JobView;
use serde_json::Value;

use super::{Context, job_path};
use crate::api::typed;
use crate::fault::Result;
use crate::human;

/// Entries of the history that are drawn, in one page.
const ENTRIES: &str = "500";
/// Rows that are drawn: the newest.
const ROWS_MAX: usize = 12;
/// Width of the bars where there is no terminal, and at most.
const WIDTH: usize = 60;
const WIDTH_MIN: usize = 20;
/// Columns beside the bar.
const BESIDE: usize = 32;

/// A stretch of time in one phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    phase: Phase,
    from: Timestamp,
    to: Timestamp,
}

/// One attempt with what led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    attempt: u32,
    generation: u32,
    stretches: Vec<Stretch>,
}

/// The timeline of a job; empty when nothing has happened yet.
pub(super) async fn of(context: &Context, job: &JobView, now: Timestamp) -> Result<String> {
    let query = [("page_size", Some(ENTRIES.to_owned()))];
    let mut value = context.api.get(&job_path(job.id.as_str(), "/history")?, &query).await?;
    let entries: Vec<Value> = typed(value.get_mut("entries").map(Value::take).unwrap_or_default())?;
    let entries = entries.into_iter().map(typed).collect::<Result<Vec<HistoryEntry>>>()?;
    let end = if job.phase.is_terminal() { job.phase_since } else { now };
    let width = context.printer.width().map_or(WIDTH, |width| width.saturating_sub(BESIDE).clamp(WIDTH_MIN, WIDTH));
    Ok(draw(&rows(&entries, end), width))
}

/// The history cut into attempts. Waiting for a TPU belongs to the attempt that it is for.
fn rows(entries: &[HistoryEntry], end: Timestamp) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut entries = entries.iter().peekable();
    while let Some(entry) = entries.next() {
        let to = entries.peek().map_or(end, |next| next.at).max(entry.at);
        let attempt = entry.attempt.max(1);
        if entry.to.is_terminal() {
            continue;
        }
        if rows.last().is_none_or(|row| row.attempt < attempt) {
            rows.push(Row { attempt, generation: entry.generation, stretches: Vec::new() });
        }
        let Some(row) = rows.last_mut() else { continue };
        row.generation = entry.generation.max(row.generation);
        match row.stretches.last_mut() {
            Some(last) if last.phase == entry.to && last.to == entry.at => last.to = to,
            _ => row.stretches.push(Stretch { phase: entry.to, from: entry.at, to }),
        }
    }
    rows
}

/// How a phase looks: something also without colours.
const fn mark(phase: Phase) -> char {
    match phase {
        Phase::Pending => '.',
        Phase::Provisioning => '-',
        Phase::Starting => '=',
        Phase::Running => '#',
        Phase::Recovering => 'x',
        Phase::Stopping => '~',
        Phase::Paused | Phase::Succeeded | Phase::Failed | Phase::Cancelled => ' ',
    }
}

fn draw(rows: &[Row], width: usize) -> String {
    let shown = &rows[rows.len().saturating_sub(ROWS_MAX)..];
    let stretches = || shown.iter().flat_map(|row| &row.stretches);
    let (Some(first), Some(last)) = (stretches().map(|s| s.from).min(), stretches().map(|s| s.to).max()) else {
        return String::new();
    };
    let total = last.duration_since(first).as_secs_f64();
    if total < 1.0 {
        return String::new();
    }
    let at = |time: Timestamp| (time.duration_since(first).as_secs_f64() / total * width as f64).round() as usize;
    let mut out = format!("  {:<10} {} in all\n", "timeline".dimmed(), human::duration(total as i64));
    for row in shown {
        let mut cells: Vec<Option<Phase>> = vec![None; width];
        for stretch in &row.stretches {
            // What happened is seen, however short it was; later things win a cell.
            let from = at(stretch.from).min(width - 1);
            let to = at(stretch.to).clamp(from + 1, width);
            cells[from..to].fill(Some(stretch.phase));
        }
        let bar: String = cells.iter().map(|cell| cell.map_or_else(|| " ".to_owned(), painted)).collect();
        let ran = row.stretches.iter().filter(|s| s.phase == Phase::Running);
        let ran: i64 = ran.map(|s| s.to.duration_since(s.from).as_secs()).sum();
        let ran = if ran > 0 { format!(" ran {}", human::duration(ran)) } else { String::new() };
        let _ = writeln!(out, "    {:<9}|{bar}|{ran}", format!("a{} g{}", row.attempt, row.generation));
    }
    let legend = [Phase::Pending, Phase::Provisioning, Phase::Starting, Phase::Running, Phase::Recovering];
    let legend: Vec<String> = legend.iter().map(|phase| format!("{} {}", painted(*phase), phase.as_str())).collect();
    let _ = writeln!(out, "    {:<9} {}", "", legend.join("  "));
    out
}

fn painted(phase: Phase) -> String {
    human::paint(phase, &mark(phase).to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(second: i64, to: &str, attempt: u32, generation: u32) -> HistoryEntry {
        serde_json::from_value(json!({
            "revision": second + 1, "at": Timestamp::from_second(second).unwrap(), "cause": "hint", "actor": "rekindle",
            "from": "pending", "to": to, "reason": "running", "message": "", "notes": [], "effects": [],
            "attempt": attempt, "generation": generation,
        }))
        .unwrap()
    }

    #[test]
    fn attempts_are_drawn_to_scale_and_waiting_belongs_to_what_comes_of_it() {
        let entries = [
            entry(0, "pending", 0, 0),
            entry(10, "provisioning", 1, 1),
            entry(20, "starting", 1, 1),
            entry(25, "starting", 1, 1),
            entry(30, "running", 1, 1),
            entry(60, "recovering", 1, 1),
            entry(65, "provisioning", 2, 2),
            entry(75, "starting", 2, 2),
            entry(80, "running", 2, 2),
            entry(100, "succeeded", 2, 2),
        ];
        let rows = rows(&entries, Timestamp::from_second(100).unwrap());
        let text = draw(&rows, 20);
        let plain = anstream::adapter::strip_str(&text).to_string();
        let want = "  timeline   100s in all
    a1 g1    |..--==######x       | ran 30s
    a2 g2    |             --=####| ran 20s
              . pending  - provisioning  = starting  # running  x recovering
";
        assert_eq!(plain, want);
    }

    #[test]
    fn a_job_that_has_just_begun_has_no_timeline() {
        assert_eq!(draw(&rows(&[entry(0, "pending", 0, 0)], Timestamp::from_second(0).unwrap()), 20), "");
        assert_eq!(draw(&[], 20), "");
    }
}
