//! The account, the digest, and progress over attempts.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use rekindle_core::account::{Meter, week_of};
use rekindle_core::ids::JobId;
use rekindle_core::observation::{SliceState, WorkerState};
use rekindle_core::series::POINTS_MAX;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::OrphansDoc;
use rekindle_ports::world::Clock as _;
use rekindle_rig::{CALLER, send, spec};

use super::Served;

/// A job whose slice waits for its workers for an hour, and one that never got any; and an orphan.
async fn paid() -> Served {
    let served = Served::with_job().await;
    let mut other = spec("other");
    other["tags"] = json!(["=1+1", "b"]);
    served.post("/v1/jobs", &other).await;
    for _ in 0..4 {
        served.rig.pass("other").await;
        served.rig.advance(1);
    }
    served.rig.advance(3600);
    let week = week_of(served.rig.fakes.clock.now());
    let gone = (JobId::parse("gone").unwrap(), Meter { chip_secs: 7200, usd_micros: 600_000 });
    let orphans = OrphansDoc { jobs: [gone].into_iter().collect() };
    served.rig.fakes.store().write(&Kind::Orphans(week), &orphans, Precondition::Absent).await.unwrap();
    served
}

fn near(value: &Value, want: f64) -> bool {
    value.as_f64().is_some_and(|got| (got - want).abs() < 0.02 * want.abs().max(0.1))
}

#[tokio::test]
async fn the_account_is_by_what_is_asked_for_and_says_what_the_chips_did() {
    let served = paid().await;
    let all = served.get("/v1/account").await.json();
    assert_eq!((&all["by"], &all["since"]), (&json!(["owner"]), &json!("2026-08-31")));
    let rows = all["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["owner"], &rows[1]["owner"]), (2, &json!(""), &json!(CALLER)));
    assert_eq!((&rows[0]["jobs"], &rows[1]["jobs"]), (&json!(0), &json!(2)));
    assert!(near(&rows[0]["chip_hours"]["orphan"], 2.0) && near(&rows[0]["usd"]["orphan"], 0.6), "{}", rows[0]);
    assert!(near(&rows[1]["chip_hours"]["waiting"], 32.0) && near(&rows[1]["usd"]["total"], 9.6), "{}", rows[1]);
    assert!(rows[1].get("job").is_none() && rows[1].get("week").is_none());
    assert!(near(&all["total"]["chip_hours"]["total"], 34.0), "{}", all["total"]);

    let jobs = served.get("/v1/account?by=job,week").await.json();
    let names: Vec<&str> = jobs["rows"].as_array().unwrap().iter().map(|row| row["job"].as_str().unwrap()).collect();
    assert_eq!(names, ["gone", "other", "train"]);
    assert_eq!(jobs["rows"][0]["week"], "2026-11-16");
    let tags = served.get("/v1/account?by=tag").await.json();
    let names: Vec<&str> = tags["rows"].as_array().unwrap().iter().map(|row| row["tag"].as_str().unwrap()).collect();
    assert_eq!(names, ["", "=1+1", "b"]);
    let mine = served.get(&format!("/v1/account?owner={CALLER}&weeks=1")).await.json();
    assert_eq!((mine["rows"].as_array().unwrap().len(), &mine["since"]), (1, &json!("2026-11-16")));
    let nobody = served.get("/v1/account?owner=nobody").await.json();
    assert_eq!((&nobody["rows"], &nobody["total"]["jobs"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn jobs_that_ended_stay_in_the_account() {
    let served = paid().await;
    served.tell("/v1/jobs/other/cancel").await;
    for _ in 0..3 {
        served.rig.pass("other").await;
        served.rig.advance(10);
    }
    assert_eq!(served.get("/v1/jobs/other").await.json()["phase"], "cancelled");
    served.rig.advance(3600);
    let jobs = served.get("/v1/account?by=job").await.json();
    let other = jobs["rows"].as_array().unwrap().iter().find(|row| row["job"] == "other").unwrap();
    assert!(near(&other["chip_hours"]["total"], 16.0), "the meter stopped: {other}");
    // Thirteen weeks later nothing of it is within the twelve.
    served.rig.advance(13 * 7 * 86_400);
    served.rig.pass("train").await;
    let jobs = served.get("/v1/account?by=job&weeks=12").await.json();
    assert!(jobs["rows"].as_array().unwrap().iter().all(|row| row["job"] == "train"), "{jobs}");
}

#[tokio::test]
async fn a_spreadsheet_gets_csv_that_it_does_not_run() {
    let served = paid().await;
    let answer = served.get("/v1/account?by=tag&format=csv").await;
    assert!(answer.headers["content-type"].to_str().unwrap().starts_with("text/csv"));
    let lines: Vec<&str> = answer.text().lines().collect();
    assert!(lines[0].starts_with("tag,jobs,chip_hours_total,chip_hours_useful,"), "{}", lines[0]);
    assert!(lines[0].ends_with("usd_idle,usd_orphan"), "{}", lines[0]);
    assert!(lines[2].starts_with("'=1+1,1,"), "{}", lines[2]);
    assert_eq!(lines.len(), 4);
    let same = served.get_with("/v1/account?by=tag", "accept", "text/csv").await;
    assert_eq!(same.text(), answer.text());
    let page = served.get_with("/v1/account?by=tag", "accept", "text/html,application/xml;q=0.9,text/csv;q=0.1").await;
    assert!(page.text().starts_with('{'));
}

#[tokio::test]
async fn questions_that_make_no_sense_are_400_and_name_what_is_known() {
    let served = Served::with_job().await;
    for (path, word) in [
        ("/v1/account?by=team", "owner"),
        ("/v1/account?by=job,,week", "owner"),
        ("/v1/account?weeks=0", "520"),
        ("/v1/account?weeks=521", "520"),
        ("/v1/account?format=xlsx", "csv"),
        ("/v1/account?until=now", "until"),
        ("/v1/digest", "since"),
        ("/v1/digest?since=yesterday", "since"),
        ("/v1/jobs/train/progress?worker=1", "worker"),
    ] {
        let answer = served.get(path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text());
        assert!(answer.text().contains(word), "{path}: {}", answer.text());
    }
    assert_eq!(served.get("/v1/jobs/nobody/progress").await.status, 404);
    served.rig.fakes.docs.set_down(true);
    for path in ["/v1/account", "/v1/digest?since=2026-11-20T00:00:00Z", "/v1/jobs/train/progress"] {
        assert_eq!(served.get(path).await.status, 503, "{path}");
    }
}

#[tokio::test]
async fn the_digest_tells_what_happened_since_then() {
    let served = Served::with_job().await;
    let all = served.get("/v1/digest?since=2026-11-20T00:00:00Z").await.json();
    let job = &all["jobs"][0];
    assert_eq!(
        (&job["id"], &job["is_new"], &job["attempts"]),
        (&json!("train"), &json!(true), &json!(0)),
        "its workers prepare"
    );
    let seen = all["through"].as_str().unwrap().to_owned();
    served.rig.advance(10);
    let nothing = served.get(&format!("/v1/digest?since={}", served.rig.fakes.clock.now())).await.json();
    assert_eq!(nothing["jobs"], json!([]));
    served.tell("/v1/jobs/train/cancel").await;
    for _ in 0..3 {
        served.rig.pass("train").await;
        served.rig.advance(10);
    }
    let news = served.get(&format!("/v1/digest?since={seen}")).await.json();
    let job = &news["jobs"][0];
    assert_eq!((&job["is_new"], &job["has_ended"]), (&json!(false), &json!(true)), "{job}");
    assert_eq!((&job["outcome"], &job["by_people"]), (&json!("cancelled"), &json!([format!("cancel by {CALLER}")])));
    let others = served.get(&format!("/v1/digest?since={seen}&owner=bob")).await.json();
    assert_eq!(others["jobs"], json!([]));
    let request = Request::get("/v1/digest?since=2030-01-01T00:00:00Z").body(Body::empty()).unwrap();
    assert_eq!(send(&served.router, request).await.json()["jobs"], json!([]));
}

#[tokio::test]
async fn the_digest_has_a_job_that_only_runs_with_its_newest_step() {
    let served = Served::with_job().await;
    let mut agents = super::agents::running(&served).await;
    let mut seen = None;
    for step in [500, 1500_u64] {
        served.rig.advance(600);
        for agent in &mut agents {
            let mut report = agent.report(WorkerState::Running);
            (report.progress.step, report.progress.loss) = (Some(step), Some(format!("1.{step}")));
            report.progress.step_at = Some(served.rig.fakes.clock.now());
            agent.send(&report).await;
        }
        seen = seen.or_else(|| Some(served.rig.fakes.clock.now()));
    }
    let list = served.get("/v1/jobs").await.json();
    let digest = served.get(&format!("/v1/digest?since={}", seen.unwrap())).await.json();
    let job = &digest["jobs"][0];
    assert_eq!(
        (&job["id"], &job["phase"], &job["is_new"]),
        (&json!("train"), &json!("running"), &json!(false)),
        "{digest}"
    );
    assert_eq!((&job["step"], &job["loss"], &job["steps"]), (&json!(1500), &json!("1.1500"), &json!(1000)), "{job}");
    assert_eq!(job["step"], list["jobs"][0]["progress"]["step"], "as `ps` has it");
    let all = served.get("/v1/digest?since=2026-11-20T00:00:00Z").await.json();
    assert_eq!((all["jobs"].as_array().unwrap().len(), &all["jobs"][0]["steps"]), (1, &json!(1500)), "{all}");
    assert_eq!((&job["attempts"], &all["jobs"][0]["attempts"]), (&json!(0), &json!(1)), "when its program began");
    let others = served.get(&format!("/v1/digest?since={}&owner=bob", seen.unwrap())).await.json();
    assert_eq!(others["jobs"], json!([]));
}

#[tokio::test]
async fn the_workers_of_a_job_are_told_also_when_it_owns_nothing() {
    let served = Served::new().await;
    let mut pair = spec("pair");
    pair["tpu"]["slices"] = json!(2);
    served.post("/v1/jobs", &pair).await;
    served.tell("/v1/jobs/pair/cancel").await;
    served.rig.pass("pair").await;
    let job = served.get("/v1/jobs/pair").await.json();
    assert_eq!((&job["phase"], &job["resources"]), (&json!("cancelled"), &json!([])));
    let told = served.get("/v1/jobs/pair/progress").await.json();
    assert_eq!((&told["slices"], &told["slice_workers"]), (&json!(2), &json!(4)));
    assert_eq!(served.get("/v1/jobs/pair/logs?worker=1-3").await.status, 200, "the last one that was told");
    assert_eq!(served.get("/v1/jobs/pair/logs?worker=1-4").await.status, 400, "and no more");
}

#[tokio::test]
async fn progress_is_kept_thinned_over_attempts() {
    let served = Served::with_job().await;
    let mut agents = super::agents::running(&served).await;
    for step in 1..=300_u64 {
        served.rig.advance(20);
        for agent in agents.iter_mut().take(2) {
            let mut report = agent.report(WorkerState::Running);
            (report.progress.step, report.progress.loss) = (Some(step), Some(format!("{}", 9.0 / step as f64)));
            report.progress.step_at = Some(served.rig.fakes.clock.now());
            agent.send(&report).await;
        }
    }
    let list = served.get("/v1/jobs/train/progress").await.json();
    assert_eq!((&list["attempts"][0]["attempt"], list["attempts"].as_array().unwrap().len()), (&json!(1), 1));
    let points = list["attempts"][0]["points"].as_array().unwrap();
    assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&points.len()), "{}", points.len());
    assert_eq!((&points[0]["step"], &points[0]["loss"]), (&json!(1), &json!(9.0)));
    assert!(points.last().unwrap()["step"].as_u64().unwrap() > 290);
    let workers = list["workers"].as_array().unwrap();
    assert_eq!((workers.len(), &workers[0]["step"], &workers[3]["state"]), (4, &json!(300), &json!("running")));
}

/// Where the first attempt began, while its job knows it and when it has forgotten it, after each worker has told step 40
/// and where it began.
async fn began(told: [Option<u64>; 4]) -> (Value, Value) {
    let served = Served::with_job().await;
    for (agent, resumed_from) in super::agents::running(&served).await.iter_mut().zip(told) {
        let mut report = agent.report(WorkerState::Running);
        report.progress.step = Some(40);
        report.progress.step_at = Some(served.rig.fakes.clock.now());
        // The words of the last one come one after the other.
        if agent.hello.key.worker == 3 {
            agent.send(&report).await;
        }
        report.progress.resumed_from = resumed_from;
        agent.send(&report).await;
    }
    let from = async || {
        let first = served.get("/v1/jobs/train/progress").await.json()["attempts"][0].clone();
        // It was to begin from scratch, whatever step its program told.
        assert_eq!(first["from_scratch"], json!(true), "{first}");
        first["from"].clone()
    };
    let known = from().await;
    let name = served.get("/v1/jobs/train").await.json()["resources"][0]["name"].as_str().unwrap().to_owned();
    assert!(served.rig.fakes.tpu.set_state(&name, SliceState::Preempted));
    for _ in 0..40 {
        served.rig.pass("train").await;
        served.rig.advance(30);
    }
    let attempts = served.rig.job("train").await.unwrap().attempts;
    assert!(attempts.iter().all(|attempt| attempt.number > 1), "it is forgotten: {attempts:?}");
    (known, from().await)
}

#[tokio::test]
async fn where_an_attempt_began_is_known_when_the_job_has_forgotten_it() {
    for (told, from) in [
        ([Some(30); 4], 30),
        // The first step comes from a worker that does not tell where it began: the words of others count, not the guess.
        ([None, Some(30), Some(20), Some(25)], 20),
        // A worker that tells it later, with no further step.
        ([None, None, Some(30), Some(10)], 10),
        ([None; 4], 0),
    ] {
        assert_eq!(began(told).await, (json!(from), json!(from)), "{told:?}");
    }
}

#[tokio::test]
async fn what_the_provider_took_costs_nothing_an_hour_any_more() {
    let served = Served::with_job().await;
    let usd = async || served.get("/v1/jobs/train").await.json()["resources"][0]["usd_per_hour"].clone();
    assert!(usd().await.as_f64().is_some_and(|usd| usd > 0.0));
    let name = served.get("/v1/jobs/train").await.json()["resources"][0]["name"].as_str().unwrap().to_owned();
    assert!(served.rig.fakes.tpu.set_state(&name, SliceState::Preempted));
    served.rig.pass("train").await;
    assert_eq!(usd().await, json!(0.0));
}
