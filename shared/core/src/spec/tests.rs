//! The outside shape of a job spec: defaults, each fault by its name, all of them at once, and any JSON at all.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::failure::FailureKind;
use crate::fixture::{deployment, entry, open_deployment, small, with};
use crate::placement;
use crate::policy::{self, Action, Charge, Preset, Rule};
use crate::settings::{CapacityEntry, Deployment};

mod any;
mod execve;
mod places;
mod resume;
mod secrets;

const DIGEST: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

fn parse_in(deployment: &Deployment, value: &Value) -> Result<Submit, Vec<FieldError>> {
    parse(value, &ParseContext { deployment, caller: "ann@example.com", caller_is_admin: false })
}

fn good(value: &Value) -> JobSpec {
    parse_in(&open_deployment(), value).unwrap().spec
}

/// The only fault of a value, as field and message.
fn fault(deployment: &Deployment, value: &Value) -> (String, String) {
    let faults = parse_in(deployment, value).unwrap_err();
    assert_eq!(faults.len(), 1, "{faults:?}");
    (faults[0].field.clone(), faults[0].message.clone())
}

/// A deployment whose policy gives nobody a right over the jobs of others.
fn no_rules() -> Deployment {
    let open = open_deployment();
    let access = crate::access::Access { rules: Vec::new(), ..open.access.clone() };
    Deployment { access, ..open }
}

#[track_caller]
fn refuses(value: &Value, field: &str, says: &str) {
    let (at, message) = fault(&open_deployment(), value);
    assert_eq!(at, field, "{message}");
    assert!(message.contains(says), "{field}: {message:?} does not say {says:?}");
}

#[test]
fn a_job_that_names_no_network_gets_the_deployments() {
    use crate::settings::WorkerNetwork;
    let own = WorkerNetwork { network: "rekindle".into(), subnetwork: Some("rekindle".into()) };
    let deployment = Deployment { worker_network: Some(own), ..open_deployment() };
    let network = |tpu: Value| {
        let job = json!({"run": ["true"], "tpu": tpu});
        parse_in(&deployment, &job).unwrap().spec.tpu.network
    };
    let usual = network(json!({"accelerator": "v5litepod-8"}));
    assert_eq!((usual.network.as_str(), usual.subnetwork.as_deref()), ("rekindle", Some("rekindle")));
    assert!(!usual.external_ips);
    let named = network(json!({"accelerator": "v5litepod-8", "network": "default"}));
    assert_eq!((named.subnetwork, named.external_ips), (None, true));
}

#[test]
fn the_smallest_spec_has_every_default_of_the_contract() {
    let spec = good(&small());
    assert_eq!(spec.run, CommandLine::Argv(vec!["python3".into(), "train.py".into()]));
    assert_eq!(spec.tpu.accelerators, ["v5litepod-16"]);
    assert_eq!((spec.tpu.zones.len(), spec.tpu.slices, spec.tpu.queued), (0, 1, Queued::Auto));
    assert_eq!(spec.tpu.capacity, [CapacityKind::Spot]);
    assert_eq!(spec.tpu.network.network, "default");
    assert!(spec.tpu.network.external_ips);
    let pre = PolicyTable::preset(Preset::Pre);
    assert!(spec.recovery.rules.iter().all(|(kind, rule)| match policy::charge(*kind) {
        // None is allowed, so that the first is the end.
        Charge::User if *kind != FailureKind::Environment => *rule == Rule::always(Action::Fail),
        Charge::User | Charge::Infra | Charge::Preemptions => *rule == pre.rules[kind],
    }));
    let budgets = Budgets { user_failures: Some(0), infra_failures: Some(10), preemptions: None, no_progress: Some(5) };
    assert_eq!(spec.budgets, budgets);
    let limits = Limits {
        total: None,
        attempt: None,
        queue: None,
        start: Duration::from_mins(30),
        stall: Some(Duration::from_hours(1)),
        stall_by_hand: false,
        idle: None,
        stop_grace: Duration::from_secs(30),
        cost_usd: None,
    };
    assert_eq!(spec.limits, limits);
    assert_eq!(spec.checkpoint, CheckpointSpec::Default);
    assert_eq!((spec.priority, spec.owner.as_str()), (50, "ann@example.com"));
    assert!(spec.env.is_empty() && spec.tags.is_empty() && spec.notify.is_empty());
    assert_eq!((spec.setup, spec.code, spec.notes), (None, None, None));
}

#[test]
fn the_whole_example_of_the_contract_is_read() {
    let value = json!({
        "id": "llama-7b-run3",
        "run": "python3 train.py --lr=0.01",
        "setup": ["pip", "install", "-r", "requirements.txt"],
        "code": format!("gs://bucket/bundles/{DIGEST}.tar.zst"),
        "env": {"LR": "0.01", "EMPTY": "", "ODD": "a=b\nc"},
        "tpu": {
            "accelerator": ["v5litepod-16", "v5litepod-16", "v5litepod-8"],
            "zones": ["us-central1-a", "us-west4-a", "us-central1-a"],
            "capacity": ["spot", "on_demand", "spot"],
            "queued": "always",
            "runtime_version": "v2-alpha-tpuv5-lite",
            "network": "research",
            "subnetwork": "tpu-subnet",
            "service_account": "tpu@p.iam.gserviceaccount.com",
            "tags": ["ssh"],
            "labels": {"team": "x_1"},
        },
        "recovery": {"preset": "rerun", "overrides": {
            "oom_host": {"action": "resume_in_place", "max": 1},
            "infra_grpc": {"first": "resume_in_place", "again": "recreate", "within": "10m", "max": 3},
            "auth": "fail",
        }},
        "budgets": {"user_failures": 2, "infra_failures": "unlimited", "preemptions": 100, "no_progress": 7},
        "limits": {"total": "7d", "attempt": "24h", "queue": 90, "start": "90s", "stall": "30m", "stop_grace": "0s",
            "cost_usd": 250.5},
        "checkpoint": "gs://bucket/ckpt/llama-7b-run3/",
        "priority": 100,
        "owner": "ann@example.com",
        "tags": ["ablation", "ablation"],
        "notes": "second try with warmup",
        "notify": [{"webhook": "https://example.com/hook", "events": ["succeeded", "failed", "paused"]}],
    });
    let submit = parse_in(&open_deployment(), &value).unwrap();
    assert_eq!(submit.id.unwrap().as_str(), "llama-7b-run3");
    let spec = submit.spec;
    assert_eq!(spec.run, CommandLine::Shell("python3 train.py --lr=0.01".into()));
    assert!(matches!(spec.setup, Some(CommandLine::Argv(words)) if words.len() == 4));
    assert_eq!(spec.env["ODD"], "a=b\nc");
    assert_eq!(spec.tpu.accelerators, ["v5litepod-16", "v5litepod-8"]);
    assert_eq!(spec.tpu.zones, ["us-central1-a", "us-west4-a"]);
    assert_eq!(spec.tpu.capacity, [CapacityKind::Spot, CapacityKind::OnDemand]);
    assert_eq!(spec.tpu.queued, Queued::Always);
    assert!(!spec.tpu.network.external_ips, "a network of one's own has NAT");
    assert_eq!(spec.tpu.network.labels["team"], "x_1");
    assert_eq!(spec.recovery.preset, Preset::Rerun);
    let rule = Rule { max: Some(1), ..Rule::always(Action::ResumeInPlace) };
    assert_eq!(spec.recovery.rules[&FailureKind::OomHost], rule);
    assert_eq!(spec.recovery.rules[&FailureKind::InfraGrpc].within, Some(Duration::from_mins(10)));
    assert_eq!(spec.recovery.rules[&FailureKind::Auth], Rule::always(Action::Fail));
    assert_eq!((spec.budgets.infra_failures, spec.budgets.preemptions), (None, Some(100)));
    assert_eq!(spec.limits.total, Some(Duration::from_hours(7 * 24)));
    assert_eq!(spec.limits.queue, Some(Duration::from_secs(90)));
    assert_eq!(spec.limits.stop_grace, Duration::ZERO);
    assert!(spec.limits.stall_by_hand);
    assert_eq!(spec.limits.cost_usd, Some(250.5));
    assert_eq!(spec.checkpoint, CheckpointSpec::Folder("gs://bucket/ckpt/llama-7b-run3".into()));
    assert_eq!(spec.tags, ["ablation"]);
    assert_eq!(spec.notify[0].events.len(), 3);
}

#[test]
fn a_field_that_is_null_is_absent() {
    let mut spec = small();
    for field in ["id", "setup", "env", "recovery", "budgets", "limits", "checkpoint", "notes", "workspace"] {
        spec[field] = Value::Null;
    }
    spec["tpu"]["zones"] = Value::Null;
    assert_eq!(good(&spec), good(&small()));
}

#[test]
fn what_asks_for_nothing_unbuilt_is_no_fault() {
    let mut spec = small();
    spec["workspace"] = json!(false);
    spec["secrets"] = json!({});
    spec["tpu"]["data_disks"] = json!([]);
    assert_eq!(good(&spec), good(&small()));
}

/// A spec in which every field is wrong.
fn wrong_everywhere() -> Value {
    json!({
        "id": "Bad_Id",
        "run": [],
        "comand": "x",
        "image": "us-docker.pkg.dev/p/r/train",
        "code": "gs://b/x.zip",
        "env": {"A=B": "1", "N": 5, "REKINDLE_JOB": "me"},
        "secrets": {"K": "k"},
        "workspace": "yes",
        "regions": "some",
        "source": {"commit": 5, "dirt": true},
        "tpu": {
            "accelerator": ["v5e-16", "v5litepod-16"],
            "zones": ["us-central1-a", "us-centrall-a", "us-central1"],
            "capacity": ["flex_start", "sport"],
            "queued": "maybe",
            "reservation": "r",
            "runtime_version": "v2-alpha-tpuv5",
            "topology": "4x5",
            "slices": 0,
            "external_ips": "yes",
            "labels": {"rekindle-job": "x"},
            "tags": ["Bad Tag"],
            "data_disks": ["d"],
            "zone": "us-central1-a",
        },
        "recovery": {"preset": "prey", "overrides": {
            "oom": "fail", "auth": "stop", "preempted": "resume_in_place", "stalled": {"max": 2}}},
        "budgets": {"user_failures": -1, "no_progress": 0, "preemptions": "many"},
        "limits": {"total": "2 parsecs", "start": "none", "stall": 0, "cost_usd": -3, "stal": "1m"},
        "checkpoint": "/mnt/ckpt",
        "priority": 101,
        "owner": "research",
        "notes": 7,
        "notify": [{"webhook": "http://example.com/hook", "events": ["success"]}, {}],
    })
}

/// The faults of [`wrong_everywhere`], by field.
const WRONG_FIELDS: [&str; 48] = [
    "id",
    "run",
    "comand",
    "image",
    "code",
    "env.A=B",
    "env.N",
    "env.REKINDLE_JOB",
    "secrets.K",
    "workspace",
    "regions",
    "source.commit",
    "source.dirt",
    "tpu.accelerator[0]",
    "tpu.zones[1]",
    "tpu.zones[2]",
    "tpu.capacity[0]",
    "tpu.capacity[1]",
    "tpu.queued",
    "tpu.reservation",
    "tpu.runtime_version",
    "tpu.topology",
    "tpu.slices",
    "tpu.external_ips",
    "tpu.labels.rekindle-job",
    "tpu.tags[0]",
    "tpu.data_disks",
    "tpu.zone",
    "recovery.preset",
    "recovery.overrides.oom",
    "recovery.overrides.auth",
    "recovery.overrides.preempted",
    "recovery.overrides.stalled",
    "budgets.user_failures",
    "budgets.no_progress",
    "budgets.preemptions",
    "limits.total",
    "limits.start",
    "limits.stall",
    "limits.cost_usd",
    "limits.stal",
    "checkpoint",
    "priority",
    "owner",
    "notes",
    "notify[0].webhook",
    "notify[0].events[0]",
    "notify[1].webhook",
];

#[test]
fn every_fault_is_named_at_once() {
    let faults = parse_in(&no_rules(), &wrong_everywhere()).unwrap_err();
    let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
    for field in WRONG_FIELDS {
        assert_eq!(fields.iter().filter(|at| **at == field).count(), 1, "{field} in {faults:#?}");
    }
    assert_eq!(faults.len(), WRONG_FIELDS.len(), "{faults:#?}");
}

#[test]
fn each_fault_says_the_next_step() {
    refuses(&with(&["zones"], json!([])), "zones", "known here: id, run");
    refuses(&with(&["tag"], json!([])), "tag", "did you mean `tags`?");
    refuses(&with(&["tpu", "accelerators"], json!([])), "tpu.accelerators", "did you mean `tpu.accelerator`?");
    refuses(&with(&["limits"], json!({"totall": "2h"})), "limits.totall", "did you mean `limits.total`?");
    refuses(&with(&["tpu", "accelerator"], json!("v5e-16")), "tpu.accelerator", "did you mean v5litepod-16?");
    refuses(&with(&["tpu", "accelerator"], json!("a100")), "tpu.accelerator", "known families: v2, v3");
    refuses(&with(&["tpu", "accelerator"], json!([])), "tpu.accelerator", "v5litepod-8");
    refuses(&with(&["tpu", "zones"], json!(["us-central1"])), "tpu.zones[0]", "with the zones us-central1-a");
    refuses(&with(&["tpu", "zones"], json!("us-west4-b")), "tpu.zones", "did you mean `us-west4-a`?");
    refuses(&with(&["tpu", "zones"], json!("US-central-1a")), "tpu.zones", "did you mean `us-central1-a`?");
    for far in ["europe-north1-a", "mars-west4-a", "us-north12-q", "us"] {
        refuses(&with(&["tpu", "zones"], json!(far)), "tpu.zones", "known here: ");
    }
    refuses(&with(&["tpu", "capacity"], json!(["flex_start"])), "tpu.capacity[0]", "does not build `flex_start`");
    refuses(&with(&["tpu", "capacity"], json!(["on-demand"])), "tpu.capacity[0]", "did you mean `on_demand`?");
    refuses(&with(&["tpu", "capacity"], json!([])), "tpu.capacity", "at least one of spot");
    refuses(&with(&["tpu", "network"], json!({"network": "x"})), "tpu.network", "stand beside it");
    refuses(&with(&["tpu", "runtime_version"], json!("v2-alpha-tpuv5")), "tpu.runtime_version", "v2-alpha-tpuv5-lite");
    refuses(&with(&["tpu", "runtime_version"], json!("v2-alpha-tpu5")), "tpu.runtime_version", "did you mean");
    refuses(&with(&["tpu", "topology"], json!("2x8x1")), "tpu.topology", "write 4x4");
    refuses(&with(&["tpu", "topology"], json!("4x8")), "tpu.topology", "16 chips");
    refuses(&with(&["tpu", "topology"], json!("axb")), "tpu.topology", "as 4x4");
    refuses(&with(&["tpu", "topology"], json!("+4x4")), "tpu.topology", "as 4x4");
    refuses(&with(&["tpu", "slices"], json!(1.5)), "tpu.slices", "1 to 256");
    refuses(&with(&["limits"], json!({"total": "9999d"})), "limits.total", "for no limit write none");
    refuses(&with(&["limits"], json!({"total": "soon"})), "limits.total", "90s, 30m, 24h, 7d, none");
    refuses(&with(&["limits"], json!({"start": "none"})), "limits.start", "90s, 30m, 24h, 7d, or in seconds");
    refuses(&with(&["limits"], json!({"stop_grace": "3601s"})), "limits.stop_grace", "at most 1h");
    let longest = parse_in(&open_deployment(), &with(&["limits"], json!({"stop_grace": "1h"}))).unwrap();
    assert_eq!(longest.spec.limits.stop_grace, Duration::from_hours(1));
    refuses(&with(&["limits"], json!({"queue": -5})), "limits.queue", "no duration");
    refuses(&with(&["limits"], json!({"queue": 1e300})), "limits.queue", "no duration");
    for text in ["30M", "2w", "5 m", "1y", "m", "1h 30m", "90S"] {
        refuses(&with(&["limits"], json!({"queue": text})), "limits.queue", "no duration");
    }
    refuses(&with(&["limits"], json!({"cost_usd": "cheap"})), "limits.cost_usd", "US dollars");
    refuses(&with(&["env"], json!({"LR": 0.001})), "env.LR", "put it in quotes");
    refuses(&with(&["env"], json!({"": "x"})), "env.", "no name of a variable");
    refuses(&with(&["env"], json!({"A": "x\0y"})), "env.A", "NUL");
    refuses(&with(&["env"], json!(["A=1"])), "env", "an object of names");
    refuses(&with(&["run"], json!("  ")), "run", "is empty");
    refuses(&with(&["run"], json!([""])), "run[0]", "is empty");
    refuses(&with(&["run"], json!(["a", 1])), "run[1]", "write \"1\"");
    refuses(&with(&["run"], Value::Null), "run", "is missing");
    refuses(&with(&["run"], json!({"cmd": "x"})), "run", "one line for bash");
    refuses(&with(&["id"], json!("a".repeat(41))), "id", "41 characters");
    let (at, message) = fault(&no_rules(), &with(&["owner"], json!("research")));
    assert!(at == "owner" && message.contains("the policy lets"), "{message}");
    refuses(&with(&["tags"], json!(["good", "x".repeat(257)])), "tags[1]", "one line of 1 to 256 bytes");
    refuses(&with(&["tags"], json!(["a\tb"])), "tags[0]", "one line");
    for blank in [" a", "a "] {
        refuses(&with(&["tags"], json!([blank])), "tags[0]", "neither begins nor ends with a blank");
    }
    assert_eq!(good(&with(&["tags"], json!(["two words"]))).tags, ["two words"]);
    assert!(LABEL_IS.contains(&LABEL_MAX.to_string()));
    refuses(&with(&["priority"], json!("high")), "priority", "0 to 100");
    refuses(&with(&["tpu"], json!("v5litepod-8")), "tpu", "must be an object");
    refuses(&with(&["checkpoint"], json!("s3://x/y")), "checkpoint", "gs://BUCKET/FOLDER");
    refuses(&with(&["checkpoint"], json!({})), "checkpoint", "a bucket for each region");
    refuses(&with(&["code"], json!("gs://b/x.tar.zst")), "code", "sha256");
    refuses(&with(&["code"], json!(format!("http://b/{DIGEST}.tar.zst"))), "code", "no place in a bucket");
    refuses(&with(&["notes"], json!("x".repeat(300_000))), "spec", "at most 262144");
    refuses(&json!([1]), "spec", "must be an object");
}

#[test]
fn only_an_admin_names_another_owner() {
    let value = with(&["owner"], json!("research"));
    let deployment = open_deployment();
    let context = ParseContext { deployment: &deployment, caller: "root@example.com", caller_is_admin: true };
    assert_eq!(parse(&value, &context).unwrap().spec.owner, "research");
    // One spelling of each, by which it has limits and is lent something.
    for (given, taken) in [("ReSearch", "research"), ("ROOT@example.com", "root@example.com")] {
        assert_eq!(parse(&with(&["owner"], json!(given)), &context).unwrap().spec.owner, taken);
    }
    for no_name in ["x".repeat(257), "research\nops".into()] {
        let faults = parse(&with(&["owner"], json!(no_name)), &context).unwrap_err();
        assert!(faults.len() == 1 && faults[0].message.contains("one line of 1 to 256 bytes"), "{faults:?}");
    }
}

#[test]
fn arguments_may_be_empty_and_stand_twice() {
    let spec = good(&with(&["run"], json!(["prog", "", "-v", "-v"])));
    assert_eq!(spec.run, CommandLine::Argv(["prog", "", "-v", "-v"].map(String::from).to_vec()));
}

#[test]
fn capacity_without_preemption_begins_as_resume() {
    let spec = good(&with(&["tpu", "capacity"], json!("on_demand")));
    assert_eq!(spec.recovery.preset, Preset::Resume);
}

#[test]
fn several_slices_need_a_queue_that_takes_them() {
    let mut value = with(&["tpu", "slices"], json!(2));
    assert_eq!(good(&value).tpu.slices, 2);
    value["tpu"]["queued"] = json!("never");
    refuses(&value, "tpu.queued", "queued resource only");
    value["tpu"]["queued"] = json!("auto");
    value["tpu"]["accelerator"] = json!(["v5litepod-4", "v5litepod-1"]);
    refuses(&value, "tpu.accelerator[1]", "cannot be asked for by a queued resource");
}

#[test]
fn reserved_capacity_names_its_reservation() {
    let mut value = with(&["tpu", "capacity"], json!(["reserved"]));
    value["tpu"]["reservation"] = json!("my-reservation");
    assert_eq!(good(&value).tpu.reservation.as_deref(), Some("my-reservation"));
    value["tpu"]["queued"] = json!("never");
    refuses(&value, "tpu.queued", "only a queued resource names a `tpu.reservation`; write auto");
    value["tpu"]["queued"] = json!("auto");
    value["tpu"]["accelerator"] = json!("v5litepod-1");
    refuses(&value, "tpu.accelerator", "a reservation and `queued: always` need");
    refuses(&with(&["tpu", "capacity"], json!(["spot", "reserved"])), "tpu.reservation", "is missing");
    refuses(&with(&["tpu", "reservation"], json!("r")), "tpu.reservation", "add reserved to `tpu.capacity`");
}

#[test]
fn another_topology_of_the_same_chips_is_taken() {
    let mut value = with(&["tpu", "accelerator"], json!("v4-128"));
    value["tpu"]["topology"] = json!("02x4x8");
    assert_eq!(good(&value).tpu.topology.as_deref(), Some("2x4x8"), "as it comes back");
    value["tpu"]["topology"] = json!("8x8");
    refuses(&value, "tpu.topology", "write 4x4x4");
}

#[test]
fn the_default_of_stall_can_be_written_down() {
    let value = with(&["limits"], json!({"stall": {"steps": "60m"}}));
    assert_eq!(good(&value), good(&small()));
    refuses(&with(&["limits"], json!({"stall": {"steps": "0s"}})), "limits.stall.steps", "above zero");
}

#[test]
fn where_the_code_comes_from_is_told_and_is_no_other_job() {
    let mut value = small();
    value["source"] = json!({"folder": "train", "commit": "1a2b3c4", "branch": "main", "dirty": true});
    let spec = good(&value);
    let source = spec.source.clone().unwrap();
    assert_eq!((source.folder.as_str(), source.commit.as_deref(), source.dirty), ("train", Some("1a2b3c4"), true));
    assert_eq!(hash(&spec), hash(&good(&small())));
    value["source"]["folder"] = json!("a\u{1b}[2J");
    refuses(&value, "source.folder", "one line");
}

#[test]
fn files_are_for_deployments_on_one_machine() {
    let value = with(&["checkpoint"], json!("file:///tmp/ckpt"));
    refuses(&value, "checkpoint", "no place in a bucket");
    let mut local = open_deployment();
    local.bucket = "file:///state/objects".into();
    assert!(parse_in(&local, &value).is_ok());
    assert!(parse_in(&local, &with(&["checkpoint"], json!("gs://b/c"))).is_ok());
    assert!(parse_in(&local, &with(&["checkpoint"], json!("gs://b/c d"))).is_err());
    local.bucket = "file:///home/ann/my jobs/objects".into();
    let code = format!("{}/bundles/{DIGEST}.tar.zst", local.bucket);
    assert_eq!(parse_in(&local, &with(&["code"], json!(code))).unwrap().spec.code, Some(code));
}

#[test]
fn a_webhook_is_an_https_address() {
    for bad in ["https://", "https:///x", "https://u:p@h/x", "https://h/a b", "ftp://h", "HTTPS//h"] {
        let value = with(&["notify"], json!([{"webhook": bad}]));
        refuses(&value, "notify[0].webhook", "https://HOST/PATH");
    }
    let plain = with(&["notify"], json!([{"webhook": "http://hooks.example.com/T0/B0"}]));
    refuses(&plain, "notify[0].webhook", "must begin with https://: what is sent by http:// is read by whoever is on");
    let told =
        |deployment: &Deployment| fault(deployment, &plain).1.contains("`SSL_CERT_FILE=ca.pem rekindle dev` trusts");
    let mut local = open_deployment();
    local.bucket = "file:///home/ann/objects".into();
    assert!(told(&local) && !told(&open_deployment()), "how on one machine");
    let value = with(&["notify"], json!([{"webhook": "https://h.example:8443/x?y=z"}]));
    assert!(good(&value).notify[0].events.is_empty());
    refuses(
        &with(&["notify"], json!([{"webhook": "https://h", "events": ["fialed"]}])),
        "notify[0].events[0]",
        "`failed`",
    );
    let shaped = with(&["notify"], json!([{"webhook": "https://h", "shape": "mail"}]));
    assert_eq!(good(&shaped).notify[0].shape, Some(HookShape::Mail));
    refuses(&with(&["notify"], json!([{"webhook": "https://h", "shape": "slak"}])), "notify[0].shape", "`slack`");
}

#[test]
fn what_is_proposed_for_a_wrong_word_is_of_use() {
    for (accelerator, zone) in [("v6e-8", "us-west4-x"), ("v5p-8", "us-central2-x"), ("v5litepod-8", "us-west4-x")] {
        let value = with(&["tpu"], json!({"accelerator": accelerator, "zones": [zone]}));
        let (_, told) = fault(&open_deployment(), &value);
        let (_, proposed) = told.split_once("; ").unwrap();
        let zones: Vec<&str> = proposed.split([' ', '`', ',', '?']).filter(|word| word.contains('-')).collect();
        // The nearest of all zones may be one without this accelerator.
        let is_of_use = |zone: &&str| crate::catalog::is_offered(accelerator, zone);
        assert!(!zones.is_empty() && zones.iter().all(is_of_use), "{accelerator}: {told}");
    }
    let value = with(&["tpu", "capacity"], json!(["spott"]));
    refuses(&value, "tpu.capacity[0]", "\"spott\" is no kind of capacity; did you mean `spot`?");
}

#[test]
fn a_webhook_that_can_never_be_called_is_refused_but_on_one_machine() {
    let mut local = open_deployment();
    local.bucket = "file:///state/objects".into();
    for host in ["127.0.0.1", "10.0.0.1:8443", "[::1]", "localhost", "a.localhost.", "0x7f.1", "2130706433"] {
        let value = with(&["notify"], json!([{"webhook": format!("https://{host}/hook")}]));
        refuses(&value, "notify[0].webhook", "not on the public internet");
        assert!(parse_in(&local, &value).is_ok(), "{host}");
    }
    for host in ["8.8.8.8", "hooks.example.com", "localhost.example.com"] {
        good(&with(&["notify"], json!([{"webhook": format!("https://{host}/hook")}])));
    }
}

#[test]
fn an_output_that_is_no_pattern_is_refused() {
    for (bad, why) in [("[", "class"), ("a/{b", "alternate"), ("[z-a]", "range")] {
        refuses(&with(&["outputs"], json!(["ok/**", bad])), "outputs[1]", why);
    }
    refuses(&with(&["outputs"], json!(["x".repeat(1025)])), "outputs[0]", "at most 1024");
    good(&with(&["outputs"], json!(["results/**", "*.{png,jpg}", "[[]x"])));
}

#[test]
fn faults_without_end_are_cut() {
    let mut value = small();
    for index in 0..5000 {
        value[format!("zz{index}")] = json!(1);
    }
    let faults = parse_in(&open_deployment(), &value).unwrap_err();
    assert_eq!(faults.len(), 101);
    assert!(faults[100].message.contains("and 4900 more faults"), "{:?}", faults[100]);
}

#[test]
fn equal_specs_have_equal_hashes_however_they_were_written() {
    let mut other = small();
    other["priority"] = json!(50);
    other["limits"] = json!({"start": "1800s"});
    other["tpu"]["zones"] = json!([]);
    assert_eq!(hash(&good(&small())), hash(&good(&other)));
    assert_eq!(hash(&good(&small())).len(), 64);
    other["env"] = json!({"A": "1"});
    assert_ne!(hash(&good(&small())), hash(&good(&other)));
    // The stored form keeps it.
    let stored = serde_json::to_string(&good(&other)).unwrap();
    assert_eq!(hash(&serde_json::from_str(&stored).unwrap()), hash(&good(&other)));
}
