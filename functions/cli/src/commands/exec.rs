//! `exec`: a command on the workers of a workspace, its output as it comes, its exit codes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rekindle_core::spec::CommandLine;
use rekindle_wire::v1::{ExecBody, ExecView, ExecWorkerView};

use super::{Context, job_path, workspace};
use crate::answers::{ExecEnd, ExecLine};
use crate::api::{new_key, typed};
use crate::args::Exec;
use crate::exit::Exit;
use crate::fault::{Fault, Result};

/// Between two looks.
const LOOK_EACH: Duration = Duration::from_millis(200);
/// From so many chunks on the server is told that they are known.
const LONG: u64 = 500;
/// A server that does not answer for so long is given up; the command runs on.
const OUTAGE_MAX: Duration = Duration::from_mins(5);

/// Runs a command and shows what it says.
pub(crate) async fn run(context: &Context, options: &Exec) -> Result<ExitCode> {
    let command = match options.command.as_slice() {
        // As `ssh` does, so that pipes and variables work.
        [line] => CommandLine::Shell(line.clone()),
        words => CommandLine::Argv(words.to_vec()),
    };
    if command.is_empty() {
        return Err(Fault::input("the command to run is empty")
            .next(format!("write it behind `--`: `rekindle exec {} -- COMMAND`", options.name)));
    }
    let (id, _) = workspace::live(context, &options.name).await?;
    let body = ExecBody { run: Some(command), unpack: None, worker: worker(&options.worker) };
    let mut screen = Screen { context, rest: BTreeMap::new(), has_prefix: false };
    let view = carry_out(context, &id, &body, &mut screen).await?;
    screen.end()?;
    let mut worst = 0;
    for of in &view.workers {
        let Some(exit) = &of.exit else { continue };
        worst = worst.max(exit.code.clamp(0, 255));
        if context.printer.is_json {
            let (worker, error) = (label(of), exit.error.as_deref());
            context.printer.json_line(&ExecEnd { worker: &worker, exit: exit.code, error })?;
        } else if let Some(error) = &exit.error {
            context.printer.warn(&format!("{}: {error}", label(of)));
        } else if exit.code != 0 && view.workers.len() > 1 {
            context.printer.talk(&format!("{} ended with {}", label(of), exit.code));
        }
    }
    Ok(ExitCode::from(u8::try_from(worst).unwrap_or(u8::MAX)))
}

/// What `--worker` means for the server.
pub(super) fn worker(text: &str) -> Option<String> {
    (text != "all").then(|| text.to_owned())
}

/// `w3`, or `s1w3` where there are slices.
pub(super) fn label(of: &ExecWorkerView) -> String {
    match of.worker.split_once('-') {
        Some(("0", worker)) => format!("w{worker}"),
        Some((slice, worker)) => format!("s{slice}w{worker}"),
        None => format!("w{}", of.worker),
    }
}

/// Where what an order brings goes.
pub(super) trait Sink {
    /// How many workers there are, before the first piece.
    fn begin(&mut self, workers: usize);
    /// A piece of a stream of a worker, in order.
    fn piece(&mut self, worker: &str, is_error: bool, bytes: &[u8]) -> Result<()>;
}

/// Gives an order and takes what it brings until all workers have ended.
pub(super) async fn carry_out(context: &Context, id: &str, body: &ExecBody, sink: &mut dyn Sink) -> Result<ExecView> {
    let value = serde_json::to_value(body).map_err(|error| Fault::unexpected("no JSON").caused_by(&error))?;
    let (value, _) = context.api.post(&job_path(id, "/exec")?, &value, &new_key()).await?;
    let given: ExecView = typed(value)?;
    sink.begin(given.workers.len());
    let path = job_path(id, &format!("/exec/{}", given.id))?;
    let mut done: BTreeMap<(String, bool), u64> = BTreeMap::new();
    let mut heard = Instant::now();
    loop {
        let view: ExecView = match context.api.get(&path, &[("from", known(&done))]).await {
            Ok(value) => typed(value)?,
            Err(fault) if fault.exit() != Exit::Unexpected || heard.elapsed() > OUTAGE_MAX => return Err(fault),
            Err(_) => {
                tokio::time::sleep(LOOK_EACH * 5).await;
                continue;
            }
        };
        heard = Instant::now();
        for of in &view.workers {
            for (is_error, count, stream) in [(false, of.stdout, "stdout"), (true, of.stderr, "stderr")] {
                let next = done.entry((of.worker.clone(), is_error)).or_default();
                while *next < count {
                    let from = format!("{path}/{}/{stream}/{next}", of.worker);
                    let mut bytes = Vec::new();
                    let piece = |piece: &[u8]| {
                        bytes.extend_from_slice(piece);
                        Ok(())
                    };
                    context.api.get_text(&from, &[], piece).await?;
                    sink.piece(&label(of), is_error, &bytes)?;
                    *next += 1;
                }
            }
        }
        if view.workers.iter().all(|of| of.exit.is_some()) {
            return Ok(view);
        }
        if view.is_over {
            return Err(Fault::unexpected(format!("{id} went away before all workers had ended it"))
                .because("its TPU was taken away, or it was paused or deleted")
                .next(format!("see `rekindle status {id}`; what ran is not run again by itself")));
        }
        tokio::time::sleep(LOOK_EACH).await;
    }
}

/// What of the streams was taken, so that a long one is not listed anew at each look.
fn known(done: &BTreeMap<(String, bool), u64>) -> Option<String> {
    let long = done.iter().filter(|(_, next)| **next >= LONG);
    let name = |is_error: bool| if is_error { "stderr" } else { "stdout" };
    let places: Vec<String> =
        long.map(|((worker, is_error), next)| format!("{worker}/{}/{next}", name(*is_error))).collect();
    (!places.is_empty()).then(|| places.join(";"))
}

/// Shows output, each line with its worker where there are several.
struct Screen<'a> {
    context: &'a Context,
    /// Beginnings of lines, by worker and stream.
    rest: BTreeMap<(String, bool), Vec<u8>>,
    has_prefix: bool,
}

impl Screen<'_> {
    fn show(&self, worker: &str, is_error: bool, bytes: &[u8]) -> Result<()> {
        if self.context.printer.is_json {
            let line = String::from_utf8_lossy(bytes);
            let line = line.strip_suffix('\n').unwrap_or(&line);
            let stream = if is_error { "stderr" } else { "stdout" };
            return self.context.printer.json_line(&ExecLine { worker, stream, line });
        }
        if is_error {
            return Ok(std::io::stderr().lock().write_all(bytes)?);
        }
        self.context.printer.bytes(bytes)
    }

    fn end(&mut self) -> Result<()> {
        for ((worker, is_error), mut line) in std::mem::take(&mut self.rest) {
            if !line.is_empty() {
                line.push(b'\n');
                self.line(&worker, is_error, &line)?;
            }
        }
        Ok(())
    }

    fn line(&self, worker: &str, is_error: bool, line: &[u8]) -> Result<()> {
        if self.has_prefix && !self.context.printer.is_json {
            return self.show(worker, is_error, &[format!("[{worker}] ").as_bytes(), line].concat());
        }
        self.show(worker, is_error, line)
    }
}

impl Sink for Screen<'_> {
    fn begin(&mut self, workers: usize) {
        self.has_prefix = workers > 1;
    }

    fn piece(&mut self, worker: &str, is_error: bool, bytes: &[u8]) -> Result<()> {
        if !self.has_prefix && !self.context.printer.is_json {
            return self.show(worker, is_error, bytes);
        }
        let rest = self.rest.entry((worker.to_owned(), is_error)).or_default();
        rest.extend_from_slice(bytes);
        let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole: Vec<u8> = rest.drain(..end).collect();
        whole.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| self.line(worker, is_error, line))
    }
}
