//! The program that the tests' jobs run: it writes its start, its SIGTERM and its end down, and makes a second copy
//! show.
//!
//! `rekindle-e2e-program LEDGER run COMMAND...` runs a command; `LEDGER steps` counts steps until the test lets it go:
//! the files `finish` and `exit-WORKER` in the ledger end all workers, or one of them once, with the code in the file.
//! `STAY=1`: it does not end at SIGTERM. `GRANDCHILD=1`: it leaves a process in a session of its own behind.
//!
//! As long as any process of a start lives, it holds a lock of its own; every start that finds the lock of another
//! attempt held writes an overlap down. The lock is inherited, so grandchildren in sessions of their own count.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use rustix::io::{FdFlags, fcntl_setfd};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Between two steps.
const STEP: Duration = Duration::from_millis(50);
/// What a shell shows for a program that ended by SIGTERM.
const EXIT_SIGTERM: u8 = 128 + 15;
/// Another start holds what only one may hold.
const EXIT_TWICE: u8 = 97;

fn variable(name: &str) -> Result<String> {
    std::env::var(name).with_context(|| format!("the variable {name}"))
}

/// The record that this start writes to.
struct Record {
    ledger: PathBuf,
    /// `ATTEMPT-SLICE-WORKER`.
    me: String,
    /// Held while this process or any child of it lives.
    lock: Option<File>,
}

impl Record {
    fn line(&self, mark: &str, detail: &str) -> Result<()> {
        let at = Timestamp::now().as_microsecond();
        let line = format!("{} {}.{:06} {mark} {detail}\n", self.me, at / 1_000_000, at % 1_000_000);
        let mut file = File::options().create(true).append(true).open(self.ledger.join("record"))?;
        Ok(file.write_all(line.as_bytes())?)
    }

    /// Takes the lock and looks for others. `None`: this very start is running already.
    fn open(ledger: &Path) -> Result<Option<Self>> {
        let attempt = variable("REKINDLE_ATTEMPT")?;
        let me = format!("{attempt}-{}-{}", variable("REKINDLE_SLICE")?, variable("REKINDLE_WORKER")?);
        let mut record = Self { ledger: ledger.to_owned(), me, lock: None };
        let lock = File::options().create(true).append(true).open(ledger.join(format!("lock-{}", record.me)))?;
        fcntl_setfd(&lock, FdFlags::empty())?;
        if lock.try_lock().is_err() {
            record.line("overlap", "the same start again")?;
            return Ok(None);
        }
        record.lock = Some(lock);
        let own = format!("lock-{attempt}-");
        for entry in fs::read_dir(ledger)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let is_other = name.starts_with("lock-") && !name.starts_with(&own);
            // Shared: those who only look do not see each other.
            if is_other && File::open(ledger.join(&name))?.try_lock_shared().is_err() {
                record.line("overlap", &name)?;
            }
        }
        let told = ["GENERATION", "RESUME", "STAGE", "LINE"];
        let told: Result<Vec<String>> = told
            .iter()
            .map(|name| Ok(format!("{}={}", name.to_lowercase(), variable(&format!("REKINDLE_{name}"))?)))
            .collect();
        record.line("start", &told?.join(" "))?;
        Ok(Some(record))
    }
}

/// Runs a command to its end; SIGTERM reaches it by itself, since it is in the same process group.
async fn run(record: &Record, words: &[String], terms: &mut Signal) -> Result<u8> {
    let (program, arguments) = words.split_first().context("no command")?;
    let mut child = tokio::process::Command::new(program).args(arguments).spawn().context("start the command")?;
    loop {
        tokio::select! {
            status = child.wait() => {
                let status = status?;
                let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
                return Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(255));
            }
            _ = terms.recv() => record.line("term", "")?,
        }
    }
}

/// The code in a file that the test may put there.
fn order(path: &Path) -> Option<u8> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

async fn steps(record: &Record, terms: &mut Signal) -> Result<u8> {
    let place = variable("REKINDLE_CHECKPOINT_DIR")?;
    let place = PathBuf::from(place.strip_prefix("file://").unwrap_or(&place));
    fs::create_dir_all(&place)?;
    let worker = variable("REKINDLE_WORKER")?;
    let mut progress = File::options().create(true).append(true).open(variable("REKINDLE_PROGRESS_FILE")?)?;
    let mut step = 0;
    if variable("REKINDLE_RESUME")? == "1" {
        step = fs::read_to_string(place.join("step")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        writeln!(progress, "resumed_from={step}")?;
    }
    if std::env::var("GRANDCHILD").is_ok_and(|value| value == "1") {
        Command::new("setsid").args(["sleep", "100000"]).spawn().context("start a grandchild")?;
    }
    let mut pace = tokio::time::interval(STEP);
    pace.tick().await;
    let stays = std::env::var("STAY").is_ok_and(|value| value == "1");
    loop {
        step += 1;
        if worker == "0" {
            fs::write(place.join("step.new"), step.to_string())?;
            fs::rename(place.join("step.new"), place.join("step"))?;
            writeln!(std::io::stdout(), "step {step}")?;
        }
        writeln!(progress, "step={step} loss=1.5 checkpoint={step}")?;
        let mine = record.ledger.join(format!("exit-{worker}"));
        if let Some(code) = order(&mine) {
            fs::remove_file(mine)?;
            // What a program says whose peer has gone: no fault of its own.
            writeln!(std::io::stderr(), "Error: all-reduce failed: gRPC status UNAVAILABLE: Socket closed")?;
            return Ok(code);
        }
        if let Some(code) = order(&record.ledger.join("finish")) {
            return Ok(code);
        }
        tokio::select! {
            _ = pace.tick() => {}
            _ = terms.recv() => {
                record.line("term", "")?;
                if !stays {
                    return Ok(EXIT_SIGTERM);
                }
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let ledger = PathBuf::from(words.next().context("no ledger")?);
    let what = words.next().context("no order")?;
    let rest: Vec<String> = words.collect();
    let mut terms = signal(SignalKind::terminate())?;
    let Some(record) = Record::open(&ledger)? else { return Ok(ExitCode::from(EXIT_TWICE)) };
    let code = match what.as_str() {
        "run" => run(&record, &rest, &mut terms).await?,
        "steps" => steps(&record, &mut terms).await?,
        other => bail!("no such order: {other}"),
    };
    record.line("stop", &code.to_string())?;
    Ok(ExitCode::from(code))
}
