//! Which functions a process serves, each behind its own door.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;

use rekindle_engine::Engine;
use rekindle_fn_api::{Api, Uploads};
use rekindle_fn_jobs::{Jobs, Name};
use rekindle_fn_notify::{Notify, Sender};
use rekindle_web::caller::guard;
use rekindle_web::{Door, Verifier, layers};

/// What a process serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// People and agents.
    Api,
    /// Job messages, events of TPUs, our own events.
    Events,
    /// Hints, wake-ups and the tick: the only role with rights on TPUs.
    Reconcile,
    /// Everything.
    All,
}

/// What the functions are made of.
#[derive(Clone)]
pub struct Parts {
    /// The engine.
    pub engine: Engine,
    /// Checks who calls.
    pub verifier: Arc<dyn Verifier>,
    /// Sends to webhooks.
    pub sender: Arc<Sender>,
    /// What job messages may ask for.
    pub messages_may: BTreeSet<Name>,
    /// Checks upload addresses of the embedded object store, and serves it under `/objects/`; `None` in the cloud.
    pub uploads: Option<Arc<dyn Uploads>>,
}

/// The functions of a role on one router, with all common layers. The deadline of handlers is the settings'.
pub fn routers(role: Role, parts: Parts) -> Router {
    let Parts { engine, verifier, sender, messages_may, uploads } = parts;
    let behind = |router: Router, door: Door| guard(router, Arc::clone(&verifier), door);
    let deadline = engine.settings.handler_deadline;
    let has_objects = uploads.is_some();
    let api = Api::new(engine.clone(), Arc::clone(&verifier), uploads).surveyed(role == Role::Api);
    let mut router = rekindle_fn_api::open(api.clone());
    if matches!(role, Role::Api | Role::All) {
        router = router
            .merge(behind(rekindle_fn_api::people(api.clone()), Door::People))
            // Agents prove themselves by nonce and token, and by their machine's identity token.
            .merge(rekindle_fn_api::agents(api.clone()));
        if has_objects {
            router = router.merge(rekindle_fn_api::local_objects(api));
        }
    }
    if matches!(role, Role::Events | Role::All) {
        let jobs = Jobs { engine: engine.clone(), may: Arc::new(messages_may) };
        let secret = engine.installation.secret.clone();
        let notify = Notify { ports: engine.ports.clone(), sender, secret };
        router = router
            .merge(behind(rekindle_fn_jobs::router(jobs), Door::Jobs))
            .merge(behind(rekindle_fn_tpu_events::router(engine.clone()), Door::TpuEvents))
            .merge(behind(rekindle_fn_notify::router(notify), Door::Notify));
    }
    if matches!(role, Role::Reconcile | Role::All) {
        router = router
            .merge(behind(rekindle_fn_reconcile::router(engine.clone()), Door::Reconcile))
            .merge(behind(rekindle_fn_tick::router(engine), Door::Tick));
    }
    if has_objects {
        return layers::common_with_uploads(router, deadline, "/objects/");
    }
    layers::common(router, deadline)
}
