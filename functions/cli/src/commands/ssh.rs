//! `ssh`: a shell on a worker, by `gcloud compute tpus tpu-vm ssh`, which brings keys and finds addresses.

use std::process::ExitCode;

use rekindle_core::ids::{JobId, WorkerKey};
use rekindle_core::job::Phase;
use rekindle_core::names;
use rekindle_wire::v1::{JobView, ResourceView, VersionView, worker_key, worker_label};

use super::{Context, job_path, workspace};
use crate::answers::Login;
use crate::api::typed;
use crate::args::Ssh;
use crate::fault::{Fault, Result};

/// TensorBoard and Jupyter.
const PORTS: [u16; 2] = [6006, 8888];

/// Opens a shell, and ends as it does.
pub(crate) async fn run(context: &Context, options: &Ssh) -> Result<ExitCode> {
    let view = look(context, &options.name).await?;
    refuse_local(context, &view).await?;
    let words = words(&view, options)?;
    if context.printer.is_json {
        // Its terminal is no JSON.
        let command = std::iter::once("gcloud".to_owned()).chain(words).collect();
        context.printer.json(&Login { command })?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = std::process::Command::new("gcloud");
    command.args(&words);
    context.printer.talk(&format!("gcloud {}", words.join(" ")));
    // `gcloud` owns the terminal until it ends.
    let status = command.status().map_err(|error| {
        Fault::unexpected("cannot start gcloud").caused_by(&error).next(
            "install the Google Cloud CLI (https://cloud.google.com/sdk/docs/install); `rekindle exec` needs none",
        )
    })?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)))
}

/// The workers of `rekindle dev` are processes here. Who points gcloud to its emulator knows that, and means it.
async fn refuse_local(context: &Context, view: &JobView) -> Result<()> {
    let server: VersionView = typed(context.api.get("/version", &[]).await?)?;
    if can_log_in(&server) {
        return Ok(());
    }
    let id = &view.id;
    let next = if view.spec["workspace"] == true {
        format!("run commands there: rekindle exec {id} -- COMMAND")
    } else {
        format!(
            "follow what it prints: rekindle logs -f {id}; `rekindle up NAME` makes a workspace for `rekindle exec`"
        )
    };
    Err(Fault::input(format!("{id} has no machine to log in to"))
        .because(format!("{} is `rekindle dev`: its workers are processes of its own machine", context.api.url()))
        .next(next))
}

/// Whether the server's workers are machines that one can log in to; not where it does not tell what it is.
pub(super) async fn has_machines(context: &Context) -> bool {
    let told = context.api.get("/version", &[]).await.and_then(typed::<VersionView>);
    told.is_ok_and(|server| can_log_in(&server))
}

fn can_log_in(server: &VersionView) -> bool {
    !server.is_local || std::env::var_os(EMULATOR).is_some()
}

/// Where gcloud finds another Cloud TPU API than Google's.
const EMULATOR: &str = "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU";

/// Any job with a TPU; of a workspace's name the one that is there.
async fn look(context: &Context, name: &str) -> Result<JobView> {
    let found = context.api.get(&job_path(name, "")?, &[]).await.map_err(|fault| {
        if fault.lacks().is_none() {
            return fault;
        }
        let next = format!("make a workspace: rekindle up {name} --tpu v5litepod-8; `rekindle ps` lists the jobs");
        fault.next(next)
    })?;
    let view: JobView = typed(found)?;
    if view.phase.is_terminal() && view.spec["workspace"] == true {
        return Ok(workspace::live(context, name).await?.1);
    }
    Ok(view)
}

fn words(view: &JobView, options: &Ssh) -> Result<Vec<String>> {
    let id = &view.id;
    let ready = view.resources.iter().rev().find(|tpu| tpu.state == "ready");
    let Some(tpu) = ready else {
        let word = match (view.phase == Phase::Paused, view.spec["workspace"] == true) {
            (true, true) => "up",
            (true, false) => "unpause",
            (false, _) => "explain",
        };
        let next = format!("rekindle {word} {id}");
        let phase = view.phase.as_str();
        let state = if view.phase.is_terminal() { format!("has ended ({phase})") } else { format!("is {phase}") };
        return Err(Fault::input(format!("{id} has no TPU now: it {state}")).next(next));
    };
    let (node, worker) = place(id, tpu, &options.worker)?;
    // Without an external address gcloud would try the internal one, which is reached from the worker's network alone.
    let is_inside = view.spec["tpu"]["external_ips"] == false;
    let iap = options.iap || (is_inside && !options.internal_ip);
    // Only gcloud's alpha track knows that way.
    let track = iap.then_some("alpha").into_iter();
    let mut words: Vec<String> = track.chain(["compute", "tpus", "tpu-vm", "ssh", &node]).map(str::to_owned).collect();
    words.extend([format!("--zone={}", tpu.zone), format!("--worker={worker}")]);
    let flags = [("--internal-ip", options.internal_ip), ("--tunnel-through-iap", iap), ("--plain", options.plain)];
    words.extend(flags.iter().filter(|(_, is)| *is).map(|(flag, _)| (*flag).to_owned()));
    words.extend(options.key.iter().map(|file| format!("--ssh-key-file={}", file.display())));
    words.extend(options.project.iter().map(|project| format!("--project={project}")));
    let forwards = PORTS.iter().filter(|_| options.forward);
    let forwards = forwards.flat_map(|port| ["-L".to_owned(), format!("{port}:localhost:{port}")]);
    let rest: Vec<String> = forwards.chain(options.rest.iter().cloned()).collect();
    if !rest.is_empty() {
        words.push("--".to_owned());
        words.extend(rest);
    }
    Ok(words)
}

/// The node, and the worker there.
fn place(id: &JobId, tpu: &ResourceView, worker: &str) -> Result<(String, String)> {
    if worker == "all" && tpu.workers > 1 {
        let next = format!("name one with --worker; on all of them: rekindle exec {id} -- COMMAND, of a workspace");
        return Err(Fault::input(format!("{id} has {} workers, and a terminal goes to one", tpu.workers)).next(next));
    }
    let worker = if worker == "all" { "0" } else { worker };
    let each = tpu.workers / tpu.slices.max(1);
    let known = worker_key(worker).filter(|key| key.slice < tpu.slices && key.worker < each);
    let Some(key) = known else {
        let last = each.saturating_sub(1);
        let has_slices = tpu.slices > 1;
        let name = |slice: u32, worker: u32| worker_label(WorkerKey { slice, worker }, has_slices);
        let (first, last) = (name(0, 0), name(tpu.slices.saturating_sub(1), last));
        return Err(Fault::input(format!("{id} has no worker {worker:?}"))
            .next(format!("name one of {first} to {last} with --worker")));
    };
    let node = if tpu.slices > 1 { names::slice_name(&tpu.name, key.slice) } else { tpu.name.clone() };
    Ok((node, key.worker.to_string()))
}
