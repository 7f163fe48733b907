//! The real agent with real processes, against a small `api` and metadata server.
#![expect(clippy::unwrap_used, reason = "tests")]

mod clean;
mod cloud;
mod disks;
mod evidence;
mod logs;
mod machine;
mod orders;
mod output;
mod outputs;
mod programs;
mod removed;
mod secrets;
mod startup;
mod stops;
mod worker;
