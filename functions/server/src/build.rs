//! Wires an engine over Google's services.

use std::sync::Arc;

use axum::Router;

use rekindle_core::settings::Settings;
use rekindle_engine::Engine;
use rekindle_fn_notify::Sender;
use rekindle_gcp::auth::{Access, ConnectError, Service};
use rekindle_gcp::firestore::FirestoreDocs;
use rekindle_gcp::oidc::{BadOidcSettings, Mode};
use rekindle_gcp::probe::ApiProbe;
use rekindle_gcp::pubsub::PubSub;
use rekindle_gcp::storage::GcsObjects;
use rekindle_gcp::tasks::{CloudTasksWakeups, TasksSettings};
use rekindle_gcp::tpu::GoogleTpu;
use rekindle_local::{RandomIds, SystemClock, UdpBells};
use rekindle_ports::Ports;
use rekindle_ports::store::{Store, StoreError};
use rekindle_ports::world::{Bells, Clock, NoBells, WorldError};

use crate::config::{Config, ConfigError};
use crate::doors::OidcDoors;
use crate::no_tpu::NoTpu;
use crate::{Parts, Role, installation, routers};

/// Why the server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration cannot be used.
    #[error("the configuration cannot be used")]
    Config(#[from] ConfigError),
    /// The check of callers cannot be set up.
    #[error("the check of callers cannot be set up")]
    Doors(#[from] BadOidcSettings),
    /// A client of a service cannot be made.
    #[error("a client cannot be made")]
    Connect(#[from] ConnectError),
    /// Another client cannot be made.
    #[error("a client cannot be made")]
    Client(#[from] WorldError),
    /// The installation document cannot be had.
    #[error("the installation document cannot be had")]
    Installation(#[from] StoreError),
}

/// The router of a configuration. Reads (or makes) the installation document; calls nothing else.
pub async fn build(config: &Config) -> Result<Router, StartError> {
    let settings = Settings::default();
    let deployment = config.deployment()?;
    let at = |emulator: &Option<String>| {
        Service::emulator_or_google(emulator.as_deref()).with_timeout(settings.request_timeout)
    };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let verifier =
        OidcDoors::new(config.oidc()?, config.audiences.clone(), config.callers.clone(), Arc::clone(&clock))?;
    let emulators = &config.emulators;
    let docs = FirestoreDocs::connect(&config.project, &config.database, &at(&emulators.firestore)).await?;
    let store = Store::new(Arc::new(docs));
    let installation = installation::load(&store, clock.as_ref(), &RandomIds).await?;
    let pubsub = PubSub::connect(&config.project, &at(&emulators.pubsub)).await?;
    let ports = Ports {
        store,
        tpu: match config.role {
            Role::Api | Role::Events => Arc::new(NoTpu),
            Role::Reconcile | Role::All => Arc::new(GoogleTpu::new(&config.project, at(&emulators.tpu))),
        },
        hints: Arc::new(pubsub.hints()),
        wakeups: Arc::new(CloudTasksWakeups::new(tasks(config), at(&emulators.tasks))),
        bells: bells(config)?,
        events: Arc::new(pubsub.events(installation.id.clone())),
        dead_letters: Arc::new(pubsub.dead_letters()),
        objects: Arc::new(GcsObjects::connect(config.bucket_name(), &at(&emulators.storage))?),
        clock,
        ids: Arc::new(RandomIds),
        // The path that agents' calls take, without an agent.
        probe: Arc::new(probe(&deployment.api_url)?),
    };
    let engine = Engine {
        ports,
        settings: Arc::new(settings),
        deployment: Arc::new(deployment),
        installation: Arc::new(installation),
    };
    // Private addresses are reached only where nobody is checked either: on a person's own machine.
    let sender = Sender::new(config.auth == Mode::None);
    let parts = Parts {
        engine,
        verifier: Arc::new(verifier),
        sender: Arc::new(sender),
        messages_may: config.messages_may(),
        uploads: None,
    };
    Ok(routers(config.role, parts))
}

/// Behind `https` Cloud Run checks who calls; a plain address is a server on this machine.
fn probe(api: &str) -> Result<ApiProbe, ConnectError> {
    let access = if api.starts_with("https:") { Access::ApplicationDefault } else { Access::Anonymous };
    ApiProbe::new(format!("{api}/agent/v1/ping"), api, access)
}

/// Sent from where the server itself listens: loopback, when callers are not checked.
fn bells(config: &Config) -> Result<Arc<dyn Bells>, ConfigError> {
    Ok(match config.bell_port {
        Some(port) => Arc::new(UdpBells::new(config.address()?.ip(), port)),
        None => Arc::new(NoBells),
    })
}

fn tasks(config: &Config) -> TasksSettings {
    let root = config.reconcile_url.trim_end_matches('/');
    TasksSettings {
        project: config.project.clone(),
        location: config.tasks.location.clone(),
        queue: config.tasks.queue.clone(),
        url: format!("{root}/functions/reconcile"),
        service_account: config.tasks.service_account.clone(),
        audience: root.to_owned(),
    }
}
