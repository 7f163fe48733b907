//! The only way to the terminal: data on stdout, talk on stderr, colours only where somebody sees them.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use anstream::ColorChoice;
use serde::Serialize;

use crate::fault::{Fault, Result};
use crate::human;

/// What was written last to the terminal has no end of line: what a program said, or the state of its bar.
static AMID_LINE: AtomicBool = AtomicBool::new(false);

/// Where a command writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    /// Machines read stdout: JSON only.
    pub(crate) is_json: bool,
    is_terminal: bool,
    is_talk_terminal: bool,
}

#[expect(clippy::unused_self, reason = "who writes has been given the printer, and with it the choice of form")]
impl Printer {
    /// A printer for this process; `choice` also holds for everything that writes through anstream.
    pub(crate) fn new(is_json: bool, choice: ColorChoice) -> Self {
        choice.write_global();
        Self {
            is_json,
            is_terminal: std::io::stdout().is_terminal(),
            is_talk_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// True when a person looks at stdout.
    pub(crate) fn is_terminal(self) -> bool {
        self.is_terminal
    }

    /// True when a person looks at stderr.
    pub(crate) fn is_talk_terminal(self) -> bool {
        self.is_talk_terminal
    }

    /// Width of the terminal in columns; `None` when stdout is none.
    pub(crate) fn width(self) -> Option<usize> {
        if !self.is_terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }

    /// Height of the terminal in lines; `None` when stdout is none.
    pub(crate) fn height(self) -> Option<usize> {
        if !self.is_terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
        Some(usize::from(size.ws_row)).filter(|lines| *lines > 0)
    }

    /// Writes text as it is to stdout.
    pub(crate) fn data(self, text: &str) -> Result<()> {
        let mut out = anstream::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        self.wrote(text.as_bytes());
        Ok(())
    }

    /// Writes bytes as they are to stdout, colours included.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()?;
        self.wrote(bytes);
        Ok(())
    }

    /// Writes bytes as they are to stderr: what a program complained of.
    pub(crate) fn error_bytes(self, bytes: &[u8]) -> Result<()> {
        std::io::stderr().lock().write_all(bytes)?;
        if self.is_talk_terminal {
            note_end(bytes);
        }
        Ok(())
    }

    /// Writes one line to stdout.
    pub(crate) fn line(self, text: &str) -> Result<()> {
        self.data(&format!("{text}\n"))
    }

    /// Writes one value: indented for a person, on one line for a pipe.
    pub(crate) fn json<T: Serialize>(self, value: &T) -> Result<()> {
        let text = if self.is_terminal { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        self.line(&human::escaped(text.map_err(|error| Fault::unexpected("cannot write JSON").caused_by(&error))?))
    }

    /// Writes one value on one line.
    pub(crate) fn json_line<T: Serialize>(self, value: &T) -> Result<()> {
        let text = serde_json::to_string(value);
        self.line(&human::escaped(text.map_err(|error| Fault::unexpected("cannot write JSON").caused_by(&error))?))
    }

    /// Says something to the person, on a line of its own. Nobody listening is no fault.
    pub(crate) fn talk(self, text: &str) {
        self.say(&format!("{text}\n"));
    }

    /// The terminal shows something behind which nothing may be written: a `^C`.
    pub(crate) fn leave_line(self) {
        AMID_LINE.store(true, Ordering::Relaxed);
    }

    /// True while the last line on the terminal has no end.
    pub(crate) fn is_amid_line(self) -> bool {
        AMID_LINE.load(Ordering::Relaxed)
    }

    fn wrote(self, bytes: &[u8]) {
        if self.is_terminal {
            note_end(bytes);
        }
    }

    fn say(self, text: &str) {
        let is_glued = self.is_talk_terminal && AMID_LINE.swap(false, Ordering::Relaxed);
        let begin = if is_glued { "\n" } else { "" };
        let _ = anstream::stderr().lock().write_all(format!("{begin}{text}").as_bytes());
    }

    /// Warns the person.
    pub(crate) fn warn(self, text: &str) {
        use owo_colors::OwoColorize as _;
        self.talk(&format!("{} {text}", "warning:".yellow().bold()));
    }

    /// Shows a fault.
    pub(crate) fn fault(self, fault: &Fault) {
        if fault.is_quiet() {
            return;
        }
        let json = || human::escaped(serde_json::to_string(&fault.json()).unwrap_or_default()) + "\n";
        let text = if self.is_json { json() } else { fault.text() };
        self.say(&text);
    }
}

fn note_end(bytes: &[u8]) {
    if let Some(last) = bytes.last() {
        AMID_LINE.store(*last != b'\n', Ordering::Relaxed);
    }
}

/// True when stdout takes colours.
pub(crate) fn has_colours() -> bool {
    anstream::AutoStream::choice(&std::io::stdout()) != ColorChoice::Never
}

/// The text as stdout takes it: its colours, or none.
pub(crate) fn coloured(text: &str) -> String {
    if has_colours() { text.to_owned() } else { anstream::adapter::strip_str(text).to_string() }
}
