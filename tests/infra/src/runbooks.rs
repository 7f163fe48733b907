//! The commands of the runbooks and READMEs: each is one that its program has, with flags that it has.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use regex::Regex;
use serde_json::Value;

use crate::files::{infra, root, text};
use crate::recorder::Recorder;
use crate::tools::skip;

/// Every page below `infra/`.
fn pages() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![infra()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.file_name().unwrap().to_string_lossy().starts_with('.') {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The lines of the shell blocks of a page.
fn lines(page: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == "```sh";
        } else if inside && !line.starts_with('#') && !line.trim().is_empty() {
            found.push(line.to_owned());
        }
    }
    found
}

fn all_lines() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for page in pages() {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        found.extend(lines(&text(&name)).into_iter().map(|l| (name.clone(), l)));
    }
    found
}

/// The commands of a line, as words: those inside `$(…)` too.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut rest = line.to_owned();
    while let Some(start) = rest.find("$(") {
        let mut depth = 0;
        let end = rest[start + 1..].char_indices().find_map(|(at, c)| {
            depth += i32::from(c == '(') - i32::from(c == ')');
            (depth == 0).then_some(start + 1 + at)
        });
        let end = end.unwrap_or_else(|| panic!("no end of $( in {line}"));
        all.extend(commands(&rest[start + 2..end]));
        rest.replace_range(start..=end, "X");
    }
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in rest.chars().chain([';']) {
        match (quote, c) {
            (Some(q), _) if c == q => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, ' ' | ';' | '|' | '&') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                if c != ' ' && !words.is_empty() {
                    all.push(std::mem::take(&mut words));
                }
            }
            (Some(_) | None, _) => word.push(c),
        }
    }
    let keyword = |w: &String| w == "do" || w == "export" || w.contains('=') && !w.starts_with('-');
    all.into_iter()
        .map(|words| words.into_iter().skip_while(keyword).collect())
        .filter(|w: &Vec<String>| !w.is_empty())
        .collect()
}

/// gcloud's own tree of commands and flags, as its completion uses it. `None`: there is no gcloud.
fn tree() -> Option<Value> {
    let info = Command::new("gcloud").args(["info", "--format=value(installation.sdk_root)"]).output().ok()?;
    let home = String::from_utf8(info.stdout).ok()?;
    let program = "import sys, json; sys.path.insert(0, sys.argv[1]); import gcloud_completions as g; json.dump(g.STATIC_COMPLETION_CLI_TREE, sys.stdout)";
    let folder = format!("{}/data/cli", home.trim());
    let out = Command::new("python3").args(["-B", "-c", program, &folder]).output().ok()?;
    serde_json::from_slice(&out.stdout).ok()
}

fn check_gcloud(tree: &Value, words: &[String]) -> Result<(), String> {
    let mut node = tree;
    let mut flags: BTreeSet<&str> = BTreeSet::from(["--project", "--quiet", "--format", "--filter", "--limit"]);
    for word in &words[1..] {
        flags.extend(node["flags"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
        if let Some(flag) = word.split('=').next().filter(|f| f.starts_with("--")) {
            let positive = flag.replacen("--no-", "--", 1);
            if !flags.contains(flag) && !flags.contains(positive.as_str()) {
                return Err(format!("no flag {flag}"));
            }
        } else if let Some(next) = node["commands"].get(word) {
            node = next;
        } else if node["commands"].as_object().is_some_and(|c| !c.is_empty()) {
            return Err(format!("no command {word}"));
        }
    }
    if node["commands"].as_object().is_some_and(|c| !c.is_empty()) { Err("is no whole command".into()) } else { Ok(()) }
}

#[test]
fn every_gcloud_command_and_flag_is_gclouds() {
    let Some(tree) = tree() else { return skip("gcloud is not installed") };
    let mut count = 0;
    let mut faults = Vec::new();
    for (page, line) in all_lines() {
        for words in commands(&line).into_iter().filter(|w| w[0] == "gcloud") {
            count += 1;
            if let Err(why) = check_gcloud(&tree, &words) {
                faults.push(format!("{page}: {}: {why}", words.join(" ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 40, "{count}");
    let wrong = ["gcloud pubsub topics publsh t", "gcloud pubsub topics publish t --mesage=x", "gcloud pubsub topics"];
    for line in wrong {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert!(check_gcloud(&tree, &words).is_err(), "{line}");
    }
}

#[test]
fn every_other_command_is_there() {
    let args = text("functions/cli/src/args.rs") + &text("functions/cli/src/args/seeing.rs");
    let variant = Regex::new(r"(?m)^    ([A-Z][a-z]+)(?:\(|,$)").unwrap();
    let known: BTreeSet<String> = variant.captures_iter(&args).map(|c| c[1].to_lowercase()).collect();
    let mut faults = Vec::new();
    for (page, line) in all_lines() {
        for words in commands(&line) {
            let is_there = match words[0].as_str() {
                "rekindle" => {
                    let own: Vec<&String> = words.iter().take_while(|w| *w != "--").collect();
                    let flag = |w: &String| {
                        let name = w.trim_start_matches("--").split('=').next().unwrap();
                        args.contains(&format!("{}:", name.replace('-', "_")))
                            || args.contains(&format!("long = \"{name}\""))
                    };
                    known.contains(&words[1]) && own.iter().filter(|w| w.starts_with("--")).all(|w| flag(w))
                }
                "terraform" => {
                    let folder = words[1].strip_prefix("-chdir=").expect("always with -chdir");
                    root().join(folder).is_dir()
                        && ["init", "plan", "apply", "output", "destroy"].contains(&words[2].as_str())
                }
                "gcloud" | "cat" | "cp" | "date" | "for" | "printf" | "done" => true,
                other => other.starts_with("infra/") && root().join(other).is_file(),
            };
            if !is_there {
                faults.push(format!("{page}: {}", words.join(" ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn links_and_names_of_resources_are_right() {
    let link = Regex::new(r"\]\(([^)#:]+)\)").unwrap();
    for page in pages() {
        let source = std::fs::read_to_string(&page).unwrap();
        for found in link.captures_iter(&source) {
            let to = page.parent().unwrap().join(&found[1]);
            assert!(to.exists(), "{}: {}", page.display(), &found[1]);
        }
    }
    let plan = crate::plan::example();
    let names: BTreeSet<String> =
        plan.resources.iter().filter_map(|r| r.values["name"].as_str().map(str::to_owned)).collect();
    let name = Regex::new(r"\brekindle-(?:jobs|hints|events|tpu-events|dead-letter|tick|wakeups|api|reconcile)[a-z-]*")
        .unwrap();
    for (page, line) in all_lines() {
        for found in name.find_iter(&line) {
            // Revisions carry a number.
            let is_revision = line[found.end()..].starts_with(|c: char| c.is_ascii_digit());
            assert!(is_revision || names.contains(found.as_str()), "{page}: nothing is named {}", found.as_str());
        }
    }
}

#[test]
fn a_first_job_takes_seven_commands() {
    let page = text("infra/envs/example/README.md");
    let numbered = Regex::new(r"(?m)^# (\d)\. (\w+)").unwrap();
    let steps: Vec<String> = numbered.captures_iter(&page).map(|c| c[2].to_owned()).collect();
    assert_eq!(steps, ["project", "bootstrap", "publish", "apply", "doctor", "run", "logs"]);
    assert_eq!(lines(&page).len(), steps.len(), "one line each");
}

/// The services whose endpoint gcloud can be told, and that a recorder can stand in for.
const RECORDED: &[&str] = &["pubsub", "scheduler", "tasks", "eventarc"];

#[test]
fn commands_for_pubsub_scheduler_tasks_and_eventarc_are_sent() {
    if tree().is_none() {
        return skip("gcloud is not installed");
    }
    let lines: BTreeSet<String> = all_lines()
        .into_iter()
        .map(|(_, line)| line)
        .filter(|l| commands(l).last().is_some_and(|w| w[0] == "gcloud" && RECORDED.contains(&w[1].as_str())))
        .collect();
    assert!(lines.len() >= 12, "{lines:#?}");
    let recorder = Recorder::start();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("job.json"), r#"{"run": ["true"], "tpu": {"accelerator": "v5litepod-1"}}"#)
        .unwrap();
    for line in lines {
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &line]).current_dir(folder.path());
        bash.env("CLOUDSDK_CONFIG", folder.path().join("gcloud")).env("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "true");
        for name in ["PUBSUB", "CLOUDSCHEDULER", "CLOUDTASKS", "EVENTARC"] {
            bash.env(format!("CLOUDSDK_API_ENDPOINT_OVERRIDES_{name}"), recorder.url());
        }
        for (name, value) in [
            ("CLOUDSDK_CORE_DISABLE_PROMPTS", "1"),
            ("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true"),
            ("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true"),
            ("PROJECT", "my-project"),
            ("OLD", "my-project"),
            ("REGION", "us-central1"),
        ] {
            bash.env(name, value);
        }
        let output = bash.output().unwrap();
        let requests = recorder.take();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{line}\n{said}\n{requests:#?}");
        assert!(requests.iter().any(|r| r.contains("/projects/my-project/")), "{line}: {requests:#?}\n{said}");
    }
}
