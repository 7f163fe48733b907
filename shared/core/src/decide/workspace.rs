//! What is particular to a workspace: it never ends by itself, and it is paused when nobody uses it.

use std::time::Duration;

use jiff::Timestamp;

use super::Pass;
use super::charge::End;
use crate::classify;
use crate::explain::span;
use crate::failure::FailureKind;
use crate::idle;
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
        // Only who has heard of all of them lately can say that nobody uses it, and only of the time before they were heard.
        let Some(unheard) = self.unheard(a.number, g) else { return };
        let since = self.unused_since(a, started) + unheard;
        if self.job.desired == Desired::Run && self.job.restart.is_none() && self.over(since, idle) {
            self.job.desired = Desired::Pause;
            self.job.reason = Reason::PauseRequested;
            self.job.message = format!("nobody has used it for {}: `up` brings it back", span(idle));
            let message = self.job.message.clone();
            self.note(format!("the workspace pauses: {message}"));
        }
    }

    /// The last use in this attempt; without one the moment from which its beginning counts as idle.
    fn unused_since(&self, a: &Attempt, started: Timestamp) -> Timestamp {
        idle::last_use(&self.job, a, started, &self.reports_of(a.number))
    }

    /// An attempt of a workspace ends: what it was idle counts on in the next one. Where not all of its workers can be
    /// asked, it counts as used.
    pub(super) fn count_idle(&mut self, number: u32) {
        let Some(a) = self.job.attempts.iter().find(|a| a.number == number && a.ended.is_none()) else { return };
        let Some(started) = a.started_at.filter(|_| self.job.spec.workspace) else { return };
        let workers = self.job.generation(a.generation).map(|g| (g.slices * g.workers) as usize);
        let all_known = workers.is_some_and(|workers| self.reports_of(number).len() == workers);
        let idle = self.now.duration_since(self.unused_since(a, started));
        let idle = Duration::try_from(idle).unwrap_or_default();
        if let Some(a) = self.attempt_mut(number) {
            a.idle = if all_known { idle } else { Duration::ZERO };
        }
    }

    /// What the next attempt begins with: what the last one had, unless a person ended that.
    pub(super) fn idle_so_far(&self) -> Duration {
        let last = self.job.attempts.last().filter(|a| a.ended.as_ref().is_none_or(|ended| ended.kind.is_some()));
        last.map_or(Duration::ZERO, |a| a.idle)
    }
}
