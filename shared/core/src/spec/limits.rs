//! The sections `budgets` and `limits` of a job spec, with the defaults of the contract.

use std::time::Duration;

use serde_json::Value;

use super::reader::{self, Bound, Faults, Object};
use super::{Budgets, Limits, STOP_GRACE_MAX};

pub(super) const BUDGETS: &[&str] = &["user_failures", "infra_failures", "preemptions", "no_progress"];

pub(super) const LIMITS: &[&str] = &["total", "attempt", "queue", "start", "stall", "stop_grace", "cost_usd", "idle"];

/// A workspace that nobody has used for so long is paused, unless it says otherwise.
// A night: what is forgotten in the evening costs nothing any more in the morning.
const IDLE: Duration = Duration::from_hours(8);

/// The section `budgets`.
pub(super) fn budgets(top: &Object<'_>, is_workspace: bool, faults: &mut Faults) -> Budgets {
    let mut budgets =
        Budgets { user_failures: Some(0), infra_failures: Some(10), preemptions: None, no_progress: Some(5) };
    if is_workspace {
        // Nothing in it ever tells of progress.
        budgets.no_progress = None;
    }
    let opened = top.get("budgets").and_then(|value| Object::open(value, "budgets", BUDGETS, faults));
    let Some(object) = opened else { return budgets };
    for (field, slot) in [
        ("user_failures", &mut budgets.user_failures),
        ("infra_failures", &mut budgets.infra_failures),
        ("preemptions", &mut budgets.preemptions),
        ("no_progress", &mut budgets.no_progress),
    ] {
        let Some(value) = object.get(field) else { continue };
        if let Some(count) = count(value, &object.at(field), faults) {
            *slot = count.value();
        }
    }
    // Nought generations without progress would pause every job before its first step.
    if budgets.no_progress == Some(0) {
        faults.add("budgets.no_progress", "must be at least 1, or unlimited");
    }
    budgets
}

/// A whole number, or `unlimited`.
pub(super) fn count(value: &Value, path: &str, faults: &mut Faults) -> Option<Bound<u32>> {
    match value.as_str() {
        Some("unlimited") => Some(Bound::Free),
        Some(text) => {
            faults.add(path, format!("must be a whole number or unlimited, not {}", reader::quote(text)));
            None
        }
        None => {
            let number = reader::integer(value, path, &(0..=1_000_000), faults)?;
            u32::try_from(number).ok().map(Bound::At)
        }
    }
}

/// The section `limits`.
pub(super) fn limits(top: &Object<'_>, is_workspace: bool, faults: &mut Faults) -> Limits {
    let mut limits = Limits {
        total: None,
        attempt: None,
        queue: None,
        start: Duration::from_mins(30),
        stall: (!is_workspace).then_some(Duration::from_hours(1)),
        stall_by_hand: false,
        stop_grace: Duration::from_secs(30),
        cost_usd: None,
        idle: is_workspace.then_some(IDLE),
    };
    let opened = top.get("limits").and_then(|value| Object::open(value, "limits", LIMITS, faults));
    let Some(object) = opened else { return limits };
    for (field, slot) in [("total", &mut limits.total), ("attempt", &mut limits.attempt), ("queue", &mut limits.queue)]
    {
        if let Some(given) = limit(&object, field, true, faults) {
            *slot = given.value();
        }
    }
    if is_workspace {
        if let Some(given) = limit(&object, "idle", true, faults) {
            limits.idle = given.value();
        }
    } else if object.get("idle").is_some() {
        faults.add(object.at("idle"), "belongs to a workspace; a job is watched by `stall`");
    }
    if let Some(Value::Object(_)) = object.get("stall") {
        // As the default is written: it watches steps alone.
        let path = object.at("stall");
        let steps = object.get("stall").and_then(|value| Object::open(value, &path, &["steps"], faults));
        if let Some(Bound::At(steps)) = steps.and_then(|stall| limit(&stall, "steps", false, faults)) {
            limits.stall = Some(steps);
        }
    } else if let Some(stall) = limit(&object, "stall", true, faults) {
        limits.stall = stall.value();
        limits.stall_by_hand = limits.stall.is_some();
    }
    if let Some(Bound::At(start)) = limit(&object, "start", false, faults) {
        limits.start = start;
    }
    // No grace at all is a wish that can be granted: SIGKILL at once.
    let grace = object.get("stop_grace");
    if let Some(Bound::At(grace)) = grace.and_then(|value| reader::duration(value, "limits.stop_grace", false, faults))
    {
        if grace > STOP_GRACE_MAX {
            let most = STOP_GRACE_MAX.as_secs() / 3600;
            faults
                .add("limits.stop_grace", format!("is at most {most}h, as long as the longest notice of the platform"));
        }
        limits.stop_grace = grace;
    }
    limits.cost_usd = cost(&object, faults);
    limits
}

fn limit(object: &Object<'_>, field: &str, none: bool, faults: &mut Faults) -> Option<Bound<Duration>> {
    let path = object.at(field);
    let given = reader::duration(object.get(field)?, &path, none, faults)?;
    if matches!(given, Bound::At(Duration::ZERO)) {
        faults.add(path, if none { "must be above zero; for no limit write none" } else { "must be above zero" });
        return None;
    }
    Some(given)
}

fn cost(object: &Object<'_>, faults: &mut Faults) -> Option<f64> {
    let value = object.get("cost_usd")?;
    if value.as_str() == Some("none") {
        return None;
    }
    let dollars = value.as_f64().filter(|dollars| *dollars > 0.0 && *dollars <= 1e9);
    if dollars.is_none() {
        faults.add("limits.cost_usd", "must be US dollars as a number above 0, such as 250, or none");
    }
    dollars
}
