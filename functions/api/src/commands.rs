//! `POST /v1/jobs/{id}/{command}`: what people tell a job.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;

use rekindle_core::access::Right;
use rekindle_core::decide::Command;
use rekindle_core::ids::JobId;
use rekindle_engine::Commanded;
use rekindle_ports::store::Asked;
use rekindle_web::{Caller, Json, Path, Problem, Query, problem};
use rekindle_wire::v1::{CommandBody, JobView};

use crate::Api;
use crate::access::check;
use crate::jobs::{hint, job_id, key, store, with_checkpoint};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CommandQuery {
    if_attempt: Option<u32>,
}

/// 202 the job; 200 when it holds already; 409 with the phase when it makes no sense, or when the same key came with
/// another body; 403 when the policy does not let
/// the caller do it.
pub(crate) async fn command(
    State(api): State<Api>,
    caller: Caller,
    Path((id, name)): Path<(String, String)>,
    Query(query): Query<CommandQuery>,
    headers: HeaderMap,
    Json(body): Json<CommandBody>,
) -> Result<Response, Problem> {
    let id = job_id(&id)?;
    let command = match name.as_str() {
        "cancel" => Command::Cancel,
        "pause" => Command::Pause,
        "unpause" => Command::Unpause,
        "restart" => Command::Restart { new_slice: body.new_slice, from_scratch: body.from_scratch },
        "wake" => Command::Wake,
        _ => return Err(Problem::not_found(&format!("command {name:?}"))),
    };
    if name != "restart" && (body.new_slice || body.from_scratch) {
        let why = "`new_slice` and `from_scratch` belong to `restart`";
        return Err(problem(StatusCode::BAD_REQUEST, "command", why));
    }
    let right = match command {
        Command::Cancel | Command::Pause => Right::Stop,
        Command::Unpause | Command::Restart { .. } | Command::Wake => Right::Submit,
    };
    check(&api, &caller, right, &id).await?;
    let key = key(&api, &caller, &headers)?;
    let if_attempt = body.if_attempt.or(query.if_attempt);
    let (job, status) = match Box::pin(api.engine.command(&id, command, &caller.identity, &key, if_attempt)).await {
        Ok(Commanded::Accepted(job)) => (job, StatusCode::ACCEPTED),
        Ok(Commanded::AlreadyHolds(job)) => (job, StatusCode::OK),
        Ok(Commanded::NoSense(no)) => {
            let phase = no.phase.as_str();
            let refusal = problem(StatusCode::CONFLICT, "phase", format!("job {id}: {no}")).with("phase", phase);
            let has_end = no.phase.is_terminal() || no.end.is_some();
            return Err(with_checkpoint(&api, &id, has_end, refusal).await);
        }
        Ok(Commanded::WrongAttempt(attempt)) => {
            let why = format!("job {id} is at attempt {attempt}; `if_attempt` names another");
            return Err(problem(StatusCode::CONFLICT, "attempt", why).with("attempt", attempt));
        }
        Ok(Commanded::OtherUnderKey(other)) => return Err(other_under_key(&id, &name, &other)),
        Ok(Commanded::NoSuchJob) => return Err(Problem::not_found(&format!("job {id}"))),
        Err(error) => return Err(store(&error)),
    };
    hint(&api, &id, &name).await;
    Ok((status, axum::Json(JobView::of(&job, &[]))).into_response())
}

fn other_under_key(id: &JobId, name: &str, other: &Asked) -> Problem {
    let mut body = serde_json::Map::new();
    if let Command::Restart { new_slice, from_scratch } = other.command {
        body.extend([("new_slice".into(), new_slice.into()), ("from_scratch".into(), from_scratch.into())]);
    }
    body.extend(other.if_attempt.map(|attempt| ("if_attempt".into(), attempt.into())));
    let why = format!(
        "this Idempotency-Key was used before to {name} job {id} with {}; repeat that, or give another key",
        serde_json::Value::from(body)
    );
    problem(StatusCode::CONFLICT, "idempotency-key", why)
}
