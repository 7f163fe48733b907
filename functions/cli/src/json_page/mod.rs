//! `JSON.md` is made here, from the types, from the commands that there are, and from their transcripts. To take over what
//! has changed: `REKINDLE_BLESS=1 cargo test -p rekindle json_page`, and read the diff.

mod sections;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use serde_json::Value;

use crate::args::Cli;
use sections::{Form, SECTIONS, Section};
use shapes::{Kind, Shape, Type};

/// Where the types are, below the folder of the workspace.
const SOURCES: &[(&str, &[&str])] = &[
    (
        "functions/cli/src/answers.rs",
        &[
            "Jobs",
            "Screen",
            "Sending",
            "Login",
            "WaitEnd",
            "Versions",
            "ServerVersion",
            "Fields",
            "FieldLine",
            "Settings",
            "SettingsFile",
            "LogLine",
            "ExecLine",
            "ExecEnd",
            "Synced",
            "Address",
            "CheckLine",
            "Script",
            "ManPage",
            "ManPages",
            "Places",
            "Demonstration",
            "FaultLine",
        ],
    ),
    (
        "shared/wire/src/v1.rs",
        &[
            "JobView",
            "ResourceView",
            "CountersView",
            "ProgressView",
            "ChipHoursView",
            "EndView",
            "CandidateView",
            "CatalogEntry",
            "CatalogZone",
            "Catalog",
            "FreezeView",
            "WebhookSecretView",
            "ExplainView",
        ],
    ),
    ("shared/wire/src/v1/fleet.rs", &["FleetEntry", "IdleView", "Fleet"]),
    ("shared/wire/src/v1/space.rs", &["ExecWorkerView", "OutputList", "OutputView"]),
    ("shared/wire/src/v1/letters.rs", &["DeadLetterView", "DeadLetterList"]),
    ("shared/wire/src/seeing.rs", &["DigestView"]),
    ("shared/wire/src/account.rs", &["AccountView", "AccountRow", "SplitView"]),
    ("shared/core/src/account.rs", &["Dimension"]),
    ("shared/core/src/classify/case.rs", &["Report"]),
    ("shared/core/src/classify/evidence.rs", &["EvidenceLine"]),
    ("shared/core/src/digest.rs", &["JobDigest"]),
    ("shared/core/src/exec.rs", &["ExecExit"]),
    ("shared/core/src/failure.rs", &["FailureKind"]),
    ("shared/core/src/history.rs", &["HistoryEntry", "AttemptEnd"]),
    ("shared/core/src/idle.rs", &["IdleCause"]),
    ("shared/core/src/job.rs", &["Desired"]),
    ("shared/core/src/job/phase.rs", &["Phase", "Outcome"]),
    ("shared/core/src/reason.rs", &["Reason"]),
    ("shared/core/src/spec.rs", &["CapacityKind"]),
];

/// An enum whose variants are objects.
const EFFECT: &str = "
/// An act on the world that was decided.
struct Effect {
    /// `create_generation`, `delete_generation`, `publish_events`.
    effect: String,
    /// The generation; not with `publish_events`.
    #[serde(skip_serializing_if)]
    generation: u32,
}";

/// A moment in the place of those that transcripts leave out.
const MOMENT: &str = "2026-11-28T12:00:00.123456789Z";

const HEAD: &str = "\
# What `--json` prints

<!-- Made by a test: REKINDLE_BLESS=1 cargo test -p rekindle json_page -->

Every command takes `--json`. Its answer then goes to stdout as JSON, each value on a line of its own; on a terminal
a single value is indented. Talk and warnings stay on stderr and are for people. Fields are added, never renamed,
dropped or given another meaning: ignore those that you do not know.

A *time* is a moment in UTC by RFC 3339, such as `2026-11-28T12:00:00.5Z`; a *day* is `2026-11-28`. Units stand in the
names (`_secs`, `_ms`, `_usd`, `_hours`, `_bytes`) or in the text. A field without a value is `null`; one that may be
missing altogether says so.
";

const FAULTS: &str = "
## When it fails

The last line of stderr is a [FaultLine](#faultline), and the exit code, with or without `--json`, tells why. `exec`
ends with 0 if the command did so on every worker, else with the highest code; `ssh` ends as `gcloud` does.

| Exit code | Meaning |
|---|---|
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn all_shapes() -> BTreeMap<String, Shape> {
    let mut shapes = shapes::read(EFFECT, &["Effect"]);
    for (file, names) in SOURCES {
        let source = std::fs::read_to_string(root().join(file)).unwrap();
        shapes.extend(shapes::read(&source, names));
    }
    shapes
}

/// Every exit code and its meaning.
fn exits() -> Vec<(String, String)> {
    let source = std::fs::read_to_string(root().join("functions/cli/src/exit.rs")).unwrap();
    let shapes = shapes::read(&source.replace("#[repr(u8)]", "#[serde(rename_all = \"snake_case\")]"), &["Exit"]);
    let Kind::Words(words) = &shapes["Exit"].kind else { panic!("{shapes:?}") };
    let code = |word: &str| word.split_once(" = ").unwrap().1.to_owned();
    words.iter().map(|(word, meaning)| (code(word), meaning.clone())).collect()
}

#[test]
fn exit_codes_are_in_the_help_and_all_of_one_type() {
    let help = Cli::command().render_long_help().to_string();
    let told = help.split_once("Exit codes:").unwrap().1;
    let codes: Vec<String> = exits().into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, ["0", "1", "2", "3", "4", "130", "141"]);
    // What a signal or a closed pipe brings is the shell's own word.
    for code in codes.iter().filter(|code| code.len() == 1) {
        assert!(told.contains(&format!("{code} ")), "{code}: {told}");
    }
    // A number that is no `Exit` is that of another program.
    let raw: Vec<String> = sources()
        .into_iter()
        .filter(|file| {
            let source = std::fs::read_to_string(root().join("functions/cli/src").join(file)).unwrap();
            source.contains("ExitCode::from(")
        })
        .collect();
    assert_eq!(raw, ["commands/exec.rs", "commands/ssh.rs"]);
}

/// The files of the program, without this page.
fn sources() -> Vec<String> {
    let base = root().join("functions/cli/src");
    let (mut open, mut files) = (vec![base.clone()], Vec::new());
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("json_page") {
                open.push(path);
            } else if path.is_file() {
                files.push(path.strip_prefix(&base).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    files.sort();
    files
}

/// What each command of a transcript printed on stdout.
fn examples() -> BTreeMap<String, String> {
    let mut examples: BTreeMap<String, String> = BTreeMap::new();
    for folder in ["transcripts", "examples"] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let mut command = String::new();
            for line in text.lines() {
                if let Some(next) = line.strip_prefix("$ ") {
                    next.clone_into(&mut command);
                    // The same may be in several transcripts.
                    examples.remove(next);
                } else if !line.is_empty() && !line.starts_with("! ") && !line.starts_with("? ") {
                    let said = examples.entry(command.clone()).or_default();
                    let _ = writeln!(said, "{}", line.replace("MOMENT", MOMENT));
                }
            }
        }
    }
    examples
}

/// What of an example is not as its section says.
fn wrong(section: &Section, example: &str, shapes: &BTreeMap<String, Shape>) -> Vec<String> {
    let wanted: Vec<Type> = match section.form {
        Form::One(name) => vec![Type::Shape(name.to_owned())],
        Form::Lines(names) => names.iter().map(|name| Type::Shape((*name).to_owned())).collect(),
        Form::Other => vec![Type::Any],
    };
    if is_cut(section) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for line in example.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{}: {error}", section.name));
        let tries: Vec<Vec<String>> =
            wanted.iter().map(|of| shapes::faults(shapes, section.name, of, &value)).collect();
        if tries.iter().all(|faults| !faults.is_empty()) {
            wrong.extend(tries.into_iter().flatten());
        }
    }
    wrong
}

fn is_cut(section: &Section) -> bool {
    section.example.contains("| head -c")
}

/// A single answer is indented, unless it is a job: one of those is enough.
fn shown(section: &Section, example: &str) -> String {
    let is_single = matches!(section.form, Form::One(_) | Form::Other) && !is_cut(section);
    let is_short = matches!(section.form, Form::One("JobView")) && section.name != "show";
    if !is_single || is_short {
        return example.to_owned();
    }
    let value: Value = serde_json::from_str(example).unwrap();
    format!("{}\n", serde_json::to_string_pretty(&value).unwrap())
}

fn link(name: &str) -> String {
    Type::Shape(name.to_owned()).words()
}

fn command(section: &Section, example: Option<&String>) -> String {
    let mut out = format!("\n### {}\n\n", section.name);
    let form = match section.form {
        Form::One(name) => format!("One {}. ", link(name)),
        Form::Lines([one]) => format!("A line for each {}. ", link(one)),
        Form::Lines(names) => {
            let links: Vec<String> = names.iter().map(|name| link(name)).collect();
            format!("A line for each {}. ", links.join(" and "))
        }
        Form::Other => String::new(),
    };
    let _ = writeln!(out, "{}", format!("{form}{}", section.says).trim_end());
    if let Some(example) = example {
        let begin = format!("\n```\n$ {}\n{}", section.example, shown(section, example));
        let _ = writeln!(out, "{}\n```", begin.trim_end());
    }
    out
}

fn shape(name: &str, of: &Shape) -> String {
    let mut out = format!("\n### {name}\n\n{}\n\n", of.doc);
    match &of.kind {
        Kind::Fields(fields) => {
            out.push_str("| Field | Is | Meaning |\n|---|---|---|\n");
            for field in fields {
                let absent = if field.may_be_absent { "; may be missing" } else { "" };
                let _ = writeln!(out, "| `{}` | {}{absent} | {} |", field.name, field.of.words(), field.doc);
            }
        }
        Kind::Words(words) => {
            out.push_str("| Word | Meaning |\n|---|---|\n");
            for (word, doc) in words {
                let _ = writeln!(out, "| `{word}` | {doc} |");
            }
        }
    }
    out
}

/// The types that can be reached from the commands, in the order of their names.
fn reached(shapes: &BTreeMap<String, Shape>) -> BTreeSet<String> {
    let mut open: Vec<String> = vec!["FaultLine".to_owned()];
    for section in SECTIONS {
        match section.form {
            Form::One(name) => open.push(name.to_owned()),
            Form::Lines(names) => open.extend(names.iter().map(|name| (*name).to_owned())),
            Form::Other => {}
        }
    }
    let mut reached = BTreeSet::new();
    while let Some(name) = open.pop() {
        let shape = shapes.get(&name).unwrap_or_else(|| panic!("where is {name}?"));
        if reached.insert(name)
            && let Kind::Fields(fields) = &shape.kind
        {
            open.extend(fields.iter().filter_map(|field| field.of.shape().map(str::to_owned)));
        }
    }
    reached
}

#[test]
fn json_page_tells_every_command_and_is_as_the_transcripts_and_types_are() {
    let commands: BTreeSet<String> = Cli::command().get_subcommands().map(|of| of.get_name().to_owned()).collect();
    let told: BTreeSet<String> =
        SECTIONS.iter().filter_map(|section| section.name.split(' ').next().map(str::to_owned)).collect();
    assert_eq!(commands, told, "each command has a section");
    let (shapes, examples) = (all_shapes(), examples());
    let reached = reached(&shapes);
    let unused: Vec<&String> = shapes.keys().filter(|name| !reached.contains(*name)).collect();
    assert!(unused.is_empty(), "no command prints {unused:?}");

    let mut page = format!("{HEAD}{FAULTS}");
    for (code, meaning) in exits() {
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    page.push_str("\n## Commands\n");
    let mut faults = Vec::new();
    for section in SECTIONS {
        let example = examples.get(section.example);
        if example.is_none() && !section.example.is_empty() {
            faults.push(format!("no transcript holds `{}`", section.example));
        }
        faults.extend(example.iter().flat_map(|example| wrong(section, example, &shapes)));
        page.push_str(&command(section, example));
    }
    page.push_str("\n## Types\n");
    for name in &reached {
        page.push_str(&shape(name, &shapes[name]));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("JSON.md");
    if std::env::var_os("REKINDLE_BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let is = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(is == page, "JSON.md is out of date; REKINDLE_BLESS=1 cargo test -p rekindle json_page writes it");
}
