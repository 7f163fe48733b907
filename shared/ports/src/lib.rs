//! The traits between the engine and the world, and the typed job store over the document store.
//!
//! Adapters implement [`docs::Docs`], [`tpu::TpuApi`] and the small traits of [`world`]; everything above is generic over them.
//! Traits are object safe: one [`Ports`] value wires a whole process, and the simulation swaps every member.

use std::sync::Arc;

pub mod body;
mod creates;
mod dead;
pub mod docs;
pub mod kinds;
pub mod limits;
mod pages;
pub mod store;
pub mod tpu;
pub mod world;

/// Everything that functions and the engine need of the outside.
#[derive(Clone)]
pub struct Ports {
    /// Jobs and their documents.
    pub store: store::Store,
    /// The provider's TPU API.
    pub tpu: Arc<dyn tpu::TpuApi>,
    /// "Look at job X" messages.
    pub hints: Arc<dyn world::Hints>,
    /// Wake-ups at a time.
    pub wakeups: Arc<dyn world::Wakeups>,
    /// Workers' bells.
    pub bells: Arc<dyn world::Bells>,
    /// Outgoing events.
    pub events: Arc<dyn world::Events>,
    /// Messages that cannot be used.
    pub dead_letters: Arc<dyn world::DeadLetters>,
    /// Objects: bundles, logs, the agent.
    pub objects: Arc<dyn world::Objects>,
    /// The time.
    pub clock: Arc<dyn world::Clock>,
    /// Random numbers.
    pub ids: Arc<dyn world::Ids>,
    /// Asks `api` for an answer, as an agent would.
    pub probe: Arc<dyn world::Probe>,
}
