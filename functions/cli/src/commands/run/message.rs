//! The job message: a file, presets, options and arguments of the program made one.

use std::io::Read as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::arguments::{self, quoted};
use super::{yaml, zones};
use crate::args::Run;
use crate::fault::{Fault, Result};
use crate::human;
use crate::project::{Project, join, nearest};

/// A job file is written by hand.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The job message.
///
/// Weakest first: the file, presets, options, `--set`, arguments of the program.
pub(in crate::commands) fn message(options: &Run, project: &Project) -> Result<Map<String, Value>> {
    whole(options, project).map(|(job, _)| job)
}

/// The same, and the program of the file or of a preset that the one behind `--` takes the place of.
pub(super) fn whole(options: &Run, project: &Project) -> Result<(Map<String, Value>, Option<String>)> {
    let (file, pairs) = words(&options.words);
    let mut job = match file {
        Some(path) => from_file(Path::new(path), !options.command.is_empty())?,
        None => Map::new(),
    };
    if file.is_none() && options.command.is_empty() && !options.is_workspace {
        return Err(Fault::input("there is nothing to run").next(
            "name a job file, or put the program behind `--`: rekindle run --tpu v5litepod-8 -- python3 train.py",
        ));
    }
    if let Some(option) = options.command.first().filter(|word| word.starts_with('-') && !Path::new(word).exists()) {
        return Err(no_program(option, file));
    }
    let mut by_preset = None;
    for name in &options.preset {
        match project.preset(name)? {
            Some(part) => {
                if let Some(tpu) = part.get("tpu").filter(|tpu| tpu.get("accelerator").is_some()) {
                    by_preset = tpu.get("zones").is_none().then_some(name.as_str());
                }
                join(&mut job, part);
            }
            None => place(&mut job, "recovery.preset", Value::from(name.as_str()))?,
        }
    }
    let replaced = job.get("run").filter(|_| !options.command.is_empty()).map(program);
    overlay(&mut job, options)?;
    for assignment in &options.set {
        set(&mut job, assignment)?;
    }
    // Those of `--set` take the place of the file's, and not of those that were named beside them.
    tag(&mut job, &options.tag)?;
    let arguments = pairs.iter().map(|pair| project.argument(pair)).collect::<Result<Vec<_>>>()?;
    arguments::add(&mut job, &arguments)?;
    if let Some(text @ Some(_)) = job.get("tpu").map(Value::as_str) {
        return Err(not_a_map("tpu", text));
    }
    // What `--tpu` or `--set` asks for is no wish of a preset.
    let is_by_preset = options.tpu.is_empty() && !options.set.iter().any(|set| set.starts_with("tpu"));
    match by_preset.filter(|_| is_by_preset).and_then(|preset| zones::elsewhere(&job, preset)) {
        Some(fault) => Err(fault),
        None => Ok((job, replaced)),
    }
}

/// An option where a program was to be.
fn no_program(option: &str, file: Option<&str>) -> Fault {
    let fault = Fault::input(format!("{} behind `--` is an option, and no program", quoted(option)));
    match file {
        Some(file) => fault.next(human::tame(&format!(
            "give it to the program of {file} as KEY=VALUE before the `--` (an alias: `lr=0.1`), or write the whole command behind it: \
             rekindle run {file} -- python3 train.py {option}"
        ))),
        None => fault.next(human::tame(&format!("write the whole command: rekindle run --tpu v5litepod-8 -- python3 train.py {option}"))),
    }
}

/// A whole line where the name of a program was to be.
fn is_line(first: &str) -> bool {
    first.trim().contains(char::is_whitespace) && !Path::new(first).exists()
}

/// What is wrong with a list of words whose first is a whole line, for the person who wrote it into a job file.
pub(super) fn line_in_list(run: Option<&Value>) -> Option<String> {
    let first = run?.as_array()?.first()?.as_str()?;
    is_line(first).then(|| {
        human::tame(&format!(
            "the first word of the list `run` is {}, and no program may be called so: write each word as an element of its own, or the \
             line alone as a text, for bash",
            quoted(first)
        ))
    })
}

/// A program on one line.
fn program(run: &Value) -> String {
    match run {
        Value::String(line) => line.clone(),
        Value::Array(words) => {
            words.iter().map(|word| quoted(word.as_str().unwrap_or_default())).collect::<Vec<_>>().join(" ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => run.to_string(),
    }
}

/// The job file, if there is one, and what follows it. A word with `=` is a file only if there is one of that name.
fn words(all: &[String]) -> (Option<&str>, &[String]) {
    match all.split_first() {
        Some((first, rest)) if !first.contains('=') || Path::new(first).is_file() => (Some(first), rest),
        _ => (None, all),
    }
}

/// The job file. Where the command line has a program, the file's does not run.
fn from_file(path: &Path, has_program: bool) -> Result<Map<String, Value>> {
    let name = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
    let cannot =
        |error: &(dyn std::error::Error + 'static)| Fault::input(format!("cannot read {name}")).caused_by(error);
    let bytes = read(path).map_err(|error| {
        let fault = cannot(&error);
        let kind = error.kind();
        if kind == std::io::ErrorKind::IsADirectory {
            let folder = human::tame(&path.to_string_lossy());
            fault.next(format!(
                "name a job file; the program's folder goes with --folder: rekindle run --folder {folder} --tpu TYPE -- COMMAND"
            ))
        } else if kind == std::io::ErrorKind::NotFound {
            fault.next(instead_of(path))
        } else {
            fault
        }
    })?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        // Of what comes through a pipe the end is not known.
        let size = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|known| known.len());
        let size = size.map_or_else(|| format!("more than {FILE_BYTES_MAX}"), |size| size.to_string());
        return Err(Fault::input(format!("{name} is too large for a job file"))
            .because(format!("it has {size} bytes, and at most {FILE_BYTES_MAX} are read"))
            .next(
                "take out of it what is no part of the job: data belongs into the folder of the program, or a bucket",
            ));
    }
    if let Some((what, starts)) = program_of(path) {
        return Err(Fault::input(format!("{name} is {what}, and no job file"))
            .next(format!("put it behind `--`: rekindle run --tpu TYPE -- {starts} {}", quoted(&name))));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| cannot(&error))?;
    let job = parse(text, &name)?;
    let unquoted = yaml::unquoted(text, &job, has_program);
    if unquoted.is_empty() {
        return Ok(job);
    }
    let fault = Fault::input(format!("{name} has a number or a truth where a job has text"));
    let told = unquoted.iter().map(|(field, written)| format!("{field}: {written} is to be text: write \"{written}\""));
    Err(told.fold(fault, Fault::because).next("put it in quotes: the program is given what stands between them"))
}

/// What a program in place of a job file is, by its name, and what starts it.
fn program_of(path: &Path) -> Option<(&'static str, &'static str)> {
    match path.extension()?.to_str()? {
        "py" => Some(("a Python program", "python3")),
        "sh" => Some(("a shell script", "bash")),
        _ => None,
    }
}

/// What to do where there is no such job file: the one that was meant, and what else the word may have been.
fn instead_of(path: &Path) -> String {
    const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];
    let is_job = |path: &Path| path.extension().is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known));
    let program = "a program goes behind `--`: rekindle run --tpu TYPE -- COMMAND";
    if !is_job(path) {
        return format!("name a job file that is there; {program}");
    }
    let folder = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let there: Vec<String> = entries
        .map(|e| e.path())
        .filter(|p| is_job(p))
        .filter_map(|p| Some(p.file_name()?.to_str()?.to_owned()))
        .collect();
    let name = path.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    match nearest(name, there.iter().map(String::as_str), NEAR) {
        Some(near) => format!("did you mean {}?", human::tame(&path.with_file_name(near).to_string_lossy())),
        None => format!("name one that is there; `rekindle fields` tells what stands in one; {program}"),
    }
}

/// Names of files less similar than this were not meant: their endings are alike already.
const NEAR: f64 = 0.85;

/// All of it, or one byte more than may be.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The fields of a job file.
fn parse(text: &str, name: &str) -> Result<Map<String, Value>> {
    let value = yaml::read(text, name).map_err(|wrong| {
        let next = match wrong.line {
            Some(line) => format!("mend line {line} of it; `rekindle fields` tells what stands in a job"),
            None => "mend it; `rekindle fields` tells what stands in a job".to_owned(),
        };
        wrong.causes.into_iter().fold(Fault::input(format!("{name} is no job file")), Fault::because).next(next)
    })?;
    let kind = kind_of(&value);
    if let Value::Object(job) = value {
        return Ok(job);
    }
    Err(Fault::input(format!("{name} is no job file"))
        .because(format!("it holds {kind} where a map of fields is expected"))
        .next("begin with `run:` and `tpu:`; `rekindle fields` tells what stands in a job"))
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
    put("run", (!options.command.is_empty()).then(|| given(&options.command)))?;
    put("tpu.accelerator", one_or_list(&options.tpu))?;
    put("tpu.zones", list(&options.zone))?;
    put("tpu.capacity", list(&options.capacity))?;
    put("tpu.slices", options.slices.map(Value::from))?;
    put("tpu.runtime_version", options.runtime_version.clone().map(Value::from))?;
    put("id", options.id.clone().map(Value::from))?;
    put("checkpoint", options.checkpoint.clone().map(Value::from))?;
    put("resume", options.resume.then(|| Value::from(true)))?;
    put("limits.idle", options.idle.clone().map(Value::from))?;
    put("setup", options.setup.clone().map(Value::from))?;
    put("priority", options.priority.map(Value::from))?;
    put("owner", options.owner.clone().map(Value::from))?;
    put("notes", options.notes.clone().map(Value::from))?;
    for variable in &options.env {
        let (name, value) = variable_of(variable)?;
        map_at(job, "env")?.insert(name, Value::from(value));
    }
    tag(job, &options.tag)
}

/// Adds these tags to those that are there.
fn tag(job: &mut Map<String, Value>, more: &[String]) -> Result<()> {
    if more.is_empty() {
        return Ok(());
    }
    let tags = job.entry("tags").or_insert_with(|| json!([]));
    let Value::Array(tags) = tags else {
        return Err(Fault::input("`tags` of the job file is no list").next("write `tags: [one, two]`"));
    };
    // `--tag 'one, two'` means two words.
    for tag in more.iter().map(|tag| tag.trim()) {
        if !tags.iter().any(|known| known == tag) {
            tags.push(Value::from(tag));
        }
    }
    Ok(())
}

/// The program behind `--`. One word with blanks in it is a line for bash, as for `exec`: no program is called so.
fn given(words: &[String]) -> Value {
    match words {
        [line] if line.contains(char::is_whitespace) => json!(line),
        words => json!(words),
    }
}

/// What to say of a first word behind `--` that has blanks and others behind it: no program is called so.
pub(super) fn mixed(words: &[String]) -> Option<String> {
    let [first, rest @ ..] = words else { return None };
    let is_mixed = !rest.is_empty() && is_line(first);
    is_mixed.then(|| {
        let rest = rest.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let line = quoted(&format!("{first} {rest}"));
        human::tame(&format!(
            "the first word behind `--` is {}, and no program may be called so: write -- {first} {rest} for a program \
             with arguments, or -- {line} for a line of bash",
            quoted(first)
        ))
    })
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
    let value = yaml::read(text, field).map_err(|wrong| {
        let fault = Fault::input(format!("--set {assignment}: no YAML"));
        let next = "the value is YAML: put quotes around a text with [, {, : or #";
        wrong.causes.into_iter().fold(fault, Fault::because).next(next)
    })?;
    // As `--tag` takes them.
    let tags = value.as_str().filter(|_| field == "tags");
    let value = tags.map_or_else(|| value.clone(), |tags| json!(tags.split(',').map(str::trim).collect::<Vec<_>>()));
    // A variable of the program is text, as it stands there: 1e3 and 0.10 as well.
    let is_variable = field.starts_with("env.") && (value.is_number() || value.is_boolean());
    place(job, field, if is_variable { Value::from(text.trim()) } else { value })
}

/// Puts a value at `a.b.c`, making the maps on the way.
fn place(job: &mut Map<String, Value>, field: &str, value: Value) -> Result<()> {
    let Some((first, rest)) = field.split_once('.') else {
        job.insert(field.to_owned(), value);
        return Ok(());
    };
    place(map_at(job, first)?, rest, value)
}

/// The map in a field; an empty one where there is none.
fn map_at<'a>(job: &'a mut Map<String, Value>, field: &str) -> Result<&'a mut Map<String, Value>> {
    let value = job.entry(field).or_insert_with(|| json!({}));
    let text = value.as_str().map(str::to_owned);
    value.as_object_mut().ok_or_else(|| not_a_map(field, text.as_deref()))
}

/// `text`: what stands there, if it is a text.
fn not_a_map(field: &str, text: Option<&str>) -> Fault {
    let fault = Fault::input(format!("`{field}` of the job file is no map"));
    match text {
        Some(accelerator) if field == "tpu" => fault.because(format!("it is the text {accelerator}")).next(format!(
            "write `tpu: {{accelerator: {accelerator}}}`; `rekindle fields tpu` tells what else stands there"
        )),
        _ => fault.next(format!("write `{field}:` with fields below it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_line_that_stands_as_a_word_in_a_list_is_told() {
        let told = |run: Value| line_in_list(Some(&run)).is_some();
        assert!(told(json!(["python3 train.py"])) && told(json!(["echo a; sleep 1", "x"])));
        assert!(
            !told(json!(["python3", "train.py a"])) && !told(json!("python3 train.py")) && line_in_list(None).is_none()
        );
    }

    #[test]
    fn options_alone_make_a_job() {
        let options = Run {
            tpu: words(&["v5litepod-16"]),
            zone: words(&["us-west4-a"]),
            env: words(&["LR=a=b"]),
            tag: words(&["t"]),
            priority: Some(60),
            checkpoint: Some("gs://b/old".into()),
            resume: true,
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
            "checkpoint": "gs://b/old",
            "resume": true,
            "limits": {"total": "2h"},
            "budgets": {"user_failures": 3},
        });
        assert_eq!(Value::Object(message(&options, &Project::default()).unwrap()), want);
    }

    #[test]
    fn a_comma_parts_two_tags_wherever_they_are_written() {
        for (tag, set) in
            [("one", "tags=one, two"), ("one", "tags=[one, two]"), ("one, two", "notes=x"), ("two", "tags=one")]
        {
            let tag = tag.split(',').map(str::to_owned).collect();
            let options = Run { command: words(&["a"]), tag, set: words(&[set]), ..Run::default() };
            let job = message(&options, &Project::default()).unwrap();
            assert_eq!(job["tags"], json!(["one", "two"]), "{set}");
        }
    }

    #[test]
    fn one_word_with_blanks_is_a_line_for_bash() {
        let run = |command: &[&str]| {
            let options = Run { command: words(command), ..Run::default() };
            message(&options, &Project::default()).unwrap().remove("run").unwrap()
        };
        assert_eq!(run(&["echo a b $X"]), json!("echo a b $X"));
        assert_eq!(run(&["nproc"]), json!(["nproc"]));
        assert_eq!(run(&["python3", "a b.py"]), json!(["python3", "a b.py"]));
    }

    #[test]
    fn a_line_and_words_behind_it_are_told_apart() {
        let text = mixed(&words(&["echo hi", "--json"])).unwrap();
        assert!(text.contains("write -- echo hi --json for a program"), "{text}");
        assert!(text.contains("or -- 'echo hi --json' for a line of bash"), "{text}");
        for good in [&["echo hi"][..], &["echo", "a b"], &[]] {
            assert_eq!(mixed(&words(good)), None);
        }
    }

    #[test]
    fn a_variable_that_is_set_is_text_as_it_stands_there() {
        let set = words(&["env.A=1", "env.B=0.10", "env.C=true", "env.D='2'", "env.E=x y", "priority=60"]);
        let job = message(&Run { set, command: words(&["a"]), ..Run::default() }, &Project::default()).unwrap();
        assert_eq!(job["env"], json!({"A": "1", "B": "0.10", "C": "true", "D": "2", "E": "x y"}));
        assert_eq!(job["priority"], 60);
    }

    #[test]
    fn a_program_in_place_of_a_job_file_is_sent_behind_the_dashes() {
        let folder = tempfile::tempdir().unwrap();
        for (name, said) in [("train.py", "is a Python program"), ("go.sh", "is a shell script")] {
            let path = folder.path().join(name);
            std::fs::write(&path, "import os\nx = {'a': [1}\n").unwrap();
            let fault = from_file(&path, false).unwrap_err();
            let text = anstream::adapter::strip_str(&fault.text()).to_string();
            assert!(text.contains(said) && text.contains("put it behind `--`"), "{text}");
            assert_eq!(text.lines().count(), 2, "{text}");
        }
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
        assert!(message(&Run::default(), &Project::default()).unwrap_err().text().contains("--"));
        let no_map = Run { tpu: words(&["v6e-8"]), command: words(&["a"]), ..Run::default() };
        let mut job = parse("tpu: v6e-8\n", "job.yaml").unwrap();
        assert!(overlay(&mut job, &no_map).unwrap_err().text().contains("tpu"));
    }

    #[test]
    fn idle_of_up_wins_over_a_preset_and_loses_to_set() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("config.toml");
        std::fs::write(&config, "[presets.box]\nlimits = {idle = \"30m\", start = \"1h\"}\n").unwrap();
        let project = Project::load(folder.path(), Some(&config)).unwrap();
        let limits = |idle: Option<&str>, set: &[&str]| {
            let idle = idle.map(str::to_owned);
            let (preset, set) = (words(&["box"]), words(set));
            let options = Run { preset, idle, set, is_workspace: true, ..Run::default() };
            message(&options, &project).unwrap()["limits"].clone()
        };
        assert_eq!(limits(None, &[]), json!({"idle": "30m", "start": "1h"}));
        assert_eq!(limits(Some("2h"), &[]), json!({"idle": "2h", "start": "1h"}));
        assert_eq!(limits(Some("2h"), &["limits.idle=5m"]), json!({"idle": "5m", "start": "1h"}));
    }

    #[test]
    fn a_file_that_is_too_large_is_refused_and_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("job.yaml");
        let filled = |bytes: usize| format!("#{}\nrun: [a]\n", "é".repeat((bytes - 11) / 2));
        std::fs::write(&file, filled(1024 * 1024 - 1)).unwrap();
        assert_eq!(
            from_file(&file, false).unwrap()["run"],
            json!(["a"]),
            "what is within the bound is read to its end"
        );
        std::fs::write(&file, filled(2 * 1024 * 1024 + 1)).unwrap();
        let text = from_file(&file, false).unwrap_err().text();
        assert!(text.contains("job.yaml is too large for a job file"), "{text}");
        assert!(text.contains("it has 2097153 bytes, and at most 1048576 are read"), "{text}");
        assert!(
            text.contains(
                "take out of it what is no part of the job: data belongs into the folder of the program, or a bucket"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_number_that_is_to_be_text_is_told_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("job.yaml");
        std::fs::write(&file, "run: [python3, 010]\nenv: {A: 1}\n").unwrap();
        let text = from_file(&file, false).unwrap_err().text();
        for said in ["run[1]: 010 is to be text: write \"010\"", "env.A: 1 is to be text: write \"1\"", "in quotes"] {
            assert!(text.contains(said), "{text}");
        }
    }

    #[test]
    fn words_behind_the_file_become_arguments_of_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("job=1.yaml");
        std::fs::write(&file, "run: python3 train.py\ntpu: {accelerator: v4-8, slices: 2}\n").unwrap();
        let none = folder.path().join("none.toml");
        let project = Project::load(folder.path(), Some(&none)).unwrap();
        let options = Run {
            words: vec![file.display().to_string(), "lr=0.1".into(), "config.name=it's a=b".into()],
            preset: words(&["spot-v6e", "rerun"]),
            ..Run::default()
        };
        let job = message(&options, &project).unwrap();
        let want = r"python3 train.py --config.training.learning_rate=0.1 '--config.name=it'\''s a=b'";
        assert_eq!(job["run"], want);
        assert_eq!(job["tpu"], json!({"accelerator": "v6e-8", "slices": 2, "capacity": ["spot"]}));
        assert_eq!(job["recovery"], json!({"preset": "rerun"}));
        let options = Run { words: words(&["lr=0.1"]), command: words(&["a"]), ..Run::default() };
        let job = message(&options, &project).unwrap();
        assert_eq!(job["run"], json!(["a", "--config.training.learning_rate=0.1"]));
    }
}
