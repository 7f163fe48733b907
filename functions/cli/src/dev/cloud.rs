//! The adapters for Google's services, pointed to emulators.

use std::sync::Arc;

use rekindle_core::ids::InstallationId;
use rekindle_gcp::auth::Service;
use rekindle_gcp::firestore::{DEFAULT_DATABASE, FirestoreDocs};
use rekindle_gcp::pubsub::{PubSub, admin};
use rekindle_gcp::tpu::GoogleTpu;
use rekindle_ports::docs::Docs;
use rekindle_ports::tpu::TpuApi;

use super::stack::{Messages, broken};
use super::world::PROJECT;
use crate::fault::{Fault, Result};

/// The client of the Cloud TPU API, as in the cloud, at our emulator.
pub(super) fn tpu(url: &str) -> Arc<dyn TpuApi> {
    Arc::new(GoogleTpu::new(PROJECT, Service::emulator(url)))
}

/// Refuses at once an address where nothing listens: the clients try for a while before they say so.
async fn listens(what: &str, address: &str, hint: &str) -> Result<()> {
    let connected = tokio::net::TcpStream::connect(address).await;
    let fault = |error| Fault::input(format!("{what} does not answer at {address}")).caused_by(&error).next(hint);
    connected.map(drop).map_err(fault)
}

/// Documents in the Firestore emulator.
pub(super) async fn docs(address: &str) -> Result<Arc<dyn Docs>> {
    let hint = "start it with `gcloud emulators firestore start`, and name its HOST:PORT with --firestore";
    listens("the Firestore emulator", address, hint).await?;
    let docs = FirestoreDocs::connect(PROJECT, DEFAULT_DATABASE, &Service::emulator(address)).await;
    Ok(Arc::new(docs.map_err(|error| broken("the Firestore client", &error).next(hint))?))
}

/// Topics in the Pub/Sub emulator: made here, with their push subscriptions and the dead-letter topic.
pub(super) async fn messages(address: &str, url: &str, installation: &InstallationId) -> Result<Messages> {
    let service = Service::emulator(address);
    let hint = "start it with `gcloud beta emulators pubsub start`, and name its HOST:PORT with --pubsub";
    listens("the Pub/Sub emulator", address, hint).await?;
    admin::ensure_topics(PROJECT, &service, url).await.map_err(|error| broken("the topics", &error).next(hint))?;
    let pubsub = PubSub::connect(PROJECT, &service).await;
    let pubsub = pubsub.map_err(|error| broken("the Pub/Sub client", &error).next(hint))?;
    Ok(Messages {
        hints: Arc::new(pubsub.hints()),
        events: Arc::new(pubsub.events(installation.clone())),
        dead_letters: Arc::new(pubsub.dead_letters()),
        topics: Vec::new(),
    })
}
