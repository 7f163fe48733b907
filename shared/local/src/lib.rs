//! The ports on one machine: documents in one file, objects on disk, hints and timers in process.
//!
//! Nothing here knows what a hint means: deliveries are HTTP requests to the functions' own paths, as the platform sends them.

mod store;

pub use store::{FILE_SCHEMA, OpenError, RedbDocs};
