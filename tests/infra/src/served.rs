//! The server's own configuration from each planned service, and through it every planned call: whether the role serves its path, and whether
//! the path's door takes its account and its audience, and no other account.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Router;
use clap::{CommandFactory as _, Parser as _};
use rekindle_core::access::Right;
use rekindle_core::settings::Limits;
use rekindle_fakes::tokens::unsigned;
use rekindle_fn_notify::Sender;
use rekindle_gcp::oidc::{Mode, OidcSettings};
use rekindle_ports::world::Clock as _;
use rekindle_rig::{Rig, get, push, send};
use rekindle_server::{Config, OidcDoors, Parts, Role, routers};
use serde_json::json;

use crate::files::infra;
use crate::plan::{Plan, example, example_variables, plan, tfvars};
use crate::wiring::{environment, services, url};

/// Google's own client: what `gcloud auth print-identity-token` of a person names, and cannot be told otherwise.
const GCLOUD: &str = "32555940559.apps.googleusercontent.com";

/// A call that the plan makes somebody send.
#[derive(Debug)]
struct Trigger {
    what: String,
    service: String,
    path: String,
    account: String,
    audience: String,
}

/// As Cloud Run would start the service: its subcommand and its variables, which are flags here, since variables belong to the whole process.
fn config(plan: &Plan, service: &str) -> Config {
    let planned = services(plan)[service];
    let flags = Config::command();
    let mut words = vec!["rekindle-server".to_owned()];
    let args = planned.values["template"][0]["containers"][0]["args"].as_array().unwrap();
    words.extend(args.iter().map(|word| word.as_str().unwrap().to_owned()));
    for (name, value) in environment(planned) {
        let is_of = |arg: &&clap::Arg| arg.get_env().is_some_and(|env| env == name.as_str());
        let flag = flags.get_arguments().find(is_of).unwrap_or_else(|| panic!("the server knows no {name}"));
        words.push(format!("--{}={value}", flag.get_long().unwrap()));
    }
    Config::try_parse_from(words).unwrap_or_else(|error| panic!("{service}: {error}"))
}

fn configs(plan: &Plan) -> BTreeMap<String, Config> {
    services(plan).into_keys().map(|name| (name.clone(), config(plan, &name))).collect()
}

/// The functions of a service, behind the doors that its configuration makes.
fn served(rig: &Rig, config: &Config) -> Router {
    let settings = OidcSettings::google(config.auth, true);
    let clock = rig.fakes.clock.clone();
    let doors = OidcDoors::new(settings, config.audiences.clone(), config.callers.clone(), clock).unwrap();
    let parts = Parts {
        engine: rig.engine.clone(),
        verifier: Arc::new(doors),
        sender: Arc::new(Sender::new(false)),
        messages_may: config.messages_may(),
        uploads: None,
    };
    routers(config.role, parts)
}

/// A token as Cloud Run hands it on.
fn bearer(rig: &Rig, account: &str, audience: &str) -> http::HeaderValue {
    let now = rig.fakes.clock.now().as_second();
    let header = json!({"alg": "RS256", "kid": "k1", "typ": "JWT"});
    let claims = json!({
        "aud": audience, "azp": "112233445566778899000", "email": account, "email_verified": true,
        "exp": now + 3600, "iat": now, "iss": "https://accounts.google.com", "sub": "112233445566778899000",
    });
    format!("Bearer {}.SIGNATURE_REMOVED_BY_GOOGLE", unsigned(&header, &claims)).parse().unwrap()
}

async fn status(rig: &Rig, router: &Router, path: &str, account: &str, audience: &str) -> u16 {
    let mut request = if path.starts_with("/functions/") { push(path, "1", &[], b"{}") } else { get(path) };
    request.headers_mut().insert("authorization", bearer(rig, account, audience));
    send(router, request).await.status.as_u16()
}

/// The service below whose address an endpoint is, and the path.
fn split(endpoint: &str) -> (String, String) {
    let names = ["api", "events", "reconcile"];
    let found = names.iter().find_map(|name| Some(((*name).to_owned(), endpoint.strip_prefix(&url(name))?.to_owned())));
    found.unwrap_or_else(|| panic!("{endpoint} is no service's"))
}

fn triggers(plan: &Plan, configs: &BTreeMap<String, Config>) -> Vec<Trigger> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned();
    let mut all = Vec::new();
    let mut add = |what: String, endpoint: &str, account: String, audience: String| {
        let (service, path) = split(endpoint);
        all.push(Trigger { what, service, path, account, audience });
    };
    for subscription in plan.of("google_pubsub_subscription").filter(|s| !s.values["push_config"].is_null()) {
        let (push, topic) = (&subscription.values["push_config"][0], text(&subscription.values["topic"]));
        let token = &push["oidc_token"][0];
        let (account, audience) = (text(&token["service_account_email"]), text(&token["audience"]));
        add(topic.rsplit('/').next().unwrap().to_owned(), &text(&push["push_endpoint"]), account, audience);
    }
    for job in plan.of("google_cloud_scheduler_job") {
        let target = &job.values["http_target"][0];
        let token = &target["oidc_token"][0];
        let (account, audience) = (text(&token["service_account_email"]), text(&token["audience"]));
        add(text(&job.values["name"]), &text(&target["uri"]), account, audience);
    }
    for trigger in plan.of("google_eventarc_trigger") {
        let to = &trigger.values["destination"][0]["cloud_run_service"][0];
        let name = text(&to["service"]).strip_prefix("rekindle-").unwrap().to_owned();
        let endpoint = format!("{}{}", url(&name), text(&to["path"]));
        // Which address of the service its token names is Eventarc's choice.
        for audience in [url(&name), format!("https://rekindle-{name}-a1b2c3d4e5-uc.a.run.app")] {
            add("eventarc".into(), &endpoint, text(&trigger.values["service_account"]), audience);
        }
    }
    // Tasks are made by whoever runs passes, as its own configuration says.
    let maker = &configs["reconcile"];
    let account = maker.tasks.service_account.clone().expect("tasks carry a token");
    add("tasks".into(), &format!("{}/functions/reconcile", maker.reconcile_url), account, maker.reconcile_url.clone());
    all
}

#[test]
fn each_topic_is_pushed_to_its_own_function() {
    let plan = example();
    let all = triggers(&plan, &configs(&plan));
    let told: BTreeSet<(&str, &str, &str)> =
        all.iter().map(|t| (t.what.as_str(), t.service.as_str(), t.path.as_str())).collect();
    let wanted = [
        ("rekindle-jobs", "events", "/functions/jobs"),
        ("rekindle-hints", "reconcile", "/functions/reconcile"),
        ("rekindle-events", "events", "/functions/notify"),
        ("rekindle-tpu-events", "events", "/functions/tpu-events"),
        ("rekindle-tick", "reconcile", "/functions/tick"),
        ("eventarc", "events", "/functions/tpu-events"),
        ("tasks", "reconcile", "/functions/reconcile"),
    ];
    assert_eq!(told, BTreeSet::from(wanted));
}

#[tokio::test]
async fn every_planned_call_is_let_in_and_no_other_account_is() {
    let plan = example();
    let configs = configs(&plan);
    let all = triggers(&plan, &configs);
    let rig = Rig::new().await;
    for trigger in &all {
        let router = served(&rig, &configs[&trigger.service]);
        let status = status(&rig, &router, &trigger.path, &trigger.account, &trigger.audience).await;
        assert!((200..300).contains(&status), "{status}: {trigger:?}");
    }
    let accounts: BTreeSet<&str> =
        plan.of("google_service_account").map(|a| a.values["email"].as_str().unwrap()).collect();
    assert!(accounts.len() >= 8, "{accounts:?}");
    let paths: BTreeSet<&str> = all.iter().map(|t| t.path.as_str()).collect();
    for (service, config) in &configs {
        let router = served(&rig, config);
        for (path, account) in paths.iter().flat_map(|path| accounts.iter().map(move |account| (*path, *account))) {
            let of_path = all.iter().filter(|t| t.service == *service && t.path == path);
            let callers: BTreeSet<&str> = of_path.map(|t| t.account.as_str()).collect();
            if callers.contains(account) {
                continue;
            }
            let wanted = if callers.is_empty() { 404 } else { 403 };
            let status = status(&rig, &router, path, account, &url(service)).await;
            assert_eq!(status, wanted, "{account} at {path} of {service}");
        }
    }
}

#[tokio::test]
async fn people_are_let_in_by_both_audiences_and_workers_are_no_people() {
    let plan = example();
    let rig = Rig::new().await;
    let router = served(&rig, &config(&plan, "api"));
    let worker = "rekindle-worker@my-project.iam.gserviceaccount.com";
    for (account, audience, wanted) in [
        ("ada@example.com", url("api"), 200),
        ("ada@example.com", GCLOUD.to_owned(), 200),
        ("ci@my-project.iam.gserviceaccount.com", url("api"), 200),
        ("eve@example.com", url("api"), 403),
        ("ada@example.com", url("events"), 401),
        ("ada@example.com", "another.apps.googleusercontent.com".to_owned(), 401),
        (worker, url("api"), 403),
    ] {
        let status = status(&rig, &router, "/v1/jobs", account, &audience).await;
        assert_eq!(status, wanted, "{account} with {audience}");
    }
}

#[test]
fn each_service_is_told_what_is_there() {
    let mut variables = example_variables();
    variables.extend(tfvars(r#"owner_limits = { "bob@example.com" = { max_chips = 8, max_usd_per_day = 20.5 } }"#));
    let plan = plan(&infra().join("envs/example"), &variables);
    let bootstrap = crate::plan::bootstrap();
    let name_of = |plan: &Plan, ty: &str, address: &str| {
        let mut found = plan.of(ty).filter(|r| r.address.contains(address));
        found.next().unwrap().values["name"].as_str().unwrap().to_owned()
    };
    let bucket = format!("gs://{}", name_of(&bootstrap, "google_storage_bucket", ".data"));
    let network = name_of(&plan, "google_compute_network", "");
    let agent = "5".repeat(64);
    for (name, config) in configs(&plan) {
        let role = match config.role {
            Role::Api => "api",
            Role::Events => "events",
            Role::Reconcile => "reconcile",
            Role::All => "all",
        };
        assert_eq!((role, config.auth), (name.as_str(), Mode::Platform));
        assert_eq!(config.project, "my-project");
        assert_eq!(config.database, name_of(&plan, "google_firestore_database", ""), "{name}");
        assert_eq!(config.bucket, bucket, "{name}");
        assert_eq!(config.bucket_regions, ["us-central1"], "{name}");
        assert_eq!((config.api_url, config.reconcile_url), (url("api"), url("reconcile")), "{name}");
        let account = |name: &str| Some(format!("rekindle-{name}@my-project.iam.gserviceaccount.com"));
        assert_eq!(config.worker_service_account, account("worker"), "{name}");
        assert_eq!(config.tasks.service_account, account("tasks"), "{name}");
        assert_eq!(config.worker_network, Some(network.clone()), "{name}");
        let subnets = plan.of("google_compute_subnetwork").map(|s| s.values["name"].as_str().unwrap());
        assert!(subnets.collect::<BTreeSet<_>>().contains(config.worker_subnetwork.as_deref().unwrap()), "{name}");
        assert_eq!(config.worker_subnetwork, Some(network.clone()), "not the services' own");
        assert_eq!(config.agent_url, Some(format!("{bucket}/agents/{agent}")), "where publish.sh puts it");
        assert_eq!(config.agent_sha256.as_ref(), Some(&agent), "{name}");
        assert_eq!(config.callers.people, ["ada@example.com", "ci@my-project.iam.gserviceaccount.com"], "{name}");
        assert_eq!(config.callers.admins, ["ada@example.com"], "{name}");
        assert_eq!(config.callers.people_audiences, [GCLOUD], "{name}");
        assert_eq!((config.max_chips, config.max_usd_per_day), (Some(64), Some(500.0)), "{name}");
    }
    let deployment = config(&plan, "reconcile").deployment().unwrap();
    assert_eq!(deployment.owners["bob@example.com"], Limits { max_chips: Some(8), max_usd_per_day: Some(20.5) });
    let [rule] = deployment.access.rules.as_slice() else { panic!("{:?}", deployment.access) };
    assert_eq!((rule.who.as_slice(), rule.may.as_slice()), (["*".to_owned()].as_slice(), [Right::See].as_slice()));
    assert_eq!(deployment.access.borrow["bob@example.com"].secrets, ["projects/my-project/secrets/research-"]);
    assert_eq!(deployment.capacity.len(), 2);
}
