//! One worker's text as lines: who speaks, how loudly, where tracebacks run, where the program moved on.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexSet, RegexSetBuilder};

use super::signature::pattern;

/// Compiles a pattern that is part of the program; one that does not compile is caught by the first test.
pub(super) fn fixed(source: &str) -> Regex {
    pattern(source).unwrap_or_else(|| unreachable!("a pattern of the program does not compile: {source}"))
}

/// How loudly a line is meant by whoever printed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    /// Informational logging.
    Info,
    /// A warning: the program went on.
    Warning,
    /// Not said: a plain print, an exception, a shell.
    Unsaid,
    /// An error.
    Error,
    /// The process ended with it.
    Fatal,
}

/// A line of one stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line<'a> {
    /// Its place in the whole text, for order.
    pub(super) number: usize,
    /// As printed.
    pub(super) raw: &'a [u8],
    /// Without the mark of a merged stream (`[worker-2]`, `(task pid=1, ip=…)`).
    pub(super) text: &'a [u8],
    /// Start of `raw` in the text.
    pub(super) start: usize,
    /// True if it is source code shown by a traceback.
    pub(super) code: bool,
    /// True if it is a frame of a native stack.
    pub(super) native_frame: bool,
    /// True if it shows that the program moved on.
    pub(super) progress: bool,
    /// The traceback chain whose exception this line names or explains.
    pub(super) chain: Option<u32>,
    /// True if it is the line that names a Python exception.
    pub(super) exception: bool,
}

/// Marks of merged streams. Group 1, where there is one, tells the sources apart; a time before it does not.
static MARK: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:\[[A-Za-z][A-Za-z0-9_./-]*\d+\]:?[ \t]?|\[\d+\]:?[ \t]|\[\d+,\d+\]<std(?:err|out)>:[ \t]?",
        r"|\([^()\n]{0,80}pid=\d+[^()\n]{0,80}\)[ \t]?|[A-Za-z][A-Za-z0-9_.-]*\d+[ \t]*\|[ \t]|\d{1,4}:[ \t]",
        r"|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d+)? (\d{1,3}(?:\.\d{1,3}){3} \[\d+\]|\([a-z]+_\d+\) :)[ \t]?",
        r"|\[pod/[^\]\s]{1,120}\][ \t]?|\d{4}-\d\d-\d\dT[\d:.]+Z? ?(?:[+-]\d\d:\d\d )?(?:stdout|stderr) [FP]()[ \t]",
        r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S+ [\w./-]+(?:\[\d+\])?:()[ \t])",
    ))
});

/// Shapes of a line's beginning that tell its level, in the order of `LEVELS`.
static LEVEL: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSetBuilder::new([
        r"^F\d{4}\s|^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,:\d]*Z?:? F\s",
        r"^E\d{4}\s|^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,:\d]*Z?:? E\s",
        r"^W\d{4}\s|^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,:\d]*Z?:? W\s",
        r"^I\d{4}\s|^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,:\d]*Z?:? I\s",
        r"^(?:\S+[ :|\t-]+){0,8}?\[?(?:CRITICAL|FATAL)\b[\]:| \t-]",
        r"^(?:\S+[ :|\t-]+){0,8}?\[?ERROR\b[\]:| \t-]",
        concat!(
            r"^(?:\S+[ :|\t-]+){0,8}?\[?(?:WARNING|WARN)\b[\]:| \t-]|^\S+:\d+: \w*Warning:|^\w*Warning: ",
            r"|^(?i:warning)[: ]|^\{.{0,120}(?:level|severity|levelname)\x22?: ?\x22(?i:warn)|\blevel=warn",
        ),
        concat!(
            r"^(?:\S+[ :|\t-]+){0,8}?\[?(?:INFO|DEBUG|TRACE)\b[\]:| \t-]",
            r#"|^\{.{0,120}(?:level|severity|levelname)"?: ?"(?i:info|debug|default|trace)"|\blevel=(?:info|debug)\b"#,
        ),
    ])
    .unicode(false)
    .build()
    .unwrap_or_else(|error| unreachable!("the level patterns do not compile: {error}"))
});

const LEVELS: [Level; 8] =
    [Level::Fatal, Level::Error, Level::Warning, Level::Info, Level::Fatal, Level::Error, Level::Warning, Level::Info];

/// The level of a line. The first 160 bytes decide, so that a long line costs no more than a short one.
pub(super) fn level(text: &[u8]) -> Level {
    // The common shape of native loggers, without asking the patterns.
    if let [letter @ (b'I' | b'W' | b'E' | b'F'), a, b, c, d, b' ' | b'\t', ..] = text
        && [a, b, c, d].into_iter().all(u8::is_ascii_digit)
    {
        return match letter {
            b'I' => Level::Info,
            b'W' => Level::Warning,
            b'E' => Level::Error,
            _ => Level::Fatal,
        };
    }
    let head = &text[..text.len().min(160)];
    LEVEL.matches(head).iter().next().map_or(Level::Unsaid, |first| LEVELS[first])
}

/// Lines that name an exception, a panic, or what a C++ program threw.
static EXCEPTION: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:UnfilteredStackTrace: |E {2,}|Error: |ERROR: |Caused by:? ?)?(?:[A-Za-z_]\w*\.)*",
        r"[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Unavailable|Timeout|Refused|Forbidden|Unauthorized|NotFound",
        r"|TooManyRequests|BadGateway|Exceeded|Aborted|Cancelled|Killed|NaN)(?::\s|:$|$|\()",
        r"|^(?:[a-z_]\w*\.)+[A-Z]\w*: |^thread '.*'(?: \(\d+\))? panicked at|^panic: ",
        r"|^Exception in thread \x22|^terminate called after throwing",
    ))
});

/// What may follow the frames of a traceback: any name, with or without a message.
static AFTER_FRAMES: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^(?:(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?::\s|:$|$|\()|(?:[a-z_]\w*\.)+[a-z_]\w*: )"));

/// True if the line names a Python exception wherever it stands.
pub(super) fn names_exception(text: &[u8]) -> bool {
    EXCEPTION.is_match(&text[..text.len().min(256)])
}

static PROGRESS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"(?i)\bsteps?[ :=\[/]{1,3}\d|\bprogress on|\d+(?:it)?/\d+(?:it)? ?\[\d+:\d\d|\biter(?:ation)?[ :=]{1,3}\d",
        r"|\bepoch[ :=]{1,3}\d|\bloss[ :=]{1,3}\d|\dit/s|\ds/it",
    ))
});

static NO_PROGRESS: LazyLock<Regex> = LazyLock::new(|| {
    fixed(r"(?i)error|exception|fail|abort|nan\b|restor|resum|load|sav(?:ed|ing)|checkpoint|retry|preempt|timed? ?out")
});

/// True if the line shows that the program took a step.
pub(super) fn is_progress(text: &[u8]) -> bool {
    let head = &text[..text.len().min(512)];
    PROGRESS.is_match(head) && !NO_PROGRESS.is_match(head)
}

/// Frames of native stacks, and the addresses to symbolise them.
static NATIVE_FRAME: LazyLock<Regex> =
    LazyLock::new(|| fixed(r"^(?:PC: )?@ {2,}0x[0-9a-f]+\b|^https://symbolize\.|^#\d+ +0x[0-9a-f]+"));

/// Lines that a new speaker begins, which ends the message of an exception.
static SPEAKER: LazyLock<Regex> = LazyLock::new(|| {
    fixed(concat!(
        r"^(?:[IWEF]\d{4}\s|\d{4}-\d\d-\d\d|\[\d{4}-|wandb: |\*\*\* |\[launcher\]|Traceback |INFO|WARNING|ERROR",
        r"|Aborted|Killed|Terminated|Segmentation|Fatal Python|\S+: line \d+:|Exception ignored|srun: |slurmstepd: )",
    ))
});

/// Removes terminal escape sequences.
pub(super) fn plain(text: &str) -> Cow<'_, [u8]> {
    static ESCAPE: LazyLock<Regex> =
        LazyLock::new(|| fixed(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"));
    if memchr::memchr(0x1b, text.as_bytes()).is_none() {
        return Cow::Borrowed(text.as_bytes());
    }
    ESCAPE.replace_all(text.as_bytes(), &b""[..])
}

/// A text without terminal escape sequences, and without control characters but those that end lines and the tabulator.
pub fn without_escapes(text: &str) -> String {
    let text = plain(text);
    let is_kept = |c: &char| matches!(c, '\n' | '\r' | '\t') || !c.is_control();
    String::from_utf8_lossy(&text).chars().filter(is_kept).collect()
}

/// Splits a text into streams of lines: one stream, or one for each mark if several sources are merged.
pub(super) fn streams(text: &[u8]) -> Vec<Vec<Line<'_>>> {
    let mut groups: Vec<(&[u8], Vec<Line<'_>>)> = Vec::new();
    let mut start = 0;
    let mut number = 0;
    let ends = memchr::memchr2_iter(b'\n', b'\r', text).chain(std::iter::once(text.len()));
    for end in ends {
        let raw = &text[start..end];
        if !raw.trim_ascii().is_empty() {
            let (mark, key) = mark_of(raw);
            let line = Line {
                number,
                raw,
                text: raw[mark..].trim_ascii_end(),
                start,
                code: false,
                native_frame: false,
                progress: false,
                chain: None,
                exception: false,
            };
            // Few distinct marks are expected; past that, marks are text and one stream is kept.
            match groups.iter().rposition(|(known, _)| *known == key) {
                Some(place) => groups[place].1.push(line),
                None if groups.len() < MARKS_MAX => groups.push((key, vec![line])),
                None => groups[0].1.push(line),
            }
            number += 1;
        }
        start = end + 1;
    }
    let mut streams: Vec<Vec<Line<'_>>> = groups.into_iter().map(|(_, lines)| lines).collect();
    for lines in &mut streams {
        structure(lines);
    }
    streams
}

/// Where the system's journal has the colons of its time.
const COLONS: (Option<&u8>, Option<&u8>) = (Some(&b':'), Some(&b':'));

/// The length of a line's mark, and the part of it that tells sources apart.
fn mark_of(raw: &[u8]) -> (usize, &[u8]) {
    let head = &raw[..raw.len().min(200)];
    let can_be = match head.first() {
        Some(b'[' | b'(') => true,
        Some(first) if first.is_ascii_digit() => true,
        Some(first) if first.is_ascii_alphabetic() => {
            memchr::memchr(b'|', &head[..head.len().min(60)]).is_some() || (head.get(9), head.get(12)) == COLONS
        }
        Some(_) | None => false,
    };
    if !can_be || !MARK.is_match(head) {
        return (0, &[]);
    }
    let Some(found) = MARK.captures(head) else { return (0, &[]) };
    let all = found[0].len();
    let key = found.get(1).map_or(&raw[..all], |part| &raw[part.start()..part.end()]);
    (all, key.trim_ascii())
}

/// Sources told apart in one merged text. A v4-512 slice has 64 workers; each may have two streams.
const MARKS_MAX: usize = 160;

/// Finds tracebacks, their exceptions and chains, and progress.
fn structure(lines: &mut [Line<'_>]) {
    let mut in_frames = false;
    let mut chain = 0_u32;
    let mut linked = false;
    let mut message_of: Option<u32> = None;
    // A process that ended itself with a fatal line prints its stack after it, which says nothing beyond that line.
    let mut is_its_stack = false;
    for line in lines.iter_mut() {
        let text = line.text;
        let trimmed = text.trim_ascii_start();
        let indented = trimmed.len() < text.len();
        if trimmed.starts_with(b"Traceback (most recent call last)") || is_frame(trimmed) {
            if !in_frames {
                chain += u32::from(!linked);
                linked = false;
            }
            in_frames = true;
            message_of = None;
            line.code = true;
            continue;
        }
        if in_frames && indented {
            line.code = true;
            continue;
        }
        if is_numbered_code(trimmed) {
            line.code = true;
            continue;
        }
        if NATIVE_FRAME.is_match(trimmed) {
            line.native_frame = true;
            line.code = is_its_stack;
            in_frames = false;
            continue;
        }
        is_its_stack = trimmed.starts_with(b"*** Check failure stack trace");
        if (in_frames && AFTER_FRAMES.is_match(text) && !SPEAKER.is_match(text)) || names_exception(trimmed) {
            if !in_frames {
                chain += u32::from(!linked);
                linked = false;
            }
            line.exception = true;
            line.chain = Some(chain);
            message_of = Some(chain);
            in_frames = false;
            continue;
        }
        in_frames = false;
        if trimmed.starts_with(b"During handling of the above exception")
            || trimmed.starts_with(b"The above exception was the direct cause")
        {
            linked = true;
            continue;
        }
        if SPEAKER.is_match(trimmed) {
            message_of = None;
        }
        line.progress = is_progress(text) && level(text) <= Level::Unsaid;
        if line.progress {
            message_of = None;
        }
        line.chain = message_of;
    }
}

/// True for a frame of a traceback.
fn is_frame(trimmed: &[u8]) -> bool {
    (trimmed.starts_with(b"File \"") && memchr::memmem::find(trimmed, b", line ").is_some())
        || ((trimmed.starts_with(b"File /") || trimmed.starts_with(b"File ~"))
            && memchr::memmem::find(trimmed, b", in ").is_some())
}

/// True for source shown with an arrow and its line number, as IPython does.
fn is_numbered_code(trimmed: &[u8]) -> bool {
    static ARROW: LazyLock<Regex> = LazyLock::new(|| fixed(r"^-{2,}> \d+ "));
    trimmed.starts_with(b"--") && ARROW.is_match(trimmed)
}
