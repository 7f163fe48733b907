//! Every implementation of a port does the same.
//!
//! `docs`: the same random operations go to the model in memory, the embedded store and Firestore, and every answer is
//! compared. `contention`: nothing is lost when many write one document. `crash`: an answered commit survives `kill
//! -9`. `push`: topics push as Pub/Sub does, in process and from the emulator. `timers`: wake-ups and the tick.

#![expect(clippy::unwrap_used, reason = "tests")]

mod contention;
mod crash;
mod docs;
mod push;
mod receiver;
mod stores;
mod timers;
