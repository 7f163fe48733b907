//! Every function behind its door, on one router. On loopback the doors are open: everybody here is this user.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rekindle_engine::Engine;
use rekindle_fn_api::{Api, Uploads};
use rekindle_fn_jobs::{Jobs, Name};
use rekindle_local::FileObjects;
use rekindle_web::caller::{Loopback, guard};
use rekindle_web::{Door, Verifier, layers};

/// Longer than any pass.
const DEADLINE: Duration = Duration::from_secs(30);

/// Checks upload addresses of the objects on disk.
struct LocalUploads(FileObjects);

impl Uploads for LocalUploads {
    fn accept(&self, name: &str, expires: i64, signature: &str) -> Result<(), String> {
        self.0.accept_upload(name, expires, signature).map_err(|error| error.to_string())
    }
}

/// The router of everything.
pub(super) fn all(engine: &Engine, objects: &FileObjects) -> Router {
    let verifier: Arc<dyn Verifier> = Arc::new(Loopback { identity: identity() });
    let api = Api::new(engine.clone(), Some(Arc::new(LocalUploads(objects.clone()))));
    let may: BTreeSet<Name> = Name::ALL.into_iter().collect();
    let jobs = Jobs { engine: engine.clone(), may: Arc::new(may) };
    let behind = |router: Router, door: Door| guard(router, Arc::clone(&verifier), door);
    let router = Router::new()
        .merge(behind(rekindle_fn_jobs::router(jobs), Door::Jobs))
        .merge(behind(rekindle_fn_tpu_events::router(engine.clone()), Door::TpuEvents))
        .merge(behind(rekindle_fn_reconcile::router(engine.clone()), Door::Reconcile))
        .merge(behind(rekindle_fn_tick::router(engine.clone()), Door::Tick))
        .merge(behind(rekindle_fn_api::people(api.clone()), Door::People))
        .merge(rekindle_fn_api::agents(api.clone()))
        .merge(rekindle_fn_api::open(api.clone()))
        .merge(rekindle_fn_api::local_objects(api));
    layers::common(router, DEADLINE)
}

/// The user's name, for records.
fn identity() -> String {
    let name = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "local".to_owned())
}
