//! Who calls: each route has a door, each door its own callers, and one verifier decides.

use std::convert::Infallible;
use std::sync::Arc;

use async_trait::async_trait;
use axum::Router;
use axum::extract::{FromRequestParts, Request};
use axum::response::{IntoResponse, Response};
use axum::routing::Route;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use tower::ServiceExt as _;

use crate::problem::{Problem, problem};

/// The routes that have callers of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// `/functions/jobs`: the push subscription of job messages.
    Jobs,
    /// `/functions/tpu-events`: Eventarc, or the push subscription of the Logging sink.
    TpuEvents,
    /// `/functions/notify`: the push subscription of our own events.
    Notify,
    /// `/functions/reconcile`: the push subscription of hints, and Cloud Tasks.
    Reconcile,
    /// `/functions/tick`: Cloud Scheduler.
    Tick,
    /// `/v1`: people and their scripts.
    People,
}

/// A caller whose identity was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// An email address, or a fixed name in the local mode.
    pub identity: String,
    /// Whether it may act for other owners.
    pub is_admin: bool,
}

/// A worker's machine whose identity token was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Account that it runs as, in lower case.
    pub email: String,
    /// Name of the VM.
    pub instance: String,
    /// Its zone.
    pub zone: String,
    /// When it was made, if the token tells.
    pub created_at: Option<Timestamp>,
}

/// Why a caller was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// 401: no identity, or one that cannot be trusted.
    Unauthenticated(String),
    /// 403: a good identity that may not call here.
    Forbidden(String),
    /// 503: it cannot be checked now (the keys cannot be fetched).
    Unavailable(String),
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Unauthenticated(why) => {
                tracing::warn!(error = %why, "a call without a good token was refused");
                problem(StatusCode::UNAUTHORIZED, "unauthenticated", why)
            }
            Refused::Forbidden(why) => {
                tracing::warn!(error = %why, "a caller who may not call here was refused");
                problem(StatusCode::FORBIDDEN, "forbidden", why)
            }
            Refused::Unavailable(why) => Self::unavailable("the check of identities", &why),
        }
    }
}

/// Checks who calls.
#[async_trait]
pub trait Verifier: Send + Sync {
    /// The caller at a door, by the request's headers.
    async fn verify(&self, door: Door, headers: &HeaderMap) -> Result<Caller, Refused>;

    /// The machine that calls as an agent; `None`: agents are not asked who they are, on a person's own machine.
    async fn machine(&self, headers: &HeaderMap) -> Result<Option<Machine>, Refused>;
}

/// Lets everybody on this machine in, under one name. For loopback alone; the server refuses it in the cloud.
#[derive(Debug, Clone)]
pub struct Loopback {
    /// The name of every caller, such as the person's user name.
    pub identity: String,
}

#[async_trait]
impl Verifier for Loopback {
    async fn verify(&self, _: Door, _: &HeaderMap) -> Result<Caller, Refused> {
        Ok(Caller { identity: self.identity.clone(), is_admin: true })
    }

    async fn machine(&self, _: &HeaderMap) -> Result<Option<Machine>, Refused> {
        Ok(None)
    }
}

/// The router behind a door: every call is verified first, and its [`Caller`] can be extracted.
pub fn guard(router: Router, verifier: Arc<dyn Verifier>, door: Door) -> Router {
    router.layer(tower::layer::layer_fn(move |route: Route| {
        let verifier = Arc::clone(&verifier);
        tower::service_fn(move |request| check(Arc::clone(&verifier), door, route.clone(), request))
    }))
}

async fn check(
    verifier: Arc<dyn Verifier>,
    door: Door,
    route: Route,
    mut request: Request,
) -> Result<Response, Infallible> {
    match verifier.verify(door, request.headers()).await {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            route.oneshot(request).await
        }
        Err(refused) => Ok(Problem::from(refused).into_response()),
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Absent only when a router was mounted without its door; refuse rather than guess.
        parts
            .extensions
            .get::<Self>()
            .cloned()
            .ok_or_else(|| Refused::Unauthenticated("nobody has checked who calls".into()).into())
    }
}
