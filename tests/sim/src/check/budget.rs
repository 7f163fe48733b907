//! Creates never exceed the budget of a minute: each request has a permit of its own, taken in the commit of its intent.

use std::collections::BTreeMap;
use std::sync::Arc;

use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_ports::store::CreatesDoc;

use super::Broken;
use super::intent::IN_FLIGHT;
use crate::roll::MIN;

/// The budget of half a minute by the default settings.
const PERMITS: u32 = 30;

/// Requests in any 60 s, which touch three half minutes; the platform refuses from 91 on.
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
    let half = now.div_euclid(MIN / 2);
    if let Some((full, used)) = after.halves.iter().find(|(_, used)| **used > PERMITS) {
        return Some(format!("{used} create permits were given in half minute {full}"));
    }
    // What the tick grants counts in the half minute that it is granted for.
    let is_new = |(job, at): &(&JobId, &i64)| before.grants.get(*job) != Some(at);
    let mut more: BTreeMap<i64, u32> = BTreeMap::new();
    for (_, at) in after.grants.iter().filter(is_new) {
        *more.entry(*at).or_default() += 1;
    }
    if job.is_some() && !more.is_empty() {
        return Some(format!("a pass granted permits: {more:?}"));
    }
    // One that was granted was counted then; where it is late, it may be counted anew.
    let granted = job.map(|job| before.grants.get(job));
    let mut taken = 0;
    for (at, used) in &after.halves {
        let grown = i64::from(*used) - i64::from(before.used_in(*at));
        let grown = grown - i64::from(more.get(at).copied().unwrap_or_default());
        if grown != 0 && (at - half).abs() > 1 {
            return Some(format!("{grown} create permits of half minute {at} were taken in half minute {half}"));
        }
        taken += grown;
    }
    let is_forgotten = |at: &&i64| **at + 3 >= half;
    if let Some(at) = before.halves.keys().filter(|at| !after.halves.contains_key(at)).find(is_forgotten) {
        return Some(format!("the permits of half minute {at} were forgotten in half minute {half}"));
    }
    let right = match granted {
        None => taken == 0,
        Some(None) => taken == 1,
        Some(Some(at)) if *at >= half => taken == 0,
        Some(Some(at)) if *at + 2 < half => taken == 1,
        // By the store's clock, which this is near.
        Some(Some(_)) => (0..=1).contains(&taken),
    };
    (!right)
        .then(|| format!("{taken} create permits were counted in half minute {half}, where {granted:?} was granted"))
}

/// A request arrived.
pub(super) fn posts(in_minute: usize) -> Broken {
    (in_minute > POSTS).then(|| ("create-budget", format!("{in_minute} create requests in 60 s")))
}
