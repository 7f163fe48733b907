//! The one place that changes a job: from a job, what a pass saw and the time, to the job's next state and the effects that bring it about.
//!
//! `decide` is pure and total. The same inputs give the same answer; deciding again on its own answer, at the same time, changes nothing.
//! Steps, in this order: fold the workers' reports into the attempts (`workers`) and judge what they tell (`judge_told`: a program that ended
//! well has ended well, also when its slice is lost a moment later), fold what the API shows into the generations (`look`), judge silence and
//! limits (`judge`), follow people's wishes (`wish`), let go of what is not wanted (`retire`), ask for what is needed (`provision`),
//! release the program (`release`), then say where the job stands and when it must be looked at again (`stand`).
//!
//! **Invariant:** `Unknown` and missing reports never delete, charge or end anything.
//! **Invariant:** an attempt is released only when no earlier one can be running.

mod absent;
#[cfg(test)]
mod announced;
#[cfg(test)]
mod answers;
#[cfg(test)]
mod bounds;
#[cfg(test)]
mod cases;
mod charge;
mod judge;
#[cfg(test)]
mod leavings;
mod limits;
mod look;
#[cfg(test)]
mod losses;
#[cfg(test)]
mod outages;
#[cfg(test)]
mod patience;
#[cfg(test)]
mod progress;
mod provision;
#[cfg(test)]
mod rarities;
mod record;
mod release;
mod retire;
mod stand;
#[cfg(test)]
mod tests;
mod usage;
#[cfg(test)]
mod walks;
mod wish;
mod workers;
mod workspace;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::effect::Effect;
use crate::ids::InstallationId;
use crate::job::{Attempt, Create, Generation, Job};
use crate::limits::Share;
use crate::observation::{Look, Observation, ZoneReport};
use crate::reason::Reason;
use crate::settings::{Deployment, Settings};

pub use record::{Outcome as EffectOutcome, record};
pub(crate) use stand::LAST_HEARD;
pub use stand::OUTPUTS_MISSING;
pub use usage::usage_at;
pub use wish::{Command, NoSense, SOMEBODY, apply_command};
pub use workers::saved_by_all;

/// What `decide` needs beside job, observation and time; the same for all jobs.
#[derive(Debug, Clone, Copy)]
pub struct Rules<'a> {
    /// Numbers.
    pub settings: &'a Settings,
    /// What is allowed, and prices.
    pub deployment: &'a Deployment,
    /// For names.
    pub installation: &'a InstallationId,
}

/// The answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The job's next state.
    pub job: Arc<Job>,
    /// Effects to be carried out after the commit.
    pub effects: Vec<Effect>,
    /// Everything that was found out or decided, in sentences, for the history.
    pub notes: Vec<String>,
    /// What this job met at its candidates, for the others.
    pub zone_reports: Vec<ZoneReport>,
    /// True if the commit must take a create permit.
    pub takes_permit: bool,
    /// With `takes_permit`: what the commit takes off the use that was observed, since this job has given it back.
    pub given_back: Vec<Share>,
    /// Attempts that this step proved to be over.
    pub fenced: Vec<u32>,
    /// When a wake-up of its own is worth it; the job's `wake_at` may be earlier, for the tick.
    pub wake_precise: Option<Timestamp>,
    /// True if anything but the clockwork (wake-up, chip time) changed, so that a history entry is due.
    pub changed: bool,
}

/// Decides. See the module's header.
pub fn decide(job: &Job, seen: &Observation, now: Timestamp, rules: &Rules<'_>) -> Decision {
    let mut pass = Pass {
        before: job,
        job: job.clone(),
        seen,
        now,
        rules: *rules,
        notes: Vec::new(),
        wakes: Vec::new(),
        zone_reports: Vec::new(),
        takes_permit: false,
        asks_again: false,
        fenced: Vec::new(),
        lazy: false,
        waiting: None,
    };
    if !job.phase.is_terminal() {
        pass.count_usage();
        // One thing leads to another (an end to a stop, a stop to a fence, a fence to a delete): until nothing more follows.
        for _ in 0..STEPS_MAX {
            pass.waiting = None;
            pass.workers();
            // Folded once more, the same reports say nothing new: what follows from them is all that can lead on.
            let told = pass.job.clone();
            pass.conclude();
            if pass.job == told {
                break;
            }
        }
    }
    pass.stand()
}

/// More rounds than any chain of consequences has; a longer one would be a circle, and the next pass goes on with it.
const STEPS_MAX: usize = 8;

/// The working state of one `decide`.
struct Pass<'a> {
    before: &'a Job,
    job: Job,
    seen: &'a Observation,
    now: Timestamp,
    rules: Rules<'a>,
    notes: Vec<String>,
    wakes: Vec<Timestamp>,
    zone_reports: Vec<ZoneReport>,
    takes_permit: bool,
    /// A create that was not answered is sent again.
    asks_again: bool,
    fenced: Vec<u32>,
    /// The next tick is to look at the job, whenever it comes.
    lazy: bool,
    /// Why nothing is being created although something is needed.
    waiting: Option<(Reason, String)>,
}

impl Pass<'_> {
    /// What follows from what the workers have told and from what the API shows.
    fn conclude(&mut self) {
        self.judge_told();
        self.look();
        self.judge();
        self.wish();
        self.retire();
        self.provision();
        self.release();
        self.judge_start();
    }

    fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// A worker of that generation has spoken.
    fn is_heard(&self, generation: u32) -> bool {
        self.seen.workers.iter().flatten().any(|r| r.generation == generation)
    }

    /// Nothing was learnt of a slice: the read failed, or there was none.
    fn is_unread(&self, g: &Generation) -> bool {
        self.look_of(g).is_none_or(|look| look.slice == Look::Unknown)
    }

    /// Looks at the job again at `at` (or now, if that is past).
    fn wake(&mut self, at: Timestamp) {
        self.wakes.push(at);
    }

    fn settings(&self) -> &Settings {
        self.rules.settings
    }

    /// True when `since + wait` has come; else notes the wake-up.
    fn over(&mut self, since: Timestamp, wait: Duration) -> bool {
        let at = since.saturating_add(wait).unwrap_or(Timestamp::MAX);
        if self.now >= at {
            return true;
        }
        self.wake(at);
        false
    }

    /// No worker can be running this attempt any more.
    fn fence(&mut self, attempt: u32) {
        let now = self.now;
        if let Some(a) = self.attempt_mut(attempt)
            && a.fenced_at.is_none()
        {
            a.fenced_at = Some(now);
            self.fenced.push(attempt);
        }
    }

    fn generation_mut(&mut self, number: u32) -> Option<&mut Generation> {
        self.job.generations.iter_mut().find(|g| g.number == number)
    }

    fn attempt_mut(&mut self, number: u32) -> Option<&mut Attempt> {
        self.job.attempts.iter_mut().find(|a| a.number == number)
    }

    /// What this job has given back since its use was last counted: what its document remembers, and what this step found lost or gone.
    fn given_back(&self) -> Vec<Share> {
        let remembered = self.before.vacated.as_ref().filter(|v| v.survey == self.seen.used.survey);
        let mut shares = remembered.map(|v| v.shares.clone()).unwrap_or_default();
        for was in &self.before.generations {
            let kept =
                self.job.generations.iter().find(|g| {
                    g.number == was.number && g.placement == was.placement && g.intended_at == was.intended_at
                });
            if kept.and_then(Generation::share).is_none() {
                shares.extend(was.share());
            }
        }
        shares
    }

    /// How long after an intent a create may still be on its way.
    fn in_flight(&self) -> Duration {
        self.settings().handler_deadline + self.settings().request_timeout
    }

    /// The newest generation if it may carry an attempt: wanted, not lost, not on its way out.
    fn usable_generation(&self) -> Option<&Generation> {
        let g = self.job.generations.last()?;
        let usable = g.lost.is_none()
            && g.delete.is_none()
            && !matches!(g.create, Create::Failed { .. })
            && !self.is_left(g)
            && !g.notice.as_ref().is_some_and(|n| crate::orders::notice_is_urgent(n, self.now));
        usable.then_some(g)
    }

    /// The next slice was asked for in place of this one, for good: that create may have brought nothing, and the notice be another one by then.
    fn is_left(&self, g: &Generation) -> bool {
        self.job.attempts.last().is_some_and(|a| a.generation > g.number)
    }
}
