//! People's wishes: commands change `desired` (or `restart`) and nothing else; `wish` carries them out.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Pass;
use crate::job::{Desired, Ended, Job, Next, Outcome, Phase, RestartRequest, StopCause};
use crate::reason::Reason;

/// A command on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// End the job.
    Cancel,
    /// Let go of the TPU, keep the job.
    Pause,
    /// Go on after a pause.
    Unpause,
    /// Start the program again.
    Restart {
        /// On a new slice.
        new_slice: bool,
        /// From scratch.
        from_scratch: bool,
    },
    /// Look now instead of at the next wake-up.
    Wake,
}

impl Command {
    /// The word of the outside interface.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Restart { .. } => "restart",
            Self::Wake => "wake",
        }
    }
}

/// The command makes no sense in this phase. Its text says for which jobs the command is, and what to do instead; whoever
/// shows it names the job before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("`{command}` is for jobs that {}; this one {}", whom(.command), state(*.phase, *.end))]
pub struct NoSense {
    /// The command.
    pub command: &'static str,
    /// The job's phase.
    pub phase: Phase,
    /// How it ends, where that is decided and it still stops: then to wait until it has stopped does not help.
    pub end: Option<Outcome>,
}

impl NoSense {
    /// Refuses a command on a job as it is.
    pub(crate) fn of(command: &'static str, job: &Job) -> Self {
        // A cancel that was accepted is its end, also before the pass that begins with it.
        let is_cancelled = job.desired == Desired::Cancel && !job.phase.is_terminal();
        let phase = if is_cancelled { Phase::Stopping } else { job.phase };
        let end = job.outcome.or_else(|| is_cancelled.then_some(Outcome::Cancelled));
        Self { command, phase, end: end.filter(|_| phase == Phase::Stopping) }
    }
}

/// The jobs that a command is for.
fn whom(command: &str) -> &'static str {
    match command {
        "cancel" => "have not ended",
        "pause" => "are neither stopping nor have ended",
        "unpause" => "are paused",
        "restart" => "are starting, running, recovering or paused",
        "wake" => "wait for a time",
        _ => "run",
    }
}

/// Where a job is, and what can be done with one that is there.
fn state(phase: Phase, end: Option<Outcome>) -> String {
    const AGAIN: &str = "to run it again, submit it under another id";
    let name = phase.as_str();
    match phase {
        Phase::Succeeded | Phase::Failed | Phase::Cancelled => format!("has ended ({name}): {AGAIN}"),
        Phase::Stopping if end == Some(Outcome::Cancelled) => format!("was cancelled, and is stopping: {AGAIN}"),
        Phase::Stopping if let Some(end) = end => {
            format!("has its end already ({}), and is stopping: {AGAIN}", end.phase().as_str())
        }
        Phase::Stopping => "is being paused: give the command again once it is".to_owned(),
        Phase::Paused => "is paused: `unpause` brings it back".to_owned(),
        Phase::Pending | Phase::Provisioning | Phase::Starting | Phase::Running | Phase::Recovering => {
            format!("is {name}")
        }
    }
}

/// Pauses wait so long for the program to save.
// Contract section 2: five minutes for `pause`, `stop_grace` for all else.
pub(super) const PAUSE_GRACE: Duration = Duration::from_mins(5);

/// Who gave a command, at the end of the message of a pause or a cancel: whoever knows the name puts it there.
pub const SOMEBODY: &str = "a person";

fn cancelled(job: &Job) -> String {
    format!("{} by {SOMEBODY}", if job.spec.workspace { "deleted" } else { "cancelled" })
}

/// The job after a command. `Ok(None)`: it holds already. The effects follow from the next `decide`.
pub fn apply_command(job: &Job, command: Command, now: Timestamp) -> Result<Option<Job>, NoSense> {
    let no = Err(NoSense::of(command.name(), job));
    let mut after = job.clone();
    match command {
        Command::Cancel => {
            if job.phase.is_terminal() && job.phase != Phase::Cancelled {
                return no;
            }
            if job.desired == Desired::Cancel || job.phase == Phase::Cancelled {
                return Ok(None);
            }
            after.desired = Desired::Cancel;
            // What has decided its end already stays the reason of it.
            if after.outcome.is_none() {
                after.reason = Reason::CancelRequested;
                after.message = cancelled(job);
            }
        }
        // A cancel that was accepted is carried out, also when the next command comes before the pass that begins with it.
        Command::Pause | Command::Unpause | Command::Restart { .. }
            if job.desired == Desired::Cancel && !job.phase.is_terminal() =>
        {
            return no;
        }
        Command::Pause => {
            if job.desired == Desired::Pause && job.outcome.is_none() {
                return Ok(None);
            }
            if job.phase.is_terminal() || job.phase == Phase::Stopping {
                return no;
            }
            after.desired = Desired::Pause;
            after.reason = Reason::PauseRequested;
            after.message = format!("paused by {SOMEBODY}");
        }
        Command::Unpause => {
            if job.phase != Phase::Paused {
                // The first of two has been recorded and not yet acted on; later the job is simply not paused.
                let is_going_on = job.next.as_ref().is_some_and(|next| next.why == Reason::UnpauseRequested);
                return if job.desired == Desired::Run && is_going_on { Ok(None) } else { no };
            }
            resume_from_pause(&mut after, Reason::UnpauseRequested, true, now);
        }
        Command::Restart { new_slice, from_scratch } => {
            if job.restart == Some(RestartRequest { new_slice, from_scratch }) {
                return Ok(None);
            }
            if !restart(&mut after, new_slice, from_scratch, now) {
                return no;
            }
        }
        Command::Wake => {
            if job.phase.is_terminal() || (job.wake_at.is_none() && job.phase == Phase::Paused) {
                return no;
            }
            after.wake_at = Some(now);
            // "Act now": waits that are only our own patience end.
            if let Some(next) = after.next.as_mut() {
                next.not_before = next.not_before.min(now);
            }
            // But for a name that a delete may still meet.
            after.barred.retain_mut(|b| {
                let is_kept = b.until.is_none() || b.deletes_until.is_some_and(|until| now < until);
                b.until = b.until.map(|until| until.min(now));
                is_kept
            });
        }
    }
    Ok(Some(after))
}

/// Whether a restart makes sense in its phase; then it is noted.
fn restart(job: &mut Job, new_slice: bool, from_scratch: bool, now: Timestamp) -> bool {
    match job.phase {
        Phase::Starting | Phase::Running | Phase::Recovering => {
            // What was thrown away stays so, and a pause that is under way ends with the new start.
            let from_scratch = from_scratch || job.restart.is_some_and(|restart| restart.from_scratch);
            job.restart = Some(RestartRequest { new_slice, from_scratch });
            job.desired = Desired::Run;
            true
        }
        Phase::Paused => {
            if from_scratch {
                // One new line is enough.
                job.next = None;
                job.begin_line();
            }
            resume_from_pause(job, Reason::RestartRequested, !from_scratch, now);
            true
        }
        Phase::Pending
        | Phase::Provisioning
        | Phase::Stopping
        | Phase::Succeeded
        | Phase::Failed
        | Phase::Cancelled => false,
    }
}

fn resume_from_pause(job: &mut Job, why: Reason, resume: bool, now: Timestamp) {
    job.desired = Desired::Run;
    job.spent.generations_without_progress = 0;
    job.queued_since = now;
    // Whoever brings a workspace back uses it.
    job.attempts.iter_mut().for_each(|a| a.idle = Duration::ZERO);
    // What was to begin from scratch and never began still does.
    let resume = resume && job.may_have_run() && job.next.as_ref().is_none_or(|next| next.resume);
    let from_scratch = job.next.as_ref().is_some_and(|next| next.from_scratch);
    job.next = Some(Next { not_before: now, resume, from_scratch, new_generation: true, why });
}

impl Pass<'_> {
    pub(super) fn wish(&mut self) {
        match self.job.desired {
            Desired::Cancel if self.job.outcome.is_none() => {
                self.job.outcome = Some(Outcome::Cancelled);
                // With the name of who said so. A pass of an older version may have come between.
                if self.job.reason != Reason::CancelRequested {
                    self.job.reason = Reason::CancelRequested;
                    self.job.message = cancelled(&self.job);
                }
                let ended = if self.job.spec.workspace { "deleted" } else { "cancelled" };
                self.note(format!("the job is being {ended}"));
            }
            Desired::Cancel | Desired::Run | Desired::Pause => {}
        }
        if self.job.outcome.is_some() {
            self.let_all_stop(StopCause::Cancel, self.job.spec.limits.stop_grace);
            self.job.next = None;
            self.job.settling = None;
            self.job.restart = None;
            return;
        }
        if self.job.desired == Desired::Pause {
            self.let_all_stop(StopCause::Pause, PAUSE_GRACE);
            self.job.settling = None;
            let from_scratch = self.job.restart.take().is_some_and(|restart| restart.from_scratch);
            if from_scratch {
                self.new_line();
                self.job.next = None;
            }
            let now = self.now;
            let resume = self.job.may_have_run() && !from_scratch;
            self.job.next.get_or_insert(Next {
                not_before: now,
                resume,
                from_scratch: false,
                new_generation: true,
                why: Reason::UnpauseRequested,
            });
            return;
        }
        self.carry_out_restart();
    }

    fn let_all_stop(&mut self, cause: StopCause, grace: Duration) {
        let deadline = self.now + grace;
        let numbers: Vec<u32> = self.job.attempts.iter().map(|a| a.number).collect();
        for number in numbers {
            self.order_stop(number, cause, deadline);
            self.mark_ended(number);
        }
    }

    /// Ended by a person: charged to nobody.
    fn mark_ended(&mut self, attempt: u32) {
        let ended =
            Ended { at: self.now, kind: None, action: None, charge: None, summary: self.by_whom(), verdict: None };
        if let Some(a) = self.attempt_mut(attempt)
            && a.ended.is_none()
        {
            a.ended = Some(ended);
        }
    }

    /// What ends an attempt that no failure does: a cancel or a pause, whose message has the name, or a restart.
    fn by_whom(&self) -> String {
        match (self.job.desired, self.job.reason) {
            (Desired::Cancel, Reason::CancelRequested) | (Desired::Pause, Reason::PauseRequested) => {
                self.job.message.clone()
            }
            _ => format!("ended by {SOMEBODY}"),
        }
    }

    /// True while the slice of an attempt that nothing has ended is on its way: a create that may have waited for hours is not
    /// thrown away for the same start on another.
    fn is_being_made(&self) -> bool {
        let making = self.usable_generation().filter(|g| g.ready_at.is_none()).map(|g| g.number);
        let newest = self.job.attempts.last().filter(|a| a.stop.is_none() && a.ended.is_none());
        self.job.next.is_none() && making.is_some_and(|number| newest.is_some_and(|a| a.generation == number))
    }

    fn carry_out_restart(&mut self) {
        let Some(restart) = self.job.restart.take() else { return };
        if !restart.new_slice && !restart.from_scratch && self.is_being_made() {
            self.note("restarted by a person: the next attempt is on its way, on the slice that is being made");
            return;
        }
        if restart.from_scratch {
            self.new_line();
        }
        self.job.settling = None;
        let deadline = self.now + self.job.spec.limits.stop_grace;
        if let Some(a) = self.job.attempts.last().map(|a| a.number) {
            self.order_stop(a, StopCause::Restart, deadline);
            self.mark_ended(a);
        }
        let healthy = self.usable_generation().is_some_and(|g| g.ready_at.is_some());
        let new_generation = restart.new_slice || !healthy;
        let unbegun = self.job.next.as_ref().is_some_and(|next| !next.resume);
        let resume = !restart.from_scratch && !unbegun && self.job.may_have_run();
        // One new line is enough.
        let from_scratch = !restart.from_scratch && self.job.next.as_ref().is_some_and(|next| next.from_scratch);
        let (not_before, why) = (self.now, Reason::RestartRequested);
        self.job.next = Some(Next { not_before, resume, from_scratch, new_generation, why });
        self.note(format!(
            "restarted by a person, {}{}",
            if new_generation { "on a new slice" } else { "on the same slice" },
            if restart.from_scratch { ", from scratch" } else { "" }
        ));
    }
}
