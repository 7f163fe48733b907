//! What went wrong, for a person: the fault, its causes, and the next step. Nothing else ends a command early.

use std::fmt::Write as _;
use std::io;

use crate::answers::FaultLine;
use crate::exit::Exit;
use crate::human;

/// A fault, ready to be shown.
#[derive(Debug)]
pub(crate) struct Fault(Box<Inner>);

#[derive(Debug)]
struct Inner {
    what: String,
    causes: Vec<String>,
    next: Option<String>,
    exit: Exit,
    status: Option<u16>,
    lacks: Option<String>,
    lacks_workspace: bool,
    is_after_sending: bool,
    is_quiet: bool,
}

/// The answer of everything that can fail here.
pub(crate) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    fn new(what: &str, exit: Exit) -> Self {
        // Names of files and words of servers are in it.
        let what = human::tame_lines(what);
        Self(Box::new(Inner {
            what,
            causes: Vec::new(),
            next: None,
            exit,
            status: None,
            lacks: None,
            lacks_workspace: false,
            is_after_sending: false,
            is_quiet: false,
        }))
    }

    /// The person's input (or the job) is at fault.
    pub(crate) fn input(what: impl Into<String>) -> Self {
        Self::new(&what.into(), Exit::Fault)
    }

    /// Something that should not happen.
    pub(crate) fn unexpected(what: impl Into<String>) -> Self {
        Self::new(&what.into(), Exit::Unexpected)
    }

    /// The person left with Ctrl-C, and was told what that means.
    pub(crate) fn left() -> Self {
        let mut fault = Self::input("you left").exits(Exit::Interrupted);
        fault.0.is_quiet = true;
        fault
    }

    /// Adds a cause below the ones it has.
    pub(crate) fn because(mut self, cause: impl Into<String>) -> Self {
        self.0.causes.push(human::tame_lines(&cause.into()));
        self
    }

    /// Adds an error with everything below it. A cause that repeats the one above is left out.
    pub(crate) fn caused_by(mut self, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut link = Some(error);
        while let Some(error) = link {
            let text = human::tame_lines(&error.to_string());
            if self.0.causes.last().is_none_or(|above| !above.ends_with(&text)) {
                self.0.causes.push(text);
            }
            link = error.source();
        }
        self
    }

    /// Says what to do now.
    pub(crate) fn next(mut self, step: impl Into<String>) -> Self {
        self.0.next = Some(human::tame_lines(&step.into()));
        self
    }

    /// The HTTP status that told it.
    pub(crate) fn with_status(mut self, status: u16) -> Self {
        self.0.status = Some(status);
        self
    }

    /// There is no job of this id.
    pub(crate) fn for_lack_of(mut self, job: &str) -> Self {
        self.0.lacks = Some(job.to_owned());
        self
    }

    /// There is no workspace of this name: a job with a program is none.
    pub(crate) fn for_lack_of_workspace(mut self, name: &str) -> Self {
        self.0.lacks_workspace = true;
        self.for_lack_of(name)
    }

    /// The request was sent, and what became of it is not known.
    pub(crate) fn after_sending(mut self) -> Self {
        self.0.is_after_sending = true;
        self
    }

    /// The request that failed was only a question before the one that would change something.
    pub(crate) fn before_sending(mut self) -> Self {
        self.0.is_after_sending = false;
        self
    }

    /// Ends with another exit code.
    pub(crate) fn exits(mut self, exit: Exit) -> Self {
        self.0.exit = exit;
        self
    }

    /// The exit code.
    pub(crate) fn exit(&self) -> Exit {
        self.0.exit
    }

    /// The HTTP status, if a server told it.
    pub(crate) fn status(&self) -> Option<u16> {
        self.0.status
    }

    /// The id that no job has, if that is the fault.
    pub(crate) fn lacks(&self) -> Option<&str> {
        self.0.lacks.as_deref()
    }

    /// True when only a workspace can have been meant.
    pub(crate) fn lacks_workspace(&self) -> bool {
        self.0.lacks_workspace
    }

    /// True when what was asked for may have taken place all the same.
    pub(crate) fn may_have_happened(&self) -> bool {
        self.0.is_after_sending
    }

    /// The first line.
    pub(crate) fn what(&self) -> &str {
        &self.0.what
    }

    /// The fault and its causes in one line.
    pub(crate) fn line(&self) -> String {
        [self.0.what.as_str()]
            .into_iter()
            .chain(self.0.causes.iter().map(String::as_str))
            .collect::<Vec<_>>()
            .join(": ")
    }

    /// True when a word stands in what is told of it.
    pub(crate) fn names(&self, word: &str) -> bool {
        self.0.what.contains(word) || self.0.causes.iter().any(|cause| cause.contains(word))
    }

    /// True when nothing is to be shown: nobody reads any more, or all is said.
    pub(crate) fn is_quiet(&self) -> bool {
        self.0.is_quiet
    }

    /// What to do now; where nobody knew better, where to look.
    pub(crate) fn next_step(&self) -> &str {
        match (&self.0.next, self.0.exit) {
            (Some(next), _) => next,
            (None, Exit::Unexpected) => "`rekindle doctor` checks this machine and the server",
            (None, _) => "put --help behind the command: it tells what it takes, with examples",
        }
    }

    /// For people: the fault, each cause on a line, the next step.
    pub(crate) fn text(&self) -> String {
        use owo_colors::OwoColorize as _;
        let mut text = format!("{} {}\n", "error:".red().bold(), self.0.what);
        for cause in &self.0.causes {
            let _ = writeln!(text, "  {} {cause}", "-".red());
        }
        let _ = writeln!(text, "{} {}", "next:".cyan().bold(), self.next_step());
        text
    }

    /// For machines: one JSON object.
    pub(crate) fn json(&self) -> FaultLine<'_> {
        FaultLine {
            error: &self.0.what,
            causes: &self.0.causes,
            next: self.next_step(),
            status: self.0.status,
            exit_code: self.0.exit.code(),
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        let mut fault = Self::unexpected("cannot write the output")
            .caused_by(&error)
            .next("see that whatever takes the output is there, and that its disk has room");
        if error.kind() == io::ErrorKind::BrokenPipe {
            fault.0.is_quiet = true;
            fault.0.exit = Exit::NobodyReads;
        }
        fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_fault_its_causes_and_the_next_step() {
        let error = io::Error::other("connection refused");
        let fault = Fault::unexpected("cannot reach it").caused_by(&error).next("start it");
        let plain = anstream::adapter::strip_str(&fault.text()).to_string();
        assert_eq!(plain, "error: cannot reach it\n  - connection refused\nnext: start it\n");
        assert_eq!(fault.exit(), Exit::Unexpected);
        assert_eq!(fault.json().causes, ["connection refused"]);
    }

    #[test]
    fn words_of_others_in_a_fault_obey_no_terminal() {
        let error = io::Error::other("no\u{1b}[2J");
        let fault = Fault::input("a\u{202e}b").because("c\u{9b}").caused_by(&error).next("one\ntwo\u{7}");
        let plain = anstream::adapter::strip_str(&fault.text()).to_string();
        let want = "error: a\u{fffd}b\n  - c\u{fffd}\n  - no\u{fffd}[2J\nnext: one\ntwo\u{fffd}\n";
        assert_eq!((plain.as_str(), fault.what()), (want, "a\u{fffd}b"));
    }

    #[test]
    fn every_fault_says_what_to_do() {
        for fault in [Fault::input("no"), Fault::unexpected("no"), Fault::input("no").exits(Exit::NotKnown)] {
            assert!(fault.text().contains("next:") && !fault.json().next.is_empty(), "{}", fault.text());
        }
    }

    #[test]
    fn a_reader_that_left_is_no_news() {
        let fault = Fault::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(fault.is_quiet());
        assert_eq!(fault.exit(), Exit::NobodyReads);
    }
}
