//! `logs`: output of the workers, once or as it comes, over attempts.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use owo_colors::{AnsiColors, OwoColorize as _};
use regex::bytes::Regex;
use rekindle_wire::v1::JobView;

use super::{Context, job_path, wait};
use crate::answers::LogLine;
use crate::api::typed;
use crate::args::Logs;
use crate::exit::Exit;
use crate::fault::Result;
use crate::printer::Printer;

mod ends;

use ends::Ends;

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
    let query = [
        ("attempt", options.attempt.map(|n| n.to_string())),
        ("worker", wanted(&options.worker)),
        ("since", since(options).map(|since| since.to_string())),
    ];
    let mut writer = Writer::new(context.printer, options);
    let mut has_output = false;
    let write = |piece: &[u8]| {
        has_output |= !piece.is_empty();
        writer.write(piece)
    };
    context.api.get_text(&path, &query, write).await?;
    writer.end()?;
    if !has_output {
        context.printer.talk(&none_of(options));
    }
    Ok(())
}

/// Why nothing is shown: an empty answer looks like a fault.
fn none_of(options: &Logs) -> String {
    let job = &options.job;
    let is_part = options.attempt.is_some() || options.since.is_some() || options.worker != "all";
    let what = if is_part { "that part of " } else { "" };
    format!("there is no output of {what}{job}; `rekindle show {job}` tells what it is at")
}

fn since(options: &Logs) -> Option<Timestamp> {
    let ago = SignedDuration::try_from(options.since?).unwrap_or(SignedDuration::MAX);
    Some(Timestamp::now().checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH))
}

fn wanted(worker: &str) -> Option<String> {
    (worker != "all").then(|| worker.to_owned())
}

/// Follows all output of a job to its end.
pub(crate) async fn follow(context: &Context, job: &str) -> Result<()> {
    let (job, worker) = (job.to_owned(), "all".to_owned());
    follow_as(context, &Logs { job, follow: true, attempt: None, worker, since: None, grep: None }).await
}

/// Follows the output until the job (or the attempt that is asked for) has ended. On a terminal it also says, beside
/// the output, what the job is at.
async fn follow_as(context: &Context, options: &Logs) -> Result<()> {
    if !context.printer.is_talk_terminal() {
        return output(context, options).await;
    }
    tokio::select! {
        ended = output(context, options) => ended,
        never = wait::tell_changes(context, &options.job) => match never {},
    }
}

/// The output alone. A stream that ends or breaks before the end is opened again behind the last event, so that nothing
/// is lost or shown twice.
async fn output(context: &Context, options: &Logs) -> Result<()> {
    let job = options.job.as_str();
    let path = job_path(job, "/logs")?;
    let since = since(options);
    let query = [
        ("follow", Some("true".to_owned())),
        ("attempt", options.attempt.map(|n| n.to_string())),
        ("worker", wanted(&options.worker)),
        ("since", since.map(|since| since.to_string())),
    ];
    let mut writer = Writer::new(context.printer, options);
    let mut last_id: Option<String> = None;
    let mut ends = Ends::new(context, job, since);
    let (mut pause, mut heard) = (AGAIN_FIRST, Instant::now());
    loop {
        let ended = match context.api.events(&path, &query, last_id.as_deref()).await {
            Ok(mut events) => loop {
                match events.next().await {
                    Ok(Some(event)) if event.kind == "end" => return end(context, options, &mut ends).await,
                    Ok(Some(event)) => {
                        (pause, heard) = (AGAIN_FIRST, Instant::now());
                        for line in event.data.split('\n') {
                            if let Some(began) = heading(line) {
                                ends.before(began).await;
                            }
                            writer.line(line.as_bytes())?;
                        }
                        last_id = Some(event.id).filter(|id| !id.is_empty());
                    }
                    Ok(None) => break Ok(()),
                    Err(fault) => break Err(fault),
                }
            },
            // The first call must work: then the job and the rights are good, and a failure will pass.
            Err(fault) if last_id.is_none() || fault.exit() != Exit::Unexpected => return Err(fault),
            Err(fault) => Err(fault),
        };
        if let Err(fault) = ended {
            if heard.elapsed() > OUTAGE_MAX {
                return Err(fault);
            }
            if pause == AGAIN_FIRST {
                context.printer.warn(&format!("{}; going on as soon as it is back", fault.what()));
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN_MAX);
    }
}

/// The attempt whose output begins with this line.
fn heading(line: &str) -> Option<u32> {
    line.strip_prefix("== attempt ")?.strip_suffix(" ==")?.parse().ok()
}

/// Says how the job ended, or the attempt that alone was asked for.
async fn end(context: &Context, options: &Logs, ends: &mut Ends<'_>) -> Result<()> {
    let view: JobView = typed(context.api.get(&job_path(&options.job, "")?, &[]).await?)?;
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
    grep: Option<&'a Regex>,
    /// Of the lines that come; the server names attempts only where there are several.
    attempt: u32,
    /// Of the last line that named one; the server names workers only where there are several.
    worker: String,
    /// The heading of an attempt of which no line was shown yet.
    heading: Option<Vec<u8>>,
    /// The beginning of a line whose end has not come yet.
    partial: Vec<u8>,
}

impl<'a> Writer<'a> {
    fn new(printer: Printer, options: &'a Logs) -> Self {
        Self {
            printer,
            is_coloured: crate::printer::has_colours(),
            grep: options.grep.as_ref(),
            attempt: options.attempt.unwrap_or(1),
            worker: label_of(&options.worker),
            heading: None,
            partial: Vec::new(),
        }
    }

    /// Takes bytes cut anywhere.
    fn write(&mut self, piece: &[u8]) -> Result<()> {
        if !self.is_coloured && !self.printer.is_json && self.grep.is_none() {
            return self.printer.bytes(piece);
        }
        self.partial.extend_from_slice(piece);
        let Some(end) = self.partial.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        whole.split_inclusive(|byte| *byte == b'\n').try_for_each(|line| self.line(&line[..line.len() - 1]))
    }

    /// Writes what is left without an end.
    fn end(&mut self) -> Result<()> {
        let rest = std::mem::take(&mut self.partial);
        if rest.is_empty() { Ok(()) } else { self.line(&rest) }
    }

    /// One line; with `--grep` only if it matches, its heading only if something below it does.
    fn line(&mut self, line: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(line).ok();
        if let Some(began) = text.and_then(heading) {
            self.attempt = began;
            if self.grep.is_some() {
                self.heading = Some(line.to_vec());
                return Ok(());
            }
        } else if let Some(grep) = self.grep {
            // Not in the worker's name.
            let said = text.and_then(worker_of).map_or(line, |(_, rest)| rest.as_bytes());
            if !grep.is_match(said) {
                return Ok(());
            }
            if let Some(heading) = self.heading.take() {
                self.show(&heading)?;
            }
        }
        self.show(line)
    }

    fn show(&mut self, line: &[u8]) -> Result<()> {
        let text = std::str::from_utf8(line).ok();
        let began = text.and_then(heading);
        if self.printer.is_json {
            if began.is_some() {
                return Ok(());
            }
            let text = String::from_utf8_lossy(line);
            let said = if let Some((worker, rest)) = worker_of(&text) {
                worker.clone_into(&mut self.worker);
                rest
            } else {
                &*text
            };
            let line = LogLine { attempt: self.attempt, worker: &self.worker, line: said };
            return self.printer.json_line(&line);
        }
        let shown = match (self.is_coloured, text, began) {
            (true, Some(text), Some(_)) => Some(text.bold().to_string()),
            (true, Some(text), None) => worker_of(text).map(|(worker, rest)| {
                // A program's own colours must not run into the next line.
                let reset = if rest.contains('\u{1b}') { "\u{1b}[0m" } else { "" };
                format!("{} {rest}{reset}", format!("[{worker}]").color(colour_of(worker)))
            }),
            _ => None,
        };
        let mut bytes = shown.map_or_else(|| line.to_vec(), String::into_bytes);
        bytes.push(b'\n');
        self.printer.bytes(&bytes)
    }
}

/// `[w3] text` or `[s1w3] text`: the worker and the text.
fn worker_of(line: &str) -> Option<(&str, &str)> {
    let (worker, text) =
        line.strip_prefix('[')?.split_once("] ").or_else(|| Some((line.strip_prefix('[')?.strip_suffix(']')?, "")))?;
    let (slice, number) = worker.split_once('w')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_slice = slice.is_empty() || slice.strip_prefix('s').is_some_and(digits);
    (has_slice && digits(number)).then_some((worker, text))
}

/// How the server names the worker that was asked for.
fn label_of(wanted: &str) -> String {
    match wanted.split_once('-') {
        _ if wanted == "all" => "w0".to_owned(),
        Some(("0", worker)) => format!("w{worker}"),
        Some((slice, worker)) => format!("s{slice}w{worker}"),
        None => format!("w{wanted}"),
    }
}

fn colour_of(worker: &str) -> AnsiColors {
    let sum: usize =
        worker.bytes().filter(u8::is_ascii_digit).fold(0, |sum, digit| sum * 10 + usize::from(digit - b'0'));
    COLOURS[sum % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_stands_before_its_line() {
        for (line, want) in [
            ("[w3] step 1", Some(("w3", "step 1"))),
            ("[s1w12] [w0] x", Some(("s1w12", "[w0] x"))),
            ("[w3]", Some(("w3", ""))),
            ("[warn] x", None),
            ("[w] x", None),
            ("w3 x", None),
        ] {
            assert_eq!(worker_of(line), want, "{line}");
        }
        assert_eq!(heading("== attempt 12 =="), Some(12));
        assert_eq!(heading("== attempt x =="), None);
    }
}
