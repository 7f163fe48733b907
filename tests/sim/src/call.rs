//! Calls of agents to `api`: they may not arrive, not be answered, or be answered by an instance that dies.

use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::deliver::{crashing, post};
use crate::exec::lock;
use crate::fault::Fault;
use crate::flight::{self, Caller};
use crate::machine::VmId;
use crate::roll::{For, SEC};
use crate::stage::Stage;
use crate::world::{Promise, SMALL_HOP};

/// Why a call brought nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallError {
    /// No answer.
    Unreachable,
    /// An answer that is none: its status.
    Status(u16),
}

/// A call of a worker's agent.
pub(crate) async fn agent<T: DeserializeOwned>(
    stage: &Arc<Stage>,
    id: VmId,
    path: &str,
    token: Option<&str>,
    body: &impl Serialize,
) -> Result<T, CallError> {
    let world = &stage.world;
    world.hop(SMALL_HOP).await;
    let cut = |now| lock(&world.fleet).vms.get(&id).is_none_or(|vm| now < vm.cut_until);
    if cut(world.now()) || world.goes_on(Fault::ApiOutage, None) || world.strikes(Fault::CallLost, For::Fault) {
        world.exec.sleep(world.rolls.between(For::Latency, SEC / 10, 10 * SEC)).await;
        return Err(CallError::Unreachable);
    }
    world.count("agent calls");
    let body = serde_json::to_vec(body).unwrap_or_default();
    let (there, path_there, token) = (stage.clone(), path.to_owned(), token.map(str::to_owned));
    let request = async move {
        let work = post(&there, &path_there, token.as_deref(), body);
        crashing(&there.world, 25, work).await
    };
    let way = world.rolls.about(For::Latency, SMALL_HOP / 2);
    let answer = flight::send(world, Caller::Agent, way, request).await.flatten();
    let Some((status, text)) = answer else { return Err(CallError::Unreachable) };
    world.exec.sleep(world.rolls.about(For::Latency, SMALL_HOP / 2)).await;
    if cut(world.now()) || world.strikes(Fault::AnswerLost, For::Fault) {
        return Err(CallError::Unreachable);
    }
    if status != StatusCode::OK {
        world.trace(|| format!("api: {path} {status} {text}"));
        // An agent says nothing that is malformed, and what breaks a rule is no reason to come again.
        if matches!(status, StatusCode::INTERNAL_SERVER_ERROR | StatusCode::BAD_REQUEST) {
            world.broken(Promise::Safety, "sound-decisions", format!("{path} is answered {status}: {text}"));
        }
        return Err(CallError::Status(status.as_u16()));
    }
    serde_json::from_str(&text).map_err(|_| CallError::Status(status.as_u16()))
}
