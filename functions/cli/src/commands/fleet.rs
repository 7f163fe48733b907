//! `fleet`: every TPU and queued resource, whose it is, what it costs.

use owo_colors::OwoColorize as _;
use rekindle_core::idle::IdleCause;
use rekindle_core::spec::CapacityKind;
use rekindle_wire::v1::{Fleet, FleetEntry, Owner};

use super::Context;
use crate::api::typed;
use crate::fault::Result;
use crate::human;
use crate::table::{Table, number, text};

/// Shows the fleet.
pub(crate) async fn run(context: &Context) -> Result<()> {
    let value = context.api.get("/v1/fleet", &[]).await?;
    if context.printer.is_json {
        return context.printer.json(&value);
    }
    let fleet: Fleet = typed(value)?;
    if fleet.resources.is_empty() {
        context.printer.talk("no TPU and no queued resource in any zone that answers");
    } else {
        context.printer.data(&table(&fleet.resources).render(context.printer.width()))?;
    }
    if let Some(at) = fleet.listed_at {
        let ago = jiff::Timestamp::now().duration_since(at).as_secs().max(0);
        context.printer.talk(&format!("as the tick saw it {} ago", human::duration(ago)));
    }
    if fleet.omitted > 0 {
        context.printer.warn(&format!("{} more are not shown", fleet.omitted));
    }
    let total: f64 = fleet.resources.iter().filter_map(|entry| entry.usd_per_hour).sum();
    if total > 0.0 {
        context.printer.talk(&format!("{} an hour in all", human::usd(total)));
    }
    for what in ["waiting", "idle", "being given back"] {
        let is_so = |entry: &&FleetEntry| entry.idle.is_some_and(|idle| summed(idle.cause) == what);
        let those: Vec<&FleetEntry> = fleet.resources.iter().filter(is_so).collect();
        if !those.is_empty() {
            let usd: f64 = those.iter().filter_map(|entry| entry.usd_per_hour).sum();
            let (tpus, verb) = (human::count(those.len() as u64, "TPU"), if those.len() == 1 { "is" } else { "are" });
            context.printer.talk(&format!("{tpus} of it {verb} {what}: {} an hour", human::usd(usd)));
        }
    }
    let orphans = fleet.resources.iter().filter(|entry| entry.owner == Some(Owner::Orphan)).count();
    if orphans > 0 {
        let orphans = human::count(orphans as u64, "orphan");
        context.printer.talk(&format!("{orphans}: the tick deletes what is older than the grace period"));
    }
    if !fleet.unreachable.is_empty() {
        context.printer.warn(&format!("nothing is known of {}: no answer", fleet.unreachable.join(", ")));
    }
    Ok(())
}

fn table(entries: &[FleetEntry]) -> Table {
    let mut table = Table::new(&[
        text("NAME", 0),
        text("JOB", 0),
        text("STATE", 0),
        text("OWNER", 2),
        text("UNUSED", 3),
        text("TPU", 1),
        text("ZONE", 4),
        text("KIND", 2),
        number("AGE", 5),
        number("$/H", 1),
    ]);
    for entry in entries {
        table.row(vec![
            human::tame(&entry.name),
            owner(entry),
            entry.state.clone(),
            entry.job_owner.as_deref().map_or_else(|| "-".to_owned(), human::tame),
            idle(entry),
            entry.accelerator.clone(),
            entry.zone.clone(),
            kind(entry),
            entry.age_secs.map_or_else(|| "-".to_owned(), human::duration),
            entry.usd_per_hour.map_or_else(|| "-".to_owned(), |usd| format!("{usd:.2}")),
        ]);
    }
    table
}

/// How it is bought and what it is. A queued resource costs nothing beside its nodes.
fn kind(entry: &FleetEntry) -> String {
    // An older server tells only whether it may be taken away.
    let guess = if entry.preemptible { CapacityKind::Spot } else { CapacityKind::OnDemand };
    let bought = match entry.capacity.unwrap_or(guess) {
        CapacityKind::Spot => "spot",
        CapacityKind::Preemptible => "preemptible",
        CapacityKind::OnDemand => "on demand",
        CapacityKind::Reserved => "reserved",
    };
    let what = if entry.kind == "queued_resource" { "queued resource" } else { entry.kind.as_str() };
    format!("{bought} {what}")
}

/// In which sum it is.
fn summed(of: IdleCause) -> &'static str {
    if of == IdleCause::HandedBack { "being given back" } else { of.account() }
}

/// For how long nobody's code has run on it, by the word that `account` has for it, and why.
fn idle(entry: &FleetEntry) -> String {
    entry.idle.map_or_else(
        || "-".to_owned(),
        |idle| {
            format!("{} {}{}", human::duration(idle.secs), idle.cause.account(), cause(idle.cause)).yellow().to_string()
        },
    )
}

fn cause(of: IdleCause) -> &'static str {
    match of {
        // There is no other.
        IdleCause::Starting => "",
        IdleCause::Ended => ", ended",
        IdleCause::HandedBack => ", handed back",
        IdleCause::Unused => ", unused",
    }
}

fn owner(entry: &FleetEntry) -> String {
    match &entry.owner {
        Some(Owner::Job(job)) => match entry.generation {
            Some(generation) => format!("{job} g{generation}"),
            None => job.to_string(),
        },
        Some(Owner::Orphan) => "ORPHAN".red().to_string(),
        Some(Owner::Foreign) => "FOREIGN".dimmed().to_string(),
        // The policy does not show whose.
        None => "a job".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_used_has_the_word_of_the_account() {
        let all = [IdleCause::Starting, IdleCause::Ended, IdleCause::HandedBack, IdleCause::Unused];
        let words = all.map(|of| format!("{}{}", of.account(), cause(of)));
        assert_eq!(words, ["waiting", "idle, ended", "idle, handed back", "idle, unused"]);
        assert_eq!(all.map(summed), ["waiting", "idle", "being given back", "idle"]);
    }
}
