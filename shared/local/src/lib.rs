//! The ports on one machine: documents in one file, objects on disk, hints and timers in process.
//!
//! Nothing here knows what a hint means: deliveries are HTTP requests to the functions' own paths, as the platform
//! sends them. Whatever runs in the background belongs to a value, and ends when it is closed or dropped.

mod bells;
mod objects;
mod ports;
mod post;
mod store;
mod timers;
mod topic;

pub use bells::UdpBells;
pub use objects::{FileObjects, UploadRefused, is_name};
pub use ports::{HttpProbe, LocalDeadLetters, LocalEvents, LocalHints, RandomIds, ScaledClock, SystemClock};
pub use store::{FILE_SCHEMA, OpenError, ROOM_MIN as STORE_ROOM_MIN, RedbDocs};
pub use timers::{LocalTicker, LocalWakeups};
pub use topic::{LocalTopic, Subscription};
