//! What operators see: each message that a metric counts is one that a program writes, each alert has its runbook.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use crate::files::{infra, root, sources, text};
use crate::plan::{Plan, example, example_variables, plan};

fn texts<'a>(plan: &'a Plan, ty: &'a str, name: &str) -> Vec<&'a str> {
    plan.of(ty).map(|r| r.values[name].as_str().unwrap()).collect()
}

#[test]
fn every_message_that_is_counted_is_written() {
    let plan = example();
    let written = sources(&["functions", "shared"]);
    let message = Regex::new(r#"jsonPayload\.message[=:](\([^)]*\)|"[^"]*")"#).unwrap();
    let quoted = Regex::new(r#""([^"]+)""#).unwrap();
    let mut count = 0;
    let of_lines = conditions(&plan).into_iter().filter_map(|c| c["condition_matched_log"][0]["filter"].as_str());
    for filter in texts(&plan, "google_logging_metric", "filter").into_iter().chain(of_lines) {
        for list in message.captures_iter(filter) {
            for text in quoted.captures_iter(&list[1]) {
                // A message goes on with what it is about, where its beginning is looked for.
                let begins = list[0].starts_with("jsonPayload.message:");
                let literal = format!("\"{}{}", &text[1], if begins { "" } else { "\"" });
                assert!(written.contains(&literal), "no program writes {:?}", &text[1]);
                count += 1;
            }
        }
    }
    assert!(count >= 16, "{count}");
}

/// Errors of the services that are no alarm, and who tells of them instead.
const NO_ALARM: &[(&str, &str)] = &[
    ("no tick has run for five minutes", "an alert of its own"),
    ("an invariant does not hold; nothing was committed: {why}", "the pass that broke the rule has said so before"),
    ("not ready", "Cloud Run's probe: the revision does not serve"),
    (
        "another VM says hello for a worker that is bound",
        "the VM is refused; nothing is lost, and its slice shows in the fleet",
    ),
    (
        "a request is no envelope of a trigger: {error}",
        "it is refused, and waits as the oldest message, or among the dead letters",
    ),
    ("an answer cannot be written", "whoever asked gets 500; nothing was changed"),
];

#[test]
fn every_error_of_a_service_is_an_alarm_or_told_otherwise() {
    let services = ["api", "events", "jobs", "notify", "reconcile", "server", "tick", "tpu_events"];
    let folders: Vec<String> = services.iter().map(|name| format!("functions/{name}")).collect();
    let shared = ["engine", "gcp", "ports", "telemetry", "web", "wire"].map(|name| format!("shared/{name}"));
    let folders: Vec<&str> =
        folders.iter().chain(&shared).map(String::as_str).filter(|f| root().join(f).is_dir()).collect();
    let written = sources(&folders);
    let call = Regex::new(r"(?s)tracing::error!\((.*?)\)[;,]\n").unwrap();
    let literal = Regex::new(r#""([^"]+)""#).unwrap();
    let plan = example();
    let alarms = plan.named("google_logging_metric", "rekindle/alarms").values["filter"].as_str().unwrap().to_owned();
    let alarms: Vec<&str> = literal.captures_iter(&alarms).map(|found| found.get(1).unwrap().as_str()).collect();
    let (mut of_alarms, mut of_others) = (BTreeSet::new(), BTreeSet::new());
    for found in call.captures_iter(&written) {
        let texts = literal.captures_iter(found.get(1).unwrap().as_str());
        let message = texts.map(|text| text.get(1).unwrap().as_str()).max_by_key(|text| text.len()).unwrap();
        match alarms.iter().find(|alarm| message.starts_with(**alarm)) {
            Some(alarm) => of_alarms.insert(*alarm),
            None => of_others.insert(message),
        };
    }
    assert!(of_alarms.len() >= 6, "{of_alarms:?}");
    let known: BTreeSet<&str> = NO_ALARM.iter().map(|(message, _)| *message).collect();
    assert_eq!(of_others, known, "an error is an alarm (metrics.tf), or somebody else tells of it");
}

/// The conditions of all alert policies.
fn conditions(plan: &Plan) -> Vec<&Value> {
    plan.of("google_monitoring_alert_policy").flat_map(|r| r.values["conditions"].as_array().unwrap()).collect()
}

#[test]
fn every_metric_that_is_shown_or_alerted_on_is_there() {
    let plan = example();
    let names: BTreeSet<String> = texts(&plan, "google_logging_metric", "name")
        .iter()
        .map(|n| format!("logging.googleapis.com/user/{n}"))
        .collect();
    let mut used = BTreeSet::new();
    let user = Regex::new(r"logging\.googleapis\.com/user/[a-z/-]+").unwrap();
    for r in plan.of("google_monitoring_alert_policy").chain(plan.of("google_monitoring_dashboard")) {
        used.extend(user.find_iter(&r.values.to_string()).map(|m| m.as_str().to_owned()));
    }
    assert_eq!(used, names);
}

#[test]
fn the_alerts_that_matter_are_there_each_with_its_runbook() {
    let plan = example();
    let titles: BTreeSet<&str> = texts(&plan, "google_monitoring_alert_policy", "display_name").into_iter().collect();
    for title in [
        "Rekindle: messages wait, or dead letters do",
        "Rekindle: No tick",
        "Rekindle: An orphan, a broken rule or a panic",
        "Rekindle: Creates are refused",
        "Rekindle: Calls without a right token",
    ] {
        assert!(titles.contains(title), "{titles:?}");
    }
    let runbook = Regex::new(r"infra/runbooks/([a-z-]+\.md)").unwrap();
    let section = Regex::new(r#"infra/runbooks/([a-z-]+\.md), "([^"]+)""#).unwrap();
    for policy in plan.of("google_monitoring_alert_policy") {
        let text = policy.values["documentation"][0]["content"].as_str().unwrap();
        let names: Vec<String> = runbook.captures_iter(text).map(|found| found[1].to_owned()).collect();
        assert!(!names.is_empty(), "{} names no runbook", policy.address);
        let title = policy.values["display_name"].as_str().unwrap().trim_start_matches("Rekindle: ");
        for name in names {
            let page = std::fs::read_to_string(infra().join("runbooks").join(&name)).expect(&name);
            assert!(page.contains(&format!("{title}\"")), "{name} does not name the alert {title:?}");
        }
        for found in section.captures_iter(text) {
            let page = std::fs::read_to_string(infra().join("runbooks").join(&found[1])).unwrap();
            assert!(page.contains(&format!("\n## {}", &found[2])), "{} has no section {:?}", &found[1], &found[2]);
        }
        assert_eq!(policy.values["notification_channels"].as_array().unwrap().len(), 1, "{}", policy.address);
    }
}

#[test]
fn every_alarm_is_searched_for_in_a_runbook() {
    let plan = example();
    let quoted = Regex::new(r#""([^"]+)""#).unwrap();
    let filter = plan.named("google_logging_metric", "rekindle/alarms").values["filter"].as_str().unwrap().to_owned();
    let (_, alarms) = filter.split_once("jsonPayload.message:").unwrap();
    let pages = ["leaked-tpu", "stuck-job"].map(|name| text(&format!("infra/runbooks/{name}.md")));
    let searches: Vec<&str> =
        pages.iter().flat_map(|page| page.lines()).filter(|line| line.starts_with("gcloud logging read")).collect();
    let mut count = 0;
    for found in quoted.captures_iter(alarms) {
        assert!(searches.iter().any(|line| line.contains(&found[0])), "no runbook searches for {}", &found[1]);
        count += 1;
    }
    assert!(count >= 12, "{count}");
}

#[test]
fn every_alarm_tells_its_sort_without_what_it_goes_on_with() {
    let plan = example();
    let metric = &plan.named("google_logging_metric", "rekindle/alarms").values;
    let extract = metric["label_extractors"]["what"].as_str().unwrap();
    let pattern = Regex::new(r#"^REGEXP_EXTRACT\(jsonPayload\.message, "(.+)"\)$"#).unwrap();
    let sort = Regex::new(&pattern.captures(extract).unwrap()[1]).unwrap();
    for (message, what) in [
        ("a delete is not allowed, and its TPU is paid for: rk-a in us-central1-a", "a delete is not allowed"),
        ("the list of TPUs has failed for 31 minutes; no orphan", "the list of TPUs has failed for "),
        ("a new installation was made in this store", "a new installation was made in this store"),
    ] {
        assert_eq!(&sort.captures(message).unwrap()[1], what);
    }
}

#[test]
fn the_table_of_costs_counts_the_conditions_that_there_are() {
    let plan = example();
    let (of_lines, of_metrics): (Vec<&Value>, Vec<&Value>) =
        conditions(&plan).into_iter().partition(|condition| condition["condition_matched_log"].is_array());
    for condition in &of_metrics {
        let told = condition.to_string();
        assert!(told.contains("cross_series_reducer"), "each point that it returns is billed: {told}");
        assert_eq!(told.matches("metric.type").count(), 1, "each reference is billed: {told}");
    }
    let readme = text("infra/README.md");
    let (lines, metrics) = (of_lines.len(), of_metrics.len());
    let rows = [
        format!("| alert conditions on metrics | {metrics}, and "),
        format!("| alert conditions on log lines | {lines} |"),
    ];
    for row in rows {
        assert!(readme.contains(&row), "infra/README.md should have a row {row:?}");
    }
}

#[test]
fn a_policy_needs_no_metric_that_is_made_beside_it() {
    let plan = example();
    for policy in plan.of("google_monitoring_alert_policy") {
        // Google refuses a policy on a metric of ours until some minutes after the metric was made.
        assert!(
            !policy.values["conditions"].to_string().contains("logging.googleapis.com/user/"),
            "{}",
            policy.address
        );
        let of_lines = policy.values["conditions"][0]["condition_matched_log"].is_array();
        if of_lines {
            // Google takes one such condition a policy, and only with a limit of notifications.
            assert_eq!(policy.values["conditions"].as_array().unwrap().len(), 1, "{}", policy.address);
            let limit = &policy.values["alert_strategy"][0]["notification_rate_limit"][0]["period"];
            assert!(limit.is_string(), "{}", policy.address);
        }
    }
}

#[test]
fn the_messages_that_wait_are_looked_for_in_every_subscription() {
    let plan = example();
    let policies = texts(&plan, "google_monitoring_alert_policy", "display_name");
    let at = policies.iter().position(|name| name.contains("messages wait")).unwrap();
    let policy = plan.of("google_monitoring_alert_policy").nth(at).unwrap().values.to_string();
    let pattern = Regex::new(r#"full_match\(\\+"([^"\\]+)\\+"\)"#).unwrap();
    let pattern = Regex::new(&format!("^(?:{})$", &pattern.captures(&policy).unwrap()[1])).unwrap();
    let names = texts(&plan, "google_pubsub_subscription", "name");
    assert!(names.len() >= 5 && names.iter().any(|name| name.contains("dead-letter")), "{names:?}");
    for name in names {
        assert!(pattern.is_match(name), "{name} is not watched");
    }
}

#[test]
fn a_message_may_wait_for_ten_minutes_and_a_peak_of_a_minute_is_none() {
    let plan = example();
    let policy =
        plan.named_by("google_monitoring_alert_policy", "display_name", "Rekindle: messages wait, or dead letters do");
    let condition = &policy.values["conditions"][0]["condition_threshold"][0];
    let of = |name: &str| condition[name].clone();
    assert_eq!((of("comparison"), of("threshold_value")), ("COMPARISON_GT".into(), 600.into()));
    assert_eq!(of("duration"), "120s");
    let aggregation = &condition["aggregations"][0];
    assert_eq!(aggregation["alignment_period"], "60s");
    // The oldest of each subscription, and of all of them.
    assert_eq!(aggregation["per_series_aligner"], "ALIGN_MAX");
    assert_eq!(aggregation["cross_series_reducer"], "REDUCE_MAX");
}

#[test]
fn a_condition_tells_of_a_tick_that_ceased_only_where_it_is_asked_for() {
    const TITLE: &str = "Rekindle: Nothing calls reconcile";
    let titles = |plan: &Plan| {
        let all = texts(plan, "google_monitoring_alert_policy", "display_name");
        all.into_iter().filter(|title| *title == TITLE).count()
    };
    assert_eq!(titles(&example()), 0, "it is off by default: it takes an idle month above a dollar");
    let with = |alerts: bool| {
        let mut variables = example_variables();
        variables.insert("alerts".into(), alerts.into());
        variables.insert("tick_absence".into(), true.into());
        plan(&infra().join("envs/example"), &variables)
    };
    assert_eq!(titles(&with(false)), 0, "without alerts there is none");
    let plan = with(true);
    let policy = &plan.named_by("google_monitoring_alert_policy", "display_name", TITLE).values;
    let condition = &policy["conditions"][0]["condition_absent"][0];
    let filter = condition["filter"].as_str().unwrap();
    let services = texts(&plan, "google_cloud_run_v2_service", "name");
    assert!(services.iter().any(|name| filter.contains(&format!("service_name = \"{name}\""))), "{filter}");
    // The tick comes each minute, and one metric is billed once.
    assert_eq!((condition["duration"].as_str(), filter.matches("metric.type").count()), (Some("600s"), 1));
    assert_eq!(condition["aggregations"][0]["cross_series_reducer"], "REDUCE_SUM");
    assert!(policy["documentation"][0]["content"].as_str().unwrap().contains("infra/runbooks/stuck-job.md"));
}

#[test]
fn the_dashboard_is_one_page() {
    let plan = example();
    let dashboards: Vec<&str> = texts(&plan, "google_monitoring_dashboard", "dashboard_json");
    let [page] = dashboards.as_slice() else { panic!("{} dashboards", dashboards.len()) };
    let page: Value = serde_json::from_str(page).unwrap();
    let tiles = page["mosaicLayout"]["tiles"].as_array().unwrap();
    assert!(tiles.len() >= 8);
    let places: BTreeSet<(u64, u64)> =
        tiles.iter().map(|t| (t["xPos"].as_u64().unwrap(), t["yPos"].as_u64().unwrap())).collect();
    assert_eq!(places.len(), tiles.len(), "tiles lie upon each other");
}

#[test]
fn the_budget_follows_from_the_daily_limit() {
    let plan = example();
    let budgets: Vec<&Value> = plan.of("google_billing_budget").map(|r| &r.values).collect();
    let [budget] = budgets.as_slice() else { panic!("{} budgets", budgets.len()) };
    assert_eq!(budget["amount"][0]["specified_amount"][0]["units"], "15500");
    assert_eq!(budget["budget_filter"][0]["projects"], serde_json::json!(["projects/123456789012"]));
    assert_eq!(budget["billing_account"], "000000-000000-000000");
    let told = budget["all_updates_rule"][0]["monitoring_notification_channels"].as_array().unwrap();
    assert_eq!(told.len(), plan.of("google_monitoring_notification_channel").count(), "admins are told, too");
    // Its name is all that the mail says: it names the page. Google takes 60 characters, of a project's id up to 30.
    let name = budget["display_name"].as_str().unwrap();
    assert!(name.len() + 30 - "my-project".len() <= 60, "{name}");
    let page = name.rsplit_once(": ").unwrap().1;
    let page = text(&format!("infra/{page}.md"));
    assert!(page.contains(&name.replace("my-project", "PROJECT")), "{name}");
}
