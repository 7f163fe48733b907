//! The TPU API as handlers reach it: latencies, errors before and after the effect, refusals, lies.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use rekindle_core::job::Via;
use rekindle_core::observation::{CreateError, CreateErrorKind, Health, OperationView, SliceState, SliceView};
use rekindle_core::shared::Shared;
use rekindle_core::spec::CapacityKind;
use rekindle_ports::tpu::{CreateRequest, Listed, Listing, SliceRef, TpuApi, TpuError};

use crate::cloud::{self, Resource, take_down};
use crate::deliver::{self, Part};
use crate::exec::lock;
use crate::fault::Fault;
use crate::flight::{self, Caller, LIFE};
use crate::making::bring_up;
use crate::plan::ZONES;
use crate::roll::{For, MIN, SEC};
use crate::stage::Stage;
use crate::world::{SLOW_HOP, TPU_HOP, World, micros};

/// The platform's limit of creates a minute.
// 91 a minute and project, as users report it.
const POSTS_PER_MINUTE: usize = 91;

/// The API.
pub(crate) struct SimTpu {
    /// The world.
    pub(crate) world: Arc<World>,
    /// For what goes on after the answer.
    pub(crate) stage: Weak<Stage>,
}

impl SimTpu {
    /// How long a call is on its way to the API.
    fn way(&self) -> i64 {
        let way = self.world.way(TPU_HOP);
        let slow = self.world.strikes(Fault::TpuSlow, For::Fault);
        if slow { way + self.world.rolls.between(For::Latency, 0, SLOW_HOP) } else { way }
    }

    /// The way of a call that changes nothing.
    async fn begin(&self) -> Result<(), TpuError> {
        self.world.exec.sleep(self.way()).await;
        self.arrive()
    }

    /// A call that changes something: it goes on by itself.
    async fn send<T: Send + 'static>(
        &self,
        effect: impl FnOnce(&Self) -> Result<T, TpuError> + Send + 'static,
    ) -> Result<T, TpuError> {
        let there = Self { world: self.world.clone(), stage: self.stage.clone() };
        let request = async move { there.arrive().and_then(|()| effect(&there)) };
        let answer = flight::send(&self.world, Caller::Handler, self.way(), request).await;
        self.end(answer.ok_or_else(|| TpuError::Unclear("deadline exceeded".into()))?).await
    }

    /// Errors that keep the call from having any effect.
    fn arrive(&self) -> Result<(), TpuError> {
        if self.world.goes_on(Fault::TpuOutage, None) {
            return Err(TpuError::Unclear("503: the service is away".into()));
        }
        if self.world.goes_on(Fault::TpuDenied, None) {
            return Err(TpuError::Denied("401: Request had invalid authentication credentials".into()));
        }
        if self.world.strikes(Fault::TpuUnclearBefore, For::Fault) {
            return Err(TpuError::Unclear("502: Bad Gateway".into()));
        }
        Ok(())
    }

    /// The way back: the effect has taken place.
    async fn end<T>(&self, answer: Result<T, TpuError>) -> Result<T, TpuError> {
        self.world.exec.sleep(self.world.rolls.about(For::Latency, TPU_HOP / 2)).await;
        if answer.is_ok() && self.world.strikes(Fault::TpuUnclearAfter, For::Fault) {
            return Err(TpuError::Unclear("the connection broke".into()));
        }
        answer
    }

    /// Whether the answer to this create never comes.
    fn is_unanswered(&self, request: &CreateRequest) -> bool {
        let job = self.world.plan.unanswered.and_then(|n| self.world.plan.jobs.get(n));
        !self.world.is_calm() && job.is_some_and(|job| job.id == request.labels.job)
    }

    fn refusal(&self, request: &CreateRequest) -> Option<TpuError> {
        let world = &self.world;
        let posts = lock(&world.cloud).post(world.now());
        crate::check::on_post(world, request, posts);
        let refused = |kind, message: &str| Some(TpuError::Refused(CreateError { kind, message: message.into() }));
        if posts > POSTS_PER_MINUTE || world.goes_on(Fault::RateLimit, None) {
            return refused(CreateErrorKind::RateLimit, "Maximum number of CreateNode requests per minute");
        }
        let elsewhere = ZONES[usize::try_from(world.plan.seed % 3).unwrap_or(0)];
        if world.has(Fault::NotOffered) && !world.is_calm() && request.placement.zone == elsewhere {
            return refused(CreateErrorKind::NotOffered, "Accelerator type is not available in this zone");
        }
        if world.goes_on(Fault::ZoneForbidden, Some(&request.placement.zone)) {
            return Some(forbidden(&request.placement.zone));
        }
        let reserved = request.placement.capacity == CapacityKind::Reserved;
        if reserved && world.goes_on(Fault::ReservationGone, Some(&request.placement.zone)) {
            return refused(CreateErrorKind::Reservation, "Reservation not found");
        }
        if !reserved && world.goes_on(Fault::Quota, Some(&request.placement.zone)) {
            return refused(CreateErrorKind::Quota, "Quota limit 'TPUV5sPreemptible' has been exceeded");
        }
        None
    }
}

#[async_trait]
impl TpuApi for SimTpu {
    async fn create(&self, request: &CreateRequest) -> Result<String, TpuError> {
        let request = request.clone();
        let (asked_at, is_unanswered) = (self.world.now(), self.is_unanswered(&request));
        let answer = self.send(move |there| there.create_now(&request)).await;
        if is_unanswered {
            self.world.count("creates without an answer");
            self.world.exec.sleep_until(asked_at + LIFE).await;
            return Err(TpuError::Unclear("deadline exceeded".into()));
        }
        answer
    }

    async fn delete(&self, slice: &SliceRef) -> Result<String, TpuError> {
        let slice = slice.clone();
        self.send(move |there| there.delete_now(&slice)).await
    }

    async fn get(&self, slice: &SliceRef) -> Result<Option<SliceView>, TpuError> {
        self.begin().await?;
        let world = &self.world;
        if world.goes_on(Fault::ZoneForbidden, Some(&slice.zone)) {
            return Err(forbidden(&slice.zone));
        }
        let seen = self.found(slice);
        let answer = self.end(Ok(seen)).await;
        if let Ok(seen) = &answer {
            crate::check::on_read(world, slice, seen.as_ref());
        }
        answer
    }

    async fn operation(&self, name: &str) -> Result<Option<OperationView>, TpuError> {
        self.begin().await?;
        let world = &self.world;
        let expires = world.threatens(Fault::OperationExpired, For::Fault);
        if expires && lock(&world.cloud).forget_operation(name) {
            world.count_fault(Fault::OperationExpired);
        }
        let vanishes = world.threatens(Fault::OperationVanished, For::Later);
        if vanishes && lock(&world.cloud).lose_operation(name) {
            world.count_fault(Fault::OperationVanished);
        }
        let seen = lock(&world.cloud).operation(name);
        self.end(Ok(seen)).await
    }

    async fn list(&self) -> Result<Listing, TpuError> {
        self.begin().await?;
        let stale = self.world.strikes(Fault::ListStale, For::Fault);
        let unreachable = cloud::unreachable(&self.world);
        let mut resources = {
            let cloud = lock(&self.world.cloud);
            cloud.list(self.world.now(), stale)
        };
        resources.retain(|r| !unreachable.contains(&r.slice.zone));
        self.blur(&mut resources);
        self.end(Ok(Listing { resources, unreachable })).await
    }
}

/// A read may not know yet what is younger than this.
const YOUNG: i64 = 15 * SEC;

/// What has been READY for so long is missed once at most in that time.
const STOOD: i64 = 5 * MIN;

/// For how long reads miss it, where it is not a single one. Shorter than two looks are apart of which both must say 404.
const MISSED: i64 = 8 * SEC;

/// Whether a read does not find what is there.
fn misses(world: &World, r: &Resource) -> bool {
    let now = world.now();
    // How far apart two looks are is told by the instances' clocks.
    let has_stood = r.state == SliceState::Ready && r.ready_at.is_some_and(|at| at < now - STOOD);
    if !has_stood || world.has(Fault::ClockSkew) {
        return false;
    }
    let missed = &mut lock(&world.missed);
    let until = missed.get(&r.slice).copied();
    if until.is_some_and(|until| now < until) {
        return true;
    }
    let strikes = until.is_none_or(|until| until < now - STOOD) && world.strikes(Fault::ReadMisses, For::Later);
    if strikes {
        // That a delete is taken and the slice is not found is enough for the next one to be asked for.
        let deletes_lie = world.has(Fault::DeleteLies) || world.has(Fault::DeleteFails);
        let lasts = !deletes_lie && world.rolls.chance(For::Later, 0.3);
        missed.insert(r.slice.clone(), if lasts { now + MISSED } else { now });
        if let Some((job, generation)) = r.made_for().filter(|_| lasts) {
            crate::truth::befalls(world, &job, generation, Fault::ReadMisses);
        }
    }
    strikes
}

/// A list of nodes and one of queued resources may be so far apart.
const APART: i64 = MIN;

fn forbidden(zone: &str) -> TpuError {
    TpuError::Denied(format!("Permission denied on 'locations/{zone}' (or it may not exist)."))
}

/// A read that does not tell the state, or the health.
fn unclear(world: &World, view: SliceView) -> SliceView {
    if view.state == SliceState::Ready && world.rolls.chance(For::Later, 0.5) {
        return SliceView { health: Health::Unhealthy("TIMEOUT".into()), ..view };
    }
    SliceView { state: SliceState::Unspecified, ended: false, addresses: Shared::default(), ..view }
}

impl SimTpu {
    /// What a read shows.
    fn found(&self, slice: &SliceRef) -> Option<SliceView> {
        let world = &self.world;
        let cloud = lock(&world.cloud);
        let r = cloud.resources.get(slice)?;
        // What has ended is there for every read; and so is what was READY.
        let is_made = r.ready_at.is_some() || cloud.operation(&r.operation).is_some_and(|operation| operation.done);
        // How old a create is when a 404 is read is told by the instances' clocks: where they are minutes wrong, nothing is promised of it.
        let is_new = !is_made && r.created_at > world.now() - YOUNG && !world.has(Fault::ClockSkew);
        if is_new && world.strikes(Fault::GetLags, For::Later) {
            return None;
        }
        if misses(world, r) {
            return None;
        }
        let is_unclear = world.strikes(Fault::StateUnclear, For::Later);
        Some(if is_unclear { unclear(world, r.view()) } else { r.view() })
    }

    /// What a list leaves out, or tells unclearly.
    fn blur(&self, resources: &mut Vec<Shared<Listed>>) {
        let world = &self.world;
        if world.threatens(Fault::ListSplit, For::Later) {
            let now = world.now();
            let hides_nodes = world.rolls.chance(For::Later, 0.5);
            let before = resources.len();
            resources.retain(|r| {
                let is_young = r.created_at.is_some_and(|at| micros(at) > now - APART);
                let is_hidden = if hides_nodes { r.owned_by.is_some() } else { r.slice.via == Via::QueuedResource };
                !(is_young && is_hidden)
            });
            if resources.len() < before {
                world.count_fault(Fault::ListSplit);
            }
        }
        if !resources.is_empty() && world.strikes(Fault::StateUnclear, For::Later) {
            let index = world.rolls.index(For::Later, resources.len());
            let one = &resources[index];
            resources[index] = Listed { view: unclear(world, one.view.clone()), ..(**one).clone() }.into();
        }
    }

    fn create_now(&self, request: &CreateRequest) -> Result<String, TpuError> {
        if let Some(error) = self.refusal(request) {
            return Err(error);
        }
        let is_held = lock(&self.world.cloud).was_there(&request.placement.zone, &request.name);
        if is_held && self.world.strikes(Fault::NameHeld, For::Later) {
            return Err(TpuError::Exists);
        }
        let slice = lock(&self.world.cloud).create(request, self.world.now())?;
        if self.world.strikes(Fault::MadeOtherwise, For::Later) {
            let of_tier = self.world.rolls.chance(For::Later, 0.5);
            lock(&self.world.cloud).make_otherwise(&slice, of_tier);
        }
        self.world.count("creates");
        self.world.trace(|| format!("cloud: create of {} in {} accepted", slice.name, slice.zone));
        crate::check::on_create(&self.world, request);
        if let Some(stage) = self.stage.upgrade() {
            deliver::cloud_event(&stage, &slice, "Create", Part::First);
            let task = self.world.exec.spawn(bring_up(stage, slice.clone()));
            cloud::with(&self.world, &slice, |r| r.life.push(task));
        }
        cloud::with(&self.world, &slice, |r| r.operation.clone()).ok_or(TpuError::NotFound)
    }

    fn delete_now(&self, slice: &SliceRef) -> Result<String, TpuError> {
        let world = &self.world;
        // Who deletes a node of a queued resource ends all of it.
        let owner = lock(&world.cloud).owner_of_node(slice);
        let slice = owner.as_ref().unwrap_or(slice);
        if world.goes_on(Fault::ZoneForbidden, Some(&slice.zone)) {
            return Err(forbidden(&slice.zone));
        }
        let state = cloud::with(world, slice, |r| (r.state.clone(), r.lying_deletes, r.lingers));
        let Some((state, lies, lingers)) = state else {
            world.count("deletes of what is gone");
            return Err(TpuError::NotFound);
        };
        crate::check::on_delete(world, slice);
        world.count("deletes");
        if state == SliceState::Deleting {
            return Err(TpuError::State("another operation holds it".into()));
        }
        if state == SliceState::Creating && world.strikes(Fault::DeleteRefused, For::Fault) {
            return Err(TpuError::State("delete is not supported while in state CREATING".into()));
        }
        let is_suspending = lingers && slice.via == Via::QueuedResource;
        if is_suspending && world.strikes(Fault::DeleteRefusedLate, For::Later) {
            return Err(TpuError::State("delete is not supported while in state SUSPENDING".into()));
        }
        world.trace(|| format!("cloud: delete of {} accepted", slice.name));
        let operation = format!("projects/p/locations/{}/operations/delete-{}", slice.zone, slice.name);
        if lies > 0 || world.strikes(Fault::DeleteLies, For::Fault) {
            world.trace(|| format!("cloud: (and nothing happens to {})", slice.name));
            cloud::with(world, slice, |r| r.lying_deletes = lies.saturating_sub(1));
            return Ok(operation);
        }
        let life = cloud::with(world, slice, |r| {
            r.state = SliceState::Deleting;
            std::mem::take(&mut r.life)
        });
        for task in life.unwrap_or_default() {
            world.exec.kill(task);
        }
        if let Some(stage) = self.stage.upgrade() {
            deliver::cloud_event(&stage, slice, "Delete", Part::First);
            let task = world.exec.spawn(take_down(stage, slice.clone(), state));
            cloud::with(world, slice, |r| r.life.push(task));
        }
        Ok(operation)
    }
}
