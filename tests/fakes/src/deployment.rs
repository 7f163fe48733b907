//! The deployment that tests use where nothing hangs on it.

use std::collections::BTreeMap;

use rekindle_core::access::Access;
use rekindle_core::settings::{CapacityEntry, Deployment};
use rekindle_core::spec::CapacityKind;

/// A deployment that sells everything, on spot and on demand, to everyone.
pub fn deployment() -> Deployment {
    let entry = |kind| CapacityEntry {
        accelerator: "*".into(),
        zone: "*".into(),
        kind,
        max_chips: None,
        usd_per_chip_hour: 0.3,
    };
    Deployment {
        capacity: [CapacityKind::Spot, CapacityKind::OnDemand].map(entry).into(),
        max_chips: None,
        max_usd_per_day: None,
        owners: BTreeMap::new(),
        access: Access::open(),
        bucket: "gs://bucket".into(),
        bucket_regions: Vec::new(),
        api_url: "http://127.0.0.1:1".into(),
        worker_service_account: None,
        worker_network: None,
        startup_script: None,
        worker_metadata: BTreeMap::new(),
    }
}
