//! Whose jobs people see, change and stop; what they borrow; the fleet as the tick saw it.

use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};

use rekindle_core::access::Access;
use rekindle_core::account::{Meter, week_of};
use rekindle_core::ids::JobId;
use rekindle_core::settings::Deployment;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{DeadDoc, OrphansDoc};
use rekindle_ports::world::Clock as _;
use rekindle_rig::{Answer, Rig, send, spec};
use rekindle_web::caller::guard;
use rekindle_web::{Caller, Door, Machine, Refused, Verifier, layers};

use crate::Api;

/// Takes everyone's word for who they are; root is an admin.
struct Named;

#[async_trait]
impl Verifier for Named {
    async fn verify(&self, _: Door, headers: &HeaderMap) -> Result<Caller, Refused> {
        let identity = headers["x-caller"].to_str().unwrap().to_owned();
        let is_admin = identity == "root@example.com";
        Ok(Caller { identity, is_admin })
    }

    async fn machine(&self, _: &HeaderMap) -> Result<Option<Machine>, Refused> {
        Ok(None)
    }
}

struct World {
    rig: Rig,
    router: Router,
}

impl World {
    /// With a job of ann's and one of research's.
    async fn new() -> Self {
        let mut rig = Rig::new().await;
        let policy = json!({
            "rules": [
                {"who": ["bob@example.com"], "whose": ["research"], "may": ["see", "submit"]},
                {"who": ["eye@example.com"], "whose": ["*"], "may": ["see"]},
                {"who": ["ops@example.com"], "whose": ["*"], "may": ["see", "stop"]},
            ],
            "borrow": {"research": {
                "service_accounts": ["r@p.iam.gserviceaccount.com"], "capacity": [{"kind": "on_demand"}],
            }},
        });
        let access: Access = serde_json::from_value(policy).unwrap();
        rig.engine.deployment = Arc::new(Deployment { access, ..Deployment::clone(&rig.engine.deployment) });
        let api = Api::new(rig.engine.clone(), Arc::new(Named), None).surveyed(true);
        let people = guard(crate::people(api), Arc::new(Named), Door::People);
        let world = Self { router: layers::common(people, rig.engine.settings.handler_deadline), rig };
        assert_eq!(world.submit("ann@example.com", &spec("anns")).await.status, 201);
        assert_eq!(world.submit("bob@example.com", &of_research("shared")).await.status, 201);
        world
    }

    async fn call(&self, who: &str, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let request = Request::builder().method(method).uri(path).header("x-caller", who);
        let request = request.header("content-type", "application/json");
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        send(&self.router, request.body(body).unwrap()).await
    }

    async fn submit(&self, who: &str, body: &Value) -> Answer {
        self.call(who, Method::POST, "/v1/jobs", Some(body)).await
    }

    async fn get(&self, who: &str, path: &str) -> Answer {
        self.call(who, Method::GET, path, None).await
    }

    async fn tell(&self, who: &str, path: &str) -> u16 {
        self.call(who, Method::POST, path, None).await.status.as_u16()
    }

    async fn listed(&self, who: &str, query: &str) -> Vec<String> {
        let list = self.get(who, &format!("/v1/jobs{query}")).await.json();
        let ids = list["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned());
        let mut ids: Vec<String> = ids.collect();
        ids.sort();
        ids
    }
}

fn of_research(id: &str) -> Value {
    let mut body = spec(id);
    body["owner"] = json!("research");
    body["tpu"]["capacity"] = json!(["on_demand"]);
    body
}

#[tokio::test]
async fn people_see_their_own_jobs_and_those_that_the_policy_shows_them() {
    let world = World::new().await;
    for (who, seen) in [
        ("ann@example.com", vec!["anns"]),
        ("bob@example.com", vec!["shared"]),
        ("eve@example.com", vec![]),
        ("eye@example.com", vec!["anns", "shared"]),
        ("root@example.com", vec!["anns", "shared"]),
    ] {
        assert_eq!(world.listed(who, "").await, seen, "{who}");
        for job in ["anns", "shared"] {
            let want = if seen.contains(&job) { 200 } else { 404 };
            for path in ["", "/history", "/explain", "/logs", "/progress", "/outputs"] {
                let answer = world.get(who, &format!("/v1/jobs/{job}{path}")).await;
                assert_eq!(answer.status, want, "{who} {job}{path}");
                assert!(want == 200 || !answer.text().contains("research"), "{}", answer.text());
            }
        }
    }
    assert!(world.listed("eve@example.com", "?owner=ann@example.com").await.is_empty());
}

#[tokio::test]
async fn where_a_page_ends_tells_of_no_job_that_is_not_to_be_seen() {
    let world = World::new().await;
    // The newest is research's; whoever sees their own and one owner's looks through all.
    for number in 0..20 {
        world.rig.advance(1);
        assert_eq!(world.submit("ann@example.com", &spec(&format!("merger-{number}"))).await.status, 201);
        if number == 1 {
            let page = world.get("bob@example.com", "/v1/jobs?page_size=1").await.json();
            assert_eq!(page["jobs"][0]["id"], "shared", "no page is emptier for those of others");
        }
    }
    let page = world.get("bob@example.com", "/v1/jobs?page_size=1").await.json();
    assert_eq!(page["jobs"], json!([]));
    let token = page["next_page_token"].as_str().unwrap();
    let bytes = URL_SAFE_NO_PAD.decode(token).unwrap();
    assert!(!String::from_utf8_lossy(&bytes).contains("merger"), "{token}");
    let next = world.get("bob@example.com", &format!("/v1/jobs?page_size=1&page_token={token}")).await.json();
    assert_eq!(next["jobs"][0]["id"], "shared", "and yet it goes on from there");
    // Nor as a token of another list, or of somebody else, whose refusal could name it.
    for (who, list) in [
        ("bob@example.com", "/v1/dead-letters?page_size=1&"),
        ("bob@example.com", "/v1/jobs?owner=research&"),
        ("root@example.com", "/v1/jobs?"),
    ] {
        let refused = world.get(who, &format!("{list}page_token={token}")).await;
        assert!(refused.status == 400 && !refused.text().contains("merger"), "{}", refused.text());
    }
    let none = world.get("bob@example.com", "/v1/jobs?page_size=1&owner=ann@example.com").await.json();
    assert_eq!((&none["jobs"], &none["next_page_token"]), (&json!([]), &Value::Null), "nor how many there are");
    let own = URL_SAFE_NO_PAD.encode(r#"{"value":1796056880222464,"path":"jobs/anns"}"#);
    assert_eq!(world.get("bob@example.com", &format!("/v1/jobs?page_token={own}")).await.status, 400);
}

#[tokio::test]
async fn the_account_and_the_digest_are_of_the_jobs_that_people_may_see() {
    let world = World::new().await;
    let week = week_of(world.rig.fakes.clock.now());
    let gone = (JobId::parse("gone").unwrap(), Meter { chip_secs: 7200, usd_micros: 600_000 });
    let orphans = OrphansDoc { jobs: [gone].into_iter().collect() };
    world.rig.fakes.store().write(&Kind::Orphans(week), &orphans, Precondition::Absent).await.unwrap();
    for (who, seen) in [
        ("ann@example.com", vec!["anns"]),
        ("bob@example.com", vec!["shared"]),
        ("eve@example.com", vec![]),
        ("eye@example.com", vec!["anns", "gone", "shared"]),
    ] {
        let account = world.get(who, "/v1/account?by=job").await.json();
        let rows = account["rows"].as_array().unwrap().iter();
        // No job of this world has had a slice yet: the orphan alone has cost something.
        let counted: Vec<&str> = rows.map(|row| row["job"].as_str().unwrap()).collect();
        let orphan: Vec<&str> = seen.iter().copied().filter(|id| *id == "gone").collect();
        assert_eq!(counted, orphan, "{who}: {account}");
        let digest = world.get(who, "/v1/digest?since=2026-11-01T00:00:00Z").await.json();
        let mut told: Vec<&str> =
            digest["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap()).collect();
        told.sort_unstable();
        assert_eq!(told, seen.into_iter().filter(|id| *id != "gone").collect::<Vec<_>>(), "{who}: {digest}");
    }
    let others = world.get("eve@example.com", "/v1/account?owner=ann@example.com").await.json();
    assert_eq!(others["rows"], json!([]));
}

#[tokio::test]
async fn for_who_may_see_no_job_none_of_others_is_read() {
    let world = World::new().await;
    let reads = async |who: &str, path: &str| {
        let before = world.rig.fakes.docs.reads();
        assert_eq!(world.get(who, path).await.status, 200, "{who} {path}");
        world.rig.fakes.docs.reads() - before
    };
    for path in ["/v1/account?weeks=520", "/v1/digest?since=2026-11-01T00:00:00Z"] {
        assert_eq!(reads("eve@example.com", path).await, 1, "{path}: whether there is one of their own");
        assert_eq!(reads("eve@example.com", &format!("{path}&owner=ann@example.com")).await, 0, "{path}");
        assert!(reads("ann@example.com", path).await > 1, "{path}");
    }
}

#[tokio::test]
async fn dead_letters_are_of_the_jobs_that_people_may_see() {
    let world = World::new().await;
    for (name, job) in [("1", Some("anns")), ("2", Some("shared")), ("3", Some("gone")), ("4", None)] {
        let doc = DeadDoc {
            key: name.into(),
            source: "notify/pubsub".into(),
            reason: format!("hooks.example.com: of {}", job.unwrap_or("none")),
            at: world.rig.fakes.clock.now(),
            excerpt: String::new(),
            job: job.map(|id| JobId::parse(id).unwrap()),
            tried_until: None,
        };
        world.rig.fakes.store().bury(name.into(), &doc).await.unwrap();
        world.rig.advance(1);
    }
    for (who, seen) in [
        ("ann@example.com", vec!["anns"]),
        ("bob@example.com", vec!["shared"]),
        ("eve@example.com", vec![]),
        // What is of no job, and of one that is no more, is for who sees everyone's.
        ("eye@example.com", vec!["none", "gone", "shared", "anns"]),
    ] {
        let list = world.get(who, "/v1/dead-letters").await.json();
        let letters = list["letters"].as_array().unwrap().iter();
        let told: Vec<&str> =
            letters.map(|letter| letter["reason"].as_str().unwrap().rsplit(' ').next().unwrap()).collect();
        assert_eq!(told, seen, "{who}");
    }
    assert_eq!(world.get("eve@example.com", "/v1/dead-letters?job=anns").await.status, 404);
    // What others' letters stand before it, a page is not empty.
    let page = world.get("ann@example.com", "/v1/dead-letters?page_size=1").await.json();
    assert_eq!(page["letters"].as_array().unwrap().len(), 1, "{page}");
    let none = world.get("eve@example.com", "/v1/dead-letters?page_size=1").await.json();
    assert_eq!((&none["letters"], &none["next_page_token"]), (&json!([]), &Value::Null), "it is the last");
}

#[tokio::test]
async fn commands_need_their_right_and_refusals_change_nothing() {
    let world = World::new().await;
    let before = world.rig.fakes.docs.dump();
    for (who, path, want) in [
        ("eve@example.com", "/v1/jobs/anns/cancel", 404),
        ("bob@example.com", "/v1/jobs/anns/cancel", 404),
        ("eye@example.com", "/v1/jobs/anns/cancel", 403),
        ("bob@example.com", "/v1/jobs/shared/cancel", 403),
        ("bob@example.com", "/v1/jobs/shared/pause", 403),
        ("ops@example.com", "/v1/jobs/shared/wake", 403),
        ("ann@example.com", "/v1/freeze", 403),
        ("eye@example.com", "/v1/thaw", 403),
    ] {
        assert_eq!(world.tell(who, path).await, want, "{who} {path}");
    }
    let notes = json!({"notes": "mine now"});
    let label = async |who: &str| world.call(who, Method::PATCH, "/v1/jobs/anns", Some(&notes)).await.status.as_u16();
    assert_eq!((label("eye@example.com").await, label("eve@example.com").await), (403, 404));
    for (who, want) in [("eye@example.com", 403), ("ops@example.com", 403), ("eve@example.com", 404)] {
        let order = world.call(who, Method::POST, "/v1/jobs/anns/exec", Some(&json!({"run": "nproc"}))).await;
        assert_eq!(order.status, want, "{who}: {}", order.text());
    }
    for path in ["/v1/jobs/anns/exec/1", "/v1/jobs/anns/exec/1/0-0/stdout/0", "/v1/jobs/anns/outputs/w0/x"] {
        let answer = world.get("eve@example.com", path).await;
        assert_eq!(answer.status, 404);
        assert!(answer.text().contains("job anns"), "not even whether it has any: {}", answer.text());
    }
    assert_eq!(world.rig.fakes.docs.dump(), before);
    world.rig.fakes.hints.take();
    for (who, path, want) in [
        ("bob@example.com", "/v1/jobs/shared/wake", 202),
        ("ops@example.com", "/v1/jobs/shared/cancel", 202),
        ("ann@example.com", "/v1/jobs/anns/cancel", 202),
        ("ops@example.com", "/v1/freeze", 200),
        ("root@example.com", "/v1/thaw", 200),
    ] {
        assert_eq!(world.tell(who, path).await, want, "{who} {path}");
    }
    assert_eq!(label("ann@example.com").await, 200);
}

#[tokio::test]
async fn a_job_is_submitted_for_whom_the_policy_names_and_borrows_what_is_lent() {
    let world = World::new().await;
    let fields = |answer: &Answer| -> Vec<String> {
        let errors = answer.json()["errors"].as_array().cloned().unwrap_or_default();
        errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect()
    };
    for who in ["ann@example.com", "eye@example.com", "ops@example.com"] {
        let answer = world.submit(who, &of_research("new")).await;
        assert_eq!((answer.status.as_u16(), fields(&answer)), (400, vec!["owner".to_owned()]), "{who}");
    }
    let mut spot = of_research("new");
    spot["tpu"]["capacity"] = json!(["spot"]);
    let answer = world.submit("bob@example.com", &spot).await;
    assert_eq!((answer.status.as_u16(), fields(&answer)), (400, vec!["tpu".to_owned()]), "{}", answer.text());
    let account = |mut body: Value, name: &str| {
        body["tpu"]["service_account"] = json!(format!("{name}@p.iam.gserviceaccount.com"));
        body
    };
    for (body, who, want) in [
        (account(spec("new"), "r"), "ann@example.com", 400),
        (account(of_research("new"), "other"), "bob@example.com", 400),
        (account(of_research("new"), "r"), "bob@example.com", 201),
    ] {
        let answer = world.submit(who, &body).await;
        assert_eq!(answer.status, want, "{}", answer.text());
        assert!(want == 201 || fields(&answer) == ["tpu.service_account"], "{}", answer.text());
    }
}

#[tokio::test]
async fn the_fleet_is_shown_as_the_tick_saw_it_and_names_nobody_elses_job() {
    let world = World::new().await;
    assert_eq!(world.get("ann@example.com", "/v1/fleet").await.status, 503, "no tick yet");
    for _ in 0..4 {
        world.rig.pass("anns").await;
        world.rig.advance(1);
    }
    let lists =
        |world: &World| world.rig.fakes.tpu.calls().iter().filter(|c| matches!(c, rekindle_fakes::Call::List)).count();
    Box::pin(world.rig.engine.tick(rekindle_ports::world::Clock::now(world.rig.fakes.clock.as_ref()))).await.unwrap();
    let before = lists(&world);
    let own = world.get("ann@example.com", "/v1/fleet").await.json();
    assert_eq!((&own["resources"][0]["job"], &own["resources"][0]["owner"]), (&json!("anns"), &json!("anns")));
    assert!(own["listed_at"].is_string());
    let theirs = world.get("bob@example.com", "/v1/fleet").await;
    assert!(!theirs.text().contains("anns") && !theirs.text().contains("ann@"), "{}", theirs.text());
    let theirs = theirs.json();
    assert_eq!((&theirs["resources"][0]["job"], &theirs["resources"][0]["owner"]), (&Value::Null, &Value::Null));
    assert!(theirs["resources"][0]["usd_per_hour"].as_f64().unwrap() > 0.0);
    assert_eq!(lists(&world), before, "the TPU API is not asked");
}

#[tokio::test]
async fn the_fleet_of_many_jobs_is_read_with_as_few_calls_as_that_of_one() {
    let world = World::new().await;
    let mut reads = Vec::new();
    for (jobs, name) in [(1, "few"), (6, "many")] {
        for n in 0..jobs {
            let id = format!("{name}-{n}");
            assert_eq!(world.submit("ann@example.com", &spec(&id)).await.status, 201);
            for _ in 0..4 {
                world.rig.pass(&id).await;
                world.rig.advance(1);
            }
        }
        let now = rekindle_ports::world::Clock::now(world.rig.fakes.clock.as_ref());
        Box::pin(world.rig.engine.tick(now)).await.unwrap();
        let before = world.rig.fakes.docs.reads();
        let own = world.get("bob@example.com", "/v1/fleet").await.json();
        reads.push(world.rig.fakes.docs.reads() - before);
        assert!(own["resources"].as_array().unwrap().len() >= jobs, "{own}");
    }
    assert_eq!(reads[0], reads[1]);
}
