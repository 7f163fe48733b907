//! What the programs of one job wrote down themselves: the witness that no two attempts ever ran at the same time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde_json::{Value, json};

/// The record of one job's programs.
#[derive(Debug, Clone)]
pub struct Ledger {
    folder: PathBuf,
    /// `rekindle-e2e-program`.
    program: PathBuf,
}

/// What happened to one start of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// It began.
    Start,
    /// It got SIGTERM.
    Term,
    /// It ended by itself or by SIGTERM; a killed one writes nothing.
    Stop,
    /// It found another start alive.
    Overlap,
}

/// One line of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Attempt.
    pub attempt: u32,
    /// Slice.
    pub slice: u32,
    /// Worker within the slice.
    pub worker: u32,
    /// When.
    pub at: Timestamp,
    /// What.
    pub mark: Mark,
    /// More of it: of a start what it was told, of a stop the exit code.
    pub detail: String,
}

impl Event {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(4, ' ');
        let mut key = parts.next()?.splitn(3, '-').map(str::parse);
        let (seconds, micros) = parts.next()?.split_once('.')?;
        let at = Timestamp::from_microsecond(format!("{seconds}{micros}").parse().ok()?).ok()?;
        let mark = match parts.next()? {
            "start" => Mark::Start,
            "term" => Mark::Term,
            "stop" => Mark::Stop,
            "overlap" => Mark::Overlap,
            _ => return None,
        };
        let mut number = || key.next()?.ok();
        let (attempt, slice, worker) = (number()?, number()?, number()?);
        Some(Self { attempt, slice, worker, at, mark, detail: parts.next().unwrap_or_default().trim().to_owned() })
    }
}

impl Ledger {
    pub(crate) fn new(root: &Path, job: &str, program: PathBuf) -> Result<Self> {
        let ledger = Self { folder: root.join("ledgers").join(job), program };
        fs::create_dir_all(&ledger.folder)?;
        Ok(ledger)
    }

    fn words(&self, order: &str, rest: &[String]) -> Value {
        let front = [self.program.display().to_string(), self.folder.display().to_string(), order.to_owned()];
        json!(front.iter().chain(rest).collect::<Vec<_>>())
    }

    /// `run` of a job spec: this command, with its start and end written down.
    pub fn run(&self, command: &[String]) -> Value {
        self.words("run", command)
    }

    /// `run` of a program that counts steps until [`Self::finish`] or [`Self::exit`].
    pub fn steps(&self) -> Value {
        self.words("steps", &[])
    }

    /// Lets the counting programs of all workers end, now and in later attempts.
    pub fn finish(&self, code: u8) -> Result<()> {
        self.put("finish", code)
    }

    /// Lets the counting program of one worker end once.
    pub fn exit(&self, worker: u32, code: u8) -> Result<()> {
        self.put(&format!("exit-{worker}"), code)
    }

    fn put(&self, name: &str, code: u8) -> Result<()> {
        let beside = self.folder.join(format!("{name}.new"));
        fs::write(&beside, code.to_string())?;
        fs::rename(&beside, self.folder.join(name)).context("rename")
    }

    /// All that was written down so far, in the order of writing.
    pub fn events(&self) -> Result<Vec<Event>> {
        let text = match fs::read_to_string(self.folder.join("record")) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(error.into()),
        };
        text.lines().map(|line| Event::parse(line).with_context(|| format!("record line {line:?}"))).collect()
    }

    /// Events of one kind of one attempt.
    pub fn of(&self, attempt: u32, mark: Mark) -> Result<Vec<Event>> {
        Ok(self.events()?.into_iter().filter(|event| event.attempt == attempt && event.mark == mark).collect())
    }

    /// Numbers of the attempts that ever started anywhere.
    pub fn attempts(&self) -> Result<BTreeSet<u32>> {
        Ok(self.events()?.into_iter().filter(|event| event.mark == Mark::Start).map(|event| event.attempt).collect())
    }

    /// Fails if two attempts ran at the same time, or one was started twice on one worker.
    pub fn check(&self) -> Result<()> {
        let events = self.events()?;
        let mut started = BTreeSet::new();
        for event in &events {
            ensure!(event.mark != Mark::Overlap, "a second copy ran: {event:?} in {events:#?}");
            let key = (event.attempt, event.slice, event.worker);
            ensure!(event.mark != Mark::Start || started.insert(key), "started twice: {event:?} in {events:#?}");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_back() {
        let event = Event::parse("2-0-3 1700000000.000250 stop 143").unwrap();
        assert_eq!((event.attempt, event.slice, event.worker, event.mark), (2, 0, 3, Mark::Stop));
        assert_eq!((event.at.as_microsecond(), event.detail.as_str()), (1_700_000_000_000_250, "143"));
        assert_eq!(Event::parse("2-0 1700000000.000250 stop"), None);
    }

    #[test]
    fn an_overlap_and_a_second_start_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::new(folder.path(), "job", PathBuf::new()).unwrap();
        let write = |text: &str| fs::write(ledger.folder.join("record"), text).unwrap();
        write("1-0-0 1.000000 start\n2-0-0 2.000000 start\n");
        ledger.check().unwrap();
        write("1-0-0 1.000000 start\n1-0-0 2.000000 start\n");
        assert!(ledger.check().unwrap_err().to_string().contains("started twice"));
        write("1-0-0 1.000000 start\n2-0-0 2.000000 overlap lock-1-0-0\n");
        assert!(ledger.check().unwrap_err().to_string().contains("second copy"));
    }
}
