//! The stage: the production code, unchanged, over the world's ports. Several instances, each with its own clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use axum::Router;
use bytes::Bytes;
use jiff::Timestamp;

use rekindle_core::ids::JobId;
use rekindle_core::job::OutEvent;
use rekindle_core::settings::{CapacityEntry, Deployment, Settings};
use rekindle_core::spec::CapacityKind;
use rekindle_engine::Engine;
use rekindle_fn_api::Api;
use rekindle_fn_jobs::{Jobs, Name};
use rekindle_ports::Ports;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{Installation, Store};
use rekindle_ports::world::{Clock, DeadLetters, Events, Hint, Hints, Ids, Objects, Probe, Wakeups, WorldError};
use rekindle_web::Door;
use rekindle_web::caller::{Loopback, guard};

use crate::bell::SimBells;
use crate::deliver;
use crate::exec::lock;
use crate::fault::Fault;
use crate::flight::{self, Caller};
use crate::plan::{START_US, ZONES};
use crate::roll::{For, HOUR};
use crate::store::SimDocs;
use crate::tpu::SimTpu;
use crate::world::{SMALL_HOP, World, stamp};

/// One instance of the services: an engine with a clock of its own, and the routers over it.
pub(crate) struct Instance {
    /// The engine.
    pub(crate) engine: Engine,
    /// Every function.
    pub(crate) router: Router,
}

/// The world with the production code in it.
pub(crate) struct Stage {
    /// The world.
    pub(crate) world: Arc<World>,
    /// Instances.
    pub(crate) instances: Vec<Instance>,
}

impl Stage {
    /// Production code over the world's ports, on a store with its installation document.
    pub(crate) fn new(world: &Arc<World>) -> Arc<Self> {
        let limits =
            |d: Deployment| Deployment { max_chips: world.plan.max_chips, max_usd_per_day: world.plan.max_usd, ..d };
        Self::with_deployment(world, limits(deployment()))
    }

    /// The same with another deployment.
    pub(crate) fn with_deployment(world: &Arc<World>, deployment: Deployment) -> Arc<Self> {
        let installation = Installation {
            id: world.installation.clone(),
            secret: "0123456789abcdef".repeat(4),
            born_at: stamp(START_US - HOUR),
        };
        seed_store(world, &installation);
        let count = if world.has(Fault::ClockSkew) { 4 } else { 2 };
        let (settings, deployment) = (Arc::new(Settings::default()), Arc::new(deployment));
        Arc::new_cyclic(|weak: &Weak<Self>| {
            let instances = (0..count).map(|_| {
                let ports = ports(world, weak);
                let engine = Engine {
                    ports,
                    settings: settings.clone(),
                    deployment: deployment.clone(),
                    installation: Arc::new(installation.clone()),
                };
                Instance { router: router(&engine), engine }
            });
            Self { world: world.clone(), instances: instances.collect() }
        })
    }

    /// Any instance: each call meets another one.
    pub(crate) fn any(&self) -> &Instance {
        &self.instances[self.world.rolls.index(For::Delivery, self.instances.len())]
    }
}

fn seed_store(world: &Arc<World>, installation: &Installation) {
    lock(&world.shelf).insert(vec![rekindle_ports::store::put(&Kind::Installation, installation, Precondition::None)]);
}

/// The deployment of every seed: v5e, spot, on demand and reserved, in the world's zones.
pub(crate) fn deployment() -> Deployment {
    let mut capacity = Vec::new();
    for kind in [CapacityKind::Spot, CapacityKind::OnDemand, CapacityKind::Reserved] {
        for zone in ZONES {
            capacity.push(CapacityEntry {
                accelerator: "v5litepod-*".into(),
                zone: zone.into(),
                kind,
                max_chips: None,
                usd_per_chip_hour: 0.3,
            });
        }
    }
    Deployment {
        capacity,
        max_chips: None,
        max_usd_per_day: None,
        owners: BTreeMap::new(),
        access: rekindle_core::access::Access::open(),
        bucket: "gs://simulated".into(),
        bucket_regions: Vec::new(),
        api_url: "https://api.example.com".into(),
        worker_service_account: None,
        worker_network: None,
        startup_script: None,
        worker_metadata: BTreeMap::new(),
    }
}

fn router(engine: &Engine) -> Router {
    let verifier = Arc::new(Loopback { identity: "ann@example.com".into() });
    let api = Api::new(engine.clone(), verifier.clone(), None);
    let jobs = Jobs { engine: engine.clone(), may: Arc::new(Name::ALL.into_iter().collect()) };
    guard(rekindle_fn_jobs::router(jobs), verifier.clone(), Door::Jobs)
        .merge(guard(rekindle_fn_reconcile::router(engine.clone()), verifier.clone(), Door::Reconcile))
        .merge(guard(rekindle_fn_tick::router(engine.clone()), verifier.clone(), Door::Tick))
        .merge(guard(rekindle_fn_tpu_events::router(engine.clone()), verifier.clone(), Door::TpuEvents))
        .merge(guard(rekindle_fn_api::people(api.clone()), verifier, Door::People))
        .merge(rekindle_fn_api::agents(api))
}

fn ports(world: &Arc<World>, stage: &Weak<Stage>) -> Ports {
    let skew = if world.has(Fault::ClockSkew) {
        world.rolls.between(For::Target, -world.plan.skew_us, world.plan.skew_us)
    } else {
        0
    };
    let small = Arc::new(Small { world: world.clone(), stage: stage.clone(), skew });
    Ports {
        store: Store::new(Arc::new(SimDocs(world.clone()))),
        tpu: Arc::new(SimTpu { world: world.clone(), stage: stage.clone() }),
        hints: small.clone(),
        wakeups: small.clone(),
        bells: Arc::new(SimBells(world.clone())),
        events: small.clone(),
        dead_letters: small.clone(),
        objects: small.clone(),
        clock: small.clone(),
        ids: small.clone(),
        probe: small,
    }
}

/// The small ports of one instance.
struct Small {
    world: Arc<World>,
    stage: Weak<Stage>,
    skew: i64,
}

impl Small {
    /// A send that may fail before or after its effect.
    async fn send(
        &self,
        what: &'static str,
        effect: impl FnOnce(&Arc<Stage>) + Send + 'static,
    ) -> Result<(), WorldError> {
        let failed = |why: &str| Err(WorldError { what, why: why.into() });
        let (world, stage) = (self.world.clone(), self.stage.clone());
        let request = async move {
            let fails = world.strikes(Fault::SendFails, For::Fault);
            if let Some(stage) = stage.upgrade().filter(|_| !fails) {
                effect(&stage);
            }
            fails
        };
        match flight::send(&self.world, Caller::Handler, self.world.way(SMALL_HOP), request).await {
            None => return failed("deadline exceeded"),
            Some(true) => return failed("503 before"),
            Some(false) => {}
        }
        self.world.exec.sleep(self.world.rolls.about(For::Latency, SMALL_HOP / 2)).await;
        if self.world.strikes(Fault::SendUnclear, For::Fault) {
            return failed("503 after");
        }
        Ok(())
    }
}

#[async_trait]
impl Hints for Small {
    async fn publish(&self, hint: &Hint) -> Result<(), WorldError> {
        let hint = hint.clone();
        self.send("publish a hint", move |stage| deliver::hint(stage, &hint)).await
    }
}

#[async_trait]
impl Wakeups for Small {
    async fn schedule(&self, job: &JobId, at: Timestamp, key: &str) -> Result<(), WorldError> {
        let (job, key) = (job.clone(), key.to_owned());
        self.send("schedule a wake-up", move |stage| deliver::wakeup(stage, &job, at, &key)).await
    }
}

#[async_trait]
impl Events for Small {
    async fn publish(&self, job: &JobId, event: &OutEvent) -> Result<(), WorldError> {
        let (world, job, event) = (self.world.clone(), job.clone(), event.clone());
        self.send("publish an event", move |_| crate::check::on_event(&world, &job, &event)).await
    }
}

#[async_trait]
impl DeadLetters for Small {
    async fn send(&self, source: &str, reason: &str, _: Bytes) -> Result<(), WorldError> {
        let (world, source, reason) = (self.world.clone(), source.to_owned(), reason.to_owned());
        Small::send(self, "forward a dead letter", move |_| {
            world.trace(|| format!("dead letter of {source}: {reason}"));
            world.count("dead letters");
        })
        .await
    }
}

#[async_trait]
impl Objects for Small {
    async fn put(&self, _: &str, _: Bytes) -> Result<(), WorldError> {
        self.send("put an object", |_| ()).await
    }

    async fn get(&self, _: &str, _: u64, _: u64) -> Result<Option<Bytes>, WorldError> {
        Ok(None)
    }

    async fn size(&self, _: &str) -> Result<Option<u64>, WorldError> {
        Ok(None)
    }

    async fn list(&self, _: &str, _: Option<&str>, _: usize) -> Result<Vec<String>, WorldError> {
        Ok(Vec::new())
    }

    async fn upload_address(&self, name: &str) -> Result<String, WorldError> {
        Ok(format!("https://storage.example.com/{name}"))
    }
}

impl Clock for Small {
    fn now(&self) -> Timestamp {
        stamp(self.world.now() + self.skew)
    }
}

impl Ids for Small {
    fn random(&self) -> u128 {
        self.world.rolls.bits(For::Delivery)
    }
}

#[async_trait]
impl Probe for Small {
    async fn ping(&self) -> Result<(), WorldError> {
        self.world.hop(SMALL_HOP).await;
        let away = self.world.goes_on(Fault::ApiOutage, None) || self.world.goes_on(Fault::StoreOutage, None);
        if away { Err(WorldError { what: "ask api", why: "no answer".into() }) } else { Ok(()) }
    }
}
