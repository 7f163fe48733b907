//! What one worker's end says by itself: its causes, each with a strength, whether it finished, how it left.

use std::sync::LazyLock;

use regex::bytes::Regex;

use super::completion::{self, Completion};
use super::evidence::{Exit, SignalSender, Stage, WorkerEvidence};
use super::lines::{Level, Line, fixed, level, plain, streams};
use super::signature::{Row, SIGNATURES, Trust};
use crate::failure::FailureKind;

/// How strongly a cause speaks. The order is the whole meaning; the gaps leave room for rules of thumb.
pub(super) mod strength {
    /// A signature that practically decides alone.
    pub(crate) const HIGH: u8 = 80;
    /// A signature that decides unless a stronger one stands anywhere.
    pub(crate) const MEDIUM: u8 = 60;
    /// A Python exception that no signature knows; also a termination by process 1, equally common as cause.
    pub(crate) const EXCEPTION: u8 = 50;
    /// Killed, alone among its peers: most often host memory.
    pub(crate) const KILLED: u8 = 40;
    /// The device was held by somebody else, which a child of the program itself may be.
    pub(crate) const HELD: u8 = 35;
    /// A signature that is a hint.
    pub(crate) const LOW: u8 = 30;
    /// What a tracker says about itself.
    pub(crate) const TRACKER: u8 = 28;
    /// A termination by nobody knows whom.
    pub(crate) const TERMINATED: u8 = 25;
    /// Cut off: lost, or its connection was.
    pub(crate) const SILENT: u8 = 20;
    /// What everybody prints when a peer has died.
    pub(crate) const ECHO: u8 = 10;
    /// The same, from a line that tells more of it.
    pub(crate) const TELLING: u8 = 11;
    /// A fault of memory or arithmetic in a worker that says nothing of its peers: no echo, theirs are.
    pub(crate) const CRASHED_FIRST: u8 = 12;
    /// Aborted or crashed without a word.
    pub(crate) const CRASH: u8 = 8;
    /// Silent, and its last words say that it waits for others.
    pub(crate) const WAITS: u8 = 7;
    /// An exception that only says that a child failed, or a line that only says "error".
    pub(crate) const WRAPPER: u8 = 6;
    /// A warning, a retried error, or an error after which the program went on.
    pub(crate) const OVERCOME: u8 = 5;
    /// Ended by another process of the machine: a parent cleaning up, or a person.
    pub(crate) const LAST: u8 = 3;
    /// A line of an informational logger.
    pub(crate) const TALK: u8 = 2;
}

/// One possible cause of the end.
#[derive(Debug, Clone)]
pub(super) struct Cause {
    /// The kind it speaks for.
    pub(super) kind: FailureKind,
    /// How strongly, see [`strength`].
    pub(super) strength: u8,
    /// The signature or rule.
    pub(super) signature: &'static str,
    /// What it means.
    pub(super) reason: &'static str,
    /// The line, shortened; empty for an exit.
    pub(super) line: String,
    /// The line's number; a cause without a line comes after all lines.
    pub(super) number: usize,
    /// Milliseconds of the day, if the line or one shortly before it has a time.
    pub(super) time_of_day_ms: Option<u32>,
}

/// What one worker's end says.
#[derive(Debug)]
pub(super) struct Account<'a> {
    /// The worker.
    pub(super) worker: &'a WorkerEvidence,
    /// How it left, with codes that mean signals read as such.
    pub(super) exit: Exit,
    /// Strongest first, the earlier of equals first.
    pub(super) causes: Vec<Cause>,
    /// The line that shows the last step and the final checkpoint, if the work was done.
    pub(super) completed: Option<Completion>,
    /// True if the worker said nothing at all.
    pub(super) empty: bool,
    /// True if the output ends with a Python exception, whatever the exit code says.
    pub(super) ends_with_exception: bool,
    /// True if it took steps.
    pub(super) stepped: bool,
    /// The time of day at which a SIGTERM from nobody knows whom was first heard of.
    pub(super) terminated_at_ms: Option<u32>,
    /// The time of day of the first line that says something went wrong, such a SIGTERM apart.
    pub(super) failed_at_ms: Option<u32>,
}

impl Account<'_> {
    /// The best cause, if there is any.
    pub(super) fn best(&self) -> Option<&Cause> {
        self.causes.first()
    }

    /// True if it left well.
    pub(super) fn left_well(&self) -> bool {
        self.exit == Exit::Code(0)
    }

    /// True if the manager told it to stop before it ended.
    pub(super) fn is_stopped(&self) -> bool {
        self.worker.signal_sender == Some(SignalSender::Ourselves)
    }

    /// True if its program ended, badly, and the manager had not told it to.
    pub(super) fn ended_badly_by_itself(&self) -> bool {
        !self.is_stopped() && !matches!(self.exit, Exit::Code(0) | Exit::Silent)
    }
}

/// Reads shells' and Python's codes as the signals they stand for.
pub(super) fn normal(exit: Exit) -> Exit {
    match exit {
        Exit::Code(code) if (129..=192).contains(&code) => Exit::Signal(code - 128),
        Exit::Code(code) if (-64..0).contains(&code) => Exit::Signal(-code),
        Exit::Code(_) | Exit::Signal(_) | Exit::Silent => exit,
    }
}

/// Reads one worker's evidence. `is_told`: the manager told it to stop, or told its peers before it ended.
pub(super) fn account(worker: &WorkerEvidence, is_told: bool) -> Account<'_> {
    let text = plain(&worker.tail);
    let streams = streams(&text);
    let exit = normal(worker.exit);
    let mut causes = Vec::new();
    let lines = by_start(&streams);
    signatures(&text, &streams, &lines, &mut causes);
    exceptions(worker, &streams, &mut causes);
    pip_without_network(&mut causes);
    if causes.is_empty() && !matches!(exit, Exit::Code(0) | Exit::Silent) {
        error_lines(worker, &streams, &mut causes);
    }
    if is_told {
        super::exit::forget_our_stop(&mut causes);
    }
    notices_outlived(&streams, &mut causes);
    given_up(&mut causes);
    let completed = completion::completion(&streams);
    facts(worker, &mut causes);
    let said = !causes.is_empty();
    super::exit::causes(worker, exit, said, &mut causes);
    if exit == Exit::Silent && streams.iter().any(|lines| still_waits(lines)) {
        for cause in causes.iter_mut().filter(|cause| cause.signature == "silent") {
            cause.strength = strength::WAITS;
            cause.reason = "the worker still waited for the others";
        }
    }
    causes.sort_by(|a, b| b.strength.cmp(&a.strength).then(a.number.cmp(&b.number)).then(a.signature.cmp(b.signature)));
    if let Some(first) = causes.first_mut() {
        first.time_of_day_ms = time_of(&streams, first.number);
    }
    let first = |is: &dyn Fn(&Cause) -> bool| {
        let number = causes.iter().filter(|cause| is(cause)).map(|cause| cause.number).min()?;
        time_of(&streams, number)
    };
    let terminated_at_ms = first(&super::exit::is_bare_sigterm);
    let failed_at_ms = first(&|cause| cause.strength >= strength::ECHO && !super::exit::is_bare_sigterm(cause));
    let stepped = worker.last_step.is_some() || streams.iter().flatten().any(|line| line.progress);
    let ends_with_exception = streams.iter().any(|lines| ends_with_exception(lines));
    let empty = streams.is_empty();
    Account { worker, exit, causes, completed, empty, ends_with_exception, stepped, terminated_at_ms, failed_at_ms }
}

/// All lines in the order of the text, as (stream, place in it).
fn by_start(streams: &[Vec<Line<'_>>]) -> Vec<(usize, usize)> {
    let mut order: Vec<(usize, usize)> =
        streams.iter().enumerate().flat_map(|(s, lines)| (0..lines.len()).map(move |l| (s, l))).collect();
    if streams.len() > 1 {
        order.sort_unstable_by_key(|(s, l)| streams[*s][*l].number);
    }
    order
}

/// Collects the causes that the table knows.
fn signatures(text: &[u8], streams: &[Vec<Line<'_>>], order: &[(usize, usize)], causes: &mut Vec<Cause>) {
    let mut at = 0;
    // The rows tried on the current line: each row runs once a line, however often its words stand in it.
    let mut tried: Vec<u16> = Vec::new();
    // What the current line was found to say: another row that says the same no louder need not run.
    let mut said: Vec<(FailureKind, u8)> = Vec::new();
    let mut echoes = 0_usize;
    let steps: Vec<Vec<usize>> = streams.iter().map(|lines| progress_places(lines)).collect();
    SIGNATURES.each_word(text, |end, row| {
        while at < order.len() && {
            let line = &streams[order[at].0][order[at].1];
            line.start + line.raw.len() < end
        } {
            at += 1;
            tried.clear();
            said.clear();
        }
        let Some(&(stream, place)) = order.get(at) else { return };
        let line = &streams[stream][place];
        let known = SIGNATURES.row(row);
        if line.code || line.native_frame != known.native_frame || tried.contains(&row) {
            return;
        }
        tried.push(row);
        let full = full_strength(known.trust);
        // One echo is as good as a hundred, but where it explains an exception.
        let enough = full == strength::ECHO && echoes >= ECHOES_MAX && line.chain.is_none();
        if enough || said.iter().any(|(kind, loud)| *kind == known.kind && *loud >= full) {
            return;
        }
        if !SIGNATURES.accepts(row, line.text) {
            return;
        }
        said.push((known.kind, full));
        echoes += usize::from(full == strength::ECHO);
        let moved_on = steps[stream].iter().rev().take_while(|step| **step > place).take(2).count() >= 2;
        let Some(strength) = weigh(line, known, full, moved_on) else { return };
        causes.push(Cause {
            kind: known.kind,
            strength,
            signature: known.id,
            reason: known.meaning,
            line: shown(line.raw),
            number: line.number,
            time_of_day_ms: None,
        });
    });
}

/// Echoes of one worker that are looked at. They differ in nothing that counts, and a dying gang prints thousands.
const ECHOES_MAX: usize = 16;

/// The strength of a signature whose line is taken at its word.
const fn full_strength(trust: Trust) -> u8 {
    match trust {
        Trust::High => strength::HIGH,
        Trust::Medium => strength::MEDIUM,
        Trust::Even => strength::EXCEPTION,
        Trust::Killed => strength::KILLED,
        Trust::Low => strength::LOW,
        Trust::Terminated => strength::TERMINATED,
        Trust::Cut => strength::SILENT,
        Trust::Echo => strength::ECHO,
        Trust::Telling => strength::TELLING,
        Trust::Crash => strength::CRASH,
        Trust::Last => strength::LAST,
    }
}

/// Where a stream shows progress.
fn progress_places(lines: &[Line<'_>]) -> Vec<usize> {
    lines.iter().enumerate().filter(|(_, line)| line.progress).map(|(place, _)| place).collect()
}

/// The strength that is left to a signature after looking at who says it and what came after; `None` for a quotation.
fn weigh(line: &Line<'_>, row: &Row, full: u8, moved_on: bool) -> Option<u8> {
    static HISTORY: LazyLock<Regex> = LazyLock::new(|| {
        fixed(concat!(
            r"(?i)\b(?:previous|prior|last|earlier|old) (?:attempt|run|job|exit|failure|generation|error|status|try)\b",
            r"|\bresum(?:ed|ing|e)\b|\bre-?start(?:ed|ing)? (?:after|from|because)|\brestored (?:step|from|at)",
            r"|\bafter (?:a |the )?(?:pre-?emption|crash|restart)\b",
        ))
    });
    static RETRIED: LazyLock<Regex> = LazyLock::new(|| {
        fixed(concat!(
            r"(?i)\bretrying\b|\bwill retry|\battempt \d+ ?(?:of|/) ?\d+|\bbacking off\b|\bretries left|\breconnecting",
            r"|\bre-?trying in|\bretry in \d|entering retry|\bwill be (?:automatically )?retried|\bretry #?\d+",
            r"|\(recovered\)",
            r"|\btrying again|\btry again in\b|\bsleeping (?:for )?\d|\bback-?off\b",
        ))
    });
    static SPEECH: LazyLock<Regex> = LazyLock::new(|| {
        fixed(concat!(
            r"(?i)^(?:\S+ ){0,5}(?:samples?|prompts?|texts?|generated|examples?|completions?|questions?|answers?",
            r"|documents?|captions?|targets?|predictions?|decoded|tokens|story|reviews?|comments?|titles?|passages?",
            r"|sentences?|contexts?|translations?|instructions?|responses?|references?|hypothes[ie]s|summary)",
            r"(?: ?\d+)?\s?[:=]|^(?:\S+ ){0,5}(?:inputs?|outputs?)(?: ?\d+)?\s?[:=]\s?[\x22']",
        ))
    });
    let exception = line.exception || line.chain.is_some();
    let level = if exception { Level::Unsaid.max(level(line.text)) } else { level(line.text) };
    if level == Level::Fatal {
        return Some(full);
    }
    if !exception && level < Level::Error && (HISTORY.is_match(line.text) || SPEECH.is_match(line.text)) {
        return None;
    }
    if level == Level::Info && !row.any_level {
        return Some(strength::TALK);
    }
    let overcome = full.min(strength::OVERCOME);
    // TensorFlow says so of the operation that ends the program, as a warning.
    let ending = memchr::memmem::find(line.text, b"OP_REQUIRES failed").is_some();
    if (level == Level::Warning && !row.any_level && !ending) || (!exception && RETRIED.is_match(line.text)) {
        return Some(overcome);
    }
    // A notice comes some steps before the end; everything else is overcome by the steps after it.
    if moved_on && !(row.any_level && row.kind == FailureKind::Preempted) {
        return Some(overcome);
    }
    // The tracker's own lines are about the tracker, which a program survives; they decide if nothing else does.
    let tracker = line.text.starts_with(b"wandb: ") && row.kind != FailureKind::Auth;
    Some(if tracker { full.min(strength::TRACKER) } else { full })
}

/// Collects Python exceptions that no signature knows.
fn exceptions(worker: &WorkerEvidence, streams: &[Vec<Line<'_>>], causes: &mut Vec<Cause>) {
    static NO_CAUSE: LazyLock<Regex> = LazyLock::new(|| {
        fixed(r"^(?:\w+\.)*(?:SystemExit|BrokenPipeError|StopIteration|GeneratorExit|SimplifiedTraceback)\b")
    });
    static WRAPPER: LazyLock<Regex> = LazyLock::new(|| {
        fixed(concat!(
            r"^(?:\w+\.)*(?:CalledProcessError|ChildFailedError|Process(?:Exited|Raised)Exception|RayTaskError",
            r"|JobError",
            r"|TrainingFailedError|WorkerGroupError)\b|^Exception: process \d+ terminated with exit code",
            r"|^\w+Error: (?:Job|Process|Subprocess|Command|Task|Worker|Child)\b.{0,60}\b(?:failed|exited|died",
            r"|terminated)",
        ))
    });
    for lines in streams {
        let known = explained_chains(lines, causes);
        let steps = progress_places(lines);
        for (place, line) in lines.iter().enumerate().filter(|(_, line)| line.exception) {
            let chain = line.chain.unwrap_or(0);
            if known.contains(&chain) || NO_CAUSE.is_match(line.text) {
                continue;
            }
            let moved_on = steps.iter().rev().take_while(|step| **step > place).take(2).count() >= 2;
            let strength = if moved_on {
                strength::OVERCOME
            } else if WRAPPER.is_match(line.text) {
                strength::WRAPPER
            } else {
                strength::EXCEPTION
            };
            let (kind, reason) = match worker.during {
                Stage::Setup => (FailureKind::Environment, "the job's setup commands raised an exception"),
                Stage::Run => (FailureKind::UserError, "the program ended with an error of its own"),
            };
            causes.push(Cause {
                kind,
                strength,
                signature: "own-exception",
                reason,
                line: shown(line.raw),
                number: line.number,
                time_of_day_ms: None,
            });
        }
    }
}

/// The traceback chains of a stream in which a signature was found.
fn explained_chains(lines: &[Line<'_>], causes: &[Cause]) -> Vec<u32> {
    let mut chains: Vec<u32> = causes
        .iter()
        .filter(|cause| cause.strength > strength::TALK)
        .filter_map(|cause| {
            let place = lines.binary_search_by_key(&cause.number, |line| line.number).ok()?;
            lines[place].chain
        })
        .collect();
    chains.sort_unstable();
    chains.dedup();
    chains
}

/// "No matching distribution" after network errors means that the index could not be read.
fn pip_without_network(causes: &mut [Cause]) {
    let network = causes.iter().filter(|cause| cause.kind == FailureKind::StorageNetwork).map(|c| c.number).min();
    for cause in causes.iter_mut().filter(|cause| cause.signature == "pip-no-match") {
        if network.is_some_and(|first| first < cause.number) {
            cause.kind = FailureKind::StorageNetwork;
            cause.reason = "the package index could not be reached, so pip found nothing";
        }
    }
}

/// Without any known cause, a line that begins with the word error is the program's own.
fn error_lines(worker: &WorkerEvidence, streams: &[Vec<Line<'_>>], causes: &mut Vec<Cause>) {
    static SAYS_ERROR: LazyLock<Regex> =
        LazyLock::new(|| fixed(r"(?i)^(?:\S+: )?(?:\[?(?:error|fatal|fatal error|exception)\]?)[:\s]"));
    let own = |line: &&Line<'_>| SAYS_ERROR.is_match(line.text) && !line.text.starts_with(b"ERROR: (gcloud");
    let first = streams.iter().flat_map(|lines| lines.iter()).filter(own).min_by_key(|line| line.number);
    causes.extend(first.map(|line| Cause {
        kind: if worker.during == Stage::Setup { FailureKind::Environment } else { FailureKind::UserError },
        strength: strength::WRAPPER,
        signature: "error-line",
        reason: match worker.during {
            Stage::Setup => "the job's setup commands reported an error",
            Stage::Run => "the program reported an error of its own",
        },
        line: shown(line.raw),
        number: line.number,
        time_of_day_ms: None,
    }));
}

/// An exception that only says that something was tried in vain has its cause in the warnings before it.
fn given_up(causes: &mut [Cause]) {
    static IN_VAIN: LazyLock<Regex> = LazyLock::new(|| {
        fixed(concat!(
            r"(?i)\bafter \d+ (?:attempts|retries|tries)|\bgiving up\b|retries exhausted|max(?:imum)? retries",
            r"|\b(?:could not|failed to|cannot|unable to) (?:save|write|upload|download|load|restore|read|fetch",
            r"|open)\b",
        ))
    });
    let last = causes
        .iter()
        .filter(|cause| cause.signature == "own-exception" && IN_VAIN.is_match(cause.line.as_bytes()))
        .map(|cause| cause.number)
        .min();
    let Some(last) = last else { return };
    let remote = |kind| matches!(kind, FailureKind::DiskFull | FailureKind::StorageNetwork | FailureKind::Auth);
    let warned = causes
        .iter_mut()
        .filter(|cause| cause.strength == strength::OVERCOME && cause.number < last && remote(cause.kind))
        .max_by_key(|cause| cause.number);
    if let Some(cause) = warned {
        cause.strength = strength::EXCEPTION + 1;
    }
}

/// A notice that the program outlived by many steps, to die of something else, was for an earlier attempt or withdrawn.
fn notices_outlived(streams: &[Vec<Line<'_>>], causes: &mut [Cause]) {
    let later = causes
        .iter()
        .filter(|cause| cause.kind != FailureKind::Preempted && cause.strength >= strength::EXCEPTION)
        .map(|cause| cause.number)
        .max();
    let Some(later) = later else { return };
    for cause in causes.iter_mut().filter(|cause| cause.kind == FailureKind::Preempted && cause.number < later) {
        let steps = streams.iter().flatten().filter(|l| l.progress && (cause.number..later).contains(&l.number));
        if steps.take(2).count() >= 2 {
            cause.strength = strength::OVERCOME;
        }
    }
}

/// With less free disk than this no checkpoint can be written. Larger would blame the disk for other failures.
const DISK_FULL_BYTES: u64 = 1 << 20;

/// What the agent saw beside the output.
fn facts(worker: &WorkerEvidence, causes: &mut Vec<Cause>) {
    let mut fact = |kind, strength, signature, reason, line: &str| {
        causes.push(Cause {
            kind,
            strength,
            signature,
            reason,
            line: shown(line.as_bytes()),
            number: usize::MAX,
            time_of_day_ms: None,
        });
    };
    let ours = worker.signal_sender == Some(SignalSender::Ourselves);
    if worker.oom_kill {
        fact(
            FailureKind::OomHost,
            strength::HIGH,
            "kernel-oom-kill",
            "the kernel killed it because its memory limit was reached",
            &worker.oom_line,
        );
    }
    if worker.rebooted {
        let reason = match worker.during {
            Stage::Setup => "the machine was started anew while the job's setup commands ran",
            Stage::Run => "the machine was started anew while the program ran",
        };
        fact(FailureKind::Lost, strength::HIGH, "rebooted", reason, "");
    }
    if worker.device_busy && !ours {
        let holder = worker.holders.first().map_or("", String::as_str);
        fact(FailureKind::TpuRuntime, strength::HELD, "device-held", "another process held the TPU device", holder);
    }
    if worker.disk_free_bytes.is_some_and(|free| free < DISK_FULL_BYTES) && !ours {
        fact(FailureKind::DiskFull, strength::MEDIUM, "disk-full", "no space was left on the disk it writes to", "");
    }
}

/// True if the last thing said is a Python exception: a code of 0 then comes from a pipe behind the program.
fn ends_with_exception(lines: &[Line<'_>]) -> bool {
    lines.iter().rev().find(|line| !line.text.starts_with(b"wandb:")).is_some_and(|line| {
        line.exception && !line.text.starts_with(b"SystemExit") && lines.iter().any(|line| line.code)
    })
}

/// True if it said that it waits for others, and took no step after that: its silence is then that of a program that
/// hangs, and not of a loss.
fn still_waits(lines: &[Line<'_>]) -> bool {
    waiting(lines).is_some()
}

/// The line that says so.
pub(super) fn waiting<'a, 'b>(lines: &'b [Line<'a>]) -> Option<&'b Line<'a>> {
    static WAITS: LazyLock<Regex> = LazyLock::new(|| {
        fixed(concat!(
            r"(?i)\bis taking more than \d|\bstill waiting\b|\bwaiting (?:for|on|until) .{0,60}\b(?:workers?|hosts?",
            r"|peers?|process(?:es)?|tasks?|nodes?|ranks?|barrier|coordinator|rendezvous)\b|\bRendezvous'ing\b",
        ))
    });
    let mut after_steps = lines.iter().rev().take_while(|line| !line.progress);
    after_steps.find(|line| WAITS.is_match(&line.text[..line.text.len().min(400)]))
}

/// A decimal number of ASCII digits.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A line for a report: lossy, trimmed, at most 400 bytes.
pub(super) fn shown(raw: &[u8]) -> String {
    let text = String::from_utf8_lossy(&raw[..raw.len().min(400)]);
    text.trim_end_matches('\u{fffd}').trim().to_owned()
}

/// The time of day of the line of that number.
fn time_of(streams: &[Vec<Line<'_>>], number: usize) -> Option<u32> {
    streams.iter().find_map(|lines| {
        let place = lines.binary_search_by_key(&number, |line| line.number).ok()?;
        time_near(lines, place)
    })
}

/// The time of day of a line, or of the nearest of the ten before it.
fn time_near(lines: &[Line<'_>], place: usize) -> Option<u32> {
    static TIME: LazyLock<Regex> = LazyLock::new(|| fixed(r"\b([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:[.,:](\d{1,3}))?"));
    lines[place.saturating_sub(10)..=place].iter().rev().find_map(|line| {
        let found = TIME.captures(&line.raw[..line.raw.len().min(160)])?;
        let part = |index| found.get(index).and_then(|part| number(part.as_bytes())).unwrap_or(0) as u32;
        let digits = found.get(4).map_or(0, |part| part.len());
        let millis = part(4) * 10_u32.pow(3_u32.saturating_sub(digits as u32));
        Some(((part(1) * 60 + part(2)) * 60 + part(3)) * 1000 + millis)
    })
}
