//! `outputs`: files that the workers left at the end of a job, listed or brought here.

use std::io::Write as _;
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use rekindle_wire::v1::{JobView, OutputList, OutputView};

use super::{Context, job_path};
use crate::api::typed;
use crate::args::Outputs;
use crate::fault::{Fault, Result};
use crate::human;

/// Between two looks whether all outputs are there, and how long they are waited for: a little longer than the server
/// keeps a TPU for them.
const LOOK_EACH: Duration = Duration::from_millis(500);
const SENT_MAX: Duration = Duration::from_mins(6);

/// Lists or downloads.
pub(crate) async fn run(context: &Context, options: &Outputs) -> Result<()> {
    until_sent(context, &options.job).await?;
    let value = context.api.get(&job_path(&options.job, "/outputs")?, &[]).await?;
    let mut list: OutputList = typed(value)?;
    if let Some(worker) = options.worker.as_deref().filter(|worker| *worker != "all") {
        list.outputs.retain(|output| output.worker == format!("w{worker}") || output.worker == worker);
    }
    if let Some(to) = &options.to {
        let mut bytes = 0;
        for output in &list.outputs {
            bytes += fetch(context, &options.job, output, to).await?;
        }
        if !context.printer.is_json {
            let files = human::count(list.outputs.len() as u64, "file");
            context.printer.talk(&format!("{files}, {}, in {}", human::bytes(bytes), to.display()));
            return Ok(());
        }
    }
    if context.printer.is_json {
        return context.printer.json(&list);
    }
    if list.outputs.is_empty() {
        context.printer.talk(
            "no outputs; they are collected at the end of a job whose `outputs:` names patterns, such as results/**",
        );
    }
    for output in &list.outputs {
        context.printer.line(&human::tame(&format!("{}/{}", output.worker, output.path)))?;
    }
    if !list.outputs.is_empty() {
        context.printer.talk(&format!("in {}; `--to DIR` brings them here", list.place));
    }
    Ok(())
}

/// A job that has ended may still get its outputs: until its TPU is gone, but not for ever.
async fn until_sent(context: &Context, job: &str) -> Result<()> {
    let since = Instant::now();
    loop {
        let view: JobView = typed(context.api.get(&job_path(job, "")?, &[]).await?)?;
        if view.outcome.is_none() || view.phase.is_terminal() {
            return Ok(());
        }
        if since.elapsed() > SENT_MAX {
            context.printer.warn(&format!("{job} is still stopping; what its workers have not sent is missing"));
            return Ok(());
        }
        tokio::time::sleep(LOOK_EACH).await;
    }
}

/// One file, complete or not at all; its size.
async fn fetch(context: &Context, job: &str, output: &OutputView, to: &Path) -> Result<u64> {
    let below = Path::new(&output.worker).join(&output.path);
    if below.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(Fault::unexpected(format!("{:?} is no path of an output", output.path))
            .next(format!("nothing was written there; the object itself is {}", output.object)));
    }
    let place = to.join(below);
    let cannot = |error: std::io::Error| {
        Fault::unexpected(format!("cannot write {}", place.display())).caused_by(&error).next("choose another --to")
    };
    let parent = place.parent().unwrap_or(to);
    std::fs::create_dir_all(parent).map_err(cannot)?;
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(cannot)?;
    let mut size = 0;
    let piece = |bytes: &[u8]| {
        size += bytes.len() as u64;
        file.write_all(bytes).map_err(cannot)
    };
    context.api.get_text(&job_path(job, &format!("/outputs/{}", output.object))?, &[], piece).await?;
    file.persist(&place).map_err(|error| cannot(error.error))?;
    Ok(size)
}
