//! How the attempts of a job ended, told between their outputs: each once, in order, also of those without output.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use owo_colors::OwoColorize as _;
use rekindle_core::failure::FailureKind;
use rekindle_core::history::{AttemptEnd, HistoryEntry};
use rekindle_core::job::Phase;
use rekindle_core::reason::Reason;
use rekindle_wire::v1::JobView;
use serde_json::Value;

use super::super::{Context, history, job_path};
use crate::api::typed;
use crate::fault::Result;
use crate::human;

/// The ends of a job's attempts, read on from where the last question ended.
#[derive(Debug, Default)]
struct Known {
    /// The revision up to which it was read: what the next page begins behind.
    read_to: Option<u64>,
    ends: BTreeMap<u32, (Timestamp, AttemptEnd)>,
}

impl Known {
    /// Reads on until all these attempts are known, or to the end of the history: then they have no end that was judged.
    async fn read(&mut self, context: &Context, job: &str, attempts: &[u32]) -> Result<()> {
        let path = job_path(job, "/history")?;
        while attempts.iter().any(|attempt| !self.ends.contains_key(attempt)) {
            let token = self.read_to.map(|revision| revision.to_string());
            let query = [("page_size", Some(history::PAGE.to_owned())), ("page_token", token)];
            let mut value = context.api.get(&path, &query).await?;
            let entries: Vec<HistoryEntry> = typed(value.get_mut("entries").map(Value::take).unwrap_or_default())?;
            // Also where that was all there is: the end of a later attempt stands behind it.
            self.read_to = entries.last().map(|entry| entry.revision).or(self.read_to);
            let ends = entries.into_iter().filter_map(|entry| Some((entry.at, entry.ended?)));
            self.ends.extend(ends.map(|(at, end)| (end.attempt, (at, end))));
            if value.get("next_page_token").is_none_or(Value::is_null) {
                break;
            }
        }
        Ok(())
    }
}

/// Tells the ends of a job's attempts.
pub(super) struct Ends<'a> {
    context: &'a Context,
    job: &'a str,
    /// Earlier ends are not told.
    since: Option<Timestamp>,
    known: Known,
    told: BTreeSet<u32>,
    /// The newest attempt of which there was output.
    newest: u32,
    /// What was told last of what the job waits for.
    awaited: Option<String>,
    /// The newest end that was seen, and since when.
    seen: Option<(u32, Instant)>,
}

impl<'a> Ends<'a> {
    pub(super) fn new(context: &'a Context, job: &'a str, since: Option<Timestamp>) -> Self {
        Self {
            context,
            job,
            since,
            known: Known::default(),
            told: BTreeSet::new(),
            newest: 1,
            awaited: None,
            seen: None,
        }
    }

    /// The output of an attempt begins: how those before it ended.
    pub(super) async fn before(&mut self, attempt: u32) {
        self.newest = self.newest.max(attempt);
        let open: Vec<u32> = (1..attempt).filter(|one| !self.told.contains(one)).collect();
        // What is not to be had now is told before the next attempt, or at the end.
        if open.is_empty() || self.known.read(self.context, self.job, &open).await.is_err() {
            return;
        }
        for attempt in open {
            self.told.insert(attempt);
            match self.known.ends.get(&attempt) {
                Some((at, end)) if self.since.is_none_or(|since| *at >= since) => {
                    self.tell(attempt, end.kind.map(FailureKind::as_str), &end.summary);
                }
                None if self.since.is_none() => self.tell_unjudged(attempt),
                Some(_) | None => {}
            }
        }
    }

    /// Takes note of the newest end.
    pub(super) fn see(&mut self, view: &JobView) {
        let newest = view.last_end.as_ref().map(|end| end.attempt);
        if self.seen.map(|(attempt, _)| attempt) != newest {
            self.seen = newest.map(|attempt| (attempt, Instant::now()));
        }
    }

    /// How the attempts so far have ended, of a job that goes on: each once it has been known for so long, also of those
    /// without output.
    pub(super) async fn so_far(&mut self, view: &JobView, known_for: Duration) {
        // How the last one did is in how the job did.
        if let Some(end) = view.last_end.as_ref().filter(|_| view.outcome.is_none())
            && !self.told.contains(&end.attempt)
        {
            // What it said last may still be on its way, also where it was the first that was said.
            if self.seen.is_none_or(|(attempt, since)| attempt != end.attempt || since.elapsed() < known_for) {
                return;
            }
            self.before(end.attempt).await;
            self.told.insert(end.attempt);
            if self.since.is_none_or(|since| end.at >= since) {
                self.tell(end.attempt, end.kind.map(FailureKind::as_str), &end.summary);
            }
        }
    }

    /// What is waited for when a program has ended and its job has not.
    pub(super) fn waits(&mut self, view: &JobView) {
        let is_over = view.reason == Reason::Settling || view.phase == Phase::Stopping;
        // After the end that it follows.
        let is_told =
            view.outcome.is_some() || view.last_end.as_ref().is_none_or(|end| self.told.contains(&end.attempt));
        let awaited = view.waiting_for.clone().filter(|_| is_over && is_told);
        if let Some(what) = awaited.as_ref().filter(|_| awaited != self.awaited) {
            let message = human::tame(&view.message);
            self.context.printer.talk(&format!("{} waits for {what}: {message}", self.job));
        }
        self.awaited = awaited;
    }

    /// The job has ended: how its last attempts did, and how the job.
    pub(super) async fn of_job(&mut self, view: &JobView) {
        self.before(view.attempt.max(self.newest)).await;
        // A job mostly ends as its last attempt did, and says so itself.
        if let Some(end) = view.last_end.as_ref().filter(|end| end.attempt >= self.newest)
            && !self.told.contains(&end.attempt)
            && let Some(kind) = end.kind
            && !view.message.contains(&end.summary)
        {
            self.tell(end.attempt, Some(kind.as_str()), &end.summary);
        }
        let (phase, message) = (human::phase_of(view), human::tame(&view.message));
        self.context.printer.talk(&format!("{} {phase}: {message}", self.job));
    }

    /// Nothing more comes of one attempt, which alone was asked for.
    pub(super) async fn of_attempt(&mut self, attempt: u32, view: &JobView) -> Result<()> {
        if attempt > view.attempt {
            let (phase, message) = (human::phase_of(view), human::tame(&view.message));
            self.context.printer.talk(&format!("attempt {attempt} never began: {} {phase}: {message}", self.job));
            return Ok(());
        }
        self.known.read(self.context, self.job, &[attempt]).await?;
        match self.known.ends.get(&attempt) {
            Some((_, end)) => self.tell(attempt, end.kind.map(FailureKind::as_str), &end.summary),
            None => self.tell_unjudged(attempt),
        }
        Ok(())
    }

    fn tell(&self, attempt: u32, kind: Option<&str>, summary: &str) {
        let kind = kind.map(|kind| format!("{}: ", kind.bold())).unwrap_or_default();
        self.context.printer.talk(&format!("attempt {attempt} ended: {kind}{}", human::tame(summary)));
    }

    /// Only what comes from outside the program is no end that was judged.
    fn tell_unjudged(&self, attempt: u32) {
        let job = self.job;
        self.context
            .printer
            .talk(&format!("attempt {attempt} ended by an order; `rekindle history {job} -v` tells whose"));
    }
}
