//! What a person may write wrongly into `terraform.tfvars` is refused by the plan, in words that name it, and not by a service that does not start.

use std::collections::BTreeSet;

use hcl::Value;
use hcl::eval::{Context, Evaluate as _};
use regex::Regex;
use rekindle_core::access::{Access, Borrow, Part, Rule};
use rekindle_core::catalog;
use rekindle_core::settings::{CapacityEntry, Limits};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::files::{Module, attribute, infra};
use crate::plan::{example_variables, plan, tfvars};
use crate::standins::{planned, refuses};
use crate::tools::skip;
use crate::wiring::{environment, services};

/// An entry with one thing otherwise.
fn entry(from: &str, to: &str) -> String {
    let right = r#"[{ accelerator = "v6e-1", zone = "us-central1-b", kind = "spot", usd_per_chip_hour = 1 }]"#;
    assert!(right.contains(from), "{from}");
    right.replace(from, to)
}

#[test]
fn wrong_variables_are_refused() {
    let refused = [
        ("capacity", "[]".to_owned(), "Nothing could ever"),
        ("capacity", entry("spot", "cheap"), "The kind is"),
        ("capacity", entry("us-central1-b", "us-central1"), "A zone looks like"),
        ("capacity", entry("usd_per", "max_chip = 64, usd_per"), "An entry of capacity has"),
        ("capacity", entry("usd_per", "max_chips = 1.5, usd_per"), "is a whole number"),
        ("capacity", entry("usd_per", "max_chips = -1, usd_per"), "is a whole number"),
        ("capacity", entry("kind = \"spot\", ", ""), "An entry of capacity needs"),
        ("capacity", entry("v6e-1", "nonsense"), "An accelerator looks like"),
        ("capacity", entry("v6e-1", "nonsense-1"), "of a family that is known"),
        ("capacity", entry("v6e-1", "v6ee-*"), "of a family that is known"),
        ("owner_limits", r#"{ "a@example.com" = { max_chip = 8 } }"#.into(), "Limits of an owner are"),
        ("owner_limits", r#"{ "a@example.com" = { max_chips = 1.5 } }"#.into(), "max_chips of an owner"),
        ("owner_limits", r#"{ "a@example.com" = { max_chips = -1 } }"#.into(), "max_chips of an owner"),
        ("owner_limits", r#"{ "a@example.com" = { max_usd_per_day = -1 } }"#.into(), "max_usd_per_day of an owner"),
        ("owner_limits", r#"{ "*" = { max_chips = 8 } }"#.into(), "names each owner in full"),
        ("policy", r"{ rule = [] }".into(), "policy has rules, borrow"),
        ("policy", r#"{ rules = [{ who = ["*"], whos = ["*"], may = ["see"] }] }"#.into(), "A rule of policy has"),
        ("policy", r#"{ borrow = { "*" = { capacities = [] } } }"#.into(), "What policy lends is"),
        (
            "policy",
            r#"{ borrow = { "*" = { capacity = [{ zones = "us-central1-b" }] } } }"#.into(),
            "Parts of capacity",
        ),
        ("policy", r#"{ borrow = { "*" = { capacity = [{ kind = "cheap" }] } } }"#.into(), "The kind of a part"),
        ("policy", r#"{ borrow = { "*@example.com" = {} } }"#.into(), "named in full, or to *"),
        ("policy", r#"{ borrow = { "*" = { service_accounts = ["research"] } } }"#.into(), "are addresses"),
        ("otlp_endpoint", r#""nonsense""#.into(), "otlp_endpoint is an address"),
        ("people", r#"["group:all@example.com"]"#.into(), "Plain addresses"),
        ("people", r#"["*"]"#.into(), "Plain addresses"),
        ("admins", r#"["eve@example.com"]"#.into(), "also in people"),
        ("bucket_locations", "[]".into(), "One location"),
        ("image", r#""us-docker.pkg.dev/p/r/server:latest""#.into(), "by its digest"),
        ("agent_sha256", r#""abc""#.into(), "64 hex digits"),
    ];
    for (name, value, words) in refused {
        let mut variables = example_variables();
        variables.extend(tfvars(&format!("{name} = {value}")));
        let planned = std::panic::catch_unwind(|| plan(&infra().join("envs/example"), &variables));
        let why = *planned.expect_err(&format!("{name} = {value} is taken")).downcast::<String>().unwrap();
        assert!(why.contains("is refused") && why.contains(words), "{name} = {value}: {words}: {why}");
    }
}

#[test]
fn terraform_names_a_slip_of_a_letter() {
    refuses(
        &format!(
            "capacity = {}\n{}\n{}",
            entry("usd_per", "max_chip = 64, usd_per"),
            r#"owner_limits = { "a@example.com" = { max_chip = 8, max_usd_per_days = 5 } }"#,
            r#"policy = {
              rule   = []
              rules  = [{ who = ["*"], whose = ["*"], whos = ["*"], may = ["see"] }]
              borrow = { "*" = { capacities = [], capacity = [{ zones = "us-central1-b" }] } }
            }"#
        ),
        &[
            "usd_per_chip_hour; not max_chip.",
            "max_chips, max_usd_per_day; not max_chip, max_usd_per_days.",
            "policy has rules, borrow; not rule.",
            "who, whose, may; not whos.",
            "service_accounts, secrets, capacity; not capacities.",
            "accelerator, zone, kind; not zones.",
        ],
    );
    let variables = "project = \"p\"\nregion = \"us-central1\"\nbucket_locations = [\"US\"]\n\
                     capacity = [{ zone = \"us-central1-a\", max_chip = 64 }]\n";
    let Some((is_content, said)) = planned("envs/example/bootstrap", variables) else {
        return skip("terraform is not installed");
    };
    assert!(!is_content && said.contains("not max_chip"), "{said}");
}

#[test]
fn terraform_refuses_what_the_server_would() {
    refuses(
        &format!(
            "capacity = {}\n{}\notlp_endpoint = \"nonsense\"",
            entry("v6e-1", "nonsense").replace("usd_per", "max_chips = 1.5, usd_per"),
            r#"owner_limits = { "*" = { max_chips = 1.5 }, "b@example.com" = { max_chips = -1 } }"#,
        ),
        &[
            "max_chips of an entry of capacity is a whole number",
            "An accelerator looks like v5litepod-16",
            "No accelerator of capacity is of a family that is known",
            "owner_limits names each owner in full, without *",
            "max_chips of an owner is a whole number",
            "otlp_endpoint is an address",
        ],
    );
}

/// What a list of the files says, such as `fields` in the locals of an environment.
fn local(folder: &str, name: &str) -> Value {
    let module = Module::read(&infra().join(folder));
    let found = module.of("locals").find_map(|block| attribute(block.body(), name));
    found.unwrap_or_else(|| panic!("{folder} has no local.{name}")).evaluate(&Context::new()).unwrap()
}

fn words(list: &Value) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// The fields that a shape of the server has: it names them when it meets another.
fn fields_of<T: DeserializeOwned>() -> BTreeSet<String> {
    let Err(error) = serde_json::from_value::<T>(json!({"other": 1})) else { panic!("it takes any field") };
    let error = error.to_string();
    let (_, expected) = error.split_once("expected").unwrap();
    Regex::new("`([a-z_]+)`").unwrap().captures_iter(expected).map(|found| found[1].to_owned()).collect()
}

#[test]
fn the_variables_have_the_fields_that_the_server_reads() {
    let fields = local("envs/example", "fields");
    let of = |name: &str| words(&fields.as_object().unwrap()[name]);
    assert_eq!(of("entry"), fields_of::<CapacityEntry>());
    assert_eq!(of("limits"), fields_of::<Limits>());
    assert_eq!(of("rule"), fields_of::<Rule>());
    assert_eq!(of("borrow"), fields_of::<Borrow>());
    assert_eq!(of("part"), fields_of::<Part>());
    assert_eq!(fields_of::<Access>(), BTreeSet::from(["rules".to_owned(), "borrow".to_owned()]));
    assert_eq!(words(&local("envs/example/bootstrap", "fields")), of("entry"));
    let families: BTreeSet<String> = catalog::families().into_iter().map(str::to_owned).collect();
    assert_eq!(words(&local("envs/example", "families")), families);
}

#[test]
fn what_is_not_said_is_null_and_nothing_else_changes() {
    let mut variables = example_variables();
    variables.extend(tfvars(
        r#"
        owner_limits = { "b@example.com" = { max_chips = "8" }, "e@example.com" = { max_usd_per_day = 2.5 } }
        policy = { borrow = {
          "*" = { capacity = [] }
          "b@example.com" = { secrets = [""], capacity = [{ kind = "spot" }] }
          "e@example.com" = { service_accounts = ["*"], capacity = null }
        } }"#,
    ));
    let plan = plan(&infra().join("envs/example"), &variables);
    let environment = environment(services(&plan)["reconcile"]);
    let read = |name: &str| serde_json::from_str::<serde_json::Value>(&environment[name]).unwrap();
    let limits = json!({
        "b@example.com": {"max_chips": 8, "max_usd_per_day": null},
        "e@example.com": {"max_chips": null, "max_usd_per_day": 2.5},
    });
    assert_eq!(read("REKINDLE_OWNER_LIMITS"), limits);
    let policy = json!({"rules": [], "borrow": {
        "*": {"service_accounts": [], "secrets": [], "capacity": []},
        "b@example.com": {
            "service_accounts": [], "secrets": [""], "capacity": [{"accelerator": null, "zone": null, "kind": "spot"}],
        },
        "e@example.com": {"service_accounts": ["*"], "secrets": [], "capacity": null},
    }});
    assert_eq!(read("REKINDLE_POLICY"), policy);
    let entry = json!({
        "accelerator": "v5litepod-8", "zone": "us-central1-a", "kind": "on_demand", "max_chips": 8, "usd_per_chip_hour": 1.2,
    });
    assert_eq!(read("REKINDLE_CAPACITY")[1], entry);
}
