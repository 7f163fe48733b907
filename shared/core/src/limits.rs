//! What live generations use of the deployment's limits, and whether one more may be asked for.
//!
//! Every generation that is neither lost nor gone counts, from the commit of its intent on: against the entry of the
//! capacity list that allowed it, against its owner and against all. A tick counts them anew; a create adds its own in
//! its commit. What a job gives back between two counts is only deducted for itself ([`Vacated`]), so that the slice in
//! place of a lost one need not wait for the next tick.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job::Generation;
use crate::placement::Candidate;
use crate::reason::Reason;
use crate::settings::{CapacityEntry, Deployment, Limits};

/// What one generation uses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The entry of the capacity list that it counts against ([`CapacityEntry::key`]).
    pub entry: String,
    /// Chips of all its slices.
    pub chips: u64,
    /// Micro US dollars for each hour.
    pub usd_micros_per_hour: u64,
}

/// Shares that a job gave back after the count with that number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vacated {
    /// Number of the count that they are in.
    pub survey: u64,
    /// What was given back.
    pub shares: Vec<Share>,
}

/// Chips and money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amount {
    /// Chips.
    pub chips: u64,
    /// Micro US dollars for each hour.
    pub usd_micros_per_hour: u64,
}

/// What is in use, as far as one job is concerned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InUse {
    /// Number of the last count.
    pub survey: u64,
    /// By all jobs.
    pub all: Amount,
    /// By the jobs of this job's owner.
    pub owner: Amount,
    /// Chips by entry of the capacity list.
    pub entries: BTreeMap<String, u64>,
}

impl Share {
    /// The same without the entry.
    pub const fn amount(&self) -> Amount {
        Amount { chips: self.chips, usd_micros_per_hour: self.usd_micros_per_hour }
    }
}

impl Generation {
    /// The entry that it counts against and what it uses; `None` once it is lost: it is not paid for any more.
    pub fn used(&self) -> Option<(&str, Amount)> {
        let amount = Amount { chips: u64::from(self.chips), usd_micros_per_hour: self.usd_micros_per_hour };
        self.lost.is_none().then_some((self.entry.as_str(), amount))
    }

    /// The same as its share.
    pub fn share(&self) -> Option<Share> {
        let (entry, Amount { chips, usd_micros_per_hour }) = self.used()?;
        Some(Share { entry: entry.to_owned(), chips, usd_micros_per_hour })
    }
}

impl CapacityEntry {
    /// Names the entry where its use is counted. Entries that differ in nothing but `max_chips` are one.
    pub fn key(&self) -> String {
        format!("{} {} {} {}", self.kind.as_str(), self.accelerator, self.zone, self.usd_per_chip_hour)
    }
}

impl InUse {
    /// The same without these shares.
    #[must_use]
    pub fn without(mut self, shares: &[Share]) -> Self {
        for share in shares {
            for amount in [&mut self.all, &mut self.owner] {
                amount.chips = amount.chips.saturating_sub(share.chips);
                amount.usd_micros_per_hour = amount.usd_micros_per_hour.saturating_sub(share.usd_micros_per_hour);
            }
            if let Some(chips) = self.entries.get_mut(&share.entry) {
                *chips = chips.saturating_sub(share.chips);
            }
        }
        self
    }
}

/// The limit that a candidate would pass now, with the reason for people; `None`: it may be asked for.
pub fn hindrance(
    candidate: &Candidate,
    deployment: &Deployment,
    owner: &str,
    used: &InUse,
) -> Option<(Reason, String)> {
    let by_owner = crate::access::of_owner(&deployment.owners, owner);
    let all = Limits { max_chips: deployment.max_chips, max_usd_per_day: deployment.max_usd_per_day };
    let entry = Limits { max_chips: candidate.entry_max_chips, max_usd_per_day: None };
    let in_entry =
        Amount { chips: used.entries.get(&candidate.entry).copied().unwrap_or_default(), usd_micros_per_hour: 0 };
    passed(candidate, &all, used.all, "the deployment")
        .or_else(|| by_owner.and_then(|limits| passed(candidate, limits, used.owner, &format!("owner {owner}"))))
        .or_else(|| passed(candidate, &entry, in_entry, &format!("the capacity entry `{}`", candidate.entry)))
}

fn passed(candidate: &Candidate, limits: &Limits, used: Amount, whose: &str) -> Option<(Reason, String)> {
    let chips = u64::from(candidate.chips);
    if let Some(max) = limits.max_chips
        && used.chips.saturating_add(chips) > u64::from(max)
    {
        // Without what is in use now: a sentence that changes with each look would fill the history.
        let told = if chips > u64::from(max) {
            format!(
                "{chips} chips are needed and `max_chips` of {whose} is {max}, so that it waits until that is raised"
            )
        } else {
            format!("waits until {chips} of the {max} chips that `max_chips` of {whose} allows are free")
        };
        return Some((Reason::MaxChips, told));
    }
    let max = limits.max_usd_per_day?;
    let a_day = |micros: u64| micros as f64 * 24.0 / 1e6;
    let then = a_day(used.usd_micros_per_hour.saturating_add(candidate.usd_micros_per_hour));
    (then > max).then(|| {
        let more = a_day(candidate.usd_micros_per_hour);
        let told = format!(
            "waits until {more:.2} of the {max:.2} US dollars that `max_usd_per_day` of {whose} allows are free"
        );
        (Reason::MaxUsd, told)
    })
}
