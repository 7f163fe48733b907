//! Merges a report into a worker's document, and says what of it is news for a pass. Pure.

use jiff::{SignedDuration, Timestamp};

use rekindle_core::classify::Exit;
use rekindle_core::job::{Attempt, Job};
use rekindle_core::observation::{Notice, NoticeKind, WorkerReport, WorkerState};
use rekindle_wire::agent::{ExitReport, LOSS_MAX, Report};

/// The document after a report.
///
/// What is told once (an exit, a preemption, a step) stays, also when a later report lacks it; maintenance may be called
/// off. `is_late`: the attempt is
/// not the current one of
/// its generation any more, so only an exit and a notice of it count.
pub(super) fn merge(
    known: Option<&WorkerReport>,
    report: &Report,
    address: &str,
    now: Timestamp,
    is_late: bool,
) -> WorkerReport {
    let mut next = known.cloned().unwrap_or_else(|| empty(report, address, now));
    // A document of before may hold anything.
    next.within_reason(now);
    // A program that ended after a notice ended by it, whatever became of that.
    let has_ended = next.exit.is_some() || report.exit.is_some();
    let is_over = |known: &Notice| !has_ended && report.notice.is_none() && known.is_over_without(now);
    if !is_late && next.notice.as_ref().is_some_and(is_over) {
        next.notice = None;
    }
    next.notice = earlier(next.notice.take(), report.notice.clone());
    // What an end has left is collected first, and said then: a report of an earlier moment that comes late neither begins it anew nor ends it.
    let is_earlier = report.state != WorkerState::Exited || (report.is_collecting && !next.is_collecting);
    if next.exit.is_none() || next.boot_id != report.boot_id || !is_earlier {
        let may_send = next.exit.is_none() || next.has_left_something();
        next.is_collecting = report.is_collecting && (next.exit.is_none() || next.is_collecting);
        next.has_unsent = report.has_unsent && may_send;
    }
    if next.exit.is_none() {
        next.exit = report.exit.clone().map(bounded);
    }
    if !is_late {
        // A heartbeat of an earlier moment that comes late does not take a running program back to its start. A worker whose program is gone
        // says when that had begun, or says it for long.
        let tells_less =
            next.boot_id == report.boot_id && next.state == WorkerState::Running && report.state < WorkerState::Running;
        let is_recent = next.less_since.is_none_or(|since| now.duration_since(since) < LATE_MAX);
        let is_old = tells_less && report.started_at.is_none() && is_recent;
        next.less_since = is_old.then(|| next.less_since.unwrap_or(now));
        next.boot_id.clone_from(&report.boot_id);
        // Never back, and never the same: a report that is stored must move the commit time of its document, which is what silence is
        // measured by, also when this instance's clock is behind another's.
        next.heard_at = known.map_or(now, |known| now.max(known.heard_at + SignedDuration::from_micros(1)));
        if !is_old {
            next.state = report.state;
        }
        let told = &report.progress;
        if told.step > next.step {
            next.step = told.step;
            next.step_at = told.step_at;
            // Whatever runs on a worker can speak in its agent's place, and what a job's document holds must stay bounded.
            next.loss = told.loss.clone().filter(|loss| loss.len() <= LOSS_MAX);
        }
        next.started_at = next.started_at.or(report.started_at);
        next.output_at = next.output_at.max(report.output_at);
        // The newest one told. A report of an earlier moment that comes late knows of fewer steps.
        if told.step >= next.step {
            next.checkpoint = told.checkpoint.or(next.checkpoint);
        }
        next.resumed_from = next.resumed_from.or(told.resumed_from);
        next.disk_free_bytes = report.disk_free_bytes.or(next.disk_free_bytes);
        next.memory_free_bytes = report.memory_free_bytes.or(next.memory_free_bytes);
    }
    if next.exit.is_some() {
        next.state = WorkerState::Exited;
    }
    next.within_reason(now);
    next
}

/// What the kernel said, and who held a device, are lines; more is no agent's.
fn bounded(mut exit: ExitReport) -> ExitReport {
    let cut = |line: &mut String| line.truncate(line.floor_char_boundary(LINE_MAX));
    cut(&mut exit.evidence.oom_line);
    exit.evidence.holders.truncate(HOLDERS_MAX);
    exit.evidence.holders.iter_mut().for_each(cut);
    exit
}

/// See [`bounded`]: bytes of a line, and lines.
const LINE_MAX: usize = 2 << 10;
const HOLDERS_MAX: usize = 16;

fn earlier(known: Option<Notice>, told: Option<Notice>) -> Option<Notice> {
    match (known, told) {
        (Some(known), Some(told)) => Some(if told.says_more(&known) { told } else { known }),
        (known, told) => known.or(told),
    }
}

fn empty(report: &Report, address: &str, now: Timestamp) -> WorkerReport {
    WorkerReport {
        attempt: report.attempt,
        generation: report.generation,
        key: report.key,
        instance: report.instance.clone(),
        boot_id: report.boot_id.clone(),
        address: address.to_owned(),
        state: report.state,
        heard_at: now,
        started_at: None,
        step: None,
        step_at: None,
        output_at: None,
        loss: None,
        checkpoint: None,
        resumed_from: None,
        disk_free_bytes: None,
        memory_free_bytes: None,
        notice: None,
        exit: None,
        is_collecting: false,
        has_unsent: false,
        has_rebooted: false,
        less_since: None,
    }
}

/// The workers of a slice are told of one preemption at nearly the same time: the pass that has seen the first one's notice has done all.
fn is_much_alike(one: &Notice, other: &Notice) -> bool {
    one.kind == other.kind
        && one.kind == NoticeKind::Preemption
        && one.deadline.duration_since(other.deadline).abs() <= ALIKE
}

/// No report comes later than this, by clocks that differ by minutes.
const LATE_MAX: SignedDuration = SignedDuration::from_mins(15);

/// Clocks of the machines of one slice, and the moments at which they are told.
const ALIKE: SignedDuration = SignedDuration::from_secs(2);

/// What a pass should know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The program of this worker ended, and the others must know.
    Exit,
    /// The program of this worker ended: news if all have.
    AllExited,
    /// All that this worker's program left was collected: news if nothing is left on any of them.
    Collected,
    /// All that this worker's program said was sent: news if nothing is left on any of them.
    Sent,
    /// The slice will be taken away.
    Notice,
    /// The VM booted again, or the worker prepares once more in an attempt that has started.
    Reboot,
    /// This worker is ready: news if all are.
    Ready,
    /// This worker's program runs: news if all do.
    Running,
    /// The first step above the job's highest.
    Step,
    /// This worker began further back than the attempt is known to have.
    Resumed,
}

impl Change {
    /// Whether the document held the fact before this write: it is told once more, since no pass has drawn the conclusion.
    pub(super) fn is_retold(self, known: Option<&WorkerReport>, next: &WorkerReport) -> bool {
        known.is_some_and(|known| match self {
            Self::Exit | Self::AllExited => known.exit.is_some(),
            Self::Notice => known.notice == next.notice,
            Self::Reboot => known.boot_id == next.boot_id,
            Self::Collected | Self::Sent | Self::Ready | Self::Running | Self::Step | Self::Resumed => false,
        })
    }
}

/// True if no pass has drawn the conclusion from a boot that lost a worker's program: the hint of it may be lost.
pub(super) const fn is_untold_reboot(report: &WorkerReport, attempt: &Attempt) -> bool {
    report.has_rebooted && report.exit.is_none() && is_open(attempt)
}

/// True if no pass has told the attempt to stop, or judged its end.
const fn is_open(attempt: &Attempt) -> bool {
    attempt.stop.is_none() && attempt.ended.is_none()
}

/// The most important change of a write, if any. Heartbeats are none, except as long as the job does not know of a fact that passes look for
/// with a tick alone. What is not told again here (ready, running, the last exit) is seen with the next tick: until all run, each looks.
pub(super) fn change(
    known: Option<&WorkerReport>,
    next: &WorkerReport,
    job: &Job,
    attempt: &Attempt,
) -> Option<Change> {
    let was_exited = known.is_some_and(|k| k.exit.is_some());
    // Also an exit that was stored before, as long as no pass has seen any of this attempt: its hint may be lost.
    if let Some(exit) = next.exit.as_ref().filter(|_| !was_exited || attempt.first_exit_at.is_none()) {
        // The first one stops the others, and so does the first failure; after that only the last one matters.
        let stops = attempt.stop.is_none() && exit.evidence.exit != Exit::Code(0);
        return Some(if stops || attempt.first_exit_at.is_none() { Change::Exit } else { Change::AllExited });
    }
    if let Some(known) = known.filter(|k| k.has_left_something())
        && next.exit.is_some()
        && !next.has_left_something()
    {
        return Some(if known.is_collecting { Change::Collected } else { Change::Sent });
    }
    // Until a pass has seen it, also when it was stored before: its hint may be lost. Where nothing is left of the generation none would.
    if let Some((notice, g)) = next.notice.as_ref().zip(job.generation(next.generation))
        && g.notice.as_ref().is_none_or(|k| notice.says_more(k) && !is_much_alike(notice, k))
    {
        return Some(Change::Notice);
    }
    // A program may be lost without a boot, too.
    let is_lost = next.state < WorkerState::Running && attempt.started_at.is_some() && is_open(attempt);
    if is_lost || known.is_some_and(|k| k.boot_id != next.boot_id) || is_untold_reboot(next, attempt) {
        return Some(Change::Reboot);
    }
    let before = known.map(|k| k.state);
    if next.state != WorkerState::Exited && before != Some(next.state) {
        match next.state {
            WorkerState::Ready if attempt.released_at.is_none() => return Some(Change::Ready),
            WorkerState::Running if attempt.started_at.is_none() => return Some(Change::Running),
            WorkerState::Preparing | WorkerState::Ready | WorkerState::Running | WorkerState::Exited => {}
        }
    }
    let passed = |step: Option<u64>| step > job.highest_step;
    if !attempt.progressed && passed(next.step) && !passed(known.and_then(|k| k.step)) {
        return Some(Change::Step);
    }
    // Else it would be known only with the next look, which may be minutes away while all is well.
    let is_lower = next.resumed_from.zip(attempt.resumed_from).is_some_and(|(from, known)| from < known);
    if is_lower && known.and_then(|k| k.resumed_from) != next.resumed_from {
        return Some(Change::Resumed);
    }
    None
}

#[cfg(test)]
mod tests;
