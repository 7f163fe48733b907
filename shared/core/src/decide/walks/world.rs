//! The world of a walk: slices as they are at the provider, the agents on their machines, and what a pass sees of them
//! and does.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::super::cases::{report, view};
use super::super::workers::keys;
use super::super::{Command, Decision, EffectOutcome, Rules, apply_command, decide, record};
use super::draws::{self, Draws};
use crate::check::check;
use crate::classify::{Exit, WorkerEvidence};
use crate::effect::Effect;
use crate::fixture::{at, deployment, entry, job, spec_in};
use crate::ids::{InstallationId, WorkerKey};
use crate::job::{Create, Desired, Generation, Job, Phase, Via};
use crate::limits::InUse;
use crate::names;
use crate::observation::{
    CreateError, CreateErrorKind, ExitReport, GenerationLook, Health, Liveness, Look, Notice, NoticeKind, Observation,
    OperationView, Permit, SliceState, SliceView, WorkerReport, WorkerState,
};
use crate::orders::{Order, Want, notice_is_urgent, order_to_all};
use crate::settings::{Deployment, Settings};
use crate::shared::Shared;
use crate::spec::CapacityKind;

/// Workers of one slice of the walks' jobs.
pub(super) const WORKERS: u32 = 4;

/// No create arrives later.
const IN_FLIGHT: i64 = 33;

/// How a slice is at the provider. Times are seconds of the walk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State {
    /// Nothing was made of it, and nothing will be.
    Nothing,
    /// Its create arrives then.
    UnderWay {
        until: i64,
    },
    /// In the provider's queue.
    Queued {
        until: i64,
    },
    Creating {
        since: i64,
    },
    Ready,
    Repairing,
    Stateless,
    Stopped,
    Failed,
    /// A queued resource that is on its way to be suspended, and one that is.
    Suspending,
    Suspended,
    Preempted {
        since: i64,
    },
    Deleting {
        since: i64,
        was_on: bool,
    },
    Gone,
}

/// The slice of one generation, whatever the job knows of it.
pub(super) struct Slice {
    pub(super) number: u32,
    intended_at: Timestamp,
    pub(super) via: Via,
    /// When its create was sent.
    asked: i64,
    pub(super) state: State,
    /// What the machines say of their end.
    pub(super) notices: BTreeMap<WorkerKey, Notice>,
    pub(super) is_unhealthy: bool,
}

impl Slice {
    fn of(g: &Generation, asked: i64, state: State) -> Self {
        Self {
            number: g.number,
            intended_at: g.intended_at,
            via: g.via,
            asked,
            state,
            notices: BTreeMap::new(),
            is_unhealthy: false,
        }
    }

    fn is_of(&self, g: &Generation) -> bool {
        self.number == g.number && self.intended_at == g.intended_at
    }

    pub(super) const fn is_there(&self) -> bool {
        !matches!(self.state, State::Nothing | State::Gone)
    }

    /// Its machines are on, and their agents call. Some live a moment longer than their slice.
    fn has_agents(&self, now: i64) -> bool {
        match self.state {
            State::Ready | State::Repairing | State::Stateless => true,
            State::Deleting { since, was_on } => was_on && now < since + 5,
            State::Nothing
            | State::UnderWay { .. }
            | State::Queued { .. }
            | State::Creating { .. }
            | State::Stopped
            | State::Failed
            | State::Suspending
            | State::Suspended
            | State::Preempted { .. }
            | State::Gone => false,
        }
    }

    /// Programs may run on its machines, whether somebody hears of them or not.
    fn may_run(&self, now: i64) -> bool {
        self.has_agents(now) || matches!(self.state, State::Preempted { since } if now < since + 30)
    }

    /// What time brings by itself.
    fn ages(&mut self, now: i64) {
        let next = match self.state {
            State::UnderWay { until } => (until, self.made(now)),
            State::Queued { until } => (until, State::Creating { since: now }),
            State::Creating { since } => (since + 30, State::Ready),
            State::Deleting { since, .. } => (since + 15, State::Gone),
            State::Nothing
            | State::Ready
            | State::Repairing
            | State::Stateless
            | State::Stopped
            | State::Failed
            | State::Suspending
            | State::Suspended
            | State::Preempted { .. }
            | State::Gone => return,
        };
        if now >= next.0 {
            self.state = next.1;
        }
    }

    /// As it is when its create has arrived.
    fn made(&self, now: i64) -> State {
        match self.via {
            Via::Node => State::Creating { since: now },
            Via::QueuedResource => State::Queued { until: now + 40 },
        }
    }

    /// What the API shows of it, and whether its machines are off. `hides`: reads of what is young come and go, while
    /// its create could still be on its way.
    fn shown(&self, now: i64, hides: bool) -> Option<(SliceState, bool)> {
        Some(match self.state {
            State::Nothing | State::Gone | State::UnderWay { .. } => return None,
            State::Queued { .. } | State::Creating { .. } if hides && now < self.asked + IN_FLIGHT => return None,
            State::Queued { .. } => (SliceState::Queued, false),
            State::Creating { .. } => (SliceState::Creating, false),
            State::Ready => (SliceState::Ready, false),
            State::Repairing => (SliceState::InTransition("REPAIRING".into()), false),
            State::Stateless => (SliceState::Unspecified, false),
            State::Stopped => (SliceState::Stopped, true),
            State::Failed => (SliceState::Failed, false),
            State::Suspending => (SliceState::Preempted, false),
            State::Suspended | State::Preempted { .. } => (SliceState::Preempted, true),
            State::Deleting { .. } => (SliceState::Deleting, false),
        })
    }
}

/// In some walks the clocks of some workers are minutes off.
fn clocks(draws: &mut Draws, slices: u32) -> BTreeMap<WorkerKey, i64> {
    let ahead = draws.one_of(&[0, 0, 0, -280, 100, 280]);
    let keys = (0..slices).flat_map(|slice| (0..WORKERS).map(move |worker| WorkerKey { slice, worker }));
    keys.filter(|_| ahead != 0 && draws.happens(30)).map(|key| (key, ahead)).collect()
}

/// One job and all that it meets.
pub(super) struct World {
    seed: u64,
    pub(super) draws: Draws,
    /// Seconds since noon.
    pub(super) now: i64,
    pub(super) job: Job,
    pub(super) slices: Vec<Slice>,
    pub(super) reports: BTreeMap<(u32, WorkerKey), WorkerReport>,
    /// Since when a program has known that it is to end.
    told: BTreeMap<(u32, WorkerKey), i64>,
    /// Workers that nobody hears.
    pub(super) mute: BTreeSet<WorkerKey>,
    /// How far each worker's clock is ahead.
    pub(super) ahead: BTreeMap<WorkerKey, i64>,
    /// Since when nobody hears any worker: an outage of ours.
    pub(super) deaf_since: Option<i64>,
    /// Since when they were heard before it.
    heard_since: i64,
    /// So many creates of a hundred wait for a permit.
    pub(super) unpermitted: i64,
    /// The program comes a step further at so many looks of a hundred.
    pub(super) pace: i64,
    /// Attempts whose program was told to run, with their checkpoint lines.
    released: BTreeSet<(u32, u32)>,
    /// For how long a program saves when it is told to end.
    pub(super) saving: i64,
    /// So many creates of a hundred are refused.
    pub(super) refused: i64,
    /// The program's step, over all attempts.
    step: u64,
    /// No trouble comes any more.
    is_calm: bool,
    /// What happened, for whoever reads of a failure.
    pub(super) events: Vec<String>,
    settings: Settings,
    deployment: Deployment,
    installation: InstallationId,
}

impl World {
    pub(super) fn of(seed: u64) -> Self {
        let mut draws = Draws::of(seed);
        let kinds = [CapacityKind::Spot, CapacityKind::OnDemand, CapacityKind::Reserved];
        let deployment = deployment(kinds.map(|kind| entry("*", "us-central1-a", kind)).to_vec());
        let job = job(spec_in(&deployment, &draws::job(&mut draws)));
        let ahead = clocks(&mut draws, job.spec.tpu.slices);
        let events = vec![format!("{:?}", job.spec), format!("clocks are ahead by {ahead:?}")];
        Self {
            seed,
            draws,
            now: 1,
            job,
            slices: Vec::new(),
            reports: BTreeMap::new(),
            told: BTreeMap::new(),
            mute: BTreeSet::new(),
            ahead,
            deaf_since: None,
            heard_since: 0,
            unpermitted: 0,
            released: BTreeSet::new(),
            pace: 30,
            saving: 20,
            refused: 30,
            step: 0,
            is_calm: false,
            events,
            settings: Settings::default(),
            deployment,
            installation: InstallationId::parse("abc123").unwrap(),
        }
    }

    pub(super) fn happened(&mut self, what: &str) {
        self.events.push(format!("{:>5} {what}", self.now));
    }

    /// Where the job stands, for whoever reads of a failure.
    pub(super) fn told(&self) -> String {
        let Job { phase, reason, desired, generations, attempts, next, message, .. } = &self.job;
        format!("{phase:?} {reason:?} {desired:?}: {message}\n{next:?}\n{generations:#?}\n{attempts:#?}")
    }

    /// All that can mend by itself does so, and nothing goes wrong from now on. A preemption is never called off.
    pub(super) fn calm(&mut self) {
        self.is_calm = true;
        self.mute.clear();
        self.hears_again();
        self.pace = 100;
        for slice in &mut self.slices {
            slice.is_unhealthy = false;
            slice.notices.retain(|_, notice| notice.kind == NoticeKind::Preemption || notice.deadline <= at(self.now));
            if matches!(slice.state, State::Repairing | State::Stateless) {
                slice.state = State::Ready;
            }
            if matches!(slice.state, State::Queued { .. }) {
                slice.state = State::Queued { until: self.now + 60 };
            }
        }
        self.happened("all is well");
    }

    /// After an outage that was long enough silence begins again.
    pub(super) fn hears_again(&mut self) {
        let Some(since) = self.deaf_since.take() else { return };
        if at(self.now) >= at(since) + self.settings.outage_gap {
            self.heard_since = self.now;
        }
        self.happened("workers are heard again");
    }

    /// The machines do their part, then a pass decides.
    pub(super) fn step(&mut self) {
        for slice in &mut self.slices {
            slice.ages(self.now);
        }
        self.agents_call();
        self.holds();
        self.pass();
        self.holds();
        self.resumes();
    }

    /// No two attempts run, and a job that has ended owns nothing.
    fn holds(&self) {
        let runs = |r: &&WorkerReport| {
            let on = |slice: &Slice| slice.number == r.generation && slice.may_run(self.now);
            r.exit.is_none() && r.state == WorkerState::Running && self.slices.iter().any(on)
        };
        let running: BTreeSet<u32> = self.reports.values().filter(runs).map(|r| r.attempt).collect();
        assert!(running.len() <= 1, "attempts {running:?} run at once: {}", self.told());
        let is_paused = self.job.phase == Phase::Paused && self.job.desired == Desired::Pause;
        let owns_nothing = self.job.phase.is_terminal() || is_paused;
        let left = self.slices.iter().find(|slice| owns_nothing && slice.is_there());
        let left = left.map(|slice| (slice.number, slice.state));
        assert_eq!(left, None, "a job that has ended or is paused owns a slice: {}", self.told());
    }

    /// An attempt resumes where an earlier one may have left something on its line, and nowhere else.
    fn resumes(&mut self) {
        let released = self.job.attempts.iter().filter(|a| a.released_at.is_some()).map(|a| (a.number, a.line));
        self.released.extend(released);
        for a in &self.job.attempts {
            let may = self.released.iter().any(|(number, line)| *number < a.number && *line == a.line);
            assert_eq!(a.resume, may, "attempt {} on line {}: {}", a.number, a.line, self.told());
        }
    }

    /// The agents of each slice hear what is wanted of them, and tell what has become of it.
    fn agents_call(&mut self) {
        if self.deaf_since.is_some() {
            return;
        }
        for index in 0..self.slices.len() {
            let slice = &self.slices[index];
            let known = self.job.generations.iter().find(|g| slice.is_of(g)).filter(|_| slice.has_agents(self.now));
            let Some(keys) = known.map(|g| keys(g).collect::<Vec<_>>()) else { continue };
            let number = slice.number;
            let order = order_to_all(&self.job, number, &self.settings);
            if !self.job.attempts.iter().any(|a| a.number == order.attempt && a.generation == number) {
                continue;
            }
            for key in keys {
                let notice = self.slices[index].notices.get(&key).cloned();
                if !self.mute.contains(&key) {
                    self.agent_calls(key, number, &order, notice);
                }
            }
        }
    }

    fn agent_calls(&mut self, key: WorkerKey, generation: u32, order: &Order, notice: Option<Notice>) {
        let now = self.now;
        let by_its_clock = at(now + self.ahead.get(&key).copied().unwrap_or_default());
        let new = || WorkerReport {
            generation,
            key,
            attempt: order.attempt,
            ..report(key.worker, WorkerState::Preparing, None)
        };
        let told = self.reports.entry((order.attempt, key)).or_insert_with(new);
        told.heard_at = at(now);
        // A preemption is not taken back, nor is what was known when the program ended.
        let kept = told.notice.take().filter(|n| n.kind == NoticeKind::Preemption || told.exit.is_some());
        told.notice = match (kept, notice) {
            (Some(kept), Some(other)) => Some(if other.says_more(&kept) { other } else { kept }),
            (kept, other) => kept.or(other),
        };
        if told.exit.is_some() {
            return;
        }
        let goes = told.notice.as_ref().is_some_and(|n| notice_is_urgent(n, by_its_clock));
        match order.want {
            Want::Prepare => told.state = WorkerState::Ready,
            Want::Run if told.has_rebooted => {}
            Want::Run if !goes => {
                told.state = WorkerState::Running;
                if self.draws.happens(self.pace) {
                    self.step += 1;
                    (told.step, told.step_at) = (Some(self.step), Some(by_its_clock));
                }
            }
            // Its agent ends it for the notice, without an order.
            Want::Run | Want::Stop | Want::Retire => {
                let since = *self.told.entry((order.attempt, key)).or_insert(now);
                if now - since >= self.saving || order.kill_at.is_some_and(|kill_at| at(now) >= kill_at) {
                    let evidence = WorkerEvidence {
                        slice: key.slice,
                        index: key.worker,
                        exit: Exit::Signal(15),
                        ..WorkerEvidence::default()
                    };
                    told.exit = Some(ExitReport { at: by_its_clock, ordered: true, evidence });
                    told.state = WorkerState::Exited;
                }
            }
        }
    }

    /// The program ends with 0 on all workers; a workspace is deleted.
    pub(super) fn is_done(&mut self) {
        if self.job.spec.workspace {
            if let Ok(Some(job)) = apply_command(&self.job, Command::Cancel, at(self.now)) {
                self.job = job;
            }
            return;
        }
        let newest = self.job.last_attempt;
        for ((attempt, key), told) in &mut self.reports {
            if *attempt == newest && told.state == WorkerState::Running {
                let ahead = self.ahead.get(key).copied().unwrap_or_default();
                told.end(*key, at(self.now + ahead), Exit::Code(0), "");
            }
        }
    }

    /// Whether the program has ended with 0 by itself on all workers of the attempt that was judged last.
    pub(super) fn has_ended_well(&self) -> bool {
        let Some(last) = self.job.last_end.as_ref().map(|end| end.attempt) else { return false };
        let well = |exit: &ExitReport| exit.evidence.exit == Exit::Code(0) && !exit.ordered;
        let of_last = self.reports.iter().filter(|((attempt, _), _)| *attempt == last);
        let ended = of_last.filter(|(_, told)| told.exit.as_ref().is_some_and(well)).count();
        ended == (self.job.spec.tpu.slices * WORKERS) as usize
    }

    fn look_at(&mut self, g: &Generation, is_unread: bool) -> GenerationLook {
        let hides = !self.is_calm && self.draws.happens(30);
        let slice = self.slices.iter().find(|slice| slice.is_of(g));
        let shown = slice.and_then(|slice| Some((slice, slice.shown(self.now, hides)?)));
        let seen = match shown {
            _ if is_unread => Look::Unknown,
            None => Look::Absent,
            Some((slice, (state, ended))) => {
                let health = if slice.is_unhealthy { Health::Unhealthy("ICI".into()) } else { Health::Healthy };
                let machines = |slice| (0..g.workers).map(move |worker| format!("10.0.{slice}.{worker}")).collect();
                let labels = names::labels(&self.installation, &self.job.id, g.number, &self.job.spec_hash);
                let addresses = Shared::from((0..g.slices).map(machines).collect::<Vec<_>>());
                Look::Seen(SliceView { ended, health, addresses, labels, ..view(&self.job, state, true) })
            }
        };
        let is_made = !slice.is_some_and(|s| matches!(s.state, State::Queued { .. } | State::Creating { .. }));
        let operation = match &g.create {
            Create::Sent { operation } if !operation.is_empty() => {
                Look::Seen(OperationView { done: is_made, error: None })
            }
            Create::Sent { .. } | Create::Intended | Create::Failed { .. } | Create::Done => Look::Unknown,
        };
        GenerationLook {
            number: g.number,
            placement: g.placement.clone(),
            intended_at: g.intended_at,
            slice: seen,
            looked_at: at(self.now),
            operation,
        }
    }

    fn observe(&mut self) -> Observation {
        let fails = |world: &mut Self| !world.is_calm && world.draws.happens(4);
        let (is_unread, is_unheard) = (fails(self), fails(self));
        let generations = self.job.generations.clone();
        let generations = generations.iter().map(|g| self.look_at(g, is_unread)).collect();
        let known = |r: &&WorkerReport| {
            self.job.attempts.iter().any(|a| a.number == r.attempt && a.generation == r.generation)
                && self.job.generation(r.generation).is_some()
        };
        let workers = self.reports.values().filter(known).map(|r| Shared::from(r.clone())).collect();
        let is_permitted = self.is_calm || !self.draws.happens(self.unpermitted);
        let permit = if is_permitted { Permit::Free } else { Permit::Wait };
        let through = self.deaf_since.unwrap_or(self.now);
        Observation {
            generations,
            workers: (!is_unheard).then_some(workers),
            read_through_us: at(self.now).as_microsecond(),
            zones: Vec::new(),
            permit,
            used: InUse::default(),
            liveness: Liveness { since: Some(at(self.heard_since)), through: Some(at(through)) },
        }
    }

    fn pass(&mut self) {
        let seen = self.observe();
        let rules = Rules { settings: &self.settings, deployment: &self.deployment, installation: &self.installation };
        let decision = decide(&self.job, &seen, at(self.now), &rules);
        let faults = check(&self.job, &decision.job, &decision.effects, &decision.fenced);
        for note in &decision.notes {
            self.happened(&format!("  {note}"));
        }
        assert_eq!(faults, Vec::<String>::new(), "{}", self.told());
        let outcomes: Vec<EffectOutcome> =
            decision.effects.iter().filter_map(|effect| self.carry_out(&decision, effect)).collect();
        self.job = record(&decision.job, &outcomes, at(self.now)).0;
    }

    /// `None`: what became of it was lost with the handler.
    fn carry_out(&mut self, decision: &Decision, effect: &Effect) -> Option<EffectOutcome> {
        match effect {
            Effect::PublishEvents => Some(EffectOutcome::Published { through: decision.job.sequence }),
            Effect::CreateGeneration { generation } => self.create(decision.job.generation(*generation)?),
            Effect::DeleteGeneration { generation } => self.delete(decision.job.generation(*generation)?),
        }
    }

    fn create(&mut self, g: &Generation) -> Option<EffectOutcome> {
        let (now, generation) = (self.now, g.number);
        let is_late = |slice: &Slice| matches!(slice.state, State::Nothing | State::UnderWay { .. });
        if self.slices.iter().any(|slice| slice.is_of(g) && !is_late(slice)) {
            return Some(EffectOutcome::CreateSent { generation, operation: String::new() });
        }
        self.slices.retain(|slice| !slice.is_of(g));
        if !self.is_calm && self.draws.happens(self.refused) {
            return Some(self.refuse(g));
        }
        let mut slice = Slice::of(g, now, State::Nothing);
        slice.state = slice.made(now);
        let mut outcome = None;
        if self.is_calm || self.draws.happens(70) {
            outcome = Some(EffectOutcome::CreateSent { generation, operation: "operation".into() });
        } else if self.draws.happens(50) {
            // Without an answer: it may have arrived, arrive yet, or be lost.
            let until = now + self.draws.below(IN_FLIGHT);
            slice.state = self.draws.one_of(&[slice.state, State::UnderWay { until }, State::Nothing]);
            outcome = Some(EffectOutcome::CreateUnclear { generation, why: "no answer".into() });
        }
        self.slices.push(slice);
        outcome
    }

    fn refuse(&mut self, g: &Generation) -> EffectOutcome {
        let kind = self.draws.one_of(&[
            CreateErrorKind::Stockout,
            CreateErrorKind::Quota,
            CreateErrorKind::RateLimit,
            CreateErrorKind::Other,
            CreateErrorKind::NameTaken,
            CreateErrorKind::Forbidden,
        ]);
        self.slices.push(Slice::of(g, self.now, State::Nothing));
        self.happened(&format!("the create of generation {} is refused: {kind:?}", g.number));
        EffectOutcome::CreateRefused { generation: g.number, error: CreateError { kind, message: "no".into() } }
    }

    fn delete(&mut self, g: &Generation) -> Option<EffectOutcome> {
        let (now, generation) = (self.now, g.number);
        let slice = self.slices.iter_mut().find(|slice| slice.is_of(g))?;
        if matches!(slice.state, State::Nothing | State::Gone | State::UnderWay { .. }) {
            return Some(EffectOutcome::DeleteNotFound { generation });
        }
        if !matches!(slice.state, State::Deleting { .. }) {
            slice.state = State::Deleting { since: now, was_on: slice.has_agents(now) };
        }
        Some(EffectOutcome::DeleteSent { generation })
    }
}

impl WorkerReport {
    /// Its program ends by itself.
    pub(super) fn end(&mut self, key: WorkerKey, when: Timestamp, exit: Exit, tail: &str) {
        let evidence = WorkerEvidence {
            slice: key.slice,
            index: key.worker,
            exit,
            tail: tail.into(),
            ..WorkerEvidence::default()
        };
        self.exit = Some(ExitReport { at: when, ordered: false, evidence });
        self.state = WorkerState::Exited;
    }
}

/// A failure tells its walk.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("walk {} went wrong:\n{}", self.seed, self.events.join("\n"));
        }
    }
}
