//! Any JSON at all: a spec with a candidate, or faults, never a panic.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{hash, parse_in};
use crate::fixture::{open_deployment, with};
use crate::{catalog, placement};

#[test]
fn what_other_tools_call_a_field_is_told_with_our_word() {
    for (theirs, ours) in [("retries", "budgets"), ("command", "run"), ("timeout", "limits")] {
        super::refuses(&with(&[theirs], json!(3)), theirs, &format!("did you mean `{ours}`?"));
    }
}

/// Any JSON, with the words of the interface in it more often than chance would bring them.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        proptest::sample::select(vec![
            "v5litepod-16",
            "v5litepod-1",
            "v4-8",
            "us-central1-a",
            "us-central2-b",
            "spot",
            "on_demand",
            "flex_start",
            "always",
            "never",
            "none",
            "unlimited",
            "30m",
            "90",
            "1e9d",
            "pre",
            "fail",
            "recreate",
            "4x4",
            "0x0",
            "4294967295x2",
            "gs://b/c",
            "https://h/x",
            "succeeded",
            "",
        ])
        .prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    let leaf = prop_oneof![
        3 => word,
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => any::<i64>().prop_map(Value::from),
        1 => any::<f64>().prop_map(Value::from),
    ];
    let key = prop_oneof![
        4 => proptest::sample::select(vec![
            "id", "run", "setup", "image", "code", "env", "secrets", "tpu", "recovery", "budgets", "limits",
            "checkpoint", "resume", "regions", "workspace", "priority", "owner", "tags", "notes", "notify", "accelerator",
            "zones", "capacity", "queued", "reservation", "runtime_version", "topology", "slices", "network",
            "labels", "data_disks", "preset", "overrides", "oom_host", "first", "again", "within", "max", "action",
            "user_failures", "no_progress", "total", "stall", "stop_grace", "cost_usd", "webhook", "events",
            "shape",
        ])
        .prop_map(String::from),
        1 => "\\PC{0,8}",
    ];
    leaf.prop_recursive(4, 48, 8, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(key.clone(), inner, 0..8)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_is_a_spec_with_a_candidate_or_has_faults(value in any_json()) {
        check_total(&value)?;
    }

    #[test]
    fn any_value_in_a_good_spec_is_a_spec_or_a_fault(
        value in any_json(),
        at in proptest::sample::select(vec![
            "run", "setup", "env", "tpu", "recovery", "budgets", "limits", "checkpoint", "notify", "tags", "code",
        ]),
    ) {
        check_total(&with(&[at], value))?;
    }

    #[test]
    fn any_tpu_section_is_a_spec_or_a_fault(
        accelerators in proptest::collection::vec(0_usize..136, 1..3),
        zones in proptest::collection::vec(0_usize..22, 0..4),
        slices in 1_u32..4,
        value in any_json(),
        field in proptest::sample::select(vec!["topology", "queued", "labels", "tags", "capacity", "network"]),
    ) {
        let names: Vec<&str> = accelerators.iter().map(|i| catalog::accelerators()[*i].name.as_str()).collect();
        let all = catalog::zones();
        let zones: Vec<&str> = zones.iter().map(|i| all[i % all.len()]).collect();
        let mut tpu = json!({"accelerator": names, "zones": zones, "slices": slices});
        check_total(&with(&["tpu"], tpu.clone()))?;
        tpu[field] = value;
        check_total(&with(&["tpu"], tpu))?;
    }
}

fn check_total(value: &Value) -> Result<(), TestCaseError> {
    let mut narrow = open_deployment();
    narrow.bucket_regions = vec!["us-central1".into(), "us-central2".into()];
    for deployment in [open_deployment(), narrow] {
        match parse_in(&deployment, value) {
            Ok(submit) => {
                let found = placement::candidates(&submit.spec, &deployment);
                for accelerator in &submit.spec.tpu.accelerators {
                    prop_assert!(found.iter().any(|candidate| candidate.placement.accelerator == *accelerator));
                }
                prop_assert_eq!(hash(&submit.spec).len(), 64);
            }
            Err(faults) => {
                prop_assert!(!faults.is_empty() && faults.len() <= 101);
                prop_assert!(faults.iter().all(|fault| !fault.field.is_empty() && !fault.message.is_empty()));
            }
        }
    }
    Ok(())
}
