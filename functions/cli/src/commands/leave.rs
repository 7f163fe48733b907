//! Ctrl-C of a person who only watches: what is watched goes on, and that is said.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use super::Context;
use crate::fault::{Fault, Result};

/// Waits for something, or until the person leaves. `again` is the command that goes on with it.
///
/// Who leaves is told what goes on and how to see it again or to end it; the exit code is that of Ctrl-C.
pub(super) async fn watching<T>(
    context: &Context,
    jobs: &[String],
    again: &str,
    watched: impl Future<Output = Result<T>>,
) -> Result<T> {
    let listening = signal(SignalKind::interrupt());
    let mut interrupts = listening.map_err(|error| Fault::unexpected("cannot listen for signals").caused_by(&error))?;
    tokio::select! {
        biased;
        done = watched => done,
        _ = interrupts.recv() => {
            let names = jobs.join(" ");
            let what = match jobs {
                [one] => format!("{one} goes on"),
                _ => "they all go on".to_owned(),
            };
            // Behind the ^C that the terminal shows.
            let line = if context.printer.is_talk_terminal() { "\n" } else { "" };
            context.printer.talk(&format!("{line}{what}; see again with `rekindle {again} {names}`, end with `rekindle cancel {names}`"));
            Err(Fault::left())
        }
    }
}
