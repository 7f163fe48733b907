//! What an exit code, a signal or silence says without a word of output.

use super::evidence::{Exit, SignalSender, Stage, WorkerEvidence};
use super::worker::{Cause, strength};
use crate::failure::FailureKind;

/// The signature of setup commands that failed without a known word.
pub(super) const SETUP_FAILED: &str = "setup-failed";

/// Interrupt from the keyboard.
const SIGINT: i32 = 2;
/// Illegal instruction.
const SIGILL: i32 = 4;
/// Trap: how XLA's checks end a process on some builds.
const SIGTRAP: i32 = 5;
/// Abort.
const SIGABRT: i32 = 6;
/// Bus error: most often a full shared-memory file system.
const SIGBUS: i32 = 7;
/// Arithmetic error.
const SIGFPE: i32 = 8;
/// Kill.
const SIGKILL: i32 = 9;
/// Segmentation violation.
const SIGSEGV: i32 = 11;
/// Terminate.
const SIGTERM: i32 = 15;

/// With less free memory than this at the end, a kill by nobody knows whom is the kernel's.
// Too low misses kills that the cgroup files did not show; too high blames the user's memory for a foreign kill.
const MEMORY_GONE_BYTES: u64 = 64 << 20;

/// What programs and runtimes print at any SIGTERM, whoever sent it. They take each for a preemption.
const AT_SIGTERM: [&str; 8] = [
    "child-terminated",
    "leaving-for-preemption",
    "preemption-notice",
    "preemption-notifier",
    "shell-terminated",
    "sigterm-from-init",
    "sigterm-from-process",
    "sigterm-handled",
];

/// True for a cause that says only that a SIGTERM came, and not from whom.
pub(super) fn is_bare_sigterm(cause: &Cause) -> bool {
    AT_SIGTERM.contains(&cause.signature) && !cause.signature.starts_with("sigterm-from")
}

/// Drops what a program only says because the manager told it to stop.
pub(super) fn forget_our_stop(causes: &mut Vec<Cause>) {
    causes.retain(|cause| !AT_SIGTERM.contains(&cause.signature));
}

/// Adds what the exit says. `said` tells whether the output named a cause.
pub(super) fn causes(worker: &WorkerEvidence, exit: Exit, said: bool, causes: &mut Vec<Cause>) {
    if worker.signal_sender == Some(SignalSender::Ourselves) {
        return;
    }
    let Some((kind, strength, signature, reason)) = reading(worker, exit, said, causes) else { return };
    causes.push(Cause {
        kind,
        strength,
        signature,
        reason,
        line: String::new(),
        number: usize::MAX,
        time_of_day_ms: None,
    });
}

type Reading = (FailureKind, u8, &'static str, &'static str);

/// The meaning of an exit.
fn reading(worker: &WorkerEvidence, exit: Exit, said: bool, causes: &[Cause]) -> Option<Reading> {
    use FailureKind::{Environment, Preempted, UserError};
    match exit {
        Exit::Code(0) => None,
        Exit::Silent => Some((Preempted, strength::SILENT, "silent", "the worker fell silent without an exit")),
        Exit::Code(127) => Some((Environment, 70, "exit-127", "no such command was found")),
        Exit::Code(126) => Some((Environment, 55, "exit-126", "the command is there and cannot be run")),
        Exit::Code(125) => Some((Environment, 45, "exit-125", "the container could not be started")),
        Exit::Code(128) => Some((Environment, strength::LOW, "exit-128", "a tool of the setup failed, as git does")),
        Exit::Code(255) if !said => {
            Some((Preempted, strength::SILENT, "exit-255", "the connection to the worker was cut"))
        }
        Exit::Code(2) if worker.during == Stage::Run && !said => {
            Some((UserError, strength::LOW, "exit-2", "the program refused its arguments"))
        }
        Exit::Code(_) if worker.during == Stage::Setup && !said => {
            Some((Environment, strength::LOW, SETUP_FAILED, "the job's setup commands failed"))
        }
        Exit::Code(_) => None,
        Exit::Signal(signal) => signal_reading(worker, signal, causes),
    }
}

/// The meaning of a signal.
fn signal_reading(worker: &WorkerEvidence, signal: i32, causes: &[Cause]) -> Option<Reading> {
    use FailureKind::{Environment, OomHost, Preempted, TpuRuntime, Unknown, UserError};
    match signal {
        SIGINT => Some((UserError, strength::EXCEPTION, "sigint", "somebody interrupted it from the keyboard")),
        SIGILL => Some((Environment, 65, "sigill", "it was built for another processor")),
        SIGBUS => {
            Some((OomHost, strength::LOW, "sigbus", "memory behind a mapping was missing, as in a full /dev/shm"))
        }
        SIGKILL if worker.memory_free_bytes.is_some_and(|free| free >= MEMORY_GONE_BYTES) => {
            Some((Unknown, strength::KILLED, "killed", "it was killed, and memory was not short"))
        }
        SIGKILL => {
            Some((OomHost, strength::KILLED, "killed", "it was killed, as the kernel does when memory runs out"))
        }
        SIGTERM => match worker.signal_sender {
            Some(SignalSender::Init) => Some((
                Preempted,
                strength::EXCEPTION,
                "terminated-by-init",
                "process 1 terminated it: the machine was going down",
            )),
            Some(_) => Some((Unknown, strength::LAST, "terminated-by-process", "another process terminated it")),
            None if causes.iter().any(|cause| cause.signature == "sigterm-from-process") => None,
            None => Some((
                Preempted,
                strength::TERMINATED,
                "terminated",
                "it was terminated from outside, as happens when the machine is taken away",
            )),
        },
        // A peer's death makes runtimes abort; it gives nobody a fault of memory or arithmetic.
        SIGSEGV | SIGFPE if causes.iter().all(|cause| cause.kind != FailureKind::InfraGrpc) => {
            Some((TpuRuntime, strength::CRASHED_FIRST, "crash", crash(signal)))
        }
        SIGABRT | SIGSEGV | SIGTRAP | SIGFPE => Some((TpuRuntime, strength::CRASH, "crash", crash(signal))),
        _ => None,
    }
}

/// A crash in words.
const fn crash(signal: i32) -> &'static str {
    match signal {
        SIGABRT => "it was killed by SIGABRT, without saying why",
        SIGFPE => "it was killed by SIGFPE, without saying why",
        SIGSEGV => "it was killed by SIGSEGV, without saying why",
        SIGTRAP => "it was killed by SIGTRAP, without saying why",
        _ => "it crashed without saying why",
    }
}
