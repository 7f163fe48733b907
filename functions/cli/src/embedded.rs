//! The programs inside this program, run as processes of their own by hidden words: the emulator's supervisor, the
//! agent, and the training program. They are looked for before anything else is parsed.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// First argument that makes this process the built-in training program.
pub(crate) const TRAIN: &str = "__train";

/// Runs the embedded program that `word` names. `None`: it names none.
pub(crate) fn run(word: &OsStr, arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match word.to_str()? {
        TRAIN => Some(rekindle_trainer::main_with(arguments)),
        _ => None,
    }
}
