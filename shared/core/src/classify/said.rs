//! What a worker said last, for a person, where nothing that is known says why it ended.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::lines::{Level, fixed, is_progress, level, plain};

/// So many lines are quoted.
const SHOWN: usize = 2;
/// The longest line that is quoted whole, in characters; of a longer one both ends are.
const CHARS_MAX: usize = 160;

/// The last lines that may be words of an end: no progress, no warning, nothing that is informational; if there are no others, the last ones.
pub(super) fn last_words(tail: &str) -> String {
    let text = plain(tail);
    let mut all: Vec<(bool, String)> = Vec::new();
    let mut follows_warning = false;
    for raw in text.split(|byte| matches!(byte, b'\n' | b'\r')) {
        let line = visible(raw);
        // Nor what we left out of a long tail.
        if !line.contains(char::is_alphanumeric) || line.starts_with("*** rekindle: ") {
            continue;
        }
        // Python shows the line of the program below its warning.
        let is_shown = follows_warning && raw.starts_with(b" ");
        let is_quiet = level(raw) < Level::Unsaid;
        follows_warning = is_quiet || is_shown;
        all.push((is_quiet || is_shown || is_progress(raw) || is_bar(&line), line));
    }
    let loud: Vec<&String> = all.iter().filter(|(is_noise, _)| !is_noise).map(|(_, line)| line).collect();
    let lines = if loud.is_empty() { all.iter().map(|(_, line)| line).collect() } else { loud };
    lines[lines.len().saturating_sub(SHOWN)..].iter().map(|line| cut(line)).collect::<Vec<_>>().join(" | ")
}

/// Without what only a terminal understands, or what turns the text around it.
fn visible(raw: &[u8]) -> String {
    let turns = |c: char| {
        matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
            || matches!(c, '\u{e0000}'..='\u{e007f}')
    };
    let text = String::from_utf8_lossy(raw);
    let text: String =
        text.chars().map(|c| if c == '\t' { ' ' } else { c }).filter(|c| !c.is_control() && !turns(*c)).collect();
    text.trim().to_owned()
}

/// A bar of progress, whatever it counts; and what a well-known logger says as it leaves.
fn is_bar(line: &str) -> bool {
    static BAR: LazyLock<Regex> =
        LazyLock::new(|| fixed(r"\d%\||\d+/\d+ \[\d+:\d\d|\[\d+:\d\d, *[\d.?]+ ?\w*/s\]|^wandb: "));
    BAR.is_match(line.as_bytes())
}

fn cut(line: &str) -> String {
    let count = line.chars().count();
    if count <= CHARS_MAX {
        return line.to_owned();
    }
    let (head, tail) = (CHARS_MAX / 2, CHARS_MAX / 2 - 1);
    let begin: String = line.chars().take(head).collect();
    let end: String = line.chars().skip(count - tail).collect();
    format!("{}…{}", begin.trim_end(), end.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_is_quoted_without_noise_and_without_what_a_terminal_obeys() {
        for (tail, want) in [
            (
                "I give up: no such split\nx.py:1: UserWarning: foo is old\n  warnings.warn(x)\n",
                "I give up: no such split",
            ),
            ("bad: a\nI1127 11:42:49.594200 104 x.cc:7] bye\n", "bad: a"),
            ("one\ntwo\nthree\n", "two | three"),
            ("step 1 loss 2\nstep 2 loss 1\n", "step 1 loss 2 | step 2 loss 1"),
            ("why\r 10%|#  | 1/10 [00:01<00:09]\r 20%|## | 2/10 [00:02<00:08]\n----\n", "why"),
            ("\u{1b}[31mred end\u{1b}[0m\u{1b}]0;title\u{7} \"q\" \u{7}\0\u{202e}rtl\n\u{1b}[K\n", "red end \"q\" rtl"),
            (
                "the reason: nan\nLoading: 100%|██| 10/10 [00:02<00:00]\nDownloading data: 3.2MB [00:01, 3.1MB/s]\n",
                "the reason: nan",
            ),
            ("why\nwandb: Synced 5 W&B file(s)\nwandb: Find logs at: x\n", "why"),
            ("\0\0\0\0", ""),
            ("", ""),
        ] {
            assert_eq!(last_words(tail), want, "{tail:?}");
        }
        let long = format!("{} is bad: THE REASON", "x".repeat(400));
        let said = last_words(&long);
        assert!(said.starts_with("xxx") && said.contains('…') && said.ends_with("is bad: THE REASON"), "{said}");
        assert_eq!(said.chars().count(), CHARS_MAX);
    }
}
