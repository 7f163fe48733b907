//! Evidence from files: labelled cases, and plain logs. Reports for `rekindle classify`.

use serde::{Deserialize, Serialize};

use super::evidence::{Evidence, EvidenceLine, Exit, Verdict, WorkerEvidence};

/// A case file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("this is no case file: {0}")]
pub struct Error(#[from] serde_json::Error);

/// The part of a case file that a classifier may look at.
#[derive(Debug, Deserialize)]
struct Case {
    #[serde(default)]
    exit_code: Option<i32>,
    #[serde(default)]
    signal: Option<i32>,
    workers: Vec<CaseWorker>,
}

#[derive(Debug, Deserialize)]
struct CaseWorker {
    #[serde(default)]
    index: u32,
    #[serde(default)]
    exit_code: Option<i32>,
    #[serde(default)]
    signal: Option<i32>,
    #[serde(default)]
    tail: String,
}

/// Reads the format of the labelled cases; only `exit_code`, `signal` and `workers` are looked at.
///
/// # Errors
/// If the text is not JSON of that form.
pub fn from_case_json(text: &str) -> Result<Evidence, Error> {
    let case: Case = serde_json::from_str(text)?;
    let nobody_left = case.workers.iter().all(|worker| worker.exit_code.is_none());
    let workers = case.workers.into_iter().map(|worker| {
        // A signal of the whole job is that of its workers, if none of them has an exit of its own.
        let signal = worker.signal.or(case.signal.filter(|_| nobody_left));
        let exit = match (signal, worker.exit_code) {
            (Some(signal), _) => Exit::Signal(signal),
            (None, Some(code)) => Exit::Code(code),
            (None, None) => Exit::Silent,
        };
        WorkerEvidence { index: worker.index, exit, tail: worker.tail, ..WorkerEvidence::default() }
    });
    let mut workers: Vec<WorkerEvidence> = workers.collect();
    if workers.is_empty()
        && let Some(exit) = case.signal.map(Exit::Signal).or(case.exit_code.map(Exit::Code))
    {
        workers.push(WorkerEvidence { exit, ..WorkerEvidence::default() });
    }
    Ok(Evidence { workers, ..Evidence::default() })
}

/// Reads a plain log as the output of one worker. One that does not state its exit counts as failed, because a log is
/// brought here to ask why.
pub fn from_plain_log(text: &str) -> Evidence {
    let stated = stated_exit(text);
    let exit = stated.unwrap_or(Exit::Code(1));
    let worker = WorkerEvidence { tail: text.to_owned(), exit, ..WorkerEvidence::default() };
    Evidence { workers: vec![worker], is_end_assumed: stated.is_none(), ..Evidence::default() }
}

/// The exit code that a launcher printed at the end of a log.
fn stated_exit(text: &str) -> Option<Exit> {
    let last = text.lines().rev().map(str::trim).filter(|line| !line.is_empty()).take(5);
    let words = ["EXIT_CODE=", "exit code ", "exit code: ", "exited with ", "exit status ", "returned "];
    for line in last {
        for word in words {
            if let Some((_, rest)) = line.split_once(word) {
                let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
                if let Ok(code) = digits.parse() {
                    return Some(Exit::Code(code));
                }
            }
        }
    }
    None
}

/// Why a program failed, as `rekindle classify` reports it of a file.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// The file as it was named.
    pub file: &'a str,
    /// `success`, or a word of [`FailureKind`](crate::failure::FailureKind).
    pub kind: &'a str,
    /// What is to be done without a policy at hand: `retry`, `stop`, `done`.
    pub action: &'a str,
    /// From 0 to 1: how far to trust it.
    pub confidence: f64,
    /// The cause first, then what else speaks for it and what was judged an echo.
    pub evidence: &'a [EvidenceLine],
    /// The root cause in one sentence.
    pub summary: &'a str,
}

/// The report of one file.
pub fn report<'a>(file: &'a str, verdict: &'a Verdict) -> Report<'a> {
    Report {
        file,
        kind: verdict.outcome.as_str(),
        action: verdict.action.as_str(),
        // More digits than it can be trusted to are left out.
        confidence: (f64::from(verdict.confidence) * 100.0).round() / 100.0,
        evidence: &verdict.evidence,
        summary: &verdict.summary,
    }
}
