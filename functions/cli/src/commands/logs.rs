//! `logs`: output of the workers, once or as it comes, over attempts.

use std::cell::Cell;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use owo_colors::{AnsiColors, OwoColorize as _};
use rekindle_wire::v1::{JobView, OutputLine};
use tokio::sync::Mutex;

use super::run::arguments::quoted;
use super::{Context, job_path, leave, wait, workspace};
use crate::answers::LogLine;
use crate::api::{Event, Events, read, typed};
use crate::args::Logs;
use crate::exit::Exit;
use crate::fault::Result;
use crate::human;
use crate::printer::Printer;

mod ends;
mod held;

use ends::Ends;
use held::Held;

/// One for each worker, over and over.
const COLOURS: [AnsiColors; 6] = [
    AnsiColors::Cyan,
    AnsiColors::Green,
    AnsiColors::Magenta,
    AnsiColors::Yellow,
    AnsiColors::Blue,
    AnsiColors::BrightRed,
];

/// Before a stream that broke off is opened again; doubled up to the longest.
const AGAIN_FIRST: Duration = Duration::from_millis(200);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// A server that does not answer for so long is given up.
const OUTAGE_MAX: Duration = Duration::from_mins(10);

/// Shows the output.
pub(crate) async fn run(context: &Context, options: &Logs) -> Result<()> {
    if options.follow {
        return follow_as(context, options).await;
    }
    let path = job_path(&options.job, "/logs")?;
    let view = workspace::tell_follower_of(context, &options.job).await;
    let mut writer = Writer::new(context.printer, options);
    // What is shown as it is has no need of objects.
    let is_changed = writer.is_coloured || options.grep.is_some() || options.tail.is_some();
    let is_plain = !is_changed && !context.printer.is_json;
    let query = [
        ("attempt", options.attempt.map(|n| n.to_string())),
        ("worker", wanted(&options.worker)),
        ("since", options.since.map(|since| since.to_string())),
        ("form", (!is_plain).then(|| "lines".to_owned())),
        ("tail", tail(options)),
    ];
    let mut has_output = false;
    let write = |piece: &[u8]| {
        has_output |= !piece.is_empty();
        if is_plain { context.printer.bytes(piece) } else { writer.write(piece) }
    };
    context.api.get_text(&path, &query, write).await?;
    writer.release()?;
    let is_silent = writer.is_silent;
    if !has_output {
        context.printer.talk(&none_of(options));
    } else if is_silent {
        no_match(context, options);
    }
    if view.is_some_and(|view| is_sending(&view)) {
        let job = &options.job;
        context.printer.warn(&format!(
            "{job} has ended, and its workers still send `outputs`: what they say of them is missing; `rekindle logs -f {job}` waits for it"
        ));
    }
    Ok(())
}

/// True while workers of a job whose end is known send files, and may say which they cannot.
fn is_sending(view: &JobView) -> bool {
    let has_outputs = view.spec["outputs"].as_array().is_some_and(|patterns| !patterns.is_empty());
    view.outcome.is_some() && !view.phase.is_terminal() && has_outputs
}

/// Says that `--grep` left nothing: an empty answer looks like a fault, and a machine sees that there is none.
fn no_match(context: &Context, options: &Logs) {
    let Some(pattern) = options.grep.as_ref().filter(|_| !context.printer.is_json) else { return };
    let of = if options.tail.is_some() { "of the newest output of" } else { "of" };
    let (job, pattern) = (&options.job, quoted(pattern.as_str()));
    context.printer.talk(&human::tame(&format!("no line {of} {job} matches --grep {pattern}")));
}

/// Why nothing is shown: an empty answer looks like a fault.
fn none_of(options: &Logs) -> String {
    let job = &options.job;
    let is_part = options.attempt.is_some() || options.since.is_some() || options.worker != "all";
    let what = if is_part { "in that part of " } else { "of " };
    format!(
        "no program {what}{job} has printed anything; `rekindle show {job}` tells what it is at, `rekindle outputs {job}` which files \
         it left"
    )
}

fn wanted(worker: &str) -> Option<String> {
    (worker != "all").then(|| worker.to_owned())
}

/// How many bytes of the newest output are asked for.
fn tail(options: &Logs) -> Option<String> {
    options.tail.map(|lines| held::bytes(lines).to_string())
}

/// Follows all output of a job to its end.
pub(crate) async fn follow(context: &Context, job: &str) -> Result<()> {
    let (job, worker) = (job.to_owned(), "all".to_owned());
    follow_as(context, &Logs { job, follow: true, attempt: None, worker, since: None, grep: None, tail: None }).await
}

/// Follows the output until the job (or the attempt that is asked for) has ended. Beside the output it says how attempts
/// ended and what is waited for; on a terminal also each change of the phase.
async fn follow_as(context: &Context, options: &Logs) -> Result<()> {
    // Before the last lines nothing is told.
    let since = options.since.or_else(|| options.tail.map(|_| Timestamp::now()));
    let told = Told {
        ends: Mutex::new(Ends::new(context, &options.job, since)),
        heard: Cell::new(Instant::now()),
        is_workspace: Cell::new(false),
    };
    let followed = async {
        tokio::select! {
            ended = output(context, options, &told) => ended,
            never = watch(context, options, &told) => match never {},
        }
    };
    let still = || {
        if told.is_workspace.get() {
            leave::workspace_goes_on(&options.job, "logs -f")
        } else {
            leave::jobs_go_on(std::slice::from_ref(&options.job), "logs -f")
        }
    };
    leave::watching(context, still, followed).await
}

/// What the output and the look beside it share.
struct Told<'a> {
    ends: Mutex<Ends<'a>>,
    /// When the last output came.
    heard: Cell<Instant>,
    /// As far as one look has told.
    is_workspace: Cell<bool>,
}

/// After so long without output the last lines of an attempt that has ended are here: workers send them before they report
/// their exit, and the server looks for new ones each second.
const QUIET: Duration = Duration::from_secs(3);

/// Looks at the job beside its output, for ever. What fails is tried again.
async fn watch(context: &Context, options: &Logs, told: &Told<'_>) -> Infallible {
    let mut changes = wait::Changes::new(context, &options.job);
    loop {
        let view = changes.look().await;
        told.is_workspace.set(view.is_some_and(workspace::is_workspace));
        // Of one attempt only its own end is told, when it is known that nothing more comes.
        if let Some(view) = view.filter(|_| options.attempt.is_none()) {
            let mut ends = told.ends.lock().await;
            ends.see(view);
            if told.heard.get().elapsed() >= QUIET {
                ends.so_far(view, QUIET).await;
                ends.waits(view);
            }
        }
        tokio::time::sleep(wait::LOOK_MAX).await;
    }
}

/// The output alone. A stream that ends or breaks before the end is opened again behind the last event, so that nothing
/// is lost or shown twice.
async fn output(context: &Context, options: &Logs, told: &Told<'_>) -> Result<()> {
    let job = options.job.as_str();
    let path = job_path(job, "/logs")?;
    let query = [
        ("follow", Some("true".to_owned())),
        ("attempt", options.attempt.map(|n| n.to_string())),
        ("worker", wanted(&options.worker)),
        ("since", options.since.map(|since| since.to_string())),
        ("form", Some("lines".to_owned())),
        ("tail", tail(options)),
    ];
    let mut writer = Writer::new(context.printer, options);
    let mut last_id: Option<String> = None;
    let mut breaks = Breaks { is_known: false, pause: AGAIN_FIRST, since: None };
    loop {
        let events = context.api.events(&path, &query, last_id.as_deref()).await;
        let opened = events.as_ref().ok().map(|_| Instant::now());
        breaks.is_known |= opened.is_some();
        let ended = match events {
            Ok(mut events) => loop {
                match next(&mut events, &mut writer).await {
                    Ok(Some(event)) if event.kind == "end" => {
                        writer.release()?;
                        writer.close()?;
                        if writer.is_silent {
                            no_match(context, options);
                        }
                        return end(context, options, told, &mut breaks).await;
                    }
                    Ok(Some(event)) => {
                        breaks.over();
                        told.heard.set(Instant::now());
                        for line in event.data.lines() {
                            let line = read(&path, line.as_bytes())?;
                            if is_heading(&line) {
                                writer.close()?;
                                told.ends.lock().await.before(line.attempt).await;
                            }
                            writer.line(line)?;
                        }
                        last_id = Some(event.id).filter(|id| !id.is_empty());
                    }
                    Ok(None) => break Ok(()),
                    Err(fault) => break Err(fault),
                }
            },
            Err(fault) if !breaks.is_known || fault.exit() != Exit::Unexpected => return Err(fault),
            Err(fault) => Err(fault),
        };
        if ended.is_err() {
            writer.release()?;
        }
        breaks.bear(context, opened, ended)?;
        tokio::time::sleep(breaks.pause).await;
        breaks.pause = (breaks.pause * 2).min(AGAIN_MAX);
    }
}

/// A stream that has said nothing for so long has told what there was: from then on each line is shown as it comes.
const CAUGHT_UP: Duration = Duration::from_secs(1);

/// The next event. The lines that are held back for `--tail` are shown when no more come at once.
async fn next(events: &mut Events, writer: &mut Writer<'_>) -> Result<Option<Event>> {
    if writer.held.is_some() {
        if let Ok(event) = tokio::time::timeout(CAUGHT_UP, events.next()).await {
            return event;
        }
        writer.release()?;
    }
    events.next().await
}

/// How a stream that is opened again and again breaks off.
struct Breaks {
    /// It was open once, whatever came of it: then the job and the rights are good, and a failure will pass.
    is_known: bool,
    /// Before it is opened again.
    pause: Duration,
    since: Option<Instant>,
}

impl Breaks {
    /// It is back.
    fn over(&mut self) {
        (self.pause, self.since) = (AGAIN_FIRST, None);
    }

    /// Bears the end of a stream that was `opened` then, or could not be, and says so once; not one that is not back for
    /// too long.
    fn bear(&mut self, context: &Context, opened: Option<Instant>, ended: Result<()>) -> Result<()> {
        // A program may be silent for hours: what lasted was back.
        if opened.is_some_and(|opened| opened.elapsed() > AGAIN_MAX) {
            self.over();
        }
        let Err(fault) = ended else { return Ok(()) };
        let since = *self.since.get_or_insert_with(|| {
            context.printer.warn(&format!("{}; going on as soon as it is back", fault.what()));
            Instant::now()
        });
        if since.elapsed() > OUTAGE_MAX { Err(fault) } else { Ok(()) }
    }
}

/// The output of an attempt begins.
fn is_heading(line: &OutputLine) -> bool {
    line.line.is_none()
}

/// Says how the job ended, or the attempt that alone was asked for. A server that is away just then is waited for, as before.
async fn end(context: &Context, options: &Logs, told: &Told<'_>, breaks: &mut Breaks) -> Result<()> {
    let path = job_path(&options.job, "")?;
    let view: JobView = loop {
        match context.api.get(&path, &[]).await {
            Ok(value) => break typed(value)?,
            Err(fault) if fault.exit() != Exit::Unexpected => return Err(fault),
            Err(fault) => breaks.bear(context, None, Err(fault))?,
        }
        tokio::time::sleep(breaks.pause).await;
    };
    let mut ends = told.ends.lock().await;
    match options.attempt {
        Some(attempt) => ends.of_attempt(attempt, &view).await?,
        None => ends.of_job(&view).await,
    }
    Ok(())
}

/// Writes lines, each with its worker in a colour, or as JSON.
struct Writer<'a> {
    printer: Printer,
    is_coloured: bool,
    options: &'a Logs,
    /// The heading of an attempt of which no line was shown yet.
    heading: Option<u32>,
    /// The worker whose progress bar stands at the end of the screen: its next line takes that place.
    bar: Option<String>,
    /// The beginning of an object whose end has not come yet.
    partial: Vec<u8>,
    /// For `--tail`, until the last lines are known.
    held: Option<Held>,
    /// No line was shown.
    is_silent: bool,
}

impl<'a> Writer<'a> {
    fn new(printer: Printer, options: &'a Logs) -> Self {
        let is_coloured = crate::printer::has_colours();
        let held = options.tail.map(Held::new);
        Self { printer, is_coloured, options, heading: None, bar: None, partial: Vec::new(), held, is_silent: true }
    }

    /// Takes objects, a line each, cut anywhere.
    fn write(&mut self, piece: &[u8]) -> Result<()> {
        self.partial.extend_from_slice(piece);
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        let mut lines = whole.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.try_for_each(|line| self.line(read("a line of output", line)?))
    }

    /// One line; with `--grep` only if it matches, with `--tail` when it is known to be among the last.
    fn line(&mut self, line: OutputLine) -> Result<()> {
        match &mut self.held {
            Some(held) => {
                let grep = self.options.grep.as_ref().zip(line.line.as_ref());
                if grep.is_none_or(|(grep, said)| grep.is_match(said.as_bytes())) {
                    held.take(line);
                }
                Ok(())
            }
            None => self.put(line),
        }
    }

    /// Shows the lines that were held back; from then on none is.
    fn release(&mut self) -> Result<()> {
        let lines = self.held.take().map_or_else(Vec::new, Held::into_lines);
        lines.into_iter().try_for_each(|line| self.put(line))
    }

    /// Shows a line; with `--grep` its heading only if something below it matches.
    fn put(&mut self, line: OutputLine) -> Result<()> {
        let Some(said) = line.line else {
            self.heading = Some(line.attempt);
            return if self.options.grep.is_none() { self.begin() } else { Ok(()) };
        };
        if self.options.grep.as_ref().is_some_and(|grep| !grep.is_match(said.as_bytes())) {
            return Ok(());
        }
        self.begin()?;
        self.is_silent = false;
        if self.printer.is_json {
            return self.printer.json_line(&LogLine { attempt: line.attempt, worker: &line.worker, line: &said });
        }
        let is_named = self.options.worker == "all" && line.workers > 1;
        // A program's own colours must not run into the next line, nor into the prompt.
        let reset = if self.is_coloured && said.contains('\u{1b}') { "\u{1b}[0m" } else { "" };
        let shown = match (is_named, self.is_coloured) {
            (false, _) => format!("{said}{reset}"),
            (true, false) => format!("[{}] {said}", line.worker),
            (true, true) => {
                format!("{} {said}{reset}", format!("[{}]", line.worker).color(colour_of(&line.worker)))
            }
        };
        self.show(&shown, line.is_open, &line.worker)
    }

    /// The heading that is due.
    fn begin(&mut self) -> Result<()> {
        let Some(attempt) = self.heading.take().filter(|_| !self.printer.is_json) else { return Ok(()) };
        self.close()?;
        let text = format!("== attempt {attempt} ==");
        let text = if self.is_coloured { text.bold().to_string() } else { text };
        self.printer.bytes(format!("{text}\n").as_bytes())
    }

    /// A line in place of the same worker's bar, if that stands at the end. A bar stays open where it fits in the width.
    fn show(&mut self, shown: &str, is_bar: bool, worker: &str) -> Result<()> {
        // What was said meanwhile stands below the bar.
        let begin = match self.bar.take().filter(|_| self.printer.is_amid_line()) {
            Some(of) if of == worker => "\r\u{1b}[K",
            Some(_) => "\n",
            None => "",
        };
        let fits = |width: usize| anstream::adapter::strip_str(shown).to_string().chars().count() < width;
        self.bar = (is_bar && self.printer.width().is_some_and(fits)).then(|| worker.to_owned());
        let end = if self.bar.is_some() { "" } else { "\n" };
        self.printer.bytes(format!("{begin}{shown}{end}").as_bytes())
    }

    /// Leaves a bar that stands at the end as it is.
    fn close(&mut self) -> Result<()> {
        if self.bar.take().is_some() && self.printer.is_amid_line() { self.printer.bytes(b"\n") } else { Ok(()) }
    }
}

fn colour_of(worker: &str) -> AnsiColors {
    let sum: usize =
        worker.bytes().filter(u8::is_ascii_digit).fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    COLOURS[sum % COLOURS.len()]
}
