//! `GET /v1/account`: chip hours and money by week, owner, tag and job.

use jiff::Timestamp;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};

use rekindle_core::account::{Account, Bill, Dimension, Key, Meter, Row};

/// Chip hours and money.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccountView {
    /// By what it is broken down.
    pub by: Vec<Dimension>,
    /// The first Monday (UTC) that it counts from.
    pub since: Date,
    /// Up to when.
    pub through: Timestamp,
    /// The rows: the newest week first, then by name.
    pub rows: Vec<AccountRow>,
    /// The sum over all jobs; with tags, rows may count a job more than once, this never.
    pub total: AccountRow,
}

/// One row; of `week`, `owner`, `tag` and `job` those are there by which it is broken down.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AccountRow {
    /// Monday of the week (UTC) in which the chips were paid for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub week: Option<Date>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Tag; empty: jobs without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Jobs that had paid chips.
    pub jobs: u64,
    /// Chip hours.
    pub chip_hours: SplitView,
    /// US dollars.
    pub usd: SplitView,
}

/// An amount by what the chips did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SplitView {
    /// All of it.
    pub total: f64,
    /// The program ran new steps.
    pub useful: f64,
    /// The program repeated steps.
    pub repeated: f64,
    /// A slice was there, and its program was not started yet.
    pub waiting: f64,
    /// The program was ending, had ended or was not heard of any more, and the slice was still there.
    pub idle: f64,
    /// No live generation owned the slice.
    pub orphan: f64,
}

impl SplitView {
    fn of(bill: &Bill, amount: impl Fn(Meter) -> f64) -> Self {
        Self {
            total: amount(bill.total()),
            useful: amount(bill.useful),
            repeated: amount(bill.repeated),
            waiting: amount(bill.waiting),
            idle: amount(bill.idle),
            orphan: amount(bill.orphan),
        }
    }

    /// The amounts with their names, as columns show them.
    pub const fn columns(&self) -> [(&'static str, f64); 6] {
        [
            ("total", self.total),
            ("useful", self.useful),
            ("repeated", self.repeated),
            ("waiting", self.waiting),
            ("idle", self.idle),
            ("orphan", self.orphan),
        ]
    }
}

impl AccountRow {
    fn of(key: &Key, row: &Row) -> Self {
        Self {
            week: key.week,
            owner: key.owner.clone(),
            tag: key.tag.clone(),
            job: key.job.clone(),
            jobs: row.jobs,
            chip_hours: SplitView::of(&row.bill, |meter| meter.chip_secs as f64 / 3600.0),
            usd: SplitView::of(&row.bill, |meter| meter.usd_micros as f64 / 1e6),
        }
    }

    /// The text of a dimension; empty when the account is not broken down by it.
    pub fn name(&self, dimension: Dimension) -> String {
        match dimension {
            Dimension::Week => self.week.map(|week| week.to_string()).unwrap_or_default(),
            Dimension::Owner => self.owner.clone().unwrap_or_default(),
            Dimension::Tag => self.tag.clone().unwrap_or_default(),
            Dimension::Job => self.job.clone().unwrap_or_default(),
        }
    }
}

impl AccountView {
    /// The view of an account.
    pub fn of(account: &Account, by: &[Dimension], since: Date, through: Timestamp) -> Self {
        let by = Dimension::ALL.into_iter().filter(|dimension| by.contains(dimension)).collect();
        let rows = account.rows().into_iter().map(|(key, row)| AccountRow::of(key, row)).collect();
        Self { by, since, through, rows, total: AccountRow::of(&Key::default(), account.total()) }
    }

    /// The head of the table as a spreadsheet reads it; what is in its rows is in [`AccountView::cells`].
    pub fn head(&self) -> Vec<String> {
        let names = self.by.iter().map(|dimension| dimension.as_str().to_owned());
        let columns = SplitView::default().columns();
        let hours = columns.iter().map(|(name, _)| format!("chip_hours_{name}"));
        let usd = columns.iter().map(|(name, _)| format!("usd_{name}"));
        names.chain(["jobs".to_owned()]).chain(hours).chain(usd).collect()
    }

    /// The cells of a row: names as text that no spreadsheet takes for a formula, amounts as numbers.
    pub fn cells(&self, row: &AccountRow) -> Vec<String> {
        let names = self.by.iter().map(|dimension| plain(row.name(*dimension)));
        let number = |(_, amount): &(&str, f64)| format!("{amount:.6}");
        let hours: Vec<String> = row.chip_hours.columns().iter().map(number).collect();
        let usd: Vec<String> = row.usd.columns().iter().map(number).collect();
        names.chain([row.jobs.to_string()]).chain(hours).chain(usd).collect()
    }
}

/// Tags and owners are people's text: one that begins as a formula does is quoted, as OWASP says.
fn plain(text: String) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) { format!("'{text}") } else { text }
}
