//! The output of the jobs.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Log, faulty, job, known, no_such_job, objects, problem, seeing};

/// One that has ended, while its workers send what it left.
pub(super) fn sending() -> Value {
    let end = [("phase", json!("stopping")), ("outcome", json!("succeeded"))];
    let mut job = job("sending", &end);
    job["spec"]["outputs"] = json!(["results/**"]);
    job
}

/// Output of two attempts. The first stream breaks off in the middle, as when a server is restarted; the client comes
/// back with the last id, and the second stream goes on over the end of the attempt.
pub(super) async fn logs(
    State(log): State<Log>,
    Path(id): Path<String>,
    Query(query): Query<BTreeMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if id == "website" {
        return axum::response::Html("<html>log in</html>").into_response();
    }
    if known(&id).is_none() {
        return no_such_job(&id);
    }
    {
        let mut log = log.lock().unwrap();
        log.headers.push(headers.clone());
        log.queries.push(query.clone());
    }
    if query.get("worker").is_some_and(|worker| worker == "x") {
        return problem(400, "worker \"x\" is none", &[]);
    }
    if let Some(since) = query.get("since").filter(|_| !query.contains_key("follow")) {
        let since: Timestamp = since.parse().unwrap();
        let recent =
            if (590..660).contains(&Timestamp::now().duration_since(since).as_secs()) { "recent" } else { "odd" };
        return format!("[w0] the {recent} lines\n").into_response();
    }
    if id == "waits" {
        return "".into_response();
    }
    if id == "rude" {
        return objects::RED.into_response();
    }
    if !query.contains_key("follow") {
        let text = "== attempt 1 ==\n[w0] step 1\n[w1] step 1\n== attempt 2 ==\n[w0] step 2\n[w1] no worker\n";
        let text = &part(text, &query);
        return if query.contains_key("form") {
            objects::lines(text).into_response()
        } else {
            text.clone().into_response()
        };
    }
    if id == "silent" {
        return seeing::silent(log);
    }
    if id == "endless" || id == "quiet" {
        let silence = axum::body::Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        return ([(header::CONTENT_TYPE, "text/event-stream")], silence).into_response();
    }
    if id == "moved" || id == "mute" {
        let stream =
            if id == "moved" { seeing::MOVED.to_owned() } else { seeing::output_of_mute(query.get("attempt")) };
        return ([(header::CONTENT_TYPE, "text/event-stream")], objects::events(&stream)).into_response();
    }
    if id == "forger" {
        return ([(header::CONTENT_TYPE, "text/event-stream")], objects::FORGED).into_response();
    }
    if let Some(answer) = faulty::restarted(&log, &id) {
        return answer;
    }
    if id == "cut" && !headers.contains_key("last-event-id") {
        return faulty::broken_off(&objects::events("id: 1;a\ndata: [w0] step 1\n\nid: 1;b\ndata: [w0] cut"));
    }
    let stream = match headers.get("last-event-id").map(|id| id.to_str().unwrap()) {
        None => "id: 1;a\ndata: == attempt 1 ==\ndata: [w0] step 1\ndata: [w1] step 1\n\nid: 1;b\ndata: [w0] cut",
        Some("1;a") => {
            "id: 1;c\ndata: [w0] step 2\n\nid: 2;a\ndata: == attempt 2 ==\ndata: [w1] step 3\n\n\
             id: 2;b\nevent: end\ndata: succeeded\n\n"
        }
        Some(other) => panic!("{other}"),
    };
    ([(header::CONTENT_TYPE, "text/event-stream")], objects::events(stream)).into_response()
}

/// The lines of the attempt and of the worker that are asked for; a heading stands over what is below it alone.
fn part(text: &str, query: &BTreeMap<String, String>) -> String {
    let is_wanted = |name: &str, told: &str| query.get(name).is_none_or(|wanted| wanted == told);
    let (mut attempt, mut part) = ("", String::new());
    for line in text.lines() {
        if let Some(number) = line.strip_prefix("== attempt ") {
            attempt = number.trim_end_matches(" ==");
        }
        let worker = line.strip_prefix("[w").and_then(|rest| rest.split(']').next());
        if is_wanted("attempt", attempt) && worker.is_none_or(|worker| is_wanted("worker", worker)) {
            part.extend([line, "\n"]);
        }
    }
    part
}
