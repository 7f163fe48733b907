//! `cancel`, `pause`, `unpause`, `wake`, `restart`: one command on each of several jobs.

use std::fmt::Write as _;

use rekindle_core::job::Outcome;
use rekindle_wire::v1::{CommandBody, JobView};

use super::{Context, nearest, workspace};
use crate::api::typed;
use crate::args::{Control, Restart};
use crate::exit::Exit;
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

/// One job's fault does not stop the others; the last fault is the answer, the ones before are shown. A server that cannot be
/// reached, or whose answer is lost on the way, is not asked again: then it is told which jobs are done, and which are not.
async fn each(context: &Context, options: &Control, command: &str, body: &CommandBody) -> Result<()> {
    let body = CommandBody { if_attempt: options.if_attempt, ..body.clone() };
    let mut fault: Option<Fault> = None;
    for (at, job) in options.jobs.iter().enumerate() {
        let Err(new) = one(context, job, command, &body).await else { continue };
        let new = if is_away(&new) {
            return Err(all_told(context, fault, unconfirmed(new, command, options.jobs.split_at(at))).await);
        } else if options.jobs.len() > 1 && !new.names(job) {
            new.because(format!("this is of `{command}` for {job}"))
        } else {
            new
        };
        if let Some(earlier) = fault.replace(new) {
            context.printer.fault(&nearest::told(context, earlier).await);
        }
    }
    fault.map_or(Ok(()), Err)
}

/// Shows an earlier fault, and gives the last.
async fn all_told(context: &Context, earlier: Option<Fault>, last: Fault) -> Fault {
    if let Some(earlier) = earlier {
        context.printer.fault(&nearest::told(context, earlier).await);
    }
    last
}

/// True when nobody of ours answered.
pub(super) fn is_away(fault: &Fault) -> bool {
    fault.may_have_happened() || (fault.status().is_none() && fault.exit() == Exit::Unexpected)
}

/// Tells what is known of a command whose answer did not come for the first of the second names: it, and those behind it, were
/// not answered. What was refused before is told by its own fault.
pub(super) fn unconfirmed(fault: Fault, command: &str, (asked, open): (&[String], &[String])) -> Fault {
    let mut told = match open {
        [one, rest @ ..] if fault.may_have_happened() => {
            let mut told = format!("`{command}` is not confirmed for {one}, and may have taken place");
            if !rest.is_empty() {
                let _ = write!(told, "; it was not sent for {}", rest.join(", "));
            }
            told
        }
        open => format!("`{command}` is not confirmed for {}", open.join(", ")),
    };
    if !asked.is_empty() {
        let _ = write!(told, "; the server has answered for {}", asked.join(", "));
    }
    let fault = fault.because(told);
    match open.first().filter(|_| fault.may_have_happened()) {
        Some(one) => fault.next(format!(
            "`rekindle show {one}` tells whether it took place; give the command again for what it did not reach"
        )),
        None => fault,
    }
}

/// The command on one job.
pub(super) async fn one(context: &Context, job: &str, command: &str, body: &CommandBody) -> Result<()> {
    let job = &workspace::meant(context, job).await.map_err(Fault::before_sending)?;
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
        ("cancel", false) if view.phase.is_terminal() && workspace::is_workspace(&view) => "was deleted before",
        ("cancel", false) if view.phase.is_terminal() => "was cancelled before",
        ("cancel", false) if workspace::is_workspace(&view) => "is being deleted already",
        ("cancel", false) => "is being cancelled already",
        ("pause", true) => "will be paused",
        ("pause", false) => "is paused already",
        ("unpause", true) => "goes on",
        ("restart", true) => "starts again",
        ("wake", true) => "is looked at now",
        (_, true) => "is told",
        (_, false) => "needs nothing: it holds already",
    };
    let phase = human::phase_of(&view);
    let now = match (command, is_change) {
        // It is not yet what it will be, and its message may be of either.
        ("cancel" | "pause" | "restart", true) => format!("it is {phase} now"),
        _ => format!("{phase}: {}", human::tame(&view.message)),
    };
    context.printer.line(&format!("{job} {said} ({now})"))?;
    if command == "pause" && is_change && workspace::is_workspace(&view) {
        context.printer.talk(
            "  what `sync` and `exec` brought to it goes with its TPU; the folder of `up` comes again, and a bucket keeps what is in it",
        );
    }
    Ok(())
}
