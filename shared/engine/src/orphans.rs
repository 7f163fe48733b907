//! What orphans cost: chips that nobody owned are paid for until the sweep's delete is done, and somebody asks for what.

use std::collections::BTreeMap;

use jiff::Timestamp;
use jiff::civil::Date;

use rekindle_core::account::{Meter, by_week, meter};
use rekindle_core::ids::JobId;
use rekindle_core::job::Via;
use rekindle_core::observation::SliceState;
use rekindle_core::{catalog, placement};
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{OrphansDoc, StoreError};
use rekindle_ports::tpu::{Listed, Listing};

use crate::tick::Owners;
use crate::{Engine, Owner};

impl Engine {
    /// Adds the time since the last tick, by the store's clock, for every READY node of ours that no live generation owns.
    pub(crate) async fn meter_orphans(
        &self,
        since_last: Option<(Timestamp, Timestamp)>,
        listing: &Listing,
        owners: &Owners,
    ) -> Result<(), StoreError> {
        let Some((since, now)) = since_last else { return Ok(()) };
        let mut weeks: BTreeMap<Date, BTreeMap<JobId, Meter>> = BTreeMap::new();
        for node in listing.resources.iter().filter(|r| r.slice.via == Via::Node && r.view.state == SliceState::Ready) {
            let name = node.owned_by.as_ref().unwrap_or(&node.slice.name);
            if owners.get(&node.slice.zone).is_some_and(|zone| zone.contains_key(name)) {
                continue;
            }
            let Owner::Orphan { job, .. } = self.owner_of(node).await? else { continue };
            let from = node.created_at.map_or(since, |at| at.max(since));
            // Whole seconds of the clock, so that no part of one is lost from tick to tick.
            let secs = u64::try_from(now.as_second() - from.as_second()).unwrap_or(0);
            for (week, secs) in by_week(from, secs) {
                let Some(meter) = self.price(node, secs) else { continue };
                *weeks.entry(week).or_default().entry(job.clone()).or_default() += meter;
            }
        }
        for (week, jobs) in weeks {
            let kind = Kind::Orphans(week);
            let at = self.ports.store.read::<OrphansDoc>(&kind).await?;
            let mut doc = at.as_ref().map(|at| at.value.clone()).unwrap_or_default();
            for (job, meter) in jobs {
                *doc.jobs.entry(job).or_default() += meter;
            }
            let when = at.map_or(Precondition::Absent, |at| Precondition::At(at.revision));
            match self.ports.store.write(&kind, &doc, when).await {
                // Another tick of the same moment has counted it.
                Ok(_) | Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn price(&self, node: &Listed, secs: u64) -> Option<Meter> {
        let chips = catalog::accelerator(&node.accelerator)?.chips;
        let (zone, bought) = (&node.slice.zone, node.capacity());
        let usd = placement::usd_per_hour(&self.deployment, &node.accelerator, zone, bought).unwrap_or(0.0);
        Some(meter(chips, (usd * 1e6) as u64, secs))
    }
}
