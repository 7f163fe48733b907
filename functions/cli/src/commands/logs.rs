//! `logs`: output of the workers, once or as it comes.

use super::{Context, job_path};
use crate::args::Logs;
use crate::fault::Result;

/// Shows the output.
pub(crate) async fn run(context: &Context, options: &Logs) -> Result<()> {
    if options.follow {
        return follow(context, &options.job, options.attempt, &options.worker).await;
    }
    let path = job_path(&options.job, "/logs")?;
    let worker = (options.worker != "all").then(|| options.worker.clone());
    let query = [("attempt", options.attempt.map(|n| n.to_string())), ("worker", worker)];
    context.api.get_text(&path, &query, |piece| context.printer.bytes(piece)).await
}

/// Follows the output until the job has ended.
pub(crate) async fn follow(context: &Context, job: &str, attempt: Option<u32>, worker: &str) -> Result<()> {
    let path = job_path(job, "/logs")?;
    let worker = (worker != "all").then(|| worker.to_owned());
    let query = [("follow", Some("true".to_owned())), ("attempt", attempt.map(|n| n.to_string())), ("worker", worker)];
    context.api.events(&path, &query, None, |event| context.printer.line(&event.data)).await
}
