//! The simulator's command line.

use std::process::ExitCode;

/// Jobs and documents are many small texts; the system's allocator would take a quarter of the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    rekindle_sim::main()
}
