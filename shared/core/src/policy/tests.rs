//! One row for each preset and kind, and the edges of windows and maxima.

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::job::Repeat;
use crate::spec::CapacityKind;

use Action::{Fail, Recreate, RecreateFromScratch, RestartInPlace, ResumeInPlace};
use FailureKind as K;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn repeat(count: u32, minutes_ago: i64) -> Repeat {
    Repeat { count, last_at: now() - SignedDuration::from_mins(minutes_ago) }
}

/// What the table answers to the first, to one more after a minute, after 30 minutes, after 2 hours, and to the third.
fn answers(preset: Preset, kind: FailureKind) -> [Action; 5] {
    let table = PolicyTable::preset(preset);
    let ask = |repeat: Option<Repeat>| answer(&table, kind, repeat.as_ref(), now());
    [ask(None), ask(Some(repeat(1, 1))), ask(Some(repeat(1, 30))), ask(Some(repeat(1, 120))), ask(Some(repeat(2, 1)))]
}

#[test]
fn each_preset_answers_each_kind_as_the_contract_says() {
    let always = |action| [action; 5];
    let machine = [ResumeInPlace, Recreate, Recreate, ResumeInPlace, Recreate];
    let in_place_then_recreate = [ResumeInPlace, Recreate, Recreate, Recreate, Recreate];
    let unknown = [ResumeInPlace, Recreate, Recreate, Recreate, Fail];
    let environment = [ResumeInPlace, Fail, Fail, Fail, Fail];
    let grpc_pre = [ResumeInPlace, Recreate, ResumeInPlace, ResumeInPlace, Recreate];
    let grpc_rerun =
        [RestartInPlace, RecreateFromScratch, RecreateFromScratch, RecreateFromScratch, RecreateFromScratch];
    let mut rows: Vec<(Preset, FailureKind, [Action; 5])> = vec![
        (Preset::Pre, K::Preempted, always(Recreate)),
        (Preset::Pre, K::Maintenance, always(Recreate)),
        (Preset::Pre, K::Lost, always(Recreate)),
        (Preset::Pre, K::InfraGrpc, grpc_pre),
        (Preset::Resume, K::Preempted, always(Fail)),
        (Preset::Resume, K::Maintenance, always(Recreate)),
        (Preset::Resume, K::Lost, always(Recreate)),
        (Preset::Resume, K::InfraGrpc, in_place_then_recreate),
        (Preset::Reapply, K::Preempted, always(Recreate)),
        (Preset::Reapply, K::Maintenance, always(Recreate)),
        (Preset::Reapply, K::Lost, always(Recreate)),
        (Preset::Reapply, K::InfraGrpc, always(Recreate)),
        (Preset::Rerun, K::Preempted, always(Recreate)),
        (Preset::Rerun, K::Maintenance, always(Recreate)),
        (Preset::Rerun, K::Lost, always(Recreate)),
        (Preset::Rerun, K::InfraGrpc, grpc_rerun),
    ];
    for preset in [Preset::Pre, Preset::Resume, Preset::Reapply, Preset::Rerun] {
        rows.extend([
            (preset, K::TpuRuntime, machine),
            (preset, K::OomHbm, always(ResumeInPlace)),
            (preset, K::OomHost, always(ResumeInPlace)),
            (preset, K::DiskFull, machine),
            (preset, K::StorageNetwork, always(ResumeInPlace)),
            (preset, K::Auth, always(ResumeInPlace)),
            (preset, K::Environment, environment),
            (preset, K::UserError, always(ResumeInPlace)),
            (preset, K::Stalled, machine),
            (preset, K::Timeout, always(Recreate)),
            (preset, K::Unknown, unknown),
        ]);
    }
    rows.extend(FailureKind::ALL.map(|kind| (Preset::Pass, kind, always(Fail))));
    assert_eq!(rows.len(), Preset::ALL.len() * FailureKind::ALL.len(), "a row for each preset and kind");
    for (preset, kind, expected) in rows {
        assert_eq!(answers(preset, kind), expected, "{} {kind}", preset.as_str());
    }
}

#[test]
fn each_kind_is_charged_as_the_contract_says() {
    for kind in FailureKind::ALL {
        let expected = match kind.as_str() {
            "preempted" | "maintenance" => Charge::Preemptions,
            "lost" | "infra_grpc" | "tpu_runtime" | "storage_network" | "stalled" | "disk_full" | "unknown"
            | "timeout" => Charge::Infra,
            _ => Charge::User,
        };
        assert_eq!(charge(kind), expected, "{kind}");
    }
}

#[test]
fn a_window_includes_its_edge_and_a_clock_that_runs_behind() {
    let table = PolicyTable::preset(Preset::Pre);
    assert_eq!(answer(&table, K::InfraGrpc, Some(&repeat(1, 10)), now()), Recreate);
    assert_eq!(answer(&table, K::InfraGrpc, Some(&repeat(1, 11)), now()), ResumeInPlace);
    assert_eq!(answer(&table, K::InfraGrpc, Some(&repeat(1, -5)), now()), Recreate);
    assert_eq!(answer(&table, K::Stalled, Some(&repeat(1, 60)), now()), Recreate);
    assert_eq!(answer(&table, K::Stalled, Some(&repeat(7, 61)), now()), ResumeInPlace);
    assert_eq!(answer(&table, K::Stalled, Some(&repeat(0, 1)), now()), ResumeInPlace);
}

#[test]
fn overrides_replace_single_rules_and_max_ends_them() {
    let rule = Rule { first: ResumeInPlace, again: ResumeInPlace, within: None, max: Some(1) };
    let never = Rule { max: Some(0), ..Rule::always(Recreate) };
    let table = PolicyTable::preset(Preset::Pre)
        .with_overrides([(K::OomHost, rule), (K::Preempted, never)].into_iter().collect());
    assert_eq!(table.preset, Preset::Pre);
    assert_eq!(answer(&table, K::OomHost, None, now()), ResumeInPlace);
    assert_eq!(answer(&table, K::OomHost, Some(&repeat(1, 600)), now()), Fail);
    assert_eq!(answer(&table, K::Preempted, None, now()), Fail);
    assert_eq!(answer(&table, K::Lost, None, now()), Recreate);
}

#[test]
fn a_rule_of_the_user_with_a_maximum_is_not_ended_by_the_budget() {
    let table = PolicyTable::preset(Preset::Pre);
    assert!(!budget_decides(&table, K::Environment));
    for kind in [K::OomHbm, K::OomHost, K::Auth, K::UserError, K::Unknown, K::Preempted, K::Stalled] {
        assert!(budget_decides(&table, kind), "{kind}");
    }
    let rule = Rule { max: Some(3), ..Rule::always(ResumeInPlace) };
    assert!(!budget_decides(&table.with_overrides([(K::OomHost, rule)].into_iter().collect()), K::OomHost));
}

#[test]
fn a_table_without_a_rule_is_read_as_its_preset() {
    let mut table = PolicyTable::preset(Preset::Rerun);
    table.rules.clear();
    assert_eq!(answer(&table, K::InfraGrpc, None, now()), RestartInPlace);
}

#[test]
fn capacity_that_can_be_taken_away_is_repaired_by_default() {
    use CapacityKind::{OnDemand, Preemptible, Reserved, Spot};
    assert_eq!(default_preset(&[Spot]), Preset::Pre);
    assert_eq!(default_preset(&[Preemptible]), Preset::Pre);
    assert_eq!(default_preset(&[OnDemand, Spot]), Preset::Pre);
    assert_eq!(default_preset(&[OnDemand]), Preset::Resume);
    assert_eq!(default_preset(&[Reserved, OnDemand]), Preset::Resume);
}

#[test]
fn names_of_presets_and_actions_read_back() {
    for preset in Preset::ALL {
        assert_eq!(Preset::parse(preset.as_str()), Some(preset));
        assert_eq!(serde_json::to_value(preset).unwrap(), preset.as_str());
    }
    for action in Action::ALL {
        assert_eq!(Action::parse(action.as_str()), Some(action));
        assert_eq!(serde_json::to_value(action).unwrap(), action.as_str());
    }
}
