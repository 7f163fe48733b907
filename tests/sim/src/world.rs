//! The world: clock, randomness, plan, trace, and the parts that misbehave. One value for each run.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use foldhash::fast::FixedState;
use jiff::Timestamp;
use rand::Rng as _;

use rekindle_core::ids::{InstallationId, JobId};
use rekindle_core::reason::Reason;
use rekindle_ports::tpu::SliceRef;

use crate::check::Checks;
use crate::cloud::Cloud;
use crate::exec::{Exec, lock};
use crate::fault::{Fault, Sort};
use crate::machine::Fleet;
use crate::plan::{Plan, START_US, Window};
use crate::roll::{For, Rolls, SEC, stream};
use crate::store::Shelf;
use crate::truth::Truth;

/// What kind of promise was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Something happened that never may.
    Safety,
    /// Something did not happen in time.
    Liveness,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Which kind.
    pub(crate) promise: Promise,
    /// The checker.
    pub(crate) checker: &'static str,
    /// Its sentence.
    pub(crate) text: String,
    /// When, in microseconds since 1970.
    pub(crate) at: i64,
}

/// What happened how often.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Faults that struck.
    pub(crate) faults: BTreeMap<Fault, u64>,
    /// Reasons that jobs had.
    pub(crate) reasons: BTreeMap<Reason, u64>,
    /// Effects that were committed.
    pub(crate) effects: BTreeMap<&'static str, u64>,
    /// Changes of phase.
    pub(crate) phases: BTreeMap<String, u64>,
    /// Anything else that reports show.
    pub(crate) others: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Adds another run's.
    pub(crate) fn add(&mut self, other: &Self) {
        fn sum<K: Ord + Clone>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
            for (key, n) in from {
                *into.entry(key.clone()).or_default() += n;
            }
        }
        sum(&mut self.faults, &other.faults);
        sum(&mut self.reasons, &other.reasons);
        sum(&mut self.effects, &other.effects);
        sum(&mut self.phases, &other.phases);
        sum(&mut self.others, &other.others);
    }
}

/// The world of one run.
pub(crate) struct World {
    /// Clock and tasks.
    pub(crate) exec: Arc<Exec>,
    /// What is to happen.
    pub(crate) plan: Plan,
    /// Random numbers.
    pub(crate) rolls: Rolls,
    /// What happened.
    pub(crate) counts: Mutex<Counts>,
    /// Documents.
    pub(crate) shelf: Mutex<Shelf>,
    /// The provider.
    pub(crate) cloud: Mutex<Cloud>,
    /// Until when reads did not find a slice that is there, the last time.
    pub(crate) missed: Mutex<BTreeMap<SliceRef, i64>>,
    /// Worker VMs and programs.
    pub(crate) fleet: Mutex<Fleet>,
    /// What really happened to jobs.
    pub(crate) truth: Mutex<Truth>,
    /// The checkers.
    pub(crate) checks: Mutex<Checks>,
    /// Ours.
    pub(crate) installation: InstallationId,
    /// Whether agents hear their bells.
    pub(crate) has_bells: bool,
    /// Deliveries.
    pub(crate) mail: Mutex<crate::deliver::Mail>,
    /// Calls of ports.
    pub(crate) calls: AtomicU64,
    odds: Odds,
    failure: Mutex<Option<Failure>>,
    is_broken: AtomicBool,
    trace: Option<Mutex<String>>,
    calm: AtomicBool,
    deaf: AtomicBool,
}

/// What the plan says, arranged for the many questions of a run.
struct Odds {
    on: Vec<bool>,
    chances: Vec<f64>,
    /// Each with whether it has struck yet.
    windows: Vec<Vec<(Window, AtomicBool)>>,
    /// Stretches in which no heartbeat is stored, in the order of the plan.
    outages: Vec<Window>,
    jobs: HashMap<String, usize, FixedState>,
}

impl Odds {
    fn of(plan: &Plan) -> Self {
        let fresh = |w: &Window| (w.clone(), AtomicBool::new(false));
        let windows = |f: &Fault| plan.windows.iter().filter(|w| w.fault == *f).map(fresh).collect();
        let cuts = |w: &&Window| matches!(w.fault, Fault::ApiOutage | Fault::StoreOutage);
        Self {
            outages: plan.windows.iter().filter(cuts).cloned().collect(),
            on: Fault::ALL.iter().map(|f| plan.on.contains_key(f)).collect(),
            chances: Fault::ALL.iter().map(|f| plan.chance(*f)).collect(),
            windows: Fault::ALL.iter().map(windows).collect(),
            jobs: plan.jobs.iter().enumerate().map(|(n, j)| (j.id.clone(), n)).collect(),
        }
    }
}

impl World {
    /// A world at its beginning. `traced`: its trace is kept.
    pub(crate) fn new(plan: Plan, traced: bool) -> Arc<Self> {
        let installation = InstallationId::parse("simula").unwrap_or_else(|_| unreachable!("six letters"));
        let world = Arc::new(Self {
            exec: Arc::new(Exec::new(START_US, plan.seed ^ 0x5eed)),
            rolls: Rolls::new(plan.seed),
            counts: Mutex::default(),
            shelf: Mutex::default(),
            missed: Mutex::default(),
            cloud: Mutex::new(Cloud::new(&plan)),
            fleet: Mutex::default(),
            truth: Mutex::default(),
            checks: Mutex::new(Checks::new(&plan)),
            installation,
            has_bells: stream(plan.seed, 8).random_bool(0.5),
            mail: Mutex::default(),
            calls: AtomicU64::new(0),
            odds: Odds::of(&plan),
            failure: Mutex::default(),
            is_broken: AtomicBool::new(false),
            trace: traced.then(Mutex::default),
            calm: AtomicBool::new(false),
            deaf: AtomicBool::new(plan.deaf),
            plan,
        });
        // Those of the whole run strike once.
        for fault in world.plan.on.keys().filter(|f| f.sort() == Sort::Run) {
            world.count_fault(*fault);
        }
        world
    }

    /// Now, in microseconds since 1970.
    pub(crate) fn now(&self) -> i64 {
        self.exec.now()
    }

    /// From here on nothing goes wrong any more, and there is capacity for all.
    pub(crate) fn set_calm(&self) {
        self.calm.store(true, Ordering::Relaxed);
        self.trace(|| "faults are over".into());
    }

    /// From here on no event, no wake-up and no hint arrives but those of ticks: nothing else wakes anybody.
    pub(crate) fn deafen(&self) {
        self.deaf.store(true, Ordering::Relaxed);
        self.trace(|| "nothing wakes anybody but ticks".into());
    }

    /// Whether events, wake-ups and hints do not arrive but those of ticks.
    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Relaxed) && !self.is_calm()
    }

    /// Whether faults are over.
    pub(crate) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    /// Whether a fault at a call strikes now. Counts it.
    pub(crate) fn strikes(&self, fault: Fault, purpose: For) -> bool {
        let strikes = self.threatens(fault, purpose);
        if strikes {
            self.count_fault(fault);
        }
        strikes
    }

    /// Whether a fault at a call is to strike now: whoever asks counts it once it does.
    pub(crate) fn threatens(&self, fault: Fault, purpose: For) -> bool {
        !self.is_calm() && self.rolls.chance(purpose, self.odds.chances[fault as usize])
    }

    /// Whether the plan has a fault on.
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.odds.on[fault as usize]
    }

    /// Whether a fault over time goes on now. Counts each stretch that strikes, once.
    pub(crate) fn goes_on(&self, fault: Fault, zone: Option<&str>) -> bool {
        if self.is_calm() {
            return false;
        }
        let now = self.now();
        let Some((_, struck)) = self.odds.windows[fault as usize].iter().find(|(w, _)| w.has(now, zone)) else {
            return false;
        };
        if !struck.swap(true, Ordering::Relaxed) {
            self.count_fault(fault);
        }
        true
    }

    /// Whether the plan lets a fault go on now, in a zone if it has one.
    pub(crate) fn in_window(&self, fault: Fault, zone: Option<&str>) -> bool {
        let now = self.now();
        self.odds.windows[fault as usize].iter().any(|(w, _)| w.has(now, zone))
    }

    /// Stretches of the plan in which `api` or the store is away.
    pub(crate) fn outages(&self) -> &[Window] {
        &self.odds.outages
    }

    /// Counts a fault that struck.
    pub(crate) fn count_fault(&self, fault: Fault) {
        *lock(&self.counts).faults.entry(fault).or_default() += 1;
    }

    /// Counts something.
    pub(crate) fn count(&self, what: &'static str) {
        *lock(&self.counts).others.entry(what).or_default() += 1;
    }

    /// A wait of about so long, as a call over a network takes.
    pub(crate) async fn hop(&self, mean: i64) {
        self.exec.sleep(self.way(mean)).await;
    }

    /// How long a call that takes about so long is on its way. Counts it.
    pub(crate) fn way(&self, mean: i64) -> i64 {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.rolls.about(For::Latency, mean).max(1)
    }

    /// The first broken promise is kept.
    pub(crate) fn broken(&self, promise: Promise, checker: &'static str, text: String) {
        self.trace(|| format!("BROKEN {checker}: {text}"));
        let mut failure = lock(&self.failure);
        self.is_broken.store(true, Ordering::Relaxed);
        if failure.is_none() {
            *failure = Some(Failure { promise, checker, text, at: self.now() });
        }
    }

    /// The first broken promise.
    pub(crate) fn failure(&self) -> Option<Failure> {
        lock(&self.failure).clone()
    }

    /// Whether a promise was broken.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Adds a line to the trace, if one is kept.
    pub(crate) fn trace(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let line = line();
            let mut trace = lock(trace);
            let at = self.now() - START_US;
            trace.push_str(&clock(at));
            trace.push_str("  ");
            trace.push_str(&line);
            trace.push('\n');
        }
    }

    /// The trace so far.
    pub(crate) fn taken_trace(&self) -> String {
        self.trace.as_ref().map(|t| lock(t).clone()).unwrap_or_default()
    }

    /// Index of a job in the plan.
    pub(crate) fn job_plan(&self, id: &JobId) -> Option<&crate::plan::JobPlan> {
        self.odds.jobs.get(id.as_str()).map(|n| &self.plan.jobs[*n])
    }
}

/// `1d 02:03:04.567` since the start.
pub(crate) fn clock(us: i64) -> String {
    let ms = us.div_euclid(1000);
    let (secs, ms) = (ms.div_euclid(1000), ms.rem_euclid(1000));
    format!("{}d {:02}:{:02}:{:02}.{ms:03}", secs / 86_400, secs / 3600 % 24, secs / 60 % 60, secs % 60)
}

/// A time of the world as a timestamp.
pub(crate) fn stamp(us: i64) -> Timestamp {
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A timestamp as a time of the world.
pub(crate) fn micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// Mean latency of a store call.
pub(crate) const STORE_HOP: i64 = 15_000;
/// Mean latency of a call of the TPU API.
pub(crate) const TPU_HOP: i64 = 150_000;
/// Mean latency of everything else.
pub(crate) const SMALL_HOP: i64 = 20_000;
/// A call that takes long, but never longer than a request may.
pub(crate) const SLOW_HOP: i64 = 8 * SEC;
