//! What is told of the worker: the machine's state in the words of reports, by the clock of `api`.

use jiff::Timestamp;

use rekindle_wire::agent::{ExitReport, WorkerState};

use crate::files::Layout;
use crate::logs;
use crate::machine::Machine;
use crate::reporter::Snapshot;
use crate::state::Step;

impl Machine {
    /// Tells the reporter what is, if it is new.
    pub(crate) fn publish(&self) {
        let attempt = self.state.attempt.as_ref();
        let snapshot = Snapshot {
            attempt: attempt.map_or(0, |a| a.number),
            state: self.worker_state(),
            started_at: attempt.and_then(|a| a.started_at),
            progress: attempt.map(|a| a.progress.said.clone()).unwrap_or_default(),
            output_at: if self.is_workspace() {
                self.parts.exec.activity.at()
            } else {
                attempt.and_then(|a| output_at(&self.parts.layout, a.number))
            }
            .map(|at| self.theirs(at)),
            notice: self.words.notice(self.parts.config.preemption_notice, Timestamp::now(), |at| self.theirs(at)),
            exit: attempt.and_then(|a| a.exit.clone()).map(|exit| ExitReport { at: self.theirs(exit.at), ..exit }),
            has_work: attempt.is_some_and(|a| a.work.is_some()),
            is_collecting: attempt.is_some_and(|a| a.is_collecting),
            has_unsent: self.state.has_unsent,
        };
        self.parts.snapshots.send_if_modified(|known| {
            let is_new = *known != snapshot;
            *known = snapshot;
            is_new
        });
    }

    /// A time of ours by the clock of `api`. By one of ours that is behind, a slice that is preempted would be over for the
    /// others while its program saves.
    fn theirs(&self, at: Timestamp) -> Timestamp {
        at.checked_add(self.ahead).unwrap_or(at)
    }

    fn worker_state(&self) -> WorkerState {
        let Some(attempt) = &self.state.attempt else { return WorkerState::Preparing };
        if attempt.exit.is_some() {
            return WorkerState::Exited;
        }
        match attempt.step {
            Step::Fresh | Step::Prepared | Step::Setup => WorkerState::Preparing,
            Step::Run if attempt.started_at.is_some() => WorkerState::Running,
            Step::Ready | Step::Run => WorkerState::Ready,
        }
    }
}

/// When the program last wrote any output.
fn output_at(layout: &Layout, attempt: u32) -> Option<Timestamp> {
    let folder = layout.attempt(attempt);
    let times = logs::STREAMS.iter().filter_map(|stream| {
        let meta = std::fs::metadata(folder.join(stream)).ok()?;
        (meta.len() > 0).then(|| meta.modified().ok()).flatten()
    });
    times.max().and_then(|time| Timestamp::try_from(time).ok())
}
