//! The commands of the runbooks and READMEs: each is one that its program has, with flags that it has.

use std::collections::BTreeSet;
use std::process::Command;

use crate::files::{Module, infra, label, root, text};
use crate::gcloud;
use crate::pages::{all_lines, commands, faults_of_fences, lines, pages, sets};
use crate::recorder::Recorder;
use crate::tools::skip;
use regex::Regex;

#[test]
fn every_gcloud_command_and_flag_is_gclouds() {
    let Some(tree) = gcloud::tree() else { return skip("gcloud is not installed") };
    let mut count = 0;
    let mut faults = Vec::new();
    for (page, line) in all_lines() {
        for words in commands(&line).into_iter().filter(|w| w[0] == "gcloud") {
            count += 1;
            if let Err(why) = gcloud::check(&tree, &words) {
                faults.push(format!("{page}: {}: {why}", words.join(" ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 40, "{count}");
    let wrong = ["gcloud pubsub topics publsh t", "gcloud pubsub topics publish t --mesage=x", "gcloud pubsub topics"];
    for line in wrong {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert!(gcloud::check(&tree, &words).is_err(), "{line}");
    }
}

#[test]
fn every_other_command_is_there() {
    let terraform = Command::new("terraform").arg("version").output().ok();
    if terraform.is_none() {
        skip("terraform is not installed");
    }
    let mut faults = Vec::new();
    // Copies that a page makes of a folder that is there.
    let mut copies = Vec::new();
    for (page, line) in all_lines() {
        for words in commands(&line) {
            if let [cp, recursive, from, to] = words.as_slice()
                && (cp.as_str(), recursive.as_str()) == ("cp", "-R")
            {
                copies.push((from.clone(), to.clone()));
            }
            let original = |folder: &str| {
                let copy = copies.iter().find(|(_, to)| folder.starts_with(to.as_str()));
                copy.map_or(folder.to_owned(), |(from, to)| folder.replacen(to.as_str(), from, 1))
            };
            let is_there = match words[0].as_str() {
                "terraform" => {
                    let folder = words[1].strip_prefix("-chdir=").expect("always with -chdir");
                    root().join(original(folder)).is_dir() && (terraform.is_none() || is_terraforms(&words[2..]))
                }
                // Those of `rekindle` the command line's own tests parse, each of them; gcloud's are looked at above.
                "rekindle" | "gcloud" | "cat" | "cp" | "rm" | "date" | "for" | "printf" | "read" | "done" | "jq"
                | "grep" => true,
                other => other.starts_with("infra/") && root().join(other).is_file(),
            };
            if !is_there {
                faults.push(format!("{page}: {}", words.join(" ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Whether Terraform's own help knows the command and its flags. Commands that plan take the flags of `plan`, which their help does not repeat.
fn is_terraforms(words: &[String]) -> bool {
    let help = |command: &str| {
        let output = Command::new("terraform").args([command, "-help"]).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let Some((command, rest)) = words.split_first() else { return false };
    let mut known = help(command);
    if !known.contains(&format!("terraform [global options] {command}")) {
        return false;
    }
    if ["apply", "destroy", "refresh"].contains(&command.as_str()) {
        known += &help("plan");
    }
    let flags = rest.iter().filter(|word| word.starts_with('-'));
    flags.map(|flag| flag.split('=').next().unwrap()).all(|flag| {
        let option = Regex::new(&format!(r"(?m)^  {}[ =\n]", regex::escape(flag))).unwrap();
        option.is_match(&known)
    })
}

#[test]
fn a_flag_that_terraform_does_not_have_is_found() {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    if Command::new("terraform").arg("version").output().is_err() {
        return skip("terraform is not installed");
    }
    for right in
        ["init -backend-config=x -migrate-state", "apply -target=module.store -auto-approve", "output -raw server"]
    {
        assert!(is_terraforms(&words(right)), "{right}");
    }
    for wrong in ["aply", "apply -targets=module.store", "output -raws server", "init -backend=x -copy"] {
        assert!(!is_terraforms(&words(wrong)), "{wrong}");
    }
}

#[test]
fn every_block_of_a_page_begins_and_ends_on_a_line_of_its_own() {
    for page in pages() {
        let faults = faults_of_fences(&std::fs::read_to_string(&page).unwrap());
        assert!(faults.is_empty(), "{}: {}", page.display(), faults.join("\n"));
    }
    for wrong in ["Do this: ```sh\nls\n```\n", "```sh\nls\n", "```sh\nls\n```sh\nls\n```\n"] {
        assert!(!faults_of_fences(wrong).is_empty(), "{wrong}");
    }
    assert!(faults_of_fences("Do this:\n\n```sh\nls\n```\n").is_empty());
}

/// The variables that the lines of a page use before any of them sets them, `REKINDLE_SERVER` among them for whoever calls the server.
fn unset(lines: &[String]) -> Vec<String> {
    let used = Regex::new(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)").unwrap();
    let mut set = BTreeSet::new();
    let mut found = Vec::new();
    for line in lines {
        set.extend(sets(line));
        let mut names: BTreeSet<String> = used.captures_iter(line).map(|found| found[1].to_owned()).collect();
        if commands(line).iter().any(|words| words[0] == "rekindle") {
            names.insert("REKINDLE_SERVER".to_owned());
        }
        found.extend(names.difference(&set).map(|name| format!("{name} in: {line}")));
    }
    found
}

#[test]
fn every_variable_of_a_page_is_set_on_it_before_it_is_used() {
    for page in pages() {
        let lines = lines(&std::fs::read_to_string(&page).unwrap());
        let unset = unset(&lines);
        assert!(unset.is_empty(), "{}: nothing sets {}", page.display(), unset.join("\n"));
    }
    let of = |lines: &[&str]| unset(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>()).len();
    assert_eq!(of(&["rekindle ps", "gcloud x --project=\"$PROJECT\""]), 2);
    assert_eq!(of(&["export REKINDLE_SERVER=x PROJECT=y", "rekindle ps --owner=\"$PROJECT\""]), 0);
    assert_eq!(of(&["read -rs NEW", "for name in a b; do echo \"$name\" \"${NEW}\"; done"]), 0);
}

#[test]
fn links_and_names_of_resources_are_right() {
    let link = Regex::new(r"\]\(([^)#:]+)(?:#([^)]+))?\)").unwrap();
    let slug = |heading: &str| {
        let kept = heading.to_lowercase().replace(|c: char| !c.is_alphanumeric() && c != ' ' && c != '-', "");
        kept.trim().replace(' ', "-")
    };
    for page in pages() {
        let source = std::fs::read_to_string(&page).unwrap();
        for found in link.captures_iter(&source) {
            let to = page.parent().unwrap().join(&found[1]);
            assert!(to.exists(), "{}: {}", page.display(), &found[1]);
            if let Some(section) = found.get(2).map(|section| section.as_str()) {
                let other = std::fs::read_to_string(&to).unwrap();
                let headings: Vec<String> = other.lines().filter(|line| line.starts_with('#')).map(slug).collect();
                assert!(headings.iter().any(|one| one == section), "{}: {}: {headings:?}", page.display(), &found[0]);
            }
        }
    }
    let plan = crate::plan::example();
    let names: BTreeSet<String> =
        plan.resources.iter().filter_map(|r| r.values["name"].as_str().map(str::to_owned)).collect();
    let name = Regex::new(r"\brekindle-(?:jobs|hints|events|tpu-events|dead-letter|tick|wakeups|api|reconcile)[a-z-]*")
        .unwrap();
    for (page, line) in all_lines() {
        for found in name.find_iter(&line) {
            // Revisions carry a number, addresses the project's.
            let rest = &line[found.end()..];
            let is_longer = rest.starts_with(|c: char| c.is_ascii_digit()) || rest.starts_with("$(gcloud projects ");
            assert!(is_longer || names.contains(found.as_str()), "{page}: nothing is named {}", found.as_str());
        }
    }
}

#[test]
fn what_terraform_is_told_of_is_there_under_that_name() {
    let plans =
        [("infra/envs/example", crate::plan::example()), ("infra/envs/example/bootstrap", crate::plan::bootstrap())];
    let mut count = 0;
    for (page, line) in all_lines() {
        for words in commands(&line).into_iter().filter(|words| words[0] == "terraform" && words[2] == "import") {
            let (_, plan) = plans.iter().find(|(folder, _)| words[1] == format!("-chdir={folder}")).expect(&line);
            let [.., address, id] = words.as_slice() else { panic!("{line}") };
            let resource =
                plan.resources.iter().find(|r| r.address == *address).unwrap_or_else(|| panic!("{page}: {line}"));
            let value = |name: &str| resource.values[name].as_str();
            let name = value("repository_id").or_else(|| value("name")).unwrap();
            let id =
                id.replace("$PROJECT", "my-project").replace("$REGION", "us-central1").replace("$DATABASE", "rekindle");
            assert!(id == name || id.ends_with(&format!("/{name}")), "{page}: {line}: {name}");
            count += 1;
        }
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn what_the_pages_say_of_terraforms_state_is_there() {
    let name = Regex::new(r"`(google_\w+)(?:\.(\w+))?`").unwrap();
    let modules = crate::files::modules();
    let page = text("infra/runbooks/second-operator.md");
    let found: Vec<_> = name.captures_iter(&page).collect();
    for one in &found {
        let is_it = |block: &&hcl::Block| {
            label(block, 0) == &one[1] && one.get(2).is_none_or(|name| label(block, 1) == name.as_str())
        };
        assert!(modules.iter().any(|module| module.of("resource").any(|block| is_it(&block))), "no {}", &one[0]);
    }
    assert!(found.len() >= 8, "{}", found.len());
}

#[test]
fn whoever_pauses_the_tick_is_told_of_the_alert_and_all_jobs_are_all() {
    let mut pauses = 0;
    for page in pages() {
        let source = std::fs::read_to_string(&page).unwrap();
        let lines = lines(&source);
        let at = page.display();
        if lines.iter().any(|line| line.contains("scheduler jobs pause rekindle-tick")) {
            pauses += 1;
            let is_told = source.contains("alert \"No tick\"") || source.contains("the message of the pause");
            assert!(is_told, "{at}: nobody says that this is an alarm");
        }
        // A list has fifty jobs unless all are asked for.
        for line in lines.iter().filter(|line| line.contains("| jq ")) {
            assert!(line.contains("rekindle ps --all "), "{at}: {line}");
        }
        let mut paused = lines.iter().filter(|line| line.starts_with("rekindle pause"));
        assert!(paused.all(|line| line.contains("$(")), "{at}: a pause of one job is not of all");
    }
    assert!(pauses >= 4, "{pauses}");
}

/// The address of the server on each page is what Terraform would tell: nobody needs its state to call.
#[test]
fn the_address_of_the_server_is_terraforms() {
    let services = text("infra/modules/service/main.tf");
    assert!(services.contains("https://rekindle-${name}-${var.project_number}.${var.region}.run.app"), "{services}");
    let address = Regex::new(
        r#"^export REKINDLE_SERVER="https://rekindle-api-\$\(gcloud projects describe "\$(PROJECT|OLD)" --format='value\(projectNumber\)'\)\.\$REGION\.run\.app"$"#,
    );
    let address = address.unwrap();
    let mut count = 0;
    for (page, line) in all_lines().into_iter().filter(|(page, _)| page.contains("runbooks/")) {
        if line.contains("REKINDLE_SERVER=") {
            assert!(address.is_match(&line), "{page}: {line}");
            count += 1;
        }
    }
    assert!(count >= 9, "{count}");
}

#[test]
fn a_first_job_takes_seven_steps() {
    let page = text("infra/envs/example/README.md");
    let numbered = Regex::new(r"(?m)^# (\d)\. (\w+)").unwrap();
    let steps: Vec<String> = numbered.captures_iter(&page).map(|c| c[2].to_owned()).collect();
    assert_eq!(steps, ["project", "bootstrap", "publish", "apply", "doctor", "run", "logs"]);
    let lines = lines(&page);
    assert_eq!(lines.len(), steps.len(), "one line each");
    // The last command of a line is its step; the others make it ready, as the page says.
    let ready = [
        "export",
        "gcloud config set",
        "terraform -chdir=infra/envs/example init",
        "terraform -chdir=infra/envs/example/bootstrap init",
    ];
    for line in &lines {
        let (before, step) =
            line.rsplit_once(" && ").map_or((None, line.as_str()), |(before, step)| (Some(before), step));
        let is_ready = |part: &str| ready.iter().any(|begin| part.starts_with(begin));
        assert!(!is_ready(step), "{line}");
        assert!(before.is_none_or(|before| before.split(" && ").all(is_ready)), "{line}");
    }
    // What they take beforehand is said, `rekindle` itself among it.
    let install = Regex::new(r"`cargo install --locked --path ([a-z/]+)`").unwrap();
    let package = install.captures(&page).expect("how to get rekindle")[1].to_owned();
    assert!(text(&format!("{package}/Cargo.toml")).contains("[[bin]]\nname = \"rekindle\""));
}

#[test]
fn every_variable_of_the_example_is_told_of() {
    let page = text("infra/envs/example/README.md");
    let module = Module::read(&infra().join("envs/example"));
    let (table, rest): (Vec<&str>, Vec<&str>) = page.lines().partition(|line| line.starts_with("| `"));
    for variable in module.of("variable").map(|block| label(block, 0)) {
        let name = format!("`{variable}`");
        let by_publish = ["image", "agent_sha256"].contains(&variable);
        let places = if by_publish { &rest } else { &table };
        let is_told = places.iter().any(|line| by_publish || line.split('|').nth(1).unwrap().contains(&name));
        let is_named = places.iter().any(|line| line.contains(&name));
        assert!(is_told && is_named, "{variable}: infra/envs/example/README.md says nothing of it");
    }
}

/// The services whose endpoint gcloud can be told, and that a recorder can stand in for.
const RECORDED: &[&str] = &["pubsub", "scheduler", "tasks", "eventarc"];

#[test]
fn commands_for_pubsub_scheduler_tasks_and_eventarc_are_sent() {
    if gcloud::tree().is_none() {
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
