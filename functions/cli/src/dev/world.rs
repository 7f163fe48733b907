//! What the local deployment allows and how fast it is: everything of the catalogue, at the catalogue's prices.

use std::collections::BTreeMap;

use rekindle_core::catalog;
use rekindle_core::ids::InstallationId;
use rekindle_core::settings::{CapacityEntry, Deployment};
use rekindle_core::spec::CapacityKind;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{Installation, Store, StoreError};
use rekindle_ports::world::{Clock, Ids};

use super::places::Places;
use crate::fault::{Fault, Result};

/// Project of the emulated cloud.
pub(crate) const PROJECT: &str = "rekindle-dev";

/// Every way to buy that this version builds.
const KINDS: [CapacityKind; 4] =
    [CapacityKind::Spot, CapacityKind::Preemptible, CapacityKind::OnDemand, CapacityKind::Reserved];

/// US dollars for a chip-hour where the catalogue knows no price: not the cheapest, and not for nothing.
const UNKNOWN_PRICE: f64 = 5.0;

/// Letters and digits of an installation id; it begins with a letter.
const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";
const CHARACTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// The deployment: everything that the emulated zones offer.
pub(crate) fn deployment(places: &Places, api_url: &str, metadata: BTreeMap<String, String>) -> Deployment {
    Deployment {
        capacity: capacity(),
        max_chips: None,
        max_usd_per_day: None,
        bucket: format!("file://{}", places.bucket().display()),
        bucket_regions: Vec::new(),
        api_url: api_url.to_owned(),
        worker_service_account: None,
        startup_script: Some(rekindle_agent::STARTUP_SCRIPT.to_owned()),
        worker_metadata: metadata,
    }
}

fn capacity() -> Vec<CapacityEntry> {
    let mut entries = Vec::new();
    for accelerator in catalog::accelerators() {
        for zone in catalog::zones_offering(&accelerator.name) {
            entries.extend(KINDS.map(|kind| CapacityEntry {
                accelerator: accelerator.name.clone(),
                zone: zone.to_owned(),
                kind,
                max_chips: None,
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

/// The installation document: read, or made once. Two that start at once agree, since only one write takes place.
pub(crate) async fn installation(store: &Store, clock: &dyn Clock, ids: &dyn Ids) -> Result<Installation> {
    let fault = |error: &StoreError| Fault::unexpected("cannot read the installation document").caused_by(error);
    for _ in 0..3 {
        if let Some(at) = store.read::<Installation>(&Kind::Installation).await.map_err(|error| fault(&error))? {
            return Ok(at.value);
        }
        let made = Installation { id: new_id(ids)?, secret: secret(ids), born_at: clock.now() };
        match store.write(&Kind::Installation, &made, Precondition::Absent).await {
            Ok(_) => return Ok(made),
            Err(StoreError::Conflict(_) | StoreError::Unclear(_)) => {}
            Err(error) => return Err(fault(&error)),
        }
    }
    Err(Fault::unexpected("the installation document can neither be read nor made"))
}

fn secret(ids: &dyn Ids) -> String {
    format!("{:032x}{:032x}", ids.random(), ids.random())
}

fn new_id(ids: &dyn Ids) -> Result<InstallationId> {
    let mut bits = ids.random();
    let mut draw = |from: &[u8]| {
        let index = bits % from.len() as u128;
        bits /= from.len() as u128;
        char::from(from[index as usize])
    };
    let mut text = String::from(draw(LETTERS));
    while text.len() < InstallationId::LEN {
        text.push(draw(CHARACTERS));
    }
    InstallationId::parse(&text).map_err(|error| Fault::unexpected("no installation id").caused_by(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u128);

    impl Ids for Fixed {
        fn random(&self) -> u128 {
            self.0
        }
    }

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

    #[test]
    fn installation_ids_are_well_formed_whatever_is_drawn() {
        for bits in [0, 1, 25, 26, u128::MAX, u128::MAX / 3] {
            assert_eq!(new_id(&Fixed(bits)).unwrap().as_str().len(), InstallationId::LEN, "{bits}");
        }
        assert_eq!(secret(&Fixed(7)).len(), 64);
    }
}
