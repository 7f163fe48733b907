//! `catalog`: what can be asked for, where, at what price. Works without a server from the tables in this program.

use std::collections::BTreeMap;

use owo_colors::OwoColorize as _;
use rekindle_core::catalog;
use rekindle_wire::v1::{self, CatalogEntry, CatalogZone};
use serde_json::Value;

use super::Context;
use crate::api::typed;
use crate::args::Catalog;
use crate::fault::{Fault, Result};
use crate::table::{Table, number, text};

/// Kinds of capacity that this version builds.
const KINDS: usize = 4;

/// Shows the catalogue.
pub(crate) async fn run(context: &Context, options: &Catalog) -> Result<()> {
    let value = if options.builtin { builtin()? } else { asked(context).await? };
    let mut catalog: v1::Catalog = typed(value)?;
    narrow(&mut catalog, options);
    if context.printer.is_json {
        return context.printer.json(&catalog);
    }
    allowed(&mut catalog);
    if catalog.accelerators.is_empty() {
        return Err(nothing(options));
    }
    context.printer.data(&table(&catalog.accelerators).render(context.printer.width()))?;
    context.printer.talk("prices: US dollars for the whole TPU and hour, spot and on demand, where known");
    if options.accelerator.is_none() {
        // The table names the one that a job gets by itself.
        context.printer.talk(&format!("runtime versions: {}", catalog.runtime_versions.join(", ")));
    }
    Ok(())
}

async fn asked(context: &Context) -> Result<Value> {
    match context.api.get("/v1/catalog", &[]).await {
        Err(fault) if fault.status().is_none() && context.api.is_default() => {
            context.printer.talk("no server is configured: this is the catalogue of this program");
            builtin()
        }
        answer => answer,
    }
}

fn builtin() -> Result<Value> {
    let zone = |accelerator: &str, zone: &str| CatalogZone {
        zone: zone.to_owned(),
        allowed: Vec::new(),
        usd_per_chip_hour: catalog::price_in_zone(accelerator, zone, false),
        spot_usd_per_chip_hour: catalog::price_in_zone(accelerator, zone, true),
    };
    let entry = |a: &catalog::Accelerator| CatalogEntry {
        accelerator: a.name.clone(),
        family: a.family.clone(),
        topology: a.topology.clone(),
        chips: a.chips,
        workers: a.workers,
        zones: catalog::zones_offering(&a.name).into_iter().map(|name| zone(&a.name, name)).collect(),
        runtime_version: catalog::default_runtime(&a.name).to_owned(),
    };
    let catalog = v1::Catalog {
        accelerators: catalog::accelerators().iter().map(entry).collect(),
        runtime_versions: catalog::runtime_versions().into_iter().map(str::to_owned).collect(),
    };
    serde_json::to_value(catalog).map_err(|error| Fault::unexpected("no JSON").caused_by(&error))
}

fn narrow(catalog: &mut v1::Catalog, options: &Catalog) {
    if let Some(begin) = &options.accelerator {
        catalog.accelerators.retain(|entry| entry.accelerator.starts_with(begin.as_str()));
    }
    if let Some(zone) = &options.zone {
        for entry in &mut catalog.accelerators {
            entry.zones.retain(|offer| offer.zone == *zone);
        }
        catalog.accelerators.retain(|entry| !entry.zones.is_empty());
    }
}

fn nothing(options: &Catalog) -> Fault {
    let wanted = options.accelerator.as_deref().unwrap_or_default();
    let place = options.zone.as_deref().map(|zone| format!(" in {zone}")).unwrap_or_default();
    let fault = Fault::input(format!("nothing named {wanted:?} is offered{place}"));
    match catalog::nearest(wanted).first() {
        Some(near) if *near != wanted => fault.next(format!("did you mean {near}?")),
        _ => fault.next("`rekindle catalog` without a name shows everything"),
    }
}

fn table(entries: &[CatalogEntry]) -> Table {
    let mut table = Table::new(&[
        text("ACCELERATOR", 0),
        number("CHIPS", 1),
        number("WORKERS", 2),
        text("TOPOLOGY", 4),
        text("RUNTIME", 5),
        number("SPOT", 1),
        number("ON DEMAND", 3),
        text("ZONES", 0),
    ]);
    for entry in entries {
        // Zones of one price stand together, cheapest on spot first.
        let mut prices: BTreeMap<(u64, u64), Vec<String>> = BTreeMap::new();
        for offer in &entry.zones {
            let millis = |usd: Option<f64>| usd.map_or(u64::MAX, |usd| (usd * 10_000.0).round() as u64);
            let key = (millis(offer.spot_usd_per_chip_hour), millis(offer.usd_per_chip_hour));
            prices.entry(key).or_default().push(shown(offer));
        }
        for (place, ((spot, on_demand), zones)) in prices.into_iter().enumerate() {
            let first = |text: String| if place == 0 { text } else { String::new() };
            let price = |price: u64| {
                if price == u64::MAX {
                    "-".to_owned()
                } else {
                    format!("{:.2}", price as f64 / 1e4 * f64::from(entry.chips))
                }
            };
            table.row(vec![
                first(entry.accelerator.clone()),
                first(entry.chips.to_string()),
                first(entry.workers.to_string()),
                first(entry.topology.clone()),
                first(entry.runtime_version.clone()),
                price(spot),
                price(on_demand),
                zones.join(" "),
            ]);
        }
    }
    table
}

/// The zone, and what the deployment allows there if that is not everything. The built-in catalogue allows nothing and
/// forbids nothing.
fn shown(offer: &CatalogZone) -> String {
    let kinds: Vec<&str> = offer.allowed.iter().map(|kind| kind.as_str()).collect();
    match kinds.len() {
        0 | KINDS => offer.zone.clone(),
        _ => format!("{}{}", offer.zone, format!("({})", kinds.join(",")).dimmed()),
    }
}

/// Takes away what the deployment does not allow. A server that allows nothing at all has no list: all is shown.
fn allowed(catalog: &mut v1::Catalog) {
    let is_listed = |entry: &CatalogEntry| entry.zones.iter().any(|offer| !offer.allowed.is_empty());
    if !catalog.accelerators.iter().any(is_listed) {
        return;
    }
    for entry in &mut catalog.accelerators {
        entry.zones.retain(|offer| !offer.allowed.is_empty());
    }
    catalog.accelerators.retain(|entry| !entry.zones.is_empty());
}
