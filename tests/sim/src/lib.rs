//! Deterministic simulation: the production engine and functions, unchanged, in a world that misbehaves.
//!
//! One thread, virtual time, everything drawn from a seed. Entry point: [`main`].

#![expect(clippy::wildcard_enum_match_arm, reason = "faults are many; each place names the few that it knows")]

mod agent;
mod bell;
mod call;
mod check;
mod cli;
mod cloud;
mod coverage;
mod deliver;
mod disaster;
mod envelope;
mod exec;
mod fault;
mod flight;
mod hosts;
mod load;
mod machine;
mod making;
mod meter;
mod people;
mod plan;
mod player;
mod program;
mod pulse;
mod queued;
mod report;
mod roll;
mod run;
mod scenario;
mod shrink;
mod stage;
mod store;
mod swarm;
mod tpu;
mod transit;
mod truth;
mod world;

pub use cli::main;
