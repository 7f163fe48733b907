//! `limits/creates`: the create permits of a minute, and what is in use of the limits.

use std::collections::BTreeMap;

use rekindle_core::ids::JobId;
use serde::{Deserialize, Serialize};

/// `limits/creates`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CreatesDoc {
    /// The minute (since 1970) that `used` counts.
    pub minute: i64,
    /// Permits used in it, by passes and by grants.
    pub used: u32,
    /// Jobs to which the tick granted a permit that they have not taken yet, with the minute of the grant.
    pub granted: BTreeMap<JobId, i64>,
    /// What all live generations use; counted by each tick, added to by each create.
    #[serde(flatten)]
    pub uses: Uses,
    /// Grows with each tick's count of these.
    #[serde(default)]
    pub survey: u64,
    /// All that creates have added to `uses` since that count, whatever was taken off: a count that began before them may have missed them.
    #[serde(default, skip_serializing_if = "Uses::is_empty")]
    pub added: Uses,
}

/// What generations use of the limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uses {
    /// Chips by owner.
    pub chips: BTreeMap<String, u64>,
    /// Micro US dollars an hour by owner.
    pub usd_micros_per_hour: BTreeMap<String, u64>,
    /// Chips by the entry of the capacity list that allowed them.
    #[serde(default)]
    pub entries: BTreeMap<String, u64>,
}

impl Uses {
    /// True if nothing is in use.
    pub fn is_empty(&self) -> bool {
        self.chips.is_empty() && self.usd_micros_per_hour.is_empty() && self.entries.is_empty()
    }

    /// Adds to each of these what `now` has beyond `then`.
    pub fn add_growth(&mut self, then: &Self, now: &Self) {
        let add = |to: &mut BTreeMap<String, u64>, then: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>| {
            for (key, amount) in now {
                let grown = amount.saturating_sub(then.get(key).copied().unwrap_or_default());
                if grown > 0 {
                    let slot = to.entry(key.clone()).or_default();
                    *slot = slot.saturating_add(grown);
                }
            }
        };
        add(&mut self.chips, &then.chips, &now.chips);
        add(&mut self.usd_micros_per_hour, &then.usd_micros_per_hour, &now.usd_micros_per_hour);
        add(&mut self.entries, &then.entries, &now.entries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(chips: &[(&str, u64)]) -> Uses {
        let chips: BTreeMap<String, u64> = chips.iter().map(|(owner, chips)| ((*owner).to_owned(), *chips)).collect();
        Uses { entries: chips.clone(), usd_micros_per_hour: chips.clone(), chips }
    }

    #[test]
    fn what_has_grown_is_added_and_what_has_not_is_left() {
        let mut counted = uses(&[("ann", 16), ("bob", 8)]);
        counted.add_growth(&uses(&[("ann", 4), ("eve", 9)]), &uses(&[("ann", 12), ("bob", 1), ("eve", 3)]));
        assert_eq!(counted, uses(&[("ann", 24), ("bob", 9)]));
    }

    #[test]
    fn the_document_is_read_and_written_as_before_it_knew_what_was_added() {
        let stored = serde_json::json!({
            "minute": 7, "used": 2, "granted": {"train": 6}, "survey": 3,
            "chips": {"ann": 16}, "usd_micros_per_hour": {"ann": 5}, "entries": {"spot": 16},
        });
        let doc: CreatesDoc = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!((doc.uses.chips["ann"], doc.uses.entries["spot"], doc.added.is_empty()), (16, 16, true));
        assert_eq!(serde_json::to_value(&doc).unwrap(), stored);
    }
}
