//! `GET /v1/catalog`: what there is, and what of it this deployment allows.

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;

use rekindle_core::catalog as table;
use rekindle_core::placement;
use rekindle_core::spec::CapacityKind;
use rekindle_web::{NoQuery, Query, etag};
use rekindle_wire::v1::{Catalog, CatalogEntry, CatalogZone};

use crate::Api;

/// Accelerators, chips, workers, zones, prices, runtime versions.
pub(crate) async fn catalog(State(api): State<Api>, headers: HeaderMap, _: Query<NoQuery>) -> Response {
    let zone = |accelerator: &str, zone: &str| CatalogZone {
        zone: zone.to_owned(),
        allowed: allowed(&api, accelerator, zone),
        usd_per_chip_hour: table::price_in_zone(accelerator, zone, false),
        spot_usd_per_chip_hour: table::price_in_zone(accelerator, zone, true),
    };
    let accelerators = table::accelerators()
        .iter()
        .map(|a| CatalogEntry {
            accelerator: a.name.clone(),
            family: a.family.clone(),
            topology: a.topology.clone(),
            chips: a.chips,
            workers: a.workers,
            zones: table::zones_offering(&a.name).into_iter().map(|z| zone(&a.name, z)).collect(),
            runtime_version: table::default_runtime(&a.name).to_owned(),
        })
        .collect();
    let runtime_versions = table::runtime_versions().into_iter().map(str::to_owned).collect();
    etag::json(&headers, &Catalog { accelerators, runtime_versions })
}

/// Kinds of capacity that the capacity list has for an accelerator in a zone.
fn allowed(api: &Api, accelerator: &str, zone: &str) -> Vec<CapacityKind> {
    let kinds = [CapacityKind::Spot, CapacityKind::Preemptible, CapacityKind::OnDemand, CapacityKind::Reserved];
    let chips = table::accelerator(accelerator).map_or(0, |a| a.chips);
    let is_allowed =
        |kind: &CapacityKind| placement::entry_for(&api.engine.deployment, *kind, accelerator, zone, chips).is_some();
    kinds.into_iter().filter(is_allowed).collect()
}
