//! `wait`: until the end of jobs is known.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use owo_colors::OwoColorize as _;
use rekindle_core::job::{Desired, Outcome, Phase};
use rekindle_core::reason::Reason;
use rekindle_wire::v1::JobView;

use super::{Context, job_path, leave, nearest};
use crate::answers::WaitEnd;
use crate::api::typed;
use crate::args::Wait;
use crate::exit::Exit;
use crate::fault::{Fault, Result};
use crate::human;

/// First pause between two looks; doubled up to the longest.
const LOOK_FIRST: Duration = Duration::from_millis(100);
pub(super) const LOOK_MAX: Duration = Duration::from_secs(2);
/// A server that does not answer for so long is given up.
const OUTAGE_MAX: Duration = Duration::from_mins(10);

/// What is known of the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It ended so.
    Known(Outcome),
    /// The time is up.
    TimedOut,
    /// There is no such job.
    NoSuchJob,
}

impl End {
    /// The exit code.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Known(Outcome::Succeeded) => Exit::Done,
            Self::Known(Outcome::Failed) => Exit::Fault,
            Self::Known(Outcome::Cancelled) => Exit::Cancelled,
            Self::TimedOut | Self::NoSuchJob => Exit::NotKnown,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Known(outcome) => outcome.phase().as_str(),
            Self::TimedOut => "timed_out",
            Self::NoSuchJob => "no_such_job",
        }
    }
}

/// Waits for all of them; the greatest code is the answer.
pub(crate) async fn run(context: &Context, options: &Wait) -> Result<ExitCode> {
    let deadline = options.timeout.map(|timeout| Instant::now() + timeout);
    let ends = options.jobs.iter().map(|job| until_end(context, job, deadline));
    let mut exit = Exit::Done;
    let all = async { Ok(futures::future::join_all(ends).await) };
    let still = leave::jobs_go_on(&options.jobs, "wait");
    for (job, end) in options.jobs.iter().zip(leave::watching(context, || still, all).await?) {
        exit = exit.max(report(context, job, &end?).await?);
    }
    Ok(exit.into())
}

/// Shows the end of one job; answers its exit code.
pub(crate) async fn report(context: &Context, job: &str, (end, view): &(End, Option<JobView>)) -> Result<Exit> {
    let printer = context.printer;
    let message = view.as_ref().map(|view| human::tame(&view.message)).unwrap_or_default();
    if printer.is_json {
        printer.json_line(&WaitEnd {
            job,
            outcome: end.word(),
            message: &message,
            attempts: view.as_ref().map(|view| view.attempt),
            generations: view.as_ref().map(|view| view.generation),
        })?;
        if matches!(end, End::NoSuchJob) {
            printer.fault(&no_such_job(context, job).await);
        }
        if matches!(end, End::TimedOut) {
            printer.fault(&timed_out(job, view.as_ref()));
        }
        return Ok(end.exit());
    }
    match end {
        End::Known(outcome) => {
            // Its TPU may still be given back.
            let ended = view.as_ref().map(|view| human::phase_of(&JobView { phase: outcome.phase(), ..view.clone() }));
            printer.line(&format!("{job} {}: {message}", ended.unwrap_or_else(|| human::phase(outcome.phase()))))?;
        }
        End::TimedOut => {
            let phase = view.as_ref().map_or("not known", |view| view.phase.as_str());
            printer.warn(&format!("{job} has not ended in time; it is {}", phase.bold()));
            printer.talk(&go_on(job));
        }
        End::NoSuchJob => {
            printer.fault(&no_such_job(context, job).await);
        }
    }
    Ok(end.exit())
}

/// The same as the warning, for machines.
fn timed_out(job: &str, view: Option<&JobView>) -> Fault {
    let phase = view.map_or("not known", |view| view.phase.as_str());
    Fault::input(format!("{job} has not ended in time"))
        .because(format!("it is {phase}"))
        .next(go_on(job))
        .exits(Exit::NotKnown)
}

/// What to do after a wait whose time is up.
fn go_on(job: &str) -> String {
    format!("`rekindle wait {job}` waits on, `rekindle explain {job}` tells what it is at")
}

/// The server did not come back: the jobs are not lost by that.
fn given_up(fault: Fault, job: &str) -> Fault {
    fault
        .because(format!(
            "it has not answered as it should for {} minutes: how {job} ended is not known, and it may go on meanwhile",
            OUTAGE_MAX.as_secs() / 60
        ))
        .next(format!("bring the server back (`rekindle doctor` checks it), then `rekindle wait {job}` waits on: nothing is to be submitted again"))
        .exits(Exit::NotKnown)
}

async fn no_such_job(context: &Context, job: &str) -> Fault {
    let fault = Fault::input(format!("there is no job {job}")).for_lack_of(job).exits(Exit::NotKnown);
    nearest::told(context, fault.next("`rekindle ps` lists the jobs")).await
}

/// Looks until the outcome is set. A server that is away for a while (a restart) is waited for.
pub(crate) async fn until_end(
    context: &Context,
    job: &str,
    deadline: Option<Instant>,
) -> Result<(End, Option<JobView>)> {
    let path = job_path(job, "")?;
    let (mut etag, mut view) = (None, None::<JobView>);
    let mut pause = LOOK_FIRST;
    let mut down_since: Option<Instant> = None;
    loop {
        match context.api.get_if_changed(&path, &mut etag).await {
            Ok(found) => {
                down_since = None;
                if let Some(value) = found {
                    let now: JobView = typed(value)?;
                    if let Some(outcome) = now.outcome {
                        return Ok((End::Known(outcome), Some(now)));
                    }
                    tell_change(context, job, view.as_ref(), &now);
                    view = Some(now);
                }
            }
            Err(fault) if fault.lacks().is_some() => return Ok((End::NoSuchJob, None)),
            // The first look must work: then the address and the rights are good, and a failure will pass.
            Err(fault) if fault.exit() == Exit::Unexpected && view.is_some() => {
                let since = *down_since.get_or_insert_with(|| {
                    context.printer.warn(&format!("{}; waiting for it", fault.what()));
                    Instant::now()
                });
                if since.elapsed() > OUTAGE_MAX {
                    return Err(given_up(fault, job));
                }
            }
            Err(fault) => return Err(fault),
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Ok((End::TimedOut, view));
        }
        tokio::time::sleep(left.map_or(pause, |left| left.min(pause))).await;
        pause = (pause * 2).min(LOOK_MAX);
    }
}

/// Looks at a job beside something else, and tells each change of its phase.
pub(super) struct Changes<'a> {
    context: &'a Context,
    job: &'a str,
    etag: Option<String>,
    view: Option<JobView>,
}

impl<'a> Changes<'a> {
    pub(super) fn new(context: &'a Context, job: &'a str) -> Self {
        Self { context, job, etag: None, view: None }
    }

    /// The job as it is now; as it was, where it cannot be looked at.
    pub(super) async fn look(&mut self) -> Option<&JobView> {
        if let Ok(path) = job_path(self.job, "")
            && let Ok(Some(value)) = self.context.api.get_if_changed(&path, &mut self.etag).await
            && let Ok(now) = typed::<JobView>(value)
        {
            tell_change(self.context, self.job, self.view.as_ref(), &now);
            self.view = Some(now);
        }
        self.view.as_ref()
    }
}

/// On a terminal, each change of the phase is told while one waits. That a job is paused is told everywhere: without a person
/// the wait has no end.
fn tell_change(context: &Context, job: &str, before: Option<&JobView>, now: &JobView) {
    let is_paused = |view: &JobView| view.desired == Desired::Pause && view.outcome.is_none();
    if is_paused(now) {
        if !before.is_some_and(is_paused) {
            let (is, why) = (if now.phase == Phase::Paused { "is" } else { "is being" }, human::tame(&now.message));
            context
                .printer
                .warn(&format!("{job} {is} paused ({why}); waiting until `rekindle unpause {job}` brings it back"));
        }
        return;
    }
    let is_new = before.is_none_or(|before| (before.phase, before.attempt) != (now.phase, now.attempt));
    let is_on_its_way = now.phase != Phase::Stopping && now.reason != Reason::Settling && !now.phase.is_terminal();
    if is_new && context.printer.is_talk_terminal() && is_on_its_way {
        context.printer.talk(&format!("{job} {}: {}", human::phase_of(now), human::tame(&now.message)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_whose_server_stays_away_says_what_becomes_of_the_job_and_what_to_do() {
        let fault = given_up(Fault::unexpected("no server answers at http://a"), "train-1");
        assert_eq!(fault.exit(), Exit::NotKnown);
        let text = fault.text();
        let next = "bring the server back (`rekindle doctor` checks it), then `rekindle wait train-1` waits on: nothing is to be submitted again";
        for said in ["not answered as it should for 10 minutes", "may go on meanwhile", next] {
            assert!(text.contains(said), "{text}");
        }
    }
}
