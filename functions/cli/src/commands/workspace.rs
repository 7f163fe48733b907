//! Workspaces: `up`, `status`, `delete`, and which job a workspace's name stands for.
//!
//! A workspace is a job without a program. Ids are never used twice, so the one that follows a deleted `dev` is `dev-2`.

use std::time::Duration;

use rekindle_core::job::{Desired, Phase};
use rekindle_wire::v1::{CommandBody, JobView};
use serde_json::{Map, Value, json};

use super::run::arguments::quoted;
use super::run::{check, message, plan, send};
use super::{Context, control, current_folder, job_path, leave, nearest, show, ssh};
use crate::answers::Jobs;
use crate::api::{new_key, typed};
use crate::args::{Delete, Run, Show, Status, Up};
use crate::bundle::{Bundle, Times};
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

/// What a name stands for.
enum Named {
    /// The first of this name that has not ended, with its id.
    Live(String, Box<JobView>),
    /// All of this name have ended: the last of them, and the id of the next.
    Ended { last: Box<JobView>, next: String },
    /// There never was one.
    Nobody,
}

/// The first of a name that has not ended, or the first id that is free.
async fn find(context: &Context, name: &str) -> Result<Named> {
    let mut last: Option<Box<JobView>> = None;
    for number in 1..=SAME_NAME_MAX {
        let id = if number == 1 { name.to_owned() } else { format!("{name}-{number}") };
        let value = match context.api.get(&job_path(&id, "")?, &[]).await {
            Ok(value) => value,
            Err(fault) if fault.lacks().is_some() => {
                return Ok(last.map_or(Named::Nobody, |last| Named::Ended { last, next: id }));
            }
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
            return Ok(Named::Live(id, Box::new(view)));
        }
        last = Some(Box::new(view));
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
        Named::Live(id, view) => Ok((id, *view)),
        Named::Ended { last, .. } => Err(ended(name, &last)),
        Named::Nobody => Err(none_of_this_name(name)),
    }
}

/// What became of the last workspace of a name, and how one like it is made.
fn ended(name: &str, last: &JobView) -> Fault {
    let what = if is_deleted(last) {
        format!("the workspace {name} was deleted")
    } else if last.phase.is_terminal() {
        format!("the workspace {name} has ended ({})", last.phase.as_str())
    } else {
        format!("the workspace {name} is being deleted")
    };
    // What stands in no line of a shell, or is not known here.
    let mut more = Vec::new();
    if last.spec["code"].is_string() {
        more.push("--folder");
    }
    if last.spec["setup"].as_str().is_some_and(|setup| setup.contains(char::is_control)) {
        more.push("--setup");
    }
    let more = if more.is_empty() { String::new() } else { format!(", with its {}", more.join(" and ")) };
    Fault::input(what).because(human::tame(&last.message)).next(format!(
        "make one as it was: {}{more}; `rekindle explain {}` tells why it ended",
        up_again(name, last),
        last.id
    ))
}

/// The command that makes a workspace with the TPU and the `setup` of an earlier one.
fn up_again(name: &str, last: &JobView) -> String {
    let (spec, tpu) = (&last.spec, &last.spec["tpu"]);
    let words = |value: &Value| match value {
        Value::String(one) => one.clone(),
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    };
    let options = [
        ("--tpu", words(&tpu["accelerator"])),
        ("--zone", words(&tpu["zones"])),
        ("--capacity", words(&tpu["capacity"])),
        ("--setup", words(&spec["setup"])),
    ];
    let given = options.into_iter().filter(|(_, value)| !value.is_empty() && !value.contains(char::is_control));
    given.fold(format!("rekindle up {name}"), |line, (option, value)| format!("{line} {option} {}", quoted(&value)))
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
        Named::Live(id, _) => {
            context.printer.talk(&format!("{name} was deleted; the workspace of this name is {id} now"));
            Ok(id)
        }
        Named::Ended { last, .. } if view.phase.is_terminal() => Err(ended(name, &last)),
        Named::Ended { .. } | Named::Nobody => same(),
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
    if let Ok(Named::Live(id, _)) = find(context, view.id.as_str()).await {
        context.printer.talk(&format!("{} was deleted; the workspace of this name is {id} now", view.id));
    }
}

/// [`tell_follower`] of what only its name is known; answers what is known of it then.
pub(super) async fn tell_follower_of(context: &Context, name: &str) -> Option<JobView> {
    let path = job_path(name, "").ok()?;
    let view = context.api.get(&path, &[]).await.ok().and_then(|answer| typed::<JobView>(answer).ok())?;
    tell_follower(context, &view).await;
    Some(view)
}

/// Makes a workspace, or brings it back, and waits until it can be used.
pub(crate) async fn up(context: &Context, options: Up) -> Result<()> {
    if options.is_dry {
        return preview(context, options).await;
    }
    let no_wait = options.no_wait;
    let (id, view) = match find(context, &options.name).await? {
        Named::Nobody => {
            let id = options.name.clone();
            let view = make(context, options, &id, None).await?;
            (id, view)
        }
        Named::Ended { last, next } => {
            let view = make(context, options, &next, Some(&last)).await?;
            (next, view)
        }
        Named::Live(id, view) => {
            warn_of_given(context, &options, &id);
            (id, *view)
        }
    };
    let still = format!(
        "{id} comes up all the same; see it with `rekindle status {id}`, give its TPU back with `rekindle pause {id}`"
    );
    leave::watching(context, || still, come_up(context, &id, view, no_wait)).await
}

/// What a workspace is made of is not changed by options of `up`.
fn warn_of_given(context: &Context, options: &Up, id: &str) {
    let given = options.given();
    if !given.is_empty() {
        context.printer.warn(&format!(
            "{} is not applied: {id} is defined already; `rekindle delete {}` and `up` define it anew",
            given.join(", "),
            options.name
        ));
    }
}

/// Shows what `up` would make or bring back, and does nothing.
async fn preview(context: &Context, options: Up) -> Result<()> {
    let (id, last) = match find(context, &options.name).await? {
        Named::Nobody => (options.name.clone(), None),
        Named::Ended { last, next } => (next, Some(last)),
        Named::Live(id, view) => {
            warn_of_given(context, &options, &id);
            return preview_of(context, &id, &view).await;
        }
    };
    let (job, bundle) = defined(context, options, &id, last.as_deref()).await?;
    plan::show(context, job, bundle.as_ref(), false).await
}

/// [`preview`] of a workspace that is there: one that is paused gets a TPU of its own definition.
async fn preview_of(context: &Context, id: &str, view: &JobView) -> Result<()> {
    let (printer, phase) = (context.printer, human::phase(view.phase));
    let is_paused = view.desired == Desired::Pause;
    if !printer.is_json {
        let what = if is_paused { "it would be brought back as it is" } else { "nothing would be made" };
        printer.talk(&format!("{id} is {phase}: {what}"));
    }
    if is_paused {
        return plan::show(context, typed(view.spec.clone())?, None, false).await;
    }
    if printer.is_json { printer.json_line(&view.spec) } else { printer.line(&human::json(&view.spec)) }
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

/// Makes a workspace; `last` is the one that had its name before.
async fn make(context: &Context, options: Up, id: &str, last: Option<&JobView>) -> Result<JobView> {
    let (mut job, bundle) = defined(context, options, id, last).await?;
    if let Some(bundle) = bundle {
        send(context, &bundle, &mut job).await?;
    }
    let (value, _) = context.api.post("/v1/jobs", &Value::Object(job), &new_key()).await?;
    typed(value)
}

/// The job of a new workspace, and the folder that goes with it.
async fn defined(
    context: &Context,
    options: Up,
    id: &str,
    last: Option<&JobView>,
) -> Result<(Map<String, Value>, Option<Bundle>)> {
    if options.tpu.is_empty() && options.preset.is_empty() && options.set.is_empty() {
        let name = &options.name;
        return Err(match last {
            // Its definition went with it; only `pause` keeps one.
            Some(last) => ended(name, last).because("only `pause` keeps what a workspace is made of"),
            None => Fault::input(format!("there is no workspace {name} yet"))
                .for_lack_of_workspace(name)
                .next(format!("say which TPU: rekindle up {name} --tpu v5litepod-8")),
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
        idle: options.idle,
        id: Some(id.to_owned()),
        is_workspace: true,
        ..Run::default()
    };
    let mut job = message::message(&run, &project)?;
    job.insert("workspace".to_owned(), json!(true));
    let limits = job.entry("limits").or_insert_with(|| json!({}));
    if let Some(limits) = limits.as_object_mut() {
        limits.entry("idle").or_insert_with(|| json!(IDLE));
    }
    let Some(folder) = folder else { return Ok((job, None)) };
    if !options.is_dry {
        check(context, &job).await?;
    }
    let bundle = Bundle::of(&folder, Times::Kept, context.printer)?;
    Ok((job, bundle))
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
            Ok(Named::Live(id, _)) => control::one(context, &id, "cancel", &CommandBody::default()).await,
            Ok(Named::Ended { .. }) => {
                context.printer.talk(&format!("the workspace {name} has ended, or is being deleted already"));
                Ok(())
            }
            Ok(Named::Nobody) => Err(none_of_this_name(name)),
            Err(fault) => Err(fault.before_sending()),
        };
        let Err(new) = told else { continue };
        let is_away = control::is_away(&new);
        let new = if is_away { control::unconfirmed(new, "delete", options.names.split_at(at)) } else { new };
        if let Some(earlier) = fault.replace(new) {
            context.printer.fault(&nearest::told(context, earlier).await);
        }
        if is_away {
            break;
        }
    }
    fault.map_or(Ok(()), Err)
}
