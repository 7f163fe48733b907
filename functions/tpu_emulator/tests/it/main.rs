//! The emulator from the outside: real HTTP, real processes as VMs.

#![expect(clippy::unwrap_used, reason = "tests")]

mod admin;
mod bench;
mod catalogue;
mod certify;
mod clients;
mod disasters;
mod errors;
mod helper;
mod nodes;
mod queued;
mod restart;
mod sockets;
mod workers;
