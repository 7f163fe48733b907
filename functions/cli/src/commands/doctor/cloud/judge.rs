//! What gcloud's answers mean. Pure: answers in, verdicts out, each with the command that mends what is wrong.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use rekindle_core::placement;
use serde_json::Value;
use sha2::Digest as _;

use super::super::{Verdict, mending};
use super::Place;

mod audiences;
mod invokers;
mod quotas;
mod roles;

pub(super) use audiences::audiences;
pub(super) use invokers::invokers;
pub(super) use quotas::quotas;
pub(super) use roles::roles;

/// What functions and workers call, and what doctor itself asks; the rest of `infra/modules/bootstrap` is for Terraform.
const APIS: [&str; 16] = [
    "tpu.googleapis.com",
    "run.googleapis.com",
    "firestore.googleapis.com",
    "pubsub.googleapis.com",
    "eventarc.googleapis.com",
    "cloudscheduler.googleapis.com",
    "cloudtasks.googleapis.com",
    "storage.googleapis.com",
    "logging.googleapis.com",
    "compute.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "cloudquotas.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "secretmanager.googleapis.com",
    "artifactregistry.googleapis.com",
];
const TOPICS: [&str; 5] =
    ["rekindle-jobs", "rekindle-hints", "rekindle-events", "rekindle-tpu-events", "rekindle-dead-letter"];
const SERVICES: [&str; 3] = ["rekindle-api", "rekindle-events", "rekindle-reconcile"];
/// Indexes as they are deployed.
const INDEXES: &str = include_str!("../../../../../../infra/firestore.indexes.json");
/// The tick runs each minute; a few may be late.
const TICK_AGE_MAX: SignedDuration = SignedDuration::from_mins(5);
pub(super) const APPLY: &str = "`terraform -chdir=infra/envs/example apply`";
/// What makes the bucket.
pub(super) const BOOTSTRAP: &str =
    "`terraform -chdir=infra/envs/example/bootstrap apply -var-file=../terraform.tfvars`";

/// What brings the agent, and lets the services name it.
pub(super) fn publish() -> String {
    format!("`infra/publish.sh infra/envs/example`, then {APPLY}")
}

/// The outcome of one check.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) found: String,
    pub(super) next: Option<String>,
}

fn good(found: impl Into<String>) -> Judged {
    Judged { verdict: Verdict::Good, found: found.into(), next: None }
}

fn warning(found: impl Into<String>, next: impl Into<String>) -> Judged {
    Judged { verdict: Verdict::Warning, found: found.into(), next: Some(mending(next.into())) }
}

fn bad(found: impl Into<String>, next: impl Into<String>) -> Judged {
    Judged { verdict: Verdict::Bad, found: found.into(), next: Some(mending(next.into())) }
}

fn list(answer: &Value) -> &[Value] {
    answer.as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The last part of a resource's name.
fn short(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// What is wanted and not there.
fn missing<'a>(wanted: &[&'a str], there: &BTreeSet<&str>) -> Vec<&'a str> {
    wanted.iter().copied().filter(|name| !there.contains(name)).collect()
}

/// The APIs that functions and workers call are on.
pub(super) fn apis(answer: &Value, place: &Place<'_>) -> Judged {
    let there: BTreeSet<&str> = list(answer).iter().map(|api| text(api, "/config/name")).collect();
    let missing = missing(&APIS, &there);
    if missing.is_empty() {
        return good("all that functions and workers call are on");
    }
    bad(
        format!("off: {}", missing.join(", ")),
        format!("`gcloud services enable {} --project={}`", missing.join(" "), place.project),
    )
}

/// Three services are ready, from one image, and Cloud Run asks who calls them.
pub(super) fn services(answer: &Value, place: &Place<'_>) -> Judged {
    let ours = ours(answer);
    let missing = missing(&SERVICES, &ours.keys().copied().collect());
    if !missing.is_empty() {
        return bad(format!("missing: {}", missing.join(", ")), APPLY);
    }
    let is_ready = |service: &Value| {
        let conditions = service.pointer("/status/conditions").map_or(&[][..], list);
        conditions.iter().any(|c| text(c, "/type") == "Ready" && text(c, "/status") == "True")
    };
    let unready: Vec<&str> = ours.iter().filter(|(_, service)| !is_ready(service)).map(|(name, _)| *name).collect();
    if let Some(first) = unready.first() {
        let at = format!("--project={} --region={}", place.project, place.region);
        let look = format!("`gcloud run services logs read {first} {at} --limit=50` says why");
        return bad(format!("not ready: {}", unready.join(", ")), look);
    }
    // In mode `platform` a token is believed because Cloud Run has checked it.
    let is_open =
        |service: &Value| text(service, "/metadata/annotations/run.googleapis.com~1invoker-iam-disabled") == "true";
    if let Some((open, _)) = ours.iter().find(|(_, service)| is_open(service)) {
        let at = format!("{open} --project={} --region={}", place.project, place.region);
        let command = format!("`gcloud run services update {at} --invoker-iam-check`");
        return bad(format!("{open} does not check who calls, so that anyone may call as anyone"), command);
    }
    let images: BTreeSet<&str> =
        ours.values().map(|service| text(service, "/spec/template/spec/containers/0/image")).collect();
    match images.first() {
        Some(image) if images.len() == 1 => good(format!("{} ready, from {}", ours.len(), short(image))),
        _ => warning(format!("{} different images", images.len()), format!("{APPLY} rolls one image out to all")),
    }
}

fn ours(answer: &Value) -> BTreeMap<&str, &Value> {
    list(answer)
        .iter()
        .map(|service| (text(service, "/metadata/name"), service))
        .filter(|(name, _)| SERVICES.contains(name))
        .collect()
}

/// An entry of the capacity list, as far as it is looked at here: a server of another version may tell more.
#[derive(Clone, Debug)]
pub(super) struct Bought {
    accelerator: String,
    zone: String,
    kind: String,
}

impl Bought {
    fn of(entry: &Value) -> Self {
        let field = |pointer: &str| text(entry, pointer).to_owned();
        Self { accelerator: field("/accelerator"), zone: field("/zone"), kind: field("/kind") }
    }
}

/// What the services were told.
#[derive(Default)]
pub(super) struct Environment {
    pub(super) bucket: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) regions: Vec<String>,
    /// Audiences that `events` takes.
    pub(super) audiences: Vec<String>,
    /// What may be bought.
    pub(super) capacity: Vec<Bought>,
}

impl Environment {
    /// From the service that creates TPUs, and from the one that hears Eventarc.
    pub(super) fn of(services: &Value) -> Self {
        let ours = ours(services);
        let told = |service: &str, name: &str| -> Option<&str> {
            let pairs = ours.get(service)?.pointer("/spec/template/spec/containers/0/env").map_or(&[][..], list);
            pairs.iter().find(|pair| text(pair, "/name") == name).map(|pair| text(pair, "/value"))
        };
        let get = |name: &str| told("rekindle-reconcile", name);
        let parts = |text: &str| -> Vec<String> {
            text.split(',').filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let capacity: Value =
            get("REKINDLE_CAPACITY").and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        Self {
            bucket: get("REKINDLE_BUCKET").map(str::to_owned),
            agent: get("REKINDLE_AGENT_URL").map(str::to_owned),
            regions: parts(get("REKINDLE_BUCKET_REGIONS").unwrap_or_default()),
            audiences: parts(told("rekindle-events", "REKINDLE_AUDIENCES").unwrap_or_default()),
            capacity: list(&capacity).iter().map(Bought::of).collect(),
        }
    }
}

/// Every zone of the capacity list is in a region of the bucket: else no job may use it.
pub(super) fn zones(of: &Environment) -> Judged {
    if of.capacity.is_empty() {
        return bad("the capacity list is empty: nothing can be created", format!("set `capacity`, then {APPLY}"));
    }
    let is_had = |entry: &&Bought| placement::can_be_had(&entry.accelerator, &entry.zone);
    let never = of.capacity.iter().filter(|entry| !is_had(entry));
    let never: Vec<String> = never.map(|entry| format!("{} in {}", entry.accelerator, entry.zone)).collect();
    if !never.is_empty() {
        let told = format!("no such TPU is known to be offered: {}", never.join(", "));
        let mend = format!("look at `rekindle catalog`, change `capacity`, then {APPLY}");
        return if never.len() == of.capacity.len() { bad(told, mend) } else { warning(told, mend) };
    }
    let zones: BTreeSet<&str> = of.capacity.iter().map(|entry| entry.zone.as_str()).collect();
    let is_far = |zone: &&str| *zone != "*" && !of.regions.is_empty() && !placement::is_in_regions(zone, &of.regions);
    let far: Vec<&str> = zones.iter().copied().filter(is_far).collect();
    if far.is_empty() {
        return good(format!("{} in the regions of the bucket", crate::human::count(zones.len() as u64, "zone")));
    }
    let told =
        format!("{}: outside the bucket's regions ({}); jobs do not go there", far.join(", "), of.regions.join(", "));
    // A bucket stays where it was made.
    let mend = format!("name zones of the bucket's regions in `capacity`, then {APPLY}");
    if far.len() == zones.len() { bad(told, mend) } else { warning(told, mend) }
}

/// Every topic is there.
pub(super) fn topics(answer: &Value, _: &Place<'_>) -> Judged {
    let there: BTreeSet<&str> = list(answer).iter().map(|topic| short(text(topic, "/name"))).collect();
    let missing = missing(&TOPICS, &there);
    if missing.is_empty() { good("all five") } else { bad(format!("missing: {}", missing.join(", ")), APPLY) }
}

/// Pushes prove who they are, to the root of the service; they never expire, and give up into the dead-letter topic.
pub(super) fn subscriptions(answer: &Value, place: &Place<'_>) -> Judged {
    let of = |name: &str| list(answer).iter().find(|s| short(text(s, "/name")) == name);
    let mut faults = Vec::new();
    for topic in ["jobs", "hints", "events", "tpu-events"] {
        let name = format!("rekindle-{topic}-push");
        match of(&name) {
            None => faults.push(format!("{name} is missing")),
            Some(subscription) => faults.extend(fault(subscription).map(|why| format!("{name} {why}"))),
        }
    }
    if of("rekindle-dead-letter-pull").is_none() {
        faults.push("rekindle-dead-letter-pull is missing: dead letters are lost".to_owned());
    }
    if faults.is_empty() {
        return good("four pushes with identity, audience and dead letters");
    }
    let look = format!("`gcloud pubsub subscriptions list --project={}`", place.project);
    bad(faults.join("; "), format!("{APPLY}; {look} shows them"))
}

fn fault(subscription: &Value) -> Option<&'static str> {
    let endpoint = text(subscription, "/pushConfig/pushEndpoint");
    let audience = text(subscription, "/pushConfig/oidcToken/audience");
    let root = endpoint.split('/').take(3).collect::<Vec<_>>().join("/");
    if endpoint.is_empty() {
        Some("pushes nowhere")
    } else if text(subscription, "/pushConfig/oidcToken/serviceAccountEmail").is_empty() {
        Some("sends no identity")
    } else if audience != root {
        Some("has an audience that is not the root of its service")
    } else if text(subscription, "/deadLetterPolicy/deadLetterTopic").is_empty() {
        Some("has no dead-letter topic")
    } else if !text(subscription, "/expirationPolicy/ttl").is_empty() {
        Some("expires when it is idle")
    } else {
        None
    }
}

/// The minute job runs.
pub(super) fn tick(answer: &Value, place: &Place<'_>) -> Judged {
    tick_at(answer, place, Timestamp::now())
}

fn tick_at(answer: &Value, place: &Place<'_>, now: Timestamp) -> Judged {
    let verb = |verb: &str| {
        format!("`gcloud scheduler jobs {verb} rekindle-tick --project={} --location={}`", place.project, place.region)
    };
    let state = text(answer, "/state");
    if state != "ENABLED" {
        return bad(format!("the minute job is {state}: nothing repairs a lost event"), verb("resume"));
    }
    let code = answer.pointer("/status/code").and_then(Value::as_i64).unwrap_or_default();
    let last: Option<Timestamp> = text(answer, "/lastAttemptTime").parse().ok();
    match last {
        None => bad("it never ran", verb("run")),
        Some(last) if now.duration_since(last) > TICK_AGE_MAX => bad(format!("last ran at {last}"), verb("run")),
        Some(_) if code != 0 => bad(format!("its last run failed (code {code})"), verb("run")),
        Some(last) => good(format!("ran at {last}")),
    }
}

/// The queue of wake-ups runs.
pub(super) fn queue(answer: &Value, place: &Place<'_>) -> Judged {
    match text(answer, "/state") {
        "RUNNING" => good("the queue runs"),
        state => {
            let at = format!("--project={} --location={}", place.project, place.region);
            bad(format!("the queue is {state}"), format!("`gcloud tasks queues resume rekindle-wakeups {at}`"))
        }
    }
}

/// Eventarc's triggers are there. The sink tells the same events, so that their lack is no fault.
pub(super) fn triggers(answer: &Value, _: &Place<'_>) -> Judged {
    match list(answer).iter().filter(|trigger| short(text(trigger, "/name")).starts_with("rekindle-")).count() {
        0 => warning("none; the Logging sink alone tells what happens to TPUs", APPLY),
        count => good(format!("{count} in location global")),
    }
}

/// The sink writes to the topic.
pub(super) fn sink(answer: &Value, place: &Place<'_>) -> Judged {
    let destination = text(answer, "/destination");
    if answer.pointer("/disabled").and_then(Value::as_bool) == Some(true) {
        let command =
            format!("gcloud logging sinks update rekindle-tpu-events --project={} --no-disabled", place.project);
        return bad("the sink is disabled", format!("`{command}`"));
    }
    if destination.ends_with("/topics/rekindle-tpu-events") {
        good("writes to rekindle-tpu-events")
    } else {
        bad(format!("writes to {destination:?}"), APPLY)
    }
}

/// Every index of the index file is there and ready.
pub(super) fn indexes(answer: &Value, place: &Place<'_>) -> Judged {
    let wanted: Value = serde_json::from_str(INDEXES).unwrap_or_default();
    let shape = |index: &Value| -> Vec<String> {
        let fields = index.pointer("/fields").map_or(&[][..], list);
        let parts = fields.iter().filter(|field| text(field, "/fieldPath") != "__name__");
        parts.map(|f| format!("{} {}{}", text(f, "/fieldPath"), text(f, "/order"), text(f, "/arrayConfig"))).collect()
    };
    let state =
        |want: &Value| list(answer).iter().find(|have| shape(have) == shape(want)).map(|have| text(have, "/state"));
    let wanted = wanted.pointer("/indexes").map_or(&[][..], list);
    let missing = wanted.iter().filter(|want| state(want).is_none()).count();
    let building = wanted.iter().filter(|want| state(want).is_some_and(|state| state != "READY")).count();
    match (missing, building) {
        (0, 0) => good(format!("all {} are ready", wanted.len())),
        (0, building) => {
            let look =
                format!("`gcloud firestore operations list --project={} --database={}`", place.project, place.database);
            warning(format!("{building} of {} are being built", wanted.len()), format!("{look} shows how far they are"))
        }
        (missing, _) => bad(format!("{missing} of {} are missing", wanted.len()), APPLY),
    }
}

/// Callers that could not be verified lately.
pub(super) fn refused(answer: &Value, place: &Place<'_>) -> Judged {
    let lines = list(answer);
    let Some(last) = lines.first() else { return good("none was refused in the last hour") };
    let why = text(last, "/jsonPayload/error");
    let found =
        format!("{} refused in the last hour, the last: {why}", crate::human::count(lines.len() as u64, "call"));
    let filter = "jsonPayload.message=(\"a call without a good token was refused\" OR \"a caller who may not call here was refused\")";
    warning(found, format!("`gcloud logging read '{filter}' --project={} --freshness=1h` lists them", place.project))
}

/// The bucket is where the services think that it is: they create TPUs only there.
pub(super) fn bucket(answer: &Value, _: &Place<'_>, regions: &[String]) -> Judged {
    let location = text(answer, "/location").to_ascii_lowercase();
    if location.is_empty() {
        return bad("its location is not told", APPLY);
    }
    // A pair of regions of one's own choice is told beside the continent that both are on.
    let of_pair = ["/data_locations", "/customPlacementConfig/dataLocations"];
    let pair = of_pair.iter().find_map(|pointer| answer.pointer(pointer)).map_or(&[][..], list);
    let pair: Vec<String> = pair.iter().filter_map(Value::as_str).map(str::to_ascii_lowercase).collect();
    let is_in = |region: &String| match location.as_str() {
        _ if !pair.is_empty() => pair.contains(region),
        // A multi-region is told as such.
        same if same == region.as_str() => true,
        "us" => region.starts_with("us-"),
        "eu" => region.starts_with("europe-"),
        "asia" => region.starts_with("asia-"),
        "nam4" => region == "us-central1" || region == "us-east1",
        "eur4" => region == "europe-north1" || region == "europe-west4",
        "asia1" => region.starts_with("asia-northeast"),
        one => region == one,
    };
    let far: Vec<&str> = regions.iter().filter(|region| !is_in(region)).map(String::as_str).collect();
    if far.is_empty() {
        return good(format!("in {location}"));
    }
    let told = format!("in {location}, but the services were told {}: checkpoints would cross regions", far.join(", "));
    bad(told, format!("set `bucket_locations` to where it is, then {APPLY}"))
}

/// The agent's bytes are those that its name says.
pub(super) fn digest(address: &str, bytes: &[u8]) -> Judged {
    let found = sha2::Sha256::digest(bytes).iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    if found == short(address) {
        return good("the agent's bytes have the digest of its name");
    }
    let told = format!("the agent's bytes have the digest {}…: workers refuse it", &found[..12]);
    bad(told, publish())
}

/// The agent is where workers fetch it, under the name of its digest.
pub(super) fn agent(answer: &Value, _: &Place<'_>) -> Judged {
    let name = short(text(answer, "/name"));
    let is_digest = name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let size = answer.pointer("/size").and_then(|size| size.as_u64().or_else(|| size.as_str()?.parse().ok()));
    match size {
        Some(size) if is_digest && size > 0 => good(format!("sha256 {}…, {:.1} MB", &name[..12], size as f64 / 1e6)),
        _ => bad(format!("{name:?} is no published agent"), publish()),
    }
}

#[cfg(test)]
mod tests;
