//! Makes the plan of a failure smaller: fewer faults, fewer jobs, fewer moments, as long as the same checker speaks.

use crate::plan::Plan;
use crate::run::run;

/// The smallest plan found in at most so many runs.
pub(crate) fn shrink(plan: &Plan, checker: &str, runs_max: u32) -> Plan {
    let mut best = plan.clone();
    let mut runs = 0;
    loop {
        let before = size(&best);
        for candidate in candidates(&best) {
            if runs >= runs_max {
                return best;
            }
            // A smaller one may have been found since the candidates were drawn up.
            if size(&candidate) >= size(&best) {
                continue;
            }
            runs += 1;
            if run(&candidate, false).ending.checker() == Some(checker) {
                best = candidate;
                break;
            }
        }
        if size(&best) == before {
            return best;
        }
    }
}

fn size(plan: &Plan) -> usize {
    plan.on.len()
        + plan.windows.len()
        + plan.moments.len()
        + plan.jobs.len() * 3
        + plan.acts.len()
        + usize::from(plan.by_http)
}

fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let halves = |n: usize| if n > 1 { vec![(0, n / 2), (n / 2, n)] } else { Vec::new() };
    for (from, to) in halves(plan.moments.len()) {
        let mut p = plan.clone();
        p.moments.drain(from..to);
        all.push(p);
    }
    all.push(Plan { windows: Vec::new(), ..plan.clone() });
    all.push(Plan { acts: Vec::new(), ..plan.clone() });
    all.push(Plan { on: std::collections::BTreeMap::new(), ..plan.clone() });
    all.push(Plan { by_http: false, ..plan.clone() });
    for n in (0..plan.jobs.len()).rev() {
        let mut p = plan.clone();
        p.jobs.remove(n);
        p.acts.retain(|a| a.job != n);
        for act in p.acts.iter_mut().filter(|a| a.job > n) {
            act.job -= 1;
        }
        all.push(p);
    }
    for fault in plan.on.keys() {
        let mut p = plan.clone();
        p.on.remove(fault);
        all.push(p);
    }
    for n in 0..plan.windows.len() {
        let mut p = plan.clone();
        p.windows.remove(n);
        all.push(p);
    }
    for n in 0..plan.acts.len() {
        let mut p = plan.clone();
        p.acts.remove(n);
        all.push(p);
    }
    for n in 0..plan.moments.len() {
        let mut p = plan.clone();
        p.moments.remove(n);
        all.push(p);
    }
    all
}
