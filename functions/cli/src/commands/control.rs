//! `cancel`, `pause`, `unpause`, `wake`, `restart`: one command on each of several jobs.

use rekindle_core::job::Outcome;
use rekindle_wire::v1::{CommandBody, JobView};

use super::{Context, nearest, workspace};
use crate::api::typed;
use crate::args::{Control, Restart};
use crate::fault::{Fault, Result};
use crate::human;

/// A command without options of its own.
pub(crate) async fn run(context: &Context, options: &Control, command: &str) -> Result<()> {
    each(context, options, command, &CommandBody::default()).await
}

/// `restart`.
pub(crate) async fn restart(context: &Context, options: &Restart) -> Result<()> {
    let body = CommandBody { new_slice: options.new_slice, from_scratch: options.from_scratch, ..Default::default() };
    each(context, &options.control, "restart", &body).await
}

/// One job's fault does not stop the others; the last fault is the answer, the ones before are shown.
async fn each(context: &Context, options: &Control, command: &str, body: &CommandBody) -> Result<()> {
    let body = CommandBody { if_attempt: options.if_attempt, ..body.clone() };
    let mut fault: Option<Fault> = None;
    for job in &options.jobs {
        if let Err(new) = one(context, job, command, &body).await
            && let Some(earlier) = fault.replace(new)
        {
            context.printer.fault(&nearest::told(context, earlier).await);
        }
    }
    fault.map_or(Ok(()), Err)
}

async fn one(context: &Context, job: &str, command: &str, body: &CommandBody) -> Result<()> {
    let job = &workspace::meant(context, job).await?;
    let (value, is_change) = context.api.command(job, command, body).await?;
    if context.printer.is_json {
        return context.printer.json_line(&value);
    }
    let view: JobView = typed(value)?;
    let outcome = view.outcome.filter(|outcome| *outcome != Outcome::Cancelled && !view.phase.is_terminal());
    let said = match (command, is_change) {
        ("cancel", _) if let Some(outcome) = outcome => {
            let end = outcome.phase().as_str();
            return context.printer.line(&format!("{job} has its end already: {end}; its TPU is being given back"));
        }
        ("cancel", true) if workspace::is_workspace(&view) => "will be deleted",
        ("cancel", true) => "will be cancelled",
        ("cancel", false) if view.phase.is_terminal() => "was cancelled before",
        ("cancel", false) => "is being cancelled already",
        ("pause", true) => "will be paused",
        ("pause", false) => "is paused already",
        ("unpause", true) => "goes on",
        ("restart", true) => "starts again",
        ("wake", true) => "is looked at now",
        (_, true) => "is told",
        (_, false) => "needs nothing: it holds already",
    };
    let phase = human::phase(view.phase);
    let now = match (command, is_change) {
        // It is not yet what it will be, and its message may be of either.
        ("cancel" | "pause" | "restart", true) => format!("it is {phase} now"),
        _ => format!("{phase}: {}", human::tame(&view.message)),
    };
    context.printer.line(&format!("{job} {said} ({now})"))
}
