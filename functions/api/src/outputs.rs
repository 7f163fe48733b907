//! Outputs: files that workers collected at the end of a program, in the object store under
//! `jobs/<id>/outputs/a<ATTEMPT>/w<N>/<path>` (`s<S>w<N>` where there are slices). An agent that does not tell its attempt has no
//! `a<ATTEMPT>/`: what it left counts as of attempt 0.
//!
//! Names of objects have few characters; others, and a dot at the beginning of a name, are written `=XX`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use futures::stream;
use http::{HeaderMap, StatusCode, header};
use serde::Deserialize;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Job;
use rekindle_web::problem::FieldFault;
use rekindle_web::{Caller, Json, NoQuery, Path, Problem, Query, faulty_query, problem};
use rekindle_wire::agent::{OutputAddress, OutputPlace};
use rekindle_wire::v1::{OutputList, OutputView, worker_label};

use crate::access::seen;
use crate::jobs::job_id;
use crate::{Api, agents};

/// Bytes read at once when a file is served.
const PIECE: u64 = 1024 * 1024;
/// Names that are asked for at once.
const NAMES: usize = 1000;

fn folder(job: &JobId) -> String {
    format!("jobs/{job}/outputs/")
}

fn worker_folder(key: WorkerKey, has_slices: bool) -> String {
    worker_label(key, has_slices)
}

/// A path as part of an object's name. `None`: it leaves its folder, or has no name.
fn encoded(path: &str) -> Option<String> {
    let mut out = String::new();
    for (index, part) in path.split('/').enumerate() {
        if part.is_empty() || part == "." || part == ".." {
            return None;
        }
        if index > 0 {
            out.push('/');
        }
        for (index, byte) in part.bytes().enumerate() {
            let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'+' | b'@' | b'~' | b'-');
            if is_plain || (byte == b'.' && index > 0) {
                out.push(char::from(byte));
            } else {
                let _never = write!(out, "={byte:02X}");
            }
        }
    }
    Some(out)
}

/// The path again; what was not encoded by us stays as it is.
fn decoded(name: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let code = behind.get(..2).and_then(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok());
        if let Some(code) = code.filter(|_| byte == b'=') {
            bytes.push(code);
            rest = &behind[2..];
        } else {
            bytes.push(byte);
            rest = behind;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// `POST /agent/v1/outputs`: 201 where the file goes; 400 a path that cannot be a name or makes too long a one, 401 a wrong token, 404 an attempt that is not
/// of the worker's generation.
pub(crate) async fn place(
    State(api): State<Api>,
    headers: HeaderMap,
    Json(place): Json<OutputPlace>,
) -> Result<Response, Problem> {
    let (generation, instance) = (place.generation, place.instance.as_str());
    let who = agents::Named { job: &place.job, generation, key: place.key, instance };
    let job = agents::job_of(&api, &headers, who).await?;
    let Some(path) = encoded(&place.path) else {
        let message = format!("{} is no path below the working directory", begin_of(&place.path));
        return Err(problem(StatusCode::BAD_REQUEST, "path", message));
    };
    let worker = worker_folder(place.key, job.spec.tpu.slices > 1);
    let attempt = match place.attempt {
        // As with its last words, one that is over may have left the job's document.
        Some(attempt) if attempt == 0 || attempt > job.last_attempt || is_of_another(&job, attempt, generation) => {
            return Err(Problem::not_found(&format!("attempt {attempt} for this worker")));
        }
        Some(attempt) => format!("a{attempt}/"),
        None => String::new(),
    };
    let name = format!("{}{attempt}{worker}/{path}", folder(&job.id));
    // What has a place can be read: `read` asks the same.
    if let Some(why) = api.engine.ports.objects.too_long(&name) {
        let message =
            format!("{} {why}; write it to a shorter path, of plain letters and digits", begin_of(&place.path));
        let fault = FieldFault { field: "path".into(), message: message.clone() };
        return Err(problem(StatusCode::BAD_REQUEST, "path", message).with_errors(vec![fault]));
    }
    let upload = api.engine.ports.objects.upload_address(&name).await;
    let upload = upload.map_err(|e| Problem::unavailable("the object store", &e))?;
    Ok((StatusCode::CREATED, axum::Json(OutputAddress { upload })).into_response())
}

/// The first characters of what a caller sent, quoted.
fn begin_of(text: &str) -> String {
    format!("{:?}", text.chars().take(100).collect::<String>())
}

fn is_of_another(job: &Job, attempt: u32, generation: u32) -> bool {
    job.attempts.iter().any(|a| a.number == attempt && a.generation != generation)
}

/// The attempt of an object, its worker, and its path as it is named.
fn parts(object: &str) -> Option<(u32, &str, &str)> {
    let (first, rest) = object.split_once('/')?;
    match first.strip_prefix('a').map(str::parse) {
        Some(Ok(attempt)) => rest.split_once('/').map(|(worker, path)| (attempt, worker, path)),
        Some(Err(_)) | None => Some((0, first, rest)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputsQuery {
    /// Those of this attempt; without it of the last that left any.
    attempt: Option<u32>,
}

/// `GET /v1/jobs/{id}/outputs`: of one attempt. What an earlier one left is no part of a result, and stays there all the same.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    Query(query): Query<OutputsQuery>,
) -> Result<axum::Json<OutputList>, Problem> {
    let job = seen(&api, &caller, &job_id(&id)?).await?;
    let folder = folder(&job.id);
    let mut found = all(&api, &folder).await?;
    let attempt = query.attempt.or_else(|| found.keys().next_back().copied());
    let outputs = attempt.and_then(|attempt| found.remove(&attempt));
    if outputs.is_none() && query.attempt.is_some_and(|asked| asked == 0 || asked > job.last_attempt) {
        let message = format!("there is no attempt {}; the last is {}", query.attempt.unwrap_or(0), job.last_attempt);
        return Err(faulty_query("attempt", &message));
    }
    let below = attempt.filter(|attempt| *attempt > 0).map_or_else(String::new, |attempt| format!("a{attempt}/"));
    let place = format!("{}/{folder}{below}", api.engine.deployment.bucket.trim_end_matches('/'));
    let other_attempts = found.into_keys().collect();
    Ok(axum::Json(OutputList { place, attempt, other_attempts, outputs: outputs.unwrap_or_default() }))
}

/// All outputs in a job's folder, by attempt.
async fn all(api: &Api, folder: &str) -> Result<BTreeMap<u32, Vec<OutputView>>, Problem> {
    let objects = &api.engine.ports.objects;
    let mut found: BTreeMap<u32, Vec<OutputView>> = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let names = objects.list(folder, after.as_deref(), NAMES).await;
        let names = names.map_err(|e| Problem::unavailable("the object store", &e))?;
        for name in &names {
            let object = name.strip_prefix(folder).unwrap_or_default();
            let Some((attempt, worker, path)) = parts(object) else { continue };
            let (worker, path) = (worker.to_owned(), decoded(path));
            found.entry(attempt).or_default().push(OutputView { worker, path, object: object.to_owned() });
        }
        if names.len() < NAMES {
            return Ok(found);
        }
        after = names.last().cloned();
    }
}

/// `GET /v1/jobs/{id}/outputs/{object}`: the bytes of one file.
pub(crate) async fn read(
    State(api): State<Api>,
    caller: Caller,
    Path((id, object)): Path<(String, String)>,
    _: Query<NoQuery>,
) -> Result<Response, Problem> {
    let job = seen(&api, &caller, &job_id(&id)?).await?;
    // The path comes decoded: what leaves the folder of the job's outputs is none of them.
    let leaves = object.split('/').any(|part| part.is_empty() || part == "." || part == "..");
    let name = format!("{}{object}", folder(&job.id));
    let objects = api.engine.ports.objects.clone();
    if leaves || object.contains(char::is_control) || objects.too_long(&name).is_some() {
        let begin = begin_of(&object);
        let message = format!("{begin} is no path of an output, such as a1/w0/results/a.png; `outputs` lists them");
        let fault = FieldFault { field: "object".into(), message: message.clone() };
        return Err(problem(StatusCode::BAD_REQUEST, "object", message).with_errors(vec![fault]));
    }
    let size = objects.size(&name).await.map_err(|e| Problem::unavailable("the object store", &e))?;
    let Some(size) = size else { return Err(Problem::not_found(&format!("output {object:?}"))) };
    let pieces = stream::try_unfold((objects, name, 0), move |(objects, name, from)| async move {
        if from >= size {
            return Ok::<_, std::io::Error>(None);
        }
        let piece = objects.get(&name, from, PIECE).await.map_err(std::io::Error::other)?;
        let piece = piece.filter(|p| !p.is_empty()).ok_or_else(|| std::io::Error::other("the file went away"))?;
        let next = from + piece.len() as u64;
        Ok(Some((piece, (objects, name, next))))
    });
    let headers =
        [(header::CONTENT_LENGTH, size.to_string()), (header::CONTENT_TYPE, "application/octet-stream".into())];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_becomes_a_name_and_comes_back() {
        for path in ["a.txt", "out/.hidden/é =%.png", "..a/b c", "x/=41"] {
            let name = encoded(path).unwrap();
            assert!(name.split('/').all(|part| !part.starts_with('.') && part.is_ascii() && !part.contains(' ')));
            assert_eq!(decoded(&name), path, "{name}");
        }
        for path in ["", "/a", "a//b", "../a", "a/..", "a/./b"] {
            assert_eq!(encoded(path), None, "{path}");
        }
        assert_eq!(decoded("a=b=4"), "a=b=4");
    }
}
