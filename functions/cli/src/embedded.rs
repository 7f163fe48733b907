//! The programs inside this program, run as processes of their own by hidden words: the emulator's supervisor, the
//! agent, and the training program. They are looked for before anything else is parsed.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;

/// First argument that makes this process the supervisor of one emulated VM.
pub(crate) const SUPERVISE: &str = "__supervise";
/// First argument that makes this process the agent of one worker (or the shim of its program).
pub(crate) const AGENT: &str = "__agent";
/// First argument that makes this process the built-in training program.
pub(crate) const TRAIN: &str = "__train";

#[derive(Debug, clap::Parser)]
#[command(name = "rekindle __agent", version, about = "The agent of a worker")]
struct Agent {
    #[command(flatten)]
    arguments: rekindle_agent::AgentArgs,
}

/// Runs the embedded program that `word` names. `None`: it names none.
pub(crate) fn run(word: &OsStr, arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    match word.to_str()? {
        SUPERVISE => Some(rekindle_tpu_emulator::supervisor_main(arguments)),
        AGENT => Some(agent(arguments)),
        TRAIN => Some(rekindle_trainer::main_with(arguments)),
        _ => None,
    }
}

fn agent(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let words = [OsString::from("rekindle __agent")].into_iter().chain(arguments);
    match rekindle_agent::entry(&[AGENT], Agent::parse_from(words).arguments) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr().lock(), "rekindle __agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}
