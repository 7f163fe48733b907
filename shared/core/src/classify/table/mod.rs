//! The table of signatures, one file for each family of kinds.
//!
//! A row holds what a program prints, not what a person would say about it. Words that programs print as stock hints
//! ("may be due to a preemption", "GRPC error information") are in no row.

mod access;
mod environment;
mod infra;
mod memory;
mod preempted;
mod storage;
mod tpu;
mod user;

use super::signature::Row;

/// Every row.
pub(super) const ALL: &[&[Row]] = &[
    preempted::ROWS,
    infra::ROWS,
    tpu::ROWS,
    memory::ROWS,
    storage::ROWS,
    access::ROWS,
    environment::ROWS,
    user::ROWS,
];
