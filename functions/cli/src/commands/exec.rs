//! `exec`: a command on the workers of a workspace, its output as it comes, its exit codes.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rekindle_core::spec::CommandLine;
use rekindle_wire::v1::{ExecBody, ExecView, ExecWorkerView, worker_key, worker_label};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::run::arguments::quoted;
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
/// So long a server that cannot tell the workers is asked for it again.
const TELL_FOR: Duration = Duration::from_secs(30);
/// Who leaves waits for a request that is under way for so long.
const LEAVE_AFTER: Duration = Duration::from_secs(1);

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
    let target = Target::of(context, &options.name).await?;
    let builtin = command_of_shell(&options.command);
    let body = ExecBody { run: Some(command), unpack: None, worker: worker(&options.worker) };
    let mut screen = Screen { context, rest: BTreeMap::new(), has_prefix: false };
    let is_warned = waits_for_reader();
    if is_warned {
        unread(context, &options.name);
    }
    let Carried { view, .. } = carry_out(context, &target, &body, &mut screen).await?;
    screen.end()?;
    // Who writes into a pipe may have begun after us.
    if !is_warned && waits_for_reader() {
        unread(context, &options.name);
    }
    let mut worst = 0;
    for of in &view.workers {
        let Some(exit) = &of.exit else { continue };
        worst = worst.max(exit.code.clamp(0, 255));
        if context.printer.is_json {
            let (worker, error) = (target.label(of), exit.error.as_deref());
            context.printer.json_line(&ExecEnd { worker: &worker, exit: exit.code, error })?;
        } else if let Some(error) = &exit.error {
            context.printer.warn(&format!("{}: {error}", target.label(of)));
        } else if exit.code != 0 {
            context.printer.talk(&format!("{} ended with {}", target.label(of), exit.code));
        }
    }
    if let Some(line) = builtin.filter(|_| worst == NOT_STARTED && !context.printer.is_json) {
        let name = &options.name;
        context.printer.talk(&format!("next: a shell runs what is one word: `rekindle exec {name} -- '{line}'`"));
    }
    Ok(ExitCode::from(u8::try_from(worst).unwrap_or(u8::MAX)))
}

/// Whether something stands on our stdin, and was not typed there: a pipe, or a file.
fn waits_for_reader() -> bool {
    let stdin = std::io::stdin();
    !stdin.is_terminal() && rustix::io::ioctl_fionread(&stdin).is_ok_and(|bytes| bytes > 0)
}

/// Says that what was piped in reaches nobody. No fault: the rest of a list that a script reads line by line stands there, too.
fn unread(context: &Context, name: &str) {
    context.printer.warn("the command gets no input: what stands on stdin is not sent to the workers");
    context.printer.talk(&format!(
        "next: bring it as a file, `rekindle sync FILE {name}:`, and read that: `rekindle exec {name} -- 'COMMAND <FILE'`"
    ));
}

/// The exit code of a command that could not be started.
const NOT_STARTED: i32 = 126;

/// Words that only a shell knows, as the one line that it takes.
fn command_of_shell(words: &[String]) -> Option<String> {
    const BUILTINS: [&str; 10] = ["cd", "exit", "export", "set", "source", ".", "ulimit", "umask", "unset", "eval"];
    let [first, _, ..] = words else { return None };
    // What has a blank in it stays one word of the shell's; what is one of its signs was meant as such.
    let told = |word: &String| if word.contains(' ') { quoted(word) } else { word.clone() };
    let line = || words.iter().map(told).collect::<Vec<_>>().join(" ");
    BUILTINS.contains(&first.as_str()).then(line)
}

/// What `--worker` means for the server.
pub(super) fn worker(text: &str) -> Option<String> {
    (text != "all").then(|| text.to_owned())
}

/// A workspace that orders go to.
pub(super) struct Target {
    id: String,
    has_slices: bool,
}

impl Target {
    /// The one that a name stands for.
    pub(super) async fn of(context: &Context, name: &str) -> Result<Self> {
        let (id, view) = workspace::live(context, name).await?;
        Ok(Self { id, has_slices: view.resources.last().is_some_and(|tpu| tpu.slices > 1) })
    }

    /// Its job.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// What a worker of it is called everywhere: `w3`, or `s0w3` where there are slices.
    pub(super) fn label(&self, of: &ExecWorkerView) -> String {
        worker_key(&of.worker).map_or_else(|| of.worker.clone(), |key| worker_label(key, self.has_slices))
    }
}

/// Where what an order brings goes.
pub(super) trait Sink {
    /// How many workers there are, before the first piece.
    fn begin(&mut self, workers: usize);
    /// A piece of a stream of a worker, in order.
    fn piece(&mut self, worker: &str, is_error: bool, bytes: &[u8]) -> Result<()>;
}

/// An order that all workers have ended.
#[derive(Debug)]
pub(super) struct Carried {
    /// How, on each.
    pub(super) view: ExecView,
    /// The person wanted its end.
    pub(super) is_interrupted: bool,
}

/// Says of an order whose answer is lost that its command may run.
fn unconfirmed(fault: Fault, id: &str) -> Fault {
    if !fault.may_have_happened() {
        return fault;
    }
    fault
        .because(format!("the command is not confirmed, and may run on {id}"))
        .next(format!("`rekindle history {id}` tells whether the order was taken; give it again if not"))
}

/// Gives an order and takes what it brings until all workers have ended. The first Ctrl-C tells the workers to end its
/// command; a second one leaves.
pub(super) async fn carry_out(
    context: &Context,
    target: &Target,
    body: &ExecBody,
    sink: &mut dyn Sink,
) -> Result<Carried> {
    let id = target.id.as_str();
    // From before the order on: what is given is never left running without a word.
    let mut interrupts = Interrupts::of(body)?;
    let value = serde_json::to_value(body).map_err(|error| Fault::unexpected("no JSON").caused_by(&error))?;
    let (place, key) = (job_path(id, "/exec")?, new_key());
    let (value, _) = tokio::select! {
        biased;
        answer = context.api.post(&place, &value, &key) => answer.map_err(|fault| unconfirmed(fault, id))?,
        () = interrupts.until(2) => {
            let what = format!("the command may run on {id}");
            return Err(left(id, what, "you left before the server had said whether it takes the order"));
        }
    };
    let given: ExecView = typed(value)?;
    sink.begin(given.workers.len());
    let path = job_path(id, &format!("/exec/{}", given.id))?;
    let mut looks = Looks {
        context,
        target,
        path,
        done: BTreeMap::new(),
        heard: Instant::now(),
        count: 0,
        last: given,
        is_told: false,
    };
    let mut is_asked = false;
    loop {
        tokio::select! {
            biased;
            () = interrupts.until(if is_asked { 2 } else { 1 }) => {
                if is_asked || !looks.tell(&mut interrupts).await {
                    return Err(looks.left());
                }
                is_asked = true;
            }
            is_done = looks.next(sink) => {
                if is_done? {
                    return Ok(Carried { view: looks.last, is_interrupted: is_asked });
                }
            }
        }
    }
}

/// Ctrl-C, where it has a meaning of its own: only commands can be ended.
struct Interrupts {
    signal: Option<Signal>,
    /// How many came.
    count: u32,
}

impl Interrupts {
    fn of(body: &ExecBody) -> Result<Self> {
        let signal = body.run.is_some().then(|| signal(SignalKind::interrupt())).transpose()?;
        Ok(Self { signal, count: 0 })
    }

    /// Waits until so many came, from the beginning on. May be dropped at any time.
    async fn until(&mut self, count: u32) {
        while self.count < count {
            let heard = match &mut self.signal {
                Some(signal) => signal.recv().await,
                None => None,
            };
            let Some(()) = heard else { return std::future::pending().await };
            self.count += 1;
        }
    }
}

/// A person left, and something may still run.
fn left(id: &str, what: String, why: &str) -> Fault {
    Fault::input(what)
        .because(why)
        .next(format!("`rekindle exec {id} -- ps aux` shows what runs there; `rekindle pause {id}` ends all of it"))
        .exits(Exit::Interrupted)
}

/// Looks at an order, one after the other.
struct Looks<'a> {
    context: &'a Context,
    target: &'a Target,
    path: String,
    /// Chunks that were taken, by worker and stream.
    done: BTreeMap<(String, bool), u64>,
    /// When the server last answered.
    heard: Instant,
    /// Workers that it was given to: those without a word are not listed any more when the TPU is gone.
    count: usize,
    last: ExecView,
    /// The server took it that the workers are to end the command.
    is_told: bool,
}

impl Looks<'_> {
    /// One look, and the pause before the next. True when all workers have ended.
    ///
    /// May be dropped at any time: a chunk counts as taken only when the sink has it.
    async fn next(&mut self, sink: &mut dyn Sink) -> Result<bool> {
        let answer = self.context.api.get(&self.path, &[("from", known(&self.done))]).await;
        let Some(value) = self.passing(answer).await? else { return Ok(false) };
        self.count = self.count.max(self.last.workers.len());
        self.last = typed(value)?;
        for of in self.last.workers.clone() {
            for (is_error, count, stream) in [(false, of.stdout, "stdout"), (true, of.stderr, "stderr")] {
                let place = (of.worker.clone(), is_error);
                while let next = self.done.get(&place).copied().unwrap_or(0)
                    && next < count
                {
                    let from = format!("{}/{}/{stream}/{next}", self.path, of.worker);
                    let answer = self.context.api.get_bytes(&from, &[]).await;
                    let Some(bytes) = self.passing(answer).await? else { return Ok(false) };
                    sink.piece(&self.target.label(&of), is_error, &bytes)?;
                    self.done.insert(place.clone(), next + 1);
                }
            }
        }
        let lacks_some = self.last.is_over && self.last.workers.len() < self.count;
        if !lacks_some && self.last.workers.iter().all(|of| of.exit.is_some()) {
            return Ok(true);
        }
        if self.last.is_over {
            let id = &self.target.id;
            return Err(Fault::unexpected(format!("{id} went away before all workers had ended it"))
                .because("its TPU was taken away, or it was paused or deleted")
                .next(format!("`rekindle explain {id}` tells where it is; what ran is not run again by itself")));
        }
        tokio::time::sleep(LOOK_EACH).await;
        Ok(false)
    }

    /// An answer; `None` after one that failed in a way that may pass, and a pause.
    async fn passing<T>(&mut self, answer: Result<T>) -> Result<Option<T>> {
        match answer {
            Ok(value) => {
                self.heard = Instant::now();
                Ok(Some(value))
            }
            Err(fault) if fault.exit() != Exit::Unexpected || self.heard.elapsed() > OUTAGE_MAX => Err(fault),
            Err(_) => {
                tokio::time::sleep(LOOK_EACH * 5).await;
                Ok(None)
            }
        }
    }

    /// Tells the workers to end the command. False when the person left meanwhile.
    async fn tell(&mut self, interrupts: &mut Interrupts) -> bool {
        let printer = self.context.printer;
        printer.talk("ending it on the workers; Ctrl-C again does not wait for that");
        let (told, stays) = {
            let mut asked = std::pin::pin!(self.ask_to_end());
            tokio::select! {
                biased;
                told = &mut asked => (told, true),
                // Whoever presses twice in a hurry wants the end of it all the more: what is under way arrives.
                () = interrupts.until(2) => {
                    let told = tokio::time::timeout(LEAVE_AFTER, &mut asked).await;
                    (told.unwrap_or_else(|_| Err(Fault::unexpected("no answer"))), false)
                }
            }
        };
        self.is_told = told.is_ok();
        if let Err(fault) = told
            && stays
        {
            let what = fault.what();
            printer.warn(&format!("the workers were not told to end it: {what}; Ctrl-C again leaves it there"));
        }
        stays
    }

    /// Asks the server to tell the workers, again where it may pass what is in the way.
    async fn ask_to_end(&self) -> Result<()> {
        let stop = format!("{}/stop", self.path);
        let (body, key, began) = (serde_json::json!({}), new_key(), Instant::now());
        loop {
            match self.context.api.post(&stop, &body, &key).await {
                Ok(_) => return Ok(()),
                Err(fault) if fault.exit() != Exit::Unexpected || began.elapsed() > TELL_FOR => return Err(fault),
                Err(_) => tokio::time::sleep(LOOK_EACH * 5).await,
            }
        }
    }

    /// The person left: what still runs.
    fn left(&self) -> Fault {
        let open = self.last.workers.iter().filter(|of| of.exit.is_none());
        let names: Vec<String> = open.map(|of| self.target.label(of)).collect();
        let id = &self.target.id;
        let order = format!("order {} of {id}", self.last.id);
        if names.is_empty() {
            return left(id, format!("{order} has ended"), "you left before all that it said was shown");
        }
        let what = format!("{order} may still run on {}", names.join(", "));
        let why = if self.is_told {
            "its workers are told to end it, and kill it after `limits.stop_grace`; you left before they had done so"
        } else {
            "you left before its workers were told to end it"
        };
        left(id, what, why)
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
            return self.context.printer.error_bytes(bytes);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_only_a_shell_knows_are_one_line_for_it() {
        let line = |words: &[&str]| command_of_shell(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(line(&["exit", "3"]).as_deref(), Some("exit 3"));
        assert_eq!(line(&["cd", "/tmp", "&&", "ls"]).as_deref(), Some("cd /tmp && ls"));
        assert_eq!(line(&["export", "A=x y"]).as_deref(), Some("export 'A=x y'"));
        assert_eq!((line(&["python3", "x.py"]), line(&["exit 3"]), line(&[])), (None, None, None));
    }
}
