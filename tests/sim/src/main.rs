//! The simulator's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    rekindle_sim::main()
}
