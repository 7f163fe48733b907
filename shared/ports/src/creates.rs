//! `limits/creates`: the create permits of each half minute, and what is in use of the limits.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rekindle_core::ids::JobId;
use serde::{Deserialize, Serialize};

/// So many half minutes are kept: those that any 60 seconds up to the next half minute can touch.
const KEPT: i64 = 4;

/// A grant that was not taken is void when so many half minutes have begun since its own.
const GRANT_HALVES: i64 = 4;

/// `limits/creates`.
///
/// **Invariant:** no half minute has more permits than half of a minute's budget. So a minute has its whole budget, and any 60 seconds, which
/// touch three half minutes, have one and a half of it: below the platform's limit, which is not known to begin with the minute. A pass that
/// comes half a minute late with its grant can add to that; what the platform refuses then is sent again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CreatesDoc {
    /// Permits that count in each half minute (since 1970), taken by passes or granted.
    #[serde(default)]
    pub halves: BTreeMap<i64, u32>,
    /// Jobs to which the tick granted a permit that they have not taken yet, with the half minute in which it counts and from which on it
    /// may be taken.
    #[serde(default)]
    pub grants: BTreeMap<JobId, i64>,
    /// What a version from before the half minutes must find; it counts a minute of its own.
    #[serde(flatten)]
    pub before: Before,
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

/// The half minute of a time.
#[must_use]
pub fn half_of(now: Timestamp) -> i64 {
    now.as_second().div_euclid(30)
}

/// The first moment of a half minute; of one out of the range of times the last of them.
#[must_use]
pub fn begin_of(half: i64) -> Timestamp {
    Timestamp::from_second(half.saturating_mul(30)).unwrap_or(Timestamp::MAX)
}

impl CreatesDoc {
    /// Permits that count in a half minute.
    #[must_use]
    pub fn used_in(&self, half: i64) -> u32 {
        self.halves.get(&half).copied().unwrap_or_default()
    }

    /// Permits that count near a half minute: in the two before, itself, and the next, for which some are granted already. Of a tick that comes
    /// in time the grants are among these until the next tick's are.
    #[must_use]
    pub fn used_near(&self, half: i64) -> u32 {
        (half - 2..=half + 1).fold(0, |sum, half| self.used_in(half).saturating_add(sum))
    }

    /// One more permit counts in a half minute.
    pub fn count(&mut self, half: i64) {
        *self.halves.entry(half).or_default() += 1;
    }

    /// Forgets what does not count any more.
    pub fn forget(&mut self, now: i64) {
        self.halves.retain(|half, _| *half + KEPT > now);
        self.grants.retain(|_, half| *half + GRANT_HALVES > now);
    }

    /// Whether a grant was counted in this half minute, or in the one before and is just late.
    #[must_use]
    pub fn is_counted(granted: i64, half: i64) -> bool {
        granted == half || granted + 1 == half
    }
}

/// The permits of a minute, as an earlier version counts them. Nobody asks here any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    #[serde(default)]
    minute: i64,
    #[serde(default)]
    used: u32,
    #[serde(default)]
    granted: BTreeMap<JobId, i64>,
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
    fn a_document_of_before_the_half_minutes_is_read_and_one_of_now_has_what_that_version_needs() {
        let stored = serde_json::json!({
            "minute": 7, "used": 2, "granted": {"train": 6}, "survey": 3,
            "chips": {"ann": 16}, "usd_micros_per_hour": {"ann": 5}, "entries": {"spot": 16},
        });
        let mut doc: CreatesDoc = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!((doc.uses.chips["ann"], doc.uses.entries["spot"], doc.added.is_empty()), (16, 16, true));
        doc.count(15);
        let mut then = serde_json::to_value(&doc).unwrap();
        assert_eq!(serde_json::from_value::<CreatesDoc>(then.clone()).unwrap(), doc);
        for new in ["halves", "grants"] {
            then.as_object_mut().unwrap().remove(new);
        }
        assert_eq!(then, stored);
    }

    #[test]
    fn half_minutes_and_grants_are_forgotten_when_they_count_no_more() {
        let mut doc = CreatesDoc::default();
        for half in 10..=14 {
            doc.count(half);
            doc.grants.insert(JobId::parse(&format!("j{half}")).unwrap(), half);
        }
        doc.count(13);
        assert_eq!((doc.used_in(13), doc.used_near(13), doc.used_near(15), doc.used_near(16)), (2, 5, 3, 1));
        doc.forget(15);
        assert_eq!(doc.halves.keys().copied().collect::<Vec<_>>(), [12, 13, 14]);
        assert_eq!(doc.grants.values().copied().collect::<Vec<_>>(), [12, 13, 14]);
        let at = begin_of(7);
        assert_eq!((half_of(at), half_of(at - jiff::SignedDuration::from_nanos(1))), (7, 6));
    }
}
