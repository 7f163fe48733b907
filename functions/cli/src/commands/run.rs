//! `run`: a job from a file, from options, or from both, with the folder of its program, submitted once.

pub(super) mod arguments;
pub(super) mod message;
pub(super) mod plan;
mod script;
mod yaml;
mod zones;

use std::path::PathBuf;
use std::process::ExitCode;

use rekindle_wire::v1::JobView;
use serde_json::{Map, Value, json};

use super::{Context, current_folder, job_path, leave, logs, wait};
use crate::api::{new_key, typed};
use crate::args::Run;
use crate::bundle::{Bundle, Times};
use crate::exit::Exit;
use crate::fault::{Fault, Result};
use crate::human;
use crate::project::Project;

/// Submits a job.
pub(crate) async fn run(context: &Context, options: &Run) -> Result<ExitCode> {
    let here = current_folder()?;
    let project = Project::load(&here, context.config.as_deref())?;
    let (mut message, replaced) = message::whole(options, &project)?;
    if let Some(program) = replaced.filter(|_| !context.printer.is_json) {
        let program = human::tame(&program);
        context.printer.talk(&format!("note: the program behind `--` runs instead of the file's `run` ({program})"));
    }
    let in_file = || message::line_in_list(message.get("run").filter(|_| options.command.is_empty()));
    if let Some(told) = message::mixed(&options.command).or_else(in_file) {
        context.printer.warn(&told);
    }
    let folder = folder(options, &project, &message)?;
    if folder.is_some() && !options.is_dry {
        check(context, &message).await?;
    }
    let packed = |folder: &PathBuf| Bundle::of(folder, Times::Fixed, context.printer);
    let bundle = folder.as_ref().map(packed).transpose()?.flatten();
    if let Some(folder) = &folder {
        script::check(&message, folder, bundle.as_ref(), context.printer)?;
    }
    if options.is_dry {
        return plan::show(context, message, bundle.as_ref(), options.has_files).await.map(|()| ExitCode::SUCCESS);
    }
    if let Some(bundle) = &bundle {
        send(context, bundle, &mut message).await?;
    }
    let message = Value::Object(message);
    plan::warn_of_regions(context, &message);
    let sent = context.api.post("/v1/jobs", &message, &new_key()).await;
    let (value, is_new) = sent.map_err(|fault| unconfirmed(fault, message["id"].as_str()))?;
    let job: JobView = typed(value.clone())?;
    let id = job.id.as_str();
    if context.printer.is_json && !options.wait {
        context.printer.json(&value)?;
    } else if !context.printer.is_json {
        told(context, &job, is_new, options)?;
    }
    if options.follow {
        logs::follow(context, id).await?;
    }
    if !options.wait && !options.follow {
        return Ok(ExitCode::SUCCESS);
    }
    // It is submitted: that nobody answers now leaves its end not known, and is no reason to submit it again.
    let not_known = |fault: Fault| if fault.exit() == Exit::Unexpected { fault.exits(Exit::NotKnown) } else { fault };
    let ending = async { wait::until_end(context, id, None).await.map_err(not_known) };
    let end = leave::watching(context, || leave::jobs_go_on(&[id.to_owned()], "wait"), ending).await?;
    if context.printer.is_json {
        let job = context.api.get(&job_path(id, "")?, &[]).await?;
        context.printer.json_line(&job)?;
        return Ok(end.0.exit().into());
    }
    if options.follow {
        // The follow has said how it ended.
        return Ok(end.0.exit().into());
    }
    Ok(wait::report(context, id, &end).await?.into())
}

/// What is to be done about a job of which nobody said whether it was submitted. `id` is the one that it was given.
fn unconfirmed(fault: Fault, id: Option<&str>) -> Fault {
    if !fault.may_have_happened() {
        return fault;
    }
    fault.because("that the job was submitted is not confirmed, and may have taken place").next(match id {
        Some(_) => "give the command again: a job of one --id is submitted once",
        None => {
            "look with `rekindle ps` whether it is there, before the command is given again: that submits another job"
        }
    })
}

/// Has the server refuse what it would refuse, before a folder is packed and sent for it.
pub(super) async fn check(context: &Context, message: &Map<String, Value>) -> Result<()> {
    let query = [("dry_run", Some("true".to_owned()))];
    context.api.post_with("/v1/jobs", &query, &Value::Object(message.clone()), &new_key()).await.map(|_| ())
}

/// The folder of the program; `None`: the job needs none.
fn folder(options: &Run, project: &Project, message: &Map<String, Value>) -> Result<Option<PathBuf>> {
    if options.no_code {
        return Ok(None);
    }
    if message.contains_key("code") {
        return match &options.folder {
            Some(_) => Err(Fault::input("the job says `code` already").next("leave out --folder, or `code`")),
            None => Ok(None),
        };
    }
    match &options.folder {
        Some(given) => project.folder(given).map(Some),
        None => Ok(Some(project.default_folder(&options.preset)?.unwrap_or_else(|| ".".into()))),
    }
}

pub(super) async fn send(context: &Context, bundle: &Bundle, message: &mut Map<String, Value>) -> Result<()> {
    let (code, is_new) = bundle.send(&context.api, context.printer).await?;
    if !context.printer.is_json {
        let how = if is_new { "sent" } else { "the server has it already:" };
        context.printer.talk(&format!("{how} {}", bundle.describe()));
    }
    message.insert("code".to_owned(), json!(code));
    message.entry("source").or_insert_with(|| bundle.source());
    Ok(())
}

/// The id alone goes to stdout, so that `JOB=$(rekindle run …)` works.
fn told(context: &Context, job: &JobView, is_new: bool, options: &Run) -> Result<()> {
    let id = job.id.as_str();
    let printer = context.printer;
    if is_new {
        printer.talk(&format!("submitted {id} to {}: {}", context.api.place(), human::tame(&job.message)));
    } else {
        let (place, phase) = (context.api.place(), human::phase(job.phase));
        printer.talk(&format!("{id} is there already at {place}, with the same spec: {phase}"));
    }
    if !options.wait && !options.follow {
        printer.talk(&format!("  follow it with `rekindle logs -f {id}`, ask with `rekindle explain {id}`"));
    }
    printer.line(id)
}
