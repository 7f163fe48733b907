//! Workspaces: `up`, `status`, `delete`, and which job a workspace's name stands for.
//!
//! A workspace is a job without a program. Ids are never used twice, so the one that follows a deleted `dev` is `dev-2`.

use std::time::Duration;

use rekindle_core::job::{Desired, Phase};
use rekindle_wire::v1::{CommandBody, JobView};
use serde_json::{Value, json};

use super::run::{check, message, send};
use super::{Context, control, current_folder, job_path, leave, nearest, show, ssh};
use crate::answers::Jobs;
use crate::api::{new_key, typed};
use crate::args::{Delete, Run, Show, Status, Up};
use crate::bundle::{Bundle, Times};
use crate::exit::Exit;
use crate::fault::{Fault, Result};
use crate::human;
use crate::project::Project;
use crate::table::{Table, text};

/// Between two looks at a workspace that is coming up.
const LOOK_EACH: Duration = Duration::from_millis(500);
/// A workspace that nobody has used for so long is paused, unless it says otherwise.
const IDLE: &str = "8h";
/// Workspaces of one name, one after the other.
const SAME_NAME_MAX: u32 = 500;

/// The id that a name stands for, and its job: the first that has not ended, or the first id that is free.
async fn find(context: &Context, name: &str) -> Result<(String, Option<JobView>)> {
    for number in 1..=SAME_NAME_MAX {
        let id = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
        let value = match context.api.get(&job_path(&id, "")?, &[]).await {
            Ok(value) => value,
            Err(fault) if fault.lacks().is_some() => return Ok((id, None)),
            Err(fault) => return Err(fault),
        };
        let view: JobView = typed(value)?;
        if !is_workspace(&view) {
            let state = if view.phase.is_terminal() {
                format!("; it has ended ({})", view.phase.as_str())
            } else {
                String::new()
            };
            return Err(Fault::input(format!("{id} is a job with a program, no workspace{state}")).next(format!(
                "see it with `rekindle show {id}` and `rekindle logs {id}`; a workspace has another name (`rekindle status`)"
            )));
        }
        if !has_ended(&view) {
            return Ok((id, Some(view)));
        }
    }
    Err(Fault::input(format!("{name} was made and deleted {SAME_NAME_MAX} times")).next("choose another name"))
}

/// It is a workspace.
pub(crate) fn is_workspace(view: &JobView) -> bool {
    view.spec["workspace"] == true
}

/// A workspace that was deleted: for a machine its phase is that of any job that was cancelled.
pub(crate) fn is_deleted(view: &JobView) -> bool {
    view.phase == Phase::Cancelled && is_workspace(view)
}

/// A workspace that has ended.
pub(super) fn is_over(view: &JobView) -> bool {
    is_workspace(view) && has_ended(view)
}

/// The job of a workspace that is there.
pub(super) async fn live(context: &Context, name: &str) -> Result<(String, JobView)> {
    match find(context, name).await? {
        (id, Some(view)) => Ok((id, view)),
        // Only after one that has ended is another id the next that is free.
        (id, None) if id == name => Err(none_of_this_name(name)),
        (_, None) => Err(ended(name)),
    }
}

fn ended(name: &str) -> Fault {
    let make = format!("rekindle up {name} --tpu v5litepod-8");
    Fault::input(format!("the workspace {name} has ended"))
        .next(format!("make another: {make}; `rekindle explain {name}` tells why it ended"))
}

fn none_of_this_name(name: &str) -> Fault {
    Fault::input(format!("there is no workspace {name}"))
        .for_lack_of_workspace(name)
        .next(format!("make it: rekindle up {name} --tpu v5litepod-8; `rekindle status` lists those that are there"))
}

/// The job that a name means for a command: a workspace that was deleted gives its name to the one that follows it.
pub(super) async fn meant(context: &Context, name: &str) -> Result<String> {
    let same = || Ok(name.to_owned());
    let Ok(path) = job_path(name, "") else { return same() };
    // A name that nobody has is the command's own fault to tell.
    let Ok(Ok(view)) = context.api.get(&path, &[]).await.map(typed::<JobView>) else { return same() };
    if !is_over(&view) {
        return same();
    }
    match find(context, name).await? {
        (id, Some(_)) => {
            context.printer.talk(&format!("{name} was deleted; the workspace of this name is {id} now"));
            Ok(id)
        }
        (_, None) if view.phase.is_terminal() => Err(ended(name)),
        (_, None) => same(),
    }
}

/// It has, or is about to: nothing brings it back.
fn has_ended(view: &JobView) -> bool {
    view.phase.is_terminal() || view.desired == Desired::Cancel
}

/// Says which workspace has the name of one that is shown and was deleted, if there is one.
pub(super) async fn tell_follower(context: &Context, view: &JobView) {
    if !is_over(view) {
        return;
    }
    if let Ok((id, Some(_))) = find(context, view.id.as_str()).await {
        context.printer.talk(&format!("{} was deleted; the workspace of this name is {id} now", view.id));
    }
}

/// [`tell_follower`] of what only its name is known.
pub(super) async fn tell_follower_of(context: &Context, name: &str) {
    let Ok(path) = job_path(name, "") else { return };
    if let Ok(Ok(view)) = context.api.get(&path, &[]).await.map(typed::<JobView>) {
        tell_follower(context, &view).await;
    }
}

/// Makes a workspace, or brings it back, and waits until it can be used.
pub(crate) async fn up(context: &Context, options: Up) -> Result<()> {
    let (id, view) = find(context, &options.name).await?;
    let no_wait = options.no_wait;
    let view = match view {
        None => make(context, options, &id).await?,
        Some(view) => {
            let given = options.given();
            if !given.is_empty() {
                context.printer.warn(&format!(
                    "{} is not applied: {id} is defined already; `rekindle delete {}` and `up` define it anew",
                    given.join(", "),
                    options.name
                ));
            }
            view
        }
    };
    let still = format!(
        "{id} comes up all the same; see it with `rekindle status {id}`, give its TPU back with `rekindle pause {id}`"
    );
    leave::watching(context, || still, come_up(context, &id, view, no_wait)).await
}

/// Waits until a workspace can be used, and tells how it comes there.
async fn come_up(context: &Context, id: &str, mut view: JobView, no_wait: bool) -> Result<()> {
    let mut said = String::new();
    // What is on its way up needs no word, though it may still be shown as paused. Who pauses it after that means it.
    let mut is_asked = view.desired == Desired::Run;
    loop {
        if is_asked && view.desired == Desired::Pause {
            return Err(Fault::input(format!("{id} did not come up: {}", human::tame(&view.message)))
                .because("somebody paused it meanwhile, or nobody used it for long")
                .next(format!("rekindle up {id}")));
        } else if view.phase == Phase::Paused && !is_asked {
            let (value, _) = context.api.command(id, "unpause", &CommandBody::default()).await?;
            view = typed(value)?;
            is_asked = true;
        } else if view.phase.is_terminal() || view.outcome.is_some() {
            let why = human::tame(&view.message);
            return Err(Fault::input(format!("{id} did not come up: {why}"))
                .next(format!("see `rekindle logs {id}` and `rekindle explain {id}`")));
        } else if view.desired == Desired::Run && (no_wait || view.phase == Phase::Running) {
            return told(context, id, &view).await;
        }
        let message = format!("{id} is {}: {}", human::phase(view.phase), human::tame(&view.message));
        if message != said && !context.printer.is_json {
            context.printer.talk(&message);
        }
        said = message;
        tokio::time::sleep(LOOK_EACH).await;
        view = typed(context.api.get(&job_path(id, "")?, &[]).await?)?;
    }
}

async fn told(context: &Context, id: &str, view: &JobView) -> Result<()> {
    if context.printer.is_json {
        return context.printer.json(view);
    }
    if view.phase == Phase::Running
        && let Some(tpu) = view.resources.last()
    {
        let workers = human::count(u64::from(tpu.workers), "worker");
        let shell = if ssh::has_machines(context).await { format!("rekindle ssh {id}, ") } else { String::new() };
        context.printer.talk(&format!(
            "{id} is up: {} in {}, {workers}, ${:.2} an hour\n  rekindle exec {id} -- COMMAND, {shell}rekindle pause {id}",
            tpu.accelerator, tpu.zone, tpu.usd_per_hour
        ));
    }
    context.printer.line(id)
}

async fn make(context: &Context, options: Up, id: &str) -> Result<JobView> {
    if options.tpu.is_empty() && options.preset.is_empty() && options.set.is_empty() {
        let name = &options.name;
        let next = format!("say which TPU: rekindle up {name} --tpu v5litepod-8");
        return Err(if id == name {
            Fault::input(format!("there is no workspace {name} yet")).for_lack_of_workspace(name).next(next)
        } else {
            // Its definition went with it; only `pause` keeps one.
            Fault::input(format!("the workspace {name} was deleted, or has ended; a new one needs its definition anew"))
                .next(next)
        });
    }
    let here = current_folder()?;
    let project = Project::load(&here, context.config.as_deref())?;
    let folder = match &options.folder {
        Some(given) => Some(project.folder(given)?),
        None => project.preset_folder(&options.preset)?,
    };
    let run = Run {
        tpu: options.tpu,
        zone: options.zone,
        capacity: options.capacity,
        setup: options.setup,
        preset: options.preset,
        set: options.set,
        id: Some(id.to_owned()),
        is_workspace: true,
        ..Run::default()
    };
    let mut job = message::message(&run, &project)?;
    job.insert("workspace".to_owned(), json!(true));
    let limits = job.entry("limits").or_insert_with(|| json!({}));
    if let Some(limits) = limits.as_object_mut() {
        limits.entry("idle").or_insert_with(|| json!(options.idle.as_deref().unwrap_or(IDLE)));
    }
    if let Some(folder) = folder {
        check(context, &job).await?;
        if let Some(bundle) = Bundle::of(&folder, Times::Kept, context.printer)? {
            send(context, &bundle, &mut job).await?;
        }
    }
    let (value, _) = context.api.post("/v1/jobs", &Value::Object(job), &new_key()).await?;
    typed(value)
}

/// Shows a workspace, or lists all that are not deleted.
pub(crate) async fn status(context: &Context, options: &Status) -> Result<()> {
    if let Some(name) = &options.name {
        let (job, _) = live(context, name).await?;
        return show::run(context, &Show { job, spec: false }).await;
    }
    let mut jobs: Vec<Value> = Vec::new();
    let mut token: Option<String> = None;
    loop {
        let query = [("view", Some("list".to_owned())), ("page_size", Some("500".to_owned())), ("page_token", token)];
        let mut page = context.api.get("/v1/jobs", &query).await?;
        let found: Vec<Value> = typed(page["jobs"].take())?;
        jobs.extend(found.into_iter().filter(|job| job["spec"]["workspace"] == true));
        token = page["next_page_token"].as_str().map(str::to_owned);
        if token.is_none() {
            break;
        }
    }
    let ended = |job: &Value| job["phase"].as_str().and_then(Phase::parse).is_some_and(Phase::is_terminal);
    jobs.retain(|job| !ended(job));
    if context.printer.is_json {
        return context.printer.json(&Jobs { jobs });
    }
    if jobs.is_empty() {
        context.printer.talk("no workspaces; `rekindle up NAME --tpu v5litepod-8` makes one");
        return Ok(());
    }
    let mut table = Table::new(&[text("NAME", 0), text("PHASE", 0), text("TPU", 1), text("ZONE", 2), text("WHY", 3)]);
    for job in jobs {
        let view: JobView = typed(job)?;
        let tpu = view.resources.last();
        table.row(vec![
            view.id.to_string(),
            human::phase(view.phase),
            tpu.map_or_else(|| "-".to_owned(), |tpu| tpu.accelerator.clone()),
            tpu.map_or_else(|| "-".to_owned(), |tpu| tpu.zone.clone()),
            human::tame(&view.message),
        ]);
    }
    context.printer.data(&table.render(context.printer.width()))
}

/// Ends workspaces.
pub(crate) async fn delete(context: &Context, options: &Delete) -> Result<()> {
    // One name's fault does not stop the others: their TPUs cost money until they are told.
    let mut fault: Option<Fault> = None;
    for (at, name) in options.names.iter().enumerate() {
        let told = match find(context, name).await {
            Ok((id, Some(_))) => control::one(context, &id, "cancel", &CommandBody::default()).await,
            Ok((id, None)) if id != *name => {
                context.printer.talk(&format!("the workspace {name} has ended, or is being deleted already"));
                Ok(())
            }
            Ok((_, None)) => Err(none_of_this_name(name)),
            Err(fault) => Err(fault),
        };
        let Err(new) = told else { continue };
        let is_away = new.status().is_none() && new.exit() == Exit::Unexpected;
        let (asked, open) = options.names.split_at(at);
        let new = if is_away { new.because(control::unconfirmed("delete", asked, open)) } else { new };
        if let Some(earlier) = fault.replace(new) {
            context.printer.fault(&nearest::told(context, earlier).await);
        }
        if is_away {
            break;
        }
    }
    fault.map_or(Ok(()), Err)
}
