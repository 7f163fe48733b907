//! Function `api`: what people call under `/v1`, what agents call under `/agent/v1`, and whether it lives.
//!
//! It changes jobs by commands alone, and tells the engine by hints; it never touches a TPU.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use axum::routing::{get, post, put};

use rekindle_engine::Engine;
use rekindle_web::{Verifier, etag};

mod access;
mod account;
mod agents;
mod bundles;
mod catalog;
mod commands;
mod exec;
mod fleet;
mod freeze;
mod health;
mod jobs;
mod labels;
mod letters;
mod liveness;
mod logs;
mod objects;
mod outputs;
mod page;
mod queue;
mod secrets;
mod seeing;
mod site;
mod streams;
mod watch;

pub use objects::Uploads;

/// What the function needs.
#[derive(Clone)]
pub struct Api {
    /// The engine.
    pub engine: Engine,
    /// Checks upload addresses of the embedded object store; `None` in the cloud, where Cloud Storage does.
    pub uploads: Option<Arc<dyn Uploads>>,
    /// Checks the workers' identity tokens.
    workers: Arc<dyn Verifier>,
    /// The fleet is shown as the tick saw it: this process may not touch TPUs.
    is_surveyed: bool,
    /// When this process last stored that it took an agent's call, in microseconds.
    marked_at_us: Arc<AtomicI64>,
    /// What was last read of whole attempts.
    rolls: Arc<agents::roll::Rolls>,
    /// The chunks of output that are being stored.
    turns: logs::Turns,
    /// Who reads many jobs.
    queue: Arc<queue::Queue>,
    /// A follow of logs ends itself after so long without output; clients come back with the last id.
    silence_max: Duration,
}

/// By the contract.
const SILENCE_MAX: Duration = Duration::from_mins(1);

impl Api {
    /// Over an engine. `workers` checks the identity tokens that agents send beside their own.
    pub fn new(engine: Engine, workers: Arc<dyn Verifier>, uploads: Option<Arc<dyn Uploads>>) -> Self {
        let marked_at_us = Arc::new(AtomicI64::new(i64::MIN));
        let (rolls, turns, queue) = Default::default();
        let (is_surveyed, silence_max) = (false, SILENCE_MAX);
        Self { engine, uploads, workers, is_surveyed, marked_at_us, rolls, turns, queue, silence_max }
    }

    /// Shows the fleet as the last tick saw it, instead of asking the TPU API.
    #[must_use]
    pub fn surveyed(mut self, is_surveyed: bool) -> Self {
        self.is_surveyed = is_surveyed;
        self
    }
}

/// `/v1` and the page: for people. To be mounted behind their door.
pub fn people(api: Api) -> Router {
    Router::new()
        .route("/v1/jobs", post(jobs::submit).get(jobs::list))
        .route("/v1/jobs/{id}", get(jobs::show).patch(labels::change))
        .route("/v1/jobs/{id}/history", get(jobs::history))
        .route("/v1/jobs/{id}/explain", get(jobs::explain))
        .route("/v1/jobs/{id}/logs", get(logs::read))
        .route("/v1/jobs/{id}/progress", get(seeing::progress))
        .route("/v1/jobs/{id}/exec", post(exec::order))
        .route("/v1/jobs/{id}/exec/{order}", get(exec::look))
        .route("/v1/jobs/{id}/exec/{order}/stop", post(exec::stop))
        .route("/v1/jobs/{id}/exec/{order}/{worker}/{stream}/{number}", get(exec::chunk))
        .route("/v1/jobs/{id}/outputs", get(outputs::list))
        .route("/v1/jobs/{id}/outputs/{*object}", get(outputs::read))
        .route("/v1/jobs/{id}/{command}", post(commands::command))
        .route("/v1/bundles/{sha256}", post(bundles::bundle).get(bundles::look))
        .route("/v1/webhook-secret", get(secrets::webhooks))
        .route("/v1/dead-letters", get(letters::list))
        .route("/v1/watch", get(watch::watch))
        .route("/v1/fleet", get(fleet::fleet))
        .route("/v1/account", get(account::account))
        .route("/v1/digest", get(seeing::since))
        .route("/v1/catalog", get(catalog::catalog))
        .route("/v1/freeze", post(freeze::freeze))
        .route("/v1/thaw", post(freeze::thaw))
        .route("/", get(site::index))
        .route("/site/page.css", get(site::style))
        .route("/favicon.ico", get(site::icon))
        .route("/site/{name}", get(site::script))
        .layer(middleware::from_fn(etag::tagged))
        .layer(middleware::from_fn(site::same_origin))
        .with_state(api)
}

/// `/agent/v1`: for agents, which prove themselves by nonce and token, and by their machine's identity token before anything of theirs is read.
pub fn agents(api: Api) -> Router {
    let known = middleware::from_fn_with_state(api.clone(), agents::machine::known);
    let ping = Router::new().route("/agent/v1/ping", get(agents::ping).post(agents::ping)).with_state(api.clone());
    Router::new()
        .route("/agent/v1/hello", post(agents::hello))
        .route("/agent/v1/report", post(agents::report))
        .route("/agent/v1/logs/{job}/{attempt}/{worker}/{stream}/{number}", put(logs::put_chunk))
        .route("/agent/v1/exec/{job}/{order}/{worker}/{stream}/{number}", put(exec::put_chunk))
        .route("/agent/v1/outputs", post(outputs::place))
        .layer(known)
        .with_state(api)
        .merge(ping)
}

/// `/live`, `/ready`, `/version`: for everybody.
pub fn open(api: Api) -> Router {
    Router::new()
        .route("/live", get(health::live))
        .route("/ready", get(health::ready))
        .route("/version", get(health::version))
        .layer(middleware::from_fn(etag::tagged))
        .with_state(api)
}

/// `/objects/…`: the embedded object store of the local mode.
pub fn local_objects(api: Api) -> Router {
    Router::new().route("/objects/{*name}", get(objects::read).put(objects::write)).with_state(api)
}

#[cfg(test)]
mod tests;
