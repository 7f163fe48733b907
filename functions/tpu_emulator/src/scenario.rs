//! What the emulated cloud is like: capacity, quota, rate limits and latencies of each zone, networks with NAT.
//!
//! A scenario file (JSON or YAML; format in the README of this crate) gives the start; the admin path
//! `PUT /emulator/v1/zones/{zone}` changes a zone while the emulator runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use rekindle_core::catalog;
use serde::{Deserialize, Serialize};

use crate::duration::Span;

/// A scenario file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scenario {
    /// What holds for every zone that says nothing else.
    pub defaults: ZoneSettings,
    /// Zones that differ.
    pub zones: BTreeMap<String, ZoneSettings>,
    /// Networks that have a way out without external addresses (Cloud NAT).
    pub nat_networks: BTreeSet<String>,
    /// CreateNode requests a project may send in a minute, over all zones. Absent: 91, as users reported.
    pub creates_per_minute: Option<u32>,
    /// Accelerators that no queued resource may ask for, beside the one that the real service is known to refuse.
    pub not_queueable: BTreeSet<String>,
}

/// Settings of a zone; an absent field is taken from the defaults. Quantities are chips, by family (`v5litepod`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ZoneSettings {
    /// Chips that exist, by family. A family that is absent here and in the defaults is unlimited.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, u64>,
    /// Chips a project may hold, by family, for each of the two pools (`spot`, with preemptible, and `on_demand`);
    /// `v5litepod/spot` names one pool. What is held of spot is counted over the zone's region. Absent: unlimited.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub quota: BTreeMap<String, u64>,
    /// Chips of each reservation, by its name. Without any, whatever is asked for as reserved is granted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reservations: BTreeMap<String, u64>,
    /// From CreateNode to READY. Default 2 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_latency: Option<Span>,
    /// From CreateNode to the stockout in the operation. Default 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stockout_latency: Option<Span>,
    /// From DeleteNode to 404. Default 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_latency: Option<Span>,
    /// Stop and start, each. Default 1 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_latency: Option<Span>,
    /// Patches of a node. Default 0.2 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_latency: Option<Span>,
    /// From CreateQueuedResource to a place in the queue, and each later step but the create. Default 0.5 s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_latency: Option<Span>,
    /// Random part of every latency, 0 to 1: 0.2 is ±20 %. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// No permission for this location (403 `LOCATION_POLICY_VIOLATED`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub denied: Option<bool>,
    /// The zone does not answer: 503, and `unreachable` in lists over `locations/-`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable: Option<bool>,
    /// Whether a DeleteNode is refused while the node is CREATING (the real service's answer is not known).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refuse_delete_while_creating: Option<bool>,
    /// Show queued requests as ACCEPTED, as the service did before WAITING_FOR_RESOURCES.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub show_accepted: Option<bool>,
}

/// A scenario that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The file cannot be read.
    #[error("cannot read the scenario {path}")]
    Read {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The text is neither JSON nor YAML of the format. With line and column.
    #[error("the scenario does not parse: {0}")]
    Parse(String),
    /// A zone that is not in the catalogue.
    #[error("no zone {zone:?} offers TPUs; zones are: {known}")]
    UnknownZone {
        /// What was written.
        zone: String,
        /// What exists.
        known: String,
    },
    /// A family that is not in the catalogue.
    #[error("no TPU family {family:?}; families are: {known}")]
    UnknownFamily {
        /// What was written.
        family: String,
        /// What exists.
        known: String,
    },
    /// An accelerator that is not in the catalogue.
    #[error("no accelerator {accelerator:?} in `not_queueable`; the nearest are: {nearest}")]
    UnknownAccelerator {
        /// What was written.
        accelerator: String,
        /// What was probably meant.
        nearest: String,
    },
}

impl Scenario {
    /// Reads and checks a file.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ScenarioError::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Reads and checks the text of a file (YAML, and so also JSON).
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = serde_saphyr::from_str(text).map_err(|error| ScenarioError::Parse(error.to_string()))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Whether it names only zones, families and accelerators that exist.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.defaults.check()?;
        if let Some(unknown) = self.not_queueable.iter().find(|name| catalog::accelerator(name).is_none()) {
            let nearest = catalog::nearest(unknown).join(", ");
            return Err(ScenarioError::UnknownAccelerator { accelerator: unknown.clone(), nearest });
        }
        for (zone, settings) in &self.zones {
            check_zone(zone)?;
            settings.check()?;
        }
        Ok(())
    }

    /// The settings of one zone, defaults filled in.
    pub fn zone(&self, zone: &str) -> ZoneSettings {
        let mut settings = self.defaults.clone();
        if let Some(own) = self.zones.get(zone) {
            settings.merge(own);
        }
        settings
    }

    /// Whether a queued resource may ask for this accelerator.
    pub(crate) fn queues(&self, accelerator: &str) -> bool {
        catalog::queueing_supported(accelerator) && !self.not_queueable.contains(accelerator)
    }

    /// CreateNode requests a project may send in a minute.
    pub(crate) fn creates_per_minute(&self) -> u32 {
        self.creates_per_minute.unwrap_or(CREATES_PER_MINUTE)
    }
}

/// The limit that users of the real service reported for CreateNode.
pub(crate) const CREATES_PER_MINUTE: u32 = 91;

/// Refuses a zone that is not in the catalogue.
pub(crate) fn check_zone(zone: &str) -> Result<(), ScenarioError> {
    if catalog::zones().contains(&zone) {
        return Ok(());
    }
    Err(ScenarioError::UnknownZone { zone: zone.to_owned(), known: catalog::zones().join(", ") })
}

impl ZoneSettings {
    /// Whether it names only families that exist.
    pub fn check(&self) -> Result<(), ScenarioError> {
        let pools =
            self.quota.keys().map(|key| key.strip_suffix("/spot").or(key.strip_suffix("/on_demand")).unwrap_or(key));
        for family in self.capacity.keys().map(String::as_str).chain(pools) {
            if !catalog::families().contains(&family) {
                let known = catalog::families().join(", ");
                return Err(ScenarioError::UnknownFamily { family: family.to_owned(), known });
            }
        }
        Ok(())
    }

    /// Takes what `other` gives; families it does not name stay.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.capacity.extend(other.capacity.clone());
        self.quota.extend(other.quota.clone());
        self.reservations.extend(other.reservations.clone());
        self.create_latency = other.create_latency.or(self.create_latency);
        self.stockout_latency = other.stockout_latency.or(self.stockout_latency);
        self.delete_latency = other.delete_latency.or(self.delete_latency);
        self.stop_latency = other.stop_latency.or(self.stop_latency);
        self.update_latency = other.update_latency.or(self.update_latency);
        self.queue_latency = other.queue_latency.or(self.queue_latency);
        self.jitter = other.jitter.or(self.jitter);
        self.denied = other.denied.or(self.denied);
        self.unreachable = other.unreachable.or(self.unreachable);
        self.refuse_delete_while_creating = other.refuse_delete_while_creating.or(self.refuse_delete_while_creating);
        self.show_accepted = other.show_accepted.or(self.show_accepted);
    }

    /// Chips a project may hold of a family in one pool; `None` is unlimited.
    pub(crate) fn quota_of(&self, family: &str, is_spot: bool) -> Option<u64> {
        let pool = if is_spot { "spot" } else { "on_demand" };
        self.quota.get(&format!("{family}/{pool}")).or_else(|| self.quota.get(family)).copied()
    }

    /// The nominal length of a wait.
    pub(crate) fn latency(&self, wait: Wait) -> Duration {
        let (set, default) = match wait {
            Wait::Create => (self.create_latency, Span::secs(2)),
            Wait::Stockout => (self.stockout_latency, Span::secs(1)),
            Wait::Delete => (self.delete_latency, Span::secs(1)),
            Wait::Stop => (self.stop_latency, Span::secs(1)),
            Wait::Update => (self.update_latency, Span::millis(200)),
            Wait::Queue => (self.queue_latency, Span::millis(500)),
        };
        set.unwrap_or(default).0
    }
}

/// What an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// A node that is being made.
    Create,
    /// The answer that there is no capacity.
    Stockout,
    /// A node that is being deleted.
    Delete,
    /// A stop or a start.
    Stop,
    /// A patch.
    Update,
    /// A step of a queued resource.
    Queue,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_read_as_yaml_and_as_json() {
        let yaml = "defaults: {create_latency: 3s}\nzones:\n  us-central1-a:\n    capacity: {v5litepod: 64}\n    \
                    quota: {v5litepod/spot: 16}\n";
        let scenario = Scenario::parse(yaml).unwrap();
        let zone = scenario.zone("us-central1-a");
        assert_eq!(zone.latency(Wait::Create), Duration::from_secs(3));
        assert_eq!(zone.quota_of("v5litepod", true), Some(16));
        assert_eq!(zone.quota_of("v5litepod", false), None);
        assert_eq!(Scenario::parse(&serde_json::to_string(&scenario).unwrap()).unwrap(), scenario);
    }

    #[test]
    fn a_scenario_with_a_wrong_name_is_refused_by_name() {
        let unknown_zone = Scenario::parse("zones: {us-west9-z: {}}").unwrap_err().to_string();
        assert!(unknown_zone.contains("us-west9-z"), "{unknown_zone}");
        let unknown_family = Scenario::parse("defaults: {capacity: {v5e: 1}}").unwrap_err().to_string();
        assert!(unknown_family.contains("v5e") && unknown_family.contains("v5litepod"), "{unknown_family}");
        let unqueueable = Scenario::parse("not_queueable: [v5e-16]").unwrap_err().to_string();
        assert!(unqueueable.contains("\"v5e-16\"") && unqueueable.contains("v5litepod-16"), "{unqueueable}");
        let unknown_field = Scenario::parse("defaults: {latency: 1s}").unwrap_err().to_string();
        assert!(unknown_field.contains("latency"), "{unknown_field}");
    }
}
