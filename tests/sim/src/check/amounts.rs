//! Each end is charged once: one more in the sum for each, from budget to budget where a loss explains it, and no job goes on beyond a
//! budget that is used up.

use rekindle_core::failure::FailureKind;
use rekindle_core::job::{Counters, Job, LastEnd};
use rekindle_core::policy::{self, Charge};

use super::Broken;

/// Preemptions, failures of the infrastructure, failures of the user.
type Amounts = [i64; 3];

fn of(counters: &Counters) -> Amounts {
    [counters.preemptions, counters.infra_failures, counters.user_failures].map(i64::from)
}

fn one(charge: Charge) -> Amounts {
    match charge {
        Charge::Preemptions => [1, 0, 0],
        Charge::Infra => [0, 1, 0],
        Charge::User => [0, 0, 1],
    }
}

fn plus(a: Amounts, b: Amounts) -> Amounts {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

fn minus(a: Amounts, b: Amounts) -> Amounts {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// What a loss can move the charge of an earlier end to, of which it is the cause: any budget but the user's. Nothing moves from the
/// preemptions.
fn moves(old: Option<Charge>) -> Vec<Amounts> {
    let Some(old) = old.filter(|old| *old != Charge::Preemptions) else { return Vec::new() };
    [Charge::Preemptions, Charge::Infra].map(|to| minus(one(to), one(old))).to_vec()
}

fn charge_of(end: Option<&LastEnd>) -> Option<Charge> {
    end.and_then(|end| end.ended.charge)
}

/// What the counters may have grown by.
fn allowed(before: &Job, after: &Job) -> Vec<Amounts> {
    let nothing = vec![[0; 3]];
    if before.last_end == after.last_end {
        return nothing;
    }
    let old = charge_of(before.last_end.as_ref());
    let attempt = |end: Option<&LastEnd>| end.map(|end| (end.attempt, end.generation));
    let (was, is) = (attempt(before.last_end.as_ref()), attempt(after.last_end.as_ref()));
    let Some(new) = charge_of(after.last_end.as_ref()) else {
        // An earlier end may be explained in the same pass.
        return [nothing, moves(old)].concat();
    };
    if was == is {
        return old.map(|old| vec![minus(one(new), one(old))]).unwrap_or_default();
    }
    let moved: Vec<Amounts> = moves(old).into_iter().map(|moved| plus(moved, one(new))).collect();
    let mut all = [vec![one(new)], moved].concat();
    // One loss is one charge: it took over the charge of the attempt before, on the same slice.
    let is_same_slice = was.zip(is).is_some_and(|(was, is)| was.1 == is.1);
    if let Some(old) = old.filter(|old| is_same_slice && *old != Charge::Preemptions) {
        all.push(minus(one(new), one(old)));
    }
    all
}

/// Whether a charge was one too many by the job's own spec.
fn is_too_much(job: &Job, kind: FailureKind, charge: Charge) -> bool {
    let (budgets, spent) = (&job.spec.budgets, &job.spent);
    let over = |used: u32, max: Option<u32>| max.is_some_and(|max| used > max);
    match charge {
        Charge::Preemptions => over(job.counters.preemptions, budgets.preemptions),
        Charge::Infra => over(spent.infra_failures, budgets.infra_failures),
        Charge::User => {
            policy::budget_decides(&job.spec.recovery, kind) && over(spent.user_failures, budgets.user_failures)
        }
    }
}

/// From one commit of a job to the next.
pub(super) fn step(before: &Job, after: &Job) -> Broken {
    let grown = minus(of(&after.counters), of(&before.counters));
    let allowed = allowed(before, after);
    if !allowed.contains(&grown) {
        let end = after.last_end.as_ref().map(|end| (end.attempt, end.ended.kind, end.ended.charge));
        let text = format!("{}: the counters grew by {grown:?}, not one of {allowed:?}; the end is {end:?}", after.id);
        return Some(("amounts", text));
    }
    spent(before, after, grown).or_else(|| goes_on(before, after, grown))
}

/// What is spent of a budget grows with its counter, and begins again only with progress.
fn spent(before: &Job, after: &Job, grown: Amounts) -> Broken {
    let was = [before.spent.infra_failures, before.spent.user_failures];
    let is = [after.spent.infra_failures, after.spent.user_failures];
    let progressed = after.highest_step > before.highest_step;
    // A program that tells of no steps: a long run is progress enough, for the infrastructure's.
    let silent = after.highest_step.is_none();
    for (n, may_begin_again) in [(0, progressed || silent), (1, progressed)] {
        let (was, is, grown) = (i64::from(was[n]), i64::from(is[n]), grown[n + 1]);
        let wanted = (was + grown).max(0);
        if is != wanted && !(may_begin_again && is <= grown.max(0)) {
            let which = ["infra_failures", "user_failures"][n];
            let text = format!("{}: {which} spent went from {was} to {is}, and grew by {grown}", after.id);
            return Some(("amounts", text));
        }
    }
    None
}

/// A job that has spent more than a budget ends, now or when nothing has explained its end.
fn goes_on(before: &Job, after: &Job, grown: Amounts) -> Broken {
    if before.last_end == after.last_end || grown.iter().sum::<i64>() < 1 {
        return None;
    }
    let end = &after.last_end.as_ref()?.ended;
    let goes_on = after.outcome.is_none() && after.settling.is_none();
    (goes_on && is_too_much(after, end.kind?, end.charge?)).then(|| {
        let text = format!("{} goes on, and the budget of {:?} is used up ({:?})", after.id, end.charge, after.spent);
        ("amounts", text)
    })
}
