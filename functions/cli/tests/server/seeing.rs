//! What the server with a few jobs says of its account, of what happened, and of progress.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, Query};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use rekindle_wire::account::AccountView;
use rekindle_wire::seeing::{DigestView, ProgressList};
use serde_json::{Value, json};

use super::{Log, ago, job, known, no_such_job, problem};

pub(super) async fn progress(Path(id): Path<String>) -> Response {
    if known(&id).is_none() {
        return no_such_job(&id);
    }
    // Attempt 2 was done with the steps of attempt 1 after ten minutes.
    let attempts = json!([
        {"attempt": 1, "points": [{"at": ago(7300), "step": 10, "loss": 9.5}, {"at": ago(1760), "step": 1100, "loss": 2.9}]},
        {"attempt": 2, "points": [{"at": ago(1500), "step": 1076, "loss": 2.95}, {"at": ago(910), "step": 1101, "loss": 2.89}]},
    ]);
    let attempts = if id == "train-1" { attempts } else { json!([]) };
    let view = json!({"id": id, "attempts": attempts, "workers": []});
    let _: ProgressList = serde_json::from_value(view.clone()).unwrap();
    Json(view).into_response()
}

pub(super) async fn account(Query(query): Query<BTreeMap<String, String>>) -> Response {
    assert!(query.get("weeks").is_some_and(|weeks| weeks.parse::<u32>().is_ok()), "{query:?}");
    if query.get("format").is_some_and(|format| format == "csv") {
        return ([(header::CONTENT_TYPE, "text/csv")], "owner,jobs\nresearch,2\n").into_response();
    }
    let by: Vec<&str> = query["by"].split(',').collect();
    let split = |useful: f64, repeated: f64, waiting: f64, idle: f64, orphan: f64| {
        let total = useful + repeated + waiting + idle + orphan;
        json!({"total": total, "useful": useful, "repeated": repeated, "waiting": waiting, "idle": idle, "orphan": orphan})
    };
    let row = |week: &str, owner: &str, jobs: u64, hours: Value, usd: Value| {
        let mut row = json!({"jobs": jobs, "chip_hours": hours, "usd": usd});
        for (name, value) in [("week", week), ("owner", owner), ("tag", "ablation"), ("job", "train-1")] {
            if by.contains(&name) {
                row[name] = json!(value);
            }
        }
        row
    };
    let zero = || split(0.0, 0.0, 0.0, 0.0, 0.0);
    let rows = json!([
        row("2026-11-23", "research", 2, split(90.0, 2.5, 6.0, 1.0, 0.5), split(18.0, 0.5, 1.2, 0.2, 0.1)),
        row(
            "2026-11-16",
            "",
            u64::from(by.contains(&"tag")),
            split(0.0, 0.0, 0.0, 0.0, 4.0),
            split(0.0, 0.0, 0.0, 0.0, 0.8)
        ),
    ]);
    let is_empty = query.get("owner").is_some_and(|owner| owner == "nobody");
    let total =
        json!({"jobs": 2, "chip_hours": split(90.0, 2.5, 6.0, 1.0, 4.5), "usd": split(18.0, 0.5, 1.2, 0.2, 0.9)});
    let nothing = json!({"jobs": 0, "chip_hours": zero(), "usd": zero()});
    let view = json!({
        "by": by, "since": "2026-09-07", "through": "2026-11-28T12:00:00Z",
        "rows": if is_empty { json!([]) } else { rows }, "total": if is_empty { nothing } else { total },
    });
    let _: AccountView = serde_json::from_value(view.clone()).unwrap();
    Json(view).into_response()
}

/// What a digest tells of one job.
fn one(id: &str, change: &[(&str, Value)]) -> Value {
    let mut digest = json!({
        "id": id, "owner": "research", "is_workspace": false, "phase": "running", "outcome": null, "reason": "running",
        "message": "The program runs on 4 workers.", "is_new": false, "has_ended": false, "attempts": 0,
        "generations": 0, "ends": {}, "last_end": null, "by_people": [], "step": 1200, "steps": 700, "loss": "2.31",
        "cost_usd": 1.234, "last_at": ago(60),
    });
    for (name, value) in change {
        digest[*name] = value.clone();
    }
    digest
}

pub(super) async fn digest(Query(query): Query<BTreeMap<String, String>>) -> Response {
    let since: jiff::Timestamp = query["since"].parse().unwrap();
    if query.get("owner").is_some_and(|owner| owner == "idle") {
        return Json(json!({"since": since, "through": ago(0), "jobs": [], "is_cut": false})).into_response();
    }
    let bad = "ModuleNotFoundError: No module named 'flax' (environment).";
    let jobs = [
        one(
            "bad",
            &[
                ("phase", json!("failed")),
                ("outcome", json!("failed")),
                ("message", json!(bad)),
                ("has_ended", json!(true)),
                ("is_new", json!(true)),
                ("steps", json!(1200)),
                ("attempts", json!(2)),
                ("ends", json!({"environment": 2})),
            ],
        ),
        one("long", &[("steps", json!(1000))]),
        one("quiet", &[("step", Value::Null), ("steps", Value::Null), ("loss", Value::Null)]),
        one(
            "train-1",
            &[
                ("attempts", json!(3)),
                ("generations", json!(3)),
                ("ends", json!({"preempted": 2, "infra_grpc": 1})),
                ("by_people", json!(["sync by ada@example.com", "sync by ada@example.com", "wake by ada@example.com"])),
            ],
        ),
        one(
            "old",
            &[
                ("owner", json!("robots")),
                ("is_workspace", json!(true)),
                ("phase", json!("cancelled")),
                ("outcome", json!("cancelled")),
                ("has_ended", json!(true)),
                ("by_people", json!(["cancel by ada@example.com"])),
                ("step", Value::Null),
                ("steps", Value::Null),
                ("loss", Value::Null),
            ],
        ),
        one(
            "waits",
            &[
                ("owner", json!("robots")),
                ("phase", json!("pending")),
                ("message", json!("No capacity in us-central1-a.")),
                ("is_new", json!(true)),
                ("step", Value::Null),
                ("steps", Value::Null),
                ("loss", Value::Null),
            ],
        ),
    ];
    let is_cut = query.get("owner").is_some_and(|owner| owner == "busy");
    let view = json!({"since": since, "through": ago(0), "jobs": jobs, "is_cut": is_cut});
    let _: DigestView = serde_json::from_value(view.clone()).unwrap();
    Json(view).into_response()
}

/// One change, and no more: the client comes back and is refused, which ends its watch.
pub(super) async fn watch(headers: axum::http::HeaderMap) -> Response {
    if headers.contains_key("last-event-id") {
        return problem(401, "The token is not accepted any more.", &[]);
    }
    ([(header::CONTENT_TYPE, "text/event-stream")], one_change()).into_response()
}

fn one_change() -> String {
    let change =
        [("phase", json!("recovering")), ("message", json!("The slice was preempted.")), ("revision", json!(13))];
    format!("event: job\nid: 7\ndata: {}\n\n", job("train-1", &change))
}

/// One change, and then nothing, for ever.
pub(super) async fn watch_on() -> Response {
    let change = futures::stream::once(async { Ok::<_, std::io::Error>(one_change()) });
    let stream = axum::body::Body::from_stream(change.chain(futures::stream::pending()));
    ([(header::CONTENT_TYPE, "text/event-stream")], stream).into_response()
}

/// The output of a job that was at four attempts.
pub(super) const MOVED: &str = "id: 1;a\ndata: == attempt 1 ==\ndata: [w0] step 1\n\n\
     id: 2;a\ndata: == attempt 2 ==\ndata: [w0] step 2\n\nid: 3;a\ndata: == attempt 3 ==\ndata: [w0] step 3\n\n\
     id: 4;a\ndata: == attempt 4 ==\ndata: [w0] step 4\n\nid: 4;b\nevent: end\ndata: succeeded\n\n";

/// A job whose attempts 2 and 4 said nothing, and that was cancelled after its fourth was preempted.
pub(super) fn mute() -> Value {
    let last =
        json!({"attempt": 4, "generation": 4, "at": ago(60), "kind": "preempted", "summary": "Taken at step 4."});
    let end = [("phase", json!("cancelled")), ("outcome", json!("cancelled")), ("attempt", json!(4))];
    let said = [("message", json!("ada@example.com cancelled it.")), ("last_end", last), ("resources", json!([]))];
    let mut mute = job("mute", &[&end[..], &said].concat());
    mute["spec"]["outputs"] = json!(["results/**", "*.png"]);
    mute
}

/// It was cancelled while it waited for a TPU.
pub(super) fn unborn() -> Value {
    let mut unborn = mute();
    (unborn["id"], unborn["first_started_at"]) = (json!("unborn"), json!(null));
    unborn
}

/// All of it, or of one attempt.
pub(super) fn output_of_mute(attempt: Option<&String>) -> String {
    let end = "id: 9;a\nevent: end\ndata: cancelled\n\n";
    match attempt {
        Some(attempt) if attempt == "9" => end.to_owned(),
        Some(attempt) => format!("id: {attempt};a\ndata: [w0] said in {attempt}\n\n{end}"),
        None => format!(
            "id: 1;a\ndata: == attempt 1 ==\ndata: [w0] said in 1\n\n\
             id: 3;a\ndata: == attempt 3 ==\ndata: [w0] said in 3\n\n{end}"
        ),
    }
}

/// Its third attempt was ended by a person: nothing was judged.
pub(super) fn ends_of_mute() -> Value {
    let entries: Vec<Value> = [1, 2, 4].iter().map(|attempt| end_of(*attempt)).collect();
    json!({"entries": entries, "next_page_token": null})
}

/// One page of its history: each tells one end. The first is all that there was when it was asked for.
pub(super) fn ends(page: &str) -> Value {
    let (attempt, next) = match page {
        "" => (1, None),
        "10" => (2, Some("20")),
        _ => (3, None),
    };
    json!({"entries": [end_of(attempt)], "next_page_token": next})
}

fn end_of(attempt: u32) -> Value {
    let ended = json!({"attempt": attempt, "kind": "preempted", "summary": format!("Taken at step {attempt}.")});
    json!({
        "revision": attempt * 10, "at": "2026-01-01T10:00:00Z", "cause": "notice", "actor": "rekindle",
        "from": "running", "to": "recovering", "reason": "preemption_notice", "message": "", "notes": [],
        "effects": [], "attempt": attempt, "generation": attempt, "ended": ended,
    })
}

/// A job whose program printed nothing and has ended; it waits to see whether its slice was lost.
pub(super) fn settling() -> Value {
    let mut job = job("silent", &[("phase", json!("recovering")), ("reason", json!("settling"))]);
    job["message"] =
        json!("exit code 1; waits up to 60 s to see whether the slice was lost: if so the job goes on, else it fails");
    job["waiting_for"] = json!("a sign that the slice was lost, until 2026-11-28T12:00:00Z");
    job
}

/// Output that says nothing for so long as the job was not looked at often enough.
pub(super) fn silent(log: Log) -> Response {
    let stream = futures::stream::unfold(false, move |is_over| {
        let log = log.clone();
        async move {
            let looked = log.lock().unwrap().looked.clone();
            while !is_over && log.lock().unwrap().looks < 4 {
                looked.notified().await;
            }
            let end = axum::body::Bytes::from_static(b"id: 2;a\nevent: end\ndata: succeeded\n\n");
            (!is_over).then_some((Ok::<_, std::convert::Infallible>(end), true))
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], axum::body::Body::from_stream(stream)).into_response()
}

/// What a webhook of a job was not told.
fn letter(job: Option<&str>) -> Value {
    let (function, phase, reason) = match job {
        Some(_) => ("notify", json!("succeeded"), "hooks.example.com: it answered 404 Not Found"),
        None => ("jobs", Value::Null, "the job spec has a fault: tpu.accelerator: unknown accelerator"),
    };
    json!({"at": ago(400), "function": function, "reason": reason, "job": job, "phase": phase, "tried_until": null})
}

/// What a webhook is about to be told again.
fn waiting_letter() -> Value {
    let mut letter = letter(Some("hooked"));
    letter["tried_until"] = json!(ago(-205));
    letter["reason"] = json!("hooks.example.com:8443: it answered 503 Service Unavailable");
    letter
}

/// What many webhooks of a job are about to be told again.
fn crowd_letter() -> Value {
    let mut letter = waiting_letter();
    let lines = (1..=5).map(|number| format!("h{number}.example.com: it answered 503 Service Unavailable"));
    (letter["job"], letter["reason"]) = (json!("crowd"), json!(lines.collect::<Vec<_>>().join("\n")));
    letter
}

/// One with many webhooks that do not answer.
pub(super) fn crowd() -> Value {
    let mut job = known("good").unwrap();
    (job["id"], job["untold"]) = (json!("crowd"), crowd_letter());
    job
}

/// A job whose webhook was not told of its end.
pub(super) fn hooked() -> Value {
    let mut job = known("good").unwrap();
    (job["id"], job["untold"]) = (json!("hooked"), letter(Some("hooked")));
    let _: rekindle_wire::v1::JobView = serde_json::from_value(job.clone()).unwrap();
    job
}

/// A job with a note.
pub(super) fn noted() -> Value {
    let mut job = known("good").unwrap();
    (job["id"], job["spec"]["notes"]) = (json!("noted"), json!("on more chips"));
    job
}

/// One whose webhook does not answer.
pub(super) fn knocking() -> Value {
    let mut job = known("good").unwrap();
    (job["id"], job["untold"]) = (json!("knocking"), waiting_letter());
    job
}

pub(super) async fn letters(Query(query): Query<BTreeMap<String, String>>) -> Response {
    let mut letters = match query.get("job").map(String::as_str) {
        None => {
            let (mut mended, mut earlier) = (letter(None), letter(Some("hooked")));
            (mended["at"], mended["mended_by"]) = (json!(ago(4000)), json!("good"));
            (earlier["at"], earlier["phase"]) = (json!(ago(7400)), json!("running"));
            vec![letter(None), letter(Some("hooked")), mended, earlier]
        }
        Some("knocking") => vec![waiting_letter()],
        Some("crowd") => vec![crowd_letter()],
        Some("hooked") => vec![letter(Some("hooked"))],
        Some(id) if known(id).is_none() => return no_such_job(id),
        Some(_) => Vec::new(),
    };
    let size = query.get("page_size").map_or(usize::MAX, |size| size.parse().unwrap());
    let token = (letters.len() > size).then_some("more");
    letters.truncate(size);
    let view = json!({"letters": letters, "next_page_token": token});
    let _: rekindle_wire::v1::DeadLetterList = serde_json::from_value(view.clone()).unwrap();
    Json(view).into_response()
}
