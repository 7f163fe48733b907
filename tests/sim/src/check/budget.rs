//! Creates never exceed the budget of a minute: each request has a permit of its own, taken in the commit of its intent.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_ports::store::CreatesDoc;

use super::Broken;
use super::intent::IN_FLIGHT;
use crate::roll::MIN;

/// The budget of the default settings.
const PERMITS: u32 = 60;

/// Requests in any 60 s. A permit taken at the end of one minute may be used for a handler's deadline longer, and one of the next minute at
/// its very beginning; the platform refuses from 91 on.
const POSTS: usize = 90;

/// What one commit has of both.
#[derive(Default)]
pub(super) struct Commit {
    /// The permits before, and after.
    permits: Option<(Arc<CreatesDoc>, Arc<CreatesDoc>)>,
    /// Creates that are to be sent, each with its job.
    asks: Vec<(JobId, String)>,
}

impl Commit {
    /// The permits were written.
    pub(super) fn permits(&mut self, before: Option<Arc<CreatesDoc>>, after: Arc<CreatesDoc>) {
        self.permits = Some((before.unwrap_or_default(), after));
    }

    /// A job was written: whether a create of it is to be sent, for the first time or again.
    pub(super) fn job(&mut self, before: &Job, after: &Job) {
        for g in after.generations.iter().filter(|g| g.asked_at.is_some()) {
            let known = before.generations.iter().find(|b| b.name == g.name && b.placement == g.placement);
            if known.and_then(|known| known.asked_at) != g.asked_at {
                self.asks.push((after.id.clone(), g.name.clone()));
            }
        }
    }
}

/// Permits that were taken, by the name of the slice, with when: each is for one request.
#[derive(Default)]
pub(super) struct Permits {
    taken: BTreeMap<String, Vec<i64>>,
}

impl Permits {
    /// A commit took effect.
    pub(super) fn commit(&mut self, commit: Commit, now: i64) -> Broken {
        let broken = |text| Some(("create-budget", text));
        let Commit { permits, asks } = commit;
        if asks.len() > 1 {
            return broken(format!("one commit asks for {} slices: {asks:?}", asks.len()));
        }
        let asked = asks.into_iter().next();
        let wrong = match (&permits, &asked) {
            (None, None) => None,
            (None, Some((job, name))) => Some(format!("{name} of {job} is asked for without a permit in its commit")),
            (Some((before, after)), asked) => miscounted(before, after, asked.as_ref().map(|(job, _)| job), now),
        };
        if let Some((_, name)) = asked {
            self.taken.entry(name).or_default().push(now);
        }
        wrong.and_then(broken)
    }

    /// A create request arrived.
    pub(super) fn used(&mut self, name: &str, now: i64) -> Broken {
        let taken = self.taken.entry(name.to_owned()).or_default();
        taken.retain(|at| now - *at <= IN_FLIGHT);
        if taken.is_empty() {
            return Some(("create-budget", format!("a request for {name} has no permit of its own")));
        }
        taken.remove(0);
        None
    }
}

/// What is wrong with a write of the permits, which `job` takes one of, or the tick grants some of.
fn miscounted(before: &CreatesDoc, after: &CreatesDoc, job: Option<&JobId>, now: i64) -> Option<String> {
    let minute = now.div_euclid(MIN);
    if after.minute < before.minute || (after.minute - minute).abs() > 1 {
        return Some(format!("permits of minute {} after {}, in minute {minute}", after.minute, before.minute));
    }
    if after.used > PERMITS {
        return Some(format!("{} create permits were given in one minute", after.used));
    }
    let used = if before.minute == after.minute { before.used } else { 0 };
    let new = if let Some(job) = job {
        // What was granted in this minute was counted then.
        u32::from(before.granted.get(job) != Some(&after.minute))
    } else {
        let is_new = |(job, at): &(&JobId, &i64)| before.granted.get(*job) != Some(at);
        u32::try_from(after.granted.iter().filter(is_new).count()).unwrap_or(u32::MAX)
    };
    (after.used != used + new).then(|| {
        format!(
            "{} create permits of minute {} after {used}, and {new} were taken or granted",
            after.used, after.minute
        )
    })
}

/// A request arrived.
pub(super) fn posts(in_minute: usize) -> Broken {
    (in_minute > POSTS).then(|| ("create-budget", format!("{in_minute} create requests in 60 s")))
}
