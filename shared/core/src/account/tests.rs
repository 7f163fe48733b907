//! Tables of what is paid for what, and of sums.

use jiff::civil::date;

use super::*;
use crate::fixture::{at, attempt, generation, job, noon, open_deployment, small, spec_in};
use crate::job::{Ended, Lost, Stop, StopCause};
use crate::observation::{Notice, NoticeKind};

type Change = Box<dyn Fn(&mut Job)>;

fn plain() -> Job {
    job(spec_in(&open_deployment(), &small()))
}

/// A job whose slice has been READY since noon, with the program as it is told.
fn on_a_slice(change: impl FnOnce(&mut Job)) -> Job {
    let mut job = plain();
    let mut g = generation(1);
    (g.ready_at, g.chips, g.usd_micros_per_hour) = (Some(noon()), 16, 3_600_000);
    job.generations = vec![g];
    job.usage.through = Some(noon());
    change(&mut job);
    job
}

fn running(job: &mut Job) {
    let mut a = attempt(1, 1);
    a.started_at = Some(noon());
    job.attempts = vec![a];
}

/// An attempt that runs after others have come to a step.
fn what_later_attempts_do() -> Vec<(&'static str, Change, Sort)> {
    vec![
        (
            "resumed below the highest step",
            Box::new(|job| {
                running(job);
                job.attempts[0].resumed_from = Some(10);
            }),
            Sort::Repeated,
        ),
        (
            "resumed and beyond it",
            Box::new(|job| {
                running(job);
                (job.attempts[0].resumed_from, job.attempts[0].progressed) = (Some(10), true);
            }),
            Sort::Useful,
        ),
        (
            "was saved below the highest step, and has not told where it resumed",
            Box::new(|job| {
                running(job);
                job.highest_step = Some(20);
                (job.attempts[0].resume, job.attempts[0].saved_before) = (true, Some(10));
            }),
            Sort::Repeated,
        ),
        (
            "was saved at the highest step",
            Box::new(|job| {
                running(job);
                job.highest_step = Some(20);
                (job.attempts[0].resume, job.attempts[0].saved_before) = (true, Some(20));
            }),
            Sort::Useful,
        ),
        (
            "begins from scratch",
            Box::new(|job| {
                running(job);
                job.highest_step = Some(20);
                job.attempts[0].saved_before = Some(20);
            }),
            Sort::Repeated,
        ),
    ]
}

fn what_programs_do() -> Vec<(&'static str, Change, Sort)> {
    let stop = Stop { cause: StopCause::Notice, at: noon(), deadline: at(30), put_off: false };
    let ended = Ended { at: noon(), kind: None, action: None, charge: None, summary: String::new(), verdict: None };
    vec![
        ("no attempt yet", Box::new(|_| {}), Sort::Waiting),
        ("released, not started", Box::new(|job| job.attempts = vec![attempt(1, 1)]), Sort::Waiting),
        ("runs", Box::new(running), Sort::Useful),
        (
            "is told to end",
            Box::new(move |job| {
                running(job);
                job.attempts[0].stop = Some(stop.clone());
            }),
            Sort::Idle,
        ),
        (
            "has ended",
            Box::new(move |job| {
                running(job);
                job.attempts[0].ended = Some(ended.clone());
            }),
            Sort::Idle,
        ),
        (
            "ended on this slice, and the next attempt prepares there",
            Box::new(move |job| {
                running(job);
                job.attempts[0].stop =
                    Some(Stop { cause: StopCause::PeerExit, at: noon(), deadline: noon(), put_off: false });
                job.attempts.push(attempt(2, 1));
            }),
            Sort::Waiting,
        ),
    ]
}

#[test]
fn chips_are_useful_repeated_waiting_or_idle_by_what_the_program_does() {
    for (name, change, sort) in what_programs_do().into_iter().chain(what_later_attempts_do()) {
        let usage = crate::decide::usage_at(&on_a_slice(change), at(60));
        let mut want = Bill::default();
        want.add(sort, Meter { chip_secs: 960, usd_micros: 60_000 });
        assert_eq!(usage.weeks, BTreeMap::from([(week_of(noon()), want)]), "{name}");
        assert_eq!(usage.waiting_chip_secs > 0, sort == Sort::Waiting, "{name}");
        assert_eq!(usage.idle_chip_secs > 0, sort == Sort::Idle, "{name}");
        assert_eq!((usage.paid_chip_secs, usage.cost_usd_micros), (960, 60_000), "{name}");
    }
}

#[test]
fn the_meter_stops_when_the_slice_is_taken_away_and_not_when_somebody_looks() {
    let notice = |kind| Notice { kind, seen_at: at(5), deadline: at(20) };
    let table: Vec<(&str, Change, u64)> = vec![
        ("nothing happened", Box::new(|_| {}), 60),
        (
            "a notice of preemption: until its deadline",
            Box::new(move |job| job.generations[0].notice = Some(notice(NoticeKind::Preemption))),
            20,
        ),
        (
            "a window of maintenance may be moved",
            Box::new(move |job| job.generations[0].notice = Some(notice(NoticeKind::Maintenance))),
            60,
        ),
        ("its VMs are off", Box::new(|job| job.generations[0].ended_since = Some(at(30))), 30),
        (
            "it is lost",
            Box::new(|job| {
                let kind = crate::failure::FailureKind::Preempted;
                job.generations[0].lost = Some(Lost { at: noon(), kind, fact: String::new() });
            }),
            0,
        ),
        ("it is being deleted: it is paid for until it is gone", Box::new(deleting), 60),
    ];
    for (name, change, secs) in table {
        let job = on_a_slice(change);
        assert_eq!(crate::decide::usage_at(&job, at(60)).paid_chip_secs, secs * 16, "{name}");
        // The same in many looks as in one.
        let mut often = job.clone();
        for second in 1..=60 {
            often.usage = crate::decide::usage_at(&often, at(second));
        }
        assert_eq!(often.usage.paid_chip_secs, secs * 16, "{name}, look by look");
    }
}

fn deleting(job: &mut Job) {
    job.generations[0].delete =
        Some(crate::job::Delete { intended_at: noon(), sent_at: None, tries: 0, last_error: None });
}

#[test]
fn weeks_begin_on_monday_in_utc() {
    let week = |text: &str| week_of(text.parse().unwrap());
    assert_eq!(week("2026-03-01T23:59:59Z"), date(2026, 2, 23));
    assert_eq!(week("2026-03-02T00:00:00Z"), date(2026, 3, 2));
    assert_eq!(week("1970-01-01T00:00:00Z"), date(1969, 12, 29));
    assert_eq!(weeks_before("2026-03-04T00:00:00Z".parse().unwrap(), 2), date(2026, 2, 16));
    let from = "2026-03-01T23:00:00Z".parse().unwrap();
    assert_eq!(by_week(from, 7200), [(date(2026, 2, 23), 3600), (date(2026, 3, 2), 3600)]);
    assert_eq!(by_week(from, 0), []);
    let long: u64 = by_week(from, 3 * 7 * 86_400).iter().map(|(_, secs)| secs).sum();
    assert_eq!((long, by_week(from, 3 * 7 * 86_400).len()), (3 * 7 * 86_400, 4));
}

fn paid(id: &str, owner: &str, tags: &[&str], weeks: &[(Date, Sort, u64)]) -> Job {
    let mut job = plain();
    job.id = JobId::parse(id).unwrap();
    job.spec.owner = owner.into();
    job.spec.tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
    for (week, sort, chip_secs) in weeks {
        job.usage.weeks.entry(*week).or_default().add(*sort, Meter { chip_secs: *chip_secs, usd_micros: 10 });
        job.usage.paid_chip_secs += chip_secs;
    }
    job
}

fn account(by: &[Dimension], since: Date) -> Account {
    let (one, two) = (date(2026, 2, 23), date(2026, 3, 2));
    let mut account = Account::new(by, since);
    for job in [
        paid("a", "ada", &["x", "y"], &[(one, Sort::Useful, 100), (two, Sort::Repeated, 10)]),
        paid("b", "bob", &["x"], &[(two, Sort::Waiting, 5)]),
        paid("c", "bob", &[], &[(one, Sort::Idle, 7)]),
        paid("never", "bob", &["x"], &[]),
    ] {
        account.add(&job, &job.usage);
    }
    let lost = paid("b", "bob", &["x"], &[]);
    account.add_orphan(two, &lost.id, Some(&lost), Meter { chip_secs: 3, usd_micros: 1 });
    account.add_orphan(two, &JobId::parse("gone").unwrap(), None, Meter { chip_secs: 2, usd_micros: 1 });
    account
}

#[test]
fn sums_are_by_any_of_week_owner_tag_and_job_and_the_total_counts_each_job_once() {
    use Dimension::{Job, Owner, Tag, Week};
    let cells = |by: &[Dimension]| -> Vec<String> {
        let account = account(by, date(2026, 1, 5));
        assert_eq!((account.total().jobs, account.total().bill.total().chip_secs), (3, 127));
        let rows = account.rows().into_iter().map(|(key, row)| {
            let week = key.week.map(|week| week.to_string());
            let names = [week, key.owner.clone(), key.tag.clone(), key.job.clone()];
            let names: Vec<String> = names.into_iter().flatten().collect();
            format!("{} {} {}", names.join("/"), row.jobs, row.bill.total().chip_secs)
        });
        rows.collect()
    };
    assert_eq!(cells(&[]), [" 3 127"]);
    assert_eq!(cells(&[Job]), ["a 1 110", "b 1 8", "c 1 7", "gone 0 2"]);
    assert_eq!(cells(&[Owner]), [" 0 2", "ada 1 110", "bob 2 15"]);
    assert_eq!(cells(&[Tag]), [" 1 9", "x 2 118", "y 1 110"]);
    assert_eq!(cells(&[Week]), ["2026-03-02 2 20", "2026-02-23 2 107"]);
    assert_eq!(
        cells(&[Owner, Week]),
        ["2026-03-02/ 0 2", "2026-03-02/ada 1 10", "2026-03-02/bob 1 8", "2026-02-23/ada 1 100", "2026-02-23/bob 1 7"]
    );
}

#[test]
fn weeks_before_the_first_are_left_out() {
    let account = account(&[], date(2026, 3, 2));
    assert_eq!((account.total().jobs, account.total().bill.total().chip_secs), (2, 20));
    assert_eq!(account.total().bill.orphan, Meter { chip_secs: 5, usd_micros: 2 });
}

#[test]
fn what_was_counted_before_weeks_were_kept_is_of_the_week_of_the_submit() {
    let mut job = paid("a", "ada", &[], &[(date(2026, 3, 9), Sort::Useful, 100)]);
    job.usage = Usage {
        paid_chip_secs: 400,
        useful_chip_secs: 300,
        repeated_chip_secs: 0,
        waiting_chip_secs: 100,
        cost_usd_micros: 3010,
        ..job.usage
    };
    let bills = bills(&job, &job.usage);
    let first = bills[&week_of(job.created_at)];
    assert_eq!(first.useful, Meter { chip_secs: 200, usd_micros: 2000 });
    assert_eq!(first.waiting, Meter { chip_secs: 100, usd_micros: 1000 });
    assert_eq!(bills.len(), 2);
}
