//! The one place where the world changes: transition, persist, hand on the effects, in this order.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::events::Events;
use crate::fleet::Fleet;
use crate::http::log::RequestLog;
use crate::model::{Effect, NodeKey, World};
use crate::world::Moment;

/// Everything the handlers and background tasks share.
pub(crate) struct Shared {
    world: Mutex<World>,
    file: PathBuf,
    speed: f64,
    wake: Notify,
    is_closed: AtomicBool,
    rates: Mutex<HashMap<String, Vec<Instant>>>,
    pub(crate) fleet: Fleet,
    pub(crate) events: Events,
    pub(crate) log: RequestLog,
    pub(crate) key_file: PathBuf,
}

/// Window of the create limit. Nominal.
const RATE_WINDOW: Duration = Duration::from_mins(1);

impl Shared {
    pub(crate) fn new(
        world: World,
        file: PathBuf,
        speed: f64,
        fleet: Fleet,
        events: Events,
        key_file: PathBuf,
    ) -> Self {
        Self {
            world: Mutex::new(world),
            file,
            speed,
            wake: Notify::new(),
            is_closed: AtomicBool::new(false),
            rates: Mutex::new(HashMap::new()),
            fleet,
            events,
            log: RequestLog::new(),
            key_file,
        }
    }

    /// Looks at the world.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.lock())
    }

    /// Changes the world, keeps it on disk, and starts what the change asks for. After a crash at any point the
    /// effects that were not carried out are found again from the stored world.
    pub(crate) fn change<T>(self: &Arc<Self>, transition: impl FnOnce(&mut World, Moment) -> T) -> T {
        let mut world = self.lock();
        let moment = Moment { now: Timestamp::now(), speed: self.speed };
        let answer = transition(&mut world, moment);
        let effects = std::mem::take(&mut world.effects);
        if self.is_closed.load(Ordering::Acquire) {
            return answer;
        }
        if let Err(error) = self.persist(&world) {
            tracing::error!("cannot keep the state: {error}");
        }
        for effect in effects {
            self.dispatch(&world, effect);
        }
        drop(world);
        self.wake.notify_one();
        answer
    }

    /// From here on nothing is kept or carried out: the folder may belong to another emulator.
    pub(crate) fn close(&self) {
        let _world = self.lock();
        self.is_closed.store(true, Ordering::Release);
    }

    fn persist(&self, world: &World) -> std::io::Result<()> {
        let text = serde_json::to_vec(world).map_err(std::io::Error::other)?;
        crate::vm::write_atomically(&self.file, &text)
    }

    fn dispatch(self: &Arc<Self>, world: &World, effect: Effect) {
        match effect {
            Effect::Boot(key, workers) => {
                if let Some(node) = world.nodes.get(&key.name) {
                    self.fleet.boot(world, node, &workers);
                }
            }
            Effect::PowerOff(key, workers) => {
                let Some(node) = world.nodes.get(&key.name) else { return };
                let done = self.fleet.power_off(node, &workers);
                let shared = self.clone();
                tokio::spawn(async move {
                    if done.await.is_ok() {
                        shared.change(|world, moment| world.powered_off(moment, &key));
                    }
                });
            }
            Effect::Metadata(key, workers, changes) => {
                if let Some(node) = world.nodes.get(&key.name) {
                    self.fleet.metadata(node, &workers, changes);
                }
            }
            Effect::Reboot(key, worker) => {
                if let Some(node) = world.nodes.get(&key.name) {
                    self.fleet.reboot(world, node, worker);
                }
            }
            Effect::Remove(key) => self.fleet.remove(&key),
            Effect::Audit(entry) => self.events.write(entry),
        }
    }

    /// Power-offs that a stopped emulator left undone begin again.
    pub(crate) fn resume_power_off(self: &Arc<Self>, key: &NodeKey) {
        let world = self.lock();
        let workers = world.nodes.get(&key.name).map(|node| node.workers.iter().map(|worker| worker.index).collect());
        if let Some(workers) = workers {
            self.dispatch(&world, Effect::PowerOff(key.clone(), workers));
        }
    }

    /// Boots that a stopped emulator left undone begin again.
    pub(crate) fn resume_boot(self: &Arc<Self>, key: &NodeKey, workers: Vec<u32>) {
        let world = self.lock();
        self.dispatch(&world, Effect::Boot(key.clone(), workers));
    }

    /// Fires timers as they come due; for ever.
    pub(crate) async fn run_timers(self: Arc<Self>) {
        loop {
            let due = self.read(World::next_due);
            let now = Timestamp::now();
            match due {
                Some(due) if due <= now => self.change(World::tick),
                Some(due) => {
                    let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
                    let _ = tokio::time::timeout(wait, self.wake.notified()).await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Counts a create against the project's limit for a minute; the limit when it is reached.
    pub(crate) fn count_create(&self, project: &str) -> Result<(), u32> {
        let limit = self.read(|world| world.scenario.creates_per_minute());
        let window = RATE_WINDOW.div_f64(self.speed);
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = rates.entry(project.to_owned()).or_default();
        let now = Instant::now();
        recent.retain(|at| now.duration_since(*at) < window);
        if recent.len() >= limit as usize {
            return Err(limit);
        }
        recent.push(now);
        Ok(())
    }

    /// A nominal wait at this speed.
    pub(crate) fn scaled(&self, wait: Duration) -> Duration {
        wait.div_f64(self.speed)
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
