//! `run`: a job from a file, from options, or from both, submitted once.

use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

use rekindle_wire::v1::JobView;
use serde_json::{Map, Value, json};

use super::{Context, job_path, logs, wait};
use crate::api::{new_key, typed};
use crate::args::Run;
use crate::fault::{Fault, Result};
use crate::human;

/// A job file is written by hand.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Submits a job.
pub(crate) async fn run(context: &Context, options: &Run) -> Result<ExitCode> {
    let message = message(options)?;
    if options.is_dry {
        let text = serde_json::to_string_pretty(&message).unwrap_or_default();
        let printer = context.printer;
        return if printer.is_json { printer.json_line(&message) } else { printer.line(&text) }
            .map(|()| ExitCode::SUCCESS);
    }
    let (value, is_new) = context.api.post("/v1/jobs", &message, &new_key()).await?;
    let job: JobView = typed(value.clone())?;
    let id = job.id.as_str();
    if context.printer.is_json && !options.wait {
        context.printer.json(&value)?;
    } else if !context.printer.is_json {
        told(context, &job, is_new, options)?;
    }
    if options.follow {
        logs::follow(context, id, None, "all").await?;
    }
    if !options.wait && !options.follow {
        return Ok(ExitCode::SUCCESS);
    }
    let end = wait::until_end(context, id, None).await?;
    if context.printer.is_json {
        let job = context.api.get(&job_path(id, "")?, &[]).await?;
        context.printer.json_line(&job)?;
        return Ok(ExitCode::from(end.0.code()));
    }
    if options.follow {
        // The follow has said how it ended.
        return Ok(ExitCode::from(end.0.code()));
    }
    Ok(ExitCode::from(wait::report(context, id, &end)?))
}

/// The id alone goes to stdout, so that `JOB=$(rekindle run …)` works.
fn told(context: &Context, job: &JobView, is_new: bool, options: &Run) -> Result<()> {
    let id = job.id.as_str();
    let printer = context.printer;
    if is_new {
        printer.talk(&format!("submitted {id}: {}", human::tame(&job.message)));
    } else {
        printer.talk(&format!("{id} is there already, with the same spec: {}", human::phase(job.phase)));
    }
    if !options.wait && !options.follow {
        printer.talk(&format!("  follow it with `rekindle logs -f {id}`, ask with `rekindle explain {id}`"));
    }
    printer.line(id)
}

/// The job message: the file's, changed by the options.
fn message(options: &Run) -> Result<Value> {
    let mut job = match &options.file {
        Some(path) => from_file(path)?,
        None => Map::new(),
    };
    if options.file.is_none() && options.command.is_empty() {
        return Err(Fault::input("there is nothing to run").next(
            "name a job file, or put the program behind `--`: rekindle run --tpu v5litepod-8 -- python3 train.py",
        ));
    }
    overlay(&mut job, options)?;
    for assignment in &options.set {
        set(&mut job, assignment)?;
    }
    Ok(Value::Object(job))
}

fn from_file(path: &Path) -> Result<Map<String, Value>> {
    let name = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
    let text = read(path).map_err(|error| {
        let fault = Fault::input(format!("cannot read {name}")).caused_by(&error);
        if error.kind() == std::io::ErrorKind::NotFound {
            return fault.next("a program goes behind `--`: rekindle run --tpu TYPE -- COMMAND");
        }
        fault
    })?;
    parse(&text, &name)
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    } else {
        std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
    }
    Ok(text)
}

/// YAML, and so also JSON. Only `true` and `false` are booleans: `y` and `no` are words like any other.
fn parse(text: &str, name: &str) -> Result<Map<String, Value>> {
    let options = serde_saphyr::options! { strict_booleans: true };
    let value: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| Fault::input(format!("{name} is no job file")).because(error.to_string()))?;
    let kind = kind_of(&value);
    if let Value::Object(job) = value {
        return Ok(job);
    }
    Err(Fault::input(format!("{name} is no job file"))
        .because(format!("it holds {kind} where a map of fields is expected"))
        .next("begin with `run:` and `tpu:`"))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// Options win over the file; variables and tags are added to it.
fn overlay(job: &mut Map<String, Value>, options: &Run) -> Result<()> {
    let mut put = |field: &str, value: Option<Value>| match value {
        Some(value) => place(job, field, value),
        None => Ok(()),
    };
    put("run", (!options.command.is_empty()).then(|| json!(options.command)))?;
    put("tpu.accelerator", one_or_list(&options.tpu))?;
    put("tpu.zones", list(&options.zone))?;
    put("tpu.capacity", list(&options.capacity))?;
    put("tpu.slices", options.slices.map(Value::from))?;
    put("tpu.runtime_version", options.runtime_version.clone().map(Value::from))?;
    put("recovery.preset", options.preset.clone().map(Value::from))?;
    put("id", options.id.clone().map(Value::from))?;
    put("checkpoint", options.checkpoint.clone().map(Value::from))?;
    put("setup", options.setup.clone().map(Value::from))?;
    put("priority", options.priority.map(Value::from))?;
    put("owner", options.owner.clone().map(Value::from))?;
    put("notes", options.notes.clone().map(Value::from))?;
    for variable in &options.env {
        let (name, value) = variable_of(variable)?;
        let env = job.entry("env").or_insert_with(|| json!({}));
        let Value::Object(env) = env else { return Err(not_a_map("env")) };
        env.insert(name, Value::from(value));
    }
    if !options.tag.is_empty() {
        let tags = job.entry("tags").or_insert_with(|| json!([]));
        let Value::Array(tags) = tags else { return Err(Fault::input("`tags` of the job file is no list")) };
        for tag in &options.tag {
            if !tags.iter().any(|known| known == tag) {
                tags.push(Value::from(tag.as_str()));
            }
        }
    }
    Ok(())
}

fn list(words: &[String]) -> Option<Value> {
    (!words.is_empty()).then(|| json!(words))
}

fn one_or_list(words: &[String]) -> Option<Value> {
    match words {
        [] => None,
        [one] => Some(json!(one)),
        several => Some(json!(several)),
    }
}

/// `NAME=VALUE`, the value may hold `=`; `NAME` alone is taken from here.
fn variable_of(text: &str) -> Result<(String, String)> {
    let (name, value) = if let Some((name, value)) = text.split_once('=') {
        (name, value.to_owned())
    } else {
        let value = std::env::var(text).map_err(|error| {
            Fault::input(format!("--env {text}: cannot take it from here"))
                .caused_by(&error)
                .next(format!("write --env {text}=VALUE"))
        })?;
        (text, value)
    };
    if name.is_empty() {
        return Err(Fault::input(format!("--env {text}: the name is missing")).next("write --env NAME=VALUE"));
    }
    Ok((name.to_owned(), value))
}

/// `--set limits.total=2h`: the value is YAML, so numbers, lists and maps are possible.
fn set(job: &mut Map<String, Value>, assignment: &str) -> Result<()> {
    let Some((field, text)) = assignment.split_once('=').filter(|(field, _)| !field.is_empty()) else {
        return Err(Fault::input(format!("--set {assignment}: it has no value")).next("write --set FIELD=VALUE"));
    };
    let options = serde_saphyr::options! { strict_booleans: true };
    let value: Value = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| Fault::input(format!("--set {assignment}: no YAML")).because(error.to_string()))?;
    place(job, field, value)
}

/// Puts a value at `a.b.c`, making the maps on the way.
fn place(job: &mut Map<String, Value>, field: &str, value: Value) -> Result<()> {
    let Some((first, rest)) = field.split_once('.') else {
        job.insert(field.to_owned(), value);
        return Ok(());
    };
    // `tpu: v5litepod-16` and the like stand for nothing: the server would refuse them by name.
    let Value::Object(inner) = job.entry(first).or_insert_with(|| json!({})) else { return Err(not_a_map(first)) };
    place(inner, rest, value)
}

fn not_a_map(field: &str) -> Fault {
    Fault::input(format!("`{field}` of the job file is no map")).next(format!("write `{field}:` with fields below it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn options_alone_make_a_job() {
        let options = Run {
            tpu: words(&["v5litepod-16"]),
            zone: words(&["us-west4-a"]),
            env: words(&["LR=a=b"]),
            tag: words(&["t"]),
            priority: Some(60),
            set: words(&["limits.total=2h", "budgets.user_failures=3", "tpu.network.tags=[a, no]"]),
            command: words(&["python3", "train.py", "--lr=1"]),
            ..Run::default()
        };
        let want = json!({
            "run": ["python3", "train.py", "--lr=1"],
            "tpu": {"accelerator": "v5litepod-16", "zones": ["us-west4-a"], "network": {"tags": ["a", "no"]}},
            "env": {"LR": "a=b"},
            "tags": ["t"],
            "priority": 60,
            "limits": {"total": "2h"},
            "budgets": {"user_failures": 3},
        });
        assert_eq!(message(&options).unwrap(), want);
    }

    #[test]
    fn options_change_what_the_file_says_and_add_to_its_lists() {
        let file = "run: [a]\ntpu: {accelerator: v6e-8, slices: 2}\ntags: [x]\nenv: {A: '1', y: 'no'}\n";
        let mut job = parse(file, "job.yaml").unwrap();
        let options = Run {
            tpu: words(&["v5litepod-8", "v6e-8"]),
            tag: words(&["x", "z"]),
            env: words(&["A=2"]),
            ..Run::default()
        };
        overlay(&mut job, &options).unwrap();
        let want = json!({
            "run": ["a"],
            "tpu": {"accelerator": ["v5litepod-8", "v6e-8"], "slices": 2},
            "tags": ["x", "z"],
            "env": {"A": "2", "y": "no"},
        });
        assert_eq!(Value::Object(job), want);
    }

    #[test]
    fn a_wrong_file_is_shown_with_its_place() {
        let text = parse("run: [a]\nrun: [b]\n", "job.yaml").unwrap_err().text();
        assert!(text.contains("job.yaml") && text.contains("run"), "{text}");
        assert!(parse("- a\n", "job.yaml").unwrap_err().text().contains("a list"));
        assert!(message(&Run::default()).unwrap_err().text().contains("--"));
        let no_map = Run { file: None, preset: Some("pre".into()), command: words(&["a"]), ..Run::default() };
        let mut job = parse("recovery: pre\n", "job.yaml").unwrap();
        assert!(overlay(&mut job, &no_map).unwrap_err().text().contains("recovery"));
    }
}
