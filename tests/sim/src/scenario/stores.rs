//! Scenarios about the store and whose resources are: a wrong database, one of another time, another installation beside ours.

use std::collections::BTreeSet;

use rekindle_core::history::HistoryEntry;
use rekindle_core::ids::{InstallationId, JobId};
use rekindle_core::job::{Job, Phase};
use rekindle_core::names;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{Installation, put};
use rekindle_ports::tpu::SliceRef;

use super::crowds::{begin, small_job};
use super::{Special, Wrong, verdict};
use crate::disaster;
use crate::exec::lock;
use crate::fault::Fault;
use crate::plan::{JobPlan, Moment, Plan, START_US};
use crate::roll::{HOUR, MIN};
use crate::run::ending;
use crate::store::Shelf;
use crate::truth;
use crate::world::{World, stamp};

/// All of them.
pub(super) fn all() -> Vec<Special> {
    vec![
        ("S01-empty-database", "a store that is empty makes the sweep delete nothing", empty_database),
        (
            "S02-database-of-another-time",
            "a store that was rolled back makes the sweep delete no live fleet",
            rolled_back,
        ),
        ("S02-one-job-since-the-copy", "a store that came back from a copy knows nothing of the last job", || {
            copy_of(1)
        }),
        ("S02-three-jobs-since-the-copy", "the same with as many jobs as the sweep would take at once", || copy_of(3)),
        ("S02-twelve-jobs-since-the-copy", "the same with every job submitted since the copy", || copy_of(12)),
        (
            "S01-database-of-another-installation",
            "a store of another installation makes the sweep delete nothing, also what it would take for few orphans of its own",
            database_of_another,
        ),
        (
            "S03-another-installation",
            "another installation in the project has resources of the same shape; all of them outlive our jobs",
            another_installation,
        ),
        ("B16-two-records-of-one-slice", "tpu_manager: two jobs on one lost TPU were recovered twice", two_records),
    ]
}

const JOBS: usize = 12;

/// Deletes that the cloud took while another database stood in for ours, from two hours after the start.
fn deletes_with(plan: Plan, from: impl FnOnce(&World) -> Shelf) -> Option<Wrong> {
    let (world, _stage) = begin(plan);
    let mut deleted = 0;
    let end = ending(&world, || {
        let other = from(&world);
        world.exec.run_until(START_US + 2 * HOUR, || world.is_broken());
        let before = count(&world, "deletes");
        lock(&world.shelf).instead = Some(Box::new(other));
        world.exec.run_until(world.now() + 2 * HOUR, || world.is_broken());
        deleted = count(&world, "deletes") - before;
    });
    world.exec.clear();
    verdict(&end, || (deleted > 0).then(|| format!("{deleted} live slices were deleted")))
}

fn twelve() -> Plan {
    let mut plan = Plan::calm(3);
    plan.jobs = (0..JOBS).map(|n| small_job(n, 20 * HOUR)).collect();
    plan
}

fn count(world: &World, what: &'static str) -> u64 {
    lock(&world.counts).others.get(what).copied().unwrap_or(0)
}

fn empty_database() -> Option<Wrong> {
    deletes_with(twelve(), |_| Shelf::default())
}

/// The database of another installation, which has been in charge all the time and has no job of these names. Only whose it is says that our
/// three slices are no orphans: without it the sweep would take them.
fn database_of_another() -> Option<Wrong> {
    let mut plan = twelve();
    plan.jobs.truncate(3);
    deletes_with(plan, |world| {
        world.exec.run_until(START_US + 2 * HOUR, || world.is_broken());
        let mut other = lock(&world.shelf).clone();
        other.forget("jobs");
        let Ok(id) = InstallationId::parse("others") else { return other };
        let theirs = Installation { id, secret: "f".repeat(64), born_at: stamp(START_US - HOUR) };
        other.insert(vec![put(&Kind::Installation, &theirs, Precondition::None)]);
        other
    })
}

/// A database as it was before the jobs were submitted, with its installation document.
fn rolled_back() -> Option<Wrong> {
    deletes_with(twelve(), |world| {
        world.exec.run_until(START_US + 2 * HOUR, || world.is_broken());
        let mut old = lock(&world.shelf).clone();
        old.forget("jobs");
        old
    })
}

/// A real copy of the database, taken after half an hour and brought back after two: so many of the twelve jobs were submitted since.
fn copy_of(since: usize) -> Option<Wrong> {
    let mut plan = twelve();
    for job in plan.jobs.iter_mut().skip(JOBS - since) {
        job.submit_at = START_US + 40 * MIN;
    }
    deletes_with(plan, |world| {
        world.exec.run_until(START_US + 30 * MIN, || world.is_broken());
        lock(&world.shelf).clone()
    })
}

/// For each slice of ours another installation has one of the same shape, for a job of the same name; all of them stay.
fn another_installation() -> Option<Wrong> {
    let mut plan = Plan::calm(4);
    plan.jobs = (0..6).map(|n| JobPlan { queued: ["never", "always"][n % 2], ..small_job(n, 2 * HOUR) }).collect();
    let (world, stage) = begin(plan);
    let mut theirs = BTreeSet::new();
    let end = ending(&world, || {
        world.exec.run_until(START_US + HOUR, || world.is_broken());
        theirs = copy_all(&world);
        for zone in 0..2 {
            disaster::strike(&stage, &Moment { at: world.now(), fault: Fault::Storm, pick: zone });
        }
        world.exec.run_until(START_US + 8 * HOUR, || world.is_broken());
    });
    let left: BTreeSet<SliceRef> = lock(&world.cloud).resources.keys().cloned().collect();
    let over = lock(&world.checks).jobs.values().filter(|j| j.phase == Phase::Succeeded).count();
    world.exec.clear();
    verdict(&end, || {
        (theirs.len() != 6 || left != theirs || over != 6).then(|| {
            format!("{} foreign resources, {} left of all, {over} of 6 jobs succeeded", theirs.len(), left.len())
        })
    })
}

fn copy_all(world: &World) -> BTreeSet<SliceRef> {
    let Ok(other) = InstallationId::parse("others") else { return BTreeSet::new() };
    let ours: Vec<SliceRef> = lock(&world.cloud).resources.keys().cloned().collect();
    let twin = |slice: &SliceRef| {
        let parsed = names::parse(&slice.name)?;
        let name = names::generation_name(&other, &parsed.job, parsed.generation);
        crate::cloud::copy_for_others(world, slice, &name, other.as_str());
        Some(SliceRef { name, ..slice.clone() })
    };
    ours.iter().filter_map(twin).collect()
}

/// Somebody has written a second record that names the slice of the first. The slice is lost: each gets one of its own, and neither
/// touches the other's.
fn two_records() -> Option<Wrong> {
    let mut plan = Plan::calm(8);
    plan.jobs = (0..2).map(|n| small_job(0, 3 * HOUR + n)).collect();
    plan.jobs[1].id = "second".into();
    // It is not submitted: its record is written by hand.
    plan.jobs[1].submit_at = START_US + 1000 * HOUR;
    let (world, stage) = begin(plan);
    let end = ending(&world, || {
        world.exec.run_until(START_US + HOUR, || world.is_broken());
        let store = stage.any().engine.ports.store.clone();
        let first = lock(&world.checks).jobs.values().next().cloned();
        let (Some(first), Ok(id)) = (first, JobId::parse("second")) else { return };
        let copy = Job { id, created_at: stamp(world.now()), wake_at: Some(stamp(world.now())), ..Job::clone(&first) };
        let entry = HistoryEntry {
            revision: copy.revision,
            at: copy.created_at,
            cause: "copy".into(),
            actor: "a person".into(),
            from: copy.phase,
            to: copy.phase,
            reason: copy.reason,
            message: String::new(),
            notes: Vec::new(),
            effects: Vec::new(),
            attempt: copy.last_attempt,
            generation: copy.last_generation,
            ended: None,
        };
        world.exec.spawn(async move {
            let stored = store.create_job(&copy.into(), &entry, Vec::new()).await;
            debug_assert!(stored.is_ok(), "{stored:?}");
        });
        world.exec.run_until(world.now() + 2 * MIN, || world.is_broken());
        for job in lock(&world.checks).jobs.keys() {
            truth::befalls(&world, job, 1, Fault::PreemptSilent);
        }
        disaster::strike(&stage, &Moment { at: world.now(), fault: Fault::PreemptSilent, pick: 0 });
        world.exec.run_until(world.now() + 10 * HOUR, || world.is_broken());
    });
    let checks = lock(&world.checks);
    let well = |j: &&std::sync::Arc<Job>| j.phase == Phase::Succeeded && j.last_generation == 2;
    let ended: Vec<String> =
        checks.jobs.values().map(|j| format!("{} {} g{}", j.id, j.phase.as_str(), j.last_generation)).collect();
    let wrong = checks.jobs.values().filter(well).count() != 2;
    drop(checks);
    world.exec.clear();
    verdict(&end, || wrong.then(|| ended.join(", ")))
}
