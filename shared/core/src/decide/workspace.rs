//! What is particular to a workspace: it never ends by itself, and it is paused when nobody uses it.

use std::time::Duration;

use jiff::Timestamp;

use super::Pass;
use super::charge::End;
use crate::classify;
use crate::failure::FailureKind;
use crate::job::{Attempt, Desired, StopCause};
use crate::policy::Action;
use crate::reason::Reason;

impl Pass<'_> {
    /// What holds a workspace has ended, by whatever accident: it begins again there, and nobody is charged. False where
    /// it is no workspace, or was not up.
    pub(super) fn holds_again(&mut self, a: &Attempt, verdict: &classify::Verdict) -> bool {
        if !self.job.spec.workspace || a.started_at.is_none() {
            return false;
        }
        let end = End {
            kind: FailureKind::Unknown,
            summary: verdict.summary.clone(),
            verdict: Some(verdict.clone()),
            stop: StopCause::PeerExit,
            why: Reason::WorkerExited,
            at_least: Some(Action::ResumeInPlace),
            free: true,
        };
        self.end(a.number, end, self.now);
        true
    }

    /// A workspace that nobody has used for long is paused; its definition stays.
    pub(super) fn judge_idle(&mut self, a: &Attempt, started: Timestamp, idle: Option<Duration>) {
        let Some(idle) = idle else { return };
        let Some(g) = self.job.generation(a.generation) else { return };
        let Ok(read_at) = Timestamp::from_microsecond(self.seen.read_through_us) else { return };
        let limit = self.silence_limit(g);
        let reports = self.reports_of(a.number);
        // Only who has heard of all of them lately can say that nobody uses it: a read that failed, or an outage of ours, is no idleness.
        let all_heard = reports.len() == (g.slices * g.workers) as usize;
        if !all_heard || reports.iter().any(|r| r.heard_at + limit < read_at) {
            return;
        }
        let used = reports.iter().filter_map(|r| r.output_at).max();
        let ordered = self.job.execs.iter().map(|order| order.at).max();
        let since = used.into_iter().chain(ordered).max().unwrap_or(started).max(started);
        if self.job.desired == Desired::Run && self.over(since, idle) {
            self.job.desired = Desired::Pause;
            self.job.reason = Reason::PauseRequested;
            self.job.message = format!("nobody has used it for {} s: `up` brings it back", idle.as_secs());
            let message = self.job.message.clone();
            self.note(format!("the workspace pauses: {message}"));
        }
    }
}
