//! Lets go: which generations are not wanted any more, and when they may be deleted.

use std::time::Duration;

use jiff::Timestamp;

use super::Pass;
use super::wish::PAUSE_GRACE;
use crate::job::{Attempt, Create, Delete, Desired, Generation, Next, Outcome, Placement, Stop, StopCause};
use crate::observation::{CreateError, CreateErrorKind, Look, SliceState, WorkerReport};
use crate::orders::notice_is_urgent;
use crate::placement;
use crate::reason::Reason;
use crate::spec::{CapacityKind, Queued};

/// Nobody ordered the end of the attempt, and nobody took its slice.
fn ended_by_itself(attempt: &Attempt) -> bool {
    match attempt.stop.as_ref().map(|stop| stop.cause) {
        None | Some(StopCause::PeerExit | StopCause::Limit) => true,
        Some(StopCause::Notice | StopCause::Lost | StopCause::Cancel | StopCause::Pause | StopCause::Restart) => false,
    }
}

/// What a create that took longer than its limit says of its place.
fn why_slow(g: &Generation, in_queue: bool, limit: Duration) -> CreateError {
    let secs = limit.as_secs();
    let (kind, message) = if in_queue {
        (CreateErrorKind::Reservation, format!("no room in the reservation within {secs} s"))
    } else if g.create == Create::Intended {
        // Of capacity it says nothing, nor anything to other jobs.
        (CreateErrorKind::Other, format!("no create request was answered within {secs} s"))
    } else {
        (CreateErrorKind::HiddenStockout, format!("not READY within {secs} s"))
    };
    CreateError { kind, message }
}

impl Pass<'_> {
    pub(super) fn retire(&mut self) {
        self.give_up_slow_creates();
        self.give_up_in_place();
        self.give_up_unfenced();
        let numbers: Vec<u32> = self.job.generations.iter().map(|g| g.number).collect();
        for number in numbers {
            let Some(g) = self.job.generation(number).filter(|g| g.delete.is_none() && !self.is_wanted(g)) else {
                continue;
            };
            let g = g.clone();
            if self.may_delete(&g) {
                let now = self.now;
                if let Some(g) = self.generation_mut(number) {
                    g.delete = Some(Delete { intended_at: now, sent_at: None, tries: 0, last_error: None });
                }
                self.note(format!("generation {number} is deleted"));
            }
        }
        // Attempts whose slice is gone, and that are judged, are history; the newest stays for people to see.
        let newest = self.job.last_attempt;
        self.job.attempts.retain(|a| a.fenced_at.is_none() || a.number == newest);
    }

    /// True while this generation is the one that the job runs (or will run) on.
    fn is_wanted(&self, g: &Generation) -> bool {
        let newest = self.job.generations.last().is_some_and(|n| n.number == g.number);
        newest
            && self.job.outcome.is_none()
            && self.job.desired == Desired::Run
            && g.lost.is_none()
            && !matches!(g.create, Create::Failed { .. })
            && !self.is_left(g)
            && !g.notice.as_ref().is_some_and(|n| notice_is_urgent(n, self.now))
            && (!self.job.next.as_ref().is_some_and(|n| n.new_generation) || self.may_be_explained(g))
    }

    /// Whether a loss of the slice may still explain an end after which the job begins from scratch.
    fn may_be_explained(&self, g: &Generation) -> bool {
        let by_policy = |n: &Next| n.from_scratch && n.why != Reason::RestartRequested;
        let of = self.job.last_end.as_ref().filter(|end| end.generation == g.number);
        let Some(end) = of.filter(|_| self.job.next.as_ref().is_some_and(by_policy)) else { return false };
        let until = end.ended.at + self.settings().settle;
        // A look that failed says nothing. Not for ever, since somebody pays for the slice.
        self.now < until || (self.is_unread(g) && self.now < until + self.settings().transition_grace)
    }

    /// Never sooner than its workers have ended, its notice or their stop deadline is over, or the API says that it is lost.
    fn may_delete(&mut self, g: &Generation) -> bool {
        if g.is_somebody_elses() {
            return false;
        }
        if self.is_collected_from(g) {
            return false;
        }
        self.count_from_hearing(g.number);
        let running: Vec<_> =
            self.job.attempts.iter().filter(|a| a.generation == g.number && a.fenced_at.is_none()).cloned().collect();
        // Before `run` is released only `setup` can be at work, and nobody waits for that.
        if running.iter().all(|a| a.released_at.is_none()) {
            return true;
        }
        let deadline = running.iter().filter_map(|a| a.stop.as_ref().map(|s| self.told_by(s))).max();
        // One that was announced for later ends no program now.
        let deadline = deadline.max(g.notice.as_ref().filter(|n| notice_is_urgent(n, self.now)).map(|n| n.deadline));
        match deadline {
            // All may have told their end by then, and that they still send: a read that failed says neither.
            // Not for ever, since somebody pays for the slice.
            Some(at)
                if self.now >= at
                    && self.now < at + self.settings().silence_hard
                    && self.seen.workers.is_none()
                    && g.lost.is_none() =>
            {
                self.wake(self.now + self.settings().poll_busy * 5);
                false
            }
            Some(at) if self.now >= at => g.lost.is_some() || !self.is_put_off(&running),
            Some(at) => {
                self.wake(at);
                false
            }
            None => false,
        }
    }

    /// By when the workers have told of an end that was ordered: a program that used all of its time is killed at the end of it.
    fn told_by(&self, stop: &Stop) -> Timestamp {
        match stop.cause {
            // The machine goes then, or has gone.
            StopCause::Notice | StopCause::Lost => stop.deadline,
            StopCause::PeerExit | StopCause::Limit | StopCause::Cancel | StopCause::Pause | StopCause::Restart => {
                // As it was ordered, while it is put off.
                let grace = self.grace_of(stop.cause).filter(|_| stop.put_off);
                let ordered = grace.map_or(stop.deadline, |grace| stop.deadline.min(stop.at + grace));
                ordered + self.settings().exits_wait
            }
        }
    }

    /// The time of a program that is told to end, from SIGTERM on. `None`: nobody waits for its saving.
    fn grace_of(&self, cause: StopCause) -> Option<Duration> {
        let stop_grace = self.job.spec.limits.stop_grace;
        match cause {
            StopCause::Pause if self.job.desired == Desired::Cancel => Some(PAUSE_GRACE.min(stop_grace)),
            StopCause::Pause => Some(PAUSE_GRACE),
            StopCause::Cancel | StopCause::Restart | StopCause::Limit => Some(stop_grace),
            StopCause::Notice | StopCause::Lost | StopCause::PeerExit => None,
        }
    }

    /// The last moment until which an order that gives so much time is put off over outages of ours.
    fn put_off_until(&self, stop: &Stop, grace: Duration) -> Timestamp {
        stop.at + grace + self.settings().exits_wait + self.settings().silence_hard
    }

    /// A program that hears of its end only after an outage of ours has its time from then on, and no more: the agent goes by the moment of
    /// SIGKILL for what it saves and sends, and the slice lives no longer.
    fn count_from_hearing(&mut self, generation: u32) {
        let Some(since) = self.seen.liveness.since else { return };
        let (now, wait) = (self.now, self.settings().exits_wait);
        let told = self.job.attempts.iter().filter(|a| a.generation == generation && a.fenced_at.is_none());
        let told = told.filter_map(|a| {
            let stop = a.stop.as_ref()?;
            let grace = self.grace_of(stop.cause)?;
            // Outages that come again and again keep no slice: after that moment nothing is put off any more.
            let is_heard_late = since > stop.at && since <= self.put_off_until(stop, grace);
            let deadline = since + grace;
            // What was put off once more in an outage since then is heard after that one.
            let is_news = if stop.put_off { now < deadline + wait } else { stop.deadline < deadline };
            (is_heard_late && is_news).then_some((a.number, deadline))
        });
        for (number, deadline) in told.collect::<Vec<_>>() {
            if let Some(stop) = self.attempt_mut(number).and_then(|a| a.stop.as_mut()) {
                (stop.deadline, stop.put_off) = (deadline, false);
            }
        }
    }

    /// A program has its SIGTERM, and its time from then on: while `api` hears nobody an order to end waits, and the slice with it. Not for
    /// ever, since somebody pays for the slice.
    fn is_put_off(&mut self, running: &[Attempt]) -> bool {
        let mut waits = false;
        for (number, stop) in running.iter().filter_map(|a| Some((a.number, a.stop.as_ref()?))) {
            let Some(grace) = self.grace_of(stop.cause) else { continue };
            let last = self.put_off_until(stop, grace);
            if self.is_told(stop) || self.now >= last {
                continue;
            }
            waits = true;
            // Ticks and calls are marked now and then: the next tick says whether it was heard, unless there is an outage.
            if let Some(left) = self.outage_is_in() {
                self.lazy = true;
                self.wake((self.now + left).min(last));
                continue;
            }
            self.wake(last);
            if let Some(stop) = self.attempt_mut(number).and_then(|a| a.stop.as_mut()).filter(|s| !s.put_off) {
                (stop.deadline, stop.put_off) = (last, true);
                self.note(format!(
                    "attempt {number} may not have heard that it is to end; its slice is kept until it has, by {last:.0} at the latest"
                ));
            }
        }
        waits
    }

    /// Whether all who could hear of that order have heard of it, and have had their time.
    fn is_told(&self, stop: &Stop) -> bool {
        let heard = self.seen.liveness.since.filter(|_| !stop.put_off).map_or(stop.at, |since| since.max(stop.at));
        let needs = Duration::try_from(self.told_by(stop).duration_since(heard)).unwrap_or_default();
        self.silent_for(stop.at).is_some_and(|heard_for| heard_for >= needs)
    }

    /// In what time the silence of our own marks is an outage; `None`: it is one now. By the store's clock, as they are.
    fn outage_is_in(&self) -> Option<Duration> {
        let read_at = Timestamp::from_microsecond(self.seen.read_through_us).ok()?;
        let unmarked = Duration::try_from(read_at.duration_since(self.seen.liveness.through?)).unwrap_or_default();
        self.settings().outage_gap.checked_sub(unmarked).filter(|left| !left.is_zero())
    }

    /// The program has ended by itself, and workers still send what it left. Not for ever, and not where the slice goes anyhow.
    fn is_collected_from(&mut self, g: &Generation) -> bool {
        let goes = g.lost.is_some() || g.notice.as_ref().is_some_and(|n| n.takes_away() && self.now >= n.deadline);
        let newest = self.job.attempts.iter().rev().find(|a| a.generation == g.number);
        let Some((attempt, fenced)) = newest.and_then(|a| Some((a, a.fenced_at?))) else { return false };
        let (outputs, output) = match self.job.outcome {
            Some(Outcome::Succeeded | Outcome::Failed) => (!self.job.spec.outputs.is_empty(), true),
            Some(Outcome::Cancelled) => (false, false),
            // It goes on elsewhere, and why it failed stands in what it said last. A person who ordered the end waits for nothing.
            None => (false, self.job.desired == Desired::Run && ended_by_itself(attempt) && g.notice.is_none()),
        };
        if goes || !(outputs || output) {
            return false;
        }
        let is_left = |r: &WorkerReport| (outputs && r.is_collecting) || (output && r.has_unsent);
        // A failed read says nothing.
        let open = self.seen.workers.is_none() || self.reports_of(attempt.number).into_iter().any(is_left);
        open && !self.over(fenced, self.settings().outputs_wait)
    }

    /// A create that takes longer than its limit is deleted; a late success is deleted with it.
    fn give_up_slow_creates(&mut self) {
        let now = self.now;
        let made = |g: &&Generation| {
            g.ready_at.is_none() && g.delete.is_none() && g.lost.is_none() && !matches!(g.create, Create::Failed { .. })
        };
        let Some(g) = self.job.generations.last().filter(made).cloned() else { return };
        // In the provider's queue the job's own `queue` limit holds; the limit of a create begins when it comes out of it. And a look that failed
        // says neither that it is slow nor that it is not.
        let looked = self.look_of(&g).is_some_and(|l| l.slice != Look::Unknown);
        let in_queue = self.is_in_provider_queue();
        if !looked || (in_queue && !self.has_elsewhere(&g)) {
            return;
        }
        let limit = self.settings().create_limit(g.slices * g.workers);
        // From when it was asked for, or granted. A request that nobody has accepted is sent again and again.
        let asked = g.asked_at.filter(|_| g.create != Create::Intended).unwrap_or(g.intended_at);
        let granted = g.left_queue_at.or(g.queued_until).filter(|_| !in_queue).unwrap_or(asked);
        if !self.over(granted.max(asked), limit) {
            return;
        }
        self.note(format!("generation {} was not READY within {} s; it is given up", g.number, limit.as_secs()));
        // What hangs here hangs again: other places first, and here less and less often. What its operation may say of it after the delete comes
        // too late to be counted.
        self.bar(g.placement.clone(), &why_slow(&g, in_queue, limit));
        if let Some(g) = self.generation_mut(g.number) {
            g.delete = Some(Delete { intended_at: now, sent_at: None, tries: 0, last_error: None });
        }
        let resume = self.job.attempts.last().is_some_and(|a| a.resume);
        if let Some(a) = self.job.attempts.last().filter(|a| a.released_at.is_none()).map(|a| a.number) {
            self.order_stop(a, StopCause::Limit, now);
            self.fence(a);
        }
        self.job.next = Some(crate::job::Next {
            not_before: now + self.settings().backoff_first,
            resume,
            from_scratch: false,
            new_generation: true,
            why: Reason::CreateTimeout,
        });
    }

    /// Whether a request stands in the queue only since that names a reservation, and the job would take something else, too, which has
    /// not refused it.
    fn has_elsewhere(&self, g: &Generation) -> bool {
        let tpu = &self.job.spec.tpu;
        let by_name = tpu.queued == Queued::Auto && tpu.slices <= 1 && g.placement.capacity == CapacityKind::Reserved;
        let others = || placement::candidates(&self.job.spec, self.rules.deployment);
        let is_open = |place: &Placement| *place != g.placement && !placement::has_refused(&self.job, place);
        by_name && others().iter().any(|candidate| is_open(&candidate.placement))
    }

    /// True while the newest generation waits in the provider's queue.
    pub(super) fn is_in_provider_queue(&self) -> bool {
        let look = self.job.generations.last().and_then(|g| self.look_of(g));
        look.and_then(|l| l.slice.seen()).is_some_and(|v| v.state == SliceState::Queued)
    }

    /// An answer in place cannot hold on a slice that is lost or has a notice.
    fn give_up_in_place(&mut self) {
        if self.usable_generation().is_some() {
            return;
        }
        let now = self.now;
        if let Some(next) = self.job.next.as_mut().filter(|n| !n.new_generation) {
            next.new_generation = true;
            next.not_before = now;
        }
    }

    /// In place, but workers do not report the end of the earlier attempt: only a new slice is safe.
    fn give_up_unfenced(&mut self) {
        let in_place = self.job.next.as_ref().is_some_and(|n| !n.new_generation);
        if !in_place {
            return;
        }
        // Of that slice alone: one of an earlier slice is over when that is gone.
        let Some(number) = self.usable_generation().map(|g| g.number) else { return };
        let deadline = self
            .job
            .attempts
            .iter()
            .filter(|a| a.fenced_at.is_none() && a.generation == number)
            .filter_map(|a| a.stop.as_ref())
            .map(|s| s.deadline)
            .max();
        let Some(deadline) = deadline else { return };
        let patience = self.settings().exits_wait + self.settings().heartbeat * self.settings().missed;
        // A read that failed says nothing of them.
        let unread_until = deadline + patience + self.settings().silence_hard;
        if self.seen.workers.is_none() && self.now < unread_until {
            return;
        }
        if self.over_unheard(deadline, patience) {
            self.note("workers do not report the end of the program; a new slice is asked for");
            if let Some(next) = self.job.next.as_mut() {
                next.new_generation = true;
            }
        }
    }

    /// How soon it is looked again whether what the job itself waits for is gone: within one second at first, and within a sixtieth of what it
    /// has taken so far. `None`: with the tick's list, which is soon enough by then.
    // A delete may be refused for hours, and each look commits the next one's time.
    pub(super) fn look_for_404_after(&self, since: jiff::Timestamp) -> Option<Duration> {
        let age = Duration::try_from(self.now.duration_since(since)).unwrap_or_default();
        let after = (age / 60).max(self.settings().poll_busy / 2);
        (after <= self.settings().poll_busy * 20).then_some(after)
    }

    /// How soon what is on its way is looked at again: when it is three times as old. `None`: when the tick's list shows a change, which is
    /// soon enough by then.
    // What goes well is told by the workers' hello; what fails is seen within twice the time that it took, or with a tick. Each look has its
    // price (decision 11).
    pub(super) fn poll_after(&self, since: jiff::Timestamp) -> Option<Duration> {
        let age = Duration::try_from(self.now.duration_since(since)).unwrap_or_default();
        let after = (age * 2).max(self.settings().poll_busy * 3 / 2);
        (after <= self.settings().poll_busy * 20).then_some(after)
    }
}
