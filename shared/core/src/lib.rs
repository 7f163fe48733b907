//! The pure heart of Rekindle: types, `decide`, policy, classification, placement, names and checks.
//!
//! **Invariant:** nothing here does I/O, reads a clock, draws a random number or waits.

pub mod access;
pub mod account;
pub mod address;
pub mod catalog;
pub mod check;
pub mod classify;
pub mod decide;
pub mod digest;
pub mod effect;
pub mod exec;
pub mod explain;
pub mod failure;
#[cfg(test)]
mod fixture;
pub mod history;
pub mod idle;
pub mod ids;
pub mod job;
pub mod limits;
pub mod names;
pub mod news;
pub mod observation;
pub mod orders;
pub mod placement;
pub mod policy;
pub mod reason;
pub mod series;
pub mod settings;
pub mod shared;
pub mod spec;
pub mod text;
