//! Ends of programs beside an announced end of their slice: which of the two explains the other.

use super::cases::{decided, report, running, seen, view};
use crate::classify::{Exit, WorkerEvidence};
use crate::failure::FailureKind;
use crate::fixture::at;
use crate::job::{Job, Outcome};
use crate::observation::{
    ExitReport, Health, Liveness, Look, Notice, NoticeKind, SliceState, SliceView, WorkerReport, WorkerState,
};

const WEEK: i64 = 7 * 24 * 3600;

fn notice(kind: NoticeKind, seen: i64, deadline: i64) -> Notice {
    Notice { kind, seen_at: at(seen), deadline: at(deadline) }
}

/// What becomes of a job whose four workers have ended so at second 100, with a notice that each of them was given.
fn ends(notice: &Notice, exit: Exit, now: i64) -> Job {
    end_as(notice, exit, false, now)
}

fn end_as(notice: &Notice, exit: Exit, ordered: bool, now: i64) -> Job {
    let job = running();
    let of = |n| {
        let tail = if exit == Exit::Code(0) { "" } else { "Traceback (most recent call last):\nValueError: x\n" };
        let evidence = WorkerEvidence { index: n, exit, tail: tail.into(), ..WorkerEvidence::default() };
        let exit = ExitReport { at: at(100), ordered, evidence };
        WorkerReport { notice: Some(notice.clone()), ..report(n, WorkerState::Exited, Some(exit)) }
    };
    let ready = Look::Seen(view(&job, SliceState::Ready, true));
    Job::clone(&decided(&job, &seen(&job, &ready, Some((0..4).map(of).collect()), now), now).job)
}

fn kind(job: &Job) -> Option<FailureKind> {
    job.last_end.as_ref().and_then(|end| end.ended.kind)
}

#[test]
fn maintenance_of_next_week_explains_no_end_of_today() {
    let next_week = notice(NoticeKind::Maintenance, 50, WEEK);
    assert_eq!(ends(&next_week, Exit::Code(0), 101).outcome, Some(Outcome::Succeeded));
    let failed = ends(&next_week, Exit::Code(1), 101);
    assert_eq!((kind(&failed), failed.counters.user_failures), (Some(FailureKind::UserError), 1));
    let now = notice(NoticeKind::Maintenance, 50, 130);
    for exit in [Exit::Code(0), Exit::Code(1)] {
        assert_eq!(kind(&ends(&now, exit, 101)), Some(FailureKind::Maintenance), "{exit:?}");
    }
}

#[test]
fn maintenance_of_next_week_holds_back_nothing_of_a_slice_that_is_lost_today() {
    let job = running();
    let next_week = notice(NoticeKind::Maintenance, 50, WEEK);
    let of = |n| WorkerReport { notice: Some(next_week.clone()), ..report(n, WorkerState::Running, None) };
    let workers = || Some((0..4).map(of).collect());
    let then = |job: &Job, look: &Look<_>, secs| Job::clone(&decided(job, &seen(job, look, workers(), secs), secs).job);
    let preempted = Look::Seen(SliceView { ended: true, ..view(&job, SliceState::Preempted, true) });
    let lost = then(&job, &preempted, 100);
    assert!(lost.generations[0].lost.is_some() && lost.generations[0].notice.is_some());
    let soon = then(&lost, &preempted, 170);
    let first = |job: &Job| job.generations.iter().find(|g| g.number == 1).cloned();
    assert!(first(&soon).is_some_and(|g| g.delete.is_some()), "{soon:?}");
    assert!(soon.attempts.iter().all(|a| a.number != 1 || a.fenced_at.is_some()), "its machines are off: {soon:?}");
    assert!(first(&then(&lost, &Look::Absent, 101)).is_none(), "it is gone");
}

#[test]
fn the_sentence_of_a_notice_is_true_before_and_after_the_slice_went() {
    let soon = notice(NoticeKind::Preemption, 100, 130);
    let job = running();
    let of = |n| WorkerReport { notice: Some(soon.clone()), ..report(n, WorkerState::Running, None) };
    let ready = Look::Seen(view(&job, SliceState::Ready, true));
    let after = decided(&job, &seen(&job, &ready, Some((0..4).map(of).collect()), 101), 101).job;
    let told = after.last_end.as_ref().map(|end| end.ended.summary.as_str());
    assert_eq!(
        told,
        Some("the provider announced that it takes generation 1 away at 2026-03-01T12:02:10Z (preempted)")
    );
}

/// Its clock was ahead of ours: it ended the program a little before we would have.
#[test]
fn what_an_agent_ended_for_its_own_notice_is_no_success() {
    for exit in [Exit::Code(0), Exit::Code(143)] {
        let early = notice(NoticeKind::Maintenance, 50, 170);
        let job = end_as(&early, exit, true, 101);
        assert_eq!((job.outcome, kind(&job)), (None, Some(FailureKind::Maintenance)), "{exit:?}");
    }
    // It was called off before it was told: what is known is another one, which ends nothing.
    let moved = end_as(&notice(NoticeKind::Migration, 50, 170), Exit::Code(0), true, 101);
    assert_eq!((moved.outcome, kind(&moved)), (None, Some(FailureKind::Maintenance)));
    let by_itself = end_as(&notice(NoticeKind::Migration, 50, 170), Exit::Code(0), false, 101);
    assert_eq!(by_itself.outcome, Some(Outcome::Succeeded));
}

#[test]
fn what_ended_well_before_its_notice_is_a_success_whenever_it_is_told() {
    for late in [
        notice(NoticeKind::Preemption, 101, 131),
        // Announced for long, and urgent only after the end.
        notice(NoticeKind::Maintenance, 50, 165),
    ] {
        assert_eq!(ends(&late, Exit::Code(0), 110).outcome, Some(Outcome::Succeeded), "{late:?}");
    }
    let before = notice(NoticeKind::Preemption, 99, 129);
    assert_eq!(kind(&ends(&before, Exit::Code(0), 110)), Some(FailureKind::Preempted));
}

#[test]
fn an_unhealthy_slice_is_kept_while_its_workers_cannot_tell_of_a_notice() {
    let job = running();
    let unhealthy = Health::Unhealthy("UNHEALTHY_TENSORFLOW".into());
    let bad = Look::Seen(SliceView { health: unhealthy, ..view(&job, SliceState::Ready, true) });
    let heard = |secs| {
        let of = |n| WorkerReport { heard_at: at(secs), ..report(n, WorkerState::Running, None) };
        Some((0..4).map(of).collect::<Vec<_>>())
    };
    let found = decided(&job, &seen(&job, &bad, heard(99), 100), 100).job;
    let after = |workers: Option<Vec<WorkerReport>>, (since, through): (i64, i64), secs| {
        let mut seen = seen(&found, &bad, workers, secs);
        seen.liveness = Liveness { since: Some(at(since)), through: Some(at(through)) };
        decided(&found, &seen, secs).job
    };
    let gives_up = |job: &Job| job.generations.iter().any(|g| g.delete.is_some());
    assert!(!gives_up(&after(heard(398), (0, 399), 399)));
    assert!(gives_up(&after(heard(399), (0, 400), 400)), "its grace is over");
    let unread = after(None, (0, 400), 400);
    assert!(!gives_up(&unread) && unread.wake_at.is_some_and(|wake| wake <= at(405)), "{:?}", unread.wake_at);
    // `api` has taken no call since the second 130.
    assert!(!gives_up(&after(heard(130), (0, 130), 400)));
    assert!(!gives_up(&after(heard(130), (3600, 3600), 3601)), "and is back just now");
    assert!(gives_up(&after(heard(3601), (3600, 3600), 3602)), "they have told that there is none");
    let mut told = heard(3601);
    for report in told.iter_mut().flatten() {
        report.notice = Some(notice(NoticeKind::Preemption, 3590, 3620));
    }
    let saves = after(told, (3600, 3600), 3602);
    assert_eq!((kind(&saves), gives_up(&saves)), (Some(FailureKind::Preempted), false));
    assert!(gives_up(&after(heard(130), (3600, 3700), 3700)), "or are silent by then");
}
