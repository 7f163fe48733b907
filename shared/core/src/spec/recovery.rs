//! The section `recovery` of a job spec: the preset and its overrides.

use std::collections::BTreeMap;

use serde_json::Value;

use super::reader::{self, Faults, Object, advise, quote};
use super::{Budgets, limits};
use crate::failure::FailureKind;
use crate::policy::{self, Action, Charge, PolicyTable, Preset, Rule};

pub(super) const FIELDS: &[&str] = &["preset", "overrides"];

/// The section `recovery`; without a preset, the one given.
///
/// Where no failure of the user's is allowed, the table says `fail` for them, as the budget would: it is what people
/// are shown.
pub(super) fn read(top: &Object<'_>, default: Preset, budgets: &Budgets, faults: &mut Faults) -> PolicyTable {
    let mut table = table(top, default, faults);
    if budgets.user_failures == Some(0) {
        for kind in FailureKind::ALL {
            if policy::charge(kind) == Charge::User && policy::budget_decides(&table, kind) {
                table.rules.insert(kind, Rule::always(Action::Fail));
            }
        }
    }
    table
}

fn table(top: &Object<'_>, default: Preset, faults: &mut Faults) -> PolicyTable {
    let opened = top.get("recovery").and_then(|value| Object::open(value, "recovery", FIELDS, faults));
    let Some(object) = opened else { return PolicyTable::preset(default) };
    let mut preset = default;
    if let Some(name) = object.text("preset", faults) {
        if let Some(known) = Preset::parse(&name) {
            preset = known;
        } else {
            let names = Preset::ALL.map(Preset::as_str);
            faults.add(object.at("preset"), format!("{} is no preset; {}", quote(&name), advise(&name, &names)));
        }
    }
    let overrides = object.get("overrides").map_or_else(BTreeMap::new, |value| overrides(value, faults));
    PolicyTable::preset(preset).with_overrides(overrides)
}

fn overrides(value: &Value, faults: &mut Faults) -> BTreeMap<FailureKind, Rule> {
    let kinds = FailureKind::ALL.map(FailureKind::as_str);
    let mut rules = BTreeMap::new();
    let Some(object) = Object::open(value, "recovery.overrides", &kinds, faults) else { return rules };
    for kind in FailureKind::ALL {
        let Some(value) = object.get(kind.as_str()) else { continue };
        let path = object.at(kind.as_str());
        if let Some(rule) = rule(value, &path, faults) {
            check_places(kind, &rule, &path, faults);
            rules.insert(kind, rule);
        }
    }
    rules
}

/// `ACTION`, `{action, max}`, or `{first, again, within, max}`.
fn rule(value: &Value, path: &str, faults: &mut Faults) -> Option<Rule> {
    if value.is_string() {
        return action(value, path, faults).map(Rule::always);
    }
    let object = Object::open(value, path, &["action", "first", "again", "within", "max"], faults)?;
    let mut read = |field: &str| object.get(field).map(|value| action(value, &object.at(field), faults));
    let (same, first, again) = (read("action"), read("first"), read("again"));
    if same.is_some() && (first.is_some() || again.is_some()) {
        faults.add(object.at("action"), "is for every time; give either it, or `first` and `again`");
        return None;
    }
    let Some(first) = same.or(first) else {
        faults.add(path, "has no action; give `action`, or `first` and `again`");
        return None;
    };
    let within = match object.get("within") {
        Some(value) => reader::duration(value, &object.at("within"), true, faults)?.value(),
        None => None,
    };
    let max = match object.get("max") {
        Some(value) => limits::count(value, &object.at("max"), faults)?.value(),
        None => None,
    };
    let first = first?;
    let again = again.unwrap_or(Some(first))?;
    Some(Rule { first, again, within, max })
}

fn action(value: &Value, path: &str, faults: &mut Faults) -> Option<Action> {
    let name = reader::text(value, path, faults)?;
    let action = Action::parse(name);
    if action.is_none() {
        let advice = advise(name, &Action::ALL.map(Action::as_str));
        faults.add(path, format!("{} is no action; {advice}", quote(name)));
    }
    action
}

/// A slice that is gone cannot be gone on with.
fn check_places(kind: FailureKind, rule: &Rule, path: &str, faults: &mut Faults) {
    let is_gone = matches!(kind, FailureKind::Preempted | FailureKind::Maintenance | FailureKind::Lost);
    let in_place = |action| matches!(action, Action::ResumeInPlace | Action::RestartInPlace);
    if is_gone && (in_place(rule.first) || in_place(rule.again)) {
        faults.add(path, "the slice is gone then; use recreate, recreate_from_scratch or fail");
    }
}
