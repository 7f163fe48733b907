//! The page's files, the stream of changes, and calls of other pages.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::Value;

use rekindle_core::settings::Settings;
use rekindle_rig::{Rig, post, send, spec};

use super::Served;

fn jobs(text: &str) -> Vec<Value> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[tokio::test]
async fn changes_are_streamed_from_a_moment_on_and_silence_ends_the_stream() {
    let served = Served::with_silence(Duration::ZERO).await;
    let answer = served.get("/v1/watch?since=2026-11-20T00:00:00Z").await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let told = jobs(answer.text());
    assert_eq!(told.len(), 1, "{}", answer.text());
    assert_eq!((told[0]["id"].as_str(), told[0]["phase"].as_str()), (Some("train"), Some("starting")));
    assert!(answer.text().contains("event: job"));

    let id = answer.text().lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    served.rig.advance(60);
    served.tell("/v1/jobs/train/cancel").await;
    served.rig.pass("train").await;
    let again = |id: &str| Request::get("/v1/watch").header("last-event-id", id).body(Body::empty()).unwrap();
    let answer = send(&served.router, again(&id)).await;
    assert_eq!(jobs(answer.text())[0]["desired"], "cancel");
    assert_eq!(jobs(served.get("/v1/watch?since=2027-01-01T00:00:00Z").await.text()).len(), 0);
    assert_eq!(send(&served.router, again("nonsense")).await.status, 400);
    assert_eq!(served.get("/v1/watch?from=1").await.status, 400);
}

#[tokio::test]
async fn the_pages_files_come_from_the_server_alone_and_only_when_they_changed() {
    let served = Served::new().await;
    for (path, kind) in [
        ("/", "text/html"),
        ("/site/page.css", "text/css"),
        ("/favicon.ico", "image/svg+xml"),
        ("/site/page.js", "text/javascript"),
        ("/site/views.js", "text/javascript"),
        ("/site/job.js", "text/javascript"),
        ("/site/parts.js", "text/javascript"),
    ] {
        let answer = served.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.headers["content-type"].to_str().unwrap().starts_with(kind), "{path}");
        assert!(answer.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
        let text = answer.text().replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains("http://") && !text.contains("https://"), "{path} loads from elsewhere");
        assert!(!text.contains("innerHTML"), "{path} may make markup of a job's text");
        let known = Request::get(path).header("if-none-match", &answer.headers["etag"]).body(Body::empty()).unwrap();
        assert_eq!(send(&served.router, known).await.status, 304, "{path}");
    }
    assert_eq!(served.get("/site/other.js").await.status, 404);
}

#[tokio::test]
async fn a_page_looks_often_only_where_that_costs_nothing() {
    let served = Served::new().await;
    let paid = served.get("/").await;
    assert!(paid.text().contains(r#"<meta name="look-ms" content="60000">"#), "{}", paid.text());
    let mut rig = Rig::new().await;
    rig.engine.settings = Arc::new(Settings::local());
    let free = Served::over(rig, crate::SILENCE_MAX).get("/").await;
    assert!(free.text().contains(r#"<meta name="look-ms" content="3000">"#), "{}", free.text());
    assert_ne!(free.headers["etag"], paid.headers["etag"]);
}

#[tokio::test]
async fn a_page_of_another_origin_changes_nothing() {
    let served = Served::new().await;
    let foreign = |name: &'static str, value: &'static str| {
        let mut request = post("/v1/jobs", &spec("train"));
        request.headers_mut().insert("host", "rekindle.example".parse().unwrap());
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    assert_eq!(send(&served.router, foreign("origin", "https://elsewhere.example")).await.status, 403);
    assert_eq!(send(&served.router, foreign("sec-fetch-site", "cross-site")).await.status, 403);
    assert!(served.rig.job("train").await.is_none());
    assert_eq!(send(&served.router, foreign("origin", "https://rekindle.example")).await.status, 201);
}
