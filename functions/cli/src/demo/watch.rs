//! Watches the job over HTTP from submit to its end, tells what happens, lets the faults in, and measures.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use rekindle_core::history::HistoryEntry;
use rekindle_core::job::{Outcome, Phase};
use rekindle_wire::v1::{HistoryList, JobView};

use super::account::Account;
use super::cloud::Cloud;
use super::faults::{Faults, Noticed};
use super::plan::{JOB, Plan};
use super::timeline::Timeline;
use crate::api::{Api, new_key, typed};
use crate::dev::stack::Stack;
use crate::fault::{Fault, Result};

/// Between two looks. Short: what is measured here is measured to this.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// A demonstration that takes longer has failed.
// A run without faults takes about 15 s, a preemption adds about 5 s, a gRPC failure about 2 s (30 s if by a freeze).
const TIME_MAX: Duration = Duration::from_mins(3);
const TIME_MAX_PER_FAULT: Duration = Duration::from_mins(1);

/// Submits the job and stays with it until it owns nothing more.
pub(crate) async fn to_the_end(
    plan: &Plan,
    api: &Api,
    cloud: &Cloud,
    stack: &Stack,
    timeline: &Timeline,
) -> Result<Account> {
    api.post("/v1/jobs", &plan.job(&stack.binary), &new_key()).await?;
    let deadline = Instant::now() + TIME_MAX + TIME_MAX_PER_FAULT * plan.faults.len() as u32;
    let mut watch = Watch { api, cloud, timeline, etag: None, revision: 0, recovering: None };
    let mut faults = Faults::new(plan);
    let mut account = Account::default();
    let mut last: Option<JobView> = None;
    loop {
        if let Some(job) = watch.look().await? {
            watch.measure(&job, &mut account).await?;
            if job.phase.is_terminal() {
                account.take(&job, faults.are_over());
                return Ok(account);
            }
            last = Some(job);
        }
        if let Some(job) = &last
            && let Some(noticed) = faults.look(job, cloud, timeline).await?
        {
            watch.recovering = Some(Recovering::new(noticed, job));
        }
        if Instant::now() > deadline {
            return Err(too_long(last.as_ref()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn too_long(last: Option<&JobView>) -> Fault {
    let place = last.map_or_else(
        || "it was never seen".to_owned(),
        |job| format!("{} at attempt {}: {}", job.phase.as_str(), job.attempt, job.message),
    );
    Fault::unexpected("the job does not come to its end")
        .because(place)
        .next("run it again when the machine is less busy")
}

struct Watch<'a> {
    api: &'a Api,
    cloud: &'a Cloud,
    timeline: &'a Timeline,
    etag: Option<String>,
    /// History was told up to this revision.
    revision: u64,
    recovering: Option<Recovering>,
}

/// A preemption whose recovery is being measured.
struct Recovering {
    noticed: Noticed,
    /// The next create request was seen.
    has_reacted: bool,
    /// Highest step that the lost attempt reached; final once the next one runs.
    highest: u64,
}

impl Recovering {
    fn new(noticed: Noticed, job: &JobView) -> Self {
        Self { noticed, has_reacted: false, highest: job.progress.step.unwrap_or(0) }
    }
}

impl Watch<'_> {
    /// The job if it has changed; tells what was decided since the last look.
    async fn look(&mut self) -> Result<Option<JobView>> {
        let Some(value) = self.api.get_if_changed(&format!("/v1/jobs/{JOB}"), &mut self.etag).await? else {
            return Ok(None);
        };
        let job: JobView = typed(value)?;
        if job.revision > self.revision {
            self.tell().await?;
        }
        self.timeline.progress(&job);
        Ok(Some(job))
    }

    async fn tell(&mut self) -> Result<()> {
        let query = [("page_token", Some(self.revision.to_string())), ("page_size", Some("500".to_owned()))];
        let list: HistoryList = typed(self.api.get(&format!("/v1/jobs/{JOB}/history"), &query).await?)?;
        for entry in &list.entries {
            self.revision = entry.revision;
            if is_news(entry) {
                self.timeline.decision(entry);
            }
        }
        Ok(())
    }

    /// Reaction: from the notice to the next create request, both by the emulator's clock. Recovery: from the notice to
    /// the first step above everything that the lost attempt had done.
    async fn measure(&mut self, job: &JobView, account: &mut Account) -> Result<()> {
        let Some(recovering) = &mut self.recovering else { return Ok(()) };
        let since = |at: Timestamp| {
            let took = at.duration_since(recovering.noticed.at);
            Duration::try_from(took).unwrap_or(Duration::ZERO)
        };
        if !recovering.has_reacted
            && let Some(at) = self.cloud.next_create(recovering.noticed.at).await?
        {
            recovering.has_reacted = true;
            account.reaction.push(since(at));
            self.timeline.measured("from the notice to the create request", since(at));
        }
        let runs_again = job.phase == Phase::Running && job.generation > recovering.noticed.generation;
        let step = job.progress.step.unwrap_or(0);
        let has_ended = job.outcome == Some(Outcome::Succeeded);
        if !runs_again && !has_ended {
            recovering.highest = recovering.highest.max(step);
        } else if step > recovering.highest {
            let at = job.progress.step_at.unwrap_or_else(Timestamp::now);
            account.recovery.push(since(at));
            self.timeline.measured("from the notice to the first new step", since(at));
            self.recovering = None;
        }
        Ok(())
    }
}

/// Decisions that only note progress are on the bar below.
fn is_news(entry: &HistoryEntry) -> bool {
    let only_progress =
        entry.from == Phase::Running && entry.to == Phase::Running && entry.message.contains(" runs on ");
    !only_progress || !entry.effects.is_empty() || !crate::human::news(entry).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_does_not_end_is_told_of() {
        let text = too_long(None).text();
        let said =
            ["the job does not come to its end", "it was never seen", "run it again when the machine is less busy"];
        assert!(said.iter().all(|word| text.contains(word)), "{text}");
    }
}
