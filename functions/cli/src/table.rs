//! Tables for people: aligned, without frames, narrowed to the terminal by leaving out the least important columns.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A column.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    title: &'static str,
    /// Columns of a higher rank go first when there is no room; 0 always stays.
    rank: u8,
    is_number: bool,
}

/// A column of text.
pub(crate) const fn text(title: &'static str, rank: u8) -> Column {
    Column { title, rank, is_number: false }
}

/// A column of numbers, aligned to the right.
pub(crate) const fn number(title: &'static str, rank: u8) -> Column {
    Column { title, rank, is_number: true }
}

/// Between two columns.
const GAP: usize = 2;
/// The last column is cut rather than left out, down to this width.
const LAST_COLUMN_MIN: usize = 12;

/// Columns and rows.
#[derive(Debug)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(columns: &[Column]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Adds a row; as many cells as there are columns. Cells may hold colours.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.rows.push(cells);
    }

    /// The text, each line ended; `width` in columns, `None` is without bounds.
    pub(crate) fn render(&self, width: Option<usize>) -> String {
        let widths: Vec<usize> = (0..self.columns.len()).map(|index| self.width_of(index)).collect();
        let shown = self.shown(&widths, width);
        let room_of_last = width.map(|width| {
            let before: usize = shown.iter().rev().skip(1).map(|index| widths[*index] + GAP).sum();
            width.saturating_sub(before).max(LAST_COLUMN_MIN)
        });
        let line_len: usize = shown.iter().map(|index| widths[*index] + GAP).sum();
        let mut out = String::with_capacity((self.rows.len() + 1) * line_len);
        let titles: Vec<&str> = self.columns.iter().map(|column| column.title).collect();
        self.line(&mut out, &shown, &widths, |index, _| Cow::Borrowed(titles[index]));
        for row in &self.rows {
            self.line(&mut out, &shown, &widths, |index, is_last| match room_of_last.filter(|_| is_last) {
                Some(room) => cut(&row[index], room),
                None => Cow::Borrowed(row[index].as_str()),
            });
        }
        out
    }

    /// One line: each cell at its place, no blanks at the end.
    fn line<'a>(
        &self,
        out: &mut String,
        shown: &[usize],
        widths: &[usize],
        cell: impl Fn(usize, bool) -> Cow<'a, str>,
    ) {
        let begin = out.len();
        for (place, index) in shown.iter().enumerate() {
            let is_last = place + 1 == shown.len();
            let text = cell(*index, is_last);
            let blanks = widths[*index].saturating_sub(visible(&text));
            let (before, behind) = if self.columns[*index].is_number { (blanks, 0) } else { (0, blanks) };
            out.extend(std::iter::repeat_n(' ', before));
            out.push_str(&text);
            if !is_last {
                out.extend(std::iter::repeat_n(' ', behind + GAP));
            }
        }
        let end = begin + out[begin..].trim_end_matches(' ').len();
        out.truncate(end);
        out.push('\n');
    }

    fn width_of(&self, index: usize) -> usize {
        let cells = self.rows.iter().map(|row| visible(&row[index]));
        cells.chain([self.columns[index].title.len()]).max().unwrap_or(0)
    }

    /// Indices of the columns that fit.
    fn shown(&self, widths: &[usize], width: Option<usize>) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let Some(width) = width else { return shown };
        loop {
            let needed: usize = shown.iter().enumerate().fold(0, |sum, (place, index)| {
                let is_last = place + 1 == shown.len();
                sum + if is_last { widths[*index].min(LAST_COLUMN_MIN) } else { widths[*index] + GAP }
            });
            let worst = shown.iter().copied().max_by_key(|index| self.columns[*index].rank);
            match worst.filter(|index| self.columns[*index].rank > 0) {
                Some(worst) if needed > width => shown.retain(|index| *index != worst),
                _ => return shown,
            }
        }
    }
}

/// Columns on the screen.
fn visible(text: &str) -> usize {
    // Nearly every cell; thousands of rows are measured.
    if text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return text.len();
    }
    anstream::adapter::strip_str(text).to_string().width()
}

/// Text cut to a width. Cells with colours are short by nature and stay whole.
pub(crate) fn cut(text: &str, width: usize) -> Cow<'_, str> {
    if visible(text) <= width || text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut room = width.saturating_sub(1);
    let fits = text.chars().take_while(|c| {
        let needed = c.width().unwrap_or(0);
        let fits = needed <= room;
        room = room.saturating_sub(needed);
        fits
    });
    Cow::Owned(fits.chain(['…']).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(&[text("JOB", 0), number("STEP", 2), text("ZONE", 1), text("MESSAGE", 0)]);
        table.row(vec!["one".into(), "5".into(), "us-central1-a".into(), "the program runs on all workers".into()]);
        table.row(vec!["another".into(), "12345".into(), "us-west4-a".into(), "waits".into()]);
        table
    }

    #[test]
    fn columns_are_aligned_and_lines_end_without_blanks() {
        let want = "\
JOB       STEP  ZONE           MESSAGE
one          5  us-central1-a  the program runs on all workers
another  12345  us-west4-a     waits
";
        assert_eq!(table().render(None), want);
    }

    #[test]
    fn a_narrow_terminal_loses_the_least_important_columns_first_and_cuts_the_last() {
        let want = "\
JOB      ZONE           MESSAGE
one      us-central1-a  the program…
another  us-west4-a     waits
";
        assert_eq!(table().render(Some(36)), want);
        assert!(!table().render(Some(20)).contains("ZONE"));
    }

    #[test]
    fn colours_and_wide_letters_do_not_move_the_columns() {
        let mut table = Table::new(&[text("JOB", 0), number("STEP", 0), text("NOTE", 0)]);
        table.row(vec!["\u{1b}[31mred\u{1b}[39m".into(), "5".into(), "a".into()]);
        table.row(vec!["訓練".into(), "123456".into(), String::new()]);
        let want = "\
JOB     STEP  NOTE
\u{1b}[31mred\u{1b}[39m        5  a
訓練  123456
";
        assert_eq!(table.render(None), want);
        assert_eq!(cut("訓練は続く", 6), "訓練…");
        assert_eq!(cut("訓練は続く", 10), "訓練は続く");
    }
}
