//! How much of jobs is read and answered at once: specs may be large, and the process has one memory for all its callers.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use rekindle_rig::{CALLER, Rig, get, send, spec};
use rekindle_web::caller::{Loopback, guard};
use rekindle_web::{Door, layers};

use crate::queue::AT_ONCE;
use crate::{Api, SILENCE_MAX};

use super::Served;

/// So many jobs with so long a program.
async fn jobs(count: usize, run: &[&str]) -> Served {
    let served = Served::over(Rig::new().await, SILENCE_MAX);
    for number in 0..count {
        let mut body = spec(&id(number));
        body["run"] = json!(run);
        assert_eq!(served.post("/v1/jobs", &body).await.status, 201);
        served.rig.advance(1);
    }
    served
}

fn id(number: usize) -> String {
    format!("job-{number:03}")
}

/// The same parts behind a router of their own, with what bounds them at hand.
fn people(rig: &Rig) -> (Api, Router) {
    let door = Arc::new(Loopback { identity: CALLER.into() });
    let mut api = Api::new(rig.engine.clone(), door.clone(), None).surveyed(true);
    api.silence_max = Duration::ZERO;
    let people = guard(crate::people(api.clone()), door, Door::People);
    (api, layers::common(people, rig.engine.settings.handler_deadline))
}

fn ids(list: &Value) -> Vec<String> {
    list["jobs"].as_array().unwrap().iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_page_of_large_jobs_ends_with_so_many_bytes_and_the_next_goes_on() {
    // As large as a spec may be.
    let served = jobs(40, &["python3", &"x".repeat(120_000), &"y".repeat(120_000)]).await;
    let (mut seen, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let answer = served.get(&format!("/v1/jobs?page_size=500&page_token={token}")).await;
        assert!(answer.body.len() < 12 << 20, "{} bytes", answer.body.len());
        let list = answer.json();
        seen.extend(ids(&list));
        pages += 1;
        let Some(next) = list["next_page_token"].as_str() else { break };
        next.clone_into(&mut token);
    }
    let due: Vec<String> = (0..40).rev().map(id).collect();
    assert_eq!((seen, pages), (due.clone(), 2));
    // Of which a list shows little: so many are read one page of the store after the other.
    let brief = served.get("/v1/jobs?page_size=500&view=list").await;
    assert!(brief.body.len() < 1 << 20, "{} bytes", brief.body.len());
    assert_eq!((ids(&brief.json()), &brief.json()["next_page_token"]), (due, &Value::Null));
}

#[tokio::test]
async fn whatever_reads_many_jobs_waits_for_its_turn() {
    let rig = Rig::new().await;
    let (api, router) = people(&rig);
    for path in [
        "/v1/jobs",
        "/v1/account",
        "/v1/digest?since=2026-11-20T00:00:00Z",
        "/v1/watch?since=2026-11-20T00:00:00Z&brief=true",
    ] {
        let mut places = Vec::new();
        for who in 0..AT_ONCE {
            places.push(api.queue.place(&who.to_string()).await.unwrap());
        }
        let reads = rig.fakes.docs.reads();
        let router = router.clone();
        let waiting = tokio::spawn(async move { send(&router, get(path)).await.status });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert!(!waiting.is_finished() && rig.fakes.docs.reads() == reads, "{path}");
        drop(places);
        assert_eq!(waiting.await.unwrap(), 200, "{path}");
        assert_eq!(api.queue.free(), AT_ONCE, "{path}");
    }
}

#[tokio::test]
async fn a_watcher_is_read_the_next_page_once_it_has_taken_the_one_before() {
    let served = jobs(120, &["true"]).await;
    let (_, router) = people(&served.rig);
    let request = get("/v1/watch?since=2026-11-20T00:00:00Z&brief=true");
    let Ok(response) = tower::ServiceExt::oneshot(router, request).await;
    let mut body: Body = response.into_body();
    let before = served.rig.fakes.docs.reads();
    let mut told = Vec::new();
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        let text = std::str::from_utf8(&data).unwrap().to_owned();
        if let Some((_, json)) = text.split_once("data: ") {
            let job: Value = serde_json::from_str(json.trim()).unwrap();
            told.push(job["id"].as_str().unwrap().to_owned());
        }
        let reads = usize::try_from(served.rig.fakes.docs.reads() - before).unwrap();
        assert!(told.len() == 120 || reads <= told.len().div_ceil(32).max(1), "{reads} reads for {}", told.len());
    }
    let due: Vec<String> = (0..120).map(id).collect();
    assert_eq!(told, due, "each once, in the order of their changes");
}

#[tokio::test]
async fn a_digest_is_of_all_pages_of_the_store() {
    let served = jobs(120, &["true"]).await;
    let digest = served.get("/v1/digest?since=2026-11-20T00:00:00Z").await.json();
    let due: Vec<String> = (0..120).map(id).collect();
    assert_eq!((ids(&digest), &digest["is_cut"]), (due, &json!(false)));
}
