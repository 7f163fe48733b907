//! What the local deployment allows and how fast it is: everything of the catalogue, at the catalogue's prices.

use std::collections::BTreeMap;

use rekindle_core::access::Access;
use rekindle_core::catalog;
use rekindle_core::settings::{CapacityEntry, Deployment};
use rekindle_core::spec::CapacityKind;

use super::places::Places;

/// Project of the emulated cloud.
pub(crate) const PROJECT: &str = "rekindle-dev";

/// Every way to buy that this version builds.
const KINDS: [CapacityKind; 4] =
    [CapacityKind::Spot, CapacityKind::Preemptible, CapacityKind::OnDemand, CapacityKind::Reserved];

/// US dollars for a chip-hour where the catalogue knows no price: not the cheapest, and not for nothing.
const UNKNOWN_PRICE: f64 = 5.0;

/// Most chips of one entry at a time. Each worker is several processes of this machine: a job that is too large for it
/// is refused when it is submitted.
const MAX_CHIPS: u32 = 1024;

/// The deployment: everything that the emulated zones offer.
pub(crate) fn deployment(places: &Places, api_url: &str, metadata: BTreeMap<String, String>) -> Deployment {
    Deployment {
        capacity: capacity(),
        max_chips: None,
        max_usd_per_day: None,
        owners: BTreeMap::new(),
        access: access(),
        bucket: format!("file://{}", places.bucket().display()),
        bucket_regions: Vec::new(),
        api_url: api_url.to_owned(),
        worker_service_account: None,
        worker_network: None,
        startup_script: Some(rekindle_agent::STARTUP_SCRIPT.to_owned()),
        worker_metadata: metadata,
    }
}

/// Names what stands in for Secret Manager, for agents too.
pub(super) const SECRET_MANAGER: &str = "SECRET_MANAGER_EMULATOR_HOST";

/// What stands in for Secret Manager, HOST:PORT; none as a rule.
pub(super) fn secret_manager() -> Option<String> {
    std::env::var(SECRET_MANAGER).ok().filter(|host| !host.is_empty())
}

/// Everyone may do everything; secrets are lent where workers find something that has them.
fn access() -> Access {
    let mut access = Access::open();
    if secret_manager().is_none() {
        for borrow in access.borrow.values_mut() {
            borrow.secrets.clear();
        }
    }
    access
}

fn capacity() -> Vec<CapacityEntry> {
    let mut entries = Vec::new();
    for accelerator in catalog::accelerators() {
        for zone in catalog::zones_offering(&accelerator.name) {
            entries.extend(KINDS.map(|kind| CapacityEntry {
                accelerator: accelerator.name.clone(),
                zone: zone.to_owned(),
                kind,
                max_chips: Some(MAX_CHIPS),
                usd_per_chip_hour: price(&accelerator.name, zone, kind),
            }));
        }
    }
    // A job that names no zone gets the first of the list: the cheapest of its accelerator, then by name.
    let spot = |entry: &CapacityEntry| price(&entry.accelerator, &entry.zone, CapacityKind::Spot);
    entries.sort_by(|a, b| spot(a).total_cmp(&spot(b)).then_with(|| a.zone.cmp(&b.zone)));
    entries
}

/// Reserved capacity is paid for whether it is used or not.
fn price(accelerator: &str, zone: &str, kind: CapacityKind) -> f64 {
    if kind == CapacityKind::Reserved {
        return 0.0;
    }
    catalog::price_in_zone(accelerator, zone, kind.is_preemptible()).unwrap_or(UNKNOWN_PRICE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offer_of_the_catalogue_is_allowed() {
        let capacity = capacity();
        for accelerator in catalog::accelerators() {
            let zones = catalog::zones_offering(&accelerator.name);
            let found = capacity.iter().filter(|entry| entry.accelerator == accelerator.name).count();
            assert_eq!(found, zones.len() * KINDS.len(), "{}", accelerator.name);
        }
        assert!(capacity.iter().any(|entry| entry.usd_per_chip_hour > 0.0));
    }
}
