//! The worker's machine by its identity token: on top of nonce and token, which anyone who reads node metadata could copy.
//!
//! What the token says comes from the platform, not from the worker: that it is this VM, in this zone, running as this
//! account. The attempt token is bound to the VM's name, so the two together bind each call to one machine.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use jiff::SignedDuration;

use rekindle_core::ids::WorkerKey;
use rekindle_core::job::{Generation, Job};
use rekindle_web::{Machine, Problem, problem};

use crate::Api;

/// How much earlier than our own word of the create a VM may say that it was made: clocks differ.
const CLOCKS: SignedDuration = SignedDuration::from_mins(5);

/// Lets no machine further that has no good identity token: who has none is not waited for until a body has come.
pub(crate) async fn known(State(api): State<Api>, request: Request, next: Next) -> Result<Response, Problem> {
    api.workers.machine(request.headers()).await?;
    Ok(next.run(request).await)
}

/// The machine that calls, which must be the one it says it is. `None` on a person's own machine.
pub(crate) async fn of(api: &Api, headers: &HeaderMap, instance: &str) -> Result<Option<Machine>, Problem> {
    let Some(machine) = api.workers.machine(headers).await? else { return Ok(None) };
    if machine.instance == instance {
        return Ok(Some(machine));
    }
    Err(refused(&machine, &format!("it calls as {instance}")))
}

/// Whether a machine can be this worker of that generation: its account, its zone, its number, its age.
pub(super) fn is_worker(
    api: &Api,
    machine: Option<&Machine>,
    job: &Job,
    g: &Generation,
    key: WorkerKey,
) -> Result<(), Problem> {
    let Some(machine) = machine else { return Ok(()) };
    let own = job.spec.tpu.network.service_account.as_ref().or(api.engine.deployment.worker_service_account.as_ref());
    if let Some(account) = own.filter(|account| !account.eq_ignore_ascii_case(&machine.email)) {
        return Err(refused(machine, &format!("workers of job {} run as {account}", job.id)));
    }
    if machine.zone != g.placement.zone {
        return Err(refused(machine, &format!("{} is in {}", g.name, g.placement.zone)));
    }
    if number(&machine.instance).is_some_and(|number| number != key.worker) {
        return Err(refused(machine, &format!("it calls as worker {}", key.worker)));
    }
    if machine.created_at.is_some_and(|at| at + CLOCKS < g.intended_at) {
        return Err(refused(machine, &format!("it is older than {}", g.name)));
    }
    Ok(())
}

/// The worker's number at the end of a TPU VM's name, `t1v-n-…-w-3`.
fn number(instance: &str) -> Option<u32> {
    instance.strip_prefix("t1v-")?.rsplit_once("-w-")?.1.parse().ok()
}

fn refused(machine: &Machine, why: &str) -> Problem {
    let (instance, zone, email) = (&machine.instance, &machine.zone, &machine.email);
    tracing::warn!(instance, zone, email, error = why, "a machine that is not this worker");
    let told = format!("the identity token is of {instance} in {zone} as {email}, but {why}");
    problem(StatusCode::FORBIDDEN, "worker-identity", told)
}
