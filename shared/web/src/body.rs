//! Reading bodies: a limit before anything is kept, content types, envelopes, JSON of people.

use std::fmt;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, HttpBody as _};
use axum::extract::{FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use rekindle_wire::bounds;
use rekindle_wire::delivery::{self, Delivery, NotAnEnvelope};

use crate::problem::{FieldFault, Problem, problem};
use crate::room::{self, SMALL_MAX};

/// The largest body of an envelope or a job spec, in bytes.
// Eventarc events are at most 512 KB; a job spec is a page of text.
pub const BODY_MAX: usize = 1024 * 1024;

/// The largest push envelope of a topic to which people publish, in bytes: 10 MB, the most that Pub/Sub takes, as base64
/// and with attributes. Refused, such a message would come again for days; taken, it can be told to be unusable.
pub const PUSH_MAX: usize = 14 * 1024 * 1024;

/// Most that is taken of a body which is too large, in bytes: the largest request that Cloud Run lets through.
const DRAIN_MAX: usize = 32 * 1024 * 1024;
/// And for how long.
const DRAIN_FOR: Duration = Duration::from_secs(5);

/// Reads a body of at most `max` bytes. Errors: 413 above it, 400 when it breaks off, 503 when it is large and there is no
/// [`room`] for it.
pub async fn read(request: Request, max: usize) -> Result<Bytes, Problem> {
    let (parts, body) = request.into_parts();
    collect(&parts, body, max).await
}

async fn collect(parts: &Parts, mut body: Body, max: usize) -> Result<Bytes, Problem> {
    let too_large =
        || problem(StatusCode::PAYLOAD_TOO_LARGE, "too-large", format!("the body has more than {max} bytes"));
    let known = body.size_hint().exact();
    if known.is_some_and(|length| length > max as u64) {
        drain(body).await;
        return Err(too_large());
    }
    let known = known.and_then(|length| usize::try_from(length).ok());
    if let Some(length) = known {
        room::take(&parts.extensions, length)?;
    }
    match whole(parts, Limited::new(&mut body, max), known, max).await {
        Ok(body) => Ok(body),
        Err(Broken::NoRoom(problem)) => Err(problem),
        Err(Broken::Read(error)) if error.is::<LengthLimitError>() => {
            drain(body).await;
            Err(too_large())
        }
        Err(Broken::Read(error)) => {
            Err(problem(StatusCode::BAD_REQUEST, "body", format!("the body cannot be read: {error}")))
        }
    }
}

/// Why a body was not read to its end.
enum Broken {
    Read(BoxError),
    NoRoom(Problem),
}

impl From<BoxError> for Broken {
    fn from(error: BoxError) -> Self {
        Self::Read(error)
    }
}

/// All of a body. Nearly every one comes in one piece, which is then taken as it is.
async fn whole(parts: &Parts, mut body: Limited<&mut Body>, known: Option<usize>, max: usize) -> Result<Bytes, Broken> {
    let Some(first) = body.frame().await else { return Ok(Bytes::new()) };
    let first = first?.into_data().unwrap_or_default();
    let mut has_room = known.is_some();
    let mut grown_to = |size: usize| {
        if !has_room && size > SMALL_MAX {
            // Nobody has said how long it will be.
            room::take(&parts.extensions, max).map_err(Broken::NoRoom)?;
            has_room = true;
        }
        Ok::<_, Broken>(())
    };
    grown_to(first.len())?;
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut all = BytesMut::with_capacity(known.unwrap_or(2 * first.len()));
    all.extend_from_slice(&first);
    while let Some(frame) = body.frame().await {
        let data = frame?.into_data().unwrap_or_default();
        grown_to(all.len() + data.len())?;
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

/// Takes the rest of a body and throws it away, within reason: a client that still sends while the connection is closed under it sees a broken
/// pipe instead of the answer.
async fn drain(mut body: Body) {
    let rest = async {
        let mut taken = 0;
        while taken < DRAIN_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            taken += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    // Whether it came to its end makes no difference to the answer.
    let _ended = tokio::time::timeout(DRAIN_FOR, rest).await;
}

/// A body of at most [`BODY_MAX`] bytes.
#[derive(Debug, Clone)]
pub struct Raw(pub Bytes);

impl<S: Send + Sync> FromRequest<S> for Raw {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        read(request, BODY_MAX).await.map(Self)
    }
}

/// What a trigger sent, whichever envelope it used. 400 and 415 when it is no envelope, 413 above [`BODY_MAX`].
#[derive(Debug, Clone)]
pub struct Deliveries(pub Vec<Delivery>);

/// [`Deliveries`] of a topic to which people publish: 413 only above [`PUSH_MAX`].
#[derive(Debug, Clone)]
pub struct Messages(pub Vec<Delivery>);

impl<S: Send + Sync> FromRequest<S> for Deliveries {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        deliveries(request, BODY_MAX).await.map(Self)
    }
}

impl<S: Send + Sync> FromRequest<S> for Messages {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        deliveries(request, PUSH_MAX).await.map(Self)
    }
}

async fn deliveries(request: Request, max: usize) -> Result<Vec<Delivery>, Problem> {
    let (parts, body) = request.into_parts();
    let body = collect(&parts, body, max).await?;
    delivery::decode(&parts.headers, &body).map_err(|error| {
        tracing::error!("a request is no envelope of a trigger: {error}");
        match error {
            NotAnEnvelope::ContentType(_) => {
                problem(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content-type", error.to_string())
            }
            NotAnEnvelope::Malformed(why) => problem(StatusCode::BAD_REQUEST, "not-an-envelope", why),
        }
    })
}

/// A JSON body of people: 415 for another content type, 400 for what cannot be read. An absent body reads as `{}`, and JSON is also what
/// comes without a type, or with one that clients send unasked.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let content_type = request.headers().get(header::CONTENT_TYPE).cloned();
        let body = read(request, BODY_MAX).await?;
        if body.is_empty() {
            return from_json(b"{}").map(Self);
        }
        check_json(content_type.as_ref())?;
        from_json(&body).map(Self)
    }
}

/// JSON, and what `gcloud scheduler` and Cloud Tasks, and `curl --data`, call a body of which nobody said what it is. That a browser's form of
/// another page sends the last one too is why such pages are refused before a body is read.
const UNASKED: [&str; 3] = ["application/json", "application/octet-stream", "application/x-www-form-urlencoded"];

fn check_json(content_type: Option<&http::HeaderValue>) -> Result<(), Problem> {
    let Some(content_type) = content_type else { return Ok(()) };
    let text = content_type.to_str().unwrap_or_default();
    let name = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if UNASKED.contains(&name.as_str()) || (name.starts_with("application/") && name.ends_with("+json")) {
        return Ok(());
    }
    Err(problem(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "content-type",
        format!("content type {text:?} is not accepted here; send application/json"),
    ))
}

fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    // A list would be taken for an object, field by position.
    if body.iter().find(|byte| !byte.is_ascii_whitespace()).is_some_and(|byte| *byte == b'[') {
        return Err(problem(StatusCode::BAD_REQUEST, "json", "the body must be a JSON object, not a list".to_owned()));
    }
    let unread =
        |why: &dyn fmt::Display| problem(StatusCode::BAD_REQUEST, "json", format!("the body cannot be read: {why}"));
    bounds::check(body).map_err(|why| unread(&why))?;
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let field = error.path().to_string();
        let why = error.into_inner();
        let problem = unread(&why);
        // Text that is no JSON, and what is wrong with the whole, is no field's fault.
        if why.is_data() && field != "." {
            problem.with_errors(vec![FieldFault { field, message: why.to_string() }])
        } else {
            problem
        }
    });
    let value = read?;
    json.end().map_err(|why| unread(&why))?;
    Ok(value)
}
