//! External acts as data. Each is idempotent, and committed as an intent before it is done.

use serde::{Deserialize, Serialize};

/// One external act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum Effect {
    /// Ask for the generation's node or queued resource. A permit was taken in the same commit.
    CreateGeneration {
        /// The generation.
        generation: u32,
    },
    /// Delete the generation's node or queued resource (with force).
    DeleteGeneration {
        /// The generation.
        generation: u32,
    },
    /// Publish the events of the outbox.
    PublishEvents,
}
