//! Folds what the API shows into the generations: made, READY, lost, gone.

use jiff::Timestamp;

use super::Pass;
use super::absent::{ABSENT, AFTER_404, kind_of_vanishing};
use crate::catalog;
use crate::failure::FailureKind;
use crate::job::{Attempt, Barred, Create, Generation, Lost, Next, Placement, StopCause, Via};
use crate::names;
use crate::observation::{
    CreateError, CreateErrorKind, GenerationLook, Health, Look, NoticeKind, OperationView, SliceState, SliceView,
    ZoneReport,
};
use crate::orders::notice_is_urgent;
use crate::placement;
use crate::reason::Reason;
use crate::spec::CapacityKind;

/// What one look means for a generation.
pub(super) enum Meaning {
    Nothing,
    Gone(String),
    Lost { kind: FailureKind, fact: String },
    CreateFailed(CreateError),
}

/// Rights that were taken by mistake are given back within this.
const RIGHTS_COME_BACK: std::time::Duration = std::time::Duration::from_mins(90);

/// A refusal that proves by itself that nothing of ours is there. What has a name of ours and is not ours is never touched; and where a create
/// is not allowed a look is not allowed either, so that no look would ever show that nothing is there.
fn made_nothing(g: &Generation, refusal: CreateErrorKind, look: &GenerationLook, is_heard: bool) -> bool {
    // Never seen, too. Should it be there all the same, it is an orphan, and the sweep's.
    let once = was_asked_once(g) && g.seen_at.is_none();
    match refusal {
        CreateErrorKind::NameTaken => true,
        // A request before it that was not answered may have made something, which is seen again once rights that were lost are back. A place
        // that is closed for good is not read again: nobody waits for it for ever.
        CreateErrorKind::Forbidden | CreateErrorKind::NotOffered => {
            let long_ago = g.asked_at.unwrap_or(g.intended_at) + RIGHTS_COME_BACK <= look.looked_at;
            look.slice == Look::Unknown && (once || (g.seen_at.is_none() && !is_heard && long_ago))
        }
        CreateErrorKind::Stockout
        | CreateErrorKind::HiddenStockout
        | CreateErrorKind::Quota
        | CreateErrorKind::AddressQuota
        | CreateErrorKind::RateLimit
        | CreateErrorKind::Reservation
        | CreateErrorKind::NotQueueable
        | CreateErrorKind::Cancelled
        | CreateErrorKind::PreemptedWhileCreating
        | CreateErrorKind::Other => false,
    }
}

/// Asked once, and answered clearly: no earlier request can still be on its way.
fn was_asked_once(g: &Generation) -> bool {
    g.create_tries == 0 && g.asked_at.is_none_or(|at| at == g.intended_at)
}

/// What was seen of an earlier try under the same number says nothing of this one.
fn is_of(look: &GenerationLook, g: &Generation) -> bool {
    g.number == look.number && g.placement == look.placement && g.intended_at == look.intended_at
}

/// What it is when the provider takes a slice back. Only spot and preemptible capacity is preempted; from other capacity it takes machines for
/// maintenance, unless it has told them otherwise.
pub(super) fn kind_of_taking(g: &Generation) -> FailureKind {
    let announced = g.notice.as_ref().is_some_and(|notice| notice.kind == NoticeKind::Preemption);
    if g.placement.capacity.is_preemptible() || announced { FailureKind::Preempted } else { FailureKind::Maintenance }
}

impl Pass<'_> {
    /// What was seen of a generation.
    pub(super) fn look_of(&self, g: &Generation) -> Option<&GenerationLook> {
        self.seen.generations.iter().find(|l| is_of(l, g))
    }

    pub(super) fn look(&mut self) {
        for look in &self.seen.generations {
            let Some(index) = self.job.generations.iter().position(|g| is_of(look, g)) else { continue };
            let mut g = self.job.generations.remove(index);
            let meaning = self.read_generation(&mut g, look);
            self.job.generations.insert(index, g);
            match meaning {
                Meaning::Nothing => {}
                Meaning::Gone(fact) => self.gone(look.number, &fact),
                Meaning::Lost { kind, fact } => self.lose(look.number, kind, &fact),
                Meaning::CreateFailed(error) => {
                    // It shows its failure as long as it is there, and is counted once.
                    if let Some(g) = self.generation_mut(look.number)
                        && !matches!(g.create, Create::Failed { counted: true, .. })
                    {
                        g.create = Create::Failed { error, counted: false };
                    }
                }
            }
            self.count_failed_create(look.number, look);
            self.fence_ended(look);
        }
        self.fence_gone();
    }

    /// The API's word that none of its machines is on fences its attempts, once they have had the time to go down and the notice is over.
    /// Each slice of a multislice must have ended: see [`SliceView::ended`].
    fn fence_ended(&mut self, look: &GenerationLook) {
        let Some(view) = look.slice.seen() else { return };
        let (now, power_off) = (self.now, self.settings().power_off);
        let Some(g) = self.generation_mut(look.number) else { return };
        if view.ended {
            g.ended_since.get_or_insert(now);
        } else if !matches!(view.state, SliceState::Deleting | SliceState::Unspecified) {
            // Started again by somebody. A delete switches nothing on.
            g.ended_since = None;
        }
        let Some(since) = g.ended_since.filter(|_| g.lost.is_some() || g.delete.is_some()) else { return };
        let notice = g.notice.as_ref().filter(|n| notice_is_urgent(n, now)).map(|n| n.deadline);
        let certain = notice.map_or(since + power_off, |deadline| deadline.max(since + power_off));
        let open = |a: &Attempt| a.generation == look.number && a.fenced_at.is_none() && a.released_at.is_some();
        let open: Vec<u32> = self.job.attempts.iter().filter(|a| open(a)).map(|a| a.number).collect();
        if open.is_empty() {
            return;
        }
        if now < certain {
            self.wake(certain);
            return;
        }
        for attempt in open {
            self.fence(attempt);
            self.note(format!(
                "attempt {attempt} cannot be running: the machines of generation {} are off",
                look.number
            ));
        }
    }

    fn read_generation(&mut self, g: &mut Generation, look: &GenerationLook) -> Meaning {
        let operation_done = matches!(&look.operation, Look::Seen(OperationView { done: true, .. }));
        if let Look::Seen(OperationView { done: true, error }) = &look.operation
            && matches!(g.create, Create::Sent { .. })
        {
            match error {
                None => g.create = Create::Done,
                Some(error) => return Self::operation_failed(g, look, error),
            }
        }
        match &look.slice {
            Look::Unknown => Meaning::Nothing,
            Look::Absent => self.read_absent(g, look, operation_done),
            Look::Seen(view) => self.read_view(g, view),
        }
    }

    fn operation_failed(g: &mut Generation, look: &GenerationLook, error: &CreateError) -> Meaning {
        // The resource is believed, not the operation: an error in the operation and a READY node is a READY node.
        if let Look::Seen(view) = &look.slice
            && view.state == SliceState::Ready
        {
            g.create = Create::Done;
            return Meaning::Nothing;
        }
        // A look that failed may hide that READY node. Where creates are not allowed, no look ever is.
        if look.slice == Look::Unknown && error.kind != CreateErrorKind::Forbidden {
            return Meaning::Nothing;
        }
        let was_taken = error.kind == CreateErrorKind::PreemptedWhileCreating;
        if look.slice == Look::Absent && (was_taken || g.lost.is_some() || g.delete.is_some()) {
            // The operation's end and the 404 are two answers.
            g.leaves = true;
        }
        if was_taken {
            g.create = Create::Done;
            return Meaning::Lost { kind: kind_of_taking(g), fact: error.message.clone() };
        }
        if g.lost.is_some() || g.delete.is_some() {
            g.create = Create::Done;
            return Meaning::Nothing;
        }
        Meaning::CreateFailed(error.clone())
    }

    /// A 404 proves that it is gone only if the create's operation is done, or if it was read so late that no create can be on its way.
    /// That it was there a moment ago proves nothing: reads of what is young come and go.
    fn read_absent(&mut self, g: &mut Generation, look: &GenerationLook, operation_done: bool) -> Meaning {
        let asked = g.asked_at.unwrap_or(g.intended_at);
        let late = look.looked_at >= asked + self.in_flight();
        let pending = matches!(&look.operation, Look::Seen(OperationView { done: false, .. }));
        let proved = match &g.create {
            // Removed by `count_failed_create`, without ending the attempt that waits for it.
            Create::Failed { .. } => false,
            Create::Done => self.is_told_twice(g, look),
            Create::Sent { operation } if operation.is_empty() => late,
            // Seen and gone before its create has ended: only the operation can tell why, so it is asked first.
            Create::Sent { .. } if g.delete.is_none() => operation_done || (look.operation == Look::Absent && late),
            // What goes on may be about to bring what was never there yet.
            Create::Sent { .. } => operation_done || (late && (!pending || g.seen_at.is_some())),
            // Without a delete the create is (re)sent instead.
            Create::Intended => (g.delete.is_some() || g.seen_at.is_some()) && late,
        };
        if !proved && g.create == Create::Done {
            return self.told_once(g);
        }
        if !proved {
            let waits_for_time = match &g.create {
                Create::Sent { operation } => operation.is_empty() || look.operation == Look::Absent,
                Create::Intended | Create::Failed { .. } | Create::Done => false,
            };
            if g.delete.is_some() || waits_for_time {
                self.wait_for_proof(g, asked + self.in_flight());
            }
            return Meaning::Nothing;
        }
        // Gone before it was ever READY, and its create's operation has no name or is not known any more: in practice there was no capacity.
        // No slice was lost.
        let nameless = matches!(&g.create, Create::Sent { operation } if operation.is_empty());
        let untold = nameless || (matches!(g.create, Create::Sent { .. }) && look.operation == Look::Absent);
        if untold && g.ready_at.is_none() && g.delete.is_none() {
            let message = "it went away before it was READY".into();
            return Meaning::CreateFailed(CreateError { kind: CreateErrorKind::HiddenStockout, message });
        }
        Meaning::Gone(ABSENT.into())
    }

    /// Looks again when no create can be on its way any more; after that the operation alone can tell, which may take long.
    fn wait_for_proof(&mut self, g: &Generation, certain: Timestamp) {
        if self.now < certain {
            return self.wake(certain);
        }
        let since = g.delete.as_ref().map_or(certain, |delete| delete.intended_at);
        match self.look_for_404_after(since) {
            Some(after) => self.wake(self.now + after.max(self.settings().poll_busy)),
            None => self.lazy = true,
        }
    }

    /// What is there under its name and is not this generation's.
    fn read_other(&self, g: &Generation, view: &SliceView) -> Option<Meaning> {
        // A create whose answer was lost took effect, if it carries our labels; else the name is somebody else's. The same of one that was
        // refused for another reason: what is there is not deleted unless it is ours.
        if !g.is_unproved() || self.is_ours(g, view) {
            return None;
        }
        if g.is_somebody_elses() {
            return Some(Meaning::Nothing);
        }
        let message = format!("{} exists in {} and is not this job's", g.name, g.placement.zone);
        Some(Meaning::CreateFailed(CreateError { kind: CreateErrorKind::NameTaken, message }))
    }

    fn read_view(&mut self, g: &mut Generation, view: &SliceView) -> Meaning {
        if let Some(other) = self.read_other(g, view) {
            return other;
        }
        if g.create == Create::Intended {
            g.create = Create::Sent { operation: String::new() };
        }
        g.seen_at.get_or_insert(self.now);
        super::absent::is_there(g, view);
        // Once it runs, what a read shows of it is no reason to end it.
        if g.ready_at.is_none()
            && g.delete.is_none()
            && let Some(message) = view.difference(&g.placement, self.job.spec.tpu.topology.as_deref())
        {
            return Meaning::CreateFailed(CreateError { kind: CreateErrorKind::Other, message });
        }
        // One without a state may be out of it: the limit of a create begins now, and the next that shows the queue takes that back.
        if g.queued_until.is_some() && view.state != SliceState::Queued {
            g.left_queue_at.get_or_insert(self.now);
        }
        let preemptible = g.placement.capacity.is_preemptible();
        let taken = |otherwise| if preemptible { FailureKind::Preempted } else { otherwise };
        let word = view.note.clone().map(|n| format!(" ({n})")).unwrap_or_default();
        match &view.state {
            SliceState::Ready => {
                self.read_ready(g, view);
                Meaning::Nothing
            }
            SliceState::InTransition(_) | SliceState::Unrecognized(_) => {
                if g.ready_at.is_some() {
                    g.unhealthy_since.get_or_insert(self.now);
                }
                Meaning::Nothing
            }
            // Taken back while it was being made: a queue has no other way to say that there was no capacity in the end.
            SliceState::Preempted | SliceState::Stopped if self.never_came(g) => Meaning::CreateFailed(CreateError {
                kind: CreateErrorKind::HiddenStockout,
                message: format!("the queued resource was suspended before it was READY{word}"),
            }),
            SliceState::Preempted => {
                Meaning::Lost { kind: kind_of_taking(g), fact: format!("the API says PREEMPTED{word}") }
            }
            SliceState::Terminated => {
                Meaning::Lost { kind: taken(FailureKind::Maintenance), fact: format!("the API says TERMINATED{word}") }
            }
            SliceState::Stopped => {
                Meaning::Lost { kind: taken(FailureKind::Lost), fact: format!("the API says STOPPED{word}") }
            }
            SliceState::Failed if g.ready_at.is_none() => Meaning::CreateFailed(self.failure_of(g, view)),
            // A queued resource itself, after its nodes were there: SUSPENDING may end so, too.
            SliceState::Failed if g.via == Via::QueuedResource && view.error.is_some() => Meaning::Lost {
                kind: taken(FailureKind::Lost),
                fact: format!("the API says that the queued resource FAILED{word}"),
            },
            // Nobody says why, and that somebody took it least of all.
            SliceState::Failed => {
                Meaning::Lost { kind: FailureKind::Lost, fact: format!("the API says that it failed{word}") }
            }
            SliceState::Deleting if g.delete.is_none() => Meaning::Lost {
                kind: taken(FailureKind::Lost),
                fact: "the API says DELETING, and we did not delete it".into(),
            },
            SliceState::Queued => {
                (g.queued_until, g.left_queue_at) = (Some(self.now), None);
                Meaning::Nothing
            }
            SliceState::Deleting | SliceState::Creating | SliceState::Unspecified => Meaning::Nothing,
        }
    }

    /// Why a queued resource FAILED.
    fn failure_of(&self, g: &Generation, view: &SliceView) -> CreateError {
        let untold = || CreateError { kind: CreateErrorKind::Other, message: "the queued resource FAILED".into() };
        let mut error = view.error.clone().unwrap_or_else(untold);
        // It means a name within: this resource itself is ours, and is deleted.
        if error.kind == CreateErrorKind::NameTaken && self.is_ours(g, view) {
            error.kind = CreateErrorKind::Other;
        }
        error
    }

    /// True of a queued resource that was never READY, and of which no machine has spoken.
    fn never_came(&self, g: &Generation) -> bool {
        let heard = || self.seen.workers.iter().flatten().any(|r| r.generation == g.number);
        let undecided = g.ready_at.is_none() && g.lost.is_none() && g.delete.is_none();
        g.via == Via::QueuedResource && undecided && !heard()
    }

    fn is_ours(&self, g: &Generation, view: &SliceView) -> bool {
        let job = &self.job;
        names::are_labels_of(&view.labels, self.rules.installation, &job.id, g.number, &job.spec_hash)
    }

    fn read_ready(&mut self, g: &mut Generation, view: &SliceView) {
        if matches!(g.create, Create::Failed { .. }) {
            return;
        }
        g.create = Create::Done;
        if !view.addresses.is_empty() {
            g.addresses.clone_from(&view.addresses);
        }
        if g.ready_at.is_none() && g.delete.is_none() {
            g.ready_at = Some(self.now);
            self.notes.push(format!("generation {} is READY in {}", g.number, g.placement.zone));
            self.job.barred.retain(|b| b.placement != g.placement);
        }
        match view.health {
            Health::Healthy => g.unhealthy_since = None,
            Health::Maintenance | Health::Unhealthy(_) => {
                g.unhealthy_since.get_or_insert(self.now);
            }
        }
    }

    /// The slice is lost: charged once, its program ended, its remains deleted.
    pub(super) fn lose(&mut self, number: u32, kind: FailureKind, fact: &str) {
        let now = self.now;
        let Some(g) = self.generation_mut(number) else { return };
        if g.lost.is_some() {
            return;
        }
        let ours = g.delete.is_some();
        g.lost = Some(Lost { at: now, kind, fact: fact.to_owned() });
        let text = format!("generation {number} is lost: {fact}");
        self.note(text);
        if ours && matches!(kind, FailureKind::Preempted | FailureKind::Maintenance) {
            // A delete of ours does not end so: what was taken for silence, and deleted for it, was this.
            self.explain_by_loss(number, kind, fact);
        }
        if !ours {
            self.end_by_loss(number, kind, fact);
        }
    }

    /// The API proves that nothing of the generation is left.
    fn gone(&mut self, number: u32, fact: &str) {
        let Some(g) = self.job.generation(number) else { return };
        let kind = kind_of_vanishing(g);
        let expected = g.delete.is_some() || g.lost.is_some();
        if !expected {
            self.lose(number, kind, fact);
        }
        // The slice counts as gone when the notice is over.
        if let Some(until) = self.job.generation(number).and_then(|g| self.saves_until(g))
            && self
                .job
                .attempts
                .iter()
                .any(|a| a.generation == number && a.fenced_at.is_none() && a.released_at.is_some())
        {
            self.wake(until);
            return;
        }
        let since = self.job.generation(number).and_then(|g| g.ended_since).unwrap_or(self.now);
        let open = |a: &&mut Attempt| a.generation == number && a.fenced_at.is_none();
        for a in self.job.attempts.iter_mut().filter(open) {
            a.gone_since.get_or_insert(since);
        }
        self.job.generations.retain(|g| g.number != number);
        self.note(format!("generation {number} is gone"));
    }

    /// Attempts whose slice is gone cannot be running: those that had been released, some seconds after the API said so.
    fn fence_gone(&mut self) {
        let after = self.settings().power_off / AFTER_404;
        let gone =
            |a: &Attempt| Some((a.number, a.gone_since?, a.released_at.is_some())).filter(|_| a.fenced_at.is_none());
        for (attempt, since, was_released) in self.job.attempts.iter().filter_map(gone).collect::<Vec<_>>() {
            if !was_released || self.over(since, after) || self.job.outcome.is_some() {
                self.fence(attempt);
            } else {
                self.wake(since + after);
            }
        }
    }

    /// The create brought nothing: remember where, and let go of the generation once nothing of it is left. Its number (and the attempt that
    /// waits for it) is used again at the next place.
    fn count_failed_create(&mut self, number: u32, look: &GenerationLook) {
        let Some(g) = self.job.generation(number) else { return };
        let Create::Failed { error, counted } = &g.create else { return };
        let (error, counted, placement) = (error.clone(), *counted, g.placement.clone());
        // An earlier request without an answer may still arrive, and its name would be used again.
        let in_flight_until = g.asked_at.unwrap_or(g.intended_at) + self.in_flight();
        // What was seen of it may be hidden from the next read, until its operation has ended.
        let is_done = matches!(&look.operation, Look::Seen(OperationView { done: true, .. }));
        let is_told = g.seen_at.is_none() || is_done;
        let settled = (was_asked_once(g) && is_told) || look.looked_at >= in_flight_until;
        let is_heard = self.is_heard(number);
        // Nobody has proved that nothing has its name.
        let may_be_there = look.slice == Look::Unknown && !was_asked_once(g);
        let nothing_is_ours = (look.slice == Look::Absent && settled) || made_nothing(g, error.kind, look, is_heard);
        if !settled {
            self.wake(in_flight_until);
        }
        if !counted {
            self.note(format!("no {} in {}: {}", placement.accelerator, placement.zone, error.message));
            self.bar(placement, &error);
            if let Some(g) = self.generation_mut(number) {
                g.create = Create::Failed { error, counted: true };
            }
        }
        if nothing_is_ours {
            self.let_go_of_failed(number, may_be_there);
        }
    }

    /// Its number is used again at the next place, unless a VM has spoken for it: then its documents would meet those of other VMs. Nor at the same
    /// one while a delete of it may still arrive, nor where it may be there.
    fn let_go_of_failed(&mut self, number: u32, may_be_there: bool) {
        if self.seen.workers.is_none() {
            return;
        }
        let deleted = self.job.generation(number).filter(|g| g.delete.is_some()).map(|g| g.placement.clone());
        self.job.generations.retain(|g| g.number != number);
        let waiting = self.job.attempts.last().filter(|a| a.generation == number && a.ended.is_none());
        let Some((attempt, resume)) = waiting.map(|a| (a.number, a.resume)) else { return };
        if !self.is_heard(number) {
            if may_be_there {
                return self.renumber(number);
            }
            let Some(place) = deleted else { return };
            let until = self.now + self.in_flight();
            match self.job.barred.iter_mut().find(|b| b.placement == place) {
                Some(barred) => barred.deletes_until = Some(until),
                None => self.renumber(number),
            }
            return;
        }
        self.order_stop(attempt, StopCause::Lost, self.now);
        self.fence(attempt);
        let not_before = self.job.next.as_ref().map_or(self.now, |n| n.not_before);
        self.job.next =
            Some(Next { not_before, resume, from_scratch: false, new_generation: true, why: Reason::Stockout });
    }

    pub(super) fn bar(&mut self, placement: Placement, error: &CreateError) {
        // With another generation of this job still there, the refusal is our own husk's: no cool-down, no other zone.
        if self.own_husk_fills(&placement, error.kind) {
            if let Some(old) = self.job.generations.first_mut() {
                old.blocks_quota = true;
            }
            return;
        }
        if error.kind == CreateErrorKind::Cancelled {
            return;
        }
        if error.kind == CreateErrorKind::NotQueueable {
            if !self.job.unqueueable.contains(&placement.accelerator) {
                self.job.unqueueable.push(placement.accelerator.clone());
            }
            // Nothing was said against the place, and it had cooled down: a node is asked for there at once.
            if placement::comes_as_node(&self.job, &placement.accelerator) {
                return;
            }
        }
        if error.kind == CreateErrorKind::RateLimit {
            // Per minute and project: another zone would meet it too.
            let resume = self.job.attempts.last().is_some_and(|a| a.resume);
            let (not_before, why) = (self.now + self.settings().rate_cooldown, Reason::RateLimit);
            self.job.next = Some(Next { not_before, resume, from_scratch: false, new_generation: true, why });
            return;
        }
        if matches!(error.kind, CreateErrorKind::Stockout | CreateErrorKind::HiddenStockout) {
            self.job.counters.stockouts += 1;
        }
        let before = self.job.barred.iter().find(|b| b.placement == placement);
        let (times, deletes_until) = before.map_or((1, None), |b| (b.times + 1, b.deletes_until));
        let until = self.bar_until(&placement, error, times);
        self.job.barred.retain(|b| b.placement != placement);
        // What is wrong for this job alone (its rights, its reservation, the name) says nothing to the others.
        let own = matches!(
            error.kind,
            CreateErrorKind::Forbidden
                | CreateErrorKind::NotOffered
                | CreateErrorKind::NotQueueable
                | CreateErrorKind::Reservation
                | CreateErrorKind::NameTaken
                | CreateErrorKind::Other
        );
        if let Some(until) = until.filter(|_| !own) {
            self.zone_reports.push(ZoneReport {
                placement: placement.clone(),
                cool_until: until,
                error: error.clone(),
            });
        }
        self.job.barred.push(Barred { placement, until, error: error.clone(), times, deletes_until });
    }

    /// Whether what a create was refused for is held by an earlier generation of this job.
    fn own_husk_fills(&self, placement: &Placement, refusal: CreateErrorKind) -> bool {
        let [old, _, ..] = self.job.generations.as_slice() else { return false };
        let old = &old.placement;
        match refusal {
            CreateErrorKind::Quota => true,
            CreateErrorKind::AddressQuota => catalog::region_of(&old.zone) == catalog::region_of(&placement.zone),
            CreateErrorKind::Reservation => {
                let kinds = [old.capacity, placement.capacity];
                kinds == [CapacityKind::Reserved; 2] && old.zone == placement.zone
            }
            CreateErrorKind::Stockout
            | CreateErrorKind::HiddenStockout
            | CreateErrorKind::RateLimit
            | CreateErrorKind::NotOffered
            | CreateErrorKind::NotQueueable
            | CreateErrorKind::Forbidden
            | CreateErrorKind::PreemptedWhileCreating
            | CreateErrorKind::NameTaken
            | CreateErrorKind::Cancelled
            | CreateErrorKind::Other => false,
        }
    }

    /// `None`: this place will not do for this job.
    fn bar_until(&self, placement: &Placement, error: &CreateError, times: u32) -> Option<Timestamp> {
        let s = self.settings();
        let doubled =
            |d: std::time::Duration| (d * 2_u32.pow(times.saturating_sub(1).min(4))).min(s.backoff_max.max(d));
        // What a job asks for is right once it has run; then it is the deployment's mistake, and is mended.
        let never_ran = self.job.first_started_at.is_none();
        match error.kind {
            CreateErrorKind::Stockout => Some(self.now + s.stockout_cooldown),
            CreateErrorKind::NotOffered | CreateErrorKind::NotQueueable if never_ran => None,
            // The zone has nothing but reservations.
            CreateErrorKind::Reservation if never_ran && placement.capacity != CapacityKind::Reserved => None,
            CreateErrorKind::HiddenStockout | CreateErrorKind::Reservation | CreateErrorKind::AddressQuota => {
                Some(self.now + doubled(s.stockout_cooldown))
            }
            // Rights come back (and are lost by mistake); a job is not given up for them.
            CreateErrorKind::Forbidden
            | CreateErrorKind::Quota
            | CreateErrorKind::Other
            | CreateErrorKind::NotOffered
            | CreateErrorKind::NotQueueable => Some(self.now + doubled(s.quota_cooldown)),
            // The next create there has another name.
            CreateErrorKind::NameTaken
            | CreateErrorKind::RateLimit
            | CreateErrorKind::Cancelled
            | CreateErrorKind::PreemptedWhileCreating => Some(self.now + s.rate_cooldown),
        }
    }
}
