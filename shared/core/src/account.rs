//! The account: chip time and money of jobs, added up by week, owner, tag and job.
//!
//! Passes count into [`Bill`]s, one for each week; an [`Account`] adds them up for whoever asks.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::AddAssign;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::job::Job;

const DAY_SECS: i64 = 86_400;
const WEEK_SECS: i64 = 7 * DAY_SECS;
/// The first Monday after 1970-01-01, a Thursday.
const MONDAY_SECS: i64 = 4 * DAY_SECS;

/// Chip time and money of one sort.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meter {
    /// Chip-seconds.
    pub chip_secs: u64,
    /// Micro US dollars.
    pub usd_micros: u64,
}

impl Meter {
    /// True when nothing was counted.
    pub const fn is_zero(&self) -> bool {
        self.chip_secs == 0 && self.usd_micros == 0
    }
}

impl AddAssign for Meter {
    fn add_assign(&mut self, other: Self) {
        self.chip_secs = self.chip_secs.saturating_add(other.chip_secs);
        self.usd_micros = self.usd_micros.saturating_add(other.usd_micros);
    }
}

/// Chip time, in chip-seconds, and money.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Chip-seconds of generations that were READY, up to `through`.
    pub paid_chip_secs: u64,
    /// Of these, while the program ran new steps.
    pub useful_chip_secs: u64,
    /// Of these, while the program repeated steps it had done before.
    pub repeated_chip_secs: u64,
    /// Of these, before the program ran: set-up, and the wait for the other workers.
    pub waiting_chip_secs: u64,
    /// Of these, after its end or its last word until the slice was gone; in older documents part of `waiting_chip_secs`.
    #[serde(default)]
    pub idle_chip_secs: u64,
    /// Cost in micro US dollars.
    pub cost_usd_micros: u64,
    /// Up to when this was counted.
    pub through: Option<Timestamp>,
    /// The same by the Monday (UTC) of the week, finer: one entry for each week in which something was paid for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weeks: BTreeMap<Date, Bill>,
}

/// What paid chips did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// The program ran new steps.
    Useful,
    /// The program repeated steps that an earlier attempt had done.
    Repeated,
    /// A slice was there, and its program was not started yet.
    Waiting,
    /// The program was ending, had ended or was not heard of any more, and the slice was still there.
    Idle,
    /// No live generation owned the slice.
    Orphan,
}

/// Chip time and money of a stretch of time, by what the chips did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bill {
    /// [`Sort::Useful`].
    #[serde(skip_serializing_if = "Meter::is_zero")]
    pub useful: Meter,
    /// [`Sort::Repeated`].
    #[serde(skip_serializing_if = "Meter::is_zero")]
    pub repeated: Meter,
    /// [`Sort::Waiting`].
    #[serde(skip_serializing_if = "Meter::is_zero")]
    pub waiting: Meter,
    /// [`Sort::Idle`].
    #[serde(skip_serializing_if = "Meter::is_zero")]
    pub idle: Meter,
    /// [`Sort::Orphan`].
    #[serde(skip_serializing_if = "Meter::is_zero")]
    pub orphan: Meter,
}

impl Bill {
    /// Adds to one sort.
    pub fn add(&mut self, sort: Sort, meter: Meter) {
        *match sort {
            Sort::Useful => &mut self.useful,
            Sort::Repeated => &mut self.repeated,
            Sort::Waiting => &mut self.waiting,
            Sort::Idle => &mut self.idle,
            Sort::Orphan => &mut self.orphan,
        } += meter;
    }

    /// All of it.
    pub fn total(&self) -> Meter {
        let mut total = self.useful;
        for more in [self.repeated, self.waiting, self.idle, self.orphan] {
            total += more;
        }
        total
    }
}

impl AddAssign for Bill {
    fn add_assign(&mut self, other: Self) {
        self.useful += other.useful;
        self.repeated += other.repeated;
        self.waiting += other.waiting;
        self.idle += other.idle;
        self.orphan += other.orphan;
    }
}

/// Chip time and money of a number of chips at a price, over some seconds.
pub fn meter(chips: u32, usd_micros_per_hour: u64, secs: u64) -> Meter {
    Meter { chip_secs: secs * u64::from(chips), usd_micros: usd_micros_per_hour * secs / 3600 }
}

/// Hours for people: with two digits, and below one hour with two that say something.
pub fn hours_text(hours: f64) -> String {
    let digits = if hours > 0.0 && hours < 1.0 { (-hours.log10()).ceil() as usize + 1 } else { 2 };
    format!("{hours:.*}", digits.clamp(2, 6))
}

/// Monday of the week of that moment, in UTC.
pub fn week_of(at: Timestamp) -> Date {
    date_of(week_start(at.as_second()))
}

/// The Monday so many weeks before that of a moment.
pub fn weeks_before(at: Timestamp, weeks: u32) -> Date {
    date_of(week_start(at.as_second()) - i64::from(weeks) * WEEK_SECS)
}

/// Digits of an amount of US dollars: the first minutes of a small slice cost less than a cent.
pub(crate) fn usd_digits(usd: f64) -> usize {
    if usd > 0.0 && usd < 0.01 { 4 } else { 2 }
}

/// A stretch of time cut at the Mondays: each week with its seconds.
pub fn by_week(from: Timestamp, secs: u64) -> Vec<(Date, u64)> {
    let mut parts = Vec::new();
    let mut at = from.as_second();
    let end = at.saturating_add_unsigned(secs);
    while at < end {
        let start = week_start(at);
        let until = end.min(start + WEEK_SECS);
        parts.push((date_of(start), (until - at).unsigned_abs()));
        at = until;
    }
    parts
}

fn week_start(second: i64) -> i64 {
    (second - MONDAY_SECS).div_euclid(WEEK_SECS) * WEEK_SECS + MONDAY_SECS
}

fn date_of(second: i64) -> Date {
    Timestamp::from_second(second).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(TimeZone::UTC).date()
}

/// By what an account is broken down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dimension {
    /// The week in which the chips were paid for, by its Monday (UTC).
    Week,
    /// Who pays.
    Owner,
    /// Tag; a job with several tags counts for each, one without for none.
    Tag,
    /// Job.
    Job,
}

impl Dimension {
    /// All of them, in the order of their columns.
    pub const ALL: [Self; 4] = [Self::Week, Self::Owner, Self::Tag, Self::Job];

    /// The name in snake_case.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Week => "week",
            Self::Owner => "owner",
            Self::Tag => "tag",
            Self::Job => "job",
        }
    }

    /// The dimension with that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dimension| dimension.as_str() == name)
    }
}

/// What a row is of; a part is `None` when the account is not broken down by it.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Monday of the week.
    pub week: Option<Date>,
    /// Owner.
    pub owner: Option<String>,
    /// Tag; empty: jobs without one.
    pub tag: Option<String>,
    /// Job.
    pub job: Option<String>,
}

/// One row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Row {
    /// Jobs that had paid chips.
    pub jobs: u64,
    /// What they did.
    pub bill: Bill,
}

/// Bills added up.
#[derive(Debug)]
pub struct Account {
    by: BTreeSet<Dimension>,
    since: Date,
    rows: BTreeMap<Key, Row>,
    total: Row,
}

impl Account {
    /// An empty account of the weeks from that Monday on.
    pub fn new(by: &[Dimension], since: Date) -> Self {
        Self { by: by.iter().copied().collect(), since, rows: BTreeMap::new(), total: Row::default() }
    }

    /// Adds a job with its usage up to now.
    pub fn add(&mut self, job: &Job, usage: &Usage) {
        let bills = bills(job, usage);
        self.enter(&job.spec.owner, &job.spec.tags, job.id.as_str(), &bills, true);
    }

    /// Adds what chips cost that nobody owned any more, in one week. `job`: the one that they were made for, if it is
    /// still known.
    pub fn add_orphan(&mut self, week: Date, id: &JobId, job: Option<&Job>, meter: Meter) {
        let mut bill = Bill::default();
        bill.add(Sort::Orphan, meter);
        let (owner, tags) = job.map_or(("", &[][..]), |job| (job.spec.owner.as_str(), job.spec.tags.as_slice()));
        self.enter(owner, tags, id.as_str(), &BTreeMap::from([(week, bill)]), false);
    }

    fn enter(&mut self, owner: &str, tags: &[String], id: &str, bills: &BTreeMap<Date, Bill>, is_job: bool) {
        let has = |dimension: Dimension| self.by.contains(&dimension);
        let tags: Vec<Option<String>> = match (has(Dimension::Tag), tags) {
            (false, _) => vec![None],
            (true, []) => vec![Some(String::new())],
            (true, tags) => tags.iter().cloned().map(Some).collect(),
        };
        let mut counted = BTreeSet::new();
        let mut is_new = is_job;
        for (week, bill) in bills.range(self.since..).filter(|(_, bill)| !bill.total().is_zero()) {
            for tag in &tags {
                let key = Key {
                    week: has(Dimension::Week).then_some(*week),
                    owner: has(Dimension::Owner).then(|| owner.to_owned()),
                    tag: tag.clone(),
                    job: has(Dimension::Job).then(|| id.to_owned()),
                };
                let row = self.rows.entry(key.clone()).or_default();
                row.bill += *bill;
                if is_job && counted.insert(key) {
                    row.jobs += 1;
                }
            }
            self.total.bill += *bill;
            self.total.jobs += u64::from(std::mem::take(&mut is_new));
        }
    }

    /// The rows: the newest week first, then by name.
    pub fn rows(&self) -> Vec<(&Key, &Row)> {
        let mut rows: Vec<(&Key, &Row)> = self.rows.iter().collect();
        rows.sort_by(|(one, _), (other, _)| other.week.cmp(&one.week).then_with(|| one.cmp(other)));
        rows
    }

    /// The sum over all jobs, each counted once.
    pub fn total(&self) -> &Row {
        &self.total
    }
}

/// A job's bills by week. What was counted before weeks were kept is of the week of its submit.
fn bills(job: &Job, usage: &Usage) -> BTreeMap<Date, Bill> {
    let mut bills = usage.weeks.clone();
    let mut known = Bill::default();
    for bill in bills.values() {
        known += *bill;
    }
    let rest = usage.paid_chip_secs.saturating_sub(known.total().chip_secs);
    if rest == 0 {
        return bills;
    }
    let usd = usage.cost_usd_micros.saturating_sub(known.total().usd_micros);
    let bill = bills.entry(week_of(job.created_at)).or_default();
    let not_running = usage.waiting_chip_secs + usage.idle_chip_secs;
    for (sort, of, had) in [
        (Sort::Useful, usage.useful_chip_secs, known.useful.chip_secs),
        (Sort::Repeated, usage.repeated_chip_secs, known.repeated.chip_secs),
        (Sort::Waiting, not_running, known.waiting.chip_secs + known.idle.chip_secs),
    ] {
        let chip_secs = of.saturating_sub(had);
        let share = u128::from(usd) * u128::from(chip_secs) / u128::from(rest);
        bill.add(sort, Meter { chip_secs, usd_micros: u64::try_from(share).unwrap_or(u64::MAX) });
    }
    bills
}

#[cfg(test)]
mod tests;
