//! `outputs`: files that the workers left at the end of a job, listed or brought here.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use rekindle_core::decide::OUTPUTS_MISSING;
use rekindle_core::ids::WorkerKey;
use rekindle_wire::v1::{JobView, OutputList, OutputView, worker_key, worker_label};

use super::{Context, job_path};
use crate::api::typed;
use crate::args::Outputs;
use crate::exit::Exit;
use crate::fault::{Fault, Result};
use crate::human;

/// Between two looks whether all outputs are there, and how long they are waited for: a little longer than the server
/// keeps a TPU for them.
const LOOK_EACH: Duration = Duration::from_millis(500);
const SENT_MAX: Duration = Duration::from_mins(6);

/// Lists or downloads.
pub(crate) async fn run(context: &Context, options: &Outputs) -> Result<()> {
    let view = until_sent(context, &options.job).await?;
    let query = [("attempt", options.attempt.map(|attempt| attempt.to_string()))];
    let value = context.api.get(&job_path(&options.job, "/outputs")?, &query).await?;
    let mut list: OutputList = typed(value)?;
    if let Some(worker) = options.worker.as_deref().filter(|worker| *worker != "all") {
        list.outputs = of_worker(list.outputs, worker)?;
    }
    if view.message.contains(OUTPUTS_MISSING) {
        context.printer.warn(&view.message);
    }
    let whose = whose(&view, &list, options.attempt);
    if list.outputs.is_empty() && !context.printer.is_json {
        context.printer.talk(&whose.unwrap_or_else(|| nothing(&view)));
        return Ok(());
    }
    if let Some(whose) = whose.filter(|_| !context.printer.is_json) {
        context.printer.talk(&whose);
    }
    if let Some(to) = &options.to {
        bring(context, &options.job, &list.outputs, to).await?;
        if !context.printer.is_json {
            return Ok(());
        }
    }
    if context.printer.is_json {
        return context.printer.json(&list);
    }
    for output in &list.outputs {
        context.printer.line(&human::tame(&format!("{}/{}", output.worker, output.path)))?;
    }
    context.printer.talk(&format!("in {}; `--to DIR` brings them here", list.place));
    Ok(())
}

/// Whose the files are, where that may be another attempt's than one thinks, and how those of the others are had.
fn whose(view: &JobView, list: &OutputList, asked: Option<u32>) -> Option<String> {
    let others = &list.other_attempts;
    let more = others.last().map(|last| {
        let word = if others.len() == 1 { "attempt" } else { "attempts" };
        let all: Vec<String> = others.iter().map(u32::to_string).collect();
        format!("{word} {} left some: rekindle outputs {} --attempt {last}", all.join(", "), view.id)
    });
    let of = match (asked, list.attempt) {
        (Some(asked), _) if list.outputs.is_empty() => format!("attempt {asked} left no outputs"),
        (None, Some(of)) if of < view.attempt => {
            format!("attempt {} left no outputs; these are of attempt {of}", view.attempt)
        }
        (_, Some(of)) => return more.map(|more| format!("these are of attempt {of}; {more}")),
        (_, None) => return None,
    };
    Some(more.map_or_else(|| of.clone(), |more| format!("{of}; {more}")))
}

/// Why there are none.
fn nothing(view: &JobView) -> String {
    let patterns = view.spec["outputs"].as_array().map(Vec::as_slice).unwrap_or_default();
    let patterns: Vec<&str> = patterns.iter().filter_map(|pattern| pattern.as_str()).collect();
    let (id, patterns) = (&view.id, human::tame(&patterns.join(", ")));
    if patterns.is_empty() {
        return "no outputs; they are collected at the end of a job whose `outputs:` names patterns, such as results/**"
            .to_owned();
    }
    if view.outcome.is_some() && view.first_started_at.is_none() {
        return format!(
            "no outputs: the program of {id} never began, and what matches `outputs:` ({patterns}) is collected at its end"
        );
    }
    if !view.phase.is_terminal() {
        return format!("no outputs yet; what matches `outputs:` ({patterns}) is collected when {id} ends");
    }
    format!(
        "no outputs: at the end of {id} no file matched `outputs:` ({patterns}); they are paths below the working directory"
    )
}

/// Those of one worker, named as for `logs`.
fn of_worker(outputs: Vec<OutputView>, wanted: &str) -> Result<Vec<OutputView>> {
    let key = worker_key(wanted);
    let there: BTreeSet<WorkerKey> = outputs.iter().filter_map(|output| folder_key(&output.worker)).collect();
    if key.is_some_and(|key| there.is_empty() || there.contains(&key)) {
        return Ok(outputs.into_iter().filter(|output| folder_key(&output.worker) == key).collect());
    }
    let fault = Fault::input(format!("no outputs are of a worker {wanted:?}"));
    if there.is_empty() {
        return Err(fault.next("name one as w0, or s1w0 where there are slices; `all` is every worker"));
    }
    let has_slices = outputs.iter().any(|output| output.worker.starts_with('s'));
    let names: Vec<String> = there.iter().map(|key| worker_label(*key, has_slices)).collect();
    Err(fault.next(format!("workers with outputs are {}; `all` is every one", names.join(", "))))
}

/// The worker whose files a folder holds: `w3`, or `s1w3` where there are slices.
fn folder_key(folder: &str) -> Option<WorkerKey> {
    let (slice, worker) = folder.split_once('w')?;
    let slice = if slice.is_empty() { "0" } else { slice.strip_prefix('s')? };
    worker_key(&format!("{slice}-{worker}"))
}

/// A job that has ended may still get its outputs: until its TPU is gone, but not for ever.
async fn until_sent(context: &Context, job: &str) -> Result<JobView> {
    let since = Instant::now();
    loop {
        let view: JobView = typed(context.api.get(&job_path(job, "")?, &[]).await?)?;
        if view.outcome.is_none() || view.phase.is_terminal() {
            return Ok(view);
        }
        if since.elapsed() > SENT_MAX {
            context.printer.warn(&format!("{job} is still stopping; what its workers have not sent is missing"));
            return Ok(view);
        }
        tokio::time::sleep(LOOK_EACH).await;
    }
}

/// Files that could not be brought are named up to so many.
const NAMED_MAX: usize = 20;

/// Brings all files. One that cannot be had, or cannot lie here, does not hold up the others.
async fn bring(context: &Context, job: &str, outputs: &[OutputView], to: &Path) -> Result<()> {
    std::fs::create_dir_all(to).map_err(|error| cannot_write(to, &error))?;
    let (mut files, mut bytes, mut faults) = (0_u64, 0, Vec::new());
    for output in outputs {
        match fetch(context, job, output, to).await {
            Ok(size) => {
                files += 1;
                bytes += size;
            }
            Err(Left::One(fault)) => faults.push((output, fault)),
            Err(Left::All(fault)) => return Err(fault),
        }
    }
    if files > 0 && !context.printer.is_json {
        let files = human::count(files, "file");
        context.printer.talk(&format!("{files}, {}, in {}", human::bytes(bytes), to.display()));
    }
    if outputs.len() == 1 || faults.is_empty() {
        return faults.pop().map_or(Ok(()), |(_, fault)| Err(fault));
    }
    let (missing, all) = (faults.len(), human::count(outputs.len() as u64, "output"));
    let exit = faults.iter().map(|(_, fault)| fault.exit()).max().unwrap_or(Exit::Unexpected);
    let mut fault = Fault::unexpected(format!("{missing} of {all} could not be brought here")).exits(exit);
    for (output, of) in faults.iter().take(NAMED_MAX) {
        fault = fault.because(format!("{}/{}: {}", output.worker, output.path, of.line()));
    }
    if missing > NAMED_MAX {
        fault = fault.because(format!("and {} more", missing - NAMED_MAX));
    }
    Err(fault.next(faults.first().map(|(_, first)| first.next_step().to_owned()).unwrap_or_default()))
}

/// Why a file was not brought.
enum Left {
    /// It is this file's, and others may come all the same.
    One(Fault),
    /// No other would come.
    All(Fault),
}

fn cannot_write(place: &Path, error: &std::io::Error) -> Fault {
    Fault::unexpected(format!("cannot write {}", place.display())).caused_by(error).next("choose another --to")
}

/// One file, complete or not at all; its size.
async fn fetch(context: &Context, job: &str, output: &OutputView, to: &Path) -> std::result::Result<u64, Left> {
    let below = Path::new(&output.worker).join(&output.path);
    if below.components().any(|part| !matches!(part, Component::Normal(_))) {
        let fault = Fault::unexpected(format!("{:?} is no path of an output", output.path))
            .next(format!("nothing was written there; the object itself is {}", output.object));
        return Err(Left::One(fault));
    }
    let place = to.join(below);
    let cannot = |error: std::io::Error| cannot_write(&place, &error);
    let parent = place.parent().unwrap_or(to);
    // The name may be too long for this disk, or another's: what is wrong with the disk itself is met when a file is written.
    std::fs::create_dir_all(parent).map_err(|error| Left::One(cannot(error)))?;
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(|error| Left::One(cannot(error)))?;
    let mut size = 0;
    let piece = |bytes: &[u8]| {
        size += bytes.len() as u64;
        file.write_all(bytes).map_err(cannot)
    };
    let path = job_path(job, &format!("/outputs/{}", output.object)).map_err(Left::One)?;
    context.api.get_text(&path, &[], piece).await.map_err(|fault| match fault.status() {
        Some(400 | 404) => Left::One(fault),
        _ => Left::All(fault),
    })?;
    file.persist(&place).map_err(|error| Left::One(cannot(error.error)))?;
    Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outputs(workers: &[&str]) -> Vec<OutputView> {
        let of = |worker: &&str| OutputView {
            worker: (*worker).to_owned(),
            path: "a".to_owned(),
            object: format!("{worker}/a"),
        };
        workers.iter().map(of).collect()
    }

    #[test]
    fn a_worker_is_named_as_for_logs_and_the_others_are_told_where_it_left_nothing() {
        let found = |workers: &[&str], wanted: &str| -> Vec<String> {
            of_worker(outputs(workers), wanted).unwrap().into_iter().map(|output| output.worker).collect()
        };
        assert_eq!(found(&["w0", "w10", "w1"], "1"), ["w1"]);
        assert_eq!(found(&["w0", "w1"], "0-1"), ["w1"]);
        assert_eq!(found(&["s0w0", "s1w0", "s1w1"], "1-0"), ["s1w0"]);
        assert_eq!(found(&["s0w0", "s1w0"], "0"), ["s0w0"]);
        assert!(found(&[], "3").is_empty(), "nothing is left by anybody");
        let refused = |workers: &[&str], wanted: &str| of_worker(outputs(workers), wanted).unwrap_err().text();
        let text = refused(&["w10", "w2"], "9");
        assert!(text.contains("no outputs are of a worker \"9\"") && text.contains("are w2, w10;"), "{text}");
        assert!(refused(&["s0w0", "s1w3"], "1-0").contains("are s0w0, s1w3;"));
        assert_eq!(found(&["w0", "w1"], "w1"), ["w1"], "as the output names it");
        assert!(refused(&["w0"], "x0").contains("are w0;"));
        assert!(refused(&[], "x0").contains("name one as w0, or s1w0 where there are slices; `all` is every worker"));
    }
}
