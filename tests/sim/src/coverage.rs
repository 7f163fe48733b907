//! Coverage: over the seeds of CI every reason, effect, phase change and fault occurs at least once, or CI is red.

use std::collections::BTreeMap;
use std::io::Write;

use rekindle_core::reason::Reason;

use crate::check::phases;
use crate::fault::Fault;
use crate::world::Counts;

const EFFECTS: &[&str] = &["create_generation", "delete_generation", "publish_events"];

/// What happened too often to be zero in a swarm that says anything.
const OTHERS: &[&str] = &["preemptions", "crashes", "messages lost"];

/// What never occurred.
pub(crate) fn missing(counts: &Counts) -> Vec<String> {
    let mut missing = Vec::new();
    for fault in Fault::ALL.iter().filter(|f| !counts.faults.contains_key(f)) {
        missing.push(format!("fault {}", fault.name()));
    }
    for reason in Reason::ALL.iter().filter(|r| !counts.reasons.contains_key(r)) {
        missing.push(format!("reason {}", reason.name()));
    }
    for phase in phases::demanded().filter(|p| !counts.phases.contains_key(p)) {
        missing.push(format!("phase change {phase}"));
    }
    for effect in EFFECTS.iter().filter(|e| !counts.effects.contains_key(*e)) {
        missing.push(format!("effect {effect}"));
    }
    missing.extend(idle(counts));
    missing
}

/// Without these a swarm says nothing.
pub(crate) fn idle(counts: &Counts) -> Vec<String> {
    OTHERS.iter().filter(|o| !counts.others.contains_key(*o)).map(|o| (*o).to_owned()).collect()
}

fn list<K: std::fmt::Display>(map: &BTreeMap<K, u64>) -> String {
    map.iter().map(|(k, n)| format!("{k} {n}")).collect::<Vec<_>>().join(", ")
}

/// The count of everything that occurred.
pub(crate) fn report(out: &mut impl Write, counts: &Counts) -> std::io::Result<()> {
    let faults: Vec<String> = counts.faults.iter().map(|(f, n)| format!("{} {n}", f.name())).collect();
    writeln!(out, "faults: {}", faults.join(", "))?;
    let reasons: Vec<String> = counts.reasons.iter().map(|(r, n)| format!("{} {n}", r.name())).collect();
    writeln!(out, "reasons: {}", reasons.join(", "))?;
    writeln!(out, "phases: {}", list(&counts.phases))?;
    writeln!(out, "effects: {}", list(&counts.effects))?;
    writeln!(out, "counts: {}", list(&counts.others))
}
