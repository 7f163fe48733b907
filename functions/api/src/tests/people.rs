//! What people call.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use rekindle_core::ids::WorkerKey;
use rekindle_core::job::{Desired, Via};
use rekindle_core::observation::{Health, SliceLabels, SliceState, SliceView};
use rekindle_core::spec::{ParseContext, parse};
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{FreezeDoc, LivenessDoc};
use rekindle_ports::tpu::{Listed, SliceRef};
use rekindle_ports::world::Clock as _;
use rekindle_rig::{CALLER, raw, send, spec};
use rekindle_wire::v1::{JobList, JobView};

use super::Served;

#[tokio::test]
async fn submit_is_201_then_200_and_409_for_another_spec() {
    let served = Served::new().await;
    let answer = served.post("/v1/jobs", &spec("train")).await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.headers["location"], "/v1/jobs/train");
    let job: JobView = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!((job.id.as_str(), job.owner.as_str(), job.submitted_by.as_str()), ("train", CALLER, CALLER));
    assert_eq!(served.post("/v1/jobs", &spec("train")).await.status, 200);
    let mut other = spec("train");
    other["priority"] = json!(99);
    let answer = served.post("/v1/jobs", &other).await;
    assert_eq!((answer.status.as_u16(), answer.json()["phase"].as_str()), (409, Some("pending")));
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    assert_eq!(served.rig.hints().len(), 2, "the same job is hinted again");
}

#[tokio::test]
async fn an_ended_job_is_409_and_its_id_stays_taken() {
    let served = Served::new().await;
    served.post("/v1/jobs", &spec("train")).await;
    served.tell("/v1/jobs/train/cancel").await;
    served.rig.pass("train").await;
    served.rig.pass("train").await;
    assert_eq!(served.get("/v1/jobs/train").await.json()["phase"], "cancelled");
    let answer = served.post("/v1/jobs", &spec("train")).await;
    assert_eq!((answer.status.as_u16(), answer.json()["phase"].as_str()), (409, Some("cancelled")));
}

#[tokio::test]
async fn another_owners_id_is_409_without_its_content() {
    let served = Served::new().await;
    let deployment = &served.rig.engine.deployment;
    let context = ParseContext { deployment, caller: "bob@example.com", caller_is_admin: false };
    let theirs = parse(&spec("train"), &context).unwrap();
    served.rig.engine.submit(theirs, "bob@example.com", "k").await.unwrap();
    let answer = served.post("/v1/jobs", &spec("train")).await;
    assert_eq!(answer.status, 409);
    assert!(answer.json().get("phase").is_none() && !answer.text().contains("bob"));
}

#[tokio::test]
async fn every_fault_of_a_spec_is_named() {
    let served = Served::new().await;
    let bad = json!({"id": "Bad Id", "run": "", "tpu": {"accelerator": "v99-1"}, "unknown": true});
    let answer = served.post("/v1/jobs", &bad).await;
    assert_eq!(answer.status, 400);
    let answer = answer.json();
    let fields: Vec<&str> = answer["errors"].as_array().unwrap().iter().map(|e| e["field"].as_str().unwrap()).collect();
    for field in ["id", "run", "tpu.accelerator", "unknown"] {
        assert!(fields.contains(&field), "{field} in {fields:?}");
    }
}

#[tokio::test]
async fn bodies_that_cannot_be_read_are_4xx() {
    let served = Served::new().await;
    let deep = "[".repeat(200_000);
    for (content_type, body, status) in [
        ("application/json", b"{".to_vec(), 400),
        ("application/json", br#"{"id": "a", "run": "x", "id": "b"}"#.to_vec(), 400),
        ("application/json", b"\xff\xfe".to_vec(), 400),
        ("application/json", deep.into_bytes(), 400),
        ("application/json", vec![b' '; 10 << 20], 413),
        ("application/x-yaml", b"id: x".to_vec(), 415),
        ("text/plain", b"{}".to_vec(), 415),
    ] {
        let answer = send(&served.router, raw("/v1/jobs", content_type, body)).await;
        assert_eq!(answer.status, status, "{content_type}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
}

#[tokio::test]
async fn an_idempotency_key_makes_a_submit_without_id_one_job() {
    let served = Served::new().await;
    let mut body = spec("x");
    body.as_object_mut().unwrap().remove("id");
    let keyed = |key: &'static str| {
        let body = body.to_string();
        let request =
            Request::post("/v1/jobs").header("content-type", "application/json").header("idempotency-key", key);
        let router = served.router.clone();
        async move { send(&router, request.body(Body::from(body)).unwrap()).await }
    };
    let (first, again, other) = (keyed("a").await, keyed("a").await, keyed("b").await);
    assert_eq!((first.status.as_u16(), again.status.as_u16(), other.status.as_u16()), (201, 200, 201));
    assert_eq!(first.json()["id"], again.json()["id"]);
    assert_ne!(first.json()["id"], other.json()["id"]);
    assert_eq!(keyed("").await.status, 400);
    body["run"] = json!("another program");
    let request = Request::post("/v1/jobs").header("content-type", "application/json").header("idempotency-key", "a");
    let answer = send(&served.router, request.body(Body::from(body.to_string())).unwrap()).await;
    assert_eq!(answer.status, 409);
    assert!(answer.text().contains("this Idempotency-Key was used before to submit another spec"), "{}", answer.text());
    let (one, two) = (served.post("/v1/jobs", &body).await, served.post("/v1/jobs", &body).await);
    assert_ne!(one.json()["id"], two.json()["id"], "without a key each submit is its own");
}

#[tokio::test]
async fn a_lost_hint_costs_no_answer() {
    let served = Served::new().await;
    served.rig.fakes.hints.fail_before(1);
    assert_eq!(served.post("/v1/jobs", &spec("train")).await.status, 201);
    served.rig.fakes.docs.set_down(true);
    assert_eq!(served.post("/v1/jobs", &spec("other")).await.status, 503);
    assert_eq!(served.get("/v1/jobs/train").await.status, 503);
    assert_eq!(served.get("/v1/jobs").await.status, 503);
}

#[tokio::test]
async fn lists_are_paged_newest_first_and_filtered() {
    let served = Served::new().await;
    for i in 0..5 {
        let mut body = spec(&format!("job-{i}"));
        body["tags"] = json!([if i % 2 == 0 { "even" } else { "odd" }]);
        served.post("/v1/jobs", &body).await;
        served.rig.advance(1);
    }
    served.tell("/v1/jobs/job-1/cancel").await;
    served.rig.pass("job-1").await;
    served.rig.pass("job-1").await;
    let mut seen = Vec::new();
    let mut path = "/v1/jobs?page_size=2".to_owned();
    loop {
        let page: JobList = serde_json::from_slice(&served.get(&path).await.body).unwrap();
        assert!(page.jobs.len() <= 2);
        seen.extend(page.jobs.into_iter().map(|j| j.id.to_string()));
        let Some(token) = page.next_page_token else { break };
        path = format!("/v1/jobs?page_size=2&page_token={token}");
    }
    assert_eq!(seen, ["job-4", "job-3", "job-2", "job-1", "job-0"]);
    for (query, count) in [
        ("phase=cancelled", 1),
        ("phase=pending", 4),
        ("tag=odd", 2),
        ("owner=nobody", 0),
        ("owner=ann@example.com", 5),
    ] {
        let page: JobList = serde_json::from_slice(&served.get(&format!("/v1/jobs?{query}")).await.body).unwrap();
        assert_eq!(page.jobs.len(), count, "{query}");
    }
    for (bad, field) in [
        ("phase=nonsense", "phase"),
        ("page_token=%21", "page_token"),
        ("page_size=x", "page_size"),
        ("page_size=0", "page_size"),
        ("page_sise=1", "page_sise"),
        ("view=long", "view"),
    ] {
        let answer = served.get(&format!("/v1/jobs?{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        assert_eq!(answer.json()["errors"][0]["field"], field, "{}", answer.text());
    }
    for path in ["/v1/jobs/job-0?x=1", "/v1/jobs/job-0/explain?x=1", "/v1/fleet?x=1", "/v1/catalog?x=1"] {
        let answer = served.get(path).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["errors"][0]["field"]), (400, &json!("x")), "{path}");
    }
}

#[tokio::test]
async fn a_list_may_leave_the_specs_out() {
    let served = Served::with_job().await;
    let page = served.get("/v1/jobs?view=list").await;
    let list: JobList = serde_json::from_slice(&page.body).unwrap();
    assert_eq!(list.jobs[0].spec, json!({"tpu": {"accelerator": "v5litepod-16"}}));
    let full: JobList = serde_json::from_slice(&served.get("/v1/jobs").await.body).unwrap();
    assert!(full.jobs[0].spec["recovery"].is_object());
}

#[tokio::test]
async fn what_a_get_answers_as_a_whole_has_an_etag() {
    let served = Served::with_job().await;
    let bundle = format!("/v1/bundles/{}", "0".repeat(64));
    for path in [
        "/live",
        "/ready",
        "/version",
        "/v1/jobs",
        "/v1/jobs/train",
        "/v1/jobs/train/history",
        "/v1/jobs/train/explain",
        "/v1/jobs/train/outputs",
        "/v1/jobs/train/progress",
        &bundle,
        "/v1/webhook-secret",
        "/v1/dead-letters",
        "/v1/fleet",
        "/v1/catalog",
        "/v1/account",
        "/v1/digest?since=2026-01-01T00:00:00Z",
        "/",
    ] {
        let answer = served.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let tag = answer.headers.get("etag").unwrap_or_else(|| panic!("{path} has no ETag"));
        let again = served.get_with(path, "if-none-match", tag.to_str().unwrap()).await;
        assert!(again.status == 304 && again.text().is_empty(), "{path}: {}", again.text());
    }
}

#[tokio::test]
async fn a_job_is_shown_with_an_etag_and_its_spec_can_be_submitted_again() {
    let served = Served::with_job().await;
    let answer = served.get("/v1/jobs/train").await;
    assert_eq!(answer.status, 200);
    let job = answer.json();
    assert_eq!((&job["phase"], &job["generation"], &job["attempt"]), (&json!("starting"), &json!(1), &json!(1)));
    assert_eq!(job["resources"][0]["accelerator"], "v5litepod-16");
    assert_eq!((&job["resources"][0]["workers"], &job["resources"][0]["chips"]), (&json!(4), &json!(16)));
    assert_eq!((&job["counters"]["preemptions"], &job["outcome"]), (&json!(0), &Value::Null));
    for field in ["waiting_for", "next_wake_at", "cost_usd", "chip_hours", "reason", "spec"] {
        assert!(job.get(field).is_some(), "{field}");
    }
    let request = Request::get("/v1/jobs/train").header("if-none-match", &answer.headers["etag"]);
    assert_eq!(send(&served.router, request.body(Body::empty()).unwrap()).await.status, 304);

    let context = ParseContext { deployment: &served.rig.engine.deployment, caller: CALLER, caller_is_admin: true };
    let again = parse(&job["spec"], &context).unwrap_or_else(|e| panic!("{e:?}\n{}", job["spec"]));
    assert_eq!(again.spec, *served.rig.job("train").await.unwrap().spec, "what is shown means the same job");
}

#[tokio::test]
async fn unknown_jobs_and_paths_are_404() {
    let served = Served::new().await;
    for path in [
        "/v1/jobs/nobody",
        "/v1/jobs/nobody/history",
        "/v1/jobs/nobody/explain",
        "/v1/jobs/nobody/logs",
        "/v1/jobs/NOT%20AN%20ID",
        "/v1/other",
    ] {
        let answer = served.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.headers["content-type"], "application/problem+json", "{path}");
    }
    assert_eq!(served.tell("/v1/jobs/nobody/cancel").await.status, 404);
    served.post("/v1/jobs", &spec("train")).await;
    assert_eq!(served.tell("/v1/jobs/train/destroy").await.status, 404);
}

#[tokio::test]
async fn history_is_paged_and_explain_explains() {
    let served = Served::with_job().await;
    let all = served.get("/v1/jobs/train/history").await.json();
    let revisions: Vec<u64> =
        all["entries"].as_array().unwrap().iter().map(|e| e["revision"].as_u64().unwrap()).collect();
    assert!(revisions.len() >= 3 && revisions.is_sorted() && all["next_page_token"].is_null());
    assert_eq!((&all["entries"][0]["cause"], &all["entries"][0]["actor"]), (&json!("submit"), &json!(CALLER)));
    let first = served.get("/v1/jobs/train/history?page_size=1").await.json();
    let token = first["next_page_token"].as_str().unwrap();
    let rest = served.get(&format!("/v1/jobs/train/history?page_token={token}")).await.json();
    assert_eq!(rest["entries"].as_array().unwrap().len(), revisions.len() - 1);
    let explained = served.get("/v1/jobs/train/explain").await.json();
    assert!(explained["paragraph"].as_str().unwrap().contains("workers"), "{explained}");
    assert!(!explained["facts"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn commands_are_202_200_and_409() {
    let served = Served::with_job().await;
    assert_eq!(served.tell("/v1/jobs/train/wake").await.status, 202);
    let never_paused = served.tell("/v1/jobs/train/unpause").await;
    let phase = served.get("/v1/jobs/train").await.json()["phase"].clone();
    assert_eq!((never_paused.status.as_u16(), &never_paused.json()["phase"]), (409, &phase));
    let wrong = served.post("/v1/jobs/train/restart", &json!({"if_attempt": 7})).await;
    assert_eq!((wrong.status.as_u16(), &wrong.json()["attempt"]), (409, &json!(1)));
    assert_eq!(served.tell("/v1/jobs/train/restart?if_attempt=7").await.status, 409);
    assert_eq!(served.post("/v1/jobs/train/cancel", &json!({"new_slice": true})).await.status, 400);
    assert_eq!(served.post("/v1/jobs/train/cancel", &json!({"unknown": true})).await.status, 400);
    assert_eq!(served.post("/v1/jobs/train/restart", &json!([null, true, true])).await.status, 400, "a list");
    let answer = served.post("/v1/jobs/train/cancel", &json!({"if_attempt": 1})).await;
    assert_eq!((answer.status.as_u16(), answer.json()["desired"].as_str()), (202, Some("cancel")));
    assert_eq!(served.tell("/v1/jobs/train/cancel").await.status, 200, "it holds already");
    assert_eq!(served.rig.job("train").await.unwrap().desired, Desired::Cancel);
    served.rig.pass("train").await;
    let late = served.tell("/v1/jobs/train/restart").await;
    assert_eq!((late.status.as_u16(), late.json()["phase"].as_str()), (409, Some("stopping")));
    assert_eq!(served.rig.take_causes().first().map(String::as_str), Some("wake"));
}

#[tokio::test]
async fn an_idempotency_key_carries_a_command_out_once() {
    let served = Served::with_job().await;
    let restart = || {
        let request = Request::post("/v1/jobs/train/restart").header("idempotency-key", "once");
        let router = served.router.clone();
        async move { send(&router, request.body(Body::empty()).unwrap()).await.status.as_u16() }
    };
    assert_eq!(restart().await, 202);
    served.rig.pass("train").await;
    let revision = served.rig.job("train").await.unwrap().revision;
    assert_eq!(restart().await, 200);
    assert_eq!(served.rig.job("train").await.unwrap().revision, revision);
}

#[tokio::test]
async fn an_idempotency_key_is_refused_with_another_body() {
    let served = Served::with_job().await;
    let restart = |query: &'static str, body: &'static str| {
        let request = Request::post(format!("/v1/jobs/train/restart{query}"));
        let request = request.header("content-type", "application/json").header("idempotency-key", "once");
        let router = served.router.clone();
        async move { send(&router, request.body(Body::from(body)).unwrap()).await }
    };
    assert_eq!(restart("", r#"{"new_slice": true}"#).await.status, 202);
    let revision = served.rig.job("train").await.unwrap().revision;
    for (query, body) in [("", "{}"), ("", r#"{"from_scratch": true}"#), ("?if_attempt=1", r#"{"new_slice": true}"#)] {
        let answer = restart(query, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["type"].as_str()),
            (409, Some("urn:rekindle:problem:idempotency-key"))
        );
        let detail = answer.json()["detail"].as_str().unwrap().to_owned();
        for part in ["Idempotency-Key", r#"{"from_scratch":false,"new_slice":true}"#, "give another key"] {
            assert!(detail.contains(part), "{detail}");
        }
    }
    assert_eq!(restart("", r#"{"new_slice": true, "from_scratch": false}"#).await.status, 200, "the same body");
    assert_eq!(served.rig.job("train").await.unwrap().revision, revision);
}

#[tokio::test]
async fn a_command_that_already_held_is_kept_under_its_key_too() {
    let served = Served::with_job().await;
    let cancel = |body: &'static str| {
        let request = Request::post("/v1/jobs/train/cancel").header("content-type", "application/json");
        let request = request.header("idempotency-key", "twice").body(Body::from(body)).unwrap();
        let router = served.router.clone();
        async move { send(&router, request).await.status.as_u16() }
    };
    assert_eq!(served.tell("/v1/jobs/train/cancel").await.status, 202);
    assert_eq!((cancel("{}").await, cancel(r#"{"if_attempt": 1}"#).await, cancel("{}").await), (200, 409, 200));
}

#[tokio::test]
async fn bundles_are_present_or_get_an_upload_address() {
    let served = Served::new().await;
    let digest = "a".repeat(64);
    let answer = served.tell(&format!("/v1/bundles/{digest}")).await;
    assert_eq!(answer.status, 201);
    assert!(answer.json()["upload"].is_string());
    assert_eq!(answer.json()["code"], format!("gs://bucket/bundles/{digest}.tar.zst"));
    let objects = &served.rig.engine.ports.objects;
    objects.put(&format!("bundles/{digest}.tar.zst"), bytes::Bytes::from_static(b"x")).await.unwrap();
    let answer = served.tell(&format!("/v1/bundles/{digest}")).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["upload"]), (200, &Value::Null));
    for bad in ["abc", &"A".repeat(64), &format!("{}%2F", "a".repeat(63))] {
        assert_eq!(served.tell(&format!("/v1/bundles/{bad}")).await.status, 400, "{bad}");
    }
}

#[tokio::test]
async fn the_fleet_says_whose_each_resource_is() {
    let served = Served::with_job().await;
    let listed = |name: &str, installation: &str| Listed {
        slice: SliceRef { zone: "us-central1-a".into(), name: name.into(), via: Via::Node },
        accelerator: "v5litepod-8".into(),
        preemptible: true,
        reserved: false,
        view: SliceView {
            state: SliceState::Ready,
            ended: false,
            health: Health::Healthy,
            addresses: Vec::new().into(),
            labels: SliceLabels { installation: installation.into(), ..SliceLabels::default() },
            created_at: None,
            error: None,
            note: None,
            made: Vec::new(),
        },
        owned_by: None,
        created_at: None,
    };
    let orphan = rekindle_core::names::generation_name(
        &served.rig.engine.installation.id,
        &rekindle_core::ids::JobId::parse("gone").unwrap(),
        2,
    );
    served.rig.fakes.tpu.insert(listed(&orphan, "abcdef"));
    served.rig.fakes.tpu.insert(listed("somebody-elses", ""));
    for (name, state, ended) in [
        ("x-off", SliceState::Preempted, true),
        ("x-half-off", SliceState::Preempted, false),
        ("x-made", SliceState::Creating, false),
        ("x-goes", SliceState::Deleting, false),
    ] {
        let mut one = listed(name, "");
        (one.view.state, one.view.ended) = (state, ended);
        served.rig.fakes.tpu.insert(one);
    }
    served.rig.fakes.tpu.set_unreachable(vec!["us-east1-d".into()]);
    let fleet = served.get("/v1/fleet").await.json();
    assert_eq!(fleet["unreachable"], json!(["us-east1-d"]));
    let by_owner = |owner: &str| -> Vec<Value> {
        let all = fleet["resources"].as_array().unwrap().iter();
        all.filter(|r| r["owner"] == owner).cloned().collect()
    };
    assert_eq!(by_owner("train").len(), 1);
    let train = &by_owner("train")[0];
    let owners = (&train["job_owner"], &by_owner("ORPHAN")[0]["job_owner"]);
    assert_eq!(owners, (&served.get("/v1/jobs/train").await.json()["owner"], &Value::Null), "{train}");
    assert_eq!((&train["idle"]["cause"], &train["capacity"]), (&json!("starting"), &json!("spot")), "{train}");
    assert!(train["idle"]["secs"].as_i64().is_some_and(|secs| (1..60).contains(&secs)), "{train}");
    assert_eq!((&by_owner("ORPHAN")[0]["idle"], &by_owner("FOREIGN")[0]["idle"]), (&Value::Null, &Value::Null));
    assert_eq!((&by_owner("train")[0]["job"], &by_owner("train")[0]["state"]), (&json!("train"), &json!("ready")));
    assert_eq!((&by_owner("ORPHAN")[0]["name"], &by_owner("ORPHAN")[0]["job"]), (&json!(orphan), &json!("gone")));
    assert_eq!(
        (&by_owner("FOREIGN")[0]["job"], &by_owner("FOREIGN")[0]["name"]),
        (&Value::Null, &json!("somebody-elses"))
    );
    assert!((by_owner("FOREIGN")[0]["usd_per_hour"].as_f64().unwrap() - 8.0 * 0.3).abs() < 1e-9);
    let costs = |name: &str| {
        by_owner("FOREIGN").iter().find(|r| r["name"] == name).unwrap()["usd_per_hour"].as_f64().unwrap() > 0.0
    };
    assert_eq!(["x-off", "x-half-off", "x-made", "x-goes"].map(costs), [false, true, false, true]);
}

#[tokio::test]
async fn the_catalogue_has_prices_and_what_is_allowed() {
    let served = Served::new().await;
    let catalog = served.get("/v1/catalog").await.json();
    let all = catalog["accelerators"].as_array().unwrap();
    let v5e = all.iter().find(|a| a["accelerator"] == "v5litepod-16").unwrap();
    assert_eq!((&v5e["chips"], &v5e["workers"], &v5e["topology"]), (&json!(16), &json!(4), &json!("4x4")));
    assert_eq!(v5e["zones"][0]["allowed"], json!(["spot", "on_demand"]));
    assert!(v5e["zones"].as_array().unwrap().iter().any(|z| z["spot_usd_per_chip_hour"].is_number()));
    assert!(!catalog["runtime_versions"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn freeze_and_thaw() {
    let served = Served::new().await;
    for (path, body) in [("freeze", json!({"until": "noon"})), ("thaw", json!({"x": 1})), ("freeze?x=1", json!({}))] {
        let answer = served.post(&format!("/v1/{path}"), &body).await;
        assert!(answer.status == 400 && answer.text().contains("unknown field"), "{path}: {}", answer.text());
    }
    assert!(served.rig.fakes.store().read::<FreezeDoc>(&Kind::Freeze).await.unwrap().is_none());
    assert_eq!(served.tell("/v1/freeze").await.json()["frozen"], true);
    let doc = served.rig.fakes.store().read::<FreezeDoc>(&Kind::Freeze).await.unwrap().unwrap().value;
    assert_eq!((doc.frozen, doc.by.as_str()), (true, CALLER));
    served.post("/v1/jobs", &spec("train")).await;
    served.rig.pass("train").await;
    assert_eq!(served.get("/v1/jobs/train").await.json()["reason"], "frozen");
    served.rig.take_causes();
    assert_eq!(served.tell("/v1/thaw").await.json()["frozen"], false);
    assert_eq!(served.rig.take_causes(), ["thaw"], "the frozen job is woken");
    served.rig.pass("train").await;
    assert_eq!(served.get("/v1/jobs/train").await.json()["generation"], 1);
}

#[tokio::test]
async fn it_lives_is_ready_and_tells_its_version() {
    let served = Served::new().await;
    assert_eq!(served.get("/live").await.status, 200);
    assert_eq!(served.get("/ready").await.status, 200);
    assert_eq!(served.get("/version").await.json()["installation"], "abcdef");
    assert_eq!(served.get("/agent/v1/ping").await.status, 204);
    served.rig.fakes.docs.end_writer();
    let unready = served.get("/ready").await;
    assert!(unready.status == 503 && unready.text().contains("writer has ended"), "{}", unready.text());
    served.rig.fakes.docs.set_down(true);
    assert_eq!(served.get("/live").await.status, 200, "a store that is down is no reason to kill the process");
    assert_eq!(served.get("/ready").await.status, 503);
    assert_eq!(served.get("/agent/v1/ping").await.status, 503);
}

#[tokio::test]
async fn a_full_disk_of_the_store_is_told_by_its_name() {
    let served = Served::new().await;
    served.rig.fakes.docs.fail_commit(rekindle_fakes::CommitFault::Full);
    let answer = served.post("/v1/jobs", &spec("train")).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["type"]), (503, &json!("urn:rekindle:problem:disk-full")));
    assert!(answer.text().contains("the disk of DISK is full"), "{}", answer.text());
}

#[tokio::test]
async fn progress_is_the_workers_own_between_passes() {
    let served = Served::with_job().await;
    let key = WorkerKey { slice: 0, worker: 2 };
    let mut report = super::agents::worker(&served, 2).await.stored().await;
    report.step = Some(41);
    report.loss = Some("2.5".into());
    let kind = Kind::Worker(report_job(), 1, key);
    served.rig.fakes.store().write(&kind, &report, Precondition::None).await.unwrap();
    let job = served.get("/v1/jobs/train").await.json();
    assert_eq!((&job["progress"]["step"], &job["progress"]["loss"]), (&json!(41), &json!("2.5")));
    let first = Kind::Worker(report_job(), 1, WorkerKey { slice: 0, worker: 0 });
    served.rig.fakes.store().write(&first, &report, Precondition::None).await.unwrap();
    for query in ["", "?view=list"] {
        let list = served.get(&format!("/v1/jobs{query}")).await.json();
        let told = &list["jobs"][0]["progress"];
        assert_eq!((&told["step"], &told["loss"]), (&json!(41), &json!("2.5")), "{query}: the same as one shows");
    }
    let explained = served.get("/v1/jobs/train/explain").await.json();
    assert!(explained.to_string().contains("step 41"), "{explained}");
    // Nothing of the liveness record is needed to show a job.
    assert!(served.rig.fakes.store().read::<LivenessDoc>(&Kind::Liveness).await.unwrap().is_some());
}

fn report_job() -> rekindle_core::ids::JobId {
    rekindle_core::ids::JobId::parse("train").unwrap()
}

#[tokio::test]
async fn a_command_that_makes_no_sense_names_the_job_and_what_to_do() {
    let served = Served::with_job().await;
    let never_paused = served.tell("/v1/jobs/train/unpause").await;
    let told = "job train: `unpause` is for jobs that are paused; this one is starting";
    assert_eq!((never_paused.status.as_u16(), &never_paused.json()["detail"]), (409, &json!(told)));
    served.tell("/v1/jobs/train/cancel").await;
    for _ in 0..3 {
        served.rig.pass("train").await;
        served.rig.advance(10);
    }
    let late = served.tell("/v1/jobs/train/pause").await;
    let told =
        "job train: `pause` is for jobs that are neither stopping nor have ended; this one has ended (cancelled)";
    assert!(late.json()["detail"].as_str().unwrap().starts_with(told), "{}", late.text());
    assert!(late.text().contains("submit it under another id"), "{}", late.text());
}

#[tokio::test]
async fn an_output_that_is_no_path_is_400_and_names_the_field() {
    let served = Served::with_job().await;
    let long = "w0/".repeat(400) + "a";
    for path in ["..%2f..%2fx", "w0/..%2f..%2f..%2fstate", "w0%2f%2fa", "w0/%2e%2e/a", "w0/a%00b", &long] {
        let answer = served.get(&format!("/v1/jobs/train/outputs/{path}")).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["errors"][0]["field"]), (400, &json!("object")), "{path}");
    }
    assert_eq!(served.get("/v1/jobs/train/outputs/w0/a").await.status, 404);
}

#[tokio::test]
async fn a_stream_that_was_left_in_the_future_begins_anew() {
    let served = Served::with_silence(std::time::Duration::ZERO).await;
    let now = served.rig.fakes.clock.now();
    let hour = jiff::SignedDuration::from_hours(1);
    let id = |at: jiff::Timestamp| at.as_microsecond().to_string();
    let told = async |at| served.get_with("/v1/watch", "last-event-id", &id(at)).await.text().to_owned();
    assert!(told(now + hour).await.contains("\"train\""), "all jobs");
    let sentinel = told(now).await;
    assert!(!sentinel.contains(&format!("id: {}", id(now + hour))), "{sentinel}");
    let followed = served.get_with("/v1/jobs/train/logs?follow=true", "last-event-id", "99").await;
    assert_eq!(followed.status, 200);
    assert!(!followed.text().contains("id: 99"), "{}", followed.text());
}

#[tokio::test]
async fn a_key_is_for_one_job() {
    let served = Served::new().await;
    let submit = async |id: Option<&str>, key: &str| {
        let mut body = spec("x");
        body.as_object_mut().unwrap().remove("id");
        if let Some(id) = id {
            body["id"] = json!(id);
        }
        let request =
            Request::post("/v1/jobs").header("content-type", "application/json").header("idempotency-key", key);
        send(&served.router, request.body(Body::from(body.to_string())).unwrap()).await
    };
    assert_eq!(submit(Some("one"), "k").await.status, 201);
    assert_eq!(submit(Some("one"), "k").await.status, 200, "the same again");
    let other = submit(Some("two"), "k").await;
    assert_eq!(other.status, 409);
    assert!(other.text().contains("used before to submit job one; give another key for two"), "{}", other.text());
    assert_eq!(served.get("/v1/jobs/two").await.status, 404);
    let made_up = submit(None, "k").await;
    assert_eq!(made_up.status, 409, "{}", made_up.text());
    assert!(made_up.text().contains("another spec or id, job one"), "{}", made_up.text());
    assert_eq!(submit(None, "l").await.status, 201);
    assert_eq!(submit(Some("three"), "l").await.status, 409, "the key made a job of its own");
    assert_eq!(submit(Some("two"), "m").await.status, 201);
}
