//! The filters of the sink and of the alerts against log entries: a small reader of Cloud Logging's filter language, as far as `infra/` uses it.

use regex::Regex;
use serde_json::Value;

use crate::files::{root, text};
use crate::plan::example;

/// A comparison, or several joined.
#[derive(Debug, PartialEq)]
enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    LogId(String),
    Equals(Vec<String>, String),
    /// `…=true`.
    IsTrue(Vec<String>),
    Contains(Vec<String>, String),
    Matches(Vec<String>, String),
    MatchesNot(Vec<String>, String),
    /// `severity>=…`.
    AtLeast(String),
}

/// Cloud Logging's severities, from the lowest up.
const SEVERITIES: &[&str] =
    &["DEFAULT", "DEBUG", "INFO", "NOTICE", "WARNING", "ERROR", "CRITICAL", "ALERT", "EMERGENCY"];

impl Filter {
    /// Reads a filter; panics with what is left when it cannot.
    fn parse(source: &str) -> Self {
        let mut reader = Reader(source);
        let filter = reader.any();
        assert_eq!(reader.0.trim(), "", "cannot be read");
        filter
    }

    fn takes(&self, entry: &Value) -> bool {
        let field = |path: &[String]| {
            path.iter().fold(entry, |value, name| &value[name.as_str()]).as_str().unwrap_or_default().to_owned()
        };
        match self {
            Self::All(parts) => parts.iter().all(|p| p.takes(entry)),
            Self::Any(parts) => parts.iter().any(|p| p.takes(entry)),
            Self::LogId(id) => {
                let name = entry["logName"].as_str().unwrap_or_default();
                name.rsplit('/').next().is_some_and(|last| last.replace("%2F", "/") == *id)
            }
            // The language compares texts without regard to case; ours are equal in case too.
            Self::Equals(path, text) => field(path) == *text,
            Self::IsTrue(path) => path.iter().fold(entry, |value, name| &value[name.as_str()]) == true,
            Self::Contains(path, text) => field(path).contains(text.as_str()),
            Self::Matches(path, pattern) => Regex::new(pattern).unwrap().is_match(&field(path)),
            Self::MatchesNot(path, pattern) => !Regex::new(pattern).unwrap().is_match(&field(path)),
            Self::AtLeast(least) => {
                let rank = |name: &str| SEVERITIES.iter().position(|s| *s == name);
                rank(entry["severity"].as_str().unwrap_or("DEFAULT")) >= rank(least)
            }
        }
    }
}

struct Reader<'a>(&'a str);

impl Reader<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start();
        match rest.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// OR binds more tightly than AND in this language; so we never mix them without parentheses.
    fn any(&mut self) -> Filter {
        let mut parts = vec![self.one()];
        let is_or = self.0.trim_start().starts_with("OR ");
        while self.eat(if is_or { "OR " } else { "AND " }) {
            parts.push(self.one());
        }
        let rest = self.0.trim_start();
        assert!(
            !rest.starts_with("AND ") && !rest.starts_with("OR "),
            "AND and OR are mixed without parentheses: {rest}"
        );
        match (parts.len(), is_or) {
            (1, _) => parts.remove(0),
            (_, true) => Filter::Any(parts),
            (_, false) => Filter::All(parts),
        }
    }

    fn one(&mut self) -> Filter {
        if self.eat("(") {
            let inner = self.any();
            assert!(self.eat(")"), "no ) before {}", self.0);
            return inner;
        }
        if self.eat("log_id(") {
            let id = self.text();
            assert!(self.eat(")"), "no ) before {}", self.0);
            return Filter::LogId(id);
        }
        let rest = self.0.trim_start();
        let end = rest.find(['=', ':', '!', '>']).unwrap_or_else(|| panic!("no comparison: {rest}"));
        let path: Vec<String> = rest[..end].split('.').map(str::to_owned).collect();
        self.0 = &rest[end..];
        if self.eat(">=") {
            assert_eq!(path, ["severity"]);
            let end = self.0.find(|c: char| !c.is_ascii_uppercase()).unwrap_or(self.0.len());
            let (name, rest) = self.0.split_at(end);
            assert!(SEVERITIES.contains(&name), "no severity: {name}");
            self.0 = rest;
            return Filter::AtLeast(name.to_owned());
        }
        if self.eat("!~") {
            Filter::MatchesNot(path, self.text())
        } else if self.eat("=~") {
            Filter::Matches(path, self.text())
        } else if self.eat(":") {
            self.texts(|text| Filter::Contains(path.clone(), text))
        } else {
            assert!(self.eat("="), "no = before {}", self.0);
            if self.eat("true") {
                return Filter::IsTrue(path);
            }
            self.texts(|text| Filter::Equals(path.clone(), text))
        }
    }

    /// One text, or several in parentheses.
    fn texts(&mut self, with: impl Fn(String) -> Filter) -> Filter {
        if !self.eat("(") {
            return with(self.text());
        }
        let mut all = vec![with(self.text())];
        while self.eat("OR ") {
            all.push(with(self.text()));
        }
        assert!(self.eat(")"), "no ) before {}", self.0);
        Filter::Any(all)
    }

    /// A text in double quotes. A backslash escapes the quote only; in patterns it stays.
    fn text(&mut self) -> String {
        assert!(self.eat("\""), "no text: {}", self.0);
        let end = self.0.find('"').expect("the text ends");
        let text = self.0[..end].to_owned();
        self.0 = &self.0[end + 1..];
        text
    }
}

fn sink() -> Filter {
    let plan = example();
    let sink = plan.named("google_logging_project_sink", "rekindle-tpu-events");
    assert_eq!(sink.values["destination"], "pubsub.googleapis.com/projects/my-project/topics/rekindle-tpu-events");
    Filter::parse(sink.values["filter"].as_str().unwrap())
}

fn samples() -> Vec<(String, Value)> {
    let folder = root().join("tests/samples/tpu");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.starts_with("audit-") {
            let value = serde_json::from_str(&text(&format!("tests/samples/tpu/{name}"))).unwrap();
            found.push((name, value));
        }
    }
    found
}

/// The filter of the alert with that title.
fn alert(title: &str) -> Filter {
    let plan = example();
    let policy =
        plan.of("google_monitoring_alert_policy").find(|r| r.values["display_name"] == format!("Rekindle: {title}"));
    let policy = policy.unwrap_or_else(|| panic!("no alert {title}"));
    Filter::parse(policy.values["conditions"][0]["condition_matched_log"][0]["filter"].as_str().unwrap())
}

/// A line of one of our services.
fn line(service: &str, message: &str) -> Value {
    serde_json::json!({
        "resource": {"type": "cloud_run_revision", "labels": {"service_name": service}},
        "severity": "ERROR",
        "jsonPayload": {"message": message},
    })
}

#[test]
fn a_create_that_is_refused_is_told_of_and_a_stockout_is_not() {
    let (filter, samples) = (alert("Creates are refused"), samples());
    let told: Vec<&str> = samples.iter().filter(|(_, e)| filter.takes(e)).map(|(n, _)| n.as_str()).collect();
    assert_eq!(told, ["audit-create_node-rejected-quota.json"]);
    let (_, quota) = samples.iter().find(|(n, _)| n.ends_with("rejected-quota.json")).unwrap();
    for (message, is_told) in [
        ("Permission 'tpu.nodes.create' denied on resource", true),
        ("an internal error has occurred", false),
        ("Insufficient capacity in the zone", false),
        ("There is no more capacity in the zone \"us-central2-b\"", false),
    ] {
        let mut entry = quota.clone();
        entry["protoPayload"]["status"]["message"] = message.into();
        assert_eq!(filter.takes(&entry), is_told, "{message}");
    }
}

#[test]
fn a_tick_that_fails_is_paused_or_is_missing_is_told_of() {
    let filter = alert("No tick");
    let run = |job: &str, severity: &str| {
        serde_json::json!({
            "logName": "projects/p/logs/cloudscheduler.googleapis.com%2Fexecutions",
            "resource": {"type": "cloud_scheduler_job", "labels": {"job_id": job}},
            "severity": severity,
        })
    };
    let change = |method: &str, job: &str| {
        serde_json::json!({
            "logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity",
            "severity": "NOTICE",
            "protoPayload": {
                "serviceName": "cloudscheduler.googleapis.com",
                "methodName": format!("google.cloud.scheduler.v1.CloudScheduler.{method}"),
                "resourceName": format!("projects/p/locations/us-central1/jobs/{job}"),
            },
        })
    };
    for (entry, is_told) in [
        (run("rekindle-tick", "ERROR"), true),
        (run("rekindle-tick", "INFO"), false),
        (run("backup", "ERROR"), false),
        (change("PauseJob", "rekindle-tick"), true),
        (change("DeleteJob", "rekindle-tick"), true),
        // Another schedule, target or account.
        (change("UpdateJob", "rekindle-tick"), true),
        (change("ResumeJob", "rekindle-tick"), false),
        (change("PauseJob", "backup"), false),
        (change("UpdateJob", "backup"), false),
        (line("rekindle-api", "no tick has run for five minutes"), true),
        (line("another", "no tick has run for five minutes"), false),
    ] {
        assert_eq!(filter.takes(&entry), is_told, "{entry}");
    }
}

#[test]
fn what_should_never_be_is_told_of_and_callers_from_outside_are_not() {
    let filter = alert("An orphan, a broken rule or a panic");
    for message in [
        "an orphan was deleted: rkd-1 in us-central1-a",
        "the provider made something else, which is deleted: rkd-1 in us-central1-a: v5litepod-8 was made, and v5litepod-16 was asked for",
        "a delete is not allowed, and its TPU is paid for: rkd-1 in us-central1-a: not allowed: 401",
        "a handler panicked",
        "a decision broke a rule; nothing was committed",
        "the document of a job is full; nothing was committed",
        "a job is left out of a list",
    ] {
        assert!(filter.takes(&line("rekindle-reconcile", message)), "{message}");
    }
    assert!(!filter.takes(&line("rekindle-reconcile", "the tick ran to its end")));
    let filter = alert("Calls without a right token");
    let refused = "a call without a good token was refused";
    assert!(filter.takes(&line("rekindle-events", refused)) && !filter.takes(&line("rekindle-api", refused)));
}

#[test]
fn the_sink_takes_every_recorded_entry_of_a_tpu_that_is_news() {
    let (filter, samples) = (sink(), samples());
    assert!(samples.len() >= 10, "{}", samples.len());
    let mut left: Vec<&str> = samples.iter().filter(|(_, e)| !filter.takes(e)).map(|(n, _)| n.as_str()).collect();
    left.sort_unstable();
    // Begins of what is known to whoever began it, and a refusal that the caller was told.
    let no_news =
        ["audit-create_node-first.json", "audit-create_node-rejected-quota.json", "audit-delete_node-first.json"];
    assert_eq!(left, no_news);
}

#[test]
fn the_sink_takes_both_versions_and_no_other_service() {
    let filter = sink();
    let (_, activity) = samples().into_iter().find(|(n, _)| n == "audit-delete_node-last.json").unwrap();
    let (_, system) = samples().into_iter().find(|(n, _)| n.contains("preempted-worker0")).unwrap();
    let with = |entry: &Value, pointer: &str, text: &str| {
        let mut entry = entry.clone();
        *entry.pointer_mut(pointer).unwrap() = text.into();
        entry
    };
    let method = "/protoPayload/methodName";
    for (name, expected) in [
        ("google.cloud.tpu.v2.Tpu.CreateQueuedResource", true),
        ("google.cloud.tpu.v2alpha1.Tpu.DeleteNode", true),
        ("google.cloud.tpu.v2alpha1.Tpu.ResetQueuedResource", true),
        ("google.cloud.tpu.v1.Tpu.DeleteNode", false),
    ] {
        assert_eq!(filter.takes(&with(&activity, method, name)), expected, "{name}");
    }
    let mut begun = activity.clone();
    begun["operation"] = serde_json::json!({"id": "o", "first": true});
    assert!(!filter.takes(&begun), "only its end is news");
    let service = "/protoPayload/serviceName";
    assert!(!filter.takes(&with(&activity, service, "compute.googleapis.com")));
    let data_access = "projects/p/logs/cloudaudit.googleapis.com%2Fdata_access";
    assert!(!filter.takes(&with(&activity, "/logName", data_access)), "reads are no news");
    let vm = "/protoPayload/resourceName";
    for (name, expected) in [
        ("projects/p/zones/z/instances/t1v-n-9472280f-w-63", true),
        ("projects/p/zones/z/instances/database-1", false),
        ("projects/p/zones/z/disks/t1v-n-9472280f-w-0-disk", false),
    ] {
        assert_eq!(filter.takes(&with(&system, vm, name)), expected, "{name}");
    }
}

#[test]
fn the_reader_tells_and_from_or() {
    let filter = Filter::parse(r#"(a="1" AND b.c=~"^x") OR log_id("cloudaudit.googleapis.com/activity")"#);
    assert!(filter.takes(&serde_json::json!({"a": "1", "b": {"c": "xy"}})));
    assert!(!filter.takes(&serde_json::json!({"a": "1", "b": {"c": "y"}})));
    assert!(filter.takes(&serde_json::json!({"logName": "projects/p/logs/cloudaudit.googleapis.com%2Factivity"})));
    let mixed = std::panic::catch_unwind(|| Filter::parse(r#"a="1" AND b="2" OR c="3""#));
    assert!(mixed.is_err());
}
