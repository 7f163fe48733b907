//! `GET /v1/dead-letters`: what could not be used, and what webhooks were not told.
//!
//! **Invariant:** of a message only where it came from and why it failed are shown, never what was in it: a job message
//! holds addresses and variables that are secrets.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_ports::store::DeadDoc;
use rekindle_web::{Caller, Problem, Query, etag};
use rekindle_wire::event;
use rekindle_wire::v1::{DeadLetterList, DeadLetterView};

use crate::access::{Shown, seen};
use crate::jobs::{job_id, store};
use crate::{Api, page};

/// Pages of the store that one answer looks through: a page with few letters or none would look like the end to whoever may
/// see few of them.
const ROUNDS: usize = 20;
/// Letters of a job that its page tells of: as many events in a row that webhooks were not told.
const LOOKED_AT: usize = 5;
/// Later than any last try comes: no subscription waits for longer between two.
const LEFT_AFTER: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LettersQuery {
    /// Only those about this job.
    job: Option<String>,
    page_size: Option<usize>,
    page_token: Option<String>,
}

/// Those about jobs that the caller may see, newest first; those about no job for who sees everyone's alone. Where very many
/// are others', a page may hold fewer than were asked for, and another may follow: only without a token it is the last.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    Query(query): Query<LettersQuery>,
) -> Result<Response, Problem> {
    let job = match query.job.as_deref().filter(|job| !job.is_empty()) {
        Some(job) => Some(seen(&api, &caller, &job_id(job)?).await?.id),
        None => None,
    };
    let asked = format!("dead-letters {} {job:?}", caller.identity);
    let (size, after) = (page::size(query.page_size)?, page::cursor(&api, &asked, query.page_token.as_deref())?);
    let docs = &api.engine.ports.store;
    let shown = Shown::new(&api, &caller, None);
    let (mut letters, mut next) = (Vec::new(), after);
    for _ in 0..ROUNDS {
        let left = size - letters.len();
        let (found, behind) = docs.dead_letters(job.as_ref(), next, left).await.map_err(|error| store(&error))?;
        next = behind;
        let ids: BTreeSet<_> =
            found.iter().filter_map(|letter| letter.job.clone().or_else(|| wanted(letter))).collect();
        let jobs = docs.jobs_named(&ids).await.map_err(|error| store(&error))?;
        let of = |letter: &DeadDoc| letter.job.as_ref().and_then(|id| jobs.iter().find(|job| job.id == *id));
        let now = api.engine.ports.clock.now();
        let visible = found.iter().filter(|letter| !is_left(letter, now) && shown.has(of(letter).map(AsRef::as_ref)));
        letters.extend(visible.map(|letter| DeadLetterView { mended_by: mended_by(letter, &jobs), ..view(letter) }));
        if letters.len() >= size || next.is_none() {
            break;
        }
    }
    Ok(etag::json(
        &headers,
        &DeadLetterList { letters, next_page_token: next.as_ref().and_then(|next| page::token(&api, &asked, next)) },
    ))
}

/// The id that stands in a job message that could not be used, if as much of it was kept. A command (`cancel`, `restart`) names
/// a job too, and no job comes of it.
fn wanted(letter: &DeadDoc) -> Option<JobId> {
    const OF_COMMANDS: [&str; 4] = ["id", "new_slice", "from_scratch", "if_attempt"];
    if letter.source.split('/').next() != Some("jobs") {
        return None;
    }
    let message: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&letter.excerpt).ok()?;
    let is_command = message.keys().all(|key| OF_COMMANDS.contains(&key.as_str()));
    message.get("id").filter(|_| !is_command)?.as_str().and_then(|id| JobId::parse(id).ok())
}

/// The job of that id, if it was submitted later: whoever sent the message has mended it.
fn mended_by(letter: &DeadDoc, jobs: &[Arc<Job>]) -> Option<JobId> {
    let id = wanted(letter)?;
    jobs.iter().any(|job| job.id == id && job.created_at > letter.at).then_some(id)
}

/// The newest event that a webhook of the job was not told, with what other webhooks missed before it. It only adds to what is
/// shown, so a failed read is none.
pub(crate) async fn newest(api: &Api, job: &Job) -> Option<DeadLetterView> {
    if job.spec.notify.is_empty() {
        return None;
    }
    let found = api.engine.ports.store.dead_letters(Some(&job.id), None, LOOKED_AT).await;
    let found = found.inspect_err(|error| tracing::warn!(job = %job.id, %error, "dead letters cannot be read"));
    let now = api.engine.ports.clock.now();
    let (letters, _) = found.ok()?;
    let mut letters = letters.iter().filter(|letter| !is_left(letter, now)).map(|letter| view(letter));
    let mut newest = letters.next()?;
    for earlier in letters {
        add(&mut newest, &earlier);
    }
    Some(newest)
}

/// Adds the webhooks of an earlier letter that the newest does not name.
fn add(newest: &mut DeadLetterView, earlier: &DeadLetterView) {
    let webhook = |line: &str| line.split_once(": ").map_or_else(|| line.to_owned(), |(name, _)| name.to_owned());
    let mut named: BTreeSet<String> = newest.reason.lines().map(webhook).collect();
    for line in earlier.reason.lines().filter(|line| named.insert(webhook(line))) {
        let of = earlier.phase.map_or_else(String::new, |phase| format!(" (of the event `{}`)", phase.as_str()));
        let _ = write!(newest.reason, "\n{line}{of}");
    }
}

/// It was tried for the last time long ago, and what kept it is gone: its end could not be written down.
fn is_left(letter: &DeadDoc, now: Timestamp) -> bool {
    letter.tried_until.is_some_and(|until| now.duration_since(until) > LEFT_AFTER)
}

/// One sentence of it.
pub(crate) fn sentence(letter: &DeadLetterView) -> String {
    let what = letter.phase.map_or_else(|| "An event".to_owned(), |phase| format!("The event `{}`", phase.as_str()));
    let why = letter.brief();
    let why = why.trim_end_matches('.');
    match letter.tried_until {
        Some(until) => {
            format!("{what} could not be told to a webhook yet, and is tried again until {until:.0}: {why}.")
        }
        None => format!("{what} was not told to a webhook at {:.0}, and is not sent again: {why}.", letter.at),
    }
}

fn view(letter: &DeadDoc) -> DeadLetterView {
    let function = letter.source.split('/').next().unwrap_or_default().to_owned();
    let data = (function == "notify").then(|| serde_json::from_str::<event::Data>(&letter.excerpt).ok()).flatten();
    DeadLetterView {
        at: letter.at,
        function,
        reason: letter.reason.clone(),
        job: letter.job.clone(),
        phase: data.map(|data| data.phase),
        tried_until: letter.tried_until,
        mended_by: None,
    }
}
