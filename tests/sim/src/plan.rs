//! The plan of a seed: which faults are on, when they strike, which jobs there are and what people do. Plain data, so that a failure can be
//! made smaller by leaving parts out.

use std::collections::BTreeMap;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::fault::{Fault, Sort};
use crate::roll::{DAY, HOUR, MIN, SEC, stream};

/// The zones of the world; all offer v5e.
pub(crate) const ZONES: [&str; 3] = ["us-central1-a", "us-west4-a", "us-south1-a"];

/// When every run begins: 2026-11-20T10:00:00Z.
pub(crate) const START_US: i64 = 1_795_168_800 * SEC;

/// A fault over a stretch of time.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Which.
    pub(crate) fault: Fault,
    /// From.
    pub(crate) from: i64,
    /// To.
    pub(crate) to: i64,
    /// Index of the zone, for those that have one.
    pub(crate) zone: usize,
}

impl Window {
    /// Whether it goes on at a time, in a zone if it has one.
    pub(crate) fn has(&self, now: i64, zone: Option<&str>) -> bool {
        self.from <= now && now < self.to && zone.is_none_or(|zone| ZONES[self.zone % ZONES.len()] == zone)
    }
}

/// A fault at a moment.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    /// When.
    pub(crate) at: i64,
    /// Which.
    pub(crate) fault: Fault,
    /// Whom: taken modulo of what is there then.
    pub(crate) pick: u64,
}

/// What a person tells a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// `cancel`.
    Cancel,
    /// `pause`.
    Pause,
    /// `unpause`.
    Unpause,
    /// `restart`, in place or on a new slice, from scratch or not.
    Restart {
        /// On a new slice.
        new_slice: bool,
        /// From scratch.
        from_scratch: bool,
    },
    /// `wake`.
    Wake,
}

/// A person's act.
#[derive(Debug, Clone)]
pub(crate) struct Act {
    /// When.
    pub(crate) at: i64,
    /// Index of the job.
    pub(crate) job: usize,
    /// What.
    pub(crate) told: Told,
}

/// How the program of a job ends when nobody disturbs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Exit 0 after its last step.
    Succeeds,
    /// It fails by itself at that part of its steps, each time.
    Fails {
        /// In hundredths of its steps.
        percent: u64,
    },
    /// After its last step one worker fails, and the others exit 0.
    OneFails {
        /// Its index.
        worker: u32,
    },
}

/// A job.
#[derive(Debug, Clone)]
pub(crate) struct JobPlan {
    /// Its id.
    pub(crate) id: String,
    /// Accelerator type.
    pub(crate) accelerator: &'static str,
    /// Slices.
    pub(crate) slices: u32,
    /// `auto`, `always` or `never`.
    pub(crate) queued: &'static str,
    /// Bought as.
    pub(crate) capacity: Vec<&'static str>,
    /// Zones, by index, in order of preference; empty: all.
    pub(crate) zones: Vec<usize>,
    /// Priority.
    pub(crate) priority: u8,
    /// When it is submitted.
    pub(crate) submit_at: i64,
    /// Steps.
    pub(crate) steps: u64,
    /// Time of a step.
    pub(crate) step_us: i64,
    /// Between checkpoints.
    pub(crate) checkpoint_us: i64,
    /// Time of `setup`.
    pub(crate) setup_us: i64,
    /// Whether it writes progress lines.
    pub(crate) writes_progress: bool,
    /// Its end.
    pub(crate) fate: Fate,
    /// Further fields of its spec.
    pub(crate) more: serde_json::Value,
}

impl JobPlan {
    /// Whether a queued resource may be asked for, which alone names a reservation.
    fn is_queueable(&self) -> bool {
        self.queued != "never" && self.accelerator != "v5litepod-1"
    }
}

/// A plan.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Its seed.
    pub(crate) seed: u64,
    /// How long faults go on.
    pub(crate) chaos_us: i64,
    /// Probabilities of the faults at calls; 1 for those of the whole run.
    pub(crate) on: BTreeMap<Fault, f64>,
    /// Faults over time.
    pub(crate) windows: Vec<Window>,
    /// Faults at moments.
    pub(crate) moments: Vec<Moment>,
    /// Jobs.
    pub(crate) jobs: Vec<JobPlan>,
    /// People.
    pub(crate) acts: Vec<Act>,
    /// Between two ticks.
    pub(crate) tick_us: i64,
    /// Chips that each zone has.
    pub(crate) chips: u32,
    /// Chips of the quota of each zone; `None`: once, twice or eight times its chips, by the seed.
    pub(crate) quota: Option<u32>,
    /// Index of the job whose creates are not answered while faults go on: their caller gives up after the longest request.
    pub(crate) unanswered: Option<usize>,
    /// While faults go on, no event, no wake-up and no hint arrives but those of ticks.
    pub(crate) deaf: bool,
    /// Mean time of a create.
    pub(crate) create_us: i64,
    /// Mean time of a delete.
    pub(crate) delete_us: i64,
    /// Clocks of instances are wrong by up to so much.
    pub(crate) skew_us: i64,
    /// Most chips of all jobs at once, as the deployment says.
    pub(crate) max_chips: Option<u32>,
    /// Most US dollars a day of all jobs, as the deployment says.
    pub(crate) max_usd: Option<f64>,
    /// Shortest and longest mean time between two faults at moments, for each job, in hours.
    pub(crate) gap_hours: (i64, i64),
    /// True: everything goes through the functions' HTTP routers; else hints and ticks call the engine.
    pub(crate) by_http: bool,
}

/// How large the world of a seed is.
struct Shape {
    /// Shortest and longest time of faults, in hours.
    hours: (i64, i64),
    /// Chips of a zone: one of these.
    chips: [u32; 4],
    /// Jobs: one of these.
    counts: &'static [u64],
    /// Where the deployment limits chips.
    max_chips: u32,
    /// Where it limits US dollars a day.
    max_usd: f64,
    /// Shortest and longest mean time between two faults at moments, for each job, in hours.
    gap_hours: (i64, i64),
}

impl Shape {
    const DAYS: Self = Self {
        hours: (24, 72),
        chips: [32, 64, 256, 4096],
        counts: &[4, 5, 6, 6, 7, 8, 10, 12],
        max_chips: 64,
        max_usd: 500.0,
        gap_hours: (2, 12),
    };
    const BEATS: Self = Self { hours: (6, 14), counts: &[1, 1, 2], ..Self::DAYS };
    const CROWD: Self = Self {
        hours: (5, 16),
        chips: [128, 256, 512, 4096],
        counts: &[12, 14, 16, 18, 22, 26],
        max_chips: 256,
        max_usd: 4000.0,
        ..Self::DAYS
    };
    const QUIET: Self = Self { hours: (5, 14), counts: &[20, 24, 26, 28, 32, 36], gap_hours: (8, 60), ..Self::CROWD };
}

impl Plan {
    /// A world without faults and jobs, for scenarios.
    pub(crate) fn calm(seed: u64) -> Self {
        Self {
            seed,
            chaos_us: 0,
            on: BTreeMap::new(),
            windows: Vec::new(),
            moments: Vec::new(),
            jobs: Vec::new(),
            acts: Vec::new(),
            tick_us: MIN,
            chips: 4096,
            quota: None,
            unanswered: None,
            deaf: false,
            create_us: 2 * MIN,
            delete_us: 40 * SEC,
            skew_us: 5 * MIN,
            max_chips: None,
            max_usd: None,
            gap_hours: Shape::DAYS.gap_hours,
            by_http: true,
        }
    }

    /// The plan of a seed: one of three shapes.
    pub(crate) fn draw(seed: u64) -> Self {
        // Jobs that mostly run are what a deployment sees, and cost a fifth of the calls of jobs that hardly do: most seeds are of these.
        if stream(seed, 8).random_bool(0.75) { Self::draw_quiet(seed) } else { Self::draw_rough(seed) }
    }

    /// Many jobs over hours, most of which pass without a fault, and calls that mostly go well.
    fn draw_quiet(seed: u64) -> Self {
        let on = draw_calls(&mut stream(seed, 1), is_first);
        if on.contains_key(&Fault::Heartbeats) {
            return Self::draw_days(seed);
        }
        let mut plan = Self::draw_shaped(&mut stream(seed, 7), seed, on, &Shape::QUIET).with_later();
        plan.thin(stream(seed, 9).random_range(0.02..0.2));
        plan
    }

    /// A fault every few minutes, in one of two shapes.
    pub(crate) fn draw_rough(seed: u64) -> Self {
        // A tick costs the same for one job as for many: most seeds have many jobs in few hours, and some have days, in which messages
        // come days late and budgets fill again.
        let mut rng = stream(seed, 6);
        let mut plan = if rng.random_bool(0.9) { Self::draw_crowd(seed) } else { Self::draw_days(seed) };
        // Where hardly a call goes well, few jobs come far, and a second fault hides what the first one did.
        if rng.random_bool(0.6) {
            plan.thin(rng.random_range(0.02..0.3));
        }
        plan
    }

    /// Makes faults at calls rarer.
    fn thin(&mut self, part: f64) {
        self.on.iter_mut().filter(|(fault, _)| fault.sort() == Sort::Call).for_each(|(_, chance)| *chance *= part);
    }

    /// Some jobs over days.
    pub(crate) fn draw_days(seed: u64) -> Self {
        Self::draw_first(seed).with_later()
    }

    /// Many jobs over hours.
    fn draw_crowd(seed: u64) -> Self {
        let on = draw_calls(&mut stream(seed, 1), is_first);
        if on.contains_key(&Fault::Heartbeats) {
            return Self::draw_days(seed);
        }
        let mut rng = stream(seed, 7);
        Self::draw_shaped(&mut rng, seed, on, &Shape::CROWD).with_later()
    }

    /// Some jobs over days, without the faults that came later.
    pub(crate) fn draw_first(seed: u64) -> Self {
        let on = draw_calls(&mut stream(seed, 1), is_first);
        // Each heartbeat by itself is a thousand calls for each day of a worker: these seeds are short.
        let shape = if on.contains_key(&Fault::Heartbeats) { Shape::BEATS } else { Shape::DAYS };
        Self::draw_shaped(&mut stream(seed, 0), seed, on, &shape)
    }

    fn draw_shaped(rng: &mut ChaCha8Rng, seed: u64, on: BTreeMap<Fault, f64>, shape: &Shape) -> Self {
        let beats = on.contains_key(&Fault::Heartbeats);
        let chaos_us = rng.random_range(shape.hours.0 * HOUR..shape.hours.1 * HOUR);
        let mut plan = Self {
            chaos_us,
            on,
            tick_us: *[MIN, MIN, 2 * MIN].choose(rng).unwrap_or(&MIN),
            chips: *shape.chips.choose(rng).unwrap_or(&64),
            create_us: rng.random_range(20..240) * SEC,
            delete_us: rng.random_range(5..90) * SEC,
            max_chips: rng.random_bool(0.1).then_some(shape.max_chips),
            max_usd: rng.random_bool(0.1).then_some(shape.max_usd),
            by_http: beats || rng.random_bool(0.08),
            gap_hours: shape.gap_hours,
            ..Self::calm(seed)
        };
        let count = *shape.counts.choose(rng).unwrap_or(&2);
        for n in 0..count {
            plan.jobs.push(draw_job(&mut stream(seed, 1000 + n), n as usize, chaos_us));
        }
        plan.draw_windows(&mut stream(seed, 2), is_first);
        plan.draw_moments(&mut stream(seed, 3), is_first);
        plan.draw_people(&mut stream(seed, 4));
        plan
    }

    /// And, in three of five, the faults that came later.
    fn with_later(mut self) -> Self {
        let mut rng = stream(self.seed, 5);
        // The world without them is worth a look too.
        if rng.random_bool(0.4) {
            return self;
        }
        self.on.extend(draw_calls(&mut rng, Fault::is_later));
        self.draw_windows(&mut rng, Fault::is_later);
        self.draw_moments(&mut rng, Fault::is_later);
        if self.on.contains_key(&Fault::SlowCollect) {
            for job in self.jobs.iter_mut().filter(|_| rng.random_bool(0.5)) {
                job.more["outputs"] = serde_json::json!(["results/**"]);
            }
        }
        self.reserve(&mut rng);
        self
    }

    /// One of seven jobs that may asks for reserved capacity, alone or beside spot.
    fn reserve(&mut self, rng: &mut ChaCha8Rng) {
        for job in self.jobs.iter_mut().filter(|job| job.is_queueable()) {
            if rng.random_bool(0.15) {
                job.capacity = match rng.random_range(0..3) {
                    0 => vec!["reserved"],
                    1 => vec!["reserved", "spot"],
                    _ => vec!["spot", "reserved"],
                };
            }
        }
    }

    /// The probability of a fault at a call.
    pub(crate) fn chance(&self, fault: Fault) -> f64 {
        self.on.get(&fault).copied().unwrap_or(0.0)
    }

    /// The end of the faults, in microseconds since 1970.
    pub(crate) fn calm_from(&self) -> i64 {
        START_US + self.chaos_us
    }

    fn draw_windows(&mut self, rng: &mut ChaCha8Rng, of: fn(Fault) -> bool) {
        for fault in Fault::ALL.iter().copied().filter(|f| of(*f) && f.sort() == Sort::Window) {
            if !rng.random_bool(0.25) {
                continue;
            }
            for _ in 0..rng.random_range(1..=2) {
                let (short, long) = match fault {
                    Fault::Stockout | Fault::HiddenStockout | Fault::Quota => (10 * MIN, 6 * HOUR),
                    Fault::TpuDenied => (20 * MIN, 80 * MIN),
                    Fault::Freeze => (5 * MIN, 3 * HOUR),
                    Fault::RateLimit => (MIN, 15 * MIN),
                    Fault::AddressQuota | Fault::ReservationFull | Fault::ReservationGone => (10 * MIN, 3 * HOUR),
                    Fault::ZoneForbidden => (5 * MIN, 30 * MIN),
                    _ => (2 * MIN, 40 * MIN),
                };
                let from = START_US + rng.random_range(0..self.chaos_us);
                let to = (from + rng.random_range(short..long)).min(self.calm_from());
                self.windows.push(Window { fault, from, to, zone: rng.random_range(0..ZONES.len()) });
            }
        }
    }

    fn draw_moments(&mut self, rng: &mut ChaCha8Rng, of: fn(Fault) -> bool) {
        let is_moment = |f: &Fault| of(*f) && f.sort() == Sort::Moment && *f != Fault::Person;
        let all: Vec<Fault> = Fault::ALL.iter().copied().filter(is_moment).collect();
        let mut kinds: Vec<Fault> = all.iter().copied().filter(|_| rng.random_bool(0.35)).collect();
        if kinds.is_empty() {
            kinds.push(if of(Fault::PreemptNotice) { Fault::PreemptNotice } else { Fault::HostError });
        }
        // Of those that came on top, one for each three.
        let rarer = if of(Fault::PreemptNotice) { 1 } else { 3 };
        let (short, long) = self.gap_hours;
        let gap =
            rng.random_range(short * HOUR..long * HOUR) * rarer / i64::try_from(self.jobs.len().max(1)).unwrap_or(1);
        let mut at = START_US;
        loop {
            at += rng.random_range(gap / 10..gap * 2);
            if at >= self.calm_from() {
                break;
            }
            let Some(fault) = kinds.choose(rng) else { break };
            self.moments.push(Moment { at, fault: *fault, pick: rng.random() });
        }
    }

    fn draw_people(&mut self, rng: &mut ChaCha8Rng) {
        if self.jobs.is_empty() || !rng.random_bool(0.5) {
            return;
        }
        for _ in 0..rng.random_range(1..=6) {
            let job = rng.random_range(0..self.jobs.len());
            let at = self.jobs[job].submit_at + rng.random_range(0..self.chaos_us);
            if at >= self.calm_from() {
                continue;
            }
            let told = match rng.random_range(0..10) {
                0 | 1 => Told::Cancel,
                2..=4 => Told::Pause,
                5 => Told::Wake,
                6 => Told::Unpause,
                _ => Told::Restart { new_slice: rng.random_bool(0.5), from_scratch: rng.random_bool(0.3) },
            };
            self.acts.push(Act { at, job, told });
            if told == Told::Pause {
                self.acts.push(Act { at: at + rng.random_range(MIN..3 * HOUR), job, told: Told::Unpause });
            }
        }
        self.acts.sort_by_key(|a| a.at);
    }
}

fn is_first(fault: Fault) -> bool {
    !fault.is_later()
}

fn draw_calls(rng: &mut ChaCha8Rng, of: fn(Fault) -> bool) -> BTreeMap<Fault, f64> {
    let mut on = BTreeMap::new();
    for fault in Fault::ALL.iter().copied().filter(|f| of(*f)) {
        let (draw, p): (f64, f64) = (rng.random(), rng.random());
        match fault.sort() {
            Sort::Call if draw < 0.3 => {
                let most = match fault {
                    Fault::DeleteLies
                    | Fault::DeleteRefused
                    | Fault::CreateSlow
                    | Fault::PreemptedCreating
                    | Fault::CreateErrs
                    | Fault::OperationExpired
                    | Fault::BootedEarly
                    | Fault::MessageDays
                    | Fault::Overlap
                    | Fault::DeleteSlow
                    | Fault::DeleteFails
                    | Fault::DeleteRefusedLate
                    | Fault::LeftoverStays
                    | Fault::SuspendedCreating
                    | Fault::NameHeld
                    | Fault::OperationVanished
                    | Fault::AddressesLate
                    | Fault::GetLags
                    | Fault::ListSplit
                    | Fault::MadeOtherwise => 0.3,
                    Fault::SlowUpload | Fault::SlowCollect | Fault::SlowStart => 0.5,
                    Fault::StateUnclear => 0.05,
                    Fault::ReadMisses => 0.02,
                    Fault::HintLost | Fault::WakeupLost | Fault::EventLost | Fault::MessageAgain => 0.6,
                    Fault::Crash => 0.2,
                    _ => 0.1,
                };
                on.insert(fault, p * most);
            }
            Sort::Run if draw < 0.12 => {
                on.insert(fault, 1.0);
            }
            Sort::Call | Sort::Run | Sort::Window | Sort::Moment => {}
        }
    }
    on
}

fn draw_job(rng: &mut ChaCha8Rng, n: usize, chaos_us: i64) -> JobPlan {
    let accelerator = *["v5litepod-16", "v5litepod-16", "v5litepod-8", "v5litepod-1", "v5litepod-32"]
        .choose(rng)
        .unwrap_or(&"v5litepod-16");
    let slices = if accelerator == "v5litepod-16" && rng.random_bool(0.15) { 2 } else { 1 };
    let queued =
        if accelerator == "v5litepod-1" { "never" } else { *["auto", "auto", "always"].choose(rng).unwrap_or(&"auto") };
    let step_us = rng.random_range(SEC..60 * SEC);
    let work_us = rng.random_range(HOUR..(chaos_us * 9 / 10).min(3 * DAY)).max(rng.random_range(HOUR..chaos_us / 2));
    let capacity = match rng.random_range(0..5) {
        0 => vec!["on_demand"],
        1 => vec!["spot", "on_demand"],
        _ => vec!["spot"],
    };
    let first = rng.random_range(0..ZONES.len());
    let zones = match rng.random_range(0..3) {
        0 => vec![first],
        1 => vec![first, (first + 1) % ZONES.len()],
        _ => Vec::new(),
    };
    let fate = if rng.random_bool(0.1) { Fate::Fails { percent: rng.random_range(1..100) } } else { Fate::Succeeds };
    JobPlan {
        id: name_of(n),
        accelerator,
        slices,
        queued,
        capacity,
        zones,
        priority: rng.random_range(0..=100),
        submit_at: crate::plan::START_US + rng.random_range(0..chaos_us / 8),
        steps: u64::try_from(work_us / step_us).unwrap_or(1).max(1),
        step_us,
        checkpoint_us: rng.random_range(2 * MIN..30 * MIN),
        setup_us: rng.random_range(0..5 * MIN),
        writes_progress: rng.random_bool(0.8),
        fate,
        more: draw_more(rng),
    }
}

/// `job-a` to `job-z`, then `job-ba` and on.
fn name_of(n: usize) -> String {
    let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
    if n < 26 { format!("job-{}", letter(n)) } else { format!("job-{}{}", letter(n / 26), letter(n)) }
}

/// Limits and budgets of the job's own, in one of three jobs.
fn draw_more(rng: &mut ChaCha8Rng) -> serde_json::Value {
    use serde_json::json;
    if !rng.random_bool(0.33) {
        return json!({});
    }
    let hours = rng.random_range(2..40);
    match rng.random_range(0..10) {
        0 => json!({"limits": {"queue": "40m"}}),
        1 => json!({"limits": {"attempt": format!("{hours}h")}}),
        2 => json!({"limits": {"total": format!("{hours}h")}}),
        3 => json!({"limits": {"cost_usd": hours}}),
        4 => json!({"limits": {"start": "4m"}}),
        5 => json!({"limits": {"stall": "20m"}}),
        6 => json!({"budgets": {"no_progress": 1}}),
        7 => json!({"budgets": {"infra_failures": 3, "preemptions": 4}}),
        8 => {
            let scratch = "restart_in_place";
            json!({"recovery": {"overrides": {"infra_grpc": scratch, "storage_network": scratch, "oom_host": scratch}}})
        }
        _ => {
            let preset = *["resume", "reapply", "rerun", "pass"].choose(rng).unwrap_or(&"resume");
            json!({"recovery": {"preset": preset}, "budgets": {"user_failures": 2}})
        }
    }
}
