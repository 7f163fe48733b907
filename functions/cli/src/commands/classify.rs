//! `classify`: why a program failed, by the same rules as the manager's.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use owo_colors::OwoColorize as _;
use rekindle_core::classify::{CaseAction, Verdict, case, classify};

use crate::args::Classify;
use crate::fault::{Fault, Result};
use crate::human;
use crate::printer::Printer;

/// Files beyond this are cut to their last part: the end of a log decides.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Classifies each file; one that cannot be read does not stop the others.
pub(crate) fn run(options: &Classify, printer: Printer) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for path in &options.files {
        match read(path) {
            Ok(text) => show(path, &verdict_of(&text), printer)?,
            Err(fault) => {
                code = fault.exit().into();
                printer.fault(&fault);
            }
        }
    }
    Ok(code)
}

/// A case file if it is one, else a plain log.
fn verdict_of(text: &str) -> Verdict {
    let is_object = text.trim_start().starts_with('{');
    let evidence = is_object.then(|| case::from_case_json(text).ok()).flatten();
    classify(&evidence.unwrap_or_else(|| case::from_plain_log(text)))
}

fn show(path: &Path, verdict: &Verdict, printer: Printer) -> Result<()> {
    let file = path.display().to_string();
    if printer.is_json {
        return printer.json_line(&case::report(&file, verdict));
    }
    let action = match verdict.action {
        CaseAction::Retry => verdict.action.as_str().yellow().to_string(),
        CaseAction::Stop => verdict.action.as_str().red().to_string(),
        CaseAction::Done => verdict.action.as_str().green().to_string(),
    };
    let kind = verdict.outcome.as_str();
    printer.line(&format!("{file}: {} -> {action} ({:.0} %)", kind.bold(), verdict.confidence * 100.0))?;
    printer.line(&format!("  {}", human::tame(&verdict.summary)))?;
    for line in verdict.evidence.iter().filter(|line| !line.line.is_empty()) {
        printer.line(&format!("  {} {}", format!("w{}|", line.worker).dimmed(), human::tame(line.line.trim())))?;
    }
    Ok(())
}

/// The text of a file, whatever its bytes are.
fn read(path: &Path) -> Result<String> {
    let fault = |error: &std::io::Error| {
        Fault::input(format!("cannot read {}", path.display()))
            .caused_by(error)
            .next("name case files or logs; `-` is stdin")
    };
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| fault(&error))?;
    } else {
        let mut file = std::fs::File::open(path).map_err(|error| fault(&error))?;
        let len = file.metadata().map_err(|error| fault(&error))?.len();
        if len > FILE_BYTES_MAX {
            use std::io::Seek as _;
            file.seek(std::io::SeekFrom::Start(len - FILE_BYTES_MAX)).map_err(|error| fault(&error))?;
        }
        file.read_to_end(&mut bytes).map_err(|error| fault(&error))?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_begins_like_json_is_still_a_log() {
        let log = "{\"step\": 1}\nTraceback (most recent call last):\nModuleNotFoundError: No module named 'flax'\n";
        assert_eq!(verdict_of(log).outcome.as_str(), "environment");
    }

    #[test]
    fn a_case_file_is_read_as_one() {
        let case = r#"{"exit_code": 0, "workers": [{"index": 0, "exit_code": 0, "tail": "done"}]}"#;
        assert_eq!(verdict_of(case).outcome.as_str(), "success");
    }
}
