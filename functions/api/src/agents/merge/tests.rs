//! What a report leaves of what was known.

use rekindle_core::classify::WorkerEvidence;
use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::observation::{ExitReport, NoticeKind};
use rekindle_wire::agent::Progress;

use super::*;

fn at(secs: i64) -> Timestamp {
    Timestamp::from_second(1_795_000_000 + secs).unwrap()
}

fn report(state: WorkerState) -> Report {
    Report {
        job: JobId::parse("j").unwrap(),
        generation: 1,
        key: WorkerKey { slice: 0, worker: 0 },
        instance: "vm".into(),
        boot_id: "b".into(),
        attempt: 1,
        store: true,
        state,
        started_at: None,
        progress: Progress::default(),
        output_at: None,
        disk_free_bytes: None,
        memory_free_bytes: None,
        notice: None,
        exit: None,
        has_work: true,
        has_bell: false,
        is_collecting: false,
        has_unsent: false,
    }
}

fn notice(kind: NoticeKind, deadline: i64) -> Notice {
    Notice { kind, seen_at: at(0), deadline: at(deadline) }
}

#[test]
fn levels_replace_and_facts_stay() {
    let mut first = report(WorkerState::Preparing);
    first.progress = Progress {
        step: Some(10),
        step_at: Some(at(1)),
        loss: Some("3".into()),
        checkpoint: Some(8),
        resumed_from: Some(4),
    };
    first.disk_free_bytes = Some(7);
    first.started_at = Some(at(0));
    let known = merge(None, &first, "10.0.0.1", at(2), false);
    let next = merge(Some(&known), &report(WorkerState::Ready), "", at(3), false);
    assert_eq!((next.state, next.heard_at), (WorkerState::Ready, at(3)));
    assert_eq!((next.step, next.checkpoint, next.resumed_from), (Some(10), Some(8), Some(4)));
    assert_eq!((next.loss.as_deref(), next.address.as_str(), next.disk_free_bytes), (Some("3"), "10.0.0.1", Some(7)));
    assert_eq!(next.started_at, Some(at(0)));
}

#[test]
fn a_worker_that_prepares_again_without_a_boot_has_lost_its_program_unless_the_word_of_it_is_old() {
    let ready = report(WorkerState::Ready);
    let began = Report { started_at: Some(at(0)), ..report(WorkerState::Running) };
    let runs = merge(None, &began, "", at(0), false);
    let late = merge(Some(&runs), &ready, "", at(1), false);
    assert_eq!((late.state, late.less_since), (WorkerState::Running, Some(at(1))), "it may be of an earlier moment");
    let again = merge(Some(&late), &began, "", at(2), false);
    assert_eq!((again.state, again.less_since), (WorkerState::Running, None));
    let same = merge(Some(&late), &ready, "", at(900), false);
    assert_eq!((same.state, same.less_since), (WorkerState::Running, Some(at(1))));
    let lost = merge(Some(&same), &ready, "", at(901), false);
    assert_eq!((lost.state, lost.less_since), (WorkerState::Ready, None), "it says so for long");
    let told = Report { started_at: Some(at(0)), ..ready };
    let gone = merge(Some(&runs), &told, "", at(1), false);
    assert_eq!(gone.state, WorkerState::Ready, "it knows that it had begun");
}

#[test]
fn the_newest_checkpoint_replaces_a_higher_one() {
    let with = |step: u64, checkpoint: Option<u64>| Report {
        progress: Progress { step: Some(step), step_at: Some(at(1)), checkpoint, ..Progress::default() },
        ..report(WorkerState::Running)
    };
    let known = merge(None, &with(100, Some(100)), "", at(2), false);
    let next = merge(Some(&known), &with(100, Some(90)), "", at(3), false);
    assert_eq!(next.checkpoint, Some(90), "the program went back, and saved there");
    assert_eq!(merge(Some(&next), &with(110, None), "", at(4), false).checkpoint, Some(90));
    assert_eq!(merge(Some(&next), &with(99, Some(80)), "", at(4), false).checkpoint, Some(90), "late");
}

#[test]
fn collecting_begins_with_the_exit_and_ends_once() {
    let exit = ExitReport { at: at(1), ordered: false, evidence: WorkerEvidence::default() };
    let told = Report { exit: Some(exit), is_collecting: true, ..report(WorkerState::Exited) };
    let known = merge(None, &told, "", at(2), false);
    assert!(known.is_collecting);
    let late = merge(Some(&known), &report(WorkerState::Running), "", at(3), false);
    assert!(late.is_collecting, "a heartbeat of an earlier moment says nothing of it");
    // Fenced by now, and the exit is not told again.
    let done = merge(Some(&known), &report(WorkerState::Exited), "", at(3), true);
    assert!(!done.is_collecting && done.exit == known.exit);
    let late = merge(Some(&done), &told, "", at(4), true);
    assert!(!late.is_collecting, "a report of an earlier moment");
    // What was left out of it is said at its end, and is not taken for sent by what was told before.
    let says = Report { has_unsent: true, ..report(WorkerState::Exited) };
    let says = merge(Some(&known), &says, "", at(5), false);
    assert!(!says.is_collecting && says.has_unsent);
    let late = merge(Some(&says), &told, "", at(6), false);
    assert!(!late.is_collecting && late.has_unsent);
}

#[test]
fn what_is_unsent_is_told_with_the_exit_and_ends_once() {
    let exit = ExitReport { at: at(1), ordered: false, evidence: WorkerEvidence::default() };
    let told = Report { exit: Some(exit), has_unsent: true, ..report(WorkerState::Exited) };
    let known = merge(None, &told, "", at(2), false);
    let done = merge(Some(&known), &report(WorkerState::Exited), "", at(3), true);
    let late = merge(Some(&done), &told, "", at(4), true);
    assert_eq!((known.has_unsent, done.has_unsent, late.has_unsent), (true, false, false));
    // Of an earlier attempt, while the next one runs on the same machine.
    let run = Report { has_unsent: true, ..report(WorkerState::Running) };
    let running = merge(None, &run, "", at(2), false);
    assert!(running.has_unsent);
    assert!(!merge(Some(&running), &report(WorkerState::Running), "", at(3), false).has_unsent);
}

#[test]
fn what_is_said_at_the_end_of_the_collecting_may_wait_to_be_sent() {
    let exit = ExitReport { at: at(1), ordered: false, evidence: WorkerEvidence::default() };
    let told = Report { exit: Some(exit), is_collecting: true, ..report(WorkerState::Exited) };
    let known = merge(None, &told, "", at(2), false);
    let collected = Report { has_unsent: true, ..report(WorkerState::Exited) };
    let waits = merge(Some(&known), &collected, "", at(3), true);
    assert_eq!((waits.is_collecting, waits.has_unsent), (false, true));
    let done = merge(Some(&waits), &report(WorkerState::Exited), "", at(4), true);
    let late = merge(Some(&done), &collected, "", at(5), true);
    assert_eq!((done.has_unsent, late.has_unsent), (false, false));
}

#[test]
fn a_late_heartbeat_does_not_take_a_running_program_back_but_a_reboot_does() {
    let known = merge(None, &report(WorkerState::Running), "", at(2), false);
    let late = merge(Some(&known), &report(WorkerState::Ready), "", at(3), false);
    assert_eq!(late.state, WorkerState::Running);
    let mut rebooted = report(WorkerState::Preparing);
    rebooted.boot_id = "another boot".into();
    assert_eq!(merge(Some(&known), &rebooted, "", at(4), false).state, WorkerState::Preparing);
}

#[test]
fn a_clock_that_goes_back_does_not_make_a_worker_older_nor_its_report_the_same() {
    let known = merge(None, &report(WorkerState::Running), "", at(10), false);
    let next = merge(Some(&known), &report(WorkerState::Running), "", at(3), false);
    assert!(next.heard_at > at(10) && next.heard_at < at(11), "{}", next.heard_at);
}

#[test]
fn a_preemption_and_the_earlier_deadline_win() {
    let with = |notice: Notice| Report { notice: Some(notice), ..report(WorkerState::Running) };
    let after = |first: Notice, second: Notice| {
        let known = merge(None, &with(first), "", at(0), false);
        merge(Some(&known), &with(second), "", at(0), false).notice.unwrap()
    };
    let (preemption, maintenance) = (NoticeKind::Preemption, NoticeKind::Maintenance);
    assert_eq!(after(notice(maintenance, 10), notice(preemption, 30)), notice(preemption, 30));
    assert_eq!(after(notice(preemption, 30), notice(maintenance, 10)), notice(preemption, 30));
    assert_eq!(after(notice(preemption, 30), notice(preemption, 20)), notice(preemption, 20));
    assert_eq!(after(notice(preemption, 20), notice(preemption, 30)), notice(preemption, 20));
}

#[test]
fn maintenance_that_is_called_off_goes_away_and_a_preemption_stays() {
    let after = |kind: NoticeKind, now: Timestamp, is_late: bool| {
        let told = Report { notice: Some(notice(kind, 9000)), ..report(WorkerState::Running) };
        let known = merge(None, &told, "", at(0), false);
        merge(Some(&known), &report(WorkerState::Running), "", now, is_late).notice
    };
    assert_eq!(after(NoticeKind::Maintenance, at(61), false), None);
    assert_eq!(after(NoticeKind::Migration, at(61), false), None);
    assert!(after(NoticeKind::Preemption, at(61), false).is_some(), "nobody is un-preempted");
    assert!(after(NoticeKind::Maintenance, at(59), false).is_some(), "a report may be of an earlier moment");
    assert!(after(NoticeKind::Maintenance, at(61), true).is_some(), "an earlier attempt's report");

    // Exit 0 of a program that saved and left at a notice is no success: the notice stays with the exit.
    let evidence = rekindle_core::classify::WorkerEvidence::default();
    let exit = rekindle_core::observation::ExitReport { at: at(50), ordered: true, evidence };
    let told =
        Report { notice: Some(notice(NoticeKind::Maintenance, 55)), exit: Some(exit), ..report(WorkerState::Exited) };
    let known = merge(None, &told, "", at(50), false);
    assert!(merge(Some(&known), &report(WorkerState::Exited), "", at(90), false).notice.is_some());
}

#[test]
fn late_reports_bring_facts_alone() {
    let known = merge(None, &report(WorkerState::Running), "", at(0), false);
    let mut late = report(WorkerState::Preparing);
    late.boot_id = "other".into();
    late.progress.step = Some(99);
    late.notice = Some(notice(NoticeKind::Preemption, 30));
    let next = merge(Some(&known), &late, "", at(9), true);
    assert!(next.notice.is_some());
    assert_eq!((next.state, next.boot_id.as_str(), next.step, next.heard_at), (WorkerState::Running, "b", None, at(0)));
}
