//! A job's spec as people write it (contract section 1): every default filled in, durations as `90s` and `24h`.
//!
//! **Invariant:** what this writes is a spec that submit accepts, and that means the same job.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use rekindle_core::job::Job;
use rekindle_core::policy::{PolicyTable, Rule};
use rekindle_core::settings::Deployment;
use rekindle_core::spec::{Budgets, CheckpointSpec, JobSpec, Limits, NetworkSpec, Notify, Queued, TpuSpec};
use rekindle_core::{catalog, orders, placement};

/// The outside form of a spec.
pub fn spec(of: &JobSpec) -> Value {
    let mut map = Map::new();
    let mut set = |name: &str, value: Value| {
        if !is_empty(&value) {
            map.insert(name.to_owned(), value);
        }
    };
    set("run", json!(of.run));
    set("workspace", if of.workspace { json!(true) } else { Value::Null });
    set("setup", json!(of.setup));
    set("code", json!(of.code));
    set("env", json!(of.env));
    set("secrets", json!(of.secrets));
    set("tpu", tpu(&of.tpu));
    set("recovery", recovery(&of.recovery));
    set("budgets", budgets(&of.budgets));
    set("limits", limits(&of.limits, of.workspace));
    set(
        "checkpoint",
        match &of.checkpoint {
            CheckpointSpec::Default => Value::Null,
            CheckpointSpec::Folder(folder) => json!(folder),
            CheckpointSpec::ByRegion(folders) => json!(folders),
        },
    );
    set("resume", if of.resume { json!(true) } else { Value::Null });
    set("outputs", json!(of.outputs));
    set("priority", json!(of.priority));
    set("owner", json!(of.owner));
    set("tags", json!(of.tags));
    set("notes", json!(of.notes));
    set("notify", of.notify.iter().map(hook).collect());
    set("regions", if of.any_region { json!("any") } else { Value::Null });
    set("source", json!(of.source));
    Value::Object(map)
}

/// A webhook; all events is what no list of them means.
fn hook(of: &Notify) -> Value {
    let mut value = json!(of);
    if of.events.is_empty()
        && let Some(map) = value.as_object_mut()
    {
        map.remove("events");
    }
    value
}

/// What a list of jobs shows of a spec: a page of whole ones would be mostly recovery tables.
pub fn brief(of: &JobSpec) -> Value {
    let accelerator = match of.tpu.accelerators.as_slice() {
        [one] => json!(one),
        list => json!(list),
    };
    let mut brief = json!({"tpu": {"accelerator": accelerator}});
    if of.workspace {
        brief["workspace"] = json!(true);
    }
    brief
}

/// What the fields that a spec leaves out mean in this deployment now: the deployment decides them, not the spec, so
/// that they are no part of it.
pub fn defaults(job: &Job, deployment: &Deployment) -> Map<String, Value> {
    let mut map = Map::new();
    let spec = &job.spec;
    let of_each = |value: fn(&str) -> Option<String>| match spec.tpu.accelerators.as_slice() {
        [one] => json!(value(one)),
        several => several.iter().map(|name| (name.clone(), json!(value(name)))).collect::<Map<_, _>>().into(),
    };
    if spec.tpu.zones.is_empty() {
        let mut zones: Vec<String> = Vec::new();
        for candidate in placement::candidates(spec, deployment) {
            if !zones.contains(&candidate.placement.zone) {
                zones.push(candidate.placement.zone);
            }
        }
        map.insert("tpu.zones".to_owned(), json!(zones));
    }
    if spec.tpu.runtime_version.is_none() {
        map.insert("tpu.runtime_version".to_owned(), of_each(|name| Some(catalog::default_runtime(name).to_owned())));
    }
    if spec.tpu.topology.is_none() {
        let usual = of_each(|name| catalog::accelerator(name).map(|a| a.topology.clone()));
        map.insert("tpu.topology".to_owned(), usual);
    }
    if let (None, Some(account)) = (&spec.tpu.network.service_account, &deployment.worker_service_account) {
        map.insert("tpu.service_account".to_owned(), json!(account));
    }
    if spec.checkpoint == CheckpointSpec::Default {
        let folder = orders::checkpoint_dir(job, 0, "", &deployment.bucket);
        map.insert("checkpoint".to_owned(), json!(folder));
    }
    map
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn tpu(of: &TpuSpec) -> Value {
    let mut map = Map::new();
    let mut set = |name: &str, value: Value| {
        if !is_empty(&value) {
            map.insert(name.to_owned(), value);
        }
    };
    set(
        "accelerator",
        match of.accelerators.as_slice() {
            [one] => json!(one),
            list => json!(list),
        },
    );
    set("zones", json!(of.zones));
    set("capacity", json!(of.capacity));
    set(
        "queued",
        json!(match of.queued {
            Queued::Auto => "auto",
            Queued::Always => "always",
            Queued::Never => "never",
        }),
    );
    set("reservation", json!(of.reservation));
    set("runtime_version", json!(of.runtime_version));
    set("topology", json!(of.topology));
    set("slices", json!(of.slices));
    map.extend(network(&of.network));
    Value::Object(map)
}

/// Its fields stand beside the others under `tpu`.
fn network(of: &NetworkSpec) -> Map<String, Value> {
    let pairs = [
        ("network", json!(of.network)),
        ("subnetwork", json!(of.subnetwork)),
        ("external_ips", json!(of.external_ips)),
        ("service_account", json!(of.service_account)),
        ("tags", json!(of.tags)),
        ("labels", json!(of.labels)),
    ];
    pairs.into_iter().filter(|(_, v)| !is_empty(v)).map(|(n, v)| (n.to_owned(), v)).collect()
}

/// The table is given whole, as overrides: it is fixed at submit, whatever the presets become later.
fn recovery(of: &PolicyTable) -> Value {
    let overrides: BTreeMap<&str, Value> = of.rules.iter().map(|(kind, r)| (kind.as_str(), rule(r))).collect();
    json!({"preset": of.preset, "overrides": overrides})
}

fn rule(of: &Rule) -> Value {
    if of.first == of.again && of.within.is_none() && of.max.is_none() {
        return json!(of.first);
    }
    let mut map = Map::from_iter([("first".to_owned(), json!(of.first)), ("again".to_owned(), json!(of.again))]);
    if let Some(within) = of.within {
        map.insert("within".into(), json!(duration(within)));
    }
    if let Some(max) = of.max {
        map.insert("max".into(), json!(max));
    }
    Value::Object(map)
}

fn budgets(of: &Budgets) -> Value {
    let count = |n: Option<u32>| n.map_or_else(|| json!("unlimited"), |n| json!(n));
    json!({
        "user_failures": count(of.user_failures),
        "infra_failures": count(of.infra_failures),
        "preemptions": count(of.preemptions),
        "no_progress": count(of.no_progress),
    })
}

fn limits(of: &Limits, is_workspace: bool) -> Value {
    let time = |d: Option<Duration>| json!(d.map_or_else(|| "none".to_owned(), duration));
    let mut map = Map::from_iter(
        [
            ("total", time(of.total)),
            ("attempt", time(of.attempt)),
            ("queue", time(of.queue)),
            ("start", json!(duration(of.start))),
            ("stop_grace", json!(duration(of.stop_grace))),
            ("cost_usd", of.cost_usd.map_or_else(|| json!("none"), |usd| json!(usd))),
        ]
        .map(|(name, value)| (name.to_owned(), value)),
    );
    let stall = match of.stall {
        // Written as a duration it would be `stall_by_hand`, which means more than its value.
        Some(stall) if !of.stall_by_hand => json!({"steps": duration(stall)}),
        stall => time(stall),
    };
    map.insert("stall".into(), stall);
    if is_workspace {
        map.insert("idle".into(), time(of.idle));
    }
    Value::Object(map)
}

/// `90s`, `30m`, `24h`, `7d`: the greatest unit that divides it; milliseconds below a second.
pub fn duration(of: Duration) -> String {
    let secs = of.as_secs();
    if of.subsec_nanos() != 0 {
        return format!("{}ms", of.as_millis());
    }
    for (unit, name) in [(86_400, "d"), (3600, "h"), (60, "m")] {
        if secs != 0 && secs.is_multiple_of(unit) {
            return format!("{}{name}", secs / unit);
        }
    }
    format!("{secs}s")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde_json::{Value, json};

    use rekindle_core::settings::{CapacityEntry, Deployment};
    use rekindle_core::spec::{CapacityKind, ParseContext, parse};

    use super::{duration, spec};

    fn deployment() -> Deployment {
        let kinds = [CapacityKind::Spot, CapacityKind::OnDemand, CapacityKind::Reserved];
        let entry = |kind| CapacityEntry {
            accelerator: "*".into(),
            zone: "*".into(),
            kind,
            max_chips: None,
            usd_per_chip_hour: 0.3,
        };
        Deployment {
            capacity: kinds.map(entry).into(),
            max_chips: None,
            max_usd_per_day: None,
            owners: BTreeMap::new(),
            access: rekindle_core::access::Access::open(),
            bucket: "gs://bucket".into(),
            bucket_regions: Vec::new(),
            api_url: "https://api.example.com".into(),
            worker_service_account: None,
            worker_network: None,
            startup_script: None,
            worker_metadata: BTreeMap::new(),
        }
    }

    #[test]
    fn what_is_shown_is_a_spec_that_means_the_same_job() {
        let deployment = deployment();
        let context = ParseContext { deployment: &deployment, caller: "ann@example.com", caller_is_admin: true };
        let full = json!({
            "run": "python3 train.py --lr=0.01",
            "setup": ["pip", "install", "-r", "requirements.txt"],
            "code": format!("gs://bucket/bundles/{}.tar.zst", "a".repeat(64)),
            "env": {"LR": "0.01"},
            "secrets": {"KEY": "projects/p/secrets/wandb/versions/latest"},
            "tpu": {
                "accelerator": ["v5litepod-16", "v6e-16"], "zones": ["us-central1-a", "us-east5-b"],
                "capacity": ["spot", "on_demand"], "queued": "never", "network": "net", "subnetwork": "sub",
                "external_ips": false, "tags": ["t"], "labels": {"team": "x"},
            },
            "recovery": {"preset": "rerun", "overrides": {
                "oom_host": {"first": "resume_in_place", "again": "fail", "within": "90s", "max": 2},
                "user_error": "fail",
            }},
            "budgets": {
                "user_failures": "unlimited", "infra_failures": 0, "preemptions": 3, "no_progress": "unlimited",
            },
            "limits": {
                "total": "7d", "attempt": "36h", "queue": "90s", "start": "1500s", "stall": "30m", "stop_grace": "45s",
                "cost_usd": 12.5,
            },
            "checkpoint": {"us-central1": "gs://bucket/a", "us-east5": "gs://other/b"},
            "priority": 0, "owner": "research", "tags": ["ablation"], "notes": "second try",
            "notify": [
                {"webhook": "https://example.com/hook", "events": ["succeeded"]},
                {"webhook": "https://example.com/"},
            ],
        });
        let small = |tpu: Value| json!({"run": ["true"], "tpu": tpu});
        let one = |field: &str, value: Value| {
            let mut body = small(json!({"accelerator": "v5litepod-8"}));
            body[field] = value;
            body
        };
        for body in [
            small(json!({"accelerator": "v5litepod-8"})),
            full,
            one("limits", json!({"stall": "none"})),
            one("limits", json!({"stall": "60m"})),
            one("limits", json!({"stall": {"steps": "2h"}})),
            one("regions", json!("any")),
            one("source", json!({"folder": "train", "commit": "1a2b3c4", "dirty": true})),
            one("budgets", json!({"user_failures": 2})),
            one("checkpoint", json!("gs://bucket/c")),
            json!({"run": ["true"], "tpu": {"accelerator": "v5litepod-8"}, "checkpoint": "gs://b/c", "resume": true}),
            one("recovery", json!({"preset": "pass"})),
            one("recovery", json!({"preset": "resume"})),
            one("outputs", json!(["results/**", "*.png"])),
            json!({"workspace": true, "tpu": {"accelerator": "v5litepod-8"}}),
            json!({"workspace": true, "tpu": {"accelerator": "v5litepod-8"}, "limits": {"idle": "none"}}),
            small(json!({"accelerator": "v5litepod-8", "capacity": ["reserved"], "reservation": "r-1"})),
            small(json!({"accelerator": "v5litepod-16", "slices": 2, "queued": "always"})),
            small(json!({"accelerator": "v4-8", "topology": "2x2x1", "runtime_version": "tpu-ubuntu2204-base"})),
        ] {
            let first = parse(&body, &context).unwrap_or_else(|e| panic!("{body}: {e:?}")).spec;
            let shown = spec(&first);
            let again = parse(&shown, &context).unwrap_or_else(|e| panic!("{shown}: {e:?}")).spec;
            assert_eq!(again, first, "{shown}");
        }
    }

    #[test]
    fn every_default_is_shown_and_what_ends_a_job_is_called_so() {
        let deployment = deployment();
        let context = ParseContext { deployment: &deployment, caller: "ann@example.com", caller_is_admin: true };
        let body = json!({"run": ["true"], "tpu": {"accelerator": "v5litepod-8"}});
        let shown = spec(&parse(&body, &context).unwrap().spec);
        assert_eq!(shown["limits"]["stall"], json!({"steps": "1h"}));
        assert_eq!(shown["recovery"]["overrides"]["user_error"], "fail");
        assert_eq!(shown["recovery"]["overrides"]["oom_hbm"], "fail");
        assert_eq!(shown["recovery"]["overrides"]["preempted"], "recreate");
        assert_eq!(shown["tpu"]["capacity"], json!(["spot"]));
    }

    #[test]
    fn durations_are_written_in_the_greatest_unit_that_divides_them() {
        for (secs, text) in [(0, "0s"), (90, "90s"), (120, "2m"), (1800, "30m"), (86_400, "1d"), (90_000, "25h")] {
            assert_eq!(duration(Duration::from_secs(secs)), text);
        }
        assert_eq!(duration(Duration::from_millis(1500)), "1500ms");
    }
}
