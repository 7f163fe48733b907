//! Google Cloud behind our ports: the only crate that knows Google's types.
//!
//! Each module is one service. Constructors take plain settings ([`auth::Service`]), so that binaries wire them
//! without a Google crate of their own; an emulator's address makes any of them anonymous. Futures of constructors are
//! boxed: the code of the clients below them is then compiled once, here, and not in each program that awaits them.
//! Clients that a start does not need are made at their first call.

pub mod auth;
pub mod firestore;
mod http;
pub mod oidc;
pub mod probe;
pub mod pubsub;
mod renewed;
pub mod storage;
pub mod tasks;
pub mod tpu;
