//! The provider: zones, capacity, quota, nodes and queued resources, operations, and what becomes of them by themselves.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use rekindle_core::catalog;
use rekindle_core::ids::JobId;
use rekindle_core::job::Via;
use rekindle_core::observation::{
    CreateError, CreateErrorKind, Health, Made, Notice, OperationView, SliceLabels, SliceState, SliceView,
};
use rekindle_core::shared::Shared;
use rekindle_core::spec::CapacityKind;
use rekindle_engine::act::metadata;
use rekindle_ports::tpu::{CreateRequest, Listed, SliceRef, TpuError};

use crate::deliver::{self, Part};
use crate::exec::{TaskId, lock};
use crate::fault::Fault;
use crate::machine;
use crate::plan::{Plan, ZONES};
use crate::roll::{For, MIN, SEC};
use crate::stage::Stage;
use crate::world::{World, stamp};

/// A node, or a queued resource with its nodes.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    /// Its name.
    pub(crate) slice: SliceRef,
    /// Whose it is.
    pub(crate) labels: SliceLabels,
    /// Accelerator type.
    pub(crate) accelerator: String,
    /// Chips of all slices.
    pub(crate) chips: u32,
    /// Slices.
    pub(crate) slices: u32,
    /// Workers of each.
    pub(crate) workers: u32,
    /// Bought as spot or preemptible.
    pub(crate) preemptible: bool,
    /// Of a reservation.
    pub(crate) reserved: bool,
    /// What reads say that was made: told of what is not what was asked for, and of nothing else.
    pub(crate) made: Option<Made>,
    /// When it was made.
    pub(crate) created_at: i64,
    /// What the API shows.
    pub(crate) state: SliceState,
    /// Health that the API shows.
    pub(crate) health: Health,
    /// The error of a queued resource that failed.
    pub(crate) error: Option<CreateError>,
    /// Operation of its create.
    pub(crate) operation: String,
    /// Node metadata.
    pub(crate) metadata: BTreeMap<String, String>,
    /// Whether its VMs have power.
    pub(crate) powered: bool,
    /// Its state says that it was taken away, and that some of its machines may still be on: a queued resource is SUSPENDING.
    pub(crate) lingers: bool,
    /// Since when it has been READY.
    pub(crate) ready_at: Option<i64>,
    /// Its nodes are shown. Those of a queued resource that is ACTIVE may be absent.
    pub(crate) has_nodes: bool,
    /// Whether its addresses are shown once it is READY.
    pub(crate) has_addresses: bool,
    /// Of its workers, slice by slice.
    pub(crate) addresses: Shared<Vec<Vec<String>>>,
    /// Somebody else's.
    pub(crate) foreign: bool,
    /// What its metadata server says.
    pub(crate) notice: Option<Notice>,
    /// Deletes that are accepted and do nothing.
    pub(crate) lying_deletes: u32,
    /// The task that brings it up, and the one that takes it away.
    pub(crate) life: Vec<TaskId>,
    /// As lists show it and its nodes, since it last changed.
    pub(crate) shown: OnceLock<Vec<Shared<Listed>>>,
}

impl Resource {
    /// As a read shows it.
    pub(crate) fn view(&self) -> SliceView {
        SliceView {
            ended: !self.lingers
                && matches!(self.state, SliceState::Preempted | SliceState::Terminated | SliceState::Stopped),
            state: self.state.clone(),
            health: self.health.clone(),
            addresses: if self.ready_at.is_some() && self.has_addresses {
                self.addresses.clone()
            } else {
                Shared::default()
            },
            labels: self.labels.clone(),
            created_at: Some(stamp(self.created_at)),
            error: self.error.clone(),
            note: None,
            made: self.made.iter().cloned().collect(),
        }
    }

    /// As a list shows it: a node, or a queued resource and then its nodes.
    pub(crate) fn listed(&self) -> &[Shared<Listed>] {
        let listed = |slice: SliceRef, owned_by: Option<String>| Listed {
            slice,
            accelerator: self.accelerator.clone(),
            preemptible: self.preemptible,
            reserved: self.reserved,
            view: SliceView { addresses: Shared::default(), made: Vec::new(), ..self.view() },
            owned_by,
            created_at: Some(stamp(self.created_at)),
        };
        self.shown.get_or_init(|| {
            let owner = || Some(self.slice.name.clone());
            let nodes = self.nodes().map(|node| listed(node, owner()).into());
            std::iter::once(listed(self.slice.clone(), None).into()).chain(nodes).collect()
        })
    }

    /// The nodes of a queued resource that has got its capacity, by the names that the API gives them.
    fn nodes(&self) -> impl Iterator<Item = SliceRef> {
        let was_granted = self.powered || self.ready_at.is_some();
        let has_nodes = self.slice.via == Via::QueuedResource && was_granted && self.has_nodes;
        let name = |n: u32| match self.slices {
            1 => self.slice.name.clone(),
            _ => format!("{}-{n}", self.slice.name),
        };
        let count = if has_nodes { self.slices } else { 0 };
        (0..count).map(move |n| SliceRef { zone: self.slice.zone.clone(), name: name(n), via: Via::Node })
    }

    /// The job and the generation that it was made for; `None`: for none.
    pub(crate) fn made_for(&self) -> Option<(JobId, u32)> {
        let generation = self.metadata.get(metadata::GENERATION)?.parse().ok()?;
        Some((JobId::parse(&self.labels.job).ok()?, generation))
    }

    /// Whether it is paid for now: READY, with power.
    pub(crate) fn bills(&self) -> bool {
        self.powered && self.ready_at.is_some()
    }
}

/// The provider's state.
#[derive(Debug)]
pub(crate) struct Cloud {
    /// Everything that exists.
    pub(crate) resources: BTreeMap<SliceRef, Resource>,
    /// What existed lately and is gone: lists may still show it.
    gone: VecDeque<(i64, Resource)>,
    operations: BTreeMap<String, OperationView>,
    numbers: u64,
    posts: VecDeque<i64>,
    chips: u32,
    quota: u32,
}

/// Addresses of so many slices with so many workers each, of the `number`-th resource: no two that live have the same.
pub(crate) fn addresses(number: u64, slices: u32, workers: u32) -> Shared<Vec<Vec<String>>> {
    let of = |s: u32| (0..workers).map(|w| format!("10.{}.{s}.{}", number % 250, w % 250 + 1)).collect();
    (0..slices).map(of).collect::<Vec<Vec<String>>>().into()
}

/// No capacity, in the words of the API.
pub(crate) fn error(kind: CreateErrorKind, message: &str) -> CreateError {
    CreateError { kind, message: message.into() }
}

impl Cloud {
    pub(crate) fn new(plan: &Plan) -> Self {
        let factor = [1, 2, 8][usize::try_from(plan.seed % 3).unwrap_or(0)];
        Self {
            resources: BTreeMap::new(),
            gone: VecDeque::new(),
            operations: BTreeMap::new(),
            numbers: 0,
            posts: VecDeque::new(),
            chips: plan.chips,
            quota: plan.quota.unwrap_or_else(|| plan.chips.saturating_mul(factor)),
        }
    }

    /// A resource that is about to change.
    pub(crate) fn get_mut(&mut self, slice: &SliceRef) -> Option<&mut Resource> {
        let resource = self.resources.get_mut(slice)?;
        resource.shown.take();
        Some(resource)
    }

    /// A resource that nobody asked for is there.
    pub(crate) fn insert(&mut self, resource: Resource) {
        self.resources.insert(resource.slice.clone(), resource);
    }

    /// There is room for all from here on.
    pub(crate) fn open(&mut self) {
        self.chips = u32::MAX / 2;
        self.quota = u32::MAX / 2;
    }

    /// An operation.
    pub(crate) fn operation(&self, name: &str) -> Option<OperationView> {
        self.operations.get(name).cloned()
    }

    /// Forgets an operation, if it has ended. True: it has.
    pub(crate) fn forget_operation(&mut self, name: &str) -> bool {
        let ended = self.operations.get(name).is_some_and(|view| view.done);
        ended && self.operations.remove(name).is_some()
    }

    /// Forgets an operation that goes on. True: it did.
    pub(crate) fn lose_operation(&mut self, name: &str) -> bool {
        let goes_on = self.operations.get(name).is_some_and(|view| !view.done);
        goes_on && self.operations.remove(name).is_some()
    }

    /// Whether something of this name was there lately.
    pub(crate) fn was_there(&self, zone: &str, name: &str) -> bool {
        self.gone.iter().any(|(_, r)| r.slice.zone == zone && r.slice.name == name)
    }

    fn new_operation(&mut self, zone: &str, done: bool) -> String {
        self.numbers += 1;
        let name = format!("projects/p/locations/{zone}/operations/operation-{}", self.numbers);
        self.operations.insert(name.clone(), OperationView { done, error: None });
        name
    }

    /// An operation ends, if it has not.
    pub(crate) fn end_operation(&mut self, name: &str, error: Option<CreateError>) {
        // What has ended ends once.
        if let Some(view) = self.operations.get_mut(name).filter(|view| !view.done) {
            *view = OperationView { done: true, error };
        }
    }

    /// Chips that count against the quota of a zone: also those of husks. Those of a reservation are bought.
    fn used(&self, zone: &str) -> u32 {
        let counts = |r: &&Resource| r.slice.zone == zone && !r.foreign && !r.reserved;
        self.resources.values().filter(counts).map(|r| r.chips).sum()
    }

    /// Whether a zone has the chips that a resource takes: its reservation, or all else.
    pub(crate) fn has_room(&self, resource: &Resource) -> bool {
        let (zone, reserved) = (&resource.slice.zone, resource.reserved);
        let is_busy = |r: &&Resource| r.slice.zone == *zone && r.powered && r.reserved == reserved;
        let busy: u32 = self.resources.values().filter(is_busy).map(|r| r.chips).sum();
        busy + resource.chips <= self.chips
    }

    /// What was asked for is made as something else: of no tier (`of_tier`), where one was asked for, or of another type.
    pub(crate) fn make_otherwise(&mut self, slice: &SliceRef, of_tier: bool) {
        let number = self.numbers;
        let Some(r) = self.get_mut(slice) else { return };
        if of_tier && r.preemptible && slice.via == Via::Node {
            r.preemptible = false;
            r.made = Some(Made { preemptible: Some(false), ..Made::default() });
            return;
        }
        let other = match r.accelerator.as_str() {
            "v5litepod-32" => "v5litepod-16",
            "v5litepod-16" => "v5litepod-8",
            _ => "v5litepod-4",
        };
        let Some(known) = catalog::accelerator(other) else { return };
        other.clone_into(&mut r.accelerator);
        (r.chips, r.workers) = (known.chips * r.slices, known.workers);
        r.addresses = addresses(number, r.slices, r.workers);
        r.made = Some(Made { accelerator: Some(other.into()), ..Made::default() });
    }

    /// Creates in the last minute, this one included.
    pub(crate) fn post(&mut self, now: i64) -> usize {
        self.posts.push_back(now);
        while self.posts.front().is_some_and(|at| *at <= now - MIN) {
            self.posts.pop_front();
        }
        self.posts.len()
    }

    /// Takes a create request, or refuses it as the API does on the POST.
    pub(crate) fn create(&mut self, request: &CreateRequest, now: i64) -> Result<SliceRef, TpuError> {
        let zone = &request.placement.zone;
        let slice = SliceRef { zone: zone.clone(), name: request.name.clone(), via: request.via };
        if self.resources.keys().any(|s| s.zone == slice.zone && s.name == slice.name) {
            return Err(TpuError::Exists);
        }
        let Some(known) = catalog::accelerator(&request.placement.accelerator) else {
            return Err(TpuError::Bad("no such accelerator".into()));
        };
        let chips = known.chips * request.slices;
        let reserved = request.placement.capacity == CapacityKind::Reserved;
        if !reserved && self.used(zone) + chips > self.quota {
            let text = format!("Quota limit 'TPUV5sPreemptiblePerProjectPerZone' has been exceeded in {zone}");
            return Err(TpuError::Refused(error(CreateErrorKind::Quota, &text)));
        }
        let operation = self.new_operation(zone, false);
        let queued = request.via == Via::QueuedResource;
        self.resources.insert(
            slice.clone(),
            Resource {
                slice: slice.clone(),
                labels: request.labels.clone(),
                accelerator: request.placement.accelerator.clone(),
                chips,
                slices: request.slices,
                workers: known.workers,
                preemptible: request.placement.capacity.is_preemptible(),
                reserved,
                made: None,
                created_at: now,
                state: if queued { SliceState::Queued } else { SliceState::Creating },
                health: Health::Healthy,
                error: None,
                operation,
                metadata: request.metadata.clone(),
                powered: false,
                lingers: false,
                ready_at: None,
                has_nodes: true,
                has_addresses: true,
                addresses: addresses(self.numbers, request.slices, known.workers),
                foreign: false,
                notice: None,
                lying_deletes: 0,
                life: Vec::new(),
                shown: OnceLock::new(),
            },
        );
        Ok(slice)
    }

    /// Everything as a list shows it; `stale`: what is young is missing, and what went lately is still there.
    pub(crate) fn list(&self, now: i64, stale: bool) -> Vec<Shared<Listed>> {
        let young = |r: &Resource| stale && r.created_at > now - 10 * SEC;
        let mut all: Vec<Shared<Listed>> =
            self.resources.values().filter(|r| !young(r)).flat_map(Resource::listed).cloned().collect();
        if stale {
            // Nodes and queued resources are two lists: either may be the older one.
            let shown = |at: i64| usize::from(at % 2 != 0);
            let gone = self.gone.iter().filter(|(at, _)| *at > now - 30 * SEC);
            all.extend(gone.flat_map(|(at, r)| r.listed().iter().skip(shown(*at))).cloned());
        }
        all
    }

    /// The queued resource that has this node.
    pub(crate) fn owner_of_node(&self, node: &SliceRef) -> Option<SliceRef> {
        let zone = self.resources.iter().filter(|(slice, _)| slice.zone == node.zone);
        zone.filter(|(_, r)| r.nodes().any(|n| n == *node)).map(|(slice, _)| slice.clone()).next()
    }
}

/// For so long a name may be taken after its 404.
const REMEMBERED: i64 = 3 * MIN;

/// A machine may be on for so long after the 404 of its slice.
const OUTLIVES: i64 = 5 * SEC;

/// Takes a resource away for good: 404 from here on. Its machines may be on for some seconds more.
pub(crate) fn remove(stage: &Arc<Stage>, slice: &SliceRef) {
    let world = &stage.world;
    let mut cloud = lock(&world.cloud);
    let now = world.now();
    let Some(resource) = cloud.resources.remove(slice) else { return };
    for task in &resource.life {
        world.exec.kill(*task);
    }
    if resource.powered {
        crate::truth::mark_off(world, &resource);
    }
    if let Some((job, _)) = resource.made_for() {
        crate::truth::mark(world, &job, "gone", now);
    }
    let operation = resource.operation.clone();
    if cloud.operations.get(&operation).is_some_and(|o| !o.done) {
        cloud.end_operation(&operation, Some(error(CreateErrorKind::Cancelled, "the resource was deleted")));
    }
    cloud.gone.push_back((now, resource));
    while cloud.gone.front().is_some_and(|(at, _)| *at < now - REMEMBERED) {
        cloud.gone.pop_front();
    }
    drop(cloud);
    world.trace(|| format!("cloud: {} is gone", slice.name));
    if world.rolls.chance(For::Cloud, 0.5) {
        machine::power_off(world, slice);
    } else {
        let (stage, slice) = (stage.clone(), slice.clone());
        let exec = world.exec.clone();
        exec.spawn(async move { machine::go_dark(&stage.world, &slice, OUTLIVES).await });
    }
}

/// Changes a resource, if it is there.
pub(crate) fn with<T>(world: &World, slice: &SliceRef, change: impl FnOnce(&mut Resource) -> T) -> Option<T> {
    lock(&world.cloud).get_mut(slice).map(change)
}

/// The last machine of a resource is off: it is not paid for any more.
pub(crate) fn unpower(world: &World, slice: &SliceRef) {
    with(world, slice, |r| {
        if r.powered {
            crate::truth::mark_off(world, r);
        }
        r.powered = false;
    });
}

/// A second resource like one that is there, with another name and for another job.
pub(crate) fn copy(world: &World, zone: &str, from: &str, to: &str, job: &JobId) {
    let mut cloud = lock(&world.cloud);
    let Some(mut twin) = cloud.resources.values().find(|r| r.slice.zone == zone && r.slice.name == from).cloned()
    else {
        return;
    };
    to.clone_into(&mut twin.slice.name);
    twin.labels.job = job.to_string();
    twin.life.clear();
    twin.shown.take();
    cloud.resources.insert(twin.slice.clone(), twin);
}

/// The same resource of another installation, which is never to be touched.
pub(crate) fn copy_for_others(world: &World, from: &SliceRef, name: &str, installation: &str) {
    let mut cloud = lock(&world.cloud);
    let Some(mut twin) = cloud.resources.get(from).cloned() else { return };
    name.clone_into(&mut twin.slice.name);
    installation.clone_into(&mut twin.labels.installation);
    twin.metadata.clear();
    twin.life.clear();
    twin.shown.take();
    twin.foreign = true;
    cloud.resources.insert(twin.slice.clone(), twin);
}

/// Carries out a delete that was accepted, of what was in this state `before`.
pub(crate) async fn take_down(stage: Arc<Stage>, slice: SliceRef, before: SliceState) {
    let world = &stage.world;
    let mut time = world.plan.delete_us;
    if world.strikes(Fault::DeleteSlow, For::Later) {
        time = world.rolls.between(For::Later, 3 * MIN, 14 * MIN);
    }
    // What was being made is not made on.
    if before != SliceState::Creating && before != SliceState::Queued && world.strikes(Fault::DeleteFails, For::Later) {
        world.exec.sleep(time).await;
        world.trace(|| format!("cloud: the delete of {} failed; it is {before:?} again", slice.name));
        with(world, &slice, |r| r.state = before);
        return;
    }
    // Now and then the machines are the last to go.
    if !world.rolls.chance(For::Cloud, 0.2) {
        machine::go_dark(world, &slice, (time / 2).min(20 * SEC)).await;
        unpower(world, &slice);
    }
    world.exec.sleep(world.rolls.between(For::Cloud, time / 2, time + time / 2)).await;
    deliver::cloud_event(&stage, &slice, "Delete", Part::Last);
    remove(&stage, &slice);
}

/// The zones that a list cannot read now.
pub(crate) fn unreachable(world: &World) -> Vec<String> {
    let is_away =
        |z: &&&str| world.goes_on(Fault::ZoneUnreachable, Some(z)) || world.goes_on(Fault::ZoneForbidden, Some(z));
    ZONES.iter().filter(is_away).map(|z| (*z).to_owned()).collect()
}
