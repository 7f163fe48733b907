//! Configuration, doors, composition, shutdown.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::routing::get;
use clap::Parser;
use http::{HeaderMap, Request};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use rekindle_core::access::Right;
use rekindle_fn_jobs::Name;
use rekindle_fn_notify::Sender;
use rekindle_gcp::oidc::{Emails, Expect, Mode, OidcSettings};
use rekindle_local::RandomIds;
use rekindle_rig::{Rig, send};
use rekindle_web::{Caller, Door, Machine, Refused, Verifier};

use crate::config::Callers;
use crate::doors::OidcDoors;
use crate::run::serve_for;
use crate::{Config, Parts, Role, installation, routers};

mod any_bytes;
mod gcloud;
mod identity;
mod machines;
mod traces;

const CAPACITY: &str = "- {accelerator: v5litepod-*, zone: us-central1-a, kind: spot, usd_per_chip_hour: 0.5}";

/// A good configuration without a capacity list, with some flags added or replaced.
fn config(more: &[&str]) -> Result<Config, clap::Error> {
    let base = [
        "rekindle-server",
        "all",
        "--port=8080",
        "--project=p",
        "--bucket=gs://b/",
        "--api-url=https://api.example.com/",
        "--reconcile-url=https://reconcile.example.com",
        "--tasks-location=us-central1",
        "--auth=verify",
    ];
    let flag = |arg: &str| arg.split('=').next().unwrap_or_default().to_owned();
    let is_replaced = |arg: &str| more.iter().any(|m| flag(m) == flag(arg));
    Config::try_parse_from(base.into_iter().filter(|arg| !is_replaced(arg)).chain(more.iter().copied()))
}

#[test]
fn a_configuration_becomes_a_deployment() {
    let owners = "--owner-limits={ann@example.com: {max_chips: 16}}";
    let policy =
        "--policy={rules: [{who: ['*'], whose: ['*'], may: [see]}], borrow: {ann: {secrets: [projects/p/secrets/s]}}}";
    let agent = "--agent-url=gs://b/agent/x";
    let config = config(&["--capacity", CAPACITY, "--max-chips=64", agent, owners, policy]).unwrap();
    let deployment = config.deployment().unwrap();
    assert_eq!((deployment.bucket.as_str(), deployment.api_url.as_str()), ("gs://b", "https://api.example.com"));
    assert_eq!((deployment.capacity.len(), deployment.max_chips), (1, Some(64)));
    assert_eq!(deployment.owners["ann@example.com"].max_chips, Some(16));
    assert!(deployment.access.may("bob", Right::See, "ann") && !deployment.access.may("bob", Right::Stop, "ann"));
    assert!(deployment.access.borrow("ann").lends_secret("projects/p/secrets/s/versions/1"));
    assert_eq!(deployment.worker_metadata["rekindle-agent-url"], "gs://b/agent/x");
    assert!(deployment.startup_script.is_some());
    assert_eq!(config.bucket_name(), "b");
    assert_eq!(
        config.messages_may().into_iter().collect::<Vec<_>>(),
        [Name::Submit],
        "messages only submit by default"
    );
    let with = |rules: &str| {
        let policy = format!("--policy={{rules: [{rules}]}}");
        self::config(&["--capacity", CAPACITY, &policy]).unwrap().messages_may().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(with("{who: ['*'], whose: ['*'], may: [see, submit, stop]}"), [Name::Submit], "messages are no person");
    assert_eq!(
        with("{who: [pubsub], whose: [ci], may: [submit, stop]}").len(),
        Name::ALL.len(),
        "what the policy grants them"
    );
    let stops = with("{who: [pubsub], whose: [ci], may: [stop]}");
    assert_eq!(stops, [Name::Submit, Name::Cancel, Name::Pause]);
    assert_eq!(config.address().unwrap().to_string(), "0.0.0.0:8080");
}

#[test]
fn the_capacity_list_may_be_a_file_in_yaml_or_json() {
    let folder = tempfile::tempdir().unwrap();
    let json =
        r#"[{"accelerator":"v4-8","zone":"us-central2-b","kind":"on_demand","max_chips":4,"usd_per_chip_hour":0}]"#;
    for (name, text) in [("list.yaml", CAPACITY), ("list.json", json)] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let config = config(&["--capacity-file", path.to_str().unwrap()]).unwrap();
        assert_eq!(config.deployment().unwrap().capacity.len(), 1, "{name}");
    }
}

#[test]
fn what_is_hardly_meant_in_the_cloud_is_told() {
    let doubts = |more: &[&str]| config(&[&["--capacity", CAPACITY], more].concat()).unwrap().doubts().join("; ");
    let (url, account) = ("--agent-url=gs://b/agents/1", "--worker-service-account=w@p.iam");
    let digest = format!("--agent-sha256={}", "a".repeat(64));
    assert_eq!(doubts(&[url, &digest, account]), "");
    assert!(doubts(&[account]).contains("no TPU will ever report"));
    assert!(doubts(&[url, account]).contains("REKINDLE_AGENT_SHA256 is not set"));
    assert!(doubts(&[url, &digest]).contains("default account"));
    let fake = doubts(&[url, &digest, account, "--tpu-emulator=127.0.0.1:1"]);
    assert_eq!(fake, "emulators stand in for Google's services: REKINDLE_TPU_EMULATOR");
}

#[test]
fn configurations_that_cannot_be_meant_are_refused() {
    assert!(config(&[]).is_err(), "no capacity list");
    for bad in [
        "--bucket=b",
        "--bucket=gs://",
        "--bucket=gs://b/folder",
        "--auth=maybe",
        "--messages-may=submit,destroy",
        "--owner-limits={ann: {max_chip: 1}}",
        "--policy={rules: [{who: ['*'], whose: ['*'], may: [look]}]}",
        "--policy={borrow: {Ann: {}, ann: {}}}",
        "--owner-limits={ann: {max_chips: 1}, ANN: {max_chips: 2}}",
        "--owner-limits={ann: {max_usd_per_day: .nan}}",
        "--bucket=gs://a b",
        "--bucket-regions=",
        "--project=",
        "--api-url=",
        "--api-url=api.example",
        "--reconcile-url=ftp://a",
        "--audiences=",
        "--audiences=https://a.example,",
        "--audiences=//",
        "--people-audiences=",
        "--people-audiences=a.apps.googleusercontent.com,",
        "--agent-url=gs://b/",
        "--owner-limits={'ann ': {max_chips: 1}}",
        "--agent-url=",
        "--agent-url=ftp://x/agent",
        "--worker-service-account=",
        "--tasks-location=",
        "--admins=*",
        "--admins=user:root@example.com",
        "--admins=root",
        "--push-callers=*",
        "--owner-limits={'*': {max_chips: 1}}",
        "--worker-service-account=*",
        "--tasks-service-account=serviceAccount:x@y",
        "--audiences=https://evil.com/x-*.a.run.app",
        "--people=*@example.com",
        "--scheduler-callers=serviceAccount:s@p.iam.gserviceaccount.com",
        "--tasks-callers=tasks",
        "--people-audiences=*",
        "--people-audiences=*.apps.googleusercontent.com",
        "--audiences=*",
        "--audiences=https://*.a.run.app",
        "--audiences=https://rekindle-*",
        "--policy={rules: [{who: ['*example.com'], whose: ['research'], may: [see]}]}",
    ] {
        assert!(config(&["--capacity", CAPACITY, bad]).is_err(), "{bad}");
    }
    for good in [
        "--people=*",
        "--audiences=https://rekindle-api-*.a.run.app/",
        "--audiences=https://rekindle-api-*-uc.a.run.app",
        "--people=",
    ] {
        assert!(config(&["--capacity", CAPACITY, good]).is_ok(), "{good}");
    }
}

#[test]
fn capacity_lists_and_amounts_that_cannot_be_meant_are_refused() {
    for empty in ["[]", "- {accelerator: v4-8}", "not a list"] {
        assert!(config(&["--capacity", empty]).unwrap().deployment().is_err(), "{empty}");
    }
    for (list, why) in [
        (CAPACITY.replace("central1-a", "central1-z"), "us-central1-z does not offer v5litepod-*; `rekindle catalog`"),
        (CAPACITY.replace("v5litepod-*", "v5litepo-8"), "us-central1-a does not offer v5litepo-8"),
        (CAPACITY.replace("0.5", "-0.5"), "usd_per_chip_hour of v5litepod-* in us-central1-a is -0.5"),
        (CAPACITY.replace("0.5", ".nan"), "is NaN: name US dollars, 0 or more"),
        (CAPACITY.replace("0.5", "0.5, max_chip: 8"), "unknown field `max_chip`"),
    ] {
        let told = config(&["--capacity", &list]).unwrap().deployment().unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
    }
    let dear = config(&["--capacity", CAPACITY, "--max-usd-per-day=-5"]).unwrap().deployment().unwrap_err();
    assert_eq!(dear.to_string(), "max_usd_per_day is -5: name US dollars, 0 or more");
    for dear in ["--max-usd-per-day=nan", "--max-usd-per-day=inf"] {
        assert!(config(&["--capacity", CAPACITY, dear]).unwrap().deployment().is_err(), "{dear}");
    }
    let bad = ["--capacity", CAPACITY, "--agent-url=gs://b/agents/1", "--agent-sha256=zzz"];
    assert!(config(&bad).unwrap_err().to_string().contains("64 of the digits"));
    let newer = format!("{CAPACITY}\n- {{accelerator: v9-*, zone: us-central1-a, kind: spot, usd_per_chip_hour: 1}}");
    assert_eq!(config(&["--capacity", &newer]).unwrap().deployment().unwrap().capacity.len(), 2, "told, and borne");
}

#[test]
fn where_a_server_listens_and_whom_it_asks_for_keys_is_what_it_was_told() {
    let blank = config(&["--capacity", CAPACITY, "--people=ann@a.example, bob@a.example", "--push-callers="]).unwrap();
    assert_eq!((blank.callers.people.len(), blank.callers.people[1].as_str()), (2, "bob@a.example"));
    let open = |host: &str| config(&["--capacity", CAPACITY, "--auth=none", host]).unwrap().address();
    assert!(open("--host=0.0.0.0").is_err(), "open to others");
    assert_eq!(open("--host=127.0.0.1").unwrap().to_string(), "127.0.0.1:8080");
    let usual = config(&["--capacity", CAPACITY, "--auth=none"]).unwrap();
    assert!(usual.address().unwrap().ip().is_loopback());
    let keys = config(&["--capacity", CAPACITY, "--identity-keys=http://127.0.0.1:1/keys"]).unwrap();
    assert_eq!(keys.oidc_where(false).unwrap().jwks_url, "http://127.0.0.1:1/keys");
    assert!(keys.oidc_where(true).is_err(), "on Cloud Run only Google's keys count");
}

fn doors(mode: Mode, callers: Callers) -> OidcDoors {
    let clock = Arc::new(rekindle_local::SystemClock);
    OidcDoors::new(OidcSettings::google(mode, false), vec!["https://svc".into()], callers, clock).unwrap()
}

#[test]
fn each_door_has_its_own_callers_and_an_empty_list_lets_nobody_in() {
    let one = |name: &str| vec![format!("{name}@p.iam.gserviceaccount.com")];
    let callers = Callers {
        push: one("push"),
        eventarc: one("eventarc"),
        tasks: one("tasks"),
        scheduler: one("scheduler"),
        people: vec!["*".into()],
        people_audiences: vec!["gcloud".into()],
        admins: Vec::new(),
    };
    let some = doors(Mode::Verify, callers);
    let none = doors(Mode::Verify, Callers::default());
    for (door, emails) in [
        (Door::Jobs, vec!["push"]),
        (Door::Notify, vec!["push"]),
        (Door::TpuEvents, vec!["push", "eventarc"]),
        (Door::Reconcile, vec!["push", "tasks"]),
        (Door::Tick, vec!["scheduler"]),
    ] {
        let want = emails.into_iter().flat_map(one).collect();
        let expect = some.expect(door);
        assert_eq!(*expect, Expect { emails: Emails::Only(want), audiences: vec!["https://svc".into()] }, "{door:?}");
        assert_eq!(none.expect(door).emails, Emails::Only(Vec::new()), "{door:?}");
    }
    assert_eq!(some.expect(Door::People).emails, Emails::Any);
    assert_eq!(some.expect(Door::People).audiences, ["https://svc"]);
    let by_name = some.expect_by_name(Door::People).unwrap();
    assert_eq!((by_name.audiences, by_name.emails), (vec!["gcloud".to_owned()], Emails::Only(Vec::new())));
    assert!(some.expect_by_name(Door::Tick).is_none() && none.expect_by_name(Door::People).is_none());
    assert_eq!(none.expect(Door::People).emails, Emails::Only(Vec::new()));
}

#[tokio::test]
async fn calls_without_a_token_are_refused_unless_nobody_is_checked() {
    let doors_verify = doors(Mode::Verify, Callers::default());
    let refused = doors_verify.verify(Door::Tick, &HeaderMap::new()).await.unwrap_err();
    assert!(matches!(refused, Refused::Unauthenticated(_)), "{refused:?}");
    let bad = HeaderMap::from_iter([(http::header::AUTHORIZATION, "Bearer a.b.c".parse().unwrap())]);
    assert!(matches!(doors_verify.verify(Door::Tick, &bad).await, Err(Refused::Unauthenticated(_))));
    let caller = doors(Mode::None, Callers::default()).verify(Door::People, &HeaderMap::new()).await.unwrap();
    assert!(caller.is_admin);
}

struct Nobody;

#[async_trait]
impl Verifier for Nobody {
    async fn verify(&self, _: Door, _: &HeaderMap) -> Result<Caller, Refused> {
        Err(Refused::Unauthenticated("nobody".into()))
    }

    async fn machine(&self, _: &HeaderMap) -> Result<Option<Machine>, Refused> {
        Err(Refused::Unauthenticated("nobody".into()))
    }
}

const PATHS: [(&str, &str, Role); 8] = [
    ("POST", "/functions/jobs", Role::Events),
    ("POST", "/functions/tpu-events", Role::Events),
    ("POST", "/functions/notify", Role::Events),
    ("POST", "/functions/reconcile", Role::Reconcile),
    ("POST", "/functions/tick", Role::Reconcile),
    ("GET", "/v1/jobs", Role::Api),
    ("POST", "/v1/freeze", Role::Api),
    ("GET", "/v1/jobs/x/logs", Role::Api),
];

#[tokio::test]
async fn a_role_serves_its_own_paths_and_none_without_its_door() {
    let rig = Rig::new().await;
    for role in [Role::Api, Role::Events, Role::Reconcile, Role::All] {
        let parts = Parts {
            engine: rig.engine.clone(),
            verifier: Arc::new(Nobody),
            sender: Arc::new(Sender::new(false)),
            messages_may: Name::ALL.into_iter().collect(),
            uploads: None,
        };
        let router = routers(role, parts);
        let status = async |method: &str, path: &str| {
            let request = Request::builder().method(method).uri(path).body(axum::body::Body::empty()).unwrap();
            send(&router, request).await.status.as_u16()
        };
        for (method, path, of) in PATHS {
            let want = if role == of || role == Role::All { 401 } else { 404 };
            assert_eq!(status(method, path).await, want, "{role:?} {path}");
        }
        for open in ["/live", "/ready", "/version"] {
            assert_eq!(status("GET", open).await, 200, "{role:?} {open}");
        }
        let is_api = matches!(role, Role::Api | Role::All);
        assert_eq!(status("GET", "/agent/v1/ping").await, if is_api { 204 } else { 404 });
        assert_eq!(status("GET", "/objects/agent/x").await, 404, "Cloud Storage serves objects");
    }
}

#[tokio::test]
async fn processes_that_start_together_agree_on_the_installation() {
    let fakes = rekindle_fakes::Fakes::new("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    let store = fakes.store();
    let starts = (0..20).map(|_| {
        let (store, clock) = (store.clone(), fakes.clock.clone());
        tokio::spawn(async move { installation::load(&store, clock.as_ref(), &RandomIds).await.unwrap() })
    });
    let mut made = Vec::new();
    for start in starts.collect::<Vec<_>>() {
        made.push(start.await.unwrap());
    }
    assert!(made.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(made[0].secret.len(), 64);
    fakes.docs.fail_commit(rekindle_fakes::CommitFault::UnclearAfter);
    let other = rekindle_fakes::Fakes::new("2026-01-01T00:00:00Z".parse().unwrap(), 1);
    other.docs.fail_commit(rekindle_fakes::CommitFault::UnclearAfter);
    let first = installation::load(&other.store(), other.clock.as_ref(), &RandomIds).await.unwrap();
    assert_eq!(installation::load(&other.store(), other.clock.as_ref(), &RandomIds).await.unwrap(), first);
}

/// A server with a request under way; answers what ends it, what lets the request end, and the request's answer.
async fn under_way(drain: Duration) -> (oneshot::Sender<()>, Arc<Notify>, Answered, Ended) {
    let (begun, let_go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let router = {
        let (begun, let_go) = (begun.clone(), let_go.clone());
        let handler = async move || {
            begun.notify_one();
            let_go.notified().await;
            "done"
        };
        Router::new().route("/", get(handler))
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (stop, stopped) = oneshot::channel();
    let ended = tokio::spawn(serve_for(
        listener,
        router,
        async {
            let _ = stopped.await;
        },
        drain,
    ));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answered = tokio::spawn(async move { client.get(url).send().await?.text().await });
    begun.notified().await;
    (stop, let_go, answered, ended)
}

type Answered = tokio::task::JoinHandle<Result<String, reqwest::Error>>;
type Ended = tokio::task::JoinHandle<()>;

#[tokio::test]
async fn a_stop_lets_requests_end() {
    let (stop, let_go, answered, ended) = under_way(Duration::from_mins(1)).await;
    stop.send(()).unwrap();
    tokio::task::yield_now().await;
    assert!(!ended.is_finished());
    let_go.notify_one();
    assert_eq!(answered.await.unwrap().unwrap(), "done");
    ended.await.unwrap();
}

#[tokio::test]
async fn a_stop_cuts_what_does_not_end_in_time() {
    let (stop, let_go, answered, ended) = under_way(Duration::from_millis(50)).await;
    stop.send(()).unwrap();
    ended.await.unwrap();
    drop((let_go, answered));
}
