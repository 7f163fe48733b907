//! The timeline of `show`: a row for each attempt, drawn to scale, from the history.

use std::fmt::Write as _;

use jiff::Timestamp;
use owo_colors::OwoColorize as _;
use rekindle_core::failure::FailureKind;
use rekindle_core::history::{AttemptEnd, HistoryEntry};
use rekindle_core::job::Phase;
use rekindle_wire::seeing::{AttemptProgress, ProgressList};
use rekindle_wire::v1::JobView;

use super::{Context, history, job_path, workspace};
use crate::api::typed;
use crate::args::Named;
use crate::fault::Result;
use crate::human;

/// Rows that are drawn: the newest.
const ROWS_MAX: usize = 12;
/// Width of the bars where there is no terminal, and at most.
const WIDTH: usize = 60;
const WIDTH_MIN: usize = 12;
/// Columns before a bar, and its frame.
const BEFORE: usize = 15;

/// How the steps look that an earlier attempt had done already.
const REPEATED: char = 'r';
/// How the steps look that came after the last checkpoint, and that the next attempt had to do again.
const LOST: char = 'l';

/// What a stretch of time went into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    In(Phase),
    /// The program ran, and repeated steps.
    Repeated,
    /// The program ran, and no checkpoint holds what it did.
    Lost,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    part: Part,
    from: Timestamp,
    to: Timestamp,
}

/// One attempt with what led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    attempt: u32,
    generation: u32,
    stretches: Vec<Stretch>,
    /// How it ended, once that is judged.
    ended: Option<AttemptEnd>,
    /// Where the job came by it: to its end, or to a pause.
    over: Option<&'static str>,
}

/// The timeline of a job; empty when nothing has happened yet.
pub(super) async fn of(context: &Context, job: &JobView, now: Timestamp) -> Result<String> {
    let mut pages = history::Pages::of(job.id.as_str())?;
    let mut entries: Vec<HistoryEntry> = Vec::new();
    while let Some(page) = pages.next(context).await? {
        entries.extend(page.into_iter().map(typed).collect::<Result<Vec<HistoryEntry>>>()?);
    }
    let end = if job.phase.is_terminal() { job.phase_since } else { now };
    let progress = context.api.get(&job_path(job.id.as_str(), "/progress")?, &[]).await;
    // A server of an earlier version has none: then nothing is known to be repeated.
    let progress = progress.and_then(typed::<ProgressList>).map(|list| list.attempts).unwrap_or_default();
    let mut rows = rows(&entries, end);
    if workspace::is_deleted(job) {
        let cancelled = rows.iter_mut().filter(|row| row.over == Some(Phase::Cancelled.as_str()));
        cancelled.for_each(|row| row.over = Some(Named::DELETED));
    }
    mark_repeated(&mut rows, &progress);
    mark_lost(&mut rows, &progress);
    let columns = context.printer.width();
    let longest = rows.iter().map(|row| beside(row).chars().count()).max().unwrap_or(0);
    let width = columns.map_or(WIDTH, |all| all.saturating_sub(BEFORE + longest).clamp(WIDTH_MIN, WIDTH));
    Ok(draw(&rows, width, columns))
}

/// The history cut into attempts. Waiting for a TPU belongs to the attempt that it is for.
fn rows(entries: &[HistoryEntry], end: Timestamp) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut entries = entries.iter().peekable();
    while let Some(entry) = entries.next() {
        let to = entries.peek().map_or(end, |next| next.at).max(entry.at);
        let attempt = entry.attempt.max(1);
        if let Some(end) = &entry.ended
            && let Some(row) = rows.iter_mut().rev().find(|row| row.attempt == end.attempt)
        {
            row.ended = Some(end.clone());
        }
        if entry.to.is_terminal() || entry.to == Phase::Paused {
            if let Some(row) = rows.iter_mut().rev().find(|row| row.attempt == attempt) {
                row.over = Some(entry.to.as_str());
            }
        } else if let Some(row) = rows.last_mut().filter(|row| row.attempt == attempt && entry.to == Phase::Running) {
            row.over = None;
        }
        if entry.to.is_terminal() {
            continue;
        }
        if rows.last().is_none_or(|row| row.attempt < attempt) {
            rows.push(Row { attempt, generation: entry.generation, stretches: Vec::new(), ended: None, over: None });
        }
        let Some(row) = rows.last_mut() else { continue };
        row.generation = entry.generation.max(row.generation);
        match row.stretches.last_mut() {
            Some(last) if last.part == Part::In(entry.to) && last.to == entry.at => last.to = to,
            _ => row.stretches.push(Stretch { part: Part::In(entry.to), from: entry.at, to }),
        }
    }
    rows
}

/// From its start to the highest step of all attempts before, an attempt repeats. Between two points its steps are taken to be
/// of one length, as where chip hours are counted.
fn mark_repeated(rows: &mut [Row], progress: &[AttemptProgress]) {
    let highest_of = |of: &AttemptProgress| of.points.last().map(|point| point.step).max(of.step);
    for row in rows {
        let Some(of) = progress.iter().find(|of| of.attempt == row.attempt) else { continue };
        let earlier = progress.iter().filter(|of| of.attempt < row.attempt);
        let (Some(highest), Some(first)) = (earlier.filter_map(highest_of).max(), of.points.first()) else { continue };
        // An old server does not tell where it began: it tells its first step soon.
        let began = of.from.unwrap_or(first.step);
        let running = |stretch: &&mut Stretch| stretch.part == Part::In(Phase::Running);
        let Some(run) = row.stretches.iter_mut().find(running).filter(|_| began < highest) else { continue };
        let (mut known, mut until) = (began, run.from);
        for point in &of.points {
            if point.step > highest {
                let share = highest.saturating_sub(known) as f64 / (point.step - known) as f64;
                until += point.at.duration_since(until).mul_f64(share);
                break;
            }
            (known, until) = (point.step, point.at);
        }
        let until = until.clamp(run.from, run.to);
        let repeated = Stretch { part: Part::Repeated, from: run.from, to: until };
        run.from = until;
        row.stretches.push(repeated);
    }
}

/// What an attempt did after the step from which the next one went on is lost; all of it, where no checkpoint was kept. One that was to begin
/// from scratch took nothing up, and so it threw nothing away.
fn mark_lost(rows: &mut [Row], progress: &[AttemptProgress]) {
    for row in rows {
        let Some(own) = progress.iter().find(|of| of.attempt == row.attempt) else { continue };
        // An attempt that died before its first step tells nothing of where it began: the one after it does.
        let later = progress.iter().filter(|of| of.attempt > row.attempt && (of.from_scratch || !of.points.is_empty()));
        let Some(next) = later.min_by_key(|of| of.attempt).filter(|of| !of.from_scratch) else { continue };
        // The first step that is told is one that was done again.
        let told = next.points.first().map(|first| first.step.saturating_sub(1));
        let Some(kept) = next.from.or(told) else { continue };
        let runs = || row.stretches.iter().filter(|s| [Part::In(Phase::Running), Part::Repeated].contains(&s.part));
        let (Some(begun), Some(end)) = (runs().map(|s| s.from).min(), runs().map(|s| s.to).max()) else { continue };
        let Some(since) = passed(own, kept, begun, end) else { continue };
        let mut lost = Vec::new();
        for run in row.stretches.iter_mut().filter(|stretch| stretch.part == Part::In(Phase::Running)) {
            let from = since.clamp(run.from, run.to);
            if from < run.to {
                lost.push(Stretch { part: Part::Lost, from, to: run.to });
                run.to = from;
            }
        }
        row.stretches.extend(lost);
    }
}

/// When an attempt that ran from `begun` to `end` had done this step, and went on to others; `None`: it did none after it. Between two points
/// its steps are taken to be of one length.
fn passed(of: &AttemptProgress, step: u64, begun: Timestamp, end: Timestamp) -> Option<Timestamp> {
    let last = of.step.map(|last| (last, end));
    let mut told = of.points.iter().map(|point| (point.step, point.at)).chain(last);
    let (mut known, mut since) = (of.from.or_else(|| of.points.first().map(|first| first.step))?, begun);
    told.find_map(|(to, at)| {
        if to <= step {
            (known, since) = (to, at);
            return None;
        }
        let share = step.saturating_sub(known) as f64 / to.saturating_sub(known).max(1) as f64;
        Some(since + at.duration_since(since).mul_f64(share))
    })
}

/// How a part looks: something also without colours.
const fn mark(part: Part) -> char {
    let phase = match part {
        Part::Repeated => return REPEATED,
        Part::Lost => return LOST,
        Part::In(phase) => phase,
    };
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

/// `columns`: of the terminal, where there is one.
fn draw(rows: &[Row], width: usize, columns: Option<usize>) -> String {
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
    let span = human::duration(total as i64);
    let span = if shown.len() < rows.len() {
        format!("{span}, the newest {} of {} attempts", shown.len(), rows.len())
    } else {
        format!("{span} in all")
    };
    let mut out = format!("  {:<10} {span}\n", "timeline".dimmed());
    for row in shown {
        let mut cells: Vec<Option<Part>> = vec![None; width];
        for stretch in &row.stretches {
            // What happened is seen, however short it was; later things win a cell.
            let from = at(stretch.from).min(width - 1);
            let to = at(stretch.to).clamp(from + 1, width);
            cells[from..to].fill(Some(stretch.part));
        }
        let bar: String = cells.iter().map(|cell| cell.map_or_else(|| " ".to_owned(), painted)).collect();
        let _ = writeln!(out, "    {:<9}|{bar}|{}", format!("a{} g{}", row.attempt, row.generation), beside(row));
    }
    let legend =
        [Phase::Pending, Phase::Provisioning, Phase::Starting, Phase::Running, Phase::Recovering, Phase::Stopping];
    let mut legend: Vec<String> =
        legend.iter().map(|phase| format!("{} {}", painted(Part::In(*phase)), phase.as_str())).collect();
    for (part, word) in [(Part::Repeated, "repeats"), (Part::Lost, "lost")] {
        if stretches().any(|stretch| stretch.part == part) {
            legend.push(format!("{} {word}", painted(part)));
        }
    }
    let legend = human::hung(&legend.join("  "), BEFORE - 1, columns.unwrap_or(usize::MAX));
    let _ = writeln!(out, "    {:<9} {legend}", "");
    out
}

/// How long it ran, what of that was in vain, and what ended it.
fn beside(row: &Row) -> String {
    let millis = |part: Part| -> i128 {
        let of = row.stretches.iter().filter(|s| s.part == part);
        of.map(|s| s.to.duration_since(s.from).as_millis()).sum()
    };
    let whole = |millis: i128| i64::try_from(millis / 1000).unwrap_or(i64::MAX);
    let (again, lost) = (millis(Part::Repeated), millis(Part::Lost));
    let ran = whole(millis(Part::In(Phase::Running)) + again + lost);
    // A part of a second is told as one, as in the chip hours, but no more than it ran.
    let (repeated, lost) = (whole(again + 999).min(ran), whole(lost));
    let has_run = row.stretches.iter().any(|s| {
        let is_run = [Part::In(Phase::Running), Part::Repeated, Part::Lost].contains(&s.part);
        is_run && s.to > s.from
    });
    let parts = [(ran, "ran "), (repeated, ""), (lost, "")].into_iter().zip(["", " repeated", " lost"]);
    let mut words: Vec<String> = parts
        .filter(|((secs, _), _)| *secs > 0)
        .map(|((secs, before), after)| format!("{before}{}{after}", human::duration(secs)))
        .collect();
    if ran == 0 && has_run {
        words.push("ran less than 1s".to_owned());
    }
    // A good end has no kind.
    let kind = row.ended.as_ref().and_then(|end| end.kind).map(FailureKind::as_str);
    words.extend(kind.or(row.over).map(str::to_owned));
    if words.is_empty() { String::new() } else { format!(" {}", words.join(", ")) }
}

fn painted(part: Part) -> String {
    let colour = match part {
        Part::In(phase) => phase,
        Part::Repeated => Phase::Recovering,
        Part::Lost => Phase::Failed,
    };
    human::paint(colour, &mark(part).to_string())
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
        let text = draw(&rows, 20, None);
        let plain = anstream::adapter::strip_str(&text).to_string();
        let want = "  timeline   100s in all
    a1 g1    |..--==######x       | ran 30s
    a2 g2    |             --=####| ran 20s, succeeded
              . pending  - provisioning  = starting  # running  x recovering  ~ stopping
";
        assert_eq!(plain, want);
    }

    #[test]
    fn an_attempt_says_what_it_came_to_also_when_it_was_short() {
        let beside_of = |entries: &[HistoryEntry]| -> Vec<String> {
            rows(entries, Timestamp::from_second(100).unwrap()).iter().map(beside).collect()
        };
        let paused = [entry(0, "running", 1, 1), entry(25, "stopping", 1, 1), entry(30, "paused", 1, 1)];
        assert_eq!(beside_of(&paused), [" ran 25s, paused"]);
        let again = [&paused[..], &[entry(40, "pending", 1, 1), entry(50, "running", 2, 2)]].concat();
        assert_eq!(beside_of(&again), [" ran 25s, paused", " ran 50s"]);
        // One that was to be paused, and goes on in place.
        let in_place = [&paused[..], &[entry(40, "running", 1, 1)]].concat();
        assert_eq!(beside_of(&in_place), [" ran 85s"]);
        let mut short = [entry(99, "running", 1, 1), entry(100, "cancelled", 1, 1)];
        short[0].at = Timestamp::from_millisecond(99_500).unwrap();
        assert_eq!(beside_of(&short), [" ran less than 1s, cancelled"]);
    }

    /// An attempt of which these points are known.
    fn of(attempt: u32, points: &[(i64, u64)]) -> AttemptProgress {
        let point = |(at, step): &(i64, u64)| {
            rekindle_core::series::Point::new(Timestamp::from_second(*at).unwrap(), *step, None)
        };
        let points = points.iter().map(point).collect();
        AttemptProgress { attempt, from: None, step: None, from_scratch: false, points }
    }

    #[test]
    fn work_that_is_repeated_is_drawn_until_the_first_new_step() {
        let entries = [
            entry(0, "running", 1, 1),
            entry(40, "recovering", 1, 1),
            entry(50, "running", 2, 2),
            entry(100, "succeeded", 2, 2),
        ];
        let mut rows = rows(&entries, Timestamp::from_second(100).unwrap());
        mark_repeated(&mut rows, &[of(1, &[(10, 10), (40, 40)]), of(2, &[(55, 21), (75, 41), (95, 61)])]);
        let plain = anstream::adapter::strip_str(&draw(&rows, 20, None)).to_string();
        assert!(plain.contains("a1 g1    |########xx          | ran 40s\n"), "{plain}");
        assert!(plain.contains("a2 g2    |          rrrrr#####| ran 50s, 24s repeated, succeeded\n"), "{plain}");
        assert!(plain.contains("r repeats"), "{plain}");
        // One that goes on where the last one stopped repeats nothing.
        let mut rows = super::rows(&entries, Timestamp::from_second(100).unwrap());
        let before = rows.clone();
        mark_repeated(&mut rows, &[of(1, &[(10, 10), (40, 40)]), of(2, &[(55, 41)])]);
        assert_eq!(rows, before);
        // One that began below tells its first step above, when it was past the last one's highest.
        let began = AttemptProgress { from: Some(21), ..of(2, &[(60, 61)]) };
        mark_repeated(&mut rows, &[of(1, &[(10, 10), (30, 30)]), began.clone()]);
        let plain = |rows: &[Row]| anstream::adapter::strip_str(&draw(rows, 20, None)).to_string();
        assert!(plain(&rows).contains("ran 50s, 3s repeated"), "{}", plain(&rows));
        // Of the last one's highest step there may be no point.
        let mut rows = super::rows(&entries, Timestamp::from_second(100).unwrap());
        mark_repeated(&mut rows, &[AttemptProgress { step: Some(41), ..of(1, &[(10, 10), (30, 30)]) }, began]);
        assert!(plain(&rows).contains("ran 50s, 5s repeated"), "{}", plain(&rows));
        // One that began where the last one stopped repeats nothing, whatever it tells first.
        let mut rows = before.clone();
        let began = AttemptProgress { from: Some(40), ..of(2, &[(55, 40), (60, 50)]) };
        mark_repeated(&mut rows, &[of(1, &[(10, 10), (40, 40)]), began]);
        assert_eq!(rows, before);
    }

    #[test]
    fn work_that_no_checkpoint_held_is_drawn_as_lost_with_what_ended_it() {
        let mut entries = [
            entry(0, "running", 1, 1),
            entry(40, "recovering", 1, 1),
            entry(50, "running", 2, 2),
            entry(100, "succeeded", 2, 2),
        ];
        entries[1].ended = serde_json::from_value(json!({"attempt": 1, "kind": "lost", "summary": "gone"})).unwrap();
        let mut rows = rows(&entries, Timestamp::from_second(100).unwrap());
        let progress = [of(1, &[(10, 10), (20, 20), (30, 30), (40, 40)]), of(2, &[(55, 21), (75, 41), (95, 61)])];
        mark_repeated(&mut rows, &progress);
        mark_lost(&mut rows, &progress);
        let plain = anstream::adapter::strip_str(&draw(&rows, 20, None)).to_string();
        assert!(plain.contains("a1 g1    |####llllxx          | ran 40s, 20s lost, lost\n"), "{plain}");
        assert!(plain.contains("r repeats  l lost"), "{plain}");
        // What the next attempt went on from is not lost.
        let mut rows = super::rows(&entries, Timestamp::from_second(100).unwrap());
        let before = rows.clone();
        mark_lost(&mut rows, &[of(1, &[(10, 10), (40, 40)]), of(2, &[(55, 41)])]);
        assert_eq!(rows, before);
    }

    #[test]
    fn work_is_lost_also_where_the_next_attempt_died_at_once_or_nothing_was_kept() {
        let entries = [
            entry(0, "running", 1, 1),
            entry(40, "recovering", 1, 1),
            entry(50, "running", 2, 2),
            entry(60, "recovering", 2, 2),
            entry(70, "running", 3, 3),
            entry(100, "succeeded", 3, 3),
        ];
        let first = of(1, &[(10, 10), (20, 20), (30, 30), (40, 40)]);
        for (third, row) in [
            (&[(80, 21), (95, 51)][..], "a1 g1    |####llllxx          | ran 40s, 20s lost\n"),
            (&[(80, 1), (95, 51)], "a1 g1    |llllllllxx          | ran 40s, 40s lost\n"),
        ] {
            let mut rows = rows(&entries, Timestamp::from_second(100).unwrap());
            mark_lost(&mut rows, &[first.clone(), of(2, &[]), of(3, third)]);
            let plain = anstream::adapter::strip_str(&draw(&rows, 20, None)).to_string();
            assert!(plain.contains(row), "{plain}");
            assert!(plain.contains("a2 g2    |          ##xx      | ran 10s\n"), "no step of it is known: {plain}");
        }
    }

    #[test]
    fn lost_is_what_the_next_attempt_did_again_and_nothing_for_a_later_start_from_scratch() {
        let entries = [
            entry(0, "running", 1, 1),
            entry(40, "recovering", 1, 1),
            entry(50, "running", 2, 1),
            entry(80, "recovering", 2, 1),
            entry(90, "running", 3, 1),
            entry(100, "succeeded", 3, 1),
        ];
        let first = of(1, &[(10, 10), (40, 40)]);
        // The first step that it tells of is far above the one from which it went on.
        let second = AttemptProgress { from: Some(38), ..of(2, &[(60, 60), (80, 70)]) };
        let third = AttemptProgress { from: Some(0), from_scratch: true, ..of(3, &[]) };
        let mut rows = rows(&entries, Timestamp::from_second(100).unwrap());
        mark_lost(&mut rows, &[first, second, third]);
        let besides: Vec<String> = rows.iter().map(beside).collect();
        assert_eq!(besides[..2], [" ran 40s, 2s lost", " ran 30s"]);
    }

    #[test]
    fn attempts_that_are_not_drawn_are_told() {
        let entries: Vec<HistoryEntry> =
            (1..=15).map(|attempt| entry(i64::from(attempt) * 10, "running", attempt, attempt)).collect();
        let rows = rows(&entries, Timestamp::from_second(160).unwrap());
        let plain = anstream::adapter::strip_str(&draw(&rows, 20, None)).to_string();
        assert!(plain.starts_with("  timeline   2m, the newest 12 of 15 attempts\n    a4 g4"), "{plain}");
        assert_eq!(plain.matches(" g").count(), 12, "{plain}");
    }

    #[test]
    fn a_job_that_has_just_begun_has_no_timeline() {
        assert_eq!(draw(&rows(&[entry(0, "pending", 0, 0)], Timestamp::from_second(0).unwrap()), 20, None), "");
        assert_eq!(draw(&[], 20, None), "");
    }
}
