//! Tells a person why a job is where it is, what happens next and when, from the job document alone.
//!
//! Owns the words; decides nothing and guesses nothing: what the document does not say is not said here.
//! Entry points: [`explain`] and [`waiting_for`].

use std::fmt::Write as _;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::classify::EvidenceLine;
use crate::decide::LAST_HEARD;
use crate::failure::FailureKind;
use crate::job::{Attempt, Create, Ended, Generation, Job, LastEnd, Outcome, Phase, Via};
use crate::placement::describe;
use crate::policy::{self, Action, Charge};
use crate::reason::Reason;
use crate::text::is_unseen;

mod facts;

#[cfg(test)]
mod tests;

/// The answer of `rekindle explain`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// One paragraph of plain sentences.
    pub paragraph: String,
    /// The facts that it rests on, one a line.
    pub facts: Vec<String>,
}

/// Explains a job at a moment.
pub fn explain(job: &Job, now: Timestamp) -> Explanation {
    let cause = cause(job);
    let mut sentences = vec![standing(job, now, cause.as_deref())];
    sentences.extend(why(job));
    sentences.extend(job.last_end.as_ref().and_then(|end| last_end(job, end, cause.as_deref())));
    sentences.extend(what_next(job, now));
    sentences.extend(way_out(job, now));
    sentences.extend(when_next(job, now));
    let facts = facts::facts(job, now).into_iter().map(|fact| plain(&fact)).collect();
    Explanation { paragraph: plain(&sentences.join(" ")), facts }
}

/// What programs and APIs wrote may hold anything, and this ends on a terminal, in one line.
fn plain(text: &str) -> String {
    let is_blank = |c: char| is_unseen(c) || c == ' ';
    text.split(is_blank).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// What the job waits for, in a few words; `None` while its program runs, and after its end.
pub fn waiting_for(job: &Job) -> Option<String> {
    let message = || (!job.message.is_empty()).then(|| plain(without_stop(&job.message)));
    match job.phase {
        Phase::Running | Phase::Succeeded | Phase::Failed | Phase::Cancelled => None,
        Phase::Paused => Some("a person: `unpause`, or `cancel`".into()),
        Phase::Stopping => Some(match (resources(job), ending(job), sends(job)) {
            (Some(names), Some((attempt, _)), _) => {
                format!("the end of all that attempt {attempt} runs on its workers, and then the deletion of {names}")
            }
            (Some(names), None, Some(what)) => format!("{what}, and then the deletion of {names}"),
            (Some(names), None, None) => format!("the deletion of {names}"),
            (None, _, _) => "the last look at its resources".into(),
        }),
        Phase::Recovering if job.settling.is_some() => {
            let until = job.settling.as_ref().map_or_else(String::new, |s| format!(", until {:.0}", s.until));
            Some(format!("a sign that the slice was lost{until}"))
        }
        Phase::Pending | Phase::Recovering => message().or_else(|| Some("the next pass".into())),
        Phase::Provisioning => Some(match job.current_generation() {
            Some(g) if job.reason == Reason::InProviderQueue => {
                format!("the provider's queue: {}", describe(&g.placement))
            }
            Some(g) => format!("the TPU: {}", describe(&g.placement)),
            None => "the TPU".into(),
        }),
        Phase::Starting if job.reason == Reason::Fencing => {
            message().or_else(|| Some("proof that the earlier attempt ended everywhere".into()))
        }
        Phase::Starting if job.reason == Reason::Released => Some("the program to start on all workers".into()),
        Phase::Starting => Some("the workers to be ready".into()),
    }
}

/// What a failed job failed by, in the shortest words there are: the line that says it, else the sentence of the end.
fn cause(job: &Job) -> Option<String> {
    let end = job.last_end.as_ref().filter(|end| job.outcome == Some(Outcome::Failed) && end_is_told(job, end))?;
    let ended = &end.ended;
    let line = ended.verdict.as_ref().and_then(|verdict| verdict.evidence.first()).map(|first| first.line.trim());
    // A line that the sentence does not hold was not what it was judged by.
    let line = line.filter(|line| !line.is_empty() && ended.summary.contains(line));
    let line = line.map(|line| line.strip_prefix(OURS).unwrap_or(line).to_owned());
    let cause = without_stop(&line.unwrap_or_else(|| without_kind(ended))).to_owned();
    (!cause.is_empty()).then_some(cause)
}

/// What agents write into the output of a program begins so.
const OURS: &str = "rekindle: ";

/// The sentence of an end without its kind, which stands beside it.
fn without_kind(ended: &Ended) -> String {
    let Some(kind) = ended.kind else { return ended.summary.clone() };
    let summary = without_stop(&ended.summary);
    summary.replacen(&format!(" ({kind})"), "", 1).replacen(&format!("({kind}, "), "(", 1)
}

/// Where the job stands, since when, on what; of a failed one first its cause.
fn standing(job: &Job, now: Timestamp, cause: Option<&str>) -> String {
    let since = since(job.phase_since, now);
    let id = &job.id;
    match job.phase {
        Phase::Pending => format!("Job {id} has waited {since} and has no TPU yet."),
        Phase::Provisioning => match job.current_generation() {
            Some(g) => format!("Job {id} has waited {since} for its TPU: {}.", asked(g, now)),
            None => format!("Job {id} has waited {since} for its TPU."),
        },
        Phase::Starting => {
            let place = job.current_generation().map_or_else(String::new, |g| format!(" on {}", slice(g)));
            format!("Job {id} has been starting for {since}{place}.")
        }
        Phase::Running => match job.attempt() {
            Some(attempt) => format!("Job {id} runs: {}, for {since}{}.", on(job, attempt), progress(job, attempt)),
            None => format!("Job {id} runs, for {since}."),
        },
        Phase::Recovering if job.settling.is_some() => {
            format!("Job {id} is about to fail; for {since} it has waited to see whether its slice was lost.")
        }
        Phase::Recovering => format!("Job {id} is being brought back, for {since}{}.", lost_slice(job)),
        Phase::Stopping => {
            let end = match job.outcome {
                Some(outcome) => match cause {
                    Some(cause) => format!("has {}: {cause}. It has ended", end_word(job, outcome)),
                    None => format!("has ended ({})", end_word(job, outcome)),
                },
                None => "is being paused".to_owned(),
            };
            match (ending(job), sends(job)) {
                (Some((attempt, _)), _) => {
                    format!("Job {id} {end}; for {since} attempt {attempt} has been ending on its workers.")
                }
                (None, Some(what)) => format!("Job {id} {end}; for {since} its workers have been sending {what}."),
                (None, None) => format!("Job {id} {end}; for {since} what it owned is being deleted."),
            }
        }
        Phase::Paused => format!("Job {id} has been paused for {since}; it owns nothing and costs nothing."),
        Phase::Succeeded | Phase::Failed | Phase::Cancelled => {
            let how = match job.outcome {
                Some(Outcome::Succeeded) => "succeeded",
                Some(Outcome::Failed) => "failed",
                Some(Outcome::Cancelled) if job.spec.workspace => "was deleted",
                Some(Outcome::Cancelled) => "was cancelled",
                None => job.phase.as_str(),
            };
            let attempts = job.last_attempt;
            let (attempt_word, generation_word) = (plural(attempts, "attempt"), plural(job.last_generation, "TPU"));
            let by = cause.map_or_else(String::new, |cause| format!(": {cause}. It ended"));
            format!(
                "Job {id} {how}{by} at {:.0} after {attempt_word} on {generation_word}; it owns nothing.",
                job.phase_since
            )
        }
    }
}

/// How it ended, as its owner says it: a workspace ends by being deleted.
fn end_word(job: &Job, outcome: Outcome) -> &'static str {
    if outcome == Outcome::Cancelled && job.spec.workspace { "deleted" } else { outcome.phase().as_str() }
}

/// It has ended by itself, and its slice is kept while this comes.
fn sends(job: &Job) -> Option<&'static str> {
    let is_kept = |g: &Generation| g.delete.is_none() && g.lost.is_none() && !g.is_somebody_elses();
    let is_sending = job.outcome.is_some_and(|outcome| outcome != Outcome::Cancelled)
        && job.attempts.last().is_some_and(|a| a.fenced_at.is_some())
        && job.generations.iter().any(is_kept);
    let what = if job.spec.outputs.is_empty() { "the rest of its output" } else { "its outputs" };
    is_sending.then_some(what)
}

/// The attempt that was told to end and may still run, on a slice that is kept until it does; and when it is killed.
fn ending(job: &Job) -> Option<(u32, Timestamp)> {
    let is_kept = |g: &Generation| g.delete.is_none() && g.lost.is_none() && !g.is_somebody_elses();
    let attempt = job.attempts.last().filter(|a| a.fenced_at.is_none())?;
    let deadline = attempt.stop.as_ref()?.deadline;
    job.generation(attempt.generation).is_some_and(is_kept).then_some((attempt.number, deadline))
}

/// The reason that `decide` gave, in its own words.
fn why(job: &Job) -> Option<String> {
    let message = without_stop(&job.message);
    // While it runs the message only repeats where it stands, and an end says its root cause itself.
    let repeats = job.phase == Phase::Running && job.reason == Reason::Running;
    let told = job.last_end.as_ref().filter(|end| end_is_told(job, end)).map(|end| without_stop(&end.ended.summary));
    // The cause is told with the end that it is of: here only what follows from it.
    let rest = told.filter(|told| !told.is_empty()).and_then(|told| message.strip_prefix(told));
    let new = rest.map_or(message, |rest| rest.trim_start_matches([';', ' ']));
    if new.is_empty() || repeats {
        return None;
    }
    Some(format!("Why: {new} ({}).", job.reason.name()))
}

/// Whether the last end still explains anything: not of a job that ended well or runs long since.
fn end_is_told(job: &Job, end: &LastEnd) -> bool {
    end.ended.kind.is_some() && job.outcome != Some(Outcome::Succeeded)
}

/// The root cause of the last end, its evidence, what was decided and what it was charged to. `cause` was told before.
fn last_end(job: &Job, end: &LastEnd, cause: Option<&str>) -> Option<String> {
    if !end_is_told(job, end) {
        return None;
    }
    let kind = end.ended.kind?;
    let summary = without_kind(&end.ended);
    let summary = without_stop(&summary);
    let told = cause.and_then(|cause| summary.strip_suffix(cause)).unwrap_or(summary);
    let told = told.strip_suffix(OURS).unwrap_or(told).trim_end_matches([':', ' ']);
    let told = if told.is_empty() { String::new() } else { format!(": {told}") };
    let (attempt, generation, at) = (end.attempt, end.generation, end.ended.at);
    let mut text = format!("Attempt {attempt} on generation {generation} ended at {at:.0} ({kind}){told}.");
    if let Some(line) = evidence(&end.ended) {
        let _ = write!(text, " {line}");
    }
    let answer = end.ended.action.map(answer_words);
    let charge = end.ended.charge.map(|charge| format!("charged to {}", charged(job, charge)));
    let decided: Vec<String> =
        answer.map(str::to_owned).into_iter().chain(charge).chain(by_rule(job, &end.ended)).collect();
    if !decided.is_empty() {
        let _ = write!(text, " Answer: {}.", decided.join("; "));
    }
    Some(text)
}

/// That the rule for this kind decides, where the budget alone would not explain the answer: one of the program's with a rule of its own is
/// answered though no budget is left, and a rule ends a job though some is.
fn by_rule(job: &Job, ended: &Ended) -> Option<String> {
    let (table, kind) = (&job.spec.recovery, ended.kind?);
    let rule = table.rule(kind);
    let times = rule.max.map(|max| if max == 1 { "once".to_owned() } else { format!("{max} times") });
    if !policy::budget_decides(table, kind) {
        return times.map(|times| {
            format!(
                "the rule for {kind} decides and not this budget: it answers {times} without progress, then the job fails"
            )
        });
    }
    let (spent, budget) = spent_of(job, policy::charge(kind));
    if ended.action != Some(Action::Fail) || budget.is_some_and(|most| spent > most) {
        return None;
    }
    let how = match times {
        Some(times) => format!("it answers {times} without progress, then the job fails"),
        None if [rule.first, rule.again].contains(&Action::Fail) => "it ends the job".to_owned(),
        None => return None,
    };
    Some(format!("the rule for {kind} decides, whatever is left of this budget: {how}"))
}

/// The first line of evidence: the cause.
fn evidence(ended: &Ended) -> Option<String> {
    let verdict = ended.verdict.as_ref()?;
    let EvidenceLine { worker, slice, line, reason, .. } = verdict.evidence.first()?;
    let worker = if *slice > 0 { format!("worker {worker} of slice {slice}") } else { format!("worker {worker}") };
    // What the sentence above says already is not said again.
    let summary = ended.summary.to_lowercase();
    let is_said = |text: &str| summary.contains(&text.trim().to_lowercase());
    let (line, reason) = (line.trim(), without_stop(reason));
    Some(match (line.is_empty(), is_said(line), is_said(reason)) {
        (true, _, true) => return None,
        (true, _, false) => format!("Evidence: {worker}, {reason}."),
        (false, true, true) => format!("Evidence: {worker} wrote it."),
        (false, true, false) => format!("Evidence: {worker} wrote it, which means: {reason}."),
        (false, false, true) => format!("Evidence: {worker} wrote `{line}`."),
        (false, false, false) => format!("Evidence: {worker} wrote `{line}`, which means: {reason}."),
    })
}

const fn answer_words(action: Action) -> &'static str {
    match action {
        Action::ResumeInPlace => "resume on the same slice",
        Action::RestartInPlace => "begin from scratch on the same slice",
        Action::Recreate => "resume on a new slice",
        Action::RecreateFromScratch => "begin from scratch on a new slice",
        Action::Fail => "fail",
    }
}

/// A budget and how much of it is spent.
fn charged(job: &Job, charge: Charge) -> String {
    let (spent, budget) = spent_of(job, charge);
    let (name, since) = match charge {
        Charge::Preemptions => ("preemptions", ""),
        Charge::Infra => ("infra_failures", SINCE),
        Charge::User => ("user_failures", SINCE),
    };
    match budget {
        None => format!("{name} ({spent} of unlimited{since})"),
        // The one that ends a job is above its budget, and "4 of 3" reads like a fault of ours.
        Some(most) if spent > most => format!("{name} ({spent}{since}; the budget is {most})"),
        Some(most) => format!("{name} ({spent} of {most}{since})"),
    }
}

/// What is spent of a budget, and the budget.
fn spent_of(job: &Job, charge: Charge) -> (u32, Option<u32>) {
    match charge {
        Charge::Preemptions => (job.counters.preemptions, job.spec.budgets.preemptions),
        Charge::Infra => (job.spent.infra_failures, job.spec.budgets.infra_failures),
        Charge::User => (job.spent.user_failures, job.spec.budgets.user_failures),
    }
}

/// These budgets are whole again after progress.
const SINCE: &str = " since the last progress";

/// What happens next, if nothing else happens.
fn what_next(job: &Job, now: Timestamp) -> Option<String> {
    match job.phase {
        Phase::Failed if out_of_memory(job) => {
            let again = "`--set budgets.user_failures=2` gives it more tries";
            Some(format!(
                "Next: a smaller batch, or a TPU with more memory; where the same may do another time, {again}."
            ))
        }
        Phase::Failed => silent_end(job).then(|| format!("Next: `rekindle logs {}` shows what it printed.", job.id)),
        Phase::Succeeded | Phase::Cancelled => None,
        Phase::Paused => Some("Next: nothing, until a person says `unpause` (a new TPU, RESUME=1) or `cancel`.".into()),
        Phase::Stopping => {
            let names = resources(job).unwrap_or_else(|| "what is left".to_owned());
            let are = if job.generations.len() > 1 { "are" } else { "is" };
            let then = job.outcome.map_or("paused", |outcome| end_word(job, outcome));
            let first = match ending(job) {
                Some((_, at)) if at > now => {
                    format!("what still runs is killed at {at:.0}; when all of it has ended the TPU is deleted, and ")
                }
                Some((_, at)) => {
                    format!(
                        "what still ran was to be killed at {at:.0}; when the workers say so the TPU is deleted, and "
                    )
                }
                None if sends(job).is_some() => "once that is there it is deleted, and ".to_owned(),
                None => String::new(),
            };
            Some(format!("Next: {first}once the TPU API says that {names} {are} gone, the job is {then}."))
        }
        Phase::Pending | Phase::Provisioning | Phase::Starting | Phase::Running | Phase::Recovering => {
            active_next(job, now)
        }
    }
}

/// It had too little memory, and no budget to try again with.
fn out_of_memory(job: &Job) -> bool {
    let Some(end) = job.last_end.as_ref().map(|end| &end.ended) else { return false };
    let is_oom = |kind: &FailureKind| matches!(kind, FailureKind::OomHbm | FailureKind::OomHost);
    let kind = end.kind.filter(is_oom).filter(|kind| policy::budget_decides(&job.spec.recovery, *kind));
    kind.is_some() && end.action == Some(Action::Fail) && job.spec.budgets.user_failures == Some(0)
}

/// No line says why it failed.
fn silent_end(job: &Job) -> bool {
    let verdict = job.last_end.as_ref().and_then(|end| end.ended.verdict.as_ref());
    verdict.is_some_and(|verdict| verdict.evidence.iter().all(|line| line.line.trim().is_empty()))
}

/// From this on it is odd that machines which are there have not prepared.
const ODD: Duration = Duration::from_mins(3);

/// Workers that cannot reach us tell us nothing, so that only the job's network can explain their silence.
fn way_out(job: &Job, now: Timestamp) -> Option<String> {
    let network = &job.spec.tpu.network;
    let ready_at = job.current_generation().and_then(|g| g.ready_at)?;
    let waits = job.phase == Phase::Starting && job.reason == Reason::WorkersPreparing && gap(ready_at, now) >= ODD;
    (waits && !network.external_ips).then(|| {
        format!(
            "Its workers have no external addresses: if none of them says hello, the network `{}` may have no Cloud NAT, without which \
             they reach neither this server nor packages (`nat = true` of the installation, or `tpu.external_ips: true` of the job).",
            network.network
        )
    })
}

fn active_next(job: &Job, now: Timestamp) -> Option<String> {
    if let Some(settling) = &job.settling {
        let kind = settling.kind;
        return Some(if settling.until > now {
            format!(
                "Next: at {:.0} it fails ({kind}), unless a loss of the slice explains the end before.",
                settling.until
            )
        } else {
            format!("Next: it fails ({kind}): no loss of the slice has explained the end.")
        });
    }
    if let Some(stopping) = job.attempt().filter(|attempt| attempt.stop.is_some() && attempt.fenced_at.is_none()) {
        let deadline = stopping.stop.as_ref().map_or(now, |stop| stop.deadline);
        let ends = if deadline > now {
            format!("by SIGTERM and at {deadline:.0} by SIGKILL")
        } else {
            format!("by SIGKILL since {deadline:.0}")
        };
        let then = job.next.as_ref().map_or_else(String::new, |next| format!("; then {}", next_words(next)));
        return Some(format!("Next: attempt {} ends on all workers, {ends}{then}.", stopping.number));
    }
    if let Some(next) = &job.next {
        let when = if next.not_before > now { format!("at {:.0} ", next.not_before) } else { String::new() };
        return Some(format!("Next: {when}{}.", next_words(next)));
    }
    match job.phase {
        Phase::Pending | Phase::Recovering => Some("Next: a TPU is asked for as soon as that allows it.".into()),
        Phase::Provisioning => Some("Next: once the TPU is READY its workers prepare.".into()),
        Phase::Starting if job.reason == Reason::Released => {
            Some(format!("Next: all workers report that it runs{}.", or_start_limit(job, now)))
        }
        Phase::Starting => Some(format!(
            "Next: `run` is started on all workers together when all of them are ready{}.",
            or_start_limit(job, now)
        )),
        Phase::Running => Some(running_next(job, now)),
        Phase::Stopping | Phase::Paused | Phase::Succeeded | Phase::Failed | Phase::Cancelled => None,
    }
}

/// Until when the program must have started everywhere: as `decide` counts it.
fn or_start_limit(job: &Job, now: Timestamp) -> String {
    let waits = job.attempt().filter(|a| a.started_at.is_none());
    let ready = job.current_generation().and_then(|g| g.ready_at);
    let until = waits.zip(ready).and_then(|(a, ready)| {
        let from = ready.max(a.created_at).max(a.held_until.unwrap_or(ready));
        from.checked_add(job.spec.limits.start).ok()
    });
    until.map_or_else(String::new, |at| {
        let limit = if at > now {
            format!("if it does not run on all of them by {at:.0}")
        } else {
            format!("if it does not with the next look, for its time was over at {at:.0}")
        };
        format!("; {limit} (`limits.start`), the attempt ends and the policy answers")
    })
}

/// A resume after the notice is not promised: the policy may say otherwise.
fn running_next(job: &Job, now: Timestamp) -> String {
    let notice = job.current_generation().and_then(|g| g.notice.as_ref());
    if let Some(notice) = notice.filter(|notice| notice.takes_away() && notice.deadline > now) {
        return format!("Next: its slice will be taken away at {:.0}.", notice.deadline);
    }
    if let Some((_, told)) = job.message.split_once("; ").filter(|(_, told)| told.contains(LAST_HEARD)) {
        return format!("Next: {told}.");
    }
    let total = job.spec.limits.total.zip(job.first_started_at);
    let ends = total.and_then(|(limit, started)| started.checked_add(limit).ok());
    if job.spec.workspace {
        // What brings it back is somebody's use.
        return match job.spec.limits.idle {
            Some(idle) => {
                let idle = span(idle);
                format!("Next: it stays until it is paused or deleted, or until nobody has used it for {idle}.")
            }
            None => "Next: it stays until it is paused or deleted.".into(),
        };
    }
    // The default is no plan of anybody's, and as a rule longer than what a person waits for.
    let stall = job.spec.limits.stall.filter(|_| job.spec.limits.stall_by_hand);
    let stall = stall.map_or_else(String::new, |stall| {
        format!(
            "; {} after its last progress the attempt ends by its limit `stall`, and the policy answers",
            span(stall)
        )
    });
    match ends {
        Some(at) if at > now => format!("Next: it ends by itself, or at {at:.0} by its limit `total`{stall}."),
        Some(_) => "Next: it is ended by its limit `total`, which has passed.".into(),
        None => format!("Next: it ends by itself{stall}."),
    }
}

fn next_words(next: &crate::job::Next) -> String {
    let (place, how) = (
        if next.new_generation { "a new slice is asked for" } else { "the next attempt starts on the same slice" },
        if next.resume { "RESUME=1" } else { "RESUME=0" },
    );
    format!("{place} ({how})")
}

/// When a pass looks again, for jobs that wait for something.
fn when_next(job: &Job, now: Timestamp) -> Option<String> {
    if job.phase.is_terminal() || job.phase == Phase::Paused {
        return None;
    }
    let Some(at) = look_at(job) else {
        return Some("No look at it is due; only an event or a command moves it.".into());
    };
    let late = gap(at, now);
    Some(if late >= LATE {
        format!("The next look was due at {at:.0} and is {} late; the next tick makes up for it.", span(late))
    } else if at <= now || job.settling.is_some() {
        // Not all that is due has a wake-up of its own: it comes with the tick, and that is nothing to tell. When a failure becomes
        // final is said with it.
        return None;
    } else {
        format!("The next look is due at {at:.0}.")
    })
}

/// When the next look must have come. While a failure settles that is the one that makes it final: earlier ones come with the ticks.
fn look_at(job: &Job) -> Option<Timestamp> {
    let until = job.settling.as_ref().map(|settling| settling.until);
    job.wake_at.map(|at| until.map_or(at, |until| until.max(at)))
}

/// From this on a look is late, and worth a word: the tick comes each minute, and takes what is due.
const LATE: Duration = Duration::from_secs(90);

fn on(job: &Job, attempt: &Attempt) -> String {
    let place = job.generation(attempt.generation).map_or_else(String::new, |g| format!(" on {}", slice(g)));
    format!("attempt {}{place}", attempt.number)
}

fn progress(job: &Job, attempt: &Attempt) -> String {
    let step = attempt.step.map_or_else(String::new, |step| format!(", at step {step}"));
    let saved = job.saved.map_or_else(String::new, |step| format!(", last checkpoint at {step}"));
    format!("{step}{saved}")
}

fn lost_slice(job: &Job) -> String {
    let lost = job.generations.iter().rev().find_map(|g| g.lost.as_ref().map(|lost| (g, lost)));
    lost.map_or_else(String::new, |(g, lost)| {
        format!("; its {} was lost at {:.0} ({}: {})", slice(g), lost.at, lost.kind, without_stop(&lost.fact))
    })
}

/// `generation 2 (spot v5litepod-16 in us-central1-a)`.
fn slice(g: &Generation) -> String {
    let slices = if g.slices > 1 { format!("{} slices of ", g.slices) } else { String::new() };
    format!("generation {} ({slices}{})", g.number, describe(&g.placement))
}

fn asked(g: &Generation, now: Timestamp) -> String {
    let via = match g.via {
        Via::Node => "as a node",
        Via::QueuedResource => "by a queued resource",
    };
    let state = match &g.create {
        Create::Intended => "is about to be asked for",
        Create::Sent { .. } => "was asked for",
        Create::Failed { .. } => "was refused",
        Create::Done => "was made",
    };
    format!("{} {state} {via} {}", slice(g), ago(g.intended_at, now))
}

/// The names of what the job still owns.
fn resources(job: &Job) -> Option<String> {
    let names: Vec<&str> = job.generations.iter().map(|g| g.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(" and "))
}

fn plural(count: u32, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

fn without_stop(text: &str) -> &str {
    text.trim().trim_end_matches('.')
}

/// How long it has lasted, in words.
fn since(at: Timestamp, now: Timestamp) -> String {
    span(gap(at, now))
}

/// How long ago it was, in words.
fn ago(at: Timestamp, now: Timestamp) -> String {
    match gap(at, now) {
        Duration::ZERO => "just now".to_owned(),
        gap => format!("{} ago", span(gap)),
    }
}

/// From `at` to `now`, in whole seconds; zero if `at` is later.
fn gap(at: Timestamp, now: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(now.duration_since(at).as_secs()).unwrap_or(0))
}

/// `2h 5m`: the two largest units, which is as exact as a person wants it.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let rounded = match seconds {
        0 => return "less than a second".to_owned(),
        1..3600 => seconds,
        3600..86400 => seconds / 60 * 60,
        _ => seconds / 3600 * 3600,
    };
    humantime::format_duration(Duration::from_secs(rounded)).to_string()
}
