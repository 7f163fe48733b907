//! The section `tpu` of a job spec, against the catalogue, the capacity list and the checkpoints' regions.

use std::collections::{BTreeMap, BTreeSet};

use super::reader::{self, Faults, Object, Word, advise, list, quote};
use super::{CapacityKind, CheckpointSpec, NetworkSpec, Queued, TpuSpec};
use crate::catalog::{self, Accelerator};
use crate::placement;
use crate::settings::{CapacityEntry, Deployment};

pub(super) const FIELDS: &[&str] = &[
    "accelerator",
    "zones",
    "capacity",
    "queued",
    "reservation",
    "runtime_version",
    "topology",
    "slices",
    "network",
    "subnetwork",
    "external_ips",
    "service_account",
    "tags",
    "labels",
    "data_disks",
];

const KINDS: [CapacityKind; 4] =
    [CapacityKind::Spot, CapacityKind::Preemptible, CapacityKind::OnDemand, CapacityKind::Reserved];

/// Most slices of one job.
// Far above any multislice run known; bounds the chips and nodes that numbers are made of.
const SLICES_MAX: u64 = 256;

/// The section `tpu`. What is wrong is left out of the answer, and is a fault.
pub(super) fn read(
    top: &Object<'_>,
    (checkpoint, any_region): (&CheckpointSpec, bool),
    deployment: &Deployment,
    faults: &mut Faults,
) -> TpuSpec {
    let mut tpu = TpuSpec {
        accelerators: Vec::new(),
        zones: Vec::new(),
        capacity: vec![CapacityKind::Spot],
        queued: Queued::Auto,
        reservation: None,
        runtime_version: None,
        topology: None,
        slices: 1,
        network: network_default(deployment),
    };
    let Some(value) = top.get("tpu") else {
        faults.add("tpu", "is missing; give at least `tpu: {accelerator: v5litepod-8}`");
        return tpu;
    };
    let Some(object) = Object::open(value, "tpu", FIELDS, faults) else { return tpu };
    let accelerators = accelerators(&object, faults);
    let zones = zones(&object, &accelerators, faults);
    let before = faults.count();
    tpu.capacity = capacity(&object, faults);
    tpu.slices = slices(&object, faults);
    let is_clear = faults.count() == before;
    tpu.queued = queued(&object, tpu.slices, &accelerators, faults);
    tpu.reservation = reservation(&object, &tpu.capacity, faults);
    tpu.runtime_version = runtime_version(&object, &accelerators, faults);
    tpu.topology = topology(&object, &accelerators, faults);
    tpu.network = network(&object, deployment, faults);
    if is_clear {
        let regions = if any_region { None } else { placement::checkpoint_regions(checkpoint, deployment) };
        Places { accelerators: &accelerators, zones: &zones, tpu: &tpu, regions, deployment }.check(faults);
    }
    tpu.accelerators = accelerators.into_iter().map(|(word, _)| word.text).collect();
    tpu.zones = zones.known.into_iter().map(|word| word.text).collect();
    tpu
}

type Known = (Word, &'static Accelerator);

fn accelerators(object: &Object<'_>, faults: &mut Faults) -> Vec<Known> {
    let path = object.at("accelerator");
    if object.get("accelerator").is_none_or(|value| value.as_array().is_some_and(Vec::is_empty)) {
        faults.add(path, "is missing; give one such as v5litepod-8, or several in order of preference");
        return Vec::new();
    }
    let mut known = Vec::new();
    for word in object.words("accelerator", faults) {
        if let Some(accelerator) = catalog::accelerator(&word.text) {
            known.push((word, accelerator));
            continue;
        }
        // Similarity costs time by the square of the length.
        let near = if word.text.len() > 80 { Vec::new() } else { catalog::nearest(&word.text) };
        let advice = match near.as_slice() {
            [] => format!("known families: {}", list(&catalog::families())),
            near => format!("did you mean {}?", near.join(" or ")),
        };
        faults.add(word.path, format!("unknown accelerator {}; {advice}", quote(&word.text)));
    }
    known
}

/// The zones given.
struct Zones {
    known: Vec<Word>,
    /// Whether any was given, right or wrong.
    given: bool,
}

fn zones(object: &Object<'_>, accelerators: &[Known], faults: &mut Faults) -> Zones {
    let all = catalog::zones();
    // Of use are those that have what is asked for.
    let is_of_use = |zone: &str| accelerators.iter().any(|(_, one)| catalog::is_offered(&one.name, zone));
    let of_use: Vec<&str> = all.iter().copied().filter(|zone| accelerators.is_empty() || is_of_use(zone)).collect();
    let mut known = Vec::new();
    let words = object.words("zones", faults);
    let given = object.get("zones").is_some_and(|value| value.as_array().is_none_or(|items| !items.is_empty()));
    for word in words {
        if all.contains(&word.text.as_str()) {
            known.push(word);
            continue;
        }
        let of_region: Vec<&str> =
            of_use.iter().copied().filter(|zone| catalog::region_of(zone) == word.text).collect();
        let advice = if of_region.is_empty() {
            near_or_known(&word.text, &of_use)
        } else {
            format!("it is a region, with the zones {}", list(&of_region))
        };
        faults.add(word.path, format!("unknown zone {}; {advice}", quote(&word.text)));
    }
    Zones { known, given }
}

/// The zone that was mistyped, or those that there are. All zones are alike: beyond two slips another one was meant, and none of
/// another continent.
fn near_or_known(text: &str, zones: &[&str]) -> String {
    const SLIPS_MAX: usize = 2;
    const LEN_MAX: usize = 40;
    let text = text.trim().to_ascii_lowercase();
    let continent = |zone: &str| zone.split('-').next().unwrap_or_default().to_owned();
    let near = zones.iter().filter(|zone| text.len() <= LEN_MAX && continent(zone) == continent(&text));
    let near = near.map(|zone| (strsim::osa_distance(&text, zone), *zone)).filter(|(slips, _)| *slips <= SLIPS_MAX);
    match near.min_by_key(|(slips, _)| *slips) {
        Some((_, near)) => format!("did you mean `{near}`?"),
        None => format!("known here: {}", list(zones)),
    }
}

fn capacity(object: &Object<'_>, faults: &mut Faults) -> Vec<CapacityKind> {
    let Some(value) = object.get("capacity") else { return vec![CapacityKind::Spot] };
    let path = object.at("capacity");
    let names = KINDS.map(CapacityKind::as_str);
    let mut kinds = Vec::new();
    for word in reader::words(value, &path, faults) {
        match KINDS.into_iter().find(|kind| kind.as_str() == word.text) {
            Some(kind) => kinds.push(kind),
            None if word.text == "flex_start" => {
                let advice = format!("use {}", names.join(", "));
                faults.add(word.path, format!("this version of Rekindle does not build `flex_start` yet; {advice}"));
            }
            None => {
                let advice = advise(&word.text, &names);
                faults.add(word.path, format!("{} is no kind of capacity; {advice}", quote(&word.text)));
            }
        }
    }
    if value.as_array().is_some_and(Vec::is_empty) {
        faults.add(path, format!("is empty; give at least one of {}", names.join(", ")));
    }
    kinds
}

fn slices(object: &Object<'_>, faults: &mut Faults) -> u32 {
    let number = object.get("slices").and_then(|value| reader::integer(value, "tpu.slices", &(1..=SLICES_MAX), faults));
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(1)
}

fn queued(object: &Object<'_>, slices: u32, accelerators: &[Known], faults: &mut Faults) -> Queued {
    let names = ["auto", "always", "never"];
    let queued = match object.text("queued", faults).as_deref() {
        None | Some("auto") => Queued::Auto,
        Some("always") => Queued::Always,
        Some("never") => Queued::Never,
        Some(other) => {
            faults.add(object.at("queued"), format!("{} is none of the ways; {}", quote(other), advise(other, &names)));
            return Queued::Auto;
        }
    };
    if slices > 1 && queued == Queued::Never {
        faults.add(object.at("queued"), "several slices come by a queued resource only; write auto, or slices: 1");
    }
    let names_reservation = object.get("reservation").is_some();
    if names_reservation && queued == Queued::Never {
        let message = "only a queued resource names a `tpu.reservation`; write auto, or leave the reservation out";
        faults.add(object.at("queued"), message);
    }
    if slices > 1 || queued == Queued::Always || names_reservation {
        for (word, accelerator) in accelerators {
            if !catalog::queueing_supported(&accelerator.name) {
                let message = "cannot be asked for by a queued resource, which several slices, a reservation and \
                               `queued: always` need";
                faults.add(word.path.clone(), format!("{} {message}", accelerator.name));
            }
        }
    }
    queued
}

fn reservation(object: &Object<'_>, capacity: &[CapacityKind], faults: &mut Faults) -> Option<String> {
    let path = object.at("reservation");
    let Some(name) = object.text("reservation", faults) else {
        if capacity.contains(&CapacityKind::Reserved) && object.get("reservation").is_none() {
            faults.add(path, "is missing; reserved capacity is bought by the name of its reservation");
        }
        return None;
    };
    if !capacity.contains(&CapacityKind::Reserved) {
        faults.add(path, "is of use with reserved capacity only; add reserved to `tpu.capacity`");
    } else if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        faults.add(path, format!("{} is no name of a reservation", quote(&name)));
    }
    Some(name)
}

fn runtime_version(object: &Object<'_>, accelerators: &[Known], faults: &mut Faults) -> Option<String> {
    let version = object.text("runtime_version", faults)?;
    let path = object.at("runtime_version");
    if !catalog::runtime_exists(&version) {
        let advice = advise(&version, &catalog::runtime_versions());
        faults.add(path, format!("unknown runtime version {}; {advice}", quote(&version)));
        return None;
    }
    for (_, accelerator) in accelerators {
        if !catalog::runtime_fits(&accelerator.name, &version) {
            let right = catalog::default_runtime(&accelerator.name);
            let message = format!("{version} does not drive {}; leave it out, or write {right}", accelerator.name);
            faults.add(path.clone(), message);
        }
    }
    Some(version)
}

/// Another topology than the usual one must have as many sides and as many chips.
fn topology(object: &Object<'_>, accelerators: &[Known], faults: &mut Faults) -> Option<String> {
    let topology = object.text("topology", faults)?;
    let path = object.at("topology");
    let sides = catalog::sides(&topology).filter(|_| topology.len() <= 20);
    let product = |sides: &[u32]| sides.iter().try_fold(1_u32, |product, side| product.checked_mul(*side));
    let Some((sides, product)) = sides.and_then(|sides| product(&sides).map(|product| (sides, product))) else {
        faults.add(path, format!("{} is no topology; write the chips along each side, as 4x4", quote(&topology)));
        return None;
    };
    for (_, accelerator) in accelerators {
        let usual = &accelerator.topology;
        if product != accelerator.chips || usual.split('x').count() != sides.len() {
            let message = format!("{topology} is not of {}, which has {} chips", accelerator.name, accelerator.chips);
            faults.add(path.clone(), format!("{message}; leave it out, or write {usual}"));
        }
    }
    // As the API writes it back.
    Some(sides.iter().map(u32::to_string).collect::<Vec<_>>().join("x"))
}

/// The network of a job that names none.
fn network_default(deployment: &Deployment) -> NetworkSpec {
    let own = deployment.worker_network.as_ref();
    NetworkSpec {
        network: own.map_or_else(|| "default".into(), |own| own.network.clone()),
        subnetwork: own.and_then(|own| own.subnetwork.clone()),
        external_ips: own.is_none(),
        service_account: None,
        tags: Vec::new(),
        labels: BTreeMap::new(),
    }
}

fn network(object: &Object<'_>, deployment: &Deployment, faults: &mut Faults) -> NetworkSpec {
    let mut network = network_default(deployment);
    match object.get("network") {
        None => {}
        Some(value) if value.is_object() => {
            let beside = "subnetwork, external_ips, service_account, tags and labels stand beside it under `tpu`";
            faults.add(object.at("network"), format!("must be the network's name; {beside}"));
        }
        Some(_) => {
            network.network = resource_name(object, "network", faults).unwrap_or(network.network);
            // The deployment's subnetwork is of the deployment's network.
            network.subnetwork = None;
        }
    }
    network.subnetwork = resource_name(object, "subnetwork", faults).or(network.subnetwork);
    network.service_account = resource_name(object, "service_account", faults);
    // Networks made by hand usually have no route out but by NAT, and addresses have a quota.
    network.external_ips = network.network == "default";
    match object.get("external_ips") {
        None => {}
        Some(value) => match value.as_bool() {
            Some(wanted) => network.external_ips = wanted,
            None => faults.add(object.at("external_ips"), "must be true or false"),
        },
    }
    for word in object.words("tags", faults) {
        if !is_tag(&word.text) {
            let form = "^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$";
            faults.add(word.path, format!("{} is no network tag ({form})", quote(&word.text)));
        }
        network.tags.push(word.text);
    }
    network.labels = labels(object, faults);
    if object.get("data_disks").is_some_and(|value| value.as_array().is_none_or(|disks| !disks.is_empty())) {
        let advice = "leave it out and read the data from a bucket";
        let message = format!("this version of Rekindle does not build `data_disks` yet; {advice}");
        faults.add(object.at("data_disks"), message);
    }
    network
}

fn resource_name(object: &Object<'_>, field: &str, faults: &mut Faults) -> Option<String> {
    let name = object.text(field, faults)?;
    if name.chars().any(|c| c.is_whitespace() || c.is_control()) || name.len() > 500 {
        faults.add(object.at(field), format!("{} is no name of a resource", quote(&name)));
        return None;
    }
    Some(name)
}

fn is_tag(text: &str) -> bool {
    let bytes = text.as_bytes();
    let body = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    bytes.len() <= 63
        && bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes.iter().all(body)
        && !text.ends_with('-')
}

fn labels(object: &Object<'_>, faults: &mut Faults) -> BTreeMap<String, String> {
    // The API takes 64; the rest is ours.
    const LABELS_MAX: usize = 56;
    let mut labels = BTreeMap::new();
    let Some(value) = object.get("labels") else { return labels };
    let path = object.at("labels");
    let Some(map) = value.as_object() else {
        faults.add(path, format!("must be an object of keys and texts; it is {}", reader::sort_of(value)));
        return labels;
    };
    let body = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    for (key, value) in map {
        let path = format!("{path}.{key}");
        let good_key = key.len() <= 63 && key.starts_with(|c: char| c.is_ascii_lowercase()) && key.bytes().all(body);
        match value.as_str() {
            _ if key.starts_with("rekindle") => faults.add(path, "keys with `rekindle` are Rekindle's; use another"),
            _ if !good_key => faults.add(path, "is no label key (^[a-z][a-z0-9_-]{0,62}$)"),
            Some(text) if text.len() <= 63 && text.bytes().all(body) => {
                labels.insert(key.clone(), text.to_owned());
            }
            Some(text) => faults.add(path, format!("{} is no label value ([a-z0-9_-]{{0,63}})", quote(text))),
            None => faults.add(path, format!("must be text; it is {}", reader::sort_of(value))),
        }
    }
    if map.len() > LABELS_MAX {
        faults.add(path, format!("has {} labels; at most {LABELS_MAX} are allowed", map.len()));
    }
    labels
}

/// Whether each accelerator can be had somewhere.
struct Places<'a> {
    accelerators: &'a [Known],
    zones: &'a Zones,
    tpu: &'a TpuSpec,
    /// Those of the checkpoints; `None`: all.
    regions: Option<Vec<String>>,
    deployment: &'a Deployment,
}

impl Places<'_> {
    fn check(&self, faults: &mut Faults) {
        let regions = &self.regions;
        let is_near = |zone: &str| regions.as_ref().is_none_or(|regions| placement::is_in_regions(zone, regions));
        for word in &self.zones.known {
            if !is_near(&word.text) {
                let regions = list(regions.as_deref().unwrap_or_default());
                let message = format!("{} is outside the regions of the checkpoint bucket ({regions})", word.text);
                faults.add(
                    word.path.clone(),
                    format!("{message}; take a zone there, another `checkpoint`, or regions: any"),
                );
            }
        }
        // With a wrong zone among them, the zones that were meant are not known.
        let meant: Vec<&str> = self.zones.known.iter().map(|word| word.text.as_str()).collect();
        if self.zones.given && meant.is_empty() {
            return;
        }
        for (word, accelerator) in self.accelerators {
            let mut offered = catalog::zones_offering(&accelerator.name);
            let everywhere = list(&offered);
            offered.retain(|zone| !self.zones.given || meant.contains(zone));
            if offered.is_empty() {
                let message = format!("{} is not offered in any zone given", accelerator.name);
                faults.add(
                    word.path.clone(),
                    format!(
                        "{message}; it is offered in {everywhere}: name one of these in `zones`, or leave `zones` out"
                    ),
                );
                continue;
            }
            let near: Vec<&str> = offered.into_iter().filter(|zone| is_near(zone)).collect();
            if near.is_empty() && self.zones.given {
                continue;
            }
            if near.is_empty() {
                let regions = list(regions.as_deref().unwrap_or_default());
                let message = format!("{} is offered in no region of the checkpoint bucket", accelerator.name);
                faults.add(word.path.clone(), format!("{message} ({regions}); it is offered in {everywhere}"));
                continue;
            }
            if let Some(message) = self.not_listed(accelerator, &near) {
                faults.add(word.path.clone(), message);
            }
        }
    }

    /// Why the capacity list has no entry for an accelerator; `None` if it has one.
    fn not_listed(&self, accelerator: &Accelerator, zones: &[&str]) -> Option<String> {
        let chips = accelerator.chips.saturating_mul(self.tpu.slices);
        let has = |kind: CapacityKind, zone: &str, chips: u32| {
            placement::entry_for(self.deployment, kind, &accelerator.name, zone, chips).is_some()
        };
        let any = |kinds: &[CapacityKind], zones: &[&str], chips: u32| {
            kinds.iter().any(|kind| zones.iter().any(|zone| has(*kind, zone, chips)))
        };
        if any(&self.tpu.capacity, zones, chips) {
            return None;
        }
        let name = &accelerator.name;
        if any(&self.tpu.capacity, zones, 0) {
            let slices = placement::slices(self.tpu.slices);
            return Some(format!(
                "{slices} of {name} are {chips} chips, more than the capacity list allows at once; \
                 take fewer slices or a smaller type"
            ));
        }
        let asked = self.tpu.capacity.iter().map(|kind| kind.as_str()).collect::<Vec<&str>>().join(", ");
        let other: Vec<&str> =
            KINDS.into_iter().filter(|kind| any(&[*kind], zones, 0)).map(CapacityKind::as_str).collect();
        if !other.is_empty() {
            let message = format!("the deployment's capacity list does not have {name} as {asked}");
            return Some(format!("{message}; it has it as {} (tpu.capacity)", other.join(", ")));
        }
        let offering = catalog::zones_offering(name);
        let elsewhere: Vec<&str> = offering.into_iter().filter(|zone| any(&self.tpu.capacity, &[zone], 0)).collect();
        if !elsewhere.is_empty() {
            let message = format!("the deployment's capacity list does not have {name} in {}", list(zones));
            let regions = self.regions.as_deref().unwrap_or_default();
            let is_near = |zone: &&str| self.regions.is_none() || placement::is_in_regions(zone, regions);
            if elsewhere.iter().any(is_near) {
                return Some(format!("{message}; it has it in {}", list(&elsewhere)));
            }
            let far = format!("outside the regions of the checkpoint bucket ({})", list(regions));
            return Some(format!("{message}; it has it only in {}, {far}", list(&elsewhere)));
        }
        let covers = |entry: &&CapacityEntry| placement::covers_accelerator(&entry.accelerator, name);
        let nowhere: BTreeSet<&str> =
            self.deployment.capacity.iter().filter(covers).map(|entry| entry.zone.as_str()).collect();
        if !nowhere.is_empty() {
            let nowhere: Vec<&str> = nowhere.into_iter().collect();
            let message = format!("the deployment's capacity list has {name} only in {}, which", list(&nowhere));
            return Some(format!(
                "{message} does not offer it; it is offered in {}",
                list(&catalog::zones_offering(name))
            ));
        }
        let mut listed: Vec<&str> = self.deployment.capacity.iter().map(|entry| entry.accelerator.as_str()).collect();
        listed.sort_unstable();
        listed.dedup();
        let listed = if listed.is_empty() { "nothing".to_owned() } else { list(&listed) };
        Some(format!("{name} is not in the deployment's capacity list, which has {listed}"))
    }
}
