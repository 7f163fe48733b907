//! What a 404 is worth for a slice that was made: one answer may be wrong.

use jiff::Timestamp;

use super::Pass;
use super::look::Meaning;
use crate::failure::FailureKind;
use crate::job::{Desired, Generation};
use crate::observation::{GenerationLook, SliceState, SliceView};
use crate::orders::notice_is_urgent;

/// By its 404 a slice has been going down for long: its machines get this part of the time to go off that they get after PREEMPTED.
// Nothing says that a machine is off before its node's name is free. Ten seconds cost nothing where another slice is to be made; without
// them a program met the next one in the simulation (X07-the-fence-holds).
pub(super) const AFTER_404: u32 = 6;

/// What a person is told of a slice that is not there.
pub(super) const ABSENT: &str = "the API says 404";

/// What it is when a slice is not there any more, and nobody says why.
pub(super) const fn kind_of_vanishing(g: &Generation) -> FailureKind {
    if g.placement.capacity.is_preemptible() { FailureKind::Preempted } else { FailureKind::Lost }
}

/// A read shows it. A 404 follows by itself when all of its machines are off, or it is being deleted, or has failed: of a slice of many, and of a
/// queued resource that is SUSPENDING, the worst state is shown while machines are on.
pub(super) fn is_there(g: &mut Generation, view: &SliceView) {
    g.absent_since = None;
    if view.state != SliceState::Unspecified {
        g.leaves = view.ended || matches!(view.state, SliceState::Deleting | SliceState::Failed);
    }
}

impl Pass<'_> {
    /// Whether a 404 is more than one answer alone: the API's last word was that it leaves, or it says 404 again, as long after as machines get to
    /// go off. That a delete is taken says that it was there, and the time begins anew.
    pub(super) fn is_told_twice(&mut self, g: &mut Generation, look: &GenerationLook) -> bool {
        let since = *g.absent_since.get_or_insert(look.looked_at);
        let again = since + self.settings().power_off / AFTER_404;
        let is_told = g.leaves || look.looked_at >= again;
        if !is_told {
            self.wake(again);
        }
        is_told
    }

    /// What the first 404 means. The next slice is asked for now; this one is deleted by its name, whatever the answer was worth. Where none is
    /// asked for, since the job is to stop, has its end or has had its notice, no time is lost by waiting for the second answer.
    pub(super) fn told_once(&self, g: &Generation) -> Meaning {
        let is_news = g.delete.is_none() && g.lost.is_none();
        let goes_on = self.job.outcome.is_none() && self.job.desired == Desired::Run && self.saves_until(g).is_none();
        let lost = || Meaning::Lost { kind: kind_of_vanishing(g), fact: ABSENT.into() };
        if is_news && goes_on { lost() } else { Meaning::Nothing }
    }

    /// Until when its programs may still be saving, for a notice that is not over: till then nothing is deleted, and the next slice was asked for.
    /// Maintenance of next week ends nothing now, so that nobody saves for it.
    pub(super) fn saves_until(&self, g: &Generation) -> Option<Timestamp> {
        let notice = g.notice.as_ref().filter(|n| notice_is_urgent(n, self.now))?;
        Some(notice.deadline).filter(|deadline| self.now < *deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases::{decided, report, running, seen, view, with};
    use super::super::{EffectOutcome, record};
    use crate::classify::{Exit, WorkerEvidence};
    use crate::effect::Effect;
    use crate::fixture::{at, generation};
    use crate::job::{Create, Delete, Generation, Job, Outcome};
    use crate::observation::{
        CreateError, CreateErrorKind, ExitReport, Look, Notice, NoticeKind, Observation, OperationView, SliceState,
        SliceView, WorkerReport, WorkerState,
    };

    /// Generation 1 is looked at so; of others nothing is known.
    fn looks(job: &Job, look: &Look<SliceView>, secs: i64) -> Observation {
        let mut seen = seen(job, look, Some(Vec::new()), secs);
        seen.generations.iter_mut().filter(|g| g.number != 1).for_each(|g| g.slice = Look::Unknown);
        seen
    }

    fn after(job: &Job, look: &Look<SliceView>, secs: i64) -> Job {
        Job::clone(&decided(job, &looks(job, look, secs), secs).job)
    }

    fn in_state(job: &Job, state: SliceState) -> Look<SliceView> {
        let ended = state == SliceState::Stopped;
        Look::Seen(SliceView { ended, ..view(job, state, true) })
    }

    fn answered(job: &Job, answer: EffectOutcome, secs: i64) -> Job {
        record(job, &[answer], at(secs)).0
    }

    fn refused(job: &Job, secs: i64) -> Job {
        answered(job, EffectOutcome::DeleteFailed { generation: 1, why: "503".into() }, secs)
    }

    fn is_taken(job: &Job, secs: i64) -> Job {
        answered(job, EffectOutcome::DeleteSent { generation: 1 }, secs)
    }

    /// Whether generation 1 is still owned, and whether its program is known to be over.
    fn told(job: &Job) -> (bool, bool) {
        let fenced = job.attempts.iter().find(|a| a.number == 1).is_none_or(|a| a.fenced_at.is_some());
        (job.generation(1).is_some(), fenced)
    }

    const RUNS: (bool, bool) = (true, false);

    #[test]
    fn one_404_loses_a_slice_and_a_second_one_some_seconds_later_fences_its_attempt() {
        let job = running();
        let asked = decided(&job, &looks(&job, &Look::Absent, 200), 200);
        assert!(asked.effects.contains(&Effect::DeleteGeneration { generation: 1 }), "by its name: {:?}", asked.notes);
        let once = Job::clone(&asked.job);
        let [old, new] = once.generations.as_slice() else { panic!("{:?}", once.generations) };
        assert!(old.lost.is_some() && old.delete.is_some() && new.create == Create::Intended, "{}", once.message);
        assert!(once.wake_at.is_some_and(|wake| wake <= at(210)), "{:?}", once.wake_at);
        let look = |secs| told(&after(&once, &Look::Absent, secs));
        assert_eq!((look(209), look(210)), (RUNS, (false, false)));
        assert!(told(&after(&after(&once, &Look::Absent, 210), &Look::Absent, 220)).1, "its machines get their time");
        // Where its delete is refused, the same.
        assert_eq!(told(&after(&refused(&once, 201), &Look::Absent, 202)), RUNS);
        assert_eq!(told(&after(&refused(&once, 201), &Look::Absent, 210)), (false, false));
        // It was wrong: the delete goes on.
        let back = after(&once, &in_state(&job, SliceState::Ready), 230);
        assert_eq!((told(&back), back.generations[0].delete.is_some()), (RUNS, true));
        assert_eq!(told(&after(&back, &Look::Absent, 231)), RUNS, "a loss by a 404 is no second answer");
    }

    #[test]
    fn what_the_api_said_to_be_off_is_gone_by_one_404_unless_it_was_started_again() {
        let job = running();
        let lost = refused(&after(&job, &in_state(&job, SliceState::Stopped), 200), 201);
        let gone = after(&lost, &Look::Absent, 202);
        assert_eq!(told(&gone), (false, false), "the next slice is not held up");
        assert_eq!([209, 260].map(|secs| told(&after(&gone, &Look::Absent, secs)).1), [false, true]);
        let back = refused(&after(&lost, &in_state(&job, SliceState::Ready), 270), 270);
        assert_eq!(told(&after(&back, &Look::Absent, 271)), RUNS);
        // Of several slices one was taken; the machines of the others are on.
        let part = Look::Seen(SliceView { ended: false, ..view(&job, SliceState::Preempted, true) });
        let part = refused(&after(&job, &part, 200), 201);
        assert_eq!(told(&after(&part, &Look::Absent, 202)), RUNS);
        let deleting = after(&part, &in_state(&job, SliceState::Deleting), 202);
        assert_eq!(told(&after(&deleting, &Look::Absent, 203)), (false, false));
    }

    #[test]
    fn a_delete_that_is_taken_says_that_it_was_there() {
        let once = after(&running(), &Look::Absent, 200);
        let then = after(&is_taken(&once, 201), &Look::Absent, 202);
        assert_eq!(told(&then), RUNS);
        assert_eq!(told(&after(&then, &Look::Unknown, 210)), RUNS, "nobody has looked");
        assert_eq!([211, 212].map(|secs| told(&after(&then, &Look::Absent, secs))), [RUNS, (false, false)]);
        // The time begins anew with the first answer after it.
        let blind = after(&refused(&once, 201), &Look::Unknown, 300);
        let first = after(&is_taken(&blind, 300), &Look::Absent, 340);
        assert_eq!((told(&first), told(&after(&first, &Look::Absent, 350))), (RUNS, (false, false)));
        // Deleted for its silence, and computing on.
        let mut silent = running();
        silent.generations[0].delete =
            Some(Delete { intended_at: at(300), sent_at: Some(at(300)), tries: 1, last_error: None });
        let once = after(&silent, &Look::Absent, 301);
        assert_eq!((told(&once), told(&after(&once, &Look::Unknown, 311))), (RUNS, RUNS));
        assert!(once.generations.len() == 2, "the next one is asked for: {}", once.message);
    }

    #[test]
    fn a_delete_that_found_nothing_is_sent_again_as_soon_as_it_shows() {
        let job = running();
        let missed = EffectOutcome::DeleteNotFound { generation: 1 };
        let missed = answered(&after(&job, &Look::Absent, 200), missed, 201);
        let ready = in_state(&job, SliceState::Ready);
        let back = decided(&missed, &looks(&missed, &ready, 205), 205);
        assert!(back.effects.contains(&Effect::DeleteGeneration { generation: 1 }), "{:?}", back.notes);
        assert_eq!(told(&after(&back.job, &Look::Absent, 206)), RUNS);
    }

    #[test]
    fn where_no_slice_is_asked_for_next_the_first_404_ends_nothing() {
        let mut job = running();
        job.spec.outputs = vec!["results".into()];
        let well = |worker: u32| {
            let evidence = WorkerEvidence { index: worker, exit: Exit::Code(0), ..WorkerEvidence::default() };
            let exit = ExitReport { at: at(100), ordered: false, evidence };
            WorkerReport { is_collecting: true, ..report(worker, WorkerState::Exited, Some(exit)) }
        };
        let look = |job: &Job, look: &Look<SliceView>, secs| {
            decided(job, &seen(job, look, Some((0..4).map(well).collect()), secs), secs)
        };
        let done = look(&job, &in_state(&job, SliceState::Ready), 100).job;
        assert_eq!(done.outcome, Some(Outcome::Succeeded));
        let once = look(&done, &Look::Absent, 110);
        assert!(!once.effects.contains(&Effect::DeleteGeneration { generation: 1 }), "{:?}", once.notes);
        assert!(look(&once.job, &Look::Absent, 120).job.generations.is_empty());
    }

    #[test]
    fn after_a_notice_the_machines_have_their_time_from_its_deadline() {
        let mut job = running();
        job.generations[0].notice = Some(Notice { kind: NoticeKind::Preemption, seen_at: at(200), deadline: at(230) });
        let noticed = after(&job, &in_state(&job, SliceState::Ready), 200);
        let once = decided(&noticed, &looks(&noticed, &Look::Absent, 205), 205);
        let second = decided(&once.job, &looks(&once.job, &Look::Absent, 216), 216);
        let deletes = |effects: &[Effect]| effects.contains(&Effect::DeleteGeneration { generation: 1 });
        assert!(![&once, &second].iter().any(|decision| deletes(&decision.effects)), "it saves");
        let twice = Job::clone(&second.job);
        let over = after(&twice, &Look::Absent, 230);
        assert_eq!((told(&twice).1, told(&over).1), (false, false));
        assert!(told(&after(&over, &Look::Absent, 240)).1);
    }

    #[test]
    fn the_end_of_an_operation_and_a_404_are_two_answers() {
        let create = Create::Sent { operation: "op".into() };
        let job = with(Generation { create, asked_at: Some(at(0)), seen_at: Some(at(1)), ..generation(1) });
        let mut seen = looks(&job, &Look::Absent, 100);
        let error = CreateError { kind: CreateErrorKind::PreemptedWhileCreating, message: "preempted".into() };
        seen.generations[0].operation = Look::Seen(OperationView { done: true, error: Some(error) });
        let after = decided(&job, &seen, 100).job;
        assert!(after.generation(1).is_none(), "{}", after.message);
    }
}
