//! Shapes on the wire: agent protocol, HTTP v1, push envelopes, CloudEvents. Serde only, no behaviour beyond decoding.

pub mod agent;
