//! Asks for what is needed: the next generation, at a place that may have it, within what the installation allows now.

use super::Pass;
use crate::job::{Attempt, Barred, Create, Delete, Desired, Generation, Job, Placement};
use crate::names;
use crate::observation::{CreateErrorKind, Look, Permit, SliceState};
use crate::orders::notice_is_urgent;
use crate::placement::{self, Candidate, Choice};
use crate::reason::Reason;

impl Pass<'_> {
    pub(super) fn provision(&mut self) {
        if self.job.outcome.is_some() || self.job.desired != Desired::Run || self.job.settling.is_some() {
            return;
        }
        if !self.needs_generation() {
            self.ask_again();
            // Waiting in the provider's queue is waiting for capacity.
            if self.is_in_provider_queue() {
                self.queue_limit_passed();
            }
            return;
        }
        self.begin_to_wait();
        if self.queue_limit_passed() {
            return;
        }
        if let Some(next) = self.job.next.clone()
            && self.now < next.not_before
        {
            self.wake(next.not_before);
            let barren = self.job.spent.generations_without_progress;
            let why = if barren > 1 {
                format!(": {barren} slices in a row ended without a step above the highest")
            } else {
                String::new()
            };
            let text = format!("waits until {:.0} before the next slice is asked for{why}", next.not_before);
            let own = matches!(next.why, Reason::CreateTimeout | Reason::RateLimit);
            self.waiting = Some((if own { next.why } else { Reason::BackOff }, text));
            return;
        }
        if !self.may_overlap() {
            let sends = self.job.generations.last().is_some_and(|g| self.is_kept_for_output(g));
            let first = if sends { "has sent the rest of its output and " } else { "" };
            self.waiting = Some((Reason::OwnDelete, format!("waits until the earlier slice {first}is gone")));
            return;
        }
        let used = self.seen.used.clone().without(&self.given_back());
        let rules = self.rules;
        match placement::choose(&self.job, rules.deployment, &self.seen.zones, &used, self.now, rules.settings) {
            Choice::Go { candidate, via } => self.ask(&candidate, via),
            Choice::Wait { until, reason, message } => {
                self.wake(until);
                self.waiting = Some((reason, message));
            }
            Choice::Never { message } => self.fail_by_limit(Reason::NoCandidate, message),
        }
    }

    /// A create whose answer was lost, and that shows no effect, is sent again: less and less often, and within the budget of all.
    fn ask_again(&mut self) {
        let Some(g) = self.job.generations.last().filter(|g| g.create == Create::Intended && g.delete.is_none()) else {
            return;
        };
        let Some(asked_at) = g.asked_at.filter(|at| *at != self.now && g.seen_at.is_none()) else { return };
        let s = self.settings();
        let wait = (s.poll_busy * 3 * 2_u32.pow(g.create_tries.min(5))).min(s.rate_cooldown);
        if self.asks_again || !self.over(asked_at, wait) {
            return;
        }
        if self.permitted() {
            (self.asks_again, self.takes_permit) = (true, true);
        }
    }

    /// True when no generation is there, or on its way, that the current attempt can use.
    fn needs_generation(&self) -> bool {
        if self.job.next.as_ref().is_some_and(|n| !n.new_generation) {
            return false;
        }
        let wanted = self.usable_generation().is_some() && self.job.next.is_none();
        !wanted
    }

    /// It had a slice until now: what it has waited for that one is no part of this wait.
    fn begin_to_wait(&mut self) {
        if self.had_slice() {
            self.job.queued_since = self.now;
        }
    }

    /// Whether the newest attempt had a slice until now that was READY, and that nobody had given up.
    // Not by the phase: a job that waits in place, or for the end of its program, is recovering and holds its slice, for hours if need be.
    fn had_slice(&self) -> bool {
        let Job { generations, attempts, .. } = self.before;
        let Some((g, a)) = generations.last().zip(attempts.last()) else { return false };
        g.ready_at.is_some() && g.lost.is_none() && g.delete.is_none() && a.generation == g.number
    }

    fn queue_limit_passed(&mut self) -> bool {
        let Some(limit) = self.job.spec.limits.queue else { return false };
        if !self.over(self.job.queued_since, limit) {
            return false;
        }
        self.fail_by_limit(Reason::QueueTimeout, format!("no TPU within the limit `queue` of {} s", limit.as_secs()));
        true
    }

    /// Two generations exist only in the hand-over window: the earlier one has an urgent notice, or the API says that it is taken or not there.
    fn may_overlap(&self) -> bool {
        if self.job.generations.len() > 1 {
            return false;
        }
        let Some(old) = self.job.generations.last() else { return true };
        if matches!(old.create, Create::Failed { .. }) {
            return false;
        }
        // Our own dying node uses up the quota: found out by a refusal, then waited for.
        if self.own_husk_refused() {
            return false;
        }
        let noticed = old.notice.as_ref().is_some_and(|n| notice_is_urgent(n, self.now));
        let taken = self.look_of(old).is_some_and(|l| match &l.slice {
            Look::Seen(v) => matches!(v.state, SliceState::Preempted | SliceState::Terminated | SliceState::Stopped),
            Look::Absent => {
                let is_taken = |delete: &Delete| delete.sent_at.is_some() && delete.last_error.is_none();
                old.create == Create::Done && (old.lost.is_some() || old.delete.as_ref().is_some_and(is_taken))
            }
            Look::Unknown => false,
        });
        noticed || taken
    }

    /// Its program is over, and `retire` has not let go of it: that waits for what its workers still send.
    fn is_kept_for_output(&self, g: &Generation) -> bool {
        let newest = self.job.attempts.last().filter(|a| a.generation == g.number);
        g.delete.is_none()
            && g.lost.is_none()
            && !g.is_somebody_elses()
            && newest.is_some_and(|a| a.fenced_at.is_some())
    }

    fn own_husk_refused(&self) -> bool {
        self.job.generations.last().is_some_and(|g| g.blocks_quota)
    }

    fn ask(&mut self, candidate: &Candidate, via: crate::job::Via) {
        if !self.permitted() {
            return;
        }
        self.takes_permit = true;
        let number = self.number_for_ask(&candidate.placement);
        let name = names::generation_name(self.rules.installation, &self.job.id, number);
        self.note(format!(
            "generation {number} is asked for: {} in {} ({})",
            candidate.placement.accelerator,
            candidate.placement.zone,
            candidate.placement.capacity.as_str()
        ));
        self.job.generations.push(Generation {
            number,
            name,
            placement: candidate.placement.clone(),
            entry: candidate.entry.clone(),
            via,
            slices: self.job.spec.tpu.slices,
            workers: candidate.workers,
            chips: candidate.chips,
            usd_micros_per_hour: candidate.usd_micros_per_hour,
            intended_at: self.now,
            asked_at: None,
            queued_until: None,
            left_queue_at: None,
            create: Create::Intended,
            create_tries: 0,
            blocks_quota: false,
            seen_at: None,
            ready_at: None,
            addresses: crate::shared::Shared::default(),
            unhealthy_since: None,
            ended_since: None,
            absent_since: None,
            leaves: false,
            notice: None,
            progressed: false,
            ran: std::time::Duration::ZERO,
            lost: None,
            delete: None,
        });
    }

    /// Whether a create may be sent now; if not, the job waits for it.
    fn permitted(&mut self) -> bool {
        let (reason, text) = match &self.seen.permit {
            Permit::Free | Permit::Granted => return true,
            Permit::Wait => (Reason::CreateBudget, "waits for a create permit: so many a minute are given"),
            Permit::Frozen => (Reason::Frozen, "creates are frozen; `rekindle thaw` lets them go on"),
        };
        self.wake(self.now + self.settings().rate_cooldown);
        self.waiting = Some((reason, text.into()));
        false
    }

    /// The attempt that waits for that generation, the newest, waits for one with another number.
    pub(super) fn renumber(&mut self, number: u32) {
        if let Some(a) = self.job.attempts.last_mut().filter(|a| a.generation == number && waits_for_slice(a)) {
            self.job.last_generation += 1;
            a.generation = self.job.last_generation;
        }
    }

    /// The number of the generation to be asked for. An attempt that waits for a slice which never came keeps its number and its generation's,
    /// unless somebody else has the name there, and may have it for good, or a delete of that name may still arrive there.
    fn number_for_ask(&mut self, place: &Placement) -> u32 {
        let waiting = self.job.attempts.last().filter(|a| waits_for_slice(a));
        if let Some(a) = waiting
            && self.job.generation(a.generation).is_none()
            && a.generation == self.job.last_generation
        {
            let number = a.generation;
            self.job.next = None;
            let is_taken = |b: &Barred| {
                let is_met = b.deletes_until.is_some_and(|until| self.now < until);
                (is_met || b.error.kind == CreateErrorKind::NameTaken) && b.placement.zone == place.zone
            };
            if self.job.barred.iter().any(is_taken) {
                self.renumber(number);
            }
            return self.job.last_generation;
        }
        let next = self.job.next.take();
        if next.as_ref().is_some_and(|n| n.from_scratch) {
            self.new_line();
        }
        let resume = next.is_some_and(|n| n.resume);
        self.job.last_generation += 1;
        let number = self.job.last_generation;
        self.new_attempt(number, resume);
        number
    }
}

/// Nothing has become of it yet.
fn waits_for_slice(a: &Attempt) -> bool {
    a.ended.is_none() && a.stop.is_none() && a.released_at.is_none() && a.fenced_at.is_none()
}
