//! Chunks of output whose numbers or attempts no agent gives.

use http::Request;

use rekindle_core::job::Phase;

use super::{Served, follow, put, set, text};

const LAST: u64 = 9_999_999_999;

/// Puts an object where chunks of the worker's stream lie.
async fn lay(served: &Served, name: &str, line: &str) {
    let name = format!("jobs/train/logs/000001/0000-0000/stdout/{name}");
    served.rig.engine.ports.objects.put(&name, line.to_owned().into()).await.unwrap();
}

#[tokio::test]
async fn a_chunk_has_a_number_of_ten_digits_and_no_other_is_taken() {
    let served = Served::with_job().await;
    assert_eq!(put(&served, 1, 0, "stdout", 0, "first\n").await, 204);
    for number in [LAST + 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(put(&served, 1, 0, "stdout", number, "far\n").await, 400, "{number}");
    }
    assert_eq!(text(&served, "?worker=0").await, "first\n");
    // More than a list of one stream gives, so that the end is looked for behind the last number, too.
    for number in LAST - 70..=LAST {
        assert_eq!(put(&served, 1, 0, "stdout", number, &format!("{number}\n")).await, 204, "{number}");
    }
    assert_eq!(put(&served, 1, 0, "stdout", LAST, "again\n").await, 409);
    let all = text(&served, "?worker=0").await;
    assert!(all.starts_with("first\n") && all.ends_with("\n9999999999\n") && all.lines().count() == 72, "{all}");
    assert_eq!(text(&served, "?worker=0&tail=33").await, "9999999998\n9999999999\n");
    set(&served, Phase::Succeeded, 1).await;
    let events = follow(&served, "&worker=0&tail=22", None, 9).await;
    let data: Vec<&str> = events.iter().map(|(.., data)| data.as_str()).collect();
    assert_eq!(data, ["== attempt 1 ==\n9999999999", "succeeded"]);
    let (id, ..) = &events[0];
    assert!(id.ends_with("/10000000000.0"), "{id}");
    let rest = follow(&served, "&worker=0", Some(id), 9).await;
    assert_eq!(rest.len(), 1, "only the end is left: {rest:?}");
}

#[tokio::test]
async fn what_lies_under_a_number_that_no_chunk_has_is_passed_over() {
    let served = Served::with_job().await;
    lay(&served, "0000000000@1", "first\n").await;
    // More than a list of one stream gives.
    for at in 0..70 {
        lay(&served, &format!("0{}@{at:03}", u64::MAX), "far\n").await;
        lay(&served, &format!("{}@{at:03}", u64::MAX), "far\n").await;
    }
    lay(&served, "9000000000@2", "last\n").await;
    set(&served, Phase::Succeeded, 1).await;
    assert_eq!(text(&served, "?worker=0").await, "first\nlast\n");
    assert_eq!(text(&served, "?worker=0&since=1970-01-01T00:00:00.002Z").await, "last\n");
    let events = follow(&served, "&worker=0", None, 9).await;
    let data: Vec<&str> = events.iter().map(|(.., data)| data.as_str()).collect();
    assert_eq!(data, ["== attempt 1 ==\nfirst", "last", "succeeded"], "each once");
}

#[tokio::test]
async fn a_follow_comes_back_to_no_chunk_that_cannot_be() {
    let served = Served::with_job().await;
    put(&served, 1, 0, "stdout", 0, "first\n").await;
    set(&served, Phase::Succeeded, 1).await;
    for (mark, status) in [
        (format!("{}.0", LAST + 1), 200),
        (format!("{}.0", LAST + 2), 400),
        (format!("{}.0", u64::MAX), 400),
        (format!("0.{}", 8 << 20), 200),
        (format!("0.{}", (8 << 20) + 1), 400),
        (format!("0.{}", u64::MAX), 400),
    ] {
        let request = Request::get("/v1/jobs/train/logs?follow=1");
        let request = request.header("last-event-id", format!("1;0-0/stdout/{mark}"));
        let answer = rekindle_rig::send(&served.router, request.body(axum::body::Body::empty()).unwrap()).await;
        assert_eq!(answer.status, status, "{mark}: {}", answer.text());
    }
}

#[tokio::test]
async fn output_of_an_attempt_that_never_was_is_refused() {
    let served = Served::with_job().await;
    for attempt in [0, 2, u32::MAX] {
        assert_eq!(put(&served, attempt, 0, "stdout", 0, "x\n").await, 404, "{attempt}");
    }
    assert!(served.rig.engine.ports.objects.list("jobs/train/logs/", None, 9).await.unwrap().is_empty());
    assert_eq!(put(&served, 1, 0, "stdout", 0, "x\n").await, 204);
}
