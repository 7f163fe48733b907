//! The built-in training program as a binary of its own; `rekindle` embeds the same library.

use std::process::ExitCode;

fn main() -> ExitCode {
    rekindle_trainer::main_with(std::env::args_os().skip(1))
}
