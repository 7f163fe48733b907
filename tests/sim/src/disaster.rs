//! Faults at moments: what befalls slices, workers and programs.

use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::Via;
use rekindle_core::names;
use rekindle_core::observation::{Health, Notice, NoticeKind, SliceLabels, SliceState};
use rekindle_ports::tpu::SliceRef;

use crate::cloud::{self, Resource};
use crate::deliver;
use crate::exec::lock;
use crate::fault::Fault;
use crate::hosts;
use crate::machine::{self, Step, VmId};
use crate::making;
use crate::plan::{Moment, ZONES};
use crate::program;
use crate::queued;
use crate::roll::{For, HOUR, MIN, SEC};
use crate::stage::Stage;
use crate::transit;
use crate::truth;
use crate::world::{World, stamp};

/// How long before a preemption the machines hear of it, if they do.
const NOTICE: i64 = 30 * SEC;

/// How long before the API's word the first program of a slice has ended.
const EXIT_BEFORE: i64 = 20 * SEC;

/// Machines are on for so long after the API has said that their slice was taken away.
const LINGERS: i64 = 45 * SEC;

/// The machines of one slice go off within so long of each other.
const STAGGER: i64 = 10 * SEC;

/// Lets every planned moment come.
pub(crate) async fn befall(stage: Arc<Stage>) {
    let mut moments = stage.world.plan.moments.clone();
    moments.sort_by_key(|m| m.at);
    for moment in moments {
        stage.world.exec.sleep_until(moment.at).await;
        if stage.world.is_calm() {
            return;
        }
        strike(&stage, &moment);
    }
}

/// One moment comes.
pub(crate) fn strike(stage: &Arc<Stage>, moment: &Moment) {
    let world = &stage.world;
    let done = match moment.fault {
        Fault::Storm => storm(stage, moment.pick),
        Fault::Foreign => foreign(world, moment.pick),
        Fault::Orphan => orphan(world, moment.pick),
        Fault::Poison => poison(stage, moment.pick),
        Fault::AgentRestart | Fault::AgentDead | Fault::HostDead | Fault::Reboot | Fault::HostError => {
            worker(stage, moment.fault, moment.pick)
        }
        Fault::ExitGrpc
        | Fault::ExitKilled
        | Fault::ExitDevice
        | Fault::ExitStorage
        | Fault::ExitAbort
        | Fault::ExitDisk
        | Fault::ExitOom
        | Fault::ExitUser => exit(world, moment.fault, moment.pick),
        Fault::Hang => hang(world, moment.pick),
        Fault::SetupFails | Fault::SetupHangs => setup_goes_wrong(world, moment.fault, moment.pick),
        fault => match target(world, fault, moment.pick) {
            Some(slice) => slice_fault(stage, fault, &slice),
            None => false,
        },
    };
    if done {
        world.trace(|| format!("fault: {}", moment.fault.name()));
        world.count_fault(moment.fault);
    }
}

/// A slice that a fault can hit.
fn target(world: &World, fault: Fault, pick: u64) -> Option<SliceRef> {
    let cloud = lock(&world.cloud);
    let preempts = matches!(
        fault,
        Fault::PreemptNotice
            | Fault::PreemptSilent
            | Fault::PreemptLag
            | Fault::NoticeFalse
            | Fault::NoticePartial
            | Fault::NoticeShort
            | Fault::PreemptExitFirst
            | Fault::SliceOfManyLost
            | Fault::PreemptedCreating
    );
    let fits = |r: &&Resource| {
        let at_hand = r.powered && !r.foreign && r.state == SliceState::Ready && r.labels.job != "orphan";
        let kind = match fault {
            Fault::StoppedByHand => !r.preemptible && r.via_node(),
            Fault::TakenOnDemand => !r.preemptible,
            Fault::NodeDeletedByHand => !r.via_node(),
            Fault::ActiveWithoutNode => r.preemptible && !r.via_node(),
            Fault::SliceOfManyLost => r.preemptible && r.slices > 1,
            Fault::NoticePartial => r.preemptible && r.slices * r.workers > 1,
            _ => !preempts || r.preemptible,
        };
        at_hand && kind
    };
    let all: Vec<&SliceRef> = cloud.resources.values().filter(fits).map(|r| &r.slice).collect();
    (!all.is_empty()).then(|| all[usize::try_from(pick % all.len() as u64).unwrap_or(0)].clone())
}

impl Resource {
    fn via_node(&self) -> bool {
        self.slice.via == Via::Node
    }
}

/// The job and the generation that a slice was made for.
fn made_for(world: &World, slice: &SliceRef) -> Option<(JobId, u32)> {
    cloud::with(world, slice, |r| r.made_for()).flatten()
}

fn slice_fault(stage: &Arc<Stage>, fault: Fault, slice: &SliceRef) -> bool {
    let world = &stage.world;
    world.trace(|| format!("fault: {} on {}", fault.name(), slice.name));
    if let Some((job, generation)) = made_for(world, slice) {
        match fault {
            Fault::StateUnspecified | Fault::UnknownTakenBack => truth::doubt(world, &job, generation, fault),
            _ => truth::on_loss(world, &job, generation, fault),
        }
    }
    match fault {
        Fault::PreemptNotice => later(stage, slice, preempt_with_notice),
        Fault::NoticePartial => later(stage, slice, preempt_with_partial_notice),
        Fault::NoticeShort => later(stage, slice, preempt_too_soon),
        Fault::PreemptExitFirst => later(stage, slice, preempt_after_an_exit),
        Fault::SliceOfManyLost => later(stage, slice, lose_one_of_many),
        Fault::PreemptSilent => later(stage, slice, preempt_silently),
        Fault::PreemptLag => later(stage, slice, preempt_shown_late),
        Fault::Vanish => cloud::remove(stage, slice),
        Fault::LieReady => cut_power(world, slice),
        Fault::Terminated => later(stage, slice, |stage, slice| end_as(stage, slice, SliceState::Terminated)),
        Fault::StoppedByHand => later(stage, slice, |stage, slice| end_as(stage, slice, SliceState::Stopped)),
        Fault::NoticeFalse => give_notice(world, slice, NoticeKind::Preemption, NOTICE),
        Fault::MaintenanceFar => give_notice(world, slice, NoticeKind::Maintenance, HOUR),
        Fault::MaintenanceNow => later(stage, slice, maintain_now),
        Fault::Unhealthy => later(stage, slice, unhealthy),
        Fault::UnhealthyForGood => {
            cloud::with(world, slice, |r| r.health = Health::Unhealthy("UNHEALTHY_TPU".into()));
        }
        Fault::Repairing => later(stage, slice, transit::repairing),
        Fault::RepairFails => later(stage, slice, transit::repair_fails),
        Fault::Restarting => later(stage, slice, transit::restarting),
        Fault::Reimaging => later(stage, slice, transit::reimaging),
        Fault::Hidden => later(stage, slice, transit::hidden),
        Fault::StateUnspecified => later(stage, slice, transit::unspecified),
        Fault::UnknownTakenBack => later(stage, slice, transit::unknown_taken_back),
        Fault::TakenOnDemand => later(stage, slice, hosts::take_on_demand),
        Fault::NodeDeletedByHand => later(stage, slice, queued::node_deleted_by_hand),
        Fault::ActiveWithoutNode => later(stage, slice, queued::active_without_node),
        Fault::Migration => later(stage, slice, hosts::migrate),
        Fault::MaintenanceMoved => later(stage, slice, hosts::maintenance_moved),
        Fault::NetCut => {
            let time = world.rolls.between(For::Cloud, MIN / 2, 25 * MIN);
            machine::cut(world, slice, world.now() + time);
        }
        _ => return false,
    }
    true
}

fn later<F>(stage: &Arc<Stage>, slice: &SliceRef, what: impl FnOnce(Arc<Stage>, SliceRef) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    stage.world.exec.spawn(what(stage.clone(), slice.clone()));
}

/// The VMs die; what the API shows stays.
fn cut_power(world: &World, slice: &SliceRef) {
    cloud::unpower(world, slice);
    machine::power_off(world, slice);
}

/// The VMs die one after the other; what the API shows stays.
pub(crate) async fn go_dark(world: &World, slice: &SliceRef, within: i64) {
    machine::go_dark(world, slice, within).await;
    cloud::unpower(world, slice);
}

/// The API shows that the slice has ended. `lingers`: and that some of its machines may still be on.
pub(crate) fn show(world: &World, slice: &SliceRef, state: SliceState, lingers: bool) {
    world.trace(|| {
        format!("cloud: {} shows {state:?}{}", slice.name, if lingers { ", and is not off yet" } else { "" })
    });
    cloud::with(world, slice, |r| {
        if r.state != SliceState::Deleting {
            (r.state, r.lingers) = (state, lingers);
        }
    });
}

/// The API's word and the machines' end, in either order.
pub(crate) async fn end_as(stage: Arc<Stage>, slice: SliceRef, state: SliceState) {
    let world = &stage.world;
    if world.rolls.chance(For::Cloud, 0.5) {
        cut_power(world, &slice);
        show(world, &slice, state, false);
    } else {
        show(world, &slice, state, false);
        go_dark(world, &slice, LINGERS).await;
    }
}

/// Every machine of a slice is told that something comes after so long.
pub(crate) fn give_notice(world: &World, slice: &SliceRef, kind: NoticeKind, after: i64) {
    give_notice_to(world, slice, kind, after, usize::MAX);
}

fn give_notice_to(world: &World, slice: &SliceRef, kind: NoticeKind, after: i64, most: usize) {
    let now = world.now();
    let notice = Notice { kind, seen_at: stamp(now), deadline: stamp(now + after) };
    cloud::with(world, slice, |r| r.notice = Some(notice.clone()));
    machine::notify(world, slice, &notice, most);
}

async fn preempt_with_notice(stage: Arc<Stage>, slice: SliceRef) {
    give_notice(&stage.world, &slice, NoticeKind::Preemption, NOTICE);
    come_true(&stage, &slice).await;
}

async fn preempt_with_partial_notice(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    let workers = cloud::with(world, &slice, |r| r.slices * r.workers).unwrap_or(1);
    let told = world.rolls.between(For::Cloud, 1, i64::from(workers) - 1);
    give_notice_to(world, &slice, NoticeKind::Preemption, NOTICE, usize::try_from(told).unwrap_or(1));
    come_true(&stage, &slice).await;
}

/// What a notice has announced comes at its deadline.
async fn come_true(stage: &Arc<Stage>, slice: &SliceRef) {
    let world = &stage.world;
    tell_instances(stage, slice, "compute.instances.preempted");
    if world.rolls.chance(For::Cloud, 0.5) {
        // The word comes within the notice, the end with it.
        let early = world.rolls.between(For::Cloud, 0, NOTICE);
        world.exec.sleep(NOTICE - early).await;
        taken(world, slice);
        world.exec.sleep(early).await;
        go_dark(world, slice, STAGGER).await;
        suspended(world, slice).await;
        return;
    }
    world.exec.sleep(NOTICE).await;
    preempted(stage, slice, world.rolls.between(For::Cloud, 0, 20 * SEC)).await;
}

/// Shutdown is best effort: the machines may go before the notice is over.
async fn preempt_too_soon(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    give_notice(world, &slice, NoticeKind::Preemption, NOTICE);
    tell_instances(&stage, &slice, "compute.instances.preempted");
    world.exec.sleep(world.rolls.between(For::Cloud, SEC, NOTICE * 3 / 4)).await;
    preempted(&stage, &slice, world.rolls.between(For::Cloud, 0, 40 * SEC)).await;
}

/// A machine that goes down ends its program before the API says why; or the program breaks first, as its peers go.
async fn preempt_after_an_exit(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    let fault = if world.rolls.chance(For::Cloud, 0.5) { Fault::ExitGrpc } else { Fault::PreemptExitFirst };
    if let Some(id) = machine::running_on(world, &slice) {
        program::die(&mut lock(&world.fleet), id, program::death_of(fault, world.now()));
    }
    world.exec.sleep(EXIT_BEFORE).await;
    preempted(&stage, &slice, 0).await;
}

/// One slice of a multislice goes; its queued resource stays ACTIVE, for some minutes or for good.
async fn lose_one_of_many(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    let slices = cloud::with(world, &slice, |r| r.slices).unwrap_or(1);
    let part = u32::try_from(world.rolls.between(For::Cloud, 0, i64::from(slices) - 1)).unwrap_or(0);
    machine::go_dark_in_part(world, &slice, part, STAGGER).await;
    world.exec.sleep(world.rolls.between(For::Cloud, 0, MIN)).await;
    if world.rolls.chance(For::Cloud, 0.5) {
        show(world, &slice, SliceState::Preempted, true);
    } else {
        let text = format!("ACTIVE, and the node of slice {part} is absent");
        show(world, &slice, SliceState::InTransition(text), false);
    }
    if world.rolls.chance(For::Cloud, 0.5) {
        world.exec.sleep(world.rolls.between(For::Cloud, MIN, 10 * MIN)).await;
        taken(world, &slice);
        go_dark(world, &slice, LINGERS).await;
        suspended(world, &slice).await;
    }
}

async fn preempt_silently(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    if cloud::with(world, &slice, |r| r.state == SliceState::Creating) == Some(true) {
        making::preempted_creating(world, &slice);
        return;
    }
    tell_instances(&stage, &slice, "compute.instances.preempted");
    if world.rolls.chance(For::Cloud, 0.5) {
        taken(world, &slice);
        go_dark(world, &slice, LINGERS).await;
        suspended(world, &slice).await;
        return;
    }
    preempted(&stage, &slice, 0).await;
}

async fn preempt_shown_late(stage: Arc<Stage>, slice: SliceRef) {
    let wait = stage.world.rolls.between(For::Cloud, MIN, 12 * MIN);
    preempted(&stage, &slice, wait).await;
}

/// The machines go, the API's word comes so long after.
async fn preempted(stage: &Arc<Stage>, slice: &SliceRef, shown_after: i64) {
    let world = &stage.world;
    let within = if world.rolls.chance(For::Cloud, 0.5) { STAGGER } else { 0 };
    go_dark(world, slice, within).await;
    world.exec.sleep(shown_after).await;
    taken(world, slice);
    suspended(world, slice).await;
}

/// The API says that a slice is taken away: a node is PREEMPTED, a queued resource is SUSPENDING.
pub(crate) fn taken(world: &World, slice: &SliceRef) {
    show(world, slice, SliceState::Preempted, slice.via == Via::QueuedResource);
    crate::check::on_taken(world, slice);
}

/// A queued resource whose machines are off is SUSPENDED some time later.
pub(crate) async fn suspended(world: &World, slice: &SliceRef) {
    if slice.via == Via::QueuedResource {
        world.exec.sleep(world.rolls.between(For::Cloud, 0, MIN)).await;
        show(world, slice, SliceState::Preempted, false);
    }
}

async fn maintain_now(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    give_notice(world, &slice, NoticeKind::Maintenance, 45 * SEC);
    world.exec.sleep(45 * SEC).await;
    tell_instances(&stage, &slice, "compute.instances.terminateOnHostMaintenance");
    end_as(stage, slice, SliceState::Terminated).await;
}

async fn unhealthy(stage: Arc<Stage>, slice: SliceRef) {
    let world = &stage.world;
    let health = if world.rolls.chance(For::Cloud, 0.5) {
        Health::Maintenance
    } else {
        Health::Unhealthy("UNHEALTHY_TPU".into())
    };
    cloud::with(world, &slice, |r| r.health = health);
    world.exec.sleep(world.rolls.between(For::Cloud, MIN, 12 * MIN)).await;
    cloud::with(world, &slice, |r| r.health = Health::Healthy);
}

/// What the audit log says of each machine of a slice.
pub(crate) fn tell_instances(stage: &Arc<Stage>, slice: &SliceRef, method: &str) {
    let names: Vec<String> = {
        let fleet = lock(&stage.world.fleet);
        fleet.vms.values().filter(|v| v.slice == *slice).map(|v| v.instance.clone()).collect()
    };
    for name in names {
        deliver::instance_event(stage, &slice.zone, &name, method);
    }
}

fn storm(stage: &Arc<Stage>, pick: u64) -> bool {
    let world = &stage.world;
    let zone = ZONES[usize::try_from(pick % 3).unwrap_or(0)];
    let all: Vec<SliceRef> = {
        let cloud = lock(&world.cloud);
        let fits = |r: &&Resource| {
            r.powered && !r.foreign && r.preemptible && r.slice.zone == zone && r.labels.job != "orphan"
        };
        cloud.resources.values().filter(fits).map(|r| r.slice.clone()).collect()
    };
    for slice in &all {
        if let Some((job, generation)) = made_for(world, slice) {
            truth::on_loss(world, &job, generation, Fault::Storm);
        }
        later(stage, slice, preempt_silently);
    }
    !all.is_empty()
}

fn worker(stage: &Arc<Stage>, fault: Fault, pick: u64) -> bool {
    let world = &stage.world;
    let all: Vec<VmId> = lock(&world.fleet).vms.keys().copied().collect();
    if all.is_empty() {
        return false;
    }
    let id = all[usize::try_from(pick % all.len() as u64).unwrap_or(0)];
    let of = lock(&world.fleet).vms.get(&id).map(|vm| (vm.job.clone(), vm.generation));
    if let Some((job, generation)) = of {
        world.trace(|| format!("fault: {} on a worker of {job}", fault.name()));
        truth::befalls(world, &job, generation, fault);
    }
    match fault {
        Fault::AgentRestart => machine::end_agent(stage, id, false),
        Fault::AgentDead => machine::end_agent(stage, id, true),
        Fault::HostDead => machine::switch_off(world, id),
        Fault::HostError => {
            world.exec.spawn(hosts::fail(stage.clone(), id));
        }
        _ => machine::reboot(stage, id),
    }
    true
}

/// A VM whose program runs.
fn running(world: &World, pick: u64) -> Option<VmId> {
    let fleet = lock(&world.fleet);
    let runs = |v: &machine::Vm| v.attempt.as_ref().is_some_and(|a| a.step == Step::Running && !a.stopping);
    let all: Vec<VmId> = fleet.vms.iter().filter(|(_, v)| runs(v)).map(|(id, _)| *id).collect();
    (!all.is_empty()).then(|| all[usize::try_from(pick % all.len() as u64).unwrap_or(0)])
}

fn exit(world: &World, fault: Fault, pick: u64) -> bool {
    let Some(id) = running(world, pick) else { return false };
    let mut fleet = lock(&world.fleet);
    program::die(&mut fleet, id, program::death_of(fault, world.now()));
    true
}

fn hang(world: &World, pick: u64) -> bool {
    let Some(id) = running(world, pick) else { return false };
    let key = {
        let fleet = lock(&world.fleet);
        fleet.vms.get(&id).and_then(|vm| Some(((vm.job.clone(), vm.attempt.as_ref()?.number), vm.generation)))
    };
    let Some((key, generation)) = key else { return false };
    // Only programs that write progress are watched: a silent one that hangs would hang for ever.
    let hangs = world.job_plan(&key.0).is_some_and(|j| j.writes_progress) && program::hang(world, &key);
    if hangs {
        truth::befalls(world, &key.0, generation, Fault::Hang);
    }
    hangs
}

fn setup_goes_wrong(world: &World, fault: Fault, pick: u64) -> bool {
    let jobs = &world.plan.jobs;
    if jobs.is_empty() {
        return false;
    }
    let job = &jobs[usize::try_from(pick % jobs.len() as u64).unwrap_or(0)];
    let Ok(id) = JobId::parse(&job.id) else { return false };
    lock(&world.truth).of(&id).setup_fault = Some(fault);
    true
}

fn bare(world: &World, slice: SliceRef, labels: SliceLabels, foreign: bool) {
    let resource = Resource {
        slice,
        labels,
        accelerator: "v5litepod-4".into(),
        chips: 4,
        slices: 1,
        workers: 1,
        preemptible: true,
        reserved: false,
        made: None,
        created_at: world.now(),
        state: SliceState::Ready,
        health: Health::Healthy,
        error: None,
        operation: String::new(),
        metadata: std::collections::BTreeMap::default(),
        powered: true,
        lingers: false,
        ready_at: Some(world.now()),
        has_nodes: true,
        has_addresses: true,
        addresses: cloud::addresses(0, 1, 1),
        foreign,
        notice: None,
        lying_deletes: 0,
        life: Vec::new(),
        shown: std::sync::OnceLock::new(),
    };
    lock(&world.cloud).insert(resource);
}

/// Somebody else's node: of another installation, or with a name like ours and no labels.
fn foreign(world: &World, pick: u64) -> bool {
    let zone = ZONES[usize::try_from(pick % 3).unwrap_or(0)];
    let installation = if pick.is_multiple_of(2) { "others" } else { "" };
    let labels = SliceLabels { installation: installation.into(), job: "job-a".into(), ..SliceLabels::default() };
    if (pick / 16).is_multiple_of(4) && take_name(world, zone, pick, &labels) {
        return true;
    }
    let name = match pick % 4 {
        0 => format!("rk-others-job-a-g{}", pick % 7),
        1 => format!("rk-simula-job-a-g{}x", 900 + pick % 99),
        2 => format!("job-a-{}", pick % 99),
        _ => format!("rk-simula-other-g{}", pick % 9),
    };
    bare(world, SliceRef { zone: zone.into(), name, via: Via::Node }, labels, true);
    true
}

/// Somebody else has the very name that a job will ask for next, in this zone or where the job is now, as a node or as a queued resource.
fn take_name(world: &World, zone: &str, pick: u64, labels: &SliceLabels) -> bool {
    let (zone, name) = {
        let checks = lock(&world.checks);
        let open: Vec<_> = checks.jobs.values().filter(|job| job.outcome.is_none()).collect();
        let Some(job) = open.get(usize::try_from(pick / 64 % open.len().max(1) as u64).unwrap_or(0)) else {
            return false;
        };
        let here = job.generations.last().map_or(zone, |g| g.placement.zone.as_str());
        (here.to_owned(), names::generation_name(&world.installation, &job.id, job.last_generation + 1))
    };
    if lock(&world.cloud).resources.keys().any(|slice| slice.name == name && slice.zone == zone) {
        return false;
    }
    let via = if (pick / 8).is_multiple_of(2) { Via::Node } else { Via::QueuedResource };
    world.trace(|| format!("cloud: somebody else takes the name {name} in {zone}"));
    world.count("names taken");
    bare(world, SliceRef { zone, name, via }, labels.clone(), true);
    true
}

/// A resource with our id that no job owns: one that a job asked for once and has forgotten, as a bug or a crash of another version would leave
/// it. (One that nobody asked for says that the store is not the right one, and is a person's.)
fn orphan(world: &World, pick: u64) -> bool {
    let count = lock(&world.cloud).resources.values().filter(|r| r.labels.job == "orphan").count();
    // More than three at once stop the sweep, as they should: a person must look then.
    if count >= 2 {
        return false;
    }
    let index = |count: usize| usize::try_from(pick % count.max(1) as u64).unwrap_or(0);
    let zone = ZONES[index(3)];
    let name = {
        let checks = lock(&world.checks);
        let asked: Vec<_> = checks.jobs.values().filter(|job| job.last_generation > 0).collect();
        let Some(job) = asked.get(index(asked.len())) else { return false };
        let number = 1 + u32::try_from(pick % u64::from(job.last_generation)).unwrap_or(0);
        if job.generations.iter().any(|g| g.number == number && g.placement.zone == zone) {
            return false;
        }
        names::generation_name(&world.installation, &job.id, number)
    };
    if lock(&world.cloud).resources.keys().any(|slice| slice.name == name && slice.zone == zone) {
        return false;
    }
    // By its labels it is nobody's: the checkers count what is a job's own by them.
    let labels = JobId::parse("orphan").map(|job| names::labels(&world.installation, &job, 1, "0"));
    let Ok(labels) = labels else { return false };
    bare(world, SliceRef { zone: zone.into(), name, via: Via::Node }, labels, false);
    true
}

fn poison(stage: &Arc<Stage>, pick: u64) -> bool {
    let number = lock(&stage.world.mail).next();
    let (command, data) = match pick % 5 {
        0 => ("submit", b"not json".to_vec()),
        1 => ("submit", br#"{"run": [], "tpu": {"accelerator": "v9-1"}}"#.to_vec()),
        2 => ("dance", br#"{"id": "job-a"}"#.to_vec()),
        3 => ("cancel", br#"{"id": "no-such-job"}"#.to_vec()),
        _ => ("pause", vec![0xff, 0xfe, 0x00]),
    };
    let parcel = deliver::Parcel::message(format!("poison-{number}"), command, data, stage.world.now());
    deliver::send(stage, parcel, SEC);
    true
}
