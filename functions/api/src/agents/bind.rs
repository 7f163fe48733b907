//! The first hello: binds a worker of a generation to one VM, and notes a boot that lost a program.

use http::StatusCode;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::{Attempt, Job};
use rekindle_core::observation::{WorkerReport, WorkerState};
use rekindle_core::orders::attempt_of;
use rekindle_core::shared::Shared;
use rekindle_ports::docs::Precondition;
use rekindle_ports::kinds::Kind;
use rekindle_ports::store::{At, InstanceDoc, StoreError, put};
use rekindle_web::{Problem, problem};
use rekindle_wire::agent::Hello;

use super::News;
use super::merge::is_untold_reboot;
use crate::Api;
use crate::jobs::store;

/// Lost races before the agent is asked to come again. Only an agent's own repeated hello can be in one.
const RACES_MAX: u32 = 5;

/// The document that says which VM a worker of a generation is. VM names have no slash, so it never meets one of
/// theirs.
fn binding(job: &JobId, generation: u32, key: WorkerKey) -> Kind {
    Kind::Instance(format!("{job}/{generation}/{}-{}", key.slice, key.worker))
}

/// Stores the hello. `Some`: the pass should know. 409 when another VM is bound, or this one to another worker.
///
/// **Invariant:** a document of a later attempt is written only when nothing of an earlier one can be running on the
/// VM, since it fences it.
pub(super) async fn bind(api: &Api, job: &Job, hello: &Hello) -> Result<Option<News>, Problem> {
    for races in 0..RACES_MAX {
        let bound = api
            .engine
            .ports
            .store
            .read::<InstanceDoc>(&binding(&hello.job, hello.generation, hello.key))
            .await
            .map_err(|e| store(&e))?;
        let done = match bound {
            None => {
                let doc = InstanceDoc {
                    name: hello.instance.clone(),
                    job: hello.job.clone(),
                    generation: hello.generation,
                    key: hello.key,
                };
                // As a rule nobody has the name: a commit that finds it is cheaper than a read before each.
                let when = if races == 0 { Precondition::Absent } else { unnamed(api, &doc).await? };
                first(api, job, hello, &doc, when).await
            }
            Some(at) if at.value.name == hello.instance => again(api, job, hello).await,
            Some(at) => {
                tracing::error!(
                    job = %hello.job, generation = hello.generation, slice = hello.key.slice, worker = hello.key.worker,
                    bound = at.value.name, refused = hello.instance, "another VM says hello for a worker that is bound"
                );
                return Err(problem(StatusCode::CONFLICT, "worker-taken", "another VM is this worker"));
            }
        };
        match done {
            Err(StoreError::Conflict(_)) => {}
            Err(error) => return Err(store(&error)),
            Ok(news) => return Ok(news),
        }
    }
    Err(Problem::unavailable("the store", &"a hello lost every race"))
}

/// When the name of a VM may be written: no other VM gets it, and system events of the VM go to the job that has it. 409
/// when it is another worker's.
async fn unnamed(api: &Api, doc: &InstanceDoc) -> Result<Precondition, Problem> {
    let known = api.engine.ports.store.read::<InstanceDoc>(&Kind::Instance(doc.name.clone())).await;
    let Some(known) = known.map_err(|e| store(&e))? else { return Ok(Precondition::Absent) };
    if known.value == *doc {
        return Ok(Precondition::At(known.revision));
    }
    let of = &known.value;
    tracing::warn!(
        job = %doc.job, generation = doc.generation, slice = doc.key.slice, worker = doc.key.worker,
        refused = doc.name, bound = %format_args!("{}/{}/{}-{}", of.job, of.generation, of.key.slice, of.key.worker),
        "a VM says hello that is bound to another worker"
    );
    Err(problem(StatusCode::CONFLICT, "worker-taken", "this VM is another worker"))
}

/// Binding, VM name and worker document in one commit; the name is written on what was found of it.
async fn first(
    api: &Api,
    job: &Job,
    hello: &Hello,
    doc: &InstanceDoc,
    when: Precondition,
) -> Result<Option<News>, StoreError> {
    let mut writes = vec![
        put(&binding(&hello.job, hello.generation, hello.key), doc, Precondition::Absent),
        put(&Kind::Instance(hello.instance.clone()), doc, when),
    ];
    if let Some(attempt) = attempt_of(job, hello.generation) {
        let report = fresh(api, attempt, hello);
        writes.push(put(&Kind::Worker(hello.job.clone(), attempt.number, hello.key), &report, Precondition::Absent));
    }
    let after = api.engine.ports.store.commit(writes).await?;
    // The machines are up, which the job's passes would see with the next tick alone; one of them speaks for all.
    let is_news = job
        .generation(hello.generation)
        .is_some_and(|g| g.ready_at.is_none() && hello.key.slice + 1 == g.slices && hello.key.worker + 1 == g.workers);
    Ok(is_news.then(|| News { cause: "worker hello".into(), after, is_retold: false }))
}

/// The same VM once more: the agent restarted (same boot), or the VM did.
async fn again(api: &Api, job: &Job, hello: &Hello) -> Result<Option<News>, StoreError> {
    let Some(current) = attempt_of(job, hello.generation) else { return Ok(None) };
    let reports = reports(api, job, hello).await?;
    let own = reports.iter().find(|at| at.value.attempt == current.number);
    let Some(last) = reports.iter().max_by_key(|at| at.value.attempt) else {
        // It said hello before there was an attempt: nothing of any can be running.
        let report = fresh(api, current, hello);
        return write(api, hello, &report, Precondition::Absent).await.map(|_| None);
    };
    if last.value.boot_id == hello.boot_id {
        // The program may be alive; the agent finds out and reports. Unless this boot is known to have lost it, and the job does not know.
        let untold = own.filter(|at| is_untold_reboot(&at.value, current));
        return Ok(untold.map(|at| News { cause: "worker rebooted".into(), after: at.revision, is_retold: true }));
    }
    let (mut report, when) = match own {
        Some(at) => {
            let mut report = WorkerReport::clone(&at.value);
            report.boot_id.clone_from(&hello.boot_id);
            report.address.clone_from(&hello.address);
            report.heard_at = api.engine.ports.clock.now();
            if report.exit.is_none() {
                report.state = WorkerState::Preparing;
            }
            (report, Precondition::At(at.revision))
        }
        None => (fresh(api, current, hello), Precondition::Absent),
    };
    // Kept, because this answer may be lost, and the next hello comes from a boot that is known.
    report.has_rebooted |= current.released_at.is_some() && report.exit.is_none();
    let after = write(api, hello, &report, when).await?;
    tracing::warn!(job = %hello.job, instance = hello.instance, "a worker has booted again");
    Ok(Some(News { cause: "worker rebooted".into(), after, is_retold: false }))
}

/// What this worker reported of the attempts on its generation that are not over.
async fn reports(api: &Api, job: &Job, hello: &Hello) -> Result<Vec<At<Shared<WorkerReport>>>, StoreError> {
    let of: Vec<(u32, WorkerKey)> =
        job.attempts.iter().filter(|a| a.generation == hello.generation).map(|a| (a.number, hello.key)).collect();
    Ok(api.engine.ports.store.workers(&hello.job, &of).await?.0)
}

async fn write(
    api: &Api,
    hello: &Hello,
    report: &WorkerReport,
    when: Precondition,
) -> Result<rekindle_ports::docs::Revision, StoreError> {
    let kind = Kind::Worker(hello.job.clone(), report.attempt, hello.key);
    api.engine.ports.store.write(&kind, report, when).await
}

fn fresh(api: &Api, attempt: &Attempt, hello: &Hello) -> WorkerReport {
    WorkerReport {
        attempt: attempt.number,
        generation: hello.generation,
        key: hello.key,
        instance: hello.instance.clone(),
        boot_id: hello.boot_id.clone(),
        address: hello.address.clone(),
        state: WorkerState::Preparing,
        heard_at: api.engine.ports.clock.now(),
        started_at: None,
        step: None,
        step_at: None,
        output_at: None,
        loss: None,
        checkpoint: None,
        resumed_from: None,
        disk_free_bytes: None,
        memory_free_bytes: None,
        notice: None,
        exit: None,
        is_collecting: false,
        has_unsent: false,
        has_rebooted: false,
        less_since: None,
    }
}
