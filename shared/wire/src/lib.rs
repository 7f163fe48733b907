//! Shapes on the wire: agent protocol, HTTP v1, push envelopes, CloudEvents. No behaviour beyond decoding and encoding.
//!
//! Everything that triggers a function comes through [`delivery::decode`]; what people read and write over HTTP is in
//! [`v1`].

pub mod account;
pub mod agent;
pub mod audit;
pub mod bounds;
pub mod cloudevent;
pub mod delivery;
pub mod event;
pub mod once;
pub mod pubsub;
pub mod seeing;
pub mod spec_view;
pub mod text;
pub mod v1;
pub mod webhook;

#[cfg(test)]
mod samples;
