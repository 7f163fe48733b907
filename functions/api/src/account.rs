//! `GET /v1/account`: chip hours and money by week, owner, tag and job; as JSON, or as CSV that a spreadsheet imports.

use std::collections::BTreeSet;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Deserialize;

use rekindle_core::account::{Account, Dimension, weeks_before};
use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{OrphansDoc, StoreError};
use rekindle_web::{Caller, Problem, Query, etag, faulty_query};
use rekindle_wire::account::AccountView;

use crate::Api;
use crate::access::Shown;
use crate::jobs::{has_none, only_owner, store, usage};

/// Weeks that are counted when the caller says nothing: this one and those before it.
const WEEKS: u32 = 12;
/// Ten years.
const WEEKS_MAX: u32 = 520;
/// Jobs that are read at once: of large ones more would not fit into the service's memory.
const PAGE: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AccountQuery {
    /// `week`, `owner`, `tag`, `job`, or several with commas.
    by: Option<String>,
    owner: Option<String>,
    weeks: Option<u32>,
    /// `json` or `csv`.
    format: Option<String>,
}

/// Counts the usage of all jobs that the caller may see and that changed in these weeks, up to now.
pub(crate) async fn account(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<AccountQuery>,
) -> Result<Response, Problem> {
    let by = dimensions(query.by.as_deref())?;
    let weeks = query.weeks.unwrap_or(WEEKS);
    if !(1..=WEEKS_MAX).contains(&weeks) {
        return Err(faulty_query("weeks", &format!("must be 1 to {WEEKS_MAX}")));
    }
    let is_csv = match query.format.as_deref() {
        Some("csv") => true,
        Some("json") => false,
        Some(other) => return Err(faulty_query("format", &format!("{other:?} is unknown; json or csv"))),
        None => wants_csv(&headers),
    };
    let now = api.engine.ports.clock.now();
    let since = weeks_before(now, weeks - 1);
    let mut account = Account::new(&by, since);
    let owner = only_owner(&api, &caller, query.owner.clone());
    let shown = Shown::new(&api, &caller, query.owner);
    let _place = api.queue.place(&caller.identity).await?;
    if !has_none(&api, &caller, owner.as_ref()).await.map_err(|error| store(&error))? {
        count(&api, &mut account, since, &shown).await.map_err(|error| store(&error))?;
        orphans(&api, &mut account, weeks, now, &shown).await.map_err(|error| store(&error))?;
    }
    let view = AccountView::of(&account, &by, since, now);
    if is_csv { csv(&view) } else { Ok(etag::json(&headers, &view)) }
}

/// By owner when nothing is said.
fn dimensions(text: Option<&str>) -> Result<Vec<Dimension>, Problem> {
    let text = text.filter(|text| !text.is_empty()).unwrap_or("owner");
    let parse = |name: &str| {
        Dimension::parse(name.trim()).ok_or_else(|| {
            let known = Dimension::ALL.map(Dimension::as_str).join(", ");
            faulty_query("by", &format!("{name:?} is unknown; one or several of {known}"))
        })
    };
    text.split(',').map(parse).collect()
}

fn wants_csv(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(',')).map(|kind| kind.split(';').next().unwrap_or("").trim());
    // The first that we have: browsers name text/html before all others, and get JSON.
    kinds.find(|kind| matches!(*kind, "text/csv" | "application/json" | "text/html" | "*/*")) == Some("text/csv")
}

/// Whatever was paid for since then changed since then, or is not over.
async fn count(api: &Api, account: &mut Account, since: Date, shown: &Shown<'_>) -> Result<(), StoreError> {
    let from = since.to_zoned(TimeZone::UTC).map_or(Timestamp::UNIX_EPOCH, |start| start.timestamp());
    let jobs = &api.engine.ports.store;
    let mut seen: BTreeSet<JobId> = BTreeSet::new();
    let mut add = |account: &mut Account, job: &Job| {
        if shown.has(Some(job)) && seen.insert(job.id.clone()) {
            account.add(job, &usage(api, job));
        }
    };
    let mut after = None;
    loop {
        let (page, next) = jobs.live_jobs(after, PAGE).await?;
        for at in &page {
            add(account, &at.value);
        }
        after = next;
        if after.is_none() {
            break;
        }
    }
    loop {
        let (page, next) = jobs.changed_jobs(from, after, PAGE).await?;
        for at in &page {
            add(account, &at.value);
        }
        after = next;
        if after.is_none() {
            return Ok(());
        }
    }
}

async fn orphans(
    api: &Api,
    account: &mut Account,
    weeks: u32,
    now: Timestamp,
    shown: &Shown<'_>,
) -> Result<(), StoreError> {
    let jobs = &api.engine.ports.store;
    let mondays: Vec<Date> = (0..weeks).map(|back| weeks_before(now, back)).collect();
    let paths: Vec<String> = mondays.iter().map(|week| Kind::Orphans(*week).path()).collect();
    let (docs, _) = jobs.docs().get_many(&paths).await?;
    for (week, doc) in mondays.into_iter().zip(docs) {
        let Some(doc) = doc else { continue };
        let doc = rekindle_ports::store::decode::<OrphansDoc>(&doc.path, &doc.content.body)?;
        for (id, meter) in &doc.jobs {
            let job = jobs.job(id).await?;
            let job = job.as_ref().map(|at| &*at.value);
            if shown.has(job) {
                account.add_orphan(week, id, job, *meter);
            }
        }
    }
    Ok(())
}

/// RFC 4180, with a head, without the total.
fn csv(view: &AccountView) -> Result<Response, Problem> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let rows = std::iter::once(view.head()).chain(view.rows.iter().map(|row| view.cells(row)));
    let written = rows.map(|cells| writer.write_record(&cells)).collect::<Result<Vec<()>, _>>();
    let failed = |error: &dyn std::fmt::Display| Problem::unavailable("the table", &error.to_string());
    written.map_err(|error| failed(&error))?;
    let text = writer.into_inner().map_err(|error| failed(&error))?;
    let kind = HeaderValue::from_static("text/csv; charset=utf-8; header=present");
    let name = HeaderValue::from_static("attachment; filename=\"rekindle-account.csv\"");
    Ok(([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], text).into_response())
}
