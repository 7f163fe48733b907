//! The command line from outside: the real binary against a server that answers as the API does.
//!
//! Each file in `transcripts/` holds commands and everything they print; it is run again and compared. To take over
//! changed output: `REKINDLE_BLESS=1 cargo test -p rekindle`, and read the diff.

#![expect(clippy::unwrap_used, reason = "tests")]

mod asked;
mod bundles;
mod demo;
mod doctor;
mod faults;
mod first;
mod server;
mod terminal;

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

/// Runs every transcript; the fake server lives as long as one of them.
#[tokio::test]
async fn transcripts_are_what_the_commands_print() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 5, "{folder:?} holds {files:?}");
    let mut different = Vec::new();
    for file in files {
        let want = std::fs::read_to_string(&file).unwrap();
        let server = server::start().await;
        let home = project();
        let folder = home.path().join("project");
        let mut got = String::new();
        for line in want.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let output = rekindle_in(&server, &folder, line).await;
            let text = shown(&output, &server).replace(home.path().to_str().unwrap(), "/home/ada");
            write!(got, "$ {line}\n{text}").unwrap();
        }
        assert!(!got.is_empty(), "{file:?} holds no command");
        faults_say_what_to_do(&got);
        if got == want {
            continue;
        }
        if std::env::var_os("REKINDLE_BLESS").is_some() {
            std::fs::write(&file, &got).unwrap();
        } else {
            different.push(format!("--- {}\n{want}+++ now\n{got}", file.display()));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Every fault that is printed ends with the next step.
fn faults_say_what_to_do(transcript: &str) {
    for block in transcript.split("\n$ ").filter(|block| block.contains("! error:")) {
        assert!(block.contains("\n! next: "), "no next step: {block}");
    }
}

/// What has no answer for machines, or is compared elsewhere.
const NO_JSON: [&str; 4] = [
    // The help is a text.
    "help", // `bundles`, `demo` and `doctor` beside this file read theirs.
    "dev", "demo", "doctor",
];

/// The commands that a help lists.
fn commands(help: &str) -> Vec<&str> {
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    // What goes on in a second line begins further to the right.
    let names = commands.filter_map(|line| line.strip_prefix("  ").filter(|name| !name.starts_with(' ')));
    names.filter_map(|line| line.split_whitespace().next()).collect()
}

#[tokio::test]
async fn every_command_has_a_transcript_of_its_json() {
    let server = server::start().await;
    let help = String::from_utf8(rekindle(&server, "rekindle --help").await.stdout).unwrap();
    let commands = commands(&help);
    assert!(commands.len() > 30 && commands.contains(&"ps"), "{commands:?}");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let files = std::fs::read_dir(folder).unwrap();
    let all: String = files.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect();
    let is_shown = |command: &str| {
        let begin = format!("$ rekindle {command} ");
        all.lines().any(|line| line.starts_with(&begin) && line.contains(" --json"))
    };
    let missing: Vec<&&str> = commands.iter().filter(|c| !NO_JSON.contains(*c) && !is_shown(c)).collect();
    assert!(missing.is_empty(), "no transcript shows `--json` of {missing:?}");
}

/// Examples whose values differ from run to run have the fields of what is really printed.
fn has_the_fields_of_its_example(name: &str, line: &serde_json::Value) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/examples/{name}.txt"));
    let text = std::fs::read_to_string(file).unwrap();
    let fields = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut is_there = false;
    for example in text.lines().filter(|line| line.starts_with('{')) {
        assert_eq!(fields(&serde_json::from_str(example).unwrap()), fields(line), "{name}");
        is_there = true;
    }
    assert!(is_there, "{name} has no example");
}

/// A folder with a copy of `project`, the same on every machine.
fn project() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("project")).unwrap();
    for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/project")).unwrap() {
        let path = entry.unwrap().path();
        let to = home.path().join("project").join(path.file_name().unwrap());
        std::fs::copy(&path, &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o644)).unwrap();
        // What goes to a workspace keeps its time.
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        std::fs::File::options().write(true).open(&to).unwrap().set_modified(at).unwrap();
    }
    home
}

async fn rekindle(server: &server::Server, line: &str) -> Output {
    rekindle_in(server, &project().path().join("project"), line).await
}

/// Runs one line of a transcript. `REKINDLE_SERVER` points to the fake; nothing of this machine's settings counts.
async fn rekindle_in(server: &server::Server, folder: &Path, line: &str) -> Output {
    let line = line.strip_prefix("rekindle").unwrap_or_else(|| panic!("{line} is no command of ours"));
    shell(server, folder, &format!("exec \"$REKINDLE\"{line}")).await
}

/// Runs a line of bash in which `$REKINDLE` is the binary.
async fn shell(server: &server::Server, folder: &Path, script: &str) -> Output {
    let run = tokio::process::Command::new("bash")
        .args(["-c", script])
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("REKINDLE", env!("CARGO_BIN_EXE_rekindle"))
        .env("REKINDLE_SERVER", server.url())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(std::time::Duration::from_mins(1), run).await.expect("the command hangs").unwrap()
}

/// stdout as it is, stderr with a mark at each line, the exit code if it is not 0.
fn shown(output: &Output, server: &server::Server) -> String {
    let mut text = String::from_utf8(output.stdout.clone()).unwrap();
    for line in String::from_utf8(output.stderr.clone()).unwrap().lines() {
        writeln!(text, "! {line}").unwrap();
    }
    match output.status.code() {
        Some(0) => {}
        code => writeln!(text, "? {code:?}").unwrap(),
    }
    // Moments that are so long ago as the server says; those that are written down have no fractions.
    let moment = regex::Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z").unwrap();
    let text = text.replace(&server.url(), "http://SERVER");
    moment.replace_all(&text, "MOMENT").into_owned() + "\n"
}

#[tokio::test]
async fn an_answer_of_five_thousand_jobs_is_read_page_by_page() {
    let server = server::start().await;
    let output = rekindle(&server, "rekindle ps --tag many --all --json").await;
    let jobs: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let ids: Vec<&str> = jobs["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 5000);
    assert_eq!((ids[0], ids[4999]), ("many-0", "many-4999"));
    let output = rekindle(&server, "rekindle ps --tag many --all").await;
    let table = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines.len() == 5001 && lines[1].starts_with("many-0 ") && lines[5000].starts_with("many-4999 "), "{table}");
    // What is read ahead is not more than is asked for.
    let output = rekindle(&server, "rekindle ps --tag many -n 1200").await;
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.lines().count() == 1201 && table.lines().last().unwrap().starts_with("many-1199 "), "{table}");
    let pages: Vec<String> = ["0 500", "500 500", "1000 200"].map(str::to_owned).to_vec();
    assert_eq!(server.pages()[20..], pages);
}

#[tokio::test]
async fn a_follow_over_attempts_reads_each_page_of_the_history_once() {
    let server = server::start().await;
    let output = rekindle(&server, "rekindle logs moved -f").await;
    let told = String::from_utf8(output.stderr).unwrap();
    let ends: Vec<&str> = told.lines().filter(|line| line.contains("ended: preempted")).collect();
    assert_eq!(ends.len(), 3, "{told}");
    assert!(ends[2].contains("attempt 3 ended: preempted: Taken at step 3."), "{told}");
    assert_eq!(server.pages(), ["", "10", "20"]);
}

#[tokio::test]
async fn a_follow_tells_the_end_of_a_silent_attempt_and_what_is_waited_for_before_anything_else_comes() {
    let server = server::start().await;
    let output = rekindle(&server, "rekindle logs silent -f").await;
    let told = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[0], "attempt 1 ended: preempted: The provider took the slice back.", "{told}");
    assert!(lines[1].starts_with("silent waits for a sign that the slice was lost, until "), "{told}");
    assert!(lines[2].starts_with("silent recovering: ") && lines.len() == 3, "each once: {told}");
}

#[tokio::test]
async fn a_refused_token_is_asked_for_again_once() {
    let server = server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let script = format!("echo x >>{0}/runs; echo token-$(wc -l <{0}/runs)", folder.path().display());
    std::fs::write(&config, format!("token_command = [\"sh\", \"-c\", {script:?}]\n")).unwrap();
    let output = rekindle(&server, &format!("rekindle --config {} show guarded", config.display())).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.seen("authorization"), ["Bearer token-1", "Bearer token-2"]);
}

#[tokio::test]
async fn a_submit_carries_the_job_and_a_key_of_its_own() {
    let server = server::start().await;
    for _ in 0..2 {
        let output = rekindle(&server, "rekindle run job.yaml --priority 60 --env LR=0.1").await;
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "train-1\n");
    }
    let bodies = server.bodies();
    assert_eq!(bodies[0], bodies[1]);
    assert_eq!(bodies[0]["env"], serde_json::json!({"LR": "0.1", "SEED": "1"}));
    assert_eq!(bodies[0]["priority"], 60);
    let keys = server.seen("idempotency-key");
    assert!(keys.len() == 2 && keys[0] != keys[1], "{keys:?}");
}

#[tokio::test]
async fn a_reader_that_leaves_ends_the_command_without_a_word() {
    let server = server::start().await;
    let output = rekindle(&server, "rekindle catalog --builtin | head -1 >&2; exit ${PIPESTATUS[0]}").await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!text.contains("error"), "{text}");
}
