//! The server of the cloud: configuration, wiring, composition of the functions, shutdown.
//!
//! [`routers`] composes any functions over any engine; [`build`] wires an engine over Google's services; [`serve`] runs
//! until it is told to stop; [`run`] is all of it.

mod build;
mod compose;
pub mod config;
mod doors;
pub mod installation;
mod no_tpu;
mod run;

pub use build::{StartError, build};
pub use compose::{Parts, Role, routers};
pub use config::{Callers, Config};
pub use doors::OidcDoors;
pub use run::{run, serve, terminated};

#[cfg(test)]
mod tests;
