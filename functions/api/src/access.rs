//! Whose jobs a caller may see, change and stop: the deployment's policy, as answers.

use http::StatusCode;

use rekindle_core::access::{Right, spelled};
use rekindle_core::ids::JobId;
use rekindle_core::job::Job;
use rekindle_web::{Caller, Problem, problem};

use crate::Api;
use crate::jobs::load;

/// Whether a caller has a right over an owner's jobs.
pub(crate) fn may(api: &Api, caller: &Caller, right: Right, owner: &str) -> bool {
    caller.is_admin || api.engine.deployment.access.may(&caller.identity, right, owner)
}

/// Whether a caller has a right over everyone's jobs.
pub(crate) fn may_all(api: &Api, caller: &Caller, right: Right) -> bool {
    caller.is_admin || api.engine.deployment.access.may_all(&caller.identity, right)
}

/// Whose jobs an answer over many jobs is of: those that the caller may see; of one owner, if they ask for one.
pub(crate) struct Shown<'a> {
    api: &'a Api,
    caller: &'a Caller,
    sees_all: bool,
    owner: Option<String>,
}

impl<'a> Shown<'a> {
    /// `owner` as the query has it: an empty one is none.
    pub(crate) fn new(api: &'a Api, caller: &'a Caller, owner: Option<String>) -> Self {
        let sees_all = may_all(api, caller, Right::See);
        let owner = owner.filter(|owner| !owner.is_empty()).map(|owner| spelled(&owner, &caller.identity));
        Self { api, caller, sees_all, owner }
    }

    /// Whether it is of this job; `None`: of what belongs to no job that is known.
    pub(crate) fn has(&self, job: Option<&Job>) -> bool {
        let Some(job) = job else { return self.sees_all && self.owner.is_none() };
        let owner = &job.spec.owner;
        let is_wanted = self.owner.as_ref().is_none_or(|wanted| wanted == owner);
        is_wanted && (self.sees_all || may(self.api, self.caller, Right::See, owner))
    }
}

/// Loads a job that the caller may see. 404 also for one that they may not: that it is there is not theirs to know.
pub(crate) async fn seen(api: &Api, caller: &Caller, id: &JobId) -> Result<Job, Problem> {
    let job = load(api, id).await?;
    if may(api, caller, Right::See, &job.spec.owner) {
        return Ok(job);
    }
    tracing::warn!(job = %id, caller = caller.identity, owner = job.spec.owner, "the policy shows this job not to them");
    Err(Problem::not_found(&format!("job {id}")))
}

/// Whether the caller may do that to a job: 404 for a job that they may not see, 403 for one that they may only see.
pub(crate) async fn check(api: &Api, caller: &Caller, right: Right, id: &JobId) -> Result<(), Problem> {
    if may_all(api, caller, right) {
        // Whether there is such a job is found out by what they do to it.
        return Ok(());
    }
    let job = load(api, id).await?;
    let owner = &job.spec.owner;
    if may(api, caller, right, owner) {
        return Ok(());
    }
    tracing::warn!(job = %id, caller = caller.identity, owner, right = ?right, "the policy does not allow this");
    if may(api, caller, Right::See, owner) {
        let why = format!("the policy does not let {} do this to jobs of {owner}", caller.identity);
        return Err(problem(StatusCode::FORBIDDEN, "policy", why));
    }
    Err(Problem::not_found(&format!("job {id}")))
}

/// 403 unless the caller has a right over everyone's jobs.
pub(crate) fn check_all(api: &Api, caller: &Caller, right: Right) -> Result<(), Problem> {
    if may_all(api, caller, right) {
        return Ok(());
    }
    tracing::warn!(caller = caller.identity, right = ?right, "the policy does not allow this for all jobs");
    let why = format!("this concerns everyone's jobs, and the policy does not let {} do it", caller.identity);
    Err(problem(StatusCode::FORBIDDEN, "policy", why))
}
