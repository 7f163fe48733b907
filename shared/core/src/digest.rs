//! What happened to a job since a moment: the digest that a person reads who was away.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::failure::FailureKind;
use crate::history::{AttemptEnd, HistoryEntry};
use crate::ids::JobId;
use crate::job::{Job, Outcome, Phase};
use crate::reason::Reason;
use crate::series::Series;

/// People's commands that a digest names; of more, the newest.
const COMMANDS_MAX: usize = 100;

/// One job since a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobDigest {
    /// The job.
    pub id: JobId,
    /// Who pays.
    pub owner: String,
    /// True: it is a workspace, which ends by being deleted.
    #[serde(default)]
    pub is_workspace: bool,
    /// Where it is now.
    pub phase: Phase,
    /// Its end, if it is known.
    pub outcome: Option<Outcome>,
    /// Why it is where it is.
    pub reason: Reason,
    /// The same in one sentence.
    pub message: String,
    /// True: it was submitted since.
    pub is_new: bool,
    /// True: it came to its end since, and its last resource is gone.
    pub has_ended: bool,
    /// Attempts whose program began since; those that are only waited for are none yet.
    pub attempts: u32,
    /// TPUs that were asked for since.
    pub generations: u32,
    /// Ends of attempts since, by their kind.
    pub ends: BTreeMap<FailureKind, u32>,
    /// The newest end of an attempt since.
    pub last_end: Option<AttemptEnd>,
    /// What people did since, such as `pause by ann@example.com`; the newest.
    pub by_people: Vec<String>,
    /// Highest step.
    pub step: Option<u64>,
    /// Steps that it came further since; `None` without any step.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Loss there, as the program wrote it.
    pub loss: Option<String>,
    /// Cost so far, in US dollars.
    pub cost_usd: f64,
    /// When something last happened.
    pub last_at: Timestamp,
}

/// The digest of a job: its history from the moment on, and the last entry before that.
pub fn digest(job: &Job, before: Option<&HistoryEntry>, entries: &[HistoryEntry]) -> JobDigest {
    let mut ends = BTreeMap::new();
    for kind in entries.iter().filter_map(|entry| entry.ended.as_ref()?.kind) {
        *ends.entry(kind).or_insert(0) += 1;
    }
    let by_people = entries.iter().filter(|entry| entry.actor != "rekindle" && entry.cause != "submit");
    let by_people: Vec<String> = by_people.map(|entry| told(entry, job.spec.workspace)).collect();
    let begun: BTreeSet<u32> = entries.iter().flat_map(HistoryEntry::begun).collect();
    let was_over = before.is_some_and(|entry| entry.to.is_terminal());
    JobDigest {
        id: job.id.clone(),
        owner: job.spec.owner.clone(),
        is_workspace: job.spec.workspace,
        phase: job.phase,
        outcome: job.outcome,
        reason: job.reason,
        message: job.message.clone(),
        is_new: before.is_none(),
        has_ended: job.phase.is_terminal() && !was_over,
        attempts: u32::try_from(begun.len()).unwrap_or(u32::MAX),
        generations: job.last_generation.saturating_sub(before.map_or(0, |entry| entry.generation)),
        ends,
        last_end: entries.iter().rev().find_map(|entry| entry.ended.clone()),
        by_people: by_people[by_people.len().saturating_sub(COMMANDS_MAX)..].to_vec(),
        step: job.step(),
        steps: None,
        loss: job.last_loss.clone(),
        cost_usd: job.usage.cost_usd_micros as f64 / 1e6,
        last_at: entries.last().map_or(job.changed_at, |entry| entry.at),
    }
}

/// What somebody did, by the name of the command that they gave: on a workspace some have names of their own.
fn told(entry: &HistoryEntry, is_workspace: bool) -> String {
    match entry.message.split_once(' ') {
        Some(("cancel", rest)) if is_workspace => format!("delete {rest}"),
        Some(("unpause", rest)) if is_workspace => format!("up {rest}"),
        Some(("exec-stop", rest)) => format!("exec stopped {rest}"),
        Some(_) | None => entry.message.clone(),
    }
}

impl JobDigest {
    /// With how far it came since: its step now against the one that it had come to by then. `series`: the progress of its
    /// attempts, oldest first, of which only those of the current checkpoint line count.
    #[must_use]
    pub fn with_steps(mut self, job: &Job, since: Timestamp, series: &[(u32, Series)]) -> Self {
        let of_line: Vec<_> = job.attempts.iter().filter(|a| a.line == job.line).collect();
        // The job remembers its newest attempts alone. Where there is one line, all are of it.
        let is_of_line = |number: u32| job.line == 0 || of_line.iter().any(|a| a.number == number);
        let points = series.iter().filter(|(number, _)| is_of_line(*number)).flat_map(|(_, series)| &series.points);
        let by_then = points.clone().filter(|point| point.at <= since).map(|point| point.step).max();
        // One that has told no step by then has begun since: where its first attempt did.
        let began = || match of_line.first() {
            Some(first) if job.line > 0 || first.number == 1 => first.resumed_from.unwrap_or(0),
            // What another job did is not its own.
            _ if job.spec.resume => points.map(|point| point.step).min().unwrap_or(0),
            _ => 0,
        };
        self.steps = self.step.map(|step| step.saturating_sub(by_then.unwrap_or_else(began)));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, open_deployment, small, spec_in};

    fn entry(revision: u64, to: Phase, attempt: u32, ended: Option<FailureKind>) -> HistoryEntry {
        HistoryEntry {
            revision,
            at: at(revision as i64),
            cause: "hint".into(),
            actor: "rekindle".into(),
            from: to,
            to,
            reason: Reason::Running,
            message: String::new(),
            notes: Vec::new(),
            effects: Vec::new(),
            attempt,
            generation: attempt,
            ended: ended.map(|kind| AttemptEnd { attempt, kind: Some(kind), summary: format!("end {revision}") }),
        }
    }

    fn job(phase: Phase, attempt: u32) -> Job {
        let mut job = crate::fixture::job(spec_in(&open_deployment(), &small()));
        (job.phase, job.last_attempt, job.last_generation) = (phase, attempt, attempt);
        job
    }

    #[test]
    fn what_happened_is_counted_from_the_moment_on() {
        let told = |revision, word: &str| HistoryEntry {
            actor: "ann".into(),
            cause: word.to_owned(),
            message: format!("{word} by ann"),
            ..entry(revision, Phase::Running, 2, None)
        };
        let runs = |revision, attempt, ended| HistoryEntry {
            notes: vec![crate::history::begun(attempt, 4)],
            ..entry(revision, Phase::Running, attempt, ended)
        };
        let before = entry(1, Phase::Running, 2, Some(FailureKind::UserError));
        let entries = [
            entry(2, Phase::Recovering, 2, Some(FailureKind::Preempted)),
            entry(3, Phase::Recovering, 3, None),
            runs(4, 3, None),
            told(4, "wake"),
            entry(5, Phase::Running, 3, Some(FailureKind::Preempted)),
            // It ended before anybody looked again.
            HistoryEntry { to: Phase::Recovering, ..runs(6, 4, Some(FailureKind::InfraGrpc)) },
            // A slice is waited for.
            entry(7, Phase::Recovering, 5, None),
        ];
        let digest = digest(&job(Phase::Recovering, 5), Some(&before), &entries);
        assert_eq!((digest.is_new, digest.has_ended, digest.attempts, digest.generations), (false, false, 2, 3));
        assert_eq!(digest.ends, BTreeMap::from([(FailureKind::Preempted, 2), (FailureKind::InfraGrpc, 1)]));
        assert_eq!(digest.last_end.unwrap().summary, "end 6");
        assert_eq!((digest.by_people, digest.last_at), (vec!["wake by ann".to_owned()], at(7)));
    }

    #[test]
    fn commands_on_a_workspace_have_the_names_by_which_they_were_given() {
        let entry = |message: &str| HistoryEntry { message: message.into(), ..entry(3, Phase::Running, 1, None) };
        for (message, of_job, of_workspace) in [
            ("cancel by ann", "cancel by ann", "delete by ann"),
            ("unpause by ann", "unpause by ann", "up by ann"),
            ("pause by ann", "pause by ann", "pause by ann"),
            ("exec-stop by ann", "exec stopped by ann", "exec stopped by ann"),
        ] {
            assert_eq!(
                (told(&entry(message), false), told(&entry(message), true)),
                (of_job.into(), of_workspace.into())
            );
        }
    }

    #[test]
    fn a_job_ends_once() {
        let end = entry(3, Phase::Succeeded, 1, None);
        for (before, ended) in [
            (Some(entry(2, Phase::Stopping, 1, None)), true),
            (Some(entry(2, Phase::Succeeded, 1, None)), false),
            (None, true),
        ] {
            let digest = digest(&job(Phase::Succeeded, 1), before.as_ref(), std::slice::from_ref(&end));
            assert_eq!((digest.has_ended, digest.is_new), (ended, before.is_none()), "{before:?}");
        }
        assert!(!digest(&job(Phase::Stopping, 1), None, &[]).has_ended);
        let mut workspace = job(Phase::Cancelled, 1);
        workspace.spec.workspace = true;
        assert!(
            digest(&workspace, None, &[]).is_workspace && !digest(&job(Phase::Cancelled, 1), None, &[]).is_workspace
        );
    }

    #[test]
    fn steps_are_counted_from_where_the_line_was_at_that_moment() {
        let series = |points: &[(i64, u64)]| {
            let points = points.iter().map(|(secs, step)| crate::series::Point::new(at(*secs), *step, None));
            Series { points: points.collect(), ..Series::default() }
        };
        let all = [(1, series(&[(10, 100), (20, 200)])), (2, series(&[(40, 150), (50, 250)]))];
        let mut job = job(Phase::Running, 2);
        job.attempts = [1, 2].map(|number| crate::fixture::attempt(number, 1)).to_vec();
        job.line_step = Some(300);
        let steps = |job: &Job, secs| digest(job, None, &[]).with_steps(job, at(secs), &all).steps;
        assert_eq!([5, 10, 45, 60].map(|secs| steps(&job, secs)), [Some(300), Some(200), Some(100), Some(50)]);
        job.attempts[1].resumed_from = Some(150);
        assert_eq!(steps(&job, 5), Some(300), "where the first began, not one that resumed");
        job.attempts[0].resumed_from = Some(90);
        assert_eq!(steps(&job, 5), Some(210), "what another job did is not its own");
        // Of the first nothing is remembered but its series.
        let newest = Job { attempts: vec![job.attempts[1].clone()], ..job.clone() };
        assert_eq!([5, 30, 45].map(|secs| steps(&newest, secs)), [Some(300), Some(100), Some(100)]);
        let mut spec = crate::spec::JobSpec::clone(&newest.spec);
        spec.resume = true;
        let goes_on = Job { spec: spec.into(), ..newest };
        assert_eq!(steps(&goes_on, 5), Some(200), "another job's steps are those below the first that is known");
        job.attempts[1].resumed_from = None;
        (job.line, job.attempts[1].line) = (1, 1);
        assert_eq!(steps(&job, 30), Some(300), "begun from scratch since");
        job.line_step = None;
        assert_eq!(steps(&job, 5), None);
    }

    #[test]
    fn of_many_commands_the_newest_are_told() {
        let told = |revision| HistoryEntry {
            actor: "ann".into(),
            message: format!("wake {revision}"),
            ..entry(revision, Phase::Running, 1, None)
        };
        let entries: Vec<HistoryEntry> = (1..=109).map(told).collect();
        let digest = digest(&job(Phase::Running, 1), None, &entries);
        assert_eq!(digest.by_people.len(), COMMANDS_MAX);
        assert_eq!(digest.by_people.last().unwrap(), "wake 109");
    }
}
