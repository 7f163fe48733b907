//! Every function behind its door, on one router. On loopback the doors are open: everybody here is this user.

use std::sync::Arc;

use axum::Router;
use rekindle_engine::Engine;
use rekindle_fn_api::Uploads;
use rekindle_fn_jobs::Name;
use rekindle_fn_notify::Sender;
use rekindle_local::FileObjects;
use rekindle_server::{Parts, Role, routers};
use rekindle_web::caller::Loopback;

use super::stack::broken;
use crate::fault::Result;

/// Checks upload addresses of the objects on disk.
struct LocalUploads(FileObjects);

impl Uploads for LocalUploads {
    fn accept(&self, name: &str, expires: i64, signature: &str) -> std::result::Result<(), String> {
        self.0.accept_upload(name, expires, signature).map_err(|error| error.to_string())
    }
}

/// The router of everything.
pub(super) fn all(engine: Engine, objects: &FileObjects) -> Result<Router> {
    // Webhooks of a local run may be on this machine.
    let sender = Sender::new(true).map_err(|error| broken("the sender of webhooks", &error))?;
    Ok(routers(
        Role::All,
        Parts {
            engine,
            verifier: Arc::new(Loopback { identity: identity() }),
            sender: Arc::new(sender),
            messages_may: Name::ALL.into_iter().collect(),
            uploads: Some(Arc::new(LocalUploads(objects.clone()))),
        },
    ))
}

/// The user's name, for records.
fn identity() -> String {
    let name = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    name.filter(|name| !name.is_empty()).unwrap_or_else(|| "local".to_owned())
}
