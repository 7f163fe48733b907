//! Agents in the cloud: their machine's identity token beside their own.

use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use rekindle_core::classify::{Exit, WorkerEvidence};
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::observation::{ExitReport, WorkerState};
use rekindle_engine::tokens;
use rekindle_gcp::oidc::Mode;
use rekindle_ports::docs::Doc;
use rekindle_ports::kinds::Kind;
use rekindle_ports::world::{Clock as _, Objects as _};
use rekindle_rig::{Answer, Log, spec};
use rekindle_wire::agent::{Hello, Progress, Report};

use super::identity::{Call, GCLOUD, WORKER, World, sign};

const INSTANCE: &str = "t1v-n-1-w-0";

fn train() -> JobId {
    JobId::parse("train").unwrap()
}

/// A world with a job whose workers are awaited.
async fn awaited(mode: Mode) -> World {
    let world = World::with(mode).await;
    let submit = Call::post("/v1/jobs", spec("train").to_string());
    assert_eq!(world.send_as("ann@example.com", &submit).await.status, 201);
    for _ in 0..4 {
        world.rig.pass("train").await;
        world.rig.advance(1);
    }
    world.rig.fakes.hints.take();
    world
}

impl World {
    /// The claims of a machine's token.
    fn machine(&self, zone: &str, instance: &str, made: i64) -> Value {
        let mut claims = self.claims(WORKER);
        let engine = json!({"instance_name": instance, "zone": zone, "instance_creation_timestamp": made});
        claims["google"] = json!({"compute_engine": engine});
        claims
    }

    async fn zone(&self) -> String {
        self.rig.job("train").await.unwrap().generations[0].placement.zone.clone()
    }

    fn nonce(&self) -> String {
        tokens::nonce(&self.rig.engine.installation.secret, &train(), 1)
    }

    async fn agent(&self, call: &Call, identity: Option<&Value>, token: Option<&str>) -> Answer {
        let mut headers = Vec::new();
        headers.extend(identity.map(|claims| ("x-serverless-authorization", format!("Bearer {}", self.token(claims)))));
        headers.extend(token.map(|token| ("authorization", format!("Bearer {token}"))));
        self.send(call, &headers).await
    }
}

fn hello(nonce: &str, instance: &str) -> Call {
    let hello = Hello {
        job: train(),
        generation: 1,
        key: WorkerKey { slice: 0, worker: 0 },
        nonce: nonce.to_owned(),
        instance: instance.to_owned(),
        boot_id: "boot".into(),
        address: "10.0.0.1".into(),
        version: "0.1.0".into(),
    };
    Call::post("/agent/v1/hello", serde_json::to_string(&hello).unwrap())
}

#[tokio::test]
async fn an_agents_machine_must_be_the_worker_that_it_says_it_is() {
    other_machines_are_refused(Mode::Verify).await;
}

#[tokio::test]
async fn so_it_must_where_the_platform_has_verified_its_token() {
    other_machines_are_refused(Mode::Platform).await;
}

async fn other_machines_are_refused(mode: Mode) {
    let world = awaited(mode).await;
    let (zone, nonce, now) = (world.zone().await, world.nonce(), world.now());
    let before = world.rig.fakes.docs.dump();
    let log = Log::default();
    let _guard = log.listen();
    let good = || world.machine(&zone, INSTANCE, now);
    let mut person = good();
    person["email"] = json!("ann@example.com");
    let mut short = good();
    short.as_object_mut().unwrap().remove("google");
    let (own, third) = (hello(&nonce, INSTANCE), hello(&nonce, "t1v-n-1-w-3"));
    let cases = [
        ("no identity", None, &own, 401, "no identity token"),
        ("another zone", Some(world.machine("us-east5-a", INSTANCE, now)), &own, 403, "us-east5-a"),
        ("another VM", Some(world.machine(&zone, "t1v-n-9-w-0", now)), &own, 403, "t1v-n-9-w-0"),
        ("another account", Some(person), &own, 403, "ann@example.com"),
        ("no word of the machine", Some(short), &own, 403, "format=full"),
        ("older than its node", Some(world.machine(&zone, INSTANCE, now - 9999)), &own, 403, "older"),
        ("another worker", Some(world.machine(&zone, "t1v-n-1-w-3", now)), &third, 403, "worker 0"),
        ("a wrong nonce", Some(good()), &hello("00", INSTANCE), 401, "nonce"),
    ];
    for (name, identity, call, want, told) in cases {
        log.take();
        let answer = world.agent(call, identity.as_ref(), None).await;
        assert_eq!(answer.status, want, "{name}: {}", answer.text());
        let line = log.take();
        assert!(line.contains(told), "{name}: {line}");
    }
    assert_eq!(world.rig.fakes.docs.dump(), before, "nothing was stored");
    let first = world.agent(&own, Some(&good()), None).await;
    assert_eq!(first.status, 200, "{}", first.text());
    // The first VM of a worker wins, whoever else has the nonce and a good token.
    let second = world.machine(&zone, "t1v-n-2-w-0", now);
    assert_eq!(world.agent(&hello(&nonce, "t1v-n-2-w-0"), Some(&second), None).await.status, 409);
}

fn exit_report(now: i64) -> Report {
    let evidence = WorkerEvidence { exit: Exit::Code(1), ..WorkerEvidence::default() };
    Report {
        job: train(),
        generation: 1,
        key: WorkerKey { slice: 0, worker: 0 },
        instance: INSTANCE.into(),
        boot_id: "boot".into(),
        attempt: 1,
        store: true,
        state: WorkerState::Exited,
        started_at: None,
        progress: Progress::default(),
        output_at: None,
        disk_free_bytes: None,
        memory_free_bytes: None,
        notice: None,
        exit: Some(ExitReport { at: Timestamp::from_second(now).unwrap(), ordered: false, evidence }),
        has_work: false,
        has_bell: false,
        is_collecting: false,
        has_unsent: false,
    }
}

fn changed(report: &Report, change: impl FnOnce(&mut Report)) -> Call {
    let mut report = report.clone();
    change(&mut report);
    Call::post("/agent/v1/report", serde_json::to_string(&report).unwrap())
}

/// How a call without a good token of its machine is answered, and what the log says of it.
const UNKNOWN: (u16, &str) = (401, "a call without a good token was refused");
/// The same of one with a token that is not its own.
const WRONG: (u16, &str) = (401, "a call with a wrong token");
/// The same of another VM's.
const OTHER_VM: (u16, &str) = (403, "it calls as t1v-n-2-w-0");

/// Whether one of the lines is a warning with these words.
fn warns(lines: &str, words: &str) -> bool {
    lines.lines().any(|line| line.contains("WARN") && line.contains(words))
}

/// A call that must be refused so, with a line that says why.
async fn is_refused(
    (world, name): (&World, &str),
    call: &Call,
    (machine, token): (Option<&Value>, Option<&str>),
    (status, said): (u16, &str),
) {
    let log = Log::default();
    let listening = log.listen();
    let answer = world.agent(call, machine, token).await;
    drop(listening);
    let lines = log.take();
    assert_eq!(answer.status, status, "{name} at {}: {}", call.path, answer.text());
    assert!(warns(&lines, said), "{name} at {}: {lines}", call.path);
}

#[tokio::test]
async fn every_bad_token_of_a_machine_is_refused_at_every_path_of_agents_and_changes_nothing() {
    bad_machines_are_refused(Mode::Verify).await;
}

#[tokio::test]
async fn so_it_is_where_the_platform_has_verified_the_machines() {
    bad_machines_are_refused(Mode::Platform).await;
}

async fn bad_machines_are_refused(mode: Mode) {
    let world = awaited(mode).await;
    let (zone, nonce, now) = (world.zone().await, world.nonce(), world.now());
    let machine = world.machine(&zone, INSTANCE, now);
    let welcome = world.agent(&hello(&nonce, INSTANCE), Some(&machine), None).await.json();
    let own = welcome["token"].as_str().unwrap();
    let calls = [
        (hello(&nonce, INSTANCE), None),
        (changed(&exit_report(now), |_| {}), Some(own)),
        (log_chunk(INSTANCE), Some(own)),
        (exec_chunk("train", 1, 0, INSTANCE), Some(own)),
        (output("train", 1, 0, INSTANCE), Some(own)),
    ];
    world.rig.fakes.hints.take();
    let before = (world.rig.fakes.docs.dump(), world.rig.fakes.objects.list("", None, 100).await.unwrap());
    let of_gcloud = world.token_with(&machine, "aud", json!(GCLOUD));
    let mut bad = world.bad(&machine);
    // People's own audience is for their door alone.
    bad.push(("gcloud's audience", Some(of_gcloud), "audience"));
    let log = Log::default();
    let listening = log.listen();
    for (call, own) in &calls {
        for (name, identity, told) in &bad {
            let of_machine = identity.as_ref().map(|token| ("x-serverless-authorization", format!("Bearer {token}")));
            let of_agent = own.map(|token| ("authorization", format!("Bearer {token}")));
            let headers: Vec<_> = of_machine.into_iter().chain(of_agent).collect();
            log.take();
            let answer = world.send(call, &headers).await;
            assert_eq!(answer.status, 401, "{name} at {}: {}", call.path, answer.text());
            // Without one of its machine, an agent's own token is in its place.
            let told = if identity.is_none() && own.is_some() { "cannot be read" } else { told };
            assert!(
                answer.json()["detail"].as_str().unwrap().contains(told),
                "{name} at {}: {}",
                call.path,
                answer.text()
            );
            let lines = log.take();
            assert!(warns(&lines, UNKNOWN.1) && warns(&lines, told), "{name} at {}: {lines}", call.path);
            let shown = [identity.as_deref(), *own].into_iter().flatten().find(|t| t.len() > 10 && lines.contains(t));
            assert_eq!(shown, None, "{name} at {}: a token in the log", call.path);
        }
    }
    drop(listening);
    let after = (world.rig.fakes.docs.dump(), world.rig.fakes.objects.list("", None, 100).await.unwrap());
    assert_eq!(after, before);
    assert!(world.rig.fakes.hints.take().is_empty());
    for (call, own) in &calls {
        let answer = world.agent(call, Some(&machine), *own).await;
        assert!(![401, 403].contains(&answer.status.as_u16()), "{}: {}", call.path, answer.text());
    }
}

#[tokio::test]
async fn an_agents_token_is_of_one_job_one_generation_one_worker_and_one_vm() {
    agents_tokens_are_bound(Mode::Verify).await;
}

#[tokio::test]
async fn so_it_is_where_the_platform_has_verified_its_machines() {
    agents_tokens_are_bound(Mode::Platform).await;
}

/// Output of the program.
fn log_chunk(instance: &str) -> Call {
    let path = format!("/agent/v1/logs/train/1/0-0/stdout/0?generation=1&instance={instance}");
    Call { method: "PUT", path, body: "line\n".into() }
}

/// Output of an order to run something beside the program.
fn exec_chunk(job: &str, generation: u32, worker: u32, instance: &str) -> Call {
    let path = format!("/agent/v1/exec/{job}/1/0-{worker}/stdout/0?generation={generation}&instance={instance}");
    Call { method: "PUT", path, body: "line\n".into() }
}

/// A file that is to be kept.
fn output(job: &str, generation: u32, worker: u32, instance: &str) -> Call {
    let key = json!({"slice": 0, "worker": worker});
    let place = json!({"job": job, "generation": generation, "key": key, "instance": instance, "path": "a.txt"});
    Call::post("/agent/v1/outputs", place.to_string())
}

/// What is stored, but for the account of calls that were taken.
fn stored(world: &World) -> Vec<Doc> {
    let docs = world.rig.fakes.docs.dump().into_iter();
    docs.filter(|doc| doc.path != Kind::Liveness.path()).collect()
}

/// Of an attempt that is over, or that the job does not have, by the machines that it was given to: late, not false. What it says is dropped;
/// an error would make the agent say it again and again, where the order tells it which attempt counts.
async fn other_attempts_are_answered(world: &World, report: &Report, machine: &Value, token: &str) {
    let log = Log::default();
    for (attempt, is_told) in [(0, false), (7, true)] {
        let listening = log.listen_as_cloud();
        let answer = world.agent(&changed(report, |r| r.attempt = attempt), Some(machine), Some(token)).await;
        drop(listening);
        assert_eq!((answer.status.as_u16(), &answer.json()["attempt"]), (200, &json!(1)), "{attempt}");
        let told = log.take().contains("a report of an attempt that was never made was dropped");
        assert_eq!(told, is_told, "{attempt}");
    }
}

async fn agents_tokens_are_bound(mode: Mode) {
    let world = awaited(mode).await;
    let (zone, now) = (world.zone().await, world.now());
    let machine = world.machine(&zone, INSTANCE, now);
    let welcome = world.agent(&hello(&world.nonce(), INSTANCE), Some(&machine), None).await.json();
    let token = welcome["token"].as_str().unwrap();
    let report = exit_report(now);
    let same = changed(&report, |_| {});
    let before = stored(&world);
    let both = (Some(&machine), Some(token));
    let (unnamed, unproven) = ((None, Some(token)), (Some(&machine), None));
    for (name, call) in [
        ("another job", changed(&report, |r| r.job = JobId::parse("other").unwrap())),
        ("another generation", changed(&report, |r| r.generation = 2)),
        ("another worker", changed(&report, |r| r.key.worker = 1)),
    ] {
        is_refused((&world, name), &call, both, WRONG).await;
    }
    let other_vm = changed(&report, |r| r.instance = "t1v-n-2-w-0".into());
    is_refused((&world, "another VM"), &other_vm, both, OTHER_VM).await;
    is_refused((&world, "without its machine's token"), &same, unnamed, UNKNOWN).await;
    is_refused((&world, "without its own"), &same, unproven, WRONG).await;
    other_attempts_are_answered(&world, &report, &machine, token).await;
    is_refused((&world, "without its machine's token"), &log_chunk(INSTANCE), unnamed, UNKNOWN).await;
    is_refused((&world, "another VM"), &log_chunk("t1v-n-2-w-0"), both, OTHER_VM).await;
    for of in [exec_chunk, output] {
        let own = of("train", 1, 0, INSTANCE);
        for (name, call) in [
            ("another job", of("other", 1, 0, INSTANCE)),
            ("another generation", of("train", 2, 0, INSTANCE)),
            ("another worker", of("train", 1, 1, INSTANCE)),
        ] {
            is_refused((&world, name), &call, both, WRONG).await;
        }
        is_refused((&world, "another VM"), &of("train", 1, 0, "t1v-n-2-w-0"), both, OTHER_VM).await;
        is_refused((&world, "without its machine's token"), &own, unnamed, UNKNOWN).await;
        is_refused((&world, "without its own"), &own, unproven, WRONG).await;
        is_refused((&world, "another"), &own, (Some(&machine), Some("abc")), WRONG).await;
    }
    assert_eq!(stored(&world), before, "what was refused or is of another attempt changes nothing");
    assert!(world.rig.fakes.hints.take().is_empty());

    assert_eq!(world.agent(&same, Some(&machine), Some(token)).await.status, 200);
    let workers = |world: &World| {
        let docs = world.rig.fakes.docs.dump().into_iter().filter(|doc| doc.path.contains("/workers/"));
        let said = docs.map(|doc| {
            let mut body = Value::clone(&doc.content.body);
            // Who sends one is there, whatever it says.
            body["data"]["heard_at"] = Value::Null;
            (doc.path, body)
        });
        said.collect::<Vec<_>>()
    };
    let first = workers(&world);
    assert!(!first.is_empty());
    assert_eq!(world.agent(&same, Some(&machine), Some(token)).await.status, 200);
    assert_eq!(workers(&world), first, "a replayed report changes nothing");
    assert_eq!(world.agent(&log_chunk(INSTANCE), Some(&machine), Some(token)).await.status, 204);
}

#[tokio::test]
async fn no_line_of_any_level_holds_a_secret() {
    const OF_THE_JOB: &str = "key-that-only-the-program-may-see";
    let log = Log::default();
    let _guard = log.listen();
    let world = World::new().await;
    let mut with_secret = spec("train");
    with_secret["env"] = json!({"WANDB_API_KEY": OF_THE_JOB});
    let person = sign(&world.claims("ann@example.com"));
    let submit = Call::post("/v1/jobs", with_secret.to_string());
    let by_person = [("authorization", format!("Bearer {person}"))];
    assert_eq!(world.send(&submit, &by_person).await.status, 201);
    // The same again, another under its id, and one with faults.
    assert_eq!(world.send(&submit, &by_person).await.status.as_u16() / 100, 2);
    with_secret["run"] = json!(["other"]);
    assert_eq!(world.send(&Call::post("/v1/jobs", with_secret.to_string()), &by_person).await.status, 409);
    with_secret["tpu"] = json!({"accelerator": "none-such"});
    assert_eq!(world.send(&Call::post("/v1/jobs", with_secret.to_string()), &by_person).await.status, 400);
    for _ in 0..4 {
        world.rig.pass("train").await;
        world.rig.advance(1);
    }
    let (zone, nonce, now) = (world.zone().await, world.nonce(), world.now());
    let machine = world.machine(&zone, INSTANCE, now);
    let welcome = world.agent(&hello(&nonce, INSTANCE), Some(&machine), None).await.json();
    let token = welcome["token"].as_str().unwrap().to_owned();
    // Refused ones too: what is wrong is told, but never by showing it.
    let stranger = world.machine(&zone, "t1v-n-2-w-0", now);
    assert_eq!(world.agent(&hello(&nonce, "t1v-n-2-w-0"), Some(&stranger), None).await.status, 409);
    let report = exit_report(now);
    let other = changed(&report, |r| r.generation = 2);
    assert_eq!(world.agent(&other, Some(&machine), Some(&token)).await.status, 401);
    assert_eq!(world.agent(&changed(&report, |_| {}), Some(&machine), Some(&token)).await.status, 200);
    world.rig.pass("train").await;
    let told = log.take();
    assert!(told.contains("WARN") && told.lines().count() > 10, "{told}");
    for secret in [OF_THE_JOB, &nonce, &token, &person, &sign(&machine)] {
        assert!(!told.contains(secret), "{secret} in {told}");
    }
}

#[tokio::test]
async fn whatever_runs_without_a_tick_says_so() {
    const LATE: &str = "no tick has run for five minutes";
    let log = Log::default();
    let _guard = log.listen();
    let world = awaited(Mode::Verify).await;
    let tick = async || Box::pin(world.rig.engine.tick(world.rig.fakes.clock.now())).await.unwrap();
    tick().await;
    world.rig.advance(290);
    world.rig.pass("train").await;
    assert!(!log.take().contains(LATE));
    world.rig.advance(15);
    world.rig.pass("train").await;
    assert!(log.take().contains(LATE), "a pass");
    let machine = world.machine(&world.zone().await, INSTANCE, world.now());
    assert_eq!(world.agent(&hello(&world.nonce(), INSTANCE), Some(&machine), None).await.status, 200);
    assert!(log.take().contains(LATE), "an agent's call");
    tick().await;
    assert!(log.take().contains(LATE), "the next tick");
    world.rig.pass("train").await;
    assert!(!log.take().contains(LATE), "and then it is over");
}

#[tokio::test]
async fn a_machine_without_a_token_is_refused_before_its_body_has_come() {
    let world = World::with(Mode::Verify).await;
    for (method, path) in [
        ("POST", "/agent/v1/hello"),
        ("POST", "/agent/v1/report"),
        ("POST", "/agent/v1/outputs"),
        ("PUT", "/agent/v1/logs/train/1/0/stdout/1"),
        ("PUT", "/agent/v1/exec/train/1/0/stdout/1"),
    ] {
        let pending = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
        let never = axum::body::Body::from_stream(pending);
        let request = http::Request::builder().method(method).uri(path).header("content-type", "application/json");
        let answer = world.router.clone().oneshot(request.body(never).unwrap()).await.unwrap();
        assert_eq!(answer.status(), 401, "{path}");
    }
}
