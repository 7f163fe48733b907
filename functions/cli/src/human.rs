//! Numbers, times and phases in the words people read.

use jiff::Timestamp;
use owo_colors::OwoColorize as _;
use rekindle_core::history::HistoryEntry;
use rekindle_core::job::Phase;
use rekindle_core::text::is_unseen;
use rekindle_wire::v1::JobView;

use crate::args::Named;
use crate::commands::workspace;

/// A length of time in at most two units: `45s`, `12m`, `3h05m`, `2d4h`.
pub(crate) fn duration(secs: i64) -> String {
    let secs = secs.max(0);
    let (minutes, hours, days) = (secs / 60, secs / 3600, secs / 86_400);
    match secs {
        0..120 => format!("{secs}s"),
        120..3600 => format!("{minutes}m"),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ if hours % 24 == 0 => format!("{days}d"),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// How long ago that was.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> String {
    duration(now.as_second() - at.as_second())
}

/// When that will be: `in 20s`, or `now`.
pub(crate) fn until(at: Timestamp, now: Timestamp) -> String {
    let secs = at.as_second() - now.as_second();
    if secs <= 0 { "now".to_owned() } else { format!("in {}", duration(secs)) }
}

/// The step of a job: `-` where there is none, and `…` right after its program began, when none was told yet.
///
/// The list tells the step of the last look at a job, and the first after its start is up to a minute later.
pub(crate) fn step(told: Option<u64>, phase: Phase, since: Timestamp, now: Timestamp) -> String {
    const FIRST_LOOK_SECS: i64 = 60;
    match told {
        Some(step) => step.to_string(),
        None if phase == Phase::Running && now.as_second() - since.as_second() < FIRST_LOOK_SECS => "…".to_owned(),
        None => "-".to_owned(),
    }
}

/// A size: `812 B`, `1.4 MiB`.
pub(crate) fn bytes(size: u64) -> String {
    let mut amount = size as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if amount < 1000.0 || unit == "GiB" {
            return if unit == "B" { format!("{size} B") } else { format!("{amount:.1} {unit}") };
        }
        amount /= 1024.0;
    }
    format!("{size} B")
}

/// US dollars, with cents, and with more digits below a cent.
pub(crate) fn usd(amount: f64) -> String {
    // A sum of nothing is -0.0 in Rust, and less than the last digit may be of either sign.
    let amount = if amount.abs() < 0.000_05 { 0.0 } else { amount };
    if amount != 0.0 && amount.abs() < 0.01 { format!("${amount:.4}") } else { format!("${amount:.2}") }
}

/// `1 preemption`, `2 preemptions`.
pub(crate) fn count(number: u64, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}

/// The phase in its colour.
pub(crate) fn phase(phase: Phase) -> String {
    paint(phase, phase.as_str())
}

/// The phase of a job in its colour, as its owner says it: a workspace ends by being deleted.
pub(crate) fn phase_of(job: &JobView) -> String {
    said(job.phase, workspace::is_workspace(job))
}

/// The same of what is known to be a workspace, or to be none.
pub(crate) fn said(phase: Phase, is_workspace: bool) -> String {
    paint(phase, phase_word(phase, is_workspace))
}

/// What people call a phase: they delete a workspace.
pub(crate) fn phase_word(phase: Phase, is_workspace: bool) -> &'static str {
    if is_workspace && phase == Phase::Cancelled { Named::DELETED } else { phase.as_str() }
}

/// Text in the colour of a phase.
pub(crate) fn paint(phase: Phase, text: &str) -> String {
    match phase {
        Phase::Pending | Phase::Provisioning | Phase::Starting => text.blue().to_string(),
        Phase::Running => text.cyan().to_string(),
        Phase::Recovering | Phase::Stopping => text.yellow().to_string(),
        Phase::Paused => text.magenta().to_string(),
        Phase::Succeeded => text.green().to_string(),
        Phase::Failed => text.red().to_string(),
        Phase::Cancelled => text.dimmed().to_string(),
    }
}

/// What a history entry found out and decided, beside its own sentence: its notes without those that only repeat it.
pub(crate) fn news(entry: &HistoryEntry) -> Vec<String> {
    let change = format!("{} → {}:", entry.from.as_str(), entry.to.as_str());
    let notes = entry.notes.iter().filter(|note| !note.starts_with(&change) && **note != entry.message);
    notes.map(|note| tame(note)).collect()
}

/// A loss as a program wrote it; with five digits where it has more, so that no column hides an exponent.
pub(crate) fn loss(text: &str) -> String {
    const DIGITS: i32 = 5;
    let short = text.chars().count() <= 8;
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && !short => {
            let before = if number == 0.0 { 0 } else { number.abs().log10().floor() as i32 };
            if (-3..DIGITS).contains(&before) {
                let after = usize::try_from(DIGITS - 1 - before).unwrap_or_default();
                format!("{number:.after$}")
            } else {
                format!("{number:.3e}")
            }
        }
        Ok(_) | Err(_) => tame(text),
    }
}

/// Text that came from a job, safe for a terminal: no control characters but tabs, and none that turn around what stands
/// beside them.
pub(crate) fn tame(text: &str) -> String {
    text.chars().map(|c| if is_unseen(c) && c != '\t' { '\u{fffd}' } else { c }).collect()
}

/// A text that begins behind `indent` columns, in lines of at most `width` columns in all. Words stay whole, also longer ones:
/// they may be commands and names to copy.
pub(crate) fn hung(text: &str, indent: usize, width: usize) -> String {
    let blank = " ".repeat(indent);
    let options = textwrap::Options::new(width)
        .initial_indent(&blank)
        .subsequent_indent(&blank)
        .break_words(false)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::fill(text, options).trim_start_matches(' ').to_owned()
}

/// The same with a blank for each end of a line.
pub(crate) fn one_line(text: &str) -> String {
    tame(&text.trim_end().replace("\r\n", " ").replace('\n', " "))
}

/// The same of text in lines.
pub(crate) fn tame_lines(text: &str) -> String {
    text.split('\n').map(tame).collect::<Vec<_>>().join("\n")
}

/// A value as indented JSON for a terminal: what `serde_json` leaves as it is of such characters is escaped.
pub(crate) fn json(value: &serde_json::Value) -> String {
    escaped(serde_json::to_string_pretty(value).unwrap_or_default())
}

/// JSON of the same value in which a terminal finds nothing to obey. Outside of strings it has no such character but line
/// feeds.
pub(crate) fn escaped(json: String) -> String {
    if !json.chars().any(|c| is_unseen(c) && c != '\n') {
        return json;
    }
    let escape = |c: char| match c {
        '\n' => "\n".to_owned(),
        // All of them are in the first plane, where a character is one unit.
        _ if is_unseen(c) => format!("\\u{:04x}", u32::from(c)),
        _ => c.to_string(),
    };
    json.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_awaited_for_the_first_minute_of_a_program() {
        let at = |secs: i64| Timestamp::from_second(1_000_000 + secs).unwrap();
        for (told, phase, secs, want) in [
            (Some(7), Phase::Running, 5, "7"),
            (None, Phase::Running, 59, "…"),
            (None, Phase::Running, 60, "-"),
            (None, Phase::Starting, 5, "-"),
        ] {
            assert_eq!(step(told, phase, at(0), at(secs)), want);
        }
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (secs, text) in [
            (-3, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (3599, "59m"),
            (3600, "1h00m"),
            (11_100, "3h05m"),
            (86_400, "1d"),
            (89_999, "1d"),
            (187_200, "2d4h"),
        ] {
            assert_eq!(duration(secs), text);
        }
    }

    #[test]
    fn losses_are_short_and_keep_their_size() {
        for (given, text) in [
            ("2.31", "2.31"),
            ("14.470113200140869", "14.470"),
            ("0.03771439370262368", "0.037714"),
            ("1.7908287209536758e-20", "1.791e-20"),
            ("123456789.25", "1.235e8"),
            ("0.00000000000", "0.0000"),
            ("nan", "nan"),
            ("no number\u{1b}", "no number\u{fffd}"),
        ] {
            assert_eq!(loss(given), text);
        }
    }

    #[test]
    fn a_text_hangs_between_words_and_colours_take_no_room() {
        assert_eq!(hung("one two three", 4, 11), "one two\n    three");
        assert_eq!(hung("\u{1b}[31mone\u{1b}[0m two three", 4, 11), "\u{1b}[31mone\u{1b}[0m two\n    three");
        assert_eq!(hung("rekindle-explain-job x", 2, 8), "rekindle-explain-job\n  x");
        assert_eq!(hung("", 4, 20), "");
    }

    #[test]
    fn sizes_are_short() {
        for (size, text) in [(0, "0 B"), (999, "999 B"), (1536, "1.5 KiB"), (536_870_912, "512.0 MiB")] {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn money_shows_what_is_below_a_cent() {
        for (amount, text) in [
            (0.0, "$0.00"),
            (std::iter::empty::<f64>().sum(), "$0.00"),
            (-0.000_01, "$0.00"),
            (1.239, "$1.24"),
            (0.0042, "$0.0042"),
        ] {
            assert_eq!(usd(amount), text);
        }
    }

    #[test]
    fn escape_sequences_of_a_job_do_not_reach_the_terminal() {
        assert_eq!(tame("a\u{1b}[2Jb\tc"), "a\u{fffd}[2Jb\tc");
    }

    #[test]
    fn text_of_a_job_turns_no_other_text_around() {
        assert_eq!(tame("a\u{202e}b\tשלום"), "a\u{fffd}b\tשלום");
        assert_eq!(one_line("a\nb\r\nc\u{1b}\n"), "a b c\u{fffd}");
        assert_eq!(tame_lines("a\u{2066}\nb\r\n"), "a\u{fffd}\nb\u{fffd}\n");
    }

    #[test]
    fn json_for_a_terminal_is_the_same_value() {
        let value = serde_json::json!({"notes": "a\u{202e}b\u{9b}2J\n\u{7f}c", "folder": "שלום"});
        let text = json(&value);
        assert!(text.contains(r"a\u202eb\u009b2J\n\u007fc") && text.contains("שלום"), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
