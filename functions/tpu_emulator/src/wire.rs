//! The Cloud TPU API in JSON: bodies that come in, resources and errors that go out, audit-log entries.

pub(crate) mod audit;
pub(crate) mod body;
pub(crate) mod enums;
pub(crate) mod errors;
pub(crate) mod render;
