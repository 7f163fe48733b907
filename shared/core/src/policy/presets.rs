//! The presets of the outside interface (contract section 5), and how a rule answers a failure.
//!
//! Owns the tables and nothing else: budgets, back-off and the limits of a job are `decide`'s.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::{Action, Charge, PolicyTable, Preset, Rule};
use crate::failure::FailureKind;
use crate::job::Repeat;
use crate::spec::CapacityKind;

/// A gRPC failure that repeats within this time says that the slice, not the moment, is at fault.
const GRPC_WINDOW: Duration = Duration::from_mins(10);

/// The same for a stalled program, a broken TPU runtime and a full disk. A slice is scarce, so it gets one more try.
const MACHINE_WINDOW: Duration = Duration::from_hours(1);

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 5] = [Self::Pre, Self::Resume, Self::Reapply, Self::Rerun, Self::Pass];

    /// The name as it stands in job specs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pre => "pre",
            Self::Resume => "resume",
            Self::Reapply => "reapply",
            Self::Rerun => "rerun",
            Self::Pass => "pass",
        }
    }

    /// The preset with that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|preset| preset.as_str() == name)
    }
}

impl Action {
    /// Every action.
    pub const ALL: [Self; 5] =
        [Self::ResumeInPlace, Self::RestartInPlace, Self::Recreate, Self::RecreateFromScratch, Self::Fail];

    /// The name as it stands in job specs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ResumeInPlace => "resume_in_place",
            Self::RestartInPlace => "restart_in_place",
            Self::Recreate => "recreate",
            Self::RecreateFromScratch => "recreate_from_scratch",
            Self::Fail => "fail",
        }
    }

    /// The action with that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == name)
    }
}

impl Rule {
    /// The same answer each time; the budgets alone end it.
    pub const fn always(action: Action) -> Self {
        Self { first: action, again: action, within: None, max: None }
    }

    const fn then(first: Action, again: Action, within: Option<Duration>) -> Self {
        Self { first, again, within, max: None }
    }

    const fn at_most(self, max: u32) -> Self {
        Self { first: self.first, again: self.again, within: self.within, max: Some(max) }
    }
}

impl PolicyTable {
    /// The table of a preset: a rule for each kind.
    pub fn preset(preset: Preset) -> Self {
        let rules = FailureKind::ALL.into_iter().map(|kind| (kind, rule_of(preset, kind))).collect();
        Self { preset, rules }
    }

    /// The same with some rules replaced.
    #[must_use]
    pub fn with_overrides(mut self, overrides: BTreeMap<FailureKind, Rule>) -> Self {
        self.rules.extend(overrides);
        self
    }

    /// The rule for one kind. A stored table that lacks one (of an older version) is read as its preset says.
    pub fn rule(&self, kind: FailureKind) -> Rule {
        self.rules.get(&kind).cloned().unwrap_or_else(|| rule_of(self.preset, kind))
    }
}

/// The preset of a job that names none. One kind of capacity that can be taken away is enough for `pre`: under `resume`
/// the first preemption would fail the job.
pub fn default_preset(capacity: &[CapacityKind]) -> Preset {
    if capacity.iter().any(|kind| kind.is_preemptible()) { Preset::Pre } else { Preset::Resume }
}

/// The budget that a failure of this kind is charged to.
pub const fn charge(kind: FailureKind) -> Charge {
    match kind {
        FailureKind::Preempted | FailureKind::Maintenance => Charge::Preemptions,
        // `timeout` is the attempt limit here; the limits that end a job are no failure to be answered.
        FailureKind::Lost
        | FailureKind::InfraGrpc
        | FailureKind::TpuRuntime
        | FailureKind::StorageNetwork
        | FailureKind::Stalled
        | FailureKind::DiskFull
        | FailureKind::Timeout
        | FailureKind::Unknown => Charge::Infra,
        FailureKind::OomHbm
        | FailureKind::OomHost
        | FailureKind::Auth
        | FailureKind::Environment
        | FailureKind::UserError => Charge::User,
    }
}

/// True if the budget of [`charge`] may end the job at a failure of this kind; false if the rule's `max` does alone.
///
/// A rule of a user kind with a `max` says itself how often: `environment` is set up once more, and an override
/// `{action: resume_in_place, max: 1}` resumes once, though `user_failures` is 0 by default. They are still charged.
/// The infrastructure's budgets always hold.
pub fn budget_decides(table: &PolicyTable, kind: FailureKind) -> bool {
    charge(kind) != Charge::User || table.rule(kind).max.is_none()
}

/// The answer of the table to a failure of this kind at `now`.
///
/// `repeat` is what was recorded of earlier ones of the same kind since the last progress, without this one: the job's
/// `spent.kinds`. Budgets are not looked at (see [`budget_decides`]). For [`FailureKind::Timeout`] it is the answer to
/// the attempt limit; total, queue and cost limits end the job whatever the table says.
pub fn answer(table: &PolicyTable, kind: FailureKind, repeat: Option<&Repeat>, now: Timestamp) -> Action {
    let rule = table.rule(kind);
    let earlier = repeat.map_or(0, |repeat| repeat.count);
    if rule.max.is_some_and(|max| earlier >= max) {
        return Action::Fail;
    }
    let is_repeat = match (repeat, rule.within) {
        (None, _) => false,
        (Some(repeat), _) if repeat.count == 0 => false,
        (Some(_), None) => true,
        // A last one in the future (clocks differ between instances) is as near as can be.
        (Some(repeat), Some(within)) => now.duration_since(repeat.last_at).as_secs_f64() <= within.as_secs_f64(),
    };
    if is_repeat { rule.again } else { rule.first }
}

fn rule_of(preset: Preset, kind: FailureKind) -> Rule {
    if preset == Preset::Pass {
        return Rule::always(Action::Fail);
    }
    match kind {
        FailureKind::Preempted if preset == Preset::Resume => Rule::always(Action::Fail),
        FailureKind::Preempted | FailureKind::Maintenance | FailureKind::Lost | FailureKind::Timeout => {
            Rule::always(Action::Recreate)
        }
        FailureKind::InfraGrpc => grpc_rule(preset),
        // In place with back-off: another slice would meet the same network, and this one may be hard to get again.
        FailureKind::StorageNetwork => Rule::always(Action::ResumeInPlace),
        FailureKind::Stalled | FailureKind::TpuRuntime | FailureKind::DiskFull => {
            Rule::then(Action::ResumeInPlace, Action::Recreate, Some(MACHINE_WINDOW))
        }
        FailureKind::Unknown => Rule::then(Action::ResumeInPlace, Action::Recreate, None).at_most(2),
        // Set up once more: an index or a mirror may have been away for a moment.
        FailureKind::Environment => Rule::always(Action::ResumeInPlace).at_most(1),
        // The user's own: as long as `user_failures` allows, which is not at all by default.
        FailureKind::OomHbm | FailureKind::OomHost | FailureKind::Auth | FailureKind::UserError => {
            Rule::always(Action::ResumeInPlace)
        }
    }
}

fn grpc_rule(preset: Preset) -> Rule {
    match preset {
        Preset::Pre => Rule::then(Action::ResumeInPlace, Action::Recreate, Some(GRPC_WINDOW)),
        Preset::Resume => Rule::then(Action::ResumeInPlace, Action::Recreate, None),
        Preset::Reapply => Rule::always(Action::Recreate),
        Preset::Rerun => Rule::then(Action::RestartInPlace, Action::RecreateFromScratch, None),
        Preset::Pass => Rule::always(Action::Fail),
    }
}
