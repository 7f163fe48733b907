//! What the example would make against what the programs expect: topics, paths, audiences, deadlines, settings, networks.

use std::collections::{BTreeMap, BTreeSet};

use hcl::Value as Hcl;
use regex::Regex;
use rekindle_core::catalog;
use rekindle_core::settings::Settings;
use rekindle_web::layers::AT_ONCE_MAX;
use serde_json::{Value, json};

use crate::files::{Module, attribute, infra, label, sources, text};
use crate::plan::{Plan, Planned, example, example_variables, plan};

/// The names of constants such as `TOPIC_JOBS` in the Pub/Sub adapter.
fn constants(file: &str, prefix: &str) -> BTreeSet<String> {
    let pattern = Regex::new(&format!(r#"const {prefix}\w+: &str = "([^"]+)""#)).unwrap();
    pattern.captures_iter(&text(file)).map(|c| c[1].to_owned()).collect()
}

/// Every path that a function serves.
fn routes() -> BTreeSet<String> {
    let pattern = Regex::new(r#"\.route\(\s*"([^"]+)""#).unwrap();
    pattern.captures_iter(&sources(&["functions"])).map(|c| c[1].to_owned()).collect()
}

fn seconds(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.strip_suffix('s').unwrap().parse().unwrap(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.as_u64().unwrap_or_else(|| panic!("no time: {other}"))
        }
    }
}

pub(crate) fn services(plan: &Plan) -> BTreeMap<String, &Planned> {
    let name = |r: &Planned| r.values["name"].as_str().unwrap().strip_prefix("rekindle-").unwrap().to_owned();
    plan.of("google_cloud_run_v2_service").map(|r| (name(r), r)).collect()
}

pub(crate) fn url(service: &str) -> String {
    format!("https://rekindle-{service}-123456789012.us-central1.run.app")
}

/// The settings of a service.
pub(crate) fn environment(service: &Planned) -> BTreeMap<String, String> {
    let list = service.values["template"][0]["containers"][0]["env"].as_array().unwrap();
    let text = |v: &Value| v.as_str().unwrap_or_else(|| panic!("no text: {v}")).to_owned();
    list.iter().map(|e| (text(&e["name"]), text(&e["value"]))).collect()
}

#[test]
fn topics_have_the_names_that_the_programs_use() {
    let plan = example();
    let made: BTreeSet<String> =
        plan.of("google_pubsub_topic").map(|r| r.values["name"].as_str().unwrap().to_owned()).collect();
    let mut expected = constants("shared/gcp/src/pubsub/mod.rs", "TOPIC_");
    assert_eq!(expected.len(), 4, "{expected:?}");
    // What the sink publishes to; no program does.
    expected.insert("rekindle-tpu-events".into());
    assert_eq!(made, expected);
    let pulled = constants("shared/gcp/src/pubsub/admin.rs", "SUBSCRIPTION_");
    let subscriptions: BTreeSet<&str> =
        plan.of("google_pubsub_subscription").map(|r| r.values["name"].as_str().unwrap()).collect();
    assert!(pulled.iter().all(|p| subscriptions.contains(p.as_str())), "{pulled:?}");
}

#[test]
fn each_topic_has_its_subscription() {
    let plan = example();
    let topics: BTreeSet<&str> = plan.of("google_pubsub_topic").map(|r| r.values["id"].as_str().unwrap()).collect();
    let read: BTreeSet<&str> =
        plan.of("google_pubsub_subscription").map(|r| r.values["topic"].as_str().unwrap()).collect();
    assert_eq!(topics, read, "a topic without a subscription loses what it gets");
}

#[test]
fn push_subscriptions_are_right() {
    let (plan, routes, settings) = (example(), routes(), Settings::default());
    let mut pushed = 0;
    for subscription in plan.of("google_pubsub_subscription") {
        let (at, values) = (&subscription.address, &subscription.values);
        assert_eq!(values["expiration_policy"], json!([{"ttl": ""}]), "{at} never expires");
        assert!(seconds(&values["ack_deadline_seconds"]) > settings.handler_deadline.as_secs(), "{at}");
        if values["push_config"].is_null() {
            continue;
        }
        pushed += 1;
        let push = &values["push_config"][0];
        let endpoint = push["push_endpoint"].as_str().unwrap();
        let audience = push["oidc_token"][0]["audience"].as_str().unwrap();
        assert!([url("events"), url("reconcile")].contains(&audience.to_owned()), "{at}: {audience}");
        let path =
            endpoint.strip_prefix(audience).unwrap_or_else(|| panic!("{at}: {endpoint} is not below {audience}"));
        assert!(routes.contains(path), "{at}: no function serves {path}");
        assert_eq!(push["oidc_token"][0]["service_account_email"], "rekindle-push@my-project.iam.gserviceaccount.com");
        assert!(push["no_wrapper"].is_null(), "{at}: without the wrapper nothing names the message");
        let retry = &values["retry_policy"][0];
        assert!(seconds(&retry["minimum_backoff"]) <= seconds(&retry["maximum_backoff"]), "{at}");
        assert!(seconds(&retry["maximum_backoff"]) <= 600, "{at}");
        let dead = &values["dead_letter_policy"][0];
        assert_eq!(dead["dead_letter_topic"], "projects/my-project/topics/rekindle-dead-letter", "{at}");
        assert!((5..=100).contains(&dead["max_delivery_attempts"].as_u64().unwrap()), "{at}");
    }
    assert_eq!(pushed, 4);
}

#[test]
fn the_tick_and_the_queue_are_right() {
    let (plan, settings) = (example(), Settings::default());
    let tick = plan.named("google_cloud_scheduler_job", "rekindle-tick");
    assert_eq!(tick.values["schedule"], "* * * * *");
    let target = &tick.values["http_target"][0];
    assert_eq!(target["uri"], format!("{}/functions/tick", url("reconcile")));
    assert_eq!(target["oidc_token"][0]["audience"], url("reconcile"));
    assert_eq!(
        target["oidc_token"][0]["service_account_email"],
        "rekindle-scheduler@my-project.iam.gserviceaccount.com"
    );
    let deadline = seconds(&tick.values["attempt_deadline"]);
    // Cloud Scheduler takes no deadline below 15 s, and never has two runs open.
    assert!(deadline > settings.handler_deadline.as_secs() && (15..=60).contains(&deadline));
    let queue = plan.named("google_cloud_tasks_queue", "rekindle-wakeups");
    let reconcile = environment(services(&plan)["reconcile"]);
    assert_eq!(queue.values["name"], reconcile["REKINDLE_TASKS_QUEUE"].as_str());
    assert_eq!(queue.values["location"], reconcile["REKINDLE_TASKS_LOCATION"].as_str());
}

#[test]
fn eventarc_listens_everywhere_for_methods_of_its_catalogue() {
    let plan = example();
    let mut methods = BTreeSet::new();
    for trigger in plan.of("google_eventarc_trigger") {
        let values = &trigger.values;
        assert_eq!(values["location"], "global", "{}", trigger.address);
        assert_eq!(values["service_account"], "rekindle-eventarc@my-project.iam.gserviceaccount.com");
        let to = &values["destination"][0]["cloud_run_service"][0];
        assert_eq!(to["service"], "rekindle-events");
        assert!(routes().contains(to["path"].as_str().unwrap()));
        let criteria = values["matching_criteria"].as_array().unwrap();
        let of = |name: &str| {
            criteria.iter().find(|c| c["attribute"] == name).unwrap()["value"].as_str().unwrap().to_owned()
        };
        assert_eq!(of("type"), "google.cloud.audit.log.v1.written");
        assert_eq!(of("serviceName"), "tpu.googleapis.com");
        methods.insert(of("methodName"));
    }
    // What the published catalogue of audit events has for version 2, without reads, which are no news.
    let catalogue =
        ["DeleteNode", "StartNode", "StopNode", "UpdateNode"].map(|m| format!("google.cloud.tpu.v2.Tpu.{m}"));
    assert_eq!(methods, BTreeSet::from(catalogue));
}

#[test]
fn the_services_run_one_image_each_as_itself() {
    let (plan, routes, settings) = (example(), routes(), Settings::default());
    let services = services(&plan);
    assert_eq!(services.keys().map(String::as_str).collect::<Vec<_>>(), ["api", "events", "reconcile"]);
    let roles = text("functions/server/src/compose.rs");
    let mut images = BTreeSet::new();
    for (name, service) in &services {
        let template = &service.values["template"][0];
        let container = &template["containers"][0];
        images.insert(container["image"].to_string());
        assert_eq!(container["args"], json!([name]));
        let variant = format!("    {}{},", name[..1].to_uppercase(), &name[1..]);
        assert!(roles.contains(&variant), "the server has no role {name}");
        assert_eq!(template["service_account"], format!("rekindle-{name}@my-project.iam.gserviceaccount.com"));
        assert_eq!(template["scaling"][0]["min_instance_count"], 0);
        assert!(template["scaling"][0]["max_instance_count"].as_u64().unwrap() > 0);
        // More than the process takes at once it answers with 503.
        let at_once = template["max_instance_request_concurrency"].as_u64().unwrap();
        assert!(at_once > 1 && at_once <= AT_ONCE_MAX as u64, "{name}: {at_once} at once, of {AT_ONCE_MAX}");
        assert!(seconds(&template["timeout"]) > settings.handler_deadline.as_secs());
        for probe in ["startup_probe", "liveness_probe"] {
            let path = container[probe][0]["http_get"][0]["path"].as_str().unwrap();
            assert!(routes.contains(path), "{name}: no {path}");
        }
        assert_eq!(service.values["custom_audiences"], json!([url(name)]));
        // Said, not left out: an apply ends what `--no-invoker-iam-check` began, which would let anybody say who they are.
        assert_eq!(service.values["invoker_iam_disabled"], false, "{name}");
        // Said explicitly: else an apply would leave the traffic where `gcloud run services update-traffic` sent it.
        let newest = json!([{"type": "TRAFFIC_TARGET_ALLOCATION_TYPE_LATEST", "percent": 100}]);
        assert_eq!(service.values["traffic"], newest, "{name}");
        let environment = environment(service);
        let audiences: Vec<&str> = environment["REKINDLE_AUDIENCES"].split(',').collect();
        assert_eq!(audiences[0], url(name));
        // Eventarc alone chooses whose address its tokens name, and only `events` hears it.
        let more: &[&str] = if name == "events" { &["https://rekindle-events-*.a.run.app"] } else { &[] };
        assert_eq!(&audiences[1..], more, "{name}");
        assert_eq!(environment["REKINDLE_AUTH"], "platform", "the mode for services behind Cloud Run's own check");
    }
    assert_eq!(images.len(), 1);
    let open: Vec<&String> =
        services.iter().filter(|(_, s)| s.values["ingress"] == "INGRESS_TRAFFIC_ALL").map(|(n, _)| n).collect();
    assert_eq!(open, ["api"], "only people and workers come from outside");
}

#[test]
fn every_setting_is_the_servers_and_every_required_one_is_given() {
    let config = text("functions/server/src/config.rs");
    // Each flag: its attribute, and the field that follows.
    let flag = Regex::new(r#"#\[arg\(([^\]]*?env = "(\w+)"[^\]]*)\)\]\s*pub \w+: ([^,\n]+),"#).unwrap();
    let mut known = BTreeSet::new();
    let mut required = BTreeSet::new();
    for found in flag.captures_iter(&config) {
        let (arguments, name, ty) = (&found[1], found[2].to_owned(), &found[3]);
        if !ty.starts_with("Option") && !arguments.contains("default_value") && !ty.starts_with("Vec") {
            required.insert(name.clone());
        }
        known.insert(name);
    }
    assert!(known.len() > 20 && required.contains("GOOGLE_CLOUD_PROJECT"), "{known:?} {required:?}");
    required.extend(["REKINDLE_CAPACITY", "REKINDLE_BUCKET_REGIONS", "REKINDLE_AUDIENCES"].map(str::to_owned));
    for (name, service) in services(&example()) {
        let given: BTreeSet<String> = environment(service).into_keys().collect();
        let unknown: Vec<&String> = given.difference(&known).collect();
        assert!(unknown.is_empty(), "{name}: the server knows no {unknown:?}");
        // Cloud Run gives PORT.
        let missing: Vec<&String> = required.difference(&given).collect();
        assert!(missing.is_empty(), "{name}: {missing:?}");
    }
}

#[test]
fn each_door_has_its_callers() {
    let plan = example();
    let services = services(&plan);
    let callers = |service: &str| -> BTreeSet<String> {
        environment(services[service]).into_keys().filter(|k| k.ends_with("_CALLERS")).collect()
    };
    let set = |names: &[&str]| names.iter().map(|n| format!("REKINDLE_{n}_CALLERS")).collect::<BTreeSet<_>>();
    assert_eq!(callers("api"), set(&[]));
    assert_eq!(callers("events"), set(&["PUSH", "EVENTARC"]));
    assert_eq!(callers("reconcile"), set(&["PUSH", "TASKS", "SCHEDULER"]));
    let api = environment(services["api"]);
    assert_eq!(api["REKINDLE_PEOPLE"], "ada@example.com,ci@my-project.iam.gserviceaccount.com");
    assert!(!api["REKINDLE_PEOPLE"].contains("rekindle-worker"), "a worker is no person");
}

#[test]
fn the_capacity_list_reaches_the_server_as_it_reads_it() {
    let plan = example();
    let environment = environment(services(&plan)["reconcile"]);
    let entries: Vec<rekindle_core::settings::CapacityEntry> =
        serde_json::from_str(&environment["REKINDLE_CAPACITY"]).unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].max_chips, Some(64));
    assert_eq!(environment["REKINDLE_MAX_CHIPS"], "64");
    environment["REKINDLE_MAX_USD_PER_DAY"].parse::<f64>().unwrap();
}

#[test]
fn a_multi_region_of_the_bucket_holds_its_zones() {
    for (location, near, far) in [
        ("US", "us-central1-a", "europe-west4-b"),
        ("EU", "europe-west4-b", "us-east5-b"),
        ("ASIA", "asia-east1-c", "us-east5-b"),
    ] {
        let mut variables = example_variables();
        let entry = format!(r#"{{ accelerator = "*", zone = "{near}", kind = "spot", usd_per_chip_hour = 1 }}"#);
        let told = format!("bucket_locations = [\"{location}\"]\ncapacity = [{entry}]");
        variables.extend(crate::plan::tfvars(&told));
        let plan = plan(&infra().join("envs/example"), &variables);
        let told = environment(services(&plan)["reconcile"])["REKINDLE_BUCKET_REGIONS"].clone();
        assert_eq!(told, location.to_ascii_lowercase());
        let regions = [told];
        let is_in = |zone| rekindle_core::placement::is_in_regions(zone, &regions);
        assert!(is_in(near) && !is_in(far), "{location}");
    }
}

#[test]
fn each_region_with_tpus_has_its_subnet() {
    let mut variables = example_variables();
    let more: Hcl = hcl::from_str::<hcl::Map<String, Hcl>>(
        r#"capacity = [
          { accelerator = "v5litepod-*", zone = "us-west4-a", kind = "spot", usd_per_chip_hour = 0.5 },
          { accelerator = "v6e-*", zone = "europe-west4-a", kind = "spot", usd_per_chip_hour = 0.5 },
          { accelerator = "v6e-*", zone = "europe-west4-b", kind = "spot", usd_per_chip_hour = 0.5 },
        ]"#,
    )
    .unwrap()
    .swap_remove("capacity")
    .unwrap();
    variables.insert("capacity".into(), more);
    variables.extend(crate::plan::tfvars("bucket_locations = [\"EU\"]"));
    for nat in [true, false] {
        variables.insert("nat".into(), nat.into());
        let plan = plan(&infra().join("envs/example"), &variables);
        let of_workers = |s: &&Planned| s.values["name"] == "rekindle";
        let subnets: Vec<&Planned> = plan.of("google_compute_subnetwork").filter(of_workers).collect();
        let regions: BTreeSet<&str> = subnets.iter().map(|s| s.values["region"].as_str().unwrap()).collect();
        assert_eq!(regions, BTreeSet::from(["europe-west4", "us-west4"]));
        assert_eq!(subnets.len(), 2);
        let ranges: BTreeSet<&str> = subnets.iter().map(|s| s.values["ip_cidr_range"].as_str().unwrap()).collect();
        assert_eq!(ranges, BTreeSet::from(["10.64.224.0/19", "10.65.0.0/19"]), "each its own, and always the same");
        assert!(subnets.iter().all(|s| s.values["private_ip_google_access"] == true));
        let routers = plan.of("google_compute_router_nat").count();
        assert_eq!(routers, if nat { 2 } else { 0 });
    }
}

#[test]
fn the_catalogues_regions_all_have_addresses() {
    let regions: BTreeSet<&str> = catalog::zones().into_iter().map(catalog::region_of).collect();
    assert!(regions.len() > 5, "{regions:?}");
    let network = text("infra/modules/network/main.tf");
    let missing: Vec<&&str> =
        regions.iter().filter(|r| !Regex::new(&format!(r"(?m)^\s+{r}\s+= \d+$")).unwrap().is_match(&network)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn every_zone_of_the_catalogue_is_taken_and_has_its_region() {
    let mut variables = example_variables();
    let zones = catalog::zones();
    assert!(zones.iter().any(|zone| zone.ends_with("-ai1b")), "{zones:?}");
    let entry =
        |zone: &&str| format!("{{ accelerator = \"*\", zone = \"{zone}\", kind = \"spot\", usd_per_chip_hour = 0.5 }}");
    let list: Vec<String> = zones.iter().map(entry).collect();
    variables.extend(crate::plan::tfvars(&format!("capacity = [{}]", list.join(", "))));
    let plan = plan(&infra().join("envs/example"), &variables);
    let of_workers = plan.of("google_compute_subnetwork").filter(|s| s.values["name"] == "rekindle");
    let made: BTreeSet<&str> = of_workers.map(|s| s.values["region"].as_str().unwrap()).collect();
    assert_eq!(made, zones.iter().map(|zone| catalog::region_of(zone)).collect::<BTreeSet<_>>());
}

#[test]
fn every_api_is_turned_on_that_is_called() {
    let variables = crate::plan::tfvars(
        "project = \"p\"\nregion = \"us-central1\"\nbucket_locations = [\"US\"]\n\
         capacity = [{ zone = \"us-central1-a\" }]",
    );
    let bootstrap = plan(&infra().join("envs/example/bootstrap"), &variables);
    let on: BTreeSet<&str> =
        bootstrap.of("google_project_service").map(|r| r.values["service"].as_str().unwrap()).collect();
    // The APIs of every gcloud command of the pages, by its first word.
    let of_group =
        |words: &[String]| match words.iter().find(|word| !["alpha", "beta"].contains(&word.as_str()))?.as_str() {
            "quotas" => Some("cloudquotas.googleapis.com"),
            "scheduler" => Some("cloudscheduler.googleapis.com"),
            "tasks" => Some("cloudtasks.googleapis.com"),
            "artifacts" => Some("artifactregistry.googleapis.com"),
            "secrets" => Some("secretmanager.googleapis.com"),
            "projects" => Some("cloudresourcemanager.googleapis.com"),
            "services" => Some("serviceusage.googleapis.com"),
            "iam" => Some("iam.googleapis.com"),
            "run" => Some("run.googleapis.com"),
            "pubsub" => Some("pubsub.googleapis.com"),
            "eventarc" => Some("eventarc.googleapis.com"),
            "logging" => Some("logging.googleapis.com"),
            "firestore" => Some("firestore.googleapis.com"),
            "storage" => Some("storage.googleapis.com"),
            // TPUs are asked of their own API, routers of Compute Engine.
            "compute" if words.contains(&"tpus".to_owned()) => Some("tpu.googleapis.com"),
            "compute" => Some("compute.googleapis.com"),
            "config" | "auth" => None,
            other => panic!("which API does gcloud {other} call?"),
        };
    let mut needed = BTreeSet::new();
    for (_, line) in crate::pages::all_lines() {
        let commands = crate::pages::commands(&line);
        needed.extend(commands.iter().filter(|w| w[0] == "gcloud").filter_map(|words| of_group(&words[1..])));
    }
    assert!(needed.len() > 12, "{needed:?}");
    // What no page calls: the provider looks up the billing account and makes the budget, doctor asks as the services' accounts.
    needed.extend(["cloudbilling.googleapis.com", "billingbudgets.googleapis.com", "iamcredentials.googleapis.com"]);
    needed.extend(["monitoring.googleapis.com", "iap.googleapis.com"]);
    let off: Vec<&&str> = needed.difference(&on).collect();
    assert!(off.is_empty(), "off: {off:?}");
}

#[test]
fn calls_of_every_environment_count_against_its_own_project() {
    for folder in ["envs/example", "envs/example/bootstrap"] {
        let module = Module::read(&infra().join(folder));
        for provider in module.of("provider") {
            let is = |name: &str, value: &str| {
                attribute(provider.body(), name).is_some_and(|expr| expr.to_string() == value)
            };
            let counts = is("user_project_override", "true") && is("billing_project", "var.project");
            assert!(counts, "{folder}: the machine's login may name no project, or another");
        }
    }
}

#[test]
fn the_firewall_lets_in_workers_and_ssh_through_iap_only() {
    let plan = example();
    let rules: BTreeMap<&str, &Value> =
        plan.of("google_compute_firewall").map(|r| (r.values["name"].as_str().unwrap(), &r.values)).collect();
    assert_eq!(rules.keys().copied().collect::<Vec<_>>(), ["rekindle-bells", "rekindle-slices", "rekindle-ssh-iap"]);
    let ranges_of = |name: &str| -> BTreeSet<String> {
        let subnets = plan.of("google_compute_subnetwork").filter(|s| s.values["name"] == name);
        subnets.map(|s| s.values["ip_cidr_range"].as_str().unwrap().to_owned()).collect()
    };
    let (ranges, services) = (ranges_of("rekindle"), ranges_of("rekindle-services"));
    assert!(services.len() == 1 && ranges.is_disjoint(&services));
    let bells = rules["rekindle-bells"];
    assert_eq!(bells["source_ranges"], json!(services));
    let reconcile = self::services(&plan);
    let port = environment(reconcile["reconcile"])["REKINDLE_BELL_PORT"].clone();
    assert_eq!(bells["allow"], json!([{"protocol": "udp", "ports": [port]}]));
    for (name, service) in &reconcile {
        let access = &service.values["template"][0]["vpc_access"];
        let has_access = access.as_array().is_some_and(|blocks| !blocks.is_empty());
        assert_eq!(has_access, *name == "reconcile", "only what runs passes rings workers: {name} {access}");
    }
    let sources: BTreeSet<String> = serde_json::from_value(rules["rekindle-slices"]["source_ranges"].clone()).unwrap();
    assert_eq!(sources, ranges);
    assert_eq!(rules["rekindle-ssh-iap"]["source_ranges"], json!(["35.235.240.0/20"]));
    assert_eq!(rules["rekindle-ssh-iap"]["allow"], json!([{"protocol": "tcp", "ports": ["22"]}]));
}

#[test]
fn the_example_asks_for_few_things() {
    let module = Module::read(&infra().join("envs/example"));
    let required: Vec<&str> =
        module.of("variable").filter(|b| attribute(b.body(), "default").is_none()).map(|b| label(b, 0)).collect();
    let by_hand =
        ["project", "region", "bucket_locations", "capacity", "max_chips", "max_usd_per_day", "people", "admins"];
    let by_publish = ["image", "agent_sha256"];
    assert_eq!(required, [by_hand.as_slice(), by_publish.as_slice()].concat());
}

#[test]
fn nothing_of_a_job_is_deleted_by_age() {
    let module = Module::read(&infra().join("modules/bootstrap"));
    let is_bucket = |b: &&hcl::Block| {
        b.identifier() == "resource" && label(b, 1) == "data" && label(b, 0) == "google_storage_bucket"
    };
    let bucket = module.blocks.iter().find(is_bucket).expect("the bucket");
    let rules: Vec<_> = bucket.body().blocks().filter(|b| b.identifier() == "lifecycle_rule").collect();
    assert!(!rules.is_empty(), "an upload that never ended is paid for");
    for rule in rules {
        let action = rule.body().blocks().find(|b| b.identifier() == "action").expect("an action");
        let abort = hcl::Expression::String("AbortIncompleteMultipartUpload".into());
        // A job may run for long, and its code may be older than the job.
        assert_eq!(attribute(action.body(), "type"), Some(&abort), "bundles, checkpoints and logs stay");
    }
}
