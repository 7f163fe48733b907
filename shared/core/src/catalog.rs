//! Accelerators, zones, prices and runtime versions of the Cloud TPU API.
//!
//! Owns the embedded tables and every question asked about them; knows nothing of jobs or of what is granted to a
//! deployment. The manager checks submitted jobs against it, the emulator offers what it lists.
//! Sources of the tables: Google's documentation of the TPU generations, regions and runtimes, and the public
//! SkyPilot price catalogue (US dollars; spot prices move monthly).

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

#[cfg(test)]
mod tests;

/// One accelerator type, such as `v5litepod-16`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accelerator {
    /// The `acceleratorType` of the API.
    pub name: String,
    /// The part before the last dash: `v2`, `v3`, `v4`, `v5litepod`, `v5p` or `v6e`.
    pub family: String,
    /// `acceleratorConfig.type` of the API: `V5LITE_POD`.
    pub api_type: String,
    /// `acceleratorConfig.topology`: chips along each side, `4x4`.
    pub topology: String,
    /// Chips of the whole slice.
    pub chips: u32,
    /// Worker VMs of the slice.
    pub workers: u32,
    /// Chips of each worker VM.
    pub chips_per_worker: u32,
}

impl Accelerator {
    /// Whether the slice spans more than one worker VM.
    pub fn is_multi_host(&self) -> bool {
        self.workers > 1
    }
}

/// Which sizes of a family a zone offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sizes {
    All,
    SingleHost,
    Pods,
}

use Sizes::{All, Pods, SingleHost};

/// Zone, family, sizes.
const OFFERS: &[(&str, &str, Sizes)] = &[
    ("asia-east1-c", "v2", SingleHost),
    ("asia-northeast1-b", "v6e", All),
    ("asia-southeast1-b", "v5litepod", All),
    ("europe-west4-a", "v2", All),
    ("europe-west4-a", "v3", All),
    ("europe-west4-a", "v5litepod", All),
    ("europe-west4-a", "v6e", All),
    ("europe-west4-b", "v5litepod", All),
    ("europe-west4-b", "v5p", All),
    ("southamerica-west1-a", "v6e", All),
    ("us-central1-a", "v2", Pods),
    ("us-central1-a", "v3", SingleHost),
    ("us-central1-a", "v5litepod", All),
    ("us-central1-a", "v5p", All),
    ("us-central1-b", "v2", SingleHost),
    ("us-central1-b", "v3", SingleHost),
    ("us-central1-b", "v6e", All),
    ("us-central1-c", "v2", SingleHost),
    ("us-central1-f", "v2", SingleHost),
    ("us-central2-b", "v4", All),
    ("us-east1-d", "v3", Pods),
    ("us-east1-d", "v6e", All),
    ("us-east5-a", "v5p", All),
    ("us-east5-a", "v6e", All),
    ("us-east5-b", "v6e", All),
    ("us-south1-a", "v5litepod", All),
    ("us-south1-ai1b", "v6e", All),
    ("us-west1-c", "v5litepod", All),
    ("us-west4-a", "v5litepod", All),
];

/// Region, family, on-demand and spot price in US dollars for one chip and hour.
const PRICES: &[(&str, &str, f64, f64)] = &[
    ("asia-east1", "v2", 1.305, 0.3915),
    ("asia-east1", "v5litepod", 1.389, 0.556),
    ("asia-northeast1", "v5litepod", 1.541, 0.424),
    ("asia-northeast1", "v6e", 3.24, 0.944),
    ("asia-south1", "v6e", 3.24, 2.27),
    ("asia-southeast1", "v5litepod", 1.56, 0.78),
    ("asia-southeast1", "v6e", 2.97, 0.363),
    ("europe-west1", "v5litepod", 1.321, 0.529),
    ("europe-west1", "v5p", 4.4595, 1.784),
    ("europe-west4", "v2", 1.2375, 0.3155),
    ("europe-west4", "v3", 2.20, 0.561),
    ("europe-west4", "v5litepod", 1.56, 0.445),
    ("europe-west4", "v5p", 4.2525, 1.348),
    ("europe-west4", "v6e", 2.97, 1.037),
    ("us-central1", "v2", 1.125, 0.3375),
    ("us-central1", "v3", 2.00, 0.51),
    ("us-central1", "v5litepod", 1.20, 0.245),
    ("us-central1", "v5p", 4.20, 0.836),
    ("us-central1", "v6e", 2.70, 0.544),
    ("us-central2", "v4", 3.22, 0.9215),
    ("us-east1", "v5litepod", 1.20, 0.245),
    ("us-east1", "v5p", 4.20, 0.836),
    ("us-east1", "v6e", 2.70, 0.544),
    ("us-east4", "v5litepod", 1.20, 0.60),
    ("us-east4", "v6e", 2.70, 0.578),
    ("us-east5", "v5litepod", 1.20, 0.60),
    ("us-east5", "v5p", 4.20, 1.68),
    ("us-east5", "v6e", 2.70, 1.215),
    ("us-south1", "v5litepod", 1.416, 0.566),
    ("us-south1", "v5p", 4.779, 1.316),
    ("us-south1", "v6e", 2.70, 1.35),
    ("us-west1", "v5litepod", 1.20, 0.245),
    ("us-west1", "v6e", 2.70, 0.544),
    ("us-west4", "v5litepod", 1.20, 0.48),
];

/// Family, on-demand and spot price of multi-host slices, where they differ from single hosts (any region).
const POD_PRICES: &[(&str, f64, f64)] = &[("v2", 1.50, 0.3825), ("v3", 2.00, 0.66)];

/// Operating-system images: the families each one drives. Another image boots, but finds no TPU.
const IMAGES: &[(&str, &[&str])] = &[
    ("tpu-ubuntu2204-base", &["v2", "v3", "v4"]),
    ("v2-alpha-tpuv5", &["v5p"]),
    ("v2-alpha-tpuv5-lite", &["v5litepod"]),
    ("v2-alpha-tpuv6e", &["v6e"]),
];

/// TensorFlow images that are listed; others of the form `tpu-vm-tf-X.Y.Z[-pod][-pjrt|-se]` are accepted too.
const TF_IMAGES: &[&str] = &["tpu-vm-tf-2.17.0-pjrt", "tpu-vm-tf-2.17.0-pod-pjrt"];

static ACCELERATORS: LazyLock<Vec<Accelerator>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("catalog/accelerators.json")).expect("the embedded table parses: see its test")
});

/// Every accelerator type, family by family, smallest first.
pub fn accelerators() -> &'static [Accelerator] {
    &ACCELERATORS
}

/// The accelerator type of this exact name.
pub fn accelerator(name: &str) -> Option<&'static Accelerator> {
    ACCELERATORS.iter().find(|accelerator| accelerator.name == name)
}

/// The accelerator type with this `acceleratorConfig` (`V4`, `2x2x4`).
pub fn by_config(api_type: &str, topology: &str) -> Option<&'static Accelerator> {
    let sides = sides(topology)?;
    let is_it =
        |known: &&Accelerator| known.api_type == api_type && self::sides(&known.topology).as_ref() == Some(&sides);
    ACCELERATORS.iter().find(is_it)
}

/// The chips along each side of a topology as `4x4`, which may be written with leading zeros; `None`: it is none.
pub fn sides(topology: &str) -> Option<Vec<u32>> {
    let digits = |side: &&str| side.bytes().all(|byte| byte.is_ascii_digit());
    let side = |side: &str| Some(side).filter(digits).and_then(|side| side.parse().ok()).filter(|side| *side > 0);
    topology.split('x').map(side).collect()
}

/// Names of the families, oldest first.
pub fn families() -> Vec<&'static str> {
    let mut families: Vec<&str> = ACCELERATORS.iter().map(|accelerator| accelerator.family.as_str()).collect();
    families.dedup();
    families
}

/// Every zone that offers a TPU, sorted by name.
pub fn zones() -> Vec<&'static str> {
    let mut zones: Vec<&str> = OFFERS.iter().map(|(zone, ..)| *zone).collect();
    zones.dedup();
    zones
}

/// Whether a zone offers this accelerator at all (says nothing of capacity). False for unknown names.
pub fn is_offered(accelerator_name: &str, zone: &str) -> bool {
    zones_offering(accelerator_name).contains(&zone)
}

/// The zones that offer this accelerator, sorted. Empty for an unknown name.
pub fn zones_offering(accelerator_name: &str) -> Vec<&'static str> {
    let Some(wanted) = accelerator(accelerator_name) else {
        return Vec::new();
    };
    let fits = |sizes: Sizes| match sizes {
        All => true,
        SingleHost => !wanted.is_multi_host(),
        Pods => wanted.is_multi_host(),
    };
    OFFERS
        .iter()
        .filter(|(_, family, sizes)| *family == wanted.family && fits(*sizes))
        .map(|(zone, ..)| *zone)
        .collect()
}

/// The accelerator types that a zone offers.
pub fn accelerators_in(zone: &str) -> Vec<&'static Accelerator> {
    ACCELERATORS.iter().filter(|accelerator| is_offered(&accelerator.name, zone)).collect()
}

/// The region of a zone: the name without its last part (`us-south1-ai1b` is in `us-south1`).
pub fn region_of(zone: &str) -> &str {
    zone.rsplit_once('-').map_or(zone, |(region, _)| region)
}

/// US dollars for one chip and hour in a region, for single hosts where pods cost something else.
/// `None` where no price is known (a price does not mean that a zone offers it).
pub fn price_per_chip_hour(family: &str, region: &str, spot: bool) -> Option<f64> {
    let found = PRICES.iter().find(|(a_region, a_family, ..)| *a_region == region && *a_family == family);
    found.map(|(.., on_demand, spot_price)| if spot { *spot_price } else { *on_demand })
}

/// US dollars for one chip and hour of this accelerator in this zone, with the price of pods for multi-host slices.
pub fn price_in_zone(accelerator_name: &str, zone: &str, spot: bool) -> Option<f64> {
    let wanted = accelerator(accelerator_name)?;
    let pod = POD_PRICES.iter().find(|(family, ..)| wanted.is_multi_host() && *family == wanted.family);
    match pod {
        Some((_, on_demand, spot_price)) => {
            is_offered(accelerator_name, zone).then_some(if spot { *spot_price } else { *on_demand })
        }
        None => price_per_chip_hour(&wanted.family, region_of(zone), spot),
    }
}

/// The runtime version for an accelerator when none is asked for. The one of v4 and older for an unknown name.
pub fn default_runtime(accelerator_name: &str) -> &'static str {
    let family = accelerator(accelerator_name).map_or("", |accelerator| accelerator.family.as_str());
    IMAGES.iter().find(|(_, families)| families.contains(&family)).map_or(IMAGES[0].0, |(version, _)| *version)
}

/// The runtime versions that every zone lists.
pub fn runtime_versions() -> Vec<&'static str> {
    IMAGES.iter().map(|(version, _)| *version).chain(TF_IMAGES.iter().copied()).collect()
}

/// Whether the API knows this runtime version at all.
pub fn runtime_exists(version: &str) -> bool {
    IMAGES.iter().any(|(image, _)| *image == version) || is_tensorflow_image(version)
}

/// Whether this runtime version drives this accelerator: the API accepts a wrong pair, and the program then finds
/// no TPU. False for unknown names.
pub fn runtime_fits(accelerator_name: &str, version: &str) -> bool {
    let Some(wanted) = accelerator(accelerator_name) else {
        return false;
    };
    match IMAGES.iter().find(|(image, _)| *image == version) {
        Some((_, families)) => families.contains(&wanted.family.as_str()),
        None => is_tensorflow_image(version) && version.contains("-pod") == wanted.is_multi_host(),
    }
}

/// `tpu-vm-tf-X.Y.Z[-pod][-pjrt|-se]`.
fn is_tensorflow_image(version: &str) -> bool {
    let Some(rest) = version.strip_prefix("tpu-vm-tf-") else {
        return false;
    };
    let rest = rest.strip_suffix("-pjrt").or_else(|| rest.strip_suffix("-se")).unwrap_or(rest);
    let numbers = rest.strip_suffix("-pod").unwrap_or(rest);
    let parts: Vec<&str> = numbers.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether the API queues requests for this accelerator (it refuses one single type). False for an unknown name.
pub fn queueing_supported(accelerator_name: &str) -> bool {
    accelerator(accelerator_name).is_some() && accelerator_name != "v5litepod-1"
}

/// What a person who wrote an unknown accelerator name probably meant: `v5litepod-16` for `v5e-16`, the next sizes
/// of the family for `v4-24`, else the most similar name. At most two, best first.
pub fn nearest(name: &str) -> Vec<&'static str> {
    let lower = name.trim().to_ascii_lowercase();
    let (family, size) = lower.rsplit_once('-').map_or((lower.as_str(), ""), |(family, size)| (family, size));
    let family = match family {
        "v5e" | "v5lite" | "v5-lite" | "v5litepod" => "v5litepod",
        "trillium" | "v6" => "v6e",
        "v5" => "v5p",
        other => other,
    };
    let mut sizes: Vec<(u64, &'static str)> = Vec::new();
    let wanted = size.parse::<u64>().unwrap_or(0);
    for accelerator in ACCELERATORS.iter().filter(|accelerator| accelerator.family == family) {
        let number = accelerator.name.rsplit_once('-').and_then(|(_, size)| size.parse::<u64>().ok()).unwrap_or(0);
        sizes.push((number.abs_diff(wanted), &accelerator.name));
    }
    sizes.sort_by_key(|(distance, _)| *distance);
    match sizes.first() {
        Some((0, exact)) => vec![*exact],
        Some(_) => sizes.into_iter().take(2).map(|(_, name)| name).collect(),
        None => most_similar(&lower).into_iter().collect(),
    }
}

fn most_similar(name: &str) -> Option<&'static str> {
    // Below this a suggestion is noise: `gpu-a100` is similar to nothing here.
    const LEAST: f64 = 0.7;
    let scored = ACCELERATORS.iter().map(|accelerator| (strsim::jaro_winkler(name, &accelerator.name), accelerator));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= LEAST).then_some(best.1.name.as_str())
}
