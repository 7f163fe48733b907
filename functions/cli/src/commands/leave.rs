//! Ctrl-C of a person who only watches: what is watched is not ended by that, and that is said.

use std::future::Future;

use tokio::signal::unix::{SignalKind, signal};

use super::Context;
use crate::fault::{Fault, Result};

/// Waits for something, or until the person leaves, who is told what is `still` so. The exit code is that of Ctrl-C.
pub(super) async fn watching<T>(
    context: &Context,
    still: impl FnOnce() -> String,
    watched: impl Future<Output = Result<T>>,
) -> Result<T> {
    let listening = signal(SignalKind::interrupt());
    let mut interrupts = listening.map_err(|error| Fault::unexpected("cannot listen for signals").caused_by(&error))?;
    tokio::select! {
        biased;
        done = watched => done,
        _ = interrupts.recv() => {
            // Behind the ^C that the terminal shows.
            context.printer.leave_line();
            context.printer.talk(&still());
            Err(Fault::left())
        }
    }
}

/// What is so when a person leaves jobs. `again` is the command that goes on with them.
pub(super) fn jobs_go_on(jobs: &[String], again: &str) -> String {
    let names = jobs.join(" ");
    let what = match jobs {
        [one] => format!("{one} is not ended by that"),
        _ => "none of them is ended by that".to_owned(),
    };
    format!("{what}; see again with `rekindle {again} {names}`, end with `rekindle cancel {names}`")
}

/// What is so when a person leaves a workspace: it is no job that is cancelled.
pub(super) fn workspace_goes_on(name: &str, again: &str) -> String {
    format!(
        "{name} is not ended by that; see again with `rekindle {again} {name}`, give its TPU back with `rekindle pause {name}`, \
         end it with `rekindle delete {name}`"
    )
}
