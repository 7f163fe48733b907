//! `FakeTpu`: a scripted TPU API. Nothing happens in it by itself: the test moves slices on.
//!
//! Without a script a create makes a slice that is `Creating` and a pending operation; [`FakeTpu::finish`] or
//! [`FakeTpu::set_instant`] makes it READY. A delete makes it `Deleting`; [`FakeTpu::vanish`] takes it away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rekindle_core::catalog;
use rekindle_core::observation::{CreateError, Health, OperationView, SliceState, SliceView};
use rekindle_core::shared::Shared;
use rekindle_core::spec::CapacityKind;
use rekindle_ports::tpu::{CreateRequest, Listed, Listing, SliceRef, TpuApi, TpuError};
use rekindle_ports::world::Clock;

/// How the next call of one kind ends. Scripts of one kind are used up one after the other; without one a call goes
/// well.
#[derive(Debug, Clone, PartialEq)]
pub enum Script {
    /// The call goes well: a place-holder between other scripts.
    Well,
    /// The call fails and has no effect.
    Before(TpuError),
    /// The call has its effect, and fails.
    After(TpuError),
    /// Creates only: the request is accepted, its operation ends with this error, and nothing is there.
    Operation(CreateError),
}

/// A call that was made.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// A create.
    Create(Box<CreateRequest>),
    /// A delete.
    Delete(SliceRef),
    /// A read of a slice.
    Get(SliceRef),
    /// A read of an operation.
    Operation(String),
    /// A list.
    List,
}

#[derive(Default)]
struct State {
    slices: BTreeMap<SliceRef, Slice>,
    operations: BTreeMap<String, OperationView>,
    calls: Vec<Call>,
    creates: VecDeque<Script>,
    deletes: VecDeque<Script>,
    gets: VecDeque<Script>,
    operation_reads: VecDeque<Script>,
    lists: VecDeque<Script>,
    unreachable: Vec<String>,
    hidden: BTreeSet<String>,
    instant: bool,
    numbers: u64,
}

struct Slice {
    listed: Listed,
    workers: Vec<usize>,
    operation: Option<String>,
}

/// The scripted TPU API.
pub struct FakeTpu {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

impl FakeTpu {
    /// No slices, no scripts.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), clock }
    }

    /// Creates are READY and deletes are gone at once, when set.
    pub fn set_instant(&self, instant: bool) {
        self.lock().instant = instant;
    }

    /// How the next create ends.
    pub fn script_create(&self, script: Script) {
        self.lock().creates.push_back(script);
    }

    /// How the next delete ends.
    pub fn script_delete(&self, script: Script) {
        self.lock().deletes.push_back(script);
    }

    /// How the next read of a slice ends.
    pub fn script_get(&self, script: Script) {
        self.lock().gets.push_back(script);
    }

    /// How the next read of an operation ends.
    pub fn script_operation(&self, script: Script) {
        self.lock().operation_reads.push_back(script);
    }

    /// How the next list ends.
    pub fn script_list(&self, script: Script) {
        self.lock().lists.push_back(script);
    }

    /// Reads of what has this name answer 404, or do so no more.
    pub fn set_hidden(&self, name: &str, hidden: bool) {
        let names = &mut self.lock().hidden;
        if hidden {
            names.insert(name.to_owned())
        } else {
            names.remove(name)
        };
    }

    /// Zones that lists cannot read.
    pub fn set_unreachable(&self, zones: Vec<String>) {
        self.lock().unreachable = zones;
    }

    /// Every call so far, in order.
    pub fn calls(&self) -> Vec<Call> {
        self.lock().calls.clone()
    }

    /// Takes every call so far.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.lock().calls)
    }

    /// The slices that exist.
    pub fn slices(&self) -> Vec<Listed> {
        self.lock().slices.values().map(|s| s.listed.clone()).collect()
    }

    /// Puts a slice there that nobody asked for through this API: a foreign one, an orphan.
    pub fn insert(&self, listed: Listed) {
        let workers = listed.view.addresses.iter().map(Vec::len).collect();
        self.lock().slices.insert(listed.slice.clone(), Slice { listed, workers, operation: None });
    }

    /// The create of this slice ends well: READY, with addresses. False if there is no such slice.
    pub fn finish(&self, name: &str) -> bool {
        self.with(name, |state, slice| {
            state.finish(slice);
        })
    }

    /// Sets the state that the API shows, of all nodes alike. False if there is no such slice.
    pub fn set_state(&self, name: &str, to: SliceState) -> bool {
        self.with(name, |state, slice| {
            if let Some(slice) = state.slices.get_mut(slice) {
                let view = &mut slice.listed.view;
                view.ended = matches!(to, SliceState::Preempted | SliceState::Terminated | SliceState::Stopped);
                view.state = to;
            }
        })
    }

    /// Changes anything of the slice's view. False if there is no such slice.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut SliceView)) -> bool {
        self.with(name, |state, slice| {
            if let Some(slice) = state.slices.get_mut(slice) {
                change(&mut slice.listed.view);
            }
        })
    }

    /// The slice is gone; operations on it are done. False if there was no such slice.
    pub fn vanish(&self, name: &str) -> bool {
        self.with(name, State::vanish)
    }

    /// The create of this slice ends badly, and the slice is gone. False if there was no such slice.
    pub fn fail_create(&self, name: &str, error: CreateError) -> bool {
        self.with(name, |state, slice| {
            let operation = state.slices.remove(slice).and_then(|s| s.operation);
            if let Some(operation) = operation {
                state.operations.insert(operation, OperationView { done: true, error: Some(error) });
            }
        })
    }

    /// Forgets an operation, as the API does after a while.
    pub fn forget_operation(&self, name: &str) {
        self.lock().operations.remove(name);
    }

    fn with(&self, name: &str, change: impl FnOnce(&mut State, &SliceRef)) -> bool {
        let mut state = self.lock();
        let Some(slice) = state.slices.keys().find(|s| s.name == name).cloned() else { return false };
        change(&mut state, &slice);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn operation(&mut self, zone: &str, done: bool, error: Option<CreateError>) -> String {
        self.numbers += 1;
        let name = format!("projects/fake/locations/{zone}/operations/operation-{}", self.numbers);
        self.operations.insert(name.clone(), OperationView { done, error });
        name
    }

    fn done(&mut self, operation: Option<String>) {
        if let Some(view) = operation.and_then(|name| self.operations.get_mut(&name)) {
            view.done = true;
        }
    }

    fn finish(&mut self, slice: &SliceRef) {
        let Some(found) = self.slices.get_mut(slice) else { return };
        found.listed.view.state = SliceState::Ready;
        let of = |(s, workers): (usize, &usize)| {
            (0..*workers).map(|w| format!("10.{s}.{}.{}", w / 250, w % 250 + 1)).collect()
        };
        found.listed.view.addresses = found.workers.iter().enumerate().map(of).collect::<Vec<Vec<String>>>().into();
        let operation = found.operation.clone();
        self.done(operation);
    }

    fn vanish(&mut self, slice: &SliceRef) {
        let operation = self.slices.remove(slice).and_then(|s| s.operation);
        self.done(operation);
    }

    fn create(&mut self, request: &CreateRequest, now: jiff::Timestamp) -> Result<String, TpuError> {
        let zone = &request.placement.zone;
        let slice = SliceRef { zone: zone.clone(), name: request.name.clone(), via: request.via };
        if self.slices.keys().any(|s| s.zone == slice.zone && s.name == slice.name) {
            return Err(TpuError::Exists);
        }
        let workers = catalog::accelerator(&request.placement.accelerator).map_or(1, |a| a.workers as usize);
        let view = SliceView {
            state: SliceState::Creating,
            ended: false,
            health: Health::Healthy,
            addresses: Vec::new().into(),
            labels: request.labels.clone(),
            created_at: Some(now),
            error: None,
            note: None,
            made: Vec::new(),
        };
        let listed = Listed {
            slice: slice.clone(),
            accelerator: request.placement.accelerator.clone(),
            preemptible: request.placement.capacity.is_preemptible(),
            reserved: request.placement.capacity == CapacityKind::Reserved,
            view,
            owned_by: None,
            created_at: Some(now),
        };
        let operation = self.operation(zone, false, None);
        let workers = vec![workers; request.slices as usize];
        self.slices.insert(slice.clone(), Slice { listed, workers, operation: Some(operation.clone()) });
        if self.instant {
            self.finish(&slice);
        }
        Ok(operation)
    }

    fn delete(&mut self, slice: &SliceRef) -> Result<String, TpuError> {
        let operation = self.operation(&slice.zone, self.instant, None);
        let Some(found) = self.slices.get_mut(slice) else {
            self.operations.remove(&operation);
            return Err(TpuError::NotFound);
        };
        found.listed.view.state = SliceState::Deleting;
        found.listed.view.ended = false;
        found.operation = Some(operation.clone());
        if self.instant {
            self.vanish(slice);
        }
        Ok(operation)
    }
}

/// The error that a script asks for before the effect.
fn before(script: Option<&Script>) -> Result<(), TpuError> {
    match script {
        Some(Script::Before(error)) => Err(error.clone()),
        Some(Script::Well | Script::After(_) | Script::Operation(_)) | None => Ok(()),
    }
}

/// The error that a script asks for after the effect.
fn after<T>(script: Option<Script>, effect: Result<T, TpuError>) -> Result<T, TpuError> {
    match script {
        Some(Script::After(error)) => Err(error),
        Some(Script::Well | Script::Before(_) | Script::Operation(_)) | None => effect,
    }
}

#[async_trait]
impl TpuApi for FakeTpu {
    async fn create(&self, request: &CreateRequest) -> Result<String, TpuError> {
        let now = self.clock.now();
        let mut state = self.lock();
        state.calls.push(Call::Create(Box::new(request.clone())));
        let script = state.creates.pop_front();
        before(script.as_ref())?;
        if let Some(Script::Operation(error)) = script {
            return Ok(state.operation(&request.placement.zone, true, Some(error)));
        }
        let effect = state.create(request, now);
        after(script, effect)
    }

    async fn delete(&self, slice: &SliceRef) -> Result<String, TpuError> {
        let mut state = self.lock();
        state.calls.push(Call::Delete(slice.clone()));
        let script = state.deletes.pop_front();
        before(script.as_ref())?;
        let effect = state.delete(slice);
        after(script, effect)
    }

    async fn get(&self, slice: &SliceRef) -> Result<Option<SliceView>, TpuError> {
        let mut state = self.lock();
        state.calls.push(Call::Get(slice.clone()));
        let script = state.gets.pop_front();
        before(script.as_ref())?;
        let shown = state.slices.get(slice).filter(|s| !state.hidden.contains(&s.listed.slice.name));
        let seen = shown.map(|s| s.listed.view.clone());
        after(script, Ok(seen))
    }

    async fn operation(&self, name: &str) -> Result<Option<OperationView>, TpuError> {
        let mut state = self.lock();
        state.calls.push(Call::Operation(name.to_owned()));
        let script = state.operation_reads.pop_front();
        before(script.as_ref())?;
        let seen = state.operations.get(name).cloned();
        after(script, Ok(seen))
    }

    async fn list(&self) -> Result<Listing, TpuError> {
        let mut state = self.lock();
        state.calls.push(Call::List);
        let script = state.lists.pop_front();
        before(script.as_ref())?;
        let unreachable = state.unreachable.clone();
        let read = state.slices.values().filter(|s| !unreachable.contains(&s.listed.slice.zone));
        let without_addresses = |s: &Slice| {
            let mut listed = s.listed.clone();
            listed.view.addresses = Shared::default();
            listed.into()
        };
        let resources = read.map(without_addresses).collect();
        after(script, Ok(Listing { resources, unreachable }))
    }
}
