//! A table of what TPUs do, and when a workspace is unused.

use super::*;
use crate::fixture::{at, attempt, generation, job, noon, open_deployment, small, spec_in};
use crate::job::{Delete, Ended, Lost, Stop, StopCause};
use crate::observation::WorkerState;

type Change = Box<dyn Fn(&mut Job)>;

/// A job whose slice has been READY since noon, with a program that has run for ten seconds.
fn running() -> Job {
    let mut job = job(spec_in(&open_deployment(), &small()));
    let mut g = generation(1);
    g.ready_at = Some(noon());
    let mut a = attempt(1, 1);
    (a.created_at, a.started_at) = (at(5), Some(at(10)));
    (job.generations, job.attempts) = (vec![g], vec![a]);
    job
}

fn ended() -> Ended {
    Ended { at: at(40), kind: None, action: None, charge: None, summary: String::new(), verdict: None }
}

fn idle(cause: IdleCause, secs: i64) -> Use {
    Use::Idle(Idle { cause, since: at(secs) })
}

#[test]
fn a_tpu_is_idle_when_it_costs_money_and_nobodys_code_runs_on_it() {
    let delete = Delete { intended_at: at(50), sent_at: None, tries: 0, last_error: None };
    let lost = Lost { at: at(60), kind: crate::failure::FailureKind::Preempted, fact: String::new() };
    let going = delete.clone();
    let table: Vec<(&str, Change, Use)> = vec![
        ("is made", Box::new(|job| job.generations[0].ready_at = None), Use::Free),
        ("was taken away", Box::new(move |job| job.generations[0].lost = Some(lost.clone())), Use::Free),
        ("has no attempt yet", Box::new(|job| job.attempts.clear()), idle(IdleCause::Starting, 0)),
        ("sets up", Box::new(|job| job.attempts[0].started_at = None), idle(IdleCause::Starting, 5)),
        ("runs", Box::new(|_| {}), Use::Busy),
        (
            "may still save after it was told to end",
            Box::new(|job| {
                job.attempts[0].stop =
                    Some(Stop { cause: StopCause::Cancel, at: at(20), deadline: at(50), put_off: false });
            }),
            Use::Busy,
        ),
        ("has ended", Box::new(|job| job.attempts[0].ended = Some(ended())), idle(IdleCause::Ended, 40)),
        (
            "has ended, and the next attempt prepares there",
            Box::new(|job| {
                job.attempts[0].ended = Some(ended());
                job.attempts.push(Attempt { created_at: at(45), ..attempt(2, 1) });
            }),
            idle(IdleCause::Starting, 45),
        ),
        (
            "has ended, and goes",
            Box::new(move |job| {
                job.attempts[0].ended = Some(ended());
                job.generations[0].delete = Some(delete.clone());
            }),
            idle(IdleCause::HandedBack, 50),
        ),
        (
            "goes before anything ran",
            Box::new(move |job| {
                job.attempts.clear();
                job.generations[0].delete = Some(going.clone());
            }),
            idle(IdleCause::HandedBack, 50),
        ),
        ("runs on another slice", Box::new(|job| job.attempts[0].generation = 2), idle(IdleCause::Starting, 0)),
        ("is a workspace", Box::new(|job| job.spec.workspace = true), Use::Workspace(1)),
    ];
    for (name, change, want) in table {
        let mut job = running();
        change(&mut job);
        assert_eq!(of(&job, &job.generations[0]), want, "{name}");
    }
}

#[test]
fn a_workspace_is_idle_ten_minutes_after_its_last_use_as_far_as_all_its_workers_tell() {
    let mut job = running();
    job.spec.workspace = true;
    let all = job.generations[0].slices * job.generations[0].workers;
    let told = |count: u32, heard: i64, used: Option<i64>| -> Option<i64> {
        let of = |worker: u32| WorkerReport {
            heard_at: at(heard),
            output_at: used.filter(|_| worker == 0).map(at),
            ..crate::fixture::report(worker, WorkerState::Running)
        };
        let reports: Vec<WorkerReport> = (0..count).map(of).collect();
        let reports: Vec<&WorkerReport> = reports.iter().collect();
        unused(&job, 1, &reports).map(|idle| idle.since.duration_since(noon()).as_secs())
    };
    assert_eq!((told(all, 609, None), told(all, 610, None)), (None, Some(10)), "since it was up");
    assert_eq!((told(all, 1099, Some(500)), told(all, 1100, Some(500))), (None, Some(500)), "since its use");
    assert_eq!(told(all - 1, 9000, None), None, "one of them may be in use");
}
