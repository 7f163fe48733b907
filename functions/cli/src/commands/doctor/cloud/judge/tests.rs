//! Each judgement over answers in gcloud's shape: a deployment that is well, and each fault alone.

use serde_json::json;

use super::*;

const PLACE: Place<'static> = Place { project: "p", region: "us-central1", database: "rekindle" };

fn service(name: &str, image: &str, ready: &str, env: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [{"image": image, "env": env}]}}},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    })
}

fn three(ready: &str, last_image: &str, env: &Value) -> Value {
    json!([
        service("rekindle-api", "r/i@sha256:1", "True", &json!([])),
        service("rekindle-events", "r/i@sha256:1", ready, &json!([])),
        service("rekindle-reconcile", last_image, "True", env),
        service("another", "x", "False", &json!([])),
    ])
}

fn next(judged: &Judged) -> &str {
    judged.next.as_deref().unwrap_or_default()
}

#[test]
fn services_are_ready_and_of_one_image() {
    let judge = |answer: &Value| services(answer, &PLACE);
    assert_eq!(judge(&three("True", "r/i@sha256:1", &json!([]))).verdict, Verdict::Good);
    let unready = judge(&three("False", "r/i@sha256:1", &json!([])));
    assert!(unready.verdict == Verdict::Bad && next(&unready).contains("logs read rekindle-events"));
    assert_eq!(judge(&three("True", "r/i@sha256:2", &json!([]))).verdict, Verdict::Warning);
    let mut open = three("True", "r/i@sha256:1", &json!([]));
    open[0]["metadata"]["annotations"] = json!({"run.googleapis.com/invoker-iam-disabled": "true"});
    let open = judge(&open);
    assert!(open.verdict == Verdict::Bad && next(&open).contains("update rekindle-api"), "{}", open.found);
    assert!(next(&open).contains("--invoker-iam-check"));
    let none = judge(&json!([]));
    assert!(none.found.contains("rekindle-api") && next(&none).contains("apply"));
}

#[test]
fn zones_lie_in_the_regions_of_the_bucket() {
    let of = |accelerator: &str, zone: &str| json!({"accelerator": accelerator, "zone": zone});
    let near =
        [of("v5litepod-*", "us-central1-a"), of("v5litepod-*", "europe-west4-b"), of("v5litepod-8", "europe-west4-b")];
    let of_list = |capacity: &[Value], regions: &str| {
        let capacity = json!(capacity).to_string();
        let env = json!([
            {"name": "REKINDLE_CAPACITY", "value": capacity},
            {"name": "REKINDLE_BUCKET", "value": "gs://b"},
            {"name": "REKINDLE_BUCKET_REGIONS", "value": regions},
        ]);
        Environment::of(&three("True", "i", &env))
    };
    let env = |regions: &str| of_list(&near, regions);
    assert_eq!(env("us-central1").bucket.as_deref(), Some("gs://b"));
    let far = zones(&env("us-central1"));
    assert!(far.verdict == Verdict::Warning && far.found.contains("europe-west4-b"), "{}", far.found);
    let all = zones(&env("us-central1,europe-west4"));
    assert!(all.verdict == Verdict::Good && all.found.starts_with("2 zones"), "{}", all.found);
    let none = zones(&env("us-west4"));
    assert!(none.verdict == Verdict::Bad && !next(&none).contains("bucket_locations"), "{}", none.found);
    // A zone that is none, and a type that is none.
    let typo = |list: &[Value]| zones(&of_list(list, "us-central1"));
    let wrong = [of("v5litepod-*", "us-central1-z"), of("v5litepo-8", "*")];
    let told = typo(&wrong);
    assert_eq!(told.found, "no such TPU is known to be offered: v5litepod-* in us-central1-z, v5litepo-8 in *");
    assert_eq!((told.verdict, typo(&[wrong[0].clone(), near[0].clone()]).verdict), (Verdict::Bad, Verdict::Warning));
    // As Terraform tells a bucket in US or EU.
    assert_eq!(zones(&env("us,eu")).verdict, Verdict::Good);
    assert_eq!(zones(&env("us")).found.matches("-a,").count(), 0, "{}", zones(&env("us")).found);
    assert_eq!(zones(&env("us")).verdict, Verdict::Warning);
    assert_eq!(zones(&Environment::default()).verdict, Verdict::Bad);
}

/// What no function and no worker calls.
const OF_TERRAFORM: [&str; 5] = ["billingbudgets", "cloudbilling", "iap", "monitoring", "serviceusage"];

#[test]
fn apis_and_topics_that_are_missing_are_named_with_their_command() {
    let all: Vec<Value> = APIS.iter().map(|name| json!({"config": {"name": name}})).collect();
    assert_eq!(apis(&json!(all), &PLACE).verdict, Verdict::Good);
    let bootstrap = include_str!("../../../../../../../infra/modules/bootstrap/main.tf");
    let unmade: Vec<&&str> = APIS.iter().filter(|name| !bootstrap.contains(&format!("    \"{name}\",\n"))).collect();
    assert!(unmade.is_empty(), "bootstrap turns these on never: {unmade:?}");
    let made = bootstrap.lines().filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix(".googleapis.com\","));
    let unasked: Vec<&str> = made.filter(|name| !APIS.contains(&format!("{name}.googleapis.com").as_str())).collect();
    assert_eq!(unasked, OF_TERRAFORM, "what functions or workers call is asked for");
    let off = apis(&json!(all[1..]), &PLACE);
    assert_eq!(next(&off), "`gcloud services enable tpu.googleapis.com --project=p`");
    let there: Vec<Value> = TOPICS.iter().map(|name| json!({"name": format!("projects/p/topics/{name}")})).collect();
    assert_eq!(topics(&json!(there), &PLACE).verdict, Verdict::Good);
    assert!(topics(&json!(there[..4]), &PLACE).found.contains("rekindle-dead-letter"));
}

#[test]
fn pushes_carry_identity_audience_and_dead_letters_and_never_expire() {
    let push = |topic: &str| {
        json!({
            "name": format!("projects/p/subscriptions/rekindle-{topic}-push"),
            "pushConfig": {
                "pushEndpoint": "https://s.run.app/functions/x",
                "oidcToken": {"serviceAccountEmail": "push@p", "audience": "https://s.run.app"},
            },
            "deadLetterPolicy": {"deadLetterTopic": "projects/p/topics/rekindle-dead-letter"},
            "expirationPolicy": {},
        })
    };
    let pull = json!({"name": "projects/p/subscriptions/rekindle-dead-letter-pull"});
    let all = |first: Value| json!([first, push("hints"), push("events"), push("tpu-events"), pull]);
    assert_eq!(subscriptions(&all(push("jobs")), &PLACE).verdict, Verdict::Good);
    for (pointer, value, why) in [
        ("/pushConfig/pushEndpoint", "", "pushes nowhere"),
        ("/pushConfig/oidcToken/serviceAccountEmail", "", "sends no identity"),
        ("/pushConfig/oidcToken/audience", "https://s.run.app/functions/x", "not the root"),
        ("/deadLetterPolicy/deadLetterTopic", "", "no dead-letter topic"),
    ] {
        let mut jobs = push("jobs");
        *jobs.pointer_mut(pointer).unwrap() = json!(value);
        let judged = subscriptions(&all(jobs), &PLACE);
        assert!(judged.found.contains(why), "{why}: {}", judged.found);
    }
    let mut expiring = push("jobs");
    expiring["expirationPolicy"] = json!({"ttl": "2678400s"});
    assert!(subscriptions(&all(expiring), &PLACE).found.contains("expires"));
    assert!(subscriptions(&json!([]), &PLACE).found.contains("dead letters are lost"));
}

#[test]
fn the_audience_that_eventarc_chose_is_told_and_mended() {
    let taken =
        ["https://rekindle-events-1.us-central1.run.app", "https://rekindle-events-*.a.run.app"].map(str::to_owned);
    let judge = |audience: &str| {
        let trigger = json!({
            "name": "projects/p/subscriptions/eventarc-global-rekindle-deletenode-sub-123",
            "pushConfig": {
                "pushEndpoint": "https://rekindle-events-abc-uc.a.run.app/functions/tpu-events?__GCP_CloudEventsMode=CE_PUBSUB_BINDING",
                "oidcToken": {"serviceAccountEmail": "eventarc@p", "audience": audience},
            },
        });
        let own = json!({"name": "projects/p/subscriptions/rekindle-jobs-push"});
        audiences(&json!([own, trigger]), &PLACE, &taken)
    };
    for good in ["https://rekindle-events-1.us-central1.run.app/", "https://rekindle-events-abc-uc.a.run.app"] {
        let judged = judge(good);
        assert!(judged.verdict == Verdict::Good && judged.found.contains(good), "{}", judged.found);
    }
    // Without an audience of its own a token is for the whole address.
    for wrong in ["https://elsewhere.run.app", ""] {
        let judged = judge(wrong);
        let mends = next(&judged).contains("--push-auth-token-audience=https://rekindle-events-1.us-central1.run.app`");
        assert!(judged.verdict == Verdict::Bad && mends, "{}", next(&judged));
    }
    assert_eq!(audiences(&json!([]), &PLACE, &taken).verdict, Verdict::Good);
}

#[test]
fn the_tick_is_on_and_ran_lately() {
    let now: Timestamp = "2026-11-20T10:00:00Z".parse().unwrap();
    let judge = |answer: Value| tick_at(&answer, &PLACE, now);
    let at = |time: &str| json!({"state": "ENABLED", "lastAttemptTime": time});
    assert_eq!(judge(at("2026-11-20T09:59:01Z")).verdict, Verdict::Good);
    assert!(next(&judge(at("2026-11-20T09:50:00Z"))).contains("jobs run rekindle-tick"));
    assert!(next(&judge(json!({"state": "PAUSED"}))).contains("jobs resume rekindle-tick"));
    let failed = json!({"state": "ENABLED", "lastAttemptTime": "2026-11-20T09:59:01Z", "status": {"code": 7}});
    assert!(judge(failed).found.contains("code 7"));
    assert_eq!(judge(json!({"state": "ENABLED"})).verdict, Verdict::Bad);
}

#[test]
fn indexes_are_those_of_the_file() {
    let file: Value = serde_json::from_str(INDEXES).unwrap();
    let wanted = file["indexes"].as_array().unwrap();
    let answer = |state: &str, count: usize| -> Value {
        let with_name = |index: &Value| {
            let mut fields = index["fields"].as_array().unwrap().clone();
            fields.push(json!({"fieldPath": "__name__", "order": "DESCENDING"}));
            json!({"state": state, "fields": fields})
        };
        wanted.iter().take(count).map(with_name).collect()
    };
    assert_eq!(indexes(&answer("READY", wanted.len()), &PLACE).verdict, Verdict::Good);
    let building = indexes(&answer("CREATING", wanted.len()), &PLACE);
    assert!(building.verdict == Verdict::Warning && next(&building).contains("firestore operations list"));
    assert!(indexes(&answer("READY", wanted.len() - 2), &PLACE).found.starts_with("2 of"));
}

#[test]
fn only_reconcile_holds_rights_on_tpus_and_the_services_those_on_documents() {
    let member = |name: &str| format!("serviceAccount:rekindle-{name}@p.iam.gserviceaccount.com");
    let judge = |tpus: &[&str], documents: &[&str], more: &[(&str, &str)]| {
        let of = |role: &str, names: &[&str]| {
            let own = names.iter().map(|name| member(name));
            let more = more.iter().filter(|(of, _)| *of == role).map(|(_, member)| (*member).to_owned());
            let condition = json!({"title": "rekindle-database"});
            let role = format!("projects/p/roles/{role}");
            json!({"role": role, "members": own.chain(more).collect::<Vec<_>>(), "condition": condition})
        };
        roles(&json!({"bindings": [of("rekindleTpu", tpus), of("rekindleDocuments", documents)]}), &PLACE)
    };
    let services = ["api", "events", "reconcile"];
    assert_eq!(judge(&["reconcile"], &services, &[]).verdict, Verdict::Good);
    for (tpus, documents, found) in [
        (&[][..], &services[..], "rekindle-reconcile has no rights on TPUs"),
        (&["reconcile"], &["api", "reconcile"], "rekindle-events has no rights on documents"),
        (&["api"], &[], "rekindle-reconcile has no rights on TPUs; rekindle-api has no rights on documents"),
    ] {
        let judged = judge(tpus, documents, &[]);
        assert!(judged.verdict == Verdict::Bad && judged.found.starts_with(found), "{}", judged.found);
    }
    for (role, what) in [("rekindleTpu", "TPUs"), ("rekindleDocuments", "documents")] {
        let shared = judge(&["reconcile"], &services, &[(role, "user:ann@example.com")]);
        assert_eq!(shared.verdict, Verdict::Warning);
        assert_eq!(shared.found, format!("user:ann@example.com holds rights on {what} too"));
        let mends = format!("--role=projects/p/roles/{role} --member=user:ann@example.com --all`");
        assert!(next(&shared).contains(&mends), "{}", next(&shared));
    }
}

/// A quota as the API tells it: with a value for all places, or for some.
fn quota(id: &str, metric: &str, values: &[(&str, &str, &str)]) -> Value {
    let of = |(dimension, place, value): &(&str, &str, &str)| {
        let details = json!({"value": value});
        if place.is_empty() {
            json!({"details": details})
        } else {
            json!({"dimensions": {*dimension: place}, "details": details})
        }
    };
    json!({"quotaId": id, "metric": metric, "dimensionsInfos": values.iter().map(of).collect::<Vec<_>>()})
}

fn capacity(entries: &[(&str, &str, &str)]) -> Vec<Bought> {
    let of = |(accelerator, zone, kind): &(&str, &str, &str)| {
        Bought::of(&json!({"accelerator": accelerator, "zone": zone, "kind": kind, "usd_per_chip_hour": 1}))
    };
    entries.iter().map(of).collect()
}

#[test]
fn quota_of_nothing_is_told_before_the_first_create() {
    let none = quotas(&json!([quota("TPUV6EPerProjectPerZoneForTPUAPI", "m", &[("", "", "0")])]), &PLACE, &[]);
    assert!(none.verdict == Verdict::Bad && next(&none).contains("gcloud beta quotas preferences create"));
}

#[test]
fn quotas_are_compared_with_what_may_be_bought_and_where() {
    let creates = quota("AnyIdAtAll", "tpu.googleapis.com/qps/create", &[("", "", "91")]);
    let answer = json!([
        quota(
            "TPUV5sPreemptibleLitepodPerProjectPerRegionForTPUAPI",
            "a",
            &[("region", "us-central1", "64"), ("", "", "0")]
        ),
        quota("TPUV5sLitepodServingPerProjectPerZoneForTPUAPI", "b", &[("zone", "us-central1-a", "8")]),
        quota("TPUV5PPerProjectPerZoneForTPUAPI", "c", &[("zone", "us-east5-a", "0")]),
        quota("TPUV6EPreemptiblePerProjectPerZoneForTPUAPI", "d", &[("", "", "-1")]),
        creates,
    ]);
    let judge = |entries: &[(&str, &str, &str)]| quotas(&answer, &PLACE, &capacity(entries));
    let well = judge(&[
        ("v5litepod-*", "us-central1-a", "spot"),
        ("v5litepod-8", "us-central1-a", "on_demand"),
        ("v6e-*", "us-east5-b", "preemptible"),
        ("v5litepod-*", "*", "spot"),
        ("*", "us-west4-a", "spot"),
        ("v4-8", "us-central2-b", "reserved"),
    ]);
    assert_eq!((well.verdict, well.found.as_str()), (Verdict::Good, "3 quotas of TPUs, 91 creates a minute"));
    for (entry, told) in [
        (("v5litepod-*", "us-west4-a", "spot"), "v5litepod (spot) in us-west4-a"),
        (("v5litepod-*", "us-west4-a", "on_demand"), "v5litepod (on_demand) in us-west4-a"),
        (("v5p-8", "us-east5-a", "on_demand"), "v5p (on_demand) in us-east5-a"),
        (("v6e-4", "us-east5-b", "on_demand"), "v6e (on_demand) in us-east5-b"),
        (("v4-8", "us-central2-b", "spot"), "v4 (spot) in us-central2-b"),
    ] {
        let judged = judge(&[entry]);
        assert_eq!(judged.verdict, Verdict::Warning, "{entry:?}");
        assert!(judged.found.ends_with(told), "{}", judged.found);
        assert!(next(&judged).contains("quotas preferences create"));
    }
}

#[test]
fn the_limit_of_creates_is_known_by_its_metric() {
    let chips = || quota("TPUV6EPerProjectPerZoneForTPUAPI", "m", &[("", "", "4")]);
    let judge = |value: &str| {
        let creates = quota("NobodyKnowsItsId", "tpu.googleapis.com/qps/create", &[("", "", value)]);
        quotas(&json!([chips(), creates]), &PLACE, &[])
    };
    assert_eq!(judge("60").found, "1 quota of TPUs, 60 creates a minute");
    assert_eq!((judge("60").verdict, judge("-1").verdict), (Verdict::Good, Verdict::Good));
    let few = judge("59");
    assert!(few.verdict == Verdict::Warning && few.found.starts_with("59 creates a minute"), "{}", few.found);
    let named = quota("CreateNodePerMinute", "another", &[("", "", "91")]);
    let untold = quotas(&json!([chips(), named]), &PLACE, &[]);
    assert!(untold.verdict == Verdict::Warning && untold.found.contains("qps/create"), "{}", untold.found);
}

#[test]
fn the_bucket_is_where_the_services_think_it_is() {
    let judge = |answer: &Value, regions: &[&str]| {
        bucket(answer, &PLACE, &regions.iter().map(|region| (*region).to_owned()).collect::<Vec<_>>())
    };
    let pair = json!({"location": "US", "data_locations": ["US-CENTRAL1", "US-WEST1"]});
    for (answer, regions, is_good) in [
        (json!({"location": "US"}), &["us-central1", "us-east5"][..], true),
        (json!({"location": "US"}), &["us"], true),
        (json!({"location": "US-CENTRAL1"}), &["us"], false),
        (json!({"location": "ASIA"}), &["asia"], true),
        (json!({"location": "US"}), &["europe-west4"], false),
        (json!({"location": "EU"}), &["europe-west4"], true),
        (json!({"location": "NAM4"}), &["us-central1", "us-east1"], true),
        (json!({"location": "NAM4"}), &["us-west4"], false),
        (json!({"location": "US-WEST4"}), &["us-west4"], true),
        (json!({"location": "US-WEST4"}), &["us-west1"], false),
        (pair.clone(), &["us-central1", "us-west1"], true),
        (pair, &["us-east1"], false),
        (json!({}), &[], false),
    ] {
        let judged = judge(&answer, regions);
        assert_eq!(judged.verdict == Verdict::Good, is_good, "{answer} {regions:?}: {}", judged.found);
        assert!(is_good || next(&judged).contains("terraform"), "{answer}");
    }
}

#[test]
fn the_agents_bytes_have_the_digest_of_its_name() {
    let name = "gs://b/agents/ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(digest(name, b"abc").verdict, Verdict::Good);
    let other = digest(name, b"abd");
    assert!(
        other.verdict == Verdict::Bad && next(&other).contains("`infra/publish.sh infra/envs/example`"),
        "{}",
        other.found
    );
}

#[test]
fn the_rest() {
    assert_eq!(queue(&json!({"state": "RUNNING"}), &PLACE).verdict, Verdict::Good);
    assert!(next(&queue(&json!({"state": "PAUSED"}), &PLACE)).contains("queues resume"));
    assert_eq!(triggers(&json!([]), &PLACE).verdict, Verdict::Warning);
    assert_eq!(
        triggers(&json!([{"name": "projects/p/locations/global/triggers/rekindle-x"}]), &PLACE).verdict,
        Verdict::Good
    );
    let to = "pubsub.googleapis.com/projects/p/topics/rekindle-tpu-events";
    assert_eq!(sink(&json!({"destination": to}), &PLACE).verdict, Verdict::Good);
    assert_eq!(sink(&json!({"destination": to, "disabled": true}), &PLACE).verdict, Verdict::Bad);
    assert_eq!(sink(&json!({"destination": "elsewhere"}), &PLACE).verdict, Verdict::Bad);
    let digest = "0123456789abcdef".repeat(4);
    assert_eq!(agent(&json!({"name": format!("agents/{digest}"), "size": "8000000"}), &PLACE).verdict, Verdict::Good);
    assert!(
        next(&agent(&json!({"name": "agents/latest", "size": 1}), &PLACE))
            .contains("`infra/publish.sh infra/envs/example`")
    );
    assert_eq!(refused(&json!([]), &PLACE).verdict, Verdict::Good);
    let line = json!({"jsonPayload": {"message": "a caller who may not call here was refused", "error": "bob@example.com may not call this"}});
    assert!(
        refused(&json!([line]), &PLACE).found.contains("1 call refused in the last hour, the last: bob@example.com")
    );
}

#[test]
fn those_that_must_call_a_service_may_and_nobody_else_of_all() {
    let of = |members: &[&str]| {
        let policy = json!({"bindings": [{"role": "roles/run.invoker", "members": members}]});
        invokers(&policy, &PLACE, "rekindle-events")
    };
    let [push, eventarc] =
        ["push", "eventarc"].map(|n| format!("serviceAccount:rekindle-{n}@p.iam.gserviceaccount.com"));
    assert_eq!(of(&[&push, &eventarc, "user:ada@example.com"]).verdict, Verdict::Good);
    let lacking = of(&[&eventarc]);
    assert!(lacking.verdict == Verdict::Bad && lacking.found.contains("rekindle-push"), "{}", lacking.found);
    let open = of(&[&push, &eventarc, "allUsers"]);
    assert!(open.verdict == Verdict::Bad && next(&open).contains("remove-iam-policy-binding"), "{}", open.found);
    assert!(super::invokers::wanted("rekindle-reconcile").contains(&"rekindle-tasks"));
    assert_eq!(super::invokers::wanted("rekindle-api"), ["rekindle-reconcile", "rekindle-worker"]);
}
